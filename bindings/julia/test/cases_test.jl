# SPDX-License-Identifier: Apache-2.0
# The cases that C, Python, R and Julia share: the same operands, the same bits.

# Beside the tests in the package that the build makes.
const DATA = isdir(joinpath(@__DIR__, "data")) ? joinpath(@__DIR__, "data") : joinpath(@__DIR__, "..", "..", "..", "data")
const CASES = joinpath(DATA, "cases")

@testset "shared cases" begin
    rows = [split(line, ',') for line in readlines(joinpath(CASES, "products.csv"))]
    names, rows = Symbol.(rows[1]), rows[2:end]
    @test length(rows) >= 100
    file = BlockFile(joinpath(CASES, "products.h5"))
    for row in rows
        case = NamedTuple{Tuple(names)}(Tuple(row))
        A, B, C = file[case.a], Matrix(file[case.b]), Matrix(file[case.c])
        alpha, beta = parse(Float64, case.alpha), parse(Float64, case.beta)
        block_gates = case.gated == "1" ? gates(file, case.a) : nothing
        if case.op == "spmm"
            for out in (copy(C), permutedims(C)') # column-major, and row-major
                spmm!(out, A, B; side = case.side, transpose = case.transpose == "1", alpha = alpha, beta = beta,
                      gates = block_gates)
                @test checksum(out) == case.checksum
            end
        else
            @test case.op == "sddmm"
            @test checksum(Matrix(sddmm!(A, B, C; alpha = alpha, beta = beta, gates = block_gates))) == case.checksum
        end
    end
end

@testset "files of every released format" begin
    folders = readdir(joinpath(DATA, "golden"); join = true)
    @test !isempty(folders)
    for folder in folders, path in filter(endswith(".h5"), readdir(folder; join = true))
        objects = load(path)
        @test !isempty(objects)
        @test occursin(first(keys(objects)), Tartan.verify(path))
        foreach(A -> A isa BlockSparseMatrix && Tartan.check(A), values(objects))
    end
end

@testset "damaged files" begin
    for path in filter(endswith(".h5"), readdir(joinpath(DATA, "corrupt"); join = true))
        error = refusal(() -> load(path))
        @test error isa TartanError && error.status in (:format, :version, :overflow)
    end
end
