# SPDX-License-Identifier: Apache-2.0
# Attention with masks that are arrays, lengths of padded batches, layouts of batch entries, softcap, other sizes of v; layouts
# and masks from rules.

queries <- 21
keys <- 30
heads <- 2
batch <- 3
make_inputs <- function(d = 5, dv = d, seed = 1) {
  set.seed(seed)
  list(q = array(rnorm(d * queries * heads * batch), c(d, queries, heads, batch)),
       k = array(rnorm(d * keys * batch), c(d, keys, 1, batch)),
       v = array(rnorm(dv * keys * batch), c(dv, keys, 1, batch)))
}
# Dense attention of what seen(head, entry) shows, queries x keys, with added(head, entry) numbers.
dense_of <- function(x, seen, added = function(h, b) 0, softcap = 0) {
  out <- array(0, c(dim(x$v)[1], queries, heads, batch))
  for (b in seq_len(batch)) for (h in seq_len(heads)) {
    scores <- crossprod(x$q[, , h, b], x$k[, , 1, b]) / sqrt(dim(x$q)[1])
    if (softcap > 0) scores <- softcap * tanh(scores / softcap)
    scores <- scores + added(h, b)
    scores[!seen(h, b)] <- -Inf
    top <- apply(scores, 1, max)
    weights <- exp(scores - ifelse(is.finite(top), top, 0))
    out[, , h, b] <- x$v[, , 1, b] %*% t(weights / pmax(rowSums(weights), 1e-300))
  }
  out
}
elements <- function(layout) {
  grid <- array(block_mask(layout), c(block_grid(layout), block_heads(layout)))
  array(vapply(seq_len(block_heads(layout)), function(h) {
    (grid[, , h] %x% matrix(TRUE, 4, 8))[seq_len(queries), seq_len(keys)] == 1
  }, matrix(NA, queries, keys)), c(queries, keys, block_heads(layout)))
}

test_that("logical masks and lengths say which keys count", {
  x <- make_inputs()
  for (case in list(list(1, FALSE), list(heads, FALSE), list(heads * batch, FALSE), list(batch, TRUE))) {
    layout <- random_layout(c(queries, keys), c(4, 8), 0.7, heads = case[[1]])
    own <- elements(layout)
    of <- function(h, b) own[, , if (case[[2]]) b else if (case[[1]] == 1) 1 else if (case[[1]] == heads) h else (b - 1) * heads + h]
    for (size in list(integer(), heads, c(1, batch), c(heads, batch))) {
      mask <- array(runif(queries * keys * prod(size)) < 0.6, c(queries, keys, size))
      whole <- array(mask, c(queries, keys, c(size, 1, 1)[1:2]))
      shown <- function(h, b) of(h, b) & whole[, , min(h, dim(whole)[3]), min(b, dim(whole)[4])]
      expect_equal(attention(x$q, x$k, x$v, layout, mask = mask, by_batch = case[[2]]), dense_of(x, shown))
      lengths <- c(30, 0, 17)
      both <- function(h, b) shown(h, b) & rep(seq_len(keys) <= lengths[b], each = queries)
      expect_equal(attention(x$q, x$k, x$v, layout, mask = mask, by_batch = case[[2]], key_lengths = lengths), dense_of(x, both))
    }
    rule <- attention_mask(layout, function(q, k, head) (q + k + head) %% 3 != 0)
    kept <- array(as.array(rule), c(queries, keys, case[[1]]))
    own <- kept
    limited <- function(h, b) of(h, b) & rep(seq_len(keys) <= lengths[b], each = queries)
    expect_equal(attention(x$q, x$k, x$v, layout, mask = rule, by_batch = case[[2]], key_lengths = lengths), dense_of(x, limited))
  }
})

test_that("masks of numbers are added to scores, and have gradients", {
  x <- make_inputs()
  layout <- random_layout(c(queries, keys), c(4, 8), 0.7)
  own <- elements(layout)[, , 1]
  for (size in list(integer(), heads, c(1, batch), c(heads, batch))) {
    mask <- array(rnorm(queries * keys * prod(size)), c(queries, keys, size))
    whole <- array(mask, c(queries, keys, c(size, 1, 1)[1:2]))
    wanted <- dense_of(x, function(h, b) own, function(h, b) whole[, , min(h, dim(whole)[3]), min(b, dim(whole)[4])])
    found <- attention(x$q, x$k, x$v, layout, mask = mask, return_lse = TRUE)
    expect_equal(found$out, wanted)
    grad <- array(rnorm(length(wanted)), dim(wanted))
    all <- attention_bias_gradient(x$q, x$k, x$v, layout, found$out, found$lse, grad, mask = mask)
    expect_equal(dim(all$bias), dim(mask))
    for (i in sample(length(mask), 4)) {
      step <- replace(0 * mask, i, 1e-6)
      ends <- lapply(c(1, -1), function(sign) sum(grad * attention(x$q, x$k, x$v, layout, mask = mask + sign * step)))
      expect_equal((ends[[1]] - ends[[2]]) / 2e-6, all$bias[i], tolerance = 1e-6)
    }
  }
})

