# SPDX-License-Identifier: Apache-2.0
# Reductions, norms, comparison. The elements that are not stored count as zeros.

# The stored elements in some order, without padding.
function elements(A::BlockSparseMatrix)
    isragged(A) || return vec(A.values)
    result = Vector{eltype(A)}(undef, nnz(A))
    n, at = 0, cutting(A)
    rows, cols, _ = coordinates(A.layout)
    for k in eachindex(rows)
        i, j = stored_part(at, rows[k], cols[k])
        for c in j, r in i
            result[n += 1] = A.values[r, c, k]
        end
    end
    return result
end
elements(A::TransposedBlocks) = elements(A.parent)

# The number of elements that are not stored.
not_stored_count(A) = length(A) * heads(A) - nnz(A)

const Summing = Union{typeof(+), typeof(Base.add_sum)}
const Multiplying = Union{typeof(*), typeof(Base.mul_prod)}
const Extreme = Union{typeof(max), typeof(min)}
const Reducing = Union{Summing, Multiplying, Extreme}

with_zeros(op::Extreme, result, x, n) = op(result, x)
with_zeros(op::Summing, result, x, n) = iszero(x) ? result : op(result, n * x)
with_zeros(op::Multiplying, result, x, n) = op(result, x^n)

# A reduction of n zeros.
only_zeros(op::Extreme, x, n) = x
only_zeros(op::Summing, x, n) = Base.reduce_first(op, x) * n
only_zeros(op::Multiplying, x, n) = Base.reduce_first(op, x)^n

function Base.mapreduce(f, op::Reducing, A::BlockSparse; dims = :, init...)
    dims === (:) || return reduced(f, op, A, dims; init...)
    return reduced_to_one(mapreduce_stored, f, op, A, A; init...)
end
# Without a copy: blocks without padding follow each other.
mapreduce_stored(f, op, A::TransposedBlocks; init...) = mapreduce_stored(f, op, parent(A); init...)
function mapreduce_stored(f::F, op::O, A::BlockSparseMatrix; init...) where {F, O}
    (nblocks(A) == 0 || !isragged(A)) && return mapreduce(f, op, vec(A.values); init...)
    x, result, k, (height, width) = vec(A.values), nothing, 1, blocksize(A)
    rows, cols, _ = coordinates(A.layout)
    (row_cuts, col_cuts) = cutting(A)
    while k <= length(rows)
        first = k
        while k <= length(rows) && length(row_cuts[rows[k]]) == height && length(col_cuts[cols[k]]) == width
            k += 1
        end
        at = (first - 1) * height * width
        if k > first
            y = mapreduce(f, op, view(x, at + 1:(k - 1) * height * width))
            result = result === nothing ? y : op(result, y)
        else
            for c in 1:length(col_cuts[cols[k]])
                y = reduce_run(f, op, x, at + (c - 1) * height, length(row_cuts[rows[k]]))
                result = result === nothing ? y : op(result, y)
            end
            k += 1
        end
    end
    return isempty(init) ? something(result) : op(values(init)[:init], something(result))
end
# From the first element to the last, or back, as far as zeros let the order matter.
for fold in (:mapfoldl, :mapfoldr)
    @eval Base.$fold(f, op::Reducing, A::BlockSparse; init...) =
        reduced_to_one($fold, f, op, A, heads(A) == 1 ? nonzeros(sparse(A)) : elements(A); init...)
end
function reduced_to_one(fold, f, op, A, x; init...)
    zeros = not_stored_count(A)
    x0 = f(zero(eltype(A)))
    if x === A ? nblocks(A) == 0 : isempty(x)
        zeros == 0 && return fold(f, op, x; init...)
        result = only_zeros(op, x0, zeros)
        return isempty(init) ? result : op(values(init)[:init], result)
    end
    result = fold(f, op, x; init...)
    return zeros == 0 ? result : with_zeros(op, result, x0, zeros)
end

