# SPDX-License-Identifier: Apache-2.0
# New layouts and matrices from old ones. The functions take either; the values of a matrix move with their
# blocks.

block_union <- function(x, y) {
  .new_layout(tartan_layout_union(.layout_of(x), .layout_of(y, "y")))
}
block_intersection <- function(x, y) {
  .new_layout(tartan_layout_intersection(.layout_of(x), .layout_of(y, "y")))
}
block_difference <- function(x, y) {
  .new_layout(tartan_layout_difference(.layout_of(x), .layout_of(y, "y")))
}

block_project <- function(x, layout) {
  .expect_layout(layout, "layout")
  .made(x, tartan_matrix_project, layout, layout = layout)
}

# For operations that only run on the CPU.
.expect_in_memory <- function(x) {
  if (inherits(x, "DeviceObject")) {
    .fail("unsupported", "x is on %s, expected it in R's memory (to_host)", x@context@device)
  }
}

# The changed layout or, for a matrix, its values at that layout.
.reshaped <- function(x, handle) {
  layout <- .new_layout(handle)
  if (.is_matrix(x)) block_project(x, layout) else layout
}

.grid_order <- function(order, n, name, of) {
  if (is.null(order)) return(NULL)
  zero_based <- .index(order, n, name, of)
  if (length(order) != n || anyDuplicated(order)) {
    .fail("layout", "%s is no permutation of 1 to %.0f (%s)", name, n, of)
  }
  zero_based
}

# The indices of a range of .run().
.between <- function(range) range[1L] + seq_len(range[2L] - range[1L]) - 1

block_permute <- function(x, rows = NULL, cols = NULL) {
  grid <- block_grid(x)
  rows <- .grid_order(rows, grid[1L], "rows", "block rows")
  cols <- .grid_order(cols, grid[2L], "cols", "block columns")
  if (.is_matrix(x)) {
    return(.made(x, tartan_matrix_permute, rows, cols, names = .names_of_blocks(x, rows, cols)))
  }
  .new_layout(tartan_layout_permute(.layout_of(x), rows, cols))
}

# begin and end of a range of indices, for C.
.run <- function(range, n, name, of) {
  if (is.null(range)) return(c(0, n))
  at <- .index(range, n, name, of)
  if (!length(at)) return(c(0, 0))
  if (any(diff(at) != 1)) .fail("argument", "%s is %s, expected a range such as 2:4", name, .shown(range))
  c(at[1L], at[length(at)] + 1)
}

block_slice <- function(x, rows = NULL, cols = NULL) {
  grid <- block_grid(x)
  rows <- .run(rows, grid[1L], "rows", "block rows")
  cols <- .run(cols, grid[2L], "cols", "block columns")
  if (.is_matrix(x)) {
    names <- .names_of_blocks(x, .between(rows), .between(cols))
    return(.made(x, tartan_matrix_slice, rows[1L], rows[2L], cols[1L], cols[2L], names = names))
  }
  .new_layout(tartan_layout_slice(.layout_of(x), rows[1L], rows[2L], cols[1L], cols[2L]))
}

block_prune <- function(x, gates) {
  .reshaped(x, tartan_layout_prune(.layout_of(x), .numbers(gates, "gates")))
}

block_keep <- function(x, count, scores = block_norms(x)) {
  .reshaped(x, tartan_layout_keep_largest(.layout_of(x), .numbers(scores, "scores"), .count(count, "count")))
}

.ways <- c("cubic", "linear", "cosine", "constant")

# C's text of an option that is a number, if there is one.
.number_option <- function(value, name) {
  if (is.null(value)) return(NULL)
  if (length(value) != 1L) .fail("argument", "%s is %s, expected one number", name, .shown(value))
  paste0(name, "=", tartan_r_decimal(.numbers(value, name)))
}
.whole_option <- function(value, name) if (!is.null(value)) sprintf("%s=%.0f", name, .count(value, name))
.schedule <- function(density, initial, curve, threshold, swap, decay, begin, end, every, seed) {
  paste(c(.number_option(density, "density"), .number_option(initial, "initial"), paste0("curve=", curve),
          .number_option(threshold, "threshold"), .number_option(swap, "swap"), paste0("decay=", decay),
          .whole_option(begin, "begin"), .whole_option(end, "end"), .whole_option(every, "every"), .whole_option(seed, "seed")),
        collapse = " ")
}

# Numbers for all places of a grid, in the order of C: rows of the grid one after the other.
.growth_of <- function(layout, growth) {
  size <- c(.grid_of(layout), layout@frame[5L])
  expected <- if (size[3L] > 1) size else size[1:2]
  growth <- array(.numbers(growth, "growth"), dim(growth))
  if (!identical(as.double(dim(growth)), as.double(expected))) {
    .fail("shape", "growth is %s, expected %s (the grid of blocks)", paste(dim(growth), collapse = " x "),
          paste(expected, collapse = " x "))
  }
  as.vector(aperm(growth, c(2L, 1L, 3L)[seq_along(expected)]))
}

