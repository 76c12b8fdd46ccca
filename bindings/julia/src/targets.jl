# SPDX-License-Identifier: Apache-2.0
# Functions of the standard library that write element by element. In a matrix in blocks they would stop at the first number
# that has no place, with some elements written. So they write to a dense copy, and all of it is stored or nothing.

const VectorTarget{T} = BlocksView{T, 1}
const MatrixTarget{T} = Union{BlockSparse{T}, BlocksView{T, 2}}
const Target{T} = Union{BlockSparse{T}, BlocksView{T}}

function aside!(write!, C::Target{T}) where {T}
    expect_fits(size(C), sizeof(T), "writing element by element makes a copy of all", "compute a sparse matrix, then copyto!")
    D = dense_copy(C)
    write!(D)
    return copyto!(C, D)
end
dense_copy(A::BlockSparse) = Matrix(A)
dense_copy(V::BlocksView) = is_whole(V) ? reshape(Matrix(matrix_of(V)), size(V)) : collect(V)

# ---- Products ----

is_sparse_target(::Target) = true

# LinearAlgebra's mul! of factors of any kind ends in these functions, which have few methods, with other arguments in other
# versions of Julia. One for matrices in blocks stands next to each.
for (f, target) in ((:generic_matmatmul!, MatrixTarget), (:generic_matvecmul!, VectorTarget))
    found = isdefined(LinearAlgebra, f) ? collect(methods(getfield(LinearAlgebra, f))) : []
    for method in found
        types = map(T -> Base.rewrap_unionall(T, method.sig), collect(Base.unwrap_unionall(method.sig).parameters))
        target{Float64} <: types[2] || continue
        names = [Symbol(:x, i) for i in 3:length(types)]
        @eval LinearAlgebra.$f(C::$target, $((:($x::$T) for (x, T) in zip(names, types[3:end]))...)) = aside!(D -> LinearAlgebra.$f(D, $(names...)), C)
    end
end

multiple_into!(C::BlockSparse, X, s, alpha, beta) = aside!(D -> mul!(D, X, s, alpha, beta), C)
multiple_into!(C, A::BlockSparse, s::Number, alpha, beta) = into_sized!(C, A * s, alpha, beta)
multiple_into!(C, s::Number, A::BlockSparse, alpha, beta) = into_sized!(C, s * A, alpha, beta)
multiple_into!(C::BlockSparse, A::BlockSparse, s::Number, alpha, beta) = into_sized!(C, A * s, alpha, beta)
multiple_into!(C::BlockSparse, s::Number, A::BlockSparse, alpha, beta) = into_sized!(C, s * A, alpha, beta)
into_sized!(C, P, alpha, beta) = (expect_same_size(C, P); into!(C, P, alpha, beta))
# mul! has so many methods that each one for a union of types takes time when the package is loaded.
for (C, A) in ((AbstractMatrix, BlockSparse), (BlockSparse, AbstractMatrix), (BlockSparse, BlockSparse))
    @eval LinearAlgebra.mul!(C::$C, A::$A, s::Number, α::Number, β::Number) = multiple_into!(C, A, s, α, β)
    @eval LinearAlgebra.mul!(C::$C, s::Number, A::$A, α::Number, β::Number) = multiple_into!(C, s, A, α, β)
end
for X in (AbstractArray, BlockSparse)
    @eval LinearAlgebra.axpy!(a::Number, X::$X, V::BlocksView) = (V .+= a .* X; V)
    @eval LinearAlgebra.axpby!(a::Number, X::$X, b::Number, V::BlocksView) = (V .= a .* X .+ b .* V; V)
end

# SparseArrays and LinearAlgebra have such methods for vectors of any kind.
if isdefined(SparseArrays, :SparseVectorUnion)
    LinearAlgebra.axpy!(a::Number, x::SparseArrays.SparseVectorUnion, V::VectorTarget) = (V .+= a .* Vector(x); V)
end
LinearAlgebra.axpby!(a::Number, x::Union{DenseArray{T}, AbstractVector{T}}, b::Number, V::VectorTarget{T}) where {T<:LinearAlgebra.BlasFloat} =
    (V .= a .* x .+ b .* V; V)

# ---- Other functions ----

