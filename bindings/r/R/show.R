# SPDX-License-Identifier: Apache-2.0

# A number with a few digits and a decimal point whatever the locale.
.digits <- function(x, digits = 3L) tartan_r_decimal(signif(x, digits))

.describe <- function(x) {
  frame <- .frame_of(x)
  if (length(frame) != 5L) return("that was not made by this package")
  all <- prod(.grid_of(x)) * frame[5L]
  count <- block_count(x)
  blocks <- if (block_is_dynamic(x)) sprintf("dynamic, capacity %.0f of %.0f", count, all)
            else sprintf("%d of %.0f stored (%s %%)", count, all, .digits(if (all > 0) 100 * count / all else 0))
  sprintf("%.0f x %.0f%s, blocks %s%.0f x %.0f: %s", frame[1L], frame[2L],
          if (frame[5L] > 1) sprintf(", %.0f heads", frame[5L]) else "", if (block_is_variable(x)) "up to " else "",
          frame[3L], frame[4L], blocks)
}

.closed <- function(x) if (tartan_r_is_closed(x)) ", closed"

# Small layouts as text: one character per block.
.picture <- function(layout) {
  grid <- .grid_of(layout)
  if (length(layout@frame) != 5L || layout@frame[5L] > 1 || grid[1L] > 24 || grid[2L] > 60 || tartan_r_is_closed(layout)) return(invisible())
  mask <- block_mask(layout)
  for (i in seq_len(nrow(mask))) cat("  ", ifelse(mask[i, ], "#", "."), "\n", sep = "")
}

setMethod("show", "BlockLayout", function(object) {
  cat("BlockLayout ", .describe(object), .closed(object), "\n", sep = "")
  .picture(object)
})
# Small matrices are shown with their numbers, as Matrix shows sparse ones; larger ones as a picture of their layout.
.shows_numbers <- function(x) {
  frame <- x@layout@frame
  length(frame) == 5L && frame[5L] == 1 && all(frame[1:2] > 0 & frame[1:2] <= 16) && !tartan_r_is_closed(x) && !tartan_r_is_closed(x@layout)
}
.show_matrix <- function(x, digits = NULL) {
  cat("BlockMatrix ", x@dtype, " ", .describe(x), .closed(x), "\n", sep = "")
  if (.shows_numbers(x)) Matrix::printSpMatrix(.to_sparse(x), digits = digits, note.dropping.colnames = FALSE, col.names = TRUE)
  else .picture(x@layout)
}
setMethod("show", "BlockMatrix", function(object) .show_matrix(object))

.most_listed <- 20L
setMethod("show", "BlockFile", function(object) {
  if (tartan_r_is_closed(object)) return(cat("BlockFile, closed\n"))
  if (tartan_r_is_restored(object)) return(cat("BlockFile of a saved session: block_file() opens files\n"))
  objects <- block_list(object)
  cat("BlockFile of ", nrow(objects), " objects\n", sep = "")
  if (nrow(objects)) print(utils::head(objects[c("kind", "name")], .most_listed), row.names = FALSE)
  if (nrow(objects) > .most_listed) cat("... and ", nrow(objects) - .most_listed, " more: block_list() has all\n", sep = "")
})

# print(x, digits = 3) would show the slots.
print.BlockMatrix <- function(x, digits = NULL, ...) {
  .show_matrix(x, digits)
  invisible(x)
}
print.BlockLayout <- function(x, ...) {
  methods::show(x)
  invisible(x)
}
print.BlockMask <- print.BlockLayout
print.BlockConv <- print.BlockLayout
print.BlockFile <- print.BlockLayout
print.BlockSparsifier <- print.BlockLayout
print.TartanContext <- print.BlockLayout
print.DeviceArray <- print.BlockLayout
print.DeviceBlockMatrix <- print.BlockLayout
print.DeviceBlockLayout <- print.BlockLayout
print.Tracked <- print.BlockLayout

