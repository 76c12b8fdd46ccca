# SPDX-License-Identifier: Apache-2.0
# The demonstration, part 4, in R: matrices of the file times the same dense matrix.
suppressPackageStartupMessages(library(tartan))
arguments <- commandArgs(trailingOnly = TRUE)
for (name in arguments[-1]) {
  A <- block_load(arguments[[1]], name)
  X <- outer(seq_len(ncol(A)), seq_len(64), function(i, j) ((7 * i + 13 * j) %% 17 - 8) / 8)
  A %*% X # the first product also warms up
  started <- proc.time()[["elapsed"]]
  for (i in 1:20) Y <- A %*% X
  taken <- (proc.time()[["elapsed"]] - started) / 20
  cat(sprintf("R       %-14s times 3111 x 64 in %6.2f ms   checksum %s\n", name, 1e3 * taken, tartan_checksum(Y)))
}
