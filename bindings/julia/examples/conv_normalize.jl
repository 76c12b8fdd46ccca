c = BlockConv(pattern(:dense, (2, 2), 2); kernel = (1, 1))
w = conv_normalize(c, conv_filter(c, reshape([3.0, 0, 4, 0], 1, 1, 2, 2)))
dense_filter(c, w)[1, 1, :, :] ≈ [1 1; 0 0]
