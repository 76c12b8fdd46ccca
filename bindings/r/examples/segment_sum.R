# Columns 3 and 1 make the first sum, column 2 the other.
items <- matrix(c(1, 2, 10, 20, 100, 200), 2)
segment_sum(matrix(0, 2, 2), items, order = c(3, 1, 2), ends = c(2, 3))
