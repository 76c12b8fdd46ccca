# SPDX-License-Identifier: Apache-2.0
# Arithmetic of block-sparse matrices on a device. New matrices stay there; numbers and vectors of numbers come back.

plain(A::DeviceBlockSparseMatrix) = A
plain(A::DeviceTransposed) = copy(A)

# The matrix that the library makes of A where A is; make(context, A) gives its address, P is its element type.
# Like all that a device does, it is not compiled for each element type.
function computed(@nospecialize(make), @nospecialize(A::DeviceSparse), @nospecialize(P) = eltype(A))
    can_hold(P) || throw(ArgumentError("the result has element type $P, which a matrix on a device cannot hold: use to_host"))
    X = plain(A)
    return device_matrix(P, make(X.context, X.handle), X.context)
end

# The second operand, as the library wants it beside the first.
function beside(@nospecialize(A::DeviceSparse), @nospecialize(B::DeviceSparse))
    expect_same_size(A, B)
    heads(A) == heads(B) || throw(DimensionMismatch("the matrices have $(heads(A)) and $(heads(B)) heads, expected equal numbers"))
    X, Y = plain(A), plain(B)
    cutting(X) == cutting(Y) || throw(DimensionMismatch("the blocks have sizes $(blocksize(X)) and $(blocksize(Y)), " *
        "expected equal ones on a device: BlockSparseMatrix(A, $(blocksize(X))) before to_device makes them equal"))
    return X, Y
end

added(A::DeviceSparse{T}, beta, B::DeviceSparse{S}) where {T, S} = any_added(A, beta, B)::DeviceBlockSparseMatrix{promote_type(T, S)}
function any_added(@nospecialize(A), beta, @nospecialize(B))
    X, Y = beside(A, B)
    P = promote_type(eltype(A), eltype(B))
    return computed((context, X) -> Raw.tartan_matrix_add(context, 1, X, beta, Y.handle, dtype_code(P)), X, P)
end

combined(A::DeviceSparse{T}, combination, B::DeviceSparse{S}) where {T, S} =
    any_combined(A, combination, B)::DeviceBlockSparseMatrix{promote_type(T, S)}
function any_combined(@nospecialize(A), combination, @nospecialize(B))
    X, Y = beside(A, B)
    P = promote_type(eltype(A), eltype(B))
    return computed((context, X) -> Raw.tartan_matrix_combine(context, combination, X, Y.handle, dtype_code(P)), X, P)
end

applied(A::DeviceSparse, kind, x = 0, ::Type{P} = eltype(A)) where {P} = any_applied(A, kind, Float64(x), P)::DeviceBlockSparseMatrix{P}
any_applied(@nospecialize(A), kind, x, @nospecialize(P)) =
    computed((context, X) -> Raw.tartan_matrix_apply(context, kind, x, X, dtype_code(P)), A, P)

# A number with a result of the type that Julia's numbers have.
function with_number(f, A::DeviceSparse{T}, kind, x) where {T}
    kind == Raw.TARTAN_APPLY_DIVIDE && iszero(x) && throw(ArgumentError("A / $x on a device, expected a number other than 0"))
    P = Base.promote_op(f, T, typeof(x))
    return applied(A, kind, can_hold(P) ? x : 0, P)
end

# ---- Operators ----

Base.:+(A::DeviceSparse, B::DeviceSparse) = added(A, 1, B)
Base.:-(A::DeviceSparse, B::DeviceSparse) = added(A, -1, B)
Base.:+(A::DeviceSparse) = copy(A)
Base.:-(A::DeviceSparse) = applied(A, Raw.TARTAN_APPLY_MULTIPLY, -1)
Base.:*(A::DeviceSparse, x::Number) = with_number(*, A, Raw.TARTAN_APPLY_MULTIPLY, x)
Base.:*(x::Number, A::DeviceSparse) = A * x
Base.:/(A::DeviceSparse, x::Number) = with_number(/, A, Raw.TARTAN_APPLY_DIVIDE, x)
Base.:\(x::Number, A::DeviceSparse) = A / x

