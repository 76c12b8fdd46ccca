# SPDX-License-Identifier: Apache-2.0
# Products. Only `input`, `output`, `factor` and `room` know where operands are.

# Dense operands in any place, and sparse ones: matrices with stored blocks, and their transposes.
const Dense = Union{AbstractArray, DeviceArray}
const Sparse{T} = Union{BlockSparse{T}, DeviceSparse{T}}

stored(A::Blocks) = A
stored(A::Union{TransposedBlocks, DeviceTransposed}) = parent(A)
is_flipped(::Blocks) = false
is_flipped(::Union{TransposedBlocks, DeviceTransposed}) = true

const SIDES = (left = 0, right = 1)
is_right(side) = side === :left ? false : side === :right ? true : code_of(SIDES, side, "side") == 1

# 16-bit products may also be written as Float32, 8-bit ones must be wider.
output_type(::Type{T}) where {T} = Union{T, Float32}
output_type(::Type{T}) where {T<:Union{Float32, Float64}} = T
output_type(::Type{<:Float8}) = Union{Float32, Float16, BFloat16}
product_type(::Type{T}) where {T} = T
product_type(::Type{<:Float8}) = Float32
gate_type(::Type{T}) where {T} = T === Float64 ? Float64 : Float32

"""
    spmm!(C, A, B; side = :left, transpose = false, alpha = 1, beta = 0, gates = nothing, context = nothing)

`C = alpha * op(A) * B + beta * C`, or `C = alpha * B * op(A) + beta * C` with `side = :right`, where `op(A)` is `A` or its
transpose. Further dimensions of `B` and `C` are batches; with several heads the third dimension is the head. Block `k`
is multiplied by `gates[k]`, and skipped if that is 0.

`B` and `C` have the element type of `A`. `C` may also be `Float32` if `A` has 16 bits; it must be `Float32`,
`Float16` or `BFloat16` if `A` has 8. Memory with regular strides (views, transposes, `PermutedDimsArray`) is
used in place. If `beta = 0`, `C` is not read. `C` may not overlap `B` or the values of `A`. All operands must
be in Julia's memory, or all on one device (see [`to_device`](@ref)).

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    spmm!(zeros(64, 3), A, ones(64, 3); gates = ones(nblocks(A)))
"""
spmm!(C::Dense, A::Sparse, B::Dense; side = :left, transpose::Bool = false, alpha = 1, beta = 0, gates = nothing, context = nothing) =
    product!(C, stored(A), B, is_right(side), transpose != is_flipped(A), alpha, beta, gates, context)

product_options(right, transpose) =
    right ? (transpose ? "side=right transpose=1" : "side=right") : transpose ? "transpose=1" : ""

function product!(C, A::Blocks{T}, B, right, transpose, alpha, beta, gates, context) where {T}
    Raw.tartan_spmm(call_context(context, A, B, C, gates), A, gate_input(gates), input(as_matrix, B, "B", T),
                    real_factor(alpha, "alpha"), real_factor(beta, "beta"), product_options(right, transpose),
                    output(as_matrix, C, "C", output_type(T)))
    return C
end

as_list(x::Dense) = (x,)
as_list(x::Tuple) = x
as_list(x::AbstractVector{<:Dense}) = Tuple(x)
@inline function as_pairs(X, Y)
    x, y = as_list(X), as_list(Y)
    length(x) == length(y) || uneven(length(x), length(y))
    return x, y
end
@noinline uneven(nx, ny) = throw(TartanError(:argument, "Y has $ny arrays, expected $nx, as X"))
@inline inputs(x::Tuple, name, ::Type{T}) where {T} =
    (input(as_matrix, x[1], name, T), inputs(Base.tail(x), name, T)...)
inputs(::Tuple{}, name, ::Type{T}) where {T} = ()

"""
    sddmm!(S, X, Y; alpha = 1, beta = 0, gates = nothing, context = nothing)

`S = alpha * X * Y + beta * S`, at the stored blocks of `S` only. `X` and `Y` may be tuples of up to 8 arrays each, whose
products are added. Products of a batch (third and further dimensions) are added as well. With several heads the third
dimension is the head.

If `Y = W * X`, the gradient with respect to `W` is `sddmm!(dW, dY, X')`.
"""
function sddmm!(S::Blocks{T}, X, Y; alpha = 1, beta = 0, gates = nothing, context = nothing) where {T}
    x, y = as_pairs(X, Y)
    Raw.tartan_sddmm(call_context(context, S, x..., y..., gates), inputs(x, "X", T), inputs(y, "Y", T), length(x),
                     gate_input(gates), real_factor(alpha, "alpha"), real_factor(beta, "beta"), S)
    return S
end

