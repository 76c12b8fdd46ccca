# SPDX-License-Identifier: Apache-2.0
# Systems of equations and factorisations, sparse throughout.

spd <- function(n = 20, block = 4) {
  a <- block_matrix(block_pattern("banded", c(n, n), block), init = "normal", seed = 3)
  a + t(a) + block_matrix(block_pattern("block_diagonal", c(n, n), block), init = "identity", scale = 14)
}
general <- function(n = 20, block = 4) {
  block_matrix(block_pattern("banded", c(n, n), block), init = "normal", seed = 3) +
    block_matrix(block_pattern("block_diagonal", c(n, n), block), init = "identity", scale = 4)
}

test_that("systems of equations are solved for every kind of right-hand side", {
  b <- rnorm(20)
  two <- cbind(p = b, q = 1)
  for (a in list(general(), spd())) {
    m <- as.matrix(a)
    expect_equal(solve(a, b), solve(m, b))
    expect_equal(solve(a, seq_len(20)), solve(m, seq_len(20)))
    expect_equal(unname(solve(a, two)), unname(solve(m, two)))
    expect_equal(unname(solve(a, data.frame(b))), unname(solve(m, cbind(b))))
    expect_equal(unname(as.matrix(solve(a))), solve(m))
    for (id in list(Diagonal(20), Matrix(diag(20)), Matrix(diag(20), sparse = FALSE), as(as(diag(20), "unpackedMatrix"), "generalMatrix"))) {
      x <- solve(a, id)
      expect_s4_class(x, "Matrix")
      expect_equal(unname(as.matrix(x)), solve(m))
    }
    expect_equal(unname(as.matrix(solve(a, Matrix(b)))), cbind(solve(m, b)))
    expect_equal(solve(a, sparseVector(2, 3, 20)), solve(m, replace(numeric(20), 3, 2)))
    expect_equal(unname(as.matrix(solve(a, a))), diag(20))
    expect_equal(unname(as.matrix(solve(as(a, "dgCMatrix"), a))), diag(20))
    expect_equal(unname(as.matrix(solve(Diagonal(20, 2), a))), m / 2)
    expect_equal(unname(solve(m, a)), diag(20))
  }
})

test_that("factors are kept with a matrix as long as it has its values", {
  b <- rnorm(20)
  for (a in list(general(), spd(), block_cast(general(), "float32"))) {
    untouched <- block_matrix(as(a, "BlockLayout"), values = block_values(a))
    bytes <- length(serialize(a, NULL))
    x <- solve(a, b)
    expect_gt(length(tartan:::tartan_r_kept_sparse(a)@factors), 0)
    expect_identical(solve(a, b), x)
    expect_equal(as.numeric(determinant(a)$modulus), as.numeric(determinant(as.matrix(a))$modulus))
    expect_equal(length(serialize(a, NULL)), bytes)
    if (block_dtype(a) == "float64") expect_true(identical(a, untouched))
    copy <- a
    block_values(copy) <- 2 * block_values(a)
    expect_equal(solve(copy, b), x / 2)
    expect_identical(solve(a, b), x)
    if (block_dtype(a) == "float64") {
      changed <- a
      changed@values[1L] <- changed@values[1L] + 5
      expect_equal(solve(changed, b), solve(as.matrix(changed), b))
      expect_equal(as.numeric(determinant(changed)$modulus), as.numeric(determinant(as.matrix(changed))$modulus))
    }
    named <- a
    dimnames(named) <- list(letters[1:20], letters[1:20])
    expect_equal(solve(named, b), solve(as.matrix(named), b))
    restored <- unserialize(serialize(a, NULL))
    expect_equal(solve(restored, b), x)
    close(a)
    expect_error(solve(a, b), "closed")
  }
  a <- spd()
  dimnames(a) <- list(letters[1:20], letters[1:20])
  expect_equal(as.matrix(chol(a)), chol(as.matrix(a)))
  expect_identical(chol(a), chol(a))
})

