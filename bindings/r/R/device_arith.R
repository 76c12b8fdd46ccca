# SPDX-License-Identifier: Apache-2.0
# Arithmetic, sums and diagonals of matrices on a device: new matrices stay there, numbers come back. What C has no
# operation for is refused: base R would look at the object, not at its numbers.

# ---- Arith ----

.arith_of_two <- function(generic, e1, e2) {
  .place(e1 = e1, e2 = e2)
  .expect_same_size(e1, e2)
  names <- .names_of_both(e1, e2)
  if (generic %in% c("+", "-")) {
    beta <- if (generic == "+") 1 else -1
    add <- function(place, x) tartan_matrix_add(place, 1, x, beta, e2, 0L)
    return(.made(e1, add, names = names))
  }
  if (generic != "*") {
    .fail("unsupported", "e1 %s e2 on %s, expected +, - or *: take both to R's memory (to_host)", generic, e1@context@device)
  }
  if (!block_is_dynamic(e1) && !block_is_dynamic(e2) && !.same_layout(e1, e2) &&
      !(.all_finite(e1) && .all_finite(e2))) { # 0 * NaN is NaN
    union <- block_union(e1, e2)
    e1 <- block_project(e1, union)
    e2 <- block_project(e2, union)
  }
  multiply <- function(place, x) tartan_matrix_combine(place, TARTAN_COMBINE_MULTIPLY, x, e2, 0L)
  .made(e1, multiply, names = names)
}

.applied <- function(x, kind, parameter = 0) {
  apply <- function(place, x) tartan_matrix_apply(place, kind, parameter, x, 0L)
  .made(x, apply, layout = x@layout)
}
.arith_with_number <- function(generic, x, o, first) {
  name <- if (first) "e2" else "e1"
  if (inherits(o, "DeviceArray")) .place(x = x, o = o)
  else if (inherits(o, "diagonalMatrix") && generic %in% c("+", "-")) return(.diagonal_added(generic, x, o, first))
  else {
    if (isS4(o) || !is.null(dim(o))) {
      .fail("unsupported", "%s is in R's memory, but %s is on %s: move one of them with to_device() or to_host()", name,
            if (first) "e1" else "e2", x@context@device)
    }
    o <- .numbers(o, name)
  }
  .arith_with_numbers(generic, x, o, first, name)
}
.arith_with_numbers <- function(generic, x, o, first, name) {
  n <- length(o)
  if (n != 1L || inherits(o, "DeviceArray")) {
    if (n != dim(x)[1L]) .fail("shape", "%s has length %.0f, expected 1 or %.0f (rows of x)", name, n, dim(x)[1L])
    if (generic == "*" && (inherits(o, "DeviceArray") || all(is.finite(o)))) return(.scaled(x, o, NULL))
  } else if (is.finite(o)) {
    if (generic == "*") return(.applied(x, TARTAN_APPLY_MULTIPLY, o))
    if (first && generic == "/" && o != 0) return(.applied(x, TARTAN_APPLY_DIVIDE, o))
    if (first && generic == "^" && o > 0) return(.applied(x, TARTAN_APPLY_POWER, o))
  }
  o <- if (n == 1L && is.numeric(o)) .shown(o) else sprintf("<%.0f numbers>", n)
  .fail("unsupported", "%s on %s, expected x * a, x / a or x^a that keeps zeros: take x to R's memory (to_host)",
        if (first) paste("x", generic, o) else paste(o, generic, "x"), x@context@device)
}

.diagonal_added <- function(generic, x, d, first) {
  .expect_one_head(x, "an operation with a Matrix")
  if (any(dim(d) != dim(x))) .fail("shape", "the Matrix is %d x %d, expected %.0f x %.0f", nrow(d), ncol(d), dim(x)[1L], dim(x)[2L])
  diagonal <- as.double(Matrix::diag(d)) * if (first && generic == "-") -1 else 1
  alpha <- if (!first && generic == "-") -1 else 1
  add <- function(place, x) tartan_matrix_add_diagonal(place, alpha, x, 0, diagonal, 0L)
  .made(x, add, names = if (length(unlist(x@Dimnames))) x@Dimnames else .names_of(d))
}

setMethod("Arith", signature("DeviceBlockMatrix", "DeviceBlockMatrix"), function(e1, e2) .arith_of_two(.Generic, e1, e2))
setMethod("Arith", signature("DeviceBlockMatrix", "missing"), function(e1, e2) {
  if (.Generic == "-") .applied(e1, TARTAN_APPLY_MULTIPLY, -1) else e1
})
for (.peer in c("ANY", "Matrix", "ddiMatrix", "ldiMatrix", "sparseVector", "BlockMatrix", "DeviceArray")) {
  setMethod("Arith", signature("DeviceBlockMatrix", .peer), function(e1, e2) .arith_with_number(.Generic, e1, e2, TRUE))
  setMethod("Arith", signature(.peer, "DeviceBlockMatrix"), function(e1, e2) .arith_with_number(.Generic, e2, e1, FALSE))
}

