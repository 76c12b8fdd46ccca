# SPDX-License-Identifier: Apache-2.0
# Weight normalisation of filters.

"""
    conv_normalize(c, w; gain = nothing, epsilon = 1e-12, context = nothing)
    conv_normalize(c, w, (gain = ...,); options...)

The filter `gain * w / sqrt(max(s, epsilon))`, where `s` is the sum of squares of the weights of an output channel in a block
of channels, or in a set: over its input channels and all taps. `gain` has a number for each output channel; without it all
are 1. In the second form Zygote and others that use ChainRulesCore give the gradient of `gain`.

    c = BlockConv(pattern(:dense, (2, 2), 2); kernel = (1, 1))
    w = conv_normalize(c, conv_filter(c, reshape([3.0, 0, 4, 0], 1, 1, 2, 2)))
    dense_filter(c, w)[1, 1, :, :] ≈ [1 1; 0 0]
"""
conv_normalize(c::BlockConv, w::Blocks; options...) = conv_normalize!(room_for(w), c, w; options...)
conv_normalize(c::BlockConv, w::Blocks, terms::NamedTuple; options...) = conv_normalize(c, w; with_terms(terms, options, (:gain,))...)

"""
    conv_normalize!(out, c, w; gain = nothing, epsilon = 1e-12, context = nothing)

[`conv_normalize`](@ref), written to `out`, which may be `w`.

    c = BlockConv(pattern(:dense, (8, 8), 4); kernel = 3)
    w = conv_filter(c, randn(3, 8, 8))
    conv_normalize!(w, c, w; gain = ones(8))
"""
function conv_normalize!(out::Blocks, c::BlockConv, w::Blocks{T}; gain = nothing, epsilon = 1e-12, context = nothing) where {T}
    expect_filter(w, "w", c, Wide)
    expect_filter(out, "out", c, output_type(T))
    expect_channel_gain(gain, c)
    Raw.tartan_conv_normalize(call_context(context, w, out, gain), c, w, real_input(as_it_is, gain, "gain", gate_type(T)),
                              real_factor(epsilon, "epsilon"), out)
    return out
end

"""
    conv_normalize_gradient(c, w, out_grad; gain = nothing, epsilon = 1e-12, context = nothing)

The gradients of `w` and of `gain`, given that of the result of [`conv_normalize`](@ref), as a tuple `(w = ..., gain = ...)`;
that of `gain` is `nothing` if there is no gain.

    c = BlockConv(pattern(:dense, (8, 8), 4); kernel = 3)
    w = conv_filter(c, randn(3, 8, 8))
    conv_normalize_gradient(c, w, w; gain = ones(8)).gain
"""
function conv_normalize_gradient(c::BlockConv, w::Blocks{T}, out_grad::Blocks; gain = nothing, epsilon = 1e-12,
                                 context = nothing) where {T}
    expect_filter(w, "w", c, Wide)
    expect_filter(out_grad, "out_grad", c, output_type(T))
    expect_channel_gain(gain, c)
    S = gate_type(T)
    result = (w = room_for(w), gain = gain === nothing ? nothing : gain_room(w, S, c.out_channels))
    Raw.tartan_conv_normalize_gradient(
        call_context(context, w, out_grad, gain), c, w, real_input(as_it_is, gain, "gain", S), real_factor(epsilon, "epsilon"),
        out_grad, result.w, gain === nothing ? nothing : output(as_it_is, result.gain, "gain_grad", S))
    return result
end
gain_room(::BlockSparseMatrix, ::Type{T}, n) where {T} = Vector{T}(undef, n)
gain_room(w::DeviceBlockSparseMatrix, ::Type{T}, n) where {T} = DeviceArray{T}(w.context, n)

expect_channel_gain(gain, c) = gain === nothing || expect_size(gain, (c.out_channels,), "gain")
