# SPDX-License-Identifier: Apache-2.0
# Every operation of the schema, by what .operations says of it.

operations <- tartan:::.operations
is_gradient <- names(operations) %in% vapply(operations, `[[`, "", "gradient")
f_of <- function(op) getExportedValue("tartan", op$f)
inputs_of <- function(op) op$uses != "out"
needed_of <- function(op) inputs_of(op) & !op$optional

# ---- Operands of the shapes that .operations has ----

# Numbers apart from 0, where some functions have no derivative.
some_numbers <- function(n) sample(c(-1, 1), n, TRUE) * runif(n, 0.4, 2)

dims_of <- function(shape, made, sizes) {
  if (startsWith(shape, "=")) return(tartan:::.size_of(made[[substring(shape, 2L)]]))
  items <- strsplit(strsplit(shape, " or ", fixed = TRUE)[[1]][1], " x ", fixed = TRUE)[[1]]
  unlist(lapply(items, function(item) {
    part <- strsplit(item, ".", fixed = TRUE)[[1]]
    if (length(part) == 2L && part[1] %in% names(made)) {
      matrix <- made[[part[1]]]
      return(switch(part[2], blocks = block_count(matrix), rows = nrow(matrix), cols = ncol(matrix), heads = block_heads(matrix)))
    }
    switch(item, segments = if (grepl("lines", shape)) 1 else sizes(item), lines = 10, # of a matrix
           "s... & t..." = c(4, 3), "s..." = c(4, 3), "t..." = 4, # each column
           "batch..." = 2, # the heads
           if (endsWith(item, "...")) c(3, 2) else if (grepl("^[0-9]+$", item)) as.numeric(item) else sizes(item))
  }))
}
whole_array <- function(x, dim) if (length(dim) == 1L) x else array(x, dim)
new_sizes <- function() {
  known <- list()
  function(name) {
    if (is.null(known[[name]])) known[[name]] <<- c(4, 3, 2, 5)[length(known) + 1]
    known[[name]]
  }
}
# Dimensions of lists whose arrays are matrices.
matrices <- list(adafactor = list(parameters = c(3, 4), gradients = c(3, 4), row_squares = 4, col_squares = 3),
                 muon = list(parameters = c(3, 4), gradients = c(3, 4), means = c(3, 4)))
operand <- function(op, i, made, sizes) {
  shape <- op$shapes[i]
  dim <- matrices[[op$name]][[op$arguments[i]]]
  if (!is.null(dim)) return(lapply(1:2, function(k) whole_array(abs(some_numbers(prod(dim))), dim)))
  if (op$kinds[i] == "arrays") return(lapply(1:2, function(k) abs(some_numbers(4))))
  on <- if (startsWith(shape, "on ")) made[[substring(shape, 4L)]]
  switch(op$kinds[i],
         array = {
           dim <- dims_of(shape, made, sizes)
           if (startsWith(op$name, "scatter_rows") && op$dtypes[i] == "I") return(sample(prod(dim))) # no row twice
           if (startsWith(op$name, "segment_sum") && op$arguments[i] == "order") return(c(2L, 1L)) # no item twice
           if (startsWith(op$name, "segment_sum") && op$arguments[i] == "ends") return(pmin(seq_len(dim), 2L)) # of both
           if (op$dtypes[i] == "I") return(whole_array(sample(1:2, prod(dim), TRUE), dim)) # what every array has
           if (op$dtypes[i] == "U8") return(whole_array(runif(prod(dim)) < 0.7, dim))
           if (length(dim) == 1L) some_numbers(dim) else array(some_numbers(prod(dim)), dim)
         },
         matrix = {
           heads <- if (grepl("^(linear_cross_entropy|weight_normalize)", op$name)) 1 else 2 # a layer has one
           layout <- if (is.null(on)) random_layout(c(10, 12), c(4, 3), 0.7, heads = heads)
                     else if (is(on, "BlockConv")) conv_layout(on) else on@layout
           block_matrix(layout, init = "normal", seed = i)
         },
         conv = block_conv(block_pattern("dense", c(4, 4), 2), kernel = 3),
         mask = attention_mask(on@layout, function(q, k, head) (q + k) %% 3 != 0))
}
# The operands of a call, with those that may be left out, but for masks and convolutions, if `all`.
operands_of <- function(op, all) {
  set.seed(7)
  sizes <- new_sizes()
  made <- list()
  for (i in which(inputs_of(op))) {
    if (op$optional[i] && (!all || op$kinds[i] %in% c("conv", "mask") || endsWith(op$arguments[i], "_scales"))) next
    made[[op$arguments[i]]] <- operand(op, i, made, sizes)
  }
  made
}
# The same with positive numbers where the function is not defined for others.
defined_operands <- function(op, all) {
  made <- operands_of(op, all)
  found <- call_with(op, made)
  if (anyNA(unlist(found))) lapply(made, function(x) if (is.numeric(x)) abs(x) else x) else made
}
returns_of <- function(op) {
  names <- paste0("return_", op$results[op$returned])
  stats::setNames(rep(list(TRUE), length(names)), names)[op$returned[op$returned]]
}
call_with <- function(op, operands) do.call(f_of(op), operands)
# All results as a list.
results_of <- function(op, operands) {
  found <- call_with(op, c(operands, returns_of(op)))
  if (is.list(found)) found else stats::setNames(list(found), setdiff(op$results, ""))
}

