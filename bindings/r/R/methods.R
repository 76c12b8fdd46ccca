# SPDX-License-Identifier: Apache-2.0
# Methods for functions of base R and Matrix. A product with a dense operand is a base matrix, or a DeviceArray on a
# device; with a BlockMatrix or a Diagonal it is a BlockMatrix; with any other sparse Matrix it is a sparse Matrix,
# computed by the Matrix package.

.layout_dim <- function(x) {
  if (length(x@frame) != 5L) return(c(0L, 0L)) # new("BlockLayout")
  size <- x@frame[1:2]
  if (all(size <= .Machine$integer.max)) as.integer(size) else size
}
setMethod("dim", "BlockLayout", .layout_dim)
setMethod("dim", "DeviceBlockLayout", .layout_dim)
setMethod("dim", "AnyBlockMatrix", function(x) .layout_dim(x@layout))
setMethod("length", "AnyBlockLayout", function(x) prod(dim(x)))
setMethod("length", "AnyBlockMatrix", function(x) prod(dim(x)))

setMethod("t", "BlockLayout", function(x) .new_layout(tartan_layout_transpose(x)))
setMethod("t", "AnyBlockMatrix", function(x) .made(x, tartan_matrix_transpose, names = rev(x@Dimnames)))

# ---- Products ----

.times <- 0L
.crossprod <- 1L
.tcrossprod <- 2L
.sparse_verbs <- list(function(x, y) x %*% y, function(x, y) Matrix::crossprod(x, y),
                      function(x, y) Matrix::tcrossprod(x, y))

# One of the two is a block matrix.
.product <- function(x, y, verb) {
  if (isS4(x) && isS4(y)) {
    if (inherits(x, "BlockMatrix") && inherits(y, "BlockMatrix")) return(.block_product(x, y, verb))
    if (inherits(x, "BlockMatrix") && inherits(y, "diagonalMatrix")) return(.scaled_cols(x, y, verb))
    if (inherits(x, "diagonalMatrix") && inherits(y, "BlockMatrix")) return(.scaled_rows(x, y, verb))
    if (inherits(x, "DeviceBlockMatrix") && inherits(y, "diagonalMatrix")) return(.scaled_cols(x, y, verb))
    if (inherits(x, "diagonalMatrix") && inherits(y, "DeviceBlockMatrix")) return(.scaled_rows(x, y, verb))
    if (.is_sparse(x) && .is_sparse(y)) return(.sparse_verbs[[verb + 1L]](.as_sparse(x), .as_sparse(y)))
    if (!.may_be_dense(x) && !.may_be_dense(y)) .no_product(x, y)
  }
  .Call(R_swig_tartan_r_product, x, y, verb, FALSE)
}

# The factors as op(x) and op(y), so that their product is op(x) %*% op(y).
.left_factor <- function(x, verb) if (verb == .crossprod) t(x) else x
.right_factor <- function(y, verb) if (verb == .tcrossprod) t(y) else y

# op(x) has n columns; m, of op(y), must be as many.
.expect_inner <- function(n, m, verb) {
  if (n == m) return()
  .fail("shape", "y has %.0f %s, expected %.0f (%s of x)", m, if (verb == .tcrossprod) "columns" else "rows", n,
        if (verb == .crossprod) "rows" else "columns")
}

# y in blocks whose rows are the block columns of x.
.in_rows_of <- function(y, x) {
  inner <- block_dim(x)[2L]
  fits <- block_dim(y)[1L] == inner
  if (!block_is_variable(x) && !block_is_variable(y)) return(if (fits) y else block_reblock(y, c(inner, block_dim(y)[2L])))
  rows <- block_boundaries(x)$cols
  if (fits && identical(block_boundaries(y)$rows, rows)) return(y)
  if (block_is_variable(x)) .made(y, tartan_matrix_reblock_at, rows, NULL) else block_reblock(y, c(inner, block_dim(y)[2L]))
}

.block_product <- function(x, y, verb) {
  if (block_heads(x) != block_heads(y)) {
    .fail("shape", "y has %.0f heads, expected %.0f (as x)", block_heads(y), block_heads(x))
  }
  x <- .left_factor(x, verb)
  y <- .right_factor(y, verb)
  .expect_inner(dim(x)[2L], dim(y)[1L], verb)
  y <- .in_rows_of(y, x)
  result <- .take_matrix(tartan_matrix_multiply(NULL, x, y, 0L), names = list(x@Dimnames[[1L]], y@Dimnames[[2L]]))
  if (.all_finite(x) && .all_finite(y)) result else .spread_as_sparse(result, x, y)
}

