# SPDX-License-Identifier: Apache-2.0
# Runs the device tests of the Julia package on the devices in TARTAN_TEST_DEVICES. Prints the kernel of a product for each
# type, then the number of tests; fails if a test fails.
using Tartan

const CONTEXT = Context(first(split(get(ENV, "TARTAN_TEST_DEVICES", "cuda"))))
println(CONTEXT)
const LAYOUT = pattern(:banded, (1024, 1024), 64)
for T in (Float64, Float32, Float16, Tartan.BFloat16)
    W, X = to_device(BlockSparseMatrix{T}(LAYOUT), CONTEXT), to_device(zeros(T, 1024, 256), CONTEXT)
    found = match(r"\"kernel\": \"[^\"]*\", \"why\": \"[^\"]*\"", explain(*, W, X))
    println(T, ": ", found === nothing ? "" : found.match)
end

append!(empty!(ARGS), ["device"])
include(joinpath(@__DIR__, "..", "..", "bindings", "julia", "test", "runtests.jl"))
