# SPDX-License-Identifier: Apache-2.0
# Gradients of attention, convolutions and windows, for value_and_gradient(). The functions themselves come here with their arguments
# when one of these is Tracked.

# Drops what is NULL: do.call then takes defaults.
.given <- function(...) Filter(Negate(is.null), list(...))


# ---- Attention ----

.record_attention <- function(operands, layout, options, return_lse) {
  values <- lapply(operands, untracked)
  bias <- intersect(names(operands), c("slopes", "distance_bias", "block_bias"))
  found <- do.call(attention, c(values, list(layout = layout), options, return_lse = TRUE))
  wanted <- names(operands)[vapply(operands, .is_tracked, NA)]
  pullback <- function(grads) {
    if (!is.null(grads[[2L]])) .fail("unsupported", "lse of attention has no gradient, expected only its use as a constant (untracked)")
    given <- c(list(q = values$q, k = values$k, v = values$v, layout = layout, out = found$out, lse = found$lse, out_grad = grads[[1L]]),
               options)
    own <- if (any(c("q", "k", "v") %in% wanted)) do.call(attention_gradient, c(given, values[bias]))
    rest <- intersect(names(operands), c(bias, "sinks"))
    terms <- if (any(rest %in% wanted)) do.call(attention_bias_gradient, c(given, values[rest]))
    if (length(bias)) names(terms)[names(terms) == "bias"] <- bias
    all <- c(own, terms)
    Map(function(name, value) if (name %in% wanted) .like(all[[name]], value), names(values), values)
  }
  recorded <- .record(operands, found, pullback)
  if (return_lse) stats::setNames(recorded, c("out", "lse")) else recorded[[1L]]
}

# ---- Convolutions ----

# The filter's product alone, in the active windows.
.record_conv <- function(conv, filter, x, active, windows, size) {
  values <- list(filter = untracked(filter), x = untracked(x))
  in_size <- .size_of(values$x)[seq_along(conv@kernel)]
  y <- conv_forward(conv, values$filter, values$x, active = active, windows = windows, size = size)
  .record_one(list(filter, x), y, function(g) {
    list(if (.is_tracked(filter)) {
           block_cast(conv_filter_gradient(conv, values$x, g, active = active, windows = windows), values$filter@dtype)
         },
         if (.is_tracked(x)) {
           .like(conv_input_gradient(conv, values$filter, g, size = in_size, active = active, windows = windows), values$x)
         })
  })
}

# The steps of conv_forward one by one: each has its own gradient.
.record_conv_forward <- function(conv, filter, x, gain, bias, relu, bias_first, active, windows, size, y, add) {
  .expect(conv, "BlockConv", "conv")
  at <- seq_along(conv@kernel)
  if (.flag(add, "add") && is.null(y)) .fail("argument", "add is TRUE without y, expected an array to add to")
  if (!is.null(y)) size <- dim(y)[at]
  result <- if (.is_tracked(filter) || .is_tracked(x)) .record_conv(conv, filter, x, active, windows, size)
            else conv_forward(conv, filter, x, active = active, windows = windows, size = size)
  if (!is.null(gain) || !is.null(bias) || .flag(relu, "relu")) {
    in_size <- c(dim(x)[at], if (conv@transposed) dim(result)[at])
    result <- channel_linear(result, gain = gain, bias = bias, relu = relu, bias_first = bias_first, conv = conv, size = in_size)
  }
  if (!is.null(active)) {
    inside <- window_gather(result, active, windows)
    return(window_scatter(inside, active, windows, if (is.null(y)) .zero_like(untracked(result)) else y, add = add))
  }
  if (add) tartan_add(y, result) else result
}

# ---- Windows ----

.record_window_gather <- function(x, active, windows) {
  value <- untracked(x)
  .record_one(list(x), window_gather(value, active, windows), function(g) {
    list(.like(window_scatter(g, active, windows, .zero_like(value), add = TRUE), value))
  })
}

.record_window_scatter <- function(blocks, active, windows, y, add) {
  values <- list(blocks = untracked(blocks), y = untracked(y))
  result <- window_scatter(values$blocks, active, windows, values$y, add = add)
  .record_one(list(blocks, y), result, function(g) {
    list(if (.is_tracked(blocks)) .like(window_gather(g, active, windows), values$blocks),
         if (.is_tracked(y)) .like(if (add) g else window_scatter(NULL, active, windows, g), values$y))
  })
}
