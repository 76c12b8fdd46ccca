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

outcome(@nospecialize(f), @nospecialize(arguments...)) = try f(arguments...) catch error; error end

# Numbers and dense arrays of them are compared by one method each, which is compiled once; so is what is not specialised.
alike(@nospecialize(a), @nospecialize(b)) =
    a isa Exception || b isa Exception ? b isa Exception && a isa Exception :
    a isa AbstractArray && b isa AbstractArray ? size(a) == size(b) && near(dense_numbers(a), dense_numbers(b)) :
    a isa Number && b isa Number ? isapprox(ComplexF64(a), ComplexF64(b); rtol = 1e-6) : a == b
near(a::Array{ComplexF64}, b::Array{ComplexF64}) = isapprox(a, b; rtol = 1e-3, atol = 1e-3)
dense_numbers(@nospecialize(x)) = numbers_of(Array(x))
numbers_of(x::Array) = Array{ComplexF64}(x)

const SQUARE_CASES = ((12, (4, 4), false, Float64), (11, (4, 4), true, Float32), (11, (3, 4), false, Float64), (9, (1, 1), true, Float32))

# Of a view W, and of the dense matrix with the elements that it shows.
const VIEW_LAWS = (
    (W, c) -> Matrix(W), (W, c) -> sparse(W), (W, c) -> W * c.x, (W, c) -> W * c.X, (W, c) -> c.Y * W, (W, c) -> c.x' * W, (W, c) -> c.X' * W, (W, c) -> W * c.Y',
    (W, c) -> mul!(ones(eltype(c.x), c.n, 3), W, c.X, 2, 3), (W, c) -> mul!(ones(eltype(c.x), c.n), W, c.x, 2, 3), (W, c) -> mul!(ones(eltype(c.x), 2, c.n), c.Y, W, 2, 3),
    (W, c) -> W * 2, (W, c) -> 2 * W, (W, c) -> -W, (W, c) -> W / 2, (W, c) -> W + I, (W, c) -> I - W,
    (W, c) -> W + Diagonal(c.x), (W, c) -> W * Diagonal(c.x), (W, c) -> Diagonal(c.x) * W, (W, c) -> W + W, (W, c) -> W - W', (W, c) -> W', (W, c) -> sum(W),
    (W, c) -> sum(W; dims = 1), (W, c) -> maximum(W), (W, c) -> norm(W), (W, c) -> opnorm(W, 1), (W, c) -> tr(W), (W, c) -> diag(W), (W, c) -> diag(W, 1),
    (W, c) -> W .+ W .* 3, (W, c) -> map(abs, W), (W, c) -> W[1:3, :], (W, c) -> W[:, 2], (W, c) -> W[2, :], (W, c) -> W[2, 3],
    (W, c) -> W \ c.x, (W, c) -> W \ c.X, (W, c) -> c.Y / W, (W, c) -> c.x' / W, (W, c) -> det(W), (W, c) -> issymmetric(W), (W, c) -> istriu(W),
    (W, c) -> istril(W), (W, c) -> isdiag(W), (W, c) -> W * W, (W, c) -> W' * W, (W, c) -> triu(W), (W, c) -> tril(W, 1), (W, c) -> kron(W, [1 2; 3 4]),
    (W, c) -> [W W], (W, c) -> [W; W], (W, c) -> [I W], (W, c) -> W == W, (W, c) -> dot(W, W), (W, c) -> dot(c.x, W, c.x), (W, c) -> W^2, (W, c) -> mean(W),
    (W, c) -> var(W; dims = 1), (W, c) -> any(isnan, W), (W, c) -> count(!iszero, W), (W, c) -> findmax(W)[1], (W, c) -> W * im, (W, c) -> W * (c.x .+ im),
    (W, c) -> copy(W), (W, c) -> extrema(W), (W, c) -> iszero(W), (W, c) -> W * c.E, (W, c) -> c.E * W, (W, c) -> W * sparse(c.B),
    (W, c) -> W isa Matrix ? W \ c.x : ldiv!(W, Float64.(c.x)), (W, c) -> W isa Matrix ? W * c.X : lmul!(W, Float64.(c.X)),
    (W, c) -> W isa Matrix ? c.Y * W : rmul!(Float64.(c.Y), W), (W, c) -> W isa Matrix ? c.Y / W : rdiv!(Float64.(c.Y), W), (W, c) -> W * Symmetric(c.B), (W, c) -> W * UpperTriangular(c.B))

@testset "as the views of a dense matrix: $n, blocks $block, $T" for (n, block, flipped, T) in SQUARE_CASES
    A, D = square_matrix(T, n, block, flipped)
    B = random_matrix(T, n, n, (2, 3))
    c = (n = n, x = exact(T, n), X = exact(T, n, 3), Y = exact(T, 2, n), B = B, E = UpperTriangular(exact(T, n, n) + T(9) * I))
    for view in VIEWS
        W, V = view(A), view(D)
        M = Matrix(V)
        @test typeof(W).name === typeof(V).name && issparse(W) && parent(W) === A
        for (i, f) in enumerate(VIEW_LAWS)
            ours, dense = outcome(f, W, c), outcome(f, M, merge(c, (B = Matrix(B),)))
            good = alike(ours, dense)
            good || println(nameof(typeof(W)), ", function ", i, ": ", ours, " instead of ", dense)
            @test good
        end
        for f in (*, +, -, (W, B) -> B * W, (W, B) -> B - W, (W, B) -> W \ Matrix(B))
            @test alike(f(W, B), f(M, Matrix(B)))
        end
        @test W + B isa BlockSparseMatrix && W * B isa BlockSparseMatrix && BlockSparseMatrix(W, 2) == M && W == M && W == V
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
