# SPDX-License-Identifier: Apache-2.0

tensors <- function(queries = 40, keys = 52, heads = 4, kv_heads = heads, d = 8, batch = 2, seed = 1) {
  set.seed(seed)
  make <- function(n, h) array(rnorm(d * n * h * batch), c(d, n, h, batch))
  list(q = make(queries, heads), k = make(keys, kv_heads), v = make(keys, kv_heads))
}

# The elements of the stored blocks, queries x keys x heads.
stored <- function(layout) {
  size <- block_dim(layout)
  grid <- array(block_mask(layout), c(block_grid(layout), block_heads(layout)))
  array(vapply(seq_len(dim(grid)[3]), function(h) {
    (grid[, , h] %x% matrix(TRUE, size[1], size[2]))[seq_len(nrow(layout)), seq_len(ncol(layout))] == 1
  }, matrix(NA, nrow(layout), ncol(layout))), c(dim(layout), dim(grid)[3]))
}

# Attention as a dense computation; `bias` is queries x keys x heads.
dense_attention <- function(x, seen, scale = 1 / sqrt(dim(x$q)[1]), bias = 0, sinks = rep(-Inf, dim(x$q)[3])) {
  out <- 0 * x$q
  lse <- array(0, dim(x$q)[-1])
  heads <- dim(x$q)[3]
  bias <- array(bias, c(dim(seen)[1:2], heads))
  for (b in seq_len(dim(out)[4])) for (h in seq_len(heads)) {
    shared <- (h - 1) %/% (heads / dim(x$k)[3]) + 1
    scores <- scale * crossprod(x$q[, , h, b], x$k[, , shared, b]) + bias[, , h]
    scores[!seen[, , min(h, dim(seen)[3])]] <- -Inf
    top <- pmax(apply(scores, 1, max), sinks[h])
    top <- ifelse(is.finite(top), top, 0)
    weights <- exp(scores - top)
    total <- rowSums(weights) + exp(sinks[h] - top)
    lse[, h, b] <- log(total) + top
    out[, , h, b] <- x$v[, , shared, b] %*% t(weights / pmax(total, 1e-300))
  }
  list(out = out, lse = lse)
}

away <- function(offset = 0) outer(1:40, 1:52, function(i, j) j - i - offset)
hidden <- function(seen, offset = 0, from = 1) {
  seen & array(outer(1:40, 1:52, function(i, j) j <= i + offset | j < from), dim(seen))
}

test_that("attention equals a dense computation", {
  layout <- random_layout(c(40, 52), c(8, 16), 0.5)
  heads <- random_layout(c(40, 52), c(8, 16), 0.5, heads = 4)
  x <- tensors()
  check <- function(x, layout, seen, ..., wanted_scale = 1 / sqrt(8), bias = 0, wanted_sinks = rep(-Inf, 4)) {
    found <- attention(x$q, x$k, x$v, layout, ..., return_lse = TRUE)
    wanted <- dense_attention(x, seen, wanted_scale, bias, wanted_sinks)
    expect_equal(found, wanted, tolerance = 1e-12)
    expect_identical(attention(x$q, x$k, x$v, layout, ...), found$out)
  }
  check(x, layout, stored(layout))
  check(x, heads, stored(heads))
  check(tensors(kv_heads = 2), heads, stored(heads))
  check(x, layout, stored(layout), scale = 0.3, wanted_scale = 0.3)
  check(x, layout, hidden(stored(layout)), causal = TRUE)
  check(x, layout, hidden(stored(layout), 12, 4), causal = TRUE, query_offset = 12, causal_from = 4)
  rule <- function(q, k, head) (q + 2 * k + head) %% 3 != 0
  kept <- array(outer(1:40, 1:52, function(q, k) rule(q, k, 1)), c(40, 52, 1))
  check(x, layout, stored(layout) & kept, mask = attention_mask(layout, rule))
  sinks <- c(0.5, -1, -Inf, 3)
  check(tensors(kv_heads = 2), heads, stored(heads), sinks = sinks, wanted_sinks = sinks)
  slopes <- c(0.1, 0, -0.2, 0.05)
  check(x, layout, stored(layout), slopes = slopes, bias = outer(away(), slopes))
  table <- matrix(rnorm(9 * 4), 9)
  at <- pmin(pmax(away(-2), -4), 4) + 5
  check(x, layout, stored(layout), distance_bias = table, query_offset = -2, bias = array(table[at, ], c(40, 52, 4)))
  numbers <- rnorm(block_count(layout))
  bias <- matrix(0, 40, 52)
  for (id in seq_along(numbers)) {
    at <- block_coordinates(layout)[id, ]
    bias[intersect((at$row - 1) * 8 + 1:8, 1:40), intersect((at$col - 1) * 16 + 1:16, 1:52)] <- numbers[id]
  }
  check(x, layout, stored(layout), block_bias = numbers, bias = array(bias, c(40, 52, 4)))
})

