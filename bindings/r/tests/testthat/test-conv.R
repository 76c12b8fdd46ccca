# SPDX-License-Identifier: Apache-2.0

# The convolution of the formula: x is h x w x channels x n (or any spatial dimensions), dense kernel x in x out.
direct_conv <- function(x, dense, stride, dilation, before, out) {
  dims <- length(dim(dense)) - 2
  kernel <- dim(dense)[seq_len(dims)]
  image <- dim(x)[seq_len(dims)]
  n <- dim(x)[dims + 2]
  flat_x <- array(x, c(prod(image), dim(x)[dims + 1], n))
  flat_w <- array(dense, c(prod(kernel), dim(dense)[dims + 1:2]))
  y <- array(0, c(prod(out), dim(dense)[dims + 2], n))
  at <- function(size) as.matrix(expand.grid(lapply(size, seq_len)))
  taps <- at(kernel)
  positions <- at(out)
  for (p in seq_len(nrow(positions))) for (t in seq_len(nrow(taps))) {
    q <- (positions[p, ] - 1) * stride + (taps[t, ] - 1) * dilation - before + 1
    if (any(q < 1 | q > image)) next
    from <- 1 + sum((q - 1) * cumprod(c(1, image))[seq_len(dims)])
    for (i in seq_len(n)) y[p, , i] <- y[p, , i] + flat_x[from, , i] %*% array(flat_w[t, , ], dim(flat_w)[2:3])
  }
  array(y, c(out, dim(dense)[dims + 2], n))
}
random_array <- function(...) array(rnorm(prod(...)), c(...))
random_filter <- function(conv, dtype = "float64") block_matrix(conv_layout(conv), init = "normal", dtype = dtype, seed = 1)
with_values <- function(filter, values) block_matrix(filter@layout, values = values)

cases <- list(
  list(n = 9, kernel = 3, before = 0, out = 7),
  list(n = c(9, 7), kernel = c(3, 2), padding = c(1, 0), before = c(1, 0), out = c(9, 6)),
  list(n = c(9, 7), kernel = c(3, 5), padding = "same", stride = c(2, 1), before = c(1, 2), out = c(5, 7)),
  list(n = c(8, 7), kernel = c(3, 3), padding = "tf", stride = 2, before = c(0, 1), out = c(4, 4)),
  list(n = c(9, 8), kernel = c(2, 3), padding = cbind(c(0, 2), c(1, 3)), dilation = c(3, 1), before = c(0, 1), out = c(8, 10)),
  list(n = c(6, 5, 4), kernel = c(3, 1, 2), padding = c(1, 0, 0), before = c(1, 0, 0), out = c(6, 5, 3)))

test_that("a convolution and its gradients equal a loop and finite differences", {
  set.seed(1)
  for (case in cases) {
    channels <- random_layout(c(10, 6), c(4, 2), 0.7)
    conv <- do.call(block_conv, c(list(channels), case[setdiff(names(case), c("n", "before", "out"))]))
    expect_identical(conv_size(conv, case$n), as.double(case$out))
    filter <- random_filter(conv)
    x <- random_array(c(case$n, 6, 2))
    dense <- conv_dense(conv, filter)
    expect_identical(dim(dense), as.integer(c(case$kernel, 6, 10)))
    y <- conv_forward(conv, filter, x)
    one <- function(value, usual) if (is.null(value)) usual else value
    expect_equal(y, direct_conv(x, dense, one(case$stride, 1), one(case$dilation, 1), case$before, case$out), tolerance = 1e-12)
    expect_identical(block_values(conv_filter(conv, dense)), block_values(filter))
    # derivatives of sum(r * y), which is linear in x and in the filter
    r <- random_array(dim(y))
    x_grad <- conv_input_gradient(conv, filter, r, size = case$n)
    step <- random_array(dim(x))
    expect_equal(sum(x_grad * step), sum(r * conv_forward(conv, filter, x + step)) - sum(r * y), tolerance = 1e-10)
    filter_grad <- conv_filter_gradient(conv, x, r)
    step <- random_array(dim(block_values(filter)))
    moved <- with_values(filter, block_values(filter) + step)
    expect_equal(sum(conv_dense(conv, filter_grad) * conv_dense(conv, with_values(filter, step))),
                 sum(r * conv_forward(conv, moved, x)) - sum(r * y), tolerance = 1e-10)
    if (is.null(case$stride)) expect_identical(conv_input_gradient(conv, filter, r), x_grad)
    for (dtype in c("float32", "bfloat16")) {
      rough <- random_filter(conv, dtype)
      expect_equal(conv_forward(conv, rough, x), y, tolerance = if (dtype == "float32") 1e-5 else 0.02)
    }
  }
})

