# SPDX-License-Identifier: Apache-2.0
# Parts of matrices, matrices joined, and assignment. Results stay sparse.

# ---- Parts ----

const Places = Union{AbstractVector, Colon}

Base.getindex(A::BlockSparse, i::Places, j::Places) = part(A, to_indices(A, (i, j))...)
Base.getindex(A::BlockSparse, i::Integer, j::Places) = (checkbounds(A, i, j); elements_of(row_of(A, i), j))
Base.getindex(A::BlockSparse, i::Places, j::Integer) = (checkbounds(A, i, j); elements_of(column_of(A, j), i))
Base.getindex(A::BlockSparse, ::Colon) = sparse(A)[:]
Base.getindex(A::BlockSparse, mask::AbstractMatrix{Bool}) = sparse(A)[mask]

function part(A::BlockSparseMatrix{T}, rows, cols) where {T}
    checkbounds(A, rows, cols)
    return adopt(T, selected(A, rows, cols))
end
part(A::TransposedBlocks, rows, cols) = copy(transpose(part(parent(A), cols, rows)))
selected(A, rows::AbstractUnitRange, cols::AbstractUnitRange) = Raw.tartan_matrix_cut(nothing, A, bounds(rows)..., bounds(cols)...)
selected(A, rows, cols) = Raw.tartan_matrix_select(nothing, A, Vector{Int64}(rows) .- 1, Vector{Int64}(cols) .- 1)
bounds(x) = isempty(x) ? (0, 0) : (first(x) - 1, last(x))

# A row or a column as a sparse vector.
elements_of(v, ::Union{Colon, Base.Slice}) = v
elements_of(v, places) = v[places]
row_of(A::TransposedBlocks, i) = column_of(parent(A), i)
column_of(A::TransposedBlocks, j) = row_of(parent(A), j)
function row_of(A::BlockSparseMatrix{T}, i) where {T}
    expect_one_head(A, "A[i, :]")
    isopen(A) || throw(closed_error(A.handle))
    at, lists, (row_cuts, col_cuts) = Int(i), kept_rows(A.layout), cutting(A)
    block = block_at(row_cuts, at)
    r, ids = at - first(row_cuts[block]) + 1, in_line(lists, block)
    n = mapreduce(k -> length(col_cuts[lists.across[k]]), +, ids; init = 0)
    places, numbers, next = Vector{Int}(undef, n), Vector{T}(undef, n), 0
    for k in ids, (c, col) in enumerate(col_cuts[lists.across[k]])
        next += 1
        @inbounds places[next], numbers[next] = col, A.values[r, c, k]
    end
    return SparseVector(size(A, 2), places, numbers)
end
function column_of(A::BlockSparseMatrix{T}, j) where {T}
    expect_one_head(A, "A[:, j]")
    isopen(A) || throw(closed_error(A.handle))
    at, lists, (row_cuts, col_cuts) = Int(j), kept_columns(A.layout), cutting(A)
    block = block_at(col_cuts, at)
    c, found = at - first(col_cuts[block]) + 1, in_line(lists, block)
    n = mapreduce(k -> length(row_cuts[lists.across[k]]), +, found; init = 0)
    places, numbers, next = Vector{Int}(undef, n), Vector{T}(undef, n), 0
    for k in found
        id = lists.ids[k]
        for (r, row) in enumerate(row_cuts[lists.across[k]])
            next += 1
            @inbounds places[next], numbers[next] = row, A.values[r, c, id]
        end
    end
    return SparseVector(size(A, 1), places, numbers)
end

# ---- Views ----

