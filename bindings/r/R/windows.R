# SPDX-License-Identifier: Apache-2.0
# Windows of images: sparse spatial blocks. Images are h x w x channels x n here (any 1 to 3 spatial dimensions first), for C
# [n, channels, h, w] with other strides: nothing is copied, and spatial numbers have the same order in both.

# A whole number, or one for each spatial dimension.
.spatial <- function(x, dims, name, least = 1) {
  if (!(length(x) %in% c(1L, dims)) || !.is_whole(x) || any(x < least) || any(x > .Machine$integer.max)) {
    .fail("argument", "%s is %s, expected %s%.0f", name, .shown(x),
          if (dims == 1) "a whole number from " else sprintf("%d whole numbers, or one, from ", dims), least)
  }
  rep_len(as.double(x), dims)
}
# How many spatial dimensions some numbers speak of.
.dimensions <- function(...) {
  dims <- max(lengths(list(...)))
  if (!(dims %in% 1:3)) .fail("argument", "%d spatial dimensions are given, expected 1 to 3", dims)
  dims
}
.by_x <- function(x) paste(sprintf("%.0f", x), collapse = "x")

# C counts dimensions from 0.
.dimensions_from_one <- function(value) {
  tryCatch(value, tartan_error = function(e) {
    text <- conditionMessage(e)
    for (d in 2:0) text <- sub(paste("in dimension", d), paste("in dimension", d + 1), text, fixed = TRUE)
    .tartan_stop(e$status, text)
  })
}

# ---- Windows ----

image_windows <- function(size, stride = size, offset = 0, count) {
  dims <- .dimensions(size, stride, offset, count)
  structure(list(size = .spatial(size, dims, "size"), stride = .spatial(stride, dims, "stride"),
                 offset = .spatial(offset, dims, "offset", -.Machine$integer.max), count = .spatial(count, dims, "count", 0)),
            class = "image_windows")
}

# The text of the library and the other languages.
as.character.image_windows <- function(x, ...) {
  paste(sprintf("%s=%s", names(x), vapply(x, .by_x, "")), collapse = " ")
}
.windows_option <- function(windows) paste0("windows=(", as.character(windows), ")")
print.image_windows <- function(x, ...) {
  cat("image_windows: ", as.character(x), "\n", sep = "")
  invisible(x)
}
.windows_of_text <- function(text) {
  words <- strsplit(strsplit(text, " ", fixed = TRUE)[[1L]], "=", fixed = TRUE)
  numbers <- lapply(words, function(word) as.double(strsplit(word[2L], "x", fixed = TRUE)[[1L]]))
  do.call(image_windows, stats::setNames(numbers, vapply(words, `[`, "", 1L)))
}

windows_for_conv <- function(image, kernel, stride = 1, size = NULL, output = NULL, padding = c("same", "valid")) {
  dims <- .dimensions(image)
  stack <- if (is.list(kernel)) kernel else list(kernel)
  sizes <- vapply(stack, function(k) .by_x(.spatial(k, dims, "kernel")), "")
  padding <- .choose(padding, c("same", "valid"), "padding")
  text <- c(paste0("kernel=", paste(sizes, collapse = "+")), paste0("stride=", .by_x(.spatial(stride, dims, "stride"))),
            if (!is.null(size)) paste0("size=", .by_x(.spatial(size, dims, "size"))),
            if (!is.null(output)) paste0("output=", .by_x(.spatial(output, dims, "output"))), paste0("padding=", padding))
  image <- .spatial(image, dims, "image", 0)
  texts <- .dimensions_from_one(tartan_windows_for_conv(image, paste(text, collapse = " ")))
  list(input = .windows_of_text(texts[[1L]]), output = .windows_of_text(texts[[2L]]))
}

.expect_windows <- function(windows, dims = NULL) {
  if (!inherits(windows, "image_windows")) {
    .fail("argument", "windows is %s, expected what image_windows() or windows_for_conv() returns", .shown(unclass(windows)))
  }
  if (!is.null(dims) && length(windows$size) != dims) {
    .fail("shape", "windows have %d dimensions, expected %d", length(windows$size), dims)
  }
}
# Rows and columns of the layout that says which windows are active.
.window_grid <- function(windows) {
  last <- length(windows$count)
  c(prod(windows$count[-last]), windows$count[last])
}
.expect_active <- function(active, windows, images) {
  frame <- .any_layout_of(active, "active")@frame
  if (any(frame[3:4] != 1)) {
    .fail("shape", "active has blocks of %.0f x %.0f, expected 1 x 1: each block is a window", frame[3L], frame[4L])
  }
  grid <- .window_grid(windows)
  if (any(frame[c(1L, 2L, 5L)] != c(grid, images))) {
    .fail("shape", "active has %.0f x %.0f blocks in %.0f heads, expected %.0f x %.0f in %.0f (windows and images)",
          frame[1L], frame[2L], frame[5L], grid[1L], grid[2L], images)
  }
}

# ---- Images ----

