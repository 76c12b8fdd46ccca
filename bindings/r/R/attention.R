# SPDX-License-Identifier: Apache-2.0
# Attention. Arrays are d x tokens x heads x batch here, which is C's [batch, heads, tokens, d] without a copy.

# ---- Masks ----

# Rules are evaluated for about this many elements at a time.
.mask_chunk <- 2^20

attention_mask <- function(layout, keep) {
  layout <- .expect_layout(layout, "layout")
  if (!is.function(keep)) keep <- .keep_of_array(layout, keep)
  frame <- layout@frame
  width <- 32 * ceiling(frame[4L] / 32)
  at <- block_coordinates(layout)
  step <- max(1, floor(.mask_chunk / (frame[3L] * frame[4L])))
  chunks <- lapply(split(seq_len(nrow(at)), (seq_len(nrow(at)) - 1) %/% step), function(ids) {
    .mask_bits(keep, frame, width, at[ids, ])
  })
  bits <- if (length(chunks)) do.call(c, unname(chunks)) else raw()
  methods::new("BlockMask", layout = layout, bits = bits, handle = tartan_r_new_cache())
}

# The bits of some blocks: keep() is asked about every element, columns fastest, but not about those outside the matrix.
.mask_bits <- function(keep, frame, width, at) {
  height <- frame[3L]
  cols <- frame[4L]
  q <- rep(as.vector(outer(seq_len(height), (at$row - 1) * height, "+")), each = cols)
  k <- as.vector(outer(seq_len(cols), rep((at$col - 1) * cols, each = height), "+"))
  head <- rep(at$head, each = height * cols)
  inside <- q <= frame[1L] & k <= frame[2L]
  kept <- keep(q[inside], k[inside], head[inside])
  if (!is.logical(kept) || !(length(kept) %in% c(1L, sum(inside))) || anyNA(kept)) {
    .fail("argument", "keep returned %s, expected TRUE or FALSE for each of %d elements", .shown(kept), sum(inside))
  }
  bits <- array(FALSE, c(width, height, nrow(at)))
  bits[rep(seq_len(width) <= cols, height * nrow(at))][inside] <- kept
  packBits(bits, "raw")
}

# A rule that looks up a logical array, queries x keys (x heads).
.keep_of_array <- function(layout, mask) {
  if (is.numeric(mask) && all(mask %in% c(0, 1))) storage.mode(mask) <- "logical"
  if (!is.logical(mask) || anyNA(mask)) {
    .fail("argument", "keep is %s, expected a function, or an array of TRUE and FALSE", .shown(mask))
  }
  size <- layout@frame[c(1L, 2L, 5L)]
  if (!identical(as.double(dim(mask)), size[1:2]) && !identical(as.double(dim(mask)), size)) {
    .fail("shape", "keep is %s, expected %s, or %s with one mask for each head", paste(dim(mask), collapse = " x "),
          paste(size[1:2], collapse = " x "), paste(size, collapse = " x "))
  }
  plane <- if (length(dim(mask)) == 3L) size[1L] * size[2L] else 0
  function(q, k, head) mask[q + (k - 1) * size[1L] + (head - 1) * plane]
}

as.array.BlockMask <- function(x, ...) {
  frame <- x@layout@frame
  at <- block_coordinates(x@layout)
  width <- 32 * ceiling(frame[4L] / 32)
  bits <- array(rawToBits(x@bits) == as.raw(1), c(width, frame[3L], nrow(at)))
  result <- array(FALSE, frame[c(1L, 2L, 5L)])
  for (id in seq_len(nrow(at))) {
    i <- .within(at$row[id], frame[3L], frame[1L])
    j <- .within(at$col[id], frame[4L], frame[2L])
    result[i, j, at$head[id]] <- t(bits[seq_along(j), seq_along(i), id])
  }
  if (frame[5L] == 1) dim(result) <- frame[1:2]
  result
}
.within <- function(block, size, n) seq.int((block - 1) * size + 1, min(block * size, n))

setMethod("show", "BlockMask", function(object) {
  if (tartan_r_is_closed(object)) return(cat("BlockMask, closed\n"))
  cat("BlockMask of ", format(tartan_block_mask_kept(object), scientific = FALSE), " elements in ",
      .describe(object@layout), "\n", sep = "")
})

# ---- Attention ----

# C's view of an array of R, whose last two dimensions the other products exchange, with 1 for dimensions in front that
# there are not.
.tokens <- function(view, ndim = 4L) {
  n <- length(view[[3L]])
  order <- if (n > 1L) c(seq_len(n - 2L), n, n - 1L) else 1L
  view[[3L]] <- c(rep(1, ndim - n), view[[3L]][order])
  view[[4L]] <- c(rep(1, ndim - n), view[[4L]][order])
  view
}
.size_of <- function(x) as.double(if (methods::is(x, "DeviceArray")) x@size else if (is.null(dim(x))) length(x) else dim(x))

.tensor <- function(x, name) {
  view <- .operand(x, name)
  n <- length(.size_of(x))
  if (!(n %in% 2:4)) .fail("shape", "%s has %d dimensions, expected 2 to 4: d x tokens x heads x batch", name, n)
  .tokens(view)
}
.log_sums <- function(x) {
  view <- .operand(x, "lse")
  if (length(.size_of(x)) > 3L) .fail("shape", "lse has %d dimensions, expected 1 to 3", length(.size_of(x)))
  .tokens(view, 3L)
}