.summarise <- function(object) {
  facts <- c(list(what = class(object)[1L], description = .describe(object)), block_statistics(object),
             list(identity = block_identity(object), recipe = block_recipe(object)))
  if (inherits(object, "BlockMatrix")) facts$dtype <- object@dtype
  structure(facts, class = "summary.BlockLayout")
}
setMethod("summary", "BlockLayout", function(object, ...) .summarise(object))
# As of a sparse Matrix, summary(x)$i, $j and $x are the elements that are not 0. They are listed when asked for.
setMethod("summary", "BlockMatrix", function(object, ...) {
  facts <- .summarise(object)
  structure(facts, class = c("summary.BlockMatrix", class(facts)), of = object)
})
`$.summary.BlockMatrix` <- function(x, name) {
  if (name %in% c("i", "j", "x")) as.data.frame(x)[[name]] else unclass(x)[[name]]
}
as.data.frame.summary.BlockMatrix <- function(x, ...) .triplets(attr(x, "of"))

print.summary.BlockLayout <- function(x, ...) {
  cat(x$what, " ", if (!is.null(x$dtype)) paste0(x$dtype, " "), x$description, "\n", sep = "")
  cat("blocks a row: ", format(x$row_lengths[["min"]]), " to ", format(x$row_lengths[["max"]]), ", mean ",
      format(x$row_lengths[["mean"]], digits = 3L), ", sd ", format(x$row_lengths[["sd"]], digits = 3L), "\n", sep = "")
  cat("bandwidth:    ", x$bandwidth[["lower"]], " below, ", x$bandwidth[["upper"]], " above the diagonal, in blocks\n",
      sep = "")
  cat("identity:     ", x$identity, "\n", sep = "")
  if (nzchar(x$recipe)) cat("recipe:       ", x$recipe, "\n", sep = "")
  invisible(x)
}

# At most `most` cells per side; a cell is the mean of its blocks.
.shrink <- function(m, most = 512L) {
  cell <- function(n) if (n > most) as.integer(floor((seq_len(n) - 1) * most / n)) else seq_len(n)
  if (nrow(m) > most) m <- rowsum(m, cell(nrow(m))) / as.vector(table(cell(nrow(m))))
  if (ncol(m) > most) m <- t(rowsum(t(m), cell(ncol(m))) / as.vector(table(cell(ncol(m)))))
  m
}

# Draws a grid of numbers with row 1 on top.
.draw <- function(m, block, xlab = "", ylab = "", asp = 1,
                  col = hcl.colors(64L, "Blues 3", rev = TRUE), axes = TRUE, main = NULL, ...) {
  size <- dim(m) * block
  m <- .shrink(m)
  range <- if (length(m) && max(m) > 0) c(0, max(m)) else c(0, 1)
  graphics::image(x = seq(0, size[2L], length.out = ncol(m) + 1L), y = seq(0, size[1L], length.out = nrow(m) + 1L),
                  z = t(m[nrow(m):1L, , drop = FALSE]), zlim = range, xlab = xlab, ylab = ylab, asp = asp, col = col,
                  axes = FALSE, useRaster = nrow(m) * ncol(m) > 10000L, ...)
  graphics::rect(0, 0, size[2L], size[1L], border = "grey60")
  if (axes) { # rows count downwards
    columns <- pretty(c(0, size[2L]))
    rows <- pretty(c(0, size[1L]))
    columns <- columns[columns <= size[2L]]
    rows <- rows[rows <= size[1L]]
    graphics::axis(3L, at = columns, pos = size[1L])
    graphics::axis(2L, at = size[1L] - rows, labels = rows, pos = 0, las = 1L)
  }
  if (!is.null(main)) graphics::title(main, line = if (axes) 2.75 else NA) # above the labels of the columns
}

.image <- function(x, weights, ...) {
  frame <- .frame_of(x)
  if (block_is_variable(x)) .fail("unsupported", "x has blocks of different sizes, which image() does not draw: see block_svg()")
  grid <- .grid(frame)
  if (prod(grid) > 5e7) {
    .fail("unsupported", "the grid has %.0f x %.0f blocks, expected at most 5e7 in all to draw", grid[1L], grid[2L])
  }
  at <- block_coordinates(x)
  cells <- matrix(0, grid[1L], grid[2L] * frame[5L]) # heads side by side
  cells[cbind(at$row, at$col + (at$head - 1) * grid[2L])] <- weights
  if (length(cells)) .draw(cells, frame[3:4], ...)
  invisible(x)
}
setMethod("image", "BlockLayout", function(x, ...) .image(x, 1, ...))
setMethod("image", "BlockMatrix", function(x, ...) .image(x, block_norms(x), ...))
