grads = channel_linear_gradient([1.0 -2.0; 3.0 4.0], ones(2, 2); bias = [1.0, -1.0], relu = true)
grads.bias == [1, 2]
