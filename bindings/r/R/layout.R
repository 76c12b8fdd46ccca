# SPDX-License-Identifier: Apache-2.0
# Layouts from user input. Indices count from 1 here and from 0 in C.

# Refuses a repeated block with the user's own indices; for grids too large for that, C does it.
.expect_distinct <- function(heads, i, j, frame) {
  grid <- .grid(frame)
  if (prod(grid) * frame[5L] > 2^53) return(invisible())
  key <- (heads * grid[1L] + i) * grid[2L] + j
  twice <- anyDuplicated(key)
  if (twice) {
    .fail("layout", "block (%.0f, %.0f) is given twice: entries %d and %d", i[twice] + 1, j[twice] + 1,
          match(key[twice], key), twice)
  }
}

block_layout <- function(i, j, dim, block = c(32, 32), head = NULL, heads = 1) {
  frame <- .frame(dim, block, heads)
  grid <- .grid(frame)
  i <- .index(i, grid[1L], "i", "block rows")
  j <- .index(j, grid[2L], "j", "block columns")
  .same_length(i, j, "i", "j")
  if (!is.null(head)) {
    head <- .index(head, frame[5L], "head", "heads")
    .same_length(i, head, "i", "head")
  }
  .expect_distinct(if (is.null(head)) 0 else head, i, j, frame)
  .new_layout(tartan_layout_from_coordinates(frame, list(head, i, j)))
}

# A mask of the grid for C: the frame, and row-major bytes, head by head.
.mask <- function(mask, block, dim = NULL) {
  size <- dim(mask)
  if (is.null(size) || !(length(size) %in% 2:3)) {
    .fail("shape", "mask has %d dimensions, expected 2 (or 3, the last one for the heads)", length(size))
  }
  if (is.numeric(mask)) {
    if (!all(mask %in% c(0, 1))) .fail("argument", "mask holds other numbers than 0 and 1")
    storage.mode(mask) <- "logical"
  }
  if (is.raw(mask)) mask <- mask != as.raw(0)
  if (!is.logical(mask)) .fail("argument", "mask is of type %s, expected logical, raw, or 0 and 1", typeof(mask))
  if (anyNA(mask)) .fail("argument", "mask[%d] is NA, expected TRUE or FALSE", which(is.na(mask))[1L])
  heads <- if (length(size) == 3L) size[3L] else 1
  if (is.null(dim)) dim <- size[1:2] * .pair(block, "block", 1, 256)
  frame <- .frame(dim, block, heads)
  if (any(.grid(frame) != size[1:2])) {
    .fail("shape", "mask is %d x %d, expected %.0f x %.0f (blocks that cover dim)", size[1L], size[2L],
          .grid(frame)[1L], .grid(frame)[2L])
  }
  rows_first <- aperm(array(mask, c(size[1:2], heads)), c(2L, 1L, 3L)) # C reads masks by row
  list(frame = frame, bytes = as.raw(rows_first))
}

block_layout_from_mask <- function(mask, block = c(32, 32), dim = NULL, rows = NULL, cols = NULL) {
  if (is.null(rows) && is.null(cols)) {
    given <- .mask(mask, block, dim)
    return(.new_layout(tartan_layout_from_mask(given$frame, given$bytes)))
  }
  if (is.null(rows) || is.null(cols)) .fail("argument", "rows or cols is given alone, expected both")
  if (!missing(block) || !is.null(dim)) .fail("argument", "rows and cols are given together with block or dim, expected them alone")
  given <- .mask(mask, 1)
  .with_bounds(tartan_layout_from_mask(given$frame, given$bytes), rows, cols)
}

# Boundaries of one side, NULL to leave it as it is.
.bounds <- function(x, name) {
  if (is.null(x)) return(NULL)
  if (!.is_whole(x)) .fail("argument", "%s is %s, expected whole numbers", name, .shown(x))
  as.double(x)
}
.with_bounds <- function(layout, rows, cols) {
  .new_layout(tartan_layout_with_boundaries(layout, .bounds(rows, "rows"), .bounds(cols, "cols")))
}
block_with_boundaries <- function(x, rows = NULL, cols = NULL) .with_bounds(.expect_layout(x, "x"), rows, cols)

block_layout_from_scores <- function(scores, block = c(32, 32), counts = NULL, top_p = 1, dim = NULL) {
  size <- .size_of(scores)
  if (!is.numeric(scores) || !(length(size) %in% 2:3)) {
    .fail("argument", "scores is %s, expected numbers, block rows x block columns (x heads)", .shown(scores))
  }
  if (is.null(dim)) dim <- size[1:2] * .pair(block, "block", 1, 256)
  if (!is.null(counts) && !.is_whole(counts)) .fail("argument", "counts is %s, expected whole numbers", .shown(counts))
  if (!is.numeric(top_p) || length(top_p) != 1L || is.na(top_p)) .fail("argument", "top_p is %s, expected a number", .shown(top_p))
  frame <- .frame(dim, block, if (length(size) == 3L) size[3L] else 1)
  .new_layout(tartan_layout_from_scores(frame, .operand(scores, "scores"), as.double(counts), as.double(top_p)))
}

block_layout_from_csr <- function(p, j, dim, block = c(32, 32), heads = 1) {
  frame <- .frame(dim, block, heads)
  if (!.is_whole(p)) .fail("argument", "p is %s, expected whole numbers", .shown(p))
  .new_layout(tartan_layout_from_csr(frame, list(p, .index(j, .grid(frame)[2L], "j", "block columns"), FALSE)))
}

block_layout_from_entries <- function(i, j = NULL, dim = NULL, block = c(32, 32)) {
  if (inherits(i, "sparseMatrix")) {
    entries <- .sparse_entries(i)
    frame <- .frame(dim(i), block)
    return(.new_layout(tartan_layout_from_entries(frame, list(NULL, entries$i, entries$j))))
  }
  frame <- .frame(dim, block)
  i <- .index(i, frame[1L], "i", "rows")
  j <- .index(j, frame[2L], "j", "columns")
  .same_length(i, j, "i", "j")
  .new_layout(tartan_layout_from_entries(frame, list(NULL, i, j)))
}

block_layout_from_dense <- function(x, block = c(32, 32), density = NULL, norm = c("l2", "l1", "max")) {
  x <- .dense(x, "x")
  size <- dim(x)
  if (!(length(size) %in% 2:3)) .fail("shape", "x has %d dimensions, expected 2 or 3", length(size))
  frame <- .frame(size[1:2], block, if (length(size) == 3L) size[3L] else 1)
  if (frame[5L] == 1) dim(x) <- size[1:2]
  norm <- .constant(norm, .norms, "norm")
  .new_layout(if (is.null(density)) tartan_layout_from_dense(frame, x)
              else tartan_layout_from_dense_largest(frame, x, density, norm))
}