# alpha * A + D, where D is a vector for the diagonal or a number.
function with_diagonal(A::DeviceSparse{T}, alpha, d) where {T}
    expect_diagonal(A, d)
    P = promote_type(T, eltype(d))
    numbers = can_hold(P) ? (d isa Number ? [Float64(d)] : convert(Vector{Float64}, d)) : Float64[]
    return computed((context, X) -> Raw.tartan_matrix_add_diagonal(context, alpha, X, 0, numbers, dtype_code(P)), A, P)
end
for op in (:+, :-)
    @eval begin
        Base.$op(A::DeviceSparse, B::AbstractMatrix) = apart("B", B, "A")
        Base.$op(A::AbstractMatrix, B::DeviceSparse) = apart("A", A, "B")
        Base.$op(A::DeviceSparse, D::Diagonal) = with_diagonal(A, 1, $op(D.diag))
        Base.$op(D::Diagonal, A::DeviceSparse) = with_diagonal(A, $op(1), D.diag)
        Base.$op(A::DeviceSparse, J::UniformScaling) = with_diagonal(A, 1, $op(J.λ))
        Base.$op(J::UniformScaling, A::DeviceSparse) = with_diagonal(A, $op(1), J.λ)
    end
end

# Rows or columns times numbers in Julia's memory, or on the device as Float32 or Float64.
Base.:*(A::DeviceSparse, D::Diagonal) = scaled(A, nothing, D.diag)
Base.:*(D::Diagonal, A::DeviceSparse) = scaled(A, D.diag, nothing)
scaled(A::DeviceTransposed, rows, cols) = transpose(scaled(parent(A), cols, rows))
function scaled(A::DeviceBlockSparseMatrix{T}, rows, cols) where {T}
    expect_scaling(A, rows, cols)
    S = scaled_type(T, rows, cols)
    factors(x) = x === nothing ? nothing : device_operand(x) !== nothing ? input(as_it_is, x, "the diagonal", Union{Float32, Float64}) :
        described(as_it_is, can_hold(S) ? convert(Vector{Float64}, x) : Float64[])
    return computed((context, X) -> Raw.tartan_matrix_scale(context, factors(rows), factors(cols), X, dtype_code(S)), A, S)
end

# ---- Broadcasting: each function makes a matrix at once ----

struct DeviceStyle <: Broadcast.BroadcastStyle end
Broadcast.BroadcastStyle(::Type{<:Union{DeviceSparse, DeviceArray}}) = DeviceStyle()
Broadcast.BroadcastStyle(style::DeviceStyle, ::AbstractArrayStyle) = style
Broadcast.broadcastable(A::Union{DeviceSparse, DeviceArray}) = A
Broadcast.broadcasted(::DeviceStyle, f, operands...) = elementwise(f, map(value_there, operands)...)
value_there(x) = x
value_there(x::Ref) = x[]
value_there(x::Broadcasted) = Broadcast.materialize(x)

elementwise(f, operands...) = throw(TartanError(:unsupported, string("there is no ", f, ".(", join(map(nameof ∘ typeof, operands), ", "),
    ") on a device, expected a block-sparse matrix there and one of + - * / ^ abs abs2 sign sqrt round max min or a type: use to_host")))
elementwise(f::Union{typeof(+), typeof(-)}, A::DeviceSparse) = f(A)
elementwise(f::Union{typeof(+), typeof(-)}, A::DeviceSparse, B::DeviceSparse) = f(A, B)
elementwise(::typeof(identity), A::DeviceSparse) = A
elementwise(::typeof(*), A::DeviceSparse, B::DeviceSparse) = combined(A, Raw.TARTAN_COMBINE_MULTIPLY, B)
elementwise(f::Union{typeof(*), typeof(/)}, A::DeviceSparse, x::Number) = f(A, x)
elementwise(f::Union{typeof(*), typeof(\)}, x::Number, A::DeviceSparse) = f(x, A)
elementwise(f::Union{typeof(+), typeof(*)}, A, B, C, more...) = elementwise(f, elementwise(f, A, B), C, more...)
# A column or a row of numbers.
elementwise(::typeof(*), A::DeviceSparse, x::Union{AbstractVecOrMat, DeviceArray}) = scaled(A, factors_of(A, x)...)
elementwise(::typeof(*), x::Union{AbstractVecOrMat, DeviceArray}, A::DeviceSparse) = elementwise(*, A, x)
elementwise(::typeof(/), A::DeviceSparse, x::AbstractVecOrMat{<:Real}) = elementwise(*, A, inv.(x))
function factors_of(A, x)
    ndims(x) == 1 && return (x, nothing)
    ndims(x) == 2 && size(x, 1) == 1 && return (nothing, line_of(x, 2))
    ndims(x) == 2 && size(x, 2) == 1 && return (line_of(x, 1), nothing)
    throw(DimensionMismatch("a matrix of size $(size(A)) on a device times an array of size $(size(x)), expected a row or a column"))
