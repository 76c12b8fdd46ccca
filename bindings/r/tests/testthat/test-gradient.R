# SPDX-License-Identifier: Apache-2.0
# value_and_gradient() beside differences of values.

values_of <- function(x) if (is(x, "BlockMatrix")) block_values(x) else x
with_values <- function(x, v) {
  if (is(x, "BlockMatrix")) block_values(x) <- v else x <- v
  x
}
differences <- function(f, p, k, ...) {
  v <- values_of(p[[k]])
  at <- function(i, by) {
    w <- v
    w[i] <- w[i] + by
    q <- p
    q[[k]] <- with_values(p[[k]], w)
    f(q, ...)
  }
  v[] <- vapply(seq_along(v), function(i) (at(i, 1e-5) - at(i, -1e-5)) / 2e-5, 0)
  v
}
expect_gradient <- function(f, p, ...) {
  found <- value_and_gradient(f, p, ...)
  expect_equal(found$value, f(p, ...))
  for (k in names(p)) {
    grad <- found$gradient[[k]]
    expect_identical(class(grad), class(p[[k]]))
    if (is(grad, "BlockMatrix")) expect_true(block_identity(grad) == block_identity(p[[k]]))
    expect_equal(values_of(grad), differences(f, p, k, ...), tolerance = 1e-6, label = k)
  }
}
set.seed(11)
w <- block_matrix(block_pattern("banded", c(8, 12), 4), init = "normal", seed = 1)
x <- matrix(rnorm(24), 12)

