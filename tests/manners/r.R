# SPDX-License-Identifier: Apache-2.0
# Tries every operation of operations.txt with the Matrix package and with Tartan on the same data; prints the same JSON
# objects as python.py. A line without a counterpart is "". W and V have blocks of 2 x 2, P is symmetric and positive
# definite; W and V have names; S is a dgCMatrix, X a base matrix, x a vector.
suppressPackageStartupMessages({
  library(Matrix)
  library(tartan)
})

# id = the line for both, or c(Matrix's, Tartan's). The value of the last expression is the result.
lines <- list(
  negate = "-W",
  scale_number = "2 * W",
  divide_number = "W / 2",
  add = "W + W",
  subtract = "W - W",
  add_other_layout = "W + V",
  add_peer = "W + S",
  diagonal_minus = "Diagonal(6) - 0.5 * W",
  add_dense = "W + X",
  add_number = "W + 1",
  multiply = "W * V",
  multiply_dense = "W * X",
  divide_dense = "W / (1 + X^2)",
  maximum = "pmax(W, V)",
  minimum = "pmin(W, V)",
  maximum_number = "pmax(W, 0)",
  power = "W^2",
  power_matrix = "W %*% W %*% W",
  abs = "abs(W)",
  sign = "sign(W)",
  sqrt = "sqrt(abs(W))",
  round = "round(W, 1)",
  `function` = "tanh(W)",
  broadcast = "2 * W - V / 3 + W * V",
  equal = "W == V",
  not_equal = "W != V",
  less = "W < V",
  greater_number = "W > 0.5",
  same = "identical(W, W)",
  close = "isTRUE(all.equal(W, W * (1 + 1e-12)))",
  symmetric = "isSymmetric(P)",
  truth = "if (W) 1",
  matvec = "W %*% x",
  matmat = "W %*% X",
  left = "x %*% W",
  left_matmat = "X %*% W",
  transpose_matvec = "crossprod(W, x)",
  integers = "W %*% 1:6",
  booleans = "W %*% (x > 0)",
  complex = "W %*% (x + 2i * x)",
  sparse_product = "W %*% S",
  block_product = "W %*% V",
  gram = "crossprod(W)",
  scale_rows = "Diagonal(x = x) %*% W",
  scale_cols = "W %*% Diagonal(x = x)",
  scale_both = "sweep(x * W, 2, x, '*')",
  row_normalize = "W / rowSums(W)",
  sum = "sum(W)",
  row_sums = "rowSums(W)",
  col_sums = "colSums(W)",
  mean = "mean(W)",
  row_means = "rowMeans(W)",
  max = "max(W)",
  min = "min(W)",
  row_max = "apply(W, 1, max)",
  range = "range(W)",
  argmax = "which.max(as.vector(W))",
  count_nonzero = "nnzero(W)",
  norm_1 = "norm(W, '1')",
  norm_inf = "norm(W, 'I')",
  norm_fro = "norm(W, 'F')",
  norm_rows = "sqrt(rowSums(W^2))",
  norm_2 = "norm(W, '2')",
  trace = "sum(diag(W))",
  any_nan = "anyNA(W)",
  diagonal = "diag(W)",
  diagonal_k = "diag(W[-1, ])",
  set_diagonal = "diag(P) <- x; P",
  add_diagonal = "W + Diagonal(6, 2)",
  element = "W[2, 6]",
  set_element = "W[2, 6] <- 3; W",
  set_zero_outside = "W[1, 3] <- 0; W",
  set_outside = "W[1, 3] <- 3; W",
  rows = "W[2:4, ]",
  cols = "W[, 4:6]",
  part = "W[2:4, 3:5]",
  row = "W[4, ]",
  col = "W[, 4]",
  row_list = "W[c(5, 1, 1), ]",
  part_list = "W[c(5, 1), c(2, 6, 6)]",
  booleans_rows = "W[x > 0, ]",
  elements_list = "W[cbind(c(1, 5, 6), c(2, 2, 1))]",
  mask_elements = "W[X > 0.5]",
  set_part = "W[5:6, 3:5] <- X[5:6, 3:5]; W",
  set_list = "W[cbind(c(1, 5), c(2, 6))] <- c(7, 8); W",
  set_row = "W[5, ] <- x; W",
  blocks_range = c("W[3:6, ]", "block_slice(W, 2:3)"),
  nonzeros = c("summary(W)$x", "summary(as(W, 'TsparseMatrix'))$x"),
  stored = c("length(W@x)", "sum(block_mask(W)) * prod(block_dim(W))"),
  values = c("W@x <- W@x * 2; W", "block_values(W) <- block_values(W) * 2; W"),
  iterate = "sapply(1:6, function(i) sum(W[i, ]))",
  vstack = "rbind(W, V)",
  hstack = "cbind(W, V)",
  block_diag = c("bdiag(W, V)", "block_diag(W, V)"),
  block_grid = "rbind(cbind(W, V), cbind(V, W))",
  kron = "W %x% X[1:2, 1:3]",
  kron_first = "X[1:2, 1:3] %x% W",
  kron_sparse = "kronecker(W, V)",
  transpose = "t(W)",
  lower = "tril(W)",
  upper = "triu(W, 1)",
  drop_zeros = c("drop0(W * (abs(W) > 0.5))", "block_matrix(as(W * (abs(W) > 0.5), 'dgCMatrix'), block = 2)"),
  resize = c("W[1:4, ]", "W[1:4, ]"),
  reblock = c("W", "block_reblock(W, 3)"),
  permute = c("W[c(5, 6, 1:4), ]", "block_permute(W, c(3, 1, 2))"),
  copy = "V <- W; V[1, 1] <- 9; W",
  cut = c("nnzero(W[1:3, 1:5])", "block_elements(block_cut(W@layout, 3, 5))"),
  boundaries = c("as(rbind(cbind(X[1, 1:4, drop = FALSE], X[1, 5:6, drop = FALSE]), cbind(X[-1, 1:4], X[-1, 5:6])), 'CsparseMatrix')",
                 "block_matrix(X, layout = block_layout_from_mask(matrix(TRUE, 2, 2), rows = c(0, 1, 6), cols = c(0, 4, 6)))"),
  boundaries_product = c("as(X, 'CsparseMatrix') %*% x",
                         "block_matrix(X, layout = block_layout_from_mask(matrix(TRUE, 2, 2), rows = c(0, 1, 6), cols = c(0, 4, 6))) %*% x"),
  boundaries_kept = c("", "unlist(block_boundaries(block_layout_from_mask(matrix(TRUE, 2, 2), rows = c(0, 1, 6), cols = c(0, 4, 6))))"),
  add_at = c("W + sparseMatrix(c(1, 6, 1), c(2, 6, 2), x = c(1, 2, 4))",
             "block_add(W, block_assembly(W@layout, c(1, 6, 1), c(2, 6, 2), of = 'elements'), c(1, 2, 4))"),
  add_plan = c("W + sparseMatrix(c(1, 6, 1), c(2, 6, 2), x = x[1:3])",
               "plan <- block_assembly(W@layout, c(1, 6, 1), c(2, 6, 2), of = 'elements'); block_add(W, plan, x[1:3])"),
  add_blocks = c("W + kronecker(sparseMatrix(c(3, 3), c(2, 2), x = 1, dims = c(3, 3)), X[1:2, 1:2])",
                 "block_add(W, block_assembly(W@layout, c(3, 3), c(2, 2)), array(X[1:2, 1:2], c(2, 2, 2)))"),
  blocks_at = c("kronecker(sparseMatrix(c(3, 1, 3), c(2, 3, 2), x = 1, dims = c(3, 3)), X[1:2, 1:2])",
                "block_matrix_from_blocks(c(3, 1, 3), c(2, 3, 2), array(X[1:2, 1:2], c(2, 2, 3)), dim = c(6, 6))"),
  from_dense = c("Matrix(X, sparse = TRUE)", "block_matrix(X, block = 2)"),
  from_coo = c("sparseMatrix(c(1:4, 4), c(1, 6, 3, 4, 2), x = x[-6], dims = c(6, 6))",
               "block_matrix(sparseMatrix(c(1:4, 4), c(1, 6, 3, 4, 2), x = x[-6], dims = c(6, 6)), block = 2)"),
  from_csr = c("as(S, 'RsparseMatrix')", "block_matrix(as(S, 'RsparseMatrix'), block = 2)"),
  from_csc = c("S", "block_matrix(S, block = 2)"),
  from_peer = c("S", "as(S, 'BlockMatrix')"),
  identity = c("Diagonal(6)", "block_matrix(Diagonal(6), block = 2)"),
  random = c("dim(rsparsematrix(6, 6, 0.5))", "dim(block_matrix(block_pattern('random', c(6, 6), 2), init = 'normal'))"),
  dense = "as.matrix(W)",
  dense_unasked = "svd(W)$d",
  csr = "as(W, 'RsparseMatrix')",
  csc = "as(W, 'CsparseMatrix')",
  coo = "as(W, 'TsparseMatrix')",
  peer = c("W", "as(W, 'Matrix')"),
  names = "rownames(W)",
  names_kept = "unlist(dimnames(t(2 * W + V)[2:3, ]))",
  least_squares = "qr.coef(qr(W), x)",
  eigenvalues = "eigen(P)$values[1:2]",
  eigenvalues_general = "sort(Mod(eigen(W)$values))[5:6]",
  singular_values = "svd(W)$d[1:2]",
  norm_estimate = "onenormest(P)$est",
  exponential = "expm(P / 10) %*% x",
  solve = "solve(P, x)",
  factor = c("solve(Cholesky(forceSymmetric(P)), x)", "solve(Cholesky(P), x)"),
  determinant = "det(P)",
  save = c("saveRDS(W, path); readRDS(path)", "block_save(path, W); block_load(path, 'W')"),
  append = c("", "block_save(path, W); block_save(path, V, append = TRUE); Reduce(`+`, block_load(path))"),
  replace = c("", "block_save(path, W, V); block_save(path, W = 2 * W, append = TRUE); block_load(path, 'W')"),
  load_rows = c("saveRDS(W, path); readRDS(path)[3:6, ]", "block_save(path, W); block_load(path, 'W', rows = c(3, 6))"),
  serialize = "unserialize(serialize(W, NULL))",
  print = "length(capture.output(print(W))) > 0",
  size = "c(dim(W), length(W))",
  threads = c("", "old <- tartan_threads(1); n <- tartan_threads(); tartan_threads(old); n"),
  threads_product = c("W %*% x", "old <- tartan_threads(1); y <- W %*% x; tartan_threads(old); y"))

