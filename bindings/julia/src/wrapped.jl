# SPDX-License-Identifier: Apache-2.0
# Symmetric, Hermitian and triangular views are LinearAlgebra's own: they show a matrix in blocks and write to it. Products with dense
# arrays and solutions of triangular systems read its blocks in place. All else computes with a copy in blocks.

const TRIANGLES = (UpperTriangular, UnitUpperTriangular, LowerTriangular, UnitLowerTriangular)
const WRAPPERS = (Symmetric, Hermitian, TRIANGLES...)
const SymmetricBlocks{T} = Union{Symmetric{T, <:BlockSparse}, Hermitian{T, <:BlockSparse}}
const TriangularBlocks{T} = Union{UpperTriangular{T, <:BlockSparse}, UnitUpperTriangular{T, <:BlockSparse},
                                  LowerTriangular{T, <:BlockSparse}, UnitLowerTriangular{T, <:BlockSparse}}
const Wrapped{T} = Union{SymmetricBlocks{T}, TriangularBlocks{T}}
const WrappedReal = Wrapped{<:Real}

shows_upper(W::SymmetricBlocks) = W.uplo == 'U'
shows_upper(::Union{UpperTriangular, UnitUpperTriangular}) = true
shows_upper(::Union{LowerTriangular, UnitLowerTriangular}) = false
is_unit(W) = false
is_unit(::Union{UnitUpperTriangular, UnitLowerTriangular}) = true

for f in (:heads, :isopen)
    @eval $(f === :isopen ? :(Base.isopen) : f)(W::WrappedReal) = $f(parent(W))
end
blocksize(W::WrappedReal) = blocksize(parent(W))
cuts(W::WrappedReal, side) = cuts(parent(W), side)

for f in (:transpose, :adjoint)
    for (X, Y) in ((:UpperTriangular, :LowerTriangular), (:UnitUpperTriangular, :UnitLowerTriangular))
        @eval LinearAlgebra.$f(W::$X{<:Real, <:BlockSparse}) = $Y(transpose(parent(W)))
        @eval LinearAlgebra.$f(W::$Y{<:Real, <:BlockSparse}) = $X(transpose(parent(W)))
    end
    for X in (Symmetric, Hermitian)
        @eval LinearAlgebra.$f(W::$X{<:Real, <:BlockSparse}) = W
    end
end

# ---- A copy in blocks ----

function plain(W::SymmetricBlocks)
    A = plain(parent(W))
    return shows_upper(W) ? triu(A) + transpose(triu(A, 1)) : tril(A) + transpose(tril(A, -1))
end
plain(W::UpperTriangular{<:Real, <:BlockSparse}) = triu(parent(W))
plain(W::LowerTriangular{<:Real, <:BlockSparse}) = tril(parent(W))
plain(W::UnitUpperTriangular{<:Real, <:BlockSparse}) = triu(parent(W), 1) + I
plain(W::UnitLowerTriangular{<:Real, <:BlockSparse}) = tril(parent(W), -1) + I
in_blocks(W::WrappedReal, at::Cutting) = in_blocks(plain(W), at)
compressed(W::WrappedReal) = sparse(plain(W))
for W in WRAPPERS # beside those for any parent
    @eval compressed(x::$W{<:Real, <:BlockSparse}) = sparse(plain(x))
end

unwrapped(x) = x
unwrapped(W::WrappedReal) = plain(W)

