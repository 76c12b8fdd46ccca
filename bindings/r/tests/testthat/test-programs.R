# SPDX-License-Identifier: Apache-2.0
# Random programs: operations that users write one after the other, each beside the same on dense matrices of base R. The
# suite `long` runs more of them (TARTAN_PROGRAMS).

one_of <- function(things) things[[sample.int(length(things), 1L)]]
chance <- function(p) runif(1) < p
numbers <- function(...) array(sample(-16:16, prod(...), TRUE) / 8, c(...))
some_size <- function() one_of(c(1, 2, 3, 5, 8, 13, 16, 17))
some_block <- function() if (chance(0.6)) sample.int(5, 2, TRUE) else rep(one_of(c(1, 2, 3, 4, 8)), 2)
some_bounds <- function(n) c(0, if (n > 1) sort(unique(sample.int(n - 1, min(n - 1, sample(0:4, 1))))), n)

some_matrix <- function(size = c(some_size(), some_size()), names = chance(0.3)) {
  density <- one_of(c(0, 0.3, 0.6, 1))
  mask <- function(grid) array(runif(prod(grid)) < density, grid)
  layout <- if (chance(0.2)) {
    rows <- some_bounds(size[1])
    cols <- some_bounds(size[2])
    block_layout_from_mask(mask(c(length(rows), length(cols)) - 1), rows = rows, cols = cols)
  } else {
    block <- some_block()
    block_layout_from_mask(mask(ceiling(size / block)), block, size)
  }
  w <- block_matrix(numbers(size), layout = layout, dtype = one_of(c("float64", "float64", "float32")))
  if (names) dimnames(w) <- list(paste0("r", seq_len(size[1])), if (chance(0.7)) paste0("c", seq_len(size[2])))
  list(w = w, d = as.matrix(w))
}
is_stored <- function(w) {
  bounds <- block_boundaries(w)
  block_mask(w)[rep(seq_len(block_grid(w)[1]), diff(bounds$rows)), rep(seq_len(block_grid(w)[2]), diff(bounds$cols)), drop = FALSE]
}
some_index <- function(n, names) {
  switch(sample.int(8 + !is.null(names), 1), seq_len(n), sample.int(n, sample.int(2 * n, 1), TRUE), rev(seq_len(n)),
         -sample.int(n, sample.int(n, 1)), runif(n) < 0.5, integer(), c(TRUE, if (n > 1) FALSE), seq(1, n, by = sample.int(3, 1)),
         sample(names, sample.int(n, 1), TRUE))
}

