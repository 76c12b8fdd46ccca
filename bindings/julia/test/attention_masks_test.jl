# SPDX-License-Identifier: Apache-2.0
# Attention with masks that are arrays, lengths of padded batches, layouts of batch entries, softcap, other sizes of v; layouts from
# rules.

masked_inputs(d = 5, dv = d) = randn(d, 21, 2, 3), randn(d, 30, 1, 3), randn(dv, 30, 1, 3)

# Dense attention of what seen(h, b) shows, queries x keys, with added(h, b) numbers.
function dense_of(x, seen; added = (h, b) -> 0, softcap = 0)
    q, k, v = x
    out = zeros(size(v, 1), size(q)[2:4]...)
    for b in axes(q, 4), h in axes(q, 3)
        scores = q[:, :, h, b]' * k[:, :, 1, b] / sqrt(size(q, 1))
        softcap > 0 && (scores = softcap .* tanh.(scores ./ softcap))
        scores = ifelse.(seen(h, b), scores .+ added(h, b), -Inf)
        top = maximum(scores; dims = 2)
        weights = exp.(scores .- ifelse.(isfinite.(top), top, 0.0))
        out[:, :, h, b] = v[:, :, 1, b] * (weights ./ max.(sum(weights; dims = 2), 1e-300))'
    end
    return out
end

# The elements of the stored blocks, queries x keys x heads.
function stored_of(layout)
    grid = block_mask(layout)
    whole = repeat(reshape(grid, size(grid, 1), size(grid, 2), :), inner = (blocksize(layout)..., 1))
    return whole[1:size(layout, 1), 1:size(layout, 2), :]
end

@testset "masks of Bool and lengths, $n heads of the layout" for (n, by_batch) in ((1, false), (2, false), (6, false), (3, true))
    x = masked_inputs()
    layout = random_layout(21, 30, (4, 8), 0.7; heads = n)
    own = stored_of(layout)
    at(h, b) = by_batch ? b : n == 1 ? 1 : n == 2 ? h : (b - 1) * 2 + h
    lengths = [30, 0, 17]
    within(b) = (1:30 .<= lengths[b])'
    for more in ((), (2,), (1, 3), (2, 3))
        mask = rand(21, 30, more...) .< 0.6
        whole(h, b) = mask[:, :, min(h, size(mask, 3)), min(b, size(mask, 4))]
        shown(h, b) = own[:, :, at(h, b)] .& whole(h, b)
        @test attention(x..., layout; mask, by_batch) ≈ dense_of(x, shown)
        @test attention(x..., layout; mask, by_batch, key_lengths = lengths) ≈ dense_of(x, (h, b) -> shown(h, b) .& within(b))
    end
    mask = BlockMask((q, k, head) -> (q + k + head) % 3 != 0, layout)
    kept(h, b) = own[:, :, at(h, b)] .& [(q + k + at(h, b)) % 3 != 0 for q in 1:21, k in 1:30]
    @test attention(x..., layout; mask, by_batch, key_lengths = lengths) ≈ dense_of(x, (h, b) -> kept(h, b) .& within(b))
end

@testset "masks of numbers" begin
    x = masked_inputs()
    layout = random_layout(21, 30, (4, 8), 0.7)
    own = stored_of(layout)[:, :, 1]
    for more in ((), (2,), (1, 3), (2, 3))
        mask = randn(21, 30, more...)
        wanted = dense_of(x, (h, b) -> own; added = (h, b) -> mask[:, :, min(h, size(mask, 3)), min(b, size(mask, 4))])
        out, lse = attention(x..., layout; mask, return_lse = true)
        @test out ≈ wanted
        grad = randn(size(out))
        found, _ = attention_bias_gradient(x..., layout, out, lse, grad; mask)
        @test size(found) == size(mask)
        for i in rand(eachindex(mask), 4)
            ends = map((1e-6, -1e-6)) do step
                moved = copy(mask)
                moved[i] += step
                sum(grad .* attention(x..., layout; mask = moved))
            end
            @test isapprox((ends[1] - ends[2]) / 2e-6, found[i]; atol = 1e-6)
        end
    end
end

@testset "softcap, values of another size, layouts of batch entries" begin
    x = masked_inputs(5, 3)
    layout = random_layout(21, 30, (4, 8), 0.7; heads = 3)
    own = stored_of(layout)
    options = (softcap = 0.5, by_batch = true)
    out, lse = attention(x..., layout; return_lse = true, options...)
    @test out ≈ dense_of(x, (h, b) -> own[:, :, b]; softcap = 0.5)
    @test attention!(similar(out), x..., layout; options...) == out
    grad = randn(size(out))
    grads = attention_gradient(x..., layout, out, lse, grad; options...)
    for n in 1:3
        @test size(grads[n]) == size(x[n])
        for i in rand(eachindex(x[n]), 4)
            ends = map((1e-6, -1e-6)) do step
                moved = map(copy, x)
                moved[n][i] += step
                sum(grad .* attention(moved..., layout; options...))
            end
            @test isapprox((ends[1] - ends[2]) / 2e-6, grads[n][i]; atol = 1e-6)
        end
    end
end

