x = randn(5, 4, 8, 2)
channel_linear!(x, x; gain = ones(8), relu = true)
