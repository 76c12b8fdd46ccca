parameters = [ones(4, 3), ones(5)]
adafactor!(parameters, [ones(4, 3), ones(5)], [zeros(3), zeros(5)], [zeros(4), zeros(0)])
