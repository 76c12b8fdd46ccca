# SPDX-License-Identifier: Apache-2.0

# Dense operands of any place, and sparse ones.
const Dense = Union{AbstractArray, DeviceArray}

const SIDES = (left = Raw.TARTAN_LEFT, right = Raw.TARTAN_RIGHT)

# 16-bit products may also be written as Float32, 8-bit ones must be wider.
output_types(::Type{T}) where {T} = dtype_code(T) in (Raw.TARTAN_F16, Raw.TARTAN_BF16) ? (T, Float32) : (T,)
output_types(::Type{<:Float8}) = (Float32, Float16, BFloat16)
product_type(::Type{T}) where {T} = T
product_type(::Type{<:Float8}) = Float32

"""
    spmm!(C, A, B; side = :left, transpose = false, alpha = 1, beta = 0, gates = nothing, context = nothing)

`C = alpha * op(A) * B + beta * C`, or `C = alpha * B * op(A) + beta * C` with `side = :right`, where `op(A)` is `A` or its
transpose. Further dimensions of `B` and `C` are batches; with several heads the third dimension is the head. A block
counts `gates[k]` times, and is skipped where its gate is 0. `B` and `C` have the element type of `A`; `C` may be `Float32`
where that has 16 bits, and is `Float32`, `Float16` or `BFloat16` where that has 8. Memory with regular strides (views, transposes, `PermutedDimsArray`) is used in place. With
`beta = 0`, `C` is not read. `C` may not overlap `B` or the values of `A`. All operands are in Julia's memory or all on one
device (see [`to_device`](@ref)).

    spmm!(C, A, X; gates = ones(Float32, nblocks(A)))
"""
function spmm!(C::Dense, A::Blocks{T}, B::Dense; side = :left, transpose::Bool = false, alpha = 1, beta = 0,
               gates = nothing, context = nothing) where {T}
    out, b, g = output(C, "C", output_types(T)...), input(B, "B", T), gate_input(gates)
    GC.@preserve out b g with_context(shared_context(context, A, B, C, gates)) do c
        Raw.tartan_spmm(c, code_of(SIDES, side, "side"), Int32(transpose), real_factor(alpha, "alpha"), A, described(g),
                        operand(b), real_factor(beta, "beta"), operand(out))
    end
    return C
end

as_list(x::Dense) = (x,)
as_list(x::Union{Tuple, AbstractVector{<:Dense}}) = Tuple(x)

"""
    sddmm!(S, X, Y; alpha = 1, beta = 0, gates = nothing, context = nothing)

`S = alpha * X * Y + beta * S`, at the stored blocks of `S` only. `X` and `Y` may be tuples of up to 8 arrays each, whose
products are added; products of a batch (third and further dimensions) are added as well. With several heads the
third dimension is the head.

The gradient of the weights `W` in `Y = W * X` is `sddmm!(dW, dY, X')`.
"""
function sddmm!(S::Blocks{T}, X, Y; alpha = 1, beta = 0, gates = nothing, context = nothing) where {T}
    x, y = map(a -> input(a, "X", T), as_list(X)), map(a -> input(a, "Y", T), as_list(Y))
    g = gate_input(gates)
    GC.@preserve x y g with_context(shared_context(context, S, as_list(X)..., as_list(Y)..., gates)) do c
        Raw.tartan_sddmm(c, real_factor(alpha, "alpha"), described(g), arrays(x), arrays(y),
                         real_factor(beta, "beta"), S)
    end
    return S
end

arrays(x::Tuple) = Raw.tartan_array[operand(a) for a in x]

"""
    gate_gradient!(gradient, W, dW; gates = nothing, context = nothing)

`gradient[k] = sum(dW_k .* W_k)` over each block `k`; then, where gates are given, `dW_k = gates[k] * dW_k`. `gradient` is
a vector of `Float32`, or `Float64` where `W` is.
"""
function gate_gradient!(gradient::Dense, W::Blocks{T}, dW::Blocks; gates = nothing, context = nothing) where {T}
    out, g = output(gradient, "gradient", T === Float64 ? Float64 : Float32), gate_input(gates)
    GC.@preserve out g with_context(shared_context(context, W, dW, gradient, gates)) do c
        Raw.tartan_gate_gradient(c, W, described(g), dW, whole_array(out))
    end
    return gradient
end

"""
    growth_score!(score, X, Y, block; norm = :max, scale = 1, beta = 0, context = nothing)

How much every block of the grid, stored or not, would gain by a step along the gradient `X * Y`: for block row `i` and
block column `j`, `score[i, j] = beta * score[i, j] + scale * sum(norm(X_ik) * norm(Y_kj))`, with norms (`:max` or
`:l2`) over the block's rows of `X` and columns of `Y`. `score` holds `Float32`, or `Float64` where `X` does.
"""
function growth_score!(score::Dense, X, Y, block::Sizes; norm = :max, scale = 1, beta = 0, context = nothing)
    T = eltype(first(as_list(X)))
    x, y = map(a -> input(a, "X", T), as_list(X)), map(a -> input(a, "Y", T), as_list(Y))
    out = output(score, "score", T === Float64 ? Float64 : Float32)
    frame = frame_of((size(first(as_list(X)), 1), size(first(as_list(Y)), 2)), block)
    GC.@preserve out x y with_context(shared_context(context, score, as_list(X)..., as_list(Y)...)) do c
        Raw.tartan_growth_score(c, frame, code_of(NORMS, norm, "norm"), real_factor(scale, "scale"), arrays(x), arrays(y),
                                real_factor(beta, "beta"), operand(out))
    end
    return score
