# SPDX-License-Identifier: Apache-2.0
# x[i, j] and x[i, j] <- value; x[i, j, h] where x has several heads, as for an array. A matrix of elements is a block
# matrix, a row, a column or a list of elements a vector. Nothing is enumerated but what is asked for: rows and columns
# are selected in C.

# The positions in 1 .. n that an index of any kind selects, counted from 0.
.selected <- function(index, n, names, name, of) {
  if (is.factor(index)) index <- as.character(index)
  if (is.character(index)) {
    if (is.null(names)) .fail("argument", "%s is %s, but x has no names of %s", name, .shown(index), of)
    at <- match(index, names)
    bad <- which(is.na(at))
    if (length(bad)) .fail("layout", "%s[%d] is %s, which names none of the %s", name, bad[1L], .shown(index[bad[1L]]), of)
    return(at - 1)
  }
  if (inherits(index, "sparseVector")) index <- as.vector(index)
  if (is.logical(index)) {
    if (length(index) > n || anyNA(index)) {
      .fail("layout", "%s is %s, expected at most %.0f values, none NA", name, .shown(index), n)
    }
    return(which(rep_len(index, n)) - 1)
  }
  if (is.numeric(index)) index <- trunc(index[is.na(index) | index != 0])
  if (is.numeric(index) && length(index) && isTRUE(all(index < 0))) {
    index <- index[index >= -n] # base R leaves out those that are there
    .index(-index, n, name, of)
    return(if (length(index)) seq_len(n)[index] - 1 else seq_len(n) - 1)
  }
  .index(index, n, name, of)
}

# Rows, columns and heads (from 0; NULL if there is one head) of the elements that one index selects: x[cbind(i, j)],
# x[x > 0], x[k].
.places <- function(x, i) {
  size <- dim(x)
  heads <- block_heads(x)
  if (heads > 1 && isS4(i)) .fail("argument", "i is a %s, expected an array: x has %.0f heads", class(i)[1L], heads)
  if (inherits(i, "Matrix") || inherits(i, "BlockMatrix")) {
    if (!inherits(i, "lMatrix") && !inherits(i, "nMatrix")) .fail("argument", "i is a %s, expected a logical Matrix, as x > 0 is", class(i)[1L])
    if (any(dim(i) != size)) .fail("shape", "i is %d x %d, expected %.0f x %.0f", nrow(i), ncol(i), size[1L], size[2L])
    at <- .sparse_entries(i)
    if (anyNA(at$x)) .fail("argument", "i has NA, expected TRUE or FALSE")
    keep <- at$x != 0
    return(list(row = as.double(at$i[keep]), col = as.double(at$j[keep])))
  }
  if (is.matrix(i) && ncol(i) == (if (heads > 1) 3L else 2L) && (is.numeric(i) || is.character(i))) {
    names <- x@Dimnames
    return(list(row = .selected_pair(i[, 1L], size[1L], names[[1L]], "i[, 1]", "rows"),
                col = .selected_pair(i[, 2L], size[2L], names[[2L]], "i[, 2]", "columns"),
                head = if (heads > 1) .selected_pair(i[, 3L], heads, NULL, "i[, 3]", "heads")))
  }
  if (is.character(i)) .fail("argument", "i is %s, expected x[i, j] or a matrix of two columns of names", .shown(i))
  .expect_few(i, prod(size) * heads)
  at <- .selected(i, prod(size) * heads, NULL, "i", "elements")
  list(row = at %% size[1L], col = at %/% size[1L] %% size[2L], head = if (heads > 1) at %/% prod(size))
}
# One index of n elements does not select more than 1 GiB of numbers.
.expect_few <- function(i, n) {
  count <- if (is.logical(i)) n * mean(i, na.rm = TRUE) else if (is.numeric(i) && isTRUE(i[1L] < 0)) n - length(i) else length(i)
  if (isTRUE(count > 2^27)) .fail("unsupported", "i selects %s GiB of elements, expected at most 1 GiB: use x[i, j]", .digits(count / 2^27))
}
.selected_pair <- function(index, n, names, name, of) {
  if (is.character(index)) .selected(index, n, names, name, of) else .index(index, n, name, of)
}

