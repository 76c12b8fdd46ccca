# SPDX-License-Identifier: Apache-2.0
# Which blocks are stored, changed while a model trains. The library has the schedule, the layouts and the step; lists of
# parameters and of what moves with them are R's.

block_sparsifier <- function(parameters, density = NULL, initial = NULL, curve = c("cubic", "linear", "cosine", "constant"),
                             threshold = NULL, score = c("rms", "max", "l1", "l2", "movement", "gate"),
                             scope = c("layer", "model"), swap = 0, decay = c("cosine", "linear", "cubic", "constant"),
                             growth = c("score", "random"), fill = c("zero", "normal", "uniform"), fill_scale = 0.1, begin = 0,
                             end = NULL, every = 1, fresh_rate = 1, fresh_steps = 0, l0 = 0, gate_rate = 0.01, gate_initial = 2, seed = 0) {
  curve <- if (missing(curve)) "cubic" else .choose(curve, .ways, "curve")
  decay <- if (missing(decay)) "cosine" else .choose(decay, .ways, "decay")
  word <- function(value, choices, name) paste0(name, "=", .choose(value, choices, name))
  options <- paste(c(.schedule(density, initial, curve, threshold, swap, decay, begin, end, every, seed),
                     word(score, c("rms", "max", "l1", "l2", "movement", "gate"), "score"), word(scope, c("layer", "model"), "scope"),
                     word(growth, c("score", "random"), "growth"), word(fill, c("zero", "normal", "uniform"), "fill"),
                     .number_option(fill_scale, "fill_scale"), .number_option(fresh_rate, "fresh_rate"),
                     .whole_option(fresh_steps, "fresh_steps"), .number_option(l0, "l0"), .number_option(gate_rate, "gate_rate"),
                     .number_option(gate_initial, "gate_initial")), collapse = " ")
  weights <- Filter(function(x) .is_matrix(x) || methods::is(x, "BlockLayout"), .as_items(parameters))
  if (!length(weights)) .fail("argument", "parameters is %s, expected a block matrix, or a list with one or more", .shown(parameters))
  sparsifier <- methods::new("BlockSparsifier", handle = tartan_sparsifier_create(options))
  for (w in weights) tartan_sparsifier_add(sparsifier, .layout_of(w, "a weight"))
  sparsifier
}

setMethod("show", "BlockSparsifier", function(object) {
  if (tartan_r_is_closed(object)) return(cat("BlockSparsifier, closed\n"))
  if (tartan_r_is_restored(object)) return(cat("BlockSparsifier of a saved session: sparsifier_load() reads one from a file\n"))
  layouts <- sparsifier_layouts(object)
  blocks <- sum(vapply(layouts, block_count, 0))
  grid <- sum(vapply(layouts, function(l) prod(.grid_of(l)) * l@frame[5L], 0))
  cat("BlockSparsifier of ", length(layouts), if (length(layouts) == 1L) " weight" else " weights", ", density ",
      .digits(blocks / max(grid, 1)), ", after ", sparsifier_steps(object), " steps\n", sep = "")
})

sparsifier_steps <- function(sparsifier) {
  .expect(sparsifier, "BlockSparsifier", "sparsifier")
  tartan_r_expect_open(sparsifier)
  tartan_sparsifier_steps(sparsifier)
}
sparsifier_options <- function(sparsifier) {
  .expect(sparsifier, "BlockSparsifier", "sparsifier")
  tartan_sparsifier_options(sparsifier)
}
sparsifier_needs_growth <- function(sparsifier) {
  .expect(sparsifier, "BlockSparsifier", "sparsifier")
  tartan_sparsifier_needs_growth(sparsifier) == 1
}
sparsifier_layouts <- function(sparsifier) {
  .expect(sparsifier, "BlockSparsifier", "sparsifier")
  lapply(seq_len(tartan_sparsifier_weights(sparsifier)) - 1,
         function(i) .new_layout(tartan_sparsifier_get_layout(sparsifier, i)))
}

