# SPDX-License-Identifier: Apache-2.0
# x[i, j] is a dense matrix or vector, or a BlockMatrix if that would have more than 2^27 elements (1 GiB).

# Elements at zero-based (row, col), recycled to one length.
.gather <- function(x, row, col) {
  values <- block_values(x)
  frame <- .frame_of(x)
  out <- numeric(length(row))
  if (!length(row)) return(out)
  at <- c(row %/% frame[3L], col %/% frame[4L])
  n <- length(row)
  ids <- tartan_layout_find(x@layout, numeric(n), at[seq_len(n)], at[n + seq_len(n)], n)
  stored <- which(ids >= 0)
  out[stored] <- values[ids[stored] * frame[3L] * frame[4L] + (col[stored] %% frame[4L]) * frame[3L] +
                          row[stored] %% frame[3L] + 1]
  out
}

# The elements of 1 .. n that an index of any kind selects, counted from 0.
.selected <- function(index, n, name, of) {
  if (is.character(index)) .fail("argument", "%s is %s, expected numbers: there are no dimnames", name, .shown(index))
  if (is.logical(index)) {
    if (length(index) > n || anyNA(index)) {
      .fail("layout", "%s is %s, expected at most %.0f values, none NA", name, .shown(index), n)
    }
    return(which(rep_len(index, n)) - 1)
  }
  if (is.numeric(index)) index <- trunc(index[is.na(index) | index != 0])
  if (is.numeric(index) && length(index) && isTRUE(all(index < 0))) {
    .index(-index, n, name, of)
    return(setdiff(seq_len(n), -index) - 1)
  }
  .index(index, n, name, of)
}

setMethod("[", "BlockMatrix", function(x, i, j, ..., drop = TRUE) {
  .expect_one_head(x, "x[i, j]")
  size <- x@layout@frame[1:2]
  commas <- nargs() - 1L - !missing(drop)
  if (commas > 2L) .fail("shape", "x has 2 dimensions, %d indices were given", commas)
  if (commas < 2L) {
    if (missing(i)) return(x)
    if (is.matrix(i) && is.numeric(i) && ncol(i) == 2L) {
      return(.gather(x, .index(i[, 1L], size[1L], "i[, 1]", "rows"), .index(i[, 2L], size[2L], "i[, 2]", "columns")))
    }
    at <- .selected(i, prod(size), "i", "elements")
    return(.gather(x, at %% size[1L], at %/% size[1L]))
  }
  rows <- if (missing(i)) seq_len(size[1L]) - 1 else .selected(i, size[1L], "i", "rows")
  cols <- if (missing(j)) seq_len(size[2L]) - 1 else .selected(j, size[2L], "j", "columns")
  elements <- as.double(length(rows)) * length(cols)
  if (elements > .few && length(rows) > 1L && length(cols) > 1L) {
    if (elements > .many) return(.rearranged(x, rows, cols))
    return(unname(as.matrix(.to_sparse(x)[rows + 1, cols + 1, drop = FALSE])))
  }
  out <- .gather(x, rep(rows, times = length(cols)), rep(cols, each = length(rows)))
  dim(out) <- c(length(rows), length(cols))
  if (drop) base::drop(out) else out
})

.few <- 2^20  # elements that .gather looks up one by one
.many <- 2^27 # elements of a dense result, 1 GiB

# The order of blocks if an order of rows (from 0) moves whole blocks, else NULL.
.block_order <- function(order, block, n) {
  if (length(order) != n) return(NULL)
  if (identical(order, seq_len(n) - 1)) return(seq_len(ceiling(n / block)))
  first <- order[seq(1, n, by = block)]
  at <- rep(first, each = block, length.out = n) + rep_len(seq_len(block) - 1, n)
  if (any(first %% block != 0) || !identical(order, at) || anyDuplicated(first)) return(NULL)
  first / block + 1
}

# x[rows, cols] as a BlockMatrix with the same block size: whole blocks are moved, or else elements by their
# coordinates.
.rearranged <- function(x, rows, cols) {
  frame <- x@layout@frame
  i <- .block_order(rows, frame[3L], frame[1L])
  j <- .block_order(cols, frame[4L], frame[2L])
  if (!is.null(i) && !is.null(j)) return(block_permute(x, i, j))
  result <- block_matrix(.to_sparse(x)[rows + 1, cols + 1, drop = FALSE], block = frame[3:4])
  block_cast(result, x@dtype)
}

setMethod("diag", "BlockMatrix", function(x = 1, nrow, ncol, names = TRUE) {
  .expect_one_head(x, "diag")
  at <- seq_len(min(dim(x))) - 1
  .gather(x, at, at)
})
