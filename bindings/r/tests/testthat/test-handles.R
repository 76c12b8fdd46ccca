# SPDX-License-Identifier: Apache-2.0

test_that("layouts and matrices survive saveRDS", {
  path <- tempfile(fileext = ".rds")
  for (a in list(random_matrix(), block_cast(random_matrix(), "bfloat16"), random_matrix(c(6, 8), c(2, 4), heads = 3))) {
    saveRDS(a, path)
    b <- readRDS(path)
    expect_identical(as.array(b), as.array(a))
    expect_identical(block_identity(b), block_identity(a))
    expect_identical(as.array(t(b)), as.array(t(a)))
    expect_equal(block_statistics(b), block_statistics(a))
    expect_equal(block_count(b@layout | a@layout), block_count(a))
  }
  x <- block_pattern("banded", c(20, 20), 4)
  saveRDS(x, path)
  y <- readRDS(path)
  expect_true(x == y)
  expect_identical(block_recipe(y), block_recipe(x))
  expect_identical(block_mask(y), block_mask(x))
  unlink(path)
})

test_that("another process can restore them", {
  path <- tempfile(fileext = ".rds")
  a <- random_matrix()
  saveRDS(a, path)
  code <- sprintf(".libPaths('%s'); suppressMessages(library(tartan)); cat(tartan_checksum(as.matrix(readRDS('%s'))))",
                  dirname(find.package("tartan")), path)
  out <- system2(file.path(R.home("bin"), "Rscript"), c("-e", shQuote(code)), stdout = TRUE)
  expect_identical(tail(out, 1), tartan_checksum(as.matrix(a)))
  unlink(path)
})

test_that("what is cached is no part of an object", {
  dense <- as.matrix(random_matrix())
  a <- block_matrix(dense, block = 4)
  b <- block_matrix(dense, block = 4)
  size <- length(serialize(a, NULL))
  a %*% rep(1, 17)
  t(a@layout)
  expect_true(identical(a, b))
  expect_true(all.equal(a, b))
  expect_identical(length(serialize(a, NULL)), size)
  b <- b * 2
  expect_false(identical(a, b))
  expect_match(all.equal(a, b), "relative difference", all = FALSE)
  low <- block_cast(a, "float16")
  low %*% rep(1, 17)
  expect_true(identical(low, block_cast(a, "float16")))
})

test_that("what a handle keeps alive is replaced, not collected", {
  raw <- asNamespace("tartan")
  gone <- 0
  box <- function() { # tells when it is collected
    e <- new.env()
    reg.finalizer(e, function(e) gone <<- gone + 1)
    e
  }
  cache <- raw$tartan_r_new_cache()
  expect_null(raw$tartan_r_held(cache))
  for (i in 1:3) raw$tartan_r_hold(cache, box())
  gc()
  expect_equal(gone, 2)
  expect_type(raw$tartan_r_held(cache), "environment")
  again <- unserialize(serialize(cache, NULL))
  expect_null(raw$tartan_r_held(again))
  raw$tartan_r_hold(again, 1)
  expect_equal(raw$tartan_r_held(again), 1)
  rm(cache)
  gc()
  gc()
  expect_equal(gone, 3)
})

test_that("objects have a size in memory", {
  A <- block_matrix(diag(8), block = 4)
  for (use in 1:2) {
    for (object in list(A, A@handle, A@layout, A@layout@handle)) expect_gt(as.numeric(object.size(object)), 0)
    A %*% diag(8)
  }
})

test_that("closed objects are refused, closing twice is fine", {
  a <- random_matrix()
  expect_null(close(a))
  expect_null(close(a))
  expect_refused(a %*% rep(1, 17), "handle", "matrix is closed")
  expect_refused(as.matrix(a), "handle", "closed")
  expect_refused(block_values(a), "handle", "closed")
  expect_output(show(a), "closed")
  x <- small_layout()
  close(x)
  expect_refused(block_mask(x), "handle", "layout is closed")
  expect_refused(block_matrix(x), "handle", "layout is closed")
  expect_refused(t(x), "handle", "closed")
  again <- unserialize(serialize(x, NULL))
  expect_refused(t(again), "handle", "closed")
  file <- block_file()
  close(file)
  close(file)
  expect_refused(block_list(file), "handle", "file is closed")
})

test_that("foreign handles are refused", {
  raw <- asNamespace("tartan")
  x <- small_layout()
  a <- random_matrix()
  a %*% rep(1, 17)
  layout <- raw$tartan_r_held(x@handle)
  matrix <- raw$tartan_r_held(a@handle)
  expect_equal(raw$tartan_layout_rows(layout), 8)
  expect_refused(raw$tartan_layout_rows(matrix), "handle", "tartan_matrix", "tartan_layout")
  expect_refused(raw$tartan_layout_rows(NULL), "argument", "layout is NULL, expected a BlockLayout")
  expect_refused(raw$tartan_layout_rows(1), "argument", "layout is 1")
  expect_refused(raw$tartan_layout_rows(block_file()), "argument", "class BlockFile")
  expect_refused(raw$tartan_matrix_dtype(x), "argument", "matrix is an object of class BlockLayout")
  expect_refused(raw$tartan_file_count(quote(f(x))), "argument", "file is an object of class call")
  expect_refused(raw$tartan_context_threads(x), "argument", "expected a TartanContext")
  foreign <- getNativeSymbolInfo("R_swig_tartan_version", "tartan")$address
  expect_refused(raw$tartan_layout_rows(foreign), "handle")
  dead <- unserialize(serialize(layout, NULL))
  expect_refused(raw$tartan_layout_rows(dead), "handle", "from a saved session")
  raw$tartan_r_close(dead)
  expect_refused(raw$tartan_layout_rows(dead), "handle", "is closed")
  raw$tartan_r_close(foreign) # is left alone
  expect_type(.Call(foreign, FALSE), "character")
  x@handle <- matrix
  expect_refused(t(x), "handle", "not made by this package")
  expect_refused(t(new("BlockLayout")), "handle", "not made by this package")
  expect_refused(new("BlockMatrix") %*% 1, "handle", "not made by this package")
})

