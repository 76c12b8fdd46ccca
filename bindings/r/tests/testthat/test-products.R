# SPDX-License-Identifier: Apache-2.0

shapes <- list(list(c(21, 17), c(4, 3)), list(c(64, 32), c(8, 8)), list(c(5, 70), c(32, 16)), list(c(33, 33), c(1, 1)),
               list(c(40, 24), c(40, 24)))

test_that("products agree with base R, on both sides", {
  for (s in shapes) for (n in c(0, 1, 2, 9)) {
    a <- random_matrix(s[[1]], s[[2]])
    m <- as.matrix(a)
    b <- matrix(rnorm(ncol(m) * n), ncol(m))
    c <- matrix(rnorm(nrow(m) * n), nrow(m))
    expect_product(a %*% b, m, b)
    expect_product(crossprod(a, c), t(m), c)
    expect_product(tcrossprod(a, t(b)), m, b)
    expect_product(t(c) %*% a, t(c), m)
    expect_product(crossprod(c, a), t(c), m)
    expect_product(tcrossprod(t(b), a), t(b), t(m))
  }
})

test_that("vectors are columns or rows, whichever fits", {
  a <- random_matrix()
  m <- as.matrix(a)
  x <- rnorm(17)
  y <- rnorm(21)
  expect_equal(a %*% x, m %*% x)
  expect_equal(y %*% a, y %*% m)
  expect_equal(crossprod(a, y), crossprod(m, y))
  expect_equal(crossprod(y, a), crossprod(y, m))
  expect_equal(tcrossprod(a, x), m %*% x)
  expect_equal(tcrossprod(x, a), x %*% t(m))
  expect_equal(a %*% 1:17, m %*% 1:17)
  expect_equal(a %*% rep(TRUE, 17), m %*% rep(TRUE, 17))
  column <- block_matrix(matrix(1:6 + 0), block = c(2, 1))
  expect_equal(column %*% 1:3, matrix(1:6) %*% 1:3)
})

test_that("Matrix objects work on either side", {
  a <- random_matrix()
  m <- as.matrix(a)
  s <- rsparsematrix(17, 6, 0.3)
  r <- rsparsematrix(6, 21, 0.3)
  d <- as(s, "unpackedMatrix")
  expect_s4_class(a %*% s, "sparseMatrix")
  expect_equal(as.matrix(a %*% s), m %*% as.matrix(s))
  expect_equal(as.matrix(r %*% a), as.matrix(r) %*% m)
  expect_equal(a %*% d, m %*% as.matrix(s))
  expect_equal(t(d) %*% t(a), t(m %*% as.matrix(s)))
  expect_equal(as.matrix(crossprod(a, t(r))), t(m) %*% t(as.matrix(r)))
  expect_equal(as.matrix(crossprod(t(r), a)), as.matrix(r) %*% m)
  expect_equal(as.matrix(tcrossprod(a, t(s))), m %*% as.matrix(s))
  expect_equal(as.matrix(tcrossprod(t(s), a)), t(as.matrix(s)) %*% t(m))
  expect_equal(as.matrix(a %*% t(a)), m %*% t(m))
  expect_equal(as.matrix(crossprod(a)), crossprod(m))
  expect_equal(as.matrix(tcrossprod(a)), tcrossprod(m))
  expect_equal(as.matrix(crossprod(a, a)), crossprod(m))
  expect_equal(as.matrix(tcrossprod(a, a)), tcrossprod(m))
})

test_that("every kind of Matrix multiplies, without a note on ambiguous methods", {
  a <- random_matrix(c(12, 12), 4)
  m <- as.matrix(a)
  set.seed(3)
  s <- rsparsematrix(12, 12, 0.3, symmetric = TRUE)
  products <- list(`%*%`, crossprod, tcrossprod)
  for (y in list(s, triu(s), as(s, "TsparseMatrix"), as(s, "RsparseMatrix"), as(s, "nMatrix"), s > 0, Diagonal(12),
                 Diagonal(12, 1:12), as(12:1, "pMatrix"), as(s, "unpackedMatrix"), as(s, "packedMatrix"))) {
    n <- unname(as.matrix(y)) + 0
    for (f in products) {
      expect_silent(left <- f(a, y))
      expect_silent(right <- f(y, a))
      expect_equal(unname(as.matrix(left)), f(m, n))
      expect_equal(unname(as.matrix(right)), f(n, m))
    }
  }
  v <- as(c(1, 0, 0, 2, rep(0, 8)), "sparseVector")
  expect_equal(a %*% v, m %*% as.vector(v))
  expect_equal(v %*% a, as.vector(v) %*% m)
  expect_equal(a %*% data.frame(p = 1:12), m %*% 1:12, ignore_attr = TRUE)
})

