# SPDX-License-Identifier: Apache-2.0
# Blocks of different sizes.

sized <- function(seed = 1, heads = 1) {
  set.seed(seed)
  rows <- c(0, cumsum(sample(6, 5, TRUE)))
  cols <- c(0, cumsum(sample(5, 4, TRUE)))
  mask <- array(runif(5 * 4 * heads) < 0.5, c(5, 4, heads))
  layout <- block_layout_from_mask(if (heads == 1) mask[, , 1] else mask, rows = rows, cols = cols)
  dense <- array(rnorm(max(rows) * max(cols) * heads), c(max(rows), max(cols), heads))
  stored <- mask[rep(1:5, diff(rows)), rep(1:4, diff(cols)), , drop = FALSE]
  if (heads == 1) dim(dense) <- dim(dense)[1:2]
  list(x = block_matrix(dense, layout = layout), dense = if (heads == 1) dense * stored[, , 1] else dense * stored,
       rows = rows, cols = cols, layout = layout)
}

test_that("layouts say their sizes", {
  x <- block_layout_from_mask(matrix(c(TRUE, FALSE, TRUE, TRUE, FALSE, TRUE), 2), rows = c(0, 3, 5), cols = c(0, 4, 5, 12))
  expect_true(block_is_variable(x))
  expect_equal(dim(x), c(5, 12))
  expect_equal(block_dim(x), c(3, 7))
  expect_equal(block_grid(x), c(2, 3))
  expect_equal(block_boundaries(x), list(rows = c(0, 3, 5), cols = c(0, 4, 5, 12)))
  expect_equal(block_elements(x), 3 * 4 + 3 * 1 + 2 * 1 + 2 * 7)
  expect_output(show(x), "5 x 12, blocks up to 3 x 7: 4 of 6 stored")
  expect_equal(block_boundaries(t(x)), list(rows = c(0, 4, 5, 12), cols = c(0, 3, 5)))
  even <- block_with_boundaries(x, c(0, 2, 4), c(0, 3, 6, 8))
  expect_false(block_is_variable(even))
  expect_equal(block_boundaries(even), list(rows = c(0, 2, 4), cols = c(0, 3, 6, 8)))
  expect_equal(block_identity(block_with_boundaries(x)), block_identity(x))
})

test_that("products, elements and arithmetic are those of dense matrices", {
  for (seed in 1:10) {
    k <- sized(seed)
    a <- k$x
    d <- k$dense
    expect_equal(as.matrix(a), d)
    y <- matrix(rnorm(ncol(d) * 3), ncol(d))
    expect_equal(a %*% y, d %*% y)
    expect_equal(a %*% y[, 1], d %*% y[, 1])
    z <- matrix(rnorm(nrow(d) * 3), nrow(d))
    expect_equal(crossprod(a, z), crossprod(d, z))
    expect_equal(as.matrix(t(a)), t(d))
    expect_equal(as.matrix(crossprod(a)), crossprod(d))
    expect_equal(as.matrix(2 * a - a / 4), 2 * d - d / 4)
    expect_equal(as.matrix(a * seq_len(nrow(d))), d * seq_len(nrow(d)))
    expect_equal(rowSums(a), rowSums(d))
    expect_equal(colSums(a), colSums(d))
    expect_equal(sum(a), sum(d))
    expect_equal(max(a), max(d))
    expect_equal(as.matrix(as(a, "CsparseMatrix")), d, ignore_attr = TRUE)
    expect_equal(a[2, 3], d[2, 3])
    expect_equal(as.matrix(a[2:4, ]), d[2:4, ])
    expect_equal(as.matrix(block_slice(a, 2:4, 1:2)), d[(k$rows[2] + 1):k$rows[5], 1:k$cols[3], drop = FALSE])
    expect_equal(as.matrix(block_reblock(a, 4)), d)
    expect_equal(as.matrix(a > 0.5), d > 0.5, ignore_attr = TRUE)
    expect_equal(as.matrix(tril(a)), d * (row(d) >= col(d)))
    expect_equal(as.matrix(triu(a, 1)), d * (col(d) > row(d)))
  }
})

