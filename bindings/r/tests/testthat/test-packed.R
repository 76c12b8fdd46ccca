# SPDX-License-Identifier: Apache-2.0

test_that("packed attention is attention of each sequence", {
  set.seed(1)
  sees <- function(n, m, causal = TRUE, window = Inf, align = "end") {
    distance <- outer(seq_len(n) + (if (align == "end") m - n else 0), seq_len(m), "-")
    (distance >= 0 | !causal) & distance < window
  }
  cases <- list(list(c(30, 1, 0, 45, 12)), list(rep(1, 9)), list(c(30, 1, 45), causal = FALSE),
                list(c(7, 1, 16, 5), key_lengths = c(50, 40, 16, 0)),
                list(c(7, 1, 16), key_lengths = c(50, 40, 16), align = "start"),
                list(c(30, 1, 45), key_lengths = c(35, 20, 45), window = 9))
  for (case in cases) for (block in list(8, c(16, 32))) {
    lengths <- case[[1L]]
    keys <- if (is.null(case$key_lengths)) lengths else case$key_lengths
    packed <- do.call(packed_sequences, c(case, list(block = block)))
    make <- function(n, heads) array(rnorm(8 * n * heads), c(8, n, heads, 1))
    q <- make(sum(lengths), 4)
    k <- make(sum(keys), 2) # two heads of queries share one of keys
    v <- make(sum(keys), 2)
    out_grad <- make(sum(lengths), 4)
    found <- attention(q, k, v, packed$layout, mask = packed$mask, return_lse = TRUE)
    grads <- attention_gradient(q, k, v, packed$layout, found$out, found$lse, out_grad, mask = packed$mask)
    row <- col <- 0
    for (s in seq_along(lengths)) {
      i <- row + seq_len(lengths[s])
      j <- col + seq_len(keys[s])
      layout <- block_pattern("dense", c(lengths[s], keys[s]), block)
      seen <- do.call(sees, c(list(lengths[s], keys[s]), case[intersect(names(case), c("causal", "window", "align"))]))
      mask <- attention_mask(layout, matrix(seen, lengths[s], keys[s]))
      one <- list(q[, i, , , drop = FALSE], k[, j, , , drop = FALSE], v[, j, , , drop = FALSE], layout)
      wanted <- do.call(attention, c(one, list(mask = mask, return_lse = TRUE)))
      expect_equal(found$out[, i, , , drop = FALSE], wanted$out, tolerance = 1e-12)
      expect_equal(found$lse[i, , , drop = FALSE], wanted$lse, tolerance = 1e-12)
      alone <- do.call(attention_gradient,
                       c(one, list(wanted$out, wanted$lse, out_grad[, i, , , drop = FALSE], mask = mask)))
      expect_equal(grads$q[, i, , , drop = FALSE], alone$q, tolerance = 1e-10)
      expect_equal(grads$k[, j, , , drop = FALSE], alone$k, tolerance = 1e-10)
      expect_equal(grads$v[, j, , , drop = FALSE], alone$v, tolerance = 1e-10)
      row <- row + lengths[s]
      col <- col + keys[s]
    }
    expect_equal(dim(packed$layout), c(row, col))
  }
})

test_that("masks of packed sequences are made only where needed, and meet others", {
  packed <- packed_sequences(c(32, 64), 32, causal = FALSE)
  expect_null(packed$mask)
  expect_identical(block_mask(packed$layout), matrix(c(TRUE, FALSE, FALSE, FALSE, TRUE, TRUE, FALSE, TRUE, TRUE), 3))
  lengths <- c(70, 1, 129)
  layout <- packed_layout(lengths, 16) & block_pattern("local", c(200, 200), 16, window = 2)
  mask <- packed_mask(layout, lengths)
  text <- rep(1:3, lengths)
  window <- attention_mask(layout, function(q, k, head) q - k < 20)
  rule <- attention_mask(layout, function(q, k, head) text[q] == text[k] & k <= q & q - k < 20)
  expect_identical(as.array(mask & window), as.array(rule))
  expect_lt(sum(as.array(rule)), sum(as.array(mask)))
  file <- tempfile()
  saveRDS(mask, file)
  expect_identical(as.array(readRDS(file)), as.array(mask))
  expect_equal(block_count(packed_layout(NULL, 8)), 0)
})

test_that("sequences that do not fit are refused", {
  expect_refused(packed_layout(c(5, -2), 8), "argument", "lengths[2] is -2, expected 0 or more")
  expect_refused(packed_layout(c(5, 2.5), 8), "argument", "lengths is c(5, 2.5), expected whole numbers")
  expect_refused(packed_layout(c(5, 2), 8, key_lengths = 7), "shape", "k_offsets has 2 entries, expected 3, as q_offsets")
  expect_refused(packed_layout(5, 8, causal = FALSE, window = 3), "argument", "window is given, which needs causal = TRUE")
  expect_refused(packed_layout(5, 8, window = 0), "argument", "window is 0, expected a whole number from 1")
  expect_refused(packed_layout(5, 8, align = "x"), "argument", "align is x, expected start or end")
  layout <- packed_layout(c(5, 7), 8)
  expect_refused(packed_mask(layout, 9), "layout", "q_offsets ends with 9, expected 12, the rows of the layout")
  expect_refused(packed_mask(3, 9), "argument", "layout is 3, expected a BlockLayout")
  expect_refused(packed_mask(layout, c(5, 7)) & packed_mask(packed_layout(c(5, 7), 16), c(5, 7)), "layout",
                 "b has another layout")
})