end

"""
    checksum(x)

32 hexadecimal digits over the elements of a dense array: equal for equal values, whatever the memory's order, and in every
language.

    checksum([1.0 2.0; 3.0 4.0]) == checksum([1.0 3.0; 2.0 4.0]')
"""
function checksum(x::AbstractArray)
    y = input(x, "x", eltype(x))
    return GC.@preserve y Raw.tartan_array_checksum(whole_array(y))
end

# ---- mul! and * ----

is_flipped(::BlockSparseMatrix) = false
is_flipped(::Flipped) = true
stored(A::BlockSparseMatrix) = A
stored(A::Flipped) = parent(A)

function expect_sizes(C, A, B)
    size(A, 2) == size(B, 1) ||
        throw(DimensionMismatch("A has size $(size(A)), B has $(size(B)): expected $(size(A, 2)) rows in B"))
    (size(C, 1) == size(A, 1) && size(C, 2) == size(B, 2)) ||
        throw(DimensionMismatch("C has size $(size(C)), expected $((size(A, 1), size(B, 2)))"))
    return nothing
end

function left!(C, A, B, alpha, beta)
    expect_one_head(A, "mul!")
    expect_sizes(C, A, B)
    return spmm!(C, stored(A), B; transpose = is_flipped(A), alpha = alpha, beta = beta)
end

function right!(C, B, A, alpha, beta)
    expect_one_head(A, "mul!")
    expect_sizes(C, B, A)
    return spmm!(C, stored(A), B; side = :right, transpose = is_flipped(A), alpha = alpha, beta = beta)
end

heads(A::Flipped) = heads(parent(A))

function left_product(A, B)
    expect_one_head(A, "A * B")
    T = eltype(A)
    b = promoted(B, "B", T)
    return left!(Array{product_type(T)}(undef, size(A, 1), size(B)[2:end]...), A, b, true, false)
end

function right_product(B, A)
    expect_one_head(A, "B * A")
    T = eltype(A)
    b = promoted(B, "B", T)
    return right!(Array{product_type(T)}(undef, size(B, 1), size(A, 2)), b, A, true, false)
end

# Dense operands by kind, so that each method below is more specific than those of LinearAlgebra for transposes.
const Plain{N} = Union{DenseArray{T, N}, SubArray{T, N}, Base.ReinterpretArray{T, N}, Base.ReshapedArray{T, N},
                       PermutedDimsArray{T, N}, BitArray{N}} where {T}
const PlainVector = Union{Plain{1}, AbstractRange}
const PlainMatrix = Plain{2}
const OutputMatrix = Union{PlainMatrix, Transposed{<:PlainMatrix}, Transposed{<:Plain{1}}}

for S in (:(BlockSparseMatrix{T}), :(Adjoint{T, BlockSparseMatrix{T}}), :(Transpose{T, BlockSparseMatrix{T}}))
    @eval LinearAlgebra.mul!(C::Plain{1}, A::$S, B::PlainVector, α::Number, β::Number) where {T} = left!(C, A, B, α, β)
    @eval Base.:*(A::$S, B::PlainVector) where {T} = left_product(A, B)
    for P in (:PlainMatrix, :(Adjoint{<:Any, <:Plain{1}}), :(Transpose{<:Any, <:Plain{1}}),
              :(Adjoint{<:Any, <:PlainMatrix}), :(Transpose{<:Any, <:PlainMatrix}))
        @eval LinearAlgebra.mul!(C::OutputMatrix, A::$S, B::$P, α::Number, β::Number) where {T} = left!(C, A, B, α, β)
        @eval LinearAlgebra.mul!(C::OutputMatrix, B::$P, A::$S, α::Number, β::Number) where {T} = right!(C, B, A, α, β)
        @eval Base.:*(A::$S, B::$P) where {T} = left_product(A, B)
    end
    for P in (:PlainMatrix, :(Adjoint{<:Any, <:PlainMatrix}), :(Transpose{<:Any, <:PlainMatrix}))
        @eval Base.:*(B::$P, A::$S) where {T} = right_product(B, A)
    end
    # A row times a matrix stays a row.
    @eval Base.:*(x::Adjoint{<:Any, <:Plain{1}}, A::$S) where {T} = adjoint(left_product(transpose(A), parent(x)))
    @eval Base.:*(x::Transpose{<:Any, <:Plain{1}}, A::$S) where {T} = transpose(left_product(transpose(A), parent(x)))
    # The product of two block-sparse matrices is dense: the right one is expanded.
    for R in (:(BlockSparseMatrix{U}), :(Adjoint{U, BlockSparseMatrix{U}}), :(Transpose{U, BlockSparseMatrix{U}}))
        @eval Base.:*(A::$S, B::$R) where {T, U} = left_product(A, Matrix(B))
    end
end