block_evolve <- function(x, step, scores = block_norms(x), growth = NULL, density = NULL, initial = 1,
                         curve = c("cubic", "linear", "cosine", "constant"), threshold = NULL, swap = 0,
                         decay = c("cosine", "linear", "cubic", "constant"), begin = 0, end = NULL, every = 1, seed = 0) {
  curve <- if (missing(curve)) "cubic" else .choose(curve, .ways, "curve")
  decay <- if (missing(decay)) "cosine" else .choose(decay, .ways, "decay")
  layout <- .layout_of(x)
  if (!is.null(growth)) growth <- .growth_of(layout, growth)
  schedule <- .schedule(density, initial, curve, threshold, swap, decay, begin, end, every, seed)
  evolved <- .new_layout(tartan_layout_evolve(layout, .numbers(scores, "scores"), growth, .count(step, "step"), schedule))
  if (identical(evolved@identity, layout@identity)) return(x)
  if (.is_matrix(x)) block_project(x, evolved) else evolved
}

block_grow <- function(x, i, j, head = NULL) {
  layout <- .layout_of(x)
  grid <- .grid_of(layout)
  i <- .index(i, grid[1L], "i", "block rows")
  j <- .index(j, grid[2L], "j", "block columns")
  .same_length(i, j, "i", "j")
  if (!is.null(head)) head <- .index(rep_len(head, length(i)), layout@frame[5L], "head", "heads")
  .reshaped(x, tartan_layout_grow(layout, list(head, i, j)))
}

block_move <- function(x, id, i, j) {
  layout <- .layout_of(x)
  grid <- .grid_of(layout)
  n <- block_count(x)
  id <- .index(id, n, "id", "blocks")
  i <- .index(i, grid[1L], "i", "block rows")
  j <- .index(j, grid[2L], "j", "block columns")
  .same_length(id, i, "id", "i")
  .same_length(id, j, "id", "j")
  moved <- tartan_layout_move(layout, id, list(NULL, i, j), n)
  layout <- .new_layout(moved[[2L]])
  if (!.is_matrix(x)) return(layout)
  .made(x, tartan_matrix_rearrange, layout, moved[[1L]], layout = layout)
}

block_replace <- function(x, id, y) {
  .expect_any_matrix(x, "x")
  .expect_any_matrix(y, "y")
  place <- .place(x = x, y = y)
  id <- .index(id, block_count(x), "id", "blocks")
  if (length(id) != block_count(y)) {
    .fail("shape", "id has length %.0f, expected %.0f (blocks of y)", length(id), block_count(y))
  }
  result <- .made(x, tartan_matrix_copy, layout = x@layout)
  tartan_matrix_scatter(place, y, id, result)
  result
}

block_reblock <- function(x, block, rows = NULL, cols = NULL) {
  .expect_in_memory(x)
  if (!is.null(rows) || !is.null(cols)) {
    if (!missing(block)) .fail("argument", "block is given together with rows or cols, expected one of them")
    if (!inherits(x, "BlockMatrix")) .fail("argument", "x is %s, expected a BlockMatrix where rows or cols are given", .shown(x))
    return(.made(x, tartan_matrix_reblock_at, .bounds(rows, "rows"), .bounds(cols, "cols")))
  }
  block <- .pair(block, "block", 1, 256)
  if (inherits(x, "BlockMatrix")) return(.made(x, tartan_matrix_reblock, block[1L], block[2L]))
  .new_layout(tartan_layout_reblock(.layout_of(x), block[1L], block[2L]))
}

reorder_rcm <- function(x) {
  if (inherits(x, "BlockLayout") || inherits(x, "BlockMatrix")) {
    .expect_one_head(x, "reorder_rcm")
    size <- block_grid(x)
    p <- .layout_of(x)@pointers
    j <- .layout_of(x)@columns
  } else if (inherits(x, "sparseMatrix")) {
    size <- dim(x)
    x <- .general(x)
    p <- x@p # of the columns, which are as good as rows here: reverse Cuthill-McKee looks at A + t(A)
    j <- x@i
  } else {
    .fail("argument", "x is %s, expected a sparse Matrix, a BlockMatrix or a BlockLayout", .shown(x))
  }
  if (size[1L] != size[2L]) .fail("shape", "x is %.0f x %.0f, expected a square matrix", size[1L], size[2L])
  as.integer(tartan_reorder_rcm(list(p, j, FALSE), size[1L]) + 1)
}

reorder_blocks <- function(x, block, density) {
  x <- .dense(x, "x")
  if (length(dim(x)) != 2L) .fail("shape", "x has %d dimensions, expected 2", length(dim(x)))
  orders <- tartan_reorder_blocks(.frame(dim(x), block, 1), x, density, nrow(x), ncol(x))
  list(rows = as.integer(orders[[1L]] + 1), cols = as.integer(orders[[2L]] + 1))
}
