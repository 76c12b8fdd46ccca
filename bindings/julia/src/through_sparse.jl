# SPDX-License-Identifier: Apache-2.0
# What SparseArrays and its solvers do: factorizations and solutions of a SparseMatrixCSC.

for f in (:lu, :qr, :factorize, :det, :logdet, :logabsdet, :inv)
    @eval LinearAlgebra.$f(A::BlockSparse; options...) = $f(sparse(A); options...)
end
# CHOLMOD wants the places of the entries to be symmetric, too, which zeros in blocks need not be.
for f in (:cholesky, :ldlt)
    @eval function LinearAlgebra.$f(A::BlockSparse; options...)
        issymmetric(A) || throw(ArgumentError(string("A is not symmetric, as ", $f, " expects: use lu, or ", $f, "(Symmetric(A)), which takes the upper triangle")))
        return $f(Symmetric(sparse(A)); options...)
    end
end
LinearAlgebra.cond(A::BlockSparse, p::Real = 2) = cond(sparse(A), p)
Base.:\(A::BlockSparse, b::AbstractVecOrMat) = sparse(A) \ b
Base.:\(A::BlockSparse, B::BlockSparse) = sparse(A) \ Matrix(B)
# In place, as for triangular matrices, which are block-sparse here.
LinearAlgebra.ldiv!(A::BlockSparse, B::AbstractVecOrMat) = copyto!(B, A \ B)
LinearAlgebra.rdiv!(B::AbstractMatrix, A::BlockSparse) = copyto!(B, B / A)
LinearAlgebra.lmul!(A::BlockSparse, B::AbstractVecOrMat) = copyto!(B, A * B)
LinearAlgebra.rmul!(B::AbstractMatrix, A::BlockSparse) = copyto!(B, B * A)
