# SPDX-License-Identifier: Apache-2.0
# Rows and columns in another order, copies side by side, and what needs a dense matrix, which is refused.

function Base.reverse(A::BlockSparse; dims = :)
    dims isa Colon || dims in (1, 2, (1, 2), (2, 1)) || throw(ArgumentError("dims is $dims, expected 1, 2 or (1, 2)"))
    rows, cols = dims isa Colon ? (true, true) : (1 in dims, 2 in dims)
    return A[rows ? (end:-1:1) : (:), cols ? (end:-1:1) : (:)]
end
Base.rot180(A::BlockSparse) = A[end:-1:1, end:-1:1]
Base.rotl90(A::BlockSparse) = transpose(A)[end:-1:1, :]
Base.rotr90(A::BlockSparse) = transpose(A)[:, end:-1:1]
Base.circshift(A::BlockSparse, shift::Real) = circshift(A, (shift,))
function Base.circshift(A::BlockSparse, shifts::Tuple{Vararg{Integer}})
    length(shifts) <= 2 || throw(ArgumentError("there are $(length(shifts)) shifts, expected at most 2"))
    return A[(circshift(1:size(A, d), d <= length(shifts) ? shifts[d] : 0) for d in 1:2)...]
end
Base.repeat(A::BlockSparse, m::Integer, n::Integer = 1) = A[repeat(1:size(A, 1), m), repeat(1:size(A, 2), n)]

for (f, code) in ((:hcat, :TARTAN_RIGHTWARD), (:vcat, :TARTAN_DOWN))
    @eval Base.reduce(::typeof($f), parts::AbstractVector{<:BlockSparse}) = join_list(Raw.$code, $f, parts)
end
function join_list(direction, with_sparse, parts)
    length(parts) <= 1 && return copy(first(parts))
    P = mapreduce(eltype, promote_type, parts)
    can_hold(P) || return reduce(with_sparse, map(sparse, parts))
    return joined(direction, BlockSparseMatrix{P}[convert(BlockSparseMatrix{P}, plain(x)) for x in parts])
end

# SparseArrays refuses these for a SparseMatrixCSC too, or has no method.
for f in (:eigvals, :eigmax, :eigmin, :eigen, :svd, :svdvals, :pinv, :nullspace, :schur, :hessenberg, :bunchkaufman, :exp, :log, :sqrt, :sin, :cos)
    home = f in (:exp, :log, :sqrt, :sin, :cos) ? :Base : :LinearAlgebra
    @eval $home.$f(A::BlockSparse; options...) = throw(ArgumentError($("$f(A) needs all elements, and a dense matrix is not made unasked: " *
        "$f(Matrix(A)) makes a copy of all elements; packages such as Arpack and KrylovKit take A as it is")))
end
# Blocks have no compressed columns.
for f in (:rowvals, :nzrange, :getcolptr)
    @eval SparseArrays.$f(A::BlockSparse, rest...) = throw(ArgumentError($("$f: a matrix in blocks has no compressed columns, expected " *
        "a SparseMatrixCSC: S = sparse(A), then $f(S); coordinates(A.layout) are those of the blocks")))
end
Base.:^(A::BlockSparse, p::AbstractFloat) = isinteger(p) ? A^Int(p) :
    throw(ArgumentError("A^$p needs all elements, expected a whole number: Matrix(A)^$p makes a copy of all elements"))
LinearAlgebra.rank(A::BlockSparse; options...) = rank(sparse(A); options...)
Base.oneunit(A::BlockSparse) = one(A)
# Rows or columns are compared, and elements moved, in a dense copy.
function Base.sortslices(A::BlockSparse; dims::Integer, options...)
    dims in (1, 2) || throw(ArgumentError("dims is $dims, expected 1 or 2"))
    D = small_copy(A, "sortslices")
    order = sortperm(collect(dims == 1 ? eachrow(D) : eachcol(D)); options...)
    return dims == 1 ? A[order, :] : A[:, order]
end
Random.shuffle(rng::AbstractRNG, A::BlockSparse) = sparse(shuffle!(rng, small_copy(A, "shuffle")))
function small_copy(A::BlockSparse{T}, name) where {T}
    expect_fits(size(A), sizeof(T), "$name makes a copy of all", "use permute_blocks, or A[rows, cols] with an order of your own")
    return Matrix(A)
end
Base.cumsum(A::BlockSparse; dims::Integer) = cumsum(sparse(A); dims = dims)
Base.accumulate(f, A::BlockSparse; options...) = accumulate(f, sparse(A); options...)
Base.diff(A::BlockSparse; dims::Integer) = diff(sparse(A); dims = dims)
SparseArrays.blockdiag(A::BlockSparse, B::Compressed, more::Union{BlockSparse, Compressed}...) = blockdiag(map(sparse, (A, B, more...))...)
for n in 1:4
    xs = [Symbol(:S, i) for i in 1:n]
    @eval SparseArrays.blockdiag($((:($x::SparseMatrixCSC) for x in xs)...), A::BlockSparse, more::Union{BlockSparse, Compressed}...) =
        blockdiag($(xs...), map(sparse, (A, more...))...)
end
