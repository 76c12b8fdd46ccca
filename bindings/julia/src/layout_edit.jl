# SPDX-License-Identifier: Apache-2.0
# New layouts from layouts.

"`union(a, b)` or `a ∪ b`: the blocks of either layout; both have the same shape, block size and heads."
Base.union(a::BlockLayout, b::BlockLayout) = BlockLayout(Raw.tartan_layout_union(a, b))

"`intersect(a, b)` or `a ∩ b`: the blocks of both layouts."
Base.intersect(a::BlockLayout, b::BlockLayout) = BlockLayout(Raw.tartan_layout_intersection(a, b))

"`setdiff(a, b)`: the blocks of `a` that are not in `b`."
Base.setdiff(a::BlockLayout, b::BlockLayout) = BlockLayout(Raw.tartan_layout_difference(a, b))

Base.union(a::BlockLayout, b::BlockLayout, more::BlockLayout...) = union(union(a, b), more...)
Base.intersect(a::BlockLayout, b::BlockLayout, more::BlockLayout...) = intersect(intersect(a, b), more...)
Base.issubset(a::BlockLayout, b::BlockLayout) = nblocks(setdiff(a, b)) == 0

"`transpose(layout)`: the layout of the transposed matrix."
LinearAlgebra.transpose(layout::BlockLayout) = BlockLayout(Raw.tartan_layout_transpose(layout))
LinearAlgebra.adjoint(layout::BlockLayout) = transpose(layout)

"""
    permute_blocks(x; rows = nothing, cols = nothing)

A layout or matrix whose block row `i` is block row `rows[i]` of `x`, and whose block column `j` is block
column `cols[j]`. A ragged edge must stay last.
"""
permute_blocks(layout::BlockLayout; rows = nothing, cols = nothing) =
    BlockLayout(Raw.tartan_layout_permute(layout, orders(layout, rows, cols)...))

# New orders of block rows and block columns, counted from 0 for C.
function orders(layout, rows, cols)
    grid, ragged = gridsize(layout), size(layout) .% blocksize(layout) .!= 0
    return order_from_zero(rows, "rows", grid[1], ragged[1]), order_from_zero(cols, "cols", grid[2], ragged[2])
end

"""
    slice(x, block_rows, block_cols)

The given ranges of block rows and block columns as a new layout or matrix.

    slice(layout, 1:4, 3:8)
"""
slice(layout::BlockLayout, rows::AbstractUnitRange, cols::AbstractUnitRange) =
    BlockLayout(Raw.tartan_layout_slice(layout, ranges(layout, rows, cols)...))

function ranges(layout, rows, cols)
    grid = gridsize(layout)
    return (range_from_zero(rows, "block_rows", grid[1])..., range_from_zero(cols, "block_cols", grid[2])...)
end

"""
    prune(layout, gates)

The blocks whose gate is not 0; one gate per block, in the order of block ids. A `BitVector` works too.
"""
prune(layout::BlockLayout, gates::AbstractVector{<:Real}) =
    BlockLayout(Raw.tartan_layout_prune(layout, numbers(gates, "gates")))

# Gates or scores for C, none of them NaN.
function numbers(x, name)
    k = findfirst(isnan, x)
    k === nothing || bad_index(:argument, name, k, x[k], "a number")
    return Vector{Float64}(x)
end

"""
    keep_largest(layout, scores, count)

The `count` blocks with the largest scores, for instance from [`block_norms`](@ref).
"""
keep_largest(layout::BlockLayout, scores::AbstractVector{<:Real}, count::Integer) =
    BlockLayout(Raw.tartan_layout_keep_largest(layout, numbers(scores, "scores"), count))

"""
    grow(layout, block_rows, block_cols; block_heads = nothing)

The layout with more blocks, some of which it may have already.
"""
function grow(layout::BlockLayout, rows::AbstractVector, cols::AbstractVector; block_heads = nothing)
    grid = gridsize(layout)
    return BlockLayout(Raw.tartan_layout_grow(layout, (from_zero(block_heads, "block_heads", heads(layout)),
                                              from_zero(rows, "block_rows", grid[1]), from_zero(cols, "block_cols", grid[2]))))
end

"""
    move_blocks(layout, ids, block_rows, block_cols)

Moves blocks to other positions in their heads, all at once. Returns the new layout and, for each of its
blocks, the old id `sources`; `rearrange(A, layout, sources)` moves the values.
"""
function move_blocks(layout::BlockLayout, ids::AbstractVector, rows::AbstractVector, cols::AbstractVector)
    n, grid = nblocks(layout), gridsize(layout)
    sources = Vector{Int64}(undef, n)
    from = expect_once(from_zero(ids, "ids", n), "ids", n)
    i, j = from_zero(rows, "block_rows", grid[1]), from_zero(cols, "block_cols", grid[2])
    new_rows, new_cols, of_head = coordinates(layout)
    if length(i) == length(j) == length(from)
        new_rows[from .+ 1], new_cols[from .+ 1] = i .+ 1, j .+ 1
    end
    moved = at_positions(() -> BlockLayout(Raw.tartan_layout_move(layout, from, (nothing, i, j), sources)), of_head, new_rows, new_cols)
    return moved, from_one!(sources)
end

"`reblock(layout, block)`: a layout of another block size that covers every stored block."
reblock(layout::BlockLayout, block::Sizes) = BlockLayout(Raw.tartan_layout_reblock(layout, pair(block, "block")...))

"""
    rcm_order(S::SparseMatrixCSC)

The reverse Cuthill-McKee order of a square matrix: `S[order, order]` has its entries near the diagonal, so
its blocks are fuller.
"""
function rcm_order(S::SparseMatrixCSC)
    order = Vector{Int64}(undef, size(S, 1))
    pointers = Vector{Int64}(SparseArrays.getcolptr(S)) .- 1
    Raw.tartan_reorder_rcm((pointers, Vector{Int64}(rowvals(S))[1:nnz(S)] .- 1, true), order)
    return from_one!(order)
end
