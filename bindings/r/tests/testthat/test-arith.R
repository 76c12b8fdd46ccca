# SPDX-License-Identifier: Apache-2.0
# Arithmetic with block matrices: classes, dtypes, heads, missing values and refusals (the numbers are in test-manners.R).

test_that("results stay block-sparse where zeros stay zero", {
  a <- random_matrix()
  b <- random_matrix(seed = 4)
  m <- as.matrix(a)
  v <- seq_len(21) + 0
  for (x in list(a * 2, 2L * a, a / 4, -a, a + b, a - b, a * b, a * v, a / v, a^2, a %% 2, a * m, abs(a), sqrt(abs(a)),
                 round(a, 1), a + t(t(b)), a + as(b, "dgCMatrix"), as(b, "TsparseMatrix") - a, a * as(b, "dgCMatrix"),
                 a + 0, sweep(a, 2, 1:17, "*"), scale(a, FALSE), tril(a), kronecker(a, diag(2)), cbind(a, b), a[1:3, ])) {
    expect_s4_class(x, "BlockMatrix")
  }
  for (x in list(a > 0, a != b, a < b, is.na(a), a & b, a | b, a & TRUE, 0 < a)) expect_s4_class(x, "lgCMatrix")
  for (x in list(a + 1, a / b, a^0, exp(a), a == 0, !a, a + m, a * NA)) expect_true(is.matrix(x))
  expect_identical(block_identity(a + a), block_identity(a))
  expect_identical(block_identity(a + b), block_identity(block_union(a, b)))
  expect_identical(block_identity(a * b), block_identity(block_intersection(a, b)))
  expect_identical(as.matrix(a / rowSums(m)), m / rowSums(m)) # the same bits
  expect_identical(as.matrix(a + block_reblock(b, c(5, 2))), m + as.matrix(b))
})

test_that("every class of Matrix is an operand", {
  set.seed(2)
  s <- rsparsematrix(12, 12, 0.3, symmetric = TRUE)
  a <- random_matrix(c(12, 12), c(4, 3))
  m <- as.matrix(a)
  for (x in list(s, triu(s), as(s, "TsparseMatrix"), as(s, "RsparseMatrix"), as(s, "nMatrix"), s > 0, Diagonal(12),
                 Diagonal(12, 1:12), as(12:1, "pMatrix"), as(s, "unpackedMatrix"), as(s, "packedMatrix"),
                 Matrix(m), as(s, "unpackedMatrix") > 0, Diagonal(12, TRUE))) {
    y <- as.matrix(x)
    for (f in list(`+`, `-`, `*`, `<`, `&`, `|`)) {
      expect_identical(unname(as.matrix(f(a, x))), unname(f(m, y)))
      expect_identical(unname(as.matrix(f(x, a))), unname(f(y, m)))
    }
    expect_identical(unname(as.matrix(cbind(a, x))), unname(cbind(m, y)))
    expect_identical(unname(as.matrix(rbind(x, a))), unname(rbind(y, m)))
    expect_identical(unname(as.matrix(kronecker(x, a))), unname(kronecker(y, m)))
  }
  expect_s4_class(Diagonal(12) - 0.3 * a, "BlockMatrix")
  expect_identical(as.matrix(Diagonal(12) - 0.3 * a), diag(12) - 0.3 * m)
  expect_identical(as.matrix(a - Diagonal(12, 1:12)), m - diag(1:12))
  v <- as(c(0, 2, rep(0, 10)), "sparseVector")
  expect_identical(as.matrix(a * v), m * as.vector(v))
  expect_identical(unname(as.matrix(a * data.frame(m))), m * m)
})