test_that("heads and batch may be left out", {
  layout <- random_layout(c(40, 52), c(8, 8), 0.5)
  x <- tensors()
  all <- attention(x$q, x$k, x$v, layout, return_lse = TRUE)
  grads <- attention_gradient(x$q, x$k, x$v, layout, all$out, all$lse, all$out)
  one <- attention(x$q[, , , 2], x$k[, , , 2], x$v[, , , 2], layout, return_lse = TRUE)
  expect_identical(one, list(out = all$out[, , , 2], lse = all$lse[, , 2]))
  single <- attention(x$q[, , 3, 2], x$k[, , 3, 2], x$v[, , 3, 2], layout, return_lse = TRUE)
  expect_identical(single, list(out = all$out[, , 3, 2], lse = all$lse[, 3, 2]))
  expect_identical(attention_gradient(x$q, x$k, x$v, layout, all$out, all$lse, all$out, deterministic = FALSE), grads)
  some <- attention_gradient(x$q[, , 3, 2], x$k[, , 3, 2], x$v[, , 3, 2], layout, single$out, single$lse, single$out)
  expect_identical(some, lapply(grads, function(g) g[, , 3, 2]))
})

test_that("gradients agree with differences", {
  layout <- random_layout(c(40, 52), c(8, 8), 0.5)
  mask <- attention_mask(layout, function(q, k, head) q != k)
  x <- tensors(kv_heads = 2)
  weight <- array(rnorm(length(x$q)), dim(x$q))
  for (options in list(list(), list(causal = TRUE, query_offset = 12), list(mask = mask), list(slopes = c(0.1, 0, -0.2, 0.05)),
                       list(dropout = 0.3, seed = 4))) {
    run <- function(x, ...) do.call(attention, c(list(x$q, x$k, x$v, layout), options, ...))
    found <- run(x, return_lse = TRUE)
    grads <- do.call(attention_gradient, c(list(x$q, x$k, x$v, layout, found$out, found$lse, weight), options))
    for (name in names(x)) for (at in sample(length(x[[name]]), 4)) {
      loss <- function(step) {
        x[[name]][at] <- x[[name]][at] + step
        sum(run(x) * weight)
      }
      expect_equal((loss(1e-5) - loss(-1e-5)) / 2e-5, grads[[name]][at], tolerance = 1e-6)
    }
  }
})

