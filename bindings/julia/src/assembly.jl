# SPDX-License-Identifier: Apache-2.0
# Blocks and elements from triplets, and added into matrices by plans.

"""
    BlockSparseMatrix(block_rows, block_cols, blocks, shape; block_heads = nothing, heads = 1)

The matrix whose block at block row `block_rows[k]` and block column `block_cols[k]` is `blocks[:, :, k]`, in any order. Blocks
at the same position are added in their order, as `sparse(I, J, V, m, n)` adds elements. `shape` is in elements.

```jldoctest
julia> A = BlockSparseMatrix([2, 1, 2], [1, 2, 1], reshape(1.0:12.0, 2, 2, 3), (4, 4));

julia> A[3:4, 1:2] == [1 3; 2 4] + [9 11; 10 12]
true
```
"""
function BlockSparseMatrix(block_rows::AbstractVector{<:Integer}, block_cols::AbstractVector{<:Integer}, blocks::AbstractArray{<:Number, 3},
                           shape::Sizes; block_heads::Union{AbstractVector, Nothing} = nothing, heads::Real = 1)
    values = dense_input(blocks)
    frame = frame_of(shape, (size(values, 1), size(values, 2)), heads)
    places = places_in(frame, block_heads, block_rows, block_cols)
    array = input(as_matrix, values, "blocks", eltype(values))
    return adopt(eltype(values), Raw.tartan_matrix_from_blocks(nothing, frame, places, array, 0, Raw.TARTAN_COL_MAJOR))
end

"""
    BlockSparseMatrix(block_rows, block_cols, blocks; rows, cols)

The matrix of blocks of different sizes whose block at block row `block_rows[k]` and block column `block_cols[k]` is the matrix
`blocks[k]`, in any order; blocks at the same position are added. `rows` and `cols` are the boundaries, see
[`with_boundaries`](@ref).

```jldoctest
julia> A = BlockSparseMatrix([1, 2, 2], [1, 1, 1], [ones(3, 2), ones(1, 2), ones(1, 2)]; rows = [0, 3, 4], cols = [0, 2]);

julia> Matrix(A)
4×2 Array{Float64,2}:
 1.0  1.0
 1.0  1.0
 1.0  1.0
 2.0  2.0
```
"""
function BlockSparseMatrix(block_rows::AbstractVector{<:Integer}, block_cols::AbstractVector{<:Integer},
                           blocks::AbstractVector{<:AbstractMatrix{<:Number}}; rows, cols)
    n, (p, q) = length(blocks), (bounds_from(rows, "rows"), bounds_from(cols, "cols"))
    length(block_rows) == length(block_cols) == n || throw(DimensionMismatch(
        "there are $(length(block_rows)) block rows, $(length(block_cols)) block columns and $n blocks, expected as many of each"))
    frame = frame_of((length(p) - 1, length(q) - 1), 1)
    _, i, j = places_in(frame, nothing, block_rows, block_cols)
    layout = with_bounds(BlockLayout(Raw.tartan_layout_from_entries(frame, (nothing, i, j))), p, q)
    for (k, x) in enumerate(blocks)
        expected = length.((cuts(layout, 1)[i[k] + 1], cuts(layout, 2)[j[k] + 1]))
        size(x) == expected || throw(DimensionMismatch("blocks[$k] has size $(size(x)), expected $expected"))
    end
    A = BlockSparseMatrix{n == 0 ? Float64 : eltype(dense_input(first(blocks)))}(layout)
    for (id, x) in zip(findblock(layout, block_rows, block_cols), blocks)
        A.values[axes(x, 1), axes(x, 2), id] .+= x
    end
    return A
end

function places_in(frame, heads, rows, cols)
    grid = grid_of(frame)
    return (from_zero(heads, "block_heads", frame.heads), from_zero(rows, "block_rows", grid[1]), from_zero(cols, "block_cols", grid[2]))
end

"""
    Assembly(layout, block_rows, block_cols; block_heads = nothing)
    Assembly(layout, rows, cols; elements = true, heads = nothing)

An assembly plan: which of the listed blocks, or elements, add up at each position of a layout. A plan is made once; then
[`add!`](@ref) adds values into any matrix of the layout as fast as memory allows, in the order of the list. All items must be
in stored blocks.

```jldoctest
julia> A = BlockSparseMatrix(zeros(4, 4), BlockLayout(trues(2, 2), 2)); plan = Assembly(A.layout, [1, 1], [2, 2]);

julia> sum(add!(A, plan, ones(2, 2, 2)))
8.0
```
"""
struct Assembly
    layout::BlockLayout
    elements::Bool
    order::Vector{Int64}
    ends::Vector{Int64}
end

function Assembly(layout::BlockLayout, rows::AbstractVector, cols::AbstractVector; elements::Bool = false,
                  heads::Union{AbstractVector, Nothing} = nothing, block_heads::Union{AbstractVector, Nothing} = heads)
    count = Tartan.heads(layout)
    block_heads === nothing && count > 1 && throw(TartanError(:argument, "heads is nothing, expected the head of each item: the layout has $count heads"))
    (m, n), (br, bc) = elements ? (size(layout)[1:2], blocksize(layout)) : (gridsize(layout), (1, 1))
    h, i, j = from_zero(block_heads, "heads", count), from_zero(rows, "rows", m), from_zero(cols, "cols", n)
    order = Vector{Int64}(undef, length(i))
    ends = Vector{Int64}(undef, nblocks(layout) * br * bc)
    elements ? Raw.tartan_layout_element_plan(layout, (h, i, j), Raw.TARTAN_COL_MAJOR, order, ends) :
               Raw.tartan_layout_block_plan(layout, (h, i, j), order, ends)
    return Assembly(layout, elements, from_one!(order), ends)
end

Base.show(io::IO, plan::Assembly) = print(io, "Assembly of ", length(plan.order), plan.elements ? " elements" : " blocks")

"""
    add!(A::BlockSparseMatrix, plan::Assembly, values; beta = 1)

Add blocks `values[:, :, k]`, or elements `values[k]`, into `A` in place by the plan, and return `A`. All old values of `A`
are multiplied by `beta`; with `beta = 0` they are not read.
"""
function add!(A::BlockSparseMatrix, plan::Assembly, values::AbstractArray{<:Number}; beta::Real = 1)
    A.layout == plan.layout || throw(TartanError(:layout, "A has another layout than the plan, expected that of the plan"))
    to = plan.elements ? vec(A.values) : A.values
    segment_sum!(to, to, dense_input(values), plan.order, plan.ends; beta)
    return A
end