numbers_of <- function(x) if (is(x, "BlockMatrix")) block_values(x) else x
moved <- function(x, by) {
  if (!is(x, "BlockMatrix")) return(x + by)
  block_values(x) <- block_values(x) + by
  x
}

# 1 for the elements of stored blocks that are inside of the matrix.
inside_of <- function(x) {
  block_values(block_matrix(array(1, c(dim(x@layout), block_heads(x@layout))), layout = x@layout))
}

test_that("each operation has a function with its arguments, which is exported and has a help page", {
  pages <- unlist(lapply(tools::Rd_db("tartan"), function(page) {
    vapply(Filter(function(part) attr(part, "Rd_tag") == "\\alias", page), function(part) trimws(part[[1]]), "")
  }))
  for (op in operations) {
    expect_true(op$f %in% getNamespaceExports("tartan"), info = op$f)
    expect_true(op$f %in% pages, info = op$f)
    expect_setequal(names(formals(op$f, envir = asNamespace("tartan"))),
                    c(op$arguments[inputs_of(op)], op$options, names(returns_of(op))))
  }
  expect_false(any(vapply(operations[!is_gradient], `[[`, "", "f") %in% c(ls("package:base"), ls("package:stats"))))
})

test_that("operands are not changed, results are new and keep the dimensions and names of what they are like", {
  for (op in operations[!is_gradient]) for (all in c(FALSE, TRUE)) {
    made <- defined_operands(op, all)
    before <- lapply(made, function(x) if (is.integer(x)) x + 0L else if (is.numeric(x)) x + 0 else x)
    values <- lapply(made, function(x) if (is(x, "BlockMatrix")) block_values(x) + 0)
    made <- lapply(made, function(x) {
      if (length(dim(x)) > 1L && is.numeric(x)) dimnames(x) <- lapply(dim(x), function(n) paste0("n", seq_len(n)))
      else if (is.numeric(x)) names(x) <- paste0("n", seq_along(x))
      x
    })
    found <- results_of(op, made)
    plain <- results_of(op, before)
    for (name in names(made)) {
      if (is.numeric(made[[name]])) expect_identical(c(made[[name]]), c(before[[name]]), ignore_attr = TRUE, info = op$name)
      else if (is(made[[name]], "BlockMatrix")) expect_identical(block_values(made[[name]]), values[[name]], info = op$name)
    }
    for (i in which(op$uses == "out" & op$kinds == "array")) {
      y <- found[[op$results[i]]]
      like <- if (is.na(op$like[i])) 1L else op$like[i]
      if (is.null(y) || like == 0L || is.null(made[[op$arguments[like]]])) next
      x <- made[[op$arguments[like]]]
      expect_identical(dim(y), dim(x), info = op$name)
      expect_identical(dimnames(y), dimnames(x), info = op$name)
      expect_identical(names(y), names(x), info = op$name)
    }
    expect_equal(lapply(found, function(x) c(numbers_of(x))), lapply(plain, function(x) c(numbers_of(x))), info = op$name,
                 ignore_attr = TRUE)
  }
})