@testset "layouts from rules" begin
    for rule in ((q, k, h) -> k <= q, (q, k, h) -> k <= q && q - k < 10h, (q, k, h) -> (q - k) % 7 == 0, (q, k, h) -> false),
        (shape, block, n) in (((60, 60), 8, 1), ((21, 30), (4, 8), 3), ((3, 2), 8, 1), ((0, 4), 2, 1))

        dense = Float64[rule(q, k, h) for q in 1:shape[1], k in 1:shape[2], h in 1:n]
        layout = BlockLayout(rule, shape, block; heads = n)
        @test layout == BlockLayout(n == 1 ? dense[:, :, 1] : dense, block)
        @test kept(BlockMask(rule, layout)) == sum(dense)
    end
    @test_throws TartanError BlockLayout(3, (8, 8), 4)
    @test_throws TartanError BlockLayout((q, k, h) -> true, (8, 8), 0)
    @test_throws ArgumentError BlockLayout((q, k, h) -> 1, (8, 8), 4)
end

@testset "shorter lengths and other heads" begin
    causal = pattern(:causal, (64, 64), 16)
    mask = BlockMask((q, k, h) -> k <= q && q - k < 30, causal)
    short = cut(mask, 37, 50)
    @test size(cut(causal, 37, 50)) == (37, 50)
    @test kept(short) == count(k <= q && q - k < 30 for q in 1:37, k in 1:50)
    @test heads(take_heads(causal, [1, 1])) == 2
    @test project(short, cut(causal, 37, 50)) isa BlockMask
    batch = padded_layout(causal, [20, 64, 1])
    @test heads(batch) == 3
    @test kept(padded_mask(batch, [20, 64, 1])) == sum(count(k <= n for q in 1:64, k in 1:64 if cld(k, 16) <= cld(q, 16)) for n in (20, 64, 1))
end

@testset "scores choose blocks" begin
    scores = randn(5, 12, 3)
    counts = rand(0:12, 5, 3)
    place = mapslices(x -> invperm(sortperm(x; rev = true)), scores; dims = 2)
    @test block_mask(chosen_blocks(scores, 4; counts)) == (place .<= reshape(counts, 5, 1, 3))
    @test block_mask(chosen_blocks(scores, 4; counts = 3, shape = (20, 47))) == (place .<= 3)
    shares = exp.(scores) ./ sum(exp.(scores); dims = 2)
    larger = [sum(shares[i, scores[i, :, h] .> scores[i, j, h], h]) for i in 1:5, j in 1:12, h in 1:3]
    @test block_mask(chosen_blocks(scores, 4; top_p = 0.8)) == (larger .< 0.8)
    @test occursin("counts has 2 entries", refusal(() -> chosen_blocks(scores, 4; counts = [1, 2])).message)
    @test occursin("top_p is 0", refusal(() -> chosen_blocks(scores, 4; top_p = 0)).message)
end

@testset "what does not fit" begin
    x = masked_inputs()
    layout = random_layout(21, 30, (4, 8), 0.7)
    @test occursin("mask has size (30, 21)", refusal(() -> attention(x..., layout; mask = trues(30, 21))).message)
    @test occursin("mask has size (21, 30, 5)", refusal(() -> attention(x..., layout; mask = trues(21, 30, 5))).message)
    @test occursin("at most one", refusal(() -> attention(x..., layout; mask = zeros(21, 30), slopes = zeros(2))).message)
    @test_throws TartanError attention(x..., layout; mask = zeros(30, 21))
    @test occursin("key_lengths has length 2, expected 3", refusal(() -> attention(x..., layout; key_lengths = [1, 2])).message)
    @test occursin("31", refusal(() -> attention(x..., layout; key_lengths = [1, 31, 2])).message)
    @test_throws TartanError attention(x..., layout; key_lengths = [1.5, 3, 2])
    @test occursin("block_bias is given with", refusal(() -> attention(x..., layout; key_lengths = [1, 2, 3], block_bias = zeros(nblocks(layout), 1))).message)
    @test_throws TartanError attention(x..., layout; softcap = -1)
    @test occursin("rows is 22", refusal(() -> cut(layout, 22, 30)).message)
    @test_throws TartanError take_heads(layout, [2])
end

@testset "keys behind the blocks of a sequence are not read" begin
    q, k, v = (randn(4, 32, 2, 3) for _ in 1:3)
    lengths = [16, 0, 32]
    for name in (:dense, :causal)
        layout = pattern(name, (32, 32), 8)
        below = BlockMask((q, k, head) -> k <= q, layout)
        for mask in (nothing, below)
            wanted = attention(q, k, v, layout; key_lengths = lengths, mask = mask)
            K, V = copy(k), copy(v)
            for b in 1:2
                K[:, lengths[b] + 1:32, :, b] .= NaN
                V[:, lengths[b] + 1:32, :, b] .= NaN
            end
            @test attention(q, K, V, layout; key_lengths = lengths, mask = mask) ≈ wanted
            @test all(isfinite, wanted) && iszero(wanted[:, :, :, 2])
        end
    end
end

@testset "rules over more blocks than there is memory for" begin
    @test_throws TartanError BlockLayout((q, k, head) -> k <= q, (2^30, 2^30), 1)
    @test_throws TartanError BlockLayout((q, k, head) -> k <= q, (2^30, -1), 1)
end
