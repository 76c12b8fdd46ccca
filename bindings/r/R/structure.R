# SPDX-License-Identifier: Apache-2.0
# Matrices side by side, Kronecker products, other dimensions, differences, triangles, comparison, sweep and scale.

# ---- cbind and rbind: base R calls cbind2 and rbind2 for S4 objects ----

# Anything as a block matrix in blocks of the size of x's; a vector is one row (side 1) or column (side 2). What is bound
# to several heads has as many.
.to_bind <- function(y, x, side, name) {
  heads <- block_heads(x)
  if (inherits(y, "BlockMatrix")) {
    if (block_heads(y) != heads) .fail("shape", "%s has %.0f heads, expected %.0f", name, block_heads(y), heads)
    return(y)
  }
  if (heads > 1) {
    if (!is.numeric(y) || length(dim(y)) != 3L || dim(y)[3L] != heads) {
      .fail("shape", "%s is %s, expected a BlockMatrix or an array of %.0f heads", name, .shown_size(y), heads)
    }
    return(.from_dense(y, block = block_dim(x)))
  }
  if (inherits(y, "sparseMatrix")) return(.as_blocks_of(y, x, name))
  y <- .other_operand(y, name)
  if (is.null(dim(y))) {
    n <- dim(x)[3L - side]
    if (!length(y) || n %% length(y) != 0) {
      .fail("shape", "%s has length %.0f, expected %.0f (%s of the matrix)", name, length(y), n, c("columns", "rows")[side])
    }
    y <- if (side == 2L) matrix(rep_len(y, n), n, 1L) else matrix(rep_len(y, n), 1L, n)
  }
  .from_dense(y, block = block_dim(x))
}

.shown_size <- function(x) if (is.null(dim(x))) .shown(x) else paste(dim(x), collapse = " x ")

.bind <- function(x, y, side) {
  model <- if (inherits(x, "BlockMatrix")) x else y
  if (is.null(x) || is.null(y)) return(model)
  x <- .to_bind(x, model, side, "x")
  y <- .to_bind(y, model, side, "y")
  across <- 3L - side
  if (dim(x)[across] != dim(y)[across]) {
    .fail("shape", "y has %.0f %s, expected %.0f (as x)", dim(y)[across], c("rows", "columns")[across], dim(x)[across])
  }
  names <- .no_names
  shared <- x@Dimnames[[across]]
  names[across] <- list(if (is.null(shared)) y@Dimnames[[across]] else shared)
  if (!is.null(x@Dimnames[[side]]) || !is.null(y@Dimnames[[side]])) {
    ends <- lapply(list(x, y), function(m) if (is.null(m@Dimnames[[side]])) character(dim(m)[side]) else m@Dimnames[[side]])
    names[[side]] <- unlist(ends)
  }
  direction <- if (side == 1L) TARTAN_DOWN else TARTAN_RIGHTWARD
  .take_matrix(tartan_matrix_concatenate(NULL, direction, list(x, y)), names = names)
}

for (.peer in c("ANY", "Matrix")) {
  setMethod("rbind2", signature("BlockMatrix", .peer), function(x, y, ...) .bind(x, y, 1L))
  setMethod("rbind2", signature(.peer, "BlockMatrix"), function(x, y, ...) .bind(x, y, 1L))
  setMethod("cbind2", signature("BlockMatrix", .peer), function(x, y, ...) .bind(x, y, 2L))
  setMethod("cbind2", signature(.peer, "BlockMatrix"), function(x, y, ...) .bind(x, y, 2L))
}
rm(.peer)
setMethod("rbind2", signature("BlockMatrix", "BlockMatrix"), function(x, y, ...) .bind(x, y, 1L))
setMethod("cbind2", signature("BlockMatrix", "BlockMatrix"), function(x, y, ...) .bind(x, y, 2L))
setMethod("rbind2", signature("BlockMatrix", "missing"), function(x, y, ...) x)
setMethod("cbind2", signature("BlockMatrix", "missing"), function(x, y, ...) x)

