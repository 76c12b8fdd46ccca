parameters <- list(weights = matrix(rnorm(12), 4, 3), bias = rnorm(4))
means <- squares <- lapply(parameters, function(p) 0 * p)
for (step in 1:3) {
  gradients <- lapply(parameters, function(p) 2 * p)
  found <- adam(parameters, gradients, means, squares, rate = 0.1, step = step)
  parameters <- found$parameters
  means <- found$means
  squares <- found$squares
}
parameters$bias