end
line_of(x::AbstractMatrix, d) = device_operand(x) === nothing ? vec(x) : throw(TartanError(:unsupported,
    "a matrix on a device is multiplied by a $(typeof(x)), expected a vector: A * Diagonal(x) multiplies columns"))
line_of(x::DeviceArray{T}, d) where {T} = seen_as(x, (size(x, d),), (stride(x, d),))

for (f, combination) in ((:max, :TARTAN_COMBINE_MAXIMUM), (:min, :TARTAN_COMBINE_MINIMUM))
    @eval begin
        elementwise(::typeof($f), A::DeviceSparse, B::DeviceSparse) = combined(A, Raw.$combination, B)
        elementwise(::typeof($f), x::Number, A::DeviceSparse) = elementwise($f, A, x)
        function elementwise(::typeof($f), A::DeviceSparse, x::Number)
            iszero(x) || throw(ArgumentError(string($f, ".(A, ", x, ") on a device, expected 0: use to_host")))
            return combined(A, Raw.$combination, nothing_stored(A))
        end
    end
end
for (f, kind, x) in ((:abs, :ABS, 0), (:sign, :SIGN, 0), (:round, :ROUND, 0), (:sqrt, :POWER, 0.5), (:abs2, :POWER, 2))
    @eval elementwise(::typeof($f), A::DeviceSparse) = applied(A, Raw.$(Symbol(:TARTAN_APPLY_, kind)), $x)
end
elementwise(::typeof(Base.literal_pow), ::typeof(^), A::DeviceSparse, ::Val{p}) where {p} = elementwise(^, A, p)
function elementwise(::typeof(^), A::DeviceSparse, p::Number)
    p isa Real && p > 0 || throw(ArgumentError("A .^ $p on a device, expected an exponent above 0, which keeps zeros"))
    return with_number(^, A, Raw.TARTAN_APPLY_POWER, p)
end
elementwise(::Type{P}, A::DeviceSparse) where {P<:Number} = DeviceBlockSparseMatrix{P}(plain(A))

# ---- In place ----

# A matrix like A without blocks.
nothing_stored(A::DeviceBlockSparseMatrix{T}) where {T} =
    DeviceBlockSparseMatrix{T}(on_grid(A.layout, falses(gridsize(A)..., heads(A))), A.context)
nothing_stored(A::DeviceTransposed) = transpose(nothing_stored(parent(A)))

"""
    copyto!(A::DeviceBlockSparseMatrix, B)

Copy the elements of another matrix, on the device or in Julia's memory. Zeros of `B` that `A` does not store are ignored. If
`A` does not store another number of `B`, the call is refused and `A` does not change. `A .= B` and `A .= 2 .* B .+ A` do the
same, with a temporary matrix for each function; `axpy!`, `axpby!` and `rmul!` need none.

    D = to_device(BlockSparseMatrix(ones(4, 4), 2), Context("cpu"))
    copyto!(similar(D), 2D)
"""
Base.copyto!(A::DeviceBlockSparseMatrix, B::DeviceSparse) = A === B ? A : linear!(A, 1, B, 0, nothing_stored(A))
Base.copyto!(A::DeviceTransposed, B::DeviceSparse) = (copyto!(parent(A), transpose(B)); A)
Base.copyto!(A::DeviceSparse, B::BlockSparse) = copyto!(A, to_device(B, stored(A).context))
Base.copyto!(A::BlockSparse, B::DeviceSparse) = copyto!(A, to_host(B))

