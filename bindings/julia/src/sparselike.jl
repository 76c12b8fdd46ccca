# SPDX-License-Identifier: Apache-2.0
# Kinds of matrices of the standard library, for dispatch, and what Tartan's matrices can hold.

# Sparse matrices of the standard library, other than SparseMatrixCSC itself: their transposes, symmetric or triangular views of
# them, and parts.
const Flipped{S} = Union{Adjoint{<:Any, <:S}, Transpose{<:Any, <:S}}
const Viewed{S} = Union{Symmetric{<:Any, <:S}, Hermitian{<:Any, <:S}, UpperTriangular{<:Any, <:S}, LowerTriangular{<:Any, <:S},
                        UnitUpperTriangular{<:Any, <:S}, UnitLowerTriangular{<:Any, <:S}}
const Banded = Union{Diagonal, Bidiagonal, Tridiagonal, SymTridiagonal}
const Sparselike = Union{Banded, Flipped{SparseMatrixCSC}, Viewed{SparseMatrixCSC}, Viewed{Flipped{SparseMatrixCSC}},
                         Flipped{Viewed{SparseMatrixCSC}}, Flipped{Banded}, SubArray{<:Any, 2, <:SparseMatrixCSC}}
const Compressed = Union{SparseMatrixCSC, Sparselike}

# The same elements as a SparseMatrixCSC. For what SparseArrays would read element by element there are methods.
compressed(x::AbstractMatrix) = sparse(x)
compressed(x::SparseMatrixCSC) = x
compressed(x::Adjoint) = copy(adjoint(compressed(parent(x))))
compressed(x::Transpose) = copy(transpose(compressed(parent(x))))
compressed(x::SubArray) = compressed(parent(x))[parentindices(x)...]
compressed(x::Symmetric) = sparse(Symmetric(compressed(parent(x)), Symbol(x.uplo)))
compressed(x::Hermitian) = sparse(Hermitian(compressed(parent(x)), Symbol(x.uplo)))
compressed(x::UpperTriangular) = triu(compressed(parent(x)))
compressed(x::LowerTriangular) = tril(compressed(parent(x)))
compressed(x::UnitUpperTriangular) = triu(compressed(parent(x)), 1) + I
compressed(x::UnitLowerTriangular) = tril(compressed(parent(x)), -1) + I

# Element types; results with others are a SparseMatrixCSC.
const Stored = Union{Float64, Float32, Float16, BFloat16, Float8}
can_hold(::Type{T}) where {T} = T <: Stored && isconcretetype(T)