test_that("solutions have the names that base R gives them", {
  for (a in list(general(), spd())) {
    dimnames(a) <- list(paste0("r", 1:20), paste0("c", 1:20))
    m <- as.matrix(a)
    b <- rnorm(20)
    expect_equal(solve(a, b), solve(m, b))
    expect_equal(solve(a, cbind(p = b, q = 1)), solve(m, cbind(p = b, q = 1)))
    expect_equal(as.matrix(solve(a)), solve(m))
    expect_equal(as.matrix(solve(a, Matrix(cbind(p = b, q = 1)))), solve(m, cbind(p = b, q = 1)))
  }
})

test_that("factorisations are Matrix's sparse ones", {
  a <- spd()
  m <- as.matrix(a)
  b <- rnorm(20)
  expect_s4_class(Cholesky(a), "CHMfactor")
  expect_equal(as.vector(solve(Cholesky(a), b)), solve(m, b))
  expect_s4_class(Cholesky(a, LDL = FALSE), "dCHMsimpl")
  expect_s4_class(chol(a), "dtCMatrix")
  expect_equal(unname(as.matrix(chol(a))), chol(m))
  expect_s4_class(lu(general()), "sparseLU")
  expect_s4_class(qr(general()), "sparseQR")
  expect_equal(Matrix::qr.coef(qr(general()), b), solve(as.matrix(general()), b))
  for (x in list(a, general())) {
    expect_equal(determinant(x), determinant(as.matrix(x)), ignore_attr = TRUE)
    expect_equal(det(x), det(as.matrix(x)))
    expect_equal(as.numeric(determinant(x, logarithm = FALSE)$modulus), abs(det(as.matrix(x))))
  }
  indefinite <- a - block_matrix(block_pattern("block_diagonal", c(20, 20), 4), init = "identity", scale = 20)
  expect_equal(solve(indefinite, b), solve(as.matrix(indefinite), b))
  expect_equal(det(indefinite), det(as.matrix(indefinite)))
})

test_that("a matrix that is symmetric but for rounding is solved as such, as by Matrix", {
  a <- spd()
  m <- as.matrix(a)
  b <- rnorm(20)
  near <- m
  near[2, 1] <- near[2, 1] * (1 + 2^-52)
  far <- m
  far[2, 1] <- far[2, 1] * (1 + 1e-10)
  for (wide in list(list(m, TRUE), list(near, TRUE), list(far, FALSE))) {
    x <- block_matrix(wide[[1]], block = 4)
    s <- block_sparse(x)
    expect_identical(isSymmetric(x), wide[[2]])
    expect_identical(isSymmetric(s), wide[[2]])
    expect_identical(isSymmetric(x, tol = 0), isSymmetric(s, tol = 0))
    expect_s4_class(solve(x), if (wide[[2]]) "sparseMatrix" else "denseMatrix")
    expect_equal(unname(as.matrix(solve(x))), solve(wide[[1]]))
    expect_equal(solve(x, b), solve(wide[[1]], b))
    if (wide[[2]]) expect_s4_class(Cholesky(x), "CHMfactor") else expect_refused(Cholesky(x), "argument", "not symmetric")
  }
  expect_s4_class(solve(general(), sparse = TRUE), "sparseMatrix")
})

test_that("symmetry is what isSymmetric() of Matrix says", {
  set.seed(5)
  for (k in 1:200) {
    n <- sample(9, 1)
    m <- matrix(ifelse(runif(n * n) < 0.5, round(rnorm(n * n), 1), 0), n)
    if (k %% 4 > 0) m <- m + t(m)
    if (k %% 4 == 2) m[sample(n * n, 1)] <- sample(c(NA, NaN, Inf, 1e-15, 1e300), 1)
    if (k %% 4 == 3) m <- m * (1 + 1e-14 * rnorm(n * n))
    x <- block_matrix(m, block = sample(4, 2, replace = TRUE))
    s <- block_sparse(x, drop0 = TRUE)
    for (tol in c(0, 100 * .Machine$double.eps, 1e-13, 0.3)) {
      if (tol == 0 && anyNA(m)) next # Matrix compares NA with itself there
      expect_identical(isSymmetric(x, tol = tol), isSymmetric(m, tol = tol), label = paste(k, tol))
    }
  }
})

