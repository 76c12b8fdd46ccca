# SPDX-License-Identifier: Apache-2.0

@testset "mask" begin
    for (rows, cols, block, heads) in ((16, 24, (8, 8), 1), (17, 30, (4, 16), 1), (5, 5, (1, 1), 3), (300, 7, (256, 3), 2))
        mask = rand(Bool, cld(rows, block[1]), cld(cols, block[2]), heads)
        heads == 1 && (mask = mask[:, :, 1])
        layout = BlockLayout(mask, block; shape = (rows, cols))
        @test block_mask(layout) == mask
        @test size(layout) == (rows, cols) && size(layout, 1) == rows && size(layout, 3) == 1
        @test blocksize(layout) == block && gridsize(layout) == cld.((rows, cols), block)
        @test Tartan.heads(layout) == heads
        @test nblocks(layout) == count(mask)
        @test density(layout) ≈ count(mask) / length(mask)
    end
    @test block_mask(BlockLayout(trues(2, 3), 4)) == trues(2, 3)
    @test size(BlockLayout(trues(2, 3), 4)) == (8, 12)
    @test block_mask(BlockLayout(view(rand(Bool, 9, 9) .| true, 1:2:9, 9:-4:1), 4)) == trues(5, 3)
end

@testset "coordinates" begin
    layout = BlockLayout((100, 50), 8, [13, 1, 1], [7, 3, 1])
    rows, cols, of_head = coordinates(layout)
    @test (rows, cols, of_head) == ([1, 1, 13], [1, 3, 7], [1, 1, 1])
    @test nnz(layout) == 64 + 64 + 4 * 2
    both = BlockLayout((16, 16), 8, [1, 2], [2, 1]; heads = 2)
    @test nblocks(both) == 4
    each = BlockLayout((16, 16), 8, [1, 2], [2, 1]; heads = 2, block_heads = [2, 1])
    @test coordinates(each) == ([2, 1], [1, 2], [1, 2])
    @test BlockLayout((16, 16), 8, Int32[1], 1:1) == BlockLayout((16, 16), 8, [1.0], [1])
    @test nblocks(BlockLayout((0, 0), 8, Int[], Int[])) == 0
end

@testset "dense and sparse" begin
    dense = zeros(20, 30)
    dense[3, 7] = 1
    dense[20, 30] = -2
    layout = BlockLayout(dense, (8, 8))
    @test coordinates(layout)[1:2] == ([1, 3], [1, 4])
    @test BlockLayout(sparse(dense), (8, 8)) == layout
    @test BlockLayout(round.(Int, dense), (8, 8)) == layout
    @test BlockLayout(Float16.(dense), (8, 8)) == layout
    @test BlockLayout(permutedims(dense)', (8, 8)) == layout
    @test BlockLayout(BFloat16.(dense), 8) == layout
    x = exact(Float64, 16, 16, 2)
    x[1:8, 1:8, 2] .= 0
    x[1, 1, 1] = 1
    @test block_mask(BlockLayout(x, 8)) == [any(x[8i-7:8i, 8j-7:8j, h] .!= 0) for i in 1:2, j in 1:2, h in 1:2]
    values = [norm(dense[i, j]) for i in (1:8, 9:16, 17:20), j in (1:8, 9:16, 17:24, 25:30)]
    @test block_mask(largest_blocks(dense, 8, 1 / 12)) == (values .== 2)
    @test nblocks(largest_blocks(randn(64, 64), 8, 0.25; norm = :max)) == 16
end

@testset "patterns" begin
    @test :barabasi_albert in patterns() && length(patterns()) >= 10
    for name in patterns()
        @test !isempty(pattern_help(name))
    end
    a = pattern(:barabasi_albert, (160, 160), 16; m = 5, seed = 1)
    @test a == pattern("barabasi_albert", 160, 160, (16, 16); m = 5, seed = 1)
    @test a != pattern(:barabasi_albert, (160, 160), 16; m = 5, seed = 2)
    @test occursin("barabasi_albert", recipe(a))
    @test nblocks(pattern(:dense, (32, 64), 8)) == 32
end

@testset "identity and equality" begin
    a, b = BlockLayout([true false; true true], 8), BlockLayout((16, 16), 8, [2, 1, 2], [2, 1, 1])
    @test a == b && hash(a) == hash(b) && layout_identity(a) == layout_identity(b)
    @test length(layout_identity(a)) == 32
    @test a != BlockLayout([true false; true true], 4)
    @test length(Set([a, b])) == 1
    @test copy(a) === a && deepcopy(a) === a
end

@testset "lookup and order" begin
    for _ in 1:50
        layout = random_layout(rand(1:60), rand(1:60), (rand(1:9), rand(1:9)); heads = rand(1:3))
        rows, cols, of_head = coordinates(layout)
        @test issorted(collect(zip(of_head, rows, cols)))
        @test findblock(layout, rows, cols; head = of_head) == 1:nblocks(layout)
        for order in (:row, :column, :morton)
            @test sort(number_blocks(layout, order)) == 1:nblocks(layout)
        end
        @test number_blocks(layout, :column) == sortperm(collect(zip(of_head, cols, rows)))
    end
    layout = BlockLayout([true false; true true], 8)
    @test findblock(layout, 1, 2) == 0 && findblock(layout, 2, 2) == 3
end

@testset "statistics" begin
    mask = [true true false; false false false; true true true]
    layout = BlockLayout(mask, 8)
    @test row_lengths(layout) == [2, 0, 3]
    spread = row_spread(layout)
    @test (spread.minimum, spread.maximum) == (0, 3) && spread.mean ≈ 5 / 3 && spread.deviation ≈ sqrt(14 / 9)
    @test bandwidth(layout) == (lower = 2, upper = 1)
    cycle = BlockLayout(Bool[0 1 0; 0 0 1; 1 0 0], 8)
    @test reach(cycle; steps = 3) ≈ [1, 2, 3] ./ 3
    parts = partition(layout, 2)
    @test vcat(parts...) == 1:3
end

@testset "pictures" begin
    layout = pattern(:dense, (64, 64), 8)
    @test startswith(svg(layout), "<svg") || occursin("<svg", svg(layout))
    @test occursin("8×8", sprint(show, layout)) && occursin("64 of 64 blocks", sprint(show, layout))
    text = sprint(show, MIME"text/plain"(), BlockLayout([true false; true true], 8))
    @test endswith(text, "█·\n  ██")
    wide_text = sprint(show, MIME"text/plain"(), pattern(:dense, (6400, 64), 8))
    @test count(==('\n'), wide_text) <= 32
    @test sprint(show, MIME"image/svg+xml"(), layout) == svg(layout)
    @test occursin("0 of 0", sprint(show, MIME"text/plain"(), BlockLayout((0, 5), 8, Int[], Int[])))
end
