# SPDX-License-Identifier: Apache-2.0
# Element by element: broadcasting and map. A function of block-sparse matrices and numbers is computed at the stored blocks of
# the operands and, once, for what lies outside of them. What is not zero there fills the whole matrix, as for SparseArrays.

using Base: Broadcast
using Base.Broadcast: Broadcasted, AbstractArrayStyle, DefaultArrayStyle, broadcasted

struct BlockSparseStyle <: AbstractArrayStyle{2} end
BlockSparseStyle(::Val{0}) = BlockSparseStyle()
BlockSparseStyle(::Val{1}) = BlockSparseStyle()
BlockSparseStyle(::Val{2}) = BlockSparseStyle()
BlockSparseStyle(::Val{N}) where {N} = DefaultArrayStyle{N}()
Broadcast.BroadcastStyle(::Type{<:BlockSparse}) = BlockSparseStyle()
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::AbstractArrayStyle{0}) = style
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::AbstractArrayStyle{1}) = style
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::AbstractArrayStyle{2}) = style
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::BlockSparseStyle) = style
# Dense arrays have such methods for any number of dimensions, and so have the styles of SparseArrays.
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::DefaultArrayStyle{0}) = style
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::DefaultArrayStyle{1}) = style
Broadcast.BroadcastStyle(style::BlockSparseStyle, ::DefaultArrayStyle{2}) = style
Broadcast.BroadcastStyle(::BlockSparseStyle, ::DefaultArrayStyle{N}) where {N} = DefaultArrayStyle{N}()

# ---- What an operand is ----

# The leaves of an expression.
leaves(x::Broadcasted) = leaves(x.args)
leaves(x::Tuple) = isempty(x) ? () : (leaves(x[1])..., leaves(Base.tail(x))...)
leaves(x) = (x,)

# Replaces each leaf x by f(x).
replace_leaves(f, x::Broadcasted{S}) where {S} = broadcasted(x.f, map(y -> replace_leaves(f, y), x.args)...)
replace_leaves(f, x) = f(x)

is_number(x) = ndims(typeof(x)) == 0
is_number(::Tuple) = false
is_dense(x) = !is_number(x) && !(x isa BlockSparse)
# Sparse and structured operands of other packages: the whole expression becomes one of SparseArrays.
is_foreign(x) = x isa Union{AbstractSparseArray, Sparselike}

value_of(x) = x[]

# ---- What lies outside of the stored blocks ----

struct Unknown end

# The value outside of the blocks of `layout`, Unknown() if that is not the same everywhere, and the layout; nothing
# for no blocks. A product with such a zero is zero: what is not stored is not computed.
outside(x::BlockSparseMatrix{T}) where {T} = (zero(T), x.layout)
outside(x) = is_number(x) ? (value_of(x), nothing) : (Unknown(), nothing)
outside(x::Broadcasted) = outside(x.f, map(outside, x.args))

is_zero(x) = x isa Number && iszero(x)

function outside(::typeof(*), args::Tuple)
    zeros = filter(x -> x[2] !== nothing && is_zero(x[1]), collect(Any, args))
    isempty(zeros) && return outside_of_all(*, args)
    all(x -> !(x[1] isa Unknown), args) || return (first(zeros)[1], mapreduce(last, common_blocks, zeros))
    value = *(map(first, args)...)
    is_zero(value) || return outside_of_all(*, args)
    return (value, mapreduce(last, common_blocks, zeros))
end
outside(f::typeof(/), args::Tuple{Any, Any}) = outside_of_quotient(f, args, args[1], args[2])
outside(f::typeof(\), args::Tuple{Any, Any}) = outside_of_quotient(f, args, args[2], args[1])
outside(f, args::Tuple) = outside_of_all(f, args)

outside_of_quotient(f, args, over, under) =
    under[1] isa Unknown && over[2] !== nothing && is_zero(over[1]) ? over : outside_of_all(f, args)

function outside_of_all(f, args)
    any(x -> x[1] isa Unknown, args) && return (Unknown(), nothing)
    return (f(map(first, args)...), mapreduce(last, all_blocks, args))
