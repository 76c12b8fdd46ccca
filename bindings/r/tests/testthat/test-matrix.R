# SPDX-License-Identifier: Apache-2.0

test_that("dense and sparse matrices go there and back", {
  for (seed in 1:20) {
    dense <- as.matrix(rsparsematrix(20 + seed %% 6, 17, 0.1))
    sparse <- as(dense, "dgCMatrix")
    a <- block_matrix(dense, block = c(4, 3))
    expect_identical(as.matrix(a), dense)
    expect_identical(as(a, "matrix"), dense)
    expect_identical(block_sparse(a, drop0 = TRUE), sparse)
    expect_identical(drop0(as(a, "dgCMatrix")), sparse)
    b <- block_matrix(sparse, block = c(4, 3))
    expect_identical(block_identity(a), block_identity(b))
    expect_identical(block_values(a), block_values(b))
  }
})

test_that("every kind of Matrix is taken", {
  set.seed(2)
  s <- rsparsematrix(12, 12, 0.3, symmetric = TRUE)
  for (x in list(s, triu(s), as(s, "TsparseMatrix"), as(s, "RsparseMatrix"), as(s, "nMatrix"), s > 0, Diagonal(12),
                 Diagonal(12, 1:12), as(12:1, "pMatrix"), as(s, "unpackedMatrix"), as(s, "packedMatrix"))) {
    expect_identical(as.matrix(block_matrix(x, block = 4)), unname(as.matrix(x)) + 0)
  }
  expect_s4_class(as(s, "BlockMatrix"), "BlockMatrix")
  expect_s4_class(as(as.matrix(s), "BlockMatrix"), "BlockMatrix")
  for (class in c("CsparseMatrix", "sparseMatrix", "Matrix")) expect_s4_class(as(block_matrix(s), class), "dgCMatrix")
})

test_that("values are blocks as one writes them", {
  m <- matrix(1:12 + 0, 4)
  a <- block_matrix(m, block = c(2, 3))
  expect_identical(block_values(a)[, , 2], m[3:4, ])
  block_values(a) <- block_values(a) * 2
  expect_identical(as.matrix(a), m * 2)
  layout <- small_layout()
  v <- array(rnorm(48), c(4, 4, 3))
  b <- block_matrix(layout, values = v)
  expect_identical(as.matrix(b)[1:4, 5:8], v[, , 1])
  expect_identical(block_norms(b, "max"), apply(abs(v), 3, max))
  expect_equal(block_norms(b, "l2"), apply(v, 3, function(x) sqrt(sum(x^2))))
  expect_equal(block_norms(b, "l1"), apply(abs(v), 3, sum))
})

test_that("copies are copies", {
  a <- random_matrix()
  before <- as.matrix(a)
  b <- a
  block_values(b) <- block_values(b) * 3
  expect_identical(as.matrix(a), before)
  expect_equal(as.matrix(b), before * 3)
  c <- a
  c@values[1] <- 99 # even behind the back of the package
  a %*% rep(1, 17)
  expect_identical(as.matrix(a), before)
  expect_identical(c@values[1], 99)
  expect_identical(max(as.matrix(c)), 99)
})

test_that("the seed decides", {
  layout <- random_layout(c(40, 24), 8)
  a <- block_matrix(layout, init = "normal", seed = 11)
  expect_identical(block_values(a), block_values(block_matrix(layout, init = "normal", seed = 11)))
  set.seed(1)
  b <- block_matrix(layout, init = "normal")
  set.seed(1)
  expect_identical(block_values(b), block_values(block_matrix(layout, init = "normal")))
  expect_false(identical(block_values(a), block_values(b)))
  i <- block_matrix(block_pattern("dense", c(16, 16), 8), init = "identity", scale = 2)
  expect_identical(as.matrix(i), diag(2, 16))
  o <- as.matrix(block_matrix(block_pattern("dense", c(24, 16), 8), init = "orthogonal", scale = 3, seed = 1))
  for (cols in list(1:8, 9:16)) expect_equal(crossprod(o[, cols]), diag(9, 8)) # each block column by itself
  expect_true(all(block_values(block_matrix(layout)) == 0))
})

test_that("other dtypes round once and come back", {
  a <- random_matrix()
  m <- as.matrix(a)
  bits <- c(float32 = 24, float16 = 11, bfloat16 = 8)
  for (dtype in names(bits)) {
    b <- block_cast(a, dtype)
    expect_identical(block_dtype(b), dtype)
    error <- abs(as.matrix(b) - m)
    expect_true(all(error <= abs(m) * 2^-bits[[dtype]]))
    expect_true(any(error > 0))
    expect_identical(block_values(block_cast(b, "float64")), block_values(b))
    c <- b
    block_values(c) <- block_values(b)
    expect_identical(c@values, b@values)
    expect_identical(block_dtype(c), dtype)
  }
})

