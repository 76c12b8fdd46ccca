# SPDX-License-Identifier: Apache-2.0

"""
    BlockLayout(mask, block; shape)
    BlockLayout(dense, block)
    BlockLayout(S::SparseMatrixCSC, block)
    BlockLayout(shape, block, block_rows, block_cols; heads = 1, block_heads = nothing)
    BlockLayout(mask; rows, cols)
    BlockLayout(dense; rows, cols)
    BlockLayout(S::SparseMatrixCSC; rows, cols)

A layout says which blocks of a matrix exist. It is immutable; any number of matrices, tasks and files may
share it.

* `mask`: a `BitMatrix` or `Array{Bool}` of block rows x block columns (x heads); `shape` defaults to whole blocks; a given
  shape may end inside the last blocks.
* `dense` (rows x columns, x heads): the blocks with a non-zero; `S`: the blocks with a stored entry.
* `block_rows`, `block_cols`: the blocks in any order, each once; with several heads they are the same in every head,
  unless `block_heads` gives the head of each.
* `rows`, `cols`: boundaries of blocks of different sizes, see [`with_boundaries`](@ref).

`block` is the block size, `(16, 16)` or `16`; `shape` is the size of the matrix, `(rows, columns)`. See also
[`pattern`](@ref).

    BlockLayout([true false; true true], (8, 8))          # 16 x 16, three blocks
    BlockLayout((100, 50), 8, [1, 13], [1, 7])            # ragged: 13 x 7 block positions
    BlockLayout([true false; true true]; rows = [0, 3, 5], cols = [0, 4, 5])
"""
struct BlockLayout
    handle::Handle{Raw.tartan_layout}
    frame::Raw.tartan_shape
    bounds::NTuple{2, Vector{Int64}} # the boundaries of blocks of different sizes; else empty
    function BlockLayout(address::Ptr{Raw.tartan_layout})
        frame = Raw.tartan_shape(Raw.tartan_layout_rows(address), Raw.tartan_layout_cols(address),
                                 Raw.tartan_layout_block_rows(address), Raw.tartan_layout_block_cols(address),
                                 Raw.tartan_layout_heads(address))
        grid = Raw.tartan_layout_grid_rows(address), Raw.tartan_layout_grid_cols(address)
        bounds = Raw.tartan_layout_is_variable(address) == 1 ? map(n -> Vector{Int64}(undef, n + 1), grid) : ONE_SIZE
        bounds === ONE_SIZE || Raw.tartan_layout_get_boundaries(address, bounds...)
        bytes = 8 * frame.heads * sum(grid) + 20 * Raw.tartan_layout_blocks(address)
        return new(Handle(address, nothing, bytes), frame, bounds)
    end
end

Raw.c_handle(::Type{Raw.tartan_layout}, layout::BlockLayout) = layout.handle
Base.close(layout::BlockLayout) = close(layout.handle)
Base.isopen(layout::BlockLayout) = isopen(layout.handle)
Base.deepcopy_internal(layout::BlockLayout, ::IdDict) = layout
Base.copy(layout::BlockLayout) = layout

pair(x::Real, name) = (whole(x, name), whole(x, name))
pair(x::Tuple{Real, Real}, name) = (whole(x[1], name), whole(x[2], name))
pair(x, name) = throw(TartanError(:argument, "$name is $x, expected a number or two"))

function frame_of(shape, block, heads = 1)
    rows, cols = pair(shape, "shape")
    block_rows, block_cols = pair(block, "block")
    return Raw.tartan_shape(rows, cols, block_rows, block_cols, whole(heads, "heads"))
end

const Sizes = Union{Real, Tuple{Real, Real}}

const Mask = Union{AbstractMatrix{Bool}, AbstractArray{Bool, 3}}

