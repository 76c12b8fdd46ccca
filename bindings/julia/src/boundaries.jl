# SPDX-License-Identifier: Apache-2.0
# Blocks of different sizes: where the rows and columns of a matrix are cut into blocks.

# One side of a layout: the rows, or the columns, of each of its blocks. `bounds` is empty if they have one size.
struct Cuts <: AbstractVector{UnitRange{Int}}
    lines::Int
    block::Int
    bounds::Vector{Int64}
end
const ONE_SIZE = (Int64[], Int64[])
is_even(c::Cuts) = isempty(c.bounds)
Base.size(c::Cuts) = (is_even(c) ? cld(c.lines, c.block) : length(c.bounds) - 1,)
Base.@propagate_inbounds Base.getindex(c::Cuts, i::Int) =
    is_even(c) ? ((i - 1) * c.block + 1:min(i * c.block, c.lines)) : (c.bounds[i] + 1:c.bounds[i + 1])
Base.:(==)(a::Cuts, b::Cuts) = is_even(a) && is_even(b) ? a.lines == b.lines && a.block == b.block :
    a.lines == b.lines && length(a) == length(b) && all(i -> a[i] == b[i], eachindex(a))

# The block that a row or column is in.
block_at(c::Cuts, line) = is_even(c) ? cld(Int(line), c.block) : searchsortedlast(c.bounds, line - 1)
blocks_at(x, rows, cols) = ((row_cuts, col_cuts) = cutting(x); ([block_at(row_cuts, i) for i in rows], [block_at(col_cuts, j) for j in cols]))
# The boundaries, from 0.
bounds_of(c::Cuts) = is_even(c) ? [0:c.block:c.lines - 1; c.lines] : copy(c.bounds)

cuts(layout::BlockLayout, side) = Cuts(size(layout)[side], blocksize(layout)[side], layout.bounds[side])
cuts(x, side) = cuts(x.layout, side)
# How a matrix is cut, which other matrices may have to be, too.
const Cutting = Tuple{Cuts, Cuts}
cutting(x) = cuts(x, 1), cuts(x, 2)

"`isvariable(x)`: whether the blocks of a layout or matrix differ in size, see [`with_boundaries`](@ref)."
isvariable(layout::BlockLayout) = !isempty(layout.bounds[1])

"""
    boundaries(x)

Where the block rows and block columns of a layout or matrix begin and end: block row `i` has the rows `rows[i] + 1:rows[i + 1]`.

    rows, cols = boundaries(BlockLayout([true false; true true]; rows = [0, 3, 5], cols = [0, 2, 3]))
    rows == [0, 3, 5]
"""
boundaries(x) = (rows = bounds_of(cuts(x, 1)), cols = bounds_of(cuts(x, 2)))

"""
    with_boundaries(layout; rows = nothing, cols = nothing)

The same blocks of the grid with other sizes: block row `i` has the rows `rows[i] + 1:rows[i + 1]`, so `rows` is `[0;
cumsum(heights)]`, and likewise `cols`; each size is 1 to 256. `nothing` keeps the sizes of that side. To give any layout blocks
of different sizes, make it with blocks of 1 on its grid and then set the boundaries.

`A.values[:, :, k]` has the rows and columns of the largest block: the elements of block `k` fill its first rows and columns
([`block_view`](@ref) shows them), the rest is zero and never read. Products and their gradients, arithmetic, conversion,
reductions and files support such layouts; other functions refuse them.

    layout = with_boundaries(pattern(:banded, (3, 3), 1; lower = 1, upper = 0); rows = [0, 3, 5, 12], cols = [0, 1, 6, 8])
    A = BlockSparseMatrix(ones(12, 8), layout)
    size(A.values) == (7, 5, 5) && nnz(A) == 64
"""
with_boundaries(layout::BlockLayout; rows = nothing, cols = nothing) = with_bounds(layout, bounds_from(rows, "rows"), bounds_from(cols, "cols"))
function with_bounds(layout, rows, cols)
    for (x, name, n) in zip((rows, cols), ("rows", "cols"), gridsize(layout))
        x === nothing || length(x) == n + 1 ||
            throw(TartanError(:shape, "$name has length $(length(x)), expected $(n + 1) (blocks of this side + 1)"))
    end
    return BlockLayout(Raw.tartan_layout_with_boundaries(known(layout), rows, cols))