test_that("a convolution is a product with its unrolled image", {
  set.seed(2)
  conv <- block_conv(random_layout(c(8, 4), c(4, 2), 0.8), c(3, 2))
  filter <- random_filter(conv)
  x <- random_array(6, 5, 4)
  at <- expand.grid(i = 1:4, j = 1:4)
  unrolled <- do.call(cbind, lapply(1:3, function(a) do.call(cbind, lapply(1:2, function(b) {
    matrix(x[a:(a + 3), b:(b + 3), ], 16)
  })))) # taps in row-major order, channels side by side
  expect_equal(matrix(conv_forward(conv, filter, x), 16), as.matrix(unrolled %*% t(as.matrix(filter))), tolerance = 1e-12)
  pointwise <- block_conv(random_layout(c(8, 4), c(4, 2), 0.8), c(1, 1))
  filter <- random_filter(pointwise)
  expect_equal(matrix(conv_forward(pointwise, filter, x), 30), matrix(x, 30) %*% t(filter), tolerance = 1e-12)
})

test_that("transposed convolutions", {
  set.seed(3)
  layout <- random_layout(c(6, 4), c(2, 2), 0.8)
  forward <- block_conv(layout, c(3, 2), stride = 2, padding = c(1, 0))
  conv <- block_conv(layout, c(3, 2), stride = 2, padding = c(1, 0), transposed = TRUE)
  filter <- random_filter(conv)
  x <- random_array(5, 4, 6)
  expect_identical(conv_size(conv, c(5, 4)), c(9, 8))
  expect_identical(conv_forward(conv, filter, x), conv_input_gradient(forward, filter, x, size = c(9, 8)))
  expect_identical(conv_forward(conv, filter, x, size = c(10, 9)), conv_input_gradient(forward, filter, x, size = c(10, 9)))
  y <- random_array(10, 9, 4)
  expect_identical(conv_input_gradient(conv, filter, y, size = c(5, 4)), conv_forward(forward, filter, y))
  expect_identical(block_values(conv_filter_gradient(conv, x, y)), block_values(conv_filter_gradient(forward, y, x)))
  expect_identical(dim(conv_dense(conv, filter)), c(3L, 2L, 4L, 6L))
  expect_identical(dim(conv_edge_classes(conv, c(5, 4), c(10, 9))), c(10L, 9L))
  expect_refused(conv_forward(conv, filter, x, size = c(11, 8)), "shape", "y is 11 x 8 x 4", "9 to 10 x 8 to 9")
})