end
common_blocks(a, b) = a === b || a == b ? a : intersect(a, b)
all_blocks(a, ::Nothing) = a
all_blocks(::Nothing, b) = b
all_blocks(::Nothing, ::Nothing) = nothing
all_blocks(a, b) = a === b || a == b ? a : union(a, b)

# ---- Computing ----

# The values of an operand at the blocks of a layout, as an array of the shape of its values.
at_blocks(x::BlockSparseMatrix, layout) = safe_values(x.layout === layout || x.layout == layout ? x : project(x, layout))
at_blocks(x::AbstractArray, layout) = is_number(x) ? x : sampled(x, layout)
at_blocks(x::Tuple, layout) = sampled(collect(x), layout)
at_blocks(x, layout) = x

# The elements of a dense array, or of one that is expanded, at the blocks of a layout.
function sampled(x::AbstractArray{T}, layout) where {T}
    br, bc = blocksize(layout)
    result = zeros_of(T, br, bc, nblocks(layout))
    row_cuts, col_cuts = cutting(layout)
    rows, cols, _ = coordinates(layout)
    for k in eachindex(rows)
        copy_part!(result, k, x, row_cuts[rows[k]], col_cuts[cols[k]])
    end
    return result
end
zeros_of(::Type{T}, n...) where {T<:Number} = zeros(T, n...)
zeros_of(::Type{T}, n...) where {T} = Array{T}(undef, n...)
function copy_part!(result, k, x, rows, cols)
    tall, wide = size(x, 1) > 1, size(x, 2) > 1
    first_row, first_col = first(axes(x, 1)) - 1, first(axes(x, 2)) - 1
    for (c, j) in enumerate(cols), (r, i) in enumerate(rows)
        result[r, c, k] = x[first_row + (tall ? i : 1), first_col + (wide ? j : 1)]
    end
end

# All matrices are cut as the first one is, unless another way is asked for.
expression_of(bc::Broadcasted, at = cutting(first(filter(x -> x isa BlockSparse, leaves(bc))))) =
    replace_leaves(x -> x isa BlockSparse ? in_blocks(x, at) : x, bc)

# The matrix itself; that of a view is a copy.
plain(A::BlockSparseMatrix) = A
plain(A::TransposedBlocks) = copy(A)

function expect_equal_heads(matrices)
    n = heads(first(matrices))
    all(x -> heads(x) == n, matrices) ||
        throw(DimensionMismatch("the matrices have $(join(map(heads, matrices), ", ", " and ")) heads, expected equal numbers"))
    return n
end

element_type(bc::Broadcasted) = Broadcast.combine_eltypes(bc.f, bc.args)

Base.copy(bc::Broadcasted{BlockSparseStyle}) = computed(bc, leaves(bc))

# W .* X and X .* W, which are written most, without what the general case compiles.
const Masked{T, S} = Union{Broadcasted{BlockSparseStyle, <:Any, typeof(*), Tuple{BlockSparseMatrix{T}, Matrix{S}}},
                           Broadcasted{BlockSparseStyle, <:Any, typeof(*), Tuple{Matrix{S}, BlockSparseMatrix{T}}}}
function Base.copy(bc::Masked{T, S}) where {T<:Union{Float64, Float32}, S<:Union{Float64, Float32}}
    (A, X) = bc.args[1] isa Matrix ? (bc.args[2], bc.args[1]) : bc.args
    size(A) == size(X) && heads(A) == 1 && return times_elements(A, X, promote_type(T, S))
    general = Ref{Any}(computed)[] # compiled when it is called
    return general(bc, bc.args)::Union{BlockSparseMatrix{promote_type(T, S)}, Matrix{promote_type(T, S)}}
end
function times_elements(A, X, ::Type{P}) where {P}
    row_cuts, col_cuts = cutting(A)
    values = zeros(P, size(A.values))
    block_rows, block_cols, _ = coordinates(A.layout)
    for k in eachindex(block_rows)
        rows, cols = row_cuts[block_rows[k]], col_cuts[block_cols[k]]
        @inbounds for (j, col) in enumerate(cols), (i, row) in enumerate(rows)
            values[i, j, k] = A.values[i, j, k] * X[row, col]
        end
    end
    return BlockSparseMatrix(A.layout, values)
