# SPDX-License-Identifier: Apache-2.0
# The bottleneck unit of residual networks in the active windows of an image.

"""
    residual_unit(x, reduce, spatial, expand, active, windows; relu = true, preactivate = false, x_gain, x_bias)

The bottleneck unit of residual networks in the active windows of the images `x`, (spatial..., channels, n); elsewhere the
result is `x`. `reduce`, `spatial` and `expand` are convolutions with their filters: `(c, w)`, or `(c, w, gain, bias)`, where
gain and bias are `nothing` or have a number for each output channel, as from batch normalisation at inference. With `r(v) =
max(v, 0)` and each part's own gain and bias:

* `b = r(gain * reduce(x) + bias)`
* `c = r(gain * spatial(b) + bias)`
* `y = r(x + gain * expand(c) + bias)`

In the windows, this equals the unit computed over the whole image. `relu = false` leaves out the last `r`; with `preactivate`
the first convolution reads `r(x_gain * x + x_bias)`. ResNet v2 uses both.

`reduce` and `expand` have kernels of 1; `spatial` has stride 1 and keeps the size of the image. `active` is a layout from
[`active_windows`](@ref), `windows` the [`Windows`](@ref) that it was made with. They may not overlap nor be larger than the
image.

    point = BlockConv(pattern(:dense, (4, 4), 4); kernel = (1, 1))
    box = BlockConv(pattern(:dense, (4, 4), 4); kernel = (3, 3), padding = :same)
    part(c, k) = (c, conv_filter(c, randn(k..., 4, 4)))
    x, windows = randn(12, 10, 4), Windows(5; count = (3, 2))
    active = active_windows(x[:, :, 1] .> 1.5, windows)
    y = residual_unit(x, part(point, (1, 1)), part(box, (3, 3)), part(point, (1, 1)), active, windows)
    size(y) == size(x)
"""
residual_unit(x::Dense, reduce, spatial, expand, active::BlockLayout, windows::Windows; options...) =
    residual_unit!(room_like(x, eltype(x), size(x)), x, reduce, spatial, expand, active, windows; options...)

"""
    residual_unit!(y, x, reduce, spatial, expand, active, windows; options...)

Write the result of [`residual_unit`](@ref) to `y`, which may be `x`; this saves copying the image.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = (1, 1))
    x, part, windows = randn(6, 6, 8), (c, conv_filter(c, randn(1, 1, 8, 8))), Windows((3, 3); count = (2, 2))
    residual_unit!(x, x, part, part, part, active_windows(ones(6, 6), windows), windows) === x
"""
function residual_unit!(y::Dense, x::Dense, reduce, spatial, expand, active::BlockLayout, windows::Windows; relu::Bool = true,
                        preactivate::Bool = false, x_gain = nothing, x_bias = nothing, context = nothing)
    T = eltype(x)
    expect_type(x, "x", Wide)
    parts = (unit_part(reduce, "reduce", T), unit_part(spatial, "spatial", T), unit_part(expand, "expand", T))
    (first_conv, w1), (c, w2), (last_conv, w3) = parts
    expect_channels(x, "x", first_conv, first_conv.in_channels)
    expect_size(y, size(x), "y")
    expect_unit_factor(x_gain, "x_gain", first_conv.in_channels)
    expect_unit_factor(x_bias, "x_bias", first_conv.in_channels)
    order, S = image_order(c), gate_type(T)
    factor(values, name) = real_input(in_order_of_c, values, name, S)
    operands(part, name) = (handle_of(part[1]), handle_of(part[2]), factor(part[3], "the gain of $name"), factor(part[4], "the bias of $name"))
    arguments = (input(order, x, "x", T), factor(x_gain, "x_gain"), factor(x_bias, "x_bias"), operands(parts[1], "reduce")...,
                 operands(parts[2], "spatial")..., operands(parts[3], "expand")..., handle_of(active), output(order, y, "y", T))
    text = options_text(relu ? "" : "relu=0 ", preactivate ? "preactivate=1 " : "", active_option(active, windows, y, ndims(c)))
    dimensions_from_one(() -> run_operation(RESIDUAL_FORWARD, call_context(context, x, w1, w2, w3, y), arguments, text), ndims(c))
    return y
end

# A convolution, its filter, gain and bias.
function unit_part(part, name, ::Type{T}) where {T}
    (part isa Tuple && length(part) in (2, 4) && part[1] isa BlockConv && part[2] isa Blocks) || throw(TartanError(:argument,
        "$name is not (c, w) or (c, w, gain, bias) with a BlockConv and its filter"))
    expect_filter(part[2], "the filter of $name", part[1], T)
    gain, bias = length(part) == 2 ? (nothing, nothing) : part[3:4]
    expect_unit_factor(gain, "the gain of $name", part[1].out_channels)
    expect_unit_factor(bias, "the bias of $name", part[1].out_channels)
    return part[1], part[2], gain, bias
end
expect_unit_factor(::Nothing, name, channels) = nothing
expect_unit_factor(x, name, channels) = expect_size(x, (channels,), name)