# The frame of a mask, and its bytes in row-major order for C.
function frame_and_bytes(mask::Mask, block, shape)
    grid = (size(mask, 1), size(mask, 2))
    if shape === nothing
        n = pair(block, "block")
        shape = (Base.Checked.checked_mul(grid[1], n[1]), Base.Checked.checked_mul(grid[2], n[2]))
    end
    frame = frame_of(shape, block, size(mask, 3))
    # C only sees the number of bytes, so a mask of another grid with as many blocks must be refused here.
    if frame.block_rows > 0 && frame.block_cols > 0
        expected = (cld(frame.rows, frame.block_rows), cld(frame.cols, frame.block_cols))
        grid == expected || throw(TartanError(:shape, "mask has $(grid[1]) x $(grid[2]) blocks, expected " *
                                                      "$(expected[1]) x $(expected[2]) for shape $shape and block $block"))
    end
    bytes = Vector{UInt8}(vec(permutedims(reshape(mask, grid..., size(mask, 3)), (2, 1, 3))))
    return frame, bytes
end

BlockLayout(mask::Mask, block::Sizes; shape = nothing) =
    BlockLayout(Raw.tartan_layout_from_mask(frame_and_bytes(mask, block, shape)...))

function BlockLayout(shape::Sizes, block::Sizes, block_rows::AbstractVector, block_cols::AbstractVector;
                     heads::Real = 1, block_heads::Union{AbstractVector, Nothing} = nothing)
    frame = frame_of(shape, block, heads)
    rows, cols = grid_of(frame)
    h = from_zero(block_heads, "block_heads", frame.heads)
    i, j = from_zero(block_rows, "block_rows", rows), from_zero(block_cols, "block_cols", cols)
    return at_positions(() -> BlockLayout(Raw.tartan_layout_from_coordinates(frame, (h, i, j))), block_heads, block_rows, block_cols)
end

# Block rows and block columns; typemax for a frame that C will refuse.
grid_of(frame) = (blocks_in(frame.rows, frame.block_rows), blocks_in(frame.cols, frame.block_cols))
blocks_in(n, block) = block > 0 && n >= 0 ? cld(n, block) : typemax(Int64)

BlockLayout(dense::Union{AbstractMatrix{<:Number}, AbstractArray{<:Number, 3}}, block::Sizes) =
    from_dense(dense, block, Raw.tartan_layout_from_dense)

function from_dense(dense, block, make)
    x = dense_input(dense)
    frame = frame_of((size(x, 1), size(x, 2)), block, size(x, 3))
    return BlockLayout(make(frame, input(as_matrix, x, "dense", eltype(x))))
end

# Tartan's element types are kept, others become Float64.
dense_input(x::AbstractArray{<:Union{Float64, Float32, Float16, BFloat16, Float8}}) = x
dense_input(x::AbstractArray{<:Real, N}) where {N} = convert(Array{Float64, N}, x)
dense_input(x::AbstractArray{<:Number}) = (dtype_code(eltype(x)); x) # which is refused

function BlockLayout(S::SparseMatrixCSC, block::Sizes)
    rows, cols = entries_of(S)
    return BlockLayout(Raw.tartan_layout_from_entries(frame_of(size(S), block), (nothing, rows, cols)))
end

# Rows and columns of the stored entries, from 0.
function entries_of(S::SparseMatrixCSC)
    rows = Vector{Int64}(rowvals(S))[1:nnz(S)] .- 1
    cols = Vector{Int64}(undef, nnz(S))
    for j in 1:size(S, 2), k in nzrange(S, j)
        cols[k] = j - 1
    end
    return rows, cols
end

const NORMS = (max = Raw.TARTAN_NORM_MAX, l1 = Raw.TARTAN_NORM_L1, l2 = Raw.TARTAN_NORM_L2)

"""
    largest_blocks(dense, block, density; norm = :l2)

The layout of the `round(density * number of blocks)` blocks of `dense` with the largest norms (`:max`, `:l1`,
`:l2`).

    largest_blocks(randn(64, 64), (8, 8), 0.25)
"""
function largest_blocks(dense::AbstractArray{<:Real}, block::Sizes, density::Real; norm = :l2)
    code = code_of(NORMS, norm, "norm")
    return from_dense(dense, block, (frame, x) -> Raw.tartan_layout_from_dense_largest(frame, x, density, code))
end

