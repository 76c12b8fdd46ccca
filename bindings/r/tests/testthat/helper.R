# SPDX-License-Identifier: Apache-2.0
library(Matrix)

# Devices to test with: those that TARTAN_TEST_DEVICES names, else the CPU and, where the build has made one, a dummy that
# poses as a GPU: memory of its own that nobody else can read. The library looks for devices once.
dummy_plugin <- Sys.getenv("TARTAN_DUMMY_PLUGIN")
if (nzchar(dummy_plugin)) Sys.setenv(TARTAN_PLUGIN_PATH = dummy_plugin)
test_devices <- strsplit(Sys.getenv("TARTAN_TEST_DEVICES"), " ")[[1]]
if (!length(test_devices)) test_devices <- c("cpu", if (nzchar(dummy_plugin)) "cuda")

# Refused with this class and a text that has all the parts.
expect_refused <- function(object, class, ...) {
  error <- expect_error(object, class = paste0("tartan_error_", class))
  expect_s3_class(error, "tartan_error")
  for (part in c(...)) expect_match(conditionMessage(error), part, fixed = TRUE)
  invisible(error)
}

# The most memory of R that an expression uses beyond what was in use before, in MiB.
peak_memory <- function(expression) {
  before <- sum(gc(reset = TRUE)[, 2L])
  force(expression)
  sum(gc()[, 6L]) - before
}

# A random layout and matrix of an odd shape, and their dense twin.
random_layout <- function(dim, block, density = 0.4, heads = 1, seed = 1) {
  set.seed(seed)
  grid <- ceiling(dim / block)
  block_layout_from_mask(array(runif(prod(grid) * heads) < density, c(grid, heads)), block, dim)
}
random_matrix <- function(dim = c(21, 17), block = c(4, 3), ..., seed = 1) {
  layout <- random_layout(dim, block, ..., seed = seed)
  dense <- array(rnorm(prod(dim) * block_heads(layout)), c(dim, block_heads(layout)))
  if (block_heads(layout) == 1) dim(dense) <- dim
  block_matrix(dense, layout = layout)
}

# The error bound of the library: (8 + 2 sqrt(k)) eps |A||B|.
expect_product <- function(found, a, b, alpha = 1) {
  exact <- alpha * (a %*% b)
  bound <- (8 + 2 * sqrt(ncol(a))) * .Machine$double.eps * abs(alpha) * (abs(a) %*% abs(b))
  expect_identical(dim(found), dim(exact))
  expect_true(all(abs(found - exact) <= bound))
}

# The same for the other dtypes, whose results may be rounded once more to the dtype of the result.
expect_within <- function(found, a, b, dtype, out = dtype, alpha = 1) {
  sums <- if (dtype == "float64") 2^-52 else 2^-23
  last <- c(float64 = 0, float32 = 0, float16 = 2^-11, bfloat16 = 2^-8)[[out]]
  exact <- alpha * (a %*% b)
  bound <- (8 + 2 * sqrt(ncol(a))) * sums * abs(alpha) * (abs(a) %*% abs(b))
  expect_identical(dim(found), dim(exact))
  expect_true(all(abs(found - exact) <= bound * (1 + last) + last * abs(exact) + if (out == "float16") 2^-25 else 0))
}

small_layout <- function() block_layout(c(1, 2, 2), c(2, 1, 3), dim = c(8, 12), block = 4)

# For tests on devices: a GPU's backend may say that it has no such operation yet; the dummy and the CPU have all.
or_skip <- function(call) {
  if (!nzchar(Sys.getenv("TARTAN_TEST_DEVICES"))) return(call)
  tryCatch(call, tartan_error_unsupported = function(e) skip(conditionMessage(e)))
}