BlockSparseMatrix(W::WrappedReal) = plain(W)
BlockSparseMatrix{T}(W::WrappedReal) where {T} = BlockSparseMatrix{T}(plain(W))
BlockSparseMatrix(W::WrappedReal, block::Sizes) = BlockSparseMatrix(plain(W), block)
BlockSparseMatrix(W::WrappedReal, layout::BlockLayout) = BlockSparseMatrix(plain(W), layout)
Base.convert(::Type{BlockSparseMatrix}, W::WrappedReal) = plain(W)
Base.convert(::Type{BlockSparseMatrix{T}}, W::WrappedReal) where {T} = BlockSparseMatrix{T}(plain(W))
Base.Matrix(W::WrappedReal) = Matrix(plain(W))
Base.Array(W::WrappedReal) = Array(plain(W))
Base.collect(W::WrappedReal) = collect(plain(W))
Base.Matrix{T}(W::WrappedReal) where {T} = Matrix{T}(plain(W))
Base.Array{T}(W::WrappedReal) where {T} = Array{T}(plain(W))
SparseArrays.issparse(::WrappedReal) = true
SparseArrays.sparse(W::WrappedReal) = compressed(W)
SparseArrays.SparseMatrixCSC(W::WrappedReal) = compressed(W)
SparseArrays.SparseMatrixCSC{T}(W::WrappedReal) where {T} = SparseMatrixCSC{T, Int}(compressed(W))
SparseArrays.SparseMatrixCSC{T, I}(W::WrappedReal) where {T, I<:Integer} = SparseMatrixCSC{T, I}(compressed(W))
for f in (:nnz, :findnz, :dropzeros)
    @eval SparseArrays.$f(W::WrappedReal) = $f(plain(W))
end

# Element by element, reductions, parts, parts joined.
Broadcast.broadcastable(W::WrappedReal) = plain(W)
Base.map(f, W::WrappedReal) = map(f, plain(W))
Base.mapreduce(f, op::Reducing, W::WrappedReal; options...) = mapreduce(f, op, plain(W); options...)
for f in (:any, :all, :count, :findall)
    @eval Base.$f(g::Function, W::WrappedReal; options...) = $f(g, plain(W); options...)
end
Base.findall(f::Base.Fix2{typeof(in)}, W::WrappedReal) = findall(f, plain(W))
for f in (:iszero, :isone, :extrema, :findmax, :findmin, :argmax, :argmin)
    @eval Base.$f(W::WrappedReal; options...) = $f(plain(W); options...)
end
Base.hash(W::WrappedReal, h::UInt) = hash(plain(W), h)
Statistics.mean(W::WrappedReal; options...) = mean(plain(W); options...)
Statistics.var(W::WrappedReal; options...) = var(plain(W); options...)
LinearAlgebra.norm(W::WrappedReal, p::Real = 2) = norm(plain(W), p)
LinearAlgebra.opnorm(W::WrappedReal, p::Real = 2) = opnorm(plain(W), p)
for f in (:(==), :isequal)
    @eval Base.$f(W::WrappedReal, V::WrappedReal) = $f(plain(W), plain(V))
    for X in (BlockSparse, DenseMatrix, Compressed)
        @eval Base.$f(W::WrappedReal, X::$X) = $f(plain(W), X)
        @eval Base.$f(X::$X, W::WrappedReal) = $f(X, plain(W))
    end
end
LinearAlgebra.dot(W::WrappedReal, A::BlockSparse) = dot(plain(W), A)
LinearAlgebra.dot(A::BlockSparse, W::WrappedReal) = dot(A, plain(W))
LinearAlgebra.dot(x::AbstractVector, W::WrappedReal, y::AbstractVector) = dot(x, W * y)

