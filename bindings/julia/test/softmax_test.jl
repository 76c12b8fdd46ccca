# SPDX-License-Identifier: Apache-2.0

function random_scores(::Type{T}, n = 2) where {T}
    A = BlockSparseMatrix{T}(random_layout(40, 52, (8, 16), 0.6; heads = n))
    nonzeros(A) .= normal(T, size(nonzeros(A))...)
    return A
end

# Rows x columns x heads, in Float64.
dense_of(A) = reshape(wide(Array(A)), size(A)..., :)
function stored_in(layout)
    grid = block_mask(layout)
    whole = repeat(reshape(grid, size(grid, 1), size(grid, 2), :), inner = (blocksize(layout)..., 1))
    return whole[1:size(layout, 1), 1:size(layout, 2), :]
end

function dense_softmax(x, seen, scale)
    weights = ifelse.(seen, exp.(scale .* x), 0.0)
    sums = sum(weights; dims = 2)
    return ifelse.(sums .> 0, weights ./ sums, 0.0), dropdims(log.(sums); dims = 2)
end

@testset "softmax and its gradient, $T, $n heads" for T in (Float64, Float32, Float16, BFloat16), n in (1, 2)
    X = random_scores(T, n)
    seen, unit = stored_in(X.layout), 20 * Float64(eps(T))
    kept_by_rule(q, k, head) = (q + 2k) % 3 != 0
    rule_mask = BlockMask(kept_by_rule, X.layout)
    for (options, shown) in (
            (NamedTuple(), seen),
            ((causal = true, query_offset = 12, causal_from = 4),
             seen .& [j <= i + 12 || j < 4 for i in 1:40, j in 1:52, h in 1:n]),
            ((mask = rule_mask,), seen .& [kept_by_rule(i, j, h) for i in 1:40, j in 1:52, h in 1:n]))
        wanted, sums = dense_softmax(dense_of(X), shown, 0.75)
        Y, lse = block_softmax(X; scale = 0.75, return_lse = true, options...)
        @test eltype(Y) === T && eltype(lse) === (T === Float64 ? Float64 : Float32)
        @test size(lse) == (n > 1 ? (40, 2) : (40,))
        @test isapprox(dense_of(Y), wanted; rtol = 0, atol = unit)
        @test all(dense_of(Y)[.!shown] .== 0)
        finite = isfinite.(sums)
        @test isapprox(reshape(wide(lse), 40, n)[finite], sums[finite]; rtol = 0, atol = 100 * eps(eltype(lse)))
        @test dense_of(block_softmax(X; scale = 0.75, options...)) == dense_of(Y)
        dY = BlockSparseMatrix{T}(X.layout)
        nonzeros(dY) .= normal(T, size(nonzeros(dY))...)
        w, g = dense_of(Y), dense_of(dY)
        dX = block_softmax_gradient(Y, dY; scale = 0.75)
        @test isapprox(dense_of(dX), 0.75 .* w .* (g .- sum(g .* w; dims = 2)); rtol = 0, atol = unit)
        @test block_softmax_gradient!(dY, Y, dY; scale = 0.75) === dY
        @test dense_of(dY) == dense_of(dX)
        own = copy(X)
        @test block_softmax!(own, own; scale = 0.75, options...) === own
        @test dense_of(own) == dense_of(Y)
    end
end

@testset "element types are mixed" begin
    X = random_scores(Float32)
    Y = block_softmax!(BlockSparseMatrix{BFloat16}(X.layout), X)
    @test isapprox(dense_of(Y), dense_of(block_softmax(X)); rtol = 2.0^-8)
end

@testset "merge, $T" for T in (Float64, Float32, Float16)
    q, k, v = normal(T, 8, 40, 2), normal(T, 8, 40, 2), normal(T, 8, 40, 2)
    out, lse = attention(q, k, v, pattern(:dense, (40, 40), 8); return_lse = true)
    part(at) = attention(q, k[:, at, :], v[:, at, :], pattern(:dense, (40, length(at)), 8); return_lse = true)
    a, b = part(1:16), part(17:40)
    merged, sums = attention_merge(a..., b...; return_lse = true)
    @test attention_merge(a..., b...) == merged
    @test eltype(merged) === T && eltype(sums) === eltype(lse)
    @test maximum(abs.(wide(merged) .- wide(out))) <= 8 * Float64(eps(T))
    @test maximum(abs.(sums .- lse)) <= 20 * eps(eltype(lse))
    total, total_lse = a
    @test attention_merge!(total, a..., b...; lse = total_lse) === total
    @test total == merged && total_lse == sums
    nothing_yet = fill(T(NaN), size(out)), fill(eltype(lse)(-Inf), size(lse))
    @test Tuple(attention_merge(nothing_yet..., b...; return_lse = true)) == b
end

@testset "refusals" begin
    @test refuses(() -> block_softmax(random_scores(Float64); query_offset = 3), :argument, "query_offset is given, which needs causal = true")
    @test_throws ArgumentError attention_merge!(zeros(8, 4), zeros(8, 4), zeros(4), zeros(8, 4), zeros(4); lse = zeros(Float32, 4))
end
