# SPDX-License-Identifier: Apache-2.0

unit_part <- function(rows, cols, kernel, padding = "valid") {
  conv <- block_conv(block_pattern("dense", c(rows, cols), 4), rep(kernel, 2), padding = padding)
  list(conv = conv, filter = conv_filter(conv, array(rnorm(kernel^2 * rows * cols) / cols, c(kernel, kernel, cols, rows))),
       gain = rnorm(rows), bias = rnorm(rows))
}
some_unit <- function() list(unit_part(8, 16, 1), unit_part(12, 8, 3, "same"), unit_part(16, 12, 1))
whole_unit <- function(x, parts) {
  y <- x
  for (i in 1:3) {
    p <- parts[[i]]
    y <- conv_forward(p$conv, p$filter, y, gain = p$gain, bias = p$bias, relu = i < 3)
  }
  x + y
}

test_that("the unit in windows is the unit over the whole image", {
  set.seed(1)
  parts <- some_unit()
  x <- array(rnorm(13 * 18 * 16 * 2), c(13, 18, 16, 2))
  windows <- image_windows(5, count = c(3, 4))
  mask <- array(0, c(13, 18, 2))
  mask[1, 1, 1] <- mask[13, 18, 1] <- mask[7, 7, 2] <- 1
  active <- active_windows(mask, windows)
  seen <- array(FALSE, dim(x))
  seen[1:5, 1:5, , 1] <- seen[11:13, 16:18, , 1] <- seen[6:10, 6:10, , 2] <- TRUE
  before <- x + 0
  y <- residual_unit(x, parts[[1]], parts[[2]], parts[[3]], active, windows)
  expect_identical(y, ifelse(seen, pmax(whole_unit(x, parts), 0), x))
  expect_identical(x, before)
  plain <- residual_unit(x, parts[[1]], parts[[2]], parts[[3]], active, windows, relu = FALSE)
  expect_identical(plain, ifelse(seen, whole_unit(x, parts), x))
  gain <- rnorm(16)
  bias <- rnorm(16)
  v2 <- residual_unit(x, parts[[1]], parts[[2]], parts[[3]], active, windows, relu = FALSE, preactivate = TRUE, x_gain = gain,
                      x_bias = bias)
  a <- channel_linear(x, gain, bias, relu = TRUE)
  expect_equal(v2, ifelse(seen, whole_unit(a, parts) - a + x, x), tolerance = 1e-12)
  one <- residual_unit(x[, , , 1], parts[[1]], parts[[2]], parts[[3]],
                       active_windows(mask[, , 1], windows), windows)
  expect_identical(one, y[, , , 1])
})

test_that("units refuse what does not fit", {
  set.seed(2)
  parts <- some_unit()
  x <- array(0, c(10, 10, 16))
  windows <- image_windows(5, count = c(2, 2))
  active <- active_windows(matrix(1, 10, 10), windows)
  run <- function(x = x0, reduce = parts[[1]], spatial = parts[[2]], expand = parts[[3]], ...) {
    residual_unit(x, reduce, spatial, expand, active, windows, ...)
  }
  x0 <- x
  expect_refused(run(x = x[, , 1:12]), "shape", "x is 10 x 10 x 12 x 1, expected 16 channels")
  expect_refused(run(reduce = parts[[1]]$conv), "argument", "reduce is")
  expect_refused(run(spatial = 1), "argument", "spatial is 1, expected list")
  expect_refused(run(expand = list(conv = parts[[3]]$conv)), "argument", "expand is")
  expect_refused(run(reduce = modifyList(parts[[1]], list(gain = 1:3))), "shape", "gain of reduce is 3, expected 8 channels")
  expect_refused(run(x_gain = rnorm(16)), "argument", "x_gain is given, which needs preactivate = TRUE")
  expect_refused(run(spatial = unit_part(12, 8, 3)), "argument", "spatial has the options")
  expect_refused(residual_unit(x, parts[[1]], parts[[2]], parts[[3]], NULL, NULL), "argument", "active and windows are NULL")
})
