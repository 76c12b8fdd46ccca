# SPDX-License-Identifier: Apache-2.0
# Writing to parts of a matrix: views, assignment. Only stored blocks can hold values. Writing a zero elsewhere does nothing,
# as in SparseArrays; any other number there is refused. New values are computed in full before the first is stored, so a
# call that fails leaves its operands as they were. (broadcast.jl writes whole matrices.)

# vec(A), and the parent of view(A, [1, 5]), are such; of a part of a matrix, too.
const Flattened{T, N} = Base.ReshapedArray{T, N, <:Union{BlockSparse, SubArray{<:Any, <:Any, <:BlockSparse}}}
const BlocksView{T, N} = Union{Flattened{T, N}, SubArray{T, N, <:Union{BlockSparse, Flattened}}}

Base.copyto!(A::BlocksView, values::Broadcasted{Nothing}) = assign_view!(A, values)
Base.copyto!(A::BlocksView, values::Broadcasted{BlockSparseStyle}) = assign_view!(A, copy(values))
function Base.copyto!(A::BlocksView, values::Broadcasted{<:AbstractArrayStyle{0}})
    is_one_number(values) && return fill!(A, values.args[1][])
    return assign_view!(A, values)
end
is_one_number(bc) = bc.f === identity && !(bc.args[1] isa Broadcasted)

function Base.fill!(V::BlocksView{T}, x) where {T}
    is_whole(V) && return (fill!(matrix_of(V), x); V)
    at = parentindices(V)
    parent(V) isa BlockSparse && length(at) == 2 && all(i -> i isa Union{Integer, AbstractVector}, at) || return assign_view!(V, Iterators.repeated(x))
    i, j = map(as_places, parent(V) isa TransposedBlocks ? reverse(at) : at)
    assign!(stored(parent(V)), convert(T, x), i, j)
    return V
end
as_places(i::Integer) = i:i
as_places(i::AbstractVector) = i

# Arrays of another size are copied element by element, from the first on.
const Copied = Union{BlockSparse, SparseMatrixCSC, SparseVector, Array, BitArray, SubArray, Base.ReinterpretArray, Base.ReshapedArray,
                     PermutedDimsArray, Adjoint, Transpose, AbstractRange, Symmetric, Hermitian, Diagonal, UpperTriangular, LowerTriangular}
for D in (BlockSparse, BlocksView)
    @eval Base.copyto!(A::$D, X::Copied) = copy_elements!(A, X)
end
Base.copyto!(V::BlocksView, X::BlockSparse) = copy_elements!(V, X)
function copy_elements!(A, X)
    size(A) == size(X) && return A .= X
    length(X) <= length(A) || throw(BoundsError(A, length(X)))
    assign_places!(matrix_of(A), Iterators.take(places_of(A), length(X)), X)
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
    X isa Union{BlockSparse, Compressed} && size(X) == (length(rows), length(cols)) &&
        return (A isa TransposedBlocks ? assign!(parent(A), transpose(X), cols, rows) : assign!(A, X, rows, cols); A)
    assign_places!(A, Iterators.product(rows, cols), X)
    return A
end

# ---- Single elements ----

# The matrix that a view shows, whether it shows all of it in order, and the places of its elements there.
matrix_of(A::BlockSparse) = A
matrix_of(V) = parent(V) isa BlockSparse ? parent(V) : matrix_of(parent(V))
is_whole(A::BlockSparse) = true
is_whole(V::Base.ReshapedArray) = is_whole(parent(V))
is_whole(V::SubArray) = all(i -> i isa Base.Slice, parentindices(V)) && is_whole(parent(V))
places_of(A::BlockSparse) = CartesianIndices(A)
places_of(V::BlocksView) = (place_at(V, k) for k in 1:length(V))
place_at(A::BlockSparse, k) = CartesianIndices(A)[k]
place_at(V::Base.ReshapedArray, k) = place_at(parent(V), k)
place_at(V::SubArray, k) = place_at(parent(V), LinearIndices(parent(V))[Base.reindex(parentindices(V), Tuple(CartesianIndices(V)[k]))...])