test_that("dtypes are kept, and two become the wider", {
  a <- block_cast(random_matrix(), "float32")
  b <- random_matrix(seed = 4)
  half <- block_cast(b, "float16")
  brain <- block_cast(b, "bfloat16")
  for (x in list(a * 2, a / (1:21), abs(a), a[1:3, ], t(a) |> t(), rbind(a, a), a + half, half + brain, a * a, tril(a), a + a)) {
    expect_identical(block_dtype(x), "float32")
  }
  for (x in list(a + b, b - a, a * b, b * a, Diagonal(21, 1)[, 1:17] + b)) expect_identical(block_dtype(x), "float64")
  expect_identical(block_dtype(half * half), "float16")
  expect_identical(as.matrix(a + b), as.matrix(a) + as.matrix(b))
  expect_identical(as.matrix(half + brain), as.matrix(block_cast(block_matrix(as.matrix(half) + as.matrix(brain)), "float32")))
  a[2, 3] <- 0.1
  expect_identical(block_dtype(a), "float32")
  holed <- random_matrix()
  holed[2, 3] <- NaN # products of such matrices go over the union of the layouts
  expect_identical(block_dtype(holed * a), "float64")
  expect_identical(as.matrix(holed * a), as.matrix(holed) * as.matrix(a))
  expect_identical(block_dtype(half * brain), "float32")
  expect_equal(a[2, 3], 0.1, tolerance = 1e-7)
})

test_that("heads go along", {
  h <- random_matrix(c(6, 8), c(4, 3), heads = 3)
  x <- as.array(h)
  expect_identical(as.array(h * 2), x * 2)
  expect_identical(as.array(h * 1:6), x * 1:6)
  expect_identical(as.array(h + h), x + x)
  expect_identical(h + 1, x + 1)
  expect_identical(as.array(h * x), x * x)
  expect_identical(as.array(abs(h)), abs(x))
  expect_equal(sum(h), sum(x))
  expect_identical(range(h), range(x))
  expect_identical(as.array(triu(h, 2))[, , 3], ifelse(col(x[, , 3]) - row(x[, , 3]) >= 2, x[, , 3], 0))
  expect_refused(h + random_matrix(c(6, 8), c(4, 3)), "shape", "6 x 8 x 3")
  expect_true(all.equal(h, h))
})

test_that("NA and NaN stay what they are where values only move", {
  m <- matrix(c(1, NA, 0, NaN, 5, 6, NA, 0, 9), 3)
  a <- block_matrix(m, block = 2)
  for (x in list(t(t(a)), a[1:3, 3:1][, 3:1], rbind(a[1, , drop = FALSE], a[2:3, ]), cbind(a[, 1:2], a[, 3]), a + 0, a * 1, abs(abs(a)), a[c(1, 2, 3), ],
                 block_reblock(a, 3), { b <- a; b[] <- m; b }, { b <- a; b[cbind(1:3, 1:3)] <- diag(m); b })) {
    expect_identical(is.nan(as.matrix(x)), is.nan(m))
    expect_identical(is.na(as.matrix(x)), is.na(m))
  }
  expect_identical(a[2:1, 1], c(NA, 1))
  expect_identical(a[1, 2], NaN)
  expect_identical(rowSums(a, na.rm = TRUE), rowSums(m, na.rm = TRUE))
  expect_identical(unname(as.matrix(a * 0)), m * 0)
  b <- block_matrix(Matrix(0, 3, 3, sparse = TRUE), block = 2)
  expect_identical(as.matrix(a * b), m * 0) # NA times a zero that is not stored
  b[1, 1] <- NA
  expect_identical(b[1, 1], NA_real_)
  expect_identical(sum(b, na.rm = TRUE), 0)
})

