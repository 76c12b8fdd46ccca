# SPDX-License-Identifier: Apache-2.0
# Attention. Arrays are (d, tokens, heads, batch) in Julia, which is C's [batch, heads, tokens, d] without a copy.

# ---- Masks ----

"""
    BlockMask(keep, layout)
    BlockMask(layout, mask)

Says which elements of the stored blocks of a layout count: for [`attention`](@ref), which keys a query sees. Elements outside
the stored blocks never count. `keep(q, k, head)` returns whether key `k`, the column, counts for query `q`, the row; it is
called once for each stored element. `mask` is an array of `Bool`, rows x columns (x heads). A mask stores one bit for each
element of the blocks that it keeps in part; blocks with equal bits share them. `kept(mask)` is the number of elements that
count.

    causal = pattern(:causal, (64, 64), 16)
    window = BlockMask((q, k, head) -> k <= q && q - k < 20, causal)
    kept(window)
"""
struct BlockMask
    handle::Handle{Raw.tartan_block_mask}
    layout::BlockLayout
    function BlockMask(address::Ptr{Raw.tartan_block_mask}, layout::BlockLayout)
        bytes = 4 * nblocks(layout) + bytes_of_block(layout) * Raw.tartan_block_mask_stored(address)
        return new(Handle(address, nothing, Int(bytes)), layout)
    end
end

"""
    BlockLayout(keep, shape, block; heads = 1)

The layout of the blocks with at least one element for which `keep(q, k, head)` is true; `BlockMask(keep, layout)` then hides
their other elements. `keep` is called for the elements of each block until one counts.

    window(q, k, head) = k <= q && q - k < 20
    layout = BlockLayout(window, (64, 64), 16)
    kept(BlockMask(window, layout))
"""
function BlockLayout(keep, shape::Sizes, block::Sizes; heads::Real = 1)
    applicable(keep, 1, 1, 1) || throw(TartanError(:argument, "keep is $keep, expected a function of q, k and head"))
    frame = frame_of(shape, block, heads)
    Raw.tartan_shape_check(frame)
    rows, cols = grid_of(frame)
    mask = room_for_mask(rows, cols, frame.heads)
    for head in 1:frame.heads, col in 1:cols, row in 1:rows
        q, k = (row - 1) * frame.block_rows, (col - 1) * frame.block_cols
        mask[row, col, head] = keeps_any(keep, q, k, min(frame.block_rows, frame.rows - q), min(frame.block_cols, frame.cols - k), head)
    end
    return BlockLayout(mask, block; shape = (frame.rows, frame.cols))
end
function room_for_mask(rows, cols, heads)
    try
        return falses(rows, cols, heads)
    catch error
        error isa OutOfMemoryError || rethrow()
        throw(TartanError(:memory, "keep would be asked about $rows x $cols x $heads blocks, for which there is no memory"))
    end
end
function keeps_any(keep, q, k, height, width, head)
    for i in 1:height, j in 1:width
        kept_or_not(keep(q + i, k + j, head)) && return true
    end
    return false
end

BlockMask(keep, layout::BlockLayout) =
    BlockMask(Raw.tartan_block_mask_from_index(layout, index_of_rule(keep, layout)...), layout)

function BlockMask(layout::BlockLayout, mask::Mask)
    expected = (size(layout)..., heads(layout))
    (size(mask, 1), size(mask, 2)) == size(layout) && (ndims(mask) == 2 || size(mask, 3) == heads(layout)) ||
        throw(TartanError(:shape, "mask is $(join(size(mask), " x ")), expected $(join(expected[1:2], " x ")), or " *
                                  "$(join(expected, " x ")) with one mask for each head"))
    return ndims(mask) == 2 ? BlockMask((q, k, head) -> mask[q, k], layout) :
                              BlockMask((q, k, head) -> mask[q, k, head], layout)
end

bytes_of_line(layout) = 4 * cld(blocksize(layout)[2], 32)
bytes_of_block(layout) = bytes_of_line(layout) * blocksize(layout)[1]

# What C takes: for each block -1, if all its elements count, or the position of its bits; and those, rows of bytes with the
# first column in the lowest bit.
function index_of_rule(keep, layout)
    rows, cols, at_head = coordinates(one_size(layout))
    height, width = blocksize(layout)
    m, n = size(layout)
    index, bits, block = fill(Int64(-1), length(rows)), UInt8[], zeros(UInt8, bytes_of_block(layout))
    for id in eachindex(rows)
        q0, k0 = (rows[id] - 1) * height, (cols[id] - 1) * width
        all_kept = fill_block!(block, bytes_of_line(layout), keep, q0, k0, min(height, m - q0), min(width, n - k0), at_head[id])
        all_kept && continue
        index[id] = length(bits) ÷ length(block)
        append!(bits, block)
    end
    return index, bits
