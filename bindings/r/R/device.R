# SPDX-License-Identifier: Apache-2.0
# The user's contexts, and arrays and matrices on their devices.

tartan_context <- function(device = "cpu", threads = 0, seed = 0, math = c("exact", "tf32", "bf16x3", "bf16x6"),
                           allow_dense = FALSE) {
  device <- .string(device, "device")
  threads <- .count(threads, "threads", 0, .Machine$integer.max)
  seed <- .count(seed, "seed")
  math <- .choose(math, c("exact", "tf32", "bf16x3", "bf16x6"), "math")
  dense <- as.integer(.flag(allow_dense, "allow_dense"))
  handle <- .new_context(device, threads = threads, seed = seed, math = math, allow_dense = dense)
  if (identical(device, "cuda")) device <- "cuda:0"
  methods::new("TartanContext", device = device, handle = handle)
}

tartan_sync <- function(context) {
  .expect(context, "TartanContext", "context")
  tartan_context_sync(context)
  invisible(context)
}

# ---- To a device and back ----

setGeneric("to_device", function(x, context, ...) standardGeneric("to_device"))
setGeneric("to_host", function(x, ...) standardGeneric("to_host"))

.numbers_to_device <- function(x, context, dtype = "float64") {
  .expect(context, "TartanContext", "context")
  if (!identical(dtype, "int32") && !identical(dtype, "uint8")) dtype <- .dtype_name(dtype) # indices and masks have these
  size <- if (is.null(dim(x))) length(x) else dim(x)
  if (!is.double(x)) storage.mode(x) <- "double"
  view <- .view(tartan_r_rounded(x, dtype), size, .column_strides(size), .memory_code(dtype))
  handle <- .with_memory(function() tartan_buffer_from_array(context, view))
  methods::new("DeviceArray", size = as.double(size), dtype = dtype, context = context, handle = handle)
}
.matrix_to_device <- function(x, context, dtype = x@dtype) {
  .expect(context, "TartanContext", "context")
  if (.dtype_name(dtype) != x@dtype) x <- block_cast(x, dtype)
  .new_device_matrix(.with_memory(function() tartan_matrix_to_device(context, x)), x@layout, x@dtype, context,
                     x@Dimnames)
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
  tartan_r_expect_open(x)
  result <- .result(NULL, x@size, x@dtype)
  tartan_buffer_to_array(x@context, x, .view(result[[1L]], x@size, .column_strides(x@size), .memory_code(x@dtype)))
  .value(result)
})
setMethod("to_host", "DeviceBlockMatrix", function(x, ...) {
  tartan_r_expect_open(x)
  .take_matrix(tartan_matrix_to_host(x@context, x), if (!block_is_dynamic(x)) x@layout, x@Dimnames)
})
setMethod("to_host", "ANY", function(x, ...) {
  .fail("argument", "x is %s, expected a DeviceArray, a DeviceBlockMatrix or a layout", .shown(x))
})

# ---- Asking ----

setMethod("dim", "DeviceArray", function(x) if (length(x@size) > 1L) as.integer(x@size))
setMethod("length", "DeviceArray", function(x) prod(x@size))

setMethod("show", "TartanContext", function(object) {
  cat("TartanContext on ", object@device, .closed(object), "\n", sep = "")
})
setMethod("show", "DeviceArray", function(object) {
  cat("DeviceArray ", object@dtype, " ", paste(object@size, collapse = " x "), " on ", object@context@device,
      .closed(object), "\n", sep = "")
})
setMethod("show", "DeviceBlockMatrix", function(object) {
  cat("DeviceBlockMatrix ", object@dtype, " ", .describe(object), " on ", object@context@device,
      .closed(object), "\n", sep = "")
})

explain <- function(expr) {
  tartan_explain_begin()
  text <- NULL
  tryCatch(force(expr), finally = text <- tartan_explain_end())
  structure(text, class = "tartan_info")
}
