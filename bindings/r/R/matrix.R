# SPDX-License-Identifier: Apache-2.0

setGeneric("block_matrix", function(x, ...) standardGeneric("block_matrix"))

# The layout determines the block size.
.expect_no_block <- function(given) {
  if (given) .fail("argument", "block is given beside layout, expected one of them")
}

.from_dense <- function(x, block = c(8, 8), layout = NULL, dtype = "float64") {
  x <- .dense(x, "x")
  if (is.null(layout)) layout <- block_layout_from_dense(x, block) else .expect_no_block(!missing(block))
  .expect_layout(layout, "layout")
  if (length(dim(x)) == 3L && dim(x)[3L] == 1L) dim(x) <- dim(x)[1:2]
  .take_matrix(tartan_matrix_from_dense(layout, x, .dtype_code(dtype), TARTAN_COL_MAJOR), layout,
               .names_of(x))
}

.from_sparse <- function(x, block = c(8, 8), layout = NULL, dtype = "float64") {
  entries <- .sparse_entries(x)
  if (is.null(layout)) layout <- .new_layout(tartan_layout_from_entries(.frame(dim(x), block), list(NULL, entries$i, entries$j)))
  else .expect_no_block(!missing(block))
  .take_matrix(tartan_matrix_from_coo(layout, list(NULL, entries$i, entries$j), entries$x,
                                      .dtype_code(dtype), TARTAN_COL_MAJOR), layout, .names_of(x))
}

.from_layout <- function(x, values = NULL, dtype = "float64", init = c("zeros", "identity", "orthogonal", "normal"),
                         scale = 1, seed = NULL) {
  tartan_layout_blocks(x) # refuses a closed layout
  init <- .choose(init, c("zeros", "identity", "orthogonal", "normal"), "init")
  dtype <- .dtype_name(dtype)
  result <- .new_matrix(x, .zero_values(x, dtype), dtype)
  if (!is.null(values)) {
    if (init != "zeros") .fail("argument", "init is \"%s\", expected none where values are given", init)
    block_values(result) <- values
    return(result)
  }
  switch(init,
         zeros = NULL,
         identity = tartan_matrix_fill_identity(result, scale),
         orthogonal = tartan_matrix_fill_orthogonal(NULL, result, scale, .seed(seed)),
         normal = tartan_matrix_fill_normal(NULL, result, scale, .seed(seed)))
  result
}

# The same numbers in other blocks, without those outside `layout`, or of another dtype.
.from_blocks <- function(x, block = NULL, layout = NULL, dtype = x@dtype) {
  if (!is.null(layout)) {
    .expect_no_block(!is.null(block))
    block <- .frame_of(.expect_layout(layout, "layout"))[3:4]
  }
  if (!is.null(block) && !identical(.pair(block, "block", 1, 256), .frame_of(x)[3:4])) x <- block_reblock(x, block)
  if (!is.null(layout)) x <- block_project(x, layout)
  if (identical(dtype, x@dtype)) x else block_cast(x, dtype)
}

setMethod("block_matrix", "matrix", function(x, ...) .from_dense(x, ...))
setMethod("block_matrix", "array", function(x, ...) .from_dense(x, ...))
setMethod("block_matrix", "Matrix", function(x, ...) {
  if (inherits(x, "sparseMatrix")) .from_sparse(x, ...) else .from_dense(as.matrix(x), ...)
})
setMethod("block_matrix", "data.frame", function(x, ...) .from_dense(as.matrix(x), ...))
setMethod("block_matrix", "BlockLayout", function(x, ...) .from_layout(x, ...))
setMethod("block_matrix", "BlockMatrix", function(x, ...) .from_blocks(x, ...))
setMethod("block_matrix", "ANY", function(x, ...) {
  if (inherits(x, "table")) return(.from_dense(unclass(x), ...)) # methods do not see the second class of xtabs
  .fail("argument", "x is %s, expected a matrix, a Matrix, a data frame, a BlockMatrix or a BlockLayout", .shown(x))
})

block_dtype <- function(x) {
  if (!inherits(x, "DeviceArray")) .expect_any_matrix(x, "x")
  x@dtype
}

block_cast <- function(x, dtype) {
  code <- .dtype_code(dtype)
  .expect_any_matrix(x, "x")
  .made(x, tartan_matrix_cast, code, TARTAN_COL_MAJOR, layout = x@layout)
}

.as_double <- function(x) if (x@dtype == "float64") x else block_cast(x, "float64")

block_values <- function(x) {
  .expect(x, "BlockMatrix", "x")
  tartan_r_expect_open(x)
  .as_double(x)@values
}

# Numbers as values for a matrix on the layout, with its dimensions.
.values_for <- function(layout, value, name) {
  if (!is.numeric(value)) .fail("dtype", "%s is %s, expected numbers", name, .shown(value))
  dim <- c(layout@frame[3:4], block_count(layout))
  if (length(value) != prod(dim)) {
    .fail("shape", "%s has length %.0f, expected %.0f (%.0f x %.0f x %.0f)", name, length(value), prod(dim), dim[1L],
          dim[2L], dim[3L])
  }
  if (!is.null(dim(value)) && length(dim(value)) > 1L && !identical(as.double(dim(value)), dim)) {
    .fail("shape", "%s is %s, expected %s", name, paste(dim(value), collapse = " x "), paste(dim, collapse = " x "))
  }
  if (!is.double(value) || is.object(value)) value <- as.double(value)
  if (!identical(as.double(dim(value)), dim)) dim(value) <- dim
  value
}

`block_values<-` <- function(x, value) {
  .expect(x, "BlockMatrix", "x")
  tartan_r_expect_open(x)
  result <- .new_matrix(x@layout, .values_for(x@layout, value, "value"), "float64", x@Dimnames)
  if (x@dtype == "float64") result else block_cast(result, x@dtype)
}

block_norms <- function(x, norm = c("l2", "l1", "max")) {
  norm <- .constant(norm, .norms, "norm")
  .expect_any_matrix(x, "x")
  tartan_matrix_block_norms(.place(x = x), x, norm, block_count(x))
}

block_check <- function(x, finite = FALSE) {
  tartan_matrix_check(x, as.integer(.flag(finite, "finite")))
  invisible(TRUE)
}
