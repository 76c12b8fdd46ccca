# SPDX-License-Identifier: Apache-2.0
# Sparsifiers: equal to programs that call block_evolve and block_project themselves, and to themselves after a stop.

model <- function() {
  list(a = block_matrix(block_pattern("dense", c(60, 75), c(8, 16)), init = "normal", seed = 1), bias = seq(-1, 1, length.out = 60),
       b = block_matrix(block_pattern("random", c(64, 32), 8, density = 0.8, seed = 2), init = "normal", seed = 2))
}
started <- function(p) {
  zeros <- lapply(p, function(x) x * 0)
  list(parameters = p, means = zeros, squares = zeros)
}
# What a loss would give: of each parameter by its place and the step.
gradients <- function(p, step) {
  Map(function(x, k) {
    set.seed(100 * step + k)
    if (is.numeric(x)) rnorm(length(x)) else block_matrix(matrix(rnorm(prod(dim(x))), nrow(x)), layout = x@layout)
  }, p, seq_along(p))
}
growth <- function(layout, step) {
  set.seed(step)
  matrix(runif(prod(block_grid(layout))), block_grid(layout)[1])
}
learn <- function(state, step, rates = NULL) {
  adam(state$parameters, gradients(state$parameters, step), state$means, state$squares, step = step, rate = 0.05, rates = rates)
}
expect_same_state <- function(found, wanted) {
  plain <- function(x) if (is.numeric(x)) x else list(as.matrix(x), block_identity(x))
  for (group in names(wanted)) expect_identical(lapply(found[[group]], plain), lapply(wanted[[group]], plain))
}

schedules <- list(
  list(density = 0.3, begin = 4, end = 16, every = 4),
  list(density = 0.4, initial = 1, curve = "linear", end = 18, every = 3, score = "l2"),
  list(threshold = 0.7, score = "max", begin = 3),
  list(swap = 0.3, every = 2, end = 19),
  list(density = 0.5, swap = 0.3, growth = "random", seed = 3, decay = "linear", end = 20))

test_that("a sparsifier does what the program written by hand does", {
  for (schedule in schedules) {
    first <- model()
    ours <- theirs <- started(first)
    sparsifier <- do.call(block_sparsifier, c(list(first), schedule))
    hand <- schedule[!(names(schedule) %in% c("score", "growth", "seed", "initial"))]
    for (step in 1:22) {
      ours <- learn(ours, step)
      if (sparsifier_needs_growth(sparsifier)) {
        do.call(sparsifier_add_growth, c(list(sparsifier), lapply(sparsifier_layouts(sparsifier), growth, step)))
      }
      ours <- sparsifier_step(sparsifier, ours)
      theirs <- learn(theirs, step)
      for (i in 1:2) {
        name <- c("a", "b")[i]
        w <- theirs$parameters[[name]]
        norms <- block_norms(w, if (identical(schedule$score, "max")) "max" else "l2")
        if (is.null(schedule$score)) norms <- norms / sqrt(prod(w@layout@frame[3:4]))
        arguments <- c(list(w@layout, step, norms), hand,
                       list(growth = if (!identical(schedule$growth, "random")) growth(w@layout, step),
                            initial = if (is.null(schedule$initial)) block_density(first[[name]]) else schedule$initial,
                            seed = (if (is.null(schedule$seed)) 0 else schedule$seed) + i - 1))
        layout <- do.call(block_evolve, arguments)
        for (group in names(theirs)) theirs[[group]][[name]] <- block_project(theirs[[group]][[name]], layout)
      }
    }
    expect_same_state(ours, theirs)
    expect_identical(sparsifier_steps(sparsifier), 22)
    expect_identical(sparsifier_layouts(sparsifier)[[1]], ours$parameters$a@layout)
    expect_false(identical(block_identity(ours$parameters$a), block_identity(first$a)) &&
                 identical(block_identity(ours$parameters$b), block_identity(first$b)))
  }
})

train <- function(sparsifier, state, last) {
  while (sparsifier_steps(sparsifier) < last) {
    step <- sparsifier_steps(sparsifier) + 1
    if (grepl("score=(movement|gate)", sparsifier_options(sparsifier))) {
      sparsifier_observe(sparsifier, state$parameters, gradients(state$parameters, step))
    }
    state <- learn(state, step, sparsifier_rates(sparsifier, state$parameters))
    if (sparsifier_needs_growth(sparsifier)) {
      do.call(sparsifier_add_growth, c(list(sparsifier), lapply(sparsifier_layouts(sparsifier), growth, step)))
    }
    state <- sparsifier_step(sparsifier, state)
  }
  state
}

