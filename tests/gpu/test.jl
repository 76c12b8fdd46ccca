# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the Julia package that use devices, on those in TARTAN_TEST_DEVICES. Prints the kernels that a product and
# attention choose for each type, then the number of tests; fails if a test fails.
using Tartan

const CONTEXT = Context(first(split(get(ENV, "TARTAN_TEST_DEVICES", "cuda"))))
println(CONTEXT)
const LAYOUT = pattern(:banded, (1024, 1024), 64)
for T in (Float64, Float32, Float16, Tartan.BFloat16)
    W, X = to_device(BlockSparseMatrix{T}(LAYOUT), CONTEXT), to_device(zeros(T, 1024, 256), CONTEXT)
    q = to_device(zeros(T, 64, 1024, 2), CONTEXT)
    for (what, text) in ("product" => explain(*, W, X), "attention" => explain(attention, q, q, q, LAYOUT))
        found = match(r"\"kernel\": \"[^\"]*\", \"why\": \"[^\"]*\"", text)
        println(T, ": ", what, ": ", found === nothing ? "" : found.match)
    end
end

append!(empty!(ARGS), ["device", "device_arithmetic", "device_layout", "float8", "attention"])
include(joinpath(@__DIR__, "..", "..", "bindings", "julia", "test", "runtests.jl"))