# Along dimensions: a dense row, column or number, as for other sparse matrices.
function reduced(f, op, A::BlockSparse, dims; init...)
    expect_one_head(A, "a reduction with dims")
    A isa TransposedBlocks && return permutedims(reduced(f, op, parent(A), other_dims(dims); init...))
    by_row, by_col = 1 in dims, 2 in dims # what is reduced
    all(d -> d >= 1, dims) || throw(ArgumentError("region dimension(s) must be ≥ 1, got $dims"))
    if by_row && by_col
        return fill(mapreduce(f, op, A; init...), 1, 1)
    elseif !by_row && !by_col
        return mapreduce(f, op, Matrix(A); dims = dims, init...)
    end
    return reduced_lines(f, op, plain(A), by_row, isempty(init) ? nothing : Some(values(init)[:init]))
end
other_dims(dims::Integer) = dims == 1 ? 2 : dims == 2 ? 1 : dims
other_dims(dims) = map(other_dims, dims)

function reduced_lines(f, op, A::BlockSparseMatrix{T}, by_row, init) where {T}
    m, n = size(A)
    length_of_line, lines = by_row ? (m, n) : (n, m)
    x0 = f(zero(T))
    R = typeof(op(Base.reduce_first(op, x0), x0))
    if length_of_line == 0
        empty = init === nothing ? mapreduce(f, op, T[]) : init.value # zero or one, or an error for extremes
        return fill(empty, by_row ? (1, n) : (m, 1))
    end
    counts, result = Vector{Int}(undef, lines), Vector{R}(undef, lines)
    if has_small_blocks(A) && by_row
        stored_in_columns!(counts, A)
        op isa Summing && R <: AbstractFloat ?
            add_small_columns!(fill!(result, -zero(R)), f, op, vec(A.values), kept_rows(A.layout), Val.(blocksize(A))...) :
            reduce_small_columns!(result, fill(false, lines), f, op, vec(A.values), kept_rows(A.layout), Val.(blocksize(A))...)
    elseif has_small_blocks(A)
        fill!(counts, 0)
        reduce_small_rows!(result, counts, f, op, vec(A.values), kept_rows(A.layout), Val.(blocksize(A))...)
    else
        by_row ? reduce_columns!(result, counts, f, op, A.values, kept_columns(A.layout), cutting(A)) :
                 reduce_rows!(result, counts, f, op, A.values, kept_rows(A.layout), cutting(A))
    end
    for line in 1:lines
        zeros = length_of_line - counts[line]
        counts[line] == 0 ? (result[line] = only_zeros(op, x0, zeros)) :
            zeros == 0 || (result[line] = with_zeros(op, result[line], x0, zeros))
        init === nothing || (result[line] = op(init.value, result[line]))
    end
    return by_row ? reshape(result, 1, n) : reshape(result, m, 1)
end

# Blocks of one size without padding, of so few rows and columns that loops over them are worth being compiled for their size.
has_small_blocks(A) = !isragged(A) && all(<=(4), blocksize(A))

# How many elements of each column are stored.
function stored_in_columns!(counts, A)
    height, width = blocksize(A)
    for (j, blocks) in enumerate(kept_column_counts(A.layout)), col in (j - 1) * width + 1:j * width
        counts[col] = blocks * height
    end
    return counts
end

# From the top, block row by block row, as values are stored. Sums start with -0, which no sum changes.
function add_small_columns!(result, f::F, op::O, x, lists, ::Val{H}, ::Val{W}) where {F, O, H, W}
    at = 0
    @inbounds for j in lists.across
        left = (j - 1) * W
        for c in 1:W
            result[left + c] = op(result[left + c], reduce_run(f, op, x, at + (c - 1) * H, H))
        end
        at += H * W
    end
end
function reduce_small_columns!(result, begun, f::F, op::O, x, lists, ::Val{H}, ::Val{W}) where {F, O, H, W}
    at = 0
    @inbounds for j in lists.across
        left = (j - 1) * W
        for c in 1:W
            y = reduce_run(f, op, x, at + (c - 1) * H, H)
            result[left + c] = begun[left + c] ? op(result[left + c], y) : y
            begun[left + c] = true
        end
        at += H * W
    end
