# SPDX-License-Identifier: Apache-2.0
# Systems of equations and factorisations, by the sparse methods of the Matrix package (CHOLMOD, CSparse). The operands of
# Matrix's functions are made before the call: R would report an error in an argument as one of choosing a method.

# Matrix's own tolerance of isSymmetric().
.symmetric_tolerance <- 100 * .Machine$double.eps

# A symmetric matrix as a dsCMatrix, for which Matrix tries Cholesky first; any other as a dgCMatrix. Neither has names: the results
# get those of x. It is kept with x, and Matrix keeps its factors in it, so the next system with x costs two triangular solves.
.to_factor <- function(x, name) {
  .expect_square(x, name)
  kept <- tartan_r_kept_sparse(x)
  if (!is.null(kept)) return(kept)
  tartan_r_keep_sparse(x, .to_sparse(x, drop = TRUE, tolerance = .symmetric_tolerance, names = .no_names))
}
.expect_square <- function(x, name) {
  size <- dim(x)
  if (size[1L] != size[2L]) .fail("shape", "%s is %.0f x %.0f, expected a square matrix", name, size[1L], size[2L])
}
.expect_symmetric <- function(x, name, drop = TRUE) {
  .expect_square(x, name)
  m <- if (.same_names(x@Dimnames)) if (drop) .to_factor(x, name) else .to_sparse(x, FALSE, .symmetric_tolerance)
  if (!inherits(m, "dsCMatrix")) .fail("argument", "%s is not symmetric, expected a symmetric matrix", name)
  if (length(unlist(x@Dimnames))) m@Dimnames <- .square_names(x)
  m
}
# Whether rows and columns have the same names, or one of them none.
.same_names <- function(names) is.null(names[[1L]]) || is.null(names[[2L]]) || identical(names[[1L]], names[[2L]])

.solve <- function(a, b, ...) {
  rows <- dim(a)[1L]
  if (NROW(b) != rows) .fail("shape", "b has %d rows, expected %d (rows of a)", NROW(b), rows)
  names <- if (.is_matrix(a) || inherits(a, "dsCMatrix")) list(colnames(a), if (!is.null(dim(b))) colnames(b))
  if (inherits(a, "BlockMatrix")) a <- .to_factor(a, "a")
  if (inherits(b, "BlockMatrix")) b <- .non_zeros(b)
  x <- if (inherits(b, "sparseMatrix")) .solve_sparse(a, b, ...) else Matrix::solve(a, b, ...)
  if (!is.null(names)) dimnames(x) <- names
  x
}
# Matrix may make a dense result for sparse right-hand sides.
.solve_sparse <- function(a, b, ...) {
  if (inherits(a, "dsCMatrix")) {
    none <- function(condition) NULL
    factor <- tryCatch(Matrix::Cholesky(a, LDL = FALSE), error = none, warning = none)
    if (!is.null(factor)) return(Matrix::solve(factor, b, system = "A"))
    a <- methods::as(a, "generalMatrix") # not positive definite
  }
  if (inherits(a, "dgCMatrix") && !("sparse" %in% names(list(...)))) Matrix::solve(a, b, sparse = TRUE, ...)
  else Matrix::solve(a, b, ...)
}

