x = rand(8, 5)
top_k!(zeros(2, 5), zeros(Int, 2, 5), x; k = 2)
