# SPDX-License-Identifier: Apache-2.0
# To and from base matrices and the Matrix package.

# Any sparse Matrix as a dgCMatrix.
.general <- function(x) {
  if (methods::is(x, "dgCMatrix")) return(x)
  if (methods::is(x, "indMatrix")) x <- methods::as(x, "nMatrix")
  methods::as(methods::as(methods::as(x, "dMatrix"), "generalMatrix"), "CsparseMatrix")
}

# Entries of a sparse Matrix, counted from 0.
.sparse_entries <- function(x) {
  x <- .general(x)
  list(i = x@i, j = rep.int(seq_len(ncol(x)) - 1L, diff(x@p)), x = x@x)
}

# A double matrix or array, without a copy if it already is one.
.dense <- function(x, name) {
  if (methods::is(x, "Matrix")) x <- as.matrix(x)
  if (is.data.frame(x)) x <- as.matrix(x)
  if (!(is.numeric(x) || is.logical(x)) || is.null(dim(x))) {
    .fail("argument", "%s is %s, expected a numeric matrix", name, .shown(x))
  }
  if (!is.double(x)) storage.mode(x) <- "double"
  x
}

# A double vector, for instance gates or scores.
.numbers <- function(x, name) {
  if (!(is.numeric(x) || is.logical(x)) || is.factor(x)) .fail("argument", "%s is %s, expected numbers", name, .shown(x))
  if (is.double(x) && is.null(dim(x))) x else as.double(x)
}

# Every stored element, row by row, counted from 0.
.coo <- function(x) {
  n <- block_elements(x)
  values <- tartan_r_new_array(n)
  at <- tartan_matrix_to_coo(.as_double(x), n, n, values)
  list(i = at[[1L]], j = at[[2L]], x = values)
}

.to_sparse <- function(x) {
  .expect_one_head(x, "a sparse Matrix")
  frame <- .frame_of(x)
  if (any(frame[1:2] > .Machine$integer.max)) .fail("overflow", "x has more rows or columns than a Matrix can")
  n <- block_elements(x)
  if (n > .Machine$integer.max) .fail("overflow", "x has %.0f elements, a Matrix has at most %d", n, .Machine$integer.max)
  # The Matrix package stores columns, which are the rows of the transpose.
  transposed <- tartan_matrix_transpose(NULL, .as_double(x))
  values <- tartan_r_new_array(n)
  at <- tartan_matrix_to_csr(transposed, frame[2L] + 1, n, values)
  tartan_r_close(transposed)
  stored <- methods::new("dgCMatrix", p = as.integer(at[[1L]]), i = as.integer(at[[2L]]), x = values,
                         Dim = as.integer(frame[1:2]), Dimnames = x@Dimnames)
  Matrix::drop0(stored)
}

.to_dense <- function(x) {
  frame <- .frame_of(x)
  dense <- tartan_r_new_array(if (frame[5L] == 1) frame[1:2] else frame[c(1L, 2L, 5L)])
  tartan_matrix_to_dense(x, dense)
  if (length(unlist(x@Dimnames))) dimnames(dense) <- c(x@Dimnames, if (frame[5L] > 1) list(NULL))
  dense
}