# Elements at rows, columns and heads that count from 0.
.gather <- function(x, row, col, head = NULL) {
  out <- tartan_r_new_array(length(row))
  if (length(row)) tartan_matrix_get_elements(x, list(head, row, col), out)
  as.vector(out)
}

# The rows or columns of x[i, j], NULL for all of them.
.side_of <- function(x, index, side) {
  .selected(index, dim(x)[side], x@Dimnames[[side]], c("i", "j")[side], c("rows", "columns")[side])
}

.is_range <- function(at) length(at) > 0L && (length(at) == 1L || all(diff(at) == 1))

# x[rows, cols] as a block matrix: of ranges, of whole blocks in another order, or of any list.
.select <- function(x, rows, cols) {
  names <- x@Dimnames
  if (!is.null(rows)) names[1L] <- list(.some(names[[1L]], rows + 1))
  if (!is.null(cols)) names[2L] <- list(.some(names[[2L]], cols + 1))
  size <- dim(x)
  if ((is.null(rows) || .is_range(rows)) && (is.null(cols) || .is_range(cols))) {
    end <- function(at, n) if (is.null(at)) c(0, n) else c(at[1L], at[length(at)] + 1)
    rows <- end(rows, size[1L])
    cols <- end(cols, size[2L])
    return(.made(x, tartan_matrix_cut, rows[1L], rows[2L], cols[1L], cols[2L], names = names))
  }
  .made(x, tartan_matrix_select, rows, cols, names = names)
}

# One index, or one for each dimension.
.expect_indices <- function(x, count) {
  dimensions <- if (block_heads(x) > 1) 3L else 2L
  if (count > 1L && count != dimensions) {
    .fail("shape", "x has %d dimensions%s, %d indices were given", dimensions,
          if (dimensions == 3L) sprintf(" (%.0f heads)", block_heads(x)) else "", count)
  }
}
.heads_of <- function(x, index) {
  at <- .selected(index, block_heads(x), NULL, "the index of heads", "heads")
  if (!length(at)) .fail("argument", "the index of heads is %s, which selects none", .shown(index))
  at
}

# The heads, counted from 0, as a matrix of their own; NULL for all.
.select_heads <- function(x, heads) {
  if (is.null(heads)) return(x)
  layout <- x@layout
  rows <- .grid_of(layout)[1L]
  ends <- layout@pointers
  blocks <- unlist(Map(function(begin, end) begin + seq_len(end - begin), ends[heads * rows + 1], ends[(heads + 1) * rows + 1]))
  lengths <- diff(ends)[as.vector(outer(seq_len(rows), heads * rows, `+`))]
  bounds <- .bounds_of(layout)
  frame <- replace(if (length(bounds)) c(.grid_of(layout), 1, 1, 1) else layout@frame, 5L, length(heads))
  handle <- tartan_layout_from_csr(frame, list(c(0, cumsum(lengths)), layout@columns[blocks], FALSE))
  part <- .new_layout(if (length(bounds)) tartan_layout_with_boundaries(handle, bounds[[1L]], bounds[[2L]]) else handle)
  if (x@dtype == "float64") return(.new_matrix(part, x@values[, , blocks, drop = FALSE], x@dtype, x@Dimnames))
  bytes <- matrix(x@values, ncol = block_count(x))
  .new_matrix(part, as.vector(bytes[, blocks]), x@dtype, x@Dimnames)
}

