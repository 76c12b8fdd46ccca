# SPDX-License-Identifier: Apache-2.0
# Products where the operands are on a device. Results are new and stay there.

.any_on_device <- function(...) {
  on_device <- function(x) methods::is(x, "DeviceObject") || (is.list(x) && any(vapply(x, on_device, NA)))
  any(vapply(list(...), on_device, NA))
}

# The one context of all operands, which are named; what is not given is NULL.
.common_context <- function(...) {
  operands <- Filter(Negate(is.null), list(...))
  on_device <- vapply(operands, methods::is, NA, "DeviceObject")
  context <- operands[[which(on_device)[1L]]]@context
  for (name in names(operands)) {
    x <- operands[[name]]
    if (!methods::is(x, "DeviceObject")) {
      .fail("unsupported", "%s is in R's memory, expected it on %s as the others (to_device)", name, context@device)
    }
    if (!identical(x@context@state, context@state)) {
      .fail("argument", "%s is of another context than %s, expected one for all operands", name, names(operands)[1L])
    }
  }
  context
}

# A dense operand as a product sees it; `dim` is that of the memory.
.device_operand <- function(x, name, transpose = FALSE, dim = x@size) {
  if (length(dim) == 1L) dim <- c(dim, 1)
  .operand(.buffer_handle(x, name), x@dtype, transpose, dim)
}
.device_gates <- function(gates) if (!is.null(gates)) .whole_view(gates, "gates")

# op(a) b or b op(a); `dim` is that of b's memory, `transpose_b` says that the product sees its transpose. The
# result has the dtype of a (float32 for 8 bits), or that of c.
.device_multiply <- function(a, b, side, transpose, alpha = 1, beta = 0, c = NULL, gates = NULL, dim = b@size,
                             transpose_b = FALSE) {
  context <- .common_context(a = a, b = b, c = c, gates = gates)
  handle <- .device_matrix_handle(a, "a")
  if (length(dim) == 1L) dim <- base::c(dim, 1)
  view <- .device_operand(b, "b", transpose_b, dim)
  size <- .product_dim(a, if (transpose_b) rev(dim) else dim, side, transpose)
  if (!is.null(c)) .expect_dim(if (length(c@size) == 1L) base::c(c@size, 1) else c@size, size, "c")
  weights <- .device_gates(gates)
  dtype <- if (startsWith(a@dtype, "float8")) "float32" else a@dtype
  out <- if (is.null(c)) .device_zeros(size, dtype, context) else .device_copy(c, "c")
  tartan_spmm(.context_handle(context), .constant(side), as.integer(transpose), alpha, handle, weights, view, beta,
              .device_operand(out, "c"))
  out
}

.device_spmm <- function(a, b, c, alpha, beta, side, transpose, gates) {
  .common_context(a = a, b = b, c = c, gates = gates)
  .expect(a, "DeviceBlockMatrix", "a")
  .expect(b, "DeviceArray", "b")
  if (!is.null(c)) .expect(c, "DeviceArray", "c")
  dim <- if (length(b@size) == 1L && side == "right") base::c(1, b@size) else b@size
  .device_multiply(a, b, side, transpose, alpha, beta, c, gates, dim)
}

.device_sddmm <- function(s, x, y, alpha, beta, gates, transpose_x, transpose_y) {
  x <- stats::setNames(.as_list(x), rep("x", length(.as_list(x))))
  y <- stats::setNames(.as_list(y), rep("y", length(.as_list(y))))
  in_memory <- methods::is(s, "BlockLayout")
  context <- do.call(.common_context, c(if (!in_memory) list(s = s), x, y, list(gates = gates)))
  views <- function(factors, name, transpose) {
    unname(lapply(factors, function(one) .device_operand(one, name, transpose)))
  }
  xs <- views(x, "x", transpose_x)
  ys <- views(y, "y", transpose_y)
  weights <- .device_gates(gates)
  result <- if (!.is_layout(s)) .device_matrix_copy(s, "s")
            else if (length(x)) .device_matrix_zeros(s, x[[1L]]@dtype, context)
            else .fail("argument", "x has 0 matrices, expected 1 to 8")
  tartan_sddmm(.context_handle(context), alpha, weights, xs, ys, beta, .device_matrix_handle(result))
  result
}

.device_gate_gradient <- function(w, dw, gates) {
  context <- .common_context(w = w, dw = dw, gates = gates)
  handle <- .device_matrix_handle(w, "w")
  result <- .device_matrix_copy(dw, "dw")
  gradient <- .device_zeros(block_count(w), .result_dtype(w@dtype), context)
  tartan_gate_gradient(.context_handle(context), handle, .device_gates(gates), .device_matrix_handle(result),
                       .whole_view(gradient))
  list(gates = gradient, dw = result)
}

