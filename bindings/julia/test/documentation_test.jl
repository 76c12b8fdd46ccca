# SPDX-License-Identifier: Apache-2.0
# Every exported name is documented, and the examples run.

documented(name) = haskey(Docs.meta(Tartan), Docs.Binding(Tartan, name)) ||
    any(binding -> binding.var == name, keys(Docs.meta(Tartan)))

@testset "docstrings" begin
    elsewhere = (:Tartan, :findnz, :mul!, :sparse, :nnz, :nonzeros) # of the standard library
    for name in setdiff(names(Tartan), elsewhere)
        @test documented(name)
    end
    for op in Tartan.OPERATIONS, name in (op.name, Symbol(op.name, "!"))
        op.place === :Pointwise && @test haskey(Docs.meta(Tartan.Pointwise), Docs.Binding(Tartan.Pointwise, name))
    end
end

# Indented lines of the docstrings are code: each docstring is run in a module of its own.
const SETUP = """
using Tartan, SparseArrays, LinearAlgebra
cd(mktempdir())
layout = pattern(:dense, (64, 64), 8)
A = fill_normal!(BlockSparseMatrix{Float64}(layout)); x = ones(64); g = ones(nblocks(A)); C = zeros(64)
B = copy(A); X = ones(64)
save("weights.h5", "first layer" => A)
"""

function examples()
    found = Pair{String, String}[]
    for place in (Tartan, Tartan.Pointwise), (binding, multi) in Docs.meta(place), (_, text) in multi.docs
        body = join(text.text, "")
        paragraphs = split(body, "\n\n")
        # The first indented paragraph is the signature.
        code = [p for (i, p) in enumerate(paragraphs) if i > 1 && startswith(p, "    ")]
        isempty(code) || push!(found, string(binding.var) => join(replace.(code, r"^    "m => ""), "\n"))
    end
    return sort(found)
end

@testset "examples" begin
    @test length(examples()) >= 10
    for (name, code) in examples()
        @testset "$name" begin
            place = Module()
            Core.eval(place, :(using Tartan))
            result = refusal(() -> include_string(place, SETUP * code))
            result === nothing || println(name, ": ", sprint(showerror, result))
            @test result === nothing
        end
    end
end
