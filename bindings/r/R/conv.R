# SPDX-License-Identifier: Apache-2.0
# Convolutions with block-sparse filters. Images are h x w x channels x n; see windows.R.

# ---- The geometry ----

block_conv <- function(channels, kernel, stride = 1, dilation = 1, padding = "valid", transposed = FALSE, per_tap = FALSE) {
  layout <- .expect_layout(channels, "channels")
  geometry <- .geometry(kernel, stride, dilation, padding, transposed)
  if (.flag(per_tap, "per_tap")) geometry$text <- paste(geometry$text, "per_tap=1")
  .new_conv(layout, geometry, block_elements(layout))
}

block_conv_from_sets <- function(in_channels, out_channels, blocks, kernel, stride = 1, dilation = 1, padding = "valid",
                                 transposed = FALSE) {
  geometry <- .geometry(kernel, stride, dilation, padding, transposed)
  if (!is.list(blocks) || !all(lengths(blocks) == 2L) || !all(vapply(blocks, is.list, NA))) {
    .fail("argument", "blocks is %s, expected a list of lists of two: input and output channels", .shown(blocks))
  }
  sides <- list(.channel_lists(lapply(blocks, `[[`, 1L), .count(in_channels, "in_channels"), "input"),
                .channel_lists(lapply(blocks, `[[`, 2L), .count(out_channels, "out_channels"), "output"))
  weights <- sum(diff(sides[[1L]]$offsets) * diff(sides[[2L]]$offsets))
  .new_conv(if (transposed) rev(sides) else sides, geometry, weights)
}

.channel_lists <- function(lists, count, side) {
  for (b in seq_along(lists)) {
    ids <- lists[[b]]
    bad <- if (.is_whole(ids)) which(ids < 1 | ids > count) else 1L
    if (length(bad)) {
      .fail("argument", "the %s channels of block %d are %s, expected whole numbers from 1 to %.0f", side, b, .shown(ids), count)
    }
    if (anyDuplicated(ids)) {
      .fail("argument", "the %s channels of block %d have %.0f twice, expected each once", side, b, ids[anyDuplicated(ids)])
    }
  }
  list(count = count, offsets = c(0, cumsum(as.double(lengths(lists)))),
       ids = as.double(unlist(lists, use.names = FALSE)) - 1)
}

# C's options, and the numbers that R needs.
.geometry <- function(kernel, stride, dilation, padding, transposed) {
  dims <- .dimensions(kernel)
  kernel <- .spatial(kernel, dims, "kernel")
  stride <- .spatial(stride, dims, "stride")
  words <- c(kernel = .by_x(kernel), stride = .by_x(stride), dilation = .by_x(.spatial(dilation, dims, "dilation")),
             padding = .padding(padding, dims), if (.flag(transposed, "transposed")) c(transposed = "1"))
  list(kernel = kernel, stride = stride, transposed = transposed, text = paste(names(words), words, sep = "=", collapse = " "))
}

.padding <- function(padding, dims) {
  if (is.character(padding)) return(.choose(padding, c("valid", "same", "tf", "half"), "padding"))
  if (!is.matrix(padding)) return(.by_x(.spatial(padding, dims, "padding", 0)))
  if (!identical(dim(padding), c(2L, dims)) || !.is_whole(padding) || any(padding < 0)) {
    .fail("argument", "padding is a matrix of %s, expected 2 x %d whole numbers from 0: before and after each dimension",
          .by(dim(padding)), dims)
  }
  paste(sprintf("%.0f:%.0f", padding[1L, ], padding[2L, ]), collapse = "x")
}

