# SPDX-License-Identifier: Apache-2.0
# Gradients of a function of parameters, by recording what it computes (reverse mode). While the function runs, its parameters are
# Tracked objects: each holds a value and its number on a tape. What is computed with them is computed as ever, and adds to the tape
# a function from the gradients of its results to those of its operands. The tape is then gone through backwards.
#
# Operations of the library find their gradients in .operations, so a new one needs nothing here (src/operation.c calls .record_operation).

setClass("Tracked", slots = c(value = "ANY", number = "integer", tape = "environment"))

.is_tracked <- function(x) inherits(x, "Tracked")

untracked <- function(x) if (.is_tracked(x)) x@value else x

.new_tape <- function() {
  tape <- new.env(parent = emptyenv())
  tape$numbers <- 0L
  tape$steps <- list()
  tape
}

.track <- function(tape, value) {
  tape$numbers <- tape$numbers + 1L
  methods::new("Tracked", value = value, number = tape$numbers, tape = tape)
}

# A Tracked for each of the values that were computed from the operands, some of which are Tracked. pullback(grads), with a list of
# the gradients of the values, NULL where there is none, returns a list with the gradient of each operand; wanted[i] says whether the
# one of operand i is used.
.record <- function(operands, values, pullback) {
  wanted <- vapply(operands, .is_tracked, NA)
  tape <- operands[[which(wanted)[1L]]]@tape
  for (x in operands[wanted]) {
    if (!identical(x@tape, tape)) {
      .fail("argument", "operands belong to two calls of value_and_gradient, expected one (untracked() gives the value of the other)")
    }
  }
  found <- lapply(values, function(value) .track(tape, value))
  tape$steps[[length(tape$steps) + 1L]] <- list(
    from = vapply(operands[wanted], function(x) x@number, 0L), wanted = which(wanted),
    to = vapply(found, function(x) x@number, 0L), pullback = pullback)
  found
}
.record_one <- function(operands, value, pullback) {
  .record(operands, list(value), function(grads) pullback(grads[[1L]]))[[1L]]
}

.sum_of_gradients <- function(a, b) {
  if (is.null(a)) return(b)
  if (inherits(a, "DeviceArray")) tartan_add(a, b) else a + b
}

# The gradients of the first `count` numbers of the tape.
.gradients_of <- function(tape, last, count) {
  grads <- vector("list", tape$numbers)
  grads[[last@number]] <- 1
  for (step in rev(tape$steps)) {
    given <- grads[step$to]
    grads[step$to] <- list(NULL)
    if (all(vapply(given, is.null, NA))) next
    found <- step$pullback(given)[step$wanted]
    for (k in seq_along(found)) {
      if (is.null(found[[k]])) next
      at <- step$from[k]
      grads[[at]] <- .sum_of_gradients(grads[[at]], found[[k]])
    }
  }
  grads[seq_len(count)]
}

# 0 in the form of a parameter that the function did not use.
.zero_like <- function(x) {
  if (inherits(x, "DeviceArray")) return(.numbers_to_device(array(0, x@size), x@context, x@dtype))
  if (.is_matrix(x)) return(.matrix_of_zeros(.place(x = x), x@layout, x@dtype, x@Dimnames))
  x[] <- 0
  x
}

.expect_parameter <- function(x, name) {
  if (is.list(x) && !is.data.frame(x)) return(invisible(Map(.expect_parameter, x, .names_within(x, name))))
  if (!(is.numeric(x) && !is.factor(x)) && !.is_matrix(x) && !inherits(x, "DeviceArray")) {
    .fail("argument", "%s is %s, expected numbers, a block matrix or a list of these", name, .shown(x))
  }
}
.names_within <- function(x, name) {
  at <- if (is.null(names(x))) rep("", length(x)) else names(x)
  ifelse(nzchar(at), paste0(name, "$", at), sprintf("%s[[%d]]", name, seq_along(x)))
}

