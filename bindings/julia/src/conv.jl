# SPDX-License-Identifier: Apache-2.0
# Convolutions with block-sparse filters. All lists of spatial numbers are reversed for C; see windows.jl.

"""
    BlockConv(channels::BlockLayout; kernel, stride = 1, dilation = 1, padding = :valid, transposed = false, per_tap = false)
    BlockConv(in_channels, out_channels, blocks; kernel, ...)

A convolution in 1 to 3 spatial dimensions: its geometry, and the layout of its filters, `c.layout`. Images are (spatial...,
channels, n), as in NNlib and Flux.

`channels` is a layout of output channels x input channels; a filter stores its blocks at each tap. For groups, use a layout
with blocks on the diagonal only; for a depthwise convolution, such blocks of 1 x 1. With `per_tap = true`, `channels` is the
layout of the filter itself, in which each tap has its own blocks. In the second form, `blocks` are pairs of input and output
channels, `[1, 3] => [2, 4, 5]`. Such blocks may have any sizes. They may overlap; their results are then added. Output channels
without a block are 0.

* `kernel`, `stride`, `dilation`: `(3, 3)`, or one number for all dimensions; the length of `kernel` is the number of dimensions
* `padding`: `:valid` (none), `:same` (as in PyTorch, TensorFlow and JAX: `cld(size, stride)` positions; `:tf` is another name),
  `:half` (half of the kernel on both sides, the rule of openai/blocksparse), or numbers: one, one for each dimension, or one
  before and one after each, `(left, right, top, bottom)`
* `transposed`: the convolution that Flux calls `ConvTranspose`. The layout's rows are then the input channels. (The pairs of
  the second form are always input => output.)

The convolution is a cross-correlation, Flux's `CrossCor`; reverse the spatial dimensions of a filter of Flux's `Conv`.

A filter is a [`BlockSparseMatrix`](@ref) on `c.layout`, so it can be initialised, saved and pruned like any matrix.
[`conv_filter`](@ref) makes one from a dense array.

    channels = pattern(:barabasi_albert, (64, 64), 16; m = 1, seed = 1)
    c = BlockConv(channels; kernel = (3, 3), padding = :same)
    w = fill_normal!(BlockSparseMatrix{Float32}(c.layout); seed = 1)
    y = conv(c, w, ones(Float32, 30, 20, 64, 2); relu = true)
    size(y) == (30, 20, 64, 2)
"""
struct BlockConv{D}
    handle::Handle{Raw.tartan_conv}
    layout::BlockLayout
    in_channels::Int
    out_channels::Int
    kernel::NTuple{D, Int}
    stride::NTuple{D, Int}
    transposed::Bool
    weights::Int       # of all blocks at all taps
    recipe::Any        # what made it
    function BlockConv{D}(address::Ptr{Raw.tartan_conv}, kernel, stride, transposed, weights, recipe) where {D}
        handle = Handle(address)
        layout = BlockLayout(Raw.tartan_conv_get_layout(handle))
        return new{D}(handle, layout, Raw.tartan_conv_in_channels(handle), Raw.tartan_conv_out_channels(handle), kernel,
                      stride, transposed, weights * prod(kernel), recipe)
    end
end

function BlockConv(channels::BlockLayout; kernel, stride = 1, dilation = 1, padding = :valid, transposed::Bool = false,
                   per_tap::Bool = false)
    D, n, s, text = geometry(kernel, stride, dilation, padding, transposed)
    per_tap && (text *= " per_tap=1")
    options = (; kernel, stride, dilation, padding, transposed, per_tap)
    address = Raw.tartan_conv_create(channels, text)
    return BlockConv{D}(address, n, s, transposed, nnz(channels), ((channels,), options))
end

