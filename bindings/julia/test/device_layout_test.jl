# SPDX-License-Identifier: Apache-2.0
# Dynamic layouts.

@testset "products follow the mask, $place, $T" for place in DEVICES, T in TYPES
    context = Context(place)
    mask = rand(5, 4) .< 0.5
    layout = BlockLayout(mask, (4, 3), context; shape = (18, 11))
    @test isdynamic(layout) && nblocks(layout) == 20 && size(layout) == (18, 11) && heads(layout) == 1
    @test to_host(layout, context) == BlockLayout(mask, (4, 3); shape = (18, 11))
    S = DeviceBlockSparseMatrix{T}(layout, context)
    X, Y, B = normal(T, 18, 6), normal(T, 6, 11), normal(T, 11, 5)
    x, y, b = map(a -> to_device(a, context), (X, Y, B))
    for density in (0.5, 0.0, 1.0)
        now = rand(5, 4) .< density
        @test update!(layout, now, context) === layout
        fixed = BlockLayout(now, (4, 3); shape = (18, 11))
        @test to_host(layout, context) == fixed && !isdynamic(to_host(layout, context))
        sddmm!(S, x, y)
        R = to_device(BlockSparseMatrix{T}(fixed), context)
        sddmm!(R, x, y)
        @test to_host(S).layout == fixed && to_host(S).values == to_host(R).values
        @test to_host(S * b) == to_host(R * b) && to_host(S' * x) == to_host(R' * x)
    end
end

@testset "what they are, and what they refuse, $place" for place in DEVICES
    context = Context(place)
    layout = BlockLayout(trues(2, 3, 2), 8, context; capacity = 11)
    @test sprint(show, layout) == "16×24 BlockLayout: dynamic, capacity 11 of 12 blocks of 8×8"
    @test sprint(show, MIME"text/plain"(), layout) == sprint(show, layout)
    @test layout == layout && layout != BlockLayout(trues(2, 3, 2), 8) && hash(layout) isa UInt
    @test refusal(() -> to_host(layout, context)).status === :layout # 12 blocks
    mask = trues(2, 3, 2)
    mask[1, 2, 2] = false
    @test nblocks(to_host(update!(layout, mask, context), context)) == 11
    for call in (() -> density(layout), () -> nnz(layout), () -> coordinates(layout), () -> block_mask(layout),
                 () -> layout', () -> BlockSparseMatrix{Float64}(layout), () -> svg(layout), () -> save("x.h5", "l" => layout))
        @test refusal(call).status === :unsupported
    end
    @test refusal(() -> update!(layout, trues(2, 2, 2), context)).status === :shape
    @test refusal(() -> update!(layout, trues(2, 3), context)).status === :shape
    @test refusal(() -> update!(BlockLayout(mask, 8), mask, context)).status === :argument
    @test refusal(() -> BlockLayout(mask, 8, context; capacity = 13)).status === :argument
    close(layout)
    @test refusal(() -> update!(layout, mask, context)) isa TartanError
end

# A mask of the k largest scores of each row: the first of equal ones, NaN as infinity, and none of -Inf.
function largest(scores, k)
    chosen = falses(size(scores))
    for head in axes(scores, 3), i in axes(scores, 1)
        row = [isnan(x) ? Inf : Float64(x) for x in scores[i, :, head]]
        for j in sortperm(row; rev = true, alg = MergeSort)[1:min(k, end)]
            chosen[i, j, head] = row[j] > -Inf
        end
    end
    return chosen
end

@testset "the largest scores are chosen, $place, $T" for place in DEVICES, T in (Float64, Float32, Float16, Tartan.BFloat16)
    context = Context(place)
    some(n...) = map(x -> T(rand() < 0.1 ? -Inf : rand() < 0.05 ? NaN : round(x; digits = 1)), randn(n...))
    scores = some(5, 40, 3)
    layout = BlockLayout(scores, 6, 8, context)
    @test isdynamic(layout) && nblocks(layout) == 3 * 5 * 6 && size(layout) == (40, 320) && heads(layout) == 3
    @test to_host(layout, context) == BlockLayout(largest(scores, 6), 8)
    for k in (1, 6, 3)
        scores = some(5, 40, 3)
        @test update!(layout, scores, k, context) === layout
        @test to_host(layout, context) == BlockLayout(largest(scores, k), 8)
    end
    flat = BlockLayout(scores[:, :, 1], 50, (8, 4), context; shape = (37, 159))
    @test to_host(flat, context) == BlockLayout(largest(scores[:, :, 1], 50), (8, 4); shape = (37, 159))
    @test update!(flat, trues(5, 40), context) === flat && nblocks(to_host(flat, context)) == 200
end

@testset "attention follows the scores, $place" for place in DEVICES
    context = Context(place)
    q, k, v, g = randn(16, 40, 4, 2), randn(16, 96, 4, 2), randn(16, 96, 4, 2), randn(16, 40, 4, 2)
    on(x) = place == "cpu" ? x : to_device(x, context)
    back(x) = place == "cpu" ? x : to_host(x)
    for n in (1, 4, 8)
        layout = BlockLayout(rand(5, 12, n), 3, 8, context)
        update!(layout, rand(5, 12, n), 3, context)
        results = map((layout, to_host(layout, context))) do l
            out, lse = attention(map(on, (q, k, v))..., l; return_lse = true)
            map(back, (out, lse, attention_gradient(map(on, (q, k, v))..., l, out, lse, on(g))...))
        end
        @test all(map(isapprox, results...))
        n == 8 && @test results[1][1][:, :, :, 2] ≈
                        attention(q[:, :, :, 2], k[:, :, :, 2], v[:, :, :, 2],
                                  BlockLayout(block_mask(to_host(layout, context))[:, :, 5:8], 8))
    end
end

@testset "refused scores, $place" for place in DEVICES
    context = Context(place)
    layout = BlockLayout(rand(2, 3), 2, 8, context)
    @test refusal(() -> BlockLayout(rand(2, 3), 0, 8, context)).status === :argument
    @test refusal(() -> update!(layout, rand(2, 3), 3, context)).status === :argument
    @test refusal(() -> update!(layout, rand(2, 2), 2, context)).status === :shape
    @test refusal(() -> update!(layout, rand(2, 3, 2), 2, context)).status === :shape
    @test refusal(() -> update!(BlockLayout(trues(2, 3), 8), rand(2, 3), 2, context)).status === :argument
end