# The same line for both. `v` is another matrix of the size of `w`, `s` one of Matrix, `m` a dense one, and x and y fit beside w and below it.
programs <- list()
programs$same <- expression(
  -w, 2 * w, w / 2, w - 0, w^2, w^3, abs(w), sign(w), sqrt(abs(w)), round(w, 1), floor(w), ceiling(w), trunc(w), tanh(w), sin(w), expm1(w / 4),
  log1p(abs(w)), exp(w / 4), cos(w), signif(w, 2), w + 1, 1 - w, w %% 2, w %/% 2, t(w), t(t(w)), 2 * t(w), w + w, w - w, w * w, w > 0.5,
  w < 0, w == 1, w != 0, w >= 0, w <= 0.5, !(w > 0), w > 0 & w < 1, w > 1 | w < -1, w * (w > 0), (w != 0) * w, sum(w), rowSums(w), colSums(w),
  rowMeans(w), colMeans(w), mean(w), max(w), min(w), range(w), any(w > 1), all(w == 0), sum(w != 0), diag(w), sum(diag(w)), dim(w), nrow(w),
  ncol(w), length(w), norm(w, "1"), norm(w, "I"), norm(w, "F"), norm(w, "M"), crossprod(w) / 4, tcrossprod(w) / 4, (t(w) %*% w) / 4,
  list(rownames(w), colnames(w)), apply(w, 1, sum), apply(w, 2, max), is.na(w), anyNA(w), is.finite(w), head(w, 2), rev(w), as.vector(w),
  as.numeric(w), w / (1 + rowSums(abs(w))), t(t(w) / (1 + colSums(abs(w)))), sweep(w, 1, rowMeans(w)), sweep(w, 2, seq_len(ncol(w)), "*"),
  w + seq_len(nrow(w)), w * seq_len(nrow(w)), w / seq_len(nrow(w)), w[1, ], w[1, , drop = FALSE], w[, 1], w[, 1, drop = FALSE], w[1, 1],
  w[nrow(w), ncol(w)], w[length(w)], w[c(1, length(w), 1)], w[w > 0], w[order(rowSums(w)), ], w * upper.tri(w), Reduce(`+`, list(w, w, 2 * w)),
  pmax(w, 0), pmin(w, 1), rbind(w, w), cbind(w, w, w), unname(w), { rownames(w) <- paste0("a", seq_len(nrow(w))); w }, { colnames(w) <- NULL; w },
  { x <- unname(w); dim(x) <- c(length(w), 1); x }, { w[1, ] <- 0; w }, { w[w > 1] <- 0; w }, { w[nrow(w), ncol(w)] <- 7; w },
  { w[, 1] <- seq_len(nrow(w)); w }, { w[c(1, nrow(w)), c(ncol(w), 1)] <- 3; w }, { w[-1, ] <- 0; w }, { w[2 %% length(w) + 1] <- 9; w },
  { w[cbind(c(1, nrow(w)), c(1, ncol(w)))] <- c(4, 5); w }, { diag(w) <- 2; w }, { w[1, 1] <- NA; sum(is.na(w)) }, { w[1, 1] <- NaN; colSums(w) },
  { w[1, 1] <- Inf; rowSums(w) }, { w[1, 1] <- NA; sum(w, na.rm = TRUE) }, { w[1, 1] <- NA; rowMeans(w, na.rm = TRUE) },
  { w[1, 1] <- NA; w %*% rep(1, ncol(w)) }, { w[1, 1] <- NA; max(w) }, { w[1, 1] <- NA; w > 0 }, { w[1, 1] <- Inf; (w * 0)[1, 1] },
  unserialize(serialize(w, NULL)), sapply(seq_len(nrow(w)), function(i) sum(w[i, ])), do.call(rbind, replicate(3, w, FALSE)),
  w + v, w - v, w * v, v - w, w < v, w == v, w != v, w >= v, pmax(w, v), pmin(w, v), 2 * w - v / 4, t(w * v + w) - 2 * t(v), tcrossprod(w, v) / 4,
  crossprod(w, v) / 4, (w %*% t(v)) / 4, rbind(w, v), cbind(v, w, v), isTRUE(all.equal(w + v, v + w)),
  w + s, s - w, w * s, w < s, s != w, (w %*% t(s)) / 4, crossprod(s, w) / 4, cbind(w, s), rbind(s, w),
  w + m, m - w, w * m, w < m, m != w, w %*% x, crossprod(t(w), x), t(x) %*% t(w), tcrossprod(w, t(x)), w %*% x[, 1], (2 * w) %*% x,
  t(w) %*% y, crossprod(w, y), t(y) %*% w, y[, 1] %*% w, crossprod(y, w), w %*% x[, 0])

