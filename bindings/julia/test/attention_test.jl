# SPDX-License-Identifier: Apache-2.0

function tensors(::Type{T} = Float64; queries = 40, keys = 52, heads = 4, kv_heads = heads, d = 8, batch = 2) where {T}
    return normal(T, d, queries, heads, batch), normal(T, d, keys, kv_heads, batch), normal(T, d, keys, kv_heads, batch)
end

# The elements of the stored blocks, queries x keys x heads.
function stored_elements(layout)
    grid, size_ = block_mask(layout), blocksize(layout)
    whole = repeat(reshape(grid, size(grid, 1), size(grid, 2), :), inner = (size_..., 1))
    return whole[1:size(layout, 1), 1:size(layout, 2), :]
end

# Attention as a dense computation in Float64.
function dense_attention(q, k, v, seen; scale = 1 / sqrt(size(q, 1)), bias = (i, j, h) -> 0.0,
                         sinks = fill(-Inf, size(q, 3)))
    q, k, v = wide(q), wide(k), wide(v)
    out, lse = zero(q), zeros(size(q)[2:4])
    for b in axes(q, 4), h in axes(q, 3), i in axes(q, 2)
        g = cld(h, size(q, 3) ÷ size(k, 3))
        keys = findall(seen[i, :, min(h, end)])
        isempty(keys) && (lse[i, h, b] = sinks[h]; continue)
        scores = [scale * dot(q[:, i, h, b], k[:, j, g, b]) + bias(i, j, h) for j in keys]
        top = max(maximum(scores), sinks[h])
        weights = exp.(scores .- top)
        total = sum(weights) + exp(sinks[h] - top)
        lse[i, h, b] = log(total) + top
        out[:, i, h, b] = v[:, keys, g, b] * weights ./ total
    end
    return out, lse
end

hidden(seen, offset = 0, from = 1) =
    [seen[i, j, h] && (j <= i + offset || j < from) for i in axes(seen, 1), j in axes(seen, 2), h in axes(seen, 3)]

rule(q, k, head) = (3q + k + head) % 4 != 1

function same(found, wanted, T)
    unit = 60 * Float64(eps(T))
    out, lse = found
    return eltype(out) === T && eltype(lse) === (T === Float64 ? Float64 : Float32) &&
           isapprox(wide(out), wanted[1]; rtol = 0, atol = unit * maximum(abs, wanted[1])) &&
           isapprox(wide(lse)[isfinite.(wanted[2])], wanted[2][isfinite.(wanted[2])]; rtol = 1e3 * eps(eltype(lse))) &&
           all(wide(lse)[.!isfinite.(wanted[2])] .== -Inf)
end

const none = NamedTuple()

@testset "attention, $T, $n heads" for T in (Float64, Float32, Float16, BFloat16), n in (1, 4)
    layout = random_layout(40, 52, (8, 16), 0.5; heads = n)
    seen = stored_elements(layout)
    for (x, options, shown, more) in (
            (tensors(T), none, seen, none), (tensors(T; kv_heads = 2), none, seen, none),
            (tensors(T), (scale = 0.3,), seen, (scale = 0.3,)), (tensors(T), (causal = true,), hidden(seen), none),
            (tensors(T), (causal = true, query_offset = 12, causal_from = 4), hidden(seen, 12, 4), none),
            (tensors(T), (mask = BlockMask(rule, layout),),
             seen .& [rule(i, j, h) for i in 1:40, j in 1:52, h in 1:n], none))
        found = attention(x..., layout; return_lse = true, options...)
        @test same(found, dense_attention(x..., shown; more...), T)
        @test attention(x..., layout; options...) == found[1]
        out, lse = fill(T(7), size(x[1])), similar(found[2])
        @test attention!(out, x..., layout; lse = lse, options...) === out && out == found[1] && lse == found[2]
    end
    x, S = tensors(T), T === Float64 ? Float64 : Float32
    sinks = S[0.5, -1, -Inf, 3]
    @test same(attention(x..., layout; sinks = sinks, return_lse = true), dense_attention(x..., seen; sinks = sinks), T)
    @test attention!(similar(x[1]), x..., layout; sinks = Float64.(sinks)) == attention(x..., layout; sinks = sinks)
    slopes, table = S[0.1, 0, -0.2, 0.05], randn(S, 9, 4)
    @test same(attention(x..., layout; slopes = slopes, return_lse = true),
               dense_attention(x..., seen; bias = (i, j, h) -> slopes[h] * (j - i)), T)
    @test same(attention(x..., layout; distance_bias = table, query_offset = -2, return_lse = true),
               dense_attention(x..., seen; bias = (i, j, h) -> table[clamp(j - i + 2, -4, 4) + 5, h]), T)
    numbers = randn(nblocks(layout))
    found = attention(x..., layout; block_bias = numbers, return_lse = true)
    @test same(found, dense_attention(x..., seen; bias = (i, j, h) ->
        S(numbers[findblock(layout, cld(i, 8), cld(j, 16); head = min(h, n))])), T)
