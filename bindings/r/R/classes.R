# SPDX-License-Identifier: Apache-2.0
# Layouts and matrices keep everything in R's memory, so they can be saved and restored. In `handle` the C
# code caches the library's object, which it makes on demand; copies of an R object share it. If R's
# copy-on-write has given an object other values than the cached matrix wraps, a new one is made. The cache is
# an external pointer without an address, so identical() and all.equal() see nothing in it, and saveRDS writes
# nothing of it.

setClass("BlockLayout",
         slots = c(frame = "numeric", pointers = "numeric", columns = "integer", recipe = "character",
                   identity = "character", bounds = "list", handle = "externalptr"))

# `bounds` are, of blocks of different sizes, where block rows and block columns begin, from 0, and where the last ends; else
# the list is empty. Objects that older versions saved have none.

# `Dimnames` is as in the Matrix package: the names of the rows and of the columns of every head, each NULL or a
# character vector.
setClass("BlockMatrix",
         slots = c(layout = "BlockLayout", values = "ANY", dtype = "character", Dimnames = "list",
                   handle = "externalptr"),
         prototype = prototype(Dimnames = list(NULL, NULL)))

# `index` has -1 for a block whose elements all count, else the position of its bits.
setClass("BlockMask", slots = c(layout = "BlockLayout", index = "integer", bits = "raw", handle = "externalptr"))

# `source`: the layout of channels, or the lists of columns and rows of the filter. `layout` is that of filters.
setClass("BlockConv",
         slots = c(source = "ANY", options = "character", kernel = "numeric", stride = "numeric", transposed = "logical",
                   channels = "numeric", weights = "numeric", layout = "BlockLayout", handle = "externalptr"))

setClass("BlockFile", slots = c(handle = "externalptr"))

# Schedule, layouts and step are in the library, so copies of the R object are one sparsifier.
setClass("BlockSparsifier", slots = c(handle = "externalptr"))

setClass("TartanContext", slots = c(device = "character", handle = "externalptr"))

# Objects in the memory of a context's device. R only has the handle, which does not outlive the session.
setClass("DeviceObject", representation("VIRTUAL", context = "TartanContext", handle = "externalptr"))
setClass("DeviceArray", contains = "DeviceObject", slots = c(size = "numeric", dtype = "character"))
# A dynamic layout: R knows only its frame and capacity.
setClass("DeviceBlockLayout", contains = "DeviceObject", slots = c(frame = "numeric", capacity = "numeric"))
setClassUnion("AnyBlockLayout", c("BlockLayout", "DeviceBlockLayout"))
setClass("DeviceBlockMatrix", contains = "DeviceObject",
         slots = c(layout = "AnyBlockLayout", dtype = "character", Dimnames = "list"),
         prototype = prototype(Dimnames = list(NULL, NULL)))
setClassUnion("AnyBlockMatrix", c("BlockMatrix", "DeviceBlockMatrix"))

# inherits() knows superclasses of S4 classes as methods::is() does, in a tenth of the time.
.is_layout <- function(x) inherits(x, "AnyBlockLayout")
.is_matrix <- function(x) inherits(x, "AnyBlockMatrix")
.expect_any_matrix <- function(x, name) if (!.is_matrix(x)) .expect(x, "BlockMatrix", name)

# ---- Layouts ----

.new_layout <- function(handle) tartan_r_take_layout(handle)

# The layout of either; a dynamic one too if only its frame is needed.
.any_layout_of <- function(x, name = "x") {
  if (.is_matrix(x)) x <- x@layout
  if (!.is_layout(x)) .expect(x, "BlockLayout", name)
  x
}
# Functions that need the blocks refuse a dynamic layout.
.layout_of <- function(x, name = "x") {
  layout <- .any_layout_of(x, name)
  if (inherits(layout, "DeviceBlockLayout")) {
    .fail("unsupported", "%s is dynamic, expected an ordinary layout (to_host() makes one)", name)
  }
  layout
}
.expect_layout <- function(x, name) {
  if (.is_matrix(x)) .expect(x, "BlockLayout", name)
  .layout_of(x, name)
}
.frame_of <- function(x) .any_layout_of(x)@frame
.bounds_of <- function(layout) attr(layout, "bounds")
# Block rows and block columns.
.grid_of <- function(x) {
  layout <- .any_layout_of(x)
  bounds <- .bounds_of(layout)
  if (length(bounds)) lengths(bounds, use.names = FALSE) - 1 else .grid(layout@frame)
}

# ---- Matrices ----

.no_names <- list(NULL, NULL)

# The values fit the layout.
.new_matrix <- function(layout, values, dtype, names = .no_names) tartan_r_matrix_around(values, layout, dtype, names)
.new_device_matrix <- function(handle, layout, dtype, context, names = .no_names) {
  methods::new("DeviceBlockMatrix", layout = layout, dtype = dtype, context = context, Dimnames = names,
               handle = handle)
}

# Turns a matrix of the library into one of R: copies the values once and closes the handle.
.take_matrix <- function(handle, layout = NULL, names = .no_names) tartan_r_take_matrix(handle, layout, names)

# New zero values for a layout, to be written in place before anyone else sees them.
.zero_values <- function(layout, dtype) {
  dim <- c(layout@frame[3:4], length(layout@columns))
  if (dtype == "float64") return(array(0, dim))
  raw(prod(dim) * tartan_dtype_bytes(.dtype_code(dtype)))
}

# ---- Closing ----

close.BlockLayout <- function(con, ...) {
  tartan_r_close(con@handle)
  invisible(NULL)
}
close.BlockMatrix <- close.BlockLayout
close.BlockMask <- close.BlockLayout
close.BlockFile <- close.BlockLayout
close.BlockSparsifier <- close.BlockLayout
close.TartanContext <- close.BlockLayout
close.DeviceArray <- close.BlockLayout
close.DeviceBlockMatrix <- close.BlockLayout
close.DeviceBlockLayout <- close.BlockLayout