end

bounds_from(::Nothing, name) = nothing
function bounds_from(x, name)
    x isa AbstractVector{<:Real} || throw(TartanError(:argument, "$name is $x, expected a vector of whole numbers"))
    isempty(x) && throw(TartanError(:shape, "$name is empty, expected at least [0]"))
    result = Vector{Int64}(undef, length(x))
    for k in eachindex(result, x)
        isinteger(x[k]) || bad_index(:argument, name, k, x[k], "a whole number")
        least, most = k == 1 ? (0, 0) : (result[k - 1] + 1, result[k - 1] + 256)
        least <= x[k] <= most || bad_index(:layout, name, k, x[k], k == 1 ? "0" : "$least to $most: blocks have 1 to 256 rows or columns")
        result[k] = x[k]
    end
    return result
end

BlockLayout(x::AbstractArray; rows, cols) = cut_at(x, bounds_from(rows, "rows"), bounds_from(cols, "cols"))
cut_at(x, rows, cols) = throw(TartanError(:argument, "$(rows === nothing ? "rows" : "cols") is nothing, expected boundaries of both sides"))
function cut_at(x, rows::Vector{Int64}, cols::Vector{Int64})
    grid = x isa Compressed ? blocks_with_entries(compressed(x), rows, cols) :
           BlockLayout(x isa Mask ? x : blocks_with_numbers(x, rows, cols), 1)
    return with_bounds(grid, rows, cols)
end
# The block of each row or column, from 0.
function block_of_lines(bounds)
    result = Vector{Int64}(undef, bounds[end])
    for i in 1:length(bounds) - 1
        result[bounds[i] + 1:bounds[i + 1]] .= i - 1
    end
    return result
end
function blocks_with_entries(S, rows, cols)
    expect_cut(S, rows, cols)
    i, j = entries_of(S)
    of_row, of_col = block_of_lines(rows), block_of_lines(cols)
    frame = frame_of((length(rows) - 1, length(cols) - 1), 1)
    return BlockLayout(Raw.tartan_layout_from_entries(frame, (nothing, of_row[i .+ 1], of_col[j .+ 1])))
end
function blocks_with_numbers(x::AbstractArray{<:Number}, rows, cols)
    ndims(x) in (2, 3) || throw(TartanError(:shape, "the array has $(ndims(x)) dimensions, expected 2 or 3"))
    expect_cut(x, rows, cols)
    return [any(!iszero, view(x, rows[i] + 1:rows[i + 1], cols[j] + 1:cols[j + 1], h))
            for i in 1:length(rows) - 1, j in 1:length(cols) - 1, h in 1:size(x, 3)]
end
expect_cut(x, rows, cols) = (size(x, 1), size(x, 2)) == (rows[end], cols[end]) || throw(DimensionMismatch(
    "the matrix has size $((size(x, 1), size(x, 2))), the boundaries end at $((rows[end], cols[end])), expected the same"))

# Other blocks on the grid of a layout: those of a mask, or a list.
on_grid(layout, mask::AbstractArray{Bool}) = isvariable(layout) ? with_bounds(BlockLayout(mask, 1), layout.bounds...) :
    BlockLayout(mask, blocksize(layout); shape = size(layout))
on_grid(layout, rows::Vector, cols::Vector) = isvariable(layout) ?
    with_bounds(BlockLayout(gridsize(layout), 1, rows, cols), layout.bounds...) : BlockLayout(size(layout), blocksize(layout), rows, cols)

# For what computes with blocks of one size.
one_size(layout) = isvariable(layout) ?
    throw(TartanError(:unsupported, "layout has blocks of different sizes, which are not supported here")) : layout