# A single object is a list of its own.
.as_items <- function(x) if (is.list(x) && !is.object(x)) x else list(x)

# The items of x that belong to the parameters, in their order: by names if both have them, else by place.
.items_as <- function(parameters, x, name) {
  parameters <- .as_items(parameters)
  x <- .as_items(x)
  if (length(x) != length(parameters)) {
    .fail("shape", "%s has %d entries, expected %d, one for each parameter", name, length(x), length(parameters))
  }
  if (is.null(names(x)) || is.null(names(parameters))) return(x)
  if (!setequal(names(x), names(parameters))) {
    .fail("argument", "%s has the names %s, expected those of the parameters, %s", name, paste(names(x), collapse = ", "),
          paste(names(parameters), collapse = ", "))
  }
  x[names(parameters)]
}

# Where the weights stand among the parameters: the k-th of these places is that of weight k.
.weight_places <- function(sparsifier, parameters) {
  .expect(sparsifier, "BlockSparsifier", "sparsifier")
  places <- which(vapply(parameters, .is_matrix, NA))
  expected <- tartan_sparsifier_weights(sparsifier)
  if (length(places) != expected) {
    .fail("shape", "parameters has %d block matrices, expected the %.0f weights of the sparsifier", length(places), expected)
  }
  places
}

# Errors of the library say which object they are about.
.naming <- function(name, expr) {
  tryCatch(expr, tartan_error = function(e) .tartan_stop(e$status, paste0(name, ": ", conditionMessage(e))))
}

.item_name <- function(group, parameters, place) {
  if (!is.list(parameters) || is.object(parameters)) return(group)
  if (is.null(names(parameters))) sprintf("%s[[%d]]", group, place) else paste0(group, "$", names(parameters)[place])
}

# An array that has entries for blocks has them along its last dimension.
.check_state <- function(sparsifier, i, x) {
  if (.is_matrix(x)) return(tartan_sparsifier_check(sparsifier, i, x))
  if (is.null(x)) return(invisible())
  if (!is.numeric(x)) .fail("argument", "is %s, expected a block matrix, numbers or NULL", .shown(x))
  size <- if (is.null(dim(x))) length(x) else dim(x)
  blocks <- block_count(.new_layout(tartan_sparsifier_get_layout(sparsifier, i)))
  if (size[length(size)] != blocks) {
    .fail("layout", "is %s, expected %.0f entries along the last dimension, one for each block", .by(size), blocks)
  }
}
.moved_state <- function(sparsifier, i, x, layout, sources) {
  if (.is_matrix(x)) {
    return(.made(x, function(place, x) tartan_sparsifier_move(place, sparsifier, i, x)))
  }
  if (is.null(x)) return(NULL)
  size <- if (is.null(dim(x))) length(x) else dim(x)
  lines <- matrix(x, ncol = size[length(size)])
  moved <- matrix(as.vector(0, typeof(x)), nrow(lines), length(sources))
  moved[, sources >= 0] <- lines[, sources[sources >= 0] + 1]
  if (is.null(dim(x))) as.vector(moved) else array(moved, c(size[-length(size)], length(sources)))
}