end
# From the left. A function of its own for each step: what closures capture must not be assigned again.
@inline first_column(f::F, op::O, x, at, h::Val) where {F, O} = ntuple(r -> Base.reduce_first(op, f(@inbounds x[at + r])), h)
@inline with_column(totals, f::F, op::O, x, at, h::Val) where {F, O} = ntuple(r -> op(totals[r], f(@inbounds x[at + r])), h)
function reduce_small_rows!(result, counts, f::F, op::O, x, lists, ::Val{H}, ::Val{W}) where {F, O, H, W}
    @inbounds for i in 1:length(lists.starts) - 1
        blocks = in_line(lists, i)
        isempty(blocks) && continue
        at = (first(blocks) - 1) * H * W
        totals = first_column(f, op, x, at, Val(H))
        for _ in 2:length(blocks) * W
            at += H
            totals = with_column(totals, f, op, x, at, Val(H))
        end
        for r in 1:H
            result[(i - 1) * H + r] = totals[r]
            counts[(i - 1) * H + r] = length(blocks) * W
        end
    end
end
# From the top; the elements of a column of a block in four chains, which vectors hold.
function reduce_columns!(result, counts, f::F, op::O, values, lists, (row_cuts, col_cuts)) where {F, O}
    height, area = size(values, 1), size(values, 1) * size(values, 2)
    @inbounds for j in eachindex(col_cuts)
        cols, so_far = col_cuts[j], 0
        for n in in_line(lists, j)
            lines, at = length(row_cuts[lists.across[n]]), (lists.ids[n] - 1) * area
            for col in cols
                y = reduce_run(f, op, values, at, lines)
                result[col] = so_far == 0 ? y : op(result[col], y)
                at += height
            end
            so_far += lines
        end
        for col in cols
            counts[col] = so_far
        end
    end
end
# The elements after `at`, of which there is at least one.
@inline function reduce_run(f::F, op::O, x, at, count) where {F, O}
    element(i) = @inbounds f(x[at + i])
    a = Base.reduce_first(op, element(1))
    next = 2
    if count >= 4
        b, c, d = Base.reduce_first(op, element(2)), Base.reduce_first(op, element(3)), Base.reduce_first(op, element(4))
        next = 5
        while next + 3 <= count
            a, b, c, d = op(a, element(next)), op(b, element(next + 1)), op(c, element(next + 2)), op(d, element(next + 3))
            next += 4
        end
        a = op(op(a, c), op(b, d))
    end
    while next <= count
        a = op(a, element(next))
        next += 1
    end
    return a
end
# From the left.
function reduce_rows!(result, counts, f::F, op::O, values, lists, (row_cuts, col_cuts)) where {F, O}
    @inbounds for i in eachindex(row_cuts)
        rows, so_far = row_cuts[i], 0
        for k in in_line(lists, i)
            width, first_col = length(col_cuts[lists.across[k]]), 1
            if so_far == 0
                for (r, row) in enumerate(rows)
                    result[row] = Base.reduce_first(op, f(values[r, 1, k]))
                end
                first_col = 2
            end
            length(rows) < 8 ? reduce_few_rows!(result, f, op, values, k, rows, first_col, width) :
                               reduce_many_rows!(result, f, op, values, k, rows, first_col, width)
            so_far += width
        end
        for row in rows
            counts[row] = so_far
        end
    end
end
@inline function reduce_few_rows!(result, f::F, op::O, values, k, rows, first_col, width) where {F, O}
    @inbounds for (r, row) in enumerate(rows)
        total = result[row]
        for c in first_col:width
            total = op(total, f(values[r, c, k]))
        end
        result[row] = total
    end
end
@inline function reduce_many_rows!(result, f::F, op::O, values, k, rows, first_col, width) where {F, O}
    top = first(rows) - 1
    @inbounds for c in first_col:width
        @simd ivdep for r in 1:length(rows)
            result[top + r] = op(result[top + r], f(values[r, c, k]))
        end
    end
end
function Base.any(f::Function, A::BlockSparse; dims = :)
    dims === (:) || return mapreduce(x -> f(x) ? 1 : 0, +, A; dims = dims) .> 0
    return any(f, elements(A)) || (not_stored_count(A) > 0 && f(zero(eltype(A))))
