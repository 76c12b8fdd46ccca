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
