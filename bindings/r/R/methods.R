# SPDX-License-Identifier: Apache-2.0
# The verbs of base R and Matrix. Dense operands give a base matrix; a sparse Matrix or a second BlockMatrix gives
# what the Matrix package makes of it, a sparse Matrix.

.layout_dim <- function(x) {
  if (length(x@frame) != 5L) .fail("handle", "the layout was not made by this package")
  size <- x@frame[1:2]
  if (all(size <= .Machine$integer.max)) as.integer(size) else size
}
setMethod("dim", "BlockLayout", .layout_dim)
setMethod("dim", "BlockMatrix", function(x) dim(x@layout))
setMethod("length", "BlockLayout", function(x) prod(x@frame[1:2]))
setMethod("length", "BlockMatrix", function(x) prod(x@layout@frame[1:2]))

setMethod("t", "BlockLayout", function(x) .new_layout(tartan_layout_transpose(.layout_handle(x))))
setMethod("t", "BlockMatrix", function(x) .made(x, tartan_matrix_transpose))
setMethod("t", "DeviceBlockMatrix", function(x) .made(x, tartan_matrix_transpose))

# A dense matrix times the other, carrying the dimnames that survive.
.left <- function(a, b, transpose, transpose_b = FALSE) {
  b <- .dense(b, "y")
  d <- if (transpose_b) rev(dim(b)) else dim(b)
  .expect_product(if (transpose) dim(a)[1L] else dim(a)[2L], d[1L], "y", "rows",
                  if (transpose) "rows of x" else "columns of x")
  result <- .multiply(a, b, "left", transpose, dim = d, transpose_b = transpose_b)
  .named(result, NULL, dimnames(b)[[if (transpose_b) 1L else 2L]])
}
.right <- function(b, a, transpose, transpose_b = FALSE) {
  b <- .dense(b, "x")
  d <- if (transpose_b) rev(dim(b)) else dim(b)
  .expect_product(if (transpose) dim(a)[2L] else dim(a)[1L], d[2L], "x", "columns",
                  if (transpose) "columns of y" else "rows of y")
  result <- .multiply(a, b, "right", transpose, dim = d, transpose_b = transpose_b)
  .named(result, dimnames(b)[[if (transpose_b) 2L else 1L]], NULL)
}
.expect_product <- function(expected, found, name, what, of) {
  if (found != expected) .fail("shape", "%s has %.0f %s, expected %.0f (%s)", name, found, what, expected, of)
}
.named <- function(x, rows, cols) {
  if (length(dim(x)) == 2L && !(is.null(rows) && is.null(cols))) dimnames(x) <- list(rows, cols)
  x
}

# A vector is a column or a row, whichever fits; base R's rule. `inner` is the length that it must have.
.as_column <- function(v, inner) if (length(v) == inner) matrix(v) else matrix(v, 1L)
.as_row <- function(v, inner) if (length(v) == inner) matrix(v, 1L) else matrix(v)

.sparse_or_dense <- function(y, sparse, dense) if (methods::is(y, "sparseMatrix")) sparse else dense

setMethod("%*%", signature("BlockMatrix", "matrix"), function(x, y) .left(x, y, FALSE))
setMethod("%*%", signature("BlockMatrix", "array"), function(x, y) .left(x, y, FALSE))
setMethod("%*%", signature("BlockMatrix", "numeric"), function(x, y) .left(x, .as_column(y, dim(x)[2L]), FALSE))
setMethod("%*%", signature("BlockMatrix", "logical"), function(x, y) .left(x, .as_column(y, dim(x)[2L]), FALSE))
setMethod("%*%", signature("BlockMatrix", "Matrix"), function(x, y) {
  .sparse_or_dense(y, .to_sparse(x) %*% y, .left(x, y, FALSE))
})
setMethod("%*%", signature("matrix", "BlockMatrix"), function(x, y) .right(x, y, FALSE))
setMethod("%*%", signature("array", "BlockMatrix"), function(x, y) .right(x, y, FALSE))
setMethod("%*%", signature("numeric", "BlockMatrix"), function(x, y) .right(.as_row(x, dim(y)[1L]), y, FALSE))
setMethod("%*%", signature("logical", "BlockMatrix"), function(x, y) .right(.as_row(x, dim(y)[1L]), y, FALSE))
setMethod("%*%", signature("Matrix", "BlockMatrix"), function(x, y) {
  .sparse_or_dense(x, x %*% .to_sparse(y), .right(x, y, FALSE))
})
setMethod("%*%", signature("BlockMatrix", "BlockMatrix"), function(x, y) .to_sparse(x) %*% .to_sparse(y))

