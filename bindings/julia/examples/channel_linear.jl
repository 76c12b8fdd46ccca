channel_linear([1.0 -2.0; 3.0 4.0]; bias = [1.0, -1.0], relu = true) == [2 0; 2 3]