# What views show is read as a part, not element by element.
const LineView{T} = Union{SubArray{T, 1, <:BlockSparse, <:Tuple{Base.Slice, Integer}}, SubArray{T, 1, <:BlockSparse, <:Tuple{Integer, Base.Slice}}}
const PartView{T} = SubArray{T, 2, <:BlockSparse}
part_of(V) = parent(V)[parentindices(V)...]
for V in (LineView, PartView)
    @eval begin
        Base.mapreduce(f, op::Reducing, X::$V; options...) = mapreduce(f, op, part_of(X); options...)
        Base.any(f::Function, X::$V; options...) = any(f, part_of(X); options...)
        Base.all(f::Function, X::$V; options...) = all(f, part_of(X); options...)
        Base.count(f, X::$V) = count(f, part_of(X))
        Base.findall(f::Function, X::$V) = findall(f, part_of(X))
        Base.findall(f::Base.Fix2{typeof(in)}, X::$V) = findall(f, part_of(X))
        LinearAlgebra.norm(X::$V, p::Real = 2) = norm(part_of(X), p)
        SparseArrays.sparse(X::$V) = sparse(part_of(X))
        Base.Array(X::$V) = Array(part_of(X))
        Base.collect(X::$V) = Array(part_of(X))
    end
end
Base.Vector(V::LineView) = Vector(part_of(V))
Base.Matrix(V::PartView) = Matrix(part_of(V))
LinearAlgebra.dot(V::LineView, x::StridedVector) = dot(part_of(V), x)
LinearAlgebra.dot(x::StridedVector, V::LineView) = dot(x, part_of(V))
LinearAlgebra.dot(V::LineView, U::LineView) = dot(part_of(V), part_of(U))
LinearAlgebra.axpy!(a::Number, V::LineView, y::StridedVector) = axpy!(a, part_of(V), y)
Base.:*(V::PartView, B::StridedVecOrMat) = part_of(V) * B
Base.:*(B::StridedMatrix, V::PartView) = B * part_of(V)
LinearAlgebra.mul!(C::StridedVecOrMat, V::PartView, B::StridedVecOrMat, a::Number, b::Number) = mul!(C, part_of(V), B, a, b)
LinearAlgebra.mul!(C::StridedVecOrMat, V::PartView, B::StridedVecOrMat) = mul!(C, part_of(V), B)

"""
    A[:, :, h]

Head `h` as a matrix of its own.
"""
function Base.getindex(A::BlockSparseMatrix, ::Colon, ::Colon, head::Integer)
    1 <= head <= heads(A) || throw(BoundsError(A, (:, :, head)))
    rows, cols, of_head = coordinates(A.layout)
    ids = findall(==(head), of_head)
    return BlockSparseMatrix(on_grid(A.layout, rows[ids], cols[ids]), A.values[:, :, ids])
end

for (f, code) in ((:tril, :TARTAN_LOWER), (:triu, :TARTAN_UPPER))
    inplace = Symbol(f, :!)
    @eval begin
        LinearAlgebra.$f(A::BlockSparse, k::Integer = 0) = triangle(A, Raw.$code, k)
        LinearAlgebra.$inplace(A::BlockSparse, k::Integer = 0) = copyto!(A, $f(A, k))
    end
end
function triangle(A::BlockSparse{T}, code, k) where {T}
    m, n = size(A)
    return adopt(T, Raw.tartan_matrix_triangle(nothing, plain(A), code, clamp(k, -m, n)))
end

function LinearAlgebra.diag(A::BlockSparse{T}, k::Integer = 0) where {T}
    expect_one_head(A, "diag")
    d = room_for_diagonal(A, k)
    A isa TransposedBlocks ? Raw.tartan_matrix_get_diagonal(nothing, parent(A), -k, d) : Raw.tartan_matrix_get_diagonal(nothing, A, k, d)
    return convert(Vector{T}, d)
end
function room_for_diagonal(A, k)
    m, n = size(A)
    -m <= k <= n || throw(ArgumentError("diagonal $k, expected $(-m) to $n for a $m x $n matrix"))
    return Vector{Float64}(undef, max(0, k >= 0 ? min(m, n - k) : min(m + k, n)))
end
function LinearAlgebra.tr(A::BlockSparse{T}) where {T}
    LinearAlgebra.checksquare(A)
    expect_one_head(A, "tr")
    trace = Vector{Float64}(undef, 1)
    Raw.tartan_matrix_trace(nothing, A isa TransposedBlocks ? parent(A) : A, 0, trace)
    return convert(T, trace[1])
end

