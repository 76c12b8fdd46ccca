# SPDX-License-Identifier: Apache-2.0
# The objects hold everything in R's memory, so that they can be saved and restored. A handle of the C library is
# made when one is needed and kept in `state`; copies of an object share it. Where R's copy-on-write has given an
# object other values than its handle wraps, a new handle is made.

setClass("BlockLayout",
         slots = c(frame = "numeric", pointers = "numeric", columns = "integer", recipe = "character",
                   identity = "character", state = "environment"))

setClass("BlockMatrix",
         slots = c(layout = "BlockLayout", values = "ANY", dtype = "character", state = "environment"))

setClass("BlockFile", slots = c(state = "environment"))

setClass("TartanContext", slots = c(device = "character", state = "environment"))

# What is in the memory of a context's device. R holds nothing but the handle: it is gone with the session.
setClass("DeviceObject", representation("VIRTUAL", context = "TartanContext", state = "environment"))
setClass("DeviceArray", contains = "DeviceObject", slots = c(size = "numeric", dtype = "character"))
# Its blocks change with masks: only the frame and the room for blocks are known here.
setClass("DeviceBlockLayout", contains = "DeviceObject", slots = c(frame = "numeric", capacity = "numeric"))
setClassUnion("AnyBlockLayout", c("BlockLayout", "DeviceBlockLayout"))
setClass("DeviceBlockMatrix", contains = "DeviceObject", slots = c(layout = "AnyBlockLayout", dtype = "character"))

.new_state <- function(...) list2env(list(..., closed = FALSE), parent = emptyenv())

.expect_open <- function(x, noun) {
  if (!is.environment(x@state) || is.null(x@state$closed)) {
    .fail("handle", "the %s was not made by this package", noun)
  }
  if (x@state$closed) .fail("handle", "the %s is closed, expected an open one", noun)
}

# ---- Layouts ----

.new_layout <- function(handle) {
  frame <- c(tartan_layout_rows(handle), tartan_layout_cols(handle), tartan_layout_block_rows(handle),
             tartan_layout_block_cols(handle), tartan_layout_heads(handle))
  blocks <- tartan_layout_blocks(handle)
  if (blocks > .Machine$integer.max) {
    .fail("overflow", "the layout has %.0f blocks, R counts to %d", blocks, .Machine$integer.max)
  }
  lists <- tartan_layout_get_row_lists(handle, frame[5L] * .grid(frame)[1L] + 1, blocks)
  methods::new("BlockLayout", frame = frame, pointers = lists[[1L]], columns = as.integer(lists[[2L]]),
               recipe = tartan_layout_recipe(handle), identity = tartan_layout_identity(handle),
               state = .new_state(handle = handle))
}

# What asks about blocks does not take a layout whose blocks change.
.expect_staying <- function(x, name) {
  if (methods::is(x, "DeviceBlockLayout")) {
    .fail("unsupported", "the blocks of %s change with masks, expected blocks that stay (to_host)", name)
  }
  .expect(x, "BlockLayout", name)
}

.layout_handle <- function(x, name = "x") {
  .expect_staying(x, name)
  .expect_open(x, "layout")
  if (!tartan_r_live(x@state$handle, "tartan_layout")) {
    handle <- tartan_layout_from_csr(x@frame, x@pointers, x@columns)
    if (!identical(tartan_layout_identity(handle), x@identity)) {
      .fail("layout", "the layout's identity is %s, expected %s: it was damaged",
            tartan_layout_identity(handle), .shown(x@identity))
    }
    x@state$handle <- handle
  }
  x@state$handle
}

# ---- Matrices ----

.new_matrix <- function(layout, values, dtype) {
  methods::new("BlockMatrix", layout = layout, values = values, dtype = dtype, state = .new_state(handle = NULL))
}

.matrix_handle <- function(x, name = "x") {
  .expect(x, "BlockMatrix", name)
  .expect_open(x, "matrix")
  if (!tartan_r_wraps(x@state$handle, x@values)) {
    x@state$handle <- tartan_r_matrix(.layout_handle(x@layout), x@values, .dtype_code(x@dtype))
  }
  x@state$handle
}

# A matrix of the C library becomes one of R: the values are copied once, the handle is closed.
.take_matrix <- function(handle, layout = NULL) {
  if (tartan_matrix_block_order(handle) != .constant("col_major")) {
    row_major <- handle
    handle <- tartan_matrix_cast(.context(), row_major, 0L, .constant("col_major"))
    tartan_r_close(row_major)
  }
  if (is.null(layout)) layout <- .new_layout(tartan_matrix_get_layout(handle))
  result <- .new_matrix(layout, tartan_matrix_values(handle), tartan_dtype_name(tartan_matrix_dtype(handle)))
  tartan_r_close(handle)
  result
}

# What the library makes of a matrix, on its device: make(context, matrix, ...).
.made <- function(x, make, ..., layout = NULL, dtype = x@dtype) {
  if (!methods::is(x, "DeviceBlockMatrix")) return(.take_matrix(make(.context(), .matrix_handle(x), ...), layout))
  context <- .context_handle(x@context)
  matrix <- .device_matrix_handle(x)
  handle <- .with_memory(function() make(context, matrix, ...))
  if (is.null(layout)) layout <- .new_layout(tartan_matrix_get_layout(handle))
  .new_device_matrix(handle, layout, dtype, x@context)
}

# Fresh zero values for a layout, to be written in place before anybody else sees them.
.zero_values <- function(layout, dtype) {
  frame <- layout@frame
  dim <- c(frame[3:4], length(layout@columns))
  if (dtype == "float64") return(array(0, dim))
  raw(prod(dim) * tartan_dtype_bytes(.dtype_code(dtype)))
}

.is_matrix <- function(x) methods::is(x, "BlockMatrix") || methods::is(x, "DeviceBlockMatrix")
.expect_any_matrix <- function(x, name) if (!.is_matrix(x)) .expect(x, "BlockMatrix", name)

.is_layout <- function(x) methods::is(x, "AnyBlockLayout")

# The layout of either; whether its blocks change or not where no more than its frame or its handle is wanted.
.any_layout_of <- function(x, name = "x") {
  if (.is_matrix(x)) x <- x@layout
  if (!.is_layout(x)) .expect(x, "BlockLayout", name)
  x
}
.layout_of <- function(x, name = "x") {
  layout <- .any_layout_of(x, name)
  .expect_staying(layout, name)
  layout
}
.frame_of <- function(x) .any_layout_of(x)@frame
.any_layout_handle <- function(x, name = "x") {
  if (methods::is(x, "DeviceBlockLayout")) .device_handle(x, "DeviceBlockLayout", name) else .layout_handle(x, name)
}

# ---- Closing ----

close.BlockLayout <- function(con, ...) {
  if (!is.null(con@state$handle)) tartan_r_close(con@state$handle)
  con@state$closed <- TRUE
  invisible(NULL)
}
close.BlockMatrix <- close.BlockLayout
close.TartanContext <- close.BlockLayout
close.DeviceArray <- close.BlockLayout
close.DeviceBlockMatrix <- close.BlockLayout
close.DeviceBlockLayout <- close.BlockLayout
close.BlockFile <- function(con, ...) {
  close.BlockLayout(con)
  con@state$kept <- list() # after the file: it pointed to them
  invisible(NULL)
}