test_that("gradients of biases and sinks agree with differences", {
  layout <- random_layout(c(40, 52), c(8, 8), 0.5)
  x <- tensors(kv_heads = 2)
  weight <- array(rnorm(length(x$q)), dim(x$q))
  blocks <- block_count(layout)
  for (options in list(list(slopes = c(0.1, 0, -0.2, 0.05)), list(distance_bias = matrix(rnorm(9 * 4), 9), dropout = 0.3, seed = 4),
                       list(distance_bias = rnorm(9), causal = TRUE, query_offset = 12), list(block_bias = rnorm(blocks)),
                       list(block_bias = matrix(rnorm(4 * blocks), blocks), sinks = rnorm(4)), list(sinks = rnorm(4)))) {
    run <- function(options, ...) do.call(attention, c(list(x$q, x$k, x$v, layout), options, ...))
    found <- run(options, return_lse = TRUE)
    expect_length(do.call(attention_gradient, c(list(x$q, x$k, x$v, layout, found$out, found$lse, weight), options)), 3)
    grads <- do.call(attention_bias_gradient, c(list(x$q, x$k, x$v, layout, found$out, found$lse, weight), options))
    given <- intersect(names(options), c("slopes", "distance_bias", "block_bias", "sinks"))
    expect_identical(names(grads), ifelse(given == "sinks", "sinks", "bias"))
    for (i in seq_along(given)) {
      expect_identical(dim(grads[[i]]), dim(options[[given[i]]]))
      expect_identical(length(grads[[i]]), length(options[[given[i]]]))
      for (at in sample(length(grads[[i]]), 4)) {
        loss <- function(step) {
          options[[given[i]]][at] <- options[[given[i]]][at] + step
          sum(run(options) * weight)
        }
        expect_equal((loss(1e-5) - loss(-1e-5)) / 2e-5, grads[[i]][at], tolerance = 1e-6)
      }
    }
  }
  expect_refused(attention_bias_gradient(x$q, x$k, x$v, layout, weight, weight[1, , , ], weight), "argument",
                 "no bias and no sinks are given, expected at least one of them")
})

test_that("masks hold what the rule says, and are saved", {
  rule <- function(q, k, head) (3 * q + k + head) %% 4 == 1
  for (block in list(8, c(4, 6), c(33, 40), 1)) for (heads in c(1, 3)) {
    layout <- random_layout(c(50, 70), block, 0.5, heads = heads)
    wanted <- stored(layout) & array(rule(slice.index(stored(layout), 1), slice.index(stored(layout), 2),
                                          slice.index(stored(layout), 3)), c(50, 70, heads))
    if (heads == 1) dim(wanted) <- c(50, 70)
    mask <- attention_mask(layout, rule)
    expect_identical(as.array(mask), wanted)
    expect_identical(as.array(attention_mask(layout, wanted)), wanted)
    expect_identical(as.array(attention_mask(layout, wanted + 0)), wanted)
    expect_output(print(mask), paste("BlockMask of", sum(wanted), "elements in 50 x 70"))
  }
  shared <- outer(1:50, 1:70, function(q, k) rule(q, k, 1))
  expect_identical(as.array(attention_mask(layout, shared)), stored(layout) & array(shared, c(50, 70, 3)))
  expect_identical(sum(as.array(attention_mask(layout, function(q, k, head) TRUE))), sum(stored(layout)))
  layout <- random_layout(c(40, 52), 8, 0.5)
  mask <- attention_mask(layout, rule)
  x <- tensors()
  wanted <- attention(x$q, x$k, x$v, layout, mask = mask)
  file <- tempfile()
  saveRDS(mask, file)
  expect_identical(attention(x$q, x$k, x$v, layout, mask = readRDS(file)), wanted)
  changed <- mask
  changed@bits[] <- as.raw(255)
  expect_identical(attention(x$q, x$k, x$v, layout, mask = changed), attention(x$q, x$k, x$v, layout))
  changed <- mask
  changed@index[] <- -1L
  expect_identical(attention(x$q, x$k, x$v, layout, mask = changed), attention(x$q, x$k, x$v, layout))
  changed@index[2] <- 1000000L
  expect_refused(attention(x$q, x$k, x$v, layout, mask = changed), "layout", "index[1] is 1000000, expected -1, or one")
  expect_identical(attention(x$q, x$k, x$v, layout, mask = mask), wanted)
})

