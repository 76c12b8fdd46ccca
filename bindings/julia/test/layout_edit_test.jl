# SPDX-License-Identifier: Apache-2.0

@testset "set algebra" begin
    for _ in 1:200
        rows, cols, block = rand(0:40), rand(0:40), (rand(1:7), rand(1:7))
        heads = rand(1:2)
        a, b, c = (random_layout(rows, cols, block; heads = heads) for _ in 1:3)
        @test block_mask(a ∪ b) == block_mask(a) .| block_mask(b)
        @test block_mask(a ∩ b) == block_mask(a) .& block_mask(b)
        @test block_mask(setdiff(a, b)) == block_mask(a) .& .!block_mask(b)
        @test a ∩ (b ∪ c) == (a ∩ b) ∪ (a ∩ c)
        @test union(a, b, c) == a ∪ (b ∪ c)
        @test (a ∩ b) ⊆ a && (a ⊆ (a ∪ b))
        @test transpose(transpose(a)) == a
        @test transpose(a ∪ b) == transpose(a) ∪ transpose(b)
    end
end

@testset "permute and slice" begin
    for _ in 1:50
        n, m = rand(1:6, 2)
        layout = BlockLayout(rand(Bool, n, m), (4, 3))
        p, q = randperm(n), randperm(m)
        @test block_mask(permute_blocks(layout; rows = p, cols = q)) == block_mask(layout)[p, q]
        @test block_mask(permute_blocks(layout; cols = q)) == block_mask(layout)[:, q]
        @test permute_blocks(layout) == layout
        i, j = sort(rand(1:n, 2)), sort(rand(1:m, 2))
        @test block_mask(slice(layout, i[1]:i[2], j[1]:j[2])) == block_mask(layout)[i[1]:i[2], j[1]:j[2]]
    end
    @test size(slice(BlockLayout(trues(3, 3), 8; shape = (20, 20)), 2:3, 1:1)) == (12, 8)
end

@testset "prune, keep, grow, move, reblock" begin
    layout = BlockLayout([true false; true true], 8)
    @test block_mask(prune(layout, [1.0, 0.0, -2.0])) == [true false; false true]
    @test block_mask(prune(layout, BitVector([0, 1, 1]))) == [false false; true true]
    @test block_mask(keep_largest(layout, [3, 9, 4], 2)) == [false false; true true]
    @test evolve(layout, [3, 9, 4], 0; density = 0.5) == keep_largest(layout, [3, 9, 4], 2)
    @test evolve(layout, [3, 9, 4], 1; density = 0.5, every = 2) === layout
    place = findfirst(!, block_mask(layout))
    growth = zeros(2, 2)
    growth[place] = 5
    @test block_mask(evolve(layout, [3, 9, 4], 0; growth = growth, swap = 0.4))[place]
    @test nblocks(evolve(layout, [3, 9, 4], 6; density = 0.25, start = 0, stop = 10, curve = :linear)) == 2
    @test refuses(() -> evolve(layout, [3, 9, 4], 0; swap = 2), :argument, "swap=2")
    @test refuses(() -> evolve(layout, [3, 9, 4], 0; curve = :x), :argument, "curve")
    @test_throws DimensionMismatch evolve(layout, [3, 9, 4], 0; growth = ones(3, 2))
    @test block_mask(grow(layout, [1], [2])) == trues(2, 2)
    @test grow(layout, [1, 2], [1, 2]) == layout
    moved, sources = move_blocks(layout, [3], [1], [2])
    @test block_mask(moved) == [true true; true false]
    @test sources == [1, 3, 2]
    @test block_mask(reblock(layout, 4)) == kron([true false; true true], trues(2, 2))
    @test block_mask(reblock(layout, (16, 8))) == [true true]
end

@testset "reordering" begin
    n = 60
    chain = sparse(1:n-1, 2:n, 1.0, n, n)
    shuffled = (chain + chain' + 2I)[randperm(n), :]
    p = randperm(n)
    shuffled = (chain + chain' + 2I)[p, p]
    order = rcm_order(shuffled)
    @test sort(order) == 1:n
    rows, cols, _ = findnz(shuffled[order, order])
    @test maximum(abs.(rows .- cols)) == 1
end

@testset "orders of rows and columns find a hidden structure" begin
    blocks = rand(MersenneTwister(4), 6, 4) .< 0.3
    dense = kron(blocks, ones(8, 8)) .* randn(MersenneTwister(5), 48, 32)
    hidden = dense[randperm(MersenneTwister(6), 48), randperm(MersenneTwister(7), 32)]
    count_of(x) = nblocks(BlockLayout(sparse(x), (8, 8)))
    rows, cols = reorder_blocks(hidden, (8, 8), mean(blocks))
    @test sort(rows) == 1:48 && sort(cols) == 1:32
    @test count_of(hidden[rows, cols]) == sum(blocks) < count_of(hidden)
    @test reorder_blocks(Float32.(hidden), (8, 8), mean(blocks)) == (rows, cols)
    @test refuses(() -> reorder_blocks(hidden, (8, 8), 2), :argument, "density is 2, expected 0 .. 1")
end