value_and_gradient <- function(f, parameters, ...) {
  f <- match.fun(f)
  .expect_parameter(parameters, "parameters")
  tape <- .new_tape()
  is_group <- function(x) is.list(x) && !is.data.frame(x)
  tracked <- function(x) if (is_group(x)) lapply(x, tracked) else .track(tape, x)
  given <- tracked(parameters)
  count <- tape$numbers
  result <- f(given, ...)
  if (!.is_tracked(result)) {
    .fail("argument", "f returned %s, expected a number that was computed from its parameters", .shown(result))
  }
  value <- result@value
  if (!is.numeric(value) || length(value) != 1L) {
    .fail("shape", "f returned %s, expected one number (such as a sum or a mean)", .shown(value))
  }
  found <- .gradients_of(tape, result, count)
  gradient <- function(x, of) {
    if (is_group(x)) return(Map(gradient, x, of))
    grad <- found[[of@number]]
    if (is.null(grad)) .zero_like(x) else .like(grad, x)
  }
  list(value = as.vector(value), gradient = gradient(parameters, given))
}

# A gradient with the dimensions and names of the numbers that it belongs to.
.like <- function(grad, x) {
  if (is.numeric(grad) && is.numeric(x)) attributes(grad) <- attributes(x)
  grad
}

# ---- Operations of the library ----

# The gradients that an operation's rule computes of what is known, of which only the wanted ones are made: a list by their operands' names.
.run_rule <- function(rule, known, options, wanted) {
  made <- rule$uses != "in"
  rule$returned <- made & rule$optional
  found <- tartan_r_run(rule, lapply(rule$arguments[rule$uses != "out"], function(name) known[[name]]), options[rule$options],
                        as.list(rule$results[rule$returned] %in% wanted))
  if (is.list(found) && !is.object(found)) found else stats::setNames(list(found), rule$results[made & !rule$optional])
}

# For the C code, when an operand of an operation is Tracked: `call` is list(op, operands, options, returns).
.record_operation <- function(call) {
  op <- call[[1L]]
  operands <- call[[2L]]
  rule <- .operations[[op$gradient]]
  if (is.null(rule)) .fail("unsupported", "%s has no gradient", op$f)
  names(operands) <- op$arguments[op$uses != "out"]
  is_result <- op$uses != "in"
  needed <- rule$arguments[rule$uses != "out"]
  asked <- if (length(call[[4L]])) vapply(call[[4L]], .flag, NA, "an option that asks for a result") else logical()
  returned <- op$arguments[op$returned]
  values <- lapply(operands, untracked)
  results <- tartan_r_run(op, values, call[[3L]], as.list(asked | returned %in% needed))
  names_of_results <- op$results[is_result]
  if (!(is.list(results) && !is.object(results))) results <- stats::setNames(list(results), names_of_results[1L])
  argument_of <- stats::setNames(op$arguments[is_result], names_of_results)[names(results)]

  options <- if (length(call[[3L]])) stats::setNames(call[[3L]], op$options)
  wanted <- names(operands)[vapply(operands, .is_tracked, NA)]
  pullback <- function(grads) {
    followed <- paste0(argument_of, "_grad") %in% needed
    if (any(lost <- !followed & !vapply(grads, is.null, NA))) {
      .fail("unsupported", "%s of %s has no gradient, expected only its use as a constant (untracked)", names(results)[lost][1L], op$f)
    }
    known <- c(values, stats::setNames(results, argument_of), stats::setNames(grads, paste0(argument_of, "_grad")))
    for (name in needed[endsWith(needed, "_grad")]) {
      if (is.null(known[[name]]) && !rule$optional[match(name, rule$arguments)]) {
        known[[name]] <- .zero_like(known[[sub("_grad$", "", name)]])
      }
    }
    found <- .run_rule(rule, known, options, wanted)
    lapply(names(operands), function(name) found[[name]])
  }
  found <- stats::setNames(.record(operands, results, pullback), names(results))
  # Results that only the gradient asked for are not the user's.
  hidden <- argument_of %in% returned[!(if (length(asked)) asked else rep(FALSE, length(returned)))]
  found <- found[!hidden]
  if (length(found) == 1L && !any(asked)) found[[1L]] else found
}