test_that("names are kept where they survive", {
  a <- random_matrix()
  b <- matrix(1, 17, 2, dimnames = list(letters[1:17], c("p", "q")))
  expect_identical(colnames(a %*% b), c("p", "q"))
  expect_null(rownames(a %*% b))
  expect_identical(rownames(tcrossprod(t(b), a)), c("p", "q"))
  expect_identical(colnames(tcrossprod(a, t(b))), c("p", "q"))
})

test_that("a missing value spreads to the rows of the blocks that use it", {
  a <- block_matrix(block_layout(c(1, 2, 2), c(2, 1, 3), dim = c(8, 12), block = 4), init = "identity")
  x <- matrix(1, 12, 2)
  x[5, 2] <- NA # block column 2
  expect_identical(is.na(a %*% x), cbind(rep(FALSE, 8), rep(c(TRUE, FALSE), each = 4)))
})

test_that("alpha, beta, gates and batches do what they say", {
  a <- random_matrix()
  m <- as.matrix(a)
  b <- matrix(rnorm(17 * 3), 17)
  c <- matrix(rnorm(21 * 3), 21)
  kept <- c + 0
  expect_equal(spmm(a, b, c, alpha = 2, beta = -0.5), 2 * m %*% b - 0.5 * c)
  expect_identical(c, kept)
  expect_equal(spmm(a, b, c), m %*% b + c)
  expect_equal(spmm(a, c, transpose = TRUE), t(m) %*% c)
  expect_equal(spmm(a, t(c), side = "right"), t(c) %*% m)
  expect_equal(spmm(a, t(b), side = "right", transpose = TRUE), t(b) %*% t(m))
  gates <- rep_len(c(0, 1, -2.5), block_count(a))
  g <- a
  block_values(g) <- sweep(block_values(a), 3, gates, "*")
  expect_equal(spmm(a, b, gates = gates), as.matrix(g) %*% b)
  expect_equal(spmm(a, b, beta = 0, c = c * NaN), m %*% b)
  batch <- array(rnorm(17 * 3 * 2 * 2), c(17, 3, 2, 2))
  out <- spmm(a, batch)
  expect_identical(dim(out), c(21L, 3L, 2L, 2L))
  for (i in 1:2) for (j in 1:2) expect_equal(out[, , i, j], m %*% batch[, , i, j])
})

test_that("heads multiply their own entries", {
  a <- random_matrix(c(6, 8), c(2, 4), heads = 3)
  m <- as.array(a)
  b <- array(rnorm(8 * 5 * 3), c(8, 5, 3))
  out <- a %*% b
  for (h in 1:3) expect_equal(out[, , h], m[, , h] %*% b[, , h])
  s <- sddmm(a, out, b, transpose_y = TRUE)
  stored <- as.array(block_matrix(array(1, c(6, 8, 3)), layout = a@layout))
  for (h in 1:3) expect_equal(as.array(s)[, , h], (out[, , h] %*% t(b[, , h])) * stored[, , h])
  expect_refused(a %*% matrix(1, 8, 5), "shape")
})

test_that("other dtypes are exact to their own precision", {
  a <- random_matrix()
  b <- matrix(round(rnorm(17 * 4) * 16) / 16, 17) # exact in every dtype
  for (dtype in c("float32", "float16", "bfloat16")) {
    low <- block_cast(a, dtype)
    m <- as.matrix(low)
    bound <- (8 + 2 * sqrt(17)) * 2^-23 * (abs(m) %*% abs(b))
    expect_true(all(abs(low %*% b - m %*% b) <= bound))
    expect_true(all(abs(crossprod(low, low %*% b * 0) - 0) == 0))
    expect_equal(spmm(low, b, matrix(1, 21, 4)), m %*% b + 1, tolerance = 1e-6)
    s <- sddmm(low, matrix(1, 21, 2), matrix(1, 2, 17), beta = 0)
    expect_identical(block_dtype(s), dtype)
    expect_true(all(as.matrix(s)[m != 0] == 2))
    g <- gate_gradient(low, low)
    expect_equal(g$gates, block_norms(low)^2, tolerance = 1e-6)
  }
})

