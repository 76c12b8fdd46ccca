# SPDX-License-Identifier: Apache-2.0

# SBNet's mask: ones at (1, 2) and (2, 0), from 0.
sbnet_mask <- matrix(0, 5, 5)
sbnet_mask[2, 3] <- sbnet_mask[3, 1] <- 1

# The convolution of ones with a filter of ones in the active windows of a mask.
golden <- function(mask, kernel, size, padding = "same", stride = 1) {
  windows <- windows_for_conv(dim(mask), c(kernel, kernel), stride, size = size, padding = padding)
  one <- block_pattern("dense", c(1, 1), 1)
  conv <- block_conv(one, c(kernel, kernel), stride, padding = if (padding == "same") "tf" else padding)
  filter <- conv_filter(conv, array(1, c(kernel, kernel, 1, 1)))
  active <- active_windows(mask, windows$input)
  x <- array(1, c(dim(mask), 1))
  y <- conv_forward(conv, filter, x, active = active, windows = windows$output)
  blocks <- window_gather(x, active, windows$input) # the same, window by window
  valid <- block_conv(one, c(kernel, kernel), stride)
  expect_identical(window_scatter(conv_forward(valid, filter, blocks), active, windows$output, 0 * y), y)
  y[, , 1]
}
rows <- function(...) rbind(...)

test_that("SBNet's known maps", {
  expect_equal(golden(sbnet_mask, 3, 3),
               rows(c(0, 6, 6, 6, 0), c(6, 9, 9, 9, 0), c(6, 9, 9, 9, 0), c(6, 9, 0, 0, 0), c(0, 0, 0, 0, 0)))
  expect_equal(golden(sbnet_mask, 3, 3, "valid"), rows(c(9, 9, 9), c(9, 9, 9), c(9, 0, 0)))
  expect_equal(golden(sbnet_mask, 3, 4),
               rows(c(4, 6, 6, 6, 0), c(6, 9, 9, 9, 0), c(6, 9, 9, 9, 0), c(6, 9, 9, 9, 0), c(0, 0, 0, 0, 0)))
  expect_equal(golden(sbnet_mask, 3, 5, stride = 2), rows(c(4, 6, 0), c(6, 9, 0), c(0, 0, 0)))
  corner <- matrix(0, 8, 8)
  corner[1, 8] <- corner[1, 1] <- corner[8, 8] <- 1
  wanted <- matrix(4, 7, 7)
  wanted[5:7, 1:4] <- 0
  expect_equal(golden(corner, 2, 5, "valid"), wanted)
})

test_that("windows", {
  windows <- windows_for_conv(c(64, 96), c(3, 3), output = 16)
  expect_equal(windows$input, image_windows(c(18, 18), c(16, 16), c(-1, -1), c(4, 6)))
  expect_equal(windows$output, image_windows(16, count = c(4, 6)))
  expect_equal(windows_for_conv(c(64, 96), list(1, c(3, 3), 1), output = 16), windows)
  expect_equal(windows_for_conv(c(64, 96), c(3, 5), output = c(16, 20), padding = "valid")$input$size, c(18, 24))
  expect_identical(as.character(windows$input), "size=18x18 stride=16x16 offset=-1x-1 count=4x6")
  expect_output(print(windows$input), "image_windows: size=18x18", fixed = TRUE)
  expect_refused(image_windows(c(2, 0), count = 1), "argument", "size is c(2, 0)")
  expect_refused(image_windows(c(2, 2), count = 1:3), "argument", "size is c(2, 2), expected 3")
  expect_refused(windows_for_conv(c(9, 8), c(3, 3)), "argument", "neither size nor output is given, expected one of them")
  expect_refused(windows_for_conv(c(9, 8), c(3, 3), output = c(2, 20), padding = "valid"), "argument", "in dimension 2")
  expect_refused(windows_for_conv(c(9, 8), c(3, 3), size = c(2, 6)), "argument", "size is 2 in dimension 1")
  expect_refused(window_gather(array(0, c(4, 4, 1)), block_pattern("dense", c(1, 1), 1), 4), "argument", "image_windows()")
})