setMethod("sweep", "DeviceBlockMatrix", function(x, MARGIN, STATS, FUN = "-", check.margin = TRUE, ...) {
  .expect_one_head(x, "sweep")
  if (!identical(.operator(FUN), "*") || !(length(MARGIN) == 1L && MARGIN %in% 1:2)) .expect_here(x, "sweep other than by \"*\"")
  if (length(STATS) != dim(x)[MARGIN]) {
    .fail("shape", "STATS has length %.0f, expected %.0f (%s of x)", length(STATS), dim(x)[MARGIN], c("rows", "columns")[MARGIN])
  }
  if (!inherits(STATS, "DeviceArray")) STATS <- .numbers(STATS, "STATS")
  if (MARGIN == 1) .scaled(x, STATS, NULL) else .scaled(x, NULL, STATS)
})

# ---- Math ----

setMethod("Math", "DeviceBlockMatrix", function(x) {
  switch(.Generic,
         abs = .applied(x, TARTAN_APPLY_ABS),
         sign = .applied(x, TARTAN_APPLY_SIGN),
         sqrt = .applied(x, TARTAN_APPLY_POWER, 0.5),
         .expect_here(x, .Generic))
})
setMethod("Math2", signature("DeviceBlockMatrix"), function(x, digits) {
  if (.Generic == "round" && (missing(digits) || identical(as.double(digits), 0))) return(.applied(x, TARTAN_APPLY_ROUND))
  .expect_here(x, .Generic)
})

# ---- Sums, means, norms and extremes ----

.reduced <- function(x, reduction, each, count) {
  if (!length(x)) return(numeric(count))
  tartan_matrix_reduce(.place(x = x), x, reduction, each, count)
}
.expect_no_na_rm <- function(x, na.rm) {
  if (.flag(na.rm, "na.rm")) .fail("unsupported", "na.rm is TRUE, expected FALSE on %s: take x to R's memory (to_host)", x@context@device)
}
.sums_there <- function(x, side, reduction, na.rm, dims, sparse) {
  .expect_sum(x, dims)
  .expect_no_na_rm(x, na.rm)
  each <- if (side == 1L) TARTAN_EACH_ROW else TARTAN_EACH_COLUMN
  .named_sums(.reduced(x, reduction, each, dim(x)[side]), x@Dimnames[[side]], sparse)
}
setMethod("rowSums", "DeviceBlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums_there(x, 1L, TARTAN_REDUCE_SUM, na.rm, dims, sparseResult)
})
setMethod("colSums", "DeviceBlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums_there(x, 2L, TARTAN_REDUCE_SUM, na.rm, dims, sparseResult)
})
setMethod("rowMeans", "DeviceBlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums_there(x, 1L, TARTAN_REDUCE_MEAN, na.rm, dims, sparseResult)
})
setMethod("colMeans", "DeviceBlockMatrix", function(x, na.rm = FALSE, dims = 1, sparseResult = FALSE, ...) {
  .sums_there(x, 2L, TARTAN_REDUCE_MEAN, na.rm, dims, sparseResult)
})

.each_head <- function(x, reduction) .reduced(x, reduction, TARTAN_EACH_HEAD, if (length(x)) block_heads(x) else 0)
mean.DeviceBlockMatrix <- function(x, trim = 0, na.rm = FALSE, ...) {
  if (!identical(as.double(trim), 0)) .expect_here(x, "a trimmed mean")
  .expect_no_na_rm(x, na.rm)
  mean(.each_head(x, TARTAN_REDUCE_MEAN))
}
setMethod("Summary", "DeviceBlockMatrix", function(x, ..., na.rm = FALSE) {
  .expect_no_na_rm(x, na.rm)
  f <- get(.Generic, baseenv())
  numbers <- function(y) {
    if (!inherits(y, "DeviceBlockMatrix")) return(y)
    switch(.Generic,
           sum = .each_head(y, TARTAN_REDUCE_SUM),
           max = .each_head(y, TARTAN_REDUCE_MAXIMUM),
           min = .each_head(y, TARTAN_REDUCE_MINIMUM),
           range = c(.each_head(y, TARTAN_REDUCE_MINIMUM), .each_head(y, TARTAN_REDUCE_MAXIMUM)),
           .expect_here(y, .Generic))
  }
  do.call(f, lapply(list(x, ...), numbers))
})
setMethod("nnzero", "DeviceBlockMatrix", function(x, na.counted = NA) {
  count <- sum(.each_head(x, TARTAN_REDUCE_NONZEROS))
  if (.all_finite(x) || identical(na.counted, FALSE)) return(if (count <= .Machine$integer.max) as.integer(count) else count)
  .expect_here(x, "nnzero with missing numbers")
})

