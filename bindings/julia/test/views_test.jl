# SPDX-License-Identifier: Apache-2.0
# Memory that a raw ccall would misread: every operand is read and written where its indices say.

inputs(X) = Any[
    X,
    view(vcat(zero(X), X), size(X, 1) + 1:2size(X, 1), :),
    view(repeat(X, inner = (2, 3)), 1:2:2size(X, 1), 1:3:3size(X, 2)),
    view(X[end:-1:1, end:-1:1], size(X, 1):-1:1, size(X, 2):-1:1),
    view(X, collect(1:size(X, 1)), :),
    copy(X')', transpose(permutedims(X)), view(permutedims(X), :, :)',
    PermutedDimsArray(permutedims(X), (2, 1)),
    view(PermutedDimsArray(permutedims(X), (2, 1)), :, :),
    reshape(vec(X), size(X)), reshape(view(X, :, :), size(X)),
    reinterpret(eltype(X), reinterpret(UInt64, X)),
    view(reshape(X, size(X)..., 1), :, :, 1),
    Base.ReshapedArray(view(X, :, collect(1:size(X, 2))), size(X), ()),
]

@testset "inputs" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    D = Matrix(A)
    X, Y = exact(Float64, 14, 6), exact(Float64, 6, 10)
    for (i, B) in enumerate(inputs(X))
        @test B == X
        @test A * B == D * X
        @test mul!(zeros(10, 6), A, B) == D * X
        @test spmm!(zeros(10, 6), A, B) == D * X
        @test B' * A' == (D * X)'
    end
    for B in inputs(Y)
        @test B * A == Y * D
        @test mul!(zeros(6, 14), B, A) == Y * D
        @test A' * B' == (Y * D)'
    end
    x = exact(Float64, 14)
    for v in (view(repeat(x, inner = 3), 1:3:42), view(reverse(x), 14:-1:1), view(repeat(x', 2), 2, :),
              view(x, collect(1:14)), reinterpret(Float64, reinterpret(UInt64, x)), view(X[:, 1:1] .+ 0, :, 1))
        @test A * v == D * collect(v)
        @test mul!(zeros(10), A, v) == D * collect(v)
        @test transpose(v) * A' == transpose(D * collect(v))
    end
end

@testset "outputs" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    X = exact(Float64, 14, 6)
    expected = Matrix(A) * X
    backing = fill(NaN, 33, 33)
    for C in (view(backing, 2:3:29, 1:2:11), view(backing, 10:-1:1, 6:-1:1),
              view(backing, 7:12, 1:10)', PermutedDimsArray(view(backing, 1:6, 1:10), (2, 1)), zeros(10, 6),
              reinterpret(Float64, zeros(UInt64, 10, 6)), reshape(zeros(60), 10, 6))
        backing .= NaN
        @test mul!(C, A, X) === C
        @test C == expected
        @test count(!isnan, backing) in (0, 60) # nothing else was written
        @test mul!(C, A, X, 1, 2) == 3 * expected
    end
    y = fill(NaN, 40)
    out = view(y, 38:-4:2)
    @test mul!(out, A, X[:, 1]) == expected[:, 1] && count(!isnan, y) == 10
    for irregular in (view(zeros(10, 6), collect(10:-1:1), :), view(zeros(6, 10)', 1:10, 1:6))
        @test_throws ArgumentError mul!(irregular, A, X)
        @test_throws ArgumentError spmm!(irregular, A, X)
        @test all(iszero, irregular)
    end
end

@testset "wrong element types are not reinterpreted" begin
    A = random_matrix(Float32, 8, 8, (4, 4))
    before = fill(7.0f0, 8)
    for x in (ones(Float64, 8), ones(Int, 8), ones(Float16, 8), trues(8))
        @test mul!(copy(before), A, x) == Matrix(A) * x
        @test_throws ArgumentError spmm!(zeros(Float32, 8, 1), A, reshape(x, 8, 1))
    end
    for x in (ones(ComplexF32, 8), Any[1.0f0 for _ in 1:8])
        out = copy(before)
        error = refusal(() -> mul!(out, A, x))
        @test error isa ArgumentError && occursin(string(eltype(x)), error.msg) && out == before
        @test_throws ArgumentError spmm!(zeros(Float32, 8, 1), A, reshape(x, 8, 1))
    end
    @test mul!(zeros(Float64, 8), A, ones(Float32, 8)) == A * ones(Float32, 8)
    C = zeros(Int, 8)
    @test mul!(C, A, fill(2, 8)) == 2 * sum(Matrix(A); dims = 2)[:]
    @test refusal(() -> mul!(C, BlockSparseMatrix(fill(0.5f0, 8, 8), 4), [1; zeros(Int, 7)])) isa InexactError && C == 2 * sum(Matrix(A); dims = 2)[:]
    @test_throws ArgumentError BlockSparseMatrix(A.layout, zeros(Int, 4, 4, nblocks(A)))
    @test_throws ArgumentError BlockSparseMatrix{Int}(A.layout)
    @test_throws ArgumentError BlockSparseMatrix{ComplexF64}(A)
    @test_throws MethodError Raw.tartan_layout_prune(A.layout, zeros(Float32, nblocks(A)))
end

@testset "batches with permuted dimensions" begin
    A = random_matrix(Float64, 10, 14, (4, 4))
    B = exact(Float64, 3, 14, 6)
    C = zeros(6, 3, 10)
    spmm!(PermutedDimsArray(C, (3, 1, 2)), A, PermutedDimsArray(B, (2, 3, 1)))
    @test all(C[:, i, :] == (Matrix(A) * B[i, :, :])' for i in 1:3)
end
