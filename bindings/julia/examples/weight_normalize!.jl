W = BlockSparseMatrix([3.0 4 0 0; 0 2 0 0], 2)
weight_normalize!(W, W; gain = [1, 2], each = :row)
