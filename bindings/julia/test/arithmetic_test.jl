# SPDX-License-Identifier: Apache-2.0
# What the laws do not see: types that the compiler infers, several heads, what is too large to be dense, refusals.

@testset "types are inferred" begin
    A, B = random_matrix(Float64, 12, 10, (4, 4)), random_matrix(Float64, 12, 10, (3, 5))
    F, S, v = BlockSparseMatrix{Float32}(A), sparse(A), ones(10)
    @test @inferred(A + B) isa BlockSparseMatrix{Float64} && @inferred(A + F) isa BlockSparseMatrix{Float64}
    for f in (A -> 2A, A -> A / 2, A -> -A, A -> A .* 2, A -> abs.(A), A -> A .+ A, A -> A' .* 2, A -> copy(A'), A -> A * A', A -> A' * A, A -> triu(A), A -> A[2:3, :],
              A -> A[[1, 3], [2, 2]], A -> [A A], A -> [A; A], A -> dropzeros(A), A -> BlockSparseMatrix(A, 2), A -> BlockSparseMatrix{Float32}(A'), A -> similar(A'),
              A -> BlockSparseMatrix(sparse(A), 4), A -> BlockSparseMatrix(Matrix(A), 4), A -> A * Diagonal(ones(10)), A -> project(A, A.layout))
        @test @inferred(f(A)) isa BlockSparseMatrix
    end
    for (f, T) in ((A -> sum(A), Float64), (A -> maximum(A), Float64), (A -> norm(A), Float64), (A -> Matrix(A), Matrix{Float64}), (A -> Matrix(A'), Matrix{Float64}),
                   (A -> sparse(A), SparseMatrixCSC{Float64, Int}), (A -> sparse(A'), SparseMatrixCSC{Float64, Int}), (A -> A * v, Vector{Float64}), (A -> A == A, Bool),
                   (A -> diag(A), Vector{Float64}), (A -> A[1, 2], Float64), (A -> A * (1 + im), SparseMatrixCSC{ComplexF64, Int}), (A -> A * sparse(A'), SparseMatrixCSC{Float64, Int}))
        @test @inferred(f(A)) isa T
    end
    # Whether these are dense depends on values.
    for f in (A -> A .* v', A -> A .* Matrix(A), A -> A + Matrix(A), A -> A / Diagonal(v))
        @test Base.promote_op(f, typeof(A)) <: Union{BlockSparseMatrix{Float64}, Matrix{Float64}}
    end
end

@testset "types of results" begin
    A = random_matrix(Float32, 8, 8, (4, 4))
    for (x, T) in ((A .* 2, Float32), (A .* 2.0, Float64), (A .+ BlockSparseMatrix{Float64}(A), Float64), (A + I, Float32), (A + 1.5I, Float64), (A * Diagonal(ones(8)), Float64),
                   (A * A, Float32), (A * BlockSparseMatrix{Float64}(A), Float64), (Float16.(A), Float16), (kron(A, ones(2, 2)), Float64), ([A BlockSparseMatrix{Float64}(A)], Float64),
                   (A .^ 2, Float32), (2 .\ A, Float32), (A * BlockSparseMatrix{BFloat16}(A), Float32), (A[1:3, :], Float32), (AbstractMatrix{Float64}(A), Float64))
        @test x isa BlockSparseMatrix{T}
    end
    @test promote(A, BlockSparseMatrix{Float64}(A)) isa NTuple{2, BlockSparseMatrix{Float64}}
    @test similar(A, ComplexF64) isa SparseMatrixCSC{ComplexF64} && AbstractMatrix{ComplexF64}(A) == A && convert(SparseMatrixCSC, A) == A
    @test eltype(A * Diagonal(big.(1:8))) == BigFloat && eltype(Diagonal(big.(1:8)) * A) == BigFloat && eltype(A * Diagonal(1:8)) == Float32
    @test (A .* big(2)) isa SparseMatrixCSC{BigFloat} && (A .> 0) isa SparseMatrixCSC{Bool} && big.(A) * big.(A) == A * A
    @test Int.(round.(A)) isa SparseMatrixCSC{Int} && Int.(round.(A)) == Int.(round.(Matrix(A))) && replace(A, 0 => 1, 2 => 5) isa BlockSparseMatrix{Float32}
    @test A + im * I isa SparseMatrixCSC{ComplexF32} && A * Diagonal(fill(im, 8)) == Matrix(A) * im
end

plain_layout(A) = Tartan.plain(A).layout
@testset "similar matrices" begin
    A = random_matrix(Float32, 12, 8, (4, 4))
    for B in (A, A')
        @test similar(B).layout == plain_layout(B) && similar(B, Float64) isa BlockSparseMatrix{Float64} && iszero(similar(B))
        @test similar(B, 3, 5) isa SparseMatrixCSC{Float32} && size(similar(B, 3, 5)) == (3, 5) && similar(B, ComplexF64, (300000, 300000)) isa SparseMatrixCSC{ComplexF64}
        @test similar(B, 7) isa Vector{Float32} && similar(B, Float64, 2, 2, 2) isa Array{Float64, 3} && similar(B, String, 2, 2) isa Matrix{String}
    end
    C = similar(A, 2, 2)
    C[2, 1] = 5
    @test C == [0 0; 5 0]
end

@testset "several heads" begin
    x, y = exact(Float64, 12, 8, 3), exact(Float64, 12, 8, 3)
    A, B = (BlockSparseMatrix(z, random_layout(12, 8, (4, 4), 0.5; heads = 3)) for z in (x, y))
    X, Y = Array(A), Array(B)
    @test Array(A + B) == X + Y && Array(2A - B) == 2X - Y && Array(A .* B) == X .* Y && Array(A .+ 1) == X .+ 1 && Array(abs.(A)) == abs.(X)
    @test sum(A) == sum(X) && maximum(A) == maximum(X) && norm(A) ≈ norm(X) && count(!iszero, A) == count(!iszero, X) && iszero(A - A)
    @test hash(A) == hash(copy(A)) && A == copy(A) && A != B && A ≈ A .* (1 + 1e-12)
    @test all(A[:, :, h] == X[:, :, h] && A[:, :, h] isa BlockSparseMatrix for h in 1:3) && heads(A[2:5, [1, 1]]) == 3
    @test Array(A[2:5, 3:8]) == X[2:5, 3:8, :] && Array(triu(A)) == cat((triu(X[:, :, h]) for h in 1:3)...; dims = 3)
    @test Array(A * copy(B')) == cat((X[:, :, h] * Y[:, :, h]' for h in 1:3)...; dims = 3)
    C = copy(A)
    C .*= 2
    @test Array(C) == 2X && Array(rmul!(C, 2)) == 4X && Array(axpy!(1, A, C)) == 5X
    @test Array([A B]) == cat(X, Y; dims = 2) && Array(A * Diagonal(1:8)) == X .* (1:8)'
    @test Array(A') == permutedims(X, (2, 1, 3)) && hash(A') == hash(copy(A')) && A'[8, 2, 3] == X[2, 8, 3] && A'[:, :, 2] == X[:, :, 2]'
    @test A == X && X == A && A != Y && A[:, :, 1] != X[:, :, 1:1] && copyto!(zero(X), A) == X && mean(A) ≈ mean(X) && std(A) ≈ std(X)
    i, j, h = Tuple(findfirst(!iszero, X))
    C = copy(A)
    C[i, j, h] = 9
    C'[j, i, h] += 1
    @test C[i, j, h] == 10 && C.values != A.values && count(C.values .!= A.values) == 1
    @test_throws BoundsError C[1, 1, 4] = 1
    @test_throws ArgumentError A[1, 1]
    @test_throws ArgumentError sum(A; dims = 1)
    @test_throws ArgumentError sparse(A)
    @test_throws ArgumentError A .* ones(12, 8)
    @test_throws DimensionMismatch A + A[:, :, 1]
    @test_throws BoundsError A[:, :, 4]
end

@testset "nothing large becomes dense" begin
    n = 60000
    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:banded, (n, n), 16; lower = 1, upper = 1)))
    d, S = collect(1.0:n), sparse(1:n, n:-1:1, 1.0)
    for f in (() -> A .* 2, () -> 2A', () -> similar(A'), () -> A * Diagonal(d), () -> A + A', () -> Float32.(A), () -> [A A], () -> A * A, () -> A + I,
              () -> BlockSparseMatrix(S', 16), () -> BlockSparseMatrix(Symmetric(S), 16), () -> BlockSparseMatrix(Diagonal(d), 16), () -> BlockSparseMatrix(A, 24),
              () -> A * S, () -> S' * A, () -> Symmetric(A), () -> triu(A'), () -> A[n:-1:1, 2:n], () -> dropzeros(A - A), () -> A .* d, () -> d' .* A)
        @test issparse(f())
    end
    @test norm(A') == norm(A) && sum(A; dims = 1) ≈ (ones(n)' * A) && A' == copy(A') && (2A + 10I) \ d isa Vector{Float64}
    @test map(+, S, A) == A + S && A * UpperTriangular(S)' == A * sparse(triu(S)') && issparse(A * view(S, :, 1:n)) && issparse(kron(A[1:2, 1:2], Symmetric(S)))
    @test dot(d, A', d) ≈ dot(d, A' * d) && copyto!(copy(S), A) == A && axpy!(2, A, copy(S)) == 2A + S
    p = randperm(n)
    @test A[p, :] == sparse(A)[p, :] && A[p, p] == sparse(A)[p, p] && nnz(A[p, p]) == nnz(A) # no zeros are added
    @test iszero(BlockSparseMatrix{Float64}(BlockLayout((n, n), 16, Int[], Int[]))[p, p]) && size(BlockSparseMatrix(zeros(0, 3), 2)[Int[], [3, 1]]) == (0, 2)
    for f in (() -> A .+ 1, () -> cos.(A))
        @test occursin("GiB", sprint(showerror, refusal(f)))
    end
    B = copy(A)
    @test_throws ArgumentError B .+= 1
    @test B.values == A.values
end

@testset "refused with what to write instead" begin
    A = random_matrix(Float64, 8, 8, (4, 4), 1.0)
    for f in (eigvals, eigen, eigmax, eigmin, svd, svdvals, pinv, nullspace, schur, hessenberg, bunchkaufman, exp, log, sqrt, sin, cos, A -> A^0.5)
        error = refusal(() -> f(A))
        @test error isa ArgumentError && occursin("Matrix(A)", error.msg)
    end
    for f in (eigvals, eigen, exp, sqrt), W in (Symmetric(A), Hermitian(A, :L))
        @test refusal(() -> f(W)) isa ArgumentError
    end
    for f in (rowvals, A -> nzrange(A, 1), SparseArrays.getcolptr)
        error = refusal(() -> f(A))
        @test error isa ArgumentError && occursin("sparse(A)", error.msg)
    end
    @test A^2.0 == A * A
    big = BlockSparseMatrix{Float64}(BlockLayout((60000, 60000), 16, [1], [1]))
    for f in (A -> sortslices(A; dims = 1), shuffle)
        @test occursin("permute_blocks", refusal(() -> f(big)).msg)
    end
    @test sortslices(A; dims = 1) == sortslices(Matrix(A); dims = 1) && sortslices(A; dims = 2, rev = true) == sortslices(Matrix(A); dims = 2, rev = true)
    @test issparse(shuffle(A)) && sort(vec(Matrix(shuffle(A)))) == sort(vec(Matrix(A)))
    @test_throws ArgumentError permutedims(A, (1, 1))
    @test_throws ArgumentError permutedims(A, (5, 9))
    @test occursin("not square", refusal(() -> random_matrix(Float64, 7, 5, (3, 2)) + I).msg)
    @test occursin("C has element type Float64", refusal(() -> mul!(zeros(8), A, ones(8) .* im)).msg) && mul!(zeros(ComplexF64, 8), A, ones(Int, 8)) == A * ones(8)
end

@testset "triangular matrices in place, and along the diagonal" begin
    D = Matrix(4.0I, 6, 6) + kron(Bool[1 1 0; 0 1 0; 1 0 1], ones(2, 2))
    A, B, S = BlockSparseMatrix(D, 2), ones(6, 2), sparse(1.0I, 3, 3)
    for T in (UpperTriangular, LowerTriangular)
        @test ldiv!(T(A), copy(B)) ≈ T(D) \ B && rdiv!(copy(B'), T(A)) ≈ B' / T(D) && lmul!(T(A), copy(B)) ≈ T(D) * B && rmul!(copy(B'), T(A)) ≈ B' * T(D)
    end
    @test ldiv!(zeros(6), UpperTriangular(A), ones(6)) ≈ UpperTriangular(D) \ ones(6)
    @test blockdiag(S, S, A) == blockdiag(S, S, sparse(A)) && blockdiag(S, S, S, A, S) == blockdiag(S, S, S, sparse(A), S)
    @test_throws ArgumentError reverse(A; dims = 3)
    @test_throws ArgumentError circshift(A, (1, 1, 1))
end

@testset "refused, and left as they were" begin
    A, B = random_matrix(Float64, 8, 8, (4, 4), 1.0), BlockSparseMatrix(ones(8, 8), BlockLayout([true false; true true], 4))
    kept = copy(B.values)
    for (f, error) in (
            (() -> [A random_matrix(Float64, 9, 8, (4, 4))], DimensionMismatch), (() -> [A A; A], DimensionMismatch),
            (() -> [A'; random_matrix(Float64, 4, 12, (4, 4))], DimensionMismatch),
            (() -> A + random_matrix(Float64, 8, 9, (4, 4)), DimensionMismatch), (() -> A * random_matrix(Float64, 9, 8, (4, 4)), DimensionMismatch),
            (() -> A + Diagonal(1:9), DimensionMismatch), (() -> A * sparse(ones(9, 9)), DimensionMismatch), (() -> random_matrix(Float64, 8, 9, (4, 4)) + I, DimensionMismatch),
            (() -> A / Diagonal(zeros(8)), SingularException), (() -> A .+ ones(7), DimensionMismatch), (() -> A .+ ones(9, 8), DimensionMismatch),
            (() -> axpy!(1, A + I, B), ArgumentError), (() -> axpby!(1, A + I, im, B), ArgumentError), (() -> axpy!(1, A[1:4, :], B), DimensionMismatch),
            (() -> copyto!(B, A + 9I + ones(8, 8)), ArgumentError), (() -> mul!(B, A + 9I, A + 9I), ArgumentError), (() -> lmul!(Diagonal(1:9), B), DimensionMismatch),
            (() -> B[:, 1:4] = sparse(ones(8, 5)), DimensionMismatch), (() -> B[:, 5:8] = sparse(ones(8, 4)), ArgumentError), (() -> B[[1, 9], :], BoundsError),
            (() -> B[1:2, 5:6] .= 3, ArgumentError), (() -> fill!(B, 1), ArgumentError), (() -> map!(+, B, B, ones(8, 8)), ArgumentError), (() -> map(+, B, ones(7, 8)), DimensionMismatch),
            (() -> rdiv!(B, im), ArgumentError), (() -> dropzeros!(B), ArgumentError), (() -> diag(B, 9), ArgumentError), (() -> opnorm(B, 2), ArgumentError),
            (() -> cholesky(B), ArgumentError), (() -> Symmetric(B, :X), ArgumentError), (() -> tr(B[:, 1:7]), DimensionMismatch), (() -> [B; ones(3, 9)], DimensionMismatch),
            (() -> blockdiag(B, B)[17, 1], BoundsError), (() -> cat(B, B; dims = 3), ArgumentError))
        @test_throws error f()
        @test B.values == kept
    end
    for write in (C -> axpby!(0.3, A, 3, C), C -> axpy!(0.3, A, C), C -> axpby!(im, A, 3, C), C -> axpby!(2, A[1:4, :], 3, C), C -> mul!(C, A, A), C -> mul!(C, A, sparse(A), 1, 2))
        C = ones(Int, 8, 8)
        @test refusal(() -> write(C)) isa Union{InexactError, DimensionMismatch} && C == ones(8, 8)
        S = SparseMatrixCSC{Int, Int}(C)
        @test refusal(() -> write(S)) isa Union{InexactError, DimensionMismatch} && S == C
    end
    B[:, 1:4] = sparse([fill(2.0, 4, 4); zeros(4, 4)])
    @test Matrix(B) == [fill(2.0, 4, 4) zeros(4, 4); zeros(4, 4) ones(4, 4)]
    B[[5, 5], 5:8] = sparse([1.0 2 3 4; 5 6 7 8]) # the last row stays
    @test B[5, 5:8] == [5, 6, 7, 8]
    B' .= 0 .* B
    @test iszero(B)
end

@testset "joins are the same however many there are" begin
    for _ in 1:20
        parts = [random_matrix(Float64, rand(1:9), rand(1:9), (3, 4)) for _ in 1:rand(2:6)]
        @test blockdiag(parts...) == blockdiag(map(sparse, parts)...)
        wide = [random_matrix(Float64, 7, rand(1:9), (3, 4)) for _ in 1:rand(2:6)]
        @test hcat(wide...) == reduce(hcat, wide) == reduce(hcat, map(sparse, wide))
        tall = [random_matrix(Float64, rand(1:9), 7, (3, 4)) for _ in 1:rand(2:6)]
        @test vcat(tall...) == reduce(vcat, tall) == reduce(vcat, map(sparse, tall))
    end
    A = BlockSparseMatrix(ones(7, 7), 4)
    @test nblocks(reduce((x, y) -> blockdiag(x, y), fill(A, 8))) >= nblocks(blockdiag(fill(A, 8)...)) # blocks are spread once
    @test size(blockdiag(fill(A, 300)...)) == (2100, 2100)
end

@testset "reductions of large ragged matrices" begin
    for n in (160, 161, 167), block in (8, (16, 5), 3), T in (Float64, Float32)
        A = random_matrix(T, n, n + 2, block isa Int ? (block, block) : block)
        S = sparse(A)
        for f in (identity, abs, abs2, x -> x + 1), dims in (1, 2)
            @test sum(f, A; dims = dims) ≈ sum(f, Matrix(A); dims = dims)
            @test maximum(f, A; dims = dims) == maximum(f, Matrix(A); dims = dims)
        end
        @test sum(A) ≈ sum(Matrix(A)) && sum(abs2, A') ≈ sum(abs2, Matrix(A)) && minimum(A) == minimum(Matrix(A))
        @test mapreduce(identity, +, A; init = T(3)) ≈ sum(Matrix(A)) + 3 && prod(x -> 1 + x / 1000, A) ≈ prod(x -> 1 + x / 1000, Matrix(A))
        @test sum(A[1:n - 1, 1:n]) ≈ sum(Matrix(A)[1:n - 1, 1:n]) # in memory that C made
    end
end