test_that("gradients are those of finite differences", {
  for (op in operations[!is_gradient]) {
    if (op$gradient == "" || op$name == "quantize") next # whose gradient goes straight through its steps
    gradient <- operations[[op$gradient]]
    for (all in c(FALSE, TRUE)) {
      made <- defined_operands(op, all)
      results <- results_of(op, made)
      mains <- op$results[op$uses != "in" & !op$returned]
      towards <- lapply(results[mains], function(main) {
        weight <- some_numbers(length(numbers_of(main)))
        if (!is(main, "BlockMatrix")) return(array(weight, tartan:::.size_of(main)))
        # The numbers outside of the matrix, in its last blocks, have no gradient.
        weights <- block_matrix(main@layout, values = array(weight, dim(block_values(main))))
        block_values(weights) <- block_values(weights) * inside_of(weights)
        weights
      })
      known <- c(made, results, stats::setNames(towards, paste0(mains, "_grad")))
      found <- call_with(gradient, known[names(known) %in% gradient$arguments[inputs_of(gradient)]])
      if (!is.list(found)) found <- stats::setNames(list(found), setdiff(gradient$results, ""))
      expect_true(all(setdiff(names(found), names(made)) %in% op$arguments), info = gradient$name)
      for (name in intersect(names(found), names(made))) {
        x <- made[[name]]
        expect_identical(dim(found[[name]]), dim(x), info = gradient$name)
        step <- 1e-5
        value <- function(by) {
          made[[name]] <- moved(x, by)
          sum(mapply(function(y, weight) sum(numbers_of(y) * numbers_of(weight)), results_of(op, made)[mains], towards))
        }
        for (at in sample(which(if (is(x, "BlockMatrix")) inside_of(x) == 1 else rep(TRUE, length(x))), min(6, length(numbers_of(x))))) {
          unit <- numbers_of(x) * 0
          unit[at] <- step
          expect_equal(numbers_of(found[[name]])[at], (value(unit) - value(-unit)) / (2 * step), tolerance = 1e-6,
                       info = paste(gradient$name, name))
        }
      }
    }
  }
})
test_that("values are those of plain R", {
  reference <- list(
    layer_norm = function(x, gain = 1, bias = 0) {
      apply(x, seq_along(dim(x))[-1], function(z) (z - mean(z)) / sqrt(mean((z - mean(z))^2) + 1e-5)) * gain + bias
    },
    rms_norm = function(x, gain = 1) apply(x, seq_along(dim(x))[-1], function(z) z / sqrt(mean(z^2) + 1e-5)) * gain,
    l2_norm = function(x, gain = 1) apply(x, seq_along(dim(x))[-1], function(z) z / sqrt(max(sum(z^2), 1e-12))) * gain,
    add_layer_norm = function(x, residual = 0, gain = 1, bias = 0) {
      apply(x + residual, seq_along(dim(x))[-1], function(z) (z - mean(z)) / sqrt(mean((z - mean(z))^2) + 1e-5)) * gain + bias
    },
    add_rms_norm = function(x, residual = 0, gain = 1) {
      apply(x + residual, seq_along(dim(x))[-1], function(z) z / sqrt(mean(z^2) + 1e-5)) * gain
    },
    float_cast = function(x) x,
    add = function(a, b) a + b, subtract = function(a, b) a - b, multiply = function(a, b) a * b,
    divide = function(a, b) a / b, maximum = function(a, b) pmax(a, b), minimum = function(a, b) pmin(a, b),
    negative = function(x) -x, reciprocal = function(x) 1 / x, square = function(x) x^2, sqrt = base::sqrt,
    exp = base::exp, log = base::log, sigmoid = function(x) stats::plogis(x), tanh = base::tanh, relu = function(x) pmax(x, 0),
    leaky_relu = function(x) ifelse(x > 0, x, x / 100), elu = function(x) ifelse(x > 0, x, expm1(x)),
    gelu = function(x) x * stats::pnorm(x), silu = function(x) x * stats::plogis(x),
    softplus = function(x) log1p(exp(x)), swish = function(x) x * stats::plogis(x),
    gelu_tanh = function(x) x / 2 * (1 + base::tanh(base::sqrt(2 / pi) * (x + 0.044715 * x^3))), scale = function(x) x,
    filter_tensor = function(x) x, concrete_gate_infer = function(x) pmin(pmax(1.2 * stats::plogis(x) - 0.1, 0), 1),
    glu = function(a, b) a * stats::plogis(b), reglu = function(a, b) a * pmax(b, 0), swiglu = function(a, b) a * b * stats::plogis(b),
    geglu = function(a, b) a * b * stats::pnorm(b), add_relu = function(a, b) pmax(a + b, 0),
    add_silu = function(a, b) (a + b) * stats::plogis(a + b), add_gelu = function(a, b) (a + b) * stats::pnorm(a + b),
    channel_linear = function(x, gain = rep(1, dim(x)[3]), bias = rep(0, dim(x)[3])) sweep(sweep(x, 3, gain, "*"), 3, bias, "+"))
  for (name in intersect(names(reference), names(operations))) for (all in c(FALSE, TRUE)) {
    made <- defined_operands(operations[[name]], all)
    expect_equal(call_with(operations[[name]], made), do.call(reference[[name]], made), tolerance = 1e-12, info = name)
  }
})

