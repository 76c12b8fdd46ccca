# SPDX-License-Identifier: Apache-2.0
# What SparseArrays and its solvers do: factorizations and solutions of a SparseMatrixCSC. The zeros inside of blocks would fill the
# factors, so they are dropped.

for f in (:lu, :ldlt, :cholesky)
    @eval function LinearAlgebra.$f(A::BlockSparse; options...)
        X = plain(A)
        places = places_of_numbers(X)
        S = at_places(X, places)
        F = $(f === :lu ? :(lu(S; options...)) : :($f(symmetric_entries(S, $f); options...)))
        remember(F, X.layout, places, 'N')
        return F
    end
    inplace = Symbol(f, :!)
    @eval LinearAlgebra.$inplace(F::Factorization, A::BlockSparse; options...) = refactorized!($inplace, F, plain(A), 'N'; options...)
end
for f in (:ldlt, :cholesky)
    @eval function LinearAlgebra.$f(W::SymmetricBlocks{<:Real}; options...)
        X = plain(parent(W))
        places = places_of_numbers(X)
        F = $f(Symmetric(at_places(X, places), Symbol(W.uplo)); options...)
        remember(F, X.layout, places, W.uplo)
        return F
    end
    inplace = Symbol(f, :!)
    @eval LinearAlgebra.$inplace(F::Factorization, W::SymmetricBlocks{<:Real}; options...) =
        refactorized!($inplace, F, plain(parent(W)), W.uplo; options...)
end
for f in (:qr, :factorize, :det, :logdet, :logabsdet, :inv)
    @eval LinearAlgebra.$f(A::BlockSparse; options...) = $f(without_zeros(A); options...)
end
# CHOLMOD reads one triangle.
function symmetric_entries(S, f)
    issymmetric(S) || throw(ArgumentError("A is not symmetric, as $f expects: use lu, or $f(Symmetric(A)), which takes the upper triangle"))
    return Symmetric(S)
end

LinearAlgebra.cond(A::BlockSparse, p::Real = 2) = cond(without_zeros(A), p)
Base.:\(A::BlockSparse, b::AbstractVecOrMat) = without_zeros(A) \ b
Base.:\(A::BlockSparse, B::BlockSparse) = without_zeros(A) \ Matrix(B)
LinearAlgebra.ldiv!(A::BlockSparse, B::AbstractVecOrMat) = copyto!(B, A \ B)
LinearAlgebra.rdiv!(B::AbstractMatrix, A::BlockSparse) = copyto!(B, B / A)
LinearAlgebra.lmul!(A::BlockSparse, B::AbstractVecOrMat) = copyto!(B, A * B)
LinearAlgebra.rmul!(B::AbstractMatrix, A::BlockSparse) = copyto!(B, B * A)

# ---- Elements of an inverse ----

"""
    diag_inverse(A)
    diag_inverse(F)

The diagonal of the inverse of a symmetric positive definite matrix `A`, or of the matrix that `F = cholesky(A)` was made of. It costs
about as much as the factor, since no column of the inverse is solved for. `A` may be a `BlockSparseMatrix`, a `SparseMatrixCSC` or
`Symmetric`. See [`selected_inverse`](@ref).

    A = BlockSparseMatrix([4.0 1 0 0; 1 4 1 0; 0 1 4 1; 0 0 1 4], 2)
    diag_inverse(A) ≈ diag(inv(Matrix(A)))
"""
function diag_inverse(F::Factorization)
    L = lower_factor(F)
    d = Vector{Float64}(undef, size(L, 1))
    d[F.p] = inverse_at(L)[SparseArrays.getcolptr(L)[1:end - 1]]
    return d
end

"""
    selected_inverse(A)
    selected_inverse(F)

The elements of the inverse where the factor of [`diag_inverse`](@ref) has elements, as a `Symmetric` of a `SparseMatrixCSC`. All
places of `A` are among them. The other elements are left out, though they are not zero.

    A = BlockSparseMatrix([4.0 1 0 0; 1 4 1 0; 0 1 4 1; 0 0 1 4], 2)
    selected_inverse(A)[3, 2] ≈ inv(Matrix(A))[3, 2]
"""
function selected_inverse(F::Factorization)
    L = lower_factor(F)
    rows, cols, _ = findnz(L)
    i, j = F.p[rows], F.p[cols]
    return Symmetric(sparse(min.(i, j), max.(i, j), inverse_at(L), size(L)...), :U)
end
for f in (:diag_inverse, :selected_inverse)
    @eval $f(A::Union{BlockSparse, SymmetricBlocks{<:Real}, SparseMatrixCSC, Symmetric{<:Real, <:SparseMatrixCSC}}) = $f(cholesky(A))
