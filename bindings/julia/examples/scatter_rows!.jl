scatter_rows!(zeros(2, 4), zeros(2, 4), [3, 1], [1.0 2; 3 4]; combine = :add)
