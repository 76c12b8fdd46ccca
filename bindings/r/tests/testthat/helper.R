# SPDX-License-Identifier: Apache-2.0
library(Matrix)

# Refused with this class and a text that has all the parts.
expect_refused <- function(object, class, ...) {
  error <- expect_error(object, class = paste0("tartan_error_", class))
  expect_s3_class(error, "tartan_error")
  for (part in c(...)) expect_match(conditionMessage(error), part, fixed = TRUE)
  invisible(error)
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

small_layout <- function() block_layout(c(1, 2, 2), c(2, 1, 3), dim = c(8, 12), block = 4)
