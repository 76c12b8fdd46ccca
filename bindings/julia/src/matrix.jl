# SPDX-License-Identifier: Apache-2.0

"""
    BlockSparseMatrix(layout, values)
    BlockSparseMatrix{T}(layout)
    BlockSparseMatrix(dense, block)
    BlockSparseMatrix(dense, layout)
    BlockSparseMatrix(S::SparseMatrixCSC, block)
    BlockSparseMatrix(S::SparseMatrixCSC, layout)
    BlockSparseMatrix{T}(A::BlockSparseMatrix)

A layout and its values: `A.values[:, :, k]` is block `k`, in Julia's memory, and may be changed in place. `values`, an
`Array{T, 3}` of block rows x block columns x blocks, is used without a copy; `BlockSparseMatrix{T}(layout)` starts
with zeros. `T` is `Float64`, `Float32`, `Float16`, [`Tartan.BFloat16`](@ref),
[`Tartan.Float8E4M3`](@ref) or [`Tartan.Float8E5M2`](@ref).

From a dense matrix come the blocks that hold a non-zero, or those of the layout (the rest is left behind); from
a sparse one every entry must lie in a block.

    A = BlockSparseMatrix(sparse([1, 20], [3, 9], [1.0, 2.0], 24, 16), (8, 8))
    A[20, 9] == 2.0
    A * ones(16)

With several heads (`heads(A) > 1`) it stands for as many matrices of one shape: [`spmm!`](@ref) multiplies them with
arrays of three dimensions, `Array(A)` gives one, and indexing takes a third index.

`close(A)` gives the C library's part back early; the values stay.
"""
struct BlockSparseMatrix{T} <: AbstractMatrix{T}
    handle::Handle{Raw.tartan_matrix}
    layout::BlockLayout
    values::Array{T, 3}
    function BlockSparseMatrix(layout::BlockLayout, values::Array{T, 3}) where {T}
        n = (blocksize(layout)..., nblocks(layout))
        size(values) == n || throw(DimensionMismatch("values has size $(size(values)), expected $n"))
        # C wants [block, row, column]: the same memory, told in another order.
        strides = (n[1] * n[2], 1, n[1])
        array = array_of(pointer(values), (n[3], n[1], n[2]), strides)
        handle = GC.@preserve values Handle(Raw.tartan_matrix_wrap(known(layout), array, C_NULL, C_NULL))
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

# Takes over a matrix that C made: its values move into Julia's memory, with column-major blocks.
function adopt(address::Ptr{Raw.tartan_matrix})
    handle = Handle(address)
    try
        if Raw.tartan_matrix_block_order(handle) != Raw.TARTAN_COL_MAJOR
            old = handle
            handle = Handle(with_context(c -> Raw.tartan_matrix_cast(c, old, 0, Raw.TARTAN_COL_MAJOR), nothing))
            close(old)
        end
        layout = BlockLayout(Raw.tartan_matrix_get_layout(handle))
        view = Raw.tartan_matrix_values(handle)
        T = type_of_dtype(view.dtype)
        values = Array{T, 3}(undef, blocksize(layout)..., nblocks(layout))
        GC.@preserve handle values unsafe_copyto!(pointer(values), Ptr{T}(view.data), length(values))
        return BlockSparseMatrix(layout, values)
    finally
        close(handle)
    end
end

# The object itself is what ccall keeps alive, since C reads the values, too.
Base.cconvert(::Type{Ptr{Raw.tartan_matrix}}, A::BlockSparseMatrix) = A
Base.unsafe_convert(P::Type{Ptr{Raw.tartan_matrix}}, A::BlockSparseMatrix) = Base.unsafe_convert(P, A.handle)
Base.close(A::BlockSparseMatrix) = close(A.handle)
Base.isopen(A::BlockSparseMatrix) = isopen(A.handle)

Base.size(A::BlockSparseMatrix) = size(A.layout)
blocksize(A::BlockSparseMatrix) = blocksize(A.layout)
gridsize(A::BlockSparseMatrix) = gridsize(A.layout)
heads(A::BlockSparseMatrix) = heads(A.layout)
nblocks(A::BlockSparseMatrix) = size(A.values, 3)
density(A::BlockSparseMatrix) = density(A.layout)
SparseArrays.nnz(A::BlockSparseMatrix) = nnz(A.layout)
SparseArrays.issparse(::BlockSparseMatrix) = true
svg(A::BlockSparseMatrix; options...) = svg(A.layout; options...)

"""
    nonzeros(A::BlockSparseMatrix)

The stored values as a vector that shares their memory, block after block, columns first. Ragged blocks bring their padding,
so it may be longer than `nnz(A)`.
"""
SparseArrays.nonzeros(A::BlockSparseMatrix) = vec(A.values)

# Whether the last block row or column is cut by the edge of the matrix.
isragged(x) = any(size(x) .% blocksize(x) .!= 0)

function expect_one_head(A, what)
    heads(A) == 1 || throw(ArgumentError("$what needs one head, and the matrix has $(heads(A))"))
    return nothing
end

# Head, block and place in it of an element: (0, 0, 0) where no block is stored.
function place(A::BlockSparseMatrix, i, j, head)
    br, bc = blocksize(A)
    id = findblock(A.layout, cld(i, br), cld(j, bc); head = head)
    return id, mod1(i, br), mod1(j, bc)
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
    isopen(A) || throw(TartanError(:handle, "the BlockSparseMatrix is closed"))
    id, row, col = place(A, i, j, 1)
    id == 0 && throw(ArgumentError("A[$i, $j] lies in no stored block: use grow and project, or Matrix(A), or sparse(A)"))
    A.values[row, col, id] = x
    return A
end

Base.copy(A::BlockSparseMatrix) = BlockSparseMatrix(A.layout, copy(A.values))
Base.deepcopy_internal(A::BlockSparseMatrix, seen::IdDict) = get!(() -> copy(A), seen, A)
Base.similar(A::BlockSparseMatrix{T}) where {T} = BlockSparseMatrix{T}(A.layout)
Base.similar(A::BlockSparseMatrix, ::Type{T}) where {T} = BlockSparseMatrix{T}(A.layout)
Base.similar(::BlockSparseMatrix, ::Type{T}, n::Dims) where {T} = Array{T}(undef, n)

function Base.:(==)(A::BlockSparseMatrix, B::BlockSparseMatrix)
    (size(A) == size(B) && heads(A) == heads(B)) || return false
    heads(A) > 1 && return Array(A) == Array(B)
    return A.layout == B.layout && !isragged(A) ? A.values == B.values : sparse(A) == sparse(B)
end

function LinearAlgebra.norm(A::BlockSparseMatrix, p::Real = 2)
    p > 0 || return norm(Array(A), p)
    return norm(heads(A) == 1 && isragged(A) ? findnz(A)[3] : A.values, p)
end
