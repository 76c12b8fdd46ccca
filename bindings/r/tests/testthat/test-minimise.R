# SPDX-License-Identifier: Apache-2.0

x <- matrix(sin(1:3200), 32)
model <- function() list(w = block_matrix(block_pattern("dense", c(32, 32), 8), init = "normal", seed = 1), b = rep(0, 32))
loss <- function(p) mean((p$w %*% x + p$b - x)^2)
pruned <- function(p, ...) block_sparsifier(p, density = 0.5, begin = 10, end = 40, every = 10, ...)

test_that("it takes the steps of the loop written by hand", {
  p <- model()
  found <- minimise(loss, p, 50, rate = 0.02, sparsifier = pruned(p))
  zeros <- lapply(p, function(q) q * 0)
  state <- list(parameters = p, means = zeros, squares = zeros)
  sparsifier <- pruned(p)
  losses <- numeric()
  for (step in 1:50) {
    one <- value_and_gradient(loss, state$parameters)
    state <- sparsifier_step(sparsifier, adam(state$parameters, one$gradient, state$means, state$squares, step = step, rate = 0.02))
    losses <- c(losses, one$value)
  }
  expect_equal(block_count(found$parameters$w), 8)
  expect_identical(found$losses, losses)
  expect_identical(as.matrix(found$parameters$w), as.matrix(state$parameters$w))
  expect_identical(found$squares$b, state$squares$b)
  expect_lt(found$losses[50], found$losses[1] / 2)
})

test_that("it goes on from what it returned, with the same bits", {
  p <- model()
  whole <- minimise(loss, p, 30, rate = 0.02, sparsifier = pruned(p))
  sparsifier <- pruned(p)
  part <- minimise(loss, p, 17, rate = 0.02, sparsifier = sparsifier)
  part <- minimise(loss, part, 13, rate = 0.02, sparsifier = sparsifier)
  expect_identical(part$losses, whole$losses)
  expect_identical(as.matrix(part$parameters$w), as.matrix(whole$parameters$w))
  expect_output(print(part), "Minimised in 30 steps, the last loss")
})

test_that("an interrupt keeps all whole steps", {
  seen <- 0
  stopping <- function(p, step) {
    seen <<- step
    if (step == 6) stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
    loss(p)
  }
  expect_message(part <- minimise(stopping, model(), 20, rate = 0.02), "interrupted after 5 steps")
  expect_equal(c(seen, part$steps, length(part$losses)), c(6, 5, 5))
  whole <- minimise(loss, model(), 20, rate = 0.02)
  expect_identical(minimise(loss, part, 15, rate = 0.02)$losses, whole$losses)
})

test_that("movement is observed, and the bar shows steps and loss", {
  p <- model()
  shown <- capture.output(found <- minimise(loss, p, 12, rate = 0.02, sparsifier = block_sparsifier(p, density = 0.5, begin = 10, end = 10, score = "movement"),
                                            progress = TRUE), type = "message")
  expect_equal(block_count(found$parameters$w), 8)
  expect_match(paste(shown, collapse = ""), "\\[=+\\] 12/12  loss ")
})

test_that("what does not fit is refused", {
  p <- model()
  expect_error(minimise(loss, p$w, 3), "parameters is .*, expected a list of numbers and block matrices", class = "tartan_error_argument")
  expect_error(minimise(loss, p, -1), "steps is -1, expected a whole number", class = "tartan_error_argument")
  expect_error(minimise(loss, p, 3, progress = 2), "progress is 2, expected TRUE or FALSE", class = "tartan_error_argument")
  expect_error(minimise(loss, p, 3, sparsifier = block_sparsifier(p, score = "gate")), "score = \"gate\"", class = "tartan_error_argument")
  expect_error(minimise(loss, p, 3, sparsifier = block_sparsifier(p, swap = 0.5)), "is to grow blocks of weight")
  expect_error(minimise(loss, p, 3, speed = 1), "unused argument")
})