test_that("files do not survive saveRDS and say so", {
  file <- block_file()
  again <- unserialize(serialize(file, NULL))
  expect_refused(block_list(again), "handle", "saved session")
})

test_that("damaged slots are refused", {
  x <- unserialize(serialize(random_layout(c(24, 20), 4), NULL))
  y <- x
  y@columns[1] <- 99L
  expect_refused(t(y), "layout")
  y <- x
  y@identity <- "0"
  expect_refused(t(y), "layout", "damaged")
  a <- random_matrix()
  b <- a
  b@values <- b@values[-1]
  expect_refused(b %*% rep(1, 17), "shape", "bytes, expected")
  b@values <- "text"
  expect_refused(b %*% rep(1, 17), "dtype", "character")
  b@values <- a@values
  b@dtype <- "float8"
  expect_refused(b %*% rep(1, 17), "dtype", "float8")
})

test_that("memory does not grow", {
  resident <- function() {
    as.numeric(strsplit(grep("VmRSS", readLines("/proc/self/status"), value = TRUE), " +")[[1]][2]) / 1024
  }
  skip_if_not(file.exists("/proc/self/status"))
  mask <- matrix(TRUE, 8, 8)
  tartan_threads(1)
  on.exit(tartan_threads(NULL))
  raw <- asNamespace("tartan")
  frame <- c(64, 64, 8, 8, 1)
  bytes <- as.raw(rep(1, 64))
  x <- block_layout_from_mask(mask, 8)
  rounds <- function(n) {
    for (k in seq_len(n)) {
      for (i in 1:5000) raw$tartan_layout_from_mask(frame, bytes)
      for (i in 1:50) {
        a <- block_matrix(x, init = "identity")
        tryCatch(a %*% 1:3, tartan_error = identity) # failures hold nothing either
        a %*% rep(1, 64)
      }
      gc()
    }
  }
  rounds(3)
  before <- resident()
  rounds(20) # 100,000 layouts of 4 KiB or more each
  expect_lt(resident() - before, 10)
})

test_that("the wrapper protects what it makes", {
  a <- random_matrix(c(6, 5), c(2, 3))
  m <- as.matrix(a)
  x <- matrix(rnorm(10), 5)
  out <- matrix(0, 6, 2)
  raw <- asNamespace("tartan")
  frame <- c(6, 5, 2, 3, 1)
  context <- NULL
  matrix <- a
  low <- block_cast(a, "float32")
  whole <- matrix(1:6, 6)
  rows <- matrix(1:6, 1, dimnames = list("r", NULL))
  bytes <- serialize(a, NULL)
  gates <- seq_len(block_count(a))
  gctorture2(if (nzchar(Sys.getenv("TARTAN_TORTURE"))) 1L else 5L) # a collection takes .1 s or more, and the long tests have them all
  on.exit(gctorture(FALSE))
  layout <- raw$tartan_layout_from_coordinates(frame, list(NULL, c(0L, 2L), c(0, 1)))
  at <- raw$tartan_layout_get_coordinates(layout, 2, 2, 2)
  lists <- raw$tartan_layout_get_col_lists(layout, 3, 2, 2)
  moved <- raw$tartan_layout_move(layout, 0, list(NULL, 1, 1), 2)
  svg <- raw$tartan_layout_svg(layout, 100)
  mask <- raw$tartan_layout_get_mask(layout, 6)
  turned <- raw$tartan_matrix_transpose(context, matrix)
  values <- raw$tartan_matrix_values(turned)
  entry <- raw$tartan_matrix_entry(matrix, 0, 2, 3)
  raw$tartan_spmm(context, matrix, NULL, x, 1, 0, NULL, out)
  error <- tryCatch(raw$tartan_layout_svg(layout, 1), tartan_error = conditionMessage)
  products <- list(a %*% x, crossprod(a, whole), rows %*% a, low %*% x, spmm(a, x, out, gates = gates),
                   spmm(low, x, out, gates = gates > 1))
  restored <- unserialize(bytes) %*% x
  sampled <- sddmm(low, whole, whole[1:5, , drop = FALSE], transpose_y = TRUE, gates = gates)
  gctorture(FALSE)
  expect_equal(at, list(c(0, 0), c(0, 2), c(0, 1)))
  expect_equal(lists, list(c(0, 1, 2), c(0, 2), c(0, 1)))
  expect_equal(moved[[1]], c(0, 1))
  expect_match(svg, "</svg>")
  expect_identical(as.integer(mask), c(1L, 0L, 0L, 0L, 0L, 1L))
  expect_identical(values, block_values(t(a)))
  expect_identical(entry, m[3, 4])
  expect_equal(out, m %*% x)
  expect_match(error, "pixels")
  gated <- function(gates) as.matrix(block_matrix(a@layout, values = sweep(block_values(a), 3, gates, "*")))
  expect_equal(products, list(m %*% x, crossprod(m, whole), rows %*% m, as.matrix(low) %*% x, gated(gates) %*% x + out,
                              gated(gates > 1) %*% x + out), tolerance = 1e-6)
  expect_equal(restored, m %*% x)
  expect_equal(as.matrix(sampled)[m != 0], (gated(gates) / m * outer(1:6, 1:5))[m != 0])
})
