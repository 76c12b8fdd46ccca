# SPDX-License-Identifier: Apache-2.0
# Windows of images: sparse spatial blocks. Images are (spatial..., channels, n) in Julia, which is C's [n, channels, spatial...]
# without a copy, so all lists of spatial numbers are reversed for C.

# A whole number, or one for each of D spatial dimensions.
spatial(x::Real, name, least, ::Val{D}) where {D} = spatial(ntuple(_ -> x, Val(D)), name, least, Val(D))
function spatial(x, name, least, ::Val{D}) where {D}
    (length(x) == D && all(n -> n isa Real && isinteger(n) && least <= n <= typemax(Int32), x)) ||
        throw(TartanError(:argument, "$name is $x, expected " * (D == 1 ? "a whole number" : "$D whole numbers, or one") *
                                     (least == typemin(Int32) ? "" : " from $least on")))
    return NTuple{D, Int}(Tuple(x))
end

# How many spatial dimensions some numbers speak of: 1 if all are single ones.
function dimensions(xs...)
    n = maximum(x -> x isa Real ? 1 : length(x), xs)
    n in 1:3 || throw(TartanError(:argument, "$n spatial dimensions are given, expected 1 to 3"))
    return n
end

c_numbers(n::Tuple) = join(reverse(n), "x")

# C counts spatial dimensions from 0 and from the other end.
function dimensions_from_one(f, D)
    try
        return f()
    catch error
        error isa TartanError && occursin(r"in dimension \d", error.message) || rethrow()
        message = replace(error.message, r"in dimension \d" => text -> "in dimension $(D - parse(Int, text[end]))")
        throw(TartanError(error.status, message))
    end
end

"""
    Windows(size; stride = size, offset = 0, count)
    Windows(text)

Windows of an image, equally spaced: along each spatial dimension, window `i` covers the `size` positions from `offset + (i - 1)
* stride + 1` on, for `i` in `1:count`. Windows may reach beyond the image. Numbers are tuples in the order of the image's
dimensions; a single number applies to all.

`text` has the form that the other languages use, where the last dimension comes first: `Windows("size=18x20 count=4x5")` has
windows of 20 x 18 positions in an array of Julia.

    Windows((16, 16); count = (4, 6))
"""
struct Windows{D}
    size::NTuple{D, Int}
    stride::NTuple{D, Int}
    offset::NTuple{D, Int}
    count::NTuple{D, Int}
    function Windows(size; stride = size, offset = 0, count)
        D = dimensions(size, stride, offset, count)
        return new{D}(spatial(size, "size", 1, Val(D)), spatial(stride, "stride", 1, Val(D)),
                      spatial(offset, "offset", typemin(Int32), Val(D)), spatial(count, "count", 0, Val(D)))
    end
end

function Windows(text::AbstractString)
    words = Dict{String, Vector{Int}}()
    for word in split(text, r"[\s,]+"; keepempty = false)
        found = match(r"^(size|stride|offset|count)=(-?\d+(?:x-?\d+)*)$", word)
        found === nothing && throw(TartanError(:argument,
            "windows has '$word', expected size, stride, offset or count with numbers, as in size=16x16"))
        words[found[1]] = reverse(parse.(Int, split(found[2], 'x')))
    end
    for name in ("size", "count")
        haskey(words, name) || throw(TartanError(:argument, "windows is '$text', expected a $name in it"))
    end
    number(name, usual) = (x = get(words, name, usual); length(x) == 1 ? only(x) : Tuple(x))
    return Windows(number("size", nothing); stride = number("stride", words["size"]), offset = number("offset", 0),
                   count = number("count", nothing))
end

"""
    windows_text(windows)

The text that [`Windows`](@ref)`(text)` and the other languages understand.

    windows_text(Windows((18, 20); count = (5, 4))) == "size=20x18 stride=20x18 offset=0x0 count=4x5"
"""
windows_text(w::Windows) =
    "size=$(c_numbers(w.size)) stride=$(c_numbers(w.stride)) offset=$(c_numbers(w.offset)) count=$(c_numbers(w.count))"
windows_option(w::Windows) = "windows=($(windows_text(w))) "
Base.show(io::IO, w::Windows) =
    print(io, "Windows(", w.size, "; stride = ", w.stride, ", offset = ", w.offset, ", count = ", w.count, ")")

# The rows and columns of the layout that says which are active.
window_grid(w::Windows{D}) where {D} = (prod(w.count[2:D]), w.count[1])

function expect_active(active::BlockLayout, w::Windows, images)
    blocksize(active) == (1, 1) || throw(TartanError(:shape,
        "active has blocks of $(times(blocksize(active))), expected 1×1: each block is a window"))
    (gridsize(active) == window_grid(w) && heads(active) == images) || throw(TartanError(:shape,
        "active has $(times(gridsize(active))) blocks in $(heads(active)) heads, expected $(times(window_grid(w))) in " *
        "$images (windows and images)"))
    return nothing
end

# Images in C's order: [n, channels, spatial...].
struct ImageOrder{N} end
(::ImageOrder{N})(n, s) where {N} = backwards(n, s, Val(N))
image_order(::Windows{D}) where {D} = ImageOrder{D + 2}()

