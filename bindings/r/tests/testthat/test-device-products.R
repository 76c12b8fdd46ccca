# SPDX-License-Identifier: Apache-2.0
# Products on devices, against the CPU's.

dtypes <- c("float64", "float32", "float16", "bfloat16")

for (device in test_devices) {
  at <- function(text) paste0(text, " (", device, ")")
  ctx <- tartan_context(device)

  test_that(at("every product gives the CPU's numbers within the bound"), {
    shapes <- list(list(c(21, 17), c(4, 3)), list(c(64, 96), c(32, 16)), list(c(33, 65), c(1, 7)),
                   list(c(256, 384), c(64, 64)), list(c(300, 200), c(32, 32)), list(c(256, 256), c(128, 128)))
    for (s in shapes) for (dtype in dtypes) {
      a <- block_cast(random_matrix(s[[1]], s[[2]]), dtype)
      d <- to_device(a, ctx)
      m <- as.matrix(a)
      for (n in if (nrow(m) > 100) 64 else c(0, 1, 9)) {
        x <- to_device(matrix(rnorm(ncol(m) * n), ncol(m)), ctx, dtype)
        y <- to_device(matrix(rnorm(nrow(m) * n), nrow(m)), ctx, dtype)
        xt <- to_device(t(to_host(x)), ctx, dtype)
        yt <- to_device(t(to_host(y)), ctx, dtype)
        expect_within(to_host(d %*% x), m, to_host(x), dtype)
        expect_within(to_host(crossprod(d, y)), t(m), to_host(y), dtype)
        expect_within(to_host(tcrossprod(d, xt)), m, to_host(x), dtype)
        expect_within(to_host(yt %*% d), to_host(yt), m, dtype)
        expect_within(to_host(crossprod(y, d)), to_host(yt), m, dtype)
        expect_within(to_host(tcrossprod(xt, d)), to_host(xt), t(m), dtype)
      }
      product <- d %*% to_device(matrix(1, ncol(m), 2), ctx, dtype)
      expect_identical(block_dtype(product), dtype)
      expect_identical(dim(product), c(nrow(m), 2L))
    }
  })

  test_that(at("vectors are columns or rows, whichever fits"), {
    a <- random_matrix()
    m <- as.matrix(a)
    d <- to_device(a, ctx)
    x <- rnorm(17)
    y <- rnorm(21)
    expect_product(to_host(d %*% to_device(x, ctx)), m, matrix(x))
    expect_product(to_host(to_device(y, ctx) %*% d), t(y), m)
    expect_product(to_host(crossprod(d, to_device(y, ctx))), t(m), matrix(y))
    expect_product(to_host(tcrossprod(to_device(x, ctx), d)), t(x), t(m))
    expect_product(to_host(tcrossprod(d, to_device(x, ctx))), m, matrix(x))
    expect_product(to_host(spmm(d, to_device(x, ctx))), m, matrix(x))
    expect_product(to_host(spmm(d, to_device(y, ctx), side = "right")), t(y), m)
    column <- to_device(block_matrix(matrix(1:6 + 0), block = c(2, 1)), ctx)
    expect_identical(to_host(column %*% to_device(1:3, ctx)), matrix(1:6 + 0) %*% (1:3 + 0))
  })

  test_that(at("spmm has alpha, beta, gates, sides, batches and heads"), {
    a <- random_matrix()
    m <- as.matrix(a)
    d <- to_device(a, ctx)
    b <- matrix(rnorm(17 * 3), 17)
    c <- matrix(rnorm(21 * 3), 21)
    there <- to_device(c, ctx)
    expect_equal(to_host(spmm(d, to_device(b, ctx), there, alpha = 2, beta = -0.5)), 2 * m %*% b - 0.5 * c)
    expect_equal(to_host(spmm(d, to_device(b, ctx), there)), m %*% b + c)
    expect_identical(to_host(there), c)
    expect_equal(to_host(spmm(d, there, transpose = TRUE)), t(m) %*% c)
    expect_equal(to_host(spmm(d, to_device(t(c), ctx), side = "right")), t(c) %*% m)
    gates <- rep_len(c(0, 1, -2.5), block_count(a))
    expect_equal(to_host(spmm(d, to_device(b, ctx), gates = to_device(gates, ctx))), spmm(a, b, gates = gates))
    batch <- array(rnorm(17 * 3 * 2 * 2), c(17, 3, 2, 2))
    expect_equal(to_host(spmm(d, to_device(batch, ctx))), spmm(a, batch))
    h <- random_matrix(c(6, 8), c(2, 4), heads = 3)
    x <- array(rnorm(8 * 5 * 3), c(8, 5, 3))
    expect_equal(to_host(to_device(h, ctx) %*% to_device(x, ctx)), h %*% x)
    low <- to_device(a, ctx, "bfloat16")
    wide <- spmm(low, to_device(b, ctx, "bfloat16"), to_device(matrix(0, 21, 3), ctx, "float32"))
    expect_identical(block_dtype(wide), "float32") # sums of 16 bits as they were kept
    expect_within(to_host(wide), as.matrix(to_host(low)), to_host(to_device(b, ctx, "bfloat16")), "bfloat16", "float32")
  })

  test_that(at("sddmm samples and accumulates"), {
    a <- random_matrix()
    d <- to_device(a, ctx)
    x <- matrix(rnorm(21 * 5), 21)
    y <- matrix(rnorm(5 * 17), 5)
    X <- to_device(x, ctx)
    Y <- to_device(y, ctx)
    expect_equal(as.matrix(to_host(sddmm(d, X, Y, alpha = 2, beta = -1))), as.matrix(sddmm(a, x, y, alpha = 2, beta = -1)))
    expect_identical(as.matrix(to_host(d)), as.matrix(a)) # not changed
    s <- sddmm(a@layout, X, Y)
    expect_s4_class(s, "DeviceBlockMatrix")
    expect_equal(as.matrix(to_host(s)), as.matrix(sddmm(a@layout, x, y)))
    expect_equal(as.matrix(to_host(sddmm(d, to_device(t(x), ctx), to_device(t(y), ctx), transpose_x = TRUE,
                                         transpose_y = TRUE))), as.matrix(sddmm(a, x, y)))
    expect_equal(as.matrix(to_host(sddmm(d, list(X, X), list(Y, Y)))), as.matrix(sddmm(a, 2 * x, y)))
    gates <- rep_len(c(0, 2, -1), block_count(a))
    G <- to_device(gates, ctx)
    expect_equal(as.matrix(to_host(sddmm(d, X, Y, gates = G))), as.matrix(sddmm(a, x, y, gates = gates)))
    for (dtype in dtypes[-1]) {
      found <- sddmm(to_device(a, ctx, dtype), to_device(matrix(1, 21, 2), ctx, dtype),
                     to_device(matrix(1, 2, 17), ctx, dtype))
      expect_true(all(as.matrix(to_host(found))[as.matrix(a) != 0] == 2))
    }
    w <- random_matrix(c(256, 192), c(64, 64))
    u <- matrix(rnorm(256 * 100), 256)
    v <- matrix(rnorm(100 * 192), 100)
    for (dtype in dtypes) {
      U <- to_device(u, ctx, dtype)
      V <- to_device(v, ctx, dtype)
      found <- as.matrix(to_host(sddmm(to_device(w, ctx, dtype), U, V)))
      stored <- as.matrix(w) != 0
      bound <- abs(to_host(U)) %*% abs(to_host(V)) * (28 * if (dtype == "float64") 2^-52 else 2^-23) +
        abs(to_host(U) %*% to_host(V)) * c(float64 = 0, float32 = 0, float16 = 2^-11, bfloat16 = 2^-8)[[dtype]] * 1.001
      expect_true(all((abs(found - to_host(U) %*% to_host(V)) <= bound)[stored]))
      expect_true(all(found[!stored] == 0))
    }
  })

  test_that(at("gate gradients and growth scores"), {
    a <- random_matrix()
    d <- to_device(a, ctx)
    x <- matrix(rnorm(21 * 5), 21)
    y <- matrix(rnorm(5 * 17), 5)
    X <- to_device(x, ctx)
    Y <- to_device(y, ctx)
    gates <- rep_len(c(0, 2, -1), block_count(a))
    s <- sddmm(a@layout, X, Y)
    found <- or_skip(gate_gradient(d, s, to_device(gates, ctx)))
    known <- gate_gradient(a, sddmm(a@layout, x, y), gates)
    expect_equal(to_host(found$gates), known$gates)
    expect_equal(as.matrix(to_host(found$dw)), as.matrix(known$dw))
    expect_equal(as.matrix(to_host(s)), as.matrix(sddmm(a@layout, x, y))) # not changed
    for (dtype in dtypes[-1]) {
      low <- to_device(a, ctx, dtype)
      expect_equal(to_host(gate_gradient(low, low)$gates), block_norms(to_host(low))^2, tolerance = 1e-6)
    }
    expect_equal(to_host(or_skip(growth_score(X, Y, c(4, 3), "l2"))), growth_score(x, y, c(4, 3), "l2"))
    expect_equal(to_host(growth_score(X, Y, c(4, 3), score = to_device(matrix(1, 6, 6), ctx), beta = 0.5)),
                 growth_score(x, y, c(4, 3)) + 0.5)
  })
}
