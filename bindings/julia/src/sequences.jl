# SPDX-License-Identifier: Apache-2.0
# Packed sequences: one layout and one mask for sequences one after another.

"""
    packed(lengths, block; key_lengths = lengths, causal = true, window = nothing, align = :end, heads = 1)

The layout and the mask of sequences of these `lengths`, one after another in the same arrays: a query sees keys of its own
sequence alone. The mask is `nothing` where the layout says it all. Make both once for equal lengths.

* `key_lengths`: the numbers of keys, where they differ from those of queries. Lengths may be 0.
* `causal`: a query sees only keys at its own position or before it. With `align = :end` the last query of a sequence is at
  the position of its last key, with `:start` the first query at that of the first key. `window` limits this to the last so
  many keys.

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

All blocks with a query that sees a key of packed sequences; see [`packed`](@ref).
"""
function packed_layout(lengths, block; key_lengths = lengths, causal = true, window = nothing, align = :end, heads = 1)
    q, k = offsets_of(lengths, key_lengths)
    frame = frame_of((q[end], k[end]), block, heads)
    return BlockLayout(Raw.tartan_layout_from_sequences(frame, q, k, sequence_options(causal, window, align)))
end

"""
    packed_mask(layout, lengths; key_lengths = lengths, causal = true, window = nothing, align = :end)

What queries see of packed sequences; see [`packed`](@ref). The layout may be any, for instance the intersection of one of
[`packed_layout`](@ref) with a pattern.

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

"`intersect(a, b)` or `a ∩ b` of masks of one layout: the elements that both keep."
Base.intersect(a::BlockMask, b::BlockMask) = BlockMask(Raw.tartan_block_mask_intersection(a, b), a.layout)