test_that("rearranged matrices keep their elements", {
  a <- random_matrix(c(24, 20), 4)
  m <- as.matrix(a)
  expect_identical(as.matrix(t(a)), t(m))
  rows <- c(3, 1, 2, 6, 5, 4)
  of <- function(blocks) as.vector(outer(1:4, (blocks - 1) * 4, "+"))
  expect_identical(as.matrix(block_permute(a, rows, 5:1)), m[of(rows), of(5:1)])
  expect_identical(as.matrix(block_slice(a, 2:4, 3:5)), m[5:16, 9:20])
  half <- random_layout(c(24, 20), 4, 0.5, seed = 9)
  expect_identical(as.matrix(block_project(a, half)), m * kronecker(block_mask(half), matrix(1, 4, 4)))
  expect_identical(as.matrix(block_reblock(a, c(3, 5))), m)
  kept <- block_keep(a, 4)
  expect_equal(block_count(kept), 4)
  expect_identical(sort(block_norms(kept)), sort(block_norms(a), decreasing = TRUE)[4:1])
  free <- which(!block_mask(a), arr.ind = TRUE)
  grown <- block_grow(a, free[, 1], free[, 2])
  expect_equal(block_density(grown), 1)
  expect_identical(as.matrix(grown), m)
  moved <- block_move(a, 1, free[1, 1], free[1, 2])
  expect_equal(sum(abs(as.matrix(moved))), sum(abs(m)))
  expect_identical(as.matrix(block_prune(a, rep(0, block_count(a)))), m * 0)
})

test_that("heads make arrays", {
  a <- random_matrix(c(6, 8), c(2, 4), heads = 3)
  x <- as.array(a)
  expect_identical(dim(x), c(6L, 8L, 3L))
  expect_identical(as.array(t(a)), aperm(x, c(2, 1, 3)))
  expect_refused(as.matrix(a), "shape", "3 heads")
  expect_refused(as(a, "dgCMatrix"), "shape", "3 heads")
})

test_that("elements are found", {
  a <- random_matrix()
  m <- as.matrix(a)
  expect_identical(a[3, 5], m[3, 5])
  expect_identical(a[, ], a)
  expect_s4_class(a[2:7, ], "BlockMatrix")
  expect_identical(as.matrix(a[2:7, ]), m[2:7, ])
  expect_identical(a[, 3], m[, 3])
  expect_identical(as.matrix(a[, 3, drop = FALSE]), m[, 3, drop = FALSE])
  expect_identical(as.matrix(a[-(1:4), c(TRUE, FALSE)]), m[-(1:4), c(TRUE, FALSE)])
  expect_identical(as.matrix(a[c(5, 5, 1), c(2, 9)]), m[c(5, 5, 1), c(2, 9)])
  expect_identical(a[cbind(1:5, 5:1)], m[cbind(1:5, 5:1)])
  expect_identical(a[1:30], m[1:30])
  expect_identical(a[0, 1], m[0, 1])
  expect_identical(diag(a), diag(m))
  expect_equal(rowSums(a), rowSums(m))
  expect_equal(colSums(a), colSums(m))
  expect_equal(rowMeans(a), rowMeans(m))
  expect_equal(colMeans(a), colMeans(m))
  expect_equal(nnzero(a), sum(m != 0))
  expect_refused(a[22, 1], "layout", "i[1] is 22, expected 1 to 21 (rows)")
  expect_refused(a[1, NA_integer_], "argument", "j[1] is NA")
  expect_refused(a["x", 1], "argument", "no names of rows")
  expect_refused(a[1, 1, 1], "shape", "3 indices")
})

test_that("missing values are carried through", {
  m <- matrix(c(1, NA, NaN, 4), 2)
  a <- block_matrix(m, block = 2)
  expect_identical(as.matrix(a), m)
  expect_identical(is.na((a %*% c(1, 0))[, 1]), c(TRUE, TRUE))
  expect_identical(nnzero(a), NA_integer_)
  expect_equal(nnzero(a, na.counted = TRUE), 4)
  expect_refused(block_check(a, finite = TRUE), "argument")
  expect_true(block_check(a))
})

test_that("matrices print, summarise and draw", {
  a <- random_matrix()
  expect_output(show(a), "BlockMatrix float64 21 x 17, blocks 4 x 3", fixed = TRUE)
  expect_output(print(summary(a)), "bandwidth")
  file <- tempfile(fileext = ".pdf")
  pdf(file)
  image(a)
  image(a@layout)
  image(random_matrix(c(6, 8), c(2, 4), heads = 3))
  image(block_layout(numeric(), numeric(), c(6, 6), 3))
  image(block_pattern("banded", c(4000, 4400), 4))
  dev.off()
  expect_gt(file.size(file), 1000)
  unlink(file)
})
