# SPDX-License-Identifier: Apache-2.0
# What SparseArrays and its solvers do: factorizations and solutions of a SparseMatrixCSC.

for f in (:lu, :qr, :cholesky, :ldlt, :factorize, :det, :logdet, :logabsdet, :inv, :eigvals, :eigen, :svd, :svdvals, :pinv, :nullspace)
    @eval LinearAlgebra.$f(A::BlockSparse; options...) = $f(sparse(A); options...)
end
LinearAlgebra.cond(A::BlockSparse, p::Real = 2) = cond(sparse(A), p)
Base.:\(A::BlockSparse, b::AbstractVecOrMat) = sparse(A) \ b
Base.:\(A::BlockSparse, B::BlockSparse) = sparse(A) \ Matrix(B)