end
Base.all(f::Function, A::BlockSparse; dims = :) = .!any(x -> !f(x), A; dims = dims)
Base.count(f, A::BlockSparse) = count(f, elements(A)) + (f(zero(eltype(A))) ? not_stored_count(A) : 0)
Base.iszero(A::BlockSparse) = all(iszero, elements(A))
Base.extrema(A::BlockSparse; dims = :) =
    dims === (:) ? (minimum(A), maximum(A)) : tuple.(minimum(A; dims = dims), maximum(A; dims = dims))
for f in (:findmax, :findmin, :argmax, :argmin)
    @eval Base.$f(A::BlockSparse) = $f(sparse(A))
end
Base.findall(f::Function, A::BlockSparse) = places_where(f, A)
Base.findall(f::Base.Fix2{typeof(in)}, A::BlockSparse) = places_where(f, A)
function places_where(f::F, A::BlockSparse) where {F}
    f(zero(eltype(A))) && return findall(f, sparse(A))
    expect_one_head(A, "findall")
    X = plain(A)
    return places_of(map(x -> f(x)::Bool, safe_values(X)), X.layout)
end

# Where an array like the values of a matrix is true, column by column. What is beside the elements of a block is false.
function places_of(flags::Array{Bool, 3}, layout)
    places = Vector{CartesianIndex{2}}(undef, count(flags))
    fill_places!(places, flags, column_lists(layout), cutting(layout))
    return places
end
function fill_places!(places, flags, lists, (row_cuts, col_cuts))
    at = 1
    @inbounds for j in eachindex(col_cuts)
        cols = col_cuts[j]
        for c in 1:length(cols), n in in_line(lists, j)
            lines, id = row_cuts[lists.across[n]], lists.ids[n]
            for r in 1:length(lines)
                flags[r, c, id] || continue
                places[at] = CartesianIndex(lines[r], cols[c])
                at += 1
            end
        end
    end
end
Base.mapslices(f, A::BlockSparse; dims) = mapslices(f, sparse(A); dims = dims)

# ---- Statistics ----

element_count(A) = length(A) * heads(A)
Statistics.mean(A::BlockSparse; dims = :) = mean(identity, A; dims = dims)
Statistics.mean(f, A::BlockSparse; dims = :) =
    dims === (:) ? sum(f, A) / element_count(A) : sum(f, A; dims = dims) ./ prod(d -> size(A, d), dims)

function Statistics.var(A::BlockSparse; corrected::Bool = true, mean = nothing, dims = :)
    m = mean === nothing ? Statistics.mean(A; dims = dims) : mean
    if dims === (:)
        n = element_count(A)
        return n == 0 ? oftype(m, NaN) : sum(x -> abs2(x - m), A) / (n - corrected)
    end
    expect_one_head(A, "var with dims")
    by_row, by_col = 1 in dims, 2 in dims
    by_row && by_col && return fill(var(A; corrected = corrected, mean = first(m)), 1, 1)
    by_row || by_col || return var(Matrix(A); corrected = corrected, mean = mean, dims = dims)
    return line_variances(plain(A), m, by_row, size(A, by_row ? 1 : 2) - corrected)
end
function line_variances(A::BlockSparseMatrix, means, by_row, n)
    centers = float.(means)
    squares, zeros = fill!(similar(centers), 0), similar(centers, Int)
    if has_small_blocks(A)
        by_row ? (zeros .= size(A, 1) .- stored_in_columns!(zeros, A)) : fill!(zeros, size(A, 2))
        by_row ? square_small_columns!(squares, vec(A.values), centers, kept_rows(A.layout), Val.(blocksize(A))...) :
                 square_small_rows!(squares, zeros, vec(A.values), centers, kept_rows(A.layout), Val.(blocksize(A))...)
    else
        by_row ? square_columns!(squares, zeros, A.values, centers, kept_columns(A.layout), cutting(A)) :
                 square_rows!(squares, zeros, A.values, centers, kept_rows(A.layout), cutting(A))
    end
    return (squares .+ zeros .* abs2.(centers)) ./ n
end
# Sums of the squares of differences from the centre of each line, and the numbers of elements that are not stored.
function square_small_columns!(squares, x, centers, lists, ::Val{H}, ::Val{W}) where {H, W}
    at = 0
    @inbounds for j in lists.across
        left = (j - 1) * W
        for c in 1:W
            center = centers[left + c]
            squares[left + c] += reduce_run(y -> abs2(y - center), +, x, at + (c - 1) * H, H)
        end
        at += H * W
    end