doubles <- "R has only double precision"
numpy <- "only NumPy and SciPy have them"
not_here <- c(
  scale_in_place = "R's operators make new objects", add_in_place = "R's operators make new objects",
  in_place_product = "R's operators make new objects", element_negative = "negative indices leave elements out",
  conjugate = "sparse matrices in R are real", complex_type = "sparse matrices in R are real", single = doubles,
  single_precision = doubles, integers_type = doubles, dot = "R has only one name for a product",
  peer_class = numpy, as_array = numpy, preconditioned = numpy, triangular = numpy, solve_unasked = numpy,
  incomplete = numpy, save_peer = numpy, save_dense = numpy, deep_copy = numpy,
  reshape = "Matrix does not reshape", cg = "Matrix has no iterative solvers", gmres = "Matrix has no iterative solvers")

with_names <- function(m) `dimnames<-`(m, list(paste0("r", 1:6), paste0("c", 1:6)))
cells <- function(mask) kronecker(matrix(mask, 3, byrow = TRUE), matrix(1, 2, 2))
wave <- function(start) matrix(round(2 * sin(start + (1:36)^1.5), 3), 6)
dense_w <- wave(1) * cells(c(1, 0, 1, 0, 1, 0, 1, 1, 1))
dense_v <- wave(2) * cells(c(0, 0, 1, 1, 1, 0, 0, 1, 1))