end
function fill_block!(block, line, keep, q0, k0, height, width, head)
    all_kept = true
    fill!(block, 0)
    for i in 1:height, j in 1:width
        if kept_or_not(keep(q0 + i, k0 + j, head))
            block[(i - 1) * line + (j - 1) ÷ 8 + 1] |= 0x01 << ((j - 1) % 8)
        else
            all_kept = false
        end
    end
    return all_kept
end
kept_or_not(x::Bool) = x
kept_or_not(x) = throw(ArgumentError("keep returned $x, expected true or false"))

"`kept(mask)`: the number of elements that count."
kept(mask::BlockMask) = Int(Raw.tartan_block_mask_kept(mask))

Raw.c_handle(::Type{Raw.tartan_block_mask}, mask::BlockMask) = mask.handle
Raw.c_handle(::Type{Raw.tartan_block_mask}, ::Nothing) = Ptr{Raw.tartan_block_mask}(C_NULL)
Base.close(mask::BlockMask) = close(mask.handle)
Base.isopen(mask::BlockMask) = isopen(mask.handle)
Base.copy(mask::BlockMask) = mask
Base.deepcopy_internal(mask::BlockMask, ::IdDict) = mask
function Base.show(io::IO, mask::BlockMask)
    isopen(mask) || return print(io, "BlockMask (closed)")
    print(io, "BlockMask of ", kept(mask), " elements")
    isopen(mask.layout) && print(io, " in ", nblocks(mask.layout), " blocks of ", times(blocksize(mask.layout)))
end

# ---- Operands ----

# The dimensions in C's order, with 1 for those in front that there are not.
@inline backwards(n::NTuple{N}, s, ::Val{M}) where {N, M} =
    ntuple(i -> i > M - N ? n[M + 1 - i] : 1, Val(M)), ntuple(i -> i > M - N ? s[M + 1 - i] : 1, Val(M))
as_tokens(n, s) = backwards(n, s, Val(4))
as_lse(n, s) = backwards(n, s, Val(3))
as_heads(n::NTuple{N}, s) where {N} = N <= 2 ? backwards(n, s, Val(2)) : (n, s)

# Refuses sizes that do not fit, in Julia's order of dimensions.
function expect_tokens(q, k, v, layout)
    2 <= ndims(q) <= 4 || throw(TartanError(:shape,
        "q has size $(size(q)), expected 2 to 4 dimensions: (d, tokens, heads, batch)"))
    m, n = layout.frame.rows, layout.frame.cols
    size(q, 2) == m || throw(TartanError(:shape, "q has size $(size(q)), expected $m tokens, the rows of the layout"))
    (ndims(k) <= 4 && size(k, 2) == n) ||
        throw(TartanError(:shape, "k has size $(size(k)), expected $n tokens, the columns of the layout"))
    (size(k, 1) == size(q, 1) && size(k, 4) == size(q, 4)) || throw(TartanError(:shape,
        "k has size $(size(k)), expected d = $(size(q, 1)) and a batch of $(size(q, 4)), as q"))
    (ndims(v) == ndims(k) && Base.tail(size(v)) == Base.tail(size(k))) ||
        throw(TartanError(:shape, "v has size $(size(v)), expected $(size(k)), as k but for d"))
    return nothing
end
expect_size(x, n, name) =
    size(x) == n ? nothing : throw(TartanError(:shape, "$name has size $(size(x)), expected $n"))

const Wide = Union{Float64, Float32, Float16, BFloat16}

# C's view [batch, heads, queries, keys] of (queries, keys, heads, batch).
function as_scores(n::NTuple{N}, s) where {N}
    2 <= N <= 4 || return n, s
    m, t = backwards(n, s, Val(4))
    return (m[1], m[2], m[4], m[3]), (t[1], t[2], t[4], t[3])
end

# The size of the output: that of q with the numbers of v.
out_size(q, v) = (size(v, 1), Base.tail(size(q))...)

# What `bias` holds, for C, and the array.
function one_bias(slopes, distance_bias, block_bias, scores)
    (slopes !== nothing) + (distance_bias !== nothing) + (block_bias !== nothing) + (scores !== nothing) <= 1 ||
        throw(TartanError(:argument,
            "more than one of slopes, distance_bias, block_bias and a mask of numbers is given, expected at most one"))
    scores === nothing || return " bias_kind=dense", scores, as_scores
    slopes === nothing || return " bias_kind=slopes", slopes, as_it_is
    distance_bias === nothing || return " bias_kind=distance", distance_bias, as_heads
    block_bias === nothing || return " bias_kind=block", block_bias, as_heads
    return "", nothing, as_it_is