function BlockConv(in_channels::Real, out_channels::Real, blocks; kernel, stride = 1, dilation = 1, padding = :valid,
                   transposed::Bool = false)
    D, n, s, text = geometry(kernel, stride, dilation, padding, transposed)
    given = [channel_pair(b, i) for (i, b) in enumerate(blocks)]
    ins = channel_lists(first.(given), whole(in_channels, "in_channels"), "input")
    outs = channel_lists(last.(given), whole(out_channels, "out_channels"), "output")
    cols, rows = transposed ? (outs, ins) : (ins, outs)
    weights = sum(Int[length(first(b)) * length(last(b)) for b in given])
    options = (; kernel, stride, dilation, padding, transposed)
    address = Raw.tartan_conv_from_sets((cols.count, cols.offsets, cols.ids), (rows.count, rows.offsets, rows.ids), text)
    return BlockConv{D}(address, n, s, transposed, weights, ((ins.count, outs.count, given), options))
end

function channel_pair(block, i)
    block isa Pair || (block isa Union{Tuple, AbstractVector} && length(block) == 2) || throw(TartanError(:argument,
        "block $i is $(summary(block)), expected a pair of lists: its input and its output channels"))
    return collect(first(block)) => collect(last(block))
end

# Channels of all blocks for C.
function channel_lists(lists, count, side)
    count >= 0 || throw(TartanError(:shape, "there are $count $side channels, expected 0 or more"))
    offsets, ids = Int64[0], Int64[]
    for (b, list) in enumerate(lists)
        name = "the $side channels of block $b"
        for (k, i) in enumerate(list)
            (i isa Real && isinteger(i) && 1 <= i <= count) ||
                throw(TartanError(:argument, "$name have $i at place $k, expected whole numbers from 1 to $count"))
        end
        allunique(list) || throw(TartanError(:argument, "$name have a channel twice, expected each once"))
        append!(ids, (Int64(i) - 1 for i in list))
        push!(offsets, length(ids))
    end
    return (count = count, offsets = offsets, ids = ids)
end

function geometry(kernel, stride, dilation, padding, transposed)
    D = dimensions(kernel)
    n, s = spatial(kernel, "kernel", 1, Val(D)), spatial(stride, "stride", 1, Val(D))
    text = "kernel=$(c_numbers(n)) stride=$(c_numbers(s)) dilation=$(c_numbers(spatial(dilation, "dilation", 1, Val(D)))) " *
           "padding=$(padding_text(padding, Val(D)))"
    return D, n, s, transposed ? text * " transposed=1" : text
end

function padding_text(padding::Union{Symbol, AbstractString}, ::Val)
    code_of((valid = 0, same = 1, tf = 2, half = 3), padding, "padding")
    return string(padding)
end
function padding_text(padding, ::Val{D}) where {D}
    (padding isa Real || length(padding) != 2D) && return c_numbers(spatial(padding, "padding", 0, Val(D)))
    n = spatial(padding, "padding", 0, Val(2D))
    return c_numbers(ntuple(d -> "$(n[2d - 1]):$(n[2d])", Val(D)))
end

Raw.c_handle(::Type{Raw.tartan_conv}, c::BlockConv) = c.handle
Base.close(c::BlockConv) = close(c.handle)
Base.isopen(c::BlockConv) = isopen(c.handle)
Base.copy(c::BlockConv) = c
Base.deepcopy_internal(c::BlockConv, ::IdDict) = c
Base.ndims(::BlockConv{D}) where {D} = D
Base.:(==)(a::BlockConv, b::BlockConv) = a.recipe == b.recipe
Base.hash(c::BlockConv, h::UInt) = hash(c.recipe, hash(:BlockConv, h))
function Base.show(io::IO, c::BlockConv)
    print(io, "BlockConv of ", c.in_channels, " to ", c.out_channels, " channels")
    isopen(c) || return print(io, " (closed)")
    for (name, value) in pairs(c.recipe[2])
        value in (1, :valid, false) && name !== :kernel || print(io, ", ", name, " = ", repr(value))
    end
end

# ---- Sizes ----

