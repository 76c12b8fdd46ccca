segment_sum_gradient(matrix(0, 2, 3), order = c(3, 1, 2), ends = c(2, 3), z_grad = matrix(1:4 + 0, 2))
