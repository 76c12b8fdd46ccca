# SPDX-License-Identifier: Apache-2.0
# Contexts of the user's own, and arrays and matrices in the memory of their devices.

tartan_context <- function(device = "cpu", threads = 0, seed = 0, math = c("exact", "tf32"), allow_dense = FALSE) {
  device <- .string(device, "device")
  threads <- .count(threads, "threads", 0, .Machine$integer.max)
  seed <- .count(seed, "seed")
  math <- .choose(math, c("exact", "tf32"), "math")
  dense <- as.integer(.flag(allow_dense, "allow_dense"))
  handle <- .new_context(device, threads = threads, seed = seed, math = math, allow_dense = dense)
  if (identical(device, "cuda")) device <- "cuda:0"
  methods::new("TartanContext", device = device, state = .new_state(handle = handle))
}

.context_handle <- function(x, name = "context") {
  .expect(x, "TartanContext", name)
  .expect_open(x, "context")
  if (!tartan_r_live(x@state$handle, "tartan_context")) {
    .fail("handle", "the context is from a saved session, expected one that tartan_context() opened")
  }
  x@state$handle
}

tartan_sync <- function(context) {
  tartan_context_sync(.context_handle(context))
  invisible(context)
}

# ---- Objects on a device ----

.device_nouns <- c(DeviceArray = "device array", DeviceBlockMatrix = "device matrix",
                   DeviceBlockLayout = "device layout")
.device_tags <- c(DeviceArray = "tartan_buffer", DeviceBlockMatrix = "tartan_matrix",
                  DeviceBlockLayout = "tartan_layout")

.device_handle <- function(x, class, name) {
  .expect(x, class, name)
  noun <- .device_nouns[[class]]
  .expect_open(x, noun)
  if (!tartan_r_live(x@state$handle, .device_tags[[class]])) {
    .fail("handle", "the %s is from a saved session, which keeps no memory of devices: expected one of this session",
          noun)
  }
  x@state$handle
}
.buffer_handle <- function(x, name = "x") .device_handle(x, "DeviceArray", name)
.device_matrix_handle <- function(x, name = "x") .device_handle(x, "DeviceBlockMatrix", name)

.new_device_array <- function(handle, size, dtype, context) {
  methods::new("DeviceArray", size = as.double(size), dtype = dtype, context = context,
               state = .new_state(handle = handle))
}
.new_device_matrix <- function(handle, layout, dtype, context) {
  methods::new("DeviceBlockMatrix", layout = layout, dtype = dtype, context = context,
               state = .new_state(handle = handle))
}

# R counts its own memory alone: what it no longer needs on a device is found when that is full.
.with_memory <- function(make) {
  tryCatch(make(), tartan_error_memory = function(e) {
    gc()
    make()
  })
}

.device_zeros <- function(size, dtype, context) {
  handle <- .context_handle(context)
  buffer <- .with_memory(function() {
    tartan_buffer_create(handle, .dtype_code(dtype), as.double(size), .constant("col_major"))
  })
  .new_device_array(buffer, size, dtype, context)
}

# The whole array in R's order, and a copy of it on its device.
.whole_view <- function(x, name = "x") .view(.buffer_handle(x, name), x@size, .column_strides(x@size), x@dtype)
.device_copy <- function(x, name) {
  handle <- .context_handle(x@context)
  view <- .whole_view(x, name)
  .new_device_array(.with_memory(function() tartan_buffer_from_array(handle, view)), x@size, x@dtype, x@context)
}
.device_matrix_copy <- function(x, name) {
  handle <- .context_handle(x@context)
  matrix <- .device_matrix_handle(x, name)
  .new_device_matrix(.with_memory(function() tartan_matrix_to_device(handle, matrix)), x@layout, x@dtype, x@context)
}

# A matrix around a device array that nobody else has; of zeros.
.device_matrix_around <- function(layout, values) {
  handle <- tartan_r_device_matrix(.any_layout_handle(layout), values@state$handle)
  .new_device_matrix(handle, layout, values@dtype, values@context)
}
.device_matrix_zeros <- function(layout, dtype, context) {
  .device_matrix_around(layout, .device_zeros(c(layout@frame[3:4], block_count(layout)), dtype, context))
}

