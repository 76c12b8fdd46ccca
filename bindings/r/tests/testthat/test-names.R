# SPDX-License-Identifier: Apache-2.0
# Dimnames go wherever the numbers go.

named_matrix <- function(dim = c(21, 17), block = c(4, 3), ...) {
  a <- random_matrix(dim, block, ...)
  dimnames(a) <- list(paste0("r", seq_len(dim[1])), paste0("c", seq_len(dim[2])))
  a
}

test_that("names are taken over and given back", {
  m <- matrix(1:4 + 0, 2, dimnames = list(c("p", "q"), NULL))
  for (x in list(m, as(m, "CsparseMatrix"), Matrix(m, sparse = FALSE), as(m, "TsparseMatrix"))) {
    a <- block_matrix(x, block = 2)
    expect_identical(dimnames(a), list(c("p", "q"), NULL))
    expect_identical(as.matrix(a), m)
    expect_identical(block_sparse(a, drop0 = TRUE), as(as(m, "CsparseMatrix"), "generalMatrix"))
  }
  expect_identical(dimnames(as(m, "BlockMatrix"))[[1]], c("p", "q"))
  expect_identical(dimnames(block_matrix(unname(m), block = 2)), list(NULL, NULL))
  expect_s4_class(block_matrix(Matrix(0, 2, 2), block = 2), "BlockMatrix")
  empty <- matrix(0, 0, 3, dimnames = list(character(), NULL))
  expect_identical(dimnames(block_matrix(empty, block = 2)), list(NULL, NULL))
})

test_that("names are set, changed and removed", {
  a <- random_matrix()
  b <- a
  rownames(b) <- 1:21
  expect_identical(rownames(b), as.character(1:21))
  expect_null(rownames(a))
  colnames(b) <- letters[1:17]
  expect_identical(dimnames(as.matrix(b)), list(as.character(1:21), letters[1:17]))
  rownames(b) <- NULL
  expect_null(rownames(b))
  expect_refused(rownames(b) <- 1:3, "shape", "length 3, expected 21")
  expect_refused(dimnames(b) <- list(NULL), "argument", "names of rows")
  expect_refused(dimnames(b) <- list(NULL, 1:21), "shape", "length 21, expected 17")
  expect_identical(dimnames(b), list(NULL, letters[1:17]))
  dimnames(b) <- NULL
  expect_identical(b, a)
  h <- named_matrix(c(6, 8), c(2, 4), heads = 3)
  expect_identical(dimnames(as.array(h)), c(dimnames(h), list(NULL)))
  expect_identical(h, unserialize(serialize(h, NULL)))
})

test_that("blocks take their names along", {
  a <- named_matrix(c(24, 22), 4)
  m <- as.matrix(a)
  of <- function(blocks) as.vector(outer(1:4, (blocks - 1) * 4, "+"))
  expect_identical(as.matrix(t(a)), t(m))
  expect_identical(as.matrix(block_permute(a, c(3, 1, 2, 6, 5, 4))), m[of(c(3, 1, 2, 6, 5, 4)), ])
  expect_identical(as.matrix(block_permute(a, cols = c(5:1, 6))), m[, c(of(5:1), 21:22)])
  expect_identical(as.matrix(block_slice(a, 2:4, 5:6)), m[5:16, 17:22])
  expect_identical(as.matrix(block_slice(a, integer(), 1)), m[0, 1:4])
  expect_identical(as.matrix(block_reblock(a, c(3, 5))), m)
  for (b in list(block_cast(a, "float32"), block_keep(a, 4), block_grow(a, 1, 1), block_prune(a, rep(1, block_count(a))),
                 sddmm(a, matrix(1, 24, 2), matrix(1, 2, 22)), block_softmax(a),
                 block_replace(a, 1, block_slice(a, 1, 1)[1:4, 1:4] |> block_matrix(block = 4)))) {
    expect_identical(dimnames(b), dimnames(a))
  }
  block_values(a) <- block_values(a) * 2
  expect_identical(as.matrix(a), m * 2)
})

