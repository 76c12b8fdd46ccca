# SPDX-License-Identifier: Apache-2.0
# Functions of whole tracked arrays and block-sparse matrices: sums, dimensions, parts.

# ---- Sums ----

everywhere(g, x::Number) = g
everywhere(g, x::AbstractArray) = fill!(similar(x), g)
everywhere(g, A::BlockSparseMatrix) = BlockSparseMatrix(A.layout, clear_padding!(fill!(similar(A.values), g), A.layout))

Base.sum(x::Tracked{<:BlockSparse}; dims = :) = record(g -> (spread(x.value, g),), sum(x.value; dims = dims), x)
Base.sum(x::Tracked; dims = :) = dims === (:) ? record(g -> (everywhere(g, x.value),), sum(x.value), x) :
    record(g -> (g .* fill!(similar(x.value), 1),), sum(x.value; dims = dims), x)
Base.sum(f, x::Tracked; dims = :) = sum(f.(x); dims = dims)
Statistics.mean(x::Tracked; dims = :) = (y = sum(x; dims = dims); y * (prod(size(y)) / length(x)))
Statistics.mean(f, x::Tracked; dims = :) = mean(f.(x); dims = dims)
LinearAlgebra.dot(a::Union{Tracked, AbstractArray}, b::Tracked) = sum(a .* b)
LinearAlgebra.dot(a::Tracked, b::AbstractArray) = sum(a .* b)
# The first of equal numbers has the gradient.
Base.maximum(x::Tracked) = x[argmax(x.value)]
Base.minimum(x::Tracked) = x[argmin(x.value)]

# ---- Functions of block-sparse matrices: gradients stay on the layout ----

# The gradient of sum(A; dims), given the one of the result.
spread(A::BlockSparseMatrix{T}, g::Number) where {T} = everywhere(convert(T, g), A)
spread(A::BlockSparseMatrix{T}, g) where {T} = BlockSparseMatrix(A.layout, convert(Array{T, 3}, sampled(g, A.layout)))
spread(A::TransposedBlocks, g::Number) = transpose(spread(parent(A), g))
spread(A::TransposedBlocks, g) = transpose(spread(parent(A), permutedims(g)))

# Of the blocks that slice takes, which keep their order.
function unsliced(A::BlockSparseMatrix, rows, cols, g)
    block_rows, block_cols, _ = coordinates(A.layout)
    result = similar(A)
    result.values[:, :, [k for k in eachindex(block_rows) if block_rows[k] in rows && block_cols[k] in cols]] .= g.values
    return result
end

# Of block_norms; a block of zeros has none.
function of_norms(A::BlockSparseMatrix{T}, norm, norms, g) where {T}
    result = similar(A)
    for k in eachindex(norms)
        iszero(norms[k]) && continue
        block, out = view(A.values, :, :, k), view(result.values, :, :, k)
        if Symbol(norm) === :l2
            out .= (g[k] / norms[k]) .* block
        elseif Symbol(norm) === :l1
            out .= g[k] .* sign.(block)
        else
            i = argmax(abs.(block))
            out[i] = g[k] * sign(block[i])
        end
    end
    return result
end

# Of opnorm: the signs of the first column, or row, whose sum is the largest.
function of_opnorm(A, p, g)
    sums = sum(abs, A; dims = p == 1 ? 1 : 2)
    weights = zeros(eltype(A), size(sums))
    isempty(weights) || (weights[argmax(sums)] = g)
    return sign.(A) .* spread(A, weights)
end

# f of the elements, which has to be 0 for 0, and its derivatives there.
function mapped(f, A::BlockSparse)
    fieldcount(typeof(f)) == 0 || throw(ArgumentError("a function that holds values of its own would get no gradient of them, " *
                                                      "expected one without: write it as broadcasting"))
    found = map(x -> f(Dual(x, one(x))), safe_values(plain(A)))
    y = broadcast(f, A)
    y isa BlockSparseMatrix && y.layout == plain(A).layout ||
        throw(ArgumentError("the function is not 0 for 0, expected one that keeps the zeros of a block-sparse matrix"))
    derivatives = BlockSparseMatrix(y.layout, clear_padding!(map(x -> partial(x, 1), found), y.layout))
    return y, A isa TransposedBlocks ? copy(derivatives) : derivatives
