# SPDX-License-Identifier: Apache-2.0

@testset "values are Julia's own" begin
    layout = BlockLayout([true false; true true], (4, 2))
    values = reshape(collect(1.0:24.0), 4, 2, 3)
    A = BlockSparseMatrix(layout, values)
    @test A.values === values
    @test Matrix(A)[1:4, 1:2] == values[:, :, 1] && Matrix(A)[5:8, 3:4] == values[:, :, 3]
    values[2, 1, 3] = -7
    @test A[6, 3] == -7
    @test A * ones(4) == Matrix(A) * ones(4)
    @test nonzeros(A) == vec(values)
    nonzeros(A)[1] = 100
    @test A[1, 1] == 100
    @test BlockSparseMatrix(layout, view(values, :, :, 3:-1:1))[1, 1] == values[1, 1, 3]
    @test BlockSparseMatrix(layout, reinterpret(Float32, zeros(UInt32, 4, 2, 3))) == zeros(8, 4)
end

@testset "as an AbstractMatrix, $T" for T in TYPES
    D = exact(T, 13, 10)
    layout = random_layout(13, 10, (4, 3))
    A = BlockSparseMatrix(D, layout)
    keep = kron(block_mask(layout), trues(4, 3))[1:13, 1:10]
    @test eltype(A) === T && size(A) == (13, 10) && A isa AbstractMatrix{T}
    @test Matrix(A) == D .* keep && Matrix(A) isa Matrix{T}
    @test [A[i, j] for i in 1:13, j in 1:10] == Matrix(A)
    @test collect(A) == Array(A) == Matrix(A) && Matrix{Float64}(A) == wide(Matrix(A))
    @test A[3, :] == Matrix(A)[3, :] && A[2:5, [1, 7]] == Matrix(A)[2:5, [1, 7]]
    @test A == Matrix(A) && Matrix(A) == A
    @test sum(A) == sum(Matrix(A)) && A .+ 1 == Matrix(A) .+ 1
    @test nnz(A) == count(keep)
    @test blocksize(A) == (4, 3) && nblocks(A) == nblocks(layout)
    @test issparse(A)
    @test_throws BoundsError A[14, 1]
    @test_throws BoundsError A[0, 1]
end

@testset "assignment" begin
    A = BlockSparseMatrix{Float64}(BlockLayout([true false; true true], 2))
    @test iszero(A)
    A[4, 4] = 5
    @test A[4, 4] == 5 && A.values[2, 2, 3] == 5
    @test_throws ArgumentError A[1, 3] = 1
    @test_throws BoundsError A[5, 1] = 1
    fill!(A, 0)
    @test iszero(A)
    @test_throws ArgumentError fill!(A, 1)
end

@testset "copies" begin
    A = random_matrix(Float32, 20, 20, (8, 8))
    B = copy(A)
    @test B == A && B.values !== A.values && B.layout === A.layout
    isempty(B.values) || (B.values[1] += 1)
    C = deepcopy(A)
    @test C == A && C.values !== A.values
    pair = deepcopy([A, A])
    @test pair[1] === pair[2]
    @test iszero(similar(A)) && eltype(similar(A, Float64)) === Float64
    C = similar(A, Float64, (3, 2)) # any element may be written: no layout says where
    @test C isa SparseMatrixCSC{Float64} && size(C) == (3, 2) && nnz(C) == 0
end

@testset "casts" begin
    A = random_matrix(Float64, 20, 17, (8, 4); make = normal)
    for T in TYPES
        B = BlockSparseMatrix{T}(A)
        @test eltype(B) === T && Matrix(B) == T.(Matrix(A))
        @test convert(BlockSparseMatrix{T}, A) == B
        @test AbstractMatrix{T}(A) == B
    end
    @test convert(BlockSparseMatrix{Float64}, A) === A
    @test BlockSparseMatrix{Float32}(A) != A
end

@testset "equality" begin
    for _ in 1:50
        A = random_matrix(Float64, rand(1:30), rand(1:30), (rand(1:8), rand(1:8)))
        wider = A.layout ∪ random_layout(size(A)..., blocksize(A))
        @test A == project(A, wider) && project(A, wider) == A
        @test project(project(A, wider), A.layout) == A
    end
    @test random_matrix(Float64, 8, 8, (8, 8)) != random_matrix(Float64, 8, 9, (8, 8))
end

@testset "initial values" begin
    layout = pattern(:dense, (64, 64), 16)
    A = fill_normal!(BlockSparseMatrix{Float64}(layout); seed = 3)
    @test A == fill_normal!(BlockSparseMatrix{Float64}(layout); seed = 3)
    @test A != fill_normal!(BlockSparseMatrix{Float64}(layout); seed = 4)
    @test 0.9 / 8 < sqrt(sum(abs2, A.values) / length(A.values)) < 1.1 / 8
    @test Matrix(fill_identity!(BlockSparseMatrix{Float32}(layout); scale = 2)) == 2I
    Q = Matrix(fill_orthogonal!(BlockSparseMatrix{Float64}(layout); seed = 1))
    for j in 1:16:64
        @test Q[:, j:j + 15]' * Q[:, j:j + 15] ≈ I
    end
    @test iszero(fill_zero!(A))
