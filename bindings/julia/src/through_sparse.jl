# SPDX-License-Identifier: Apache-2.0
# What SparseArrays and its solvers do: factorizations and solutions of a SparseMatrixCSC.

for f in (:lu, :qr, :cholesky, :ldlt, :factorize, :det, :logdet, :logabsdet, :inv, :eigvals, :eigen, :svd, :svdvals, :pinv, :nullspace)
    @eval LinearAlgebra.$f(A::BlockSparse; options...) = $f(sparse(A); options...)
end
LinearAlgebra.cond(A::BlockSparse, p::Real = 2) = cond(sparse(A), p)
for V in (AbstractVector, AbstractMatrix)
    @eval Base.:\(A::BlockSparse, b::$V) = sparse(A) \ (b isa BlockSparse ? Matrix(b) : b)
    @eval Base.:\(A::Wrapped, b::$V) = sparse_view(A) \ b
end

# The same view of a SparseMatrixCSC, whose solvers know it.
sparse_view(A::Symmetric) = Symmetric(sparse(parent(A)), Symbol(A.uplo))
sparse_view(A::Hermitian) = Hermitian(sparse(parent(A)), Symbol(A.uplo))
sparse_view(A::UpperTriangular) = UpperTriangular(sparse(parent(A)))
sparse_view(A::LowerTriangular) = LowerTriangular(sparse(parent(A)))
sparse_view(A::UnitUpperTriangular) = UnitUpperTriangular(sparse(parent(A)))
sparse_view(A::UnitLowerTriangular) = UnitLowerTriangular(sparse(parent(A)))
for f in (:cholesky, :ldlt)
    @eval LinearAlgebra.$f(A::OfSparse{BlockSparse}; options...) = $f(sparse_view(A); options...)
end
