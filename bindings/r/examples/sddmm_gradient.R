dS <- block_matrix(diag(1:4), block = 2)
sddmm_gradient(dS, matrix(1, 4, 3), matrix(1, 3, 4))$x