function expect_image(x, name, D)
    ndims(x) in (D + 1, D + 2) || throw(TartanError(:shape,
        "$name has size $(size(x)), expected $(D + 2) dimensions: " * ("(w", "(w, h", "(w, h, d")[D] * ", channels, n)"))
    return nothing
end
spatial_size(x, ::Val{D}) where {D} = ntuple(d -> size(x, d), Val(D))

"""
    windows_for_conv(n; kernel, stride = 1, size = nothing, output = nothing, padding = :same)

The windows of an image of spatial lengths `n` for one or more successive convolutions that run window by window. Returns the
windows of the input, which overlap by the halo, and the windows of the output, which are adjacent.

`kernel` is for instance `(3, 3)`, or for a stack a vector, `[1, (3, 3), 1]`, whose receptive field counts; `stride` is the
product over the stack. Give either the `size` of the input windows with their halo, or the size of the `output` windows.
`padding` is `:same` (TensorFlow's, [`BlockConv`](@ref)'s `:tf`) or `:valid`.

    inputs, outputs = windows_for_conv((96, 64); kernel = (3, 3), output = 16)
    outputs.count == (6, 4)
"""
function windows_for_conv(n; kernel, stride = 1, size = nothing, output = nothing, padding = :same)
    D = Val(dimensions(n))
    lengths = spatial(n, "n", 0, D)
    stack = kernel isa AbstractVector ? kernel : [kernel]
    text = "kernel=" * join((c_numbers(spatial(k, "kernel", 1, D)) for k in stack), "+") * " padding=$padding"
    for (name, x) in (("stride", stride), ("size", size), ("output", output))
        x === nothing || (text *= " $name=$(c_numbers(spatial(x, name, 1, D)))")
    end
    inputs, outputs = dimensions_from_one(length(lengths)) do
        Raw.tartan_windows_for_conv(Int64[reverse(lengths)...], text)
    end
    return Windows(inputs), Windows(outputs)
end

# ---- Active windows ----

"""
    active_windows(mask, windows; pool = :max, tolerance = 0, capacity = nothing, context = nothing)

The windows that a mask makes active, as a layout with blocks of 1 x 1 and a head for each image. `mask` is (spatial..., n) or
(spatial..., 1, n), of `Bool` or numbers; one image needs no `n`. With `pool = :max` a window is active if its largest element
exceeds `tolerance`, with `pool = :average` if the mean does, where positions outside the image count as 0.

Block rows are windows along the second dimension of the image, block columns those along the first, so that the layout is
the same as in other languages. (In one dimension there is one block row, in three the second and third dimension share the
rows.) Window ids are block ids: those along the first dimension follow each other. The layout can be saved like any other.

With a context on a device the layout is dynamic, with room for `capacity` windows, by default all, and
[`update!`](@ref)`(layout, mask, windows, context)` updates it; Julia does not wait. On a device, `NaN` exceeds any tolerance;
in Julia's memory it is refused.

    mask = zeros(96, 64); mask[1:20, 1:10] .= 1
    _, outputs = windows_for_conv((96, 64); kernel = (3, 3), output = 16)
    block_mask(active_windows(mask, outputs))
"""
function active_windows(mask, windows::Windows; pool = :max, tolerance = 0, capacity = nothing, context = nothing)
    text = pool_options(pool, tolerance)
    capacity === nothing || (text *= " capacity=$(whole(capacity, "capacity"))")
    return BlockLayout(Raw.tartan_layout_from_windows(call_context(context, mask), window_mask(mask, windows), windows_text(windows), text))
end

"""
    update!(layout, mask, windows, context; pool = :max, tolerance = 0)

Give a dynamic layout from [`active_windows`](@ref) the active windows of a new mask. Return the layout.
"""
function update!(layout::BlockLayout, mask, windows::Windows, context::Context; pool = :max, tolerance = 0)
    Raw.tartan_layout_update_windows(context, layout, window_mask(mask, windows), windows_text(windows), pool_options(pool, tolerance))
    return layout
end

function pool_options(pool, tolerance)
    code_of((max = 0, average = 1), pool, "pool")
    return "pool=$pool tolerance=$(real_factor(tolerance, "tolerance"))"
end

# [n, spatial...] for C.
struct MaskOrder{D} end
(::MaskOrder{D})(n::NTuple{N}, s) where {D, N} = N == D + 2 ?
    backwards((n[1:D]..., n[N]), (s[1:D]..., s[N]), Val(D + 1)) : backwards(n, s, Val(D + 1))
function window_mask(mask, ::Windows{D}) where {D}
    (ndims(mask) in (D, D + 1) || (ndims(mask) == D + 2 && size(mask, D + 1) == 1)) || throw(TartanError(:shape,
        "mask has size $(size(mask)), expected $D spatial dimensions, or those and the number of images"))
    device_operand(mask) === nothing || return described(MaskOrder{D}(), device_operand(mask))
    eltype(mask) <: Union{Bool, UInt8} || return input(MaskOrder{D}(), dense_input(mask), "mask", eltype(dense_input(mask)))
    bytes = Array{UInt8}(mask)
    n, s = MaskOrder{D}()(size(bytes), strides(bytes))
    return Operand(bytes, Raw.tartan_array(Ptr{Cvoid}(pointer(bytes)), Raw.TARTAN_U8, HOST..., length(n), pad(n), pad(s)))
