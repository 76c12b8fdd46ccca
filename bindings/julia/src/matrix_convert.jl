# SPDX-License-Identifier: Apache-2.0
# Conversion between block-sparse and other matrices.

BlockSparseMatrix(dense::AbstractArray{<:Real}, block::Sizes) = BlockSparseMatrix(dense, BlockLayout(dense, block))
# Numbers here, not a mask of blocks.
BlockSparseMatrix(dense::AbstractArray{Bool}, block::Sizes) = BlockSparseMatrix(Array{Float64}(dense), block)

function BlockSparseMatrix(dense::Union{AbstractMatrix{<:Real}, AbstractArray{<:Real, 3}}, layout::BlockLayout)
    x = dense_input(dense)
    T = eltype(x)
    return adopt(T, Raw.tartan_matrix_from_dense(layout, input(as_matrix, x, "dense", T), 0, Raw.TARTAN_COL_MAJOR))
end

# A three-dimensional array given after a layout holds blocks; one given before a layout is dense, with heads
# last.
BlockSparseMatrix(S::SparseMatrixCSC, block::Sizes) = BlockSparseMatrix(S, BlockLayout(S, block))

function BlockSparseMatrix(S::SparseMatrixCSC, layout::BlockLayout)
    size(S) == size(layout) || throw(DimensionMismatch("S has size $(size(S)), the layout $(size(layout))"))
    rows, cols = entries_of(S)
    values = dense_input(nonzeros(S)[1:nnz(S)])
    try
        return adopt(eltype(values), Raw.tartan_matrix_from_coo(layout, rows, cols, described(as_it_is, values), 0, Raw.TARTAN_COL_MAJOR))
    catch error
        error isa TartanError && error.status === :layout || rethrow()
    end
    name_entry_outside(layout, rows .+ 1, cols .+ 1)
end

@noinline function name_entry_outside(layout, rows, cols)
    br, bc = blocksize(layout)
    k = findfirst(==(0), findblock(layout, cld.(rows, br), cld.(cols, bc)))
    throw(TartanError(:layout, "S has an entry at [$(rows[k]), $(cols[k])], in block row $(cld(rows[k], br)), block column " *
                               "$(cld(cols[k], bc)), expected all entries in stored blocks of the layout"))
end

BlockSparseMatrix(A::BlockSparseMatrix, layout::BlockLayout) = project(A, layout)
BlockSparseMatrix(A::BlockSparseMatrix, block::Sizes) = BlockSparseMatrix(Array(A), block)
BlockSparseMatrix(A::BlockSparseMatrix) = copy(A)
BlockSparseMatrix{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
BlockSparseMatrix{T}(A::BlockSparseMatrix) where {T} =
    adopt(T, Raw.tartan_matrix_cast(nothing, A, dtype_code(T), Raw.TARTAN_COL_MAJOR))
BlockSparseMatrix{T}(x, frame) where {T} = BlockSparseMatrix{T}(BlockSparseMatrix(x, frame))

Base.AbstractMatrix{T}(A::BlockSparseMatrix) where {T} = BlockSparseMatrix{T}(A)
Base.AbstractMatrix{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
Base.convert(::Type{BlockSparseMatrix{T}}, A::BlockSparseMatrix) where {T} = BlockSparseMatrix{T}(A)
Base.convert(::Type{BlockSparseMatrix{T}}, A::BlockSparseMatrix{T}) where {T} = A
Base.float(A::BlockSparseMatrix) = A

function to_dense(A::BlockSparseMatrix{T}) where {T}
    x = Array{T}(undef, heads(A) == 1 ? size(A) : (size(A)..., heads(A)))
    Raw.tartan_matrix_to_dense(A, described(as_matrix, x))
    return x
end

"""
    Matrix(A::BlockSparseMatrix)
    Array(A::BlockSparseMatrix)

The dense matrix; `Array(A)` has a third dimension if there are several heads.
"""
function Base.Matrix(A::BlockSparseMatrix{T}) where {T}
    expect_one_head(A, "Matrix(A)")
    return to_dense(A)::Matrix{T}
end
Base.Array(A::BlockSparseMatrix) = to_dense(A)
Base.collect(A::BlockSparseMatrix) = to_dense(A)
Base.Matrix{T}(A::BlockSparseMatrix) where {T} = convert(Matrix{T}, Matrix(A))
Base.Matrix{T}(A::BlockSparseMatrix{T}) where {T} = Matrix(A)
Base.Array{T}(A::BlockSparseMatrix) where {T} = convert(Array{T}, Array(A))

"""
    findnz(A::BlockSparseMatrix)

Rows, columns and values of the stored elements, zeros included, row by row.
"""
function SparseArrays.findnz(A::BlockSparseMatrix{T}) where {T}
    n = nnz(A)
    rows, cols, values = Vector{Int64}(undef, n), Vector{Int64}(undef, n), Vector{T}(undef, n)
    Raw.tartan_matrix_to_coo(A, rows, cols, described(as_it_is, values))
    return from_one!(rows), from_one!(cols), values
end

"""
    sparse(A::BlockSparseMatrix)

A `SparseMatrixCSC`. Every stored element becomes an entry; `dropzeros!` drops the zeros.
"""
SparseArrays.sparse(A::BlockSparseMatrix) = sparse(findnz(A)..., size(A)...)
SparseArrays.SparseMatrixCSC(A::BlockSparseMatrix) = sparse(A)
SparseArrays.SparseMatrixCSC{T, I}(A::BlockSparseMatrix) where {T, I<:Integer} = SparseMatrixCSC{T, I}(sparse(A))

# Materialises a lazy transpose.
Base.copy(A::TransposedBlocks{T}) where {T} = adopt(T, Raw.tartan_matrix_transpose(nothing, A.parent))
BlockSparseMatrix(A::TransposedBlocks) = copy(A)
BlockSparseMatrix{T}(A::TransposedBlocks) where {T} = BlockSparseMatrix{T}(copy(A))
Base.permutedims(A::BlockSparseMatrix) = copy(transpose(A))
Base.permutedims(A::TransposedBlocks) = copy(A.parent)
Base.Matrix(A::TransposedBlocks) = permutedims(Matrix(A.parent))
Base.Array(A::TransposedBlocks) = Matrix(A)
Base.collect(A::TransposedBlocks) = Matrix(A)
Base.Matrix{T}(A::TransposedBlocks) where {T} = convert(Matrix{T}, Matrix(A))
Base.Array{T}(A::TransposedBlocks) where {T} = convert(Matrix{T}, Matrix(A))
SparseArrays.findnz(A::TransposedBlocks) = findnz(copy(A))
SparseArrays.sparse(A::TransposedBlocks) = sparse(copy(A))
SparseArrays.SparseMatrixCSC(A::TransposedBlocks) = sparse(A)
SparseArrays.SparseMatrixCSC{T, I}(A::TransposedBlocks) where {T, I<:Integer} = SparseMatrixCSC{T, I}(sparse(A))