test_that("a layer has the gradients of its weights, bias and input", {
  expect_gradient(function(p, y) mean((tartan_gelu(p$w %*% p$x + p$b) - y)^2), list(w = w, x = x, b = rnorm(8)), 1)
  expect_gradient(function(p) sum((p$x %*% p$w)^2), list(x = matrix(rnorm(16), 2), w = w))
  expect_gradient(function(p) sum((p$w %*% p$v)^3), list(w = w, v = rnorm(12)))
})
test_that("operations of the schema take what their gradients need", {
  expect_gradient(function(p) sum(layer_norm(p$x, gain = p$g, bias = p$b) * p$x), list(x = x, g = rnorm(12), b = rnorm(12)))
  both <- function(p) {
    found <- rms_norm(p$x, gain = p$g, return_stats = TRUE)
    sum(found$y^2 * 0.5)
  }
  expect_gradient(both, list(x = x, g = rnorm(12)))
  expect_gradient(function(p) sum(tartan_multiply(p$a, p$b)^2), list(a = x, b = rnorm(12)))
})
test_that("operations with several results, indices and seeds have their gradients", {
  cell <- function(p) {
    found <- lstm_gates(p$c, p$gates, bias = p$bias)
    sum(found$c_next^2) + sum(found$h * p$c)
  }
  expect_gradient(cell, list(c = matrix(rnorm(6), 3), gates = array(rnorm(24), c(3, 4, 2)), bias = matrix(rnorm(12), 3)))
  expect_gradient(function(p) sum(lstm_gates(p$c, p$gates, forget_bias = 0.5)$h), list(c = rnorm(3), gates = matrix(rnorm(12), 3)))

  labels <- c(2, 12)
  loss <- function(p) sum(cross_entropy(p$x, labels, label_smoothing = 0.1) * c(1, 3))
  expect_gradient(loss, list(x = x))
  # A user's own return_lse changes neither value nor gradient, but the gradient of lse is not known.
  with_lse <- value_and_gradient(function(p) sum(cross_entropy(p$x, labels, return_lse = TRUE)$loss), list(x = x))
  expect_identical(with_lse, value_and_gradient(function(p) sum(cross_entropy(p$x, labels)), list(x = x)))
  expect_error(value_and_gradient(function(p) sum(cross_entropy(p$x, labels, return_lse = TRUE)$lse), list(x = x)),
               "lse of cross_entropy has no gradient", class = "tartan_error_unsupported")
  expect_gradient(function(p) sum(embedding(p$table, c(1, 3, 3, 2))^2), list(table = matrix(rnorm(12), 4)))
  expect_gradient(function(p) sum(softmax(p$x, scale = 0.5) * p$x), list(x = x))
  expect_gradient(function(p) sum(softmax(p$x, mask = rep(c(TRUE, FALSE, TRUE), 4)) * x), list(x = x))
  expect_gradient(function(p) sum(log_softmax(p$x) * x^2), list(x = x))
  expect_gradient(function(p) sum(dropout(p$x, dropout = 0.4, seed = 7, offset = 3)^2), list(x = x))
  expect_gradient(function(p) sum(dropout(p$x, seed = 7, mask_shape = c(12, 1))^2), list(x = x))
  expect_gradient(function(p) sum(concrete_gate(p$loga, seed = 5) * x[, 1]), list(loga = rnorm(12)))
})
test_that("the largest numbers, elements and rows by their indices have their values and gradients", {
  values <- apply(x, 2, sort, decreasing = TRUE)[1:3, ]
  places <- apply(x, 2, order, decreasing = TRUE)[1:3, ]
  found <- top_k(x, k = 3)
  expect_identical(found, list(values = values, indices = places))
  expect_type(found$indices, "integer")
  expect_equal(colSums(top_k_softmax(x, k = 3) > 0), rep(3, ncol(x)))
  expect_identical(reduce_max(x, return_indices = TRUE), list(y = values[1, ], indices = places[1, ]))
  expect_identical(take_along(x, places), values)
  expect_identical(rectified_top_k(x, k = 3), pmax(x - matrix(pmax(values[3, ], 0), 12, ncol(x), byrow = TRUE), 0))
  map <- seq(1, ncol(x), 2)
  y <- matrix(rnorm(12 * length(map)), 12)
  product <- x
  product[, map] <- product[, map] * y
  expect_identical(scatter_rows(x, map, y, combine = "multiply"), product)
  expect_refused(scatter_rows(x, c(1, 1), x[, 1:2]), "argument", "indices[2] is 1, as indices[1]")
  expect_refused(top_k(x, k = 13), "argument", "k is 13, expected at most 12")
  expect_gradient(function(p) sum(top_k(p$x, k = 3)$values^2), list(x = x))
  expect_gradient(function(p) sum(top_k_softmax(p$x, k = 4, scale = 0.5) * x), list(x = x))
  expect_gradient(function(p) sum(rectified_top_k(p$x, k = 3)^2), list(x = x))
  expect_gradient(function(p) sum(sparse_relu(p$x, alpha = 0.5)^2), list(x = x))
  expect_gradient(function(p) sum(reduce_max(p$x)^2), list(x = x))
  expect_gradient(function(p) sum(take_along(p$x, places)^3), list(x = x))
  for (word in c("set", "add", "multiply"))
    expect_gradient(function(p) sum(scatter_rows(p$x, map, p$y, combine = word)^2), list(x = x, y = y))
})
test_that("spmm and sddmm record all of their operands", {
  gates <- c(0, runif(block_count(w) - 1, 0.5, 2))
  b <- matrix(rnorm(24), 12)
  expect_gradient(function(p) sum(spmm(p$a, p$b)^2), list(a = w, b = b))
  expect_gradient(function(p) sum(spmm(w, p$b, p$c, alpha = 0.5, beta = 2, gates = p$gates)^2),
                  list(b = b, c = matrix(rnorm(16), 8), gates = gates))
  expect_gradient(function(p) sum(spmm(p$a, t(b), gates = gates, side = "right", transpose = TRUE)^2), list(a = w))
  expect_gradient(function(p) sum(spmm(p$a, p$b, transpose = TRUE)^2), list(a = w, b = array(rnorm(32), c(8, 2, 2))))
  expect_gradient(function(p) sum(spmm(p$a, p$b)^2), list(a = w, b = rnorm(12)))
  expect_gradient(function(p) sum(spmm(p$a, p$b, side = "right")^2), list(a = w, b = rnorm(8)))
  expect_gradient(function(p) sum(spmm(w, b, p$c)^2), list(c = matrix(rnorm(16), 8)))

  left <- matrix(rnorm(16), 8)
  right <- matrix(rnorm(24), 2)
  expect_gradient(function(p) sum(sddmm(w@layout, p$x, p$y)^2), list(x = left, y = right))
  expect_gradient(function(p) sum(sddmm(p$s, p$x, p$y, alpha = 0.5, beta = 2, gates = p$gates)^2),
                  list(s = w, x = left, y = right, gates = gates))
  turned <- function(p) sum(sddmm(w, p$x, p$y, transpose_x = TRUE, transpose_y = TRUE)^2)
  expect_gradient(turned, list(x = t(left), y = t(right)))
  pairs <- function(p) sum(sddmm(w, list(p$x, left[, 1]), list(right, p$y), gates = p$gates)^2)
  expect_gradient(pairs, list(x = left, y = matrix(rnorm(12), 1), gates = gates))
  expect_gradient(function(p) sum(sddmm(p$s, left, right, beta = 1)^2), list(s = w))
})
test_that("gradients of operands on a device are those of operands in R's memory", {
  b <- matrix(rnorm(24), 12)
  here <- list(a = w, b = b, c = matrix(rnorm(16), 8), gates = runif(block_count(w)), y = matrix(rnorm(24), 2))
  f <- function(p, value) {
    product <- spmm(p$a, p$b, p$c, beta = 2, gates = p$gates)
    sampled <- sddmm(p$a, product, p$y, beta = 1)
    sum(value(sampled %*% p$b)^2) + sum(value(p$y %*% t(p$a))^2)
  }
  expected <- value_and_gradient(f, here, identity)
  for (device in test_devices) {
    context <- tartan_context(device)
    there <- lapply(c(here, unused = Inf), to_device, context)
    found <- value_and_gradient(f, there, to_host)
    expect_equal(found$value, expected$value)
    expect_equal(lapply(found$gradient, to_host), c(expected$gradient, unused = 0))
  }
})
test_that("attention has the gradients of its inputs, bias and sinks", {
  layout <- block_pattern("banded", c(6, 8), 2)
  seen <- attention_mask(layout, function(q, k, head) (q + k) %% 4 != 0)
  p <- list(q = array(rnorm(36), c(3, 6, 2)), k = array(rnorm(24), c(3, 8, 1)), v = array(rnorm(24), c(3, 8, 1)))
  expect_gradient(function(p) sum(attention(p$q, p$k, p$v, layout)^3), p)
  expect_gradient(function(p) sum(attention(p$q, p$k, p$v, layout, scale = 0.7, causal = TRUE, query_offset = 2, mask = seen,
                                            slopes = p$slopes, sinks = p$sinks)^3), c(p, list(slopes = c(0.1, -0.2), sinks = c(0.3, -1))))
  expect_gradient(function(p) sum(attention(p$q, p$k, p$v, layout, distance_bias = p$bias)^2), c(p, list(bias = matrix(rnorm(14), 7))))
  expect_gradient(function(p) sum(attention(p$q, p$k, p$v, layout, block_bias = p$bias, dropout = 0.3, seed = 5)^2),
                  c(p, list(bias = matrix(rnorm(2 * block_count(layout)), ncol = 2))))
  # Only what is tracked has a gradient, and lse has none.
  expect_gradient(function(s) sum(attention(p$q, p$k, p$v, layout, sinks = s$sinks)^2), list(sinks = c(0.3, -1)))
  expect_gradient(function(s) sum(attention(p$q, s$k, p$v, layout, return_lse = TRUE)$out^2), p["k"])
  expect_gradient(function(s) sum(attention(s$x, s$x, s$x, block_pattern("dense", c(6, 6), 2))^2), list(x = matrix(rnorm(18), 3)))
  expect_error(value_and_gradient(function(s) sum(attention(p$q, s$k, p$v, layout, return_lse = TRUE)$lse), p["k"]),
               "lse of attention has no gradient", class = "tartan_error_unsupported")
})
test_that("convolutions have the gradients of filter, images, gain and bias", {
  conv <- block_conv(block_pattern("banded", c(4, 6), 2), c(3, 2), c(2, 1), padding = "same")
  filter <- block_matrix(conv_layout(conv), init = "normal", seed = 3)
  p <- list(filter = filter, x = array(rnorm(5 * 4 * 6 * 2), c(5, 4, 6, 2)), gain = runif(4, 0.5, 2), bias = rnorm(4))
  expect_gradient(function(p) sum(conv_forward(conv, p$filter, p$x)^3), p[1:2])
  expect_gradient(function(p) sum(conv_forward(conv, p$filter, p$x, gain = p$gain, bias = p$bias, relu = TRUE)^2), p)
  edges <- max(conv_edge_classes(conv, c(5, 4)))
  expect_gradient(function(q) sum(conv_forward(conv, filter, p$x, gain = q$gain, bias = q$bias, bias_first = TRUE)^2),
                  list(gain = matrix(runif(4 * edges, 0.5, 2), 4), bias = matrix(rnorm(4 * edges), 4)))
  one <- p$x[, , , 1] # one image, of three dimensions
  y <- array(rnorm(3 * 4 * 4), c(3, 4, 4))
  expect_gradient(function(q) sum(conv_forward(conv, q$filter, one, y = q$y, add = TRUE, bias = p$bias)^3), list(filter = filter, y = y))

  up <- block_conv(block_pattern("dense", c(4, 2), 2), 3, 2, transposed = TRUE)
  wide <- block_matrix(conv_layout(up), init = "normal", seed = 4)
  expect_gradient(function(p) sum(conv_forward(up, p$filter, p$x, bias = p$bias, size = 10)^2),
                  list(filter = wide, x = array(rnorm(16), c(4, 4)), bias = rnorm(2)))
})
test_that("windows have the gradients of blocks and images", {
  windows <- windows_for_conv(c(6, 5), c(3, 3), output = 2)
  mask <- matrix(c(1, numeric(28), 1), 6)
  active <- active_windows(mask, windows$output)
  x <- array(rnorm(60), c(6, 5, 2))
  expect_gradient(function(p) sum(window_gather(p$x, active, windows$input)^3), list(x = x))
  blocks <- array(rnorm(2 * 2 * 2 * block_count(active)), c(2, 2, 2, block_count(active)))
  for (add in c(FALSE, TRUE)) {
    expect_gradient(function(p) sum(window_scatter(p$blocks, active, windows$output, p$x, add = add)^3), list(blocks = blocks, x = x))
  }
  expect_gradient(function(p) sum(window_scatter(NULL, active, windows$output, p$x)^3), list(x = x))

  conv <- block_conv(block_pattern("dense", c(2, 2), 2), c(3, 3), padding = "same")
  p <- list(filter = block_matrix(conv_layout(conv), init = "normal", seed = 3), x = x, bias = rnorm(2), y = array(rnorm(60), c(6, 5, 2)))
  expect_gradient(function(p) sum(conv_forward(conv, p$filter, p$x, bias = p$bias, active = active, windows = windows$output)^2), p[1:3])
  for (add in c(FALSE, TRUE)) {
    expect_gradient(function(p) sum(conv_forward(conv, p$filter, p$x, bias = p$bias, relu = TRUE, active = active, windows = windows$output,
                                                 y = p$y, add = add)^2), p)
  }
  # As in one call without a record.
  run <- function(p) conv_forward(conv, p$filter, p$x, bias = p$bias, active = active, windows = windows$output, y = p$y)
  recorded <- NULL
  value_and_gradient(function(p) { y <- run(p); recorded <<- untracked(y); sum(y) }, p)
  expect_equal(recorded, run(p), tolerance = 1e-14)
})
test_that("attention, convolutions and windows on a device have the gradients of R's memory", {
  layout <- block_pattern("dense", c(6, 6), 2)
  windows <- image_windows(c(2, 2), count = c(3, 2))
  active <- active_windows(matrix(c(1, numeric(22), 1), 6), windows)
  conv <- block_conv(block_pattern("dense", c(2, 2), 2), c(3, 3), padding = "same")
  here <- list(q = array(rnorm(36), c(3, 6, 2)), sinks = rnorm(2), x = array(rnorm(48), c(6, 4, 2)), bias = rnorm(2),
               filter = block_matrix(conv_layout(conv), init = "normal", seed = 3))
  f <- function(p, value) {
    images <- conv_forward(conv, p$filter, p$x, bias = p$bias, relu = TRUE, active = active, windows = windows)
    sum(value(attention(p$q, p$q, p$q, layout, sinks = p$sinks))^3) + sum(value(images)^2) +
      sum(value(window_scatter(window_gather(p$x, active, windows), active, windows, p$x, add = TRUE))^2)
  }
  expected <- value_and_gradient(f, here, identity)
  for (device in test_devices) {
    found <- value_and_gradient(f, lapply(here, to_device, tartan_context(device)), to_host)
    expect_equal(found$value, expected$value)
    expect_equal(lapply(found$gradient, to_host), expected$gradient)
  }
})
test_that("arithmetic of R repeats operands, and their gradients are sums", {
  positive <- abs(x) + 0.5
  expect_gradient(function(p) sum(log(p$x) / p$y^2) + max(p$x) - min(p$y), list(x = positive, y = positive + 1))
  expect_gradient(function(p) sum((p$x + p$v) * p$s) - sum(-p$v), list(x = x, v = rnorm(12), s = 2))
  expect_gradient(function(p) sum(p$x^p$e), list(x = positive, e = 1.5))
  expect_gradient(function(p) sum(2 / p$x - 3^p$x), list(x = positive))
})
test_that("functions of R have their derivatives", {
  inside <- matrix(runif(6, 0.1, 0.9), 2)
  for (name in names(tartan:::.derivatives)) {
    f <- get(name)
    expect_gradient(function(p) sum(f(p$x)), list(x = inside))
  }
  expect_gradient(function(p) sum(log(p$x, 3)), list(x = inside))
})
test_that("parts, sums and shapes", {
  expect_gradient(function(p) sum(t(p$x)[1, c(2, 2, 5)] * 3), list(x = x))
  expect_gradient(function(p) sum(rowSums(p$x)^2) + sum(colMeans(p$x)^3), list(x = x))
  expect_gradient(function(p) sum(rowMeans(p$w)^2) + sum(colSums(p$w)^2), list(w = w))
  expect_gradient(function(p) {
    dim(p$x) <- c(6, 4)
    sum(p$x[2:3, , drop = FALSE]^2)
  }, list(x = x))
  expect_gradient(function(p) sum(crossprod(p$x)) + sum(tcrossprod(p$x)^2), list(x = x))
})
test_that("penalties of block matrices keep to stored blocks", {
  expect_gradient(function(p) sum(p$w^2) + 3 * sum(abs(p$w)) + mean(p$w), list(w = w))
})
test_that("parameters may be nested, unused or constant", {
  found <- value_and_gradient(function(p) sum(p$a$b^2) * untracked(p$c), list(a = list(b = c(u = 1, v = 2)), c = 3, w = w))
  expect_equal(found$gradient$a$b, c(u = 6, v = 12))
  expect_equal(found$gradient$c, 0)
  expect_true(all(block_values(found$gradient$w) == 0))
  expect_identical(untracked(5), 5)
})
test_that("refusals name the cause", {
  expect_error(value_and_gradient(function(p) 3, list(x = x)), "f returned 3, expected a number that was computed from its parameters")
  expect_error(value_and_gradient(function(p) p$x, list(x = x)), "expected one number", class = "tartan_error_shape")
  expect_error(value_and_gradient(function(p) sum(gamma(p$x)), list(x = x)), "gamma has no gradient", class = "tartan_error_unsupported")
  expect_error(value_and_gradient(function(p) sum(cumsum(p$x)), list(x = x)), "cumsum has no gradient")
  expect_error(value_and_gradient(function(p) prod(p$x), list(x = x)), "prod has no gradient")
  expect_error(value_and_gradient(function(p) sum(p$x %% 2), list(x = x)), "%% has no gradient")
  expect_error(value_and_gradient(function(p) sum(p$x, p$x), list(x = x)), "sum has several arguments")
  expect_error(value_and_gradient(function(p) max(p$w), list(w = w)), "max of a block matrix has no gradient")
  expect_error(value_and_gradient(function(p) sum(p$w[1:2, 1]), list(w = w)), "has no gradient, expected one of an array of R")
  expect_error(value_and_gradient(function(p) sum(tartan_relu_gradient(p$x, p$x)), list(x = x)), "tartan_relu_gradient has no gradient")
  unit <- function(p) sum(residual_unit(p$x, list(), list(conv = block_conv(block_pattern("dense", c(2, 2), 2), 1), filter = w), list(), NULL, NULL))
  expect_error(value_and_gradient(unit, list(x = x)), "residual_unit has no gradient", class = "tartan_error_unsupported")
  expect_error(value_and_gradient(sum, list(a = "b")), "parameters\\$a is \"b\", expected numbers")
  expect_error(value_and_gradient(sum, list(1, list("b"))), "parameters\\[\\[2\\]\\]\\[\\[1\\]\\] is \"b\"")
  inner <- function(p) value_and_gradient(function(q) sum(q * p$x), 2)$value
  expect_error(value_and_gradient(inner, list(x = 1:3)), "two calls of value_and_gradient")
})
test_that("a Tracked is shown with its value", {
  expect_output(value_and_gradient(function(p) { print(p$x); sum(p$x) }, list(x = 1:3)), "Tracked number 1")
})
