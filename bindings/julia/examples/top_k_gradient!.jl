x = rand(8, 5)
values, indices = top_k(x; k = 2)
top_k_gradient!(zeros(8, 5), x, indices, ones(2, 5))
