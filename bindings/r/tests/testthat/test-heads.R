# SPDX-License-Identifier: Apache-2.0
# Matrices with several heads: x[i, j, h] as for arrays, assignment, comparison, joining and products.

heads_matrix <- function(dim = c(9, 8), block = c(4, 3), heads = 3, seed = 1) {
  h <- random_matrix(dim, block, heads = heads, seed = seed)
  dimnames(h) <- list(paste0("r", seq_len(dim[1L])), paste0("c", seq_len(dim[2L])))
  h
}

test_that("x[i, j, h] is that of the array", {
  h <- heads_matrix()
  x <- as.array(h)
  dense <- function(y) if (isS4(y)) as.array(y) else y
  for (y in list(list(h[2:5, , ], x[2:5, , ]), list(h[, c(8, 1, 1), ], x[, c(8, 1, 1), ]), list(h[, , ], x),
                 list(h[-1, 3:4, c(3, 1)], x[-1, 3:4, c(3, 1)]), list(h["r2", "c3", ], x["r2", "c3", ]),
                 list(h[4, , 2], x[4, , 2]), list(h[, 4, 2], x[, 4, 2]), list(h[4, 5, 3], x[4, 5, 3]),
                 list(h[4, , ], x[4, , ]), list(h[, 4, ], x[, 4, ]), list(h[, , 2], x[, , 2]),
                 list(h[2:3, 1:4, 1], x[2:3, 1:4, 1]), list(h[, , c(TRUE, FALSE, TRUE)], x[, , c(TRUE, FALSE, TRUE)]),
                 list(h[, , -2], x[, , -2]), list(h[, , c(2, 2)], x[, , c(2, 2)]), list(h[7], x[7]),
                 list(h[c(200, 3)], x[c(200, 3)]), list(h[x > 0], x[x > 0]), list(h[h > 0], x[x > 0]),
                 list(h[cbind(1:3, 2:4, 3:1)], x[cbind(1:3, 2:4, 3:1)]),
                 list(h[5, , , drop = FALSE], x[5, , , drop = FALSE]), list(h[integer(0), , ], x[integer(0), , ]))) {
    expect_identical(dense(y[[1L]]), y[[2L]])
  }
  for (y in list(h[2:5, , ], h[, , 2], h[, , 2:3], h[c(3, 1), c(3, 1), c(3, 1)], h[5, , , drop = FALSE])) {
    expect_s4_class(y, "BlockMatrix")
  }
  expect_identical(block_heads(h[, , 2]), 1)
  expect_identical(block_heads(h[, , 2, drop = FALSE]), 1)
  expect_identical(block_heads(h[, , 2:3]), 2)
  expect_identical(block_mask(h[, , c(3, 1)]), block_mask(h)[, , c(3, 1)])
  for (dtype in c("float32", "float16")) {
    low <- block_cast(h, dtype)
    expect_identical(block_dtype(low[, , 3:2]), dtype)
    expect_identical(as.array(low[, , 3:2]), as.array(low)[, , 3:2])
  }
  expect_refused(h[1, 1], "shape", "x has 3 dimensions (3 heads), 2 indices were given")
  expect_refused(h[1, 1, 1, 1], "shape", "4 indices")
  expect_refused(random_matrix()[1, 1, 1], "shape", "x has 2 dimensions, 3 indices were given")
  expect_refused(h[1, 1, 4], "layout", "the index of heads[1] is 4, expected 1 to 3")
  expect_refused(h[, , 0], "argument", "selects none")
  expect_refused(h[h[, , 1] > 0], "argument", "x has 3 heads")
})

