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

# Indented lines of the docstrings are code: each docstring is run in a module of its own, as a reader would type it.
const SETUP = """
using Tartan, SparseArrays, LinearAlgebra
cd(mktempdir())
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

function runs(name, code)
    place = Module()
    Core.eval(place, :(using Tartan))
    result = refusal(() -> include_string(place, SETUP * code))
    result === nothing || println(name, ": ", sprint(showerror, result))
    return result === nothing
end

@testset "examples" begin
    @test length(examples()) >= 10
    for (name, code) in examples()
        @test runs(name, code)
    end
end

# Lines that compare are true. The page is not part of the package.
const PAGE = joinpath(@__DIR__, "..", "..", "..", "docs", "julia.md")
isfile(PAGE) && @testset "the page on Julia" begin
    parts = [m[1] for m in eachmatch(r"```julia\n(.*?)```"s, read(PAGE, String))]
    @test length(parts) > 5
    place = Module()
    checked = 0
    here = pwd()
    for part in parts
        at = 1
        while at <= ncodeunits(part)
            line, at = Meta.parse(part, at; depwarn = false)
            value = Core.eval(place, line)
            value isa Bool || continue
            value || println("false: ", line)
            @test value
            checked += 1
        end
    end
    cd(here)
    @test checked > 8
end
