# SPDX-License-Identifier: Apache-2.0
# What a rule of query, key and head keeps. By interval arithmetic it is asked once about the spans of queries and keys of
# many blocks, and most blocks turn out to be kept or hidden as a whole. A rule that does anything else with its arguments
# than the operators here, such as looking something up, fails, and is asked about elements.

# Elements that are asked about at a time.
.rule_elements <- 2^20

# Numbers of blocks: none is below `low` or above `high`. Conditions on the elements of blocks: whether one `may` hold for an
# element, and whether it `must` for all. Environments, since functions of vectors do not take these for vectors.
.span <- function(low, high) {
  if (any(low < -2^52 | high > 2^52)) stop("beyond whole numbers of doubles")
  structure(list2env(list(low = low, high = high)), class = "tartan_span")
}
.truth <- function(may, must) structure(list2env(list(may = may, must = must)), class = "tartan_truth")

.as_span <- function(x) {
  if (inherits(x, "tartan_span")) return(x)
  if (!is.numeric(x) || is.object(x) || length(x) != 1L || !is.finite(x)) stop("no number")
  .span(x, x)
}
.as_truth <- function(x) {
  if (inherits(x, "tartan_truth")) return(x)
  if (!is.logical(x) || length(x) != 1L || is.na(x)) stop("no condition")
  .truth(x, x)
}

Ops.tartan_span <- function(e1, e2) {
  a <- .as_span(e1)
  if (missing(e2)) {
    return(switch(.Generic, "-" = .span(-a$high, -a$low), "+" = a, stop("no span")))
  }
  b <- .as_span(e2)
  switch(.Generic,
    "+" = .span(a$low + b$low, a$high + b$high),
    "-" = .span(a$low - b$high, a$high - b$low),
    "*" = {
      ends <- list(a$low * b$low, a$low * b$high, a$high * b$low, a$high * b$high)
      .span(do.call(pmin, ends), do.call(pmax, ends))
    },
    "%/%" = .span(a$low %/% .divisor(e2), a$high %/% e2),
    "%%" = {
      alone <- a$low %/% .divisor(e2) == a$high %/% e2 # no multiple between them
      .span(ifelse(alone, a$low %% e2, 0), ifelse(alone, a$high %% e2, e2))
    },
    "<" = .truth(a$low < b$high, a$high < b$low),
    "<=" = .truth(a$low <= b$high, a$high <= b$low),
    ">" = .truth(a$high > b$low, a$low > b$high),
    ">=" = .truth(a$high >= b$low, a$low >= b$high),
    "==" = .truth(a$low <= b$high & b$low <= a$high, a$low == b$high & a$high == b$low),
    "!=" = .truth(!(a$low == b$high & a$high == b$low), !(a$low <= b$high & b$low <= a$high)),
    stop("no span"))
}
.divisor <- function(x) if (is.numeric(x) && length(x) == 1L && x > 0 && x == round(x)) x else stop("no divisor")

Math.tartan_span <- function(x, ...) {
  if (.Generic != "abs") stop("no span")
  .span(pmax(x$low, -x$high, 0), pmax(-x$low, x$high))
}

Ops.tartan_truth <- function(e1, e2) {
  a <- .as_truth(e1)
  if (.Generic == "!") return(.truth(!a$must, !a$may))
  b <- .as_truth(e2)
  switch(.Generic,
    "&" = .truth(a$may & b$may, a$must & b$must),
    "|" = .truth(a$may | b$may, a$must | b$must),
    stop("no condition"))
}

# Whether the rule may keep an element of each square of `size` x `size` blocks, and whether it must keep all; NULL if spans
# can't tell. `at` has heads, block rows and block columns, from 1.
.decide <- function(keep, frame, at, size = 1) {
  ends <- function(x, block, n) pmin(x * size * block, n)
  begins <- function(x, block) (x - 1) * size * block + 1
  found <- tryCatch(keep(.span(begins(at$row, frame[3L]), ends(at$row, frame[3L], frame[1L])),
                         .span(begins(at$col, frame[4L]), ends(at$col, frame[4L], frame[2L])), .span(at$head, at$head)),
                    error = function(e) NULL, warning = function(w) NULL)
  if (!inherits(found, "tartan_truth")) return(NULL)
  n <- length(at$row)
  list(may = rep_len(found$may, n), must = rep_len(found$must, n))
}

