x <- array(rnorm(6 * 5 * 3 * 2), c(6, 5, 3, 2)) # 6 x 5 pixels, 3 channels, 2 images
y <- channel_linear(x, gain = 1:3, bias = c(0, 1, 0), relu = TRUE)
channel_linear_gradient(x, y_grad = y, gain = 1:3, bias = c(0, 1, 0), relu = TRUE)$gain
