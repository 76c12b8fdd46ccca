x <- matrix(1, 2, 4)
rows <- seq(1, 4, 2)
scatter_rows(x, rows, matrix(2, 2, 2), combine = "multiply")
