# SPDX-License-Identifier: Apache-2.0
# Attention. Arrays are d x tokens x heads x batch here, which is C's [batch, heads, tokens, d] without a copy.

# ---- Masks ----

attention_mask <- function(layout, keep) {
  layout <- .expect_layout(layout, "layout")
  if (!is.function(keep)) keep <- .keep_of_array(layout, keep)
  frame <- layout@frame
  at <- block_coordinates(layout)
  index <- rep(-1, nrow(at))
  asked <- seq_along(index)
  found <- .decide(keep, frame, at)
  if (!is.null(found)) {
    index[!found$may] <- 0 # the first block has no bits
    asked <- which(found$may & !found$must)
  }
  stored <- 1
  step <- max(1, floor(.rule_elements / (frame[3L] * frame[4L])))
  chunks <- lapply(split(asked, (seq_along(asked) - 1) %/% step), function(ids) {
    chunk <- .mask_bits(keep, frame, at[ids, ])
    index[ids] <<- ifelse(chunk$partial, stored + cumsum(chunk$partial) - 1, -1)
    stored <<- stored + sum(chunk$partial)
    chunk$bits
  })
  bits <- c(raw(frame[3L] * .mask_line(frame)), as.raw(unlist(chunks, use.names = FALSE)))
  .new_mask(tartan_block_mask_from_index(layout, index, bits), layout)
}

.mask_line <- function(frame) 4 * ceiling(frame[4L] / 32) # bytes of a row of a block

.new_mask <- function(handle, layout) {
  frame <- layout@frame
  lists <- tartan_block_mask_get_index(handle, length(layout@columns),
                                       tartan_block_mask_stored(handle) * frame[3L] * .mask_line(frame))
  methods::new("BlockMask", layout = layout, index = as.integer(lists[[1L]]), bits = lists[[2L]],
               handle = tartan_r_new_cache())
}

# Which blocks are kept in part, and their bits.
.mask_bits <- function(keep, frame, at) {
  width <- 8 * .mask_line(frame)
  found <- .ask(keep, frame, at)
  partial <- colSums(found$kept) < colSums(found$inside)
  bits <- array(FALSE, c(width, frame[3L], sum(partial)))
  bits[seq_len(frame[4L]), , ] <- found$kept[, partial]
  list(partial = partial, bits = packBits(bits, "raw"))
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
  bits <- tartan_block_mask_get_bits(x, nrow(at) * frame[3L] * .mask_line(frame))
  bits <- array(rawToBits(bits) == as.raw(1), c(width, frame[3L], nrow(at)))
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
  if (n == 4L) { # the usual case
    view[[3L]] <- view[[3L]][c(1L, 2L, 4L, 3L)]
    view[[4L]] <- view[[4L]][c(1L, 2L, 4L, 3L)]
    return(view)
  }
  order <- if (n > 1L) c(seq_len(n - 2L), n, n - 1L) else 1L
  view[[3L]] <- c(rep(1, ndim - n), view[[3L]][order])
  view[[4L]] <- c(rep(1, ndim - n), view[[4L]][order])
  view
}
.size_of <- function(x) {
  as.double(if (isS4(x) && class(x)[1L] == "DeviceArray") x@size else if (is.null(dim(x))) length(x) else dim(x))
}
.by <- function(size) paste(size, collapse = " x ")

# C's view of an array of d x tokens x heads x batch, or of tokens x heads x batch.
.tensor <- function(x, name, size = .size_of(x)) {
  view <- .operand(x, name)
  if (length(size) < 2L || length(size) > 4L) {
    .fail("shape", "%s has %d dimensions, expected 2 to 4: d x tokens x heads x batch", name, length(size))
  }
  .tokens(view)
}
.log_sums <- function(lse) .tokens(.operand(lse, "lse"), 3L)

# C's views of q, k and v, and their sizes. Refuses sizes that do not fit, in R's order of dimensions.
.attention_inputs <- function(q, k, v, layout) {
  nq <- .size_of(q)
  nk <- .size_of(k)
  nv <- .size_of(v)
  views <- list(q = .tensor(q, "q", nq), k = .tensor(k, "k", nk), v = .tensor(v, "v", nv))
  frame <- if (class(layout)[1L] == "BlockLayout") layout@frame else .any_layout_of(layout, "layout")@frame
  if (nq[2L] != frame[1L]) .fail("shape", "q is %s, expected %.0f tokens, the rows of the layout", .by(nq), frame[1L])
  if (nk[2L] != frame[2L]) .fail("shape", "k is %s, expected %.0f tokens, the columns of the layout", .by(nk), frame[2L])
  batch <- function(size) if (length(size) == 4L) size[4L] else 1
  if (nk[1L] != nq[1L] || batch(nk) != batch(nq)) {
    .fail("shape", "k is %s, expected d = %.0f and a batch of %.0f, as q", .by(nk), nq[1L], batch(nq))
  }
  if (!identical(nv[-1L], nk[-1L])) .fail("shape", "v is %s, expected %s, as k but for d", .by(nv), .by(nk))
  list(views = views, sizes = list(q = nq, k = nk, v = nv), out = c(nv[1L], nq[-1L]))
}

