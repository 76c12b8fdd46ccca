# SPDX-License-Identifier: Apache-2.0
# Conversions to and from base R and the Matrix package.

test_that("as() makes every class of Matrix that fits", {
  a <- random_matrix(c(20, 20), c(4, 4), 0.5)
  m <- as.matrix(a)
  classes <- c(Matrix = "dgCMatrix", sparseMatrix = "dgCMatrix", CsparseMatrix = "dgCMatrix", dMatrix = "dgCMatrix",
               generalMatrix = "dgCMatrix", dsparseMatrix = "dgCMatrix", dgCMatrix = "dgCMatrix",
               RsparseMatrix = "dgRMatrix", dgRMatrix = "dgRMatrix", TsparseMatrix = "dgTMatrix", dgTMatrix = "dgTMatrix",
               denseMatrix = "dgeMatrix", unpackedMatrix = "dgeMatrix", dgeMatrix = "dgeMatrix")
  for (class in names(classes)) {
    expect_silent(x <- as(a, class))
    expect_identical(as.vector(class(x)), classes[[class]])
    expect_identical(unname(as.matrix(x)), m)
  }
  for (class in c("lMatrix", "lgCMatrix", "nMatrix", "ngCMatrix")) {
    x <- as(a, class)
    expect_s4_class(x, if (startsWith(class, "l")) "lgCMatrix" else "ngCMatrix")
    expect_identical(unname(as.matrix(x)), m != 0)
  }
  expect_identical(as(a, "matrix"), m)
  expect_identical(as(a, "array"), m)
  expect_identical(as(a, "vector"), as.vector(m))
  expect_identical(as(a, "numeric"), as.vector(m))
  expect_identical(as.vector(a), as.vector(m))
  expect_identical(as.numeric(a), as.vector(m))
  expect_identical(as.vector(as(a, "sparseVector")), as.vector(m))
  expect_identical(as(a, "data.frame"), as.data.frame(m))
  expect_identical(as.data.frame(a), as.data.frame(m))
  expect_true(as(a, "BlockLayout") == a@layout)
})

test_that("stored zeros stay, unless one asks otherwise", {
  m <- matrix(c(0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 2, 7, 0, 0, 0, 3), 4)
  for (dtype in c("float64", "float32")) {
    a <- block_matrix(m[, 1:3], block = c(2, 2), dtype = dtype) # ragged: no padding comes out
    s <- as(a, "CsparseMatrix")
    expect_true(validObject(s))
    expect_identical(as.matrix(s), m[, 1:3])
    expect_identical(as.double(length(s@x)), block_elements(a))
    expect_identical(block_sparse(a), s)
    for (x in list(block_sparse(a, drop0 = TRUE), drop0(a), drop0(s))) expect_identical(x, as(m[, 1:3], "CsparseMatrix"))
    for (class in c("TsparseMatrix", "RsparseMatrix")) expect_identical(as.double(length(as(a, class)@x)), block_elements(a))
    expect_identical(sum(as(a, "nMatrix")), sum(m[, 1:3] != 0))
    expect_identical(as.data.frame(summary(a))$x, m[, 1:3][m[, 1:3] != 0])
  }
  file <- tempfile()
  writeMM(a, file)
  expect_identical(as.double(length(readMM(file)@x)), block_elements(a))
  expect_refused(block_sparse(a, drop0 = NA), "argument", "drop0 is NA")
  expect_refused(block_sparse(m), "argument", "expected a BlockMatrix")
  expect_refused(block_sparse(random_matrix(c(6, 8), c(2, 4), heads = 3)), "shape", "3 heads")
})

