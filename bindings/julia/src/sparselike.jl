# SPDX-License-Identifier: Apache-2.0
# Kinds of matrices of the standard library, for dispatch, and what Tartan's matrices can hold.

# Sparse matrices of the standard library, other than SparseMatrixCSC itself, and their symmetric or triangular views.
const Viewed{S} = Union{Symmetric{<:Any, <:S}, Hermitian{<:Any, <:S}, UpperTriangular{<:Any, <:S}, LowerTriangular{<:Any, <:S},
                        UnitUpperTriangular{<:Any, <:S}, UnitLowerTriangular{<:Any, <:S}}
const Banded = Union{Diagonal, Bidiagonal, Tridiagonal, SymTridiagonal}
const Sparselike = Union{Banded, Adjoint{<:Any, <:SparseMatrixCSC}, Transpose{<:Any, <:SparseMatrixCSC}, Viewed{SparseMatrixCSC}}
const Compressed = Union{SparseMatrixCSC, Sparselike}

# Element types; results with others are a SparseMatrixCSC.
const Stored = Union{Float64, Float32, Float16, BFloat16, Float8}
can_hold(::Type{T}) where {T} = T <: Stored && isconcretetype(T)