# x[rows, cols, heads] of a matrix with several heads. An array that loses a dimension of its rows or columns is dense.
.extract_heads <- function(x, rows, cols, heads, drop) {
  x <- .select_heads(x, heads)
  if (block_heads(x) == 1 && drop) return(.extract(x, rows, cols, drop))
  count <- .counts_of(x, rows, cols)
  if (!drop || all(count != 1L)) return(if (is.null(rows) && is.null(cols)) x else .select(x, rows, cols))
  part <- .to_dense(.select(x, rows, cols))
  base::drop(part)
}
.counts_of <- function(x, rows, cols) {
  c(if (is.null(rows)) dim(x)[1L] else length(rows), if (is.null(cols)) dim(x)[2L] else length(cols))
}

setMethod("[", "BlockMatrix", function(x, i, j, ..., drop = TRUE) {
  commas <- nargs() - 1L - !missing(drop)
  .expect_indices(x, commas)
  tartan_r_expect_open(x)
  if (commas < 2L) {
    if (missing(i)) return(x)
    at <- .places(x, i)
    return(.gather(x, at$row, at$col, at$head))
  }
  rows <- if (!missing(i)) .side_of(x, i, 1L)
  cols <- if (!missing(j)) .side_of(x, j, 2L)
  drop <- .flag(drop, "drop")
  if (commas == 3L) return(.extract_heads(x, rows, cols, if (!missing(..1)) .heads_of(x, ..1), drop))
  .extract(x, rows, cols, drop)
})
.extract <- function(x, rows, cols, drop) {
  if (is.null(rows) && is.null(cols)) return(x)
  count <- .counts_of(x, rows, cols)
  if (!drop || all(count != 1L)) return(.select(x, rows, cols))
  if (is.null(rows)) rows <- seq_len(count[1L]) - 1
  if (is.null(cols)) cols <- seq_len(count[2L]) - 1
  out <- .gather(x, rep_len(rows, max(count) * all(count)), rep_len(cols, max(count) * all(count)))
  # As in base R, one element has a name only if either its row or its column has one.
  along <- if (all(count == 1L)) which(!vapply(x@Dimnames, is.null, NA)) else which(count != 1L)
  names <- if (length(along) == 1L && length(out)) x@Dimnames[[along]][list(rows, cols)[[along]] + 1]
  stats::setNames(out, names)
}

setMethod("diag", "AnyBlockMatrix", function(x = 1, nrow, ncol, names = TRUE) {
  .expect_one_head(x, "diag")
  n <- min(dim(x))
  diagonal <- tartan_matrix_get_diagonal(.place(x = x), x, 0, n)
  own <- x@Dimnames
  if (names && !is.null(own[[1L]]) && identical(own[[1L]][seq_len(n)], own[[2L]][seq_len(n)])) {
    names(diagonal) <- own[[1L]][seq_len(n)]
  }
  diagonal
})

# ---- Assignment: a new matrix, with the blocks that the new numbers need ----

.new_numbers <- function(value) {
  if (inherits(value, "BlockMatrix")) return(as.vector(.small_dense(value)))
  value <- .other_operand(value, "value")
  as.double(value)
}

# A copy of x with room for elements (from 0), given as arguments of add(layout).
.with_room <- function(x, handle) {
  if (identical(tartan_layout_identity(handle), x@layout@identity)) return(.matrix_copy(x, "x"))
  block_project(x, .new_layout(handle))
}

.write <- function(x, row, col, value, head = NULL) {
  if (!length(row)) return(x)
  stays <- is.na(value) | value != 0
  x <- .with_room(x, tartan_layout_add_elements(x@layout, list(head[stays], row[stays], col[stays])))
  tartan_matrix_set_elements(x, list(head, row, col), value, 0L)
  x
}

.recycled <- function(value, n) {
  if (!n) return(numeric())
  if (!length(value) || n %% length(value) != 0) {
    .fail("shape", "value has length %.0f, expected a divisor of %.0f (elements to replace)", length(value), n)
  }
  rep_len(value, n)
}

