# SPDX-License-Identifier: Apache-2.0
# Blocks of different sizes.

random_bounds(n, most) = [0; cumsum(rand(1:most, n))]

# A matrix, and the same one dense.
function sized_matrix(rows, cols; heads = 1, T = Float64)
    mask = rand(length(rows) - 1, length(cols) - 1, heads) .< 0.5
    layout = BlockLayout(heads == 1 ? mask[:, :, 1] : mask; rows = rows, cols = cols)
    stored = [mask[searchsortedlast(rows, i - 1), searchsortedlast(cols, j - 1), h] for i in 1:rows[end], j in 1:cols[end], h in 1:heads]
    dense = exact(T, rows[end], cols[end], heads) .* stored
    heads == 1 && (dense = dense[:, :, 1])
    return BlockSparseMatrix(dense, layout), dense
end

@testset "layouts say their sizes" begin
    layout = BlockLayout([true true false; false true true]; rows = [0, 3, 5], cols = [0, 4, 5, 12])
    @test isvariable(layout) && size(layout) == (5, 12) && blocksize(layout) == (3, 7) && gridsize(layout) == (2, 3)
    @test boundaries(layout) == (rows = [0, 3, 5], cols = [0, 4, 5, 12])
    @test boundaries(layout') == (rows = [0, 4, 5, 12], cols = [0, 3, 5])
    @test nnz(layout) == 3 * 4 + 3 * 1 + 2 * 1 + 2 * 7 && nblocks(layout) == 4
    @test sprint(show, layout) == "5×12 BlockLayout: 4 of 6 blocks up to 3×7 (66.7%)"
    @test occursin("<svg", svg(layout)) && endswith(sprint(show, MIME"text/plain"(), layout), "██·\n  ·██")
    @test block_mask(layout) == [true true false; false true true] && coordinates(layout)[2] == [1, 2, 2, 3]
    even = with_boundaries(layout; rows = [0, 2, 4], cols = [0, 3, 6, 8])
    @test !isvariable(even) && boundaries(even) == (rows = [0, 2, 4], cols = [0, 3, 6, 8])
    @test even == BlockLayout([true true false; false true true], (2, 3); shape = (4, 8))
    @test with_boundaries(layout) == layout && with_boundaries(layout; rows = [0, 1, 3]) != layout
    @test hash(with_boundaries(even; rows = [0, 3, 5], cols = [0, 4, 5, 12])) == hash(layout)
    @test (layout ∪ layout) == layout && setdiff(layout, slice(layout, 1:2, 1:3)) == prune(layout, falses(4))
    A = BlockSparseMatrix{Float32}(layout)
    @test isvariable(A) && isvariable(A') && boundaries(A') == boundaries(layout') && size(A.values) == (3, 7, 4)
    square = BlockSparseMatrix{Float64}(BlockLayout(trues(2, 2); rows = [0, 3, 5], cols = [0, 3, 5]))
    @test boundaries(Symmetric(square)) == boundaries(square)
    sizes = BlockLayout(sparse([1, 5, 5], [4, 9, 10], 1.0, 5, 12); rows = [0, 3, 5], cols = [0, 4, 5, 12])
    @test block_mask(sizes) == [true false false; false false true]
    dense = zeros(5, 12, 2)
    dense[3, 5, 2] = 1
    @test block_mask(BlockLayout(dense; rows = [0, 3, 5], cols = [0, 4, 5, 12])) == cat(falses(2, 3), [false true false; false false false]; dims = 3)
end

@testset "elements, products and arithmetic are those of dense matrices" begin
    for T in (Float64, Float32), round in 1:12
        rows, cols = random_bounds(rand(1:7), 6), random_bounds(rand(1:6), 5)
        A, D = sized_matrix(rows, cols; T = T)
        B, E = sized_matrix(rows, cols; T = T)
        C, F = sized_matrix(cols, rows; T = T)
        m, n = size(D)
        @test A == D && A' == D' && sparse(A) == D && Matrix(A') == D' && collect(zip(findnz(A)...)) ⊇ collect(zip(findnz(sparse(D))...))
        @test [A[i, j] for i in 1:m, j in 1:n] == D
        X, Y = exact(T, n, 3), exact(T, m, 3)
        @test A * X ≈ D * X && A * X[:, 1] ≈ D * X[:, 1] && A' * Y ≈ D' * Y && Y' * A ≈ Y' * D
        @test mul!(copy(Y), A, X, 2, 1) ≈ Y + 2D * X
        @test spmm!(zeros(T, m, 3), A, X; gates = ones(T, nblocks(A))) ≈ D * X
        S = similar(A)
        sddmm!(S, Y, permutedims(X))
        @test S ≈ BlockSparseMatrix(Y * X', A.layout)
        @test A + B ≈ D + E && A - copy(B')' ≈ D - E && 2A ./ 4 ≈ D ./ 2 && A .* E ≈ D .* E && A .+ 1 ≈ D .+ 1 && max.(A, B) == max.(D, E)
        @test A * C ≈ D * F && A * A' ≈ D * D' && A .* (1:m) ≈ D .* (1:m) && map(abs, A) == abs.(D)
        @test A + BlockSparseMatrix(B, 3) ≈ D + E && BlockSparseMatrix(A, 3) - B ≈ D - E && BlockSparseMatrix(A, 3) * C ≈ D * F
        @test A * BlockSparseMatrix(C, 2) ≈ D * F && A + sparse(E) ≈ D + E && kron(A, B) ≈ kron(D, E)
        @test sum(A) ≈ sum(D) && sum(A; dims = 1) ≈ sum(D; dims = 1) && maximum(abs, A; dims = 2) == maximum(abs, D; dims = 2)
        @test norm(A) ≈ norm(D) && extrema(A) == extrema(D) && count(!iszero, A) == count(!iszero, D) && isapprox(var(A; dims = 1), var(D; dims = 1); nans = true)
        @test findall(x -> x > 1, A) == findall(x -> x > 1, D) && opnorm(A, 1) ≈ opnorm(D, 1) && dot(A, B) ≈ dot(D, E)
        @test tril(A, 1) == tril(D, 1) && triu(A, -1) == triu(D, -1) && diag(A) == diag(D) && dropzeros(A) == D
        i, j = rand(1:m), rand(1:n)
        @test A[1:i, j:n] == D[1:i, j:n] && A[i, :] == D[i, :] && A[:, j] == D[:, j]
        p, q = randperm(length(rows) - 1), randperm(length(cols) - 1)
        lines(bounds, order) = reduce(vcat, [bounds[k] + 1:bounds[k + 1] for k in order])
        @test permute_blocks(A; rows = p, cols = q) == D[lines(rows, p), lines(cols, q)]
        @test slice(A, 2:gridsize(A)[1], 1:1) == D[rows[2] + 1:end, 1:cols[2]]
        @test project(A, B.layout) == D .* block_mask(B.layout)[[searchsortedlast(rows, i - 1) for i in 1:m], [searchsortedlast(cols, j - 1) for j in 1:n]]
    end
end

@testset "writing" begin
    for round in 1:10
        rows, cols = random_bounds(5, 5), random_bounds(6, 4)
        A, D = sized_matrix(rows, cols)
        nblocks(A) == 0 && continue
        i, j, _ = findnz(A)
        k = rand(1:length(i))
        A[i[k], j[k]] = 7
        D[i[k], j[k]] = 7
        @test A == D
        I, J = coordinates(A.layout)
        block_view(A, I[1], J[1]) .= 3
        D[rows[I[1]] + 1:rows[I[1] + 1], cols[J[1]] + 1:cols[J[1] + 1]] .= 3
        @test A == D && sum(A.values) ≈ sum(D)
        A[1:i[k], j[k]] .= 0
        D[1:i[k], j[k]] .= 0
        @test A == D
        A[i[k]:i[k], j[k]:j[k]] = sparse([1], [1], [5.0])
        D[i[k], j[k]] = 5
        @test A == D
        A .= 2 .* A .+ A
        D .*= 3
        @test A ≈ D && copyto!(similar(A), D) == D && sum(A.values) ≈ sum(D)
        @test rmul!(copy(A), 2) ≈ 2D && axpy!(2, A, copy(A)) ≈ 3D
        fill!(A.values, NaN) # padding is never read
        copyto!(A, D)
        @test A == D && A * ones(size(A, 2)) ≈ D * ones(size(A, 2)) && norm(A) ≈ norm(D)
    end
    A, D = sized_matrix([0, 2, 3], [0, 1, 4])
    B = BlockSparseMatrix{Float64}(BlockLayout([true false; false true]; rows = [0, 2, 3], cols = [0, 1, 4]))
    @test_throws ArgumentError B[1, 2] = 1.0
    @test_throws ArgumentError B[3, 1:1] .= [2.0]
    B[1, 2] = 0.0
    @test iszero(B)
    @test_throws ArgumentError block_view(B, 1, 2)
end

# What a program writes beside the elements of blocks reaches no result.
@testset "padding is never read" begin
    functions = (sum, A -> sum(abs2, A), A -> sum(A; dims = 1), A -> sum(A; dims = 2), maximum, A -> minimum(abs, A; dims = 2), extrema, norm,
        A -> norm(A, Inf), A -> opnorm(A, 1), A -> opnorm(A, Inf), A -> findall(!iszero, A), A -> findall(x -> x > 1, A'), findmax, A -> count(!iszero, A),
        A -> any(isnan, A), A -> all(isfinite, A), iszero, mean, A -> mean(A; dims = 1), var, A -> var(A; dims = 1), A -> std(A; dims = 2),
        sparse, Matrix, A -> findnz(A), A -> findnz(sparse(A')), A -> A .> 0, A -> round.(Int, A), A -> A .* im, A -> A + A, A -> A .* A, A -> abs.(A), A -> 2A,
        A -> A * ones(size(A, 2)), A -> A' * ones(size(A, 1), 9), A -> ones(3, size(A, 1)) * A, A -> A * A', A -> A' * A, A -> A * Diagonal(1:size(A, 2)),
        A -> copy(A'), tril, A -> triu(A, 1), diag, A -> A[2:end, :], A -> A[end:-1:1, [1, 3, 2]], A -> A[2, :], A -> [A A], A -> [A; A], A -> kron(A, ones(2, 1)),
        A -> kron(ones(1, 2), A), hash, block_norms, dropzeros, A -> dot(A, A), A -> BlockSparseMatrix(A, 2), A -> Float32.(A), A -> mapslices(sum, A; dims = 1),
        A -> reverse(A; dims = 1), A -> circshift(A, 1), A -> cumsum(A; dims = 1), A -> sddmm!(copy(A), ones(size(A, 1), 2), ones(2, size(A, 2))))
    for (A, clean) in ((random_matrix(Float64, 10, 7, (4, 3)), nothing), sized_matrix([0, 2, 3, 7], [0, 1, 4, 6]))
        B = BlockSparseMatrix(A.layout, fill(NaN, size(A.values)))
        for (i, j) in zip(coordinates(A.layout)...)
            block_view(B, i, j) .= block_view(A, i, j)
        end
        @test any(isnan, B.values) && A == B && isequal(A, B) && A ≈ B && B == Matrix(A)
        for f in functions
            @test isequal(f(A), f(B))
        end
    end
end

on_diagonal(layout) = with_boundaries(BlockLayout(Matrix(I, gridsize(layout)...), 1); boundaries(layout)...)

# Elements with different numbers of unknowns at their nodes.
@testset "finite elements" begin
    unknowns = rand(1:5, 25)
    bounds = [0; cumsum(unknowns)]
    span(i) = bounds[i] + 1:bounds[i + 1]
    elements = [unique(rand(1:25, 3)) for _ in 1:50]
    rows, cols = [i for e in elements for i in e for j in e], [j for e in elements for i in e for j in e]
    blocks = [(i == j) * 9.0 * Matrix(I, unknowns[i], unknowns[i])[1:unknowns[i], 1:(i == j ? unknowns[i] : 1)] .+ zeros(unknowns[i], unknowns[j]) .+
              (1 / 128) * (1:unknowns[i]) * (1:unknowns[j])' for (i, j) in zip(rows, cols)]
    A = BlockSparseMatrix(rows, cols, blocks; rows = bounds, cols = bounds)
    D = zeros(bounds[end], bounds[end])
    for (i, j, x) in zip(rows, cols, blocks)
        D[span(i), span(j)] .+= x
    end
    @test A ≈ D
    i, j, x = findnz(sparse(A))
    @test add!(similar(A), Assembly(A.layout, i, j; elements = true), x) == A
    again = add!(copy(A), Assembly(A.layout, rows, cols), [p <= size(b, 1) && q <= size(b, 2) ? b[p, q] : 0.0
                                                           for p in 1:maximum(unknowns), q in 1:maximum(unknowns), b in blocks])
    @test again ≈ 2D
    D += 20I
    A = project(A, A.layout ∪ on_diagonal(A.layout)) + 20I
    b = randn(bounds[end])
    @test A \ b ≈ D \ b && cholesky(A) \ b ≈ D \ b && cholesky(Symmetric(A)) \ b ≈ D \ b && lu(A) \ b ≈ D \ b
    @test cholesky!(cholesky(A), 2A) \ b ≈ D \ b / 2
    @test LowerTriangular(A) \ b ≈ LowerTriangular(D) \ b && UpperTriangular(A)' \ b ≈ UpperTriangular(D)' \ b
    @test UnitUpperTriangular(A) \ b ≈ UnitUpperTriangular(D) \ b && ldiv!(LowerTriangular(A), copy(b)) ≈ LowerTriangular(D) \ b
    @test Symmetric(A, :L) * b ≈ D * b && LowerTriangular(A) * b ≈ LowerTriangular(D) * b && Symmetric(A) + A ≈ 2D
    @test A^2 ≈ D^2 && isone(one(A)) && issymmetric(Symmetric(A)) && tr(A) ≈ tr(D)
    value, (g,) = value_and_gradient(W -> sum(abs2, W * b), A)
    @test value ≈ sum(abs2, D * b) && g.layout == A.layout && g ≈ BlockSparseMatrix(2D * b * b', A.layout)
end
@testset "heads, copies and files keep the sizes" begin
    A, D = sized_matrix([0, 3, 4, 9], [0, 1, 6]; heads = 2)
    @test Array(A) == D && A[:, :, 2] == D[:, :, 2] && isvariable(A[:, :, 1])
    for x in (A, A.layout, A[:, :, 1])
        io = IOBuffer()
        serialize(io, x)
        @test deserialize(seekstart(io)) == x
    end
    mktempdir() do place
        path = joinpath(place, "sizes.h5")
        save(path, "A" => A, "layout" => A.layout)
        back = load(path)
        @test back["A"] == A && back["layout"] == A.layout && boundaries(back["A"]) == boundaries(A)
        @test Tartan.read_blocks(path, "A", 1:1) == A.values[:, :, 1:1]
    end
end

@testset "what has no rule for them is refused" begin
    mask, sizes = [true false; true true], [0, 1, 3]
    @test refuses(() -> BlockLayout(mask; rows = [0, 1], cols = sizes), :shape, "rows has length 2, expected 3")
    @test refuses(() -> BlockLayout(mask; rows = sizes, cols = [0, 1, 1]), :layout, "cols[3] is 1, expected 2 to 257: blocks have 1 to 256")
    @test refuses(() -> BlockLayout(mask; rows = sizes, cols = [1, 2, 3]), :layout, "cols[1] is 1, expected 0")
    @test refuses(() -> BlockLayout(mask; rows = sizes, cols = [0, 1.5, 3]), :argument, "cols[2] is 1.5, expected a whole number")
    @test refuses(() -> BlockLayout(mask; rows = sizes, cols = nothing), :argument, "cols is nothing, expected boundaries")
    @test refuses(() -> BlockLayout(mask; rows = 3, cols = sizes), :argument, "rows is 3, expected a vector")
    @test refuses(() -> BlockLayout(mask; rows = Int[], cols = sizes), :shape, "rows is empty")
    @test_throws DimensionMismatch BlockSparseMatrix(ones(4, 3); rows = sizes, cols = sizes)
    @test_throws DimensionMismatch BlockSparseMatrix(sparse(ones(4, 3)); rows = sizes, cols = sizes)
    @test_throws DimensionMismatch BlockSparseMatrix([1, 2], [1, 2], [ones(1, 1), ones(2, 1)]; rows = sizes, cols = sizes)
    @test_throws DimensionMismatch BlockSparseMatrix([1, 2], [1], [ones(1, 1), ones(2, 2)]; rows = sizes, cols = sizes)
    A = BlockSparseMatrix(ones(3, 3), BlockLayout(mask; rows = sizes, cols = sizes))
    different = "blocks of different sizes, which are not supported here"
    @test refuses(() -> BlockMask((q, k, head) -> q <= 3 && k <= 3 || error("asked about padding"), A.layout), :unsupported, different)
end

@testset "joined, selected from and multiplied, in blocks of the largest size" begin
    A, D = sized_matrix([0, 3, 4, 9], [0, 1, 6, 8])
    B, E = random_matrix(Float64, 9, 8, (4, 3), 0.5), zeros(9, 8)
    E .= Matrix(B)
    for (result, wanted) in ((hcat(A, B, A), hcat(D, E, D)), (vcat(B, A), vcat(E, D)), ([A B; B A], [D E; E D]), (A[[9, 1, 1], :], D[[9, 1, 1], :]),
                             (A[:, 8:-2:1], D[:, 8:-2:1]), (A'[[2, 1], :], D'[[2, 1], :]), (kron(A, [1.0 2.0]), kron(D, [1.0 2.0])), (blockdiag(A, B), cat(D, E; dims = (1, 2))))
        @test result isa BlockSparseMatrix && Matrix(result) == wanted
    end
end

@testset "softmax of rows" begin
    A, _ = sized_matrix([0, 3, 4, 9], [0, 1, 6, 8])
    stored = Matrix(BlockSparseMatrix(ones(9, 8), A.layout)) .!= 0
    weights = exp.(Matrix(A) ./ 2) .* stored
    @test block_softmax(A; scale = 0.5) ≈ weights ./ max.(sum(weights; dims = 2), eps())
    q, k = ones(4, 9, 1, 1), ones(4, 8, 1, 1)
    @test refuses(() -> attention(q, k, k, A.layout), :unsupported, "sddmm, block_softmax and spmm take them")
end

@testset "on devices" begin
    for device in DEVICES
        context = Context(device)
        A, D = sized_matrix([0, 3, 4, 9], [0, 1, 6, 8])
        B, E = sized_matrix([0, 3, 4, 9], [0, 1, 6, 8])
        there, other = to_device(A, context), to_device(B, context)
        @test isvariable(there) && to_host(there) == D && to_host(there + other) == D + E && to_host(2there) == 2D
        x, y = exact(Float64, 8, 3), exact(Float64, 9, 3)
        @test to_host(there * to_device(x, context)) ≈ D * x && to_host(there' * to_device(y, context)) ≈ D' * y
        @test to_host(zero(there)) == zero(D) && to_host(copy(there')) == D' && sum(there) ≈ sum(D)
        @test block_norms(there) ≈ block_norms(A)
    end
end
