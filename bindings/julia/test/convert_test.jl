# SPDX-License-Identifier: Apache-2.0

@testset "SparseMatrixCSC both ways, $T" for T in TYPES
    for _ in 1:20
        n, m, block = rand(0:40), rand(0:40), (rand(1:9), rand(1:9))
        S = sparse(T.(Matrix(sprand(n, m, 0.1)) .!= 0) .* exact(T, n, m))
        A = BlockSparseMatrix(S, block)
        @test A isa BlockSparseMatrix{T} && A == S
        @test A.layout == BlockLayout(S, block)
        @test sparse(A) == S && sparse(A) isa SparseMatrixCSC{T, Int}
        @test nnz(sparse(A)) == nnz(A)
        @test SparseMatrixCSC(A) == S
        @test sparse(A') == sparse(permutedims(Matrix(S)))
    end
end

@testset "other kinds of entries and indices" begin
    S = sparse(Int32[1, 5], Int32[2, 3], [true, true], 6, 6)
    @test BlockSparseMatrix(S, 2) isa BlockSparseMatrix{Float64}
    @test BlockSparseMatrix(S, 2) == S
    @test BlockSparseMatrix(sparse([1, 2], [1, 2], [1, 2]), 2) == [1 0; 0 2]
    explicit = sparse([1, 3], [1, 3], [0.0, 1.0], 4, 4)
    @test nblocks(BlockSparseMatrix(explicit, 2)) == 2
    @test SparseMatrixCSC{Float32, Int32}(BlockSparseMatrix(explicit, 2)) isa SparseMatrixCSC{Float32, Int32}
end

@testset "parts of sparse matrices, and their views" begin
    S = sprand(12, 12, 0.2)
    for X in (view(S, 2:9, :), view(S, [3, 1], 1:2:12), UpperTriangular(S)', transpose(UnitLowerTriangular(S)), Symmetric(S')', LowerTriangular(transpose(S)),
              Bidiagonal(ones(12), ones(11), :U)')
        A = BlockSparseMatrix(X, (4, 3))
        @test A isa BlockSparseMatrix{Float64} && A == Matrix(X) && A == X && A.layout == BlockLayout(X, (4, 3)) && BlockSparseMatrix(X, A.layout) == A
    end
end

@testset "other numbers are refused" begin
    Z = [1 2im; 3 4]
    for f in (() -> BlockSparseMatrix(Z, 2), () -> BlockSparseMatrix(sparse(Z), 2), () -> BlockLayout(Z, 2), () -> BlockSparseMatrix(Z, BlockLayout(trues(1, 1), 2)))
        @test refusal(f) isa ArgumentError && occursin("Complex{Int64} is not one of Tartan's", refusal(f).msg)
    end
end

@testset "numbers that are Bool are no mask" begin
    X = falses(12, 8)
    X[5, 2] = X[12, 8] = true
    A = BlockSparseMatrix(X, (4, 4))
    @test size(A) == (12, 8) && A == X && nblocks(A) == 2 && eltype(A) === Float64
    @test BlockSparseMatrix(Matrix(X), A.layout) == X && BlockSparseMatrix(sparse(X), (4, 4)) == X
    @test size(BlockLayout(X, (4, 4))) == (48, 32) # a mask, as it says
end

@testset "into a layout" begin
    layout = BlockLayout([true false; false true], 2)
    S = sparse([1, 4], [2, 3], [1.0, 2.0], 4, 4)
    @test BlockSparseMatrix(S, layout) == S
    @test_throws DimensionMismatch BlockSparseMatrix(sparse(ones(1, 1)), layout)
    @test refuses(() -> BlockSparseMatrix(sparse([1], [3], [1.0], 4, 4), layout), :layout)
    @test BlockSparseMatrix(ones(4, 4), layout) == kron([1 0; 0 1], ones(2, 2))
    @test BlockSparseMatrix(trues(4, 4), layout) isa BlockSparseMatrix{Float64}
    @test BlockSparseMatrix{Float32}(ones(4, 4), layout) isa BlockSparseMatrix{Float32}
    @test refuses(() -> BlockSparseMatrix(ones(4, 5), layout), :shape)
end

@testset "dense" begin
    D = zeros(9, 7)
    D[2, 2], D[9, 7] = 3, 4
    A = BlockSparseMatrix(D, (4, 4))
    @test A == D && nblocks(A) == 2
    @test BlockSparseMatrix(D', (4, 4)) == D'
    @test BlockSparseMatrix(view(D, 9:-1:1, 1:2:7), 4) == D[9:-1:1, 1:2:7]
    @test BlockSparseMatrix(UpperTriangular(ones(6, 6)), 2) == triu(ones(6, 6))
    @test BlockSparseMatrix(A, (2, 2)) == D
end

@testset "findnz" begin
    A = random_matrix(Float64, 11, 9, (4, 4))
    rows, cols, values = findnz(A)
    @test length(values) == nnz(A)
    @test [A[i, j] for (i, j) in zip(rows, cols)] == values
    @test issorted(collect(zip(rows, cols)))
end

@testset "transposed copies" begin
    A = random_matrix(Float32, 20, 13, (8, 4))
    @test copy(A') isa BlockSparseMatrix{Float32} && copy(A') == Matrix(A)'
    @test permutedims(A) == permutedims(Matrix(A)) && blocksize(permutedims(A)) == (4, 8)
    @test copy(transpose(permutedims(A))) == A
    @test permutedims(A, (2, 1)) == permutedims(A) && permutedims(A, [1, 2]) == A
    @test_throws ArgumentError permutedims(A, (1, 1))
    @test Matrix(A') == Matrix(A)' && Matrix(transpose(A)) == transpose(Matrix(A))
    @test A'' === A && transpose(transpose(A)) === A
    @test A'[3, 5] == A[5, 3]
    @test nnz(A') == nnz(A)
    C = copy(A')
    @test block_norms(A') == block_norms(C) && slice(A', 2:3, 1:2) == slice(C, 2:3, 1:2) && permute_blocks(A'; rows = [2, 1, 3, 4]) == permute_blocks(C; rows = [2, 1, 3, 4])
    text(x) = sprint(show, MIME"text/plain"(), x)
    @test split(text(A'), '\n')[2:end] == split(text(C), '\n')[2:end] && !occursin("TransposedBlocks", summary(A') * text(A'))
    @test project(A', transpose(A.layout)) == C && svg(A') == svg(C) == sprint(show, MIME"image/svg+xml"(), A')
    @test store!(BlockFile(), "a", A'; gates = ones(nblocks(A)))["a"] == C
end
