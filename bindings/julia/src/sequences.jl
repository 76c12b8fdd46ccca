# SPDX-License-Identifier: Apache-2.0
# Packed sequences: one layout and one mask for sequences one after another.

"""
    packed(lengths, block; key_lengths = lengths, causal = true, window = nothing, align = :end, heads = 1)

The layout and the mask of packed sequences with these `lengths`, one after another in the same arrays: a query sees only keys
of its own sequence. The mask is `nothing` if the layout alone suffices. Reuse both as long as the lengths stay the same.

* `key_lengths`: the numbers of keys, if they differ from the numbers of queries. Lengths may be 0.
* `causal`: a query sees only keys at its own position or before it. With `align = :end` the last query of a sequence is at the
  position of its last key, with `:start` the first query is at the position of the first key. `window` limits this to the last
  `window` keys.

```julia
layout, mask = packed([30, 100, 62], 32)
q, k, v = (randn(8, 192, 2) for _ in 1:3)       # two heads
out = attention(q, k, v, layout; mask = mask)
```

See also [`packed_layout`](@ref) and [`packed_mask`](@ref), which make one of the two.
"""
function packed(lengths, block; key_lengths = lengths, heads = 1, options...)
    layout = packed_layout(lengths, block; key_lengths = key_lengths, heads = heads, options...)
    mask = packed_mask(layout, lengths; key_lengths = key_lengths, options...)
    return layout, Raw.tartan_block_mask_stored(mask) == 0 ? nothing : mask
end

"""
    packed_layout(lengths, block; key_lengths = lengths, causal = true, window = nothing, align = :end, heads = 1)

The blocks of packed sequences in which a query sees a key; see [`packed`](@ref).
"""
function packed_layout(lengths, block; key_lengths = lengths, causal = true, window = nothing, align = :end, heads = 1)
    q, k = offsets_of(lengths, key_lengths)
    frame = frame_of((q[end], k[end]), block, heads)
    return BlockLayout(Raw.tartan_layout_from_sequences(frame, q, k, sequence_options(causal, window, align)))
end

"""
    packed_mask(layout, lengths; key_lengths = lengths, causal = true, window = nothing, align = :end)

Keep what the queries of packed sequences see; see [`packed`](@ref). `layout` may be any layout, for instance the intersection
of a [`packed_layout`](@ref) with a pattern.

    documents = packed_layout([40, 24], 16)
    nearby = documents ∩ pattern(:local, (64, 64), 16; window = 1)
    packed_mask(nearby, [40, 24])
"""
function packed_mask(layout::BlockLayout, lengths; key_lengths = lengths, causal = true, window = nothing, align = :end)
    q, k = offsets_of(lengths, key_lengths)
    options = sequence_options(causal, window, align)
    return BlockMask(Raw.tartan_block_mask_from_sequences(layout, q, k, options), layout)
end

function offsets_of(lengths, key_lengths)
    length(key_lengths) == length(lengths) || throw(TartanError(:shape,
        "key_lengths has length $(length(key_lengths)), expected $(length(lengths)), as lengths"))
    return offsets_of_one(lengths, "lengths"), offsets_of_one(key_lengths, "key_lengths")
end
function offsets_of_one(lengths, name)
    result = zeros(Int64, length(lengths) + 1)
    for (i, n) in enumerate(lengths)
        isinteger(n) && n >= 0 || bad_index(:argument, name, i, n, "a whole number of 0 or more")
        result[i + 1] = result[i] + Int64(n)
    end
    return result
end

sequence_options(causal, window, align) =
    string("causal=", Int(true_or_false(causal, "causal")), window === nothing ? "" : " window=$(whole(window, "window"))",
           align === :end ? "" : " align=$align")

# ---- Sequences that are padded to one length; shorter lengths, other heads ----

"""
    padded_layout(layout, lengths)

The layout of a batch of padded sequences: entry b uses the first `lengths[b]` of the columns (keys) of `layout`. The result has
the heads of the first entry, then those of the second, and so on, without blocks that hold only padding; [`padded_mask`](@ref)
hides the other padding. Made from a layout of one head, it suits [`attention`](@ref) with `by_batch = true`.

    layout = padded_layout(pattern(:causal, (64, 64), 16), [40, 64, 9])
    mask = padded_mask(layout, [40, 64, 9])
    q, k, v = (randn(8, 64, 2, 3) for _ in 1:3)         # two heads, a batch of 3
    attention(q, k, v, layout; mask = mask, by_batch = true, causal = true)
"""
padded_layout(layout::BlockLayout, lengths) = BlockLayout(Raw.tartan_layout_from_lengths(layout, key_counts(lengths)))

"""
    padded_mask(layout, lengths)

Keep the first `lengths[b]` keys in the heads of batch entry b. The layout has the heads of each entry in turn, as from
[`padded_layout`](@ref).

    layout = padded_layout(pattern(:dense, (32, 32), 16), [20, 32])
    kept(padded_mask(layout, [20, 32]))
"""
padded_mask(layout::BlockLayout, lengths) = BlockMask(Raw.tartan_block_mask_from_lengths(layout, key_counts(lengths)), layout)

function key_counts(lengths)
    for (i, n) in enumerate(lengths)
        isinteger(n) || bad_index(:argument, "lengths", i, n, "a whole number")
    end
    return Int64[n for n in lengths]
end

"""
    cut(layout, rows, cols)
    cut(mask, rows, cols)

The first rows and columns of a layout, or of a [`BlockMask`](@ref) and its layout. The cuts may fall inside blocks.

    causal = pattern(:causal, (64, 64), 16)
    cut(causal, 40, 40)
    kept(cut(BlockMask((q, k, head) -> k <= q, causal), 20, 20))
"""
cut(layout::BlockLayout, rows::Real, cols::Real) =
    BlockLayout(Raw.tartan_layout_cut(layout, whole(rows, "rows"), whole(cols, "cols")))
