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

Describe the memory of `x` on a GPU by a [`Tartan.DeviceMemory`](@ref), or return `nothing` for arrays in
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

An array in the memory of a context's device, in Julia's order (columns first); zeros, or a copy made by [`to_device`](@ref).
`size`, `eltype`, `ndims`, `length`, `strides`, `copy`, `similar`, `zero`, `transpose`, `x'`, `view`, `reshape`, `vec` (these
five share its memory), `copyto!`, `fill!` and the products work on it; so do `+`, `-`, multiples, broadcasting of `+ - * / max
min abs2 inv sqrt exp log tanh` and squares, also in place (`x .-= 0.1 .* g`), and `sum`, `dot` and `norm`, which copy the array
back. Its elements cannot be read one by one, so it is not an `AbstractArray`; `to_host(x)` or `Array(x)` copies it back.
`close(x)` frees the memory early.

    context = Context("cpu")                   # or "cuda"
    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    Y = DeviceArray{Float64}(context, 64, 2)
    mul!(Y, to_device(A, context), to_device(ones(64, 2), context))
"""
struct DeviceArray{T, N}
    handle::Handle{Raw.tartan_buffer}
    context::Context
    size::NTuple{N, Int}
    strides::NTuple{N, Int}
    offset::Int # of the first element, in elements
    DeviceArray{T, N}(handle, context, size, strides, offset = 0) where {T, N} = new{T, N}(handle, context, size, strides, offset)
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
    return DeviceMemory(x, Ptr{T}(view.data) + x.offset * sizeof(T), x.size, x.strides, (view.device_type, view.device_id))
end

# The same memory, seen in another way.
seen_as(x::DeviceArray{T}, n::NTuple{N}, strides, offset = x.offset) where {T, N} = DeviceArray{T, N}(x.handle, x.context, n, strides, offset)
LinearAlgebra.transpose(x::DeviceArray{T, 2}) where {T} = seen_as(x, reverse(x.size), reverse(x.strides))
LinearAlgebra.transpose(x::DeviceArray{T, 1}) where {T} = seen_as(x, (1, x.size[1]), (max(1, x.size[1] * x.strides[1]), x.strides[1]))
LinearAlgebra.adjoint(x::DeviceArray) = transpose(x) # elements are real

is_transposed(x::DeviceArray) = x.strides != column_strides(x.size)

Base.axes(x::DeviceArray) = map(Base.OneTo, x.size)
Base.axes(x::DeviceArray, i::Integer) = Base.OneTo(size(x, i))
Base.lastindex(x::DeviceArray, i::Integer) = size(x, i)
Base.lastindex(x::DeviceArray) = length(x)
Base.checkbounds(::Type{Bool}, x::DeviceArray, places...) = Base.checkbounds_indices(Bool, axes(x), places)
Base.similar(x::DeviceArray{T}, ::Type{S} = T, n::Dims = x.size) where {T, S} = DeviceArray{S}(x.context, n)
Base.similar(x::DeviceArray{T}, n::Dims) where {T} = DeviceArray{T}(x.context, n)
Base.similar(x::DeviceArray{T}, n::Integer...) where {T} = DeviceArray{T}(x.context, map(Int, n))
Base.zero(x::DeviceArray) = similar(x)

"""
    view(x::DeviceArray, places...)

A part of an array on a device, which shares its memory: a range, a number or `:` for each dimension.

    x = to_device(reshape(collect(1.0:12.0), 3, 4), Context("cpu"))
    to_host(view(x, 2, 1:2:4)) == [2.0, 8.0]
