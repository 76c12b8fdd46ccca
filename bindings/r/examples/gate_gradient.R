w <- block_matrix(block_pattern("banded", c(16, 12), 4), init = "normal", seed = 1)
gate_gradient(w, dw = w)$gates
