W <- block_matrix(diag(1:4), block = 2)
linear_cross_entropy(W, matrix(0, 4, 3), c(1L, 2L, -100L))   # a column of x for each label
