# SPDX-License-Identifier: Apache-2.0
# Sums, multiples, scaling, products of two sparse matrices, in place and not. Results of block-sparse matrices, diagonal ones
# and multiples of I are block-sparse, in blocks of the first one's size; with a SparseMatrixCSC, or with elements that
# Tartan does not have (Complex, BigFloat, ...), they are a SparseMatrixCSC.

# ---- Sums ----

for op in (:+, :-)
    @eval begin
        Base.$op(A::BlockSparse, B::BlockSparse) = sum_of(A, $op(true), B)
        Base.$op(A::BlockSparse, B::Diagonal) = with_diagonal(A, 1, $op(B.diag))
        Base.$op(A::Diagonal, B::BlockSparse) = with_diagonal(B, $op(1), A.diag)
        Base.$op(A::BlockSparse, J::UniformScaling) = with_diagonal(A, 1, $op(J.λ))
        Base.$op(J::UniformScaling, A::BlockSparse) = with_diagonal(A, $op(1), J.λ)
    end
    for S in (SparseMatrixCSC, Bidiagonal, Tridiagonal, SymTridiagonal, Symmetric{<:Any, <:SparseMatrixCSC}, Hermitian{<:Any, <:SparseMatrixCSC})
        @eval Base.$op(A::BlockSparse, B::$S) = $op(sparse(A), sparse(B))
        @eval Base.$op(A::$S, B::BlockSparse) = $op(sparse(A), sparse(B))
    end
end

function sum_of(A::BlockSparse{T}, beta, B::BlockSparse{S}) where {T, S}
    expect_same_size(A, B)
    expect_equal_heads((A, B))
    P = promote_type(T, S)
    X = plain(A)
    Y = in_blocks(B, cutting(X))
    return adopt(P, Raw.tartan_matrix_add(nothing, 1, X, beta, Y, dtype_code(P)))
end

function expect_diagonal(A, d)
    LinearAlgebra.checksquare(A)
    d isa Number || size(A, 1) == length(d) ||
        throw(DimensionMismatch("the matrix has size $(size(A)), the diagonal one $((length(d), length(d)))"))
end

# alpha * A + D, where D is a vector for the diagonal or a number.
function with_diagonal(A::BlockSparse{T}, alpha, d) where {T}
    expect_diagonal(A, d)
    P = promote_type(T, eltype(d))
    can_hold(P) || return alpha * sparse(A) + (d isa Number ? d * I : sparse(Diagonal(d)))
    numbers = d isa Number ? [Float64(d)] : convert(Vector{Float64}, d)
    return adopt(P, Raw.tartan_matrix_add_diagonal(nothing, alpha, plain(A), 0, numbers, dtype_code(P)))
end

# ---- Numbers ----

Base.:-(A::BlockSparse) = each(-, A)
Base.:+(A::BlockSparse) = copy(A)
Base.:*(A::BlockSparse, x::Number) = each(y -> y * x, A)
Base.:*(x::Number, A::BlockSparse) = each(y -> x * y, A)
Base.:/(A::BlockSparse, x::Number) = each(y -> y / x, A)
Base.:\(x::Number, A::BlockSparse) = each(y -> x \ y, A)

# f of the stored elements, and of the others if f of zero is not zero (a multiple of NaN).
function each(f, A::BlockSparse{T}) where {T}
    iszero(f(zero(T))) || return f.(A)
    P = Base.promote_op(f, T)
    if can_hold(P)
        X = plain(A)
        return BlockSparseMatrix(X.layout, clear_padding!(map!(f, similar(X.values, P), safe_values(X)), X.layout))
    end
    S = sparse(A)
    return SparseMatrixCSC(size(S)..., SparseArrays.getcolptr(S), rowvals(S), map(f, nonzeros(S)))
end

for f in (:real, :conj)
    @eval Base.$f(A::BlockSparse) = A
end
Base.imag(A::BlockSparse) = zero(A)
Base.complex(A::BlockSparse) = complex(sparse(A))
Base.float(A::TransposedBlocks) = A

