# SPDX-License-Identifier: Apache-2.0
# Rules of ChainRulesCore, and so of Zygote and others. The gradient of a block-sparse matrix is a matrix on the same layout:
# only the stored blocks of the dense gradient are computed. Runs in a module that has ChainRulesCore and Tartan.

const Sparse = Tartan.BlockSparseMatrix
const Flipped = Tartan.TransposedBlocks
const Either = Tartan.BlockSparse
const NoGradient = ChainRulesCore.NoTangent

# ---- Gradients on the layout ----

ChainRulesCore.ProjectTo(A::Sparse{T}) where {T} = ChainRulesCore.ProjectTo{Sparse}(; element = T, layout = A.layout)
ChainRulesCore.ProjectTo(A::Flipped) = ChainRulesCore.ProjectTo{Flipped}(; parent = ChainRulesCore.ProjectTo(parent(A)))

function on_layout(p, dA::Sparse)
    block = Tartan.blocksize(p.layout)
    same = Tartan.blocksize(dA) == block ? dA : Tartan.adopt(eltype(dA), Tartan.Raw.tartan_matrix_reblock(nothing, dA, block...))
    return same.layout == p.layout ? same : Tartan.project(same, p.layout)
end
on_layout(p, dA::Flipped) = on_layout(p, copy(dA))
on_layout(p, dA) = Sparse(convert(Array{p.element}, dA), p.layout)
(p::ChainRulesCore.ProjectTo{Sparse})(dA::AbstractArray) = (B = on_layout(p, dA); eltype(B) === p.element ? B : Sparse{p.element}(B))
(p::ChainRulesCore.ProjectTo{Flipped})(dA::AbstractArray) = transpose(p.parent(transpose(dA)))
# Of A.values: the values are those of the matrix.
function (p::ChainRulesCore.ProjectTo{Sparse})(dA::ChainRulesCore.Tangent{<:Sparse})
    values = ChainRulesCore.unthunk(dA.values)
    return values isa ChainRulesCore.AbstractZero ? values : Sparse(p.layout, convert(Array{p.element, 3}, values))
end

# ---- Products ----

# A row times a column is one number.
columns(x::AbstractVector) = reshape(x, :, 1)
columns(x) = x

# X * Y at the stored blocks of A.
function gradient_of(A::Sparse{T}, X, Y) where {T}
    S = Sparse{T}(A.layout)
    return Tartan.sddmm!(S, convert_to(T, columns(X)), convert_to(T, columns(Y)))
end
gradient_of(A::Flipped, X, Y) = transpose(gradient_of(parent(A), transpose(columns(Y)), transpose(columns(X))))
convert_to(::Type{T}, X::AbstractArray{T}) where {T} = X
convert_to(::Type{T}, X) where {T} = convert(Array{T}, X)

function ChainRulesCore.rrule(::typeof(*), A::Either{<:Real}, X::AbstractVecOrMat{<:Real})
    project = ChainRulesCore.ProjectTo(X)
    function product_pullback(dy)
        dY = ChainRulesCore.unthunk(dy)
        dA = ChainRulesCore.@thunk(gradient_of(A, dY, transpose(columns(X))))
        dX = ChainRulesCore.@thunk(project(A' * dY))
        return NoGradient(), dA, dX
    end
    return A * X, product_pullback
end

function ChainRulesCore.rrule(::typeof(*), X::AbstractMatrix{<:Real}, A::Either{<:Real})
    project = ChainRulesCore.ProjectTo(X)
    function product_pullback(dy)
        dY = ChainRulesCore.unthunk(dy)
        dX = ChainRulesCore.@thunk(project(dY * A'))
        dA = ChainRulesCore.@thunk(gradient_of(A, transpose(X), dY))
        return NoGradient(), dX, dA
    end
    return X * A, product_pullback
end

# Both gradients on their own layouts.
function ChainRulesCore.rrule(::typeof(*), A::Either{<:Real}, B::Either{<:Real})
    function product_pullback(dy)
        dY = ChainRulesCore.unthunk(dy)
        dA = ChainRulesCore.@thunk(gradient_of(A, dY, Matrix(transpose(B))))
        dB = ChainRulesCore.@thunk(gradient_of(B, Matrix(transpose(A)), dY))
        return NoGradient(), dA, dB
    end
    return A * B, product_pullback
end

# ---- Layout and values ----

function ChainRulesCore.rrule(::Type{Sparse}, layout::Tartan.BlockLayout, values::Array{<:Any, 3})
    project = ChainRulesCore.ProjectTo(Sparse(layout, values))
    values_pullback(dA) = (NoGradient(), NoGradient(), values_of(project(ChainRulesCore.unthunk(dA))))
    return Sparse(layout, values), values_pullback
end
values_of(dA::Sparse) = dA.values
values_of(dA) = dA

# ---- Softmax, attention, convolution ----

function ChainRulesCore.rrule(::typeof(Tartan.block_softmax), X::Sparse; scale = 1, options...)
    Y, project = Tartan.block_softmax(X; scale = scale, options...), ChainRulesCore.ProjectTo(X)
    Y isa Tuple && throw(ArgumentError("block_softmax with return_lse = true has no rule, expected return_lse = false"))
    softmax_pullback(dY) =
        (NoGradient(), Tartan.block_softmax_gradient(Y, project(ChainRulesCore.unthunk(dY)); scale = scale))
    return Y, softmax_pullback
end

function ChainRulesCore.rrule(::typeof(Tartan.attention), q::AbstractArray, k::AbstractArray, v::AbstractArray,
                              layout::Tartan.BlockLayout; return_lse::Bool = false, sinks = nothing, options...)
    return_lse && throw(ArgumentError("attention with return_lse = true has no rule, expected return_lse = false"))
    out, lse = Tartan.attention(q, k, v, layout; return_lse = true, sinks = sinks, options...)
    function attention_pullback(dout)
        dq, dk, dv = Tartan.attention_gradient(q, k, v, layout, out, lse, dense(ChainRulesCore.unthunk(dout)); options...)
        return NoGradient(), dq, dk, dv, NoGradient()
    end
    return out, attention_pullback
end

function ChainRulesCore.rrule(::typeof(Tartan.conv), c::Tartan.BlockConv, w::Sparse, x::AbstractArray; options...)
    for name in keys(options)
        name === :context || throw(ArgumentError("conv with $name has no rule, expected no option but context"))
    end
    function conv_pullback(dy)
        dY = dense(ChainRulesCore.unthunk(dy))
        dw = ChainRulesCore.@thunk(Tartan.conv_filter_gradient(c, x, dY; options...))
        dx = ChainRulesCore.@thunk(Tartan.conv_input_gradient(c, w, dY; size = size(x)[1:ndims(c)], options...))
        return NoGradient(), NoGradient(), dw, dx
    end
    return Tartan.conv(c, w, x; options...), conv_pullback
end

dense(x::Array) = x
dense(x) = collect(x)
