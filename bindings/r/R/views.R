# SPDX-License-Identifier: Apache-2.0
# The library's views of operands and results, in R's memory or on a device. No other file needs to know
# which: the functions here and the generated ones take a BlockMatrix or a DeviceBlockMatrix, a base matrix or
# a DeviceArray.
#
# An operation finds the place of its operands, makes views and a result, and calls the library:
#   place <- .place(x = x, y = y)
#   result <- .result(place, dim, dtype)
#   tartan_operation(place, .operand(x, "x", dtype), .operand(y, "y", dtype), result)
#   .value(result)

# The TartanContext of the first operand on a device, NULL for R's memory. Refuses operands on several devices, and on a device
# and in R's memory; operands in several contexts of one device are fine, since the library orders their work.
.place <- function(...) tartan_r_place(list(...))

# A dense operand. In R's memory its numbers are converted to `dtype` if necessary; a vector is one column.
.operand <- function(x, name, dtype = "float64", transpose = FALSE) tartan_r_operand(x, name, dtype, transpose)

# One operand or a list of them.
.as_list <- function(x) if (is.list(x) && !is.data.frame(x)) x else list(x)
.operands <- function(x, name, dtype = "float64", transpose = FALSE) {
  lapply(.as_list(x), .operand, name, dtype, transpose)
}

# A dense result, new or a copy of `start`, which the library writes in place; and its value for the user.
.result <- function(place, dim, dtype) tartan_r_result(place, dim, dtype)
.result_from <- function(place, start, name) tartan_r_result_from(place, start, name)
.value <- function(result) tartan_r_result_value(result)

# The dtype of new results: those of 16-bit and 8-bit matrices are rounded once, to f32.
.result_dtype <- function(dtype) if (dtype == "float64") dtype else "float32"

# R counts only its own memory, so objects that it no longer needs may fill a device.
.with_memory <- function(make) {
  tryCatch(make(), tartan_error_memory = function(e) {
    gc()
    make()
  })
}

# A new matrix made by the library where `x` is: make(place, x, ...). It has the names of x unless others are given.
.made <- function(x, make, ..., layout = NULL, names = x@Dimnames) {
  .expect_any_matrix(x, "x")
  place <- .place(x = x)
  if (is.null(place)) return(.take_matrix(make(NULL, x, ...), layout, names))
  handle <- .with_memory(function() make(place, x, ...))
  if (is.null(layout)) layout <- .new_layout(tartan_matrix_get_layout(handle))
  .new_device_matrix(handle, layout, tartan_dtype_name(tartan_matrix_dtype(handle)), place, names)
}

# A copy of a matrix, to be changed in place; a zero matrix on a layout.
.matrix_copy <- function(x, name = "x") {
  .expect_any_matrix(x, name)
  place <- .place(x = x)
  if (is.null(place)) return(.new_matrix(x@layout, tartan_r_duplicate(x@values), x@dtype, x@Dimnames))
  .new_device_matrix(.with_memory(function() tartan_matrix_to_device(place, x)), x@layout, x@dtype, place, x@Dimnames)
}
.matrix_of_zeros <- function(place, layout, dtype, names = .no_names) {
  if (is.null(place)) return(tartan_r_matrix_around(.zero_values(layout, dtype), layout, dtype, names))
  .device_matrix_around(layout, .value(.result(place, c(layout@frame[3:4], block_count(layout)), dtype)), names)
}

# For the C code: the same on a device; `of` is list(place, layout, dtype, names).
.new_result_matrix <- function(of) .matrix_of_zeros(of[[1L]], of[[2L]], of[[3L]], if (is.null(of[[4L]])) .no_names else of[[4L]])

# A matrix around a DeviceArray that nobody else uses.
.device_matrix_around <- function(layout, values, names = .no_names) {
  .new_device_matrix(tartan_r_wrap_buffer(layout, values), layout, values@dtype, values@context, names)
}

# For the C code: other kinds of numbers as a base matrix or vector; anything else unchanged.
.as_numbers <- function(x) {
  if (inherits(x, "Matrix") || is.data.frame(x)) return(as.matrix(x))
  if (inherits(x, "sparseVector")) as.vector(x) else x
}

# The library's view of the memory of `data`: shape and strides in elements.
.view <- function(data, shape, strides, dtype = TARTAN_F64) list(data, dtype, as.double(shape), as.double(strides))
# Strides of an array in R's order.
.column_strides <- function(dim) cumprod(c(1, dim[-length(dim)]))