# ---- In place ----

real_number(x::Real) = x
real_number(x) = isreal(x) ? real(x) : throw(ArgumentError("x is $x, expected a real number"))

function LinearAlgebra.rmul!(A::BlockSparseMatrix{T}, x::Number) where {T}
    factor = real_number(x)
    iszero(zero(T) * factor) || return A .*= factor
    A.values .*= factor
    return A
end
LinearAlgebra.lmul!(x::Number, A::BlockSparseMatrix) = rmul!(A, x)
function LinearAlgebra.rdiv!(A::BlockSparseMatrix{T}, x::Number) where {T}
    divisor = real_number(x)
    iszero(zero(T) / divisor) || return A ./= divisor
    A.values ./= divisor
    return A
end
LinearAlgebra.ldiv!(x::Number, A::BlockSparseMatrix) = rdiv!(A, x)
LinearAlgebra.rmul!(A::TransposedBlocks, x::Number) = (rmul!(A.parent, x); A)
LinearAlgebra.lmul!(x::Number, A::TransposedBlocks) = (rmul!(A.parent, x); A)
LinearAlgebra.rdiv!(A::TransposedBlocks, x::Number) = (rdiv!(A.parent, x); A)
LinearAlgebra.ldiv!(x::Number, A::TransposedBlocks) = (rdiv!(A.parent, x); A)
LinearAlgebra.rmul!(A::BlockSparse, D::Diagonal) = copyto!(A, A * D)
LinearAlgebra.lmul!(D::Diagonal, A::BlockSparse) = copyto!(A, D * A)
LinearAlgebra.rdiv!(A::BlockSparse, D::Diagonal) = copyto!(A, A / D)
LinearAlgebra.ldiv!(D::Diagonal, A::BlockSparse) = copyto!(A, D \ A)

"""
    axpy!(a, X::BlockSparseMatrix, Y::BlockSparseMatrix)

`Y += a * X`, in place. Non-zeros of `X` must lie in stored blocks of `Y`.
"""
LinearAlgebra.axpy!(a::Number, X::BlockSparse, Y::BlockSparse) = axpby!(a, X, true, Y)
function LinearAlgebra.axpby!(a::Number, X::BlockSparse, b::Number, Y::BlockSparse)
    expect_same_size(Y, X)
    expect_equal_heads((X, Y))
    add_to!(stored(Y), Float64(real_number(a)), is_flipped(Y) ? transpose(X) : X, Float64(real_number(b)))
    return Y
end
function add_to!(Y, alpha, X, beta)
    Z = in_blocks(X, cutting(Y))
    others = setdiff(Z.layout, Y.layout)
    expect_stored(Y, others, Z)
    nblocks(others) == 0 || (Z = project(Z, Y.layout))
    Raw.tartan_axpby(nothing, alpha, Z, beta, Y, Y)
end
# Other operands; those of Y that X's non-zeros need must be stored.
LinearAlgebra.axpy!(a::Number, X::AbstractMatrix, Y::BlockSparse) = (Y .+= a .* X; Y)
LinearAlgebra.axpby!(a::Number, X::AbstractMatrix, b::Number, Y::BlockSparse) = (Y .= a .* X .+ b .* Y; Y)
LinearAlgebra.axpy!(a::Number, X::BlockSparse, Y::AbstractMatrix) = axpby!(a, X, true, Y)
function LinearAlgebra.axpby!(a::Number, X::BlockSparse, b::Number, Y::AbstractMatrix)
    expect_same_size(Y, X)
    expect_one_head(X, "axpby!")
    return into!(Y, X, a, b)
end

# C += alpha * A
function add_blocks!(C, A::BlockSparseMatrix, alpha)
    foreach_element(A) do i, j, head, x, k
        C[i, j] += alpha * x
    end
    return C
end

# ---- Diagonal factors ----

function Base.:/(A::BlockSparse, D::Diagonal)
    size(A, 2) == size(D, 1) || throw(DimensionMismatch("A has size $(size(A)), D has $(size(D)): expected $(size(A, 2)) rows in D"))
    return A ./ transpose(divisors(D))
