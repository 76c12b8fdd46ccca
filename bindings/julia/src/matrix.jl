# SPDX-License-Identifier: Apache-2.0

# A block-sparse matrix in Julia's memory, or the transpose of one.
abstract type BlockSparse{T} <: AbstractMatrix{T} end

"""
    BlockSparseMatrix(layout, values)
    BlockSparseMatrix{T}(layout)
    BlockSparseMatrix(dense, block)
    BlockSparseMatrix(dense, layout)
    BlockSparseMatrix(S::SparseMatrixCSC, block)
    BlockSparseMatrix(S::SparseMatrixCSC, layout)
    BlockSparseMatrix(dense; rows, cols)
    BlockSparseMatrix(S::SparseMatrixCSC; rows, cols)
    BlockSparseMatrix{T}(A::BlockSparseMatrix)

A layout and its values in Julia's memory. `A.values[:, :, k]` is block `k` and may be changed in place.
`values`, an `Array{T, 3}` of block rows x block columns x blocks, is used without a copy;
`BlockSparseMatrix{T}(layout)` starts with zeros. `T` is `Float64`, `Float32`, `Float16`,
[`Tartan.BFloat16`](@ref), [`Tartan.Float8E4M3`](@ref) or [`Tartan.Float8E5M2`](@ref).

A dense matrix is stored as the blocks that contain a non-zero, or the blocks of the layout, which drops all other elements. All
entries of a sparse matrix must lie in blocks of the layout. `rows` and `cols` are the boundaries of blocks of different sizes,
see [`with_boundaries`](@ref).

    A = BlockSparseMatrix(sparse([1, 20], [3, 9], [1.0, 2.0], 24, 16), (8, 8))
    A[20, 9] == 2.0
    A * ones(16)

A matrix with several heads (`heads(A) > 1`) is a stack of matrices of equal size: [`spmm!`](@ref) multiplies
them with three-dimensional arrays, `Array(A)` is three-dimensional, and indexing takes a third index.

`close(A)` frees the C library's part early; the values stay.
"""
struct BlockSparseMatrix{T} <: BlockSparse{T}
    handle::Handle{Raw.tartan_matrix}
    layout::BlockLayout
    values::Array{T, 3}
    function BlockSparseMatrix(layout::BlockLayout, values::Array{T, 3}) where {T}
        n = (blocksize(layout)..., nblocks(layout))
        size(values) == n || throw(DimensionMismatch("values has size $(size(values)), expected $n"))
        # C needs [block, row, column]: the same memory with permuted dimensions.
        dtype_code(T) # refuses types that only indices have
        array = array_of(pointer(values), (n[3], n[1], n[2]), (n[1] * n[2], 1, n[1]))
        handle = Handle(Raw.tartan_matrix_wrap(known(layout), Operand(values, array), C_NULL, C_NULL), values)
        return new{T}(handle, layout, values)
    end
end

BlockSparseMatrix(layout::BlockLayout, values::AbstractArray{T, 3}) where {T} =
    BlockSparseMatrix(layout, Array{T, 3}(values))
function BlockSparseMatrix{T}(layout::BlockLayout) where {T}
    dtype_code(T)
    values = Array{T, 3}(undef, blocksize(layout)..., nblocks(layout))
    return BlockSparseMatrix(layout, fill_bytes!(values))
end

fill_bytes!(x::Array) = (GC.@preserve x Base.unsafe_wrap(Array, Ptr{UInt8}(pointer(x)), sizeof(x)) .= 0x00; x)

# Turns a matrix made by C into one in Julia's memory with column-major blocks, and ends C's. T is the element type; if it
# is not known, C provides it. Julia takes over C's memory of large values, which its collector then frees; for small ones a copy costs
# less.
adopt(address::Ptr{Raw.tartan_matrix}) = adopt(type_of_dtype(Raw.tartan_matrix_dtype(address)), address)
function adopt(::Type{T}, address::Ptr{Raw.tartan_matrix}) where {T}
    try
        if Raw.tartan_matrix_block_order(address) != Raw.TARTAN_COL_MAJOR
            old = address
            address = Raw.tartan_matrix_cast(nothing, old, 0, Raw.TARTAN_COL_MAJOR)
            Raw.tartan_matrix_free(old)
        end
        layout = BlockLayout(Raw.tartan_matrix_get_layout(address))
        n = (blocksize(layout)..., nblocks(layout))
        if prod(n) * sizeof(T) >= LEAST_TAKEN_BYTES
            view = Raw.tartan_matrix_take_values(address)
            address = Ptr{Raw.tartan_matrix}(C_NULL)
            return BlockSparseMatrix(layout, unsafe_wrap(Array, Ptr{T}(view.data), n; own = true))
        end
        values = Array{T, 3}(undef, n)
        view = Raw.tartan_matrix_values(address)
        GC.@preserve values unsafe_copyto!(pointer(values), Ptr{T}(view.data), length(values))
        return BlockSparseMatrix(layout, values)
    finally
        Raw.tartan_matrix_free(address)
    end