end

function computed(bc, operands)
    any(is_foreign, operands) && return sparse_result(bc, element_type(bc))
    return any(is_dense, operands) ? with_dense(bc, operands, element_type(bc)) : without_dense(bc, operands, element_type(bc))
end
to_sparse(x) = x isa Union{BlockSparse, Sparselike} ? compressed(x) : x

function without_dense(bc, operands, ::Type{T}) where {T}
    can_hold(T) || return without_blocks(bc, operands, T)
    matrices = filter(x -> x isa BlockSparse, operands)
    all(x -> size(x) == length.(axes(bc)), matrices) ||
        return BlockSparseMatrix{T}(Broadcast.materialize(replace_leaves(to_sparse, bc)), blocksize(first(matrices)))
    expect_equal_heads(matrices)
    expression = expression_of(bc)
    value, layout = outside(expression)
    return at_layout(expression, is_zero(value) ? layout : full_layout(layout, T), T)
end

function with_dense(bc, operands, ::Type{T}) where {T}
    matrices = filter(x -> x isa BlockSparse, operands)
    foreach(x -> expect_one_head(x, "broadcasting with a dense array"), matrices)
    all(x -> size(x) == length.(axes(bc)), matrices) || return dense_result(bc, T)
    expression = expression_of(bc)
    value, layout = outside(expression)
    return is_zero(value) && can_hold(T) ? at_layout(expression, layout, T) : dense_result(bc, T)
end
# A SparseMatrixCSC stores all elements if what zeros give is not zero.
function sparse_result(bc, ::Type{T}) where {T}
    value, _ = outside(replace_leaves(x -> x isa BlockSparse || is_foreign(x) ? zero(eltype(x)) : x, bc))
    is_zero(value) || value isa Unknown || expect_fits(length.(axes(bc)), size_of(T))
    S = Broadcast.materialize(replace_leaves(to_sparse, bc))
    # Of types as functions, as in Int.(round.(A)), SparseArrays may not know what they make.
    return S isa SparseMatrixCSC{Any} && isconcretetype(T) ? SparseMatrixCSC{T, Int}(S) : S
end
size_of(::Type{T}) where {T} = isbitstype(T) ? sizeof(T) : sizeof(Int)

function dense_result(bc, ::Type{T}) where {T}
    expect_fits(length.(axes(bc)), size_of(T))
    return Broadcast.materialize(replace_leaves(x -> x isa BlockSparse ? Matrix(x) : x, bc))
end

at_layout(expression, layout, ::Type{T}) where {T} =
    BlockSparseMatrix(layout, clear_padding!(values_at(expression, layout, T), layout))
function values_at(expression, layout, ::Type{T}) where {T}
    values = Array{T, 3}(undef, blocksize(layout)..., nblocks(layout))
    Broadcast.materialize!(values, replace_leaves(x -> at_blocks(x, layout), expression))
    return values
end
# Elements of a type that blocks cannot hold, such as those of A .> 0: a SparseMatrixCSC without zeros.
function without_blocks(bc, operands, ::Type{T}) where {T}
    matrices = filter(x -> x isa BlockSparse, operands)
    T <: Number && isconcretetype(T) && all(x -> size(x) == length.(axes(bc)), matrices) || return sparse_result(bc, T)
    foreach(x -> expect_one_head(x, "sparse(A)"), matrices)
    expression = expression_of(bc)
    value, layout = outside(expression)
    is_zero(value) || return sparse_result(bc, T)
    values = values_at(expression, layout, T)
    return compressed_columns(layout, values, values, Val(false))
end

