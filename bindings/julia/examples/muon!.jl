parameters = [ones(4, 3)]
muon!(parameters, [randn(4, 3)], [zeros(4, 3)])