"""
    chosen_blocks(scores, block; counts = nothing, top_p = 1, shape = nothing)

The layout of the blocks of largest score in each block row, for `scores` of block rows x block columns (x heads). `counts` is
the largest number of blocks, one number for all block rows or one for each, block rows (x heads). `top_p` chooses the fewest
blocks whose softmax weights within the row sum to at least `top_p`. Ties go to the smaller block column, NaN counts as
infinity, and blocks of score -Inf are never chosen.

    scores = log.([0.5 0.3 0.15 0.05; 0.05 0.9 0.02 0.03])
    chosen_blocks(scores, 8; top_p = 0.75)
    chosen_blocks(scores, 8; counts = [1, 3])
"""
function chosen_blocks(scores::Union{AbstractMatrix{<:Real}, AbstractArray{<:Real, 3}}, block::Sizes; counts = nothing, top_p::Real = 1,
                       shape = nothing)
    x = dense_input(scores)
    sizes = pair(block, "block")
    frame = frame_of(shape === nothing ? (size(x, 1) * sizes[1], size(x, 2) * sizes[2]) : shape, block, size(x, 3))
    numbers = counts === nothing ? Int64[] : Int64[whole(n, "counts") for n in vec(collect(counts))]
    return BlockLayout(Raw.tartan_layout_from_scores(frame, input(as_matrix, x, "scores", eltype(x)), numbers, Float64(top_p)))
end

"""
    pattern(name, shape, block; heads = 1, seed = 0, parameters...)

A layout from a named pattern; `patterns()` lists the names and `pattern_help(name)` the parameters. The same seed gives
the same layout in every language and on every machine.

    pattern(:barabasi_albert, (160, 160), 16; m = 5, seed = 1)
"""
function pattern(name, shape::Sizes, block::Sizes; heads::Real = 1, seed::Real = 0, parameters...)
    text = join(("$key=$(parameter_text(value))" for (key, value) in parameters), " ")
    frame = frame_of(shape, block, heads)
    return BlockLayout(Raw.tartan_layout_from_pattern(frame, string(name), text, whole(seed, "seed")))
end
pattern(name, rows::Real, cols::Real, block::Sizes; options...) = pattern(name, (rows, cols), block; options...)

parameter_text(value::Bool) = value ? "1" : "0"
parameter_text(value::Union{Real, Symbol, AbstractString}) = string(value)
parameter_text(value) = throw(TartanError(:argument, "a parameter is $value, expected a number or a word"))

"""
    patterns()

The names of the patterns for [`pattern`](@ref).
"""
patterns() = Symbol[Symbol(Raw.tartan_pattern_name(i)) for i in 0:Raw.tartan_pattern_count() - 1]

"""
    pattern_help(name)

A description of the pattern, and its parameters with their defaults.
"""
function pattern_help(name)
    i = findfirst(==(Symbol(name)), patterns())
    i === nothing && throw(TartanError(:not_found, "no pattern '$name', expected one of $(join(patterns(), ", "))"))
    return Raw.tartan_pattern_help(i - 1)
end

# ---- Properties ----

"""
    size(layout)
    size(layout, 1)

Rows and columns, in elements.
"""
Base.size(layout::BlockLayout) = (Int(layout.frame.rows), Int(layout.frame.cols))
Base.size(layout::BlockLayout, dimension::Integer) = dimension <= 2 ? size(layout)[dimension] : 1

"`blocksize(x)`: rows and columns of a block of a layout or matrix; of the largest one if they differ ([`boundaries`](@ref))."
blocksize(layout::BlockLayout) = (Int(layout.frame.block_rows), Int(layout.frame.block_cols))

"`gridsize(x)`: the numbers of block rows and block columns of a layout or matrix."
gridsize(layout::BlockLayout) = length(cuts(layout, 1)), length(cuts(layout, 2))

"`heads(x)`: the number of patterns side by side in one frame, 1 for an ordinary matrix."
heads(layout::BlockLayout) = Int(layout.frame.heads)

"`nblocks(x)`: the number of stored blocks in all heads."
nblocks(layout::BlockLayout) = Int(Raw.tartan_layout_blocks(layout))

"`nnz(x)`: the number of stored elements of a layout or matrix, without the padding of ragged edges."
SparseArrays.nnz(layout::BlockLayout) = Int(Raw.tartan_layout_elements(known(layout)))

"`density(x)`: stored blocks / all blocks."
density(layout::BlockLayout) = Raw.tartan_layout_density(known(layout))

"""
    layout_identity(layout)

32 hexadecimal digits. Equal layouts have equal identities, in every language.
"""
layout_identity(layout::BlockLayout) = Raw.tartan_layout_identity(layout)