test_that("factors of Matrix are updated by block matrices", {
  a <- spd()
  layout <- a@layout
  b <- rnorm(20)
  for (super in c(FALSE, TRUE)) for (perm in c(FALSE, TRUE)) for (LDL in if (super) FALSE else c(FALSE, TRUE)) {
    factor <- Cholesky(a, perm = perm, LDL = LDL, super = super)
    other <- a * 2 + Diagonal(20)
    again <- update(factor, other)
    expect_identical(class(again), class(factor))
    expect_equal(as.vector(solve(again, b)), solve(as.matrix(other), b))
    expect_equal(as.vector(solve(update(factor, other, mult = 3), b)), solve(as.matrix(other) + diag(3, 20), b))
    expect_identical(as.vector(solve(factor, b)), as.vector(solve(Cholesky(a, perm = perm, LDL = LDL, super = super), b)))
    expect_equal(as.vector(solve(update(factor, as(other, "symmetricMatrix")), b)), solve(as.matrix(other), b)) # by Matrix's own method
    # Elements that the analysis did not see: far from the diagonal, or where a block had a zero.
    full <- block_matrix(as.matrix(a) + 0.01, block = 4)
    expect_equal(as.vector(solve(update(factor, full), b)), solve(as.matrix(full), b))
    diagonal <- Cholesky(block_matrix(layout, init = "identity", scale = 2), perm = perm, LDL = LDL, super = super)
    expect_equal(as.vector(solve(update(diagonal, a), b)), solve(as.matrix(a), b))
    # Cholesky(drop0 = FALSE) analyses the layout: there is room for any numbers on it.
    whole <- Cholesky(block_matrix(layout, init = "identity", scale = 2), perm = perm, LDL = LDL, super = super, drop0 = FALSE)
    expect_true(tartan:::tartan_r_factor_fits(whole, as(block_sparse(a), "symmetricMatrix")))
    if (!super) expect_false(tartan:::tartan_r_factor_fits(diagonal, as(block_sparse(a), "symmetricMatrix")))
    expect_equal(as.vector(solve(update(whole, a), b)), solve(as.matrix(a), b))
    wide <- random_matrix(c(20, 32), c(4, 4))
    expect_equal(as.vector(solve(update(factor, wide, mult = 1), b)), solve(tcrossprod(as.matrix(wide)) + diag(20), b))
    expect_refused(update(factor, spd(24)), "shape", "parent has 24 rows, expected 20")
  }
  factor <- Cholesky(a)
  added <- random_matrix(c(20, 3), c(4, 3))
  for (up in list(TRUE, "+")) {
    expect_equal(as.vector(solve(updown(up, added, factor), b)), solve(as.matrix(a) + tcrossprod(as.matrix(added)), b))
  }
  expect_equal(as.vector(solve(updown(FALSE, added * 0.01, factor), b)), solve(as.matrix(a) - 1e-4 * tcrossprod(as.matrix(added)), b))
  expect_error(update(factor), "parent")
  expect_error(update(factor, "x"))
})

test_that("large systems stay sparse", {
  a <- spd(20000, 16) # 3 GB as a dense matrix
  x <- rnorm(20000)
  most <- peak_memory({
    expect_equal(solve(a, drop(a %*% x)), x)
    factor <- Cholesky(a)
    expect_equal(2 * sum(log(Matrix::diag(expand(factor)$L))), as.numeric(determinant(a)$modulus))
    expect_s4_class(lu(a), "sparseLU")
    expect_s4_class(chol(a), "dtCMatrix")
    indefinite <- a - block_matrix(block_pattern("block_diagonal", c(20000, 20000), 16), init = "identity", scale = 20)
    right <- sparseMatrix(i = c(5, 20000), j = 1:2, x = c(1, 2), dims = c(20000, 2))
    for (x in list(a, indefinite, general(20000, 16))) {
      y <- solve(x, right)
      expect_s4_class(y, "sparseMatrix")
      expect_equal(x %*% as.matrix(y), as.matrix(right), tolerance = 1e-8)
    }
    blocks <- block_matrix(block_pattern("block_diagonal", c(20000, 20000), 4), init = "orthogonal", seed = 1)
    expect_s4_class(solve(blocks), "sparseMatrix")
    expect_equal(solve(blocks), block_sparse(t(blocks), drop0 = TRUE))
  })
  expect_lt(most, 1500) # of 3052 as a dense matrix
})

