# SPDX-License-Identifier: Apache-2.0
# Long calls ask R whether to stop: interrupts and time limits end them.

test_that("a large product has the bits of its columns", {
  a <- block_matrix(block_pattern("dense", c(1000, 1000), 40), init = "normal", seed = 1)
  set.seed(1)
  x <- matrix(rnorm(1000 * 1101), 1000)
  y <- a %*% x
  for (j in list(1:7, 1:500, 950:1101, 1101)) expect_identical(y[, j, drop = FALSE], a %*% x[, j, drop = FALSE])
  y <- crossprod(a, x)
  expect_identical(y[, 990:1101], crossprod(a, x[, 990:1101]))
  expect_identical(t(x) %*% a, t(y))
  expect_identical(tcrossprod(t(x), a)[990:1010, ], tcrossprod(t(x[, 990:1010]), a))
  z <- spmm(a, x, c = x, alpha = 2, beta = -1)
  expect_identical(z[, 990:1101], spmm(a, x[, 990:1101], c = x[, 990:1101], alpha = 2, beta = -1))
  batch <- array(x[, 1:1000], c(1000, 100, 10))
  b <- a %*% batch
  expect_identical(b[, , 7], a %*% batch[, , 7])
  heads <- block_matrix(block_pattern("dense", c(500, 500), 20, heads = 4), init = "normal", seed = 2)
  batch <- array(x[1:500, ], c(500, 275, 4))
  h <- heads %*% batch
  expect_identical(h[, 270:275, ], heads %*% batch[, 270:275, ])
})

test_that("an interrupt ends a long product within a second or two", {
  skip_on_os("windows")
  folder <- tempfile("interrupt")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  file <- function(name) file.path(folder, name)
  writeLines(c(sprintf(".libPaths(%s)", paste(deparse(.libPaths()), collapse = "")),
               "suppressPackageStartupMessages(library(tartan))",
               "tartan_threads(1)",
               "a <- block_matrix(block_pattern(\"dense\", c(2000, 2000), 8), init = \"normal\", seed = 1)",
               "part <- system.time(a %*% matrix(1, 2000, 250))[[\"elapsed\"]]",
               "x <- matrix(1, 2000, 8000)",
               "writeLines(as.character(Sys.getpid()), \"pid.new\")",
               "invisible(file.rename(\"pid.new\", \"pid\"))",
               "begin <- proc.time()[[\"elapsed\"]]",
               "how <- tryCatch({a %*% x; \"finished\"}, interrupt = function(condition) \"interrupted\")",
               "cat(how, part * 32, proc.time()[[\"elapsed\"]] - begin, nrow(a %*% x[, 1:2]))"), file("product.R"))
  # Portable C takes 20 s or more for the whole product.
  command <- sprintf("cd %s; TARTAN_CPU=c exec %s --vanilla product.R > said 2>&1", shQuote(folder),
                     shQuote(file.path(R.home("bin"), "Rscript")))
  system2("sh", c("-c", shQuote(command)), wait = FALSE)
  for (i in 1:600) if (file.exists(file("pid"))) break else Sys.sleep(0.1)
  expect_true(file.exists(file("pid")))
  Sys.sleep(2) # the product has begun
  tools::pskill(as.integer(readLines(file("pid"))), tools::SIGINT)
  for (i in 1:600) if (length(readLines(file("said"), warn = FALSE))) break else Sys.sleep(0.1)
  said <- strsplit(readLines(file("said"), warn = FALSE), " ")[[1L]]
  expect_identical(said[c(1L, 4L)], c("interrupted", "2000"))
  took <- as.numeric(said[2:3])
  expect_lt(took[2L], max(3, took[1L] / 3))
})

test_that("a time limit ends long calls of every kind, and the next call is right", {
  skip_on_os("windows")
  script <- tempfile("limits", fileext = ".R")
  on.exit(unlink(script))
  # Portable C takes many seconds for each of them.
  writeLines(c(sprintf(".libPaths(%s)", paste(deparse(.libPaths()), collapse = "")), 'suppressPackageStartupMessages(library(tartan))
tartan_threads(1)
normal <- function(n, block) block_matrix(block_pattern("dense", c(n, n), block), init = "normal", seed = 1)
a <- normal(2000, 8)
b <- normal(3000, 30)
x <- matrix(seq_len(2000 * 8000) %% 7, 2000)
y <- t(x)
q <- array(seq_len(64 * 8192 * 4) %% 5, c(64, 8192, 4, 1))
all_pairs <- block_pattern("dense", c(8192, 8192), 64)
conv <- block_conv(block_pattern("dense", c(64, 64), 16), kernel = c(7, 7))
filter <- block_matrix(conv_layout(conv), init = "normal", seed = 2)
image <- array(seq_len(128 * 128 * 64 * 4) %% 3, c(128, 128, 64, 4))
first <- a %*% x[, 1:3]
calls <- expression(a %*% x, b %*% b, sddmm(a, x, y), growth_score(x, y, c(1, 1)), attention(q, q, q, all_pairs),
                    conv_forward(conv, filter, image))
for (call in calls) {
  begin <- proc.time()[["user.self"]] # the machine may have other work
  condition <- tryCatch({
    setTimeLimit(elapsed = 0.3, transient = TRUE)
    eval(call)
  }, error = identity)
  setTimeLimit()
  took <- proc.time()[["user.self"]] - begin
  cat(as.character(call)[1L], class(condition)[1L], identical(a %*% x[, 1:3], first), took, conditionMessage(condition), "\n")
}'), script)
  said <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", script), stdout = TRUE, stderr = TRUE, env = "TARTAN_CPU=c")
  said <- grep("^(%|sddmm|growth|attention|conv)", said, value = TRUE)
  expect_length(said, 6L)
  for (line in strsplit(said, " ")) {
    expect_identical(line[2:3], c("simpleError", "TRUE"))
    expect_lt(as.numeric(line[4L]), 2)
    expect_match(paste(line, collapse = " "), "elapsed time limit")
  }
})
