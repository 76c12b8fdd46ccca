# SPDX-License-Identifier: Apache-2.0
# Products. The user's matrices are read in place; results are always new.

# The dtype in which results of 16-bit and 8-bit matrices are taken: rounded once, to f32.
.result_dtype <- function(dtype) if (dtype == "float64") dtype else "float32"

.gates <- function(gates) if (!is.null(gates)) .numbers(gates, "gates")

.product_dim <- function(a, dim, side, transpose) {
  shape <- if (transpose) a@layout@frame[2:1] else a@layout@frame[1:2]
  as.double(if (side == "left") c(shape[1L], dim[-1L]) else c(dim[1L], shape[2L], dim[-(1:2)]))
}
.expect_dim <- function(dim, expected, name) {
  if (!identical(as.double(dim), expected)) {
    .fail("shape", "%s is %s, expected %s", name, paste(dim, collapse = " x "), paste(expected, collapse = " x "))
  }
}

# op(a) b or b op(a); `dim` is that of b as the product sees it, `transpose_b` says that b's memory is the transpose.
.multiply <- function(a, b, side = "left", transpose = FALSE, alpha = 1, beta = 0, c = NULL, gates = NULL,
                      dim = base::dim(b), transpose_b = FALSE) {
  handle <- .matrix_handle(a, "a")
  if (transpose_b) view <- .dense_view(b, a@dtype, TRUE, rev(dim)) # a matrix: no batch
  else view <- .dense_view(b, a@dtype, FALSE, dim)
  out_dim <- .product_dim(a, dim, side, transpose)
  dtype <- .result_dtype(a@dtype)
  if (!is.null(c)) .expect_dim(base::dim(c), out_dim, "c")
  if (dtype == "float64") {
    out <- if (is.null(c)) tartan_r_new_array(out_dim) else tartan_r_duplicate(c)
    target <- .dense_view(out, dtype, FALSE, out_dim)
  } else {
    bytes <- if (is.null(c)) .dtype_buffer(prod(out_dim), dtype) else .to_dtype(c, dtype)
    target <- .dense_view(numeric(), "float64", FALSE, out_dim)
    target[[1L]] <- bytes
    target[[2L]] <- .constant(dtype)
  }
  tartan_spmm(.context(), .constant(side), as.integer(transpose), alpha, handle, .gates(gates), view, beta, target)
  if (dtype == "float64") out else .from_dtype(bytes, dtype, out_dim)
}

spmm <- function(a, b, c = NULL, alpha = 1, beta = if (is.null(c)) 0 else 1, side = c("left", "right"),
                 transpose = FALSE, gates = NULL) {
  side <- .choose(side, base::c("left", "right"), "side")
  if (is.null(c) && !identical(as.double(beta), 0)) {
    .fail("argument", "beta is %s, expected 0 where there is no c", .shown(beta))
  }
  if (.any_on_device(a, b, c, gates)) {
    return(.device_spmm(a, b, c, alpha, beta, side, .flag(transpose, "transpose"), gates))
  }
  .expect(a, "BlockMatrix", "a")
  if (is.null(dim(b)) && is.numeric(b)) b <- if (side == "left") matrix(b) else matrix(b, 1L)
  b <- .dense(b, "b")
  if (!is.null(c)) c <- .dense(c, "c")
  .multiply(a, b, side, .flag(transpose, "transpose"), alpha, beta, c, gates)
}

# A pair's side: one matrix or a list of them, seen transposed where asked for.
.as_list <- function(x) if (is.list(x) && !is.data.frame(x)) x else list(x)
.factors <- function(x, name, transpose, dtype) {
  lapply(.as_list(x), function(one) .dense_view(.dense(one, name), dtype, transpose))
}

.duplicate_values <- function(x) tartan_r_duplicate(x@values)

sddmm <- function(s, x, y, alpha = 1, beta = 0, gates = NULL, transpose_x = FALSE, transpose_y = FALSE) {
  if (.is_layout(s) && !identical(as.double(beta), 0)) {
    .fail("argument", "beta is %s, expected 0 where s is a layout", .shown(beta))
  }
  if (.any_on_device(s, x, y, gates)) {
    return(.device_sddmm(s, x, y, alpha, beta, gates, .flag(transpose_x, "transpose_x"),
                         .flag(transpose_y, "transpose_y")))
  }
  if (methods::is(s, "BlockLayout")) {
    dtype <- "float64"
  } else {
    .expect(s, "BlockMatrix", "s")
    .matrix_handle(s, "s")
    dtype <- s@dtype
  }
  x <- .factors(x, "x", .flag(transpose_x, "transpose_x"), dtype)
  y <- .factors(y, "y", .flag(transpose_y, "transpose_y"), dtype)
  layout <- .layout_of(s)
  # Where beta is 0 nothing is read, but the padding of ragged blocks must be zero.
  values <- if (identical(as.double(beta), 0)) .zero_values(layout, dtype) else .duplicate_values(s)
  result <- .new_matrix(layout, values, dtype)
  tartan_sddmm(.context(), alpha, .gates(gates), x, y, beta, .matrix_handle(result))
  result
}

gate_gradient <- function(w, dw, gates = NULL) {
  if (.any_on_device(w, dw, gates)) return(.device_gate_gradient(w, dw, gates))
  handle <- .matrix_handle(w, "w")
  .matrix_handle(dw, "dw")
  result <- .new_matrix(dw@layout, .duplicate_values(dw), dw@dtype)
  n <- block_count(w)
  dtype <- .result_dtype(w@dtype)
  if (dtype == "float64") {
    gradient <- tartan_r_new_array(n)
    target <- .view(gradient, n, 1)
  } else {
    bytes <- .dtype_buffer(n, dtype)
    target <- .view(bytes, n, 1, dtype)
  }
  tartan_gate_gradient(.context(), handle, .gates(gates), .matrix_handle(result), target)
  if (dtype != "float64") gradient <- .from_dtype(bytes, dtype, n)
  list(gates = gradient, dw = result)
}

growth_score <- function(x, y, block = c(32, 32), norm = c("max", "l2"), scale = 1, score = NULL,
                         beta = if (is.null(score)) 0 else 1) {
  norm <- .constant(.choose(norm, c("max", "l2"), "norm"))
  if (is.null(score) && !identical(as.double(beta), 0)) {
    .fail("argument", "beta is %s, expected 0 where there is no score", .shown(beta))
  }
  if (.any_on_device(x, y, score)) return(.device_growth_score(x, y, block, norm, scale, score, beta))
  x <- lapply(.as_list(x), .dense, "x")
  y <- lapply(.as_list(y), .dense, "y")
  if (!length(x) || !length(y)) .fail("argument", "x has %d matrices and y %d, expected 1 to 8", length(x), length(y))
  frame <- .frame(c(nrow(x[[1L]]), ncol(y[[1L]])), block)
  out <- if (is.null(score)) tartan_r_new_array(.grid(frame)) else tartan_r_duplicate(.dense(score, "score"))
  tartan_growth_score(.context(), frame, norm, scale, x, y, beta, out)
  out
}