"`recipe(layout)`: how the layout was made, as JSON; \"\" if unknown."
recipe(layout::BlockLayout) = Raw.tartan_layout_recipe(layout)

Base.:(==)(a::BlockLayout, b::BlockLayout) = Raw.tartan_layout_equal(a, b) == 1
"`isdynamic(layout)`: whether device masks change its blocks; `nblocks` is then its capacity."
isdynamic(layout::BlockLayout) = Raw.tartan_layout_is_dynamic(layout) == 1

known(layout::BlockLayout) = isdynamic(layout) ? throw(TartanError(:unsupported,
    "the layout is dynamic, expected an ordinary one (to_host makes one)")) : layout

Base.hash(layout::BlockLayout, h::UInt) = hash(layout_identity(layout), hash(:BlockLayout, h))

"""
    coordinates(layout)

Block row, block column and head of every block, in the order of block ids: row by row.

    layout = pattern(:banded, (64, 64), 16; lower = 1)
    rows, cols, heads = coordinates(layout)
"""
function coordinates(layout::BlockLayout)
    n = nblocks(layout)
    heads, rows, cols = Vector{Int64}(undef, n), Vector{Int64}(undef, n), Vector{Int64}(undef, n)
    Raw.tartan_layout_get_coordinates(layout, heads, rows, cols)
    return from_one!(rows), from_one!(cols), from_one!(heads)
end

# The blocks of each block row or block column of a layout with one head, in order: those of line i are at starts[i]:starts[i + 1] - 1 of
# `across`, where they are along the line, and of their ids.
struct BlockLists{I}
    starts::Vector{Int64}
    across::Vector{Int64}
    ids::I
end
Base.@propagate_inbounds in_line(lists::BlockLists, i) = lists.starts[i]:lists.starts[i + 1] - 1
function row_lists(layout::BlockLayout)
    lists = BlockLists(Vector{Int64}(undef, gridsize(layout)[1] + 1), Vector{Int64}(undef, nblocks(layout)), Base.OneTo(nblocks(layout)))
    Raw.tartan_layout_get_row_lists(layout, lists.starts, lists.across)
    foreach(from_one!, (lists.starts, lists.across))
    return lists
end
function column_lists(layout::BlockLayout)
    n = nblocks(layout)
    lists = BlockLists(Vector{Int64}(undef, gridsize(layout)[2] + 1), Vector{Int64}(undef, n), Vector{Int64}(undef, n))
    Raw.tartan_layout_get_col_lists(layout, lists.starts, lists.across, lists.ids)
    foreach(from_one!, (lists.starts, lists.across, lists.ids))
    return lists
end

# What is made of a layout once, and kept with it. Two tasks may make one at once; either will do.
const KEPT = (rows = 1, cols = 2, upper = 3, lower = 4, upper32 = 5, lower32 = 6, col_counts = 7)
function made_once(make, layout::BlockLayout, place)
    handle = layout.handle
    handle.keep === nothing && (handle.keep = Vector{Any}(nothing, length(KEPT)))
    found = handle.keep::Vector{Any}
    found[place] === nothing && (found[place] = make())
    return found[place]
end
kept_rows(layout) = made_once(() -> row_lists(layout), layout, KEPT.rows)::BlockLists{Base.OneTo{Int}}
kept_columns(layout) = made_once(() -> column_lists(layout), layout, KEPT.cols)::BlockLists{Vector{Int64}}
# How many blocks each block column has.
kept_column_counts(layout) = made_once(() -> column_counts(layout), layout, KEPT.col_counts)::Vector{Int}
function column_counts(layout)
    counts = zeros(Int, gridsize(layout)[2])
    for j in kept_rows(layout).across
        counts[j] += 1
    end
    return counts
end

"""
    block_mask(layout)

The mask: an `Array{Bool}` of block rows x block columns (x heads, if there are several).
"""
function block_mask(layout::BlockLayout)
    rows, cols = gridsize(layout)
    bytes = Vector{UInt8}(undef, rows * cols * heads(layout)) # fewer than 2^63: every layout is checked for that
    Raw.tartan_layout_get_mask(layout, bytes)
    mask = Array{Bool}(permutedims(reshape(bytes, cols, rows, heads(layout)), (2, 1, 3)))
    return heads(layout) == 1 ? mask[:, :, 1] : mask