test_that("training that was killed goes on with the same bits", {
  runs <- list(list(density = 0.3, begin = 4, end = 16, every = 4, fresh_rate = 3, fresh_steps = 4),
               list(density = 0.4, swap = 0.3, end = 18, every = 3, fresh_rate = 3, fresh_steps = 4),
               list(density = 0.4, swap = 0.2, end = 18, scope = "model", growth = "random", seed = 5),
               list(density = 0.3, swap = 0.2, end = 18, every = 2, score = "movement", growth = "random", fill = "normal"),
               list(score = "gate", l0 = 0.5, gate_rate = 0.5, every = 3, swap = 0.1, growth = "random"))
  path <- tempfile(fileext = ".h5")
  on.exit(unlink(path))
  for (run in runs) for (killed in c(1, 4, 9, 17)) {
    first <- model()
    sparsifier <- do.call(block_sparsifier, c(list(first), run))
    state <- train(sparsifier, started(first), killed)
    block_save(c(list(run = sparsifier), unlist(state, recursive = FALSE)), path = path)
    wanted <- train(sparsifier, state, 22)
    again <- sparsifier_load(path, "run")
    expect_identical(sparsifier_steps(again), killed)
    expect_identical(sparsifier_options(again), sparsifier_options(sparsifier))
    all <- block_load(path)
    loaded <- lapply(state, function(group) NULL)
    for (group in names(state)) loaded[[group]] <- stats::setNames(all[paste0(group, ".", names(first))], names(first))
    expect_same_state(train(again, loaded, 22), wanted)
    expect_lt(block_count(wanted$parameters$a), block_count(first$a))
  }
})

test_that("gates are those of the operations", {
  p <- model()
  sparsifier <- block_sparsifier(p, score = "gate", seed = 11, gate_initial = -1, l0 = 0.5)
  state <- list(p = p)
  for (step in 1:2) {
    gates <- sparsifier_gates(sparsifier, state$p)
    settled <- sparsifier_gates(sparsifier, state$p, training = FALSE)
    expect_identical(names(gates), names(p))
    expect_null(gates$bias)
    for (i in 1:2) {
      name <- c("a", "b")[i]
      loga <- rep(-1, block_count(p[[name]]))
      expect_identical(gates[[name]], concrete_gate(loga, seed = 10 + 2 * step + i))
      expect_identical(settled[[name]], tartan_concrete_gate_infer(loga))
    }
    state <- sparsifier_step(sparsifier, state)
  }
  stored <- 40 * 128 + block_count(p$b) * 64
  expect_equal(sparsifier_penalty(sparsifier), 0.5 / (1 + exp(1 - 2 / 3 * log(11))) * stored / (40 * 128 + 32 * 64))

  # The gradient of a weight without gates, or that of its gates.
  w <- p$a
  dw <- gradients(list(w), 1)[[1]]
  seen <- lapply(list(dw, gate_gradient(w, dw)$gates), function(gradient) {
    s <- block_sparsifier(w, score = "gate", begin = 100)
    sparsifier_observe(s, w, gradient)
    sparsifier_step(s, list(w))
    sparsifier_gates(s, w, training = FALSE)[[1]]
  })
  expect_identical(seen[[1]], seen[[2]])
  expect_false(identical(seen[[1]], settled$a))
  expect_refused(sparsifier_gates(block_sparsifier(w), w), "argument", "has no gates, expected the option score=gate")
  expect_refused(sparsifier_penalty(block_sparsifier(w)), "argument", "has no gates, expected the option score=gate")
  expect_refused(sparsifier_gates(sparsifier, p, training = NA), "argument", "training")
  expect_refused(sparsifier_observe(block_sparsifier(w, score = "gate"), w, 1:3), "shape", "scores has 3 entries, expected 40")
})

test_that("gates find the blocks that a task needs", {
  set.seed(3)
  grid <- matrix(0, 8, 8)
  grid[cbind(sample(8)[1:6], sample(8)[1:6])] <- 1
  wanted <- matrix(rnorm(64 * 64), 64) * kronecker(grid, matrix(1, 8, 8))
  w <- block_matrix(block_pattern("dense", c(64, 64), 8), init = "normal", seed = 1)
  state <- list(parameters = list(w), means = list(w * 0), squares = list(w * 0))
  sparsifier <- block_sparsifier(w, score = "gate", l0 = 10, gate_rate = 0.05, begin = 200, every = 50)
  for (step in 1:400) {
    x <- matrix(rnorm(64 * 32), 64)
    target <- wanted %*% x
    p <- list(w = state$parameters[[1]], g = sparsifier_gates(sparsifier, state$parameters)[[1]])
    found <- value_and_gradient(function(p) sum((spmm(p$w, x, gates = p$g) - target)^2) / 64, p)
    sparsifier_observe(sparsifier, p$w, found$gradient$g)
    state <- adam(state$parameters, found$gradient["w"], state$means, state$squares, step = step, rate = 0.02)
    state <- sparsifier_step(sparsifier, state)
  }
  expect_identical(block_count(state$parameters[[1]]), 6L)
  expect_lt(max(abs(as.matrix(state$parameters[[1]]) - wanted)), 0.1)
})