test_that("rules are asked about stored elements in parts", {
  layout <- block_pattern("causal", c(3000, 3000), 64)
  calls <- 0
  mask <- attention_mask(layout, function(q, k, head) {
    if (!is.numeric(q)) stop("spans") # as a rule that looks something up
    calls <<- calls + 1
    expect_true(all(q >= 1 & q <= 3000 & k >= 1 & k <= 3000 & head == 1))
    k <= q
  })
  expect_equal(calls, ceiling(block_count(layout) / 256))
  expect_output(print(mask), paste("BlockMask of", 3000 * 3001 / 2, "elements"))
  expect_length(mask@bits, 2 * 64 * 8) # the diagonal block, whole and at the edge
  expect_lt(object.size(mask@index) + object.size(mask@bits), 8 * 64 * 64)
})

test_that("what does not fit is refused", {
  layout <- random_layout(c(40, 52), 8, 0.5)
  x <- tensors()
  run <- function(q = x$q, k = x$k, v = x$v, ...) attention(q, k, v, layout, ...)
  found <- run(return_lse = TRUE)
  expect_refused(run(q = x$q[, 1, 1, 1]), "shape", "q has 1 dimensions, expected 2 to 4: d x tokens x heads x batch")
  expect_refused(run(k = x$q), "shape", "k is 8 x 40 x 4 x 2, expected 52 tokens, the columns of the layout")
  expect_refused(run(q = x$k), "shape", "q is 8 x 52 x 4 x 2, expected 40 tokens, the rows of the layout")
  expect_refused(run(k = x$k[1:7, , , ]), "shape", "k is 7 x 52 x 4 x 2, expected d = 8 and a batch of 2, as q")
  expect_refused(run(v = x$v[, , 1:2, ]), "shape", "v is 8 x 52 x 2 x 2, expected 8 x 52 x 4 x 2, as k")
  expect_refused(run(k = x$k[, , 1:3, ], v = x$v[, , 1:3, ]), "shape", "k has 3 heads, expected a divisor of the 4 of q")
  expect_refused(run(q = "x"), "argument", "q is \"x\", expected a numeric matrix")
  expect_refused(run(causal = NA), "argument", "causal is NA")
  expect_refused(run(scale = Inf), "argument", "scale is Inf, expected a finite number")
  expect_refused(run(scale = "1"), "argument", "scale is \"1\", expected a number")
  expect_refused(run(dropout = 1), "argument", "dropout is 1, expected a finite number of 0 or more and below 1")
  expect_refused(run(seed = -1), "argument", "seed is -1")
  expect_refused(run(causal_from = 0, causal = TRUE), "argument", "causal_from is 0, expected a whole number from 1")
  expect_refused(run(query_offset = 3), "argument", "query_offset is given, which needs causal = TRUE or a bias")
  expect_refused(run(slopes = 1:4, block_bias = 1), "argument", "slopes and block_bias are given, expected at most one bias")
  expect_refused(run(sinks = 1:3), "shape", "sinks has shape [3], expected [4]")
  expect_refused(run(slopes = 1:3), "shape", "slopes has shape [3], expected [4]")
  expect_refused(run(distance_bias = matrix(1, 8, 4)), "shape", "distance_bias has shape [8, 4], expected [an odd number of distances, 4 or 1]")
  expect_refused(run(block_bias = matrix(1, 2, 4)), "shape",
                 sprintf("block_bias has shape [2, 4], expected [%d, heads or 1], a number for each block", block_count(layout)))
  expect_refused(run(mask = TRUE), "argument", "mask is TRUE, expected a BlockMask")
  other <- attention_mask(random_layout(c(40, 52), 8, 0.5, seed = 2), function(q, k, head) TRUE)
  expect_refused(run(mask = other), "layout", "mask has another layout than layout")
  expect_error(run(mask = other), "^mask")
  expect_refused(attention(x$q, x$k, x$v, 3), "argument", "layout is 3, expected a BlockLayout")
  gradient <- function(out = found$out, lse = found$lse, out_grad = found$out) {
    attention_gradient(x$q, x$k, x$v, layout, out, lse, out_grad)
  }
  expect_refused(gradient(lse = found$lse[1:9, , ]), "shape", "lse is 9 x 4 x 2, expected 40 x 4 x 2")
  expect_refused(gradient(out_grad = x$k), "shape", "out_grad is 8 x 52 x 4 x 2, expected 8 x 40 x 4 x 2, as q")
  expect_refused(attention_mask(layout, 3), "argument", "keep is 3, expected a function, or an array of TRUE and FALSE")
  expect_refused(attention_mask(layout, matrix(TRUE, 3, 4)), "shape", "keep is 3 x 4, expected 40 x 52, or 40 x 52 x 1")
  expect_refused(attention_mask(layout, function(q, k, head) k), "argument", "keep returned", "expected TRUE or FALSE")
  expect_refused(attention_mask(layout, function(q, k, head) c(TRUE, FALSE)), "argument", "keep returned c(TRUE, FALSE)")
  expect_refused(attention_mask(layout, function(q, k, head) NA), "argument", "keep returned NA")
  expect_refused(attention_mask(3, function(q, k, head) TRUE), "argument", "layout is 3, expected a BlockLayout")
})