.expect_like <- function(x, size, name, of) {
  if (!identical(.size_of(x), size)) .fail("shape", "%s is %s, expected %s, %s", name, .by(.size_of(x)), .by(size), of)
}

# The bias that is given: what C calls it, the user's array, and C's view of it.
.one_bias <- function(slopes, distance_bias, block_bias, mask = NULL) {
  if (!is.numeric(mask) && !inherits(mask, "DeviceArray")) mask <- NULL
  if (is.null(slopes) && is.null(distance_bias) && is.null(block_bias) && is.null(mask)) return(list())
  given <- list(slopes = slopes, distance_bias = distance_bias, block_bias = block_bias, mask = mask)
  given <- given[!vapply(given, is.null, NA)]
  if (length(given) > 1L) {
    .fail("argument", "%s and %s are given, expected at most one bias", names(given)[1L], names(given)[2L])
  }
  kind <- names(given)
  array <- given[[1L]]
  view <- if (kind == "slopes") array else if (kind == "mask") .scores_view(array) else .tokens(.operand(array, kind), 2L)
  list(kind = if (kind == "mask") "dense" else sub("_bias$", "", kind), array = array, view = view)
}

# C's view [batch, heads, queries, keys] of queries x keys x heads x batch.
.scores_view <- function(x) {
  n <- length(.size_of(x))
  if (n < 2L || n > 4L) .fail("shape", "mask is %s, expected queries x keys x heads x batch", .by(.size_of(x)))
  .four(.operand(x, "mask"))
}
.four <- function(view) {
  added <- rep(1, 4L - length(view[[3L]]))
  view[[3L]] <- c(added, view[[3L]])
  view[[4L]] <- c(added, view[[4L]])
  view
}

# The layout, the mask and whether the layout is one by batch entries, with a mask that is a logical array and with lengths of
# keys.
.attention_masks <- function(q, layout, mask, key_lengths, block_bias, by_batch) {
  by_batch <- .flag(by_batch, "by_batch")
  array <- if (is.logical(mask)) mask
  if (!is.null(array) && length(dim(array)) < 2L) {
    .fail("argument", "mask is %s, expected a BlockMask, or an array of queries x keys (x heads (x batch))", .shown(mask))
  }
  numbers <- is.numeric(mask) || inherits(mask, "DeviceArray")
  if (!is.null(array) || numbers) mask <- NULL else if (!is.null(mask)) .expect(mask, "BlockMask", "mask")
  if (is.null(array) && is.null(key_lengths)) return(list(layout = layout, mask = mask, by_batch = by_batch))
  if (!is.null(block_bias)) {
    .fail("argument", "block_bias is given with a logical mask or key_lengths, expected a layout and a BlockMask made of these")
  }
  layout <- .expect_layout(layout, "layout")
  size <- .size_of(q)
  counts <- c(if (length(size) == 4L) size[4L] else 1, if (length(size) > 2L) size[3L] else 1) # batch, heads
  own <- block_heads(layout)
  has <- if (own == 1) c(FALSE, FALSE) else if (by_batch) c(TRUE, FALSE) else c(own != counts[2L], TRUE)
  wants <- has
  if (!is.null(array)) {
    n <- c(dim(array), 1, 1)[3:4]
    if (!length(dim(array)) %in% 2:4 || anyNA(array) || !all(dim(array)[1:2] == dim(layout)) ||
          !all(n == 1 | n == rev(counts))) {
      .fail("shape", "mask is %s, expected TRUE and FALSE of queries x keys (x heads (x batch)): %s", paste(dim(array), collapse = " x "),
            paste(c(dim(layout), rev(counts)), collapse = " x "))
    }
    wants <- wants | rev(n > 1)
  }
  if (!is.null(key_lengths)) wants[1L] <- TRUE
  entries <- seq_len(if (wants[1L]) counts[1L] else 1)
  heads <- seq_len(if (wants[2L]) counts[2L] else 1)
  at <- expand.grid(head = heads, entry = entries)
  if (any(wants != has)) {
    of <- (at$entry - 1) * has[1L] * (if (has[2L]) counts[2L] else 1) + (at$head - 1) * has[2L] + 1
    taken <- block_take_heads(layout, of)
    if (!is.null(mask)) {
      elements <- as.array(mask)
      dim(elements) <- c(dim(layout), own)
      mask <- attention_mask(taken, elements[, , of])
    }
    layout <- taken
  }
  if (!is.null(array)) {
    dim(array) <- c(dim(layout), prod(n))
    planes <- array[, , pmin(at$head, n[1L]) + (pmin(at$entry, n[2L]) - 1) * n[1L]]
    hidden <- attention_mask(layout, planes)
    mask <- if (is.null(mask)) hidden else mask & hidden
  }
  if (!is.null(key_lengths)) {
    if (length(key_lengths) != counts[1L]) {
      .fail("shape", "key_lengths has length %d, expected %.0f, one for each batch entry", length(key_lengths), counts[1L])
    }
    hidden <- padded_mask(layout, key_lengths)
    places <- block_coordinates(layout)
    own <- block_heads(layout) / counts[1L]
    seen <- (places$col - 1) * block_dim(layout)[2L] < key_lengths[ceiling(places$head / own)]
    if (!all(seen)) { # blocks without any other key go
      layout <- block_prune(layout, seen)
      hidden <- padded_mask(layout, key_lengths)
      if (!is.null(mask)) mask <- mask_project(mask, layout)
    }
    mask <- if (is.null(mask)) hidden else mask & hidden
  }
  list(layout = layout, mask = mask, by_batch = wants[1L] && !wants[2L])
}