# The places of the blocks in which the rule keeps an element. Cells of the grid are split until spans decide them.
.places_of_rule <- function(keep, frame) {
  grid <- ceiling(frame[1:2] / frame[3:4])
  parts <- 8
  size <- 1
  while (size < max(grid)) size <- size * parts
  at <- data.frame(head = seq_len(frame[5L]), row = rep(1, frame[5L]), col = rep(1, frame[5L]))
  if (min(grid) == 0) return(at[0L, ])
  kept <- list()
  count <- 0
  repeat {
    found <- .decide(keep, frame, at, size)
    if (!is.null(found)) {
      if (any(found$must)) {
        count <- .expect_room(count + .blocks_in(at[found$must, ], grid, size), "keeps at least")
        kept <- c(kept, list(.split_cells(at[found$must, ], grid, size, 1)))
      }
      at <- at[found$may & !found$must, ]
    }
    if (size == 1) break
    by <- if (is.null(found)) size else parts
    size <- size / by
    .expect_room(nrow(at) * prod(pmin(by, ceiling(grid / size))), "must be asked about", .rule_cells)
    at <- .split_cells(at, grid, by, size)
  }
  step <- max(1, floor(.rule_elements / (frame[3L] * frame[4L])))
  for (ids in split(seq_len(nrow(at)), (seq_len(nrow(at)) - 1) %/% step)) {
    found <- .ask(keep, frame, at[ids, ])
    kept <- c(kept, list(at[ids[colSums(found$kept) > 0], ]))
  }
  do.call(rbind, c(kept, list(at[0L, ])))
}

# Cells that are asked about at a time.
.rule_cells <- 2^27

# Refuses more blocks than that, before any is listed.
.expect_room <- function(count, what, most = .Machine$integer.max) {
  if (count > most) .fail("overflow", "keep %s %.3g blocks, expected at most %.0f", what, count, most)
  count
}
# The number of blocks in cells of which all are kept.
.blocks_in <- function(at, grid, size) {
  sum(pmin(grid[1L] - (at$row - 1) * size, size) * pmin(grid[2L] - (at$col - 1) * size, size))
}

# The parts of cells, `parts` x `parts` of `size` x `size` blocks each, that are not outside the grid.
.split_cells <- function(at, grid, parts, size) {
  across <- seq_len(parts)
  row <- rep((at$row - 1) * parts, each = parts^2) + rep(across, nrow(at), each = parts)
  col <- rep((at$col - 1) * parts, each = parts^2) + rep(across, nrow(at) * parts)
  inside <- (row - 1) * size < grid[1L] & (col - 1) * size < grid[2L]
  data.frame(head = rep(at$head, each = parts^2), row = row, col = col)[inside, ]
}

# What keep() says of every element of blocks, and which are inside the matrix, as matrices with a column for each block: the columns of
# a block go fastest. Of elements outside the matrix it is not asked.
.ask <- function(keep, frame, at) {
  height <- frame[3L]
  cols <- frame[4L]
  q <- rep(as.vector(outer(seq_len(height), (at$row - 1) * height, "+")), each = cols)
  k <- as.vector(outer(seq_len(cols), rep((at$col - 1) * cols, each = height), "+"))
  head <- rep(at$head, each = height * cols)
  inside <- q <= frame[1L] & k <= frame[2L]
  found <- keep(q[inside], k[inside], head[inside])
  if (!is.logical(found) || !(length(found) %in% c(1L, sum(inside))) || anyNA(found)) {
    .fail("argument", "keep returned %s, expected TRUE or FALSE for each of %d elements", .shown(found), sum(inside))
  }
  kept <- logical(length(inside))
  kept[inside] <- found
  list(kept = matrix(kept, height * cols), inside = matrix(inside, height * cols))
}

block_layout_from_rule <- function(keep, dim, block = c(32, 32), heads = 1) {
  if (!is.function(keep)) .fail("argument", "keep is %s, expected a function of q, k and head", .shown(keep))
  frame <- .frame(dim, block, heads)
  tartan_shape_check(frame)
  at <- .places_of_rule(keep, frame)
  .new_layout(tartan_layout_from_coordinates(frame, list(at$head - 1, at$row - 1, at$col - 1)))
}
