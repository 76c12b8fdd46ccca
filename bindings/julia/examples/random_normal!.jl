y = zeros(Float32, 5, 3)
random_normal!(y; mean = 10, deviation = 2, seed = 7)