.attention_options <- function(scale, causal, query_offset, causal_from, bias, dropout, seed, softcap, by_batch,
                               deterministic = TRUE) {
  number <- function(x, name) {
    if (!is.numeric(x) || length(x) != 1L) .fail("argument", "%s is %s, expected a number", name, .shown(x))
    if (is.finite(x)) paste0(name, "=", tartan_r_decimal(x)) else .fail("argument", "%s is %s, expected a finite number", name, .shown(x))
  }
  whole <- function(x, name, least, usual) {
    if (identical(x, usual)) return(NULL)
    x <- .count(x, name, least) - usual
    if (x != 0) sprintf("%s=%.0f", name, x)
  }
  words <- c(if (.flag(causal, "causal")) "causal=1", if (length(bias)) paste0("bias_kind=", bias$kind),
             if (by_batch) "by_batch=1", if (!identical(softcap, 0)) number(softcap, "softcap"),
             if (!is.null(scale)) number(scale, "scale"), if (!identical(dropout, 0)) number(dropout, "dropout"),
             whole(query_offset, "query_offset", -2^40, 0), whole(causal_from, "causal_from", 1, 1),
             whole(seed, "seed", 0, 0), if (!.flag(deterministic, "deterministic")) "deterministic=0")
  if (length(words)) paste(words, collapse = " ")
}

attention <- function(q, k, v, layout, scale = NULL, causal = FALSE, query_offset = 0, causal_from = 1, mask = NULL,
                      slopes = NULL, distance_bias = NULL, block_bias = NULL, sinks = NULL, dropout = 0, seed = 0,
                      return_lse = FALSE, softcap = 0, by_batch = FALSE, key_lengths = NULL) {
  operands <- list(q = q, k = k, v = v, slopes = slopes, distance_bias = distance_bias, block_bias = block_bias, sinks = sinks)
  if (tartan_r_any_tracked(operands)) {
    options <- .given(scale = scale, causal = causal, query_offset = query_offset, causal_from = causal_from, mask = mask, dropout = dropout,
                      seed = seed, softcap = softcap, by_batch = by_batch, key_lengths = key_lengths)
    return(.record_attention(do.call(.given, operands), layout, options, .flag(return_lse, "return_lse")))
  }
  bias <- .one_bias(slopes, distance_bias, block_bias, mask)
  seen <- .attention_masks(q, layout, mask, key_lengths, block_bias, by_batch)
  layout <- seen$layout
  options <- .attention_options(scale, causal, query_offset, causal_from, bias, dropout, seed, softcap, seen$by_batch)
  place <- .place(q = q, k = k, v = v, bias = bias$array, sinks = sinks)
  given <- .attention_inputs(q, k, v, layout)
  dtype <- if (is.null(place)) "float64" else q@dtype
  out <- .result(place, given$out, dtype)
  lse <- if (.flag(return_lse, "return_lse")) .result(place, given$sizes$q[-1L], .result_dtype(dtype))
  tartan_r_run_views("attention_forward", place, options,
                     c(list(layout = .any_layout_of(layout, "layout")), given$views,
                       list(block_mask = seen$mask, bias = bias$view, sinks = sinks, out = .tokens(out),
                            lse = if (return_lse) .tokens(lse, 3L))))
  result <- .value(out)
  if (is.null(place)) dimnames(result) <- .attention_names(q, v)
  if (return_lse) list(out = result, lse = .value(lse)) else result
}