test_that("the shared case has the bits of the other languages", {
  folder <- Sys.getenv("TARTAN_CASES")
  skip_if(!nzchar(folder), "TARTAN_CASES does not name data/cases")
  file <- block_file(file.path(folder, "training.h5"))
  on.exit(close(file))
  rows <- read.csv(file.path(folder, "training.csv"), stringsAsFactors = FALSE)
  expect_gte(nrow(rows), 4)
  path <- tempfile(fileext = ".h5")
  for (r in seq_len(nrow(rows))) {
    row <- rows[r, ]
    sparsifier <- sparsifier_load(file, row$name)
    expect_identical(sparsifier_steps(sparsifier) + 1, as.double(row$first))
    get <- function(what, i) block_get(file, paste(row$name, what, i))
    state <- list(p = list(get("w", 0), get("w", 1)), v = list(get("velocity", 0), get("velocity", 1)))
    for (step in row$first:row$last) {
      grads <- Map(function(p, i) block_matrix(block_get(file, paste("gradient", step, i)), layout = p@layout), state$p, 0:1)
      if (grepl("score=(movement|gate)", sparsifier_options(sparsifier))) sparsifier_observe(sparsifier, state$p, grads)
      found <- sgd(state$p, grads, velocities = state$v, momentum = 0.9, step = step, rate = 0.1,
                   rates = sparsifier_rates(sparsifier, state$p))
      if (sparsifier_needs_growth(sparsifier)) {
        sparsifier_add_growth(sparsifier, block_get(file, paste("growth", step, 0)), block_get(file, paste("growth", step, 1)))
      }
      state <- sparsifier_step(sparsifier, list(p = found$parameters, v = found$velocities))
      if (step == row$stop) { # killed once more, and loaded
        block_save(path, s = sparsifier, w0 = state$p[[1]], w1 = state$p[[2]], v0 = state$v[[1]], v1 = state$v[[2]])
        sparsifier <- sparsifier_load(path, "s")
        state <- list(p = list(block_load(path, "w0"), block_load(path, "w1")), v = list(block_load(path, "v0"), block_load(path, "v1")))
      }
    }
    found <- vapply(c(state$p, state$v), function(x) tartan_checksum(as.matrix(x)), "")
    expect_identical(found, unlist(row[c("w0", "w1", "velocity0", "velocity1")], use.names = FALSE), info = row$name)
  }
  unlink(path)
})

test_that("what has numbers for blocks moves with them", {
  w <- block_matrix(block_pattern("dense", c(32, 48), c(8, 16)), init = "normal", seed = 1)
  set.seed(1)
  rows <- matrix(runif(8 * 12), 8)
  counts <- 1:12
  bias <- c(1, 2)
  thin <- block_matrix(block_pattern("dense", c(4, 3), 1), init = "zeros")
  block_values(thin) <- array(as.double(1:12), c(1, 1, 12))
  sparsifier <- block_sparsifier(list(w, bias), density = 0.5)
  found <- sparsifier_step(sparsifier, list(list(w, bias), list(rows, NULL), list(counts, bias), list(NULL, NULL), list(thin, NULL)))
  kept <- block_id(w@layout, block_coordinates(found[[1]][[1]])$row, block_coordinates(found[[1]][[1]])$col)
  expect_length(kept, 6)
  expect_identical(found[[1]][[2]], bias)
  expect_identical(found[[2]][[1]], rows[, kept])
  expect_identical(found[[3]], list(counts[kept], bias))
  expect_identical(found[[4]], list(NULL, NULL))
  expect_identical(as.vector(block_values(found[[5]][[1]])), as.double(kept))
  alone <- block_sparsifier(w, density = 0.5)
  expect_output(print(alone), "BlockSparsifier of 1 weight, density 1, after 0 steps")
  expect_identical(block_count(sparsifier_step(alone, list(w))[[1]]), block_count(found[[1]][[1]]))
  expect_output(print(alone), "density 0.5, after 1 steps")
})

