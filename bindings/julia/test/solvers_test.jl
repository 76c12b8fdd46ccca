# SPDX-License-Identifier: Apache-2.0
# Factors, and factors of other numbers at the same places.

function spd(n, block)
    S = spdiagm(-1 => fill(-1.0, n - 1), 0 => fill(4.0, n), 1 => fill(-1.0, n - 1))
    return BlockSparseMatrix(S, block), S
end

@testset "zeros in blocks do not fill the factors" begin
    A, S = spd(30, 5)
    @test nnz(sparse(A)) > nnz(S) == nnz(Tartan.without_zeros(A)) && Tartan.without_zeros(A) == S
    @test nnz(sparse(cholesky(A).L)) == nnz(sparse(cholesky(S).L)) && nnz(sparse(cholesky(Symmetric(A)).L)) == nnz(sparse(cholesky(S).L))
    @test nnz(lu(A).L) == nnz(lu(S).L) && A \ ones(30) ≈ S \ ones(30) && A' \ ones(30) ≈ S \ ones(30)
    for _ in 1:20
        B = random_matrix(Float64, rand(1:20), rand(1:20), (rand(1:5), rand(1:5)))
        @test Tartan.without_zeros(B) == dropzeros!(sparse(Matrix(B))) && Tartan.without_zeros(B') == dropzeros!(sparse(Matrix(B)'))
        @test nnz(sparse(B)) == nnz(B) && sparse(B) == sparse(Matrix(B))
    end
end

@testset "factors of other numbers" begin
    A, S = spd(30, 5)
    for (make, remake!) in ((cholesky, cholesky!), (ldlt, ldlt!), (lu, lu!)), view in (identity, Symmetric, A -> Hermitian(A, :L))
        make === lu && view !== identity && continue
        F = make(view(A))
        @test remake!(F, view(3A)) === F && F \ ones(30) ≈ (3S) \ ones(30)
        B = 2A
        B[1, 5] = B[5, 1] = 1.0 # in a block, where A has 0
        error = refusal(() -> remake!(F, view(B)))
        @test error isa ArgumentError && occursin("expected 0 there", error.msg) && F \ ones(30) ≈ (3S) \ ones(30)
        @test refusal(() -> remake!(make(view(BlockSparseMatrix(S, 6))), view(A))) isa ArgumentError
        @test refusal(() -> remake!(make(make === lu ? S : Symmetric(S)), view(A))) isa ArgumentError
    end
    @test refusal(() -> cholesky!(cholesky(A), Symmetric(A))) isa ArgumentError
    U = copy(A)
    U[1, 2] = 0
    @test refusal(() -> cholesky!(cholesky(A), U)) isa ArgumentError && refusal(() -> cholesky(U)) isa ArgumentError
end

@testset "elements of an inverse" begin
    n = 37
    S = sprandn(n, n, 0.06)
    A = BlockSparseMatrix(sparse(S * S' + 2I), 4)
    Z = inv(Matrix(A))
    for x in (A, cholesky(A), sparse(A), Symmetric(A), Symmetric(sparse(A)), cholesky(A; perm = 1:n))
        @test diag_inverse(x) ≈ diag(Z)
        Y = selected_inverse(x)
        rows, cols, z = findnz(parent(Y))
        @test z ≈ [Z[i, j] for (i, j) in zip(rows, cols)]
        @test issubset(Tuple.(findall(!iszero, triu(Matrix(A)))), collect(zip(rows, cols)))
    end
    @test diag_inverse(BlockSparseMatrix(fill(4.0, 1, 1), 2)) == [0.25]
    @test_throws ArgumentError diag_inverse(lu(A))
    @test_throws PosDefException diag_inverse(-A)
end
