# SPDX-License-Identifier: Apache-2.0
# Dense and sparse matrices to block-sparse ones and back.

BlockSparseMatrix(dense::AbstractArray{<:Real}, block::Sizes) = BlockSparseMatrix(dense, BlockLayout(dense, block))

function BlockSparseMatrix(dense::Union{AbstractMatrix{<:Real}, AbstractArray{<:Real, 3}}, layout::BlockLayout)
    x = dense_input(dense)
    return GC.@preserve x adopt(Raw.tartan_matrix_from_dense(layout, operand(x), 0, Raw.TARTAN_COL_MAJOR))
end

# An array of three dimensions after a layout holds blocks; one before a layout is dense, with heads last.
BlockSparseMatrix(S::SparseMatrixCSC, block::Sizes) = BlockSparseMatrix(S, BlockLayout(S, block))

function BlockSparseMatrix(S::SparseMatrixCSC, layout::BlockLayout)
    size(S) == size(layout) || throw(DimensionMismatch("S has size $(size(S)), the layout $(size(layout))"))
    rows, cols = entries_of(S)
    values = dense_input(nonzeros(S)[1:nnz(S)])
    return GC.@preserve values adopt(
        Raw.tartan_matrix_from_coo(layout, rows, cols, whole_array(values), 0, Raw.TARTAN_COL_MAJOR))
end

BlockSparseMatrix(A::BlockSparseMatrix, layout::BlockLayout) = project(A, layout)
BlockSparseMatrix(A::BlockSparseMatrix, block::Sizes) = BlockSparseMatrix(Array(A), block)
BlockSparseMatrix(A::BlockSparseMatrix) = copy(A)
BlockSparseMatrix{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
BlockSparseMatrix{T}(A::BlockSparseMatrix) where {T} =
    made(c -> Raw.tartan_matrix_cast(c, A, dtype_code(T), Raw.TARTAN_COL_MAJOR), A, T)
BlockSparseMatrix{T}(x, frame) where {T} = BlockSparseMatrix{T}(BlockSparseMatrix(x, frame))

# The adopted matrix, in the very type of 16 bits that was asked for.
function adopt_as(::Type{T}, address) where {T}
    A = adopt(address)
    return eltype(A) === T ? A : BlockSparseMatrix(A.layout, Array{T, 3}(reinterpret(T, A.values)))
end

# What the library makes of a matrix.
made(make, A::BlockSparseMatrix{S}, ::Type{T} = S) where {S, T} = adopt_as(T, with_context(make, nothing))

Base.AbstractMatrix{T}(A::BlockSparseMatrix) where {T} = BlockSparseMatrix{T}(A)
Base.AbstractMatrix{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
Base.convert(::Type{BlockSparseMatrix{T}}, A::BlockSparseMatrix) where {T} = BlockSparseMatrix{T}(A)
Base.convert(::Type{BlockSparseMatrix{T}}, A::BlockSparseMatrix{T}) where {T} = A
Base.float(A::BlockSparseMatrix) = A

function to_dense(A::BlockSparseMatrix{T}) where {T}
    x = Array{T}(undef, heads(A) == 1 ? size(A) : (size(A)..., heads(A)))
    GC.@preserve x Raw.tartan_matrix_to_dense(A, operand(x))
    return x
end

"""
    Matrix(A::BlockSparseMatrix)
    Array(A::BlockSparseMatrix)

The dense matrix; `Array(A)` has a third dimension where there are several heads.
"""
function Base.Matrix(A::BlockSparseMatrix)
    expect_one_head(A, "Matrix(A)")
    return to_dense(A)
end
Base.Array(A::BlockSparseMatrix) = to_dense(A)
Base.collect(A::BlockSparseMatrix) = to_dense(A)
Base.Matrix{T}(A::BlockSparseMatrix) where {T} = convert(Matrix{T}, Matrix(A))
Base.Matrix{T}(A::BlockSparseMatrix{T}) where {T} = Matrix(A)
Base.Array{T}(A::BlockSparseMatrix) where {T} = convert(Array{T}, Array(A))

"""
    findnz(A::BlockSparseMatrix)

Rows, columns and values of the stored elements, zeros among them, row by row.
"""
function SparseArrays.findnz(A::BlockSparseMatrix{T}) where {T}
    n = nnz(A)
    rows, cols, values = Vector{Int64}(undef, n), Vector{Int64}(undef, n), Vector{T}(undef, n)
    GC.@preserve values Raw.tartan_matrix_to_coo(A, rows, cols, whole_array(values))
    return from_one!(rows), from_one!(cols), values
end

"""
    sparse(A::BlockSparseMatrix)

The `SparseMatrixCSC`. Every stored element becomes an entry; `dropzeros!` drops the zeros among them.
"""
SparseArrays.sparse(A::BlockSparseMatrix) = sparse(findnz(A)..., size(A)...)
SparseArrays.SparseMatrixCSC(A::BlockSparseMatrix) = sparse(A)
SparseArrays.SparseMatrixCSC{T, I}(A::BlockSparseMatrix) where {T, I<:Integer} = SparseMatrixCSC{T, I}(sparse(A))

const Flipped{T} = Union{Adjoint{T, BlockSparseMatrix{T}}, Transpose{T, BlockSparseMatrix{T}}}

# What a lazy transpose becomes when it is asked for as a matrix of its own.
Base.copy(A::Flipped) = made(c -> Raw.tartan_matrix_transpose(c, parent(A)), parent(A))
BlockSparseMatrix(A::Flipped) = copy(A)
Base.permutedims(A::BlockSparseMatrix) = copy(transpose(A))
Base.Matrix(A::Adjoint{T, BlockSparseMatrix{T}}) where {T} = permutedims(Matrix(parent(A)))
Base.Matrix(A::Transpose{T, BlockSparseMatrix{T}}) where {T} = permutedims(Matrix(parent(A)))
SparseArrays.sparse(A::Adjoint{T, BlockSparseMatrix{T}}) where {T} = sparse(copy(A))
SparseArrays.sparse(A::Transpose{T, BlockSparseMatrix{T}}) where {T} = sparse(copy(A))
SparseArrays.nnz(A::Flipped) = nnz(parent(A))