# A = alpha * X + beta * Y
function linear!(A, alpha, X, beta, Y)
    Raw.tartan_axpby(A.context, real_factor(alpha, "a"), within(A, X), real_factor(beta, "b"), within(A, Y), A)
    return A
end

# X as a matrix whose blocks A stores, too.
function within(A, X)
    Y = beside(A, X)[2]
    nblocks(setdiff(Y.layout, A.layout)) == 0 && return Y
    Z = dropzeros(Y)
    lost = nblocks(setdiff(Z.layout, A.layout))
    lost == 0 || throw(ArgumentError("$lost blocks of the other matrix have non-zeros and no place in A, " *
                                     "expected zeros there: use grow and project"))
    return Z
end

Broadcast.materialize!(A::DeviceSparse, B::DeviceSparse) = copyto!(A, B)
Broadcast.materialize!(A::DeviceSparse, x::Broadcasted{S}) where {S} = Broadcast.materialize!(A, Broadcast.materialize(x))
function Broadcast.materialize!(A::DeviceSparse, x)
    x isa Number && iszero(x) || throw(ArgumentError("A .= $(x isa Number ? x : nameof(typeof(x))) on a device, expected 0 or a " *
                                                     "block-sparse matrix there"))
    return copyto!(A, nothing_stored(A))
end

LinearAlgebra.axpy!(a::Number, X::DeviceSparse, Y::DeviceSparse) = axpby!(a, X, true, Y)
LinearAlgebra.axpby!(a::Number, X::DeviceSparse, b::Number, Y::DeviceBlockSparseMatrix) = linear!(Y, a, X, b, Y)
LinearAlgebra.axpby!(a::Number, X::DeviceSparse, b::Number, Y::DeviceTransposed) = (axpby!(a, transpose(X), b, parent(Y)); Y)
LinearAlgebra.rmul!(A::DeviceBlockSparseMatrix, x::Number) = linear!(A, x, A, 0, nothing_stored(A))
LinearAlgebra.rmul!(A::DeviceTransposed, x::Number) = (rmul!(parent(A), x); A)
LinearAlgebra.lmul!(x::Number, A::DeviceSparse) = rmul!(A, x)
LinearAlgebra.rdiv!(A::DeviceSparse, x::Number) = copyto!(A, A / x)
LinearAlgebra.rmul!(A::DeviceSparse, D::Diagonal) = copyto!(A, A * D)
LinearAlgebra.lmul!(D::Diagonal, A::DeviceSparse) = copyto!(A, D * A)

Base.similar(A::DeviceBlockSparseMatrix{T}) where {T} = DeviceBlockSparseMatrix{T}(A.layout, A.context)
Base.similar(A::DeviceTransposed{T}) where {T} = DeviceBlockSparseMatrix{T}(transpose(parent(A).layout), parent(A).context)
Base.zero(A::DeviceSparse) = similar(A)

# ---- Parts ----

LinearAlgebra.diag(A::DeviceTransposed, k::Integer = 0) = diag(parent(A), -k)
function LinearAlgebra.diag(A::DeviceBlockSparseMatrix{T}, k::Integer = 0) where {T}
    expect_one_head(A, "diag")
    d = room_for_diagonal(A, k)
    Raw.tartan_matrix_get_diagonal(A.context, A, k, d)
    return convert(Vector{T}, d)
end
LinearAlgebra.tr(A::DeviceSparse) = (LinearAlgebra.checksquare(A); sum(diag(A)))
LinearAlgebra.checksquare(A::DeviceSparse) =
    size(A, 1) == size(A, 2) ? size(A, 1) : throw(DimensionMismatch("matrix is not square: dimensions are $(size(A))"))
SparseArrays.dropzeros(A::DeviceSparse) = computed((context, X) -> Raw.tartan_matrix_drop_zeros(context, X, 0), A)

# ---- Reductions ----