# C's view of an image, of a filter h x w x in x out, or of a mask (without channels).
.image_view <- function(view, dims, channels = TRUE) {
  size <- view[[5L]]
  ndim <- dims + 1L + channels
  if (length(size) < ndim) size <- c(size, rep(1, ndim - length(size)))
  strides <- .column_strides(size)
  order <- c(rev(seq_len(ndim)[-seq_len(dims)]), seq_len(dims))
  .view(view[[1L]], size[order], strides[order], view[[2L]])
}
# The sizes of an image, with those of channels and n.
.image_size <- function(x, dims, name) {
  size <- .size_of(x)
  if (!(length(size) %in% (dims + 1:2))) {
    .fail("shape", "%s is %s, expected %d dimensions: %s x channels x n", name, .by(size), dims + 2L,
          c("w", "h x w", "d x h x w")[dims])
  }
  if (length(size) == dims + 1L) c(size, 1) else size
}
.dtype_at <- function(place, x) if (is.null(place)) "float64" else x@dtype

# ---- Active windows ----

.mask_of_windows <- function(mask, windows) {
  dims <- length(windows$size)
  size <- .size_of(mask)
  if (length(size) == dims + 2L && size[dims + 1L] == 1) size <- size[-(dims + 1L)]
  else if (!(length(size) %in% (dims + 0:1))) {
    .fail("shape", "mask is %s, expected %d spatial dimensions, or those and the number of images", .by(size), dims)
  }
  view <- .operand(mask, "mask", if (inherits(mask, "DeviceArray")) mask@dtype else "float64")
  view[[5L]] <- size
  .image_view(view, dims, FALSE)
}
.pool_options <- function(pool, tolerance) {
  pool <- .choose(pool, c("max", "average"), "pool")
  if (!is.numeric(tolerance) || length(tolerance) != 1L || !is.finite(tolerance)) {
    .fail("argument", "tolerance is %s, expected a finite number", .shown(tolerance))
  }
  paste0("pool=", pool, " tolerance=", tartan_r_decimal(tolerance))
}

active_windows <- function(mask, windows, pool = c("max", "average"), tolerance = 0, context = NULL, capacity = NULL) {
  .expect_windows(windows)
  options <- .pool_options(pool, tolerance)
  if (!is.null(capacity)) options <- sprintf("%s capacity=%.0f", options, .count(capacity, "capacity", 1))
  if (!is.null(context)) .expect(context, "TartanContext", "context")
  place <- if (is.null(context)) .place(mask = mask) else context
  view <- .mask_of_windows(mask, windows)
  layout <- .with_memory(function() tartan_layout_from_windows(place, view, as.character(windows), options))
  if (!tartan_layout_is_dynamic(layout)) return(.new_layout(layout))
  frame <- c(.window_grid(windows), 1, 1, tartan_layout_heads(layout))
  methods::new("DeviceBlockLayout", frame = frame, capacity = tartan_layout_blocks(layout), context = place, handle = layout)
}

block_update_windows <- function(x, mask, windows, pool = c("max", "average"), tolerance = 0) {
  .expect_dynamic(x)
  .expect_windows(windows)
  view <- .mask_of_windows(mask, windows)
  options <- .pool_options(pool, tolerance)
  .with_memory(function() tartan_layout_update_windows(x@context, x, view, as.character(windows), options))
  invisible(x)
}

# ---- Gather and scatter ----

window_gather <- function(x, active, windows) {
  if (.is_tracked(x)) return(.record_window_gather(x, active, windows))
  .expect_windows(windows)
  dims <- length(windows$size)
  place <- .place(x = x)
  size <- .image_size(x, dims, "x")
  .expect_active(active, windows, size[dims + 2L])
  dtype <- .dtype_at(place, x)
  blocks <- .result(place, c(windows$size, size[dims + 1L], block_count(active)), dtype)
  tartan_r_run_views("window_gather", place, .windows_option(windows),
                     list(active = .any_layout_of(active), x = .image_view(.operand(x, "x", dtype), dims),
                          blocks = .image_view(blocks, dims)))
  .value(blocks)
}

window_scatter <- function(blocks, active, windows, y, add = FALSE) {
  if (.is_tracked(blocks) || .is_tracked(y)) return(.record_window_scatter(blocks, active, windows, y, .flag(add, "add")))
  .expect_windows(windows)
  dims <- length(windows$size)
  place <- .place(y = y, blocks = blocks)
  size <- .image_size(y, dims, "y")
  .expect_active(active, windows, size[dims + 2L])
  if (!is.null(blocks)) {
    expected <- c(windows$size, size[dims + 1L], block_count(active))
    .expect_like(blocks, expected, "blocks", "size, channels and number of windows")
  }
  if (!.flag(add, "add") && any(windows$stride < windows$size)) {
    .fail("argument", "windows may overlap (%s), expected strides that are at least the size, or add = TRUE",
          as.character(windows))
  }
  result <- .result_from(place, y, "y")
  view <- if (!is.null(blocks)) .image_view(.operand(blocks, "blocks", .dtype_at(place, y)), dims)
  tartan_r_run_views("window_scatter", place, paste(.windows_option(windows), if (add) "add=1"),
                     list(active = .any_layout_of(active), blocks = view, base = NULL, y = .image_view(result, dims)))
  .value(result)
}