end

function project(x::Tracked{<:BlockSparseMatrix}, layout::BlockLayout)
    y = project(x.value, layout)
    return record(g -> (project(on_layout(y, g), x.value.layout),), y, x)
end
function slice(x::Tracked{<:BlockSparseMatrix}, rows::AbstractUnitRange, cols::AbstractUnitRange)
    y = slice(x.value, rows, cols)
    return record(g -> (unsliced(x.value, rows, cols, on_layout(y, g)),), y, x)
end
function block_norms(x::Tracked{<:BlockSparseMatrix}; norm = :l2)
    norms = block_norms(x.value; norm = norm)
    return record(g -> (of_norms(x.value, norm, norms, g),), norms, x)
end
LinearAlgebra.opnorm(x::Tracked{<:BlockSparse}, p::Real = 2) = record(g -> (of_opnorm(x.value, p, g),), opnorm(x.value, p), x)
SparseArrays.sparse(x::Tracked{<:BlockSparseMatrix}) = record(g -> (on_layout(x.value, g),), sparse(x.value), x)
function Base.map(f, x::Tracked{<:BlockSparseMatrix})
    y, derivatives = mapped(f, x.value)
    return record(g -> (g .* derivatives,), y, x)
end
function conv_filter(c::BlockConv, dense::Tracked)
    w = conv_filter(c, dense.value)
    return record(g -> (dense_filter(c, on_layout(w, g)),), w, dense)
end

# ---- Dimensions ----

Base.size(x::Tracked, dims...) = size(x.value, dims...)
Base.length(x::Tracked) = length(x.value)
Base.ndims(x::Tracked) = ndims(x.value)
Base.eltype(::Type{Tracked{V}}) where {V} = eltype(V)
Base.lastindex(x::Tracked, dims...) = lastindex(x.value, dims...)
Base.firstindex(x::Tracked, dims...) = firstindex(x.value, dims...)

for f in (:transpose, :adjoint)
    @eval Base.$f(x::Tracked) = record(g -> (shaped($f(g), x.value),), $f(x.value), x)
end
Base.reshape(x::Tracked, dims::Union{Int, Colon}...) = record(g -> (reshape(g, size(x.value)),), reshape(x.value, dims...), x)
Base.reshape(x::Tracked, dims::Tuple) = reshape(x, dims...)
Base.vec(x::Tracked) = reshape(x, :)

Base.getindex(x::Tracked{<:BlockSparse}, places...) =
    throw(ArgumentError("a part of a block-sparse matrix has no gradient, expected one of an array"))
function Base.getindex(x::Tracked, places...)
    value = x.value[places...]
    function pullback(g)
        grad = fill!(similar(x.value), 0)
        at = LinearIndices(x.value)[places...]
        for (k, i) in zip(eachindex(g), at)
            grad[i] += g[k]
        end
        return (grad,)
    end
    return record(pullback, value, x)
end

function joined(dims, xs)
    value = cat(map(untracked, xs)...; dims = dims)
    function pullback(g)
        last = 0
        return map(xs) do x
            n = size(untracked(x), dims)
            part = selectdim(g, dims, last + 1:last + n)
            last += n
            x isa Tracked ? shaped(copy(part), x.value) : nothing
        end
    end
    return record(pullback, value, xs...)
end
for (f, dims) in ((:vcat, 1), (:hcat, 2))
    @eval Base.$f(x::Tracked, xs...) = joined($dims, (x, xs...))
    @eval Base.$f(a::Union{Number, AbstractArray}, x::Tracked, xs...) = joined($dims, (a, x, xs...))
end

Base.show(io::IO, x::Tracked) = print(io, "Tracked(", summary(x.value), ")")
