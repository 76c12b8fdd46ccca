# SPDX-License-Identifier: Apache-2.0
# Dynamic layouts. The library makes their index sets on the device; R knows only the frame.

# A mask for the device: C copies the bytes before it returns.
.mask_view <- function(given) {
  grid <- .grid(given$frame)
  .view(given$bytes, c(given$frame[5L], grid), c(prod(grid), grid[2L], 1), TARTAN_U8)
}

block_layout_from_device_mask <- function(mask, context, block = c(32, 32), dim = NULL, capacity = NULL) {
  .expect(context, "TartanContext", "context")
  given <- .mask(mask, block, dim)
  capacity <- if (is.null(capacity)) 0 else .count(capacity, "capacity", 1) # 0: all positions
  layout <- .with_memory(function() tartan_layout_from_device_mask(context, given$frame, .mask_view(given), capacity))
  methods::new("DeviceBlockLayout", frame = given$frame, capacity = tartan_layout_blocks(layout), context = context,
               handle = layout)
}

block_update <- function(x, mask) {
  if (methods::is(x, "BlockLayout")) {
    .fail("argument", "x is not dynamic, expected a layout made by block_layout_from_device_mask()")
  }
  .expect(x, "DeviceBlockLayout", "x")
  given <- .mask(mask, x@frame[3:4], x@frame[1:2])
  if (given$frame[5L] != x@frame[5L]) {
    .fail("shape", "mask has %.0f heads, expected %.0f", given$frame[5L], x@frame[5L])
  }
  .with_memory(function() tartan_layout_update_device_mask(x@context, x, .mask_view(given)))
  invisible(x)
}

.expect_dim <- function(dim, expected, name) {
  if (!identical(as.double(dim), expected)) {
    .fail("shape", "%s is %s, expected %s", name, paste(dim, collapse = " x "), paste(expected, collapse = " x "))
  }
}

# A matrix on such a layout, of zeros or given values: numbers, or a device array, which is copied.
.from_device_layout <- function(x, values = NULL, dtype = NULL) {
  tartan_layout_blocks(x) # refuses a closed layout
  if (methods::is(values, "DeviceObject")) {
    .expect(values, "DeviceArray", "values")
    .place(x = x, values = values)
    .expect_dim(values@size, c(x@frame[3:4], x@capacity), "values")
    if (!is.null(dtype) && .dtype_name(dtype) != values@dtype) {
      .fail("dtype", "values is %s, expected %s", values@dtype, dtype)
    }
    return(.device_matrix_around(x, .value(.result_from(x@context, values, "values"))))
  }
  dtype <- if (is.null(dtype)) "float64" else .dtype_name(dtype)
  if (is.null(values)) return(.matrix_of_zeros(x@context, x, dtype))
  .device_matrix_around(x, .numbers_to_device(.values_for(x, values, "values"), x@context, dtype))
}
setMethod("block_matrix", "DeviceBlockLayout", function(x, ...) .from_device_layout(x, ...))

setMethod("to_host", "DeviceBlockLayout", function(x, ...) {
  tartan_r_expect_open(x)
  .new_layout(tartan_layout_to_host(x@context, x))
})
setMethod("to_host", "BlockLayout", function(x, ...) x)

setMethod("show", "DeviceBlockLayout", function(object) {
  cat("DeviceBlockLayout ", .describe(object), " on ", object@context@device,
      .closed(object), "\n", sep = "")
})
