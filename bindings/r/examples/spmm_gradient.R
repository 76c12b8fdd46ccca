W <- block_matrix(diag(1:4), block = 2)
grads <- spmm_gradient(W, matrix(1, 4, 3), matrix(1, 4, 3))
grads$b
grads$a
