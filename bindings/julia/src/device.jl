# SPDX-License-Identifier: Apache-2.0
# Device memory. C gets a descriptor as for any other memory; Julia never accesses it.

"""
    Tartan.DeviceMemory(owner, address, strides, device)

The result of [`Tartan.device_operand`](@ref) for an array on a GPU: its address there, its strides in
elements, and the number of the GPU, from 0. Element type and size are those of `owner`, which is kept alive
during the call.
"""
struct DeviceMemory{T, N, X}
    owner::X
    address::Ptr{T}
    size::NTuple{N, Int}
    strides::NTuple{N, Int}
    device::Tuple{Int32, Int32}
end

function DeviceMemory(owner, address, strides, device::Integer)
    T, n = eltype(owner), size(owner)
    return DeviceMemory(owner, Ptr{T}(bits_of_address(address)), n, Tuple(strides), (Int32(Raw.TARTAN_CUDA), Int32(device)))
end

# Other packages have their own pointer types.
bits_of_address(address::Integer) = UInt(address)
bits_of_address(address) = reinterpret(UInt, address)

memory(x::DeviceMemory) = (x.address, x.size, x.strides, x.device)
owner(x::DeviceMemory) = x.owner

"""
    Tartan.device_operand(x)

Describes the memory of `x` on a GPU by a [`Tartan.DeviceMemory`](@ref), or returns `nothing` for arrays in
Julia's memory. Overload it to use arrays of another package in place; pass their context as a keyword. Arrays of
CUDA.jl can be used as they are, also their transposes:

```julia
using CUDA, Tartan
context = Context(CUDA.stream())              # work in the order of the task's own stream
D = to_device(A, context)
mul!(C, D, B)                                 # B and C are a CuArray each
sddmm!(dD, dY, X')
```
"""
device_operand(x) = nothing

# Transposes and permutations of such arrays.
function device_operand(x::Transposed)
    there = device_operand(parent(x))
    there === nothing && return nothing
    n = there.size
    s = length(n) == 1 ? (max(1, n[1] * abs(there.strides[1])), there.strides[1]) : reverse(there.strides)
    return DeviceMemory(x, there.address, size(x), s, there.device)
end
function device_operand(x::PermutedDimsArray{T, N, P}) where {T, N, P}
    there = device_operand(parent(x))
    return there === nothing ? nothing : DeviceMemory(x, there.address, size(x), map(i -> there.strides[i], P), there.device)
end

"""
    DeviceArray{T}(context, n...)

An array in the memory of a context's device, in Julia's order (columns first); zeros, or a copy made by
[`to_device`](@ref). `size`, `eltype`, `ndims`, `length`, `strides`, `copy`, `transpose`, `x'` (these two
share its memory) and the products work on it. Its elements cannot be read one by one, so it is not an
`AbstractArray`; `to_host(x)` or `Array(x)` copies it back. `close(x)` frees the memory early.

    context = Context("cpu")                   # or "cuda"
    Y = DeviceArray{Float64}(context, 64, 2)
    mul!(Y, to_device(A, context), to_device(ones(64, 2), context))
"""
struct DeviceArray{T, N}
    handle::Handle{Raw.tartan_buffer}
    context::Context
    size::NTuple{N, Int}
    strides::NTuple{N, Int}
end

column_strides(n::Tuple) = ntuple(i -> prod(n[1:i - 1]), length(n))

# The host memory that a buffer of a context takes.
host_bytes(context::Context, bytes) = context.device == "cpu" ? bytes : 0

buffer_array(::Type{T}, buffer::Ptr{Raw.tartan_buffer}, context, n::NTuple{N}) where {T, N} =
    DeviceArray{T, N}(Handle(buffer, nothing, host_bytes(context, prod(n) * sizeof(T))), context, n, column_strides(n))

DeviceArray{T}(context::Context, n::Dims) where {T} =
    buffer_array(T, Raw.tartan_buffer_create(context, memory_code(T), Int64[n...], Raw.TARTAN_COL_MAJOR), context, n)
DeviceArray{T}(context::Context, n::Integer...) where {T} = DeviceArray{T}(context, map(i -> Int(whole(i, "n")), n))