test_that("what cannot be solved is refused in R's terms", {
  a <- general()
  flat <- random_matrix(c(8, 12))
  expect_refused(solve(a, 1:5), "shape", "b has 5 rows, expected 20 (rows of a)")
  expect_refused(solve(a, Matrix(1, 3, 2)), "shape", "b has 3 rows, expected 20")
  expect_refused(solve(flat), "shape", "a is 8 x 12, expected a square matrix")
  expect_refused(solve(flat, 1:8), "shape", "8 x 12")
  expect_refused(solve(a, "x"), "argument", "b is \"x\", expected numbers")
  for (f in list(determinant, chol, lu, Cholesky)) expect_refused(f(flat), "shape", "8 x 12, expected a square matrix")
  expect_refused(Cholesky(a), "argument", "A is not symmetric, expected a symmetric matrix")
  expect_refused(chol(a), "argument", "x is not symmetric")
  expect_refused(solve(random_matrix(c(6, 6), c(2, 2), heads = 3), 1:6), "shape", "3 heads")
  ctx <- tartan_context("cpu")
  expect_refused(solve(to_device(a, ctx), 1:20), "unsupported", "to_host")
})

test_that("expm and Schur are those of Matrix", {
  a <- random_matrix(c(11, 11), c(4, 3)) / 4
  m <- as(as.matrix(a), "generalMatrix")
  expect_equal(as.matrix(expm(a)), as.matrix(expm(m)), tolerance = 1e-13)
  expect_equal(Schur(a)@EValues, Schur(m)@EValues, tolerance = 1e-13)
  expect_equal(Schur(a, FALSE)$EValues, Schur(m, FALSE)$EValues, tolerance = 1e-13)
  expect_refused(expm(random_matrix()), "shape", "x is 21 x 17, expected a square matrix")
  expect_refused(Schur(random_matrix()), "shape", "square")
  expect_refused(expm(block_matrix(block_layout(1, 1, dim = c(2e5, 2e5)))), "unsupported", "298 GiB")
})

test_that("elements of an inverse come without its columns", {
  n <- 23
  set.seed(5)
  near <- bandSparse(n, k = 0:3, diagonals = list(rep(4, n), rnorm(n), rnorm(n) / 2, rnorm(n) / 4))
  s <- forceSymmetric(crossprod(near)[c(7:n, 1:6), c(7:n, 1:6)])
  a <- block_matrix(s, block = 4)
  z <- unname(as.matrix(solve(s)))
  expect_equal(diag_inverse(a), diag(z))
  expect_equal(diag_inverse(a), unname(diag(solve(a))))
  expect_equal(diag_inverse(s), diag(z))
  for (factor in list(Cholesky(s), Cholesky(a, LDL = FALSE), Cholesky(s, super = TRUE), update(Cholesky(s), a))) expect_equal(diag_inverse(factor), diag(z))
  expect_equal(diag_inverse(update(Cholesky(a), a, mult = 2)), diag(solve(as.matrix(s) + diag(2, n))))
  some <- selected_inverse(a)
  expect_s4_class(some, "dsCMatrix")
  here <- as.matrix(some) != 0
  expect_true(all(here[as.matrix(s) != 0]))
  expect_true(nnzero(some) < n^2)
  expect_equal(as.matrix(some)[here], z[here])
  named <- block_matrix(s, block = 4)
  dimnames(named) <- list(letters[seq_len(n)], letters[seq_len(n)])
  expect_identical(names(diag_inverse(named)), letters[seq_len(n)])
  expect_identical(rownames(selected_inverse(named)), letters[seq_len(n)])
  expect_equal(diag_inverse(block_matrix(diag(1:3), block = 2)), 1 / (1:3))
  expect_identical(diag_inverse(block_matrix(diag(4, 1), block = 2)), 0.25)
  expect_refused(diag_inverse(block_matrix(diag(c(1, -1)), block = 2)), "argument", "not positive definite")
  expect_refused(diag_inverse(block_matrix(matrix(1:4, 2), block = 2)), "argument", "not symmetric")
  expect_refused(selected_inverse(1:3), "argument", "expected a BlockMatrix")
})
