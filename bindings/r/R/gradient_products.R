# SPDX-License-Identifier: Apache-2.0
# Gradients of products, for value_and_gradient().

# ---- Products of R ----

# g b^T, on the layout of a where that is a block matrix.
.left_gradient <- function(a, g, b_transposed) {
  if (.is_matrix(a)) return(block_cast(sddmm(a@layout, .dense_of(g), .dense_of(b_transposed)), a@dtype))
  .like(as.vector(as.matrix(g %*% b_transposed)), a)
}
.dense_of <- function(x) if (inherits(x, "BlockMatrix")) as.matrix(x) else x

.record_product <- function(x, y) {
  a <- untracked(x)
  b <- untracked(y)
  if (inherits(a, "DeviceBlockMatrix")) return(spmm(x, y))
  if (inherits(b, "DeviceBlockMatrix")) return(spmm(y, x, side = "right"))
  value <- a %*% b
  # R takes a vector for a row or a column, whichever fits.
  as_left <- function(a) if (!is.null(dim(a)) || .is_matrix(a)) a else if (length(a) == nrow(value)) cbind(as.vector(a)) else rbind(as.vector(a))
  as_right <- function(b) if (!is.null(dim(b)) || .is_matrix(b)) b else if (length(b) == ncol(value) && ncol(as_left(a)) == 1L) rbind(as.vector(b)) else cbind(as.vector(b))
  .record_one(list(x, y), value, function(g) {
    left <- as_left(a)
    right <- as_right(b)
    list(if (.is_tracked(x)) .left_gradient(a, g, t(right)),
         if (.is_tracked(y)) {
           if (.is_matrix(b)) .left_gradient(b, t(left), g) else .like(as.vector(as.matrix(t(left) %*% g)), b)
         })
  })
}
for (.other in c("ANY", "Tracked", .peers[-1L], "BlockMatrix", "DeviceBlockMatrix", "DeviceArray", "numLike")) {
  setMethod("%*%", signature("Tracked", .other), function(x, y) .record_product(x, y))
  if (.other != "Tracked") setMethod("%*%", signature(.other, "Tracked"), function(x, y) .record_product(x, y))
}
rm(.other)
setMethod("crossprod", signature("Tracked", "ANY"), function(x, y = NULL, ...) t(x) %*% if (is.null(y)) x else y)
setMethod("tcrossprod", signature("Tracked", "ANY"), function(x, y = NULL, ...) x %*% t(if (is.null(y)) x else y))

# ---- spmm and sddmm ----

# A vector is a column or, turned, a row.
.as_matrix_operand <- function(x, turned = FALSE) {
  if (!is.numeric(x) || length(dim(x)) > 1L) return(x)
  if (turned) matrix(x, 1L) else matrix(x, ncol = 1L)
}

.times_number <- function(x, number) {
  if (number == 1) return(x)
  if (inherits(x, "DeviceArray")) tartan_scale(x, number) else x * number
}

# For the C code, when an operand of spmm is Tracked: `call` is list(operands, list(alpha, beta, right, transpose)).
.record_spmm <- function(call) {
  operands <- call[[1L]]
  p <- stats::setNames(call[[2L]], c("alpha", "beta", "right", "transpose"))
  x <- lapply(operands, untracked)
  value <- tartan_r_spmm(x$a, x$b, x$c, x$gates, p$alpha, p$beta, as.integer(p$right), as.integer(p$transpose))
  wanted <- names(operands)[vapply(operands, .is_tracked, NA)]
  .record_one(operands, value, function(g) {
    known <- list(a = x$a, gates = x$gates, b = .as_matrix_operand(.as_numbers(x$b), p$right), c_grad = g)
    options <- list(alpha = p$alpha, side = if (p$right) "right" else "left", transpose = p$transpose)
    found <- if (any(c("a", "b", "gates") %in% wanted)) .run_rule(.operations$spmm_gradient, known, options, wanted)
    list(found$a, .like(found$b, x$b), if ("c" %in% wanted) .like(.times_number(g, p$beta), x$c), .like(found$gates, x$gates))
  })
}

# The transpose of each matrix of a batch.
.turned <- function(x, name) {
  if (is.numeric(x)) return(aperm(x, c(2:1, seq_along(dim(x))[-(1:2)])))
  .fail("unsupported", "transpose_%s of a DeviceArray has no gradient, expected %s as it is multiplied", name, name)
}

# sddmm with lists of operands, one of which is Tracked.
.record_sddmm <- function(s, x, y, alpha, beta, gates, transpose_x, transpose_y) {
  operands <- c(list(s), list(gates), x, y)
  constant <- lapply(list(s = list(s), gates = list(gates), x = x, y = y), lapply, untracked)
  start <- constant$s[[1L]]
  factors <- constant$gates[[1L]]
  value <- sddmm(start, constant$x, constant$y, alpha, beta, factors, transpose_x, transpose_y)
  plain <- function(x, turned, name) {
    x <- .as_matrix_operand(.as_numbers(x))
    if (turned) .turned(x, name) else x
  }
  xs <- lapply(constant$x, plain, transpose_x, "x")
  ys <- lapply(constant$y, plain, transpose_y, "y")
  gradients <- function(g, x, y, x_tracked, y_tracked) {
    wanted <- c("x", "y", "gates")[c(x_tracked, y_tracked, .is_tracked(gates))]
    known <- list(s_grad = g, x = x, y = y, gates = factors)
    if (length(wanted)) .run_rule(.operations$sddmm_gradient, known, list(alpha = alpha), wanted)
  }
  back <- function(found, own, turned, name) if (!is.null(found)) .like(if (turned) .turned(found, name) else found, own)
  .record_one(operands, value, function(g) {
    found <- Map(gradients, list(g), xs, ys, vapply(x, .is_tracked, NA), vapply(y, .is_tracked, NA))
    c(list(if (.is_tracked(s)) .times_number(g, beta)),
      list(.like(Reduce(.sum_of_gradients, lapply(found, `[[`, "gates")), factors)),
      Map(function(one, own) back(one$x, own, transpose_x, "x"), found, constant$x),
      Map(function(one, own) back(one$y, own, transpose_y, "y"), found, constant$y))
  })
}
