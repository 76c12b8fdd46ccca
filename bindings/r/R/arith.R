# SPDX-License-Identifier: Apache-2.0
# Arith, Compare, Logic, Math and Summary. A result whose zeros outside the blocks stay zero is a block matrix (a sparse
# logical Matrix for comparisons); any other is a base matrix, unless it would have more than 1 GiB.

.with_values <- function(x, values) {
  block_values(x) <- values
  x
}

# Each of the numbers at the stored elements that it belongs to, as an array like block_values(x).
.along <- c(elements = 0L, rows = 1L, cols = 2L)
.spread <- function(x, numbers, along = "elements", padding = numbers[1L]) {
  tartan_r_spread(x@layout, as.double(numbers), .along[[along]], as.double(padding))
}

.small_dense <- function(x) {
  .expect_small(x)
  .to_dense(x)
}

# A sparse logical Matrix of a logical for each stored element. Matrix has nothing for several heads: they are an array.
.logical <- function(layout, flags, names) {
  if (layout@frame[5L] == 1 && isFALSE(any(flags))) { # as of is.na(), mostly
    size <- as.integer(layout@frame[1:2])
    return(methods::new("lgCMatrix", p = integer(size[2L] + 1L), Dim = size, Dimnames = names))
  }
  flags <- array(as.double(flags), c(layout@frame[3:4], length(layout@columns)))
  x <- .new_matrix(layout, flags, "float64", names)
  if (layout@frame[5L] > 1) {
    dense <- .small_dense(x)
    storage.mode(dense) <- "logical"
    return(dense)
  }
  x <- .non_zeros(x)
  methods::new("lgCMatrix", i = x@i, p = x@p, x = as.logical(x@x), Dim = x@Dim, Dimnames = x@Dimnames)
}

.names_of_both <- function(a, b) if (length(unlist(a@Dimnames))) a@Dimnames else b@Dimnames

# Whether f(0, .) is 0 or FALSE wherever nothing is stored.
.keeps_zero <- function(at_zero) !anyNA(at_zero) && !any(at_zero != 0)

# ---- Two block matrices ----

.expect_same_size <- function(x, y) {
  x <- .frame_of(x)
  y <- .frame_of(y)
  if (any(x[c(1, 2, 5)] != y[c(1, 2, 5)])) {
    .fail("shape", "e2 is %.0f x %.0f%s, expected %.0f x %.0f%s (as e1)", y[1L], y[2L], .of_heads(y), x[1L], x[2L],
          .of_heads(x))
  }
}
.of_heads <- function(frame) if (frame[5L] > 1) sprintf(" x %.0f", frame[5L]) else ""

# y in the blocks of x.
.in_blocks_of <- function(y, x) {
  if (block_is_variable(x)) return(.cut_at(y, block_boundaries(x)))
  if (all(block_dim(y) == block_dim(x)) && !block_is_variable(y)) y else block_reblock(y, block_dim(x))
}
.cut_at <- function(y, bounds) {
  if (identical(block_boundaries(y), bounds)) y else .made(y, tartan_matrix_reblock_at, bounds$rows, bounds$cols)
}
.same_layout <- function(x, y) identical(x@layout@identity, y@layout@identity)

# The values of both on the union of their layouts, in doubles.
.on_union <- function(x, y) {
  y <- .in_blocks_of(y, x)
  layout <- x@layout
  if (!.same_layout(x, y)) {
    layout <- block_union(x, y)
    x <- block_project(x, layout)
    y <- block_project(y, layout)
  }
  list(layout = layout, x = block_values(x), y = block_values(y))
}

# 0 * NaN is NaN, also where only one of them has a block.
.all_finite <- function(x) is.finite(if (inherits(x, "BlockMatrix")) sum(block_values(x)) else sum(x))

.combine_blocks <- function(generic, e1, e2) {
  .expect_same_size(e1, e2)
  names <- .names_of_both(e1, e2)
  f <- get(generic, baseenv())
  if (!.keeps_zero(f(0, 0))) return(.named(f(.small_dense(e1), .small_dense(e2)), names))
  if (generic %in% c("+", "-", "*") && !(.same_layout(e1, e2) && e1@dtype == e2@dtype)) {
    other <- .in_blocks_of(e2, e1)
    if (generic != "*") return(.take_matrix(tartan_matrix_add(NULL, 1, e1, if (generic == "+") 1 else -1, other, 0L), names = names))
    if (.all_finite(e1) && .all_finite(e2)) {
      return(.take_matrix(tartan_matrix_combine(NULL, TARTAN_COMBINE_MULTIPLY, e1, other, 0L), names = names))
    }
  }
  both <- .on_union(e1, e2)
  result <- f(both$x, both$y)
  if (is.logical(result)) return(.logical(both$layout, result, names))
  .new_matrix(both$layout, result, "float64", names) |> block_cast(.wider(e1@dtype, e2@dtype))
}

