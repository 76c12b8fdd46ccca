# SPDX-License-Identifier: Apache-2.0
# Dense operands. A double matrix is used in place; for matrices of another dtype it is converted by the library,
# as the values of a layout that is one column of blocks.

# How C shall see the memory of `data`: shape and strides in elements.
.view <- function(data, shape, strides, dtype = "float64") {
  list(data, .constant(dtype), as.double(shape), as.double(strides))
}

.column_layout <- function(n) {
  blocks <- ceiling(n / 256)
  tartan_layout_from_csr(c(n, 1, 256, 1, 1), seq(0, blocks), numeric(blocks))
}

.to_dtype <- function(x, dtype) {
  if (dtype == "float64") return(x)
  n <- length(x)
  handle <- tartan_matrix_from_dense(.column_layout(n), .view(x, c(n, 1), c(1, n)), .dtype_code(dtype),
                                     .constant("col_major"))
  bytes <- tartan_matrix_values(handle)
  tartan_r_close(handle)
  bytes
}

# Bytes for n elements, as .column_layout lays them out.
.dtype_buffer <- function(n, dtype) raw(ceiling(n / 256) * 256 * tartan_dtype_bytes(.dtype_code(dtype)))

.from_dtype <- function(bytes, dtype, dim) {
  n <- prod(dim)
  result <- tartan_r_new_array(dim)
  handle <- tartan_r_matrix(.column_layout(n), bytes, .dtype_code(dtype))
  tartan_matrix_to_dense(handle, .view(result, c(n, 1), c(1, n)))
  tartan_r_close(handle)
  result
}

# Strides of an array in R's order.
.column_strides <- function(dim) cumprod(c(1, dim[-length(dim)]))

# The view of an array of dimension (rows, columns, batch...): C counts the batch first, outermost first.
.operand <- function(data, dtype, transpose, dim) {
  matrix <- if (transpose) 2:1 else 1:2
  batch <- rev(seq_along(dim)[-(1:2)])
  .view(data, dim[c(batch, matrix)], .column_strides(dim)[c(batch, matrix)], dtype)
}
.dense_view <- function(x, dtype, transpose = FALSE, dim = base::dim(x)) {
  .operand(.to_dtype(x, dtype), dtype, transpose, dim)
}
