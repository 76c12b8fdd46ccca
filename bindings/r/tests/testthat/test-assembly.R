# SPDX-License-Identifier: Apache-2.0
# Blocks and elements from triplets, and added into matrices.

dense_of <- function(dim, block, i, j, values) {
  x <- matrix(0, ceiling(dim[1] / block[1]) * block[1], ceiling(dim[2] / block[2]) * block[2])
  for (k in seq_along(i)) {
    rows <- (i[k] - 1) * block[1] + seq_len(block[1])
    cols <- (j[k] - 1) * block[2] + seq_len(block[2])
    x[rows, cols] <- x[rows, cols] + values[, , k]
  }
  x[seq_len(dim[1]), seq_len(dim[2])]
}

test_that("blocks in any order make a matrix, and repeats are added", {
  for (case in list(list(c(12, 20), c(3, 5)), list(c(13, 7), c(4, 4)), list(c(6, 6), c(1, 1)))) {
    dim <- case[[1]]
    block <- case[[2]]
    i <- sample(ceiling(dim[1] / block[1]), 30, TRUE)
    j <- sample(ceiling(dim[2] / block[2]), 30, TRUE)
    values <- array(sample(-4:4, prod(block) * 30, TRUE), c(block, 30))
    w <- block_matrix_from_blocks(i, j, values, dim)
    expect_identical(unname(as.matrix(w)), dense_of(dim, block, i, j, values))
    expect_equal(block_count(w), nrow(unique(cbind(i, j))))
  }
  expect_refused(block_matrix_from_blocks(3, 1, array(1, c(2, 2, 1)), c(4, 4)), "layout", "i[1] is 3, expected 1 to 2")
  expect_refused(block_matrix_from_blocks(1, 1, matrix(1, 2, 2), c(4, 4)), "shape", "values has 2 dimensions")
  expect_refused(block_matrix_from_blocks(1, 1, array(1, c(2, 2, 2)), c(4, 4)), "shape", "values has 2 blocks, expected 1")
})

test_that("a plan adds again and again", {
  layout <- random_layout(c(20, 28), c(4, 7), 0.6)
  places <- block_coordinates(layout)
  chosen <- sample(block_count(layout), 50, TRUE)
  i <- places$row[chosen]
  j <- places$col[chosen]
  plan <- block_assembly(layout, i, j)
  expect_output(print(plan), "<BlockAssembly of 50 blocks>", fixed = TRUE)
  w <- block_matrix(layout)
  want <- matrix(0, 20, 28)
  for (k in 1:3) {
    values <- array(sample(-4:4, 28 * 50, TRUE), c(4, 7, 50))
    w <- block_add(w, plan, values)
    want <- want + dense_of(c(20, 28), c(4, 7), i, j, values)
    expect_identical(unname(as.matrix(w)), want)
  }
  rows <- 4 * (i - 1) + sample(4, 50, TRUE)
  cols <- 7 * (j - 1) + sample(7, 50, TRUE)
  numbers <- sample(-4:4, 50, TRUE) + 0
  for (k in 1:50) want[rows[k], cols[k]] <- want[rows[k], cols[k]] + numbers[k]
  expect_identical(unname(as.matrix(block_add(w, block_assembly(layout, rows, cols, of = "elements"), numbers))), want)
  expect_refused(block_assembly(block_layout(c(1, 2), c(1, 2), c(4, 4), 2), 1, 2), "layout", "expected a block that is stored")
  expect_refused(block_add(block_matrix(diag(4), c(2, 2)), plan, numbers), "layout", "x has another layout than the plan")
  expect_refused(block_add(w, 3, numbers), "argument", "plan is")
})
