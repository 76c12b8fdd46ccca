x <- matrix(c(3, 1, 4, 1, 2, 7, 1, 8), 4)
top_k_gradient(x, top_k(x, k = 2)$indices, matrix(1, 2, 2))
