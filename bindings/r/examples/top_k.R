x <- matrix(c(3, 1, 4, 1, 2, 7, 1, 8), 4)
top_k(x, k = 2)
