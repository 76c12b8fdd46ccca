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

# Refuses layouts that do not change, and a mask or scores of another number of heads.
.expect_dynamic <- function(x) {
  if (inherits(x, "BlockLayout")) {
    .fail("argument", paste("x is not dynamic, expected a layout made by block_layout_from_device_mask() or",
                            "block_layout_from_device_scores()"))
  }
  .expect(x, "DeviceBlockLayout", "x")
}
.expect_heads <- function(x, given, name) {
  if (given$frame[5L] != x@frame[5L]) {
    .fail("shape", "%s has %.0f heads, expected %.0f", name, given$frame[5L], x@frame[5L])
  }
}

block_update <- function(x, mask) {
  .expect_dynamic(x)
  given <- .mask(mask, x@frame[3:4], x@frame[1:2])
  .expect_heads(x, given, "mask")
  .with_memory(function() tartan_layout_update_device_mask(x@context, x, .mask_view(given)))
  invisible(x)
}

# Scores and the frame of their grid; C reads them by row, and copies them before it returns.
.scores <- function(scores, block, dim) {
  size <- dim(scores)
  if (!is.numeric(scores)) .fail("argument", "scores is of type %s, expected numbers", typeof(scores))
  if (is.null(size) || !(length(size) %in% 2:3)) {
    .fail("shape", "scores has %d dimensions, expected 2 (or 3, the last one for the heads)", length(size))
  }
  heads <- if (length(size) == 3L) size[3L] else 1
  if (is.null(dim)) dim <- size[1:2] * .pair(block, "block", 1, 256)
  frame <- .frame(dim, block, heads)
  rows_first <- as.double(aperm(array(scores, c(size[1:2], heads)), c(2L, 1L, 3L)))
  list(frame = frame, view = .view(rows_first, c(heads, size[1:2]), c(prod(size[1:2]), size[2L], 1)))
}

block_layout_from_device_scores <- function(scores, k, context, block = c(32, 32), dim = NULL) {
  .expect(context, "TartanContext", "context")
  given <- .scores(scores, block, dim)
  k <- .count(k, "k", 1)
  layout <- .with_memory(function() tartan_layout_from_device_scores(context, given$frame, given$view, k))
  methods::new("DeviceBlockLayout", frame = given$frame, capacity = tartan_layout_blocks(layout), context = context,
               handle = layout)
}

block_update_scores <- function(x, scores, k) {
  .expect_dynamic(x)
  given <- .scores(scores, x@frame[3:4], x@frame[1:2])
  .expect_heads(x, given, "scores")
  k <- .count(k, "k", 1)
  .with_memory(function() tartan_layout_update_device_scores(x@context, x, given$view, k))
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
  if (inherits(values, "DeviceObject")) {
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