block_diag <- function(...) {
  parts <- list(...)
  if (length(parts) == 1L && is.list(parts[[1L]]) && !is.data.frame(parts[[1L]])) parts <- parts[[1L]]
  model <- Find(function(x) inherits(x, "BlockMatrix"), parts)
  if (is.null(model)) .fail("argument", "there is no BlockMatrix among the %d arguments, expected at least one", length(parts))
  part <- function(k) {
    y <- parts[[k]]
    if (is.null(dim(y)) && length(y) != 1L) .fail("shape", "argument %d is %s, expected a matrix", k, .shown(y))
    .to_bind(if (is.null(dim(y))) matrix(y) else y, model, 1L, sprintf("argument %d", k))
  }
  parts <- lapply(seq_along(parts), part)
  if (length(parts) == 1L) return(parts[[1L]])
  names <- lapply(1:2, function(side) {
    given <- lapply(parts, function(m) m@Dimnames[[side]])
    if (is.null(unlist(given))) return(NULL)
    unlist(Map(function(n, m) if (is.null(n)) character(dim(m)[side]) else n, given, parts))
  })
  .take_matrix(tartan_matrix_concatenate(NULL, TARTAN_DIAGONAL, parts), names = names)
}

# ---- Kronecker products ----

.kronecker_names <- function(X, Y) {
  one <- function(side) {
    x <- dimnames(X)[[side]]
    y <- dimnames(Y)[[side]]
    if (is.null(x) && is.null(y)) return(NULL)
    if (is.null(x)) x <- character(dim(X)[side])
    if (is.null(y)) y <- character(dim(Y)[side])
    paste(rep(x, each = length(y)), rep(y, times = length(x)), sep = ":")
  }
  list(one(1L), one(2L))
}

.kronecker <- function(X, Y, FUN = "*", make.dimnames = FALSE, ...) {
  first <- inherits(X, "BlockMatrix")
  x <- if (first) X else Y
  o <- if (first) Y else X
  .expect_one_head(x, "kronecker")
  if (!identical(match.fun(FUN), `*`)) {
    .expect_small(x)
    if (length(x) * length(o) > 2^27) .fail("unsupported", "the result would be a dense matrix of more than 1 GiB")
    dense <- function(m) if (isS4(m)) as.matrix(m) else m
    return(base::kronecker(dense(X), dense(Y), FUN, make.dimnames, ...))
  }
  if (!inherits(o, "BlockMatrix") && !inherits(o, "Matrix")) {
    o <- .other_operand(o, if (first) "Y" else "X")
    if (is.null(dim(o))) o <- matrix(o, ncol = 1L)
  }
  names <- if (make.dimnames) .kronecker_names(if (first) X else o, if (first) o else Y) else .no_names
  if (length(o) <= 2^16) {
    o <- if (inherits(o, "BlockMatrix")) .to_dense(o) else .dense(o, "Y")
    return(.take_matrix(tartan_matrix_kronecker(NULL, x, unname(o), as.integer(!first), .dtype_code(x@dtype)), names = names))
  }
  sparse <- function(m) if (inherits(m, "BlockMatrix")) .non_zeros(m) else if (isS4(m)) .general(m) else methods::as(m, "CsparseMatrix")
  product <- methods::kronecker(sparse(X), sparse(Y))
  dimnames(product) <- names
  block_cast(.as_blocks_of(product, x, "the result"), x@dtype)
}
for (.peer in c("ANY", "Matrix")) {
  setMethod("kronecker", signature("BlockMatrix", .peer), .kronecker)
  setMethod("kronecker", signature(.peer, "BlockMatrix"), .kronecker)
}
rm(.peer)
setMethod("kronecker", signature("BlockMatrix", "BlockMatrix"), .kronecker)

# ---- Elements in another order: as with a dgCMatrix, rep() gives a sparse vector, down the columns ----

setMethod("rep", "BlockMatrix", function(x, times = 1, length.out = NULL, each = 1, ...) {
  v <- methods::as(.non_zeros(x), "sparseVector")
  each <- .count(each, "each")
  if (each != 1) { # Matrix 1.5-3 fails here
    at <- rep((v@i - 1) * each, each = each) + seq_len(each)
    v <- methods::new("dsparseVector", x = rep(v@x, each = each), i = at, length = v@length * each)
  }
  if (is.null(length.out)) rep(v, .count(times, "times")) else .rep_length(v, .count(length.out, "length.out"))
})
# Matrix 1.5-3 gives zeros for some lengths.
.rep_length <- function(v, n) {
  size <- as.double(v@length)
  if (size == 0) return(methods::as(rep(NA_real_, n), "sparseVector"))
  times <- ceiling(n / size)
  i <- rep(as.double(v@i), times) + rep((seq_len(times) - 1) * size, each = length(v@i))
  methods::new("dsparseVector", x = rep(v@x, times)[i <= n], i = i[i <= n], length = n)
}

