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
    explain(f, args...; options...)

What the products that `f(args...; options...)` calls would do, without doing them, as JSON: an array with one object for
each. `f` runs, but the products in it only check their operands and describe themselves; arrays that they return hold
no results. Each object has the operation, backend, device, operands, kernel and why that one, the kernels that were
refused and why, the useful floating-point operations, the bytes that must move, and the rate expected where it is known.

    println(explain(*, A, X))
    println(explain(() -> mul!(C, A', X)))
"""
function explain(f, args...; options...)
    Raw.tartan_explain_begin()
    text = "[]"
    try
        f(args...; options...)
    finally
        text = Raw.tartan_explain_end()
    end
    return text
end
