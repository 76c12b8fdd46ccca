# SPDX-License-Identifier: Apache-2.0
# The demonstration, part 4, in Julia.
using Tartan, Printf

for name in ARGS[2:end]
    A = load(ARGS[1], name)
    X = [((7i + 13j) % 17 - 8) / 8 for i in 1:size(A, 2), j in 1:64]
    Y = A * X # the first product also compiles
    taken = @elapsed for _ in 1:20
        mul!(Y, A, X)
    end
    @printf("Julia   %-14s times 3111 x 64 in %6.2f ms   checksum %s\n", name, 1e3 * taken / 20, checksum(Y))
end
