# SPDX-License-Identifier: Apache-2.0
# Products of what is on a device.

context_of(x) = nothing
context_of(x::Union{DeviceArray, DeviceBlockSparseMatrix}) = x.context

# The context of all operands, which the caller may also have given: work of two has no order.
function shared_context(context, operands...)
    for x in operands
        own = context_of(x)
        own === nothing && continue
        context === nothing && (context = own)
        own.handle === context.handle || throw(TartanError(:argument,
            "a $(typeof(x)) is of another context than the other operands, expected one for all"))
    end
    return context
end

is_flipped(::DeviceBlockSparseMatrix) = false
is_flipped(::DeviceTransposed) = true
stored(A::DeviceBlockSparseMatrix) = A
stored(A::DeviceTransposed) = parent(A)

# Room for a result where the factor is.
room_like(B::DeviceArray, ::Type{T}, n) where {T} = DeviceArray{T}(B.context, n)
function room_like(B, ::Type{T}, n) where {T}
    device_operand(B) === nothing && throw(TartanError(:unsupported,
        "B is a $(typeof(B)) in Julia's memory and A is on a device, expected both there: to_device(B, context)"))
    return similar(B, T, n)
end

function device_left_product(A::DeviceSparse{T}, B) where {T}
    expect_one_head(A, "A * B")
    expect_type(B, "B", T)
    return left!(room_like(B, product_type(T), (size(A, 1), size(B)[2:end]...)), A, B, true, false)
end

function device_right_product(B, A::DeviceSparse{T}) where {T}
    expect_one_head(A, "B * A")
    expect_type(B, "B", T)
    return right!(room_like(B, product_type(T), (size(B, 1), size(A, 2))), B, A, true, false)
end

const DenseFactor = Union{AbstractVecOrMat, DeviceArray}
const DenseMatrix2 = Union{AbstractMatrix, DeviceArray}

LinearAlgebra.mul!(C::DenseFactor, A::DeviceSparse, B::DenseFactor, α::Number, β::Number) = left!(C, A, B, α, β)
LinearAlgebra.mul!(C::DenseMatrix2, B::DenseMatrix2, A::DeviceSparse, α::Number, β::Number) = right!(C, B, A, α, β)
Base.:*(A::DeviceSparse, B::DenseFactor) = device_left_product(A, B)
Base.:*(B::DenseMatrix2, A::DeviceSparse) = device_right_product(B, A)

# A host matrix with operands on a device: named here, since LinearAlgebra has no method for them.
not_there(A) = throw(TartanError(:unsupported,
    "A is a $(typeof(A)) in Julia's memory and B is on a device, expected both there: to_device(A, context)"))
const HostSparse = Union{BlockSparseMatrix, Flipped}
Base.:*(A::HostSparse, ::DeviceArray) = not_there(A)
Base.:*(::DeviceArray, A::HostSparse) = not_there(A)
LinearAlgebra.mul!(::DenseFactor, A::HostSparse, ::DeviceArray, ::Number, ::Number) = not_there(A)
LinearAlgebra.mul!(::DenseFactor, ::DeviceArray, A::HostSparse, ::Number, ::Number) = not_there(A)

"""
    explain(A, n; operation = :spmm, side = :left, transpose = false, order = :column, context = nothing)
    explain(layout, T, n; ...)

What a product would do, as JSON, without doing it: the backend, the device and the kernel that would run, why that one and
why not others, the useful floating-point operations, the bytes that must move, and the rate expected where one is
known. `n` is the dense operand's other size (`:spmm`) or the summed size (`:sddmm`). `context` is by default that of
`A`, or one on the CPU. `order` is that of the dense operands and the result in memory: `:column`, as Julia's arrays are,
or `:row`, as their adjoints are. Blocks are column-major inside, as Julia's matrices have them.

    println(explain(A, 128))
    println(explain(A.layout, Float32, 128; transpose = true, context = Context("cpu")))
"""
explain(A::Blocks{T}, n::Real; context = nothing, options...) where {T} =
    explain(A.layout, T, n; context = shared_context(context, A), options...)

function explain(layout::BlockLayout, ::Type{T}, n::Real; operation = :spmm, side = :left, transpose::Bool = false,
                 order = :column, context = nothing) where {T}
    dense = code_of((column = Raw.TARTAN_COL_MAJOR, row = Raw.TARTAN_ROW_MAJOR), order, "order")
    return with_context(context) do c
        Raw.tartan_explain(c, string(operation), layout, dtype_code(T), Raw.TARTAN_COL_MAJOR, code_of(SIDES, side, "side"),
                           Int32(transpose), whole(n, "n"), dense)
    end
end
