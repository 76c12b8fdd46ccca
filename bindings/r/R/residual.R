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
  if (!is.list(spatial) || !methods::is(spatial$conv, "BlockConv")) {
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
  text <- .active_text(active, windows, full, dims)
  if (is.null(text)) .fail("argument", "active and windows are NULL, expected the active windows and their sizes")
  factors <- lapply(names(parts), function(name) {
    part <- parts[[name]]
    list(gain = .unit_factor(part$gain, paste0("gain of ", name), part$conv@channels[2L], dtype),
         bias = .unit_factor(part$bias, paste0("bias of ", name), part$conv@channels[2L], dtype))
  })
  channels <- full[dims + 1L]
  result <- .result(place, .size_of(x), dtype)
  options <- sprintf("relu=%d preactivate=%d", .flag(relu, "relu"), .flag(preactivate, "preactivate"))
  .dimensions_from_one(tartan_residual_forward(
    place, .image_view(.operand(x, "x", dtype), dims), .unit_factor(x_gain, "x_gain", channels, dtype),
    .unit_factor(x_bias, "x_bias", channels, dtype),
    reduce$conv, reduce$filter, factors[[1L]]$gain, factors[[1L]]$bias,
    spatial$conv, spatial$filter, factors[[2L]]$gain, factors[[2L]]$bias,
    expand$conv, expand$filter, factors[[3L]]$gain, factors[[3L]]$bias,
    options, active, text, .image_view(result, dims)))
  .value(result)
}
