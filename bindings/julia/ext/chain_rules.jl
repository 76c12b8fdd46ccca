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
    same = Tartan.in_blocks(dA, Tartan.cutting(p.layout))
    return same.layout == p.layout ? same : Tartan.project(same, p.layout)
end
on_layout(p, dA::Flipped) = on_layout(p, copy(dA))
on_layout(p, dA) = Sparse(convert(Array{p.element}, dA), p.layout)
on_layout(p, dA::Tartan.Compressed) =
    on_layout(p, Sparse(Tartan.SparseMatrixCSC{p.element, Int}(Tartan.compressed(dA)), Tartan.cutting(p.layout)))
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

# ---- Functions of a matrix ----

function ChainRulesCore.rrule(::typeof(sum), A::Either; dims = :)
    sum_pullback(dy) = (NoGradient(), Tartan.spread(A, ChainRulesCore.unthunk(dy)))
    return sum(A; dims = dims), sum_pullback
end
function ChainRulesCore.rrule(::typeof(Tartan.project), A::Sparse, layout::Tartan.BlockLayout)
    back = ChainRulesCore.ProjectTo(A)
    B = Tartan.project(A, layout)
    project_pullback(dB) = (NoGradient(), back(ChainRulesCore.ProjectTo(B)(ChainRulesCore.unthunk(dB))), NoGradient())
    return B, project_pullback
end
function ChainRulesCore.rrule(::typeof(Tartan.slice), A::Sparse, rows::AbstractUnitRange, cols::AbstractUnitRange)
    B = Tartan.slice(A, rows, cols)
    slice_pullback(dB) = (NoGradient(), Tartan.unsliced(A, rows, cols, gradient_at(B, dB)), NoGradient(), NoGradient())
    return B, slice_pullback
end
function ChainRulesCore.rrule(::typeof(Tartan.block_norms), A::Sparse; norm = :l2)
    norms = Tartan.block_norms(A; norm = norm)
    norms_pullback(dy) = (NoGradient(), Tartan.of_norms(A, norm, norms, ChainRulesCore.unthunk(dy)))
    return norms, norms_pullback
end
function ChainRulesCore.rrule(::typeof(Tartan.opnorm), A::Either, p::Real)
    opnorm_pullback(dy) = (NoGradient(), Tartan.of_opnorm(A, p, ChainRulesCore.unthunk(dy)), NoGradient())
    return Tartan.opnorm(A, p), opnorm_pullback
end
# `sparse` and `SparseMatrixCSC` are the same.
for f in (typeof(Tartan.sparse), Type{Tartan.SparseMatrixCSC})
    @eval function ChainRulesCore.rrule(f::$f, A::Either)
        project = ChainRulesCore.ProjectTo(A)
        sparse_pullback(dS) = (NoGradient(), project(ChainRulesCore.unthunk(dS)))
        return f(A), sparse_pullback
    end
end
# Element by element. Zygote asks for broadcasting like this.
function elementwise_rule(f, A)
    y, derivatives = Tartan.mapped(f, A)
    project = ChainRulesCore.ProjectTo(A)
    elementwise_pullback(dy) = (NoGradient(), NoGradient(), project(ChainRulesCore.unthunk(dy) .* derivatives))
    return y, elementwise_pullback
end
ChainRulesCore.rrule(::typeof(map), f::Function, A::Either) = elementwise_rule(f, A)
ChainRulesCore.rrule(::typeof(Base.broadcasted), f::Function, A::Either) = elementwise_rule(f, A)
function ChainRulesCore.rrule(::typeof(Base.broadcasted), ::Type{T}, A::Either) where {T<:Real}
    project = ChainRulesCore.ProjectTo(A)
    cast_pullback(dy) = (NoGradient(), NoGradient(), project(ChainRulesCore.unthunk(dy)))
    return T.(A), cast_pullback
end
# What S held before does not count where beta is 0.
function ChainRulesCore.rrule(::typeof(Tartan.sddmm!), S::Sparse, X::AbstractArray, Y::AbstractArray; alpha = 1, options...)
    for option in keys(options)
        throw(ArgumentError("sddmm! with the option $option has no rule, expected alpha alone"))
    end
    Tartan.sddmm!(S, X, Y; alpha = alpha)
    function sddmm_pullback(dS)
        grads = Tartan.sddmm_gradient(gradient_at(S, dS), X, Y; alpha = alpha)
        return NoGradient(), NoGradient(), grads.x, grads.y
    end
    return S, sddmm_pullback
end
function ChainRulesCore.rrule(::typeof(Tartan.conv_filter), c::Tartan.BlockConv, dense::AbstractArray)
    w = Tartan.conv_filter(c, dense)
    project = ChainRulesCore.ProjectTo(dense)
    filter_pullback(dw) = (NoGradient(), NoGradient(), project(Tartan.dense_filter(c, gradient_at(w, dw))))
    return w, filter_pullback
end

# ---- Attention, convolution ----

# Rules give gradients of positional arguments alone. What is trained and may be left out is therefore a named tuple, the last
# argument; as an option it would silently get no gradient.
function refuse_options(name, call, options)
    for option in keys(options)
        throw(ArgumentError("$name with the option $option has no gradient of it, expected it in a named tuple: $call"))
    end
end
chosen(options, names...) = (; (k => v for (k, v) in pairs(options) if k in names && v !== nothing)...)

function ChainRulesCore.rrule(::typeof(Tartan.attention), q::AbstractArray, k::AbstractArray, v::AbstractArray,
                              layout::Tartan.BlockLayout; options...)
    trained = chosen(options, Tartan.ATTENTION_TERMS...)
    mask = get(options, :mask, nothing)
    mask isa AbstractArray && !(mask isa AbstractArray{Bool}) && (trained = (; trained..., mask))
    refuse_options("attention", "attention(q, k, v, layout, (sinks = ..., slopes = ...))", trained)
    out, pullback = attention_rule(q, k, v, layout, NamedTuple(); options...)
    return out, dout -> pullback(dout)[1:5]