"""
    conv_size(c, n)

The spatial lengths of the result of a convolution, from those of its input. A transposed convolution with strides has several
possible ones; this returns the smallest, and [`conv`](@ref) accepts others as `size`.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = (3, 3), stride = 2, padding = :same)
    conv_size(c, (30, 21)) == (15, 11)
"""
function conv_size(c::BlockConv{D}, n) where {D}
    lengths, result = spatial(n, "n", 0, Val(D)), Vector{Int64}(undef, D)
    dimensions_from_one(() -> Raw.tartan_conv_output_size(c, Int64[reverse(lengths)...], result), D)
    return NTuple{D, Int}(reverse(result))
end

"""
    edge_classes(c, n; size = nothing)

The class of each position of a result, from the spatial lengths `n` of its input: 1 in the interior, and another number for
each set of taps that fall outside the image. `gain` and `bias` of [`conv`](@ref) may have a column for each class. `size` has
the lengths of the result of a transposed convolution if they are not `conv_size(c, n)`.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = 3, padding = :same)
    edge_classes(c, 5) == [2, 1, 1, 1, 3]
"""
function edge_classes(c::BlockConv{D}, n; size = nothing) where {D}
    lengths = spatial(n, "n", 0, Val(D))
    out = size === nothing ? conv_size(c, lengths) : spatial(size, "size", 0, Val(D))
    result = Vector{Int64}(undef, prod(out))
    sizes = size === nothing ? Int64[reverse(lengths)...] : Int64[reverse(lengths)..., reverse(out)...]
    dimensions_from_one(() -> Raw.tartan_conv_edge_classes(c, sizes, result), D)
    return reshape(from_one!(result), out)
end

# ---- Filters ----

image_order(::BlockConv{D}) where {D} = ImageOrder{D + 2}()
dense_size(c::BlockConv) = c.transposed ? (c.kernel..., c.out_channels, c.in_channels) : (c.kernel..., c.in_channels, c.out_channels)

"""
    conv_filter(c, dense)
    conv_filter(c, list::AbstractVector)

A filter on `c.layout` from a dense filter, (kernel..., in_channels, out_channels), or for a transposed convolution (kernel...,
out_channels, in_channels), as Flux stores its weights. Only the stored blocks are used. Blocks that overlap are refused.

A vector holds the blocks of channels of `c` one after another, each (kernel..., input channels, output channels), the order of
openai/blocksparse.

    c = BlockConv(BlockLayout([true false; true true], 2); kernel = (3, 3))
    w = conv_filter(c, ones(3, 3, 4, 4))
    sum(dense_filter(c, w)) == 108
"""
function conv_filter(c::BlockConv, dense::AbstractArray)
    x = dense_input(dense)
    expect_size(x, dense_size(c), "dense")
    w = BlockSparseMatrix{eltype(x)}(c.layout)
    Raw.tartan_conv_filter_from_dense(c, input(image_order(c), x, "dense", Wide), w)
    return w
end
function conv_filter(c::BlockConv, list::AbstractVector)
    x = dense_input(list)
    expect_size(x, (c.weights,), "list")
    w = BlockSparseMatrix{eltype(x)}(c.layout)
    Raw.tartan_conv_filter_from_sets(c, input(as_it_is, x, "list", Wide), w)
    return w
end

"""
    dense_filter(c, w)

A filter as a dense array, the reverse of [`conv_filter`](@ref). Blocks that are not stored are 0; blocks that overlap are
added.

    c = BlockConv(4, 2, [[1, 3] => [2], [2, 3] => [1, 2]]; kernel = (3, 1))
    size(dense_filter(c, conv_filter(c, randn(18)))) == (3, 1, 4, 2)
"""
function dense_filter(c::BlockConv, w::BlockSparseMatrix{T}) where {T}
    dense = Array{T}(undef, dense_size(c))
    Raw.tartan_conv_filter_to_dense(c, w, output(image_order(c), dense, "dense", T))
    return dense
end