# As Matrix: the inverse of a symmetric matrix is sparse, that of another one dense, unless it would have more than 1 GiB.
setMethod("solve", signature("BlockMatrix", "missing"), function(a, b, ...) {
  factors <- .to_factor(a, "a")
  n <- nrow(factors)
  dense <- inherits(factors, "dgCMatrix") && n < 2^13.5 && !("sparse" %in% names(list(...)))
  x <- if (dense) Matrix::solve(factors, diag(n), ...) else .solve_sparse(factors, Matrix::.sparseDiagonal(n, shape = "g"), ...)
  dimnames(x) <- a@Dimnames[2:1]
  x
})
setMethod("solve", signature("BlockMatrix", "ANY"), function(a, b, ...) { # dense: a base vector or matrix
  if (inherits(b, "sparseVector")) b <- as.vector(b)
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

setMethod("Cholesky", "BlockMatrix", function(A, perm = TRUE, LDL = !super, super = FALSE, Imult = 0, drop0 = TRUE, ...) {
  A <- .expect_symmetric(A, "A", .flag(drop0, "drop0"))
  Matrix::Cholesky(A, perm = perm, LDL = LDL, super = super, Imult = Imult, ...)
})
setMethod("chol", "BlockMatrix", function(x, ...) {
  x <- .expect_symmetric(x, "x")
  Matrix::chol(x, ...)
})
setMethod("lu", "BlockMatrix", function(x, ...) {
  .expect_square(x, "x")
  x <- .non_zeros(x)
  Matrix::lu(x, ...)
})
setMethod("qr", "BlockMatrix", function(x, ...) {
  x <- .non_zeros(x)
  Matrix::qr(x, ...)
})

# A factor of Matrix with the numbers of another matrix. CHOLMOD does not check that these lie in the pattern which was analysed, so
# we do, and analyse anew where they don't. As with Matrix, a matrix that is not symmetric stands for its tcrossprod().
.update_factor <- function(object, parent, mult) {
  square <- dim(parent)[1L] == dim(parent)[2L]
  m <- .to_sparse(parent, drop = TRUE, tolerance = if (square) .symmetric_tolerance, names = .no_names)
  if (!inherits(m, "dsCMatrix")) m <- Matrix::tcrossprod(m)
  n <- dim(object)[1L]
  if (nrow(m) != n) .fail("shape", "parent has %d rows, expected %d (rows of the factored matrix)", nrow(m), n)
  if (tartan_r_factor_fits(object, m)) return(Matrix::update(object, m, mult = mult))
  Matrix::Cholesky(m, perm = is.unsorted(object@perm), LDL = Matrix::isLDL(object), super = inherits(object, "CHMsuper"), Imult = mult)
}
# Methods for the classes that have instances: that for CHMfactor is Matrix's own.
for (.factor in c("dCHMsimpl", "dCHMsuper")) {
  setMethod("update", .factor, function(object, parent, mult = 0, ...) {
    if (missing(parent) || !inherits(parent, "BlockMatrix")) return(callNextMethod())
    .update_factor(object, parent, mult)
  })
}
rm(.factor)
for (.update in c("logical", "character")) {
  setMethod("updown", signature(.update, "BlockMatrix", "CHMfactor"), function(update, C, L) Matrix::updown(update, .non_zeros(C), L))
}
rm(.update)

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

# ---- Elements of an inverse ----

# L L' = P A P' in compressed columns with all that elimination fills.
.lower_factor <- function(x) {
  if (!inherits(x, "CHMfactor")) {
    if (inherits(x, "BlockMatrix")) x <- .expect_symmetric(x, "x")
    else if (!inherits(x, "dsCMatrix")) .fail("argument", "x is %s, expected a BlockMatrix, a dsCMatrix or a factor of Cholesky()", .shown(x))
    refuse <- function(condition) .fail("argument", "x is not positive definite, expected a matrix with a Cholesky factor")
    x <- tryCatch(Matrix::Cholesky(x, LDL = FALSE), error = refuse, warning = refuse)
  }
  list(order = x@perm, lower = methods::as(x, "sparseMatrix"))
}
.inverse_at_factor <- function(lower) {
  z <- numeric(length(lower@x))
  tartan_selected_inverse(list(lower@p, lower@i, TRUE), lower@x, z)
  z
}
diag_inverse <- function(x) {
  names <- rownames(x)
  factor <- .lower_factor(x)
  z <- .inverse_at_factor(factor$lower)
  d <- numeric(length(factor$order))
  d[factor$order + 1L] <- z[factor$lower@p[seq_along(d)] + 1L]
  if (length(names)) names(d) <- names
  d
}
selected_inverse <- function(x) {
  names <- if (!inherits(x, "CHMfactor")) rownames(x)
  factor <- .lower_factor(x)
  lower <- factor$lower
  i <- factor$order[lower@i + 1L]
  j <- factor$order[rep.int(seq_along(factor$order), diff(lower@p))]
  Matrix::sparseMatrix(i = pmin(i, j), j = pmax(i, j), x = .inverse_at_factor(lower), dims = dim(lower), symmetric = TRUE, index1 = FALSE,
                       dimnames = if (length(names)) list(names, names))
}
