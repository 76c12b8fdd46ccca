dS = BlockSparseMatrix(Matrix(Diagonal([1.0, 2, 3, 4])), 2)
sddmm_gradient!((x = zeros(4, 3),), dS, ones(4, 3), ones(3, 4))