test_that("they stand beside matrices with other blocks", {
  for (seed in 1:10) {
    k <- sized(seed)
    x <- as.matrix(k$x)
    set.seed(seed)
    y <- x * (runif(length(x)) < 0.3) + (runif(length(x)) < 0.2)
    others <- list(block_matrix(y, block = c(3, 2)), block_matrix(y, block = 64), as(y, "CsparseMatrix"),
                   block_reblock(block_matrix(y, block = 1), rows = c(0, 1, nrow(x)), cols = c(0, ncol(x))))
    for (b in others) {
      for (f in list(`+`, `-`, `*`, `<`, `!=`, rbind, cbind, crossprod, tcrossprod, function(x, y) t(y) %*% x)) {
        expect_equal(as.matrix(f(k$x, b)), f(x, y))
        expect_equal(as.matrix(f(b, k$x)), f(y, x))
      }
      if (is(b, "BlockMatrix")) expect_equal(as.matrix(pmax(k$x, b)), pmax(x, y))
    }
    expect_equal(as.matrix(k$x * (k$x > 0)), x * (x > 0))
    expect_equal(as.matrix(k$x[c(3, 1, 1), ncol(x):1]), x[c(3, 1, 1), ncol(x):1])
    expect_equal(as.matrix(kronecker(k$x, matrix(1:2, 1))), kronecker(x, matrix(1:2, 1)))
    expect_identical(block_boundaries(block_reblock(others[[1]], rows = k$rows))$rows, as.double(k$rows))
  }
})

test_that("heads, names, copies and files keep the sizes", {
  k <- sized(2, heads = 2)
  expect_equal(as.array(k$x), k$dense)
  expect_equal(as.matrix(k$x[, , 2]), k$dense[, , 2])
  k <- sized(3)
  dimnames(k$x) <- list(paste0("r", seq_len(nrow(k$x))), NULL)
  expect_equal(rownames(block_slice(k$x, 2:3)), paste0("r", (k$rows[2] + 1):k$rows[4]))
  path <- tempfile(fileext = ".rds")
  saveRDS(k$x, path)
  back <- readRDS(path)
  expect_identical(block_identity(back), block_identity(k$x))
  expect_equal(as.matrix(back), as.matrix(k$x))
  expect_true(validObject(back@layout))
  path <- tempfile(fileext = ".h5")
  block_save(a = k$x, l = k$layout, path = path)
  expect_equal(as.matrix(block_load(path, "a")), as.matrix(k$x))
  expect_identical(block_identity(block_load(path, "l")), block_identity(k$layout))
})

test_that("what has no rule for them is refused", {
  k <- sized(4)
  expect_refused(block_layout_from_mask(diag(2) == 1, rows = c(0, 1, 3)), "argument", "given alone")
  expect_refused(block_layout_from_mask(diag(2) == 1, 2, rows = c(0, 1, 3), cols = c(0, 1, 3)), "argument", "expected them alone")
  expect_refused(block_layout_from_mask(diag(2) == 1, rows = c(0, 1), cols = c(0, 1, 3)), "shape", "expected 3")
  expect_refused(block_layout_from_mask(diag(2) == 1, rows = c(0, 1, 1), cols = c(0, 1, 3)), "layout", "expected blocks of 1 .. 256")
  expect_refused(block_with_boundaries(k$layout, rows = "a"), "argument", "expected whole numbers")
  expect_refused(block_reblock(k$x, 2, rows = c(0, nrow(k$x))), "argument", "block is given together with rows or cols")
  expect_refused(block_reblock(k$layout, rows = c(0, nrow(k$x))), "argument", "expected a BlockMatrix where rows or cols are given")
  expect_refused(block_reblock(k$x, rows = c(0, nrow(k$x) + 1)), "shape", "rows ends with", "rows of the matrix")
  expect_refused(image(k$x), "unsupported", "block_svg")
})