end
const LEAST_TAKEN_BYTES = 1 << 14
Raw.c_handle(::Type{Raw.tartan_matrix}, A::BlockSparseMatrix) = A.handle
Base.close(A::BlockSparseMatrix) = close(A.handle)
Base.isopen(A::BlockSparseMatrix) = isopen(A.handle)

# The transpose of a block-sparse matrix, which shares its values. Elements are real, so an adjoint is a transpose.
struct TransposedBlocks{T} <: BlockSparse{T}
    parent::BlockSparseMatrix{T}
end

LinearAlgebra.transpose(A::BlockSparseMatrix) = TransposedBlocks(A)
LinearAlgebra.transpose(A::TransposedBlocks) = A.parent
LinearAlgebra.adjoint(A::BlockSparse) = transpose(A)
Base.parent(A::TransposedBlocks) = A.parent
Base.isopen(A::TransposedBlocks) = isopen(A.parent)
Base.size(A::TransposedBlocks) = reverse(size(A.parent))
blocksize(A::TransposedBlocks) = reverse(blocksize(A.parent))
gridsize(A::TransposedBlocks) = reverse(gridsize(A.parent))
cuts(A::TransposedBlocks, side) = cuts(A.parent, 3 - side)
for f in (:heads, :nblocks, :density, :isvariable)
    @eval $f(A::TransposedBlocks) = $f(A.parent)
end
SparseArrays.nnz(A::TransposedBlocks) = nnz(A.parent)
SparseArrays.issparse(::BlockSparse) = true
Base.@propagate_inbounds Base.getindex(A::TransposedBlocks, i::Int, j::Int) = A.parent[j, i]
Base.@propagate_inbounds Base.getindex(A::TransposedBlocks, i::Int, j::Int, head::Int) = A.parent[j, i, head]
Base.getindex(A::TransposedBlocks, ::Colon, ::Colon, head::Integer) = transpose(A.parent[:, :, head])
Base.@propagate_inbounds Base.setindex!(A::TransposedBlocks, x, i::Int, j::Int) = (A.parent[j, i] = x; A)
Base.@propagate_inbounds Base.setindex!(A::TransposedBlocks, x, i::Int, j::Int, head::Int) = (A.parent[j, i, head] = x; A)

Base.size(A::BlockSparseMatrix) = size(A.layout)
blocksize(A::BlockSparseMatrix) = blocksize(A.layout)
gridsize(A::BlockSparseMatrix) = gridsize(A.layout)
heads(A::BlockSparseMatrix) = heads(A.layout)
nblocks(A::BlockSparseMatrix) = size(A.values, 3)
density(A::BlockSparseMatrix) = density(A.layout)
isvariable(A::BlockSparseMatrix) = isvariable(A.layout)
SparseArrays.nnz(A::BlockSparseMatrix) = nnz(A.layout)
svg(A::BlockSparseMatrix; options...) = svg(A.layout; options...)
svg(A::TransposedBlocks; options...) = svg(transpose(A.parent.layout); options...)

"""
    nonzeros(A::BlockSparseMatrix)

The stored values as a vector that shares their memory: block after block, each column-major. It includes the
padding of blocks that are smaller than others, so it may be longer than `nnz(A)`.
"""
SparseArrays.nonzeros(A::BlockSparseMatrix) = vec(A.values)

# Whether some block is smaller than others, so that its values have padding.
isragged(x) = isvariable(x) || any(size(x) .% blocksize(x) .!= 0)

function expect_one_head(A, what)
    heads(A) == 1 || throw(ArgumentError("$what needs one head, and the matrix has $(heads(A))"))
    return nothing
end