"""
    dropzeros(A::BlockSparseMatrix)

A copy without the blocks that hold only zeros.
"""
SparseArrays.dropzeros(A::BlockSparse) = droptol(A, 0)
droptol(A::BlockSparse{T}, tolerance) where {T} = adopt(T, Raw.tartan_matrix_drop_zeros(nothing, plain(A), tolerance))
for f in (:dropzeros!, :droptol!)
    @eval SparseArrays.$f(A::BlockSparse, rest...) =
        throw(ArgumentError(string($f, " would change the layout of a matrix, which cannot change: A = dropzeros(A) makes a new one")))
end

# ---- Joined ----

const Joined = Union{AbstractVecOrMat, UniformScaling}

# The methods for one element type are more specific than those of Base.
for (f, code) in ((:hcat, :TARTAN_RIGHTWARD), (:vcat, :TARTAN_DOWN))
    @eval begin
        Base.$f(A::BlockSparse, more::Joined...) = join_all(Raw.$code, $f, (A, more...))
        Base.$f(A::BlockSparse, B::BlockSparse, more::Joined...) = join_all(Raw.$code, $f, (A, B, more...))
        Base.$f(J::UniformScaling, A::BlockSparse, more::Joined...) = join_all(Raw.$code, $f, (J, A, more...))
        Base.$f(X::AbstractVecOrMat, A::BlockSparse, more::AbstractVecOrMat...) = join_all(Raw.$code, $f, (X, A, more...))
        Base.$f(A::BlockSparse{T}, more::AbstractVecOrMat{T}...) where {T} = join_all(Raw.$code, $f, (A, more...))
        Base.$f(A::BlockSparse{T}, B::BlockSparse{T}, more::AbstractVecOrMat{T}...) where {T} = join_all(Raw.$code, $f, (A, B, more...))
        Base.$f(X::AbstractVecOrMat{T}, A::BlockSparse{T}, more::AbstractVecOrMat{T}...) where {T} = join_all(Raw.$code, $f, (X, A, more...))
    end
end
Base.hvcat(rows::Tuple{Vararg{Int}}, A::BlockSparse, more::Joined...) = grid_of_parts(rows, (A, more...))
Base.hvcat(rows::Tuple{Vararg{Int}}, J::UniformScaling, A::BlockSparse, more::Joined...) = grid_of_parts(rows, (J, A, more...))
Base.hvcat(rows::Tuple{Vararg{Int}}, X::AbstractVecOrMat, A::BlockSparse, more::AbstractVecOrMat...) = grid_of_parts(rows, (X, A, more...))
Base.hvcat(rows::Tuple{Vararg{Int}}, A::BlockSparse, B::BlockSparse, more::Joined...) = grid_of_parts(rows, (A, B, more...))

"""
    blockdiag(A::BlockSparseMatrix...)

The matrices along the diagonal of a larger one.
"""
SparseArrays.blockdiag(A::BlockSparse, more::BlockSparse...) = join_all(Raw.TARTAN_DIAGONAL, blockdiag, (A, more...))

function Base.cat(A::BlockSparse, more::Joined...; dims)
    dims = Tuple(dims)
    dims == (1,) && return vcat(A, more...)
    dims == (2,) && return hcat(A, more...)
    dims in ((1, 2), (2, 1)) && return join_all(Raw.TARTAN_DIAGONAL, blockdiag, (A, more...))
    throw(ArgumentError("cat along $dims, expected 1, 2 or (1, 2)"))
end

# All parts in blocks, or all as SparseMatrixCSC.
function join_all(direction, with_sparse, parts)
    parts = map(unwrapped, sized(direction, parts))
    P = promote_type(map(eltype, parts)...)
    all(x -> x isa Union{BlockSparse, Diagonal}, parts) && can_hold(P) || return with_sparse(map(as_compressed, parts)...)
    block = blocksize(first(filter(x -> x isa BlockSparse, parts)))
    return joined(direction, BlockSparseMatrix{P}[as_blocks(x, P, block) for x in parts])
end
# Of block-sparse matrices alone, with a type that the compiler infers.
function join_all(direction, with_sparse, parts::Tuple{BlockSparse, Vararg{BlockSparse}})
    P = common_type(parts...)
    can_hold(P) || return with_sparse(map(sparse, parts)...)
    return joined(direction, BlockSparseMatrix{P}[convert(BlockSparseMatrix{P}, plain(x)) for x in parts])