test_that("closed masks are refused, also as copies", {
  layout <- random_layout(c(40, 52), 8, 0.5)
  x <- tensors()
  mask <- attention_mask(layout, function(q, k, head) TRUE)
  copy <- mask
  wanted <- attention(x$q, x$k, x$v, layout, mask = mask)
  close(mask)
  close(mask)
  expect_output(print(mask), "BlockMask, closed")
  expect_refused(attention(x$q, x$k, x$v, layout, mask = copy), "handle", "mask is closed")
  kept <- attention_mask(layout, function(q, k, head) TRUE)
  expect_identical(attention(x$q, x$k, x$v, layout, mask = kept), wanted)
})

for (device in test_devices) {
  ctx <- tartan_context(device)
  test_that(paste0("attention on a device equals that of R's memory (", device, ")"), {
    layout <- random_layout(c(40, 52), 8, 0.5)
    mask <- attention_mask(layout, function(q, k, head) q != k)
    x <- tensors(kv_heads = 2)
    far <- lapply(x, to_device, ctx)
    for (options in list(list(), list(causal = TRUE), list(mask = mask))) {
      here <- do.call(attention, c(x, list(layout, return_lse = TRUE), options))
      there <- do.call(attention, c(far, list(layout, return_lse = TRUE), options))
      expect_s4_class(there$out, "DeviceArray")
      expect_equal(lapply(there, to_host), here, tolerance = 1e-12)
      grads <- do.call(attention_gradient, c(far, list(layout, there$out, there$lse, there$out), options))
      wanted <- do.call(attention_gradient, c(x, list(layout, here$out, here$lse, here$out), options))
      expect_equal(lapply(grads, to_host), wanted, tolerance = 1e-12)
    }
    slopes <- c(0.1, 0, -0.2, 0.05)
    expect_equal(to_host(attention(far$q, far$k, far$v, layout, slopes = to_device(slopes, ctx))),
                 attention(x$q, x$k, x$v, layout, slopes = slopes), tolerance = 1e-12)
    expect_equal(to_host(attention(far$q, far$k, far$v, layout, sinks = to_device(slopes, ctx))),
                 attention(x$q, x$k, x$v, layout, sinks = slopes), tolerance = 1e-12)
    expect_refused(attention(far$q, x$k, far$v, layout), "unsupported", "k is in R's memory")
    half <- lapply(x, to_device, ctx, dtype = "float32")
    expect_identical(block_dtype(attention(half$q, half$k, half$v, layout)), "float32")
  })
}
