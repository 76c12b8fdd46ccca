# SPDX-License-Identifier: Apache-2.0

function sees(n, m; causal = true, window = nothing, align = :end)
    distance = [i + (align === :end ? m - n : 0) - j for i in 1:n, j in 1:m]
    return (!causal .| (distance .>= 0)) .& (distance .< something(window, typemax(Int)))
end

@testset "packed attention is attention of each sequence, $lengths, block $block" for
        (lengths, key_lengths, options) in (
            ([30, 1, 0, 45, 12], nothing, NamedTuple()), (fill(1, 9), nothing, NamedTuple()),
            ([30, 1, 45], nothing, (causal = false,)),
            ([7, 1, 16, 5], [50, 40, 16, 0], NamedTuple()),
            ([7, 1, 16], [50, 40, 16], (align = :start,)),
            ([30, 1, 45], [35, 20, 45], (window = 9,)), (Int[], nothing, NamedTuple())),
        block in (8, (16, 32))
    keys = something(key_lengths, lengths)
    layout, mask = packed(lengths, block; key_lengths = keys, options...)
    q, out_grad = (normal(Float64, 8, sum(lengths), 4, 1) for _ in 1:2)
    k, v = (normal(Float64, 8, sum(keys), 2, 1) for _ in 1:2) # two heads of queries share one of keys
    out, lse = attention(q, k, v, layout; mask = mask, return_lse = true)
    grads = attention_gradient(q, k, v, layout, out, lse, out_grad; mask = mask)
    near(x, y) = isapprox(x, y; rtol = 1e-11, atol = 1e-11)
    row = col = 0
    for (n, m) in zip(lengths, keys)
        i, j = row + 1:row + n, col + 1:col + m
        whole_ = pattern(:dense, (n, m), block)
        seen = BlockMask(whole_, sees(n, m; options...))
        one = q[:, i, :, :], k[:, j, :, :], v[:, j, :, :], whole_
        wanted, sums = attention(one...; mask = seen, return_lse = true)
        @test near(out[:, i, :, :], wanted)
        @test isequal(lse[i, :, :], sums) || near(lse[i, :, :], sums)
        alone = attention_gradient(one..., wanted, sums, out_grad[:, i, :, :]; mask = seen)
        @test near(grads[1][:, i, :, :], alone[1])
        @test near(grads[2][:, j, :, :], alone[2]) && near(grads[3][:, j, :, :], alone[3])
        row, col = row + n, col + m
    end
    @test size(layout) == (row, col)
end

@testset "masks of packed sequences" begin
    layout, mask = packed([32, 64], 32; causal = false)
    @test mask === nothing && block_mask(layout) == [true false false; false true true; false true true]
    lengths = [70, 1, 129]
    nearby = packed_layout(lengths, 16) ∩ pattern(:local, (200, 200), 16; window = 2)
    mask = packed_mask(nearby, lengths)
    text = reduce(vcat, [fill(s, n) for (s, n) in enumerate(lengths)])
    both = mask ∩ BlockMask((q, k, head) -> q - k < 20, nearby)
    rule_ = BlockMask((q, k, head) -> text[q] == text[k] && 0 <= q - k < 20, nearby)
    bits(m) = (out = Vector{UInt8}(undef, 64 * nblocks(nearby)); Raw.tartan_block_mask_get_bits(m, out); out)
    @test bits(both) == bits(rule_) && kept(both) < kept(mask)
    @test refuses(() -> packed_layout([5, -2], 8), :argument, "lengths[2] is -2, expected a whole number of 0 or more")
    @test refuses(() -> packed_layout([5, 2.5], 8), :argument, "lengths[2] is 2.5")
    @test refuses(() -> packed_layout([5, 2], 8; key_lengths = [7]), :shape, "key_lengths has length 1, expected 2, as lengths")
    @test refuses(() -> packed_layout([5], 8; causal = false, window = 3), :argument, "window is given, which needs causal = true")
    @test refuses(() -> packed_layout([5], 8; window = 0), :argument, "window is 0, expected a whole number of 1")
    @test refuses(() -> packed_layout([5], 8; align = :x), :argument, "align is x, expected start or end")
    @test refuses(() -> packed_mask(layout, [9]), :layout, "q_offsets ends with 9, expected 96")
    @test refuses(() -> mask ∩ packed_mask(layout, [32, 64]), :layout, "b has another layout")
end
