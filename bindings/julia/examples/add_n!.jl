y = zeros(8, 5)
add_n!(y, [ones(8, 5), ones(8, 5), rand(8, 5)])
