# SPDX-License-Identifier: Apache-2.0
# Writing to many elements at once: broadcasting, assignment, copies and multiples in place. Only stored blocks can hold
# values. Writing a zero elsewhere does nothing, as in SparseArrays; any other number there is refused. New values are
# computed in full before the first is stored, so a call that fails leaves its operands as they were.

using Base.Broadcast: Broadcasted, AbstractArrayStyle, DefaultArrayStyle, instantiate, broadcasted

const BlocksView{T} = SubArray{T, N, <:BlockSparse} where {N}

Base.copyto!(A::BlockSparseMatrix, values::Broadcasted{Nothing}) = assign!(A, values)
Base.copyto!(A::BlockSparseMatrix, values::Broadcasted{<:AbstractArrayStyle{0}}) = assign!(A, values)
Base.copyto!(A::TransposedBlocks, values::Broadcasted{Nothing}) = assign_places!(A, CartesianIndices(A), values)
Base.copyto!(A::TransposedBlocks, values::Broadcasted{<:AbstractArrayStyle{0}}) = assign_places!(A, CartesianIndices(A), values)
Base.copyto!(A::BlocksView, values::Broadcasted{Nothing}) = assign_view!(A, values)
Base.copyto!(A::BlocksView, values::Broadcasted{<:AbstractArrayStyle{0}}) = assign_view!(A, values)
Base.fill!(A::Union{BlockSparse, BlocksView}, x) = (A .= x; A)

const Copied = Union{BlockSparse, Array, BitArray, SubArray, Base.ReinterpretArray, Base.ReshapedArray, PermutedDimsArray}
function Base.copyto!(A::Union{BlockSparse, BlocksView}, X::Copied)
    size(A) == size(X) && return A .= X
    length(X) <= length(A) || throw(BoundsError(A, length(X)))
    assign_places!(A, Iterators.take(CartesianIndices(A), length(X)), X)
    return A
end

for n in 1:2
    xs = [Symbol(:x, i) for i in 1:n]
    @eval Base.map!(f, A::Union{BlockSparse, BlocksView}, $((:($x::AbstractArray) for x in xs)...)) = map_into!(f, A, $(xs...))
end
Base.map!(f, A::Union{BlockSparse, BlocksView}, x::AbstractArray, y::AbstractArray, rest::AbstractArray...) =
    map_into!(f, A, x, y, rest...)
function map_into!(f, A, xs...)
    all(x -> size(x) == size(A), xs) || throw(DimensionMismatch("map! into a matrix of size $(size(A)) has arrays of sizes " *
                                                                "$(join(map(size, xs), ", ")), expected equal ones"))
    return A .= f.(xs...)
end

function Base.setindex!(A::BlockSparse, X, i::Union{Real, Colon, AbstractArray}, j::Union{Real, Colon, AbstractArray})
    rows, cols = to_indices(A, (i, j))
    checkbounds(A, rows, cols)
    rows isa Int && cols isa Int && return A[rows, cols] = X
    X isa AbstractArray || throw(ArgumentError("A[$i, $j] = x sets many elements, expected an array x, or A[$i, $j] .= x"))
    Base.setindex_shape_check(X, length(rows), length(cols))
    assign_places!(A, Iterators.product(rows, cols), X)
    return A
end

LinearAlgebra.axpy!(a, X::AbstractArray, A::BlockSparse) = (A .+= a .* X; A)
LinearAlgebra.axpby!(a, X::AbstractArray, b, A::BlockSparse) = (A .= a .* X .+ b .* A; A)
LinearAlgebra.rmul!(A::BlockSparseMatrix, x::Number) = (A.values .*= real_number(x); A)
LinearAlgebra.lmul!(x::Number, A::BlockSparseMatrix) = rmul!(A, x)
LinearAlgebra.rdiv!(A::BlockSparseMatrix, x::Number) = (A.values ./= real_number(x); A)
LinearAlgebra.ldiv!(x::Number, A::BlockSparseMatrix) = rdiv!(A, x)
LinearAlgebra.rmul!(A::TransposedBlocks, x::Number) = (rmul!(A.parent, x); A)
LinearAlgebra.lmul!(x::Number, A::TransposedBlocks) = (rmul!(A.parent, x); A)
LinearAlgebra.rdiv!(A::TransposedBlocks, x::Number) = (rdiv!(A.parent, x); A)
LinearAlgebra.ldiv!(x::Number, A::TransposedBlocks) = (rdiv!(A.parent, x); A)