function assign_view!(V::BlocksView, expression)
    assign_places!(matrix_of(V), places_of(V), expression)
    return V
end

# The elements of `values` for the places, in their order.
function assign_places!(A::BlockSparse{T}, places, values) where {T}
    expect_one_head(A, "A .= x")
    isopen(A) || throw(closed_error(stored(A).handle))
    slots, new = Int[], T[]
    for (p, value) in zip(places, values)
        i, j = Tuple(p)
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

# ---- Sparse matrices and single numbers, written to rows and columns ----

# Zeros in the rows and columns given, then the other numbers at their places, all of which are stored.
# `X` is a sparse matrix, or a number for all the elements.
function assign!(A::BlockSparseMatrix{T}, X, rows, cols) where {T}
    checkbounds(A, rows, cols)
    expect_one_head(A, "A[i, j] = X")
    isopen(A) || throw(closed_error(A.handle))
    allunique(rows) && allunique(cols) || return assign_in_order!(A, X, rows, cols)
    i, j, x = numbers_in(X, T, rows, cols)
    expect_places(A, i, j)
    clear_elements!(A, rows, cols)
    return write_elements!(A, i, j, x)
end

# The last of several numbers for an element stays.
function assign_in_order!(A::BlockSparseMatrix{T}, X, rows, cols) where {T}
    places = [(p, q) for q in eachindex(cols) for p in eachindex(rows)]
    i, j = [rows[p] for (p, q) in places], [cols[q] for (p, q) in places]
    x = T[X isa Number ? X : X[p, q] for (p, q) in places]
    last_of = Dict(zip(zip(i, j), x))
    keep = [k for k in eachindex(x) if !iszero(last_of[(i[k], j[k])])]
    expect_places(A, i[keep], j[keep])
    return write_elements!(A, i, j, x)
end

function numbers_in(X::Number, ::Type{T}, rows, cols) where {T}
    value = convert(T, X)
    iszero(value) && return (Int[], Int[], T[])
    return ([i for j in cols for i in rows], [j for j in cols for i in rows], fill(value, length(rows) * length(cols)))
end
function numbers_in(X, ::Type{T}, rows, cols) where {T}
    p, q, x = findnz(compressed(X))
    keep = findall(!iszero, x)
    return (Vector{Int}(rows[p[keep]]), Vector{Int}(cols[q[keep]]), convert(Vector{T}, x[keep]))
end

function expect_places(A, i, j)
    isempty(i) && return nothing
    k = findfirst(==(0), findblock(A.layout, blocks_at(A, i, j)...))
    k === nothing || not_stored(i[k], j[k])
    return nothing
end

write_elements!(A, i, j, x) = (isempty(i) || Raw.tartan_matrix_set_elements(A, (nothing, i .- 1, j .- 1), described(as_it_is, x), false); A)

# Zeroes the stored elements in these rows and columns.
function clear_elements!(A, rows, cols)
    (isempty(rows) || isempty(cols)) && return nothing
    by_block_row, by_block_col = map(grouped, (rows, cols), cutting(A))
    few = length(by_block_row) * length(by_block_col) < nblocks(A)
    if few
        at = [(I, J) for I in keys(by_block_row) for J in keys(by_block_col)]
        ids = findblock(A.layout, first.(at), last.(at))
    else
        block_rows, block_cols, _ = coordinates(A.layout)
        at, ids = collect(zip(block_rows, block_cols)), 1:nblocks(A)
    end
    for ((I, J), k) in zip(at, ids)
        k > 0 && haskey(by_block_row, I) && haskey(by_block_col, J) && (A.values[by_block_row[I], by_block_col[J], k] .= zero(eltype(A)))
    end
end

# Positions inside their block, by block.
function grouped(lines, cuts)
    groups = Dict{Int, Vector{Int}}()
    for i in lines
        k = block_at(cuts, i)
        push!(get!(groups, k, Int[]), i - first(cuts[k]) + 1)
    end
    return groups
end