"""
    growth_score!(score, X, Y, block; norm = :max, scale = 1, beta = 0, context = nothing)

Score every block of the grid, stored or not, by an estimate of its part of the gradient `X * Y`: for block row `i` and block
column `j`, `score[i, j] = beta * score[i, j] + scale * sum(norm(X_ik) * norm(Y_kj))`, with norms (`:max` or `:l2`) over the
block's rows of `X` and columns of `Y`. These are cheap upper bounds that do not see cancellation in the sum. `:gradient` is the
exact norm of each block of `X * Y`, and costs the whole product. `score` holds `Float64` if `X` does, else `Float32`.
"""
function growth_score!(score::Dense, X, Y, block::Sizes; norm = :max, scale = 1, beta = 0, context = nothing)
    x, y = as_pairs(X, Y)
    T = eltype(first(x))
    options = options_text(whole_option("pairs", length(x), 1), option_text("block", join(pair(block, "block"), 'x')),
                           word_option("norm", norm, :max, (:max, :l2, :gradient)), real_option("scale", scale, 1),
                           real_option("beta", beta, 0))
    arguments = (inputs(x, "X", T), inputs(y, "Y", T), output(as_matrix, score, "score", gate_type(T)))
    run_operation(GROWTH_SCORE, call_context(context, score, x..., y...), arguments, options)
    return score
end

"""
    checksum(x)

32 hexadecimal digits computed from the elements of a dense array. Equal values have equal checksums, whatever
their order in memory, in every language.

    checksum([1.0 2.0; 3.0 4.0]) == checksum([1.0 3.0; 2.0 4.0]')
"""
checksum(x::AbstractArray) = Raw.tartan_array_checksum(input(as_it_is, x, "x", eltype(x)))

# ---- mul! and * ----

function expect_sizes(C, A, B)
    size(A, 2) == size(B, 1) ||
        throw(DimensionMismatch("A has size $(size(A)), B has $(size(B)): expected $(size(A, 2)) rows in B"))
    (size(C, 1) == size(A, 1) && size(C, 2) == size(B, 2)) ||
        throw(DimensionMismatch("C has size $(size(C)), expected $((size(A, 1), size(B, 2)))"))
    return nothing
end

function left!(C, A, B, alpha, beta)
    expect_together(A, B)
    expect_one_head(A, "mul!")
    expect_sizes(C, A, B)
    is_native(C, A, B) || return mixed!(C, A, left_product(A, B), alpha, beta)
    return product!(C, stored(A), B, false, is_flipped(A), alpha, beta, nothing, nothing)
end

function right!(C, B, A, alpha, beta)
    expect_together(A, B)
    expect_one_head(A, "mul!")
    expect_sizes(C, B, A)
    is_native(C, A, B) || return mixed!(C, A, right_product(B, A), alpha, beta)
    return product!(C, stored(A), B, true, is_flipped(A), alpha, beta, nothing, nothing)
end

# Whether the library multiplies these element types into this memory; in the memory of a device there is nothing else.
is_native(C, A::BlockSparse{T}, B::AbstractArray{S}) where {T, S} =
    device_operand(B) !== nothing || (S === T && eltype(C) <: output_type(T) && !is_sparse_target(C))
is_native(C, A, B) = true
is_sparse_target(C) = C isa AbstractSparseArray
can_follow(C, ::Type{P}) where {P} = P <: Number && !(eltype(C) <: Integer) && (eltype(C) <: Complex || !(P <: Complex))

# Other element types and matrices: the product in a type that holds both, then copied to C, all or nothing.
function mixed!(C, A, P, alpha, beta)
    R = iszero(beta) ? alpha .* P : alpha .* P .+ beta .* C
    eltype(R) <: Complex && !(eltype(C) <: Complex) &&
        throw(ArgumentError("C has element type $(eltype(C)), the product $(eltype(R)): expected a complex C"))
    return copyto!(C, convert(AbstractArray{eltype(C)}, R))
end

expect_together(A, B) = nothing
expect_together(A::BlockSparse, B::DeviceArray) = apart("A", A, "B")

# The dense factor of `*`, converted if necessary; and an array for the result, in the same place.
factor(A::BlockSparse{T}, B::AbstractArray) where {T} = promoted(B, "B", T)
factor(A::BlockSparse, B::DeviceArray) = apart("A", A, "B")
function factor(A::DeviceSparse{T}, B) where {T}
    B isa DeviceArray || device_operand(B) !== nothing || apart("B", B, "A")
    expect_type(B, "B", T)
    return B
end
@noinline apart(here, x, there) = throw(TartanError(:unsupported,
    "$here is a $(typeof(x)) in Julia's memory and $there is on a device, expected both there: to_device($here, context)"))

room(B::AbstractArray, ::BlockSparse, ::Type{T}, n) where {T} = Array{T}(undef, n)
room(B::AbstractArray, ::DeviceSparse, ::Type{T}, n) where {T} = similar(B, T, n)
room(B::DeviceArray, ::DeviceSparse, ::Type{T}, n) where {T} = DeviceArray{T}(B.context, n)