end

real_input(arrange, ::Nothing, name, ::Type{T}) where {T} = nothing
real_input(arrange, x, name, ::Type{T}) where {T} =
    input(arrange, device_operand(x) === nothing && !(eltype(x) <: T) ? convert(Array{T}, x) : x, name, T)
bias_of(options, ::Type{T}) where {T} = real_input(options.arrange, options.bias, "bias", T)

# The arguments of both passes.
struct AttentionOptions{B, A}
    text::String
    bias::B
    arrange::A
end
function AttentionOptions(; scale = nothing, causal = false, query_offset = 0, causal_from = 1, slopes = nothing,
                          distance_bias = nothing, block_bias = nothing, dropout = 0, seed = 0, deterministic = true,
                          softcap = 0, by_batch = false, scores = nothing, unknown...)
    isempty(unknown) || throw(TartanError(:argument, "there is no option $(first(keys(unknown))), see ?attention"))
    kind, bias, arrange = one_bias(slopes, distance_bias, block_bias, scores)
    causal_from >= 1 || throw(TartanError(:argument, "causal_from is $causal_from, expected 1 or more"))
    text = true_or_false(causal, "causal") ? "causal=1" * kind : kind
    scale === nothing || (text *= " scale=$(real_factor(scale, "scale"))")
    for (name, value) in ((" query_offset=", whole(query_offset, "query_offset")),
                          (" causal_from=", whole(causal_from, "causal_from") - 1), (" seed=", whole(seed, "seed")))
        value == 0 || (text *= name * string(value))
    end
    true_or_false(by_batch, "by_batch") && (text *= " by_batch=1")
    softcap == 0 || (text *= " softcap=$(real_factor(softcap, "softcap"))")
    true_or_false(deterministic, "deterministic") || (text *= " deterministic=0")
    dropout == 0 || (text *= " dropout=$(real_factor(dropout, "dropout"))")
    return AttentionOptions(text, bias, arrange)
end

# New memory where x is.
room_like(x::AbstractArray, ::Type{T}, n) where {T} = device_operand(x) === nothing ? Array{T}(undef, n) : similar(x, T, n)
room_like(x::DeviceArray, ::Type{T}, n) where {T} = DeviceArray{T}(x.context, n)

"""
    attention(q, k, v, layout; options...)
    attention(q, k, v, layout; return_lse = true, options...)
    attention(q, k, v, layout, (sinks = ..., slopes = ...); options...)

`softmax(scale * q' * k + bias)` times `v`, over the keys that each query sees. Scores are never stored, so memory grows
linearly with the number of tokens. The second form returns the output and the log-sum-exp of the scores, which
[`attention_gradient`](@ref) needs. The third form takes `sinks` and the bias, or a mask of numbers, in a named tuple, so that
Zygote and other packages that use ChainRulesCore differentiate with respect to them.

`q` is (d, queries, heads, batch), `k` and `v` are (d, keys, kv_heads, batch), with any strides; `v` and the result may have
another d. Heads and batch may be left out. `kv_heads` divides `heads`; consecutive heads of `q` share a head of `k` and `v`.
`layout` has a row for each query, a column for each key, and 1 head, the heads of `q`, or heads times batch; with `by_batch =
true` it has one head for each batch entry, which the heads of that entry share. It may be a dynamic layout on the device of
`q`. Query `i` sees key `j` if the layout stores the block, `mask` keeps the element and, with `causal = true`, `j <= i +
query_offset` or `j < causal_from`. A query that sees no key gets zeros.

* `scale`: `1 / sqrt(d)` by default
* `causal = false`, `query_offset = 0`, `causal_from = 1`
* `mask`: a [`BlockMask`](@ref) of the layout, or an array of queries x keys x heads x batch, of which heads and batch may be 1
  or left out: `Bool`s that say which keys count, or numbers that are added to the scores, as a bias
* `key_lengths` (batch): the numbers of keys of sequences padded at the end. Every call converts these and an array of `Bool` to
  a layout and a mask; for several calls, make them once with [`padded_layout`](@ref) and [`padded_mask`](@ref)
* `softcap = 0`: if not 0, limits the scores: s becomes `softcap * tanh(s / softcap)` before a bias is added
* `by_batch = false`
* one of `slopes` (heads): adds `slope * (j - i - query_offset)`; `distance_bias` (2r + 1, heads or 1): adds the entry at
  `clamp(j - i - query_offset, -r, r) + r + 1`; `block_bias` (blocks, heads or 1): adds a number for each stored block, (blocks,
  1) if the layout has several heads
* `sinks` (heads): logits that take a share of each softmax of their head but have no value, so the weights of a query sum to
  less than 1
* `dropout = 0`, `seed = 0`: the probability of dropping a weight; equal seeds drop the same weights on every device
* `context`

```julia
q, k, v = randn(8, 64, 2), randn(8, 64, 2), randn(8, 64, 2)    # two heads
attention(q, k, v, pattern(:local, (64, 64), 16); causal = true)
```
"""
function attention(q::Dense, k::Dense, v::Dense, layout::BlockLayout; return_lse::Bool = false, mask = nothing,
                   sinks = nothing, context = nothing, key_lengths = nothing, options...)
    any_tracked(sinks, mask, values(options)...) &&
        return record_attention(q, k, v, layout; return_lse, mask, sinks, context, key_lengths, options...)
    expect_type(q, "q", Wide)
    expect_tokens(q, k, v, layout)
    out = room_like(q, eltype(q), out_size(q, v))
    lse = return_lse ? room_like(q, gate_type(eltype(q)), Base.tail(size(q))) : nothing
    layout, mask, options = masked(q, layout, mask, key_lengths, options)
    forward!(out, lse, q, k, v, layout, mask, sinks, context, AttentionOptions(; options...))
    return return_lse ? (out, lse) : out