test_that("every class is reached that Matrix reaches, and those that it names", {
  a <- random_matrix(c(8, 8), c(4, 4), 0.9)
  forms <- list(general = a, symmetric = crossprod(a) + Diagonal(8), triangular = block_matrix(triu(as.matrix(a)), block = 4),
                diagonal = block_matrix(diag(1:8 + 0), block = 4), permutation = block_matrix(diag(8)[c(2, 1, 3:8), ], block = 4))
  quiet <- function(call) tryCatch(suppressMessages(suppressWarnings(call)), error = function(e) NULL)
  classes <- setdiff(names(getClass("Matrix")@subclasses), c("iMatrix", "zMatrix"))
  for (class in classes) for (form in names(forms)) {
    x <- forms[[form]]
    expected <- quiet(as(block_sparse(x, drop0 = TRUE), class))
    found <- quiet(as(x, class))
    if (is.null(expected)) next
    expect_s4_class(found, class)
    expect_equal(unname(as.matrix(found)), unname(as.matrix(expected)), label = paste(form, class))
  }
  for (class in c("dsTMatrix", "dsRMatrix", "dpoMatrix", "dppMatrix", "dsyMatrix", "dspMatrix")) {
    x <- as(forms$symmetric, class)
    expect_s4_class(x, class)
    expect_identical(unname(as.matrix(x)), as.matrix(forms$symmetric))
    expect_error(as(a, class))
  }
  for (class in c("dtTMatrix", "dtRMatrix", "dtrMatrix", "dtpMatrix")) {
    x <- as(forms$triangular, class)
    expect_s4_class(x, class)
    expect_identical(unname(as.matrix(x)), as.matrix(forms$triangular))
  }
  for (class in c("lgTMatrix", "ngRMatrix", "ltCMatrix", "nsCMatrix")) {
    x <- as(forms[[c(g = "general", t = "triangular", s = "symmetric")[[substr(class, 2, 2)]]]], class)
    expect_s4_class(x, class)
  }
  huge <- block_matrix(block_layout(1, 1, dim = c(2e5, 2e5)))
  for (class in c("dpoMatrix", "dsyMatrix", "ngeMatrix", "packedMatrix")) expect_refused(as(huge, class), "unsupported", "298 GiB")
})

test_that("symmetric, triangular and diagonal matrices become those classes", {
  a <- random_matrix(c(20, 20), c(4, 4), 0.5)
  symmetric <- a + t(a)
  for (class in c("symmetricMatrix", "dsCMatrix")) {
    x <- as(symmetric, class)
    expect_s4_class(x, "dsCMatrix")
    expect_identical(unname(as.matrix(x)), as.matrix(symmetric))
    expect_error(as(a, class), "symmetric")
  }
  upper <- as.matrix(a)
  upper[lower.tri(upper)] <- 0
  for (class in c("triangularMatrix", "dtCMatrix")) {
    x <- as(block_matrix(upper, block = 4), class)
    expect_s4_class(x, "dtCMatrix")
    expect_identical(unname(as.matrix(x)), upper)
    expect_error(as(a, class), "triangular")
  }
  for (class in c("diagonalMatrix", "ddiMatrix")) {
    x <- as(block_matrix(diag(1:10 + 0), block = 4), class)
    expect_s4_class(x, "ddiMatrix")
    expect_identical(diag(x), 1:10 + 0)
    expect_error(as(a, class), "diagonal")
  }
})

test_that("block matrices are made of every class of Matrix", {
  m <- as.matrix(random_matrix(c(20, 20), c(4, 4), 0.5))
  sparse <- as(m, "CsparseMatrix")
  symmetric <- forceSymmetric(sparse)
  for (x in list(m, sparse, as(sparse, "RsparseMatrix"), as(sparse, "TsparseMatrix"), as(m, "unpackedMatrix"), symmetric,
                 as(symmetric, "TsparseMatrix"), as(symmetric, "denseMatrix"), pack(forceSymmetric(Matrix(m, sparse = FALSE))),
                 tril(sparse), Diagonal(20), Diagonal(20, 2), as(20:1, "pMatrix"), sparse != 0, as(sparse, "nMatrix"))) {
    wanted <- unname(as.matrix(x)) + 0
    for (a in list(as(x, "BlockMatrix"), block_matrix(x, block = 4), block_matrix(x, block = c(3, 5)))) {
      expect_s4_class(a, "BlockMatrix")
      expect_identical(as.matrix(a), wanted)
    }
  }
  frame <- data.frame(a = c(1, 0, 0), b = 0:2, row.names = c("p", "q", "r"))
  for (a in list(as(frame, "BlockMatrix"), block_matrix(frame, block = 2))) expect_identical(as.matrix(a), as.matrix(frame))
  expect_identical(as(block_matrix(frame, block = 2), "data.frame"), transform(frame, b = as.double(b)))
  expect_refused(block_matrix(data.frame(a = letters)), "argument", "x is c(\"a\", ")
  expect_refused(block_matrix(1:4), "argument", "x is c(1, 2, 3, 4), expected a matrix")
})

test_that("an entry that is 0 keeps its block", {
  s <- sparseMatrix(c(1, 9), c(1, 9), x = c(0, 1))
  expect_identical(block_count(block_matrix(s, block = 4)), 2L)
  expect_identical(block_count(block_matrix(drop0(s), block = 4)), 1L)
  expect_identical(block_count(block_matrix(as.matrix(s), block = 4)), 1L)
})

