# SPDX-License-Identifier: Apache-2.0
# The shared cases of data/cases: the same bits as C, Python and Julia. R has doubles alone.
folder <- Sys.getenv("TARTAN_CASES")

test_that("products have the bits of the other languages", {
  skip_if(!nzchar(folder), "TARTAN_CASES does not name data/cases")
  rows <- read.csv(file.path(folder, "products.csv"), stringsAsFactors = FALSE)
  rows <- rows[rows$dtype == "float64", ]
  expect_gte(nrow(rows), 50)
  file <- block_file(file.path(folder, "products.h5"))
  on.exit(close(file))
  for (i in seq_len(nrow(rows))) {
    row <- rows[i, ]
    a <- block_get(file, row$a)
    b <- as.matrix(block_get(file, row$b))
    c <- as.matrix(block_get(file, row$c))
    gates <- if (row$gated == 1) block_gates(file, row$a)
    result <- if (row$op == "spmm") {
      spmm(a, b, c, alpha = row$alpha, beta = row$beta, side = row$side, transpose = row$transpose == 1, gates = gates)
    } else {
      as.matrix(sddmm(a, b, c, alpha = row$alpha, beta = row$beta, gates = gates))
    }
    expect_identical(tartan_checksum(result), row$checksum, info = paste(row$op, row$b, row$alpha))
  }
})

test_that("files of every released format load, and damaged ones are refused", {
  skip_if(!nzchar(folder), "TARTAN_CASES does not name data/cases")
  golden <- list.files(file.path(dirname(folder), "golden"), "[.]h5$", recursive = TRUE, full.names = TRUE)
  expect_gte(length(golden), 1)
  for (path in golden) expect_gte(length(block_load(path)), 1)

  damaged <- list.files(file.path(dirname(folder), "corrupt"), "[.]h5$", full.names = TRUE)
  expect_gte(length(damaged), 20)
  for (path in damaged) {
    before <- tools::md5sum(path)
    error <- tryCatch(block_load(path), tartan_error = identity)
    expect_s3_class(error, "tartan_error")
    expect_true(inherits(error, c("tartan_error_format", "tartan_error_version", "tartan_error_overflow")), info = path)
    expect_match(conditionMessage(error), basename(path), fixed = TRUE)
    expect_identical(tools::md5sum(path), before)
  }
  newer <- file.path(dirname(folder), "corrupt", "foreign_schema_newer.h5")
  expect_error(block_load(newer), class = "tartan_error_version")
})