setReplaceMethod("dim", "BlockMatrix", function(x, value) {
  .expect_one_head(x, "dim(x) <- value")
  if (length(value) != 2L || !.is_whole(value) || any(value < 0)) {
    .fail("argument", "value is %s, expected rows and columns", .shown(value))
  }
  if (prod(value) != length(x)) {
    .fail("shape", "value is %.0f x %.0f, expected %.0f elements in all", value[1L], value[2L], length(x))
  }
  if (all(value == dim(x))) return(x)
  sparse <- .non_zeros(x)
  dim(sparse) <- value
  block_cast(.as_blocks_of(sparse, x, "the result"), x@dtype)
})

# ---- Differences of rows, and correlations ----

diff.BlockMatrix <- function(x, lag = 1, differences = 1, ...) {
  .expect_one_head(x, "diff")
  lag <- .count(lag, "lag", 1)
  differences <- .count(differences, "differences", 1)
  if (lag * differences >= dim(x)[1L]) return(numeric()) # as base R
  for (i in seq_len(differences)) {
    n <- dim(x)[1L]
    x <- x[(lag + 1):n, , drop = FALSE] - x[seq_len(n - lag), , drop = FALSE]
  }
  x
}

setMethod("cov2cor", "BlockMatrix", function(V) {
  .expect_square(V, "V")
  factors <- 1 / sqrt(diag(V))
  if (!all(is.finite(factors))) warning("the diagonal of V has elements that are not positive", call. = FALSE)
  factors <- Matrix::Diagonal(x = unname(factors))
  result <- factors %*% V %*% factors
  diag(result) <- 1
  result@Dimnames <- .square_names(V)
  result
})

# ---- Triangles ----

.triangle <- function(x, kind, k) .made(x, tartan_matrix_triangle, kind, .diagonal_number(k))
.diagonal_number <- function(k) {
  if (length(k) != 1L || !.is_whole(k)) .fail("argument", "k is %s, expected a whole number", .shown(k))
  as.double(k)
}
setMethod("tril", "BlockMatrix", function(x, k = 0, ...) .triangle(x, TARTAN_LOWER, k))
setMethod("triu", "BlockMatrix", function(x, k = 0, ...) .triangle(x, TARTAN_UPPER, k))
setMethod("band", "BlockMatrix", function(x, k1, k2, ...) .triangle(.triangle(x, TARTAN_UPPER, k1), TARTAN_LOWER, k2))

# ---- Symmetric and skew-symmetric parts, which have the same names for rows and columns ----

.square_names <- function(x) {
  name <- x@Dimnames[[2L]]
  rep(list(if (is.null(name)) x@Dimnames[[1L]] else name), 2L)
}
.with_transpose <- function(x, combine) {
  .expect_square(x, "x")
  names <- .square_names(x)
  x@Dimnames <- .no_names
  x <- combine(x)
  x@Dimnames <- names
  x
}
setMethod("symmpart", "BlockMatrix", function(x) .with_transpose(x, function(x) (x + t(x)) / 2))
setMethod("skewpart", "BlockMatrix", function(x) .with_transpose(x, function(x) (x - t(x)) / 2))
.force_symmetric <- function(x, uplo = "U") {
  upper <- .choose(uplo, c("U", "L"), "uplo") == "U"
  .with_transpose(x, function(x) if (upper) triu(x) + t(triu(x, 1)) else tril(x) + t(tril(x, -1)))
}
setMethod("forceSymmetric", signature("BlockMatrix", "missing"), function(x, uplo) .force_symmetric(x))
setMethod("forceSymmetric", signature("BlockMatrix", "character"), function(x, uplo) .force_symmetric(x, uplo))

setMethod("isDiagonal", "BlockMatrix", function(object) Matrix::isDiagonal(.non_zeros(object)))
setMethod("isTriangular", "BlockMatrix", function(object, upper = NA, ...) {
  Matrix::isTriangular(.non_zeros(object), upper = upper, ...)
})

# ---- Comparison: by values and names, whatever the blocks ----

# A matrix of numbers in blocks of the size of x's; anything else as it is.
.comparable <- function(y, x) {
  if (inherits(y, "Matrix") || is.matrix(y) && (is.numeric(y) || is.logical(y))) block_matrix(y, block = block_dim(x)) else y
}