test_that("weights on devices move there", {
  w <- random_matrix(c(64, 64), c(8, 8), density = 0.9)
  for (device in test_devices) {
    context <- tartan_context(device)
    here <- block_sparsifier(w, density = 0.3, swap = 0.2, growth = "random", end = 4)
    there <- block_sparsifier(w, density = 0.3, swap = 0.2, growth = "random", end = 4)
    near <- list(w, 2 * w)
    far <- list(to_device(w, context), to_device(2 * w, context))
    for (step in 1:4) {
      near <- sparsifier_step(here, near)
      far <- sparsifier_step(there, far)
    }
    for (i in 1:2) expect_identical(to_host(far[[i]]), near[[i]])
  }
})

test_that("what does not fit is refused, and nothing changes", {
  p <- model()
  half <- block_keep(p$b, 5)
  sparsifier <- block_sparsifier(p, density = 0.3)
  step <- function(...) sparsifier_step(sparsifier, list(...))
  expect_refused(step(parameters = p, means = list(a = p$a, bias = 1, b = half)), "layout",
                 "means$b: matrix has 5 blocks in a grid of 8 x 4", "expected those of weight 1")
  expect_refused(step(p, list(a = p$a, bias = 1, b = half)), "layout", "state[[2]]$b: matrix has 5 blocks")
  expect_refused(step(p, p[1:2]), "shape", "state[[2]] has 2 entries, expected 3, one for each parameter")
  expect_refused(step(p, list(a = 1:3, bias = 1, b = p$b)), "layout", "state[[2]]$a: is 3, expected 40 entries along the last dimension")
  expect_refused(step(p, list(a = "x", bias = 1, b = p$b)), "argument", "state[[2]]$a: is \"x\", expected a block matrix, numbers or NULL")
  expect_refused(step(p, list(a = p$a, bias = 1, c = p$b)), "argument", "state[[2]] has the names a, bias, c, expected those of the parameters")
  expect_refused(step(list(p$a, 1)), "shape", "parameters has 1 block matrices, expected the 2 weights of the sparsifier")
  expect_refused(sparsifier_step(sparsifier, p$a), "argument", "state is", "expected a list: the parameters, then what moves with them")
  expect_refused(sparsifier_step(1, list(p)), "argument", "sparsifier is 1, expected a BlockSparsifier")
  expect_identical(sparsifier_steps(sparsifier), 0)
  w <- p$a
  expect_refused(sparsifier_step(block_sparsifier(w, swap = 0.5), list(w)), "argument",
                 "step 1 is to grow blocks of weight 0, expected sparsifier_add_growth() before it")
  expect_refused(sparsifier_step(block_sparsifier(w, density = 0.5, score = "movement"), list(w)), "argument",
                 "expected sparsifier_observe() before it")
  expect_refused(sparsifier_observe(block_sparsifier(w, density = 0.5), w, 2 * w), "argument", "score=rms, expected score=movement or score=gate")
  expect_refused(sparsifier_add_growth(block_sparsifier(w, swap = 0.5), 1, 2), "shape", "growth has 2 arrays, expected one for each of the 1 weights")
  expect_refused(sparsifier_add_growth(block_sparsifier(w, swap = 0.5), matrix(1, 3, 3)), "shape", "growth is 3 x 3, expected 8 x 5")
  expect_refused(block_sparsifier(p, density = 2), "argument", "density=2", "expected a number from 0 to 1")
  expect_refused(block_sparsifier(p, score = "l3"), "argument", "score is \"l3\"", "\"movement\"")
  expect_refused(block_sparsifier(p, fresh_steps = -1), "argument", "fresh_steps is -1")
  expect_refused(block_sparsifier(list(1, 2)), "argument", "parameters is", "expected a block matrix")
  expect_refused(block_put(block_file(), "s", sparsifier, metadata = "{}"), "argument", "gates or metadata are given for a sparsifier")
})

test_that("closed, restored and missing sparsifiers are refused", {
  w <- block_matrix(diag(4), block = 2)
  sparsifier <- block_sparsifier(w, density = 0.5)
  restored <- unserialize(serialize(sparsifier, NULL))
  expect_output(print(restored), "BlockSparsifier of a saved session: sparsifier_load\\(\\) reads one from a file")
  expect_refused(sparsifier_steps(restored), "handle", "from a saved session, expected one that block_sparsifier() made")
  close(sparsifier)
  close(sparsifier)
  expect_output(print(sparsifier), "BlockSparsifier, closed")
  expect_refused(sparsifier_step(sparsifier, list(w)), "handle", "the sparsifier is closed")
  path <- tempfile(fileext = ".h5")
  block_save(path, x = c(1, 2, 3))
  expect_refused(sparsifier_load(path, "s"), "not_found", "no array \"s\", expected that of a sparsifier")
  expect_refused(sparsifier_load(path, "x"), "format", "array \"x\" is not that of a sparsifier")
  unlink(path)
})
