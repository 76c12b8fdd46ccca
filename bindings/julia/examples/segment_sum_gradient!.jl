segment_sum_gradient!((values = zeros(2, 3), x = zeros(2, 2)), zeros(2, 3), [3, 1, 2], [2, 3], [1.0 3; 2 4])