Base.getindex(W::WrappedReal, i::Places, j::Places) = plain(W)[i, j]
Base.getindex(W::WrappedReal, i::Integer, j::Places) = plain(W)[i, j]
Base.getindex(W::WrappedReal, i::Places, j::Integer) = plain(W)[i, j]
LinearAlgebra.triu(W::WrappedReal, k::Integer = 0) = triu(plain(W), k)
LinearAlgebra.tril(W::WrappedReal, k::Integer = 0) = tril(plain(W), k)
LinearAlgebra.diag(W::WrappedReal, k::Integer = 0) = k == 0 && !is_unit(W) ? diag(parent(W)) : diag(plain(W), k)
LinearAlgebra.tr(W::WrappedReal) = sum(diag(W))
LinearAlgebra.istriu(W::TriangularBlocks{<:Real}, k::Integer = 0) = istriu(plain(W), k)
LinearAlgebra.istril(W::TriangularBlocks{<:Real}, k::Integer = 0) = istril(plain(W), k)
LinearAlgebra.issymmetric(W::TriangularBlocks{<:Real}) = issymmetric(plain(W))
LinearAlgebra.ishermitian(W::TriangularBlocks{<:Real}) = issymmetric(plain(W))
LinearAlgebra.isdiag(W::WrappedReal) = isdiag(plain(W))
for X in (AbstractMatrix, BlockSparse, WrappedReal)
    @eval Base.kron(W::WrappedReal, X::$X) = kron(plain(W), unwrapped(X))
    X === WrappedReal || @eval Base.kron(X::$X, W::WrappedReal) = kron(X, plain(W))
end
for f in (:hcat, :vcat)
    @eval Base.$f(W::WrappedReal, more::Joined...) = $f(plain(W), map(unwrapped, more)...)
    @eval Base.$f(W::WrappedReal, A::BlockSparse, more::AbstractVecOrMat...) = $f(plain(W), A, map(unwrapped, more)...)
    @eval Base.$f(W::Wrapped{T}, A::BlockSparse{T}, more::AbstractVecOrMat{T}...) where {T<:Real} = $f(plain(W), A, map(unwrapped, more)...)
    @eval Base.$f(J::UniformScaling, W::WrappedReal, more::Joined...) = $f(J, plain(W), map(unwrapped, more)...)
end

# ---- Arithmetic ----

# The same view of another matrix.
view_of(W::Symmetric, A) = Symmetric(A, Symbol(W.uplo))
view_of(W::Hermitian, A) = Hermitian(A, Symbol(W.uplo))
view_of(W::Union{UpperTriangular, UnitUpperTriangular}, A) = UpperTriangular(A)
view_of(W::Union{LowerTriangular, UnitLowerTriangular}, A) = LowerTriangular(A)
function multiplied(f, W::WrappedReal)
    A = f(is_unit(W) ? plain(W) : parent(W))
    return W isa Hermitian && eltype(A) <: Complex ? f(plain(W)) : view_of(W, A)
end

for op in (:+, :-)
    @eval begin
        Base.$op(W::WrappedReal, J::UniformScaling) = multiplied(A -> $op(A, J), W)
        Base.$op(J::UniformScaling, W::WrappedReal) = multiplied(A -> $op(J, A), W)
        Base.$op(W::WrappedReal, D::Diagonal) = multiplied(A -> $op(A, D), W)
        Base.$op(D::Diagonal, W::WrappedReal) = multiplied(A -> $op(D, A), W)
        Base.$op(W::Hermitian{<:Real, <:BlockSparse}, D::Diagonal{<:Real}) = multiplied(A -> $op(A, D), W)
        Base.$op(D::Diagonal{<:Real}, W::Hermitian{<:Real, <:BlockSparse}) = multiplied(A -> $op(D, A), W)
    end
    for X in TRIANGLES, Y in TRIANGLES
        X === Y && X in (UpperTriangular, LowerTriangular) && continue # LinearAlgebra adds the parents
        @eval Base.$op(W::$X{<:Real, <:BlockSparse}, V::$Y{<:Real, <:BlockSparse}) = $op(plain(W), plain(V))
    end
end
Base.:-(W::WrappedReal) = multiplied(-, W)
Base.:*(W::WrappedReal, x::Number) = multiplied(A -> A * x, W)
Base.:*(x::Number, W::WrappedReal) = multiplied(A -> x * A, W)
Base.:*(W::Hermitian{<:Real, <:BlockSparse}, x::Real) = multiplied(A -> A * x, W)
Base.:*(x::Real, W::Hermitian{<:Real, <:BlockSparse}) = multiplied(A -> x * A, W)
Base.:/(W::WrappedReal, x::Number) = multiplied(A -> A / x, W)
Base.:/(W::Hermitian{<:Real, <:BlockSparse}, x::Real) = multiplied(A -> A / x, W)
Base.:\(x::Number, W::WrappedReal) = multiplied(A -> x \ A, W)