end
ChainRulesCore.rrule(::typeof(Tartan.attention), q::AbstractArray, k::AbstractArray, v::AbstractArray, layout::Tartan.BlockLayout,
                     terms::NamedTuple; options...) = attention_rule(q, k, v, layout, terms; options...)

function attention_rule(q, k, v, layout, terms; return_lse::Bool = false, options...)
    return_lse && throw(ArgumentError("attention with return_lse = true has no rule, expected return_lse = false"))
    all_options = Tartan.with_terms(terms, options, (Tartan.ATTENTION_TERMS..., :mask))
    out, lse = Tartan.attention(q, k, v, layout; all_options..., return_lse = true)
    bias = Base.structdiff(all_options, NamedTuple{(:sinks,)})
    function attention_pullback(dy)
        dout = dense(ChainRulesCore.unthunk(dy))
        dq, dk, dv = Tartan.attention_gradient(q, k, v, layout, out, lse, dout; bias...)
        dterms = ChainRulesCore.@thunk begin
            found = all(isnothing, terms) ? (nothing, nothing) :
                    Tartan.attention_bias_gradient(q, k, v, layout, out, lse, dout; all_options...)
            tangent(terms, map(name -> found[name === :sinks ? 2 : 1], keys(terms)))
        end
        return NoGradient(), dq, dk, dv, NoGradient(), dterms
    end
    return out, attention_pullback
end

# The gradient of a named tuple, with that of each field in the type that it has.
tangent(terms::NamedTuple{N}, grads) where {N} =
    ChainRulesCore.Tangent{typeof(terms)}(; NamedTuple{N}(map(projected, Tuple(terms), Tuple(grads)))...)
projected(x, dx) = x === nothing || dx === nothing ? NoGradient() : ChainRulesCore.ProjectTo(x)(dx)

function ChainRulesCore.rrule(::typeof(Tartan.conv), c::Tartan.BlockConv, w::Sparse, x::AbstractArray; options...)
    refuse_options("conv", "conv(c, w, x, (bias = ..., gain = ...))", chosen(options, :gain, :bias))
    y, pullback = conv_rule(c, w, x, NamedTuple(); options...)
    return y, dy -> pullback(dy)[1:4]
end
ChainRulesCore.rrule(::typeof(Tartan.conv), c::Tartan.BlockConv, w::Sparse, x::AbstractArray, terms::NamedTuple; options...) =
    conv_rule(c, w, x, terms; options...)

# The convolution alone, then its last step, whose gradient needs the result of the first.
function conv_rule(c, w, x, terms; relu::Bool = false, bias_first::Bool = false, size = nothing, context = nothing, options...)
    for (name, value) in pairs(options)
        value === nothing || throw(ArgumentError("conv with $name has no rule, expected no options but relu, bias_first, size and context"))
    end
    factors = Tartan.with_terms(terms, NamedTuple(), (:gain, :bias))
    z = Tartan.conv(c, w, x; size = size, context = context)
    linear = relu || !all(isnothing, factors)
    last_step = (factors..., relu = relu, bias_first = bias_first, conv = c, size = Tartan.lengths_at(c, x, z), context = context)
    function conv_pullback(dy)
        given = dense(ChainRulesCore.unthunk(dy))
        grads = linear ? Tartan.channel_linear_gradient(Tartan.images(c, z), Tartan.images(c, given); last_step...) : (x = given, gain = nothing, bias = nothing)
        dz = reshape(grads.x, Base.size(z))
        dw = ChainRulesCore.@thunk(Tartan.conv_filter_gradient(c, x, dz; context = context))
        dx = ChainRulesCore.@thunk(Tartan.conv_input_gradient(c, w, dz; size = Base.size(x)[1:ndims(c)], context = context))
        return NoGradient(), NoGradient(), dw, dx, tangent(terms, map(name -> grads[name], keys(terms)))
    end
    y = linear ? reshape(Tartan.channel_linear(Tartan.images(c, z); last_step...), Base.size(z)) : z
    return y, conv_pullback
end

dense(x::Array) = x
dense(x) = collect(x)

# ---- Operations of the schema: the rules are generated ----

# The gradient of a result, as C takes it.
gradient_at(Y::Sparse, dY) = ChainRulesCore.ProjectTo(Y)(ChainRulesCore.unthunk(dY))
gradient_at(y::AbstractArray, dy) = of_type_like(y, in_memory(ChainRulesCore.unthunk(dy)))
in_memory(dy) = Tartan.device_operand(dy) === nothing ? dense(dy) : dy
of_type_like(y, dy) = Tartan.gate_type(eltype(y)) === Tartan.gate_type(eltype(dy)) ? dy : convert_to(eltype(y), dy)
# The one of result i of several; nothing if it was not used.
function gradient_of_result(y, dy, i)
    all = ChainRulesCore.unthunk(dy)
    all isa ChainRulesCore.AbstractZero && return nothing
    one = ChainRulesCore.unthunk(all[i])
    return one === nothing || one isa ChainRulesCore.AbstractZero ? nothing : gradient_at(y, one)
end

# Options without those that ask for further results, which a rule cannot give.
function without_requests(name, options, requests)
    for request in keys(requests)
        get(options, request, false) === false ||
            throw(ArgumentError("$name with $request = true has no rule, expected $request = false"))
    end
    return Base.structdiff((; options...), requests)
end

# Those of the options that `names` has.
picked(options, names) = (given = (; options...); Base.structdiff(given, Base.structdiff(given, names)))

include("operation_rules.jl")
