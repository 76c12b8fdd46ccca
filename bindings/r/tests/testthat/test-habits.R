# SPDX-License-Identifier: Apache-2.0
# Lines that users of the Matrix package write on their first day give what they give with a dgCMatrix.

habits <- expression(
  summary(W)$i, summary(W)$x, unlist(as.data.frame(summary(W))[1:3, ]), with(as.data.frame(summary(W)), sum(x)),
  head(W, 2), tail(W, 2), head(W, c(2, 2)), tail(W[, 1], 2), apply(W, 1, sum), apply(W, 2, range), sapply(1:6, function(i) sum(W[i, ])),
  which(W > 0), which(W > 0, arr.ind = TRUE), which(W != 0, arr.ind = TRUE), drop0(W), nnzero(W), nnzero(W) / length(W),
  W[cbind(1:2, c(1, 6))], t(W) %*% W, W %*% t(V), W[W > 0], W[order(rowSums(W)), ], W[, colSums(W) > 0], rowSums(W > 0),
  max(W, 1), pmax(W, 0), pmax(W, 1), pmin(W, 0), pmax(W, V), pmin(W, V), pmax(0, W), pmin(V, W, 0), round(W), W %% 2, W %/% 2,
  trunc(W), ceiling(W), ifelse(as.matrix(W > 0), 1, 0), xor(W > 0, V > 0), W > 0 & V > 0, W > 0 | V > 0, any(W > 0), all(W > 0),
  all(W == V), mean(W != 0), as.logical(W), as.vector(W), Reduce(`+`, list(W, V, W)), do.call(rbind, list(W, V)),
  do.call(cbind, list(W, V, W)), W * lower.tri(W), W[lower.tri(W)], { W[upper.tri(W)] <- 0; W }, { W[W < 0] <- 0; W },
  { W[is.na(W)] <- 0; W }, forceSymmetric(W), forceSymmetric(W, "L"), symmpart(W), skewpart(W), isDiagonal(W), isDiagonal(W * diag(6)),
  c(isTriangular(W)), c(isTriangular(tril(W))), c(isTriangular(triu(W), upper = TRUE)), rcond(P), rcond(P, "I"), det(P), solve(P, W),
  bdiag(W, V), as(W, "sparseVector"), as(P, "dsCMatrix"), crossprod(W, W > 0), (W > 0) %*% W,
  eigen(P)$values, svd(W)$d, lm.fit(as.matrix(W), 1:6)$rank, unserialize(serialize(W, NULL)), Diagonal(6) %*% W %*% Diagonal(6, 2),
  { f <- tempfile(); writeMM(W, f); readMM(f) }, norm(W - t(t(W))), rownames(W)[which.max(rowSums(W))], (W > 0) * W,
  rep(W, 2), rep(W, length.out = 40), { dim(W) <- c(4, 9); W }, diff(W), diff(W, lag = 2, differences = 2), cov2cor(P), cov2cor(crossprod(W)),
  rowSums(W, sparseResult = TRUE), colMeans(W, sparseResult = TRUE), mean(W, 0.1), sweep(W, 1, 1:3, "*"), order(W), sort(W), rev(W), median(W))

test_that("first-day lines give what they give with Matrix", {
  cells <- function(mask) kronecker(matrix(mask, 3, byrow = TRUE), matrix(1, 2, 2))
  wave <- function(start) matrix(round(2 * sin(start + (1:36)^1.5), 3), 6)
  w <- wave(1) * cells(c(1, 0, 1, 0, 1, 0, 1, 1, 1))
  v <- wave(2) * cells(c(0, 0, 1, 1, 1, 0, 0, 1, 1))
  dimnames(w) <- list(paste0("r", 1:6), paste0("c", 1:6))
  sparse <- function(m) as(as(m, "CsparseMatrix"), "generalMatrix")
  plain <- function(x) {
    if (isS4(x)) x <- as.matrix(x)
    if (is.array(x) && is.null(unlist(dimnames(x)))) dimnames(x) <- NULL
    x
  }
  operands <- function(make) list(W = make(w), V = make(v), P = make(tcrossprod(unname(w)) + diag(9, 6)))
  for (line in habits) {
    expected <- suppressMessages(suppressWarnings(eval(line, operands(sparse), globalenv())))
    found <- suppressMessages(suppressWarnings(eval(line, operands(function(m) block_matrix(m, block = 2)), globalenv())))
    expect_equal(plain(found), plain(expected), tolerance = 1e-12, label = deparse(line)[1L])
  }
})

