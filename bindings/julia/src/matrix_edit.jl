# SPDX-License-Identifier: Apache-2.0
# Norms, sums, initial values, and new matrices from matrices.

"""
    block_norms(A; norm = :l2)

The norm (`:max`, `:l1`, `:l2`) of every block.
"""
function block_norms(A::BlockSparseMatrix; norm = :l2)
    norms = Vector{Float64}(undef, nblocks(A))
    Raw.tartan_matrix_block_norms(A, code_of(NORMS, norm, "norm"), norms)
    return norms
end

"""
    Tartan.check(A; finite = true)

Throws where a stored element is not finite (and says which block), or the matrix is broken.
"""
check(A::BlockSparseMatrix; finite::Bool = true) = Raw.tartan_matrix_check(A, finite)

permute_blocks(A::BlockSparseMatrix; rows = nothing, cols = nothing) =
    adopt_as(eltype(A), Raw.tartan_matrix_permute(A, from_zero(rows), from_zero(cols)))

slice(A::BlockSparseMatrix, rows::AbstractUnitRange, cols::AbstractUnitRange) =
    adopt_as(eltype(A), Raw.tartan_matrix_slice(A, first(rows) - 1, last(rows), first(cols) - 1, last(cols)))

"""
    project(A, layout)

The values of `A` at the blocks of another layout of the same frame; zeros where `A` has no such block.

    project(A, prune(A.layout, block_norms(A) .> 0.1))
"""
project(A::BlockSparseMatrix, layout::BlockLayout) =
    adopt_as(eltype(A), Raw.tartan_matrix_project(A, layout))

"""
    rearrange(A, layout, sources)

The matrix whose block `i` is block `sources[i]` of `A`, or zeros where that is 0. See [`move_blocks`](@ref).
"""
rearrange(A::BlockSparseMatrix, layout::BlockLayout, sources::AbstractVector) =
    adopt_as(eltype(A), Raw.tartan_matrix_rearrange(A, layout, from_zero(sources)))

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