# ---- Arithmetic and functions of R ----

# The gradient of an operand that R repeated to the size of the result.
.unrepeated <- function(grad, x) {
  if (.is_matrix(x)) return(if (.is_matrix(grad)) grad else .project_dense(grad, x))
  if (.is_matrix(grad)) grad <- as.vector(as.matrix(grad))
  if (length(x) == length(grad)) return(.like(as.vector(grad), x))
  .like(rowSums(matrix(grad, length(x))), x)
}
.project_dense <- function(grad, x) block_cast(block_matrix(x@layout, as.matrix(grad)), x@dtype)

# Where the base of a power is 0 or less, its exponent has no derivative but where the power is 0 around it.
.log_of_base <- function(a) {
  a[a <= 0] <- 1
  log(a)
}

.arithmetic <- function(generic, e1, e2) {
  a <- untracked(e1)
  b <- untracked(e2)
  f <- get(generic, baseenv())
  value <- f(a, b)
  pullback <- switch(generic,
    "+" = function(g) list(g, g),
    "-" = function(g) list(g, -g),
    "*" = function(g) list(g * b, g * a),
    "/" = function(g) list(g / b, -g * value / b),
    "^" = function(g) list(g * b * a^(b - 1), if (.is_tracked(e2)) g * value * .log_of_base(a)),
    .fail("unsupported", "%s has no gradient", generic))
  .record_one(list(e1, e2), value, function(g) {
    found <- pullback(g)
    list(.unrepeated(found[[1L]], a), if (.is_tracked(e2)) .unrepeated(found[[2L]], b))
  })
}

for (.other in c("ANY", "Tracked", .peers[-1L], "BlockMatrix", "DeviceBlockMatrix", "DeviceArray")) {
  setMethod("Arith", signature("Tracked", .other), function(e1, e2) .arithmetic(.Generic, e1, e2))
  setMethod("Compare", signature("Tracked", .other), function(e1, e2) get(.Generic, baseenv())(untracked(e1), untracked(e2)))
  if (.other == "Tracked") next
  setMethod("Arith", signature(.other, "Tracked"), function(e1, e2) .arithmetic(.Generic, e1, e2))
  setMethod("Compare", signature(.other, "Tracked"), function(e1, e2) get(.Generic, baseenv())(untracked(e1), untracked(e2)))
}
rm(.other)
setMethod("Arith", signature("Tracked", "missing"), function(e1, e2) {
  if (.Generic == "-") .record_one(list(e1), -untracked(e1), function(g) list(-g)) else e1
})

# Derivatives of x, whose value is y.
.derivatives <- list(
  abs = function(x, y) sign(x), exp = function(x, y) y, expm1 = function(x, y) y + 1, log = function(x, y) 1 / x,
  log2 = function(x, y) 1 / (x * log(2)), log10 = function(x, y) 1 / (x * log(10)), log1p = function(x, y) 1 / (1 + x),
  sqrt = function(x, y) 0.5 / y, sin = function(x, y) cos(x), cos = function(x, y) -sin(x), tan = function(x, y) 1 + y^2,
  asin = function(x, y) 1 / sqrt(1 - x^2), acos = function(x, y) -1 / sqrt(1 - x^2), atan = function(x, y) 1 / (1 + x^2),
  sinh = function(x, y) cosh(x), cosh = function(x, y) sinh(x), tanh = function(x, y) 1 - y^2,
  lgamma = function(x, y) digamma(x))