end
common_type(::BlockSparse{T}) where {T} = T
common_type(::BlockSparse{T}, more::BlockSparse...) where {T} = promote_type(T, common_type(more...))
# All at once: blocks that are spread over others would grow again with each join.
function joined(direction, parts::Vector{BlockSparseMatrix{P}}) where {P}
    length(parts) == 1 && return parts[1]
    for (way, d, lines) in ((Raw.TARTAN_RIGHTWARD, 1, "rows"), (Raw.TARTAN_DOWN, 2, "columns"))
        odd = direction == way ? findfirst(x -> size(x, d) != size(parts[1], d), parts) : nothing
        odd === nothing || throw(DimensionMismatch(
            "matrices of $(size(parts[1], d)) and $(size(parts[odd], d)) $lines cannot be joined, expected as many $lines in each"))
    end
    return adopt(P, Raw.tartan_matrix_concatenate(nothing, direction, parts))
end
as_blocks(x::BlockSparse, ::Type{P}, block) where {P} = convert(BlockSparseMatrix{P}, plain(x))
as_blocks(x::Diagonal, ::Type{P}, block) where {P} = BlockSparseMatrix(Diagonal(convert(Vector{P}, x.diag)), block)
as_compressed(x::Union{BlockSparse, Compressed}) = compressed(x)
as_compressed(x::AbstractVecOrMat) = sparse(x isa AbstractVector ? reshape(x, :, 1) : x)

# A multiple of I takes its size from its neighbours.
function sized(direction, parts)
    any(x -> x isa UniformScaling, parts) || return parts
    direction == Raw.TARTAN_DIAGONAL && throw(ArgumentError("blockdiag of I, which has no size: expected a matrix"))
    n = size(first(filter(x -> !(x isa UniformScaling), parts)), direction == Raw.TARTAN_RIGHTWARD ? 1 : 2)
    return map(x -> x isa UniformScaling ? Diagonal(fill(x.λ, n)) : x, parts)
end

function grid_of_parts(rows, parts)
    sum(rows) == length(parts) || throw(ArgumentError("$(length(parts)) matrices, expected $(sum(rows)) for rows of $rows"))
    ends = cumsum(collect(rows))
    lines = [hcat(parts[last - n + 1:last]...) for (n, last) in zip(rows, ends)]
    return vcat(lines...)
end

# ---- Kronecker products ----

"""
    kron(A::BlockSparseMatrix, B)
    kron(B, A::BlockSparseMatrix)

The Kronecker product, block-sparse if `B` is block-sparse or dense, else a `SparseMatrixCSC`.
"""
Base.kron(A::BlockSparse, D::AbstractMatrix) = kronecker(A, D, false)
Base.kron(D::AbstractMatrix, A::BlockSparse) = kronecker(A, D, true)
Base.kron(A::BlockSparse, B::BlockSparse) = BlockSparseMatrix(kron(sparse(A), sparse(B)), blocksize(B))
Base.kron(A::BlockSparse{<:Number}, D::Diagonal{<:Number}) = kron(sparse(A), sparse(D))
Base.kron(D::Diagonal{<:Number}, A::BlockSparse{<:Number}) = kron(sparse(D), sparse(A))
for S in (SparseMatrixCSC, Adjoint{<:Any, <:SparseMatrixCSC}, Transpose{<:Any, <:SparseMatrixCSC})
    @eval Base.kron(A::BlockSparse, S::$S) = kron(sparse(A), sparse(S))
    @eval Base.kron(S::$S, A::BlockSparse) = kron(sparse(S), sparse(A))
end
function kronecker(A::BlockSparse{T}, D::AbstractMatrix{S}, dense_first) where {T, S}
    P = promote_type(T, S)
    (D isa Compressed || !can_hold(P)) && return dense_first ? kron(compressed(D), sparse(A)) : kron(sparse(A), compressed(D))
    factors = convert(Matrix{P}, D)
    return adopt(P, Raw.tartan_matrix_kronecker(nothing, plain(A), described(as_it_is, factors), dense_first, dtype_code(P)))
end