# Zeros in whole rows and columns of some heads; their blocks stay.
.clear <- function(x, rows, cols, heads = NULL) {
  if (block_count(x) == 0L) return(x)
  flags <- function(at, n) {
    chosen <- numeric(n)
    chosen[at + 1] <- 1
    chosen
  }
  hit <- TRUE
  if (!is.null(rows)) hit <- .spread(x, flags(rows, dim(x)[1L]), "rows") != 0
  if (!is.null(cols)) hit <- hit & .spread(x, flags(cols, dim(x)[2L]), "cols") != 0
  if (!is.null(heads)) hit <- hit & rep((block_coordinates(x)$head - 1) %in% heads, each = prod(block_dim(x)))
  values <- block_values(x)
  values[hit] <- 0
  .with_values(x, values)
}

# x[rows, cols] <- a sparse matrix.
.write_sparse <- function(x, rows, cols, value) {
  count <- .counts_of(x, rows, cols)
  if (any(dim(value) != count)) {
    .fail("shape", "value is %.0f x %.0f, expected %.0f x %.0f (elements to replace)", dim(value)[1L], dim(value)[2L], count[1L], count[2L])
  }
  if (inherits(value, "BlockMatrix")) value <- .non_zeros(value)
  entries <- .sparse_entries(value)
  at <- function(index, place) if (is.null(index)) as.double(place) else index[place + 1]
  x <- .clear(x, rows, cols)
  .write(x, at(rows, entries$i), at(cols, entries$j), entries$x)
}

.write_part <- function(x, rows, cols, heads, value) {
  sparse <- inherits(value, "BlockMatrix") || inherits(value, "sparseMatrix")
  if (sparse && block_heads(x) == 1 && !anyDuplicated(rows) && !anyDuplicated(cols)) {
    return(.write_sparse(x, rows, cols, value))
  }
  value <- .new_numbers(value)
  n <- prod(.counts_of(x, rows, cols)) * if (is.null(heads)) block_heads(x) else length(heads)
  if (length(value) && !anyNA(value) && all(value == 0) && n %% length(value) == 0) return(.clear(x, rows, cols, heads))
  if (n > 2^27) {
    .fail("unsupported", "%s GiB of numbers other than 0 would be written: build the matrix with block_matrix()", .digits(n / 2^27))
  }
  value <- .recycled(value, n)
  if (is.null(rows)) rows <- seq_len(dim(x)[1L]) - 1
  if (is.null(cols)) cols <- seq_len(dim(x)[2L]) - 1
  if (is.null(heads)) heads <- seq_len(block_heads(x)) - 1
  plane <- as.double(length(rows)) * length(cols)
  .write(x, rep(rows, times = length(cols) * length(heads)), rep(rep(cols, each = length(rows)), times = length(heads)), value,
         if (block_heads(x) > 1) rep(heads, each = plane))
}

setReplaceMethod("[", signature(x = "BlockMatrix"), function(x, i, j, ..., value) {
  commas <- nargs() - 2L
  .expect_indices(x, commas)
  tartan_r_expect_open(x)
  if (commas < 2L && !missing(i)) {
    at <- .places(x, i)
    return(.write(x, at$row, at$col, .recycled(.new_numbers(value), length(at$row)), at$head))
  }
  .write_part(x, if (!missing(i)) .side_of(x, i, 1L), if (!missing(j)) .side_of(x, j, 2L),
              if (commas == 3L && !missing(..1)) .heads_of(x, ..1), value)
})

setReplaceMethod("diag", "BlockMatrix", function(x, value) {
  .expect_one_head(x, "diag(x) <- value")
  value <- .new_numbers(value)
  n <- min(dim(x))
  if (!(length(value) %in% c(1L, n))) .fail("shape", "value has length %.0f, expected 1 or %.0f", length(value), n)
  if (!n) return(x)
  at <- which(is.na(value) | value != 0) - 1
  x <- if (length(value) == 1L && length(at)) .with_room(x, tartan_layout_add_diagonal(x@layout, 0))
       else .with_room(x, tartan_layout_add_elements(x@layout, list(NULL, at, at)))
  tartan_matrix_set_diagonal(NULL, x, 0, value)
  x
})