# ---- Products with dense arrays ----

# What a triangle has of the blocks of a layout: a gate for each block, open for those that lie in it as a whole, and the blocks that
# the diagonal crosses, with a layout of their own. The layout keeps it, and so what is planned for products.
struct Triangle{G}
    gates::Vector{G}
    crossed::Vector{Int}
    layout::BlockLayout
end

function Triangle{G}(layout::BlockLayout, upper) where {G}
    row_cuts, col_cuts = cutting(layout)
    rows, cols, _ = coordinates(layout)
    gates, crossed = zeros(G, length(rows)), Int[]
    for k in eachindex(rows, cols)
        i, j = row_cuts[rows[k]], col_cuts[cols[k]]
        above, below = last(i) < first(j), last(j) < first(i)
        above || below ? (gates[k] = above == upper) : push!(crossed, k)
    end
    return Triangle{G}(gates, crossed, on_grid(layout, rows[crossed], cols[crossed]))
end

triangle(layout::BlockLayout, upper::Bool, ::Type{G}) where {G} =
    made_once(() -> Triangle{G}(layout, upper), layout, G === Float32 ? (upper ? KEPT.upper32 : KEPT.lower32) : (upper ? KEPT.upper : KEPT.lower))::Triangle{G}

# The blocks of A that the diagonal crosses, without what lies beyond it, and without the diagonal if `strict` is 1.
function crossed_blocks(A::BlockSparseMatrix, of::Triangle, upper, strict)
    row_cuts, col_cuts = cutting(A)
    rows, cols, _ = coordinates(of.layout)
    values = similar(A.values, blocksize(A)..., length(of.crossed))
    area = prod(blocksize(A))
    for (n, k) in enumerate(of.crossed)
        copyto!(values, (n - 1) * area + 1, A.values, (k - 1) * area + 1, area)
    end
    for n in eachindex(rows), (c, j) in enumerate(col_cuts[cols[n]]), (r, i) in enumerate(row_cuts[rows[n]])
        (upper ? j - i : i - j) >= strict || (@inbounds values[r, c, n] = 0)
    end
    return BlockSparseMatrix(of.layout, values)
end

# C = alpha * W * B + beta * C, or C = alpha * B * W + beta * C with `right`.
function wrapped_product!(C, W::Wrapped{T}, B, right, alpha, beta) where {T<:Real}
    A, flipped = stored(parent(W)), is_flipped(parent(W))
    upper = shows_upper(W) != flipped
    of = triangle(A.layout, upper, gate_type(T))
    product!(C, A, B, right, flipped, alpha, beta, of.gates, nothing)
    D = crossed_blocks(A, of, upper, Int(is_unit(W)))
    whole = W isa SymmetricBlocks && !isvariable(A) && ==(blocksize(A)...) # the blocks that the diagonal crosses are those on it
    whole && mirror!(D.values, upper)
    product!(C, D, B, right, flipped, alpha, 1, nothing, nothing)
    if is_unit(W)
        C .+= alpha .* B
    elseif W isa SymmetricBlocks # the other triangle
        product!(C, A, B, right, !flipped, alpha, 1, of.gates, nothing)
        whole || product!(C, crossed_blocks(A, of, upper, 1), B, right, !flipped, alpha, 1, nothing, nothing)
    end
    return C
end
# One triangle of each block from the other one.
function mirror!(values, upper)
    for k in axes(values, 3), c in axes(values, 2), r in 1:c - 1
        upper ? (values[c, r, k] = values[r, c, k]) : (values[r, c, k] = values[c, r, k])
    end
    return values