# `source`: the layout of channels, or the lists of columns and rows of the filter.
.make_conv <- function(conv) {
  from <- conv@source
  if (inherits(from, "BlockLayout")) return(tartan_conv_create(from, conv@options))
  tartan_conv_from_sets(from[[1L]], from[[2L]], conv@options)
}
.new_conv <- function(source, geometry, weights) {
  conv <- methods::new("BlockConv", source = source, options = geometry$text, kernel = geometry$kernel,
                       stride = geometry$stride, transposed = geometry$transposed,
                       weights = weights * prod(geometry$kernel), handle = tartan_r_new_cache())
  conv@layout <- .new_layout(tartan_conv_get_layout(conv))
  conv@channels <- c(tartan_conv_in_channels(conv), tartan_conv_out_channels(conv))
  conv
}

close.BlockConv <- close.BlockLayout
setMethod("show", "BlockConv", function(object) {
  cat("BlockConv of ", object@channels[1L], " to ", object@channels[2L], " channels, ", object@options, .closed(object), "\n",
      sep = "")
})

conv_layout <- function(conv) {
  .expect(conv, "BlockConv", "conv")
  conv@layout
}

conv_size <- function(conv, size) {
  .expect(conv, "BlockConv", "conv")
  dims <- length(conv@kernel)
  .dimensions_from_one(tartan_conv_output_size(conv, .spatial(size, dims, "size", 0), dims))
}

conv_edge_classes <- function(conv, size, out_size = NULL) {
  found <- conv_size(conv, size)
  dims <- length(found)
  lengths <- .spatial(size, dims, "size", 0)
  if (!is.null(out_size)) {
    found <- .spatial(out_size, dims, "out_size", 0)
    lengths <- c(lengths, found)
  }
  classes <- .dimensions_from_one(tartan_conv_edge_classes(conv, lengths, prod(found)))
  if (dims > 1L) classes <- aperm(array(classes, rev(found)), dims:1) # C's order is row-major
  classes + 1
}

# ---- Filters ----

.dense_filter_size <- function(conv) c(conv@kernel, if (conv@transposed) rev(conv@channels) else conv@channels)

conv_filter <- function(conv, values, dtype = "float64") {
  .expect(conv, "BlockConv", "conv")
  filter <- .matrix_of_zeros(NULL, conv@layout, .dtype_name(dtype))
  if (!is.numeric(values) && !is.logical(values)) .fail("argument", "values is %s, expected numbers", .shown(values))
  if (is.null(dim(values))) {
    if (length(values) != conv@weights) {
      .fail("shape", "values has length %d, expected %.0f, or an array of %s", length(values), conv@weights,
            .by(.dense_filter_size(conv)))
    }
    tartan_conv_filter_from_sets(conv, as.double(values), filter)
  } else {
    .expect_like(values, .dense_filter_size(conv), "values",
                 if (conv@transposed) "kernel, output and input channels" else "kernel, input and output channels")
    tartan_conv_filter_from_dense(conv, .image_view(.operand(values, "values"), length(conv@kernel)), filter)
  }
  filter
}

.expect_filter <- function(filter, conv, name = "filter") {
  .expect(conv, "BlockConv", "conv")
  .expect_any_matrix(filter, name)
  if (inherits(filter@layout, "BlockLayout") && filter@layout@identity != conv@layout@identity) {
    .fail("layout", "%s has another layout than the convolution, expected a matrix on conv_layout(conv)", name)
  }
}

conv_dense <- function(conv, filter) {
  .expect_filter(filter, conv)
  result <- .result(NULL, .dense_filter_size(conv), filter@dtype)
  tartan_conv_filter_to_dense(conv, filter, .image_view(result, length(conv@kernel)))
  .value(result)
}

conv_values <- function(conv, filter) {
  .expect_filter(filter, conv)
  result <- .result(NULL, conv@weights, filter@dtype)
  tartan_conv_filter_to_sets(conv, filter, result)
  .value(result)
}

# ---- The passes ----

