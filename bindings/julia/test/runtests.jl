# SPDX-License-Identifier: Apache-2.0
# Arguments name the groups to run; without any, all run.
using Tartan, Test, Libdl, LinearAlgebra, Random, Serialization, SparseArrays, Statistics
using Tartan: BFloat16, Raw

include("report.jl")
include("support.jl")
include("described.jl")

# Those that collect garbage come first: that takes longer the more is compiled.
const GROUPS = ["closing", "device", "language", "raw", "bfloat16", "float8", "layout", "layout_edit", "boundaries", "matrix", "assembly", "writing", "laws", "arithmetic", "convert", "products", "allocations", "views", "wrapped", "solvers", "gradients", "value_and_gradient",
                "refusals", "device_arithmetic", "device_layout", "attention", "attention_masks", "softmax", "packed", "conv", "channel_linear", "residual", "operations", "optimisers", "sparsifier", "minimise", "windows", "files", "cases", "extensions", "interrupt",
                "documentation"]

# The build says where the program is that "raw" needs; with less than -O2 objects are allocated that need not be.
can_run(name) = name == "raw" ? haskey(ENV, "TARTAN_PROBE") : name != "allocations" || Base.JLOptions().opt_level >= 2
chosen() = isempty(ARGS) ? filter(can_run, GROUPS) : ARGS

Random.seed!(1)
report = @testset Report "tartan" begin
    for name in chosen()
        @testset "$name" begin include("$(name)_test.jl") end
    end
end

found = cases(report)
println(length(found) - failures(report), " of ", length(found), " test cases passed, with ",
        sum(case.passed for (_, case) in found), " checks")
if haskey(ENV, "TARTAN_TEST_RESULTS")
    mkpath(ENV["TARTAN_TEST_RESULTS"])
    write_junit(joinpath(ENV["TARTAN_TEST_RESULTS"], join(["julia"; ARGS], "-") * ".xml"), report)
end
exit(failures(report) == 0 ? 0 : 1)
