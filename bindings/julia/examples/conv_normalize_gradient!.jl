c = BlockConv(pattern(:dense, (8, 8), 4); kernel = 3)
w = conv_filter(c, randn(3, 8, 8))
conv_normalize_gradient!((filter = similar(w),), c, w, w)