data <- function(make) {
  list2env(list(W = make(with_names(dense_w)), V = make(with_names(dense_v)), P = make(tcrossprod(dense_w) + diag(9, 6)),
                S = as(as(dense_v, "CsparseMatrix"), "generalMatrix"), X = abs(wave(3)) / 2, x = round(cos(1:6), 2),
                path = tempfile()), parent = globalenv())
}
makers <- list(peer = function(m) as(as(m, "CsparseMatrix"), "generalMatrix"), tartan = function(m) block_matrix(m, block = 2))

is_sparse <- function(value) is(value, "BlockMatrix") || is(value, "sparseMatrix")
kind_of <- function(value) if (is_sparse(value)) "sparse" else if (length(value) == 1L) "number" else "dense"
attempt <- function(line, who) {
  if (!nzchar(line)) return(list(kind = "nothing"))
  tryCatch({
    value <- suppressMessages(suppressWarnings(eval(parse(text = line), data(makers[[who]]))))
    list(kind = kind_of(value), value = if (isS4(value)) as.matrix(value) else value)
  }, error = function(e) {
    known <- who == "peer" || inherits(e, "tartan_error") || grepl("not interpretable as logical", conditionMessage(e))
    list(kind = if (known) "refused" else "missing", text = conditionMessage(e))
  })
}
# A vector is as good as a matrix of one column.
same <- function(a, b) {
  size <- function(x) if (is.null(dim(x))) c(length(x), 1L) else dim(x)
  isTRUE(all.equal(as.vector(a), as.vector(b), tolerance = 1e-7)) && identical(size(a), size(b))
}

json <- function(x) {
  if (is.logical(x)) return(if (x) "true" else "false")
  x <- gsub("\\", "\\\\", x, fixed = TRUE)
  paste0("\"", gsub("\n", "\\n", gsub("\"", "\\\"", x, fixed = TRUE), fixed = TRUE), "\"")
}
say <- function(...) {
  fields <- list(...)
  cat("{", paste0(vapply(names(fields), json, ""), ": ", vapply(fields, json, ""), collapse = ", "), "}\n", sep = "")
}

for (id in names(lines)) {
  both <- rep_len(lines[[id]], 2L)
  peer <- attempt(both[1L], "peer")
  ours <- attempt(both[2L], "tartan")
  right <- is.null(peer$value) || is.null(ours$value) || same(ours$value, peer$value)
  say(id = id, peer = both[1L], tartan = both[2L], peer_result = peer$kind, result = ours$kind, right = right,
      text = if (is.null(ours$text)) "" else ours$text)
}
for (id in names(not_here)) say(id = id, not_here = not_here[[id]])
