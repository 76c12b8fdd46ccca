# SPDX-License-Identifier: Apache-2.0
# Properties of layouts, and of matrices through their layouts.

block_dim <- function(x) .frame_of(x)[3:4]
block_grid <- function(x) .grid_of(x)
block_is_variable <- function(x) length(.bounds_of(.any_layout_of(x))) > 0L
block_boundaries <- function(x) {
  layout <- .layout_of(x)
  grid <- .grid_of(layout)
  stats::setNames(tartan_layout_get_boundaries(layout, grid[1L] + 1, grid[2L] + 1), c("rows", "cols"))
}
block_heads <- function(x) .frame_of(x)[5L]
block_count <- function(x) {
  layout <- .any_layout_of(x)
  if (inherits(layout, "DeviceBlockLayout")) layout@capacity else length(layout@columns)
}
block_is_dynamic <- function(x) inherits(.any_layout_of(x), "DeviceBlockLayout")
block_density <- function(x) tartan_layout_density(.layout_of(x))
block_identity <- function(x) .layout_of(x)@identity
block_recipe <- function(x) .layout_of(x)@recipe
block_elements <- function(x) tartan_layout_elements(.layout_of(x))

block_coordinates <- function(x) {
  n <- block_count(x)
  at <- tartan_layout_get_coordinates(.layout_of(x), n, n, n)
  data.frame(head = as.integer(at[[1L]] + 1), row = as.integer(at[[2L]] + 1), col = as.integer(at[[3L]] + 1))
}

block_mask <- function(x) {
  frame <- .frame_of(x)
  grid <- .grid_of(x)
  bytes <- tartan_layout_get_mask(.layout_of(x), prod(grid) * frame[5L])
  mask <- aperm(array(bytes != 0, c(grid[2:1], frame[5L])), c(2L, 1L, 3L))
  if (frame[5L] == 1) dim(mask) <- grid
  mask
}

block_id <- function(x, i, j, head = 1) {
  layout <- .layout_of(x)
  grid <- .grid_of(layout)
  i <- .index(i, grid[1L], "i", "block rows")
  j <- .index(j, grid[2L], "j", "block columns")
  .same_length(i, j, "i", "j")
  head <- .index(rep_len(head, length(i)), layout@frame[5L], "head", "heads")
  ids <- tartan_layout_find(layout, list(head, i, j), length(i))
  ids[ids < 0] <- NA
  ids + 1
}

block_order <- function(x, numbering = c("row", "column", "morton")) {
  numbering <- .constant(numbering, c(row = TARTAN_BY_ROW, column = TARTAN_BY_COLUMN, morton = TARTAN_BY_MORTON), "numbering")
  tartan_layout_number(.layout_of(x), numbering, block_count(x)) + 1
}

block_row_lengths <- function(x) {
  frame <- .frame_of(x)
  lengths <- tartan_layout_row_lengths(.layout_of(x), .grid(frame)[1L] * frame[5L])
  if (frame[5L] == 1) lengths else matrix(lengths, ncol = frame[5L])
}

block_statistics <- function(x) {
  handle <- .layout_of(x)
  spread <- tartan_layout_row_spread(handle, 4)
  bandwidth <- tartan_layout_bandwidth(handle, 2)
  list(blocks = block_count(x), elements = tartan_layout_elements(handle), density = tartan_layout_density(handle),
       row_lengths = c(min = spread[1L], mean = spread[2L], max = spread[3L], sd = spread[4L]),
       bandwidth = c(lower = bandwidth[1L], upper = bandwidth[2L]))
}

block_reach <- function(x, steps = 3, head = 1) {
  head <- .index(head, block_heads(x), "head", "heads")
  tartan_layout_reach(.layout_of(x), head, .count(steps, "steps", 0, 2^20))
}

block_partition <- function(x, parts) {
  tartan_layout_partition(.layout_of(x), .count(parts, "parts", 1, .Machine$integer.max) + 1)
}

block_svg <- function(x, pixels = 400) tartan_layout_svg(.layout_of(x), pixels)