end
is_plain_dense(B) = !(B isa Union{BlockSparse, AbstractSparseArray, Sparselike, WrappedReal})
# Sums of 16-bit numbers are rounded once, so their products are made at once.
multiplies_in_place(C, W::Wrapped{T}, B, alpha, beta) where {T} = T <: Union{Float64, Float32} && eltype(B) === T && eltype(C) === T &&
    !(C isa AbstractSparseArray) && is_plain_dense(B) && alpha isa Real && beta isa Real && C isa Described && device_operand(B) === nothing

function left!(C, W::WrappedReal, B, alpha, beta)
    multiplies_in_place(C, W, B, alpha, beta) || return mul!(C, plain(W), unwrapped(B), alpha, beta)
    expect_one_head(parent(W), "mul!")
    expect_sizes(C, W, B)
    return wrapped_product!(C, W, B, false, alpha, beta)
end
function right!(C, B, W::WrappedReal, alpha, beta)
    multiplies_in_place(C, W, B, alpha, beta) || return mul!(C, unwrapped(B), plain(W), alpha, beta)
    expect_one_head(parent(W), "mul!")
    expect_sizes(C, B, W)
    return wrapped_product!(C, W, B, true, alpha, beta)
end
function left_product(W::Wrapped{T}, B) where {T<:Real}
    T <: Union{Float64, Float32} && eltype(B) === T && is_plain_dense(B) || return plain(W) * unwrapped(B)
    return left!(Array{T}(undef, size(W, 1), Base.tail(size(B))...), W, B, true, false)
end
function right_product(B, W::Wrapped{T}) where {T<:Real}
    T <: Union{Float64, Float32} && eltype(B) === T && is_plain_dense(B) || return unwrapped(B) * plain(W)
    return right!(Array{T}(undef, size(B, 1), size(W, 2)), B, W, true, false)
end

# LinearAlgebra has methods for pairs of its own kinds; with strided factors none of them fits as well as these.
const STRIDED_MATRICES = (StridedMatrix, Adjoint{<:Any, <:StridedMatrix}, Transpose{<:Any, <:StridedMatrix})
LinearAlgebra.mul!(C::AbstractVector, W::WrappedReal, B::StridedVector, α::Number, β::Number) = left!(C, W, B, α, β)
LinearAlgebra.mul!(C::AbstractVector, W::WrappedReal, B::StridedVector) = left!(C, W, B, true, false)
Base.:*(W::WrappedReal, B::StridedVector) = left_product(W, B)
for F in STRIDED_MATRICES
    @eval LinearAlgebra.mul!(C::AbstractMatrix, W::WrappedReal, B::$F, α::Number, β::Number) = left!(C, W, B, α, β)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, W::WrappedReal, B::$F) = left!(C, W, B, true, false)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, B::$F, W::WrappedReal, α::Number, β::Number) = right!(C, B, W, α, β)
    @eval LinearAlgebra.mul!(C::AbstractMatrix, B::$F, W::WrappedReal) = right!(C, B, W, true, false)
    @eval Base.:*(W::WrappedReal, B::$F) = left_product(W, B)
    @eval Base.:*(B::$F, W::WrappedReal) = right_product(B, W)
end
Base.:*(x::Adjoint{<:Any, <:StridedVector}, W::WrappedReal) = adjoint(left_product(transpose(W), adjoint(x)))
Base.:*(x::Transpose{<:Any, <:StridedVector}, W::WrappedReal) = transpose(left_product(transpose(W), transpose(x)))
for X in WRAPPERS, Y in WRAPPERS
    @eval Base.:*(W::$X{<:Real, <:BlockSparse}, V::$Y{<:Real, <:BlockSparse}) = plain(W) * plain(V)