# Tokens, heads and batch are named as those of q, the numbers of a token as those of v.
.attention_names <- function(q, v) {
  names <- dimnames(q)
  own <- dimnames(v)[1L]
  if (is.null(names) && is.null(unlist(own))) return(NULL)
  if (is.null(names)) names <- rep(list(NULL), length(dim(q)))
  names[1L] <- if (is.null(own)) list(NULL) else own
  names
}

# What gradients read beside the inputs: C's views of out, lse and out_grad.
.attention_results <- function(out, lse, out_grad, given) {
  .expect_like(out, given$out, "out", "as q, with the numbers of v")
  .expect_like(out_grad, given$out, "out_grad", "as q, with the numbers of v")
  .expect_like(lse, given$sizes$q[-1L], "lse", "tokens, heads and batch of q")
  list(out = .tensor(out, "out"), lse = .log_sums(lse), out_grad = .tensor(out_grad, "out_grad"))
}

attention_gradient <- function(q, k, v, layout, out, lse, out_grad, scale = NULL, causal = FALSE, query_offset = 0,
                               causal_from = 1, mask = NULL, slopes = NULL, distance_bias = NULL, block_bias = NULL,
                               sinks = NULL, dropout = 0, seed = 0, deterministic = TRUE, softcap = 0,
                               by_batch = FALSE, key_lengths = NULL) {
  bias <- .one_bias(slopes, distance_bias, block_bias, mask)
  seen <- .attention_masks(q, layout, mask, key_lengths, block_bias, by_batch)
  layout <- seen$layout
  options <- .attention_options(scale, causal, query_offset, causal_from, bias, dropout, seed, softcap, seen$by_batch,
                                deterministic)
  place <- .place(q = q, k = k, v = v, bias = bias$array, out = out, lse = lse, out_grad = out_grad)
  given <- .attention_inputs(q, k, v, layout)
  read <- .attention_results(out, lse, out_grad, given)
  dtype <- if (is.null(place)) "float64" else q@dtype
  grads <- lapply(given$sizes, function(size) .result(place, size, dtype))
  tartan_r_run_views("attention_backward", place, options,
                     c(list(layout = .any_layout_of(layout, "layout")), given$views, list(block_mask = seen$mask, bias = bias$view), read,
                       list(q_grad = .tokens(grads$q), k_grad = .tokens(grads$k), v_grad = .tokens(grads$v))))
  lapply(grads, .value)
}

attention_bias_gradient <- function(q, k, v, layout, out, lse, out_grad, scale = NULL, causal = FALSE, query_offset = 0,
                                    causal_from = 1, mask = NULL, slopes = NULL, distance_bias = NULL, block_bias = NULL,
                                    sinks = NULL, dropout = 0, seed = 0, softcap = 0, by_batch = FALSE,
                                    key_lengths = NULL) {
  bias <- .one_bias(slopes, distance_bias, block_bias, mask)
  seen <- .attention_masks(q, layout, mask, key_lengths, block_bias, by_batch)
  layout <- seen$layout
  options <- .attention_options(scale, causal, query_offset, causal_from, bias, dropout, seed, softcap, seen$by_batch)
  if (!length(bias) && is.null(sinks)) .fail("argument", "no bias and no sinks are given, expected at least one of them")
  place <- .place(q = q, k = k, v = v, bias = bias$array, sinks = sinks, out = out, lse = lse, out_grad = out_grad)
  given <- .attention_inputs(q, k, v, layout)
  read <- .attention_results(out, lse, out_grad, given)
  dtype <- .result_dtype(if (is.null(place)) "float64" else q@dtype)
  grads <- list()
  if (length(bias)) grads$bias <- .result(place, .size_of(bias$array), dtype)
  if (!is.null(sinks)) grads$sinks <- .result(place, .size_of(sinks), dtype)
  bias_view <- if (!length(bias) || bias$kind == "slopes") grads$bias
               else if (bias$kind == "dense") .four(grads$bias) else .tokens(grads$bias, 2L)
  tartan_r_run_views("attention_bias_gradient", place, options,
                     c(list(layout = .any_layout_of(layout, "layout")), given$views, list(block_mask = seen$mask, bias = bias$view, sinks = sinks), read,
                       list(bias_grad = bias_view, sinks_grad = grads$sinks)))
  lapply(grads, .value)
}