test_that("what does not fit is refused by the names of R's arguments", {
  below <- c("0 <=" = -1, "0 <" = 0, "0 <= < 1" = -0.5, "0 <= <= 1" = 2, "<= 1" = 2)
  for (op in operations) {
    made <- operands_of(op, TRUE)
    for (name in names(made)) {
      expect_error(call_with(op, replace(made, name, "text")), name, class = "tartan_error", info = op$name)
    }
    for (i in which(inputs_of(op) & startsWith(op$shapes, "=") & op$kinds == "array")) {
      name <- op$arguments[i]
      error <- expect_error(call_with(op, replace(made, name, list(array(1, c(2, 7, 3))))), class = "tartan_error_shape", info = op$name)
      expect_match(conditionMessage(error), paste0("^", name, " is 2 x 7 x 3"), info = op$name)
    }
    for (k in seq_along(op$options)) {
      name <- op$options[k]
      wrong <- if (op$option_kinds[k] %in% c("real", "whole")) list("text", NA_real_, Inf, c(1, 2)) else list(3, "text", NA)
      if (op$option_kinds[k] %in% c("sizes", "lengths")) wrong <- list("text", 1.5)
      if (op$ranges[k] %in% names(below)) wrong <- c(wrong, below[[op$ranges[k]]])
      for (value in wrong) {
        expect_error(call_with(op, c(made, stats::setNames(list(value), name))), name, class = "tartan_error", info = op$name)
      }
    }
    for (name in names(returns_of(op))) {
      expect_error(call_with(op, c(made, stats::setNames(list(1), name))), name, class = "tartan_error_argument")
    }
    if (op$name %in% names(operations)[!is_gradient]) expect_error(call_with(op, list()), "missing")
  }
})

test_that("operations run where their operands are", {
  for (device in setdiff(test_devices, "cpu")) {
    context <- tartan_context(device)
    for (op in operations[!is_gradient]) {
      if ("arrays" %in% op$kinds) next # test-optimisers.R
      made <- defined_operands(op, TRUE)
      there <- lapply(made, function(x) {
        if (is.integer(x)) to_device(x, context, dtype = "int32")
        else if (is.logical(x)) to_device(x, context, dtype = "uint8")
        else if (is.numeric(x) || is(x, "BlockMatrix")) to_device(x, context) else x
      })
      found <- or_skip(results_of(op, there))
      host <- results_of(op, made)
      for (name in names(host)) {
        expect_s4_class(found[[name]], if (is(host[[name]], "BlockMatrix")) "DeviceBlockMatrix" else "DeviceArray")
        expect_equal(numbers_of(to_host(found[[name]])), numbers_of(host[[name]]), tolerance = 1e-13, info = op$name)
      }
      if (sum(vapply(made, is.numeric, NA)) > 1L) {
        name <- names(Filter(is.numeric, made))[1]
        expect_refused(call_with(op, replace(there, name, made[name])), "unsupported", paste(name, "is in R's memory"))
      }
    }
  }
})