end
# With a BlockSparse, `*` and `mul!` of products.jl call these.
left_product(A::BlockSparse, W::WrappedReal) = block_product(A, plain(W))
right_product(W::WrappedReal, A::BlockSparse) = block_product(plain(W), A)
left!(C, A::BlockSparse, W::WrappedReal, alpha, beta) = left!(C, A, plain(W), alpha, beta)
right!(C, W::WrappedReal, A::BlockSparse, alpha, beta) = left!(C, plain(W), A, alpha, beta)
Base.:*(W::SymmetricBlocks{<:Real}, D::Diagonal) = plain(W) * D
Base.:*(D::Diagonal, W::SymmetricBlocks{<:Real}) = D * plain(W)
Base.:*(W::WrappedReal, S::SparseMatrixCSC) = plain(W) * S
Base.:*(S::SparseMatrixCSC, W::WrappedReal) = S * plain(W)
for X in TRIANGLES
    @eval Base.:*(U::$X{<:Any, <:StridedMatrix}, W::WrappedReal) = right_product(Matrix(U), W)
    @eval Base.:*(W::WrappedReal, U::$X{<:Any, <:StridedMatrix}) = left_product(W, Matrix(U))
end
Base.:^(W::WrappedReal, p::Integer) = plain(W)^p

# ---- Triangular systems ----

# Solves op(triangle of A) * x = x in place, where op is the transpose if `flipped`; `upper` is the triangle of A itself.
function solve_triangle!(x::AbstractVecOrMat, A::BlockSparseMatrix{T}, upper, unit, flipped) where {T}
    at = cuts(A, 1)
    expect_no_zero(A, unit)
    _, cols, _ = coordinates(A.layout)
    ends = cumsum(row_lengths(A.layout))
    lines = upper != flipped ? (length(ends):-1:1) : (1:length(ends))
    for I in lines
        blocks = (I == 1 ? 1 : ends[I - 1] + 1):ends[I]
        row, height = first(at[I]) - 1, length(at[I])
        flipped || update_line!(x, A.values, blocks, cols, I, upper, row, height, at)
        diagonal = findfirst(k -> cols[k] == I, blocks)
        solve_block!(x, A.values, diagonal === nothing ? 0 : blocks[diagonal], row, height, upper, unit, flipped)
        flipped && update_others!(x, A.values, blocks, cols, I, upper, row, height, at)
    end
    return x
end
function expect_no_zero(A, unit)
    unit && return nothing
    i = findfirst(iszero, diag(A))
    i === nothing || throw(SingularException(i))
    return nothing
end
function update_line!(x, values, blocks, cols, I, upper, row, height, at)
    @inbounds for k in blocks
        (upper ? cols[k] > I : cols[k] < I) || continue
        for c in axes(x, 2), (j, col) in enumerate(at[cols[k]])
            factor = x[col, c]
            @simd for i in 1:height
                x[row + i, c] -= values[i, j, k] * factor
            end
        end
    end
end
function update_others!(x, values, blocks, cols, I, upper, row, height, at)
    @inbounds for k in blocks
        (upper ? cols[k] > I : cols[k] < I) || continue
        for c in axes(x, 2), (j, col) in enumerate(at[cols[k]])
            total = x[col, c]
            for i in 1:height
                total -= values[i, j, k] * x[row + i, c]
            end
            x[col, c] = total
        end
    end
end
function solve_block!(x, values, k, row, height, upper, unit, flipped)
    k == 0 && return nothing # only where the diagonal is not read
    order = upper != flipped ? (height:-1:1) : (1:height)
    @inbounds for c in axes(x, 2), j in order
        flipped || unit || (x[row + j, c] /= values[j, j, k])
        others = upper ? (flipped ? (1:j - 1) : (1:j - 1)) : (j + 1:height)
        if flipped
            total = x[row + j, c]
            for i in others
                total -= values[i, j, k] * x[row + i, c]
            end
            x[row + j, c] = unit ? total : total / values[j, j, k]
        else
            factor = x[row + j, c]
            for i in others
                x[row + i, c] -= values[i, j, k] * factor
            end
        end
    end
    return nothing
end