.expect_channels <- function(size, conv, side, name) {
  dims <- length(conv@kernel)
  if (size[dims + 1L] != conv@channels[side]) {
    .fail("shape", "%s is %s, expected %.0f channels in dimension %d", name, .by(size), conv@channels[side], dims + 1L)
  }
}
# Refuses results whose size does not belong to that of the input.
.expect_conv_sizes <- function(conv, x_size, y_size, xname, yname) {
  .expect_channels(x_size, conv, 1L, xname)
  .expect_channels(y_size, conv, 2L, yname)
  at <- seq_along(conv@kernel)
  least <- conv_size(conv, x_size[at])
  most <- if (conv@transposed) least + conv@stride - 1 else least
  if (any(y_size[at] < least | y_size[at] > most) || y_size[length(at) + 2L] != x_size[length(at) + 2L]) {
    wanted <- ifelse(least == most, sprintf("%.0f", least), sprintf("%.0f to %.0f", least, most))
    .fail("shape", "%s is %s, expected %s and %.0f images, which belong to %s of %s", yname, .by(y_size),
          .by(wanted), x_size[length(at) + 2L], xname, .by(x_size))
  }
}

# C's option for the windows of images of this size.
.active_option <- function(active, windows, size, dims) {
  if (is.null(active) != is.null(windows)) {
    .fail("argument", "only one of active and windows is given, expected both or none")
  }
  if (is.null(active)) return("")
  .expect_windows(windows, dims)
  .expect_active(active, windows, size[dims + 2L])
  if (any(windows$stride < windows$size)) {
    .fail("argument", "windows may overlap (%s), expected strides that are at least the size", as.character(windows))
  }
  .windows_option(windows)
}

# gain or bias: a number for each output channel, or a column for each edge class, of which there are `classes`.
.conv_factor <- function(x, name, conv, size, out_size, dtype) {
  if (is.null(x)) return(NULL)
  found <- .size_of(x)
  if (length(found) > 2L || found[1L] != conv@channels[2L]) {
    .fail("shape", "%s is %s, expected %.0f channels, or these x edge classes", name, .by(found), conv@channels[2L])
  }
  if (length(found) == 2L) {
    classes <- max(1, conv_edge_classes(conv, size, if (conv@transposed) out_size))
    if (found[2L] != classes) {
      .fail("shape", "%s is %s, expected %.0f channels, or %.0f x %.0f with a column for each edge class", name, .by(found),
            found[1L], found[1L], classes)
    }
  }
  .factor_view(.operand(x, name, .result_dtype(dtype)))
}
.factor_view <- function(view) {
  size <- view[[5L]]
  .view(view[[1L]], rev(size), rev(.column_strides(size)), view[[2L]])
}

conv_forward <- function(conv, filter, x, gain = NULL, bias = NULL, relu = FALSE, bias_first = FALSE, active = NULL,
                         windows = NULL, size = NULL, y = NULL, add = FALSE) {
  if (tartan_r_any_tracked(list(filter, x, gain, bias, y))) {
    return(.record_conv_forward(conv, filter, x, gain, bias, relu, bias_first, active, windows, size, y, add))
  }
  .expect_filter(filter, conv)
  dims <- length(conv@kernel)
  at <- seq_len(dims)
  place <- .place(x = x, filter = filter, gain = gain, bias = bias, y = y)
  x_size <- .image_size(x, dims, "x")
  .expect_channels(x_size, conv, 1L, "x")
  if (.flag(add, "add") && is.null(y)) .fail("argument", "add is TRUE without y, expected an array to add to")
  out_size <- if (!is.null(y)) .image_size(y, dims, "y")[at]
              else if (is.null(size)) conv_size(conv, x_size[at]) else .spatial(size, dims, "size", 0)
  y_size <- if (is.null(y)) c(out_size, conv@channels[2L], .size_of(x)[-seq_len(dims + 1L)]) else .size_of(y)
  full <- if (length(y_size) == dims + 1L) c(y_size, 1) else y_size
  .expect_conv_sizes(conv, x_size, full, "x", "y")
  text <- .active_option(active, windows, full, dims)
  out <- .result_dtype(filter@dtype)
  factors <- lapply(c(gain = "gain", bias = "bias"), function(name) {
    .conv_factor(get(name), name, conv, x_size[at], out_size, filter@dtype)
  })
  result <- if (!is.null(y)) .start(place, y, y_size, out)
            else if (is.null(place) && !is.null(active)) .operand(array(0, y_size), "y", out) # written in place
            else .result(place, y_size, out) # new memory of a device is 0 already
  options <- sprintf("relu=%d bias_first=%d add=%d %s", .flag(relu, "relu"), .flag(bias_first, "bias_first"), add, text)
  tartan_r_run_views("conv_forward", place, options,
                     list(conv = conv, filter = filter, x = .image_view(.operand(x, "x", filter@dtype), dims),
                          gain = factors$gain, bias = factors$bias, active = if (!is.null(active)) .any_layout_of(active), y = .image_view(result, dims)))
  .value(result)
}
# A result that starts as a copy of y.
.start <- function(place, y, size, dtype) {
  if (!is.null(place) || dtype == "float64") return(.result_from(place, y, "y"))
  view <- .operand(y, "y", dtype)
  result <- .result(NULL, size, dtype)
  result[[1L]] <- view[[1L]]
  result
}