# The smallest dtype that holds both; those of 16 bits do not hold each other.
.wider <- function(a, b) {
  if (a == b) return(a)
  bytes <- vapply(c(a, b), function(d) tartan_dtype_bytes(.dtype_code(d)), 0)
  if (max(bytes) >= 4) c(a, b)[which.max(bytes)] else if (min(bytes) == 2) "float32" else "float16"
}

.named <- function(m, names) {
  if (length(unlist(names))) dimnames(m) <- c(names, rep(list(NULL), length(dim(m)) - 2L))
  m
}

# ---- A block matrix and numbers. `first`: whether the matrix is the first operand. ----

# Numbers that one can compute with, from anything else than a block matrix or a sparse Matrix.
.other_operand <- function(o, name) {
  if (inherits(o, "DeviceObject")) .fail("unsupported", "%s is on %s, expected it in R's memory (to_host)", name, o@context@device)
  o <- .as_numbers(o)
  if (!(is.numeric(o) || is.logical(o)) || is.factor(o)) {
    .fail("argument", "%s is %s, expected numbers or a matrix", name, .shown(o))
  }
  if (inherits(o, "table") || is.object(o)) o <- unclass(o)
  o
}

.expect_fit <- function(x, o, name) {
  size <- c(dim(x), if (block_heads(x) > 1) block_heads(x))
  if (is.array(o) && length(dim(o)) > 1L) {
    if (!identical(as.double(dim(o)), as.double(size))) {
      .fail("shape", "%s is %s, expected %s", name, paste(dim(o), collapse = " x "), paste(size, collapse = " x "))
    }
  } else if (length(o) != 1L && (!length(o) || length(o) > prod(size))) {
    .fail("shape", "%s has length %.0f, expected 1 to %.0f numbers", name, length(o), prod(size))
  } else if (prod(size) %% length(o) != 0) {
    warning("longer object length is not a multiple of shorter object length", call. = FALSE)
  }
}

.combine_numbers <- function(generic, x, o, first, along = "elements") {
  name <- if (first) "e2" else "e1"
  o <- .other_operand(o, name)
  if (along == "elements") .expect_fit(x, o, name)
  f <- get(generic, baseenv())
  call <- function(x, o) if (first) f(x, o) else f(o, x)
  names <- x@Dimnames
  other <- if (length(dim(o)) > 1L) .names_of(o)
  if (length(unlist(other)) && !(first && length(unlist(names)))) names <- other
  at_zero <- call(0, as.vector(o))
  if (!length(x) || !.keeps_zero(at_zero)) {
    dense <- .small_dense(x)
    if (along == "cols") o <- rep(as.vector(o), each = nrow(dense))
    if (along == "rows" || !is.array(o)) o <- rep_len(as.vector(o), length(dense))
    return(.named(call(array(as.vector(dense), dim(dense)), array(o, dim(dense))), names))
  }
  result <- call(block_values(x), if (length(o) == 1L) as.vector(o) else .spread(x, o, along))
  if (is.logical(result)) return(.logical(x@layout, result, names))
  x <- .with_values(x, result)
  x@Dimnames <- names
  x
}

# ---- Ops ----

# A sparse Matrix in blocks of the size of x's, unless most of their elements would be zeros that take 1 GiB.
.as_blocks_of <- function(m, x, name) {
  if (block_is_variable(x) && all(dim(m) == dim(x))) return(.cut_at(block_matrix(m, block = 1), block_boundaries(x)))
  frame <- .frame(dim(m), block_dim(x))
  entries <- .sparse_entries(m)
  layout <- .new_layout(tartan_layout_from_entries(frame, list(NULL, entries$i, entries$j)))
  gib <- block_count(layout) * prod(block_dim(x)) / 2^27
  if (gib > 1) {
    .fail("unsupported", "%s would take %s GiB in blocks of %.0f x %.0f: convert x to a dgCMatrix, or %s by block_matrix()",
          name, .digits(gib), frame[3L], frame[4L], name)
  }
  .take_matrix(tartan_matrix_from_coo(layout, list(NULL, entries$i, entries$j), entries$x, TARTAN_F64, TARTAN_COL_MAJOR), layout,
               .names_of(m))
}

