y = zeros(5, 3)
random_uniform!(y; low = -1, high = 1, seed = 7)