end
@inline elements_after(x, at, h::Val) = ntuple(r -> @inbounds(x[at + r]), h)
@inline with_squares(totals, center, x, at, h::Val) = ntuple(r -> totals[r] + abs2(@inbounds(x[at + r]) - center[r]), h)
function square_small_rows!(squares, zeros, x, centers, lists, ::Val{H}, ::Val{W}) where {H, W}
    @inbounds for i in 1:length(lists.starts) - 1
        blocks, top = in_line(lists, i), (i - 1) * H
        at, center = (first(blocks) - 1) * H * W, elements_after(centers, top, Val(H))
        totals = map(zero, center)
        for _ in 1:length(blocks) * W
            totals = with_squares(totals, center, x, at, Val(H))
            at += H
        end
        for r in 1:H
            squares[top + r] = totals[r]
            zeros[top + r] -= length(blocks) * W
        end
    end
end
function square_columns!(squares, zeros, values, centers, lists, (row_cuts, col_cuts))
    height, area = size(values, 1), size(values, 1) * size(values, 2)
    @inbounds for j in eachindex(col_cuts)
        cols, so_far = col_cuts[j], 0
        for n in in_line(lists, j)
            lines, at = length(row_cuts[lists.across[n]]), (lists.ids[n] - 1) * area
            for col in cols
                center = centers[col]
                squares[col] += reduce_run(x -> abs2(x - center), +, values, at, lines)
                at += height
            end
            so_far += lines
        end
        for col in cols
            zeros[col] = row_cuts.lines - so_far
        end
    end
end
function square_rows!(squares, zeros, values, centers, lists, (row_cuts, col_cuts))
    @inbounds for i in eachindex(row_cuts)
        rows, so_far = row_cuts[i], 0
        for k in in_line(lists, i)
            width = length(col_cuts[lists.across[k]])
            for c in 1:width
                @simd ivdep for r in 1:length(rows)
                    squares[first(rows) - 1 + r] += abs2(values[r, c, k] - centers[first(rows) - 1 + r])
                end
            end
            so_far += width
        end
        for row in rows
            zeros[row] = col_cuts.lines - so_far
        end
    end
end
# Statistics takes roots of what var returns in place where it can, so this is the same for all dims.
Statistics.std(A::BlockSparse; corrected::Bool = true, mean = nothing, dims = :) =
    sqrt.(var(A; corrected = corrected, mean = mean, dims = dims))

# ---- Norms ----

function LinearAlgebra.norm(A::BlockSparse, p::Real = 2)
    x = elements(A)
    not_stored_count(A) > 0 && p < 0 && return zero(norm(zero(eltype(A))))
    return norm(x, p)
end

function LinearAlgebra.opnorm(A::BlockSparse, p::Real = 2)
    p == 1 && return largest(sum(abs, A; dims = 1))
    p == Inf && return largest(sum(abs, A; dims = 2))
    throw(ArgumentError("opnorm(A, $p) is not there for sparse matrices, expected p = 1 or Inf: opnorm(Matrix(A), 2) makes a dense copy"))
end
largest(x) = isempty(x) ? zero(eltype(x)) : maximum(x)

LinearAlgebra.dot(A::BlockSparse, B::BlockSparse) = (expect_same_size(A, B); sum(A .* B))
LinearAlgebra.dot(A::BlockSparse, B::AbstractMatrix) = (expect_same_size(A, B); sum(A .* B))
LinearAlgebra.dot(A::AbstractMatrix, B::BlockSparse) = dot(B, A)
LinearAlgebra.dot(x::AbstractVector, A::BlockSparse, y::AbstractVector) = dot(x, A * y)

# ---- Comparison ----

function Base.:(==)(A::BlockSparse, B::BlockSparse)
    (size(A) == size(B) && heads(A) == heads(B)) || return false
    X, Y = A isa TransposedBlocks && B isa TransposedBlocks ? (parent(A), parent(B)) : (plain(A), plain(B))
    X.layout == Y.layout && !isragged(X) && return X.values == Y.values
    count = Ref(0.0)
    return Raw.tartan_matrix_count_different(nothing, X, in_blocks(Y, cutting(X)), 0, 0, false) == 0