test_that("active windows", {
  mask <- array(0, c(4, 6, 3))
  mask[1, 6, 1] <- mask[4, 1, 1] <- mask[1, 1, 3] <- mask[2, 4, 3] <- 1
  windows <- image_windows(2, count = c(2, 3))
  active <- active_windows(mask, windows)
  expect_identical(dim(active), c(2L, 3L))
  expect_identical(block_heads(active), 3)
  expect_identical(block_mask(active)[, , 1], rbind(c(FALSE, FALSE, TRUE), c(TRUE, FALSE, FALSE)))
  expect_identical(block_mask(active)[, , 3], rbind(c(TRUE, TRUE, FALSE), c(FALSE, FALSE, FALSE)))
  whole <- mask
  storage.mode(whole) <- "integer"
  for (same in list(mask == 1, whole, array(mask, c(4, 6, 1, 3)))) {
    expect_identical(block_identity(active_windows(same, windows)), block_identity(active))
  }
  expect_identical(block_mask(active_windows(mask[, , 3], windows)), block_mask(active)[, , 3])
  expect_identical(block_count(active_windows(matrix(0, 4, 6), windows)), 0L)
  expect_identical(block_count(active_windows(mask, windows, "average", 0.2)), 4L)
  expect_identical(block_count(active_windows(mask, windows, "average", 0.25)), 0L)
  expect_identical(block_count(active_windows(mask / 2, windows, tolerance = 0.5)), 0L)
  solid <- array(0, c(2, 3, 4))
  solid[2, 1, 4] <- 1
  expect_identical(which(t(block_mask(active_windows(solid, image_windows(1, count = c(2, 3, 4)))))), 16L)
  expect_identical(block_mask(active_windows(c(0, 0, 1, 0), image_windows(2, count = 2))), matrix(c(FALSE, TRUE), 1))
  path <- tempfile(fileext = ".h5")
  block_save(active = active, path = path)
  expect_identical(block_mask(block_load(path, "active")), block_mask(active))
  unlink(path)
  expect_refused(active_windows(matrix(NA, 4, 6), windows), "argument", "NaN")
  expect_refused(active_windows(numeric(6), windows), "shape", "mask is 6, expected 2 spatial dimensions")
  expect_refused(active_windows(mask, windows, "sum"), "argument", "pool is \"sum\"")
  expect_refused(active_windows(mask, windows, tolerance = Inf), "argument", "tolerance is Inf")
  expect_refused(active_windows(matrix("a", 4, 6), windows), "argument", "mask")
})

test_that("gather and scatter", {
  set.seed(2)
  x <- array(rnorm(5 * 7 * 3 * 2), c(5, 7, 3, 2))
  windows <- image_windows(c(2, 3), offset = c(0, -1), count = c(3, 3))
  active <- active_windows(array(runif(70) < 0.2, c(5, 7, 2)), windows)
  blocks <- window_gather(x, active, windows)
  expect_identical(dim(blocks), as.integer(c(2, 3, 3, block_count(active))))
  at <- block_coordinates(active)
  wanted <- 0 * blocks
  kept <- 0 * x
  for (id in seq_len(nrow(at))) for (i in 1:2) for (j in 1:3) {
    p <- (at$row[id] - 1) * 2 + i
    q <- (at$col[id] - 1) * 3 - 1 + j
    if (p > 5 || q < 1 || q > 7) next
    wanted[i, j, , id] <- kept[p, q, , at$head[id]] <- x[p, q, , at$head[id]]
  }
  expect_identical(blocks, wanted)
  expect_identical(window_scatter(blocks, active, windows, 0 * x), kept)
  expect_identical(window_scatter(NULL, active, windows, x), x - kept)
  expect_identical(window_scatter(blocks, active, windows, kept, add = TRUE), 2 * kept)
  overlapping <- image_windows(c(2, 3), stride = 1, count = c(4, 5))
  all_active <- active_windows(array(1, c(5, 7, 2)), overlapping)
  ones <- array(1, c(2, 3, 1, 40))
  y <- array(0, c(5, 7, 1, 2))
  covered <- window_scatter(ones, all_active, overlapping, y, add = TRUE)
  expect_identical(covered[, , 1, 1], outer(c(1, 2, 2, 2, 1), c(1, 2, 3, 3, 3, 2, 1)))
  expect_true(all(y == 0))
  expect_refused(window_scatter(ones, all_active, overlapping, y), "argument", "may overlap")
  expect_refused(window_gather(x, all_active, windows), "shape", "active has 4 x 5 blocks in 2 heads, expected 3 x 3")
  expect_refused(window_gather(x[, , , 1], active, windows), "shape", "in 1 (windows and images)")
  expect_refused(window_scatter(blocks[, , 1:2, ], active, windows, x), "shape", "blocks is 2 x 3 x 2")
  expect_refused(window_gather(x, block_pattern("dense", c(6, 6), 2), windows), "shape", "expected 1 x 1")
  expect_refused(window_gather(x[, , 1, 1], active, windows), "shape", "h x w x channels x n")
})

