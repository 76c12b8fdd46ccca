segment_sum_gradient(zeros(2, 3), [3, 1, 2], [2, 3], [1.0 3; 2 4])