test_that("8-bit dtypes are stored, and factors of products alone", {
  for (dtype in c("float8_e4m3fn", "float8_e5m2")) {
    a <- block_cast(random_matrix(), dtype)
    m <- as.matrix(a)
    expect_identical(block_dtype(a), dtype)
    expect_identical(as.matrix(block_cast(random_matrix(), "float64")) != 0, m != 0)
    b <- matrix(sample(c(-2, -0.5, 0, 1, 1.5), 17 * 4, TRUE), 17) # exact in both
    expect_within(a %*% b, m, b, "float32")
    expect_refused(sddmm(a, matrix(1, 21, 2), matrix(1, 2, 17)), "dtype", "float8")
    path <- tempfile(fileext = ".h5")
    block_save(path, a)
    expect_identical(as.matrix(block_load(path, "a")), m)
    unlink(path)
    for (device in test_devices) {
      ctx <- tartan_context(device)
      y <- to_device(a, ctx) %*% to_device(b, ctx, dtype)
      expect_identical(block_dtype(y), "float32")
      expect_within(to_host(y), m, b, "float32")
      expect_identical(as.matrix(to_host(to_device(a, ctx))), m)
    }
  }
})

test_that("the user's memory is used in place and never changed", {
  a <- block_matrix(block_pattern("banded", c(2048, 2048), 32), init = "normal", seed = 1)
  b <- matrix(runif(2048 * 256), 2048)
  kept <- b + 0
  for (warm in 1:2) crossprod(a, b) # the context and the plans
  rows <- t(b)
  peak <- function(product) { # MiB above what is held before; the result alone has 4
    before <- gc(reset = TRUE)["Vcells", 2]
    product()
    gc()["Vcells", 6] - before
  }
  expect_lt(peak(function() a %*% b), 5)
  expect_lt(peak(function() crossprod(a, b)), 5)
  expect_lt(peak(function() tcrossprod(a, rows)), 5)
  expect_lt(peak(function() rows %*% a), 5)
  expect_lt(peak(function() crossprod(b, a)), 5)
  expect_lt(peak(function() tcrossprod(rows, a)), 5)
  expect_identical(b, kept)
  expect_identical(rows, t(kept))
})

test_that("sddmm samples the product and accumulates", {
  for (s in shapes) {
    a <- random_matrix(s[[1]], s[[2]])
    m <- as.matrix(a)
    stored <- as.matrix(block_matrix(matrix(1, nrow(m), ncol(m)), layout = a@layout))
    x <- matrix(rnorm(nrow(m) * 5), nrow(m))
    y <- matrix(rnorm(ncol(m) * 5), 5)
    expect_equal(as.matrix(sddmm(a@layout, x, y)), (x %*% y) * stored)
    expect_equal(as.matrix(sddmm(a, x, y, alpha = 2, beta = -1)), (2 * x %*% y) * stored - m)
    expect_equal(as.matrix(sddmm(a, t(x), t(y), transpose_x = TRUE, transpose_y = TRUE)), (x %*% y) * stored)
    x2 <- matrix(rnorm(nrow(m) * 2), nrow(m))
    y2 <- matrix(rnorm(ncol(m) * 2), 2)
    expect_equal(as.matrix(sddmm(a, list(x, x2), list(y, y2))), (x %*% y + x2 %*% y2) * stored)
    gates <- rep_len(c(0, 2), block_count(a))
    gated <- sddmm(a, x, y, gates = gates)
    expect_equal(block_values(gated), sweep(block_values(sddmm(a, x, y)), 3, gates, "*"))
    expect_identical(as.matrix(a), m)
  }
})

