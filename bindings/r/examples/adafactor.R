parameters <- list(matrix(rnorm(12), 4, 3), rnorm(5))
gradients <- list(matrix(1, 4, 3), rep(1, 5))
# A mean of squares for each column and each row of a matrix, and for each number of a vector
new <- adafactor(parameters, gradients, list(numeric(3), numeric(5)), list(numeric(4), numeric(0)))
new$parameters[[2]] - parameters[[2]]