test_that("softcap, values of another size and layouts of batch entries have the right gradients", {
  x <- make_inputs(dv = 3)
  layout <- random_layout(c(queries, keys), c(4, 8), 0.7, heads = batch)
  own <- elements(layout)
  call <- function(x, ...) attention(x$q, x$k, x$v, layout, softcap = 0.5, by_batch = TRUE, ...)
  found <- call(x, return_lse = TRUE)
  expect_equal(found$out, dense_of(x, function(h, b) own[, , b], softcap = 0.5))
  grad <- array(rnorm(length(found$out)), dim(found$out))
  grads <- attention_gradient(x$q, x$k, x$v, layout, found$out, found$lse, grad, softcap = 0.5, by_batch = TRUE)
  for (name in names(x)) {
    expect_equal(dim(grads[[name]]), dim(x[[name]]))
    for (i in sample(length(x[[name]]), 4)) {
      step <- x
      ends <- lapply(c(1e-6, -1e-6), function(more) {
        step[[name]][i] <- x[[name]][i] + more
        sum(grad * call(step))
      })
      expect_equal((ends[[1]] - ends[[2]]) / 2e-6, grads[[name]][i], tolerance = 1e-6)
    }
  }
  gradient <- value_and_gradient(function(q) sum(attention(q, x$k, x$v, layout, softcap = 0.5, by_batch = TRUE) * grad), x$q)
  expect_equal(gradient$gradient, grads$q)
})

rules <- list(
  function(q, k, h) k <= q, function(q, k, h) (k <= q) & (q - k < 20), function(q, k, h) 5 > k - q & -3 + q >= k,
  function(q, k, h) (q - k) %% 7 == 0, function(q, k, h) q %/% 16 == (k + 3) %/% 16, function(q, k, h) !(abs(q - k) > 9),
  function(q, k, h) xor(k <= q, q + k < 40), function(q, k, h) q * k < 200 | k < 3, function(q, k, h) k < 0.5 * q + 3,
  function(q, k, h) k <= q & q - k < 10 * h, function(q, k, h) q != k & TRUE, function(q, k, h) ifelse(h == 1, k <= q, k >= q),
  function(q, k, h) q %in% c(1, 5, 7) | k == 2, function(q, k, h) c(3, 1, 2)[k %% 3 + 1] == c(3, 1, 2)[q %% 3 + 1],
  function(q, k, h) TRUE, function(q, k, h) q < 0
)

test_that("layouts and masks follow rules, whether spans decide them or elements", {
  for (rule in rules) for (case in list(list(c(60, 60), 8, 1), list(c(21, 30), c(4, 8), 3), list(c(3, 2), 8, 1))) {
    size <- case[[1]]
    at <- expand.grid(q = seq_len(size[1]), k = seq_len(size[2]), h = seq_len(case[[3]]))
    kept <- array(rep_len(rule(at$q, at$k, at$h), nrow(at)), c(size, case[[3]]))
    layout <- block_layout_from_rule(rule, size, case[[2]], case[[3]])
    expect_identical(block_identity(layout), block_identity(block_layout_from_dense(if (case[[3]] == 1) kept[, , 1] + 0 else kept + 0, case[[2]])))
    for (of in list(layout, block_pattern("dense", size, case[[2]], heads = case[[3]]))) {
      expect_true(all(array(as.array(attention_mask(of, rule)), dim(kept)) == kept))
    }
  }
  asked <- 0
  causal <- function(q, k, h) {
    if (is.numeric(q)) asked <<- asked + length(q)
    k <= q
  }
  layout <- block_layout_from_rule(causal, c(8192, 8192), 64)
  expect_identical(block_identity(layout), block_identity(block_pattern("causal", c(8192, 8192), 64)))
  expect_equal(asked, 8192 * 64) # the diagonal blocks
  expect_equal(nrow(block_coordinates(block_layout_from_rule(causal, c(0, 40), 8))), 0)
})

test_that("layouts and masks are cut to shorter lengths", {
  layout <- block_pattern("causal", c(64, 64), 16)
  mask <- attention_mask(layout, function(q, k, head) k <= q & q - k < 30)
  short <- block_cut(mask, 37, 50)
  expect_identical(as.array(short), as.array(mask)[1:37, 1:50])
  expect_equal(dim(block_cut(layout, 37, 50)), c(37, 50))
  expect_equal(block_heads(block_take_heads(layout, c(1, 1))), 2)
  lengths <- c(20, 64, 1)
  batch <- padded_layout(layout, lengths)
  kept <- as.array(padded_mask(batch, lengths))
  expect_false(any(kept[, 21:64, 1]))
  expect_true(all(kept[64, , 2]))
})

