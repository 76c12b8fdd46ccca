# SPDX-License-Identifier: Apache-2.0
# Conversion between block-sparse and other matrices.

BlockSparseMatrix(dense::AbstractArray{<:Number}, block::Sizes) = BlockSparseMatrix(dense, BlockLayout(dense, block))
# Numbers here, not a mask of blocks.
BlockSparseMatrix(dense::AbstractArray{Bool}, block::Sizes) = BlockSparseMatrix(Array{Float64}(dense), block)

function BlockSparseMatrix(dense::Union{AbstractMatrix{<:Number}, AbstractArray{<:Number, 3}}, layout::BlockLayout)
    x = dense_input(dense)
    T = eltype(x)
    return adopt(T, Raw.tartan_matrix_from_dense(layout, input(as_matrix, x, "dense", T), 0, Raw.TARTAN_COL_MAJOR))
end

# A three-dimensional array given after a layout holds blocks; one given before a layout is dense, with heads
# last.
BlockSparseMatrix(S::SparseMatrixCSC, block::Sizes) = from_columns(S, dense_input(nonzeros(S)), block)
function from_columns(S, values::AbstractVector{T}, block) where {T}
    pointers, rows = Vector{Int64}(SparseArrays.getcolptr(S)) .- 1, Vector{Int64}(rowvals(S))[1:nnz(S)] .- 1
    return adopt(T, Raw.tartan_matrix_from_compressed(nothing, frame_of(size(S), block), (pointers, rows, true),
        described(as_it_is, length(values) == nnz(S) ? values : values[1:nnz(S)]), Raw.TARTAN_DUPLICATES_REFUSED, 0, Raw.TARTAN_COL_MAJOR))
end
# Other sparse and structured matrices of the standard library.
BlockSparseMatrix(S::Sparselike, block::Sizes) = BlockSparseMatrix(compressed(S), block)
BlockSparseMatrix(S::Sparselike, layout::BlockLayout) = BlockSparseMatrix(compressed(S), layout)
BlockLayout(S::Sparselike, block::Sizes) = BlockLayout(compressed(S), block)

function BlockSparseMatrix(S::SparseMatrixCSC, layout::BlockLayout)
    size(S) == size(layout) || throw(DimensionMismatch("S has size $(size(S)), the layout $(size(layout))"))
    rows, cols = entries_of(S)
    values = dense_input(nonzeros(S)[1:nnz(S)])
    try
        return adopt(eltype(values), Raw.tartan_matrix_from_coo(layout, (nothing, rows, cols), described(as_it_is, values), 0, Raw.TARTAN_COL_MAJOR))
    catch error
        error isa TartanError && error.status === :layout || rethrow()
    end
    name_entry_outside(layout, rows .+ 1, cols .+ 1)
end

@noinline function name_entry_outside(layout, rows, cols)
    block_rows, block_cols = blocks_at(layout, rows, cols)
    k = findfirst(==(0), findblock(layout, block_rows, block_cols))
    throw(TartanError(:layout, "S has an entry at [$(rows[k]), $(cols[k])], in block row $(block_rows[k]), block column " *
                               "$(block_cols[k]), expected all entries in stored blocks of the layout"))
end

BlockSparseMatrix(A::BlockSparse, layout::BlockLayout) = project(plain(A), layout)
BlockSparseMatrix(A::BlockSparse{T}, block::Sizes) where {T} =
    adopt(T, Raw.tartan_matrix_reblock(nothing, plain(A), pair(block, "block")...))
BlockSparseMatrix(A::BlockSparseMatrix; boundaries...) = isempty(boundaries) ? copy(A) : BlockSparseMatrix(sparse(A); boundaries...)