test_that("the names of the first operand that has some are kept", {
  a <- named_matrix()
  m <- as.matrix(a)
  x <- matrix(seq_len(prod(dim(a))) + 0, nrow(a), dimnames = list(paste0("x", seq_len(nrow(a))), NULL))
  for (f in list(`+`, `*`, `-`, `>`, `/`)) {
    expect_equal(dimnames(as.matrix(f(x, a))), dimnames(x))
    expect_equal(dimnames(as.matrix(f(Matrix(x), a))), dimnames(x))
    expect_equal(dimnames(as.matrix(f(unname(x), a))), dimnames(m))
  }
  for (f in list(`+`, `*`, `-`)) expect_equal(dimnames(as.matrix(f(a, x))), dimnames(m))
})

test_that("names and metadata of more than a million characters come back", {
  path <- tempfile(fileext = ".h5")
  n <- 64
  a <- block_matrix(Diagonal(n), block = 8)
  dimnames(a) <- list(paste0(strrep("r", 1e5), 1:n), NULL)
  metadata <- paste0("{\"note\":\"", strrep("x", 1.2e6), "\"}")
  block_save(path = path, a, metadata = list(a = metadata))
  expect_identical(dimnames(block_load(path, "a")), dimnames(a))
  expect_identical(block_metadata(path, "a"), metadata)
})

test_that("products have the names of both factors", {
  a <- named_matrix()
  m <- as.matrix(a)
  b <- matrix(1, 17, 2, dimnames = list(letters[1:17], c("p", "q")))
  for (y in list(b, unname(b), b[, 1], as(b, "CsparseMatrix"), Matrix(b))) {
    expect_equal(as.matrix(a %*% y), as.matrix(m %*% y))
    expect_equal(as.matrix(crossprod(t(a), y)), as.matrix(m %*% y))
    if (!is.null(dim(y))) expect_equal(as.matrix(tcrossprod(a, t(y))), as.matrix(m %*% y))
  }
  x <- matrix(1, 2, 21, dimnames = list(c("p", "q"), NULL))
  expect_equal(x %*% a, x %*% m)
  expect_equal(rep(1, 21) %*% a, rep(1, 21) %*% m)
  expect_equal(crossprod(t(x), a), x %*% m)
  expect_equal(tcrossprod(x, t(a)), x %*% m)
  expect_equal(array(1:17, 17) %*% t(a), array(1:17, 17) %*% t(m))
  expect_equal(as.matrix(crossprod(a)), crossprod(m))
  expect_equal(as.matrix(a %*% t(a)), m %*% t(m))
})

