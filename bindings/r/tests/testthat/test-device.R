# SPDX-License-Identifier: Apache-2.0
# Contexts of the user's own and what lies on their devices. The dummy device gives no access to its memory: what
# would read it past the library crashes here.

dtypes <- c("float64", "float32", "float16", "bfloat16")

with_environment <- function(variables, code) {
  old <- Sys.getenv(names(variables), NA, names = TRUE)
  do.call(Sys.setenv, as.list(variables))
  on.exit(for (name in names(old)) if (is.na(old[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, as.list(old[name])))
  force(code)
}

for (device in test_devices) {
  at <- function(text) paste0(text, " (", device, ")")
  place <- if (device == "cuda") "cuda:0" else device
  ctx <- tartan_context(device)

  test_that(at("arrays go there and back"), {
    for (x in list(matrix(rnorm(12), 3), rnorm(5), array(rnorm(24), 2:4), array(rnorm(120), c(2, 3, 4, 5)), matrix(0, 0, 3),
                   numeric(), matrix(1, 1, 1), 1:4 + 0, matrix(c(NA, NaN, Inf, -0, -Inf, 1), 2))) {
      d <- to_device(x, ctx)
      expect_s4_class(d, "DeviceArray")
      expect_identical(to_host(d), x)
      expect_identical(dim(d), dim(x))
      expect_equal(length(d), length(x))
    }
    expect_identical(to_host(to_device(1:6, ctx)), as.double(1:6))
    expect_identical(to_host(to_device(matrix(1:6, 2), ctx)), matrix(1:6 + 0, 2))
    expect_identical(to_host(to_device(c(TRUE, FALSE), ctx)), c(1, 0))
    expect_identical(to_host(to_device(data.frame(a = 1:2, b = 3:4), ctx)), matrix(1:4 + 0, 2))
    expect_identical(to_host(to_device(Matrix(c(1, 2, 3, 4), 2), ctx)), matrix(1:4 + 0, 2))
    x <- matrix(rnorm(6), 2, dimnames = list(NULL, c("a", "b", "c")))
    expect_identical(to_host(to_device(x, ctx)), unname(x))
  })

  test_that(at("the source may change afterwards, and every copy is its own"), {
    x <- matrix(1, 3, 3)
    d <- to_device(x, ctx)
    x[] <- 2
    expect_identical(to_host(d), matrix(1, 3, 3))
    once <- to_host(d)
    once[] <- 3
    expect_identical(to_host(d), matrix(1, 3, 3))
  })

  test_that(at("dtypes are rounded once on the way"), {
    x <- matrix(c(1, 1 + 2^-20, 1 + 2^-30, -3, 65504, 2^-24), 2)
    expect_identical(to_host(to_device(x, ctx, "float64")), x)
    expect_identical(to_host(to_device(x, ctx, "float32")), matrix(c(1, 1 + 2^-20, 1, -3, 65504, 2^-24), 2))
    expect_identical(to_host(to_device(x, ctx, dtype = "float16")), matrix(c(1, 1, 1, -3, 65504, 2^-24), 2))
    expect_identical(to_host(to_device(x, ctx, dtype = "bfloat16")), matrix(c(1, 1, 1, -3, 65536, 2^-24), 2))
    expect_identical(block_dtype(to_device(x, ctx, "bfloat16")), "bfloat16")
    long <- rnorm(1000)
    expect_identical(to_host(to_device(to_host(to_device(long, ctx, "float32")), ctx, "float32")),
                     to_host(to_device(long, ctx, "float32")))
  })

  test_that(at("what is made of blocks is the CPU's, and stays there"), {
    for (dtype in c(dtypes, "float8_e5m2")) for (shape in list(c(32, 24), c(29, 19))) {
      a <- block_cast(random_matrix(shape, c(8, 8), 0.9), dtype)
      d <- to_device(a, ctx)
      n <- block_count(a)
      expect_equal(block_norms(d), block_norms(a), tolerance = 1e-14)
      expect_identical(block_norms(d, "max"), block_norms(a, "max"))
      free <- which(!block_mask(a), arr.ind = TRUE)
      changes <- list(
        function(x) block_cast(x, "float32"), function(x) block_cast(x, "float8_e4m3fn"), t,
        function(x) block_permute(x, rows = c(2, 1, 3, 4), cols = c(2, 1, 3)), function(x) block_slice(x, 2:3, 1:2),
        function(x) block_prune(x, seq_len(n) %% 2), function(x) block_keep(x, 3), function(x) block_grow(x, 1:3, 1:3),
        function(x) if (nrow(free)) block_move(x, 1, free[1, 1], free[1, 2]) else x,
        function(x) block_project(x, block_pattern("dense", shape, 8)),
        function(x) block_replace(x, n, block_slice(block_grow(x, 1, 1), 1, 1)))
      for (change in changes) {
        want <- change(a)
        there <- change(d)
        expect_s4_class(there, "DeviceBlockMatrix")
        expect_identical(block_dtype(there), block_dtype(want))
        got <- to_host(there)
        expect_true(got@layout == want@layout)
        expect_true(there@layout == want@layout)
        expect_identical(block_values(got), block_values(want))
      }
      expect_identical(block_values(to_host(d)), block_values(a))
    }
  })

  test_that(at("arithmetic of matrices is the CPU's, and stays there"), {
    for (dtype in dtypes) for (shape in list(c(32, 24), c(29, 19))) {
      a <- block_cast(random_matrix(shape, c(8, 8), 0.6), dtype)
      b <- block_cast(random_matrix(shape, c(8, 8), 0.6, seed = 2), dtype)
      rows <- seq_len(shape[1L]) / 3
      cols <- seq_len(shape[2L]) - 5
      changes <- list(
        function(x, y) x + y, function(x, y) x - y, function(x, y) x * y, function(x, y) 0.3 * x, function(x, y) x / 7,
        function(x, y) x^2, function(x, y) -x, function(x, y) +x, function(x, y) abs(x), function(x, y) sign(x),
        function(x, y) sqrt(abs(x)), function(x, y) round(3 * x), function(x, y) t(x) + t(y), function(x, y) x * rows,
        function(x, y) Diagonal(length(rows), rows) %*% x, function(x, y) x %*% Diagonal(length(cols), cols),
        function(x, y) crossprod(x, Diagonal(length(rows), rows)), function(x, y) sweep(x, 1, rows, "*"),
        function(x, y) sweep(x, 2, cols, "*"),
        function(x, y) { diag(x) <- seq_len(min(shape)); x }, function(x, y) { diag(x) <- 2; x })
      for (change in changes) {
        want <- change(a, b)
        there <- or_skip(change(to_device(a, ctx), to_device(b, ctx)))
        expect_s4_class(there, "DeviceBlockMatrix")
        expect_identical(block_dtype(there), block_dtype(want))
        expect_identical(as.matrix(to_host(there)), as.matrix(want))
      }
      where <- to_device(rows, ctx)
      expect_identical(as.matrix(to_host(to_device(a, ctx) * where)), as.matrix(a * rows))
      expect_identical(as.matrix(to_host(sweep(to_device(a, ctx), 1, where, "*"))), as.matrix(a * rows))
    }
    a <- random_matrix(c(12, 12), 4)
    d <- to_device(a, ctx)
    for (f in list(function(x) x + Diagonal(12), function(x) Diagonal(12) - x, function(x) x - Diagonal(12, 1:12))) {
      expect_identical(as.matrix(to_host(f(d))), as.matrix(f(a)))
    }
    expect_identical(as.matrix(to_host(d)), as.matrix(a)) # not changed
    dimnames(a) <- list(letters[1:12], LETTERS[1:12])
    expect_identical(dimnames(to_host(2 * to_device(a, ctx) + d)), dimnames(a))
    for (pair in list(c("float64", "float32"), c("float16", "bfloat16"), c("float16", "float16"))) {
      x <- block_cast(a, pair[1L])
      y <- block_cast(a, pair[2L])
      there <- to_device(x, ctx) + to_device(y, ctx)
      expect_identical(block_dtype(there), block_dtype(x + y))
      expect_identical(as.matrix(to_host(there)), as.matrix(x + y))
    }
    holed <- a
    holed[2, 3] <- NaN
    other <- random_matrix(c(12, 12), 4, 0.3, seed = 5)
    expect_identical(as.matrix(to_host(to_device(holed, ctx) * to_device(other, ctx))), as.matrix(holed * other))
  })

  test_that(at("sums and diagonals of matrices are the CPU's"), {
    for (dtype in dtypes) for (shape in list(c(32, 24), c(29, 19))) {
      a <- block_cast(random_matrix(shape, c(8, 8), 0.6), dtype)
      dimnames(a) <- list(paste0("r", seq_len(shape[1L])), NULL)
      d <- to_device(a, ctx)
      for (f in list(rowSums, colSums, rowMeans, colMeans, sum, mean, norm, function(x) norm(x, "F"), function(x) norm(x, "I"),
                     function(x) as.vector(colSums(x, sparseResult = TRUE)))) {
        expect_equal(or_skip(f(d)), f(a), tolerance = 1e-12)
      }
      for (f in list(range, max, min, diag, nnzero, function(x) norm(x, "M"), function(x) max(x, 50), function(x) sum(x, x) - 2 * sum(x))) {
        expect_identical(f(d), f(a))
      }
    }
    h <- random_matrix(c(8, 12), 4, heads = 3)
    expect_equal(c(sum(to_device(h, ctx)), mean(to_device(h, ctx))), c(sum(h), mean(h)))
    expect_identical(range(to_device(h, ctx)), range(h))
    expect_true(all.equal(d, to_device(a, ctx)))
    expect_true(all.equal(d, a))
    expect_match(all.equal(d, 2 * d), "relative difference")
    none <- to_device(block_matrix(block_layout(integer(), integer(), c(0, 5), 4)), ctx)
    expect_identical(list(sum(none), rowSums(none), colSums(none)), list(0, numeric(), numeric(5)))
    expect_warning(expect_identical(max(none), -Inf))
  })

  test_that(at("what a device has no operation for is refused"), {
    a <- random_matrix(c(12, 12), 4)
    d <- to_device(a, ctx)
    x <- to_device(as.double(1:12), ctx)
    cannot <- expression(d + 1, 1 / d, d / 0, d^-1, d %/% 2, d * NA, d / 1:12, d * c(1:11, NA), d / d, d > 0, d == d, d & d, !d,
                         exp(d), round(d, 1), cumsum(d), prod(d), any(d), all(d), d[1, 1], d[1], d[1, 1] <- 2, as.matrix(d),
                         as.vector(d), rowSums(d, na.rm = TRUE), sum(d, na.rm = TRUE), mean(d, na.rm = TRUE), norm(d, "2"),
                         cbind(d, d), rbind(d, a), cbind(a, d), d + a, a * d, sweep(d, 1, 1:12), sweep(d, 1, 1:12, "/"),
                         d * Matrix(1, 12, 12), d + matrix(1, 12, 12), x + 1, x * x, 2 * x, sum(x), exp(x), x[1], as.matrix(x),
                         x > 0, rep(d, 2), { dim(d) <- c(6, 24) }, diff(d), cov2cor(d), isSymmetric(d), tril(d), triu(d), determinant(d),
                         det(d), kronecker(d, 2), d %x% a, a %x% d, mean(d, trim = 0.1))
    for (call in cannot) {
      expect_error(eval(call), class = "tartan_error_unsupported", label = deparse(call))
    }
    expect_refused(d + 1, "unsupported", paste0("x + 1 on ", place, ", expected x * a, x / a or x^a"))
    expect_refused(d * 1:5, "shape", "e2 has length 5, expected 1 or 12 (rows of x)")
    expect_refused(sweep(d, 2, 1:5, "*"), "shape", "STATS has length 5, expected 12 (columns of x)")
    expect_refused(d + to_device(random_matrix(), ctx), "shape", "e2 is 21 x 17, expected 12 x 12 (as e1)")
    expect_refused(d + Diagonal(5), "shape", "5 x 5")
    expect_refused({ diag(d) <- 1:5; d }, "shape", "value has length 5, expected 1 or 12")
    expect_refused(rowSums(to_device(random_matrix(heads = 2), ctx)), "shape", "2 heads")
    expect_identical(as.matrix(to_host(d)), as.matrix(a))
  })

  test_that(at("matrices go there and back"), {
    for (dtype in dtypes) for (heads in c(1, 3)) {
      a <- block_cast(random_matrix(c(21, 17), c(4, 3), heads = heads), dtype)
      d <- to_device(a, ctx)
      expect_s4_class(d, "DeviceBlockMatrix")
      expect_identical(block_dtype(d), dtype)
      expect_identical(dim(d), dim(a))
      expect_identical(block_count(d), block_count(a))
      expect_identical(block_mask(d), block_mask(a))
      b <- to_host(d)
      expect_identical(as.array(b), as.array(a))
      expect_identical(block_dtype(b), dtype)
      expect_true(b@layout == a@layout)
    }
    a <- random_matrix()
    expect_identical(as.matrix(to_host(to_device(a, ctx, dtype = "float32"))), as.matrix(block_cast(a, "float32")))
    empty <- block_matrix(block_layout(integer(), integer(), c(8, 8), 4))
    expect_identical(as.matrix(to_host(to_device(empty, ctx))), matrix(0, 8, 8))
  })

  test_that(at("contexts say what they are, and close"), {
    own <- tartan_context(device, threads = 1, seed = 3, math = "tf32")
    expect_output(print(own), paste("TartanContext on", place), fixed = TRUE)
    expect_identical(tartan_sync(own), own)
    x <- to_device(1:3, own)
    close(own)
    close(own)
    expect_output(print(own), "closed")
    expect_refused(to_device(1:3, own), "handle", "the context is closed")
    expect_refused(to_host(x), "handle", "the context is closed")
    expect_null(close(x)) # memory may go after its context
    expect_refused(tartan_sync(unserialize(serialize(ctx, NULL))), "handle", "saved session")
    expect_refused(tartan_sync(new("TartanContext")), "handle", "not made by this package")
    expect_refused(tartan_sync(1), "argument", "context is 1", "TartanContext")
  })

  test_that(at("objects print, close, and do not outlive their session"), {
    x <- to_device(matrix(0, 12, 4), ctx, "float32")
    a <- to_device(block_matrix(small_layout()), ctx)
    expect_output(print(x), paste("DeviceArray float32 12 x 4 on", place), fixed = TRUE)
    expect_output(print(a), "DeviceBlockMatrix float64 8 x 12, blocks 4 x 4: 3 of 6 stored (50 %)", fixed = TRUE)
    path <- tempfile(fileext = ".rds")
    saveRDS(list(x, a), path)
    again <- readRDS(path)
    unlink(path)
    expect_refused(to_host(again[[1]]), "handle", "device array is from a saved session")
    expect_refused(to_host(again[[2]]), "handle", "device matrix is from a saved session")
    expect_refused(again[[2]] %*% again[[1]], "handle", "saved session")
    close(x)
    expect_null(close(x))
    close(a)
    expect_output(print(x), "closed")
    expect_output(print(a), "closed")
    expect_refused(to_host(x), "handle", "the device array is closed")
    expect_refused(to_host(a), "handle", "the device matrix is closed")
    expect_refused(a %*% to_device(1:12, ctx), "handle", "closed")
    expect_refused(to_device(small_layout(), ctx), "argument", "x is an object of class BlockLayout")
    expect_refused(to_host(new("DeviceArray")), "handle", "not made by this package")
  })

  test_that(at("bad input is refused before anything moves"), {
    a <- random_matrix()
    d <- to_device(a, ctx)
    x <- to_device(matrix(1, 17, 2), ctx)
    expect_refused(to_device("x", ctx), "argument", "x is \"x\"")
    expect_refused(to_device(NULL, ctx), "argument", "x is NULL")
    expect_refused(to_device(x, ctx), "argument", "DeviceArray")
    expect_refused(to_device(1, 2), "argument", "context is 2")
    expect_refused(to_device(1, ctx, "float8"), "dtype", "float8")
    expect_refused(to_device(a, ctx, "float8"), "dtype", "float8")
    expect_refused(to_device(array(1, rep(1, 9)), ctx), "shape", "9 dimensions")
    expect_refused(to_host(1), "argument", "x is 1", "DeviceArray")
    expect_refused(d %*% to_device(matrix(1, 16, 2), ctx), "shape", "y has 16 rows, expected 17 (columns of x)")
    expect_refused(crossprod(d, x), "shape", "y has 17 rows, expected 21 (rows of x)")
    expect_refused(x %*% d, "shape", "x has 2 columns, expected 21 (rows of y)")
    expect_refused(crossprod(d, to_device(array(1, c(21, 2, 2)), ctx)), "shape", "3 dimensions")
    expect_refused(d %*% matrix(1, 17, 2), "unsupported", "y is in R's memory", place, "to_device")
    expect_refused(a %*% x, "unsupported", "x is in R's memory")
    expect_refused(matrix(1, 2, 21) %*% d, "unsupported", "x is in R's memory")
    expect_refused(d %*% rsparsematrix(17, 2, 0.5), "unsupported", "y is in R's memory")
    expect_refused(rsparsematrix(2, 21, 0.5) %*% d, "unsupported", "x is in R's memory")
    expect_refused(crossprod(d, a), "unsupported", "y is in R's memory")
    expect_refused(tcrossprod(1:3, d), "unsupported", "x is in R's memory")
    expect_refused(crossprod(d), "unsupported", "expected a DeviceBlockMatrix and a DeviceArray")
    expect_refused(d %*% d, "unsupported", "expected a DeviceBlockMatrix and a DeviceArray")
    expect_refused(x %*% x, "unsupported")
    expect_refused(spmm(d, matrix(1, 17, 2)), "unsupported", "b is in R's memory")
    expect_refused(spmm(a, x), "unsupported", "a is in R's memory")
    expect_refused(spmm(d, x, matrix(0, 21, 2)), "unsupported", "c is in R's memory")
    expect_refused(spmm(d, x, to_device(matrix(0, 20, 2), ctx)), "shape", "c is 20 x 2, expected 21 x 2")
    expect_refused(spmm(d, x, gates = rep(1, block_count(a))), "unsupported", "gates is in R's memory")
    expect_refused(spmm(d, x, gates = to_device(1:2, ctx)), "shape", "gates")
    expect_refused(spmm(d, x, beta = 1), "argument", "beta is 1")
    expect_refused(spmm(d, x, alpha = NaN), "argument", "alpha")
    expect_refused(spmm(x, x), "argument", "a is an object of class DeviceArray")
    expect_refused(spmm(d, d), "argument", "b is an object of class DeviceBlockMatrix")
    expect_refused(d %*% to_device(matrix(1, 17, 2), ctx, "float32"), "dtype")
    expect_refused(sddmm(d, matrix(1, 21, 2), to_device(matrix(1, 2, 17), ctx)), "unsupported", "x is in R's memory")
    expect_refused(sddmm(d, to_device(matrix(1, 21, 2), ctx), to_device(matrix(1, 3, 17), ctx)), "shape")
    expect_refused(sddmm(a, x, x), "unsupported", "s is in R's memory")
    expect_refused(gate_gradient(d, a), "unsupported", "dw is in R's memory")
    expect_refused(growth_score(x, matrix(1, 2, 2)), "unsupported", "y is in R's memory")
    expect_refused(block_values(d), "argument", "expected a BlockMatrix")
    expect_refused(block_replace(d, seq_len(block_count(a)), a), "unsupported", "y is in R's memory")
    expect_refused(block_reblock(d, 2), "unsupported", "to_host")
    expect_error(t(d)[1, 1])
    expect_identical(as.matrix(to_host(d)), as.matrix(a))
    raw <- asNamespace("tartan")
    expect_refused(raw$tartan_buffer_to_array(ctx, x@handle, matrix(0, 17, 3)), "shape")
    expect_refused(raw$tartan_buffer_to_array(ctx, d@handle, matrix(0, 17, 2)), "handle")
    view <- raw$.view(x@handle, c(17, 3), c(1, 17))
    expect_refused(raw$tartan_spmm(ctx, d@handle, NULL, view, 1, 0, NULL, view), "shape",
                   "bytes, expected")
    view[[2L]] <- 2
    expect_refused(raw$tartan_array_checksum(view), "dtype", "float64 on its device, expected float32")
  })

  # The dummy device refuses work on memory that another context may still be at work on.
  test_that(at("operands may come from several contexts"), {
    others <- lapply(1:3, function(i) tartan_context(device))
    a <- random_matrix()
    b <- matrix(seq_len(34) / 34, 17)
    for (turn in 1:3) {
      x <- to_device(b, others[[2L]])
      y <- to_device(a, others[[1L]]) %*% x
      again <- spmm(to_device(a, others[[3L]]), x, y, gates = to_device(rep(1, block_count(a)), ctx))
      rm(x)
      s <- sddmm(to_device(a, others[[2L]]), again, to_device(t(b), others[[turn]]))
      gradient <- gate_gradient(to_device(a, others[[turn]]), s)
      expect_product(to_host(again) / 2, as.matrix(a), b)
      expect_product(to_host(y), as.matrix(a), b)
      expect_equal(to_host(s), sddmm(a, to_host(again), t(b)))
      expect_equal(to_host(gradient$gates), gate_gradient(a, to_host(s))$gates)
    }
    lapply(others, close)
  })

  test_that(at("explain tells what would run"), {
    a <- random_matrix(c(64, 64), 8)
    d <- to_device(a, ctx)
    x <- to_device(matrix(1, 64, 32), ctx)
    text <- explain(d %*% x)
    expect_s3_class(text, "tartan_info")
    for (part in c("\"operation\": \"spmm\"", "\"shape\": [64, 32]", "\"dtype\": \"float64\"", "\"kernel\"", "\"why\"",
                   "\"refused\"", "\"block_order\": \"column-major\"", place)) {
      expect_match(text, part, fixed = TRUE)
    }
    expect_output(print(text), "kernel")
    expect_match(explain(spmm(d, to_device(matrix(1, 32, 64), ctx), side = "right", transpose = TRUE)), place,
                 fixed = TRUE)
    expect_match(explain(sddmm(d, x, x, transpose_y = TRUE)), "\"operation\": \"sddmm\"", fixed = TRUE)
    for (allowed in c(FALSE, TRUE)) {
      choosy <- tartan_context(device, allow_dense = allowed)
      text <- explain(to_device(a, choosy) %*% to_device(matrix(1, 64, 32), choosy))
      expect_identical(grepl("dense copy of a, which the context does not allow", text), device != "cpu" && !allowed)
      close(choosy)
    }
    expect_refused(explain(d %*% to_device(matrix(1, 63, 2), ctx)), "shape")
    expect_identical(unclass(explain(NULL)), "[]")
    expect_equal(to_host(d %*% x), as.matrix(a) %*% matrix(1, 64, 32)) # what comes afterwards runs
  })
}

test_that("explain works on the package's own context", {
  a <- random_matrix()
  expect_match(explain(a %*% matrix(1, ncol(a), 3)), "\"device\": \"cpu\"", fixed = TRUE)
})

test_that("products in parts of bfloat16 are allowed by a context", {
  w <- block_matrix(block_pattern("dense", c(64, 64), 32), init = "normal", seed = 1)
  x <- matrix(seq(-1, 1, length.out = 64 * 40), 64)
  for (mode in c("bf16x3", "bf16x6")) {
    context <- tartan_context("cpu", math = mode)
    a <- to_device(w, context, dtype = "float32")
    b <- to_device(x, context, dtype = "float32")
    expect_match(explain(a %*% b), paste0("spmm_", mode), fixed = TRUE)
    expect_equal(as.matrix(to_host(a %*% b)), as.matrix(w) %*% x, tolerance = 2^-14)
    close(context)
  }
})

test_that("devices that are not there are refused", {
  expect_refused(tartan_context("gpu"), "argument", "gpu")
  expect_refused(tartan_context("cuda:99"), "device")
  expect_refused(tartan_context(1), "argument", "device is 1")
  expect_refused(tartan_context(threads = -1), "argument", "threads is -1")
  expect_refused(tartan_context(math = "fast"), "argument", "math is \"fast\"")
  expect_refused(tartan_context(allow_dense = 1), "argument", "allow_dense is 1")
})

test_that("two devices have nothing in common", {
  skip_if_not(nzchar(dummy_plugin))
  a <- random_matrix()
  zero <- tartan_context("cuda:0")
  one <- tartan_context("cuda:1")
  expect_output(print(one), "cuda:1")
  d <- to_device(a, one)
  expect_product(to_host(d %*% to_device(matrix(1, 17, 2), one)), as.matrix(a), matrix(1, 17, 2))
  expect_refused(d %*% to_device(matrix(1, 17, 2), zero), "unsupported",
                 "y is on cuda:0 and x on cuda:1, expected one device")
  raw <- asNamespace("tartan")
  x <- to_device(matrix(1, 17, 2), zero)
  expect_refused(raw$tartan_buffer_to_array(one, x@handle, matrix(0, 17, 2)), "unsupported")
  expect_refused(raw$tartan_matrix_values(d@handle), "unsupported", "CUDA device 1")
})

test_that("memory of a device that is full is collected first, then refused", {
  skip_if_not(nzchar(dummy_plugin))
  ctx <- tartan_context("cuda:1")
  gc()
  with_environment(c(TARTAN_DUMMY_BYTES = "100000"), {
    for (i in 1:50) x <- to_device(numeric(5000), ctx) # 40 kB each, all but one forgotten
    expect_identical(to_host(x), numeric(5000))
    expect_refused(to_device(numeric(20000), ctx), "memory", "out of memory")
    expect_identical(to_host(x), numeric(5000))
  })
  expect_identical(to_host(to_device(numeric(20000), ctx)), numeric(20000))
})

test_that("a lost device is an error and no more", {
  skip_if_not(nzchar(dummy_plugin))
  ctx <- tartan_context("cuda")
  a <- random_matrix()
  d <- to_device(a, ctx)
  x <- to_device(matrix(1, 17, 2), ctx)
  with_environment(c(TARTAN_DUMMY_LOST = "1"), {
    expect_refused(d %*% x, "device", "was lost")
    expect_refused(to_host(x), "device", "was lost")
    expect_refused(tartan_sync(ctx), "device", "was lost")
    expect_refused(tartan_context("cuda"), "device", "was lost")
  })
  expect_equal(a %*% matrix(1, 17, 2), as.matrix(a) %*% matrix(1, 17, 2))
})

test_that("the wrapper protects what it makes on a device", {
  a <- random_matrix(c(6, 5), c(2, 3))
  x <- matrix(rnorm(10), 5)
  ctx <- tartan_context(test_devices[length(test_devices)])
  raw <- asNamespace("tartan")
  handle <- ctx
  layout <- a@layout
  matrix <- a
  out <- matrix(0, 6, 2)
  gctorture(TRUE)
  on.exit(gctorture(FALSE))
  there <- raw$tartan_matrix_to_device(handle, matrix)
  b <- raw$tartan_buffer_from_array(handle, x)
  c <- raw$tartan_buffer_create(handle, 1L, c(6, 2), 1L)
  raw$tartan_spmm(handle, there, NULL, list(b, 1L, c(5, 2), c(1, 5)), 1, 0, NULL, list(c, 1L, c(6, 2), c(1, 6)))
  raw$tartan_buffer_to_array(handle, c, out)
  values <- raw$tartan_r_wrap_buffer(layout, raw$tartan_buffer_create(handle, 1L, c(2, 3, block_count(a)), 1L))
  back <- raw$tartan_matrix_to_host(handle, values)
  gctorture(FALSE)
  expect_equal(out, as.matrix(a) %*% x)
  expect_identical(unique(as.vector(raw$tartan_matrix_values(back))), 0)
})
