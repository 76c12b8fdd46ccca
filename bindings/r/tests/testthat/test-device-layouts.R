# SPDX-License-Identifier: Apache-2.0
# Dynamic layouts.

random_mask <- function(size, density = 0.5) array(runif(prod(size)) < density, size)
first_blocks <- function(values, n) values[, , seq_len(n), drop = FALSE]

for (device in test_devices) {
  at <- function(text) paste0(text, " (", device, ")")
  place <- if (device == "cuda") "cuda:0" else device
  ctx <- tartan_context(device)

  test_that(at("products follow the mask"), {
    set.seed(7)
    dim <- c(18, 11)
    block <- c(4, 3)
    layout <- block_layout_from_device_mask(random_mask(c(5, 4)), ctx, block, dim)
    values <- array(rnorm(12 * 20), c(block, 20))
    for (dtype in c("float64", "float32")) {
      close_enough <- if (dtype == "float64") 1e-14 else 1e-6
      there <- function(x) to_device(x, ctx, dtype)
      a <- block_matrix(layout, values = values, dtype = dtype)
      expect_s4_class(a, "DeviceBlockMatrix")
      expect_identical(block_dtype(a), dtype)
      b <- there(matrix(rnorm(11 * 5), 11))
      x <- there(matrix(rnorm(18 * 6), 18))
      xt <- there(t(to_host(x)))
      y <- there(matrix(rnorm(6 * 11), 6))
      gates <- rnorm(20)
      for (density in c(0.5, 0, 1, 0.2)) {
        mask <- random_mask(c(5, 4), density)
        expect_identical(block_update(layout, mask), layout)
        fixed <- block_layout_from_mask(mask, block, dim)
        n <- block_count(fixed)
        same <- block_cast(block_matrix(fixed, values = first_blocks(values, n)), dtype)
        m <- as.matrix(same)
        expect_true(to_host(layout) == fixed)
        expect_true(to_host(a)@layout == fixed)
        expect_identical(as.matrix(to_host(a)), m)
        expect_within(to_host(a %*% b), m, to_host(b), dtype)
        expect_within(to_host(crossprod(a, x)), t(m), to_host(x), dtype)
        expect_within(to_host(xt %*% a), to_host(xt), m, dtype)
        same <- to_device(same, ctx)
        expect_equal(to_host(spmm(a, b, gates = there(gates))),
                     to_host(spmm(same, b, gates = there(gates[seq_len(n)]))), tolerance = close_enough)
        s <- sddmm(layout, x, y)
        expect_true(block_is_dynamic(s))
        expect_identical(block_dtype(s), dtype)
        expect_true(to_host(s)@layout == fixed)
        expect_equal(as.matrix(to_host(s)), as.matrix(to_host(sddmm(fixed, x, y))), tolerance = close_enough)
        expect_equal(as.matrix(to_host(sddmm(a, x, y, alpha = 2, beta = -1))),
                     as.matrix(to_host(sddmm(same, x, y, alpha = 2, beta = -1))), tolerance = close_enough)
        expect_identical(as.matrix(to_host(a)), m) # not changed
      }
    }
  })

  # A mask of the k largest scores of each row: the first of equal ones, NaN as infinity, and none of -Inf.
  largest <- function(scores, k) {
    size <- c(dim(scores), 1)[1:3]
    sure <- array(ifelse(is.nan(scores), Inf, scores), size)
    chosen <- array(FALSE, size)
    for (head in seq_len(size[3L])) for (i in seq_len(size[1L])) {
      row <- sure[i, , head]
      best <- utils::head(order(-row, seq_along(row)), k)
      chosen[i, best, head] <- row[best] > -Inf
    }
    if (length(dim(scores)) == 2L) chosen[, , 1L] else chosen
  }
  some_scores <- function(size) {
    scores <- array(round(rnorm(prod(size)), 1), size)
    scores[runif(prod(size)) < 0.1] <- -Inf
    scores[runif(prod(size)) < 0.05] <- NaN
    scores
  }

  test_that(at("the largest scores are chosen"), {
    set.seed(9)
    scores <- some_scores(c(5, 40, 3))
    layout <- block_layout_from_device_scores(scores, 6, ctx, 8)
    expect_true(block_is_dynamic(layout))
    expect_identical(block_count(layout), 90)
    expect_true(to_host(layout) == block_layout_from_mask(largest(scores, 6), 8))
    for (k in c(1, 6, 3)) {
      scores <- some_scores(c(5, 40, 3))
      expect_identical(block_update_scores(layout, scores, k), layout)
      expect_true(to_host(layout) == block_layout_from_mask(largest(scores, k), 8))
    }
    flat <- block_layout_from_device_scores(scores[, , 1], 50, ctx, c(8, 4), c(37, 159))
    expect_true(to_host(flat) == block_layout_from_mask(largest(scores[, , 1], 50), c(8, 4), c(37, 159)))
    expect_identical(block_count(to_host(block_update(flat, matrix(TRUE, 5, 40)))), 200L)
    expect_true(to_host(block_layout_from_device_scores(matrix(c(3L, 1L, 2L), 1), 1, ctx, 8)) ==
                  block_layout_from_mask(matrix(c(1, 0, 0), 1), 8))
  })

  test_that(at("attention follows the scores"), {
    set.seed(10)
    there <- function(x) if (device == "cpu") x else to_device(x, ctx)
    here <- function(x) if (device == "cpu") x else to_host(x)
    numbers <- function(tokens) array(rnorm(16 * tokens * 8), c(16, tokens, 4, 2))
    q <- numbers(40)
    k <- numbers(96)
    v <- numbers(96)
    g <- numbers(40)
    for (n in c(1, 4, 8)) {
      layout <- block_layout_from_device_scores(array(runif(60 * n), c(5, 12, n)), 3, ctx, 8)
      block_update_scores(layout, array(runif(60 * n), c(5, 12, n)), 3)
      results <- lapply(list(layout, to_host(layout)), function(on) {
        made <- attention(there(q), there(k), there(v), on, return_lse = TRUE)
        grads <- attention_gradient(there(q), there(k), there(v), on, made$out, made$lse, there(g))
        lapply(c(made, grads), here)
      })
      expect_equal(results[[1L]], results[[2L]], tolerance = 1e-13)
      if (n < 8) next
      alone <- block_layout_from_mask(block_mask(to_host(layout))[, , 5:8], 8)
      expect_equal(results[[1L]]$out[, , , 2], attention(q[, , , 2], k[, , , 2], v[, , , 2], alone), tolerance = 1e-13)
    }
  })

  test_that(at("scores are refused"), {
    scores <- matrix(runif(6), 2)
    layout <- block_layout_from_device_scores(scores, 2, ctx, 8)
    expect_refused(block_layout_from_device_scores(scores, 0, ctx, 8), "argument")
    expect_refused(block_layout_from_device_scores(scores[1, ], 1, ctx, 8), "shape")
    expect_refused(block_layout_from_device_scores(scores > 1, 1, ctx, 8), "argument")
    expect_refused(block_layout_from_device_scores(scores, 1, ctx, 8, c(16, 16)), "shape")
    expect_refused(block_update_scores(layout, scores, 3), "argument")
    expect_refused(block_update_scores(layout, scores[, 1:2], 2), "shape")
    expect_refused(block_update_scores(layout, array(1, c(2, 3, 2)), 2), "shape")
    expect_refused(block_update_scores(to_host(layout), scores, 2), "argument")
  })

  test_that(at("masks have heads, last, and are logical, whole numbers or raw"), {
    set.seed(8)
    mask <- random_mask(c(3, 4, 2))
    fixed <- block_layout_from_mask(mask, 8)
    bytes <- array(as.raw(mask * 3), dim(mask))
    expect_true(block_layout_from_mask(bytes, 8) == fixed)
    for (given in list(mask, mask + 0L, mask + 0, bytes)) {
      layout <- block_layout_from_device_mask(given, ctx, 8)
      expect_identical(dim(layout), c(24L, 32L))
      expect_identical(block_heads(layout), 2)
      expect_true(to_host(layout) == fixed)
      expect_true(to_host(block_update(block_update(layout, !mask), given)) == fixed)
    }
    a <- block_matrix(layout, values = to_device(array(1:1536 / 7, c(8, 8, 24)), ctx))
    b <- array(rnorm(32 * 5 * 2), c(32, 5, 2))
    same <- block_matrix(fixed, values = first_blocks(array(1:1536 / 7, c(8, 8, 24)), block_count(fixed)))
    expect_equal(to_host(a %*% to_device(b, ctx)), same %*% b, tolerance = 1e-14)
    expect_identical(as.array(to_host(a)), as.array(same))
  })

  test_that(at("they tell what is known, and are told apart"), {
    mask <- array(TRUE, c(5, 4, 2))
    layout <- block_layout_from_device_mask(mask, ctx, 8, capacity = 39)
    raw <- asNamespace("tartan")
    expect_true(block_is_dynamic(layout))
    expect_identical(raw$tartan_layout_is_dynamic(layout@handle), 1L)
    expect_identical(block_count(layout), 39)
    expect_identical(block_dim(layout), c(8, 8))
    expect_identical(block_grid(layout), c(5, 4))
    expect_equal(length(layout), 40 * 32)
    text <- paste0("40 x 32, 2 heads, blocks 8 x 8: dynamic, capacity 39 of 40 on ", place)
    expect_output(print(layout), paste("DeviceBlockLayout", text), fixed = TRUE)
    zeros <- block_matrix(layout, dtype = "bfloat16")
    expect_output(print(zeros), paste("DeviceBlockMatrix bfloat16", text), fixed = TRUE)
    expect_true(block_is_dynamic(zeros))
    expect_identical(block_count(zeros), 39)
    text <- explain(spmm(zeros, to_device(array(1, c(32, 64, 2)), ctx, dtype = "bfloat16")))
    expect_match(text, place, fixed = TRUE)
    expect_match(text, "bfloat16", fixed = TRUE)
    expect_refused(to_host(layout), "layout", "the last mask has 40 blocks, expected at most 39")
    mask[5, 4, 2] <- FALSE
    fixed <- to_host(block_update(layout, mask))
    expect_identical(block_mask(fixed), mask)
    expect_false(block_is_dynamic(fixed))
    expect_false(block_is_dynamic(random_matrix()))
    expect_identical(to_host(fixed), fixed)
    expect_identical(unique(as.vector(as.array(to_host(zeros)))), 0)
    close(layout)
    expect_identical(block_mask(to_host(zeros)), mask) # matrices keep the layout
    expect_output(print(layout), "closed")
    expect_refused(block_update(layout, mask), "handle", "the device layout is closed")
    expect_refused(block_matrix(layout), "handle", "closed")
  })

  test_that(at("what needs the blocks refuses"), {
    mask <- matrix(TRUE, 3, 3)
    layout <- block_layout_from_device_mask(mask, ctx, 4)
    a <- block_matrix(layout)
    fixed <- block_layout_from_mask(mask, 4)
    for (x in list(layout, a)) {
      for (f in list(block_density, block_identity, block_recipe, block_elements, block_coordinates, block_mask,
                     block_order, block_row_lengths, block_statistics, block_reach, block_svg,
                     function(x) block_id(x, 1, 1), function(x) block_partition(x, 2), function(x) block_union(x, x),
                     function(x) block_prune(x, rep(1, 9)), function(x) block_keep(x, 1, 1:9),
                     function(x) block_grow(x, 1, 1), function(x) block_move(x, 1, 1, 1))) {
        expect_refused(f(x), "unsupported", "x is dynamic")
      }
      expect_refused(block_slice(x, 1), "unsupported", "expected an ordinary")
      expect_refused(block_permute(x, 3:1), "unsupported", "expected an ordinary")
    }
    for (f in list(t, block_norms, function(x) block_cast(x, "float32"), function(x) block_project(x, fixed),
                   function(x) block_replace(x, 1:9, x), function(x) gate_gradient(x, x))) {
      expect_refused(f(a), "unsupported", "has a dynamic layout")
    }
    b <- block_matrix(fixed)
    expect_refused(block_project(b, layout), "unsupported", "layout is dynamic")
    expect_refused(block_matrix(matrix(1, 12, 12), layout = layout), "unsupported", "layout is dynamic")
    expect_refused(block_union(fixed, layout), "unsupported", "y is dynamic")
    expect_refused(block_dtype(layout), "argument", "DeviceBlockLayout")
    expect_refused(layout %*% to_device(matrix(1, 12, 1), ctx), "unsupported", "x is a DeviceBlockLayout")
    expect_refused(block_put(block_file(), "x", layout), "argument", "DeviceBlockLayout")
  })

  test_that(at("wrong masks, rooms, values and places are refused"), {
    mask <- array(TRUE, c(5, 4, 2))
    make <- function(...) block_layout_from_device_mask(..., block = 8)
    expect_refused(make(mask, ctx, capacity = 41), "argument", "capacity is 41, expected 0", "40")
    expect_refused(make(mask, ctx, capacity = 0), "argument", "capacity is 0")
    expect_refused(make(mask, "cpu"), "argument", "context is \"cpu\"")
    expect_refused(make(mask[, 1, 1], ctx), "shape", "mask has 0 dimensions")
    expect_refused(make(mask, ctx, dim = c(41, 32)), "shape", "mask is 5 x 4, expected 6 x 4")
    expect_refused(make(matrix("a"), ctx), "argument", "mask is of type character")
    expect_refused(make(mask + 1, ctx), "argument", "other numbers than 0 and 1")
    expect_refused(make(replace(mask, 7, NA), ctx), "argument", "mask[7] is NA")
    layout <- make(mask, ctx)
    expect_refused(block_update(layout, mask[, 1:3, ]), "shape", "mask is 5 x 3, expected 5 x 4")
    expect_refused(block_update(layout, mask[, , 1]), "shape", "mask has 1 heads, expected 2")
    expect_refused(block_update(to_host(layout), mask), "argument", "x is not dynamic")
    expect_refused(block_update(1, mask), "argument", "x is 1, expected a DeviceBlockLayout")
    raw <- asNamespace("tartan")
    expect_refused(raw$tartan_layout_update_device_mask(ctx, layout@handle, 1), "dtype")
    expect_true(to_host(layout) == block_layout_from_mask(mask, 8)) # as it was
    expect_refused(block_matrix(layout, values = 1:5), "shape", "values has length 5, expected 2560 (8 x 8 x 40)")
    expect_refused(block_matrix(layout, values = array(1, c(8, 40, 8))), "shape", "values is 8 x 40 x 8")
    expect_refused(block_matrix(layout, values = "a"), "dtype", "values is \"a\"")
    expect_refused(block_matrix(layout, dtype = "double"), "dtype", "dtype is \"double\"")
    expect_refused(block_matrix(layout, values = to_device(1:5, ctx)), "shape", "values is 5, expected 8 x 8 x 40")
    values <- to_device(array(1, c(8, 8, 40)), ctx)
    expect_refused(block_matrix(layout, values = values, dtype = "float32"), "dtype", "values is float64")
    expect_s4_class(block_matrix(layout, values = to_device(array(1, c(8, 8, 40)), tartan_context(device))),
                    "DeviceBlockMatrix") # of another context
    x <- to_device(array(1, c(40, 3, 2)), ctx)
    y <- array(1, c(3, 32, 2))
    expect_refused(sddmm(layout, x, y), "unsupported", "y is in R's memory")
    expect_s4_class(sddmm(layout, x, to_device(y, tartan_context(device))), "DeviceBlockMatrix")
    expect_refused(sddmm(layout, x, to_device(y, ctx), beta = 1), "argument", "beta is 1", "layout")
    expect_refused(block_update(unserialize(serialize(layout, NULL)), mask), "handle", "saved session")
  })
}

test_that("the wrapper protects masks and what it makes of them", {
  ctx <- tartan_context(test_devices[length(test_devices)])
  raw <- asNamespace("tartan")
  handle <- ctx
  view <- raw$.view(as.raw(c(1, 0, 0, 1)), c(1, 2, 2), c(4, 2, 1), raw$TARTAN_U8)
  gctorture(TRUE)
  on.exit(gctorture(FALSE))
  layout <- raw$tartan_layout_from_device_mask(handle, c(4, 4, 2, 2, 1), view, 0)
  raw$tartan_layout_update_device_mask(handle, layout, view)
  fixed <- raw$tartan_layout_to_host(handle, layout)
  gctorture(FALSE)
  expect_identical(raw$tartan_layout_get_mask(fixed, 4), view[[1L]])
})