.write_diagonal <- function(x, value) {
  .expect_one_head(x, "diag")
  n <- min(dim(x))
  value <- .numbers(value, "value")
  if (length(value) != 1L && length(value) != n) .fail("shape", "value has length %.0f, expected 1 or %.0f", length(value), n)
  grow <- function(place, x) tartan_matrix_add_diagonal(place, 1, x, 0, 0, 0L) # a copy with the blocks on the diagonal
  x <- .made(x, grow)
  tartan_matrix_set_diagonal(.place(x = x), x, 0, rep_len(value, n))
  x
}
setMethod("diag<-", "DeviceBlockMatrix", function(x, value) .write_diagonal(x, value))

all.equal.DeviceBlockMatrix <- function(target, current, ...) {
  if (inherits(current, "DeviceBlockMatrix")) current <- to_host(current)
  all.equal.BlockMatrix(to_host(target), current, ...)
}

# ---- Refused, since the numbers are not in R's memory ----

for (.peer in c("ANY", "Matrix", "ddiMatrix", "ldiMatrix", "sparseVector", "BlockMatrix", "DeviceObject")) {
  for (.group in c("Compare", "Logic")) {
    setMethod(.group, signature("DeviceObject", .peer), function(e1, e2) .expect_here(e1, .Generic))
    setMethod(.group, signature(.peer, "DeviceObject"), function(e1, e2) .expect_here(e2, .Generic))
  }
  setMethod("Arith", signature("DeviceArray", .peer), function(e1, e2) .expect_here(e1, .Generic))
  setMethod("Arith", signature(.peer, "DeviceArray"), function(e1, e2) .expect_here(e2, .Generic))
  setMethod("cbind2", signature("DeviceObject", .peer), function(x, y, ...) .expect_here(x, "cbind"))
  setMethod("cbind2", signature(.peer, "DeviceObject"), function(x, y, ...) .expect_here(y, "cbind"))
  setMethod("rbind2", signature("DeviceObject", .peer), function(x, y, ...) .expect_here(x, "rbind"))
  setMethod("rbind2", signature(.peer, "DeviceObject"), function(x, y, ...) .expect_here(y, "rbind"))
  setMethod("kronecker", signature("DeviceObject", .peer), function(X, Y, FUN, make.dimnames, ...) .expect_here(X, "kronecker"))
  setMethod("kronecker", signature(.peer, "DeviceObject"), function(X, Y, FUN, make.dimnames, ...) .expect_here(Y, "kronecker"))
}
rm(.peer, .group)
setMethod("!", "DeviceObject", function(x) .expect_here(x, "!"))
setMethod("[", "DeviceObject", function(x, i, j, ..., drop = TRUE) .expect_here(x, "x[i, j]"))
setMethod("[<-", "DeviceObject", function(x, i, j, ..., value) .expect_here(x, "x[i, j] <- value"))
setMethod("rep", "DeviceObject", function(x, ...) .expect_here(x, "rep"))
setReplaceMethod("dim", "DeviceObject", function(x, value) .expect_here(x, "dim(x) <- value"))
setMethod("cov2cor", "DeviceObject", function(V) .expect_here(V, "cov2cor"))
setMethod("isSymmetric", "DeviceObject", function(object, ...) .expect_here(object, "isSymmetric"))
setMethod("tril", "DeviceObject", function(x, k = 0, ...) .expect_here(x, "tril"))
setMethod("triu", "DeviceObject", function(x, k = 0, ...) .expect_here(x, "triu"))
diff.DeviceBlockMatrix <- function(x, ...) .expect_here(x, "diff")
determinant.DeviceBlockMatrix <- function(x, logarithm = TRUE, ...) .expect_here(x, "determinant")
setMethod("Math", "DeviceArray", function(x) .expect_here(x, .Generic))
setMethod("Summary", "DeviceArray", function(x, ..., na.rm = FALSE) .expect_here(x, .Generic))
as.matrix.DeviceArray <- function(x, ...) .expect_here(x, "as.matrix")
as.matrix.DeviceBlockMatrix <- as.matrix.DeviceArray
as.vector.DeviceArray <- function(x, mode = "any") .expect_here(x, "as.vector")
as.vector.DeviceBlockMatrix <- as.vector.DeviceArray