.device_growth_score <- function(x, y, block, norm, scale, score, beta) {
  x <- stats::setNames(.as_list(x), rep("x", length(.as_list(x))))
  y <- stats::setNames(.as_list(y), rep("y", length(.as_list(y))))
  if (!length(x) || !length(y)) .fail("argument", "x has %d matrices and y %d, expected 1 to 8", length(x), length(y))
  context <- do.call(.common_context, c(x, y, list(score = score)))
  views <- function(factors, name) unname(lapply(factors, .device_operand, name))
  xs <- views(x, "x")
  ys <- views(y, "y")
  frame <- .frame(c(x[[1L]]@size[1L], rev(y[[1L]]@size)[1L]), block)
  out <- if (is.null(score)) .device_zeros(.grid(frame), .result_dtype(x[[1L]]@dtype), context)
         else .device_copy(score, "score")
  tartan_growth_score(.context_handle(context), frame, norm, scale, xs, ys, beta, .device_operand(out, "score"))
  out
}

# ---- The verbs of R ----

.expect_matrix <- function(x, name, what) {
  if (length(x@size) > 2L) .fail("shape", "%s has %d dimensions, expected a matrix (%s)", name, length(x@size), what)
}

# The dimension of the memory of a dense factor; of a vector, a column or a row, whichever fits (base R's rule).
.device_left <- function(x, y, transpose, transpose_y = FALSE) {
  inner <- dim(x)[if (transpose) 1L else 2L]
  d <- y@size
  if (length(d) == 1L) {
    d <- if (d == inner) c(d, 1) else c(1, d)
    transpose_y <- FALSE
  }
  if (transpose || transpose_y) .expect_matrix(y, "y", "crossprod and tcrossprod")
  .expect_product(inner, d[if (transpose_y) 2L else 1L], "y", "rows", if (transpose) "rows of x" else "columns of x")
  .device_multiply(x, y, "left", transpose, dim = d, transpose_b = transpose_y)
}
.device_right <- function(x, y, transpose, transpose_x = FALSE) {
  inner <- dim(y)[if (transpose) 2L else 1L]
  d <- x@size
  if (length(d) == 1L) {
    d <- if (d == inner) c(1, d) else c(d, 1)
    transpose_x <- FALSE
  }
  if (transpose || transpose_x) .expect_matrix(x, "x", "crossprod and tcrossprod")
  .expect_product(inner, d[if (transpose_x) 1L else 2L], "x", "columns",
                  if (transpose) "columns of y" else "rows of y")
  .device_multiply(y, x, "right", transpose, dim = d, transpose_b = transpose_x)
}

setMethod("%*%", signature("DeviceBlockMatrix", "DeviceArray"), function(x, y) .device_left(x, y, FALSE))
setMethod("%*%", signature("DeviceArray", "DeviceBlockMatrix"), function(x, y) .device_right(x, y, FALSE))
setMethod("crossprod", signature("DeviceBlockMatrix", "DeviceArray"),
          function(x, y = NULL, ...) .device_left(x, y, TRUE))
setMethod("crossprod", signature("DeviceArray", "DeviceBlockMatrix"),
          function(x, y = NULL, ...) .device_right(x, y, FALSE, TRUE))
setMethod("tcrossprod", signature("DeviceBlockMatrix", "DeviceArray"),
          function(x, y = NULL, ...) .device_left(x, y, FALSE, TRUE))
setMethod("tcrossprod", signature("DeviceArray", "DeviceBlockMatrix"),
          function(x, y = NULL, ...) .device_right(x, y, TRUE))

# What has no product: nothing moves between devices unasked.
.no_device_product <- function(x, y) {
  .common_context(x = x, y = y)
  .fail("unsupported", "x is a %s and y a %s, expected a DeviceBlockMatrix and a DeviceArray", class(x)[1L],
        class(y)[1L])
}
for (.other in c("ANY", "Matrix", "BlockMatrix", "DeviceObject")) {
  setMethod("%*%", signature("DeviceObject", .other), function(x, y) .no_device_product(x, y))
  setMethod("crossprod", signature("DeviceObject", .other), function(x, y = NULL, ...) .no_device_product(x, y))
  setMethod("tcrossprod", signature("DeviceObject", .other), function(x, y = NULL, ...) .no_device_product(x, y))
  if (.other == "DeviceObject") next
  setMethod("%*%", signature(.other, "DeviceObject"), function(x, y) .no_device_product(x, y))
  setMethod("crossprod", signature(.other, "DeviceObject"), function(x, y = NULL, ...) .no_device_product(x, y))
  setMethod("tcrossprod", signature(.other, "DeviceObject"), function(x, y = NULL, ...) .no_device_product(x, y))
}
rm(.other)
