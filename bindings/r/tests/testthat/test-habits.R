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
  { f <- tempfile(); writeMM(W, f); readMM(f) }, norm(W - t(t(W))), rownames(W)[which.max(rowSums(W))], (W > 0) * W)

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