# Whether the blocks are square, so that each diagonal block is a triangle.
has_square_blocks(W) = cuts(W, 1) == cuts(W, 2)
function solve_in!(x, W::TriangularBlocks{<:Real})
    size(W, 1) == size(x, 1) ||
        throw(DimensionMismatch("the matrix has size $(size(W)), the right-hand side $(size(x)): expected $(size(W, 1)) rows in it"))
    expect_one_head(parent(W), "W \\ b")
    has_square_blocks(W) || return copyto!(x, view_of(W, without_zeros(plain(W))) \ x)
    flipped = is_flipped(parent(W))
    return solve_triangle!(x, stored(parent(W)), shows_upper(W) != flipped, is_unit(W), flipped)
end
solved(W::TriangularBlocks{T}, B) where {T<:Real} =
    solve_in!(copyto!(Array{Base.promote_op(/, eltype(B), T)}(undef, size(B)), B), W)

for X in (StridedVector, STRIDED_MATRICES..., BlockSparse)
    @eval Base.:\(W::TriangularBlocks{<:Real}, B::$X) = solved(W, B)
    @eval Base.:\(W::SymmetricBlocks{<:Real}, B::$X) = with_symmetric_entries(W) \ dense_copy_of(B)
end
for X in (STRIDED_MATRICES..., BlockSparse)
    @eval Base.:/(B::$X, W::TriangularBlocks{<:Real}) = permutedims(solved(transpose(W), permutedims(dense_copy_of(B))))
    @eval Base.:/(B::$X, W::SymmetricBlocks{<:Real}) = permutedims(with_symmetric_entries(W) \ permutedims(dense_copy_of(B)))
end
Base.:/(x::Adjoint{<:Any, <:StridedVector}, W::TriangularBlocks{<:Real}) = adjoint(solved(transpose(W), adjoint(x)))
Base.:/(x::Transpose{<:Any, <:StridedVector}, W::TriangularBlocks{<:Real}) = transpose(solved(transpose(W), transpose(x)))
dense_copy_of(B::AbstractVector) = Vector(B)
dense_copy_of(B::AbstractMatrix) = Matrix(B)

for X in (StridedVector, StridedMatrix)
    @eval LinearAlgebra.ldiv!(W::TriangularBlocks{<:Real}, B::$X) = solve_in!(B, W)
    @eval LinearAlgebra.ldiv!(W::SymmetricBlocks{<:Real}, B::$X) = copyto!(B, W \ B)
    @eval LinearAlgebra.lmul!(W::WrappedReal, B::$X) = copyto!(B, W * B)
end
LinearAlgebra.rdiv!(B::StridedMatrix, W::WrappedReal) = copyto!(B, B / W)
LinearAlgebra.rmul!(B::StridedMatrix, W::WrappedReal) = copyto!(B, B * W)

# ---- Writing: to the matrix that is shown, all or nothing ----

# The elements that the view does not show stay.
function write_shown!(W::WrappedReal, X)
    expect_same_size(W, X)
    A, B = parent(W), plain_blocks(X, W)
    upper = shows_upper(W)
    if W isa SymmetricBlocks
        issymmetric(B) || throw(ArgumentError("the elements for a $(nameof(typeof(W))) view are not symmetric, expected symmetric ones"))
        B = upper ? triu(B) : tril(B)
    else
        (upper ? istriu(B) : istril(B)) || throw(ArgumentError("an element $(upper ? "below" : "above") the diagonal of a " *
            "$(nameof(typeof(W))) view would not be 0, expected 0 there"))
        is_unit(W) && (all(isone, diag(B)) || throw(ArgumentError("the diagonal of a $(nameof(typeof(W))) view is 1, expected no other numbers for it")))
    end
    strict = Int(!is_unit(W))
    others = upper ? tril(A, -strict) : triu(A, strict)
    is_unit(W) && (B = upper ? triu(B, 1) : tril(B, -1))
    copyto!(A, plain(others) + B)
    return W
end
plain_blocks(X::Union{BlockSparse, WrappedReal}, W) = plain(X)
plain_blocks(X::AbstractMatrix, W) = BlockSparseMatrix(sparse_of(X, eltype(W)), cutting(W))