real_number(x::Real) = x
real_number(x) = isreal(x) ? real(x) : throw(ArgumentError("x is $x, expected a real number"))

# ---- Whole matrices ----

# If every array is block-sparse and has no blocks that A lacks, whole blocks are computed; outside them all
# elements are equal.
function assign!(A::BlockSparseMatrix{T}, expression::Broadcasted) where {T}
    expect_one_head(A, "A .= x")
    isopen(A) || throw(closed_error(A.handle))
    blockwise = on_blocks(A, expression)
    blockwise === nothing && return assign_places!(A, CartesianIndices(A), expression)
    nblocks(A) == prod(gridsize(A)) || expect_zero_outside(A, expression)
    values = instantiate(Broadcasted{DefaultArrayStyle{3}}(blockwise.f, blockwise.args, axes(A.values)))
    new = copy(A.values)
    rows, cols, _ = coordinates(A.layout)
    for k in 1:nblocks(A)
        inside = stored_part(A, rows[k], cols[k])
        for j in inside[2], i in inside[1]
            @inbounds new[i, j, k] = values[CartesianIndex(i, j, k)]
        end
    end
    copyto!(A.values, new)
    return A
end

function expect_zero_outside(A, expression)
    # For an element that is stored nowhere, each block-sparse array contributes a zero.
    x = at_zero(expression)
    iszero(x) || throw(ArgumentError("A .= x sets elements to $x that lie in no stored block, expected 0 there: use grow and " *
                                     "project, or Matrix(A), or sparse(A)"))
end
at_zero(x::Broadcasted) = x.f(map(at_zero, x.args)...)
at_zero(x::BlockSparse{T}) where {T} = zero(T)
at_zero(x::Ref) = x[]
at_zero(x) = x

# The expression with values instead of matrices, or nothing if it has other arrays.
on_blocks(A, x::Number) = x
on_blocks(A, x::Ref) = x
on_blocks(A, x) = nothing
on_blocks(A, x::BlockSparseMatrix) = x.layout == A.layout ? x.values :
    size(x) == size(A) && blocksize(x) == blocksize(A) && heads(x) == 1 && issubset(x.layout, A.layout) ?
    project(x, A.layout).values : nothing
function on_blocks(A, x::Broadcasted)
    args = map(y -> on_blocks(A, y), x.args)
    return any(y -> y === nothing, args) ? nothing : broadcasted(x.f, args...)
end

# ---- Single elements ----

# The element of the matrix that an element of a view, or an index of any kind, refers to.
place(A, p::Tuple{Int, Int}) = p
place(A, p::Tuple{CartesianIndex{2}}) = Tuple(p[1])
place(A, p::CartesianIndex{2}) = Tuple(p)
place(A, p::Tuple{Int}) = Tuple(CartesianIndices(A)[p[1]])

function assign_view!(V::BlocksView{T}, expression) where {T}
    assign_places!(parent(V), Iterators.product(parentindices(V)...), expression)
    return V
end

# The elements of `values` for the places, in their order.
function assign_places!(A::BlockSparse{T}, places, values) where {T}
    expect_one_head(A, "A .= x")
    isopen(A) || throw(closed_error(stored(A).handle))
    slots, new = Int[], T[]
    for (p, value) in zip(places, values)
        i, j = place(A, p)
        x = convert(T, value)
        k = is_flipped(A) ? slot(parent(A), j, i) : slot(A, i, j)
        k == 0 && !iszero(x) && not_stored(i, j)
        k == 0 || (push!(slots, k); push!(new, x))
    end
    for (k, x) in zip(slots, new)
        stored(A).values[k] = x
    end
    return A
end