end
function Base.:\(D::Diagonal, A::BlockSparse)
    size(A, 1) == size(D, 1) || throw(DimensionMismatch("D has size $(size(D)), A has $(size(A)): expected $(size(A, 1)) rows in D"))
    return A ./ divisors(D)
end
function divisors(D)
    i = findfirst(iszero, D.diag)
    i === nothing || throw(SingularException(i))
    return D.diag
end

# ---- Products of sparse matrices ----

# The type of products and their sums.
product_of(::Type{T}, ::Type{S}) where {T, S} = product_type(promote_type(T, S))

function block_product(A::BlockSparse{T}, B::BlockSparse{S}) where {T, S}
    size(A, 2) == size(B, 1) ||
        throw(DimensionMismatch("A has size $(size(A)), B has $(size(B)): expected $(size(A, 2)) rows in B"))
    expect_equal_heads((A, B))
    P = product_of(T, S)
    X = plain(A)
    Y = in_blocks(B, (cuts(X, 2), cuts(B, 2)))
    # A single block that the edge cuts may be said to be larger than it is, except by boundaries.
    blocksize(X)[2] == blocksize(Y)[1] || ((X, Y) = map(Z -> BlockSparseMatrix(sparse(Z); boundaries(Z)...), (X, Y)))
    return adopt(P, Raw.tartan_matrix_multiply(nothing, X, Y, dtype_code(P)))
end

# C = alpha * P + beta * C for a sparse product P.
function into!(C::AbstractMatrix, P, alpha, beta)
    if !can_follow(C, promote_type(eltype(P), typeof(alpha), typeof(beta))) # some number may have no place in C
        R = iszero(beta) ? Matrix(alpha * P) : Matrix(alpha * P) + beta * C
        return copyto!(C, convert(Matrix{eltype(C)}, R))
    end
    iszero(beta) ? fill!(C, zero(eltype(C))) : isone(beta) || rmul!(C, beta)
    return P isa BlockSparse ? add_blocks!(C, plain(P), alpha) : add_entries!(C, P, alpha)
end
function add_entries!(C, S::SparseMatrixCSC, alpha)
    for j in 1:size(S, 2), k in nzrange(S, j)
        C[rowvals(S)[k], j] += alpha * nonzeros(S)[k]
    end
    return C
end
function into!(C::SparseMatrixCSC{T}, P, alpha, beta) where {T}
    S = alpha * compressed(P)
    return copyto!(C, SparseMatrixCSC{T, Int}(iszero(beta) ? S : S + beta * C))
end
into!(C::BlockSparse, P, alpha, beta) = copyto!(C, iszero(beta) ? alpha * P : alpha * P + beta * C)

# `*` and `mul!` of products.jl call these.
left_product(A::BlockSparse, B::BlockSparse) = block_product(A, B)
left_product(A::BlockSparse, S::Compressed) = compressed_product(sparse(A), S)
right_product(S::Compressed, A::BlockSparse) = compressed_product(S, sparse(A))
compressed_product(A, B) = (expect_factors(A, B); compressed(A) * compressed(B))
expect_factors(A, B) = size(A, 2) == size(B, 1) ||
    throw(DimensionMismatch("A has size $(size(A)), B has $(size(B)): expected $(size(A, 2)) rows in B"))
function left!(C, A::BlockSparse, B::Union{BlockSparse, Compressed}, alpha, beta)
    expect_sizes(C, A, B)
    return into!(C, left_product(A, B), alpha, beta)
end
function right!(C, B::Compressed, A::BlockSparse, alpha, beta)
    expect_sizes(C, B, A)
    return into!(C, right_product(B, A), alpha, beta)
end

# ---- Powers ----

function Base.one(A::BlockSparse{T}) where {T}
    LinearAlgebra.checksquare(A)
    return with_diagonal(BlockSparseMatrix{T}(on_grid(plain(A).layout, falses(gridsize(A)..., heads(A)))), 1, one(T))
end