test_that("convolution in active windows", {
  set.seed(3)
  conv <- block_conv(random_layout(c(8, 4), c(4, 4), 1), c(3, 3), padding = "same")
  filter <- block_matrix(conv_layout(conv), init = "normal", seed = 1)
  x <- array(rnorm(10 * 8 * 4 * 2), c(10, 8, 4, 2))
  windows <- image_windows(c(4, 3), count = c(3, 3))
  active <- active_windows(array(runif(160) < 0.1, c(10, 8, 2)), windows)
  ones <- array(1, c(4, 3, 1, block_count(active)))
  covered <- window_scatter(ones, active, windows, array(0, c(10, 8, 1, 2)))[, , rep(1, 8), ]
  whole <- conv_forward(conv, filter, x)
  expect_equal(conv_forward(conv, filter, x, active = active, windows = windows), covered * whole, tolerance = 1e-13)
  y <- array(rnorm(length(whole)), dim(whole))
  expect_equal(conv_forward(conv, filter, x, active = active, windows = windows, relu = TRUE, y = y),
               ifelse(covered == 1, pmax(whole, 0), y), tolerance = 1e-13)
  rough <- block_cast(filter, "float32")
  expect_equal(conv_forward(conv, rough, x, active = active, windows = windows), covered * whole, tolerance = 1e-5)
  expect_equal(conv_input_gradient(conv, filter, y, active = active, windows = windows),
               conv_input_gradient(conv, filter, covered * y), tolerance = 1e-12)
  expect_equal(block_values(conv_filter_gradient(conv, x, y, active, windows)),
               block_values(conv_filter_gradient(conv, x, covered * y)), tolerance = 1e-12)
  expect_refused(conv_forward(conv, filter, x, active = active, windows = image_windows(c(4, 3), 3, count = 3)), "argument",
                 "may overlap")
  expect_refused(conv_forward(conv, filter, x, active = active, windows = image_windows(4, count = 3)), "shape",
                 "have 1 dimensions, expected 2")
  expect_refused(conv_forward(conv, filter, x, active = active), "argument", "only one of active and windows")
})

test_that("dynamic windows", {
  for (device in setdiff(test_devices, "cpu")) {
    context <- tartan_context(device)
    windows <- image_windows(2, count = c(2, 3))
    mask <- matrix(0, 4, 6)
    mask[1, 5] <- 1
    active <- tryCatch(active_windows(mask, windows, context = context), tartan_error_unsupported = function(e) NULL)
    if (is.null(active) || !block_is_dynamic(active)) next
    expect_identical(block_mask(to_host(active)), block_mask(active_windows(mask, windows)))
    mask[3, 1] <- 1
    block_update_windows(active, mask, windows)
    expect_identical(block_mask(to_host(active)), block_mask(active_windows(mask, windows)))
  }
  ordinary <- active_windows(matrix(1, 4, 4), image_windows(2, count = c(2, 2)))
  expect_refused(block_update_windows(ordinary, matrix(1, 4, 4), image_windows(2, count = c(2, 2))), "argument", "not dynamic")
})