end
# L L' = A[p, p].
function lower_factor(F)
    nameof(parentmodule(typeof(F))) === :CHOLMOD ||
        throw(ArgumentError("F is a factor of type $(nameof(typeof(F))), expected one of cholesky(A)"))
    return sparse(F.L)
end
function inverse_at(L::SparseMatrixCSC)
    z = copy(nonzeros(L))
    Raw.tartan_selected_inverse((SparseArrays.getcolptr(L) .- 1, rowvals(L) .- 1, true), described(as_it_is, z), described(as_it_is, z))
    return z
end

# ---- Factors of other numbers at the same places ----

# The places in the values of A of the numbers other than 0, as a matrix of such numbers' rows and columns.
places_of_numbers(A::BlockSparseMatrix) =
    compressed_columns(A.layout, LinearIndices(A.values), A.values, Val(false))
at_places(A::BlockSparseMatrix, places) = SparseMatrixCSC(size(places)..., copy(SparseArrays.getcolptr(places)), copy(rowvals(places)), A.values[nonzeros(places)])

# Which places a factor was made for. SuiteSparse reads no numbers at others, and says nothing. (A weak reference does not change with
# the factor, as its hash does.)
struct Origin
    factor::WeakRef
    layout::BlockLayout
    places::SparseMatrixCSC{Int, Int}
    triangle::Char # 'U' or 'L' of a symmetric view, else 'N'
end
const ORIGINS = Origin[]
const ORIGINS_LOCK = ReentrantLock()

function remember(F, layout, places, triangle)
    ismutable_value(F) || return nothing
    lock(ORIGINS_LOCK) do
        filter!(x -> x.factor.value !== nothing, ORIGINS)
        push!(ORIGINS, Origin(WeakRef(F), layout, places, triangle))
    end
    return nothing
end
ismutable_value(F) = typeof(F) isa DataType && !isbits(F) && (VERSION < v"1.7" ? typeof(F).mutable : ismutabletype(typeof(F)))

function origin_of(F)
    lock(ORIGINS_LOCK) do
        i = findlast(x -> x.factor.value === F, ORIGINS)
        return i === nothing ? nothing : ORIGINS[i]
    end
end

"""
    cholesky!(F, A::BlockSparseMatrix)
    ldlt!(F, A::BlockSparseMatrix)
    lu!(F, A::BlockSparseMatrix)

Factors of `A` in place of `F`, which `cholesky`, `ldlt` or `lu` made of a matrix on the same layout. The elimination order and
the pattern of the factors stay; only their values are computed again. `A` may have non-zeros only where the first matrix had
them; otherwise it is refused and `F` does not change. Pass `Symmetric(A)` if the first matrix was `Symmetric`.

    A = BlockSparseMatrix([4.0 1 0 0; 1 4 0 0; 0 0 4 1; 0 0 1 4], 2)
    F = cholesky(A)
    cholesky!(F, 2A) \\ ones(4)
"""
function refactorized!(factorize!, F::Factorization, A::BlockSparseMatrix, triangle; options...)
    origin = origin_of(F)
    name = chop(string(factorize!))
    origin === nothing && throw(ArgumentError("the factor was not made of a matrix in blocks by $name, and nothing says where its numbers may be: " *
                                              "expected F = $name(A), or $factorize!(F, sparse(A))"))
    origin.triangle == triangle || throw(ArgumentError("the factor was made of $(shown_as(origin.triangle)), expected the same in place of $(shown_as(triangle))"))
    A.layout === origin.layout || A.layout == origin.layout ||
        throw(ArgumentError("A has another layout than the matrix of the factor, expected the same: $name(A) makes a new factor"))
    S = at_places(A, origin.places)
    count(!iszero, A.values) == count(!iszero, nonzeros(S)) || name_number_outside(A, origin.places, name)
    factorize!(F, triangle != 'N' ? Symmetric(S, Symbol(triangle)) : name == "lu" ? S : symmetric_entries(S, name); options...)
    return F
end
shown_as(triangle) = triangle == 'N' ? "a matrix itself" : "Symmetric(A, :$triangle)"

@noinline function name_number_outside(A, places, name)
    known = falses(size(A.values))
    known[nonzeros(places)] .= true
    foreach_element(A) do i, j, head, x, k
        iszero(x) || known[slot(A, i, j)] || throw(ArgumentError(
            "A[$i, $j] is $x where the matrix of the factor had 0, expected 0 there: $name(A) makes a new factor"))
    end
end
