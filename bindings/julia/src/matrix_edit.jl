# SPDX-License-Identifier: Apache-2.0
# Norms, sums, initial values, and new matrices from matrices.

# What stores blocks, here or on a device.
const Blocks{T} = Union{BlockSparseMatrix{T}, DeviceBlockSparseMatrix{T}}
own_context(::BlockSparseMatrix) = nothing
own_context(A::DeviceBlockSparseMatrix) = A.context

"""
    block_norms(A; norm = :l2)

The norm (`:max`, `:l1`, `:l2`) of every block, as a vector of Julia's own, for which a device is waited for.
"""
function block_norms(A::Blocks; norm = :l2)
    norms = Vector{Float64}(undef, nblocks(A))
    code = code_of(NORMS, norm, "norm")
    with_context(c -> Raw.tartan_matrix_block_norms(c, A, code, norms), own_context(A))
    return norms
end

"""
    Tartan.check(A; finite = true)

Throws where a stored element is not finite (and says which block), or the matrix is broken.
"""
check(A::BlockSparseMatrix; finite::Bool = true) = Raw.tartan_matrix_check(A, finite)

permute_blocks(A::Blocks; rows = nothing, cols = nothing) =
    made(c -> Raw.tartan_matrix_permute(c, A, from_zero(rows), from_zero(cols)), A)

slice(A::Blocks, rows::AbstractUnitRange, cols::AbstractUnitRange) =
    made(c -> Raw.tartan_matrix_slice(c, A, first(rows) - 1, last(rows), first(cols) - 1, last(cols)), A)

"""
    project(A, layout)

The values of `A` at the blocks of another layout of the same frame; zeros where `A` has no such block.

    project(A, prune(A.layout, block_norms(A) .> 0.1))
"""
project(A::Blocks, layout::BlockLayout) = made(c -> Raw.tartan_matrix_project(c, A, layout), A)

"""
    rearrange(A, layout, sources)

The matrix whose block `i` is block `sources[i]` of `A`, or zeros where that is 0. See [`move_blocks`](@ref).
"""
rearrange(A::Blocks, layout::BlockLayout, sources::AbstractVector) =
    made(c -> Raw.tartan_matrix_rearrange(c, A, layout, from_zero(sources)), A)

"""
    scatter!(A, B, targets)

Block `targets[i]` of `A` becomes block `i` of `B`, rounded to the type of `A`, in place; where that is 0 it goes nowhere. The
other blocks stay. Both are in Julia's memory, or on a device and of one context.

    scatter!(A, slice(B, 1:1, 1:2), [3, 8])
"""
function scatter!(A::Blocks, B::Blocks, targets::AbstractVector)
    with_context(c -> Raw.tartan_matrix_scatter(c, B, from_zero(targets), A), shared_context(nothing, A, B))
    return A
end

"`fill_zero!(A)`: every element becomes 0."
fill_zero!(A::BlockSparseMatrix) = (Raw.tartan_matrix_fill_zero(A); A)

"""
    fill_identity!(A; scale = 1)

`scale * I` in the blocks on the (wrapped) diagonal, zeros elsewhere.
"""
fill_identity!(A::BlockSparseMatrix; scale::Real = 1) = (Raw.tartan_matrix_fill_identity(A, scale); A)

"""
    fill_orthogonal!(A; scale = 1, seed = 0, context = nothing)

The stored elements of each block column become orthonormal columns (or rows), times `scale`.
"""
function fill_orthogonal!(A::BlockSparseMatrix; scale::Real = 1, seed::Real = 0, context = nothing)
    with_context(c -> Raw.tartan_matrix_fill_orthogonal(c, A, scale, whole(seed, "seed")), context)
    return A
end

"""
    fill_normal!(A; scale = 1, seed = 0, context = nothing)

Normal numbers of standard deviation `scale / sqrt(fan-in)`, the fan-in of a block row being the number of its stored
columns: `A * x` keeps the variance of `x`. The same in every language.
"""
function fill_normal!(A::BlockSparseMatrix; scale::Real = 1, seed::Real = 0, context = nothing)
    with_context(c -> Raw.tartan_matrix_fill_normal(c, A, scale, whole(seed, "seed")), context)
    return A
end

function Base.fill!(A::BlockSparseMatrix, x)
    iszero(x) || throw(ArgumentError("x is $x, expected 0: only stored blocks can hold values (use A.values .= x)"))
    return fill_zero!(A)
end

# ---- Sums and multiples ----

Base.:-(A::BlockSparseMatrix) = BlockSparseMatrix(A.layout, -A.values)
Base.:*(A::BlockSparseMatrix{T}, x::Real) where {T} = BlockSparseMatrix(A.layout, A.values .* T(x))
Base.:*(x::Real, A::BlockSparseMatrix) = A * x
Base.:/(A::BlockSparseMatrix{T}, x::Real) where {T} = BlockSparseMatrix(A.layout, A.values ./ T(x))
LinearAlgebra.rmul!(A::BlockSparseMatrix, x::Number) = (A.values .*= x; A)
LinearAlgebra.lmul!(x::Number, A::BlockSparseMatrix) = rmul!(A, x)

for op in (:+, :-)
    @eval function Base.$op(A::BlockSparseMatrix, B::BlockSparseMatrix)
        size(A) == size(B) || throw(DimensionMismatch("A has size $(size(A)), B has $(size(B))"))
        A.layout == B.layout && return BlockSparseMatrix(A.layout, $op(A.values, B.values))
        layout = union(A.layout, B.layout)
        return BlockSparseMatrix(layout, $op(project(A, layout).values, project(B, layout).values))
    end
end
