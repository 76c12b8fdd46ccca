# SPDX-License-Identifier: Apache-2.0
# Systems of equations and factorisations, by the sparse methods of the Matrix package (CHOLMOD, CSparse). The operands of
# Matrix's functions are made before the call: R would report an error in an argument as one of choosing a method.

# A symmetric matrix as a dsCMatrix, for which Matrix tries Cholesky first; any other as a dgCMatrix.
.to_factor <- function(x, name) {
  .expect_square(x, name)
  m <- .to_sparse(x)
  if (Matrix::isSymmetric(m, tol = 0)) Matrix::forceSymmetric(m) else m
}
.expect_square <- function(x, name) {
  size <- dim(x)
  if (size[1L] != size[2L]) .fail("shape", "%s is %.0f x %.0f, expected a square matrix", name, size[1L], size[2L])
}
.expect_symmetric <- function(x, name) {
  .expect_square(x, name)
  m <- .to_sparse(x)
  if (!Matrix::isSymmetric(m)) .fail("argument", "%s is not symmetric, expected a symmetric matrix", name)
  Matrix::forceSymmetric(m)
}

.solve <- function(a, b, ...) {
  if (methods::is(a, "BlockMatrix")) a <- .to_factor(a, "a")
  if (methods::is(b, "BlockMatrix")) b <- .to_sparse(b)
  if (NROW(b) != dim(a)[1L]) .fail("shape", "b has %d rows, expected %d (rows of a)", NROW(b), dim(a)[1L])
  if (methods::is(b, "sparseMatrix")) .solve_sparse(a, b, ...) else Matrix::solve(a, b, ...)
}
# Matrix may make a dense result for sparse right-hand sides.
.solve_sparse <- function(a, b, ...) {
  if (methods::is(a, "dsCMatrix")) {
    none <- function(condition) NULL
    factor <- tryCatch(Matrix::Cholesky(a, LDL = FALSE), error = none, warning = none)
    if (!is.null(factor)) {
      x <- Matrix::solve(factor, b, system = "A")
      dimnames(x) <- list(colnames(a), colnames(b))
      return(x)
    }
    a <- methods::as(a, "generalMatrix") # not positive definite
  }
  if (methods::is(a, "dgCMatrix") && !("sparse" %in% names(list(...)))) Matrix::solve(a, b, sparse = TRUE, ...)
  else Matrix::solve(a, b, ...)
}

setMethod("solve", signature("BlockMatrix", "missing"), function(a, b, ...) {
  a <- .to_factor(a, "a")
  x <- .solve_sparse(a, Matrix::.sparseDiagonal(nrow(a), shape = "g"), ...)
  dimnames(x) <- dimnames(a)[2:1]
  x
})
setMethod("solve", signature("BlockMatrix", "ANY"), function(a, b, ...) { # dense: a base vector or matrix
  if (methods::is(b, "sparseVector")) b <- as.vector(b)
  vector <- is.null(dim(b))
  x <- .solve(a, if (vector) .numbers(b, "b") else .dense(b, "b"), ...)
  if (!vector) return(as.matrix(x))
  stats::setNames(as.vector(x), rownames(x))
})
setMethod("solve", signature("BlockMatrix", "Matrix"), .solve)
setMethod("solve", signature("BlockMatrix", "BlockMatrix"), .solve)
setMethod("solve", signature("matrix", "BlockMatrix"), function(a, b, ...) {
  a <- methods::as(a, "denseMatrix")
  as.matrix(.solve(a, b, ...))
})
for (.a in c("Matrix", "diagonalMatrix", "CsparseMatrix", "RsparseMatrix", "TsparseMatrix", "denseMatrix", "indMatrix",
             "MatrixFactorization", "sparseQR")) { # Matrix has methods for (these, ANY)
  setMethod("solve", signature(.a, "BlockMatrix"), .solve)
}
rm(.a)
setMethod("solve", signature("DeviceObject", "ANY"), function(a, b, ...) .expect_here(a, "solve"))

# det() of base R calls the S3 generic.
determinant.BlockMatrix <- function(x, logarithm = TRUE, ...) {
  x <- .to_factor(x, "x")
  Matrix::determinant(x, logarithm = logarithm, ...)
}

setMethod("rcond", signature("BlockMatrix", "missing"), function(x, norm, ...) .rcond(x, "O", ...))
setMethod("rcond", signature("BlockMatrix", "character"), function(x, norm, ...) .rcond(x, norm, ...))
.rcond <- function(x, norm, ...) {
  .expect_square(x, "x")
  base::rcond(.small_dense(x), norm, ...)
}

setMethod("Cholesky", "BlockMatrix", function(A, perm = TRUE, LDL = !super, super = FALSE, Imult = 0, ...) {
  A <- .expect_symmetric(A, "A")
  Matrix::Cholesky(A, perm = perm, LDL = LDL, super = super, Imult = Imult, ...)
})
setMethod("chol", "BlockMatrix", function(x, ...) {
  x <- .expect_symmetric(x, "x")
  Matrix::chol(x, ...)
})
setMethod("lu", "BlockMatrix", function(x, ...) {
  .expect_square(x, "x")
  x <- .to_sparse(x)
  Matrix::lu(x, ...)
})
setMethod("qr", "BlockMatrix", function(x, ...) {
  x <- .to_sparse(x)
  Matrix::qr(x, ...)
})

# Dense results: those of Matrix, whose methods take dense copies.
.dense_square <- function(x) {
  .expect_square(x, "x")
  Matrix::Matrix(.small_dense(x), sparse = FALSE, doDiag = FALSE)
}
setMethod("expm", "BlockMatrix", function(x) {
  x <- .dense_square(x)
  Matrix::expm(x)
})
setMethod("Schur", signature("BlockMatrix", "missing"), function(x, vectors, ...) {
  x <- .dense_square(x)
  Matrix::Schur(x)
})
setMethod("Schur", signature("BlockMatrix", "logical"), function(x, vectors, ...) {
  x <- .dense_square(x)
  Matrix::Schur(x, vectors, ...)
})
