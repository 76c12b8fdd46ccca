# SPDX-License-Identifier: Apache-2.0
# What users of the Matrix package write gives what it gives with a dgCMatrix: operations of its manual on random matrices,
# ragged or not, with names or not, with missing and infinite values or not.

# A random dgCMatrix; `special`: with NA, NaN and infinite values.
random_sparse <- function(rows, cols, special, named) {
  m <- matrix(0, rows, cols)
  m[] <- ifelse(runif(length(m)) < 0.3, round(rnorm(length(m)), 2), 0)
  if (special && length(m) > 3) m[sample(length(m), 3)] <- c(NA, NaN, sample(c(Inf, -Inf), 1))
  if (named) dimnames(m) <- list(paste0("r", seq_len(rows)), if (named > 1) paste0("c", seq_len(cols)))
  m
}

# Operations on a matrix A, another B of the same size, a vector v for its rows, and a dense D.
operations <- expression(
  -A, +A, A * 2, 2 * A, A / 4, A + B, A - B, A * B, A + A, A * v, v * A, A / (abs(v) + 1), A * D, A + D, D - A, A^2, A %% 3,
  A %/% 2, A + 1, 1 - A, A / B, A^0, A * NA, A / 0, A * TRUE, A * head(-1:3, n * k), A > 0, A >= 0.5, 0 > A, A < B, A != B, A == B,
  A <= 0, A == v, A != 0, !A, A & B, A | B, A > 0 & A < 1, abs(A), sign(A), sqrt(abs(A)), floor(A), ceiling(A), trunc(A),
  round(A), round(A, 1), signif(A, 1), exp(A), expm1(A), log1p(abs(A)), sin(A), tanh(A), cos(A), atan(A), cumsum(A),
  sum(A), max(A, -9), min(A, 9), range(A, 0), prod(A), any(A > 1), all(A > -99), sum(A > 0), sum(A, na.rm = TRUE),
  max(A, 0, na.rm = TRUE), mean(A), mean(A, na.rm = TRUE),
  rowSums(A), colSums(A), rowMeans(A), colMeans(A), rowSums(A, na.rm = TRUE), colSums(A, na.rm = TRUE),
  rowMeans(A, na.rm = TRUE), colMeans(A, na.rm = TRUE), is.na(A), is.nan(A), is.infinite(A), is.finite(A), anyNA(A),
  diag(A), t(A), dim(A), dimnames(A), length(A), tril(A), triu(A, 1), band(A, -1, 1), as.vector(A), as.numeric(A),
  A[1, ], A[, 1], A[1, 1], A[1, , drop = FALSE], A[, 1, drop = FALSE], A[-1, ], A[c(n, 1, 1), ], A[, c(k, 1)],
  A[c(TRUE, FALSE), ], A[v > 0, ], A[seq_len(n), k:1], A[cbind(c(1, n), c(k, 1))], A[A > 0 & !is.na(A)], A[D > 0], A[n:1],
  A[0, ], A[, 0], A[],
  { A[1, ] <- 0; A }, { A[, 1] <- 7; A }, { A[1, 1] <- NA; A }, { A[c(n, 1), k] <- 3; A }, { A[-1, ] <- 0; A },
  { A[] <- 0; A }, { A[D > 0] <- 1; A }, { A[cbind(c(1, n), c(k, 1))] <- c(5, 6); A }, { A[n] <- 2; A },
  { A[, k] <- v; A }, { A[v > 0, ] <- 0; A }, { A[, ] <- D; A }, { A[1, ] <- B[1, ]; A }, { diag(A) <- 1; A }, { diag(A) <- 0; A },
  { dimnames(A) <- NULL; A }, { rownames(A) <- n:1; A },
  cbind(A, B), rbind(A, B), cbind(A, v), cbind(1, A), rbind(A, 2), cbind(A, D), rbind(D, A), rbind(A, B, A), cbind(A, z = v),
  kronecker(A, matrix(1:6, 2)), kronecker(diag(2), A), A %x% B, sweep(A, 1, v), sweep(A, 1, abs(v) + 1, "/"),
  sweep(A, 2, seq_len(k), "*"), rep(A, 2), rep(A, length.out = 7), diff(A), diff(A, 2), diff(A, 1, 2), { dim(A) <- c(k, n); A },
  { dim(A) <- c(n * k, 1); A }, mean(A, trim = 0.1), mean(A, 0.2, TRUE), head(A, 2), tail(A, 1), apply(A, 1, sum), isSymmetric(A), isSymmetric(A + t(A)),
  norm(A), norm(A, "I"), norm(A, "F"), norm(A, "M"), A %*% t(B), crossprod(A, B), A %*% seq_len(k), v %*% A)

quietly <- function(call, values) {
  tryCatch(suppressMessages(suppressWarnings(eval(call, values))), error = identity)
}
plain <- function(x) {
  if (methods::is(x, "BlockMatrix")) methods::validObject(x)
  if (methods::is(x, "sparseVector")) x <- as.vector(x)
  if (isS4(x)) x <- as.matrix(x)
  if (is.array(x) && is.null(unlist(dimnames(x)))) dimnames(x) <- NULL
  x
}
same <- function(found, expected) {
  if (inherits(found, "error")) return(FALSE)
  found <- plain(found)
  expected <- plain(expected)
  if (is.list(expected)) return(identical(as.list(found), expected) || is.null(unlist(found)) && is.null(unlist(expected)))
  # NA and NaN count as missing alike: base R's own sums turn one into the other.
  isTRUE(all.equal(found, expected, tolerance = 1e-12))
}

test_that("operations of Matrix's manual give the same on 200 random matrices", {
  wrong <- character()
  for (seed in 1:200) {
    set.seed(seed)
    n <- sample(9, 1)
    k <- if (seed %% 4 == 0) n else sample(9, 1)
    special <- seed %% 5 == 0
    block <- sample(4, 2, replace = TRUE)
    named <- seed %% 3
    base <- list(A = random_sparse(n, k, special, named), B = random_sparse(n, k, FALSE, 0), v = round(rnorm(n), 1), n = n,
                 k = k, D = matrix(round(rnorm(n * k), 2), n), tril = function(x) as.matrix(tril(Matrix(x))),
                 triu = function(x, k) as.matrix(triu(Matrix(x), k)), band = function(x, k, l) as.matrix(band(Matrix(x), k, l)))
    sparse <- base
    blocks <- base[c("v", "n", "k", "D")]
    for (name in c("A", "B")) {
      sparse[[name]] <- as(as(base[[name]], "CsparseMatrix"), "generalMatrix")
      blocks[[name]] <- block_matrix(sparse[[name]], block = if (name == "A") block else rev(block))
    }
    before <- block_values(blocks$A) + 0
    for (call in operations[seq_along(operations) %% 3 == seed %% 3]) {
      found <- quietly(call, blocks)
      # Where base R and Matrix differ, either will do: the names of x[1, 1], for instance. What one of them gives is no error.
      expected <- Filter(function(x) !inherits(x, "error"), list(quietly(call, base), quietly(call, sparse)))
      fits <- if (length(expected)) any(vapply(expected, function(x) same(found, x), NA)) else inherits(found, "error")
      if (!fits) wrong <- c(wrong, paste(seed, deparse(call)[1], collapse = " "))
    }
    if (!identical(block_values(blocks$A), before)) wrong <- c(wrong, paste(seed, "the operand changed"))
  }
  expect_identical(wrong, character())
})
