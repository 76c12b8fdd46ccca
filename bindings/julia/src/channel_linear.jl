# SPDX-License-Identifier: Apache-2.0
# The last step of a convolution alone, and its gradients.

"""
    channel_linear(x; gain, bias, relu = false, bias_first = false, edges)
    channel_linear(x, (gain = ..., bias = ...); options...)

The last step of [`conv`](@ref) alone, for `x` of size (..., channels, n): `gain * x + bias`, or with `bias_first`
`gain * (x + bias)`, and with `relu` the larger of this and 0. `gain` and `bias` have a number for each channel.
With `edges = (c, n)`, where `x` is a result of the convolution `c` of images of spatial lengths `n`, they may have a column for
each of [`edge_classes`](@ref)`(c, n)`. In the second form Zygote and others that use ChainRulesCore give the gradients of `gain` and `bias`.

    channel_linear([1.0 -2.0; 3.0 4.0]; bias = [1.0, -1.0], relu = true) == [2 0; 2 3]
"""
channel_linear(x::Dense; options...) = channel_linear!(room_like(x, eltype(x), size(x)), x; options...)
channel_linear(x::Dense, terms::NamedTuple; options...) = channel_linear(x; with_terms(terms, options, (:gain, :bias))...)

"""
    channel_linear!(y, x; options...)

[`channel_linear`](@ref), written to `y`, which may be `x`.

    x = randn(5, 4, 8, 2)
    channel_linear!(x, x; gain = ones(8), relu = true)
"""
function channel_linear!(y::Dense, x::Dense; gain = nothing, bias = nothing, relu::Bool = false, bias_first::Bool = false,
                         edges = nothing, context = nothing)
    expect_type(x, "x", Wide)
    expect_size(y, size(x), "y")
    c, n, order, channels = edges_of(edges, x)
    expect_channel_factors(x, gain, bias, channels)
    T = gate_type(eltype(x))
    classes_in_order() do
        Raw.tartan_channel_linear(
            call_context(context, x, y, gain, bias), c, n, input(order, x, "x", Wide), real_input(as_lists, gain, "gain", T),
            real_input(as_lists, bias, "bias", T), linear_options(relu, bias_first), output(order, y, "y", output_type(eltype(x))))
    end
    return y
end

"""
    channel_linear_gradient(x, y_grad; gain, bias, relu = false, bias_first = false, edges)

The gradients of `x`, and of `gain` and `bias` if they are given, given that of [`channel_linear`](@ref)`(x; ...)` with the same
options: a named tuple.

    gradients = channel_linear_gradient([1.0 -2.0; 3.0 4.0], ones(2, 2); bias = [1.0, -1.0], relu = true)
    gradients.bias == [1, 2]
"""
function channel_linear_gradient(x::Dense, y_grad::Dense; gain = nothing, bias = nothing, relu::Bool = false,
                                 bias_first::Bool = false, edges = nothing, context = nothing)
    expect_type(x, "x", Wide)
    expect_size(y_grad, size(x), "y_grad")
    c, n, order, channels = edges_of(edges, x)
    expect_channel_factors(x, gain, bias, channels)
    T = gate_type(eltype(x))
    like(factor) = factor === nothing ? nothing : room_like(x, T, size(factor))
    result = (x = room_like(x, eltype(x), size(x)), gain = like(gain), bias = like(bias))
    written(factor, name) = factor === nothing ? nothing : output(as_lists, factor, name, T)
    classes_in_order() do
        Raw.tartan_channel_linear_gradient(
            call_context(context, x, y_grad, gain, bias), c, n, input(order, x, "x", Wide), real_input(as_lists, gain, "gain", T),
            real_input(as_lists, bias, "bias", T), input(order, y_grad, "y_grad", output_type(eltype(x))),
            linear_options(relu, bias_first), output(order, result.x, "x_grad", eltype(x)), written(result.gain, "gain_grad"),
            written(result.bias, "bias_grad"))
    end
    return result
end

Raw.c_handle(::Type{Raw.tartan_conv}, ::Nothing) = Ptr{Raw.tartan_conv}(C_NULL)
linear_options(relu, bias_first) = "relu=$(Int(relu)) bias_first=$(Int(bias_first))"

# The convolution and the lengths of its input, for C, and the order of dimensions.
function edges_of(::Nothing, x)
    ndims(x) >= 2 || throw(TartanError(:shape, "x has size $(size(x)), expected (..., channels, n)"))
    return nothing, nothing, ImageOrder{ndims(x)}(), size(x, ndims(x) - 1)
end
function edges_of((c, n), x)
    expect_result_of(c, n, x)
    lengths = Int64[reverse(spatial(n, "edges[2]", 0, Val(ndims(c))))...]
    c.transposed && append!(lengths, reverse(size(x)[1:ndims(c)]))
    return c, lengths, image_order(c), c.out_channels
end
function expect_result_of(c::BlockConv{D}, n, x) where {D}
    expect_channels(x, "x", c, c.out_channels)
    least = conv_size(c, n)
    all(least .<= spatial_size(x, Val(D)) .<= (c.transposed ? least .+ c.stride .- 1 : least)) ||
        throw(TartanError(:shape, "x has size $(size(x)), expected $(join(least, " x ")), a result of edges[1] for images of edges[2]"))
    return nothing
end

function expect_channel_factors(x, gain, bias, channels)
    for (factor, name) in ((gain, "gain"), (bias, "bias"))
        factor === nothing || (ndims(factor) in (1, 2) && size(factor, 1) == channels) || throw(TartanError(:shape,
            "$name has size $(size(factor)), expected $channels channels, or these x edge classes"))
    end
    return nothing
end