for X in (Matrix, SubArray{<:Any, 2}, BlockSparse, SparseMatrixCSC) # not of CHOLMOD, which has a method for them
    @eval Base.copyto!(W::WrappedReal, X::$X) = write_shown!(W, X)
end
for B in (Broadcasted, Broadcasted{Nothing}, Broadcasted{BlockSparseStyle}, Broadcasted{<:LinearAlgebra.StructuredMatrixStyle})
    @eval Base.copyto!(W::WrappedReal, bc::$B) = write_shown!(W, copy(Broadcasted{style_for(bc)}(bc.f, bc.args, axes(W))))
end
Base.copyto!(W::WrappedReal, bc::Broadcasted{<:AbstractArrayStyle{0}}) =
    write_shown!(W, copy(Broadcasted{DefaultArrayStyle{2}}(bc.f, bc.args, axes(W))))
style_for(::Broadcasted{S}) where {S} = S === Nothing ? DefaultArrayStyle{2} : S
Base.fill!(W::WrappedReal, x) = write_shown!(W, is_zero(x) ? zero(parent(W)) : fill(convert(eltype(W), x), size(W)))
for (I, J) in ((Places, Places), (Integer, Places), (Places, Integer))
    @eval Base.setindex!(W::WrappedReal, X, i::$I, j::$J) = (B = plain(W); B[i, j] = X; write_shown!(W, B))
end
LinearAlgebra.rmul!(W::WrappedReal, x::Number) = write_shown!(W, plain(W) * x)
LinearAlgebra.lmul!(x::Number, W::WrappedReal) = write_shown!(W, x * plain(W))
LinearAlgebra.rdiv!(W::WrappedReal, x::Number) = write_shown!(W, plain(W) / x)
LinearAlgebra.ldiv!(x::Number, W::WrappedReal) = write_shown!(W, x \ plain(W))
# Into matrices.
Base.copyto!(A::BlockSparse, W::WrappedReal) = write_all!(A, plain(W))
Base.copyto!(C::StridedMatrix, W::WrappedReal) = copyto!(C, plain(W))

# ---- What needs entries, or all elements ----

for f in (:eigvals, :eigmax, :eigmin, :eigen, :svd, :svdvals, :pinv, :exp, :log, :sqrt, :sin, :cos) # which are refused
    @eval $(f in (:exp, :log, :sqrt, :sin, :cos) ? :Base : :LinearAlgebra).$f(W::WrappedReal; options...) = $f(plain(W); options...)
end
# Between methods of LinearAlgebra and these, neither of which is the more specific one.
Base.log(W::UpperTriangular{T, <:BlockSparse}) where {T<:Union{Float32, Float64}} = log(plain(W))
Base.:+(W::Hermitian{<:Real, <:BlockSparse}, J::UniformScaling{<:Complex}) = multiplied(A -> A + J, W)
Base.:-(J::UniformScaling{<:Complex}, W::Hermitian{<:Real, <:BlockSparse}) = multiplied(A -> J - A, W)

# As SuiteSparse takes a symmetric matrix: one triangle, of Float64.
with_symmetric_entries(W::SymmetricBlocks) = Symmetric(SparseMatrixCSC{Float64, Int}(without_zeros(parent(W))), Symbol(W.uplo))
for f in (:lu, :qr, :logdet, :logabsdet, :inv)
    @eval LinearAlgebra.$f(W::WrappedReal; options...) = $f(without_zeros(plain(W)); options...)
end
LinearAlgebra.det(W::SymmetricBlocks{<:Real}) = det(without_zeros(plain(W)))
LinearAlgebra.factorize(W::SymmetricBlocks{<:Real}) = factorize(with_symmetric_entries(W))
LinearAlgebra.factorize(W::TriangularBlocks{<:Real}) = W
LinearAlgebra.cond(W::SymmetricBlocks{<:Real}, p::Real = 2) = cond(without_zeros(plain(W)), p)