# Blocks of different sizes: those that hold a number, or an entry.
BlockSparseMatrix(x::AbstractArray{<:Number}; rows, cols) = with_numbers(x, rows, cols)
BlockSparseMatrix(S::Compressed; rows, cols) = (X = compressed(S); BlockSparseMatrix(X, BlockLayout(X; rows = rows, cols = cols)))
with_numbers(x, rows, cols) = BlockSparseMatrix(x, BlockLayout(x; rows = rows, cols = cols))
with_numbers(x::AbstractArray{Bool}, rows, cols) = with_numbers(Array{Float64}(x), rows, cols) # no mask of blocks

# A matrix cut as another one is.
BlockSparseMatrix(S::SparseMatrixCSC, (rows, cols)::Cutting) = is_even(rows) && is_even(cols) ?
    BlockSparseMatrix(S, (rows.block, cols.block)) : BlockSparseMatrix(S; rows = bounds_of(rows), cols = bounds_of(cols))
in_blocks(x::BlockSparse, (rows, cols)::Cutting) = cutting(x) == (rows, cols) ? plain(x) :
    is_even(rows) && is_even(cols) ? BlockSparseMatrix(x, (rows.block, cols.block)) : BlockSparseMatrix(sparse(x), (rows, cols))
BlockSparseMatrix{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
BlockSparseMatrix{T}(A::BlockSparseMatrix) where {T} =
    adopt(T, Raw.tartan_matrix_cast(nothing, A, dtype_code(T), Raw.TARTAN_COL_MAJOR))
BlockSparseMatrix{T}(x, frame) where {T} = BlockSparseMatrix{T}(BlockSparseMatrix(x, frame))

Base.AbstractMatrix{T}(A::BlockSparse) where {T} = can_hold(T) ? BlockSparseMatrix{T}(A) : SparseMatrixCSC{T, Int}(A)
Base.AbstractMatrix{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
Base.AbstractArray{T}(A::BlockSparse) where {T} = AbstractMatrix{T}(A)
Base.AbstractArray{T}(A::BlockSparseMatrix{T}) where {T} = copy(A)
Base.convert(::Type{BlockSparseMatrix{T}}, A::BlockSparse) where {T} = BlockSparseMatrix{T}(A)
Base.convert(::Type{BlockSparseMatrix{T}}, A::BlockSparseMatrix{T}) where {T} = A
Base.convert(::Type{BlockSparseMatrix}, A::BlockSparse) = plain(A)
Base.convert(::Type{S}, A::BlockSparse) where {S<:SparseMatrixCSC} = S(A)
Base.promote_rule(::Type{BlockSparseMatrix{T}}, ::Type{BlockSparseMatrix{S}}) where {T, S} = BlockSparseMatrix{promote_type(T, S)}
Base.promote_rule(::Type{BlockSparseMatrix{T}}, ::Type{TransposedBlocks{S}}) where {T, S} = BlockSparseMatrix{promote_type(T, S)}
Base.promote_rule(::Type{TransposedBlocks{T}}, ::Type{TransposedBlocks{S}}) where {T, S} = BlockSparseMatrix{promote_type(T, S)}
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
# As many elements as length(A) says.
function Base.collect(A::BlockSparseMatrix{T}) where {T}
    heads(A) == 1 || throw(ArgumentError("collect(A) needs one head, and the matrix has $(heads(A)): Array(A) has them as a third dimension"))
    return to_dense(A)::Matrix{T}
end
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
SparseArrays.sparse(A::BlockSparseMatrix) =
    (expect_one_head(A, "sparse(A)"); compressed_columns(A.layout, A.values, A.values, Val(true)))
# Without the zeros that blocks hold.
without_zeros(A::BlockSparse) = (expect_one_head(A, "sparse(A)"); without_zeros(plain(A)))
without_zeros(A::BlockSparseMatrix) =
    (expect_one_head(A, "sparse(A)"); compressed_columns(A.layout, A.values, A.values, Val(false)))

# The elements of `contents`, an array like the values of a matrix, by columns: all of them, or those where `numbers` is not 0.
function compressed_columns(layout, contents::AbstractArray{T, 3}, numbers, all::Val) where {T}
    lists, pointers = column_lists(layout), Vector{Int}(undef, size(layout, 2) + 1)
    count_columns!(pointers, numbers, lists, cutting(layout), all)
    n = pointers[end] - 1
    rows, values = Vector{Int}(undef, n), Vector{T}(undef, n)
    fill_columns!(rows, values, contents, numbers, lists, cutting(layout), all)
    return SparseMatrixCSC(size(layout)..., pointers, rows, values)
end
# Where the elements of each column begin.
function count_columns!(pointers, numbers, lists, (row_cuts, col_cuts), ::Val{true})
    at = pointers[1] = 1
    @inbounds for j in eachindex(col_cuts)
        height = 0
        for n in in_line(lists, j)
            height += length(row_cuts[lists.across[n]])
        end
        for col in col_cuts[j]
            pointers[col + 1] = at += height
        end
    end
end
function count_columns!(pointers, numbers, lists, (row_cuts, col_cuts), ::Val{false})
    at = pointers[1] = 1
    @inbounds for j in eachindex(col_cuts), (c, col) in enumerate(col_cuts[j])
        for n in in_line(lists, j)
            id = lists.ids[n]
            for r in 1:length(row_cuts[lists.across[n]])
                at += !iszero(numbers[r, c, id])
            end
        end
        pointers[col + 1] = at
    end
end
function fill_columns!(rows, values, contents, numbers, lists, (row_cuts, col_cuts), ::Val{All}) where {All}
    at = 1
    @inbounds for j in eachindex(col_cuts), c in 1:length(col_cuts[j]), n in in_line(lists, j)
        lines, id = row_cuts[lists.across[n]], lists.ids[n]
        for r in 1:length(lines)
            All || !iszero(numbers[r, c, id]) || continue
            rows[at] = first(lines) + r - 1
            values[at] = contents[r, c, id]
            at += 1
        end
    end
end
SparseArrays.sparse(A::TransposedBlocks) = sparse(copy(A))
SparseArrays.SparseMatrixCSC(A::BlockSparse) = sparse(A)
SparseArrays.SparseMatrixCSC{T}(A::BlockSparse) where {T} = SparseMatrixCSC{T, Int}(sparse(A))
SparseArrays.SparseMatrixCSC{T, I}(A::BlockSparse) where {T, I<:Integer} = SparseMatrixCSC{T, I}(sparse(A))

# Materialises a lazy transpose.
Base.copy(A::TransposedBlocks{T}) where {T} = adopt(T, Raw.tartan_matrix_transpose(nothing, A.parent))
BlockSparseMatrix(A::TransposedBlocks; boundaries...) = BlockSparseMatrix(copy(A); boundaries...)
BlockSparseMatrix{T}(A::TransposedBlocks) where {T} = BlockSparseMatrix{T}(copy(A))
Base.permutedims(A::BlockSparseMatrix) = copy(transpose(A))
Base.permutedims(A::TransposedBlocks) = copy(A.parent)
function Base.permutedims(A::BlockSparse, order)
    Tuple(order) in ((1, 2), (2, 1)) ||
        throw(ArgumentError("the order of dimensions is $(Tuple(order)), expected (1, 2) or (2, 1)"))
    return Tuple(order) == (1, 2) ? copy(A) : permutedims(A)
end
Base.Matrix(A::TransposedBlocks) = permutedims(Matrix(A.parent))
Base.Array(A::TransposedBlocks) = Array(copy(A))
Base.collect(A::TransposedBlocks) = permutedims(collect(A.parent))
Base.Matrix{T}(A::TransposedBlocks) where {T} = convert(Matrix{T}, Matrix(A))
Base.Array{T}(A::TransposedBlocks) where {T} = convert(Array{T}, Array(A))
SparseArrays.findnz(A::TransposedBlocks) = findnz(copy(A))