end
# NaN is equal to NaN, and 0.0 is not to -0.0.
function Base.isequal(A::BlockSparse, B::BlockSparse)
    (size(A) == size(B) && heads(A) == heads(B)) || return false
    X, Y = plain(A), in_blocks(B, cutting(A))
    X.layout == Y.layout && return isequal(elements(X), elements(Y))
    all_places = union(X.layout, Y.layout)
    return isequal(elements(project(X, all_places)), elements(project(Y, all_places)))
end
Base.isequal(A::BlockSparse, B::Compressed) = size(A) == size(B) && isequal(entries_but_zeros(A), entries_but_zeros(B))
Base.isequal(A::Compressed, B::BlockSparse) = isequal(B, A)
function entries_but_zeros(A)
    i, j, x = findnz(compressed(A))
    keep = findall(y -> !isequal(y, zero(y)), x)
    return i[keep], j[keep], x[keep]
end

Base.:(==)(A::BlockSparse, B::Compressed) = size(A) == size(B) && sparse(A) == compressed(B)
Base.:(==)(A::Compressed, B::BlockSparse) = B == A
Base.:(==)(A::BlockSparse, B::DenseMatrix) = size(A) == size(B) && Array(A) == B
Base.:(==)(A::DenseMatrix, B::BlockSparse) = B == A
Base.:(==)(A::BlockSparse, B::DenseArray{<:Any, 3}) = (size(A)..., heads(A)) == size(B) && heads(A) > 1 && Array(A) == B
Base.:(==)(A::DenseArray{<:Any, 3}, B::BlockSparse) = B == A

# Equal to an equal matrix of another kind, so it hashes as such.
Base.hash(A::BlockSparse, h::UInt) = heads(A) == 1 ? hash(sparse(A), h) : hash(Array(A), h)

# Several heads are compared as they are stored; one as other matrices are.
function Base.isapprox(A::BlockSparse, B::BlockSparse; atol::Real = 0, rtol::Real = Base.rtoldefault(eltype(A), eltype(B), atol),
                       nans::Bool = false, norm = LinearAlgebra.norm)
    (size(A) == size(B) && heads(A) == heads(B)) || return false
    distance = norm(A - B)
    isfinite(distance) && return distance <= max(atol, rtol * max(norm(A), norm(B)))
    X, Y = plain(A), in_blocks(B, cutting(A))
    return Raw.tartan_matrix_count_different(nothing, X, Y, rtol, atol, nans) == 0
end

function Base.isone(A::BlockSparse)
    size(A, 1) == size(A, 2) || return false
    heads(A) == 1 || return A == one(A)
    return count(!iszero, A) == size(A, 1) && all(isone, diag(A))
end
same_values(A, B) = size(A) == size(B) && A == B
LinearAlgebra.issymmetric(A::BlockSparse) = same_values(A, transpose(A))
LinearAlgebra.ishermitian(A::BlockSparse) = issymmetric(A)
LinearAlgebra.istriu(A::BlockSparse, k::Integer = 0) = A isa TransposedBlocks ? istril(parent(A), -k) : !has_number((i, j) -> j - i < k, A)
LinearAlgebra.istril(A::BlockSparse, k::Integer = 0) = A isa TransposedBlocks ? istriu(parent(A), -k) : !has_number((i, j) -> j - i > k, A)
# Whether an element at a place of one side of a diagonal is not 0.
function has_number(at_side::F, A::BlockSparseMatrix) where {F}
    expect_one_head(A, "istriu")
    row_cuts, col_cuts = cutting(A)
    rows, cols, _ = coordinates(A.layout)
    for k in eachindex(rows)
        lines, others = row_cuts[rows[k]], col_cuts[cols[k]]
        at_side(last(lines), first(others)) || at_side(first(lines), last(others)) || continue
        for (c, j) in enumerate(others), (r, i) in enumerate(lines)
            at_side(i, j) && !iszero(A.values[r, c, k]) && return true
        end
    end
    return false
end
LinearAlgebra.isdiag(A::BlockSparse) = istriu(A) && istril(A)
