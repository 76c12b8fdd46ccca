# SPDX-License-Identifier: Apache-2.0
# Optimisers: lists of arrays and block matrices.

model <- function() list(weights = matrix(c(1, -2, 3, 4, 0.5, 6), 3, 2), bias = c(a = 0.5, b = -1))
zeros <- function(x) lapply(x, function(p) 0 * p)

test_that("adam is its formula and leaves what it is given", {
  p <- model()
  g <- lapply(p, function(x) x + 1)
  m <- lapply(p, function(x) 0.1 * x)
  v <- lapply(p, function(x) x^2)
  found <- adam(p, g, m, v, rate = 0.1, beta1 = 0.8, beta2 = 0.9, epsilon = 1e-3, weight_decay = 0.2, step = 3)
  expect_named(found, c("parameters", "means", "squares"))
  for (name in names(p)) {
    mean <- 0.8 * m[[name]] + 0.2 * g[[name]]
    square <- 0.9 * v[[name]] + 0.1 * g[[name]]^2
    step <- mean / (1 - 0.8^3) / (sqrt(square / (1 - 0.9^3)) + 1e-3)
    expect_equal(found$means[[name]], mean, tolerance = 1e-14)
    expect_equal(found$squares[[name]], square, tolerance = 1e-14)
    expect_equal(found$parameters[[name]], p[[name]] - 0.1 * (0.2 * p[[name]] + step), tolerance = 1e-13)
  }
  expect_identical(p, model())
})

test_that("a descent reaches the minimum", {
  p <- model()
  velocities <- zeros(p)
  for (step in 1:200) {
    found <- sgd(p, lapply(p, function(x) x - 3), velocities = velocities, rate = 0.05, momentum = 0.8, step = step)
    p <- found$parameters
    velocities <- found$velocities
  }
  expect_equal(unlist(p, use.names = FALSE), rep(3, 8), tolerance = 1e-6)
})

test_that("matrices stand for their values, with gates for their blocks", {
  layout <- block_pattern("random", c(16, 12), c(4, 2), density = 0.6, seed = 1)
  w <- block_matrix(layout, init = "normal", seed = 1)
  g <- block_matrix(layout, init = "normal", seed = 2)
  gates <- seq_len(block_count(w)) %% 2
  found <- sgd(list(w, 1:3), list(g, c(1, 1, 1)), gates = list(gates, NULL), rate = 0.5)$parameters
  values <- sgd(list(block_values(w)), list(block_values(g)), rate = 0.5)$parameters[[1]]
  expect_s4_class(found[[1]], "BlockMatrix")
  live <- gates == 1
  expect_equal(block_values(found[[1]])[, , live], values[, , live])
  expect_identical(block_values(found[[1]])[, , !live], block_values(w)[, , !live])
  expect_equal(found[[2]], c(0.5, 1.5, 2.5))
  mixed <- sgd(list(w), list(block_values(g)), rate = 0.5)$parameters[[1]] # an array beside a matrix is in the order of its values
  expect_equal(block_values(mixed), values)
  other <- block_matrix(block_pattern("random", c(16, 12), c(4, 2), density = 0.6, seed = 2), init = "normal")
  expect_error(sgd(list(w), list(other)), "array 1 of gradients is on another layout, expected that of array 1 of parameters",
               class = "tartan_error_layout")
})

test_that("lists that do not fit are refused", {
  expect_error(sgd(list(1, 2), list(1)), "gradients has 1 arrays, expected 2 \\(as parameters\\)", class = "tartan_error_argument")
  expect_error(sgd(list(), list()), "parameters has no arrays", class = "tartan_error_argument")
  expect_error(sgd(list(1, 1:3), list(1, 1:2)), "array 2 of gradients is 2, expected 3", class = "tartan_error_shape")
  expect_error(sgd(list("a"), list(1)), "parameters", class = "tartan_error")
})

test_that("norms clip, or skip a step", {
  found <- global_norm(list(3, matrix(4)), clip = 2, return_scale = TRUE)
  expect_equal(found, list(norm = 5, scale = 0.4))
  bad <- global_norm(list(c(1, NaN)), return_scale = TRUE)
  expect_equal(bad$scale, 0)
  expect_identical(sgd(list(c(1, 2)), list(c(1, NaN)), scale = bad$scale)$parameters, list(c(1, 2)))
})

