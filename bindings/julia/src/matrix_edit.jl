# SPDX-License-Identifier: Apache-2.0
# Norms of blocks, initial values, and new matrices from old ones.

# Matrices with stored blocks, in Julia's memory or on a device, and new ones made by the library in the same
# place.
const Blocks{T} = Union{BlockSparseMatrix{T}, DeviceBlockSparseMatrix{T}}
made(::BlockSparseMatrix{T}, address) where {T} = adopt(T, address)

"""
    block_norms(A; norm = :l2)

The norm (`:max`, `:l1`, `:l2`) of every block, as a vector in Julia's memory. Waits for the device, if any.
"""
function block_norms(A::Blocks; norm = :l2)
    norms = Vector{Float64}(undef, nblocks(A))
    code = code_of(NORMS, norm, "norm")
    Raw.tartan_matrix_block_norms(context_of(A), A, code, norms)
    return norms
end

"""
    Tartan.check(A; finite = true)

Throw if the matrix is broken or, with `finite`, a stored element is not finite; the message says which
block.
"""
function check(A::BlockSparseMatrix; finite::Bool = true)
    Raw.tartan_matrix_check(A, false)
    finite && foreach_element(A) do i, j, head, x, k
        isfinite(x) || throw(TartanError(:argument, string("A has ", x, " in block ", k, " at [", i, ", ", j,
            heads(A) == 1 ? "" : ", $head", "], expected finite numbers")))
    end
    return nothing
end

function foreach_element(f, A::BlockSparseMatrix)
    row_cuts, col_cuts = cutting(A)
    for (k, (block_row, block_col, head)) in enumerate(zip(coordinates(A.layout)...))
        for (c, j) in enumerate(col_cuts[block_col]), (r, i) in enumerate(row_cuts[block_row])
            f(i, j, head, A.values[r, c, k], k)
        end
    end
end

permute_blocks(A::Blocks; rows = nothing, cols = nothing) =
    made(A, Raw.tartan_matrix_permute(context_of(A), A, orders(A.layout, rows, cols)...))

slice(A::Blocks, rows::AbstractUnitRange, cols::AbstractUnitRange) =
    made(A, Raw.tartan_matrix_slice(context_of(A), A, ranges(A.layout, rows, cols)...))

"""
    project(A, layout)

The values of `A` at the blocks of another layout of the same frame; blocks that `A` does not store are zero.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    project(A, prune(A.layout, block_norms(A) .> 0.1))
"""
project(A::Blocks, layout::BlockLayout) = made(A, Raw.tartan_matrix_project(context_of(A), A, layout))

# The blocks of a transpose are numbered as those of its copy.
for f in (:block_norms, :permute_blocks, :slice, :project)
    @eval $f(A::TransposedBlocks, arguments...; options...) = $f(copy(A), arguments...; options...)
end

"""
    rearrange(A, layout, sources)

The matrix whose block `i` is block `sources[i]` of `A`, or zero if `sources[i] == 0`. See [`move_blocks`](@ref).
"""
rearrange(A::Blocks, layout::BlockLayout, sources::AbstractVector) =
    made(A, Raw.tartan_matrix_rearrange(context_of(A), A, layout, from_zero(sources, "sources", nblocks(A), 0)))

"""
    scatter!(A, B, targets)

Copy block `i` of `B` to block `targets[i]` of `A`, rounded to the type of `A`, and skip it if `targets[i] == 0`.
Other blocks keep their values. Both matrices are in Julia's memory, or on a device in one context.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    scatter!(A, slice(2A, 1:1, 1:2), [3, 8])
"""
function scatter!(A::Blocks, B::Blocks, targets::AbstractVector)
    to = expect_once(from_zero(targets, "targets", nblocks(A), 0), "targets", nblocks(A))
    Raw.tartan_matrix_scatter(call_context(nothing, A, B), B, to, A)
    return A
end

"`fill_zero!(A)`: sets every element to 0."
fill_zero!(A::BlockSparseMatrix) = (Raw.tartan_matrix_fill_zero(A); A)

"""
    fill_identity!(A; scale = 1)

`scale * I` in the blocks on the (wrapped) diagonal, zeros elsewhere.
"""
fill_identity!(A::BlockSparseMatrix; scale::Real = 1) = (Raw.tartan_matrix_fill_identity(A, scale); A)

"""
    fill_orthogonal!(A; scale = 1, seed = rand(UInt32), context = nothing)

Fill each block column (all its stored blocks together) with orthonormal columns (or rows) times `scale`.
"""
function fill_orthogonal!(A::BlockSparseMatrix; scale::Real = 1, seed::Real = rand(UInt32), context = nothing)
    Raw.tartan_matrix_fill_orthogonal(context, A, scale, whole(seed, "seed"))
    return A
end

"""
    fill_normal!(A; scale = 1, seed = rand(UInt32), context = nothing)

Normal random numbers with standard deviation `scale / sqrt(fan-in)`. The fan-in of a block row is the number
of its stored columns, so `A * x` keeps the variance of `x`. The numbers are the same in every language.
"""
function fill_normal!(A::BlockSparseMatrix; scale::Real = 1, seed::Real = rand(UInt32), context = nothing)
    Raw.tartan_matrix_fill_normal(context, A, scale, whole(seed, "seed"))
    return A
end
