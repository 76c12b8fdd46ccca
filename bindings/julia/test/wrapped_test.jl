# SPDX-License-Identifier: Apache-2.0
# Symmetric, Hermitian and triangular views of a matrix in blocks, beside those of the dense matrix.

const VIEWS = (A -> Symmetric(A), A -> Symmetric(A, :L), A -> Hermitian(A), A -> Hermitian(A, :L), UpperTriangular, LowerTriangular,
               UnitUpperTriangular, UnitLowerTriangular)

# A matrix with a diagonal that can be divided by, and the dense one.
function square_matrix(T, n, block, flipped)
    D = exact(T, n, n) .* kron(rand(cld(n, 4), cld(n, 4)) .< 0.6, trues(4, 4))[1:n, 1:n] + T(9) * I
    D[1:2, 1:2] .= T[9 1; 2 9] # stored whatever the blocks
    A = BlockSparseMatrix(D, block)
    return flipped ? (A', copy(D')) : (A, D)
end

outcome(f, x) = try f(x) catch error; error end
alike(a::Exception, b) = b isa Exception
alike(a, b::Exception) = false
alike(a, b) = a == b
alike(a::Number, b::Number) = a ≈ b
alike(a::AbstractArray, b::AbstractArray) = size(a) == size(b) && isapprox(Array(a), Array(b); rtol = 1e-3, atol = 1e-3)

const SQUARE_CASES = ((12, (4, 4), false, Float64), (11, (4, 4), true, Float32), (11, (3, 4), false, Float64), (9, (1, 1), true, Float64))

@testset "as the views of a dense matrix: $n, blocks $block, $T" for (n, block, flipped, T) in SQUARE_CASES
    A, D = square_matrix(T, n, block, flipped)
    x, X, Y = exact(T, n), exact(T, n, 3), exact(T, 2, n)
    B, E = random_matrix(T, n, n, (2, 3)), UpperTriangular(exact(T, n, n) + T(9) * I)
    functions = Any[Matrix, sparse, W -> W * x, W -> W * X, W -> Y * W, W -> x' * W, W -> X' * W, W -> W * Y', W -> mul!(ones(T, n, 3), W, X, 2, 3),
        W -> mul!(ones(T, n), W, x, 2, 3), W -> mul!(ones(T, 2, n), Y, W, 2, 3), W -> W * 2, W -> 2 * W, W -> -W, W -> W / 2, W -> W + I, W -> I - W,
        W -> W + Diagonal(x), W -> W * Diagonal(x), W -> Diagonal(x) * W, W -> W + W, W -> W - W', W -> W', sum, W -> sum(W; dims = 1), maximum, norm,
        W -> opnorm(W, 1), tr, diag, W -> diag(W, 1), W -> W .+ W .* 3, W -> map(abs, W), W -> W[1:3, :], W -> W[:, 2], W -> W[2, :], W -> W[2, 3],
        W -> W \ x, W -> W \ X, W -> Y / W, W -> x' / W, det, issymmetric, istriu, istril, isdiag, W -> W * W, W -> W' * W, triu,
        W -> tril(W, 1), W -> kron(W, [1 2; 3 4]), W -> [W W], W -> [W; W], W -> [I W], W -> W == W, W -> dot(W, W), W -> dot(x, W, x),
        W -> W^2, mean, W -> var(W; dims = 1), W -> any(isnan, W),
        W -> count(!iszero, W), W -> findmax(W)[1], W -> W * im, W -> W * (x .+ im), copy, extrema, iszero, W -> W * E, W -> E * W, W -> W * sparse(B)]
    for view in VIEWS
        W, V = view(A), view(D)
        @test typeof(W).name === typeof(V).name && issparse(W) && parent(W) === A
        for (i, f) in enumerate(functions)
            good = alike(outcome(f, W), outcome(f, V))
            good || println(nameof(typeof(W)), ", function ", i, ": ", outcome(f, W), " instead of ", outcome(f, V))
            @test good
        end
        for f in (*, +, -, (W, B) -> B * W, (W, B) -> B - W, (W, B) -> W \ Matrix(B))
            @test alike(f(W, B), f(V, Matrix(B)))
        end
        @test ldiv!(W, Float64.(x)) ≈ V \ x && lmul!(W, Float64.(X)) ≈ V * X && rmul!(Float64.(Y), W) ≈ Y * V && rdiv!(Float64.(Y), W) ≈ Y / V
        @test W + B isa BlockSparseMatrix && W * B isa BlockSparseMatrix && BlockSparseMatrix(W, 2) == V && W == V
        @test W * Symmetric(B) ≈ V * Symmetric(Matrix(B)) && W * UpperTriangular(B) ≈ V * UpperTriangular(Matrix(B))
    end
