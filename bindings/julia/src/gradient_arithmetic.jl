# SPDX-License-Identifier: Apache-2.0
# Arithmetic of tracked objects, and functions of tracked numbers.

# A gradient in the form of the array that it belongs to; that of a number is a number.
shaped(g, x::Number) = g isa Number ? oftype(x, g) : oftype(x, sum(g))
shaped(g::AbstractArray, x::AbstractArray) = size(g) == size(x) ? g : reshape(g, size(x))
shaped(g::AbstractArray, A::BlockSparse) = on_layout(A, g)
shaped(g, x) = g

on_layout(A::BlockSparseMatrix{T}, g::BlockSparseMatrix{T}) where {T} = A.layout == g.layout ? g : project(g, A.layout)
on_layout(A::BlockSparseMatrix{T}, g) where {T} = BlockSparseMatrix(convert(Matrix{T}, g), A.layout)
on_layout(A::BlockSparseMatrix{T}, g::Compressed) where {T} =
    project(BlockSparseMatrix(SparseMatrixCSC{T, Int}(compressed(g)), cutting(A)), A.layout)
on_layout(A::TransposedBlocks, g) = transpose(on_layout(parent(A), transpose(g)))

const Constant = Union{Number, AbstractArray, DeviceArray, DeviceBlockSparseMatrix}
for (f, left, right) in ((:+, :g, :g), (:-, :g, :(-g)))
    @eval Base.$f(a::Tracked, b::Tracked) = record(g -> (shaped($left, a.value), shaped($right, b.value)), $f(a.value, b.value), a, b)
    @eval Base.$f(a::Tracked, b::Constant) = record(g -> (shaped($left, a.value),), $f(a.value, b), a)
    @eval Base.$f(a::Constant, b::Tracked) = record(g -> (shaped($right, b.value),), $f(a, b.value), b)
end
Base.:+(a::Tracked) = a
Base.:-(a::Tracked) = record(g -> (-g,), -a.value, a)

Base.:*(a::Tracked, b::Tracked) = record(g -> (left_gradient(a.value, b.value, g), right_gradient(a.value, b.value, g)), a.value * b.value, a, b)
Base.:*(a::Tracked, b::Constant) = record(g -> (left_gradient(a.value, b, g),), a.value * b, a)
Base.:*(a::Constant, b::Tracked) = record(g -> (right_gradient(a, b.value, g),), a * b.value, b)

# Those of a and b in a * b, given the one of the product.
left_gradient(a::Number, b::Number, g) = g * b
left_gradient(a::Number, b, g) = inner(g, b)
left_gradient(a, b::Number, g) = g * b
left_gradient(a, b, g) = shaped(columns(g) * transpose(columns(b)), a)
left_gradient(A::Union{BlockSparse, DeviceBlockSparseMatrix}, b::Number, g) = g * b
left_gradient(A::Union{BlockSparse, DeviceBlockSparseMatrix}, b, g) = sampled(A, g, transpose(columns(b)))
right_gradient(a, b, g) = shaped(transpose(columns(a)) * columns(g), b)
right_gradient(a::Number, b::Number, g) = a * g
right_gradient(a::Number, b, g) = a * g
right_gradient(a, b::Number, g) = inner(g, a)
right_gradient(a::Number, B::Union{BlockSparse, DeviceBlockSparseMatrix}, g) = a * g
right_gradient(a, B::Union{BlockSparse, DeviceBlockSparseMatrix}, g) = sampled(B, transpose(columns(a)), g)

"""
    spmm(A, B; gates = nothing)

`A * B`, where block `k` of `A` is multiplied by `gates[k]`, and skipped if that is 0. [`value_and_gradient`](@ref) knows the gradients with
respect to all three. See [`spmm!`](@ref) for memory of your own.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    spmm(A, ones(64, 3); gates = zeros(nblocks(A))) == zeros(64, 3)
"""
function spmm(A, B; gates = nothing)
    gates === nothing && return A * B
    a, b, g = untracked(A), untracked(B), untracked(gates)
    value = gated_product(a, b, g)
    any(x -> x isa Tracked, (A, B, gates)) || return value
    return record(value, A, B, gates) do grad
        found = sampled(a, grad, transpose(columns(b)))
        sums = gate_gradient!(similar(g, sum_type(eltype(a))), stored(a), stored(found); gates = g) # found is the gradient with gates then
        (found, shaped(gated_product(transpose(a), grad, g), b), shaped(in_type(eltype(g), sums), g))
    end
end
gated_product(A::BlockSparse{T}, B::AbstractVecOrMat, gates) where {T} =
    spmm!(zeros(product_type(T), size(A, 1), size(B)[2:end]...), A, in_type(T, B); gates = gates)

columns(x) = x
columns(x::AbstractVector) = reshape(x, :, 1)
inner(g::BlockSparseMatrix, b::BlockSparseMatrix) = g.layout == b.layout ? dot(elements(g), elements(b)) : sum(g .* b)
inner(g, b) = dot(g, b)

# x y at the stored blocks of A.
sampled(A::TransposedBlocks, x, y) = transpose(sampled(parent(A), transpose(columns(y)), transpose(columns(x))))
sampled(A::BlockSparseMatrix{T}, x, y) where {T} = sddmm!(similar(A), in_type(T, columns(x)), in_type(T, columns(y)))
sampled(A::DeviceBlockSparseMatrix, x, y) = sddmm!(copy(A), x, y)
in_type(::Type{T}, x::AbstractArray{T}) where {T} = x isa BlockSparse ? Matrix(x) : x
in_type(::Type{T}, x) where {T} = convert(Array{T}, x)

Base.:/(a::Tracked, b::Union{Number, Tracked}) = a * inv(b)
Base.:/(a::Constant, b::Tracked) = a * inv(b)
Base.:^(a::Tracked, b::Union{Number, Tracked}) = broadcast(^, number(a), b)
Base.:^(a::Number, b::Tracked) = broadcast(^, a, number(b))

# The same functions of a number are broadcast.
number(x::Tracked{<:Number}) = x
number(x::Tracked) = throw(ArgumentError("a function of a $(typeof(x.value)) has no gradient, expected a number, or broadcasting: f.(x)"))
const SMOOTH = (:abs, :abs2, :acos, :asin, :atan, :cos, :cosh, :exp, :expm1, :inv, :log, :log1p, :log2, :log10, :sin, :sinh, :sqrt, :tan, :tanh)
for f in SMOOTH
    @eval Base.$f(x::Tracked) = broadcast($f, number(x))
end
for f in (:max, :min)
    @eval Base.$f(a::Tracked, b::Union{Number, Tracked}) = broadcast($f, number(a), b)
    @eval Base.$f(a::Number, b::Tracked) = broadcast($f, a, number(b))
end
for f in (:<, :<=, :(==), :isless)
    @eval Base.$f(a::Tracked, b::Tracked) = $f(a.value, b.value)
    @eval Base.$f(a::Tracked, b::Number) = $f(a.value, b)
    @eval Base.$f(a::Number, b::Tracked) = $f(a, b.value)
end