test_that("a block matrix is made of another in other blocks, or of another dtype", {
  a <- random_matrix()
  expect_identical(block_matrix(a), a)
  for (block in list(5, c(2, 7), c(4, 3))) {
    b <- block_matrix(a, block = block)
    expect_identical(block_dim(b), rep_len(as.double(block), 2))
    expect_identical(as.matrix(b), as.matrix(a))
  }
  half <- block_matrix(a, dtype = "float32", block = 6)
  expect_identical(block_dtype(half), "float32")
  expect_identical(block_dtype(block_matrix(half, block = 2)), "float32")
  layout <- random_layout(c(21, 17), c(4, 3), seed = 9)
  expect_identical(as.matrix(block_matrix(a, layout = layout)), as.matrix(block_project(a, layout)))
  finer <- random_layout(c(21, 17), c(2, 2), seed = 9)
  inside <- as.matrix(block_matrix(finer, values = array(1, c(2, 2, block_count(finer))))) == 1
  expect_identical(as.matrix(block_matrix(a, layout = finer)), as.matrix(a) * inside)
  expect_refused(block_matrix(a, layout = layout, block = 4), "argument", "block is given beside layout")
  expect_refused(block_matrix(a, block = 0), "argument", "block is 0")
  expect_refused(block_matrix(a, layout = small_layout()), "shape")
})

test_that("large matrices do not become dense unasked", {
  a <- block_matrix(block_pattern("banded", c(20000, 20000), 4), init = "normal", seed = 1)
  expect_refused(as.vector(a), "unsupported", "2.98 GiB", "as.vector(as.array(x))")
  expect_refused(as.numeric(a), "unsupported", "2.98 GiB")
  expect_refused(as(a, "vector"), "unsupported", "2.98 GiB")
  expect_refused(as(a, "denseMatrix"), "unsupported", "2.98 GiB", "as.matrix(x)")
  expect_refused(as(a, "dgeMatrix"), "unsupported", "2.98 GiB")
  expect_refused(as.data.frame(a), "unsupported", "2.98 GiB", "as.data.frame(as.matrix(x))")
  expect_s4_class(as(a, "TsparseMatrix"), "dgTMatrix")
  expect_s4_class(as(a, "RsparseMatrix"), "dgRMatrix")
  expect_s4_class(as(a, "lMatrix"), "lgCMatrix")
})

test_that("objects whose slots do not fit together are not valid", {
  a <- random_matrix()
  expect_true(validObject(a))
  expect_true(validObject(block_cast(a, "bfloat16")))
  expect_true(validObject(random_layout(c(6, 8), c(2, 4), heads = 3)))
  spoilt <- function(x, slot, value) {
    methods::slot(x, slot, check = FALSE) <- value
    x
  }
  for (x in list(spoilt(a, "values", block_values(a)[-1]), spoilt(a, "values", 1L), spoilt(a, "values", raw(3)),
                 spoilt(a, "dtype", "float8"), spoilt(a, "dtype", "float32"), spoilt(a, "layout", small_layout()),
                 spoilt(a, "layout", new("BlockLayout")), spoilt(a@layout, "frame", 1:4 + 0),
                 spoilt(a@layout, "frame", c(21, 17, 0, 3, 1)), spoilt(a@layout, "pointers", 0),
                 spoilt(a@layout, "columns", 1L), spoilt(a@layout, "identity", character()))) {
    expect_error(validObject(x), "invalid class")
  }
  expect_error(new("BlockMatrix", layout = a@layout, values = 1, dtype = "float64"), "does not have a number for each")
})

test_that("Matrix() refuses what it would turn into one column", {
  a <- random_matrix()
  expect_refused(Matrix(a), "unsupported", "use as(x, \"CsparseMatrix\")")
  expect_refused(Matrix(a, sparse = TRUE), "unsupported", "one column")
  expect_identical(as.matrix(Matrix(a, 21, 17)), as.matrix(a))
  expect_identical(as.vector(a), as.vector(as.matrix(a)))
})

test_that("tables of counts are matrices", {
  rows <- c("a", "b", "b", "c")
  cols <- c("u", "v", "v", "u")
  for (counts in list(table(rows, cols), xtabs(~ rows + cols))) {
    found <- block_matrix(counts, block = 2)
    expect_equal(as.matrix(found), matrix(c(1, 0, 1, 0, 2, 0), 3, dimnames = list(rows = c("a", "b", "c"), cols = c("u", "v"))))
  }
  expect_refused(block_matrix(table(rows)), "shape", "1 dimensions")
})