test_that("sets of channels", {
  set.seed(4)
  blocks <- list(list(c(1, 5, 2), c(3, 1)), list(c(2, 4), 1), list(6, c(5, 4, 3)))
  conv <- block_conv_from_sets(6, 5, blocks, c(2, 3))
  values <- rnorm(6 * (6 + 2 + 3))
  filter <- conv_filter(conv, values)
  expect_identical(conv_values(conv, filter), values)
  dense <- array(0, c(2, 3, 6, 5))
  at <- 0
  for (block in blocks) {
    n <- 6 * length(block[[1]]) * length(block[[2]])
    # [output, input, kernel...], last index fastest
    one <- aperm(array(values[at + seq_len(n)], c(3, 2, length(block[[1]]), length(block[[2]]))), c(2, 1, 3, 4))
    dense[, , block[[1]], block[[2]]] <- dense[, , block[[1]], block[[2]], drop = FALSE] + one
    at <- at + n
  }
  expect_identical(conv_dense(conv, filter), dense)
  x <- random_array(5, 6, 6, 2)
  y <- conv_forward(conv, filter, x)
  expect_equal(y, direct_conv(x, dense, 1, 1, 0, c(4, 4)), tolerance = 1e-12)
  expect_true(all(y[, , 2, ] == 0))
  step <- rnorm(length(values))
  expect_equal(sum(conv_values(conv, conv_filter_gradient(conv, x, y)) * step),
               sum(y * conv_forward(conv, conv_filter(conv, step), x)), tolerance = 1e-10)
  back <- block_conv_from_sets(5, 6, lapply(blocks, rev), c(2, 3), transposed = TRUE)
  expect_identical(conv_forward(back, conv_filter(back, values), y), conv_input_gradient(conv, filter, y))
  overlapping <- block_conv_from_sets(2, 1, list(list(1, 1), list(1:2, 1)), 1)
  expect_identical(c(conv_dense(overlapping, conv_filter(overlapping, c(1, 2, 4)))), c(3, 4))
  expect_refused(conv_filter(overlapping, array(1, c(1, 2, 1))), "unsupported", "several sets")
  expect_refused(block_conv_from_sets(6, 5, list(list(c(1, 7), 1)), 1), "argument", "input channels of block 1", "1 to 6")
  expect_refused(block_conv_from_sets(6, 5, list(list(1, 2), list(1, 0)), 1), "argument", "output channels of block 2 are 0")
  expect_refused(block_conv_from_sets(6, 5, list(list(c(1, 1), 2)), 1), "argument", "have 1 twice")
  expect_refused(block_conv_from_sets(6, 5, list(1, 2), 1), "argument", "list of lists of two")
})

test_that("gain, bias, ReLU and edges", {
  set.seed(5)
  conv <- block_conv(random_layout(c(8, 4), c(4, 4), 1), c(3, 3), padding = "same")
  filter <- random_filter(conv)
  x <- random_array(6, 5, 4)
  y <- conv_forward(conv, filter, x)
  gain <- rnorm(8)
  bias <- rnorm(8)
  over <- function(v) array(rep(v, each = 30), dim(y))
  expect_equal(conv_forward(conv, filter, x, gain, bias), over(gain) * y + over(bias), tolerance = 1e-12)
  expect_equal(conv_forward(conv, filter, x, gain, bias, bias_first = TRUE), over(gain) * (y + over(bias)), tolerance = 1e-12)
  expect_equal(conv_forward(conv, filter, x, bias = bias, relu = TRUE), pmax(y + over(bias), 0), tolerance = 1e-12)
  expect_equal(conv_forward(conv, filter, x, y = y, add = TRUE), 2 * y, tolerance = 1e-12)
  rough <- random_filter(conv, "float32")
  expect_equal(conv_forward(conv, rough, x, y = y, add = TRUE), 2 * y, tolerance = 1e-5)
  classes <- conv_edge_classes(conv, c(6, 5))
  expect_identical(dim(classes), c(6L, 5L))
  expect_true(all(classes[2:5, 2:4] == 1) && setequal(classes, 1:9))
  expect_identical(classes[1, c(1, 2, 5)], c(2, 3, 4)) # row by row
  table <- matrix(rnorm(8 * 9), 8)
  expect_equal(conv_forward(conv, filter, x, bias = table), y + aperm(array(table[, classes], c(8, 6, 5)), c(2, 3, 1)),
               tolerance = 1e-12)
  expect_refused(conv_forward(conv, filter, x, bias = matrix(0, 8, 4)), "shape", "bias is 8 x 4, expected 8 channels, or 8 x 9")
  expect_refused(conv_forward(conv, filter, x, gain = 1:7), "shape", "gain is 7, expected 8")
  expect_refused(conv_forward(conv, filter, x, add = TRUE), "argument", "add is TRUE without y")
})