end

@testset "norms" begin
    A = random_matrix(Float64, 20, 20, (8, 8); make = normal)
    @test block_norms(A) ≈ [norm(A.values[:, :, k]) for k in 1:nblocks(A)]
    @test block_norms(A; norm = :max) ≈ [norm(A.values[:, :, k], Inf) for k in 1:nblocks(A)]
    @test block_norms(A; norm = "l1") ≈ [norm(A.values[:, :, k], 1) for k in 1:nblocks(A)]
    for p in (1, 2, Inf, 0)
        @test norm(A, p) ≈ norm(Matrix(A), p)
    end
    A.values[end] = NaN # padding or element: the check looks at elements alone
    @test Tartan.check(A; finite = false) === nothing
end

@testset "sums and multiples" begin
    A, B = random_matrix(Float64, 20, 18, (8, 4)), random_matrix(Float64, 20, 18, (8, 4))
    @test A + B isa BlockSparseMatrix && A + B == Matrix(A) + Matrix(B) && A - B == Matrix(A) - Matrix(B)
    @test A + A == 2A && -A == A * -1 && A / 2 == 0.5 * A
    @test 2A isa BlockSparseMatrix{Float64}
    @test 2 * BlockSparseMatrix{Float32}(A) isa BlockSparseMatrix{Float32}
    @test rmul!(copy(A), 3) == 3A && lmul!(3, copy(A)) == 3A
    @test_throws DimensionMismatch A + random_matrix(Float64, 19, 18, (8, 4))
end

@testset "permute, slice, move" begin
    A = random_matrix(Float64, 24, 18, (8, 6))
    D = Matrix(A)
    @test permute_blocks(A; rows = [2, 3, 1]) == D[[9:24; 1:8], :]
    @test slice(A, 2:3, 1:2) == D[9:24, 1:12]
    layout = BlockLayout([true false; true true], 2)
    B = BlockSparseMatrix(layout, reshape(collect(1.0:12.0), 2, 2, 3))
    moved, sources = move_blocks(layout, [3], [1], [2])
    C = rearrange(B, moved, sources)
    @test C.values == B.values[:, :, [1, 3, 2]]
    @test rearrange(B, moved, [0, 3, 2]).values[:, :, 1] == zeros(2, 2)
end

@testset "heads" begin
    x = exact(Float32, 12, 8, 3)
    A = BlockSparseMatrix(x, random_layout(12, 8, (4, 4), 0.5; heads = 3))
    @test size(A) == (12, 8) && Tartan.heads(A) == 3
    @test size(Array(A)) == (12, 8, 3)
    @test Array(A) == x .* repeat(block_mask(A.layout), inner = (4, 4, 1))
    @test A[2, 3, 2] == Array(A)[2, 3, 2]
    @test copy(A) == A
    @test_throws ArgumentError A[1, 1]
    @test_throws ArgumentError Matrix(A)
    @test_throws ArgumentError A * ones(Float32, 8)
    @test_throws BoundsError A[1, 1, 4]
end

@testset "show" begin
    A = random_matrix(Float32, 20, 20, (8, 8), 1.0)
    @test sprint(show, A) == "20×20 BlockSparseMatrix{Float32}: 9 of 9 blocks of 8×8 (100.0%)"
    @test occursin("███", sprint(show, MIME"text/plain"(), A))
    @test occursin("<svg", sprint(show, MIME"image/svg+xml"(), A))
    @test startswith(sprint(show, MIME"text/plain"(), A'), "transpose of 20×20")
end

@testset "reductions of blocks of any small size" begin
    for (h, w, T) in ((1, 1, Float64), (1, 3, Float64), (2, 1, Float64), (2, 3, Float32), (4, 4, Float64), (5, 2, Float64))
        S = sprand(MersenneTwister(10h + w), 6h, 7w, 0.06)
        S.nzval .= rand(MersenneTwister(h), -3:3, nnz(S))
        A = BlockSparseMatrix(SparseMatrixCSC{T, Int}(S), (h, w))
        D = Matrix(A)
        for d in (1, 2), f in (sum, prod, maximum, minimum, (X; dims) -> sum(abs2, X; dims = dims), (X; dims) -> sum(x -> x + 1, X; dims = dims),
                               (X; dims) -> maximum(abs, X; dims = dims), (X; dims) -> sum(iszero, X; dims = dims), (X; dims) -> mapreduce(identity, +, X; dims = dims, init = T(2)))
            @test f(A; dims = d) == f(D; dims = d)
            @test f(A'; dims = d) == f(D'; dims = d)
        end
        for d in (1, 2)
            @test mean(A; dims = d) ≈ mean(D; dims = d) && var(A; dims = d) ≈ var(D; dims = d) && std(A; dims = d, corrected = false) ≈ std(D; dims = d, corrected = false)
            @test eltype(sum(A; dims = d)) == T && eltype(var(A; dims = d)) == T
        end
        A.values[1] = NaN
        @test isequal(vec(isnan.(sum(A; dims = 1))), vec(any(isnan, Matrix(A); dims = 1)))
    end
end
