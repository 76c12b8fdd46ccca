# SPDX-License-Identifier: Apache-2.0
# Writing to many elements at once: zeros outside the stored blocks are no news, what else would be written there is
# refused, and a refused call leaves its operands as they were.

# 12 x 10, ragged, without its blocks (1, 2) and (2, 3).
lacking(T = Float64) = BlockSparseMatrix(T.(reshape(1:120, 12, 10) .% 7 .+ 1), BlockLayout(Bool[1 0 1; 1 1 0; 0 1 1], 4; shape = (12, 10)))
full(T = Float64) = BlockSparseMatrix(T.(reshape(1:120, 12, 10) .% 7 .+ 1), BlockLayout(trues(3, 3), 4; shape = (12, 10)))
in_blocks_of(A, block) = A isa Matrix ? copy(A) : BlockSparseMatrix(A, block)
keep(A) = Matrix(BlockSparseMatrix(ones(size(A)), A.layout)) .!= 0

@testset "what fits is written" begin
    for make in (lacking, full)
        X = exact(Float64, 12, 10) .* keep(make())
        writes = (
            B -> B .*= 2, B -> B .= B ./ 4, B -> B .-= 0.5 .* make(), B -> B .= sqrt.(abs.(B)), B -> B .= X, B -> B .+= X,
            B -> B .= B .^ 2, B -> B .= 0, B -> fill!(B, 0), B -> axpy!(2, make(), B), B -> axpy!(2, X, B),
            B -> axpby!(2, make(), 3, B), B -> rmul!(B, 3), B -> lmul!(3, B), B -> rdiv!(B, 2), B -> ldiv!(2, B),
            B -> copyto!(B, X), B -> copyto!(B, make()), B -> map!(x -> 2x, B, B), B -> map!(+, B, B, X), B -> B[:, 1] .*= 3,
            B -> B[:, 2] .= X[:, 2], B -> B[2:7, [1, 5]] = X[2:7, [1, 5]], B -> B[:, :] = X, B -> B[1:2, 3] .= 0,
            B -> B[1:4, 1:4] .= 7, B -> B[5, :] .= X[5, :], B -> view(B, 1:3, 1:3) .+= 1, B -> fill!(view(B, 1:3, 9), 5),
            B -> B[B .> 3] .= 9, B -> (B[1, 6] = X[1, 6]; B), B -> B .= transpose(copy(transpose(B))), B -> transpose(B) .*= 2,
            B -> transpose(B) .= X', B -> rmul!(B', 5), B -> B .= B .* (1:12), B -> triu!(B),
            B -> copyto!(similar(B), B), B -> B .= slice(make(), 1:3, 1:3),
            B -> B .= B .+ in_blocks_of(B, 3), B -> B .-= 2 .* in_blocks_of(B, 5), B -> map!(-, B, B, in_blocks_of(B, 3)), B -> broadcast!(max, B, B, in_blocks_of(B, 5)),
            B -> B[[1, 2, 98]] .*= 3, B -> B[[2, 1]] .= [5, 6], B -> B[:] .*= 2, B -> vec(B) .-= vec(X), B -> B[:] .= 0, B -> view(B, [1, 3]) .+= 1, B -> fill!(view(B, 1:2:3), 9),
            B -> copyto!(view(B, :), X), B -> copyto!(view(B, 1:4), [1, 2, 3, 4]), B -> map!(x -> 2x, view(B, 1:3), view(B, 1:3)),
            B -> view(view(B, :, 1:2), 1:3) .+= 1, B -> reshape(view(B, 1:2, 1:2), 4) .= 1:4, B -> copyto!(B, 5, vec(X), 5, 4), B -> copyto!(B, 2, X[2:3]),
            B -> mul!(B, Matrix(1.0I, 12, 12), X), B -> mul!(B, Matrix(1.0I, 12, 12)', X, 2, 3), B -> mul!(B, sparse(1.0I, 12, 12), sparse(X), 2, 3),
            B -> mul!(B, X, Diagonal(1:10)), B -> mul!(B', X', Matrix(1.0I, 12, 12)), B -> mul!(view(B, :, 1), X, [2; zeros(9)]), B -> mul!(B, X, 2, 3, 1),
            B -> mul!(B, make(), Matrix(2.0I, 10, 10)), B -> mul!(B, Matrix(2.0I, 12, 12), make(), 2, 3), B -> mul!(view(B, :, 1), make(), [1; zeros(9)], 2, 1),
            B -> mul!(B, make(), I), B -> mul!(B, 2, make(), 3, 1), B -> axpy!(2, X[:, 1], view(B, :, 1)), B -> axpy!(2, sparse(X[:, 1]), view(B, :, 1)), B -> axpby!(2, X[:, 1], 3, view(B, :, 1)),
            B -> axpy!(2, make(), view(B, :, :)), B -> transpose!(B, permutedims(X)), B -> adjoint!(B', X), B -> permutedims!(B, permutedims(X), (2, 1)),
            B -> circshift!(B, X, (12, 10)), B -> circshift!(view(B, 1:4, 1), 1:4, 1), B -> cumsum!(view(B, 1:4, 1:4), X[1:4, 1:4]; dims = 1),
            B -> cumprod!(view(B, 1:4, 1), [1, 2, 3, 4]), B -> accumulate!(max, view(B, 1:4, 1), [1, 3, 2, 4]), B -> sum!(B, X), B -> sum!(abs, view(B, :, 9:9), ones(12, 3) .* X[:, 9]),
            B -> maximum!(view(B, 1:4, 1), X[1:4, :]), B -> clamp!(B, 0, 3), B -> replace!(B, 3 => 5, 4 => 1), B -> replace!(x -> 2x, B), B -> reverse!(view(B, 1:4, 1)),
            B -> sort!(view(B, 1:4, 1)), B -> sort!(view(B, 1:4, 1:4); dims = 1), B -> permute!(view(B, 1:4, 1), [2, 1, 4, 3]), B -> invpermute!(view(B, 1:4, 1), [2, 3, 1, 4]), B -> permute!(B, [4:-1:1; 5:120]))
        for write in writes
            B, E = make(), Matrix(make())
            write(B)
            write(E)
            @test Matrix(B) == E && B.layout == make().layout
        end
    end
end

@testset "what does not fit is refused, and nothing was written" begin
    X = ones(12, 10)
    refused = (
        B -> B .+= 1, B -> B .= X, B -> B .= 7, B -> fill!(B, 7), B -> B .= cos.(B), B -> B .= B .+ X, B -> B .*= NaN,
        B -> axpy!(2, X, B), B -> axpby!(1, X, 1, B), B -> B[:, 1] .= 7, B -> B[:, 1] = ones(12), B -> B[:, :] = X,
        B -> B[1:2, 3:6] .+= 1, B -> view(B, :, 5) .= 1:12, B -> fill!(view(B, :, 5), 2), B -> copyto!(B, X), B -> map!(x -> x + 1, B, B),
        B -> map!(+, B, B, X), B -> B[1, 5] = 3, B -> transpose(B) .= 1, B -> transpose(B)[5, 1] = 3, B -> B .= full(),
        B -> B[B .< 9] .= 4, B -> B .-= full(), B -> rmul!(B, im), B -> lmul!(1 + im, B), B -> rdiv!(B, im),
        B -> B .= sqrt.(.-B), B -> B .= (x -> x == 5 ? error("in the middle") : 0.0).(B), B -> B[1:4, 1:4] .= [i == 4 ? "x" : i for i in 1:4],
        B -> B .+= BlockSparseMatrix(full(), 3), B -> B[diagind(B, 4)] .+= 1, B -> B[diagind(B, 4)] .= 1:6, B -> view(B, diagind(B, 4)) .+= 1,
        B -> mul!(B, ones(12, 2), ones(2, 10)), B -> mul!(B, ones(12, 2), ones(2, 10), 2, 1), B -> mul!(B, ones(2, 12)', ones(2, 10)), B -> mul!(B', ones(10, 2), ones(12, 2)'),
        B -> mul!(B, sparse(ones(12, 2)), sparse(ones(2, 10))), B -> mul!(B, sparse(ones(12, 2)), ones(2, 10)), B -> mul!(view(B, :, 5), ones(12, 2), ones(2)),
        B -> mul!(B, full(), ones(10, 10)), B -> mul!(B, ones(12, 12), full(), 2, 1), B -> mul!(view(B, :, 5), full(), ones(10)), B -> mul!(B, ones(12, 10), 2), B -> mul!(B, full(), 2),
        B -> axpy!(1, ones(12), view(B, :, 5)), B -> axpy!(1, sparse(ones(12)), view(B, :, 5)), B -> axpby!(1, ones(12), 2, view(B, :, 5)), B -> copyto!(B, 1, X, 1, 120), B -> copyto!(B, 1, X, 1, 121), B -> copyto!(B, 1, X, 1, -1),
        B -> transpose!(B, ones(10, 12)), B -> adjoint!(B, ones(10, 12)), B -> permutedims!(B, ones(10, 12), (2, 1)), B -> circshift!(B, X, (1, 1)), B -> cumsum!(B, X; dims = 1),
        B -> cumprod!(B, X; dims = 2), B -> accumulate!(+, B, X; dims = 1), B -> sum!(B, X), B -> prod!(B, X), B -> maximum!(B, X), B -> minimum!(B, X), B -> clamp!(B, 1, 2),
        B -> replace!(B, 1 => 2, 0 => 3), B -> replace!(x -> x + 1, B), B -> rand!(B), B -> rand!(B, 1:3), B -> rand!(B, Float32), B -> rand!(B'), B -> randn!(B), B -> randexp!(B),
        B -> randn!(view(B, :, 5)), B -> shuffle!(B), B -> reverse!(view(B, :, 5)), B -> sort!(view(B, :, 5); rev = true), B -> permute!(view(B, :, 5), 12:-1:1), B -> permute!(B, 120:-1:1), B -> invpermute!(B, 120:-1:1), B -> rmul!(B, NaN), B -> rdiv!(B, 0), B -> B ./= 0,
        B -> view(view(B, :, 5:6), 1:12) .= 1, B -> B[:] .+= 1, B -> B[:] .= 1, B -> view(B, :) .= 3, B -> vec(B) .= 2, B -> reshape(B, 120) .+= 1, B -> copyto!(view(B, :), X), B -> B[1:60] .= 1,
        B -> B[1:2, 1:2] = 5, B -> B[1:2, 1:2] = ones(3, 3), B -> B[13, 1] = 1, B -> B .= ones(3, 3), B -> map!(identity, B, ones(3)))
    for write in refused
        B = lacking()
        @test refusal(() -> write(B)) isa Union{ArgumentError, DomainError, ErrorException, MethodError, BoundsError, DimensionMismatch}
        @test B.values == lacking().values
    end
    @test occursin("A[1, 5] lies in no stored block", refusal(() -> lacking()[1, 5] = 3).msg)
    closed = lacking()
    close(closed)
    for write in (B -> B .*= 2, B -> B[:, 1] .= 0, B -> B[1, 1] = 2)
        @test refuses(() -> write(closed), :handle, "closed") && closed.values == lacking().values
    end
end

@testset "multiples have the type that Julia's arrays would have" begin
    A = lacking(Float32)
    for f in (B -> B * NaN, B -> NaN * B, B -> B * Inf, B -> B / 0, B -> 0 \ B, B -> B' / 0)
        @test isequal(Matrix(f(A)), f(Matrix(A)))
    end
    @test isequal(Matrix(rdiv!(full(), 0)), Matrix(full()) / 0) && isequal(Matrix(rmul!(full(), NaN)), Matrix(full()) * NaN)
    @test A * 1e300 isa BlockSparseMatrix{Float64} && A * 1e300 == Matrix(A) * 1e300
    @test 1e300 * A == Matrix(A) * 1e300 && A / 1e-300 == Matrix(A) / 1e-300
    @test 2A isa BlockSparseMatrix{Float32} && A / 2 isa BlockSparseMatrix{Float32} && A * 2.0f0 isa BlockSparseMatrix{Float32}
    @test A * (1 // 2) isa BlockSparseMatrix{Float32}
    @test BlockSparseMatrix{BFloat16}(A) * 2 isa BlockSparseMatrix{BFloat16}
    @test A * big(2.0) isa SparseMatrixCSC{BigFloat} && A * big(2.0) == Matrix(A) * 2
end

@testset "sums and extremes look at stored elements" begin
    for A in (lacking(), full(), -full(), lacking(Float32), BlockSparseMatrix{Float64}(BlockLayout(falses(2, 2), 4)))
        D = Matrix(A)
        for B in (A, A')
            E = Matrix(B)
            @test sum(B) == sum(D) && sum(abs, B) == sum(abs, D) && sum(x -> x + 1, B) == sum(x -> x + 1, D)
            @test maximum(B) == maximum(D) && minimum(B) == minimum(D) && maximum(abs, B) == maximum(abs, D)
            @test sum(B; dims = 1) == sum(E; dims = 1) && maximum(B; dims = 2) == maximum(E; dims = 2)
            @test all(dims -> any(x -> x > 6, B; dims = dims) == any(x -> x > 6, E; dims = dims) && all(x -> x >= 0, B; dims = dims) == all(x -> x >= 0, E; dims = dims), (1, 2, (1, 2)))
            @test any(x -> x > 6, B) === any(x -> x > 6, E) && all(x -> x >= 0, B) === all(x -> x >= 0, E)
            @test extrema(B; dims = 1) == extrema(E; dims = 1) && extrema(B; dims = 2) == extrema(E; dims = 2) && extrema(B) == extrema(E)
            @test foldl(+, B) ≈ foldl(+, E) && foldr(+, B; init = 2) ≈ foldr(+, E; init = 2) && foldl(max, B) == maximum(E) && mapfoldl(x -> x + 1, *, B) ≈ mapfoldl(x -> x + 1, *, E)
            @test mean(B) ≈ mean(E) && mean(abs, B; dims = 2) ≈ mean(abs, E; dims = 2) && std(B) ≈ std(E) && var(B; corrected = false) ≈ var(E; corrected = false)
            @test all(dims -> var(B; dims = dims) ≈ var(E; dims = dims) && std(B; dims = dims, corrected = false) ≈ std(E; dims = dims, corrected = false), (1, 2, (1, 2)))
            @test var(B; dims = 1, mean = mean(B; dims = 1)) ≈ var(E; dims = 1)
            @test norm(B) ≈ norm(D) && norm(B, 1) == norm(D, 1) && norm(B, Inf) == norm(D, Inf)
        end
    end
    A = full()
    A.values[:, 3:4, [3, 6, 9]] .= NaN # padding is not looked at
    @test sum(A) == sum(Matrix(full())) && maximum(A) == 7 && norm(A') == norm(full())
    H = BlockSparseMatrix(exact(Float64, 10, 8, 3), random_layout(10, 8, (4, 4), 0.5; heads = 3))
    @test mean(H) ≈ mean(Array(H)) && std(H) ≈ std(Array(H)) && foldl(+, H) ≈ sum(Array(H))
    @test sum(H) == sum(Array(H)) && maximum(abs, H) == maximum(abs, Array(H)) && norm(H) ≈ norm(Array(H))
    big = BlockSparseMatrix{Float64}(pattern(:banded, (60000, 60000), 16; lower = 1, upper = 1))
    fill!(big.values, 1)
    @test isequal(big, copy(big)) && count(any(!iszero, big; dims = 1)) == 60000 && extrema(big; dims = 2) == fill((0.0, 1.0), 60000, 1)
    @test var(big; dims = 1)[1] ≈ 32 * (1 - 32 / 60000)^2 / 59999 + (60000 - 32) * (32 / 60000)^2 / 59999 && length(std(big; dims = 2)) == 60000
    @test foldl(+, big) == nnz(big) && isequal(big, BlockSparseMatrix(big, 8)) && isequal(big, sparse(big)) && mul!(copy(big), big, I) == big
    for f in (() -> big .- ones(60000), () -> big .+ ones(1, 60000), () -> big .+ 1im, () -> big .== 0, () -> big .+ sparse(big) .+ 1, () -> big * NaN, () -> rand!(copy(big)))
        @test refusal(f) isa ArgumentError && occursin("GiB", refusal(f).msg)
    end
    C = copy(big)
    C[:] .= 0
    @test iszero(C)
    @test sum(big) == nnz(big) && norm(big', 1) == nnz(big) && maximum(abs, big) == 1 # without a look at 3.6e9 elements
end

@testset "isequal" begin
    A, B = lacking(), lacking()
    B.values[1] = NaN
    @test isequal(A, lacking()) && !isequal(A, B) && isequal(B, copy(B)) && B != copy(B)
    A.values[1], B.values[1] = 0.0, -0.0
    @test A == B && !isequal(A, B) && isequal(A, BlockSparseMatrix(A, 3)) && !isequal(A, full())
    @test isequal(A, sparse(A)) && !isequal(sparse(A), B) && isequal(A', copy(A')) && !isequal(A, A') && isequal(A, big.(sparse(A)))
end