reduction_of(::typeof(sum), ::typeof(identity)) = Raw.TARTAN_REDUCE_SUM
reduction_of(::typeof(sum), ::typeof(abs)) = Raw.TARTAN_REDUCE_ABS_SUM
reduction_of(::typeof(maximum), ::typeof(identity)) = Raw.TARTAN_REDUCE_MAXIMUM
reduction_of(::typeof(maximum), ::typeof(abs)) = Raw.TARTAN_REDUCE_ABS_MAXIMUM
reduction_of(::typeof(minimum), ::typeof(identity)) = Raw.TARTAN_REDUCE_MINIMUM
reduction_of(over, f) = throw(TartanError(:unsupported, "$over($f, A) of a matrix on a device, expected $over(A)" *
                                          (over === minimum ? "" : " or $over(abs, A)") * ": use to_host"))

for over in (:sum, :maximum, :minimum)
    @eval begin
        Base.$over(A::DeviceSparse; dims = :) = $over(identity, A; dims = dims)
        Base.$over(f, A::DeviceSparse; dims = :) = reduced($over, reduction_of($over, f), A, dims)
    end
end

# Numbers of the rows, columns or heads of A.
function numbers_of(A::DeviceSparse, reduction, each)
    X = stored(A)
    numbers = Vector{Float64}(undef, heads(X) * (each == Raw.TARTAN_EACH_HEAD ? 1 : size(X, Int(each))))
    Raw.tartan_matrix_reduce(X.context, X, reduction, each, numbers)
    return numbers
end

function reduced(over, reduction, A::DeviceSparse{T}, dims) where {T}
    dims === (:) && return convert(T, over(numbers_of(A, reduction, Raw.TARTAN_EACH_HEAD)))
    dims in (1, 2) || throw(ArgumentError("dims is $dims, expected 1, 2 or nothing for a matrix on a device"))
    expect_one_head(A, "a reduction with dims")
    by_column = (dims == 1) != is_flipped(A)
    numbers = convert(Vector{T}, numbers_of(A, reduction, by_column ? Raw.TARTAN_EACH_COLUMN : Raw.TARTAN_EACH_ROW))
    return reshape(numbers, dims == 1 ? (1, :) : (:, 1))
end

function LinearAlgebra.norm(A::DeviceSparse{T}, p::Real = 2) where {T}
    p in (1, 2, Inf) || throw(ArgumentError("norm(A, $p) of a matrix on a device, expected p = 1, 2 or Inf"))
    reduction = p == 2 ? Raw.TARTAN_REDUCE_NORM : p == 1 ? Raw.TARTAN_REDUCE_ABS_SUM : Raw.TARTAN_REDUCE_ABS_MAXIMUM
    return isempty(A) ? zero(T) : convert(T, norm(numbers_of(A, reduction, Raw.TARTAN_EACH_HEAD), p))
end
Base.isempty(A::DeviceSparse) = any(iszero, size(A))

function LinearAlgebra.opnorm(A::DeviceSparse{T}, p::Real = 2) where {T}
    p in (1, Inf) || throw(ArgumentError("opnorm(A, $p) of a matrix on a device, expected p = 1 or Inf"))
    return isempty(A) ? zero(T) : maximum(sum(abs, A; dims = p == 1 ? 1 : 2))
end

LinearAlgebra.dot(A::DeviceSparse, B::DeviceSparse) = sum(combined(A, Raw.TARTAN_COMBINE_MULTIPLY, B))

# ---- Comparison ----

function Base.:(==)(A::DeviceSparse, B::DeviceSparse)
    (size(A) == size(B) && heads(A) == heads(B)) || return false
    X, Y = A isa DeviceTransposed && B isa DeviceTransposed ? (parent(A), parent(B)) : (A, B)
    return count_different(X, Y, 0, 0, false) == 0
end
function count_different(A, B, rtol, atol, nans)
    X, Y = beside(A, B)
    return Raw.tartan_matrix_count_different(X.context, X, Y, rtol, atol, nans)
end
Base.hash(A::DeviceSparse, h::UInt) = hash(to_host(A), h)
Base.iszero(A::DeviceSparse) = norm(A, Inf) == 0

function Base.isapprox(A::DeviceSparse, B::DeviceSparse; atol::Real = 0, rtol::Real = Base.rtoldefault(eltype(A), eltype(B), atol),
                       nans::Bool = false)
    (size(A) == size(B) && heads(A) == heads(B)) || return false
    distance = norm(A - B)
    isfinite(distance) && return distance <= max(atol, rtol * max(norm(A), norm(B)))
    return count_different(A, B, rtol, atol, nans) == 0
