# SPDX-License-Identifier: Apache-2.0
# The bottleneck unit of residual networks in the active windows of an image.

# A convolution of a unit: its number of dimensions is that of the unit.
.unit_part <- function(part, name, dims) {
  if (!is.list(part) || length(setdiff(names(part), c("conv", "filter", "gain", "bias"))) || is.null(part$conv) ||
        is.null(part$filter) || length(part) != length(unique(names(part)))) {
    .fail("argument", "%s is %s, expected list(conv = , filter = ), perhaps with gain and bias", name, .shown(part))
  }
  .expect_filter(part$filter, part$conv)
  if (length(part$conv@kernel) != dims) {
    .fail("shape", "%s has %d spatial dimensions, expected %d, as many as spatial", name, length(part$conv@kernel), dims)
  }
  part
}
.unit_factor <- function(x, name, channels, dtype) {
  if (is.null(x)) return(NULL)
  size <- .size_of(x)
  if (!identical(as.double(size), as.double(channels))) {
    .fail("shape", "%s is %s, expected %.0f channels", name, .by(size), channels)
  }
  .factor_view(.operand(x, name, .result_dtype(dtype)))
}

residual_unit <- function(x, reduce, spatial, expand, active, windows, relu = TRUE, preactivate = FALSE, x_gain = NULL,
                          x_bias = NULL) {
  parts <- unlist(Filter(is.list, list(reduce, spatial, expand)), recursive = FALSE)
  if (tartan_r_any_tracked(c(list(x, x_gain, x_bias), parts))) {
    .fail("unsupported", "residual_unit has no gradient, expected window_gather, conv_forward and window_scatter, which have theirs")
  }
  if (!is.list(spatial) || !inherits(spatial$conv, "BlockConv")) {
    .fail("argument", "spatial is %s, expected list(conv = , filter = ), perhaps with gain and bias", .shown(spatial))
  }
  dims <- length(spatial$conv@kernel)
  parts <- list(reduce = .unit_part(reduce, "reduce", dims), spatial = .unit_part(spatial, "spatial", dims),
                expand = .unit_part(expand, "expand", dims))
  dtype <- parts$spatial$filter@dtype
  for (name in names(parts)) {
    if (parts[[name]]$filter@dtype != dtype) {
      .fail("dtype", "the filter of %s is %s, expected %s, as that of spatial", name, parts[[name]]$filter@dtype, dtype)
    }
  }
  place <- .place(x = x, reduce = reduce$filter, spatial = spatial$filter, expand = expand$filter, x_gain = x_gain,
                  x_bias = x_bias)
  full <- .image_size(x, dims, "x")
  .expect_channels(full, reduce$conv, 1L, "x")
  if (is.null(active) && is.null(windows)) .fail("argument", "active and windows are NULL, expected the active windows and their sizes")
  text <- .active_option(active, windows, full, dims)
  channels <- full[dims + 1L]
  result <- .result(place, .size_of(x), dtype)
  options <- sprintf("relu=%d preactivate=%d %s", .flag(relu, "relu"), .flag(preactivate, "preactivate"), text)
  parts <- lapply(names(parts), function(name) {
    part <- parts[[name]]
    found <- list(part$conv, part$filter, .unit_factor(part$gain, paste0("gain of ", name), part$conv@channels[2L], dtype),
                  .unit_factor(part$bias, paste0("bias of ", name), part$conv@channels[2L], dtype))
    stats::setNames(found, paste0(name, c("", "_filter", "_gain", "_bias")))
  })
  operands <- c(list(x = .image_view(.operand(x, "x", dtype), dims), x_gain = .unit_factor(x_gain, "x_gain", channels, dtype),
                     x_bias = .unit_factor(x_bias, "x_bias", channels, dtype)),
                parts[[1L]], parts[[2L]], parts[[3L]],
                list(active = .any_layout_of(active), y = .image_view(result, dims)))
  .dimensions_from_one(tartan_r_run_views("residual_forward", place, options, operands))
  .value(result)
}
