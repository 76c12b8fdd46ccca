x, y = rand(2, 4), rand(2, 2)
scatter_rows_gradient!((x = zeros(2, 4), y = zeros(2, 2)), ones(2, 4), [3, 1]; x, y, combine = :multiply)
