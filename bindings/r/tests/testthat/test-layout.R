# SPDX-License-Identifier: Apache-2.0

test_that("coordinates, masks and rows make the same layout", {
  x <- small_layout()
  mask <- matrix(FALSE, 2, 3)
  mask[cbind(c(1, 2, 2), c(2, 1, 3))] <- TRUE
  expect_true(x == block_layout_from_mask(mask, 4))
  expect_true(x == block_layout_from_mask(mask + 0, 4))
  expect_true(x == block_layout_from_csr(c(0, 1, 3), c(2, 3, 1), c(8, 12), 4))
  expect_true(x == block_layout(c(2, 1, 2), c(3, 2, 1), c(8, 12), 4))
  expect_true(x == block_layout_from_entries(c(1, 2, 8, 5), c(8, 5, 1, 12), c(8, 12), 4))
  expect_true(x == block_layout_from_dense(kronecker(mask + 0, matrix(1, 4, 4)), 4))
  expect_identical(block_mask(x), mask)
  expect_equal(block_coordinates(x), data.frame(head = c(1L, 1L, 1L), row = c(1L, 2L, 2L), col = c(2L, 1L, 3L)))
  expect_identical(as.matrix(x), mask)
})

test_that("a sparse Matrix gives its blocks", {
  s <- sparseMatrix(i = c(1, 9, 9), j = c(3, 1, 10), x = 1:3, dims = c(10, 11))
  x <- block_layout_from_entries(s, block = c(4, 3))
  expect_identical(dim(x), c(10L, 11L))
  expect_equal(block_coordinates(x)[, 2:3], data.frame(row = c(1L, 3L, 3L), col = c(1L, 1L, 4L)))
})

test_that("facts are right", {
  x <- small_layout()
  expect_equal(block_dim(x), c(4, 4))
  expect_equal(block_grid(x), c(2, 3))
  expect_equal(block_heads(x), 1)
  expect_equal(block_count(x), 3)
  expect_equal(block_density(x), 0.5)
  expect_equal(block_elements(x), 48)
  expect_match(block_identity(x), "^[0-9a-f]{32}$")
  expect_equal(block_id(x, c(1, 1, 2), c(1, 2, 3)), c(NA, 1, 3))
  expect_equal(block_row_lengths(x), c(1, 2))
  expect_equal(sort(block_order(x, "morton")), 1:3)
  expect_equal(block_order(x, "column"), c(2, 1, 3))
  facts <- block_statistics(x)
  expect_equal(unname(facts$row_lengths), c(1, 1.5, 2, 0.5))
  expect_equal(unname(facts$bandwidth), c(1, 1))
  expect_equal(block_partition(x, 2), c(0, 1, 2))
  expect_equal(length(x), 96)
  expect_match(block_svg(x), "<svg")
})

test_that("ragged edges count as what they are", {
  x <- block_layout(c(1, 3), c(1, 2), dim = c(9, 5), block = c(4, 3))
  expect_equal(block_grid(x), c(3, 2))
  expect_equal(block_elements(x), 12 + 1 * 2)
})

test_that("reach follows the steps", {
  ring <- block_layout(1:4, c(2:4, 1), c(4, 4), 1)
  expect_equal(block_reach(ring, 4), (1:4) / 4)
})

test_that("heads have their own patterns", {
  mask <- array(FALSE, c(2, 3, 2))
  mask[1, 2, 1] <- mask[2, 3, 2] <- mask[2, 1, 2] <- TRUE
  x <- block_layout_from_mask(mask, c(2, 5))
  expect_equal(block_heads(x), 2)
  expect_identical(block_mask(x), mask)
  expect_equal(block_coordinates(x)$head, c(1L, 2L, 2L))
  expect_true(x == block_layout(c(1, 2, 2), c(2, 3, 1), c(4, 15), c(2, 5), head = c(1, 2, 2), heads = 2))
  expect_equal(block_row_lengths(x), matrix(c(1, 0, 0, 2), 2))
  every <- block_layout(1, 1, c(4, 15), c(2, 5), heads = 3)
  expect_equal(block_count(every), 3)
})

test_that("empty layouts are layouts", {
  x <- block_layout(numeric(), numeric(), c(6, 6), 3)
  expect_equal(block_count(x), 0)
  expect_equal(block_density(x), 0)
  none <- block_layout(numeric(), numeric(), c(0, 6), 3)
  expect_equal(block_grid(none), c(0, 2))
  expect_identical(dim(block_mask(none)), c(0L, 2L))
})

test_that("set algebra obeys its laws", {
  for (seed in 1:50) {
    dim <- c(20 + seed %% 7, 15 + seed %% 5)
    x <- random_layout(dim, c(4, 3), seed = seed)
    y <- random_layout(dim, c(4, 3), seed = seed + 1000)
    expect_identical(block_mask(x | y), block_mask(x) | block_mask(y))
    expect_identical(block_mask(x & y), block_mask(x) & block_mask(y))
    expect_identical(block_mask(x - y), block_mask(x) & !block_mask(y))
    expect_true((x - y | x & y) == x)
    expect_true(t(t(x)) == x)
    expect_identical(block_mask(t(x)), t(block_mask(x)))
  }
})

