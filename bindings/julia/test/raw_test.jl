# SPDX-License-Identifier: Apache-2.0
# The generated layer against what the C compiler makes of the headers.

@testset "sizes, offsets and constants" begin
    @test haskey(ENV, "TARTAN_PROBE")
    lines = split.(readlines(`$(ENV["TARTAN_PROBE"])`))
    @test count(line -> line[1] == "struct", lines) >= 3
    for line in lines
        if line[1] == "struct"
            @test sizeof(getfield(Raw, Symbol(line[2]))) == parse(Int, line[3])
        elseif line[1] == "field"
            S = getfield(Raw, Symbol(line[2]))
            i = findfirst(==(Symbol(line[3])), fieldnames(S))
            @test fieldoffset(S, i) == parse(Int, line[4])
            @test sizeof(fieldtype(S, i)) == parse(Int, line[5])
        else
            @test line[1] == "constant"
            @test getfield(Raw, Symbol(line[2])) == parse(Int, line[3])
        end
    end
    for S in (Raw.tartan_array, Raw.tartan_shape, Raw.tartan_hooks)
        @test count(line -> line[1] == "field" && line[2] == string(nameof(S)), lines) == fieldcount(S)
    end
end

@testset "versions" begin
    @test Tartan.version() == v"0.1.0"
    @test Raw.tartan_abi_version() == Raw.TARTAN_ABI_VERSION
    @test occursin("\"tartan\": \"0.1.0\"", Tartan.info())
end

@testset "every status has a name" begin
    for name in filter(name -> startswith(string(name), "TARTAN_ERR_"), names(Raw; all = true))
        error = Tartan.failure(getfield(Raw, name), "text")
        if name === :TARTAN_ERR_INTERRUPTED # Ctrl-C throws what it throws elsewhere in Julia
            @test error isa InterruptException
            continue
        end
        @test error.status == Symbol(lowercase(string(name)[12:end]))
        @test error.message == "text"
        @test occursin("text", sprint(showerror, error))
    end
end

@testset "nothing raw is exported" begin
    exported = names(Tartan)
    @test !(:Raw in exported)
    @test all(name -> !startswith(string(name), "tartan_"), exported)
    @test all(name -> isascii(string(name)), exported)
    @test all(name -> isdefined(Tartan, name), exported)
end

# As detect_ambiguities finds them, without the pairs of other packages' methods, which are nearly all.
@testset "no ambiguous methods" begin
    functions = IdDict{Any, Nothing}()
    for place in (Tartan, Base, LinearAlgebra, SparseArrays), name in names(place; all = true)
        isdefined(place, name) && getfield(place, name) isa Function && (functions[getfield(place, name)] = nothing)
    end
    compared = 0
    for f in keys(functions)
        all = f isa Core.Builtin ? Method[] : collect(Method, methods(f))
        for ours in filter(m -> m.module === Tartan, all)
            @test isempty([other.sig for other in all if other !== ours && Base.isambiguous(ours, other)]) || println(ours.sig)
            compared += 1
        end
    end
    @test compared > 1500
end