# With missing or infinite numbers, x %*% y has the numbers that the Matrix package gives: the zeros inside of blocks do
# not multiply them. `result` is the product by blocks.
.spread_as_sparse <- function(result, x, y) {
  if (block_heads(result) > 1) return(result)
  product <- .as_sparse(x) %*% .as_sparse(y)
  dimnames(product) <- result@Dimnames
  .from_sparse(product, layout = result@layout, dtype = result@dtype)
}

# Rows and columns times numbers, which may be on x's device; NULL for ones.
.scaled <- function(x, rows, cols, names = x@Dimnames) {
  scale <- function(place, x) tartan_matrix_scale(place, rows, cols, x, 0L)
  .made(x, scale, layout = x@layout, names = names)
}

# A diagonal matrix multiplies the rows or the columns of every head.
.scaled_rows <- function(d, y, verb) {
  y <- .right_factor(y, verb)
  .expect_inner(dim(d)[1L], dim(y)[1L], verb)
  names <- list(.names_of(d)[[if (verb == .crossprod) 2L else 1L]], y@Dimnames[[2L]])
  factors <- as.double(Matrix::diag(d))
  result <- .scaled(y, factors, NULL, names)
  if (all(is.finite(factors)) || inherits(y, "DeviceObject")) result else .spread_as_sparse(result, d, y)
}
.scaled_cols <- function(x, d, verb) {
  x <- .left_factor(x, verb)
  .expect_inner(dim(x)[2L], dim(d)[1L], verb)
  names <- list(x@Dimnames[[1L]], .names_of(d)[[if (verb == .tcrossprod) 1L else 2L]])
  factors <- as.double(Matrix::diag(d))
  result <- .scaled(x, NULL, factors, names)
  if (all(is.finite(factors)) || inherits(x, "DeviceObject")) result else .spread_as_sparse(result, x, d)
}

.is_sparse <- function(x) inherits(x, "BlockMatrix") || inherits(x, "sparseMatrix")
# Matrix 1.5-3 returns a wrong tcrossprod of a dgCMatrix and a permutation, so every factor becomes a
# dgCMatrix.
.as_sparse <- function(x) if (inherits(x, "BlockMatrix")) .non_zeros(x) else .general(x)
.may_be_dense <- function(x) {
  inherits(x, "DeviceArray") || inherits(x, "Matrix") || inherits(x, "sparseVector")
}

# Nothing moves between devices unasked. On a device, one factor must be a block matrix and the other dense.
.no_product <- function(x, y, verb) {
  .place(x = x, y = y)
  .fail("unsupported", "x is a %s and y a %s, expected a DeviceBlockMatrix and a DeviceArray", class(x)[1L],
        class(y)[1L])
}

# Products are of numbers.
.expect_numeric <- function(boolArith = NA, ...) {
  if (...length()) .fail("argument", "there are %d more arguments, expected x and y", ...length())
  if (isTRUE(boolArith)) .fail("unsupported", "boolArith is TRUE, expected NA or FALSE: use %%&%%, as in t(x) %%&%% y")
}

.set_products <- function(xs, ys, product) {
  force(product)
  for (x in xs) for (y in ys) {
    setMethod("%*%", signature(x, y), function(x, y) product(x, y, .times))
    setMethod("crossprod", signature(x, y), function(x, y = NULL, ...) { .expect_numeric(...); product(x, y, .crossprod) })
    setMethod("tcrossprod", signature(x, y), function(x, y = NULL, ...) { .expect_numeric(...); product(x, y, .tcrossprod) })
  }
}
.matrices <- c("BlockMatrix", "DeviceBlockMatrix")
.on_device <- c("DeviceArray", "DeviceBlockLayout")
.others <- c("ANY", "Matrix")
.set_products(.matrices, c(.others, .on_device, .matrices), .product)
.set_products(c(.others, .on_device), .matrices, .product)
.set_products(.on_device, c(.others, .on_device), .no_product)
.set_products(.others, .on_device, .no_product)

# crossprod(x) = t(x) x, tcrossprod(x) = x t(x)
for (.none in c("missing", "NULL")) {
  setMethod("crossprod", signature("BlockMatrix", .none), function(x, y = NULL, ...) { .expect_numeric(...); .block_product(x, x, .crossprod) })
  setMethod("tcrossprod", signature("BlockMatrix", .none), function(x, y = NULL, ...) { .expect_numeric(...); .block_product(x, x, .tcrossprod) })
  setMethod("crossprod", signature("DeviceBlockMatrix", .none), function(x, y = NULL, ...) .no_product(x, x))
  setMethod("tcrossprod", signature("DeviceBlockMatrix", .none), function(x, y = NULL, ...) .no_product(x, x))
}
rm(.none, .matrices, .on_device, .others, .set_products)