test_that("blocks can be permuted, cut, pruned, grown and moved", {
  x <- random_layout(c(24, 20), 4, 0.5)
  m <- block_mask(x)
  rows <- c(3, 1, 2, 6, 5, 4)
  expect_identical(block_mask(block_permute(x, rows, 5:1)), m[rows, 5:1])
  expect_identical(block_mask(block_permute(x, cols = 5:1)), m[, 5:1])
  expect_identical(block_mask(block_slice(x, 2:4, 3:5)), m[2:4, 3:5])
  expect_identical(block_mask(block_slice(x, cols = 1:2)), m[, 1:2])
  gates <- rep_len(c(0, 1, 2), block_count(x))
  expect_equal(block_count(block_prune(x, gates)), sum(gates != 0))
  n <- block_count(x)
  expect_true(block_evolve(x, 0, seq_len(n), threshold = n - 1) == block_keep(x, 2, seq_len(n)))
  expect_identical(block_evolve(x, 1, seq_len(n), threshold = n - 1, every = 2), x)
  free <- which(!block_mask(x))[1L]
  growth <- replace(array(0, block_grid(x)), free, 1)
  expect_true(block_mask(block_evolve(x, 0, seq_len(n), growth, swap = 1 / n))[free])
  a <- block_matrix(x, init = "normal", seed = 1)
  expect_equal(block_norms(block_evolve(a, 0, density = 2 / prod(block_grid(x)))), block_norms(block_keep(a, 2)))
  expect_error(block_evolve(a, 0, swap = 2), "swap is 2|'swap=2'")
  expect_error(block_evolve(a, 0, density = 1:2), "density is c\\(1, 2\\), expected one number")
  expect_error(block_evolve(a, 0, growth = matrix(0, 1, 1)), "growth is 1 x 1, expected")
  kept <- block_keep(x, 2, seq_len(block_count(x)))
  expect_equal(as.matrix(block_coordinates(kept)), as.matrix(tail(block_coordinates(x), 2)), ignore_attr = TRUE)
  grown <- block_grow(x, 1:5, 1:5)
  g <- m
  diag(g) <- TRUE
  expect_identical(block_mask(grown), g)
  one <- block_layout(c(1, 2), c(1, 2), c(8, 8), 4)
  expect_equal(block_coordinates(block_move(one, 1, 2, 1))[, 2:3], data.frame(row = c(2L, 2L), col = 1:2))
  expect_identical(block_mask(block_reblock(one, 2)), kronecker(diag(2), matrix(1, 2, 2)) == 1)
})

test_that("patterns come from seeds, given or R's", {
  listed <- block_patterns()
  expect_true(all(c("dense", "banded", "barabasi_albert") %in% listed$pattern))
  expect_true(all(nzchar(listed$what)))
  a <- block_pattern("barabasi_albert", c(160, 160), 8, m = 3, seed = 42)
  expect_true(a == block_pattern("barabasi_albert", c(160, 160), 8, m = 3, seed = 42))
  expect_false(a == block_pattern("barabasi_albert", c(160, 160), 8, m = 3, seed = 43))
  expect_match(block_recipe(a), "barabasi_albert")
  set.seed(7)
  b <- block_pattern("barabasi_albert", c(160, 160), 8)
  set.seed(7)
  expect_true(b == block_pattern("barabasi_albert", c(160, 160), 8))
  expect_false(b == block_pattern("barabasi_albert", c(160, 160), 8))
  expect_equal(block_density(block_pattern("dense", c(9, 9), 4)), 1)
})

test_that("reverse Cuthill-McKee brings entries to the diagonal", {
  set.seed(5)
  n <- 60
  hidden <- sample(n)
  path <- sparseMatrix(i = hidden[-n], j = hidden[-1], x = 1, dims = c(n, n), symmetric = FALSE)
  p <- reorder_rcm(path)
  expect_identical(sort(p), seq_len(n))
  moved <- as(path[p, p], "TsparseMatrix")
  expect_equal(max(abs(moved@i - moved@j)), 1)
  blocks <- block_layout_from_entries(path, block = 1)
  expect_identical(reorder_rcm(blocks), p)
})

test_that("layouts print and summarise", {
  expect_output(show(small_layout()), "8 x 12, blocks 4 x 4: 3 of 6 stored (50 %)", fixed = TRUE)
  expect_output(show(small_layout()), ".#.", fixed = TRUE)
  expect_output(print(summary(small_layout())), block_identity(small_layout()))
})

test_that("orders of rows and columns find a hidden structure", {
  set.seed(4)
  blocks <- matrix(runif(24) < 0.3, 6)
  x <- kronecker(blocks, matrix(1, 8, 8)) * rnorm(48 * 32)
  hidden <- x[sample(48), sample(32)]
  p <- reorder_blocks(hidden, 8, density = mean(blocks))
  expect_identical(lapply(p, sort), list(rows = 1:48, cols = 1:32))
  expect_identical(block_count(block_layout_from_dense(hidden[p$rows, p$cols], 8)), sum(blocks))
  expect_gt(block_count(block_layout_from_dense(hidden, 8)), sum(blocks))
  expect_identical(reorder_blocks(hidden, 8, density = mean(blocks)), p)
  expect_refused(reorder_blocks(array(0, c(2, 2, 2)), 1, 0.5), "shape", "x has 3 dimensions, expected 2")
  expect_refused(reorder_blocks(hidden, 8, 2), "argument", "density is 2, expected 0 .. 1")
})
