# SPDX-License-Identifier: Apache-2.0
# The unfused parts of attention: softmax of block-sparse scores, and the merge of partial results.

as_rows(n, s) = backwards(n, s, Val(2))

# A matrix on the layout of another, for a result.
room_for(X::BlockSparseMatrix) = similar(X)
room_for(X::DeviceBlockSparseMatrix) = copy(X)

"""
    block_softmax(X; return_lse = false, options...)

Softmax of `scale * X` along each row of the stored blocks, 0 where a mask or `causal` hide an element. A row that sees
nothing is all zeros, with a log-sum-exp of `-Inf`. With `return_lse` the result is a tuple of the matrix and the
log-sum-exp of each row, of size `(rows,)` or `(rows, heads)`, in `Float64` if `X` has that type, else in `Float32`.

Options, as in [`attention`](@ref): `scale = 1`, `causal = false`, `query_offset = 0`, `causal_from = 1`, `mask`, `context`.

With [`sddmm!`](@ref) and [`spmm!`](@ref) this is attention whose scores and weights can be looked at. A layout has heads
but no batch: for a batch, use a layout of batch * heads heads.

    q, k, v = randn(8, 64), randn(8, 64), randn(8, 64)
    layout = pattern(:causal, (64, 64), 16)
    scores = sddmm!(BlockSparseMatrix{Float64}(layout), q', k)
    weights = block_softmax(scores; scale = 1 / sqrt(8), causal = true)
    (weights * v')' ≈ attention(q, k, v, layout; causal = true)
"""
function block_softmax(X::Blocks{T}; return_lse::Bool = false, options...) where {T}
    n = heads(X) > 1 ? (size(X, 1), heads(X)) : (size(X, 1),)
    lse = return_lse ? row_numbers(X, gate_type(T), n) : nothing
    Y = block_softmax!(room_for(X), X; lse, options...)
    return return_lse ? (Y, lse) : Y
end
row_numbers(::BlockSparseMatrix, ::Type{T}, n) where {T} = Array{T}(undef, n)
row_numbers(X::DeviceBlockSparseMatrix, ::Type{T}, n) where {T} = DeviceArray{T}(X.context, n)

"""
    block_softmax!(Y, X; lse = nothing, options...)

[`block_softmax`](@ref), written to `Y`, which may be `X`, and, if it is given, `lse`. Element types of 16 bits and `Float32`
may be mixed.

    X = BlockSparseMatrix{Float32}(pattern(:dense, (64, 64), 16))
    block_softmax!(X, X; causal = true, lse = zeros(Float32, 64))
"""
function block_softmax!(Y::Blocks, X::Blocks{T}; lse = nothing, scale = 1, causal = false, query_offset = 0,
                        causal_from = 1, mask::Union{BlockMask, Nothing} = nothing, context = nothing) where {T}
    options = AttentionOptions(; scale, causal, query_offset, causal_from)
    Raw.tartan_block_softmax(call_context(context, X, Y, lse), X, options.text, mask, Y,
                             lse === nothing ? nothing : output(as_rows, lse, "lse", gate_type(T)))
    return Y
end

"""
    block_softmax_gradient(Y, dY; scale = 1, context = nothing)

The gradient of `X`, given that of `Y = block_softmax(X; scale)`: `scale * Y .* (dY .- sum(dY .* Y))`, summed along rows.
Masks act through the zeros of `Y`; `dY` must be finite there.

    X = BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16))
    Y = block_softmax(X)
    block_softmax_gradient(Y, Y)
"""
block_softmax_gradient(Y::Blocks, dY::Blocks; options...) = block_softmax_gradient!(room_for(dY), Y, dY; options...)

"""
    block_softmax_gradient!(dX, Y, dY; scale = 1, context = nothing)

[`block_softmax_gradient`](@ref), written to `dX`, which may be `dY`.

    Y = block_softmax(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)))
    block_softmax_gradient!(similar(Y), Y, Y)
"""
function block_softmax_gradient!(dX::Blocks, Y::Blocks, dY::Blocks; scale = 1, context = nothing)
    Raw.tartan_block_softmax_gradient(call_context(context, Y, dY, dX), Y, dY, real_factor(scale, "scale"), dX)
    return dX
end

"""
    attention_merge(out_a, lse_a, out_b, lse_b)

The results `(out, lse)` of attention to all keys, from those of the same queries with two disjoint sets of keys. A part with
a log-sum-exp of `-Inf` has no keys, and its `out` is not read.

    q, k, v = randn(8, 64), randn(8, 64), randn(8, 64)
    half = pattern(:dense, (64, 32), 16)
    a = attention(q, k[:, 1:32], v[:, 1:32], half; return_lse = true)
    b = attention(q, k[:, 33:64], v[:, 33:64], half; return_lse = true)
    attention_merge(a..., b...)[1] ≈ attention(q, k, v, pattern(:dense, (64, 64), 16))
"""
function attention_merge(out_a::Dense, lse_a::Dense, out_b::Dense, lse_b::Dense; context = nothing)
    out = room_like(out_a, eltype(out_a), size(out_a))
    lse = room_like(out_a, gate_type(eltype(out_a)), Base.tail(size(out_a)))
    return attention_merge!(out, lse, out_a, lse_a, out_b, lse_b; context)
end

"""
    attention_merge!(out, lse, out_a, lse_a, out_b, lse_b)

[`attention_merge`](@ref), written to `out` and `lse`, which may be `out_a` and `lse_a`.

    out, lse = zeros(8, 64), fill(-Inf, 64)    # nothing yet
    attention_merge!(out, lse, out, lse, randn(8, 64), zeros(64))
"""
function attention_merge!(out::Dense, lse::Dense, out_a::Dense, lse_a::Dense, out_b::Dense, lse_b::Dense; context = nothing)
    T = gate_type(eltype(out_a))
    for (x, name) in ((out_b, "out_b"), (out, "out"))
        expect_size(x, size(out_a), name)
    end
    for (x, name) in ((lse_a, "lse_a"), (lse_b, "lse_b"), (lse, "lse"))
        expect_size(x, Base.tail(size(out_a)), name)
    end
    Raw.tartan_attention_merge(
        call_context(context, out_a, out_b, out), input(as_tokens, out_a, "out_a", Wide), input(as_lse, lse_a, "lse_a", T),
        input(as_tokens, out_b, "out_b", Wide), input(as_lse, lse_b, "lse_b", T), output(as_tokens, out, "out", Wide),
        output(as_lse, lse, "lse", T))
    return out, lse
end
