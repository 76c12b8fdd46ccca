A = BlockSparseMatrix(Matrix(Diagonal([1.0, 2, 3, 4])), 2)
spmm_gradient(A, ones(4, 3), ones(4, 3)).b