end

const ATTENTION_TERMS = (:sinks, :slopes, :distance_bias, :block_bias)
attention(q::Dense, k::Dense, v::Dense, layout::BlockLayout, terms::NamedTuple; options...) =
    attention(q, k, v, layout; with_terms(terms, options, (ATTENTION_TERMS..., :mask))...)

# Options, and with them what is given in a named tuple.
function with_terms(terms, options, names)
    for name in keys(terms)
        name in names || throw(ArgumentError("the named tuple has $name, expected $(join(names, ", ", " or "))"))
        haskey(options, name) && throw(ArgumentError("$name is in the named tuple and an option, expected it once"))
    end
    return (; terms..., options...)
end

"""
    attention!(out, q, k, v, layout; lse = nothing, options...)

Write the result of [`attention`](@ref) to `out` and, if given, to `lse`, of size (queries, heads, batch).

    q = randn(8, 64)
    attention!(similar(q), q, q, q, pattern(:causal, (64, 64), 16); causal = true, lse = zeros(64))
"""
function attention!(out::Dense, q::Dense, k::Dense, v::Dense, layout::BlockLayout; lse = nothing, mask = nothing,
                    sinks = nothing, context = nothing, key_lengths = nothing, options...)
    layout, mask, options = masked(q, layout, mask, key_lengths, options)
    return forward!(out, lse, q, k, v, layout, mask, sinks, context, AttentionOptions(; options...))
end

function forward!(out, lse, q, k, v, layout, mask, sinks, context, options)
    T = eltype(q)
    expect_tokens(q, k, v, layout)
    expect_size(out, out_size(q, v), "out")
    lse === nothing || expect_size(lse, Base.tail(size(q)), "lse")
    arguments = (handle_of(layout), input(as_tokens, q, "q", Wide), input(as_tokens, k, "k", T), input(as_tokens, v, "v", T),
                 handle_of(mask), bias_of(options, gate_type(T)), real_input(as_it_is, sinks, "sinks", gate_type(T)),
                 output(as_tokens, out, "out", output_type(T)),
                 lse === nothing ? nothing : output(as_lse, lse, "lse", gate_type(T)))
    run_operation(ATTENTION_FORWARD, call_context(context, q, k, v, out), arguments, options.text)
    return out
end

"""
    attention_gradient(q, k, v, layout, out, lse, out_grad; options...)

The gradients with respect to `q`, `k` and `v`, from the gradient with respect to `out`. `out` and `lse` are the results of
[`attention`](@ref) with the same options. `sinks` is accepted but not read, since `lse` contains it. `deterministic = false`
allows a GPU to sum the gradient of `q` in an order that varies between runs, which is faster.

    q, k, v = randn(8, 64), randn(8, 64), randn(8, 64)
    layout = pattern(:local, (64, 64), 16)
    out, lse = attention(q, k, v, layout; return_lse = true)
    dq, dk, dv = attention_gradient(q, k, v, layout, out, lse, ones(8, 64))
"""
function attention_gradient(q::Dense, k::Dense, v::Dense, layout::BlockLayout, out, lse, out_grad; options...)
    grads = map(x -> room_like(x, eltype(x), size(x)), (q, k, v))
    return attention_gradient!(grads, q, k, v, layout, out, lse, out_grad; options...)