all.equal.BlockMatrix <- function(target, current, ..., check.attributes = TRUE) {
  current <- .comparable(current, target)
  if (!inherits(current, "BlockMatrix")) return(paste0("target is BlockMatrix, current is ", class(current)[1L]))
  size <- function(x) c(dim(x), block_heads(x))
  if (any(size(target) != size(current))) {
    return(sprintf("Dimensions: target (%s), current (%s)", paste(size(target), collapse = ", "), paste(size(current), collapse = ", ")))
  }
  said <- NULL
  if (check.attributes && !identical(target@Dimnames, current@Dimnames)) {
    said <- paste("Dimnames:", all.equal(target@Dimnames, current@Dimnames))
  }
  both <- .on_union(target, current)
  equal <- all.equal(as.vector(both$x), as.vector(both$y), ...)
  if (!isTRUE(equal)) said <- c(said, equal)
  if (is.null(said)) TRUE else said
}

# Matrix has methods for ANY beside a Matrix.
setMethod("all.equal", signature("BlockMatrix", "Matrix"), function(target, current, ...) all.equal.BlockMatrix(target, current, ...))
for (.peer in c("Matrix", "matrix")) {
  setMethod("all.equal", signature(.peer, "BlockMatrix"), function(target, current, ...) {
    target <- .comparable(target, current)
    if (inherits(target, "BlockMatrix")) all.equal.BlockMatrix(target, current, ...)
    else paste0("target is ", class(target)[1L], ", current is BlockMatrix")
  })
}
rm(.peer)

setMethod("isSymmetric", "BlockMatrix", function(object, tol = 100 * .Machine$double.eps, checkDN = TRUE, ...) {
  size <- dim(object)
  if (size[1L] != size[2L]) return(FALSE)
  names <- object@Dimnames
  if (checkDN && !is.null(names[[1L]]) && !is.null(names[[2L]]) && !identical(names[[1L]], names[[2L]])) return(FALSE)
  if (block_heads(object) == 1) tartan_r_is_symmetric(.as_double(object), tol)
  else isTRUE(all.equal.BlockMatrix(object, t(object), tolerance = tol, check.attributes = FALSE))
})

# ---- sweep and scale ----

# The name of an operator that is given by name or as a function.
.operator <- function(FUN) {
  for (name in c("+", "-", "*", "/", "^", "%%", "%/%", "==", "!=", "<", "<=", ">", ">=")) {
    if (identical(FUN, name) || identical(FUN, get(name, baseenv()))) return(name)
  }
  NULL
}

setGeneric("sweep", signature = "x")
setMethod("sweep", "BlockMatrix", function(x, MARGIN, STATS, FUN = "-", check.margin = TRUE, ...) {
  operator <- .operator(FUN)
  .expect_one_head(x, "sweep")
  if (is.null(operator) || !(identical(as.double(MARGIN), 1) || identical(as.double(MARGIN), 2))) {
    return(base::sweep(.small_dense(x), MARGIN, as.array(STATS), FUN, check.margin, ...))
  }
  STATS <- as.vector(STATS)
  if (length(STATS) > 1L && dim(x)[MARGIN] %% length(STATS) == 0) STATS <- rep_len(STATS, dim(x)[MARGIN])
  if (length(STATS) != dim(x)[MARGIN] && length(STATS) != 1L) {
    .fail("shape", "STATS has length %.0f, expected %.0f (%s of x)", length(STATS), dim(x)[MARGIN], c("rows", "columns")[MARGIN])
  }
  .combine_numbers(operator, x, STATS, TRUE, if (length(STATS) == 1L) "elements" else .side[MARGIN])
})
.side <- c("rows", "cols")

# Centred columns are dense.
scale.BlockMatrix <- function(x, center = TRUE, scale = TRUE) {
  .expect_one_head(x, "scale")
  if (!identical(center, FALSE)) return(base::scale(.small_dense(x), center, scale))
  if (identical(scale, FALSE)) return(x)
  if (isTRUE(scale)) {
    values <- .as_double(x)
    seen <- dim(x)[1L] - colSums(is.na(values))
    scale <- sqrt(colSums(values^2, na.rm = TRUE) / pmax(1, seen - 1))
  }
  if (length(scale) != dim(x)[2L]) {
    .fail("shape", "scale has length %.0f, expected %.0f (columns of x)", length(scale), dim(x)[2L])
  }
  sweep(x, 2, .numbers(scale, "scale"), "/")
}

# As of a base matrix or a Matrix, rows and columns without names get their numbers.
tail.BlockMatrix <- function(x, n = 6L, keepnums = TRUE, ...) utils::tail.matrix(x, n, keepnums, ...)
