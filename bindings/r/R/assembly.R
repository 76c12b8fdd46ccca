# SPDX-License-Identifier: Apache-2.0
# Blocks and elements from triplets, and added into matrices by plans.

# Places in a grid of the given size, for C.
.grid_places <- function(i, j, head, grid, heads, of) {
  i <- .index(i, grid[1L], "i", of[1L])
  j <- .index(j, grid[2L], "j", of[2L])
  .same_length(i, j, "i", "j")
  if (is.null(head) && heads > 1) .fail("argument", "head is NULL, expected the head of each item: there are %.0f", heads)
  if (!is.null(head)) {
    head <- .index(head, heads, "head", "heads")
    .same_length(i, head, "i", "head")
  }
  list(head, i, j)
}

block_matrix_from_blocks <- function(i, j, values, dim, head = NULL, heads = 1, dtype = "float64") {
  if (!is.numeric(values) || length(dim(values)) != 3L) {
    .fail("shape", "values has %d dimensions, expected block rows, block columns and blocks", length(dim(values)))
  }
  frame <- .frame(dim, dim(values)[1:2], heads)
  places <- .grid_places(i, j, head, .grid(frame), frame[5L], c("block rows", "block columns"))
  if (length(i) != dim(values)[3L]) .fail("shape", "values has %d blocks, expected %d (the length of i)", dim(values)[3L], length(i))
  storage.mode(values) <- "double"
  .take_matrix(tartan_matrix_from_blocks(NULL, frame, places, values, .dtype_code(dtype), TARTAN_COL_MAJOR))
}

block_assembly <- function(layout, i, j, head = NULL, of = c("blocks", "elements")) {
  .expect_layout(layout, "layout")
  of <- .choose(of, c("blocks", "elements"), "of")
  frame <- .frame_of(layout)
  blocks <- block_count(layout)
  if (of == "blocks") {
    places <- .grid_places(i, j, head, .grid(frame), frame[5L], c("block rows", "block columns"))
    lists <- tartan_layout_block_plan(layout, places, length(i), blocks)
  } else {
    places <- .grid_places(i, j, head, frame[1:2], frame[5L], c("rows", "columns"))
    lists <- tartan_layout_element_plan(layout, places, TARTAN_COL_MAJOR, length(i), blocks * prod(frame[3:4]))
  }
  structure(list(layout = layout, of = of, order = lists[[1L]] + 1, ends = lists[[2L]]), class = "BlockAssembly")
}

print.BlockAssembly <- function(x, ...) {
  cat(sprintf("<BlockAssembly of %d %s>\n", length(x$order), x$of))
  invisible(x)
}

block_add <- function(x, plan, values, beta = 1) {
  .expect(x, "BlockMatrix", "x")
  if (!inherits(plan, "BlockAssembly")) .fail("argument", "plan is %s, expected a block_assembly", .shown(plan))
  if (!identical(block_identity(x@layout), block_identity(plan$layout))) {
    .fail("layout", "x has another layout than the plan, expected that of the plan")
  }
  old <- block_values(x)
  size <- dim(old)
  if (plan$of == "elements") dim(old) <- NULL
  sums <- segment_sum(old, values, plan$order, plan$ends, beta = beta)
  dim(sums) <- size
  block_values(x) <- sums
  x
}