end

"""
    attention_gradient!((q_grad, k_grad, v_grad), q, k, v, layout, out, lse, out_grad; options...)

Write the results of [`attention_gradient`](@ref) to a tuple of arrays, and return it.

    q = randn(8, 64); layout = pattern(:dense, (64, 64), 16)
    out, lse = attention(q, q, q, layout; return_lse = true)
    attention_gradient!((similar(q), similar(q), similar(q)), q, q, q, layout, out, lse, out)
"""
function attention_gradient!(grads::Tuple{Dense, Dense, Dense}, q::Dense, k::Dense, v::Dense, layout::BlockLayout, out,
                             lse, out_grad; mask = nothing, sinks = nothing, context = nothing, key_lengths = nothing,
                             options...)
    layout, mask, options = masked(q, layout, mask, key_lengths, options)
    T, given = eltype(q), AttentionOptions(; options...)
    expect_tokens(q, k, v, layout)
    expect_size(lse, Base.tail(size(q)), "lse")
    for (x, n, name) in ((out, out_size(q, v), "out"), (out_grad, out_size(q, v), "out_grad"), (grads[1], size(q), "q_grad"),
                         (grads[2], size(k), "k_grad"), (grads[3], size(v), "v_grad"))
        expect_size(x, n, name)
    end
    arguments = (handle_of(layout), input(as_tokens, q, "q", Wide), input(as_tokens, k, "k", T), input(as_tokens, v, "v", T),
                 handle_of(mask), bias_of(given, gate_type(T)), input(as_tokens, out, "out", output_type(T)),
                 input(as_lse, lse, "lse", gate_type(T)), input(as_tokens, out_grad, "out_grad", output_type(T)),
                 output(as_tokens, grads[1], "q_grad", T), output(as_tokens, grads[2], "k_grad", T),
                 output(as_tokens, grads[3], "v_grad", T))
    run_operation(ATTENTION_BACKWARD, call_context(context, q, k, v, grads...), arguments, given.text)
    return grads
end

"""
    attention_bias_gradient(q, k, v, layout, out, lse, out_grad; options...)

The gradients with respect to the bias, or a mask of numbers, and to `sinks`, from the gradient with respect to `out`; `nothing`
for what is not among the options. `out` and `lse` are the results of [`attention`](@ref) with the same options. The gradient of
the bias computes the scores again.

    q, k, v, table = randn(8, 64, 2), randn(8, 64, 2), randn(8, 64, 2), zeros(33, 2)
    layout = pattern(:causal, (64, 64), 16)
    out, lse = attention(q, k, v, layout; causal = true, distance_bias = table, return_lse = true)
    grad, _ = attention_bias_gradient(q, k, v, layout, out, lse, out; causal = true, distance_bias = table)
    all(grad[18:end, :] .== 0)    # no query sees a later key
"""
function attention_bias_gradient(q::Dense, k::Dense, v::Dense, layout::BlockLayout, out, lse, out_grad;
                                 mask = nothing, sinks = nothing, context = nothing, key_lengths = nothing, options...)
    layout, mask, options = masked(q, layout, mask, key_lengths, options)
    T, S, given = eltype(q), gate_type(eltype(q)), AttentionOptions(; options...)
    given.bias === nothing && sinks === nothing &&
        throw(TartanError(:argument, "no bias and no sinks are given, expected at least one of them"))
    expect_tokens(q, k, v, layout)
    expect_size(lse, Base.tail(size(q)), "lse")
    expect_size(out, out_size(q, v), "out")
    expect_size(out_grad, out_size(q, v), "out_grad")
    grads = map(x -> x === nothing ? nothing : room_like(x, S, size(x)), (given.bias, sinks))
    arguments = (handle_of(layout), input(as_tokens, q, "q", Wide), input(as_tokens, k, "k", T), input(as_tokens, v, "v", T),
                 handle_of(mask), bias_of(given, S), real_input(as_it_is, sinks, "sinks", S),
                 input(as_tokens, out, "out", output_type(T)), input(as_lse, lse, "lse", S),
                 input(as_tokens, out_grad, "out_grad", output_type(T)),
                 grads[1] === nothing ? nothing : output(given.arrange, grads[1], "bias_grad", S),
                 grads[2] === nothing ? nothing : output(as_it_is, grads[2], "sinks_grad", S))
    run_operation(ATTENTION_BIAS_GRADIENT, call_context(context, q, k, v), arguments, given.text)
    return grads
end
