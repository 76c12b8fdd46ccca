# SPDX-License-Identifier: Apache-2.0
# Products. The user's matrices are read in place; results are always new.

spmm <- function(a, b, c = NULL, alpha = 1, beta = if (is.null(c)) 0 else 1, side = c("left", "right"),
                 transpose = FALSE, gates = NULL) {
  right <- .choose(side, c("left", "right"), "side") == "right"
  if (is.null(c) && !identical(as.double(beta), 0)) {
    .fail("argument", "beta is %s, expected 0 where there is no c", .shown(beta))
  }
  tartan_r_spmm(a, b, c, gates, alpha, beta, as.integer(right), as.integer(.flag(transpose, "transpose")))
}

sddmm <- function(s, x, y, alpha = 1, beta = 0, gates = NULL, transpose_x = FALSE, transpose_y = FALSE) {
  x <- .as_list(x)
  y <- .as_list(y)
  if (tartan_r_any_tracked(c(list(s, gates), x, y))) {
    return(.record_sddmm(s, x, y, alpha, beta, gates, .flag(transpose_x, "transpose_x"), .flag(transpose_y, "transpose_y")))
  }
  place <- .place(s = s, x = x, y = y, gates = gates)
  accumulates <- !identical(as.double(beta), 0)
  if (.is_layout(s)) {
    if (accumulates) .fail("argument", "beta is %s, expected 0 where s is a layout", .shown(beta))
    if (!length(x)) .fail("argument", "x has 0 matrices, expected 1 to 8")
    dtype <- if (is.null(place)) "float64" else x[[1L]]@dtype
  } else {
    .expect_any_matrix(s, "s")
    dtype <- s@dtype
  }
  given <- list(x = if (length(x)) x[[1L]], y = if (length(y)) y[[1L]])
  x <- .operands(x, "x", dtype, .flag(transpose_x, "transpose_x"))
  y <- .operands(y, "y", dtype, .flag(transpose_y, "transpose_y"))
  names <- if (.is_matrix(s)) s@Dimnames else .no_names
  of_product <- list(.names_of_operand(given$x, if (transpose_x) 2L else 1L), .names_of_operand(given$y, if (transpose_y) 1L else 2L))
  for (side in which(vapply(names, is.null, NA))) names[side] <- of_product[side]
  # If beta is 0, s is not read, but on a dynamic layout the values past the current blocks are kept.
  result <- if (.is_matrix(s) && (accumulates || block_is_dynamic(s))) .matrix_copy(s, "s")
            else .matrix_of_zeros(place, .any_layout_of(s), dtype)
  tartan_r_sddmm(place, x, y, gates, alpha, beta, result)
  result@Dimnames <- names
  result
}

# The names of the rows (side 1) or columns of a dense operand, NULL where it has none.
.names_of_operand <- function(x, side) {
  names <- if (!inherits(x, "DeviceObject")) dimnames(x)
  if (length(names) == 2L && length(names[[side]])) as.character(names[[side]])
}

growth_score <- function(x, y, block = c(32, 32), norm = c("max", "l2", "gradient"), scale = 1, score = NULL,
                         beta = if (is.null(score)) 0 else 1) {
  norm <- .choose(norm, c("max", "l2", "gradient"), "norm")
  if (is.null(score) && !identical(as.double(beta), 0)) {
    .fail("argument", "beta is %s, expected 0 where there is no score", .shown(beta))
  }
  x <- .as_list(x)
  y <- .as_list(y)
  if (!length(x) || !length(y)) .fail("argument", "x has %d matrices and y %d, expected 1 to 8", length(x), length(y))
  place <- .place(x = x, y = y, score = score)
  dtype <- if (is.null(place)) "float64" else .result_dtype(x[[1L]]@dtype)
  xs <- .operands(x, "x", dtype)
  ys <- .operands(y, "y", dtype)
  frame <- .frame(c(NROW(x[[1L]]), NCOL(y[[1L]])), block)
  out <- if (is.null(score)) .result(place, .grid(frame), dtype) else .result_from(place, score, "score")
  tartan_r_growth_score(place, xs, ys, frame[3:4], norm, scale, beta, out)
  .value(out)
}