end

# ---- Dense arrays: each function makes an array at once ----

# A number as an array beside another one.
there(x::Real, like::DeviceArray{T}) where {T} = to_device(fill(convert(T, x), ntuple(_ -> 1, ndims(like))), like.context)

elementwise(::typeof(*), x::DeviceArray, y::DeviceArray) = Pointwise.multiply(x, y)
for (f, g) in ((:+, :add), (:-, :subtract), (:/, :divide), (:max, :maximum), (:min, :minimum))
    @eval begin
        elementwise(::typeof($f), x::DeviceArray, y::DeviceArray) = Pointwise.$g(x, y)
        elementwise(::typeof($f), x::DeviceArray, y::Real) = Pointwise.$g(x, there(y, x))
        elementwise(::typeof($f), x::Real, y::DeviceArray) = Pointwise.$g(there(x, y), y)
    end
end
elementwise(::typeof(*), x::DeviceArray, y::Real) = Pointwise.scale(x; factor = y)
elementwise(::typeof(*), x::Real, y::DeviceArray) = Pointwise.scale(y; factor = x)
elementwise(::typeof(identity), x::DeviceArray) = x
elementwise(::typeof(+), x::DeviceArray) = x
for (f, g) in ((:-, :negative), (:inv, :reciprocal), (:abs2, :square), (:sqrt, :sqrt), (:exp, :exp), (:log, :log), (:tanh, :tanh))
    @eval elementwise(::typeof($f), x::DeviceArray) = Pointwise.$g(x)
end
elementwise(::typeof(Base.literal_pow), ::typeof(^), x::DeviceArray, ::Val{p}) where {p} =
    p == 2 ? Pointwise.square(x) : p == 1 ? x : throw(TartanError(:unsupported, "there is no x .^ $p of an array on a device, expected x .^ 2: use to_host"))
for op in (:+, :-)
    @eval Base.$op(x::DeviceArray, y::DeviceArray) = (expect_same_size(x, y); elementwise($op, x, y))
end
Base.:-(x::DeviceArray) = elementwise(-, x)
Base.:*(x::DeviceArray, a::Real) = elementwise(*, x, a)
Base.:*(a::Real, x::DeviceArray) = elementwise(*, a, x)
Base.:/(x::DeviceArray, a::Real) = elementwise(/, x, a)

# In place, with an array made for each function but the last.
Broadcast.materialize!(y::DeviceArray, x::Union{DeviceArray, AbstractArray}) =
    size(x) == size(y) ? copyto!(y, x) : copyto!(y, elementwise(+, zero(y), x isa DeviceArray ? x : to_device(Array(x), y.context)))
Broadcast.materialize!(y::DeviceArray, x::Real) = fill!(y, x)
Broadcast.materialize!(y::DeviceArray, x::Broadcasted{S}) where {S} = Broadcast.materialize!(y, Broadcast.materialize(x))
LinearAlgebra.rmul!(x::DeviceArray, a::Real) = Pointwise.scale!(x, x; factor = a)
LinearAlgebra.lmul!(a::Real, x::DeviceArray) = rmul!(x, a)
LinearAlgebra.axpy!(a::Real, x::DeviceArray, y::DeviceArray) = (expect_same_size(y, x); Pointwise.add!(y, y, a * x); y)
LinearAlgebra.axpby!(a::Real, x::DeviceArray, b::Real, y::DeviceArray) = axpy!(a, x, rmul!(y, b))

for f in (:sum, :maximum, :minimum)
    @eval Base.$f(x::DeviceArray; options...) = $f(to_host(x); options...)
    @eval Base.$f(g, x::DeviceArray; options...) = $f(g, to_host(x); options...)
end
LinearAlgebra.norm(x::DeviceArray, p::Real = 2) = norm(to_host(x), p)
LinearAlgebra.dot(x::DeviceArray, y::DeviceArray) = dot(to_host(x), to_host(y))
Statistics.mean(x::DeviceArray; options...) = mean(to_host(x); options...)