function left_product(A::Sparse{T}, B) where {T}
    expect_one_head(A, "A * B")
    b = factor(A, B)
    return left!(room(b, A, product_type(T), (size(A, 1), Base.tail(size(b))...)), A, b, true, false)
end

function right_product(B, A::Sparse{T}) where {T}
    expect_one_head(A, "B * A")
    b = factor(A, B)
    return right!(room(b, A, product_type(T), (size(b, 1), size(A, 2))), b, A, true, false)
end

# Elements of another type: both factors are converted to a type that holds both. Complex numbers take two products, and what
# Tartan does not have (BigFloat, dual numbers, ...) is multiplied by Julia.
function left_product(A::BlockSparse{T}, B::AbstractVecOrMat{S}) where {T, S}
    P = promote_type(T, S)
    (P === T || !(P <: Number)) && return invoke(left_product, Tuple{Sparse{T}, Any}, A, B)
    expect_one_head(A, "A * B")
    size(A, 2) == size(B, 1) ||
        throw(DimensionMismatch("A has size $(size(A)), B has $(size(B)): expected $(size(A, 2)) rows in B"))
    can_hold(P) && return left_product(in_type(P, A), B)
    P <: Complex && can_hold(real(P)) && return complex.(left_product(A, real(B)), left_product(A, imag(B)))
    return generic_product(A, B, Base.promote_op(LinearAlgebra.matprod, T, S))
end
right_product(B::AbstractMatrix{S}, A::BlockSparse{T}) where {T, S} =
    promote_type(T, S) === T ? invoke(right_product, Tuple{Any, Sparse{T}}, B, A) :
    permutedims(left_product(transpose(A), permutedims(B)))

in_type(::Type{P}, A::BlockSparseMatrix) where {P} = convert(BlockSparseMatrix{P}, A)
in_type(::Type{P}, A::TransposedBlocks) where {P} = transpose(BlockSparseMatrix{P}(parent(A)))

function generic_product(A, B, ::Type{P}) where {P}
    C = fill(zero(P), size(A, 1), Base.tail(size(B))...)
    flipped = is_flipped(A)
    foreach_element(stored(A)) do i, j, head, x, k
        to, from = flipped ? (j, i) : (i, j)
        for n in axes(B, 2)
            C[to, n] += x * B[from, n]
        end
    end
    return C
end

# LinearAlgebra has methods of its own for these kinds of factors. One method for each of them, next to the general
# ones, leaves no call ambiguous; what is computed is for `left!`, `right!`, `left_product` and `right_product` to choose.
const SPECIAL_FACTORS = (Adjoint{<:Any, <:AbstractVecOrMat}, Transpose{<:Any, <:AbstractVecOrMat}, Diagonal,
    Union{Bidiagonal, Tridiagonal, SymTridiagonal}, AbstractTriangular, Adjoint{<:Any, <:AbstractTriangular},
    Transpose{<:Any, <:AbstractTriangular}, Adjoint{<:Any, <:RealHermSymComplexHerm}, Transpose{<:Any, <:RealHermSymComplexSym})

LinearAlgebra.mul!(C::AbstractVector, A::BlockSparse, B::AbstractVector, α::Number, β::Number) = left!(C, A, B, α, β)
Base.:*(A::BlockSparse, B::AbstractVector) = left_product(A, B)
for F in (AbstractMatrix, SPECIAL_FACTORS..., BlockSparse)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, A::BlockSparse, B::$F, α::Number, β::Number) = left!(C, A, B, α, β)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, A::BlockSparse, B::$F) = left!(C, A, B, true, false)
    @eval Base.:*(A::BlockSparse, B::$F) = left_product(A, B)
end
for F in (AbstractMatrix, SPECIAL_FACTORS...)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, B::$F, A::BlockSparse, α::Number, β::Number) = right!(C, B, A, α, β)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, B::$F, A::BlockSparse) = right!(C, B, A, true, false)
    @eval Base.:*(B::$F, A::BlockSparse) = right_product(B, A)
end
# A row times a matrix stays a row.
Base.:*(x::Adjoint{<:Any, <:AbstractVector}, A::BlockSparse) = adjoint(left_product(transpose(A), adjoint(x)))
Base.:*(x::Transpose{<:Any, <:AbstractVector}, A::BlockSparse) = transpose(left_product(transpose(A), transpose(x)))
Base.:*(A::BlockSparse, R::Adjoint{<:Any, <:LinearAlgebra.AbstractRotation}) = rmul!(Matrix(A), R)