Raw.c_handle(::Type{Raw.tartan_buffer}, x::DeviceArray) = x.handle
Raw.c_enter(x::DeviceArray) = Raw.c_enter(x.handle)
Raw.c_leave(x::DeviceArray) = Raw.c_leave(x.handle)
Raw.c_isopen(x::DeviceArray) = isopen(x)
closed_error(x::DeviceArray) = closed_error(x.handle)
context_of(x::DeviceArray) = x.context
Base.close(x::DeviceArray) = close(x.handle)
Base.isopen(x::DeviceArray) = isopen(x.handle)
Base.size(x::DeviceArray) = x.size
Base.size(x::DeviceArray, i::Integer) = i <= ndims(x) ? x.size[i] : 1
Base.length(x::DeviceArray) = prod(x.size)
Base.eltype(::Type{<:DeviceArray{T}}) where {T} = T
Base.ndims(::DeviceArray{T, N}) where {T, N} = N
Base.strides(x::DeviceArray) = x.strides
Base.stride(x::DeviceArray, i::Integer) = x.strides[i]

function device_operand(x::DeviceArray{T}) where {T}
    view = Raw.tartan_buffer_view(x)
    return DeviceMemory(x, Ptr{T}(view.data), x.size, x.strides, (view.device_type, view.device_id))
end

LinearAlgebra.transpose(x::DeviceArray{T, 2}) where {T} =
    DeviceArray{T, 2}(x.handle, x.context, reverse(x.size), reverse(x.strides))
LinearAlgebra.transpose(x::DeviceArray{T, 1}) where {T} =
    DeviceArray{T, 2}(x.handle, x.context, (1, x.size[1]), (max(1, x.size[1]), 1))
LinearAlgebra.adjoint(x::DeviceArray) = transpose(x) # elements are real

is_transposed(x::DeviceArray) = x.strides != column_strides(x.size)

# The whole memory as an operand.
function whole_buffer(x::DeviceArray{T}) where {T}
    view = Raw.tartan_buffer_view(x)
    n = Tuple(Int.(view.shape[1:view.ndim]))
    return Operand(x, array_of(Ptr{T}(view.data), n, column_strides(n), (view.device_type, view.device_id))), n
end

function Base.copy(x::DeviceArray{T, N}) where {T, N}
    array, n = whole_buffer(x)
    y = buffer_array(T, Raw.tartan_buffer_from_array(x.context, array), x.context, n)
    return DeviceArray{T, N}(y.handle, x.context, x.size, x.strides)
end

# A block-sparse matrix on a device, or the transpose of one.
abstract type DeviceSparse{T} end

"""
    DeviceBlockSparseMatrix{T}

A block-sparse matrix with its values on a device; [`to_device`](@ref) makes one, [`to_host`](@ref) copies it
back. The products, `size`, `eltype`, `copy`, `transpose`, `A'`, the properties of its layout and
[`block_norms`](@ref) work on it; so do `+`, `-`, multiples, `A + I`, products with a `Diagonal`, `.*`, `abs.(A)`, `A .^ 2`, `max.(A, 0)` and a few more,
`axpy!`, `axpby!`, `rmul!` and `.=`, `diag`, `tr`, `sum`, `maximum`, `minimum`, `norm`, `opnorm`, `dot`, `==` and `isapprox`. `DeviceBlockSparseMatrix{T}(A)` (another element type), `permutedims`,
[`permute_blocks`](@ref), [`slice`](@ref), [`project`](@ref), [`rearrange`](@ref) and [`scatter!`](@ref) make
new matrices from its blocks on the same device. `close(A)` frees its memory early.

    D = to_device(A, Context("cpu"))           # or "cuda"
    nblocks(D), density(D), size(D'), block_norms(D)
    project(DeviceBlockSparseMatrix{Float32}(D), keep_largest(D.layout, block_norms(D), 3))
"""
struct DeviceBlockSparseMatrix{T} <: DeviceSparse{T}
    handle::Handle{Raw.tartan_matrix}
    layout::BlockLayout
    context::Context
end

struct DeviceTransposed{T} <: DeviceSparse{T}
    parent::DeviceBlockSparseMatrix{T}
end

Raw.c_handle(::Type{Raw.tartan_matrix}, A::DeviceBlockSparseMatrix) = A.handle
context_of(A::DeviceBlockSparseMatrix) = A.context
Base.close(A::DeviceBlockSparseMatrix) = close(A.handle)
Base.isopen(A::DeviceBlockSparseMatrix) = isopen(A.handle)
Base.size(A::DeviceBlockSparseMatrix) = size(A.layout)
Base.size(A::DeviceTransposed) = reverse(size(A.parent))
Base.size(A::DeviceSparse, i::Integer) = i <= 2 ? size(A)[i] : 1
Base.eltype(::Type{<:DeviceSparse{T}}) where {T} = T
Base.ndims(::DeviceSparse) = 2
Base.parent(A::DeviceTransposed) = A.parent
for f in (:blocksize, :gridsize, :heads, :nblocks, :density)
    @eval $f(A::DeviceBlockSparseMatrix) = $f(A.layout)
