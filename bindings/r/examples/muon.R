parameters <- list(matrix(rnorm(12), 4, 3))
gradients <- list(matrix(rnorm(12), 4, 3))
muon(parameters, gradients, list(matrix(0, 4, 3)))$parameters[[1]]
