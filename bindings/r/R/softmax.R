# SPDX-License-Identifier: Apache-2.0
# The unfused parts of attention. Results are always new.

block_softmax <- function(x, scale = 1, causal = FALSE, query_offset = 0, causal_from = 1, mask = NULL,
                          return_lse = FALSE) {
  .expect_any_matrix(x, "x")
  options <- .attention_options(scale, causal, query_offset, causal_from, list(), 0, 0)
  if (!is.null(mask)) .expect(mask, "BlockMask", "mask")
  place <- .place(x = x)
  frame <- x@layout@frame
  y <- .matrix_of_zeros(place, x@layout, x@dtype, x@Dimnames)
  size <- if (frame[5L] > 1) frame[c(1L, 5L)] else frame[1L]
  lse <- if (.flag(return_lse, "return_lse")) .result(place, size, .result_dtype(x@dtype))
  tartan_block_softmax(place, x, options, mask, y, if (return_lse) .tokens(lse, 2L))
  if (return_lse) list(y = y, lse = .value(lse)) else y
}

block_softmax_gradient <- function(y, dy, scale = 1) {
  .expect_any_matrix(y, "y")
  .expect_any_matrix(dy, "dy")
  place <- .place(y = y, dy = dy)
  dx <- .matrix_of_zeros(place, y@layout, y@dtype, y@Dimnames)
  tartan_block_softmax_gradient(place, y, dy, scale, dx)
  dx
}

attention_merge <- function(out_a, lse_a, out_b, lse_b) {
  place <- .place(out_a = out_a, lse_a = lse_a, out_b = out_b, lse_b = lse_b)
  size <- .size_of(out_a)
  .expect_like(out_b, size, "out_b", "as out_a")
  .expect_like(lse_a, size[-1L], "lse_a", "tokens, heads and batch of out_a")
  .expect_like(lse_b, size[-1L], "lse_b", "tokens, heads and batch of out_a")
  views <- list(.tensor(out_a, "out_a", size), .tokens(.operand(lse_a, "lse_a"), 3L), .tensor(out_b, "out_b"),
                .tokens(.operand(lse_b, "lse_b"), 3L))
  dtype <- if (is.null(place)) "float64" else out_a@dtype
  out <- .result(place, size, dtype)
  lse <- .result(place, size[-1L], .result_dtype(dtype))
  tartan_attention_merge(place, views[[1L]], views[[2L]], views[[3L]], views[[4L]], .tokens(out), .tokens(lse, 3L))
  list(out = .value(out), lse = .value(lse))
}