function Base.getindex(A::BlockSparseMatrix{T}, i::Int, j::Int) where {T}
    @boundscheck checkbounds(A, i, j)
    expect_one_head(A, "A[i, j]")
    return T(Raw.tartan_matrix_entry(A, 0, i - 1, j - 1))
end

function Base.getindex(A::BlockSparseMatrix{T}, i::Int, j::Int, head::Int) where {T}
    @boundscheck (checkbounds(A, i, j); 1 <= head <= heads(A) || throw(BoundsError(A, (i, j, head))))
    return T(Raw.tartan_matrix_entry(A, head - 1, i - 1, j - 1))
end

function Base.setindex!(A::BlockSparseMatrix, x, i::Int, j::Int)
    @boundscheck checkbounds(A, i, j)
    expect_one_head(A, "A[i, j] = x")
    return set_element!(A, x, i, j, 1)
end
function Base.setindex!(A::BlockSparseMatrix, x, i::Int, j::Int, head::Int)
    @boundscheck (checkbounds(A, i, j); 1 <= head <= heads(A) || throw(BoundsError(A, (i, j, head))))
    return set_element!(A, x, i, j, head)
end
# Only stored blocks can hold values; a zero elsewhere changes nothing.
function set_element!(A::BlockSparseMatrix{T}, x, i, j, head) where {T}
    isopen(A) || throw(closed_error(A.handle))
    value = convert(T, x)
    k = slot(A, i, j, head)
    k == 0 && !iszero(value) && not_stored(i, j)
    k == 0 || (A.values[k] = value)
    return A
end

# The index in the values of an element, 0 if its block is not stored.
function slot(A::BlockSparseMatrix, i, j, head = 1)
    br, bc = blocksize(A)
    rows, cols = cutting(A)
    block_row, block_col = block_at(rows, i), block_at(cols, j)
    id = stored_block(A.layout, block_row, block_col, head)
    return id == 0 ? 0 : i - first(rows[block_row]) + 1 + (j - first(cols[block_col])) * br + (id - 1) * br * bc
end
@noinline not_stored(i, j) = throw(ArgumentError(
    "A[$i, $j] lies in no stored block, expected 0 there: use grow and project, or Matrix(A), or sparse(A)"))

Base.copy(A::BlockSparseMatrix) = BlockSparseMatrix(A.layout, copy(A.values))
Base.deepcopy_internal(A::BlockSparseMatrix, seen::IdDict) = get!(() -> copy(A), seen, A)
Base.similar(A::BlockSparseMatrix{T}) where {T} = BlockSparseMatrix{T}(A.layout)
Base.similar(A::TransposedBlocks{T}) where {T} = BlockSparseMatrix{T}(transpose(A.parent.layout))
# Element types that Tartan does not have need another kind of sparse matrix.
Base.similar(A::BlockSparseMatrix, ::Type{T}) where {T} = can_hold(T) ? BlockSparseMatrix{T}(A.layout) : similar(sparse(A), T)
Base.similar(A::TransposedBlocks, ::Type{T}) where {T} = can_hold(T) ? BlockSparseMatrix{T}(transpose(A.parent.layout)) : similar(sparse(A), T)
# A matrix of another size has no layout to go by: what others write into it must have a place, so it is a SparseMatrixCSC.
Base.similar(::BlockSparse, ::Type{T}, n::Dims{2}) where {T<:Number} = spzeros(T, n...)
Base.similar(::BlockSparse, ::Type{T}, n::Dims) where {T} = Array{T}(undef, n)

"""
    block_view(A, block_row, block_col; head = 1)

A view of the elements of a stored block of a matrix, without padding.

    A = BlockSparseMatrix(ones(5, 3); rows = [0, 3, 5], cols = [0, 3])
    block_view(A, 2, 1) .*= 4
    A[4, 1] == 4
"""
function block_view(A::BlockSparseMatrix, block_row::Integer, block_col::Integer; head::Integer = 1)
    k = findblock(A.layout, block_row, block_col; head = head)
    k == 0 && throw(ArgumentError("the block at block row $block_row, block column $block_col is not stored, expected one that is"))
    return view(A.values, stored_part(cutting(A), block_row, block_col)..., k)
end

# The rows and columns of the values of a block that hold its elements.
stored_part((rows, cols)::Cutting, block_row, block_col) = 1:length(rows[block_row]), 1:length(cols[block_col])