end

@testset "heads and batch may be left out, and any strides do" begin
    layout = random_layout(40, 52, (8, 8), 0.5)
    q, k, v = tensors()
    out, lse = attention(q, k, v, layout; return_lse = true)
    grads = attention_gradient(q, k, v, layout, out, lse, out)
    one, sums = attention(q[:, :, :, 2], k[:, :, :, 2], v[:, :, :, 2], layout; return_lse = true)
    @test one == out[:, :, :, 2] && sums == lse[:, :, 2]
    single = (q[:, :, 3, 2], k[:, :, 3, 2], v[:, :, 3, 2])
    one, sums = attention(single..., layout; return_lse = true)
    @test one == out[:, :, 3, 2] && sums == lse[:, 3, 2] && sums isa Vector
    @test attention_gradient(q, k, v, layout, out, lse, out; deterministic = false) == grads
    @test attention_gradient(single..., layout, one, sums, one) == map(g -> g[:, :, 3, 2], grads)
    turned = map(x -> PermutedDimsArray(permutedims(x, (1, 3, 2, 4)), (1, 3, 2, 4)), (q, k, v))
    @test attention(turned..., layout) == out && attention(turned..., layout) isa Array
    into = PermutedDimsArray(zeros(8, 4, 40, 2), (1, 3, 2, 4))
    @test attention!(into, view(q, :, :, :, :), k, v, layout) === into && into == out
end

@testset "gradients of q, k and v in one array" begin
    layout = random_layout(40, 40, (8, 8), 0.5)
    parts(x) = ntuple(i -> PermutedDimsArray(view(x, :, :, i, :, :), (1, 3, 2, 4)), 3)    # of (d, heads, 3, tokens, batch)
    x, into = randn(8, 4, 3, 40, 2), fill(NaN, 8, 4, 3, 40, 2)
    out, lse = attention(parts(x)..., layout; return_lse = true)
    attention_gradient!(parts(into), parts(x)..., layout, out, lse, out)
    @test parts(into) == attention_gradient(parts(x)..., layout, out, lse, out)
    @test_throws TartanError attention_gradient!((parts(into)[1], parts(into)[2], parts(into)[2]), parts(x)..., layout, out, lse, out)
end

@testset "gradients agree with differences" begin
    layout = random_layout(20, 24, (8, 8), 0.7)
    for options in (none, (causal = true, query_offset = 4), (mask = BlockMask((q, k, h) -> q != k, layout),),
                    (slopes = [0.1, 0, -0.2, 0.05],), (dropout = 0.3, seed = 4))
        x = tensors(queries = 20, keys = 24, d = 3, kv_heads = 2)
        weight = randn(size(x[1]))
        loss(y) = sum(attention(y..., layout; options...) .* weight)
        out, lse = attention(x..., layout; return_lse = true, options...)
        grads = attention_gradient(x..., layout, out, lse, weight; options...)
        written = map(similar, x)
        @test attention_gradient!(written, x..., layout, out, lse, weight; options...) === written && written == grads
        for n in 1:3, _ in 1:6
            at, moved = rand(1:length(x[n])), map(copy, x)
            moved[n][at] += 1e-5
            up = loss(moved)
            moved[n][at] -= 2e-5
            @test abs((up - loss(moved)) / 2e-5 - grads[n][at]) < 1e-7
        end
    end
end