test_that("on devices", {
  set.seed(6)
  conv <- block_conv(random_layout(c(8, 4), c(4, 4), 1), c(3, 2), padding = c(1, 0))
  filter <- random_filter(conv)
  x <- random_array(6, 5, 4, 2)
  y <- conv_forward(conv, filter, x)
  for (device in test_devices) {
    context <- tartan_context(device)
    there <- tryCatch(conv_forward(conv, to_device(filter, context), to_device(x, context)),
                      tartan_error_unsupported = function(e) NULL) # a device without convolutions
    if (is.null(there)) next
    expect_equal(to_host(there), y, tolerance = 1e-12)
    low <- conv_filter_gradient(conv, to_device(x, context, dtype = "float16"), to_device(y, context, dtype = "float16"))
    expect_identical(block_dtype(low), "float16") # that of x, as in the other languages
    found <- conv_filter_gradient(conv, to_device(x, context), there)
    expect_equal(block_values(to_host(found)), block_values(conv_filter_gradient(conv, x, y)), tolerance = 1e-10)
  }
})

test_that("convolutions and filters are saved and restored", {
  conv <- block_conv(random_layout(c(8, 4), c(4, 4), 1), c(3, 2), padding = cbind(c(1, 0), c(0, 0)))
  sets <- block_conv_from_sets(3, 2, list(list(1, 2)), 1)
  filter <- random_filter(conv)
  x <- random_array(4, 4, 4)
  path <- tempfile(fileext = ".h5")
  block_save(filter = filter, path = path)
  back <- block_load(path, "filter")
  expect_identical(block_identity(back), block_identity(conv_layout(conv)))
  expect_identical(conv_forward(conv, back, x), conv_forward(conv, filter, x))
  file <- tempfile()
  saveRDS(list(conv, sets), file)
  again <- readRDS(file)
  expect_identical(conv_forward(again[[1]], filter, x), conv_forward(conv, filter, x))
  expect_identical(conv_size(again[[2]], 5), 5)
  expect_output(show(conv), "BlockConv of 4 to 8 channels, kernel=3x2 stride=1x1 dilation=1x1 padding=1:0x0:0", fixed = TRUE)
  close(conv)
  close(conv)
  expect_output(show(conv), "closed")
  expect_refused(conv_size(conv, c(4, 4)), "handle", "the convolution is closed")
  unlink(c(path, file))
})

test_that("what does not fit is refused", {
  layout <- random_layout(c(8, 4), c(4, 4), 1)
  conv <- block_conv(layout, c(3, 5))
  filter <- random_filter(conv)
  x <- random_array(6, 6, 4)
  expect_refused(block_conv(layout, c(3, 3), stride = 0), "argument", "stride is 0")
  expect_refused(block_conv(layout, c(3, 3), stride = 1:3), "argument", "stride is c(1, 2, 3), expected 2 whole numbers")
  expect_refused(block_conv(layout, c(3, 3), padding = -1), "argument", "padding is -1")
  expect_refused(block_conv(layout, 3, padding = "full"), "argument", "padding is \"full\"")
  expect_refused(block_conv(layout, c(3, 3), padding = matrix(0, 3, 2)), "argument", "padding is a matrix of 3 x 2")
  expect_refused(block_conv(layout, rep(1, 4)), "argument", "4 spatial dimensions")
  expect_refused(block_conv(layout, 1.5), "argument", "kernel is 1.5")
  expect_refused(block_conv(random_layout(c(8, 4), c(4, 4), 1, heads = 2), 3), "shape", "heads")
  expect_refused(conv_forward(layout, filter, x), "argument", "conv", "BlockConv")
  expect_refused(conv_forward(conv, filter, random_array(6, 4, 4)), "shape", "size has length 4 in dimension 2", "at least 5")
  expect_refused(conv_forward(conv, filter, random_array(2, 6, 4)), "shape", "has length 2 in dimension 1", "at least 3")
  expect_refused(conv_forward(conv, filter, random_array(6, 6, 5)), "shape", "x is 6 x 6 x 5", "4 channels in dimension 3")
  expect_refused(conv_forward(conv, filter, random_array(6, 6)), "shape", "x is 6 x 6, expected 4 dimensions: h x w x channels x n")
  expect_refused(conv_forward(conv, filter, x, y = random_array(4, 3, 8)), "shape", "y is 4 x 3 x 8 x 1, expected 4 x 2")
  expect_refused(conv_forward(conv, random_filter(block_conv(layout, 3)), x), "layout", "conv_layout(conv)")
  expect_refused(conv_forward(conv, matrix(0, 8, 60), x), "argument", "filter")
  expect_refused(conv_input_gradient(block_conv(layout, 3, stride = 2), random_filter(block_conv(layout, 3)), random_array(4, 8)),
                 "argument", "size is not given")
  expect_refused(conv_filter(conv, random_array(5, 3, 4, 8)), "shape", "values is 5 x 3 x 4 x 8, expected 3 x 5 x 4 x 8")
  expect_refused(conv_filter(conv, 1:7), "shape", "values has length 7")
  expect_refused(conv_forward(conv, filter, x, windows = image_windows(c(2, 2), count = 1)), "argument",
                 "only one of active and windows")
})

