add_n(list(matrix(1:12 + 0, 4, 3), matrix(1, 4, 3), matrix(2, 4, 3)))
