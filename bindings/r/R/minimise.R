# SPDX-License-Identifier: Apache-2.0
# The loop of training: gradients, a step of Adam, a step of a sparsifier, until it ends or is interrupted.

minimise <- function(loss, parameters, steps, ..., sparsifier = NULL, progress = interactive()) {
  loss <- match.fun(loss)
  steps <- .count(steps, "steps")
  progress <- .flag(progress, "progress")
  state <- if (inherits(parameters, "minimised")) parameters else .minimised_from(parameters)
  with_step <- length(formals(args(loss))) > 1L
  if (!is.null(sparsifier) && grepl("score=gate", sparsifier_options(sparsifier), fixed = TRUE)) {
    .fail("argument", "sparsifier has score = \"gate\", expected another one: with gates write the loop yourself")
  }
  shown <- -Inf
  losses <- state$losses # grows in place; inside of the state it would be copied in each step
  tryCatch(for (i in seq_len(steps)) {
    step <- state$steps + 1
    found <- if (with_step) value_and_gradient(loss, state$parameters, step) else value_and_gradient(loss, state$parameters)
    # A step is taken as a whole: an interrupt waits for its end.
    suspendInterrupts({
      state <- .minimised_step(state, found, step, sparsifier, ...)
      losses[step] <- found$value
    })
    if (progress && (i == steps || proc.time()[[3L]] - shown > 0.2)) {
      .show_progress(i, steps, found$value)
      shown <- proc.time()[[3L]]
    }
  }, interrupt = function(condition) {
    message("\nminimise: interrupted after ", state$steps, " steps; what it returns goes on as `parameters` of another call")
  })
  if (progress) cat("\n", file = stderr())
  state$losses <- losses
  state
}

.minimised_from <- function(parameters) {
  if (!is.list(parameters) || is.object(parameters)) {
    .fail("argument", "parameters is %s, expected a list of numbers and block matrices, or what minimise returned", .shown(parameters))
  }
  .expect_parameter(parameters, "parameters")
  zeros <- lapply(parameters, .zero_like)
  structure(list(parameters = parameters, means = zeros, squares = zeros, steps = 0, losses = numeric()), class = "minimised")
}

.minimised_step <- function(state, found, step, sparsifier, ...) {
  p <- state$parameters
  if (!is.null(sparsifier) && grepl("score=movement", sparsifier_options(sparsifier), fixed = TRUE)) {
    sparsifier_observe(sparsifier, p, found$gradient)
  }
  moved <- adam(p, found$gradient, state$means, state$squares, step = step, ...)
  if (!is.null(sparsifier)) moved <- sparsifier_step(sparsifier, moved)
  state[c("parameters", "means", "squares")] <- moved
  state$steps <- step
  state
}

.show_progress <- function(i, steps, loss) {
  width <- 30
  done <- floor(width * i / steps)
  cat(sprintf("\r[%s%s] %.0f/%.0f  loss %.4g    ", strrep("=", done), strrep(" ", width - done), i, steps, loss), file = stderr())
}

print.minimised <- function(x, ...) {
  cat("Minimised in ", x$steps, " steps", if (x$steps > 0) paste0(", the last loss ", .digits(x$losses[x$steps])), "\n", sep = "")
  invisible(x)
}
