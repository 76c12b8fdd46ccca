# SPDX-License-Identifier: Apache-2.0
# Broadcasting of tracked objects: each element carries its derivatives with respect to the N tracked operands.

struct Dual{T <: Real, N} <: Real
    value::T
    partials::NTuple{N, T}
end
Base.promote_rule(::Type{Dual{T, N}}, ::Type{S}) where {T, N, S <: Real} = Dual{promote_type(T, S), N}
Base.promote_rule(::Type{Dual{T, N}}, ::Type{Dual{S, N}}) where {T, N, S} = Dual{promote_type(T, S), N}
Base.convert(::Type{Dual{T, N}}, x::Dual{S, N}) where {T, N, S} = Dual{T, N}(T(x.value), map(T, x.partials))
Base.convert(::Type{Dual{T, N}}, x::Real) where {T, N} = Dual{T, N}(T(x), ntuple(_ -> zero(T), Val(N)))
Dual{T, N}(x::Real) where {T, N} = convert(Dual{T, N}, x)
Base.float(x::Dual) = x

# f at x, with the derivatives d and e of f.
chained(y, x::Dual, d) = Dual(promote(y, map(p -> p * d, x.partials)...)...)
Dual(y::T, partials::T...) where {T <: Real} = Dual{T, length(partials)}(y, partials)
chained(y, a::Dual, d, b::Dual, e) = Dual(promote(y, map((p, q) -> p * d + q * e, a.partials, b.partials)...)...)
# Where a derivative does not count, 0 times an infinite factor is 0.
Base.:+(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = Dual{T, N}(a.value + b.value, map(+, a.partials, b.partials))
Base.:-(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = Dual{T, N}(a.value - b.value, map(-, a.partials, b.partials))
Base.:-(a::Dual{T, N}) where {T, N} = Dual{T, N}(-a.value, map(-, a.partials))
Base.:*(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = chained(a.value * b.value, a, b.value, b, a.value)
Base.:/(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = (y = a.value / b.value; chained(y, a, inv(b.value), b, -y / b.value))
function Base.:^(a::Dual{T, N}, b::Dual{T, N}) where {T, N}
    y = a.value^b.value
    return chained(y, a, b.value * a.value^(b.value - 1), b, a.value > 0 ? y * log(a.value) : zero(y))
end
Base.:^(a::Dual, n::Integer) = chained(a.value^n, a, n == 0 ? zero(a.value) : n * a.value^(n - 1))
Base.max(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = a.value >= b.value ? a : b
Base.min(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = a.value <= b.value ? a : b
for f in (:<, :<=, :(==), :isless)
    @eval Base.$f(a::Dual{T, N}, b::Dual{T, N}) where {T, N} = $f(a.value, b.value)
end
for f in (:isnan, :isinf, :isfinite, :iszero, :signbit)
    @eval Base.$f(a::Dual) = $f(a.value)
end
for (f, derivative) in (
        (:abs, :(sign(x))), (:abs2, :(2x)), (:acos, :(-inv(sqrt(1 - x^2)))), (:asin, :(inv(sqrt(1 - x^2)))), (:atan, :(inv(1 + x^2))),
        (:cos, :(-sin(x))), (:cosh, :(sinh(x))), (:exp, :y), (:expm1, :(y + 1)), (:inv, :(-y^2)), (:log, :(inv(x))),
        (:log1p, :(inv(1 + x))), (:log2, :(inv(x * log(oftype(x, 2))))), (:log10, :(inv(x * log(oftype(x, 10))))), (:sin, :(cos(x))),
        (:sinh, :(cosh(x))), (:sqrt, :(inv(2y))), (:tan, :(1 + y^2)), (:tanh, :(1 - y^2)))
    @eval function Base.$f(a::Dual)
        x = a.value
        y = $f(x)
        return chained(y, a, $derivative)
    end
end

struct TrackedStyle <: Broadcast.BroadcastStyle end
Broadcast.BroadcastStyle(::Type{<:Tracked}) = TrackedStyle()
Broadcast.BroadcastStyle(::TrackedStyle, ::Broadcast.BroadcastStyle) = TrackedStyle()
Broadcast.broadcastable(x::Tracked) = x
Broadcast.instantiate(bc::Broadcasted{TrackedStyle}) = bc
Base.axes(x::Tracked) = axes(x.value)
Base.ndims(::Type{Tracked{V}}) where {V} = ndims(V)

seeded(x, ::Val{N}, ::Val{K}) where {N, K} = K == 0 ? x : seed(x, Val(N), Val(K))
seed(x::Real, ::Val{N}, ::Val{K}) where {N, K} = (y = float(x); Dual{typeof(y), N}(y, ntuple(i -> i == K ? one(y) : zero(y), Val(N))))
real_part(x) = x
real_part(x::Dual) = x.value
partial(x::Dual, k) = x.partials[k]
partial(x, k) = zero(x)

function Base.copy(bc::Broadcasted{TrackedStyle})
    flat = Broadcast.flatten(bc)
    operands = filter(is_tracked, flat.args)
    numbers = accumulate((n, x) -> n + is_tracked(x), flat.args; init = 0)
    places = map((x, n) -> Val(is_tracked(x) ? n : 0), flat.args, Tuple(numbers))
    count = Val(length(operands))
    f(xs...) = flat.f(map((x, k) -> seeded(x, count, k), xs, places)...)
    return recorded_broadcast(f, operands, map(untracked, flat.args))
end

function recorded_broadcast(f, operands, values)
    any(x -> x isa Union{BlockSparse, DeviceArray, DeviceBlockSparseMatrix}, values) && return broadcast_blocks(f, operands, values)
    found = broadcast(f, values...)
    y = map(real_part, found)
    eltype(y) === Bool && return y
    pullback(g) = ntuple(k -> summed(g .* map(x -> partial(x, k), found), operands[k].value), length(operands))
    return record(pullback, y, operands...)
end

# Over what was repeated.
summed(g::Number, x::Number) = g
summed(g, x::Number) = sum(g)
function summed(g, x)
    dims = Tuple(d for d in 1:ndims(g) if size(x, d) == 1 && size(g, d) > 1)
    return reshape(isempty(dims) ? g : sum(g; dims = dims), size(x))
end

# At the stored blocks, of matrices on one layout and numbers.
function broadcast_blocks(f, operands, values)
    layout = nothing
    for x in values
        is_number(x) && continue
        x isa BlockSparseMatrix && (layout === nothing || x.layout == layout) ||
            throw(ArgumentError("broadcasting has a $(typeof(x)) beside what is tracked, expected dense arrays, or block-sparse matrices on one layout and numbers"))
        layout = x.layout
    end
    outside = real_part(f(map(x -> is_number(x) ? value_of(x) : zero(eltype(x)), values)...))
    iszero(outside) || throw(ArgumentError("the function is $outside for zeros, expected one that keeps the zeros of a block-sparse matrix"))
    found = broadcast(f, map(x -> is_number(x) ? x : safe_values(x), values)...)
    inside(z) = BlockSparseMatrix(layout, clear_padding!(z, layout))
    y = map(real_part, found)
    eltype(y) === Bool && return inside(y)
    function pullback(g)
        return ntuple(length(operands)) do k
            products = g.values .* map(x -> partial(x, k), found)
            operands[k].value isa Number ? sum(products) : inside(products)
        end
    end
    return record(pullback, inside(y), operands...)
end