end

"""
    findblock(layout, block_row, block_col; head = 1)

The id of the block at a position, or 0 if it is not stored. Vectors give a vector.
"""
function findblock(layout::BlockLayout, rows::AbstractVector, cols::AbstractVector; head = 1)
    ids = Vector{Int64}(undef, length(rows))
    at = head isa AbstractVector ? head : fill(head, length(rows))
    grid = gridsize(layout)
    Raw.tartan_layout_find(layout, (from_zero(at, "head", heads(layout)), from_zero(rows, "rows", grid[1]),
                                    from_zero(cols, "cols", grid[2])), ids)
    return from_one!(ids)
end
function findblock(layout::BlockLayout, row::Real, col::Real; head::Real = 1)
    inside(i, n) = isinteger(i) && 1 <= i <= n
    (rows, cols), count = gridsize(layout), heads(layout)
    inside(row, rows) && inside(col, cols) && inside(head, count) && return stored_block(layout, Int(row), Int(col), Int(head))
    return findblock(layout, [row], [col]; head = [head])[1] # which says what is wrong
end

# The same for indices that are known to be valid.
function stored_block(layout::BlockLayout, row::Int, col::Int, head::Int)
    return Int(Raw.tartan_layout_block(layout, head - 1, row - 1, col - 1)) + 1
end

"""
    number_blocks(layout, order)

Block ids in another order: `:row`, `:column` or `:morton`.
"""
function number_blocks(layout::BlockLayout, order)
    code = code_of((row = Raw.TARTAN_BY_ROW, column = Raw.TARTAN_BY_COLUMN, morton = Raw.TARTAN_BY_MORTON), order, "order")
    ids = Vector{Int64}(undef, nblocks(layout))
    Raw.tartan_layout_number(layout, code, ids)
    return from_one!(ids)
end

"`row_lengths(layout)`: the number of blocks in each block row, head after head."
function row_lengths(layout::BlockLayout)
    lengths = Vector{Int64}(undef, heads(layout) * gridsize(layout)[1])
    Raw.tartan_layout_row_lengths(layout, lengths)
    return lengths
end

"`row_spread(layout)`: the smallest, mean and largest row length and their standard deviation."
function row_spread(layout::BlockLayout)
    x = Vector{Float64}(undef, 4)
    Raw.tartan_layout_row_spread(layout, x)
    return (minimum = x[1], mean = x[2], maximum = x[3], deviation = x[4])
end

"`bandwidth(layout)`: the largest distance of a block below and above the main diagonal, in blocks."
function bandwidth(layout::BlockLayout)
    x = Vector{Int64}(undef, 2)
    Raw.tartan_layout_bandwidth(layout, x)
    return (lower = x[1], upper = x[2])
end

"""
    reach(layout; steps = 8, head = 1)

The fraction of pairs (block row, block column) connected by at most 1, 2, ... `steps` steps.
"""
function reach(layout::BlockLayout; steps::Integer = 8, head::Integer = 1)
    steps >= 0 || throw(TartanError(:argument, "steps is $steps, expected at least 0"))
    1 <= head <= heads(layout) || throw(TartanError(:argument, "head is $head, expected 1 to $(heads(layout))"))
    x = Vector{Float64}(undef, steps)
    Raw.tartan_layout_reach(layout, head - 1, x)
    return x
end

"""
    partition(layout, parts)

Divide the block rows (of all heads) into `parts` ranges with nearly equal numbers of blocks.
"""
function partition(layout::BlockLayout, parts::Integer)
    parts >= 1 || throw(TartanError(:argument, "parts is $parts, expected at least 1"))
    bounds = Vector{Int64}(undef, parts + 1)
    Raw.tartan_layout_partition(layout, bounds)
    return [bounds[i] + 1:bounds[i + 1] for i in 1:parts]
end

"""
    svg(layout; pixels = 480)

A picture of the layout as SVG text. Notebooks display it automatically.
"""
svg(layout::BlockLayout; pixels::Integer = 480) =
    Raw.tartan_layout_svg(layout, clamp(pixels, typemin(Int32), typemax(Int32)))
