X = BlockSparseMatrix{Float32}(pattern(:dense, (64, 64), 16))
block_softmax!(X, X; causal = true, lse = zeros(Float32, 64))