"""
    filter_list(c, w)

A filter as a vector of the blocks of channels of `c`, one after another, the reverse of [`conv_filter`](@ref)`(c, list)`.

    c = BlockConv(4, 2, [[1, 3] => [2], [2, 3] => [1, 2]]; kernel = (3, 1))
    filter_list(c, conv_filter(c, 1.0:18.0)) == 1:18
"""
function filter_list(c::BlockConv, w::BlockSparseMatrix{T}) where {T}
    list = Vector{T}(undef, c.weights)
    Raw.tartan_conv_filter_to_sets(c, w, output(as_it_is, list, "list", T))
    return list
end

# ---- The passes ----

# Refuses images that do not fit, in Julia's order of dimensions.
function expect_channels(x, name, c::BlockConv{D}, channels) where {D}
    expect_image(x, name, D)
    size(x, D + 1) == channels ||
        throw(TartanError(:shape, "$name has size $(size(x)), expected $channels channels in dimension $(D + 1)"))
    return nothing
end
function expect_result(x, y, xname, yname, c::BlockConv{D}) where {D}
    expect_channels(x, xname, c, c.in_channels)
    expect_channels(y, yname, c, c.out_channels)
    n, found = conv_size(c, spatial_size(x, Val(D))), spatial_size(y, Val(D))
    most = c.transposed ? n .+ c.stride .- 1 : n
    (all(n .<= found .<= most) && size(x, D + 2) == size(y, D + 2)) || throw(TartanError(:shape,
        "$yname has size $(size(y)), expected $(join((a == b ? a : "$a to $b" for (a, b) in zip(n, most)), " x ")) and " *
        "$(size(x, D + 2)) images for $xname of size $(size(x))"))
    return nothing
end

function expect_filter(w, name, c, ::Type{T}) where {T}
    eltype(w) <: T || throw(ArgumentError("$name has element type $(eltype(w)), expected $(join(Base.uniontypes(T), " or "))"))
    w.layout == c.layout || throw(TartanError(:layout, "$name is not on the layout of the convolution, expected a matrix on c.layout"))
    return nothing
end

# C's option for the windows of an image.
active_option(::Nothing, ::Nothing, y, D) = ""
function active_option(active::BlockLayout, windows::Windows, y, D)
    length(windows.size) == D || throw(TartanError(:shape, "$windows has $(length(windows.size)) dimensions, expected $D"))
    expect_active(active, windows, size(y, D + 2))
    all(windows.stride .>= windows.size) ||
        throw(TartanError(:argument, "$windows may overlap, expected strides that are at least the size"))
    return windows_option(windows)
end
active_option(active, windows, y, D) = throw(TartanError(:argument, "only one of active and windows is given, expected both or none"))

# gain or bias: a number for each channel, or a column for each edge class.
function expect_factor(x, name, c)
    x === nothing || (ndims(x) in (1, 2) && size(x, 1) == c.out_channels) || throw(TartanError(:shape,
        "$name has size $(size(x)), expected $(c.out_channels) channels, or these x edge classes"))
    return nothing
end
function classes_in_order(f)
    try
        return f()
    catch error
        error isa TartanError || rethrow()
        found = match(r"(gain|bias) has shape .*expected \[(\d+)\], or \[(\d+), (\d+)\]", error.message)
        found === nothing && rethrow()
        throw(TartanError(:shape, "$(found[1]) does not fit, expected size ($(found[2]),), or ($(found[4]), $(found[3])) with a " *
                                  "column for each edge class"))
    end
end

cleared(y::DeviceArray) = y # new ones are zeros
cleared(y) = fill!(y, 0)