test_that("gradients agree with their definitions", {
  w <- random_matrix(c(24, 20), 4)
  dw <- block_project(random_matrix(c(24, 20), 4, seed = 5), w@layout)
  gates <- rnorm(block_count(w))
  g <- gate_gradient(w, dw, gates)
  expect_equal(g$gates, apply(block_values(w) * block_values(dw), 3, sum))
  expect_equal(block_values(g$dw), sweep(block_values(dw), 3, gates, "*"))
  expect_identical(block_values(gate_gradient(w, dw)$dw), block_values(dw))
  x <- matrix(rnorm(10 * 3), 10)
  y <- matrix(rnorm(3 * 9), 3)
  norms <- function(f) {
    rows <- sapply(1:3, function(k) tapply(x[, k], (0:9) %/% 4, f))
    cols <- t(sapply(1:3, function(k) tapply(y[k, ], (0:8) %/% 3, f)))
    unname(rows %*% cols)
  }
  expect_equal(growth_score(x, y, c(4, 3)), norms(function(v) max(abs(v))))
  expect_equal(growth_score(x, y, c(4, 3), "l2", scale = 3), 3 * norms(function(v) sqrt(sum(v^2))))
  old <- matrix(1, 3, 3)
  expect_equal(growth_score(x, y, c(4, 3), score = old, beta = 0.5), norms(function(v) max(abs(v))) + 0.5)
  expect_identical(old, matrix(1, 3, 3))
})

test_that("results do not depend on the number of threads", {
  a <- block_matrix(block_pattern("barabasi_albert", c(320, 320), 16, seed = 3), init = "normal", seed = 1)
  b <- matrix(rnorm(320 * 33), 320)
  old <- tartan_threads(1)
  one <- tartan_checksum(a %*% b)
  for (n in c(2, 3, 7)) {
    tartan_threads(n)
    expect_equal(tartan_threads(), n)
    expect_identical(tartan_checksum(a %*% b), one)
  }
  tartan_threads(NULL)
  expect_lte(tartan_threads(), max(old, 1))
})

test_that("few threads while packages are checked, and under OMP_THREAD_LIMIT", {
  limited <- function(variable, value) {
    old <- Sys.getenv(variable, NA)
    do.call(Sys.setenv, setNames(list(value), variable))
    on.exit({
      if (is.na(old)) Sys.unsetenv(variable) else do.call(Sys.setenv, setNames(list(old), variable))
      tartan_threads(NULL)
    })
    tartan_threads(NULL)
    tartan_threads()
  }
  expect_lte(limited("_R_CHECK_LIMIT_CORES_", "TRUE"), 2)
  expect_equal(limited("OMP_THREAD_LIMIT", "1"), 1)
})

test_that("forked children can multiply", {
  skip_on_os("windows")
  a <- random_matrix()
  x <- rnorm(17)
  here <- a %*% x
  there <- parallel::mclapply(1:2, function(i) a %*% x, mc.cores = 2)
  expect_identical(there, list(here, here))
})

