W = BlockSparseMatrix([3.0 4 0 0; 0 2 0 0], 2)
Matrix(weight_normalize(W)) ≈ [0.6 0.8 0 0; 0 1 0 0]