conv_input_gradient <- function(conv, filter, y_grad, size = NULL, active = NULL, windows = NULL) {
  .expect_filter(filter, conv)
  dims <- length(conv@kernel)
  at <- seq_len(dims)
  place <- .place(y_grad = y_grad, filter = filter)
  y_size <- .image_size(y_grad, dims, "y_grad")
  .expect_channels(y_size, conv, 2L, "y_grad")
  in_size <- if (is.null(size)) .input_size(conv, y_size[at]) else .spatial(size, dims, "size", 0)
  x_size <- c(in_size, conv@channels[1L], .size_of(y_grad)[-seq_len(dims + 1L)])
  .expect_conv_sizes(conv, c(x_size, 1)[seq_len(dims + 2L)], y_size, "x_grad", "y_grad")
  text <- .active_option(active, windows, y_size, dims)
  result <- .result(place, x_size, .result_dtype(filter@dtype))
  tartan_r_run_views("conv_input_gradient", place, text,
                     list(conv = conv, filter = filter, y_grad = .image_view(.operand(y_grad, "y_grad", filter@dtype), dims),
                          active = if (!is.null(active)) .any_layout_of(active), x_grad = .image_view(result, dims)))
  .value(result)
}
.input_size <- function(conv, size) {
  if (any(conv@stride != 1)) {
    .fail("argument", "size is not given, expected the spatial lengths of x, since stride is not 1")
  }
  large <- rep_len(2^20, length(size)) # lengths differ by a constant
  pmax(size + large - conv_size(conv, large), 0)
}

conv_filter_gradient <- function(conv, x, y_grad, active = NULL, windows = NULL) {
  .expect(conv, "BlockConv", "conv")
  dims <- length(conv@kernel)
  place <- .place(x = x, y_grad = y_grad)
  x_size <- .image_size(x, dims, "x")
  y_size <- .image_size(y_grad, dims, "y_grad")
  .expect_conv_sizes(conv, x_size, y_size, "x", "y_grad")
  text <- .active_option(active, windows, y_size, dims)
  dtype <- .dtype_at(place, x)
  filter_grad <- .matrix_of_zeros(place, conv@layout, dtype)
  tartan_r_run_views("conv_filter_gradient", place, text,
                     list(conv = conv, x = .image_view(.operand(x, "x", dtype), dims),
                          y_grad = .image_view(.operand(y_grad, "y_grad", .dtype_at(place, y_grad)), dims),
                          active = if (!is.null(active)) .any_layout_of(active), filter_grad = filter_grad))
  filter_grad
}