# For functions of the values: zeros beside the elements of smaller blocks, where a program may have written what a function does not take.
safe_values(A::BlockSparseMatrix) = has_clear_padding(A) ? A.values : clear_padding!(copy(A.values), A.layout)
function has_clear_padding(A)
    isragged(A) || return true
    (br, bc), (row_cuts, col_cuts), values = blocksize(A), cutting(A), A.values
    rows, cols, _ = coordinates(A.layout)
    for k in eachindex(rows)
        height, width = length(row_cuts[rows[k]]), length(col_cuts[cols[k]])
        height == br && width == bc && continue
        for c in 1:bc, r in (c > width ? 1 : height + 1):br
            iszero(values[r, c, k]) || return false
        end
    end
    return true
end

# What the values have beside the elements of smaller blocks.
function clear_padding!(values, layout)
    isragged(layout) || return values
    (br, bc), (row_cuts, col_cuts) = blocksize(layout), cutting(layout)
    rows, cols, _ = coordinates(layout)
    for k in eachindex(rows)
        height, width = length(row_cuts[rows[k]]), length(col_cuts[cols[k]])
        height < br && (values[height + 1:br, :, k] .= zero(eltype(values)))
        width < bc && (values[:, width + 1:bc, k] .= zero(eltype(values)))
    end
    return values
end

const DENSE_LIMIT = 2^30 # bytes

function expect_fits(size, bytes, what = "a function that is not zero for zeros would store all", advice = "use functions that keep zeros")
    total = prod(Float64.(size)) * bytes
    total <= DENSE_LIMIT || throw(ArgumentError(string(what, " ", join(size, "×"), " elements (", round(total / 2^30; sigdigits = 3),
        " GiB), expected at most 1 GiB: ", advice)))
end

function full_layout(layout::BlockLayout, ::Type{T}) where {T}
    expect_fits(size(layout), heads(layout) * sizeof(T))
    return on_grid(layout, trues(gridsize(layout)..., heads(layout)))
end

# ---- Into a matrix ----

"""
    copyto!(A::BlockSparseMatrix, B)

Copy the elements of a matrix of the same size. Zeros of `B` that `A` does not store are ignored. If `A` does not store
another number of `B`, the call is refused and `A` does not change. `A .= B` and `A .= f.(...)` do the same.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    copyto!(similar(A), 2A)
"""
Base.copyto!(A::BlockSparse, B::BlockSparse) = write_all!(A, B)
function write_all!(A::BlockSparseMatrix, B::BlockSparse)
    A === B && return A
    expect_same_size(A, B)
    expect_equal_heads((A, B))
    isopen(A) || throw(closed_error(A.handle))
    X = in_blocks(B, cutting(A))
    if A.layout != X.layout
        expect_stored(A, setdiff(X.layout, A.layout), X)
        X = project(X, A.layout)
    end
    A.values .= X.values
    return A
end
function write_all!(A::BlockSparseMatrix, B::AbstractMatrix)
    expect_one_head(A, "A .= B")
    expect_same_size(A, B)
    return write_all!(A, blocks_for(A, B))
end
write_all!(A::TransposedBlocks, B::AbstractMatrix) = (write_all!(parent(A), transpose(B)); A)
write_all!(A::TransposedBlocks, B::BlockSparse) = (write_all!(parent(A), transpose(B)); A)
# Into a dense matrix.
Base.copyto!(C::AbstractMatrix, A::BlockSparse) = write_dense!(C, A)
Base.copyto!(C::AbstractArray{<:Any, 3}, A::BlockSparse) = copyto!(C, Array(A)) # of several heads
Base.copyto!(C::PermutedDimsArray, A::BlockSparse) = write_dense!(C, A)
Base.copyto!(C::PermutedDimsArray{T, 2}, A::BlockSparse{T}) where {T} = write_dense!(C, A)
write_dense!(C, A) = (expect_one_head(A, "copyto!"); copyto!(C, Matrix(A)))
write_dense!(C::SparseMatrixCSC{T}, A) where {T} = copyto!(C, SparseMatrixCSC{T, Int}(A))

# A matrix with the non-zeros of B, cut as A is.
blocks_for(A, B::AbstractMatrix) = BlockSparseMatrix(sparse_of(B, eltype(A)), cutting(A))
sparse_of(B, ::Type{T}) where {T} = is_foreign(B) ? SparseMatrixCSC{T, Int}(compressed(B)) : sparse(Matrix{T}(B))

