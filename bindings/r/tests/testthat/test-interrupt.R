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

# Time is that of the processor, as the machine may have other work, and is held against that of the whole call, which is
# estimated from a small part of the work. Portable C would take many seconds for each call.

test_that("an interrupt ends a long product", {
  skip_on_os("windows")
  folder <- tempfile("interrupt")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  file <- function(name) file.path(folder, name)
  writeLines(c(sprintf(".libPaths(%s)", paste(deparse(.libPaths()), collapse = "")), 'suppressPackageStartupMessages(library(tartan))
tartan_threads(1)
a <- block_matrix(block_pattern("dense", c(2000, 2000), 8), init = "normal", seed = 1)
whole <- 100 * system.time(a %*% matrix(1, 2000, 80))[["user.self"]]
x <- matrix(1, 2000, 8000)
begin <- proc.time()[["user.self"]]
how <- tryCatch({
  writeLines(as.character(Sys.getpid()), "pid.new")
  file.rename("pid.new", "pid")
  a %*% x
  "finished"
}, interrupt = function(condition) "interrupted")
cat(how, nrow(a %*% x[, 1:2]), whole, proc.time()[["user.self"]] - begin)'), file("product.R"))
  command <- sprintf("cd %s; TARTAN_CPU=c exec %s --vanilla product.R > said 2>&1", shQuote(folder),
                     shQuote(file.path(R.home("bin"), "Rscript")))
  system2("sh", c("-c", shQuote(command)), wait = FALSE)
  for (i in 1:6000) if (file.exists(file("pid"))) break else Sys.sleep(0.1)
  expect_true(file.exists(file("pid")))
  Sys.sleep(1) # the product has begun
  tools::pskill(as.integer(readLines(file("pid"))), tools::SIGINT)
  for (i in 1:6000) if (length(readLines(file("said"), warn = FALSE))) break else Sys.sleep(0.1)
  said <- strsplit(readLines(file("said"), warn = FALSE), " ")[[1L]]
  expect_identical(said[1:2], c("interrupted", "2000"))
  expect_lt(as.numeric(said[4L]), as.numeric(said[3L]) / 3)
})

test_that("a time limit ends long calls of every kind, and the next call is right", {
  skip_on_os("windows")
  script <- tempfile("limits", fileext = ".R")
  on.exit(unlink(script))
  writeLines(c(sprintf(".libPaths(%s)", paste(deparse(.libPaths()), collapse = "")), 'suppressPackageStartupMessages(library(tartan))
tartan_threads(1)
user <- function() proc.time()[["user.self"]]
normal <- function(n, block) block_matrix(block_pattern("dense", c(n, n), block), init = "normal", seed = 1)
all_pairs <- function(q) block_pattern("dense", dim(q)[c(2, 2)], 64)
a <- normal(2000, 8)
b <- normal(3000, 30)
x <- matrix(seq_len(2000 * 8000) %% 7, 2000)
y <- t(x)
q <- array(seq_len(64 * 8192 * 4) %% 5, c(64, 8192, 4, 1))
pairs <- all_pairs(q)
conv <- block_conv(block_pattern("dense", c(64, 64), 16), kernel = c(7, 7))
filter <- block_matrix(conv_layout(conv), init = "normal", seed = 2)
image <- array(seq_len(128 * 128 * 64 * 4) %% 3, c(128, 128, 64, 4))
first <- a %*% x[, 1:3]
calls <- expression(a %*% x, b %*% b, sddmm(a, x, y), growth_score(x, y, c(1, 1)), attention(q, q, q, pairs), conv_forward(conv, filter, image))
small <- list(b = normal(480, 30), x = x[, 1:80], y = y[1:80, ], q = q[, 1:512, , , drop = FALSE], image = image[1:32, 1:32, , 1, drop = FALSE])
small$pairs <- all_pairs(small$q)
times <- c(100, 6.25^3, 100, 100, 16^2, 4 * (122 / 26)^2) # the work of the small operands
for (i in seq_along(calls)) {
  begin <- user()
  eval(calls[[i]], small)
  whole <- times[i] * (user() - begin)
  begin <- user()
  condition <- tryCatch({
    setTimeLimit(elapsed = 0.3, transient = TRUE)
    eval(calls[[i]])
  }, error = identity)
  setTimeLimit()
  took <- user() - begin
  cat(as.character(calls[[i]])[1L], class(condition)[1L], identical(a %*% x[, 1:3], first), took, whole, conditionMessage(condition), "\n")
}'), script)
  said <- system2(file.path(R.home("bin"), "Rscript"), c("--vanilla", script), stdout = TRUE, stderr = TRUE, env = "TARTAN_CPU=c")
  said <- grep("^(%|sddmm|growth|attention|conv)", said, value = TRUE)
  expect_length(said, 6L)
  for (line in strsplit(said, " ")) {
    expect_identical(line[2:3], c("simpleError", "TRUE"))
    expect_lt(as.numeric(line[4L]), as.numeric(line[5L]) / 3)
    expect_match(paste(line, collapse = " "), "elapsed time limit")
  }
})