test_that("weight normalisation and its gradients", {
  set.seed(4)
  conv <- block_conv(block_layout_from_mask(matrix(c(TRUE, TRUE, FALSE, TRUE, TRUE, FALSE, TRUE, TRUE, TRUE, TRUE, FALSE, TRUE), 4),
                                            4), kernel = c(3, 3))
  filter <- block_matrix(conv_layout(conv), init = "normal", seed = 1)
  gain <- rnorm(16)
  dense <- conv_dense(conv, filter) # 3 x 3 x 12 x 16
  wanted <- dense
  for (k in 1:16) for (c in 0:2) {
    at <- c * 4 + 1:4
    wanted[, , at, k] <- gain[k] * dense[, , at, k] / sqrt(max(sum(dense[, , at, k]^2), 1e-12))
  }
  out <- conv_normalize(conv, filter, gain)
  expect_equal(conv_dense(conv, out), wanted, tolerance = 1e-14)
  expect_equal(conv_dense(conv, conv_normalize(conv, filter)), wanted / rep(gain, each = 9 * 12), tolerance = 1e-14)

  grad <- block_matrix(conv_layout(conv), init = "normal", seed = 2)
  toward <- block_matrix(conv_layout(conv), init = "normal", seed = 3)
  found <- conv_normalize_gradient(conv, filter, grad, gain)
  value <- function(s, gain) sum(block_values(conv_normalize(conv, filter + toward * s, gain)) * block_values(grad))
  expect_equal(sum(block_values(found$filter) * block_values(toward)), (value(1e-6, gain) - value(-1e-6, gain)) / 2e-6,
               tolerance = 1e-6)
  numeric <- sapply(1:16, function(k) value(0.0, replace(numeric(16), k, 1))) # the result is linear in gain
  expect_equal(found$gain, numeric, tolerance = 1e-12)
  expect_named(conv_normalize_gradient(conv, filter, grad), "filter")
  single <- conv_normalize(conv, block_cast(filter, "float32"), gain)
  expect_identical(block_dtype(single), "float32")
  expect_equal(block_values(single), block_values(out), tolerance = 1e-6)

  expect_refused(conv_normalize(conv, filter, epsilon = 0), "argument", "epsilon is 0")
  expect_refused(conv_normalize(conv, filter, gain[1:3]), "shape", "gain is 3, expected 16 (output channels)")
  expect_refused(conv_normalize(conv, random_matrix()), "layout", "filter")
  expect_refused(conv_normalize_gradient(conv, filter, random_matrix()), "layout", "out_grad has another layout")
  expect_refused(conv_normalize_gradient(conv, filter, block_cast(grad, "float32")), "dtype", "grad")
  each <- block_conv(block_pattern("dense", c(4, 12), 4), kernel = 3, per_tap = TRUE)
  expect_refused(conv_normalize(each, block_matrix(conv_layout(each), init = "normal", seed = 1)), "unsupported", "per_tap")
})

test_that("sets of channels that overlap are normalised one by one", {
  conv <- block_conv_from_sets(4, 4, list(list(1:2, 1:2), list(2:4, 2:4)), kernel = 1)
  filter <- conv_filter(conv, as.double(1:13))
  out <- conv_values(conv, conv_normalize(conv, filter))
  expect_equal(sum(out^2), 5) # 2 + 3 output channels, each of norm 1
})
