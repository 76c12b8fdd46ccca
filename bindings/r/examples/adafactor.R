parameters <- list(matrix(rnorm(12), 4, 3), rnorm(5))
gradients <- list(matrix(1, 4, 3), rep(1, 5))
# Means of squares: of a matrix for its three columns and four rows, of a vector one for each number.
new <- adafactor(parameters, gradients, list(numeric(3), numeric(5)), list(numeric(4), numeric(0)))
new$parameters[[2]] - parameters[[2]]