"""
function Base.view(x::DeviceArray{T, N}, places::Vararg{Union{Colon, Integer, OrdinalRange{<:Integer}}, N}) where {T, N}
    at = map((i, place) -> place isa Colon ? axes(x, i) : place, Tuple(1:N), places)
    checkbounds(Bool, x, at...) || throw(BoundsError(x, places))
    offset = x.offset + sum(Int[(Int(first(i)) - 1) * s for (i, s) in zip(at, x.strides) if !isempty(i)])
    kept = filter(i -> !(at[i] isa Integer), Tuple(1:N))
    return seen_as(x, map(i -> length(at[i]), kept), map(i -> Int(step(at[i])) * x.strides[i], kept), offset)
end
Base.view(x::DeviceArray, places...) = throw(ArgumentError(
    "a view of a $(ndims(x))-dimensional array on a device got $(length(places)) places, expected a range, a number or : for each dimension"))

function Base.reshape(x::DeviceArray, n::Dims)
    prod(n) == length(x) || throw(DimensionMismatch("an array of size $(x.size) has $(length(x)) elements, expected as many for size $n"))
    is_transposed(x) && return reshape(copyto!(similar(x), x), n) # column-major
    return seen_as(x, n, column_strides(n))
end
Base.reshape(x::DeviceArray, n::Tuple{Vararg{Union{Int, Colon}}}) = reshape(x, Base._reshape_uncolon(x, n))
Base.reshape(x::DeviceArray, n::Union{Int, Colon}...) = reshape(x, n)
Base.vec(x::DeviceArray) = reshape(x, (length(x),))

# The whole memory as an operand.
function whole_buffer(x::DeviceArray{T}) where {T}
    view = Raw.tartan_buffer_view(x)
    n = Tuple(Int.(view.shape[1:view.ndim]))
    return Operand(x, array_of(Ptr{T}(view.data), n, column_strides(n), (view.device_type, view.device_id))), n
end

# Whether it shows all of its buffer in some order of the dimensions.
is_whole_buffer(x::DeviceArray) = x.offset == 0 && length(x) == prod(whole_buffer(x)[2]) &&
    (!is_transposed(x) || reverse(x.strides) == column_strides(reverse(x.size)))

function Base.copy(x::DeviceArray{T, N}) where {T, N}
    is_whole_buffer(x) || return copyto!(similar(x), x)
    array, n = whole_buffer(x)
    y = buffer_array(T, Raw.tartan_buffer_from_array(x.context, array), x.context, n)
    return DeviceArray{T, N}(y.handle, x.context, x.size, x.strides)
end

"""
    copyto!(y, x)

Copy an array to, from or between arrays on a device with the same number of elements, in their order. `y .= x` does so for
equal sizes.

    y = DeviceArray{Float64}(Context("cpu"), 3)
    copyto!(y, [1.0, 2.0, 3.0])
    copyto!(zeros(3), y) == [1, 2, 3]
"""
function Base.copyto!(y::DeviceArray{T}, x::DeviceArray) where {T}
    length(x) == length(y) || throw(DimensionMismatch("an array of size $(size(x)) for one of size $(size(y)) on a device, expected as many elements"))
    size(x) == size(y) || return copyto!(y, reshape(x, size(y)))
    eltype(x) === T || return copyto!(y, convert(Array{T}, to_host(x)))
    Pointwise.scale!(y, x)
    return y
end
function Base.copyto!(y::DeviceArray{T}, x::AbstractArray) where {T}
    length(x) == length(y) || throw(DimensionMismatch("an array of size $(size(x)) for one of size $(size(y)) on a device, expected as many elements"))
    return copyto!(y, to_device(reshape(convert(Array{T}, x), size(y)), y.context))
end
Base.copyto!(y::AbstractArray, x::DeviceArray) = copyto!(y, to_host(x))
Base.fill!(x::DeviceArray{T}, value) where {T} = copyto!(x, fill(convert(T, value), size(x)))

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

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
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
for f in (:blocksize, :gridsize, :heads, :nblocks, :density, :isvariable)
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

Copy an array or a block-sparse matrix to the context's device: a [`DeviceArray`](@ref) or a
[`DeviceBlockSparseMatrix`](@ref). Their products (`*`, `mul!`, [`spmm!`](@ref), [`sddmm!`](@ref), ...) run there, in the
order of the context's queue, and the results stay there. Nothing moves between devices unasked: operands on different
devices are an error, operands in several contexts of one device are not. `x` may be changed as soon as the call returns.

    context = Context("cpu")                   # or "cuda"
    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
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

Copy a [`DeviceArray`](@ref) to an `Array`, or a [`DeviceBlockSparseMatrix`](@ref) to a
[`BlockSparseMatrix`](@ref), after waiting for earlier work on it.

    to_host(to_device([1.0, 2.0], Context("cpu")))
"""
function to_host(x::DeviceArray{T}) where {T}
    is_whole_buffer(x) || return to_host(copy(x))
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