# Refuses sizes that do not fit, in R's order of dimensions.
.expect_sizes <- function(q, k, v, layout) {
  size <- function(x) c(.size_of(x), 1, 1)[1:4]
  shown <- function(x) paste(.size_of(x), collapse = " x ")
  frame <- .any_layout_of(layout, "layout")@frame
  n <- size(q)
  if (n[2L] != frame[1L]) .fail("shape", "q is %s, expected %.0f tokens, the rows of the layout", shown(q), frame[1L])
  m <- size(k)
  if (m[2L] != frame[2L]) .fail("shape", "k is %s, expected %.0f tokens, the columns of the layout", shown(k), frame[2L])
  if (m[1L] != n[1L] || m[4L] != n[4L]) {
    .fail("shape", "k is %s, expected d = %.0f and a batch of %.0f, as q", shown(k), n[1L], n[4L])
  }
  if (any(size(v) != m)) .fail("shape", "v is %s, expected %s, as k", shown(v), shown(k))
}

.expect_like <- function(x, size, name, of) {
  if (!identical(.size_of(x), as.double(size))) {
    .fail("shape", "%s is %s, expected %s, %s", name, paste(.size_of(x), collapse = " x "), paste(size, collapse = " x "), of)
  }
}

# The bias that is given: what C calls it, the user's array, and C's view of it.
.one_bias <- function(slopes, distance_bias, block_bias) {
  given <- list(slopes = slopes, distance_bias = distance_bias, block_bias = block_bias)
  given <- given[!vapply(given, is.null, NA)]
  if (length(given) > 1L) {
    .fail("argument", "%s and %s are given, expected at most one bias", names(given)[1L], names(given)[2L])
  }
  if (!length(given)) return(list())
  kind <- names(given)
  array <- given[[1L]]
  view <- if (kind == "slopes") array else .tokens(.operand(array, kind), 2L)
  list(kind = sub("_bias$", "", kind), array = array, view = view)
}

.attention_options <- function(scale, causal, query_offset, causal_from, bias, dropout, seed) {
  number <- function(x, name) {
    if (!is.numeric(x) || length(x) != 1L) .fail("argument", "%s is %s, expected a number", name, .shown(x))
    if (is.finite(x)) sprintf("%s=%.17g", name, x) else .fail("argument", "%s is %s, expected a finite number", name, .shown(x))
  }
  whole <- function(x, name, least, origin = 0) {
    x <- .count(x, name, least) - origin
    if (x != 0) sprintf("%s=%.0f", name, x)
  }
  paste(c(if (.flag(causal, "causal")) "causal=1", if (length(bias)) paste0("bias=", bias$kind),
          if (!is.null(scale)) number(scale, "scale"), if (!identical(as.double(dropout), 0)) number(dropout, "dropout"),
          whole(query_offset, "query_offset", -2^40), whole(causal_from, "causal_from", 1, 1), whole(seed, "seed", 0)),
        collapse = " ")
}

attention <- function(q, k, v, layout, scale = NULL, causal = FALSE, query_offset = 0, causal_from = 1, mask = NULL,
                      slopes = NULL, distance_bias = NULL, block_bias = NULL, dropout = 0, seed = 0,
                      return_lse = FALSE) {
  bias <- .one_bias(slopes, distance_bias, block_bias)
  options <- .attention_options(scale, causal, query_offset, causal_from, bias, dropout, seed)
  if (!is.null(mask)) .expect(mask, "BlockMask", "mask")
  place <- .place(q = q, k = k, v = v, bias = bias$array)
  views <- list(.tensor(q, "q"), .tensor(k, "k"), .tensor(v, "v"))
  .expect_sizes(q, k, v, layout)
  dtype <- if (is.null(place)) "float64" else q@dtype
  out <- .result(place, .size_of(q), dtype)
  lse <- if (.flag(return_lse, "return_lse")) .result(place, .size_of(q)[-1L], .result_dtype(dtype))
  tartan_attention_forward(place, layout, views[[1L]], views[[2L]], views[[3L]], options, mask, bias$view, .tokens(out),
                           if (return_lse) .tokens(lse, 3L))
  if (return_lse) list(out = .value(out), lse = .value(lse)) else .value(out)
}

attention_gradient <- function(q, k, v, layout, out, lse, out_grad, scale = NULL, causal = FALSE, query_offset = 0,
                               causal_from = 1, mask = NULL, slopes = NULL, distance_bias = NULL, block_bias = NULL,
                               dropout = 0, seed = 0) {
  bias <- .one_bias(slopes, distance_bias, block_bias)
  options <- .attention_options(scale, causal, query_offset, causal_from, bias, dropout, seed)
  if (!is.null(mask)) .expect(mask, "BlockMask", "mask")
  place <- .place(q = q, k = k, v = v, bias = bias$array, out = out, lse = lse, out_grad = out_grad)
  views <- list(.tensor(q, "q"), .tensor(k, "k"), .tensor(v, "v"))
  .expect_sizes(q, k, v, layout)
  .expect_like(out, .size_of(q), "out", "as q")
  .expect_like(out_grad, .size_of(q), "out_grad", "as q")
  .expect_like(lse, .size_of(q)[-1L], "lse", "tokens, heads and batch of q")
  dtype <- if (is.null(place)) "float64" else q@dtype
  grads <- lapply(list(q = q, k = k, v = v), function(x) .result(place, .size_of(x), dtype))
  tartan_attention_backward(place, layout, views[[1L]], views[[2L]], views[[3L]], options, mask, bias$view,
                            .tensor(out, "out"), .log_sums(lse), .tensor(out_grad, "out_grad"), .tokens(grads$q),
                            .tokens(grads$k), .tokens(grads$v))
  lapply(grads, .value)
}
