# SPDX-License-Identifier: Apache-2.0
# What a call costs from R: one JSON row a case (tests/calls/table.py says what is in it). Ours and the peer take turns.
suppressPackageStartupMessages({library(Matrix); library(tartan)})

# The least and the median time of a call of each function in microseconds, in turns of about 2 milliseconds.
measure <- function(arms, rounds = 60) {
  seconds <- function(f, n) {
    begin <- Sys.time()
    for (i in seq_len(n)) f()
    as.double(Sys.time() - begin, units = "secs")
  }
  counts <- vapply(arms, function(f) {
    seconds(f, 50)
    max(1, round(2e-3 * 50 / seconds(f, 50)))
  }, 0)
  times <- vapply(seq_len(rounds), function(round) mapply(function(f, n) seconds(f, n) / n * 1e6, arms, counts),
                  numeric(length(arms)))
  list(least = apply(times, 1L, min), median = apply(times, 1L, stats::median))
}

report <- function(case, ours, peer, floor, goal) {
  found <- measure(list(ours, peer))
  cat(sprintf(paste0("{\"language\": \"R\", \"case\": \"%s\", \"us\": %.3f, \"median_us\": %.3f, \"floor_us\": %g, ",
                     "\"goal_us\": %g, \"peer\": \"Matrix\", \"peer_us\": %.3f}\n"),
              case, found$least[1L], found$median[1L], floor, goal, found$least[2L]))
}

# The contiguity matrix of the notebook on spatial autoregression, and a matrix too small to matter.
W <- block_load("data/samples.h5", "us_counties")
M <- as(W, "dgCMatrix")
x <- runif(nrow(W))
small <- block_matrix(diag(4), block = 2)
sparse <- as(small, "dgCMatrix")
ones <- rep(1, 4)
old <- tartan_threads(1)
report("W %*% x, counties, 1 thread", function() W %*% x, function() M %*% x, 150, 100)
report("crossprod(W, x), counties, 1 thread", function() crossprod(W, x), function() crossprod(M, x), 190, 100)
report("A %*% x, 4 x 4", function() small %*% ones, function() sparse %*% ones, 20, 10)
tartan_threads(old)
report("W %*% x, counties", function() W %*% x, function() M %*% x, 150, 100)
