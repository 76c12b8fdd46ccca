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