end
SparseArrays.nnz(A::DeviceBlockSparseMatrix) = nnz(A.layout)
heads(A::DeviceTransposed) = heads(A.parent)

LinearAlgebra.transpose(A::DeviceBlockSparseMatrix{T}) where {T} = DeviceTransposed{T}(A)
LinearAlgebra.transpose(A::DeviceTransposed) = A.parent
LinearAlgebra.adjoint(A::DeviceSparse) = transpose(A)

# A matrix of C on the context's device, and its layout.
function device_matrix(::Type{T}, address::Ptr{Raw.tartan_matrix}, layout, context) where {T}
    bytes = host_bytes(context, prod(blocksize(layout)) * nblocks(layout) * sizeof(T))
    return DeviceBlockSparseMatrix{T}(Handle(address, nothing, bytes), layout, context)
end
device_matrix(T, address, context) = device_matrix(T, address, BlockLayout(Raw.tartan_matrix_get_layout(address)), context)
made(A::DeviceBlockSparseMatrix{T}, address) where {T} = device_matrix(T, address, A.context)

Base.copy(A::DeviceBlockSparseMatrix{T}) where {T} =
    device_matrix(T, Raw.tartan_matrix_to_device(A.context, A), A.layout, A.context)
DeviceBlockSparseMatrix{T}(A::DeviceBlockSparseMatrix) where {T} =
    device_matrix(T, Raw.tartan_matrix_cast(A.context, A, dtype_code(T), Raw.TARTAN_COL_MAJOR), A.context)
Base.copy(A::DeviceTransposed) = made(parent(A), Raw.tartan_matrix_transpose(A.parent.context, parent(A)))
Base.permutedims(A::DeviceBlockSparseMatrix) = copy(transpose(A))

"""
    to_device(x, context)

Copies an array or a block-sparse matrix to the context's device: a [`DeviceArray`](@ref) or a
[`DeviceBlockSparseMatrix`](@ref). Their products (`*`, `mul!`, [`spmm!`](@ref), [`sddmm!`](@ref), ...) run there, in the
order of the context's queue, and the results stay there. Nothing moves between devices unasked: operands on different
devices are an error, operands in several contexts of one device are not. `x` may be changed as soon as the call returns.

    context = Context("cpu")                   # or "cuda"
    D, X = to_device(A, context), to_device(ones(64, 3), context)
    to_host(D * X) == A * ones(64, 3)
"""
function to_device(x::AbstractArray{T}, context::Context) where {T}
    there = device_operand(x)
    y = there !== nothing ? there : x isa Described && strides(x) == column_strides(size(x)) ? x : Array(x)
    _, n, s, _ = memory(y)
    s == column_strides(n) || throw(ArgumentError("x has strides $s on its device, expected $(column_strides(n)): copy it there"))
    return buffer_array(T, Raw.tartan_buffer_from_array(context, described(as_it_is, y)), context, n)
end

to_device(A::BlockSparseMatrix{T}, context::Context) where {T} =
    device_matrix(T, Raw.tartan_matrix_to_device(context, A), A.layout, context)
to_device(A::TransposedBlocks, context::Context) = transpose(to_device(parent(A), context))

"""
    to_host(x)

Copies a [`DeviceArray`](@ref) to an `Array`, or a [`DeviceBlockSparseMatrix`](@ref) to a
[`BlockSparseMatrix`](@ref), after waiting for earlier work on it.

    to_host(to_device([1.0, 2.0], Context("cpu")))
"""
function to_host(x::DeviceArray{T}) where {T}
    n = whole_buffer(x)[2]
    result = Array{T}(undef, n)
    Raw.tartan_buffer_to_array(x.context, x, described(as_it_is, result))
    return reshape(is_transposed(x) ? permutedims(result) : result, x.size)
end
to_host(A::DeviceBlockSparseMatrix{T}) where {T} = adopt(T, Raw.tartan_matrix_to_host(A.context, A))
to_host(A::DeviceTransposed) = transpose(to_host(A.parent))

Base.Array(x::DeviceArray) = to_host(x)

function Base.show(io::IO, x::DeviceArray)
    print(io, isempty(x.size) ? "0-dimensional" : join(x.size, "×"), length(x.size) == 1 ? "-element " : " ", typeof(x))
    print(io, isopen(x) ? " on $(x.context.device)" : " (closed)")
end

function Base.show(io::IO, A::DeviceBlockSparseMatrix)
    print(io, times(size(A)), " ", typeof(A), isopen(A) ? " on $(A.context.device)" : " (closed)")
    isopen(A) && describe(io, A.layout)
end
Base.show(io::IO, A::DeviceTransposed) = (print(io, "transpose of "); show(io, A.parent))
