# SPDX-License-Identifier: Apache-2.0
# Needs the optimizations of -O2, Julia's default.

@testset "a call allocates nothing" begin
    A, X, g = random_matrix(Float64, 8, 8, (4, 4), 1.0), exact(Float64, 8, 8), ones(4)
    C, y, x, B = zeros(8, 8), zeros(8), exact(Float64, 8), exact(Float64, 8, 8, 2)
    D = similar(B)
    context = Context(threads = 1)
    calls = (() -> mul!(C, A, X), () -> mul!(C, A, X, 2, 1), () -> mul!(C, A', X'), () -> mul!(C, X, A), () -> mul!(y, A, x),
             () -> spmm!(C, A, X), () -> spmm!(C, A, X; gates = g, alpha = 0.5, transpose = true), () -> spmm!(C, A, X; side = :right),
             () -> spmm!(C, A, X; context = context), () -> spmm!(D, A, B), () -> mul!(view(C, 1:8, 1:4), A, view(X, :, 1:2:8)),
             () -> A[3, 5], () -> (A[3, 5] = 1.0), () -> nblocks(A.layout))
    bytes(f) = (f(); @allocated f())
    for f in calls
        @test bytes(f) <= 16 # a boxed result
    end
    for T in (Float32, Float16, BFloat16)
        W, Y, Z = BlockSparseMatrix{T}(A), T.(X), zeros(T, 8, 8)
        @test bytes(() -> mul!(Z, W, Y)) == 0
    end
end