test_that("scores choose blocks", {
  set.seed(2)
  scores <- array(rnorm(5 * 12 * 3), c(5, 12, 3))
  counts <- matrix(sample(0:12, 15, TRUE), 5, 3)
  wanted <- array(FALSE, dim(scores))
  share <- wanted
  for (h in 1:3) for (i in 1:5) {
    x <- scores[i, , h]
    wanted[i, , h] <- rank(-x) <= counts[i, h]
    p <- exp(x) / sum(exp(x))
    share[i, , h] <- vapply(seq_along(x), function(j) sum(p[x > x[j]]) < 0.8, NA)
  }
  expect_identical(array(block_mask(block_layout_from_scores(scores, 4, counts)), dim(scores)), wanted)
  expect_identical(array(block_mask(block_layout_from_scores(scores, 4, top_p = 0.8)), dim(scores)), share)
  expect_equal(dim(block_layout_from_scores(scores[, , 1], 4, 2, dim = c(18, 47))), c(18, 47))
  expect_error(block_layout_from_scores(scores, 4, 1:2), "counts has 2 entries", class = "tartan_error_shape")
  expect_error(block_layout_from_scores(scores, 4, top_p = 0), "top_p is 0", class = "tartan_error_argument")
  expect_error(block_layout_from_scores(scores, 4, 1.5), "counts is 1.5", class = "tartan_error_argument")
  expect_error(block_layout_from_scores("x", 4), "scores is", class = "tartan_error_argument")
  expect_error(block_layout_from_scores(scores, 4, top_p = "x"), "top_p is", class = "tartan_error_argument")
})

test_that("what does not fit is refused", {
  x <- make_inputs()
  layout <- random_layout(c(queries, keys), c(4, 8), 0.7)
  call <- function(...) attention(x$q, x$k, x$v, layout, ...)
  expect_error(call(mask = matrix(TRUE, keys, queries)), "mask is 30 x 21", class = "tartan_error_shape")
  expect_error(call(mask = array(TRUE, c(queries, keys, 5))), "mask is 21 x 30 x 5", class = "tartan_error_shape")
  expect_error(call(mask = "x"), "mask", class = "tartan_error_argument")
  expect_error(call(mask = matrix(0, queries, keys), slopes = c(1, 2)), "at most one bias", class = "tartan_error_argument")
  expect_error(call(mask = matrix(0, keys, queries)), "mask|bias", class = "tartan_error_shape")
  expect_error(call(mask = 1:3), "mask is 3", class = "tartan_error_shape")
  expect_error(call(key_lengths = 1:2), "key_lengths has length 2, expected 3", class = "tartan_error_shape")
  expect_error(call(key_lengths = c(1, 31, 2)), "is 31, expected 0", class = "tartan_error_argument")
  expect_error(call(key_lengths = c(1.5, 31, 2)), "whole numbers", class = "tartan_error_argument")
  expect_error(call(key_lengths = c(1, 2, 3), block_bias = 1), "block_bias is given with", class = "tartan_error_argument")
  expect_error(call(softcap = -1), "softcap", class = "tartan_error_argument")
  expect_error(call(by_batch = NA), "by_batch", class = "tartan_error_argument")
  # Before they are listed.
  for (rule in list(function(q, k, h) k <= q, function(q, k, h) (1:7)[q %% 7 + 1] > 3)) {
    expect_error(block_layout_from_rule(rule, c(2^30, 2^30), 1), "(keeps at least|must be asked about) .* blocks, expected at most",
                 class = "tartan_error_overflow")
  }
  expect_error(block_layout_from_rule(3, c(8, 8)), "keep is 3, expected a function", class = "tartan_error_argument")
  expect_error(block_layout_from_rule(function(q, k, h) 1, c(8, 8)), "keep returned 1", class = "tartan_error_argument")
  expect_error(block_cut(layout, 22, 30), "rows is 22, expected 0", class = "tartan_error_argument")
  expect_error(block_take_heads(layout, 2), "heads", class = "tartan_error_layout")
  expect_error(mask_project(3, layout), "mask", class = "tartan_error_argument")
  expect_error(mask_project(attention_mask(layout, function(q, k, h) TRUE), block_pattern("dense", c(queries, keys), 8)), "layout has blocks",
               class = "tartan_error_shape")
})

test_that("keys behind the blocks of a sequence are not read", {
  set.seed(4)
  q <- array(rnorm(4 * 32 * 2 * 3), c(4, 32, 2, 3))
  k <- array(rnorm(length(q)), dim(q))
  v <- array(rnorm(length(q)), dim(q))
  lengths <- c(16, 0, 32)
  for (pattern in c("dense", "causal")) {
    layout <- block_pattern(pattern, c(32, 32), 8)
    wanted <- attention(q, k, v, layout, key_lengths = lengths)
    for (b in 1:2) k[, (lengths[b] + 1):32, , b] <- v[, (lengths[b] + 1):32, , b] <- NaN
    expect_equal(attention(q, k, v, layout, key_lengths = lengths), wanted)
    expect_true(all(is.finite(wanted)) && all(wanted[, , , 2] == 0))
    k[is.nan(k)] <- 0
    v[is.nan(v)] <- 0
    # A mask beside the lengths goes with the blocks.
    mask <- attention_mask(layout, function(q, k, h) k <= q)
    seen <- attention(q, k, v, layout, mask = mask, key_lengths = lengths)
    v[, 17:32, , 1] <- NaN
    expect_equal(attention(q, k, v, layout, mask = mask, key_lengths = lengths), seen)
    v[is.nan(v)] <- 0
  }
})