# ---- There and back ----

setGeneric("to_device", function(x, context, ...) standardGeneric("to_device"))
setGeneric("to_host", function(x, ...) standardGeneric("to_host"))

.numbers_to_device <- function(x, context, dtype = "float64") {
  handle <- .context_handle(context)
  dtype <- .dtype_name(dtype)
  size <- if (is.null(dim(x))) length(x) else dim(x)
  if (!is.double(x)) storage.mode(x) <- "double"
  view <- .view(.to_dtype(x, dtype), size, .column_strides(size), dtype)
  .new_device_array(.with_memory(function() tartan_buffer_from_array(handle, view)), size, dtype, context)
}
.matrix_to_device <- function(x, context, dtype = x@dtype) {
  handle <- .context_handle(context)
  if (.dtype_name(dtype) != x@dtype) x <- block_cast(x, dtype)
  matrix <- .matrix_handle(x)
  .new_device_matrix(.with_memory(function() tartan_matrix_to_device(handle, matrix)), x@layout, x@dtype, context)
}

for (.class in c("numeric", "logical", "matrix", "array", "Matrix", "data.frame")) {
  setMethod("to_device", .class, function(x, context, ...) {
    if (!is.null(dim(x))) x <- .dense(x, "x") else x <- .numbers(x, "x")
    .numbers_to_device(x, context, ...)
  })
}
rm(.class)
setMethod("to_device", "BlockMatrix", function(x, context, ...) .matrix_to_device(x, context, ...))
setMethod("to_device", "ANY", function(x, context, ...) {
  .fail("argument", "x is %s, expected numbers or a BlockMatrix in R's memory", .shown(x))
})

setMethod("to_host", "DeviceArray", function(x, ...) {
  buffer <- .buffer_handle(x)
  context <- .context_handle(x@context)
  strides <- .column_strides(x@size)
  if (x@dtype == "float64") {
    result <- tartan_r_new_array(x@size)
    tartan_buffer_to_array(context, buffer, .view(result, x@size, strides))
    return(result)
  }
  bytes <- .dtype_buffer(prod(x@size), x@dtype)
  tartan_buffer_to_array(context, buffer, .view(bytes, x@size, strides, x@dtype))
  .from_dtype(bytes, x@dtype, x@size)
})
setMethod("to_host", "DeviceBlockMatrix", function(x, ...) {
  matrix <- .device_matrix_handle(x)
  layout <- if (!block_is_dynamic(x)) x@layout
  .take_matrix(tartan_matrix_to_host(.context_handle(x@context), matrix), layout)
})
setMethod("to_host", "ANY", function(x, ...) {
  .fail("argument", "x is %s, expected a DeviceArray, a DeviceBlockMatrix or a layout", .shown(x))
})

# ---- Asking ----

setMethod("dim", "DeviceArray", function(x) if (length(x@size) > 1L) as.integer(x@size))
setMethod("length", "DeviceArray", function(x) prod(x@size))
setMethod("dim", "DeviceBlockMatrix", function(x) dim(x@layout))
setMethod("length", "DeviceBlockMatrix", function(x) length(x@layout))

setMethod("show", "TartanContext", function(object) {
  cat("TartanContext on ", object@device, if (isTRUE(object@state$closed)) ", closed", "\n", sep = "")
})
setMethod("show", "DeviceArray", function(object) {
  cat("DeviceArray ", object@dtype, " ", paste(object@size, collapse = " x "), " on ", object@context@device,
      if (isTRUE(object@state$closed)) ", closed", "\n", sep = "")
})
setMethod("show", "DeviceBlockMatrix", function(object) {
  cat("DeviceBlockMatrix ", object@dtype, " ", .describe(object), " on ", object@context@device,
      if (isTRUE(object@state$closed)) ", closed", "\n", sep = "")
})

explain <- function(expr) {
  tartan_explain_begin()
  text <- NULL
  tryCatch(force(expr), finally = text <- tartan_explain_end())
  structure(text, class = "tartan_info")
}
