conv <- block_conv(block_pattern("dense", c(2, 2), 2), kernel = 1)
filter <- conv_filter(conv, c(3, 0, 4, 2))
conv_values(conv, conv_normalize(conv, filter))
w <- conv_normalize(conv, filter, gain = c(2, 1))
conv_normalize_gradient(conv, filter, out_grad = w, gain = c(2, 1))$gain