test_that("optimisers run where the parameters are", {
  for (device in setdiff(test_devices, "cpu")) {
    context <- tartan_context(device)
    there <- function(x) lapply(x, to_device, context)
    p <- unname(model())
    found <- or_skip(lion(there(p), there(p), there(zeros(p)), rate = 0.1))
    expect_equal(lapply(found$parameters, to_host), lion(p, p, zeros(p), rate = 0.1)$parameters, ignore_attr = TRUE)
  }
})

test_that("adafactor keeps means of rows and columns", {
  p <- array(rnorm(6 * 4 * 5), c(6, 4, 5)) # five matrices, whose rows lie along the first dimension
  g <- array(rnorm(6 * 4 * 5), c(6, 4, 5))
  found <- adafactor(list(p), list(g), list(matrix(0, 4, 5)), list(matrix(0, 6, 5)), rate = 0.1, clip_threshold = 0)
  d <- 0.999 / 1.999
  rows <- (1 - d) * apply(g^2, c(2, 3), mean)
  cols <- (1 - d) * apply(g^2, c(1, 3), mean)
  expect_equal(found$row_squares[[1]], rows, tolerance = 1e-12)
  expect_equal(found$col_squares[[1]], cols, tolerance = 1e-12)
  x <- g
  for (i in 1:5) x[, , i] <- g[, , i] / sqrt(outer(cols[, i], rows[, i]) / mean(rows[, i]))
  expect_equal(found$parameters[[1]], p - 0.1 * x, tolerance = 1e-12)
})

test_that("steps of muon are about orthogonal", {
  g <- 3 * diag(16) + matrix(runif(256) - 0.5, 16)
  found <- muon(list(0 * g), list(g), list(0 * g), rate = 1, momentum = 0)
  values <- svd(found$parameters[[1]])$d
  expect_gt(min(values), 0.65)
  expect_lt(max(values), 1.25)
})

test_that("formats of few bits round numbers", {
  x <- c(0.3, 1.03, 1.0625, -500, 1e-9, 464, NaN, Inf)
  expect_equal(as.numeric(quantize(array(x), emax = 8, largest = 448, rounding = "even")), c(0.3125, 1, 1, -448, 0, 448, NaN, 448))
  stats <- as.numeric(quantize_stats(array(x[1:4]), emax = 7))
  expect_equal(stats[c(1, 4, 5)], c(500, 0.25, 0))
})

test_that("moments of 8 bits have a scale for each block", {
  layout <- block_pattern("random", c(16, 12), c(4, 2), density = 0.6, seed = 1)
  of <- function(seed, dtype) block_cast(block_matrix(layout, init = "normal", seed = seed), dtype)
  w <- of(1, "float32")
  g <- of(2, "float32")
  zero <- block_cast(0 * g, "float8_e4m3fn")
  none <- rep(0, block_count(w))
  found <- adam(list(w), list(g), list(zero), list(zero), mean_scales = list(none), square_scales = list(none), rate = 0.1)
  expect_named(found, c("parameters", "means", "squares", "mean_scales", "square_scales"))
  scales <- found$mean_scales[[1]]
  expect_true(all(scales > 0) && all(log2(scales) %% 1 == 0))
  scaled <- sweep(block_values(found$means[[1]]), 3, scales, "*")
  expect_lt(max(abs(scaled / (0.1 * block_values(g)) - 1)), 2^-3)
  roots <- sweep(block_values(found$squares[[1]]), 3, found$square_scales[[1]], "*")
  expect_lt(max(abs(roots^2 / (0.001 * block_values(g)^2) - 1)), 0.3)
  path <- tempfile(fileext = ".h5")
  block_save(path, list(w = w, m = found$means[[1]], scales = scales))
  expect_identical(block_values(block_load(path)$m), block_values(found$means[[1]]))
  expect_error(lion(list(w), list(g), list(zero)), "array 1 of means is of float8_e4m3fn, expected its scales as array 1 of mean_scales",
               class = "tartan_error_argument")
})

test_that("casts round to the numbers of another dtype", {
  x <- array(c(0.3, 1e-9, 500, -1.03))
  expect_equal(as.numeric(float_cast(x, dtype = "bfloat16")), c(0.30078125, 1.0703125 * 2^-30, 500, -1.03125), tolerance = 1e-12)
  expect_equal(as.numeric(float_cast(x, dtype = "float8_e5m2")), c(0.3125, 0, 512, -1), tolerance = 1e-12)
  expect_identical(as.numeric(float_cast(x)), as.numeric(x))
  expect_equal(as.numeric(float_cast_gradient(x, gradient_dtype = "float16"))[3:4], c(500, -1.0302734375), tolerance = 1e-12)
})