.record_function <- function(name, x) {
  derivative <- .derivatives[[name]]
  if (is.null(derivative)) .fail("unsupported", "%s has no gradient", name)
  value <- untracked(x)
  y <- get(name, baseenv())(value)
  .record_one(list(x), y, function(g) list(.unrepeated(g * derivative(value, y), value)))
}
setMethod("Math", "Tracked", function(x) .record_function(.Generic, x))
setMethod("log", "Tracked", function(x, ...) {
  if (...length()) .record_function("log", x) / log(...elt(1L)) else .record_function("log", x)
})

# A gradient for each of the numbers of x, all equal.
.everywhere <- function(g, x) {
  if (.is_matrix(x)) return(.with_values(x, .spread(x, g, padding = 0)))
  x[] <- g
  x
}
setMethod("Summary", "Tracked", function(x, ..., na.rm = FALSE) {
  if (...length()) .fail("argument", "%s has several arguments, expected one that is tracked", .Generic)
  value <- untracked(x)
  switch(.Generic,
    sum = .record_one(list(x), sum(value), function(g) list(.everywhere(g, value))),
    # The first of equal numbers has the gradient, as in reductions of the library.
    max = , min = {
      if (.is_matrix(value)) .fail("unsupported", "%s of a block matrix has no gradient", .Generic)
      at <- if (.Generic == "max") which.max(value) else which.min(value)
      x[at]
    },
    .fail("unsupported", "%s has no gradient", .Generic))
})
mean.Tracked <- function(x, ...) {
  value <- untracked(x)
  n <- if (.is_matrix(value)) length(value) * block_heads(value) else length(value)
  sum(x) / n
}

# ---- Dimensions ----

setMethod("dim", "Tracked", function(x) dim(x@value))
setMethod("length", "Tracked", function(x) length(x@value))
setMethod("dim<-", "Tracked", function(x, value) {
  old <- untracked(x)
  new <- old
  dim(new) <- value
  .record_one(list(x), new, function(g) list(.like(g, old)))
})
setMethod("t", "Tracked", function(x) {
  value <- untracked(x)
  back <- function(g) if (is.null(dim(value)) && !.is_matrix(value)) .like(as.vector(g), value) else t(g)
  .record_one(list(x), t(value), function(g) list(back(g)))
})
setMethod("[", "Tracked", function(x, i, j, ..., drop = TRUE) {
  value <- untracked(x)
  if (!is.numeric(value)) .fail("unsupported", "a part of %s has no gradient, expected one of an array of R", .shown(value))
  call <- sys.call()
  frame <- parent.frame()
  at <- function(y) {
    call[[1L]] <- quote(`[`)
    call[[2L]] <- y
    eval(call, frame)
  }
  places <- as.vector(at(.like(seq_along(value), value)))
  .record_one(list(x), at(value), function(g) {
    sums <- rowsum(as.vector(g), places)
    grad <- .zero_like(value)
    grad[as.integer(rownames(sums))] <- sums
    list(grad)
  })
})

.record_sums <- function(f, x, along, count) {
  value <- untracked(x)
  y <- f(value)
  .record_one(list(x), y, function(g) {
    g <- g / count(value)
    if (.is_matrix(value)) return(list(.with_values(value, .spread(value, g, along, 0))))
    list(.like(if (along == "rows") rep_len(g, length(value)) else rep(g, each = nrow(value)), value))
  })
}
setMethod("rowSums", "Tracked", function(x, ...) .record_sums(rowSums, x, "rows", function(x) 1))
setMethod("colSums", "Tracked", function(x, ...) .record_sums(colSums, x, "cols", function(x) 1))
setMethod("rowMeans", "Tracked", function(x, ...) .record_sums(rowMeans, x, "rows", ncol))
setMethod("colMeans", "Tracked", function(x, ...) .record_sums(colMeans, x, "cols", nrow))

# ---- Places ----

setMethod("to_host", "Tracked", function(x) {
  value <- untracked(x)
  .record_one(list(x), to_host(value), function(g) list(to_device(g, value@context)))
})

setMethod("show", "Tracked", function(object) {
  cat("Tracked number ", object@number, ":\n", sep = "")
  methods::show(object@value)
})
