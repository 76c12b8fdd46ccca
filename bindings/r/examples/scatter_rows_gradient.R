x <- matrix(1, 2, 4)
y <- matrix(2, 2, 2)
scatter_rows_gradient(matrix(1:8 + 0, 2), c(3, 1), y = y, x = x, combine = "multiply")