@testset "gradients of biases and sinks agree with differences" begin
    layout = random_layout(20, 24, (8, 8), 0.7)
    n = nblocks(layout)
    for (name, first, options) in ((:slopes, randn(4) / 9, none), (:distance_bias, randn(9, 4), (dropout = 0.3, seed = 4)),
                                   (:distance_bias, randn(9), (causal = true, query_offset = 4)), (:block_bias, randn(n, 4), none),
                                   (:block_bias, randn(n), (scale = 0.3,)), (:sinks, randn(4), none),
                                   (:sinks, randn(4), (slopes = randn(4) / 9,)))
        x = tensors(queries = 20, keys = 24, d = 3, kv_heads = 2)
        weight = randn(size(x[1]))
        loss(y) = sum(attention(x..., layout; NamedTuple{(name,)}((y,))..., options...) .* weight)
        given = (; NamedTuple{(name,)}((first,))..., options...)
        out, lse = attention(x..., layout; return_lse = true, given...)
        @test attention_gradient(x..., layout, out, lse, weight; given...) isa NTuple{3, Array}
        grads = attention_bias_gradient(x..., layout, out, lse, weight; given...)
        @test (grads[1] === nothing) == (name === :sinks && !haskey(options, :slopes)) && (grads[2] === nothing) == (name !== :sinks)
        grad = grads[name === :sinks ? 2 : 1]
        @test size(grad) == size(first) && grad isa Array{Float64}
        for at in rand(eachindex(first), 5)
            moved = copy(first)
            moved[at] += 1e-5
            up = loss(moved)
            moved[at] -= 2e-5
            @test abs((up - loss(moved)) / 2e-5 - grad[at]) < 1e-6
        end
    end
    x = tensors(Float32; queries = 20, keys = 24)
    out, lse = attention(x..., layout; sinks = zeros(4), return_lse = true)
    @test attention_bias_gradient(x..., layout, out, lse, out; sinks = zeros(4))[2] isa Vector{Float32}
    @test refuses(() -> attention_bias_gradient(x..., layout, out, lse, out), :argument, "no bias and no sinks are given")
end

@testset "masks, block $block, $n heads" for block in ((8, 8), (4, 6), (33, 40), (1, 1)), n in (1, 3)
    layout = random_layout(50, 70, block, 0.5; heads = n)
    seen, asked = stored_elements(layout), Set{NTuple{3, Int}}()
    mask = BlockMask(layout) do q, k, head
        push!(asked, (q, k, head))
        rule(q, k, head)
    end
    wanted = seen .& [rule(i, j, h) for i in 1:50, j in 1:70, h in 1:n]
    @test kept(mask) == sum(wanted) && asked == Set(Tuple.(findall(seen)))
    dense = n == 1 ? wanted[:, :, 1] : wanted
    bits(m) = (out = Vector{UInt8}(undef, 4 * cld(block[2], 32) * block[1] * nblocks(layout)); Raw.tartan_block_mask_get_bits(m, out); out)
    @test bits(BlockMask(layout, dense)) == bits(mask) && bits(BlockMask(layout, BitArray(dense))) == bits(mask)
    every = BlockMask((q, k, head) -> true, layout)
    @test kept(every) == nnz(layout) && Raw.tartan_block_mask_stored(every) == 0
    blocks(m) = collect(Iterators.partition(bits(m), 4 * cld(block[2], 32) * block[1]))
    @test Raw.tartan_block_mask_stored(mask) == length(setdiff(blocks(mask), blocks(every)))
    @test occursin("BlockMask of $(kept(mask)) elements in $(nblocks(layout)) blocks", repr(mask))
end

