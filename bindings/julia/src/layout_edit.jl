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
    grid, ragged = gridsize(layout), isvariable(layout) ? (false, false) : size(layout) .% blocksize(layout) .!= 0
    return order_from_zero(rows, "rows", grid[1], ragged[1]), order_from_zero(cols, "cols", grid[2], ragged[2])
end

"""
    slice(x, block_rows, block_cols)

The given ranges of block rows and block columns as a new layout or matrix.

    layout = pattern(:dense, (64, 64), 8)
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
    evolve(layout, scores, step; growth = nothing, density = nothing, initial = 1, curve = :cubic, threshold = nothing, swap = 0,
           decay = :cosine, start = 0, stop = nothing, every = 1, seed = 0)

The layout after training step `step` of a schedule that drops and grows blocks: magnitude pruning, movement pruning or
RigL-like regrowth. Returns `layout` if nothing changes. [`project`](@ref) moves weights and the optimiser's moments to the new
layout: blocks that stay keep their values, new blocks are zeros. There is no other state, so interrupted training continues
with the same blocks.

`scores` rank the stored blocks, for instance [`block_norms`](@ref), or sums of [`gate_gradient!`](@ref) for movement pruning.
`growth`, (block rows, block columns) or (block rows, block columns, heads), ranks all positions of the grid, for instance
[`growth_score!`](@ref). Ties go to the smaller block id or position.

* `density`: the density at step `stop`; `nothing`: the number of blocks does not change
* `initial`: the density at step `start`
* `curve`: how the density moves from `initial` to `density`: `:cubic` (in proportion to the cube of the remaining steps),
  `:linear`, `:cosine` or `:constant` (at once, as without a `stop`)
* `threshold`: replaces the density: drops blocks whose score is below
* `swap`: the fraction of the remaining blocks, those of smallest score, to drop as well and replace by the positions of largest
  `growth` or, without it, by random positions (which avoid blocks just dropped as long as there are others)
* `decay`: how `swap` falls to 0 at step `stop`: `:cosine`, `:linear`, `:cubic` or `:constant` (no decay, as without a `stop`)
* `start`, `every`, `stop`: blocks change at steps `start`, `start + every`, ... up to `stop`
* `seed`: the seed of random positions, which depend on it and on the step only

Sources: Zhu, Gupta, "To prune, or not to prune" (2017); Evci et al., "Rigging the lottery" (2020).

    W = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 8)); seed = 1)
    sparser(W, step) = project(W, evolve(W.layout, block_norms(W), step; density = 0.25, stop = 100))
    nblocks(foldl(sparser, 0:10:100; init = W)) == 16
"""
function evolve(layout::BlockLayout, scores::AbstractVector{<:Real}, step::Integer; growth = nothing, density = nothing, initial = 1,
                curve = :cubic, threshold = nothing, swap = 0, decay = :cosine, start::Integer = 0, stop = nothing,
                every::Integer = 1, seed::Integer = 0)
    schedule = schedule_text(density, initial, curve, threshold, swap, decay, start, stop, every, seed)
    evolved = BlockLayout(Raw.tartan_layout_evolve(layout, numbers(scores, "scores"), growth_of(layout, growth), step, schedule))
    return evolved == layout ? layout : evolved
end
function schedule_text(density, initial, curve, threshold, swap, decay, start, stop, every, seed)
    ways = (cubic = 0, linear = 1, cosine = 2, constant = 3)
    code_of(ways, curve, "curve")
    code_of(ways, decay, "decay")
    number(name, x) = x === nothing ? "" : option_text(name, Float64(real_factor(x, name)))
    whole_number(name, x) = x === nothing ? "" : option_text(name, whole(x, name))
    return string(number("density", density), number("initial", initial), "curve=", curve, " ", number("threshold", threshold),
                  number("swap", swap), "decay=", decay, " ", whole_number("begin", start), whole_number("end", stop),
                  whole_number("every", every), whole_number("seed", seed))
end
growth_of(layout, ::Nothing) = nothing
function growth_of(layout, growth)
    grid = heads(layout) > 1 ? (gridsize(layout)..., heads(layout)) : gridsize(layout)
    size(growth) == grid || throw(DimensionMismatch("growth has size $(size(growth)), expected $grid (the grid of blocks)"))
    return numbers(vec(permutedims(growth, ndims(growth) == 3 ? (2, 1, 3) : (2, 1))), "growth")
end

"""
    grow(layout, block_rows, block_cols; block_heads = nothing)

The layout with more blocks; it may have some of them already.
"""
function grow(layout::BlockLayout, rows::AbstractVector, cols::AbstractVector; block_heads = nothing)
    grid = gridsize(layout)
    return BlockLayout(Raw.tartan_layout_grow(layout, (from_zero(block_heads, "block_heads", heads(layout)),
                                              from_zero(rows, "block_rows", grid[1]), from_zero(cols, "block_cols", grid[2]))))
end

"""
    move_blocks(layout, ids, block_rows, block_cols)

Move blocks to other positions in their heads, all at once. Return the new layout and, for each of its
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

"`reblock(layout, block)`: the blocks of another block size that cover every stored block." reblock(layout::BlockLayout,
block::Sizes) = BlockLayout(Raw.tartan_layout_reblock(layout, pair(block, "block")...))

"""
    rcm_order(S::SparseMatrixCSC)

The reverse Cuthill-McKee order of a square matrix: `S[order, order]` has its entries close to the diagonal, so its blocks are
fuller.
"""
function rcm_order(S::SparseMatrixCSC)
    order = Vector{Int64}(undef, size(S, 1))
    pointers = Vector{Int64}(SparseArrays.getcolptr(S)) .- 1
    Raw.tartan_reorder_rcm((pointers, Vector{Int64}(rowvals(S))[1:nnz(S)] .- 1, true), order)
    return from_one!(order)
end

"""
    reorder_blocks(dense, block, density)

Order the rows and columns of a matrix so that its large elements gather in few blocks. Return `(rows, cols)`; the reordered
matrix is `dense[rows, cols]`. A heuristic maximises the sum of squares in the fraction `density` of the blocks, by exchanging
rows and columns. Better orders may exist, but the result is always the same.

    x = kron([1 0; 0 1], ones(4, 4))[[1, 5, 2, 6, 3, 7, 4, 8], :]
    rows, cols = reorder_blocks(x, (4, 4), 0.5)
    nblocks(BlockLayout(sparse(x[rows, cols]), (4, 4))) == 2
"""
function reorder_blocks(dense::AbstractMatrix{<:Real}, block::Sizes, density::Real)
    rows, cols = Vector{Int64}(undef, size(dense, 1)), Vector{Int64}(undef, size(dense, 2))
    x = dense_input(dense)
    Raw.tartan_reorder_blocks(frame_of(size(x), block), input(as_matrix, x, "dense", eltype(x)), density, rows, cols)
    return from_one!(rows), from_one!(cols)
end