cut(mask::BlockMask, rows::Real, cols::Real) = project(mask, cut(mask.layout, rows, cols))

"""
    take_heads(layout, heads)

Head i of the result is head `heads[i]` of the layout. A head may appear any number of times.

    take_heads(pattern(:causal, (64, 64), 16), [1, 1, 1])
"""
take_heads(layout::BlockLayout, heads) =
    BlockLayout(Raw.tartan_layout_take_heads(layout, from_zero(collect(heads), "heads", layout.frame.heads)))

"""
    project(mask::BlockMask, layout)

The mask on another layout with the same block size, for instance an intersection with a pattern. Elements that the mask's own
layout does not store are hidden. Head h uses head `mod1(h, heads)` of the mask.

    causal = pattern(:causal, (64, 64), 16)
    mask = BlockMask((q, k, head) -> k <= q, causal)
    kept(project(mask, causal ∩ pattern(:local, (64, 64), 16; window = 1)))
"""
project(mask::BlockMask, layout::BlockLayout) = BlockMask(Raw.tartan_block_mask_project(mask, layout), layout)

# The layout, the block mask and the options of a call with a mask that is an array, and with lengths of keys.
function masked(q, layout, mask, key_lengths, options)
    mask isa Union{BlockMask, Nothing} && key_lengths === nothing && return layout, mask, options
    options, boolean = (; options...), nothing
    if mask isa AbstractArray{Bool}
        mask, boolean = nothing, mask
    elseif !(mask isa Union{BlockMask, Nothing})
        options, mask = (; options..., scores = mask), nothing
    end
    boolean === nothing && key_lengths === nothing && return layout, mask, options
    get(options, :block_bias, nothing) === nothing || throw(TartanError(:argument,
        "block_bias is given with a mask of Bool or key_lengths, expected a layout and a BlockMask made of these"))
    counts = (size(q, 3), size(q, 4)) # heads, batch
    own = heads(layout)
    has = own == 1 ? (false, false) : get(options, :by_batch, false) ? (false, true) : (true, own != counts[1])
    wants = (has[1], has[2] || key_lengths !== nothing)
    if boolean !== nothing
        n = (size(boolean, 3), size(boolean, 4))
        (size(boolean)[1:2] == size(layout) && ndims(boolean) <= 4 && all((n .== 1) .| (n .== counts))) ||
            throw(TartanError(:shape, "mask has size $(size(boolean)), expected $((size(layout)..., counts...)), of which heads and batch may be 1"))
        wants = wants .| (n .> 1)
    end
    places = [(h, b) for h in 1:(wants[1] ? counts[1] : 1), b in 1:(wants[2] ? counts[2] : 1)]
    if wants != has
        of = [1 + has[1] * (h - 1) + has[2] * (b - 1) * (has[1] ? counts[1] : 1) for (h, b) in vec(places)]
        taken = take_heads(layout, of)
        if mask !== nothing
            elements = reshape(elements_of(mask), size(layout)..., own)
            mask = BlockMask((q, k, head) -> elements[q, k, of[head]], taken)
        end
        layout = taken
    end
    if boolean !== nothing
        at = vec([(min(h, size(boolean, 3)), min(b, size(boolean, 4))) for (h, b) in places])
        hidden = BlockMask((q, k, head) -> boolean[q, k, at[head]...], layout)
        mask = mask === nothing ? hidden : mask ∩ hidden
    end
    if key_lengths !== nothing
        length(key_lengths) == counts[2] || throw(TartanError(:shape,
            "key_lengths has length $(length(key_lengths)), expected $(counts[2]), one for each batch entry"))
        hidden = padded_mask(layout, key_lengths)
        _, block_cols, at_head = coordinates(layout)
        own = heads(layout) ÷ counts[2]
        seen = [(block_cols[k] - 1) * blocksize(layout)[2] < key_lengths[cld(at_head[k], own)] for k in eachindex(block_cols)]
        if !all(seen) # blocks without any other key go
            layout = prune(layout, seen)
            hidden, mask = padded_mask(layout, key_lengths), mask === nothing ? nothing : project(mask, layout)
        end
        mask = mask === nothing ? hidden : mask ∩ hidden
    end
    return layout, mask, (; options..., by_batch = wants[2] && !wants[1])
end

# All elements of a mask, rows x columns x heads.
function elements_of(mask::BlockMask)
    layout = mask.layout
    result = falses(size(layout)..., heads(layout))
    height, width = blocksize(layout)
    bits = zeros(UInt8, bytes_of_block(layout) * nblocks(layout))
    Raw.tartan_block_mask_get_bits(mask, bits)
    rows, cols, at_head = coordinates(layout)
    for id in eachindex(rows), i in 1:height, j in 1:width
        row, col = (rows[id] - 1) * height + i, (cols[id] - 1) * width + j
        (row > size(layout, 1) || col > size(layout, 2)) && continue
        byte = bits[(id - 1) * bytes_of_block(layout) + (i - 1) * bytes_of_line(layout) + (j - 1) ÷ 8 + 1]
        result[row, col, at_head[id]] = (byte >> ((j - 1) % 8)) & 1 == 1
    end
    return result
end

"`intersect(a, b)` or `a ∩ b` for masks of the same layout: the elements that both keep." Base.intersect(a::BlockMask,
b::BlockMask) = BlockMask(Raw.tartan_block_mask_intersection(a, b), a.layout)