for f in (:transpose!, :adjoint!)
    @eval LinearAlgebra.$f(C::MatrixTarget, X::AbstractMatrix) = (expect_same_size(transpose(C), X); copyto!(C, transpose(X)))
    @eval LinearAlgebra.$f(C::MatrixTarget, x::AbstractVector) = aside!(D -> $f(D, x), C)
    @eval LinearAlgebra.$f(C::VectorTarget, X::AbstractMatrix) = aside!(D -> $f(D, X), C)
end
Base.permutedims!(C::Target, X::AbstractArray, order) = aside!(D -> permutedims!(D, X, order), C)
Base.circshift!(C::MatrixTarget, X, shifts::Tuple{Integer, Integer}) = aside!(D -> circshift!(D, X, shifts), C)
Base.circshift!(C::VectorTarget, X, shifts::Tuple{Integer}) = aside!(D -> circshift!(D, X, shifts), C)
Base.accumulate!(op, C::Target, X; options...) = aside!(D -> accumulate!(op, D, X; options...), C)
for f in (:cumsum!, :cumprod!), X in (Any, AbstractVector)
    @eval Base.$f(C::Target, X::$X; options...) = aside!(D -> $f(D, X; options...), C)
end
Base.cumprod!(C::VectorTarget, x::AbstractVector; options...) = aside!(D -> cumprod!(D, x; options...), C)
for f in (:sum!, :prod!, :maximum!, :minimum!)
    @eval Base.$f(g::Function, C::Target, X::AbstractArray; options...) = aside!(D -> $f(g, D, X; options...), C)
end
Base.clamp!(C::Target, low, high) = (C .= clamp.(C, low, high); C)
Base.replace!(C::Target, pairs::Pair...; options...) = aside!(D -> replace!(D, pairs...; options...), C)
# Numbers in the place of zeros fill the matrix, as those of a function do.
function Base.replace(A::BlockSparse, pairs::Pair...; count::Union{Integer, Nothing} = nothing)
    count === nothing || return replace!(copy(A), pairs...; count = count)
    return map(x -> first(replace([x], pairs...)), A)
end
for G in (Function, Type)
    @eval Base.replace!(g::$G, C::Target; options...) = aside!(D -> replace!(g, D; options...), C)
end

Base.copyto!(C::Target, to::Integer, X::AbstractArray) = copyto!(C, to, X, 1, length(X))
Base.copyto!(C::Target, to::Integer, X::AbstractArray, from::Integer) = copyto!(C, to, X, from, length(X) - from + 1)
function Base.copyto!(C::Target, to::Integer, X::AbstractArray, from::Integer, n::Integer)
    n >= 0 || throw(ArgumentError("copyto! of $n elements, expected 0 or more"))
    copyto!(view(C, to:to + n - 1), X[from:from + n - 1])
    return C
end

Random.rand!(rng::AbstractRNG, C::Target) = aside!(D -> rand!(rng, D), C)
for X in (Any, Random.Sampler)
    @eval Random.rand!(rng::AbstractRNG, C::Target, X::$X) = aside!(D -> rand!(rng, D, X), C)
end
Random.rand!(rng::AbstractRNG, C::Target, ::Type{X}) where {X} = aside!(D -> rand!(rng, D, X), C)
Random.randn!(rng::AbstractRNG, C::Target) = aside!(D -> randn!(rng, D), C)
Random.randexp!(rng::AbstractRNG, C::Target) = aside!(D -> randexp!(rng, D), C)
Random.shuffle!(rng::AbstractRNG, C::Target) = aside!(D -> shuffle!(rng, D), C)

Base.reverse!(C::VectorTarget) = aside!(reverse!, C)
Base.reverse!(C::VectorTarget, from::Integer) = aside!(D -> reverse!(D, from), C)
Base.reverse!(C::VectorTarget, from::Integer, to::Integer) = aside!(D -> reverse!(D, from, to), C)
Base.permute!(C::Target, order::AbstractVector) = aside!(D -> permute!(D, order), C)
Base.invpermute!(C::Target, order::AbstractVector) = aside!(D -> invpermute!(D, order), C)
Base.sort!(C::VectorTarget; options...) = aside!(D -> sort!(D; options...), C)
Base.sort!(C::MatrixTarget; dims::Integer, options...) = aside!(D -> sort!(D; dims = dims, options...), C)
