# SPDX-License-Identifier: Apache-2.0

random_scores <- function(heads = 2, seed = 1) {
  set.seed(seed)
  layout <- random_layout(c(40, 52), c(8, 16), 0.6, heads = heads)
  block_matrix(layout, values = array(rnorm(8 * 16 * block_count(layout)), c(8, 16, block_count(layout))))
}
# Rows x columns x heads, and which of its elements are stored.
dense_of <- function(x) array(as.array(x), c(dim(x@layout), block_heads(x@layout)))
stored_in <- function(layout) {
  size <- block_dim(layout)
  grid <- array(block_mask(layout), c(block_grid(layout), block_heads(layout)))
  array(vapply(seq_len(dim(grid)[3]), function(h) {
    (grid[, , h] %x% matrix(TRUE, size[1], size[2]))[seq_len(nrow(layout)), seq_len(ncol(layout))] == 1
  }, matrix(NA, nrow(layout), ncol(layout))), c(dim(layout), dim(grid)[3]))
}

test_that("softmax and its gradient equal dense computations", {
  for (heads in 1:2) {
    x <- random_scores(heads)
    seen <- stored_in(x@layout)
    check <- function(seen, ...) {
      found <- block_softmax(x, scale = 0.7, ..., return_lse = TRUE)
      sums <- apply(ifelse(seen, exp(0.7 * dense_of(x)), 0), c(1, 3), sum)
      wanted <- ifelse(seen, exp(0.7 * dense_of(x)), 0) / array(sums[, rep(seq_len(heads), each = 52)], dim(seen))
      wanted[is.nan(wanted)] <- 0
      expect_equal(dense_of(found$y), wanted, tolerance = 1e-13)
      expect_equal(c(found$lse), c(log(sums)), tolerance = 1e-13)
      expect_identical(dim(found$lse), if (heads > 1) c(40L, 2L))
      expect_identical(block_values(block_softmax(x, scale = 0.7, ...)), block_values(found$y))
      dy <- random_scores(heads)
      block_values(dy) <- block_values(dy)^2
      g <- dense_of(dy)
      dots <- apply(g * wanted, c(1, 3), sum)
      gradient <- 0.7 * wanted * (g - array(dots[, rep(seq_len(heads), each = 52)], dim(seen)))
      expect_equal(dense_of(block_softmax_gradient(found$y, dy, scale = 0.7)), gradient, tolerance = 1e-12)
    }
    check(seen)
    later <- array(outer(1:40, 1:52, function(i, j) j <= i + 12 | j < 4), dim(seen))
    check(seen & later, causal = TRUE, query_offset = 12, causal_from = 4)
    rule <- function(q, k, head) (q + 2 * k) %% 3 != 0
    check(seen & array(outer(1:40, 1:52, function(q, k) rule(q, k, 1)), dim(seen)), mask = attention_mask(x@layout, rule))
  }
})

test_that("attentions to parts of the keys are merged", {
  set.seed(4)
  q <- array(rnorm(8 * 40 * 2), c(8, 40, 2))
  k <- array(rnorm(8 * 40 * 2), c(8, 40, 2))
  v <- array(rnorm(8 * 40 * 2), c(8, 40, 2))
  whole <- attention(q, k, v, block_pattern("dense", c(40, 40), 8), return_lse = TRUE)
  part <- function(at) {
    attention(q, k[, at, ], v[, at, ], block_pattern("dense", c(40, length(at)), 8), return_lse = TRUE)
  }
  a <- part(1:16)
  b <- part(17:40)
  expect_equal(attention_merge(a$out, a$lse, b$out, b$lse, return_lse = TRUE), whole, tolerance = 1e-13)
  expect_identical(attention_merge(a$out, a$lse, b$out, b$lse), attention_merge(a$out, a$lse, b$out, b$lse, return_lse = TRUE)$out)
  one <- attention_merge(a$out[, , 2], a$lse[, 2], b$out[, , 2], b$lse[, 2], return_lse = TRUE)
  expect_equal(one, list(out = whole$out[, , 2], lse = whole$lse[, 2]), tolerance = 1e-13)
  nothing <- attention_merge(0 * a$out + NaN, 0 * a$lse - Inf, b$out, b$lse, return_lse = TRUE)
  expect_identical(nothing, list(out = b$out, lse = b$lse))
})

test_that("options need others, and dimensions are those of R", {
  expect_error(block_softmax(random_scores(), query_offset = 3), "query_offset is given, which needs causal = TRUE")
  out <- matrix(0, 8, 4)
  expect_error(attention_merge(out, numeric(4), out, numeric(3)), "lse_b is 3 x 1 x 1, expected 4 x 1 x 1")
  expect_error(attention_merge(out, numeric(4), matrix(0, 8, 3), numeric(3)), "out_b is 8 x 3 x 1 x 1, expected 8 x 4 x 1 x 1")
})
