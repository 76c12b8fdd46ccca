# SPDX-License-Identifier: Apache-2.0
# Every exported name is documented, and the examples run.

using Markdown

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

# The code of a docstring is run in a module of its own, as a reader would type it.
const SETUP = """
using Tartan, SparseArrays, LinearAlgebra
cd(mktempdir())
"""

docstrings() = sort!([string(binding.var) => join(text.text, "") for place in (Tartan, Tartan.Pointwise)
                      for (binding, multi) in Docs.meta(place) for (_, text) in multi.docs], by = first)

# The first piece is the signature.
code_of(body) = [part.code for part in Markdown.parse(body).content if part isa Markdown.Code && part.language != "jldoctest"]

# What uses CUDA.jl, which the tests do not have, is not run.
examples() = [name => join(code_of(body)[2:end], "\n") for (name, body) in docstrings()
              if length(code_of(body)) > 1 && !any(code -> occursin("using CUDA", code), code_of(body))]

function runs(name, code)
    place = Module()
    Core.eval(place, :(using Tartan))
    result = refusal(() -> include_string(place, SETUP * code))
    result === nothing || println(name, ": ", sprint(showerror, result))
    return result === nothing
end

# What is indented behind a list belongs to its last item, and a line that begins with a sign makes a list.
@testset "code is code" begin
    for (name, body) in docstrings()
        indented = startswith.(split(body, "\n\n"), "    ")
        @test length(code_of(body)) >= count(indented .& .![false; indented[1:end - 1]])
    end
    @test all(all(line -> !startswith(line, r"[-+] |[0-9]+[.)] "), split(body, "\n")) for (_, body) in docstrings())
end

@testset "examples" begin
    @test length(examples()) >= 10
    for (name, code) in examples()
        @test runs(name, code)
    end
end

# A session: what follows `julia> ` is typed, and the lines up to an empty one are what Julia shows then.
sessions() = [name => part.code for (name, body) in docstrings() for part in Markdown.parse(body).content
              if part isa Markdown.Code && part.language == "jldoctest"]

@testset "sessions show what they say" begin
    @test length(sessions()) >= 2
    for (name, code) in sessions()
        place = Module()
        Core.eval(place, :(using Tartan))
        include_string(place, SETUP)
        for step in split(code, "julia> "; keepempty = false)
            line, at = Meta.parse(step, 1)
            value, shown = Core.eval(place, line), strip(SubString(step, at))
            found = value === nothing || endswith(strip(step), ';') ? "" : sprint(show, MIME"text/plain"(), value; context = :module => place)
            rows(text) = join(rstrip.(split(strip(text), '\n')), '\n')
            rows(found) == rows(shown) || println(name, " shows\n", found)
            @test rows(found) == rows(shown)
        end
    end
end

# Lines that compare are true. The page is not part of the package.
const PAGE = joinpath(@__DIR__, "..", "..", "..", "docs", "julia.md")
isfile(PAGE) && @testset "the page on Julia" begin
    parts = [m[1] for m in eachmatch(r"```julia\n(.*?)```"s, read(PAGE, String))]
    @test length(parts) > 5
    place = Core.eval(Main, :(module PageOnJulia end)) # by its name, deserialize finds the types of the page
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

const PAGE_ON_TRAINING = joinpath(@__DIR__, "..", "..", "..", "docs", "training.md")
isfile(PAGE_ON_TRAINING) && @testset "the model on the page on training" begin
    part = split(split(read(PAGE_ON_TRAINING, String), "\n## Julia\n")[2], "\n## ")[1]
    program = join((line[5:end] for line in split(part, '\n') if startswith(line, "    ")), '\n')
    found = include_string(Core.eval(Main, :(module PageOnTraining end)), program)
    @test found.blocks == round(Int, 0.3 * 64) && found.loss < 0.5
end