sparsifier_step <- function(sparsifier, state) {
  if (!is.list(state) || is.object(state) || !length(state)) {
    .fail("argument", "state is %s, expected a list: the parameters, then what moves with them", .shown(state))
  }
  parameters <- state[[1L]]
  names <- if (is.null(names(state))) sprintf("state[[%d]]", seq_along(state)) else names(state)
  groups <- Map(function(x, name) .items_as(parameters, x, name), state, names)
  places <- .weight_places(sparsifier, groups[[1L]])
  each <- function(f) {
    for (i in seq_along(places)) for (g in seq_along(groups)) {
      .naming(.item_name(names[g], parameters, places[i]), f(i - 1, places[i], g))
    }
  }
  each(function(i, k, g) .check_state(sparsifier, i, groups[[g]][[k]]))
  if (tartan_sparsifier_needs_norms(sparsifier) == 1) {
    each(function(i, k, g) if (g == 1L) {
      w <- groups[[1L]][[k]]
      tartan_sparsifier_measure(.place(x = w), sparsifier, i, w)
    })
  }
  tartan_sparsifier_prepare(sparsifier)
  changes <- vapply(seq_along(places) - 1, function(i) tartan_sparsifier_changes(sparsifier, i) == 1, NA)
  layouts <- lapply(seq_along(places) - 1, function(i) .new_layout(tartan_sparsifier_get_next(sparsifier, i)))
  sources <- Map(function(i, layout) tartan_sparsifier_get_sources(sparsifier, i, block_count(layout)), seq_along(places) - 1, layouts)
  moved <- groups
  each(function(i, k, g) if (changes[i + 1]) {
    x <- .moved_state(sparsifier, i, groups[[g]][[k]], layouts[[i + 1]], sources[[i + 1]])
    if (g == 1L) tartan_sparsifier_fill(.place(x = x), sparsifier, i, x)
    if (!is.null(x)) moved[[g]][[k]] <<- x
  })
  tartan_sparsifier_commit(sparsifier)
  Map(function(x, items) if (is.list(x) && !is.object(x)) items else items[[1L]], state, moved)
}

# ---- What blocks and places are worth ----

sparsifier_observe <- function(sparsifier, parameters, gradients) {
  items <- .as_items(parameters)
  gradients <- .items_as(parameters, gradients, "gradients")
  places <- .weight_places(sparsifier, items)
  for (i in seq_along(places)) {
    k <- places[i]
    .naming(.item_name("gradients", parameters, k), {
      found <- if (.is_matrix(gradients[[k]])) gate_gradient(items[[k]], gradients[[k]])$gates else gradients[[k]]
      if (inherits(found, "DeviceArray")) found <- to_host(found)
      tartan_sparsifier_add_scores(sparsifier, i - 1, -as.vector(found))
    })
  }
  invisible(sparsifier)
}

sparsifier_add_growth <- function(sparsifier, ...) {
  layouts <- sparsifier_layouts(sparsifier)
  growth <- list(...)
  if (length(growth) != length(layouts)) {
    .fail("shape", "growth has %d arrays, expected one for each of the %d weights", length(growth), length(layouts))
  }
  for (i in seq_along(growth)) {
    x <- if (inherits(growth[[i]], "DeviceArray")) to_host(growth[[i]]) else growth[[i]]
    tartan_sparsifier_add_growth(sparsifier, i - 1, .growth_of(layouts[[i]], x))
  }
  invisible(sparsifier)
}

# A number for each block of a weight, and NULL for other parameters.
.for_blocks <- function(sparsifier, parameters, numbers_of) {
  items <- .as_items(parameters)
  places <- .weight_places(sparsifier, items)
  found <- vector("list", length(items))
  for (i in seq_along(places)) found[[places[i]]] <- numbers_of(i - 1, block_count(items[[places[i]]]))
  stats::setNames(found, names(items))
}
sparsifier_rates <- function(sparsifier, parameters) {
  .for_blocks(sparsifier, parameters, function(i, blocks) tartan_sparsifier_get_rates(sparsifier, i, blocks))
}
sparsifier_gates <- function(sparsifier, parameters, training = TRUE) {
  training <- as.integer(.flag(training, "training"))
  .for_blocks(sparsifier, parameters, function(i, blocks) tartan_sparsifier_get_gates(sparsifier, i, training, blocks))
}
sparsifier_penalty <- function(sparsifier) {
  .expect(sparsifier, "BlockSparsifier", "sparsifier")
  tartan_sparsifier_get_penalty(sparsifier)
}

# ---- Keeping ----

sparsifier_load <- function(file, name = "sparsifier") {
  methods::new("BlockSparsifier", handle = tartan_sparsifier_load(.opened(file), .string(name, "name")))
}