# Tartan's line and that of base R.
programs$pairs <- list(
  quote(tril(w)), quote(w * !upper.tri(w)), quote(triu(w, 1)), quote(w * upper.tri(w)), quote(band(w, -1, 1)), quote(w * (abs(row(w) - col(w)) <= 1)),
  quote(nnzero(w)), quote(sum(w != 0)), quote(as(w, "CsparseMatrix")), quote(w), quote(unname(as(w, "RsparseMatrix"))), quote(unname(w)),
  quote(as(w, "TsparseMatrix")), quote(w), quote(as(w, "Matrix")), quote(w), quote(as(w, "sparseVector")), quote(as.vector(w)),
  quote(drop0(w)), quote(w), quote(block_matrix(as(w, "CsparseMatrix"), block = some_block())), quote(w),
  quote(block_matrix(as(w, "TsparseMatrix"), block = some_block())), quote(w), quote(block_matrix(as.matrix(w), block = some_block())), quote(w),
  quote(block_reblock(w, some_block())), quote(w), quote(block_reblock(w, rows = some_bounds(nrow(w)))), quote(w),
  quote({ block_values(w) <- 2 * block_values(w); w }), quote(2 * w), quote(length(capture.output(print(w))) > 0), quote(TRUE),
  quote(unname(block_diag(w, w))), quote(unname(rbind(cbind(w, 0 * w), cbind(0 * w, w)))),
  quote({ writeMM(w, path); as.matrix(readMM(path)) }), quote(unname(w)), quote({ saveRDS(w, path); readRDS(path) }), quote(w),
  quote({ block_save(path, list(b = 2 * w, a = w)); both <- block_load(path); if (identical(names(both), c("b", "a"))) both$a }), quote(w),
  quote(unname(as.matrix(sddmm(w, y, t(x))))), quote(unname(ifelse(is_stored(b), y %*% t(x), 0))),
  quote(unname(as.matrix(value_and_gradient(function(w) sum((w %*% x)^2), w)$gradient))), quote(unname(2 * (w %*% x) %*% t(x) * is_stored(b))),
  quote(unname(as.matrix(value_and_gradient(function(w) sum(tanh(w) * w), w)$gradient))), quote(unname((tanh(w) + w / cosh(w)^2) * is_stored(b))),
  quote(unname(as.matrix(kronecker(w[seq_len(min(9, nrow(w))), , drop = FALSE], k)))), quote(unname(kronecker(w[seq_len(min(9, nrow(w))), , drop = FALSE], k))),
  quote(unname(as.matrix(kronecker(k, w[, seq_len(min(9, ncol(w))), drop = FALSE])))), quote(unname(kronecker(k, w[, seq_len(min(9, ncol(w))), drop = FALSE]))))

# Of a positive definite matrix.
programs$solvers <- list(
  quote(as.vector(solve(p, z))), quote(solve(p, z)), quote(as.vector(as.matrix(solve(p)))), quote(as.vector(solve(p))),
  quote(as.numeric(determinant(p)$modulus)), quote(as.numeric(determinant(p)$modulus)), quote(as.vector(crossprod(chol(p)))), quote(as.vector(p)),
  quote(as.vector(solve(Cholesky(p), z))), quote(solve(p, z)), quote(as.vector(solve(update(Cholesky(p), 2 * p), z))), quote(solve(p, z) / 2),
  quote(diag_inverse(p)), quote(diag(solve(p))), quote(as.vector(Matrix::qr.coef(qr(p), z))), quote(solve(p, z)))

