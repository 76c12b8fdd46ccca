# SPDX-License-Identifier: Apache-2.0
# To and from base matrices and the Matrix package.

# Any sparse Matrix as a dgCMatrix.
.general <- function(x) {
  if (inherits(x, "dgCMatrix")) return(x)
  if (inherits(x, "indMatrix")) x <- methods::as(x, "nMatrix")
  methods::as(methods::as(methods::as(x, "dMatrix"), "generalMatrix"), "CsparseMatrix")
}

# Entries of a sparse Matrix, counted from 0.
.sparse_entries <- function(x) {
  x <- .general(x)
  list(i = x@i, j = rep.int(seq_len(ncol(x)) - 1L, diff(x@p)), x = x@x)
}

# A double matrix or array, without a copy if it already is one.
.dense <- function(x, name) {
  if (inherits(x, "Matrix")) x <- as.matrix(x)
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

# A dgCMatrix of every stored element or of those that are not 0. With a tolerance, a dsCMatrix if x is symmetric up to it.
.to_sparse <- function(x, drop = FALSE, tolerance = NULL, names = x@Dimnames) {
  .expect_one_head(x, "a sparse Matrix")
  frame <- .frame_of(x)
  if (any(frame[1:2] > .Machine$integer.max)) .fail("overflow", "x has more rows or columns than a Matrix can")
  sparse <- tartan_r_to_sparse(.as_double(x), drop, tolerance)
  if (length(unlist(names))) sparse@Dimnames <- names
  sparse
}
# For what looks at the elements that are not 0 alone: zeros inside of blocks are like those outside.
.non_zeros <- function(x) .to_sparse(x, drop = TRUE)

block_sparse <- function(x, drop0 = FALSE) {
  .expect(x, "BlockMatrix", "x")
  .to_sparse(x, .flag(drop0, "drop0"))
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
  if (gib > 1) .fail("unsupported", "x would become a dense matrix of %s GiB: call %s if you want that", .digits(gib), ask)
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
  entries <- .sparse_entries(.non_zeros(x))
  data.frame(i = entries$i + 1L, j = entries$j + 1L, x = entries$x)
}

setMethod("writeMM", "BlockMatrix", function(obj, file, ...) Matrix::writeMM(.to_sparse(obj), file, ...))

# ---- as() ----

# The classes of the Matrix package that a BlockMatrix can become, and the steps from its dgCMatrix or, for dense classes, from its
# dgeMatrix. Where Matrix's own coercions stop ("dsTMatrix"), these go on.
.steps_to <- function() {
  found <- list(Matrix = NULL, compMatrix = NULL, sparseMatrix = NULL, CsparseMatrix = NULL, dMatrix = NULL, generalMatrix = NULL,
                dsparseMatrix = NULL, RsparseMatrix = "RsparseMatrix", TsparseMatrix = "TsparseMatrix", lMatrix = "lMatrix",
                nMatrix = "nMatrix", lsparseMatrix = "lMatrix", nsparseMatrix = "nMatrix", symmetricMatrix = "symmetricMatrix",
                triangularMatrix = "triangularMatrix", diagonalMatrix = "diagonalMatrix", ddiMatrix = "diagonalMatrix",
                ldiMatrix = c("lMatrix", "diagonalMatrix"), indMatrix = "indMatrix", pMatrix = "pMatrix", sparseVector = "sparseVector",
                dsparseVector = "sparseVector", denseMatrix = NULL, unpackedMatrix = NULL, packedMatrix = "packedMatrix",
                ddenseMatrix = NULL, ldenseMatrix = "lMatrix", ndenseMatrix = "nMatrix", dpoMatrix = "dpoMatrix",
                dppMatrix = "dppMatrix", corMatrix = "corMatrix")
  kinds <- c(d = "dMatrix", l = "lMatrix", n = "nMatrix")
  structures <- c(g = "generalMatrix", s = "symmetricMatrix", t = "triangularMatrix")
  storages <- c(C = "CsparseMatrix", R = "RsparseMatrix", T = "TsparseMatrix")
  dense <- list(ge = c("generalMatrix", "unpackedMatrix"), sy = c("symmetricMatrix", "unpackedMatrix"),
                tr = c("triangularMatrix", "unpackedMatrix"), sp = c("symmetricMatrix", "packedMatrix"),
                tp = c("triangularMatrix", "packedMatrix"))
  for (kind in names(kinds)) {
    for (structure in names(structures)) for (storage in names(storages)) {
      found[[paste0(kind, structure, storage, "Matrix")]] <- c(kinds[[kind]], structures[[structure]], storages[[storage]])
    }
    for (form in names(dense)) found[[paste0(kind, form, "Matrix")]] <- c(kinds[[kind]], dense[[form]])
  }
  found
}
.is_dense_class <- function(class) {
  class %in% c("denseMatrix", "unpackedMatrix", "packedMatrix", "ddenseMatrix", "ldenseMatrix", "ndenseMatrix", "dpoMatrix", "dppMatrix",
               "corMatrix") || grepl("^[dln](ge|sy|tr|sp|tp)Matrix$", class)
}
# What has no place for a zero inside of a block.
.without_zeros <- c("nMatrix", "triangularMatrix", "diagonalMatrix", "indMatrix", "pMatrix")

.as_matrix_class <- function(from, steps, dense) {
  if (dense) {
    .expect_one_head(from, "a Matrix")
    .expect_small(from)
    x <- methods::as(methods::as(.to_dense(from), "unpackedMatrix"), "generalMatrix")
  } else {
    x <- .to_sparse(from, drop = any(steps %in% .without_zeros))
  }
  for (class in steps) x <- methods::as(x, class)
  x
}
.steps <- .steps_to()
for (.class in names(.steps)) local({
  steps <- .steps[[.class]]
  dense <- .is_dense_class(.class)
  setAs("BlockMatrix", .class, function(from) .as_matrix_class(from, steps, dense))
})
rm(.class, .steps, .steps_to, .is_dense_class)
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
