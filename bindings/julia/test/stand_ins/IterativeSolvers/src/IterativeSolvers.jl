# SPDX-License-Identifier: Apache-2.0
# The methods of IterativeSolvers.jl that read elements, and their kinds of arguments.
module IterativeSolvers
using SparseArrays

for f in (:jacobi!, :gauss_seidel!)
    @eval $f(x, A::AbstractMatrix, b; maxiter::Int = 10) = error("element by element")
    @eval $f(x::AbstractVector, A::SparseMatrixCSC, b::AbstractVector; maxiter::Int = 10) = (x .= sum(A) .* b .+ maxiter; x)
end
for f in (:sor!, :ssor!)
    @eval $f(x, A::AbstractMatrix, b, ω::Real; maxiter::Int = 10) = error("element by element")
    @eval $f(x::AbstractVector, A::SparseMatrixCSC, b::AbstractVector, ω::Real; maxiter::Int = 10) = (x .= sum(A) .* b .+ ω .+ maxiter; x)
end

end