end

@testset "writes reach the matrix, all or nothing: $n, blocks $block" for (n, block, flipped, T) in SQUARE_CASES
    A, D = square_matrix(T, n, block, flipped)
    for view in VIEWS, write! in (W -> (W[1, 1] = 5), W -> (W[1, 2] = 5), W -> (W[2, 1] = 5), W -> (W[2, 1] = 0), W -> (W .= W .* 2), W -> rmul!(W, 3), W -> fill!(W, 0),
                                  W -> (W[1:2, 1:2] = [5 6; 0 5]), W -> copyto!(W, Matrix(W)))
        B, E = flipped ? (copy(parent(A))', copy(D)) : (copy(A), copy(D))
        done = outcome(write!, view(B))
        if done isa Exception
            @test B == A
        elseif outcome(write!, view(E)) isa Exception # some versions of LinearAlgebra refuse broadcasts into views of dense matrices
            M = Matrix(view(D))
            write!(M)
            @test Matrix(view(B)) == M
        else
            @test B == E
        end
    end
    S = Symmetric(copy(A))
    S[1, 1] = 7
    @test parent(S)[1, 1] == 7
    S[1:2, 1:2] = [5 6; 6 5]
    @test parent(S)[1, 2] == 6 && S[2, 1] == 6
end

# LinearAlgebra has methods for many pairs of kinds; each pair with a view of ours needs one that is meant.
@testset "no ambiguous calls" begin
    V(W) = W{Float64, BlockSparseMatrix{Float64}}
    others = (Vector{Float64}, Matrix{Float64}, Adjoint{Float64, Matrix{Float64}}, Transpose{Float64, Vector{Float64}}, Diagonal{Float64, Vector{Float64}},
              Tridiagonal{Float64, Vector{Float64}}, Bidiagonal{Float64, Vector{Float64}}, UpperTriangular{Float64, Matrix{Float64}}, UnitLowerTriangular{Float64, Matrix{Float64}},
              Adjoint{Float64, LowerTriangular{Float64, Matrix{Float64}}}, Symmetric{Float64, Matrix{Float64}}, SparseMatrixCSC{Float64, Int}, SparseVector{Float64, Int},
              Adjoint{Float64, SparseMatrixCSC{Float64, Int}}, BlockSparseMatrix{Float64}, map(V, (Symmetric, Hermitian, UpperTriangular, UnitLowerTriangular))...)
    for W in (Symmetric, Hermitian, UpperTriangular, UnitUpperTriangular, LowerTriangular, UnitLowerTriangular), F in others
        for f in (*, \, /, +, -, dot, ldiv!, lmul!, rmul!, rdiv!, copyto!, ==), types in (Tuple{V(W), F}, Tuple{F, V(W)})
            @test length(methods(f, types)) == 0 || outcome(types -> which(f, types), types) isa Method
        end
        for types in (Tuple{Matrix{Float64}, V(W), F}, Tuple{Matrix{Float64}, F, V(W)})
            @test outcome(types -> which(mul!, types), types) isa Method
        end
    end
end

@testset "a zero on the diagonal is named" begin
    A = BlockSparseMatrix([1.0 2 0; 0 0 3; 0 0 4], 2)
    for f in (W -> W \ ones(3), W -> ldiv!(W, ones(3)), W -> ones(1, 3) / W)
        @test refusal(() -> f(UpperTriangular(A))) == SingularException(2)
    end
    @test refusal(() -> UpperTriangular(A) \ ones(4)) isa DimensionMismatch
end

@testset "a layout keeps what products with views of its matrices need" begin
    A, D = square_matrix(Float64, 12, (4, 4), false)
    x = exact(Float64, 12)
    Symmetric(A) * x
    kept = Tartan.triangle(A.layout, true, Float64)
    @test kept === Tartan.triangle(A.layout, true, Float64) && kept !== Tartan.triangle(A.layout, false, Float64)
    A .*= 3 # the numbers are those of the moment
    @test Symmetric(A) * x == Symmetric(3D) * x && Tartan.triangle(A.layout, true, Float64) === kept
    B = BlockSparseMatrix{Float32}(A)
    @test Symmetric(B) * Float32.(x) ≈ Symmetric(3D) * x && Symmetric(A) * x == Symmetric(3D) * x
end