test_that("elements in another order", {
  a <- random_matrix()
  v <- as.vector(as.matrix(a))
  for (found in list(list(rep(a, each = 2), rep(v, each = 2)), list(rep(a, 2, each = 3), rep(v, 2, each = 3)),
                     list(rep(a, each = 2, length.out = 9), rep(v, each = 2, length.out = 9)), list(rep(a, 0), numeric()),
                     list(rep(a[0, ], 2), numeric()))) {
    expect_s4_class(found[[1]], "dsparseVector")
    expect_identical(as.vector(found[[1]]), found[[2]])
  }
  w <- block_matrix(matrix(c(0, 0.9, 1.56, 0), 2), block = 2)
  for (n in 0:13) expect_identical(as.vector(rep(w, length.out = n)), rep(c(0, 0.9, 1.56, 0), length.out = n))
  expect_refused(rep(a, 1:2), "argument", "times is c(1, 2)")
  expect_refused(rep(a, each = -1), "argument", "each is -1")
  expect_refused(rep(random_matrix(c(6, 8), c(2, 4), heads = 3), 2), "shape", "3 heads")
  b <- block_cast(a, "float32")
  dim(b) <- c(51, 7)
  expect_identical(as.matrix(b), matrix(as.vector(as.matrix(block_cast(a, "float32"))), 51))
  expect_identical(block_dim(b), c(4, 3))
  expect_identical(block_dtype(b), "float32")
  expect_refused({ dim(b) <- c(5, 7) }, "shape", "value is 5 x 7, expected 357 elements in all")
  expect_refused({ dim(b) <- NULL }, "argument", "value is NULL")
  expect_refused(diff(a, 0), "argument", "lag is 0")
  expect_identical(diff(a, 21), numeric())
  for (x in list(b, diff(a), cov2cor(crossprod(a)))) expect_s4_class(x, "BlockMatrix")
  expect_refused(cov2cor(a), "shape", "V is 21 x 17, expected a square matrix")
  expect_warning(cov2cor(block_matrix(diag(c(1, 0)), block = 2)), "not positive")
})

test_that("parts of matrices are block matrices", {
  a <- random_matrix(c(11, 11), c(4, 3))
  for (x in list(symmpart(a), skewpart(a), forceSymmetric(a), pmax(a, t(a)), pmin(a, 0), a %/% 2)) expect_s4_class(x, "BlockMatrix")
  expect_true(isSymmetric(symmpart(a), tol = 0))
  expect_identical(as.matrix(symmpart(a) + skewpart(a)), as.matrix((a + t(a)) / 2 + (a - t(a)) / 2))
  b <- random_matrix()
  for (f in list(symmpart, skewpart, forceSymmetric, rcond)) expect_refused(f(b), "shape", "x is 21 x 17, expected a square matrix")
  expect_refused(forceSymmetric(a, "X"), "argument", "uplo is \"X\"")
  huge <- block_matrix(block_layout(1, 1, dim = c(2e5, 2e5)))
  expect_refused(rcond(huge), "unsupported", "298 GiB")
  expect_refused(as.logical(huge), "unsupported", "298 GiB")
  expect_identical(nrow(as.data.frame(summary(huge))), 0L)
  expect_refused(summary(random_matrix(heads = 2))$x, "shape", "2 heads")
  expect_identical(summary(a)$dtype, "float64")
  expect_output(print(summary(a)), "BlockMatrix float64 11 x 11")
})