test_that("a product of two block matrices is a block matrix", {
  a <- random_matrix()
  b <- random_matrix(c(17, 11), c(5, 2), seed = 3) # its blocks are higher than a's are wide
  c <- random_matrix(c(21, 11), c(2, 2), seed = 4)
  d <- random_matrix(c(11, 17), c(3, 3), seed = 5)
  dimnames(a) <- list(paste0("r", 1:21), paste0("k", 1:17))
  dimnames(b) <- list(NULL, letters[1:11])
  x <- as.matrix(a)
  check <- function(product, left, right, names) {
    expect_s4_class(product, "BlockMatrix")
    expect_identical(dimnames(product), names)
    expect_product(unname(as.matrix(product)), unname(left), unname(right))
  }
  check(a %*% b, x, as.matrix(b), list(rownames(x), letters[1:11]))
  check(crossprod(a, c), t(x), as.matrix(c), list(colnames(x), NULL))
  check(tcrossprod(a, d), x, t(as.matrix(d)), list(rownames(x), NULL))
  check(tcrossprod(d, a), as.matrix(d), t(x), list(NULL, rownames(x)))
  check(crossprod(a), t(x), x, list(colnames(x), colnames(x)))
  check(crossprod(a, NULL), t(x), x, list(colnames(x), colnames(x)))
  check(tcrossprod(a), x, t(x), list(rownames(x), rownames(x)))
  for (s in list(crossprod(a), tcrossprod(a))) expect_true(isSymmetric(s, tol = 0))
  expect_identical(block_dim(a %*% b), c(4, 2))
  for (bad in list(NA, NaN, Inf)) { # as with a dgCMatrix: only stored elements meet it
    holed <- a
    holed[3, 5] <- bad
    peer <- as(holed, "dgCMatrix") %*% as(b, "dgCMatrix")
    expect_equal(as.matrix(holed %*% b), as.matrix(peer), tolerance = 1e-14)
    expect_identical(block_identity(holed %*% b), block_identity(a %*% b))
    factors <- c(bad, 1:20)
    expect_equal(as.matrix(Diagonal(21, factors) %*% a), as.matrix(Diagonal(21, factors) %*% as(a, "dgCMatrix")))
    expect_equal(as.matrix(a %*% Diagonal(17, factors[1:17])), as.matrix(as(a, "dgCMatrix") %*% Diagonal(17, factors[1:17])))
  }
  low <- block_cast(a, "float32")
  expect_identical(block_dtype(low %*% block_cast(b, "float16")), "float32")
  expect_identical(block_dtype(low %*% b), "float64")
  expect_refused(a %*% a, "shape", "y has 21 rows, expected 17 (columns of x)")
  expect_refused(crossprod(a, b), "shape", "y has 17 rows, expected 21 (rows of x)")
  expect_refused(tcrossprod(a, b), "shape", "y has 11 columns, expected 17 (columns of x)")
  empty <- block_matrix(matrix(0, 17, 0), block = 4)
  expect_identical(dim(a %*% empty), c(21L, 0L))
  expect_identical(block_count(random_matrix() %*% block_matrix(block_layout(integer(), integer(), dim = c(17, 4), block = 3))), 0L)
})

test_that("a diagonal matrix scales rows and columns", {
  a <- random_matrix()
  dimnames(a) <- list(paste0("r", 1:21), paste0("k", 1:17))
  m <- as(a, "dgCMatrix")
  left <- Diagonal(21, seq_len(21) / 7)
  right <- Diagonal(17, seq_len(17) - 5)
  for (pair in list(list(left %*% a, left %*% m), list(a %*% right, m %*% right), list(crossprod(a, left), crossprod(m, left)),
                    list(tcrossprod(a, right), tcrossprod(m, right)), list(crossprod(left, a), crossprod(left, m)),
                    list(tcrossprod(right, a), tcrossprod(right, m)), list(Diagonal(21) %*% a, Diagonal(21) %*% m),
                    list(a %*% Diagonal(17, TRUE), m %*% Diagonal(17)))) {
    expect_s4_class(pair[[1L]], "BlockMatrix")
    expect_identical(as.matrix(pair[[1L]]), as.matrix(pair[[2L]]))
  }
  expect_identical(block_identity(left %*% a), block_identity(a))
  expect_identical(block_dtype(left %*% block_cast(a, "float32")), "float32")
  named <- left
  named@Dimnames <- list(paste0("a", 1:21), paste0("b", 1:21))
  expect_identical(dimnames(named %*% a), list(paste0("a", 1:21), colnames(a)))
  expect_identical(dimnames(crossprod(named, a)), list(paste0("b", 1:21), colnames(a)))
  expect_identical(dimnames(crossprod(a, named)), list(colnames(a), paste0("b", 1:21)))
  expect_refused(right %*% a, "shape", "y has 21 rows, expected 17 (columns of x)")
  expect_refused(a %*% left, "shape", "y has 21 rows, expected 17 (columns of x)")
  expect_refused(crossprod(a, right), "shape", "y has 17 rows, expected 21 (rows of x)")
})

test_that("products are of numbers", {
  a <- random_matrix()
  for (product in list(crossprod, tcrossprod)) {
    expect_identical(product(a, boolArith = FALSE), product(a))
    expect_refused(product(a, boolArith = TRUE), "unsupported", "%&%")
    expect_refused(product(a, a, boolArith = TRUE), "unsupported", "%&%")
    expect_refused(product(a, foo = 1), "argument", "more arguments")
  }
})