test_that("numbers become the same text in every locale", {
  expect_identical(tartan:::tartan_r_decimal(c(1, 0.1, 1 / 3, 1e-300, -2.5, 2^53, 123456, NA, Inf, NaN)),
                   c("1", "0.1", "0.3333333333333333", "1e-300", "-2.5", "9007199254740992", "123456", "NA", "Inf", "NaN"))
  x <- c(.Machine$double.xmin, .Machine$double.eps, pi * 10^(-20:20))
  expect_identical(as.numeric(tartan:::tartan_r_decimal(x)), x)
  skip_if(Sys.which("localedef") == "")
  locales <- tempfile()
  dir.create(locales)
  on.exit(unlink(locales, recursive = TRUE))
  made <- suppressWarnings(system2("localedef", c("-i", "de_DE", "-f", "UTF-8", file.path(locales, "de_DE.UTF-8")), stdout = FALSE,
                                   stderr = FALSE))
  skip_if(made != 0 || !dir.exists(file.path(locales, "de_DE.UTF-8")))
  code <- tempfile(fileext = ".R")
  writeLines(c("suppressMessages(library(tartan))",
               "stopifnot(suppressWarnings(Sys.setlocale('LC_NUMERIC', 'de_DE.UTF-8')) != '', sprintf('%g', .5) == '0,5')",
               "w <- block_pattern('random', c(64, 64), 8, density = .37, seed = 1)",
               "stopifnot(grepl('\"density\":0.37', block_recipe(w)), tartan:::tartan_r_decimal(.1) == '0.1')",
               "x <- block_matrix(w, init = 'normal', seed = 1)",
               "y <- block_softmax(x, scale = .37)",
               "q <- matrix(cos(1:256), 4)",
               "invisible(attention(q, q, q, w, scale = .37))",
               "stopifnot(block_count(block_evolve(x, 5, density = .25, end = 10, swap = .125)) > 0)",
               "stopifnot(any(grepl('[0-9][.][0-9]+ %', capture.output(block_pattern('banded', c(64, 64), 10)))))",
               "huge <- block_matrix(block_layout(1, 1, dim = c(2e4, 2e4)))",
               "stopifnot(grepl('2.98 GiB', tryCatch(as.vector(huge), error = conditionMessage)))",
               "invisible(tartan_elu(q, alpha = .37))",
               "stopifnot(grepl('epsilon is -0.5', tryCatch(layer_norm(q, epsilon = -.5), error = conditionMessage)))"), code)
  output <- suppressWarnings(system2(file.path(R.home("bin"), "Rscript"), code, stdout = TRUE, stderr = TRUE,
                                     env = c(paste0("LOCPATH=", locales), "LC_ALL=")))
  expect_null(attr(output, "status"), info = paste(output, collapse = "\n"))
})

test_that("flags whose default is 1 can be switched off", {
  x <- matrix(c(4, -1, 3, 2, 8, 7, -5, 6), 4)
  largest <- function(v, k) v * (rank(-v) <= k)
  expect_identical(formals(rectified_top_k)$rebase, TRUE)
  expect_identical(rectified_top_k(x, k = 2, rebase = FALSE), apply(pmax(x, 0), 2, largest, 2))
  expect_identical(rectified_top_k(x, k = 2), rectified_top_k(x, k = 2, rebase = TRUE))
  expect_identical(rectified_top_k(x, k = 2)[1:4], pmax(x[, 1] - 3, 0))
})

test_that("random numbers are those of other languages", {
  kept <- dropout(array(1, 16), dropout = 0.5, seed = 7)
  expect_identical(paste(as.integer(kept != 0), collapse = ""), "1111011101000101")
  expect_identical(as.numeric(random_uniform(array(0, 3), seed = 7)), c(0.13418846748340363, 0.44570915609319905, 0.6398692349670435))
  expect_identical(dropout_gradient(array(1, 16), dropout = 0.5, seed = 7), kept)
  # All columns of a matrix share the random numbers of one.
  shared <- dropout(matrix(1, 16, 3), dropout = 0.5, seed = 7, mask_shape = c(16, 1))
  expect_identical(shared, matrix(kept, 16, 3))
  expect_identical(dropout(matrix(1, 16, 3), dropout = 0.5, seed = 7, mask_shape = 16), shared)
})

test_that("batch normalisation and the gates of an LSTM are those of plain R", {
  x <- array(stats::rnorm(2 * 3 * 4), c(3, 4, 2)) # positions, channels, batch
  mean <- apply(x, 2, mean)
  variance <- apply(x, 2, function(z) mean((z - mean(z))^2))
  expect_equal(batch_norm(x), sweep(sweep(x, 2, mean), 2, sqrt(variance + 1e-5), "/"), tolerance = 1e-12)
  expect_equal(batch_norm_inference(x, mean, variance, gain = rep(2, 4)), 2 * batch_norm(x), tolerance = 1e-12)
  n <- 5
  cells <- matrix(stats::rnorm(2 * n), n)
  gates <- array(stats::rnorm(8 * n), c(n, 4, 2))
  found <- lstm_gates(cells, gates)
  now <- stats::plogis(gates[, 3, ] + 1) * cells + stats::plogis(gates[, 1, ]) * tanh(gates[, 2, ])
  expect_equal(found[[1]], now, tolerance = 1e-12)
})