test_that("refused operands are named and left alone", {
  a <- random_matrix()
  before <- a
  values <- block_values(a) + 0
  expect_refused(a + random_matrix(c(17, 21), c(4, 3)), "shape", "e2 is 17 x 21, expected 21 x 17")
  expect_refused(a + matrix(1, 2, 2), "shape", "e2 is 2 x 2, expected 21 x 17")
  expect_refused(a * numeric(), "shape", "e2 has length 0")
  expect_refused(seq_len(400) * a, "shape", "e1 has length 400", "357")
  expect_refused(a + "x", "argument", "e2 is \"x\"")
  expect_refused(a * factor(1:21), "argument", "e2")
  expect_refused(a + Diagonal(21), "shape", "e2 is 21 x 21")
  expect_warning(a * 1:5, "multiple")
  expect_refused(norm(a, "x"), "argument", "type is \"X\"")
  expect_refused(rowSums(a, na.rm = NA), "argument", "na.rm is NA")
  expect_refused(rowSums(a, dims = 2), "unsupported", "dims is 2")
  expect_refused(sweep(a, 1, 1:5), "shape", "STATS has length 5, expected 21")
  expect_refused(scale(a, FALSE, 1:5), "shape", "scale has length 5, expected 17")
  expect_refused(scale(a, FALSE, letters[1:17]), "argument", "scale is c(\"a\"")
  expect_refused(tril(a, 0.5), "argument", "k is 0.5")
  expect_refused(a + to_device(a, tartan_context("cpu")), "unsupported", "e1 is in R's memory, but e2 is on cpu", "to_host")
  expect_refused({ a[22, 1] <- 1 }, "layout", "i[1] is 22, expected 1 to 21 (rows)")
  expect_refused({ a[1:2, 1:2] <- 1:3 }, "shape", "length 3, expected a divisor of 4")
  expect_refused({ a[1, 1] <- "x" }, "argument", "value is \"x\"")
  expect_refused({ a["x", 1] <- 1 }, "argument", "no names of rows")
  expect_refused({ a[1:2, ] <- as(diag(2), "dgCMatrix") }, "shape", "value is 2 x 2, expected 2 x 17")
  expect_refused({ diag(a) <- 1:3 }, "shape", "length 3, expected 1 or 17")
  expect_refused({ a[Matrix(TRUE, 2, 2)] <- 1 }, "shape", "i is 2 x 2, expected 21 x 17")
  expect_refused(a[a], "argument", "i is a BlockMatrix, expected a logical Matrix")
  expect_identical(a, before)
  expect_identical(block_values(a), values)
  close(before)
  expect_refused(a + 1, "handle", "closed")
})

test_that("assignment adds the blocks that it needs, and only those", {
  a <- block_matrix(block_layout(1, 1, c(12, 12), 4))
  b <- a
  b[9, 9] <- 0 # nothing is stored there, and nothing need be
  expect_identical(block_count(b), 1L)
  b[9, 9] <- 3
  expect_identical(block_count(b), 2L)
  expect_identical(block_count(a), 1L)
  b[9:12, ] <- 0
  expect_identical(block_count(b), 2L) # blocks stay
  expect_identical(sum(abs(b)), 0)
  b[, 1:2] <- as(matrix(c(1, rep(0, 23)), 12), "dgCMatrix")
  expect_identical(sum(b), 1)
  diag(b) <- 2
  expect_identical(block_count(b), 3L)
  expect_identical(diag(b), rep(2, 12))
  b[b > 1] <- b[b > 1] * 2
  expect_identical(diag(b), rep(4, 12))
  b[c(1, 1), 1] <- c(5, 6) # the last one stays
  expect_identical(b[1, 1], 6)
})

test_that("equality looks at values and names alone", {
  a <- random_matrix()
  b <- a
  a %*% rep(1, 17)
  solve(crossprod(as.matrix(a)) + diag(17)) # unrelated work
  expect_identical(a, b)
  expect_true(all.equal(a, b))
  expect_true(all.equal(a, block_grow(a, 1:2, 1:2)))
  expect_true(all.equal(a, block_reblock(a, c(5, 7))))
  expect_true(all.equal(a, as(a, "dgCMatrix")))
  attached <- get("all.equal", asNamespace("Matrix")) # what a program calls after library(Matrix)
  expect_true(attached(a, as(a, "dgCMatrix")))
  expect_true(attached(as(a, "dgCMatrix"), a))
  expect_match(attached(as(a, "dgCMatrix"), a * 2), "relative difference: 1")
  expect_true(all.equal(a, a * (1 + 1e-12)))
  expect_match(all.equal(a, a * 2), "relative difference: 1")
  expect_match(all.equal(a, t(a)), "Dimensions: target (21, 17, 1), current (17, 21, 1)", fixed = TRUE)
  expect_match(all.equal(a, 1), "current is numeric")
  expect_match(all.equal(a, matrix("x")), "current is matrix")
  expect_true(all.equal(as.matrix(a), a))
  expect_match(all.equal(as.matrix(a) * 2, a), "relative difference: 0.5")
  expect_match(all.equal(matrix("x"), a), "target is matrix, current is BlockMatrix")
  rownames(b) <- 1:21
  expect_match(all.equal(a, b)[1], "Dimnames")
  expect_true(all.equal(a, b, check.attributes = FALSE))
  s <- crossprod(random_matrix()) |> block_matrix(block = c(4, 3))
  expect_true(isSymmetric(s))
  s[1, 2] <- 99
  expect_false(isSymmetric(s))
  expect_false(isSymmetric(a))
})