# Results that would be dense and large are refused, unless the user asks for them by as.matrix(x), as.array(x) or
# as(x, "matrix").
.expect_small <- function(x, ask = "as.matrix(x)") {
  gib <- length(x) * block_heads(x) / 2^27
  if (gib > 1) .fail("unsupported", "x would become a dense matrix of %.3g GiB: call %s if you want that", gib, ask)
}
# Some functions of base R call as.matrix internally (eigen, svd, apply): that is not the user's call.
.expect_asked <- function(x, caller, ask) {
  if (environmentName(topenv(caller)) %in% c("base", "stats", "methods", "Matrix")) .expect_small(x, ask)
}
as.matrix.BlockMatrix <- function(x, ...) {
  .expect_one_head(x, "as.matrix")
  .expect_asked(x, parent.frame(), "as.matrix(x)")
  .to_dense(x)
}
as.array.BlockMatrix <- function(x, ...) {
  .expect_asked(x, parent.frame(), "as.array(x)")
  .to_dense(x)
}
# Matrix::Matrix() takes as.vector(x) of classes that it does not know, and makes one column of it.
.expect_not_from_matrix <- function(x) {
  for (frame in seq_len(sys.nframe())) {
    if (!identical(sys.function(frame), Matrix::Matrix)) next
    given <- names(as.list(match.call(Matrix::Matrix, sys.call(frame))))
    if (any(c("nrow", "ncol") %in% given) || !identical(eval(quote(data), sys.frame(frame)), x)) next
    .fail("unsupported", "Matrix(x) would have one column: use as(x, \"CsparseMatrix\")")
  }
}
as.matrix.BlockLayout <- function(x, ...) {
  .expect_one_head(x, "as.matrix")
  block_mask(x)
}
as.vector.BlockMatrix <- function(x, mode = "any") {
  .expect_not_from_matrix(x)
  .expect_small(x, "as.vector(as.array(x))")
  base::as.vector(.to_dense(x), mode)
}
# order() and sort() compare these numbers. base R's rev() would take length(x) for that of all heads.
xtfrm.BlockMatrix <- function(x) as.vector.BlockMatrix(x)
rev.BlockMatrix <- function(x) rev(as.vector.BlockMatrix(x))
as.double.BlockMatrix <- function(x, ...) as.vector.BlockMatrix(x, "double")
as.integer.BlockMatrix <- function(x, ...) as.vector.BlockMatrix(x, "integer")
as.logical.BlockMatrix <- function(x, ...) as.vector.BlockMatrix(x, "logical")
as.data.frame.BlockMatrix <- function(x, ...) {
  .expect_one_head(x, "as.data.frame")
  .expect_small(x, "as.data.frame(as.matrix(x))")
  as.data.frame(.to_dense(x), ...)
}

# Rows, columns (from 1) and numbers of the elements that are not 0, by column.
.triplets <- function(x) {
  entries <- .sparse_entries(.to_sparse(x))
  data.frame(i = entries$i + 1L, j = entries$j + 1L, x = entries$x)
}

setMethod("writeMM", "BlockMatrix", function(obj, file, ...) Matrix::writeMM(.to_sparse(obj), file, ...))

# ---- as() ----

# The classes of the Matrix package that a BlockMatrix can become, and how they are made of its dgCMatrix.
.sparse_classes <- list(
  Matrix = identity, sparseMatrix = identity, CsparseMatrix = identity, dMatrix = identity, generalMatrix = identity,
  dsparseMatrix = identity, dgCMatrix = identity,
  RsparseMatrix = "RsparseMatrix", dgRMatrix = "RsparseMatrix", TsparseMatrix = "TsparseMatrix",
  dgTMatrix = "TsparseMatrix", symmetricMatrix = "symmetricMatrix", dsCMatrix = "symmetricMatrix",
  triangularMatrix = "triangularMatrix", dtCMatrix = "triangularMatrix", diagonalMatrix = "diagonalMatrix",
  ddiMatrix = "diagonalMatrix", lMatrix = "lMatrix", lgCMatrix = "lMatrix", nMatrix = "nMatrix", ngCMatrix = "nMatrix",
  sparseVector = "sparseVector")
for (.class in names(.sparse_classes)) local({
  how <- .sparse_classes[[.class]]
  setAs("BlockMatrix", .class, if (is.function(how)) function(from) .to_sparse(from)
                               else function(from) methods::as(.to_sparse(from), how))
})
rm(.class, .sparse_classes)
for (.class in c("denseMatrix", "unpackedMatrix", "dgeMatrix")) {
  setAs("BlockMatrix", .class, function(from) {
    .expect_one_head(from, "a Matrix")
    .expect_small(from)
    methods::as(methods::as(.to_dense(from), "unpackedMatrix"), "generalMatrix")
  })
}
rm(.class)
setAs("BlockMatrix", "matrix", function(from) {
  .expect_one_head(from, "a matrix")
  .to_dense(from)
})
setAs("BlockMatrix", "array", function(from) .to_dense(from))
setAs("BlockMatrix", "vector", function(from) as.vector.BlockMatrix(from))
setAs("BlockMatrix", "numeric", function(from) as.vector.BlockMatrix(from))
setAs("BlockMatrix", "data.frame", function(from) as.data.frame.BlockMatrix(from))
setAs("BlockMatrix", "BlockLayout", function(from) from@layout)
for (.class in c("matrix", "array", "Matrix", "data.frame", "BlockLayout")) {
  setAs(.class, "BlockMatrix", function(from) block_matrix(from))
}
rm(.class)
