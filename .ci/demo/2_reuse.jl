# SPDX-License-Identifier: Apache-2.0
# The demonstration, part 2, in Julia: the saved pattern gets new weights, which go into the same file.
using Tartan

path = ARGS[1]
file = BlockFile(path)
layout = file["counties"].layout
weights = fill_normal!(BlockSparseMatrix{Float64}(layout); seed = 2026)
store!(file, "julia weights", weights)
save(path, file)
println("Julia   loaded pattern ", layout_identity(layout), ", saved new weights \"julia weights\" with it")