@testset "refusals of attention" begin
    layout = random_layout(40, 52, (8, 8), 0.5)
    q, k, v = tensors()
    out, lse = attention(q, k, v, layout; return_lse = true)
    run(; q = q, k = k, v = v, options...) = attention(q, k, v, layout; options...)
    @test refuses(() -> run(q = q[:, 1, 1, 1]), :shape, "q has size (8,), expected 2 to 4 dimensions: (d, tokens, heads, batch)")
    @test refuses(() -> run(k = q), :shape, "k has size (8, 40, 4, 2), expected 52 tokens, the columns of the layout")
    @test refuses(() -> run(q = k), :shape, "q has size (8, 52, 4, 2), expected 40 tokens, the rows of the layout")
    @test refuses(() -> run(k = k[1:7, :, :, :]), :shape, "k has size (7, 52, 4, 2), expected d = 8 and a batch of 2, as q")
    @test refuses(() -> run(v = v[:, :, 1:2, :]), :shape, "v has size (8, 52, 2, 2), expected (8, 52, 4, 2), as k")
    @test refuses(() -> run(k = k[:, :, 1:3, :], v = v[:, :, 1:3, :]), :shape, "k has 3 heads, expected a divisor of the 4 of q")
    @test refuses(() -> attention!(out[:, 1:9, :, :], q, k, v, layout), :shape, "out has size (8, 9, 4, 2), expected (8, 40, 4, 2)")
    @test refuses(() -> attention!(out, q, k, v, layout; lse = out), :shape, "lse has size (8, 40, 4, 2), expected (40, 4, 2)")
    @test refuses(() -> attention_gradient(q, k, v, layout, out, lse[1:9, :, :], out), :shape, "lse has size (9, 4, 2)")
    @test refuses(() -> attention_gradient(q, k, v, layout, out, lse, k), :shape, "out_grad has size (8, 52, 4, 2)")
    @test refuses(() -> run(dropout = 1), :argument, "dropout is 1.0, expected a finite number of 0 or more and below 1")
    @test refuses(() -> run(scale = Inf), :argument, "scale is Inf, expected a finite number")
    @test refuses(() -> run(seed = 1.5), :argument, "seed is 1.5, expected a whole number")
    @test refuses(() -> run(casual = true), :argument, "there is no option casual, see ?attention")
    @test refuses(() -> run(causal_from = 3), :argument, "causal_from is given, which needs causal = true")
    @test refuses(() -> run(causal_from = 0, causal = true), :argument, "causal_from is 0, expected 1 or more")
    @test refuses(() -> run(slopes = ones(4), block_bias = ones(4)), :argument, "more than one of slopes")
    @test refuses(() -> run(sinks = ones(3)), :shape, "sinks has size (3), expected (4)")
    @test refuses(() -> run(slopes = ones(3)), :shape, "slopes has size (3), expected (4)")
    @test refuses(() -> run(distance_bias = ones(8, 4)), :shape, "distance_bias has size (8, 4), expected (an odd number of distances, 4 or 1)")
    @test refuses(() -> run(block_bias = ones(2, 4)), :shape, "block_bias has size (2, 4), expected ($(nblocks(layout)), heads or 1)")
    @test refuses(() -> run(mask = BlockMask(rule, random_layout(40, 52, (8, 8), 0.4))), :layout, "mask has another layout than layout")
    @test refuses(() -> BlockMask(layout, trues(3, 4)), :shape, "mask is 3 x 4, expected 40 x 52, or 40 x 52 x 1")
    @test refuses(() -> attention!(q, q, k, v, layout), :argument, "out overlaps q")
    @test refusal(() -> run(k = Float32.(k))) isa ArgumentError
    @test occursin("q has element type Int64, expected", refusal(() -> run(q = Int.(round.(q)))).msg) && occursin("k has element type Int64, expected", refusal(() -> run(k = Int.(round.(k)))).msg)
    @test refusal(() -> run(causal = 1)).msg == "causal is 1, expected true or false" == refusal(() -> packed_layout([5], 8; causal = 1)).msg
    @test refusal(() -> BlockMask((q, k, head) -> 1, layout)) isa ArgumentError
end

@testset "closed masks" begin
    layout = random_layout(40, 52, (8, 8), 0.5)
    q, k, v = tensors()
    mask, kept_ = BlockMask(rule, layout), BlockMask(rule, layout)
    wanted = attention(q, k, v, layout; mask = mask)
    @test copy(mask) === mask && deepcopy(mask) === mask && isopen(mask)
    close(mask)
    close(mask)
    @test !isopen(mask) && repr(mask) == "BlockMask (closed)"
    @test refuses(() -> attention(q, k, v, layout; mask = mask), :handle, "the BlockMask is closed")
    twin = BlockLayout(block_mask(layout), (8, 8); shape = (40, 52))
    close(layout) # the mask keeps it
    @test attention(q, k, v, twin; mask = kept_) == wanted
    @test repr(kept_) == "BlockMask of $(kept(kept_)) elements"
    @test refuses(() -> attention(q, k, v, layout), :handle, "the BlockLayout is closed")
end

@testset "attention on a device, $place" for place in DEVICES
    context = Context(place)
    layout = random_layout(40, 52, (8, 8), 0.5)
    x = tensors(Float32; kv_heads = 2)
    far = map(y -> to_device(y, context), x)
    for options in (none, (causal = true,), (mask = BlockMask(rule, layout),))
        out, lse = attention(x..., layout; return_lse = true, options...)
        far_out, far_lse = attention(far..., layout; return_lse = true, options...)
        @test far_out isa DeviceArray{Float32, 4} && to_host(far_out) ≈ out && size(far_lse) == (40, 4, 2)
        grads = attention_gradient(far..., layout, far_out, far_lse, far_out; options...)
        @test all(map((a, b) -> isapprox(to_host(a), b; rtol = 1e-4), grads, attention_gradient(x..., layout, out, lse, out; options...)))
    end
    slopes = Float32[0.1, 0, -0.2, 0.05]
    @test to_host(attention(far..., layout; slopes = to_device(slopes, context))) ≈ attention(x..., layout; slopes = slopes)
end
