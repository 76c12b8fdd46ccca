# SPDX-License-Identifier: Apache-2.0
# Methods for functions of base R and Matrix. A product with a dense operand is a base matrix, or a
# DeviceArray on a device; the Matrix package computes products with a sparse Matrix or a second BlockMatrix,
# which are sparse.

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

# One of the two is a block matrix. The Matrix package multiplies two sparse factors.
.product <- function(x, y, verb) {
  if (isS4(x) && isS4(y)) {
    if (.is_sparse(x) && .is_sparse(y)) return(.sparse_verbs[[verb + 1L]](.as_sparse(x), .as_sparse(y)))
    if (!.may_be_dense(x) && !.may_be_dense(y)) .no_product(x, y)
  }
  .Call(R_swig_tartan_r_product, x, y, verb, FALSE)
}
.is_sparse <- function(x) methods::is(x, "BlockMatrix") || methods::is(x, "sparseMatrix")
# Matrix 1.5-3 returns a wrong tcrossprod of a dgCMatrix and a permutation, so every factor becomes a
# dgCMatrix.
.as_sparse <- function(x) if (methods::is(x, "BlockMatrix")) .to_sparse(x) else .general(x)
.may_be_dense <- function(x) {
  methods::is(x, "DeviceArray") || methods::is(x, "Matrix") || methods::is(x, "sparseVector")
}

# Nothing moves between devices unasked. On a device, one factor must be a block matrix and the other dense.
.no_product <- function(x, y, verb) {
  .place(x = x, y = y)
  .fail("unsupported", "x is a %s and y a %s, expected a DeviceBlockMatrix and a DeviceArray", class(x)[1L],
        class(y)[1L])
}

.set_products <- function(xs, ys, product) {
  force(product)
  for (x in xs) for (y in ys) {
    setMethod("%*%", signature(x, y), function(x, y) product(x, y, .times))
    setMethod("crossprod", signature(x, y), function(x, y = NULL, ...) product(x, y, .crossprod))
    setMethod("tcrossprod", signature(x, y), function(x, y = NULL, ...) product(x, y, .tcrossprod))
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
  setMethod("crossprod", signature("BlockMatrix", .none),
            function(x, y = NULL, ...) Matrix::crossprod(.to_sparse(x)))
  setMethod("tcrossprod", signature("BlockMatrix", .none),
            function(x, y = NULL, ...) Matrix::tcrossprod(.to_sparse(x)))
  setMethod("crossprod", signature("DeviceBlockMatrix", .none), function(x, y = NULL, ...) .no_product(x, x))
  setMethod("tcrossprod", signature("DeviceBlockMatrix", .none), function(x, y = NULL, ...) .no_product(x, x))
}
rm(.none, .matrices, .on_device, .others, .set_products)
