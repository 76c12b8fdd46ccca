# SPDX-License-Identifier: Apache-2.0
# Arithmetic of matrices on a device gives what it gives in Julia's memory, and stays there.

# Two matrices here and there; `there` are those on the device.
function pair_of(::Type{T}, context, m, n, block; p = 0.6, heads = 1) where {T}
    here = Tuple(random_matrix(T, m, n, block, p; heads = heads) for _ in 1:2)
    return here, map(A -> to_device(A, context), here)
end

@testset "element by element, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    for (m, n, heads) in ((21, 17, 1), (16, 12, 1), (16, 12, 3))
        (A, B), (D, E) = pair_of(T, context, m, n, (4, 3); heads = heads)
        wide_ones = map(BlockSparseMatrix{Float64}, (A, B))
        for f in ((x, y) -> x + y, (x, y) -> x - y, (x, y) -> -x, (x, y) -> +x, (x, y) -> x * 2, (x, y) -> T(0.5) * x, (x, y) -> x / 8, (x, y) -> 8 \ x,
                  (x, y) -> 3.0 * x, (x, y) -> x * 3f0, (x, y) -> x .+ y, (x, y) -> x .- y, (x, y) -> .-x, (x, y) -> x .* y, (x, y) -> x .* 2, (x, y) -> 2 .* x .- y ./ 4 .+ x .* y,
                  (x, y) -> x .+ y .+ x .+ y, (x, y) -> abs.(x), (x, y) -> abs2.(x), (x, y) -> x .^ 2, (x, y) -> sign.(x), (x, y) -> round.(x), (x, y) -> sqrt.(abs.(x)),
                  (x, y) -> max.(x, y), (x, y) -> min.(x, y), (x, y) -> max.(x, 0), (x, y) -> min.(0, x), (x, y) -> identity.(x), (x, y) -> Float64.(x), (x, y) -> BFloat16.(x))
            # One element type of the CPU's is enough, as all of it is exact or rounded once; numbers say what type the result has.
            there, P = f(D, E), typeof(f(one(T), one(T)))
            @test there isa DeviceBlockSparseMatrix{P} && to_host(there) == BlockSparseMatrix{P}(f(wide_ones...))
        end
        @test (D + E).layout == union(A.layout, B.layout) && (D .* E).layout == intersect(A.layout, B.layout)
        heads == 1 || continue
        for f in ((x, y) -> x' + y', (x, y) -> x' .* 2, (x, y) -> x' .* y', (x, y) -> x' + copy(y'))
            @test f(D, E) isa DeviceBlockSparseMatrix{T} && to_host(f(D, E)) == f(A, B)
        end
        @test to_host(D .^ 3) ≈ A .^ 3 && to_host(abs.(D) .^ 1.5) ≈ abs.(A) .^ 1.5
        F = to_device(BlockSparseMatrix{Float32}(B), context)
        @test eltype(D + F) === promote_type(T, Float32) && to_host(D + F) == A + BlockSparseMatrix{Float32}(B)
    end
end

@testset "scaling and diagonals, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    (A, _), (D, _) = pair_of(T, context, 21, 17, (4, 3))
    rows, cols = T.(1:21), T.(1:17)
    for f in (x -> Diagonal(rows) * x, x -> x * Diagonal(cols), x -> Diagonal(1:21) * x * Diagonal(1:17), x -> x' * Diagonal(rows), x -> Diagonal(cols) * x', x -> x .* rows, x -> cols' .* x,
              x -> x .* reshape(rows, :, 1), x -> x ./ T.(2 .^ (0:20)))
        @test eltype(f(D)) === eltype(f(A)) && to_host(f(D)) == f(A)
    end
    for S in (Float32, Float64) # numbers on the device
        there = to_device(S.(1:17), context)
        @test to_host(D .* there') == to_host(there' .* D) == A * Diagonal(S.(1:17)) && to_host(to_device(S.(1:21), context) .* D) == Diagonal(S.(1:21)) * A
        @test to_host(D' .* there) == A' .* S.(1:17)
    end
    for k in (-3, 0, 2)
        @test diag(D, k) isa Vector{T} && diag(D, k) == diag(A, k) && diag(D', k) == diag(A', k)
    end
    (A, _), (D, _) = pair_of(T, context, 18, 18, (4, 3))
    for f in (x -> x + I, x -> 2I - x, x -> x - I, x -> I + x', x -> x + Diagonal(1:18), x -> Diagonal(T.(1:18)) - x, x -> x + 0.5I)
        @test eltype(f(D)) === eltype(f(A)) && to_host(f(D)) == f(A) && nblocks(f(D)) == nblocks(f(A))
    end
    @test tr(D) === tr(A) && tr(D') === tr(A)
end

@testset "in place, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    (A, B), (D, E) = pair_of(T, context, 21, 17, (4, 3))
    inside = project(A, keep_largest(A.layout, block_norms(A), max(1, nblocks(A) - 2)))
    C, F = A + B, D + E
    for (f, nan) in (((x, y) -> axpy!(2, y, x), false), ((x, y) -> axpby!(1, y, -1, x), false), ((x, y) -> rmul!(x, 2), false), ((x, y) -> lmul!(0.5, x), false),
                     ((x, y) -> rdiv!(x, 4), false), ((x, y) -> x .*= 2, false), ((x, y) -> x .+= y, false), ((x, y) -> (x .= 2 .* y .- x; x), false), ((x, y) -> (x .= y; x), true),
                     ((x, y) -> copyto!(x, y), true), ((x, y) -> (x .= 0; x), true), ((x, y) -> rmul!(x, Diagonal(1:17)), false), ((x, y) -> lmul!(Diagonal(1:21), x), false),
                     ((x, y) -> (x' .= y'; x), true), ((x, y) -> (axpy!(2, y', x'); x), false), ((x, y) -> (x' .= 0; x), true), ((x, y) -> x .-= 0.5 .* y, false))
        here, there = copy(C), copy(F)
        nan && (here[1, 1] = NaN; there = to_device(here, context)) # nothing of the old values is left
        @test f(there, to_device(inside, context)) === there && to_host(there) == f(here, inside)
        @test there.layout == F.layout
    end
    @test copyto!(copy(F), A) == D + zero(F) && copyto!(copy(F)', A') == (D + zero(F))' && copyto!(copy(C), D) == A && D == D''
    @test to_host(similar(D)) == zero(A) && to_host(zero(D')) == zero(A')
    narrow = to_device(inside, context)
    fits = D - D # zeros where narrow stores nothing
    @test to_host(axpy!(1, fits, copy(narrow))) == inside
    kept = to_host(narrow)
    full = to_device(BlockSparseMatrix(ones(T, 21, 17), (4, 3)), context)
    for f in (() -> axpy!(1, full, narrow), () -> (narrow .= full), () -> (narrow .+= full), () -> (narrow .= 1), () -> (narrow .= ones(T, 21, 17)), () -> rdiv!(narrow, 0))
        @test_throws ArgumentError f()
    end
    @test_throws DimensionMismatch copyto!(narrow, full')
    @test to_host(narrow).values == kept.values
end

@testset "reductions and comparison, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    close_to(x, y) = isapprox(Float64(x), Float64(y); rtol = sizeof(T) == 2 ? 2.0^-7 : 1e-6, atol = 1e-12)
    for p in (0.6, 0.0)
        (A, B), (D, E) = pair_of(T, context, 21, 17, (4, 3); p = p)
        M = Float64.(Array(A))
        for (there, expected) in ((sum(D), sum(M)), (sum(abs, D), sum(abs, M)), (norm(D), norm(M)), (norm(D, 1), norm(M, 1)), (opnorm(D, 1), opnorm(M, 1)), (opnorm(D', 1), opnorm(M, Inf)),
                                  (dot(D, E), dot(M, Float64.(Array(B)))))
            @test there isa T && close_to(there, expected)
        end
        for f in (maximum, minimum, x -> maximum(abs, x), x -> norm(x, Inf), x -> maximum(x; dims = 1), x -> minimum(x; dims = 2), x -> maximum(abs, x; dims = 2), x -> maximum(x'; dims = 1), iszero)
            @test f(D) == f(M) && eltype(f(D)) === (f === iszero ? Bool : T)
        end
        for d in (1, 2)
            @test size(sum(D; dims = d)) == size(sum(M; dims = d)) && all(close_to.(sum(D; dims = d), sum(M; dims = d))) && all(close_to.(sum(D'; dims = d), sum(M'; dims = d)))
        end
        @test D == copy(D) && D == to_device(A, Context(place)) && D' == copy(D') && D != D' && hash(D) == hash(copy(D)) && D ≈ D .* T(1)
        p == 0 || @test D != E && !(D ≈ E) && D != D + D
        @test nblocks(dropzeros(D - D)) == 0 && to_host(dropzeros(D .* E)) == dropzeros(A .* B) && iszero(D - D)
    end
    (A, _), (D, _) = pair_of(T, context, 16, 12, (4, 3); heads = 3)
    @test close_to(sum(D), sum(Float64.(Array(A)))) && maximum(D) == maximum(A) && close_to(norm(D), norm(Float64.(Array(A)))) && D == copy(D)
    N = copy(A)
    N.values[1] = NaN
    there = to_device(N, context)
    @test there != there && isnan(norm(there)) && isnan(maximum(there)) && isapprox(there, there; nans = true) && !(there ≈ there)
    empty = to_device(BlockSparseMatrix(zeros(T, 0, 5), (2, 2)), context)
    @test norm(empty) == 0 && opnorm(empty, 1) == 0 && sum(empty) == 0
end

@testset "refused on a device, $place" for place in DEVICES
    context = Context(place)
    (A, _), (D, _) = pair_of(Float64, context, 12, 8, (4, 4))
    H = to_device(random_matrix(Float64, 12, 8, (4, 4); heads = 3), context)
    for f in (() -> D + to_device(random_matrix(Float64, 8, 12, (4, 4)), context), () -> D .* D', () -> D + H, () -> D + I, () -> D + Diagonal(1:12), () -> tr(D), () -> D * Diagonal(1:12), () -> D .* ones(8),
              () -> D .* ones(3, 3), () -> axpy!(1, D', D), () -> D + to_device(random_matrix(Float64, 12, 8, (2, 2)), context))
        @test_throws DimensionMismatch f()
    end
    for f in (() -> D / 0, () -> D * im, () -> D * big(2), () -> D .^ 0, () -> D .^ -1, () -> max.(D, 1), () -> diag(D, 9), () -> diag(H), () -> sum(H; dims = 1), () -> sum(D; dims = 3), () -> norm(D, 3),
              () -> opnorm(D, 2), () -> axpy!(im, D, copy(D)), () -> D .* to_device(Float16.(ones(12)), context))
        @test_throws ArgumentError f()
    end
    for f in (() -> D .+ 1, () -> exp.(D), () -> D ./ D, () -> 1 ./ D, () -> D .+ ones(12, 8), () -> sum(abs2, D), () -> minimum(abs, D), () -> D .+ A)
        @test refuses(f, :unsupported, "to_host")
    end
    square = to_device(random_matrix(Float64, 8, 8, (4, 4)), context)
    @test_throws ArgumentError square + im * I
    for f in (() -> D + A, () -> A - D, () -> D - ones(12, 8), () -> A + D)
        @test refuses(f, :unsupported, "expected both there")
    end
    @test to_host(D) == A
end
