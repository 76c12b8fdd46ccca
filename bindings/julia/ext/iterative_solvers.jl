# SPDX-License-Identifier: Apache-2.0
# The stationary methods of IterativeSolvers.jl read the elements of a matrix one by one, and have methods for a SparseMatrixCSC, which
# they get. The others multiply alone. Runs in a module that has IterativeSolvers and Tartan.

for f in (:jacobi!, :gauss_seidel!)
    @eval IterativeSolvers.$f(x, A::Tartan.BlockSparse, b; options...) = IterativeSolvers.$f(x, Tartan.without_zeros(A), b; options...)
end
for f in (:sor!, :ssor!)
    @eval IterativeSolvers.$f(x, A::Tartan.BlockSparse, b, ω::Real; options...) =
        IterativeSolvers.$f(x, Tartan.without_zeros(A), b, ω; options...)
end