expect_same_size(A, B) =
    size(A) == size(B) || throw(DimensionMismatch("the matrix has size $(size(A)), the other one $(size(B))"))

# Refuses what has no place in A: elements of B at the blocks of `missing_blocks` that are not zero.
function expect_stored(A, missing_blocks, B)
    nblocks(missing_blocks) == 0 && return nothing
    X = project(B, missing_blocks)
    all(iszero, elements(X)) && return nothing
    foreach_element(X) do i, j, head, x, k
        iszero(x) || not_stored(i, j)
    end
end

function Base.fill!(A::BlockSparseMatrix{T}, x) where {T}
    value = convert(T, x)
    isopen(A) || throw(closed_error(A.handle))
    expect_zero_outside(A, value)
    fill!(A.values, value)
    clear_padding!(A.values, A.layout)
    return A
end
Base.fill!(A::TransposedBlocks, x) = (fill!(parent(A), x); A)

stores_all(A) = nblocks(A) == prod(gridsize(A)) * heads(A)
expect_zero_outside(A, x) = is_zero(x) || x isa Unknown || stores_all(A) || throw(ArgumentError(
    "elements that lie in no stored block would become $x, expected 0 there: use grow and project, or Matrix(A), or sparse(A)"))

Base.copyto!(A::BlockSparse, bc::Broadcasted{<:AbstractArrayStyle{0}}) =
    is_one_number(bc) ? fill!(A, bc.args[1][]) :
    write_all!(A, copy(Broadcasted{DefaultArrayStyle{2}}(bc.f, bc.args, axes(A))))

# Functions that cannot fail for floating-point numbers, so that they may write in place.
const Total = Union{typeof(+), typeof(-), typeof(*), typeof(/), typeof(identity), typeof(abs), typeof(muladd), typeof(max), typeof(min)}
cannot_fail(x::Broadcasted) = x.f isa Total && all(cannot_fail, x.args)
cannot_fail(x::Union{BlockSparseMatrix, Stored, Integer, Base.RefValue{<:Stored}}) = true
cannot_fail(x) = false

in_place(A, x::Broadcasted) = all(y -> in_place(A, y), x.args)
in_place(A, x::BlockSparseMatrix) = x === A || x.layout === A.layout || x.layout == A.layout
in_place(A, x) = true

function Base.copyto!(A::BlockSparse, bc::Broadcasted{BlockSparseStyle})
    A isa TransposedBlocks && return write_all!(A, copy(bc))
    isopen(A) || throw(closed_error(A.handle))
    any(x -> is_foreign(x) || size(x) != size(A), filter(x -> x isa BlockSparse || is_foreign(x), leaves(bc))) && return write_all!(A, copy(bc))
    value, _ = outside(expression_of(bc, cutting(A)))
    expect_zero_outside(A, value)
    if cannot_fail(bc) && in_place(A, bc) && is_zero(value)
        Broadcast.materialize!(A.values, replace_leaves(x -> at_blocks(x, A.layout), bc))
        clear_padding!(A.values, A.layout)
        return A
    end
    return write_all!(A, copy(bc))
end
Base.copyto!(C::AbstractArray, bc::Broadcasted{BlockSparseStyle}) = copyto!(C, copy(bc))
# Dense and sparse operands alone, as in A .= X.
Base.copyto!(A::BlockSparse, bc::Broadcasted) = write_all!(A, copy(bc))
Base.copyto!(A::BlockSparse, bc::Broadcasted{Nothing}) = write_all!(A, copy(Broadcasted{DefaultArrayStyle{2}}(bc.f, bc.args, axes(A))))

# ---- map ----

function Base.map(f, A::BlockSparse, more::AbstractMatrix...)
    foreach(x -> expect_same_size(A, x), more)
    return broadcast(f, A, more...)
end
function Base.map(f, S::Compressed, A::BlockSparse, more::AbstractMatrix...)
    foreach(x -> expect_same_size(S, x), (A, more...))
    return broadcast(f, S, A, more...)
end