end

# ---- Gather and scatter ----

"""
    window_gather(x, active, windows; context = nothing)

The active windows of the image `x`, (spatial..., channels, n) with any strides: (size..., channels, windows), in the order of
block ids. Positions outside the image are 0. The gradient is [`window_scatter`](@ref) with `add = true` onto zeros.

    x = reshape(1.0:16.0, 4, 4, 1)
    windows = Windows(2; count = (2, 2))
    active = active_windows([0 0 0 0; 0 0 0 0; 0 0 0 0; 1 0 0 0], windows)
    window_gather(x, active, windows) == reshape([3.0, 4.0, 7.0, 8.0], 2, 2, 1, 1)
"""
function window_gather(x::Dense, active::BlockLayout, windows::Windows{D}; context = nothing) where {D}
    expect_type(x, "x", Wide)
    expect_image(x, "x", D)
    blocks = room_like(x, eltype(x), (windows.size..., size(x, D + 1), nblocks(active)))
    return window_gather!(blocks, x, active, windows; context)
end

"""
    window_gather!(blocks, x, active, windows; context = nothing)

Write the result of [`window_gather`](@ref) to `blocks`.

    windows = Windows((2, 2); count = (2, 2))
    window_gather!(zeros(2, 2, 3, 4), rand(4, 4, 3), active_windows(ones(4, 4), windows), windows)
"""
function window_gather!(blocks::Dense, x::Dense, active::BlockLayout, windows::Windows{D}; context = nothing) where {D}
    expect_image(x, "x", D)
    expect_active(active, windows, size(x, D + 2))
    expect_size(blocks, (windows.size..., size(x, D + 1), nblocks(active)), "blocks")
    order = image_order(windows)
    arguments = (handle_of(active), input(order, x, "x", Wide), output(order, blocks, "blocks", eltype(x)))
    run_operation(WINDOW_GATHER, call_context(context, x, blocks), arguments, windows_option(windows))
    return blocks
end

"""
    window_scatter!(y, blocks, active, windows; add = false, base = nothing, context = nothing)

Write blocks, as [`window_gather`](@ref) returns them, to their windows of the image `y`. Parts outside the image are dropped.
Other positions keep their values or, with `base`, an image of the size of `y`, take the values of `base`. `blocks` may be
`nothing` for zeros. With `add`, blocks are added, in the order of block ids; windows may overlap only then.

The gradient with respect to `blocks` is [`window_gather`](@ref) of the gradient with respect to `y`.

    x, windows = rand(6, 4, 2), Windows((3, 2); count = (2, 2))
    active = active_windows([1 0 0 0; 0 0 0 0; 0 0 0 0; 0 0 0 1; 0 0 0 0; 0 0 0 0], windows)
    y = window_scatter!(zeros(6, 4, 2), window_gather(x, active, windows), active, windows)
    y[1:3, 1:2, :] == x[1:3, 1:2, :] && iszero(y[4:6, 1:2, :])
"""
function window_scatter!(y::Dense, blocks::Union{Dense, Nothing}, active::BlockLayout, windows::Windows{D}; add::Bool = false,
                         base = nothing, context = nothing) where {D}
    expect_image(y, "y", D)
    expect_active(active, windows, size(y, D + 2))
    blocks === nothing || expect_size(blocks, (windows.size..., size(y, D + 1), nblocks(active)), "blocks")
    base === nothing || expect_size(base, size(y), "base")
    add || all(windows.stride .>= windows.size) || throw(TartanError(:argument,
        "$windows may overlap, expected strides that are at least the size, or add = true"))
    order, T = image_order(windows), eltype(y)
    arguments = (handle_of(active), blocks === nothing ? nothing : input(order, blocks, "blocks", T),
                 base === nothing ? nothing : input(order, base, "base", T), output(order, y, "y", Wide))
    run_operation(WINDOW_SCATTER, call_context(context, y, blocks, base), arguments,
                  options_text(windows_option(windows), add ? "add=1 " : ""))
    return y
end

"""
    window_scatter(y, blocks, active, windows; add = false, context = nothing)

[`window_scatter!`](@ref) onto a copy of `y`.

    windows = Windows((3, 2); count = (2, 2))
    active = active_windows([1 0 0 0; 0 0 0 0; 0 0 0 0; 0 0 0 0; 0 0 0 0; 0 0 0 0], windows)
    y = window_scatter(zeros(6, 4, 1), ones(3, 2, 1, 1), active, windows)
    sum(y) == sum(y[1:3, 1:2, 1]) == 6
"""
function window_scatter(y::Dense, blocks::Union{Dense, Nothing}, active::BlockLayout, windows::Windows; add::Bool = false, context = nothing)
    expect_type(y, "y", Wide)
    return window_scatter!(room_like(y, eltype(y), size(y)), blocks, active, windows; add, base = y, context)
end
