# Columns 3 and 1 make the first sum, column 2 the other.
segment_sum(matrix(0, 2, 2), matrix(c(1, 2, 10, 20, 100, 200), 2), order = c(3, 1, 2), ends = c(2, 3))