"""
    conv(c, w, x; gain, bias, relu = false, bias_first = false, active, windows, size, context)
    conv(c, w, x, (gain = ..., bias = ...); options...)

The convolution of the images `x`, (spatial..., channels, n), with the filter `w`; `n` may be left out. Then, for each channel,
`y = gain * y + bias`, or with `bias_first` `gain * (y + bias)`, and with `relu` `max(y, 0)`. Zygote and other packages that use
ChainRulesCore differentiate the second form with respect to `gain` and `bias`.

* `gain`, `bias`: a number for each output channel, or (channels, classes) with a column for each of [`edge_classes`](@ref)
* `active`, `windows`: compute only these windows of the result; the rest is 0. `active` is a layout from
  [`active_windows`](@ref), `windows` the [`Windows`](@ref) that it was made with. They may not overlap
* `size`: the spatial lengths of the result of a transposed convolution with strides

```julia
c = BlockConv(pattern(:dense, (1, 1), 1); kernel = 3, padding = 1)
w = conv_filter(c, reshape([1.0, 2.0, 1.0], 3, 1, 1))
vec(conv(c, w, reshape([0.0, 0, 1, 0, 0], 5, 1, 1))) == [0, 1, 2, 1, 0]
```
"""
function conv(c::BlockConv{D}, w::Blocks, x::Dense; size = nothing, active = nothing, options...) where {D}
    any_tracked(values(options)...) && return record_conv_steps(c, w, x; size, active, options...)
    expect_type(x, "x", Wide)
    expect_channels(x, "x", c, c.in_channels)
    n = size === nothing ? conv_size(c, spatial_size(x, Val(D))) : spatial(size, "size", 0, Val(D))
    y = room_like(x, eltype(x), (n..., c.out_channels, Base.size(x)[D + 2:end]...))
    active === nothing || cleared(y)
    return conv!(y, c, w, x; active, options...)
end
conv(c::BlockConv, w::Blocks, x::Dense, terms::NamedTuple; options...) =
    conv(c, w, x; with_terms(terms, options, (:gain, :bias))...)

"""
    conv!(y, c, w, x; add = false, options...)

Write the result of [`conv`](@ref) to `y`. With `active`, the rest of `y` keeps its values. With `add`, the result is added to
`y`.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = (1, 1))
    conv!(zeros(5, 4, 8), c, conv_filter(c, randn(1, 1, 8, 8)), randn(5, 4, 8); add = true)
"""
function conv!(y::Dense, c::BlockConv{D}, w::Blocks, x::Dense; gain = nothing, bias = nothing, relu::Bool = false,
               bias_first::Bool = false, add::Bool = false, active = nothing, windows = nothing, context = nothing) where {D}
    T, order = eltype(x), image_order(c)
    expect_type(x, "x", Wide)
    expect_result(x, y, "x", "y", c)
    expect_filter(w, "w", c, T)
    expect_factor(gain, "gain", c)
    expect_factor(bias, "bias", c)
    arguments = (handle_of(c), handle_of(w), input(order, x, "x", T), real_input(in_order_of_c, gain, "gain", gate_type(T)),
                 real_input(in_order_of_c, bias, "bias", gate_type(T)), handle_of(active), output(order, y, "y", output_type(T)))
    text = options_text(relu ? "relu=1 " : "", bias_first ? "bias_first=1 " : "", add ? "add=1 " : "",
                        active_option(active, windows, y, D))
    classes_in_order(() -> run_operation(CONV_FORWARD, call_context(context, x, w, y), arguments, text))
    return y
end

"""
    conv_input_gradient(c, w, y_grad; size = nothing, active, windows, context)

The gradient with respect to `x`, from the gradient with respect to the result of [`conv`](@ref) before gain, bias and ReLU.
`size` has the spatial lengths of `x`; with stride 1 it may be left out. With `active`, `y_grad` counts as 0 outside these
windows.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = (3, 3))
    size(conv_input_gradient(c, conv_filter(c, randn(3, 3, 8, 8)), randn(4, 6, 8))) == (6, 8, 8)
"""
function conv_input_gradient(c::BlockConv{D}, w::Blocks, y_grad::Dense; size = nothing, options...) where {D}
    expect_type(y_grad, "y_grad", Wide)
    expect_channels(y_grad, "y_grad", c, c.out_channels)
    n = size === nothing ? input_size(c, spatial_size(y_grad, Val(D))) : spatial(size, "size", 0, Val(D))
    x_grad = room_like(y_grad, eltype(w), (n..., c.in_channels, Base.size(y_grad)[D + 2:end]...))
    return conv_input_gradient!(x_grad, c, w, y_grad; options...)