step_of <- function(w, d, beside) {
  kind <- sample.int(10, 1)
  if (kind == 1L) { # indices
    i <- some_index(nrow(d), rownames(d))
    j <- some_index(ncol(d), colnames(d))
    drop <- chance(0.5)
    return(list(bquote(w[.(i), .(j), drop = .(drop)]), w[i, j, drop = drop], d[i, j, drop = drop]))
  }
  if (kind == 2L) { # assignment
    i <- sample.int(nrow(d), sample.int(nrow(d), 1))
    j <- sample.int(ncol(d), sample.int(ncol(d), 1))
    value <- if (chance(0.5)) 1.5 else numbers(length(i), length(j))
    w[i, j] <- value
    d[i, j] <- value
    return(list(bquote(w[.(i), .(j)] <- value), w, d))
  }
  if (kind == 3L) {
    at <- 2L * sample.int(length(programs$solvers) / 2L, 1L)
    p <- tcrossprod(block_cast(unname(w), "float64")) + Diagonal(nrow(d), 30)
    of_d <- list(p = tcrossprod(unname(d)) + diag(30, nrow(d)), z = seq_len(nrow(d)))
    return(list(programs$solvers[[at - 1L]], eval(programs$solvers[[at - 1L]], list(p = p, z = of_d$z)), eval(programs$solvers[[at]], of_d)))
  }
  at <- 2L * sample.int(length(programs$pairs) / 2L, 1L)
  line <- if (kind == 4L) programs$pairs[[at - 1L]] else one_of(programs$same)
  other <- beside()
  dense <- list(x = numbers(ncol(d), one_of(c(1, 2, 7, 33))), m = one_of(list(numbers(dim(d)), numbers(dim(d)) > 0)), b = w, k = numbers(2, 1), path = tempfile())
  dense$y <- numbers(nrow(d), ncol(dense$x))
  s <- numbers(dim(d)) * (runif(length(d)) < 0.3)
  sparse <- as(s, one_of(c("CsparseMatrix", "RsparseMatrix", "TsparseMatrix")))
  on.exit(unlink(dense$path))
  list(line, eval(line, c(list(w = w, v = other$w, s = sparse), dense)),
       eval(if (kind == 4L) programs$pairs[[at]] else line, c(list(w = d, v = other$d, s = s), dense)), if ("v" %in% all.names(line)) other$w)
}

plain <- function(x) if (is(x, "sparseVector")) as.vector(x) else if (isS4(x)) as.matrix(x) else x

# NULL, or how what Tartan found differs.
difference <- function(found, expected, eps) {
  found <- plain(found)
  if (is.list(expected)) return(if (!identical(found, expected)) "lists differ")
  if (!identical(dim(found), dim(expected)) || length(found) != length(expected)) return("sizes differ")
  x <- as.numeric(found)
  y <- as.numeric(expected)
  if (!identical(is.na(x), is.na(y))) return("missing values differ")
  near <- x == y | abs(x - y) <= 400 * eps * max(1, abs(y[is.finite(y)]))
  if (!all(near, na.rm = TRUE)) return("numbers differ")
  labels <- function(x) if (length(unlist(dimnames(x)))) unname(dimnames(x)) else names(x)
  if (!identical(labels(found), labels(expected))) "names differ"
}

test_that("random programs give what they give with dense matrices", {
  for (seed in seq_len(as.integer(Sys.getenv("TARTAN_PROGRAMS", "100")))) {
    set.seed(seed)
    pool <- list(some_matrix(), some_matrix())
    lines <- character()
    for (step in 1:10) {
      q <- one_of(pool)
      beside <- function() {
        alike <- Filter(function(p) identical(dim(p$d), dim(q$d)), pool)
        if (chance(0.5)) one_of(alike) else some_matrix(dim(q$d), !is.null(dimnames(q$d)))
      }
      made <- tryCatch(step_of(q$w, q$d, beside), error = function(e) e)
      if (inherits(made, "error")) {
        fail(paste0("seed ", seed, ": ", paste(c(lines, conditionMessage(made)), collapse = "\n")))
        break
      }
      lines <- c(lines, paste(deparse(made[[1]]), collapse = " "))
      narrow <- "float32" %in% c(q$w@dtype, if (length(made) > 3L && !is.null(made[[4]])) made[[4]]@dtype)
      wrong <- c(difference(made[[2]], made[[3]], if (narrow) 2^-23 else 2^-52), difference(q$w, q$d, 0))
      if (length(wrong)) {
        fail(paste0("seed ", seed, ": ", wrong, "\n", paste(lines, collapse = "\n")))
        break
      }
      w <- made[[2]]
      if (inherits(w, "BlockMatrix") && min(dim(w)) > 0 && max(dim(w)) <= 64) {
        d <- as.matrix(w)
        if (all(is.finite(d)) && max(abs(d)) < 1e4) pool <- c(pool, list(list(w = w, d = d)))
        if (length(pool) > 6L) pool <- pool[-sample.int(6L, 1L)]
      }
    }
  }
  succeed()
})