# x + D, x - D, D - x: only the blocks on the diagonal change.
.with_diagonal <- function(generic, x, d, first) {
  diagonal <- as.double(Matrix::diag(d)) * if (first && generic == "-") -1 else 1
  alpha <- if (!first && generic == "-") -1 else 1
  add <- function(place, x) tartan_matrix_add_diagonal(place, alpha, x, 0, diagonal, TARTAN_F64)
  .made(x, add,
        names = if (length(unlist(x@Dimnames))) x@Dimnames else .names_of(d))
}
.ops <- function(generic, e1, e2) {
  first <- inherits(e1, "BlockMatrix")
  if (first && inherits(e2, "BlockMatrix")) return(.combine_blocks(generic, e1, e2))
  x <- if (first) e1 else e2
  o <- if (first) e2 else e1
  name <- if (first) "e2" else "e1"
  tartan_r_expect_open(x)
  if (!inherits(o, "sparseMatrix")) return(.combine_numbers(generic, x, o, first))
  .expect_one_head(x, "an operation with a Matrix")
  if (any(dim(o) != dim(x))) {
    .fail("shape", "%s is %d x %d, expected %.0f x %.0f", name, nrow(o), ncol(o), dim(x)[1L], dim(x)[2L])
  }
  if (generic %in% c("+", "-") && inherits(o, "diagonalMatrix") && x@dtype == "float64") {
    return(.with_diagonal(generic, x, o, first))
  }
  o <- .as_blocks_of(o, x, name)
  if (first) .combine_blocks(generic, x, o) else .combine_blocks(generic, o, x)
}

# Those that Matrix has methods for with ANY are named too.
.peers <- c("ANY", "Matrix", "ddiMatrix", "ldiMatrix", "sparseVector")
for (.peer in .peers) for (.group in c("Arith", "Compare", "Logic")) {
  setMethod(.group, signature("BlockMatrix", .peer), function(e1, e2) .ops(.Generic, e1, e2))
  setMethod(.group, signature(.peer, "BlockMatrix"), function(e1, e2) .ops(.Generic, e1, e2))
}
rm(.peer, .group)
setMethod("Arith", signature("BlockMatrix", "BlockMatrix"), function(e1, e2) .ops(.Generic, e1, e2))
setMethod("Compare", signature("BlockMatrix", "BlockMatrix"), function(e1, e2) .ops(.Generic, e1, e2))
setMethod("Logic", signature("BlockMatrix", "BlockMatrix"), function(e1, e2) .ops(.Generic, e1, e2))
setMethod("Arith", signature("BlockMatrix", "missing"), function(e1, e2) {
  if (.Generic == "-") .with_values(e1, -block_values(e1)) else e1
})
setMethod("!", "BlockMatrix", function(x) .ops("==", x, 0))

setMethod("|", signature("BlockLayout", "BlockLayout"), function(e1, e2) block_union(e1, e2))
setMethod("&", signature("BlockLayout", "BlockLayout"), function(e1, e2) block_intersection(e1, e2))
setMethod("-", signature("BlockLayout", "BlockLayout"), function(e1, e2) block_difference(e1, e2))
setMethod("==", signature("BlockLayout", "BlockLayout"), function(e1, e2) {
  identical(block_identity(e1), block_identity(e2))
})
setMethod("!=", signature("BlockLayout", "BlockLayout"), function(e1, e2) {
  !identical(block_identity(e1), block_identity(e2))
})

# ---- Math ----

.apply_function <- function(x, f) {
  if (.keeps_zero(suppressWarnings(f(0)))) .with_values(x, f(block_values(x))) else f(.small_dense(x))
}
setMethod("Math", "BlockMatrix", function(x) {
  f <- get(.Generic, baseenv())
  if (startsWith(.Generic, "cum")) f(as.vector(.small_dense(x))) else .apply_function(x, f)
})
setMethod("log", "BlockMatrix", function(x, ...) .apply_function(x, function(v) log(v, ...)))
setMethod("trunc", "BlockMatrix", function(x, ...) .apply_function(x, function(v) trunc(v, ...)))
setMethod("Math2", signature("BlockMatrix"), function(x, digits) {
  f <- get(.Generic, baseenv())
  .apply_function(x, if (missing(digits)) f else function(v) f(v, digits))
})

# ---- Summary ----

# The elements, of which only one zero counts for all that are not stored.
.elements <- function(x) {
  tartan_r_expect_open(x)
  if (block_elements(x) < length(x) * block_heads(x)) c(block_values(x), 0) else as.vector(.to_dense(x))
}
setMethod("Summary", "BlockMatrix", function(x, ..., na.rm = FALSE) {
  f <- get(.Generic, baseenv())
  numbers <- function(y) {
    if (!inherits(y, "BlockMatrix")) return(y)
    y <- .elements(y)
    if (.Generic %in% c("any", "all")) y != 0 else y
  }
  do.call(f, c(lapply(list(x, ...), numbers), na.rm = na.rm))
})