test_that("x[i, j, h] <- value is that of the array", {
  h <- heads_matrix()
  x <- as.array(h)
  change <- function(f) expect_identical(as.array(f(h)), f(x))
  change(function(a) { a[2:3, 4, 1:2] <- 1:4; a })
  change(function(a) { a[, , 2] <- 7; a })
  change(function(a) { a[1, 1, 3] <- NA; a })
  change(function(a) { a[, 3, ] <- 0; a })
  change(function(a) { a[, , 2] <- 0; a })
  change(function(a) { a[-1, "c2", c(TRUE, FALSE, TRUE)] <- 1:16; a })
  change(function(a) { a[cbind(1:3, 2:4, 3:1)] <- 5; a })
  change(function(a) { a[a > 0.5] <- 0.5; a })
  change(function(a) { a[c(1, 200)] <- c(8, 9); a })
  change(function(a) { a[, , 1] <- a[, , 3]; a })
  change(function(a) { a[, , ] <- 2; a })
  before <- x + 0
  expect_refused(h[1:2, 1, 1] <- 1:3, "shape", "length 3")
  expect_refused(h[1, 1] <- 1, "shape", "3 heads")
  expect_refused(h[1, 1, 5] <- 1, "layout", "expected 1 to 3")
  expect_identical(as.array(h), before)
})

test_that("comparisons of several heads are arrays", {
  h <- heads_matrix()
  g <- heads_matrix(seed = 2)
  x <- as.array(h)
  y <- as.array(g)
  expect_identical(h > 0, x > 0)
  expect_identical(0.5 < h, 0.5 < x)
  expect_identical(h == g, x == y)
  expect_identical(h != g, x != y)
  expect_identical(h >= x, x >= x)
  expect_identical(h & g, x & y)
  expect_identical(!h, !x)
  h[2, 2, 2] <- NA
  x[2, 2, 2] <- NA
  expect_identical(h > 0, x > 0)
  expect_identical(is.na(h), is.na(x))
  expect_refused(block_matrix(block_layout(1, 1, dim = c(2e5, 2e5), heads = 2)) > 0, "unsupported", "596 GiB")
})

test_that("lists of elements have those of all heads", {
  h <- heads_matrix()
  v <- as.vector(as.array(h))
  expect_identical(rev(h), rev(v))
  expect_identical(sort(h), sort(v))
  expect_equal(mean(h, trim = 0.1), mean(v, trim = 0.1))
  expect_refused(rep(h, 2), "shape", "x has 3 heads")
  expect_refused({ dim(h) <- c(8, 9) }, "shape", "x has 3 heads")
  expect_refused(diff(h), "shape", "x has 3 heads, diff needs one")
})

test_that("several heads are bound head by head", {
  h <- heads_matrix()
  g <- heads_matrix(c(9, 5), c(2, 3), seed = 2)
  joined <- cbind(h, g)
  expect_identical(block_heads(joined), 3)
  for (k in 1:3) expect_identical(as.matrix(joined[, , k]), cbind(as.array(h)[, , k], as.array(g)[, , k]))
  joined <- rbind(as.array(h)[1:2, , ], h, h)
  for (k in 1:3) expect_identical(as.matrix(joined[, , k]), as.matrix(h[c(1:2, 1:9, 1:9), , k]))
  expect_refused(cbind(h, 1), "shape", "expected a BlockMatrix or an array of 3 heads")
  expect_refused(cbind(h, h[, , 1]), "shape", "1 heads, expected 3")
  expect_refused(rbind(h, matrix(1, 2, 8)), "shape", "2 x 8")
  expect_refused(cbind(h, rsparsematrix(9, 2, 0.5)), "shape", "expected a BlockMatrix")
})

test_that("products of several heads go head by head", {
  h <- heads_matrix()
  g <- heads_matrix(c(8, 7), c(5, 2), seed = 2)
  product <- h %*% g
  gram <- crossprod(h)
  scaled <- Diagonal(9, 1:9) %*% h
  for (k in 1:3) {
    expect_product(unname(as.matrix(product[, , k])), unname(as.matrix(h[, , k])), unname(as.matrix(g[, , k])))
    expect_product(unname(as.matrix(gram[, , k])), t(unname(as.matrix(h[, , k]))), unname(as.matrix(h[, , k])))
    expect_identical(unname(as.matrix(scaled[, , k])), unname(as.matrix(h[, , k]) * 1:9))
  }
  expect_refused(h %*% g[, , 1], "shape", "y has 1 heads, expected 3 (as x)")
})