test_that("spmm, sddmm and attention name what %*% names", {
  a <- random_matrix()
  dimnames(a) <- list(paste0("r", 1:21), paste0("c", 1:17))
  x <- matrix(rnorm(34), 17, dimnames = list(NULL, c("u", "v")))
  expect_identical(dimnames(spmm(a, x)), dimnames(a %*% x))
  expect_identical(dimnames(spmm(a, t(unname(x)) , side = "right", transpose = TRUE)), list(NULL, paste0("r", 1:21)))
  expect_identical(dimnames(spmm(block_cast(a, "float32"), x)), dimnames(a %*% x))
  expect_identical(dimnames(spmm(a, matrix(0, 21, 2, dimnames = list(NULL, 1:2)), transpose = TRUE)), list(paste0("c", 1:17), c("1", "2")))
  plain <- random_matrix()
  c0 <- matrix(0, 21, 2, dimnames = list(letters[1:21], NULL))
  expect_identical(dimnames(spmm(plain, unname(x), c0)), dimnames(c0))
  expect_null(dimnames(spmm(plain, unname(x))))
  expect_null(dimnames(spmm(a, array(0, c(17, 2, 1)))))
  p <- matrix(rnorm(42), 21, dimnames = list(letters[1:21], NULL))
  q <- matrix(rnorm(34), 2, dimnames = list(NULL, LETTERS[1:17]))
  both <- list(letters[1:21], LETTERS[1:17])
  expect_identical(dimnames(sddmm(plain@layout, p, q)), both)
  expect_identical(dimnames(sddmm(plain, p, q, beta = 1)), both)
  expect_identical(dimnames(sddmm(plain, t(p), t(q), transpose_x = TRUE, transpose_y = TRUE)), both)
  expect_identical(dimnames(sddmm(a, p, q)), dimnames(a))
  expect_identical(dimnames(sddmm(plain, list(p, p), list(q, q))), both)
  layout <- block_pattern("dense", c(4, 4), 2)
  q <- array(rnorm(8), c(2, 4), dimnames = list(c("d1", "d2"), paste0("t", 1:4)))
  expect_identical(dimnames(attention(q, q, q, layout)), dimnames(q))
  expect_identical(dimnames(attention(q, q, unname(q), layout)), list(NULL, paste0("t", 1:4)))
  expect_identical(dimnames(attention(unname(q), q, q, layout)), list(c("d1", "d2"), NULL))
  expect_null(dimnames(attention(unname(q), q, unname(q), layout)))
})

test_that("the last rows and columns have their numbers for names, as of a base matrix", {
  m <- matrix(1:12 + 0, 4)
  for (dense in list(m, `rownames<-`(m, letters[1:4]), `colnames<-`(m, LETTERS[1:3]))) {
    a <- block_matrix(dense, block = 2)
    for (n in list(1, -1, c(2, 2), c(NA, 1), 9)) {
      last <- tail(a, n)
      expect_s4_class(last, "BlockMatrix")
      expect_identical(as.matrix(last), tail(dense, n))
    }
    expect_identical(as.matrix(tail(a, 2, keepnums = FALSE)), tail(dense, 2, keepnums = FALSE))
  }
})

test_that("block_diag() puts matrices along the diagonal", {
  a <- random_matrix()
  b <- random_matrix(c(6, 8), c(2, 4))
  expect_identical(as.matrix(block_diag(a, b)), unname(as.matrix(bdiag(as.matrix(a), as.matrix(b)))))
  expect_s4_class(block_diag(a, b), "BlockMatrix")
  expect_identical(block_dim(block_diag(a, b)), c(4, 3))
  expect_identical(as.matrix(block_diag(list(b, as.matrix(a), as(b, "CsparseMatrix"), 7))),
                   unname(as.matrix(bdiag(as.matrix(b), as.matrix(a), as.matrix(b), 7))))
  expect_identical(block_diag(a), a)
  rownames(a) <- paste0("r", 1:21)
  colnames(b) <- paste0("c", 1:8)
  expect_identical(dimnames(block_diag(a, b)), list(c(paste0("r", 1:21), character(6)), c(character(17), paste0("c", 1:8))))
  h <- random_matrix(c(6, 8), c(2, 4), heads = 3)
  joined <- as.array(block_diag(h, h))
  expect_identical(joined[7:12, 9:16, ], as.array(h))
  expect_identical(sum(joined != 0), 2L * sum(as.array(h) != 0))
  expect_refused(block_diag(diag(2)), "argument", "no BlockMatrix among the 1 arguments")
  expect_refused(block_diag(a, 1:3), "shape", "argument 2 is c(1, 2, 3), expected a matrix")
  expect_refused(block_diag(a, h), "shape", "argument 2 has 3 heads, expected 1")
})

test_that("devices keep names", {
  a <- named_matrix()
  for (device in test_devices) {
    ctx <- tartan_context(device)
    b <- to_device(a, ctx)
    expect_identical(dimnames(b), dimnames(a))
    expect_identical(to_host(t(b)), t(a))
    expect_identical(dimnames(to_device(a, ctx, dtype = "float32")), dimnames(a))
  }
})