# crossprod(x, y) = t(x) y
setMethod("crossprod", signature("BlockMatrix", "missing"), function(x, y = NULL, ...) Matrix::crossprod(.to_sparse(x)))
setMethod("crossprod", signature("BlockMatrix", "NULL"), function(x, y = NULL, ...) Matrix::crossprod(.to_sparse(x)))
setMethod("crossprod", signature("BlockMatrix", "matrix"), function(x, y = NULL, ...) .left(x, y, TRUE))
setMethod("crossprod", signature("BlockMatrix", "numeric"),
          function(x, y = NULL, ...) .left(x, .as_column(y, dim(x)[1L]), TRUE))
setMethod("crossprod", signature("BlockMatrix", "Matrix"), function(x, y = NULL, ...) {
  .sparse_or_dense(y, Matrix::crossprod(.to_sparse(x), y), .left(x, y, TRUE))
})
setMethod("crossprod", signature("matrix", "BlockMatrix"), function(x, y = NULL, ...) .right(x, y, FALSE, TRUE))
setMethod("crossprod", signature("numeric", "BlockMatrix"),
          function(x, y = NULL, ...) .right(.as_row(x, dim(y)[1L]), y, FALSE))
setMethod("crossprod", signature("Matrix", "BlockMatrix"), function(x, y = NULL, ...) {
  .sparse_or_dense(x, Matrix::crossprod(x, .to_sparse(y)), .right(x, y, FALSE, TRUE))
})
setMethod("crossprod", signature("BlockMatrix", "BlockMatrix"),
          function(x, y = NULL, ...) Matrix::crossprod(.to_sparse(x), .to_sparse(y)))

# tcrossprod(x, y) = x t(y)
setMethod("tcrossprod", signature("BlockMatrix", "missing"), function(x, y = NULL, ...) Matrix::tcrossprod(.to_sparse(x)))
setMethod("tcrossprod", signature("BlockMatrix", "NULL"), function(x, y = NULL, ...) Matrix::tcrossprod(.to_sparse(x)))
setMethod("tcrossprod", signature("BlockMatrix", "matrix"), function(x, y = NULL, ...) .left(x, y, FALSE, TRUE))
setMethod("tcrossprod", signature("BlockMatrix", "numeric"),
          function(x, y = NULL, ...) .left(x, .as_column(y, dim(x)[2L]), FALSE))
setMethod("tcrossprod", signature("BlockMatrix", "Matrix"), function(x, y = NULL, ...) {
  .sparse_or_dense(y, Matrix::tcrossprod(.to_sparse(x), y), .left(x, y, FALSE, TRUE))
})
setMethod("tcrossprod", signature("matrix", "BlockMatrix"), function(x, y = NULL, ...) .right(x, y, TRUE))
setMethod("tcrossprod", signature("numeric", "BlockMatrix"),
          function(x, y = NULL, ...) .right(.as_row(x, dim(y)[2L]), y, TRUE))
setMethod("tcrossprod", signature("Matrix", "BlockMatrix"), function(x, y = NULL, ...) {
  .sparse_or_dense(x, Matrix::tcrossprod(x, .to_sparse(y)), .right(x, y, TRUE))
})
setMethod("tcrossprod", signature("BlockMatrix", "BlockMatrix"),
          function(x, y = NULL, ...) Matrix::tcrossprod(.to_sparse(x), .to_sparse(y)))

# ---- Sums ----

.no_na_rm <- function(na.rm, dims) {
  if (!identical(na.rm, FALSE)) .fail("unsupported", "na.rm is %s, expected FALSE", .shown(na.rm))
  if (dims != 1) .fail("unsupported", "dims is %s, expected 1", .shown(dims))
}
.row_sums <- function(x) {
  .expect_one_head(x, "a sum")
  as.vector(.multiply(.as_double(x), matrix(1, dim(x)[2L], 1L)))
}
.col_sums <- function(x) {
  .expect_one_head(x, "a sum")
  as.vector(.multiply(.as_double(x), matrix(1, dim(x)[1L], 1L), transpose = TRUE))
}
setMethod("rowSums", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, ...) {
  .no_na_rm(na.rm, dims)
  .row_sums(x)
})
setMethod("colSums", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, ...) {
  .no_na_rm(na.rm, dims)
  .col_sums(x)
})
setMethod("rowMeans", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, ...) {
  .no_na_rm(na.rm, dims)
  .row_sums(x) / dim(x)[2L]
})
setMethod("colMeans", "BlockMatrix", function(x, na.rm = FALSE, dims = 1, ...) {
  .no_na_rm(na.rm, dims)
  .col_sums(x) / dim(x)[1L]
})

setMethod("nnzero", "BlockMatrix", function(x, na.counted = NA) {
  values <- block_values(x)
  count <- sum(values != 0, na.rm = TRUE)
  unknown <- sum(is.na(values))
  if (unknown == 0 || identical(na.counted, FALSE)) count
  else if (isTRUE(na.counted)) count + unknown
  else NA_integer_
})