# Slice by slice: those of a matrix with several heads are multiplied by one head each.
Base.:*(A::BlockSparse, X::AbstractArray{<:Any, 3}) = slices_product(A, X, false)
Base.:*(X::AbstractArray{<:Any, 3}, A::BlockSparse) = slices_product(A, X, true)
function slices_product(A::BlockSparse{T}, X, right) where {T}
    P = promote_type(T, eltype(X))
    can_hold(P) || throw(ArgumentError("the array has element type $(eltype(X)), the matrix $T, expected types that Tartan's matrices can have"))
    n = right ? (size(X, 1), size(A, 2), size(X, 3)) : (size(A, 1), size(X, 2), size(X, 3))
    return slices_product!(Array{product_type(P)}(undef, n), in_type(P, A), eltype(X) === P ? X : convert(Array{P}, X), right, true, false)
end
function slices_product!(C, A, X, right, alpha, beta)
    heads(A) == 1 || heads(A) == size(X, 3) ||
        throw(DimensionMismatch("the matrix has $(heads(A)) heads, the array size $(size(X)): expected as many slices along its third dimension"))
    inner, outer = right ? (size(X, 2), size(A, 1)) : (size(X, 1), size(A, 2))
    inner == outer || throw(DimensionMismatch("the matrix has size $(size(A)), the array $(size(X)): expected $outer $(right ? "columns" : "rows") in it"))
    n = right ? (size(X, 1), size(A, 2), size(X, 3)) : (size(A, 1), size(X, 2), size(X, 3))
    size(C) == n || throw(DimensionMismatch("C has size $(size(C)), expected $n"))
    return product!(C, stored(A), X, right, is_flipped(A), alpha, beta, nothing, nothing)
end
for (arguments, right) in ((:((A::BlockSparse, X::AbstractArray{<:Any, 3})), false), (:((X::AbstractArray{<:Any, 3}, A::BlockSparse)), true))
    @eval LinearAlgebra.mul!(C::AbstractArray{<:Any, 3}, $(arguments.args...), α::Number, β::Number) = slices_product!(C, A, X, $right, α, β)
    @eval LinearAlgebra.mul!(C::AbstractArray{<:Any, 3}, $(arguments.args...)) = slices_product!(C, A, X, $right, true, false)
end

# A diagonal matrix scales rows or columns, and no block is added.
left_product(A::BlockSparse, D::Diagonal) = scaled(A, nothing, D.diag)
right_product(D::Diagonal, A::BlockSparse) = scaled(A, D.diag, nothing)

function expect_scaling(A, rows, cols)
    for (x, n, name) in ((rows, size(A, 1), "rows"), (cols, size(A, 2), "columns"))
        x === nothing || length(x) == n ||
            throw(DimensionMismatch("the diagonal matrix has $(length(x)) rows, the matrix has $n $name: expected as many"))
    end
end
scaled_type(::Type{T}, rows, cols) where {T} =
    promote_type(T, map(x -> x === nothing || eltype(x) <: Union{Base.BitInteger, Bool} ? T : eltype(x), (rows, cols))...)

function scaled(A::BlockSparse{T}, rows, cols) where {T}
    expect_scaling(A, rows, cols)
    is_flipped(A) && return transpose(scaled(parent(A), cols, rows))
    S = scaled_type(T, rows, cols)
    can_hold(S) || return (rows === nothing ? sparse(A) * sparse(Diagonal(cols)) : sparse(Diagonal(rows)) * sparse(A))
    factors(x) = x === nothing ? nothing : described(as_it_is, convert(Vector{Float64}, x))
    return adopt(S, Raw.tartan_matrix_scale(nothing, factors(rows), factors(cols), A, dtype_code(S)))
end

# Matrices on a device are no AbstractMatrix; methods without other types are the quickest to load.
LinearAlgebra.mul!(C, A::DeviceSparse, B, α::Number, β::Number) = left!(C, A, B, α, β)
LinearAlgebra.mul!(C, B, A::DeviceSparse, α::Number, β::Number) = right!(C, B, A, α, β)
LinearAlgebra.mul!(C, A::DeviceSparse, B::DeviceSparse, α::Number, β::Number) = two_on_device()
LinearAlgebra.mul!(C, A::BlockSparse, B::DeviceArray, α::Number, β::Number) = left!(C, A, B, α, β)
LinearAlgebra.mul!(C, B::DeviceArray, A::BlockSparse, α::Number, β::Number) = right!(C, B, A, α, β)
Base.:*(A::DeviceSparse, B) = left_product(A, B)
Base.:*(B, A::DeviceSparse) = right_product(B, A)
Base.:*(A::DeviceSparse, B::DeviceSparse) = two_on_device()
Base.:*(A::BlockSparse, B::DeviceArray) = left_product(A, B)
Base.:*(B::DeviceArray, A::BlockSparse) = right_product(B, A)
@noinline two_on_device() = throw(TartanError(:unsupported,
    "both factors are block-sparse matrices on a device, expected one dense factor: multiply them after to_host"))