end
function input_size(c::BlockConv{D}, n) where {D}
    all(==(1), c.stride) || throw(TartanError(:argument, "size is not given, expected the spatial lengths of x, as stride is not 1"))
    large = ntuple(_ -> 1 << 20, Val(D)) # lengths differ by a constant
    return max.(n .+ large .- conv_size(c, large), 0)
end

"""
    conv_input_gradient!(x_grad, c, w, y_grad; active, windows, context)

Write the result of [`conv_input_gradient`](@ref) to `x_grad`.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = 3, stride = 2)
    conv_input_gradient!(zeros(10, 8), c, conv_filter(c, randn(3, 8, 8)), randn(4, 8))
"""
function conv_input_gradient!(x_grad::Dense, c::BlockConv{D}, w::Blocks, y_grad::Dense; active = nothing, windows = nothing,
                              context = nothing) where {D}
    T, order = eltype(w), image_order(c)
    expect_result(x_grad, y_grad, "x_grad", "y_grad", c)
    expect_filter(w, "w", c, Wide)
    arguments = (handle_of(c), handle_of(w), input(order, y_grad, "y_grad", output_type(T)), handle_of(active),
                 output(order, x_grad, "x_grad", output_type(T)))
    run_operation(CONV_INPUT_GRADIENT, call_context(context, y_grad, w, x_grad), arguments,
                  active_option(active, windows, y_grad, D))
    return x_grad
end

"""
    conv_filter_gradient(c, x, y_grad; active, windows, context)

The gradient with respect to the filter, a matrix on `c.layout`, from the gradient with respect to the result of [`conv`](@ref)
before gain, bias and ReLU.

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = (3, 3))
    conv_filter_gradient(c, randn(6, 8, 8), randn(4, 6, 8))
"""
function conv_filter_gradient(c::BlockConv, x::Dense, y_grad::Dense; options...)
    expect_type(x, "x", Wide)
    return conv_filter_gradient!(filter_room(x, c.layout), c, x, y_grad; options...)
end
filter_room(x, layout) = BlockSparseMatrix{eltype(x)}(layout)
filter_room(x::DeviceArray, layout) = DeviceBlockSparseMatrix{eltype(x)}(layout, x.context)

"""
    conv_filter_gradient!(w_grad, c, x, y_grad; beta = 0, active, windows, context)

`w_grad = beta * w_grad +` [`conv_filter_gradient`](@ref).

    c = BlockConv(pattern(:dense, (8, 8), 8); kernel = 3)
    w_grad = BlockSparseMatrix{Float64}(c.layout)
    conv_filter_gradient!(w_grad, c, randn(6, 8), randn(4, 8); beta = 1)
"""
function conv_filter_gradient!(w_grad::Blocks, c::BlockConv{D}, x::Dense, y_grad::Dense; beta = 0, active = nothing,
                               windows = nothing, context = nothing) where {D}
    T, order = eltype(x), image_order(c)
    expect_type(x, "x", Wide)
    expect_result(x, y_grad, "x", "y_grad", c)
    expect_filter(w_grad, "w_grad", c, output_type(T))
    arguments = (handle_of(c), input(order, x, "x", T), input(order, y_grad, "y_grad", output_type(T)), handle_of(active),
                 handle_of(w_grad))
    run_operation(CONV_FILTER_GRADIENT, call_context(context, x, y_grad, w_grad), arguments,
                  options_text(active_option(active, windows, y_grad, D), real_option("beta", beta, 0)))
    return w_grad
end
