# SPDX-License-Identifier: Apache-2.0
# Blocks and elements from triplets, and added into matrices.

function dense_of(shape, block, I, J, V)
    x = zeros(cld(shape[1], block[1]) * block[1], cld(shape[2], block[2]) * block[2])
    for k in eachindex(I)
        x[(I[k]-1)*block[1]+1:I[k]*block[1], (J[k]-1)*block[2]+1:J[k]*block[2]] .+= V[:, :, k]
    end
    return x[1:shape[1], 1:shape[2]]
end

@testset "from blocks" begin
    for (shape, block) in (((12, 20), (3, 5)), ((13, 7), (4, 4)), ((6, 6), (1, 1)))
        I, J = rand(1:cld(shape[1], block[1]), 30), rand(1:cld(shape[2], block[2]), 30)
        V = Float64.(rand(-4:4, block..., 30))
        A = BlockSparseMatrix(I, J, V, shape)
        @test Matrix(A) == dense_of(shape, block, I, J, V)
        @test nblocks(A) == length(Set(zip(I, J)))
        @test eltype(BlockSparseMatrix(I, J, Float32.(V), shape)) === Float32
        @test Matrix(BlockSparseMatrix(I, J, Int.(V), shape)) == Matrix(A)
    end
    @test nblocks(BlockSparseMatrix(Int[], Int[], zeros(2, 2, 0), (4, 4))) == 0
    @test Array(BlockSparseMatrix([1, 1], [1, 1], ones(2, 2, 2), (2, 2); block_heads = [1, 2], heads = 2)) == ones(2, 2, 2)
    @test_throws TartanError BlockSparseMatrix([3], [1], ones(2, 2, 1), (4, 4))
    @test_throws TartanError BlockSparseMatrix([1, 2], [1], ones(2, 2, 2), (4, 4))
end

@testset "plans" begin
    layout = random_layout(20, 28, (4, 7), 0.6)
    I, J, _ = coordinates(layout)
    chosen = rand(eachindex(I), 50)
    plan = Assembly(layout, I[chosen], J[chosen])
    @test sprint(show, plan) == "Assembly of 50 blocks"
    for T in (Float64, Float32)
        A, want = BlockSparseMatrix{T}(layout), zeros(20, 28)
        for _ in 1:3
            V = T.(rand(-4:4, 4, 7, 50))
            @test add!(A, plan, V) === A
            want += dense_of((20, 28), (4, 7), I[chosen], J[chosen], V)
            @test Matrix(A) == want
        end
        @test Matrix(add!(A, plan, zeros(T, 4, 7, 50); beta = 0)) == zeros(20, 28)
    end
    A = BlockSparseMatrix{Float64}(layout)
    rows, cols = 4 .* (I[chosen] .- 1) .+ rand(1:4, 50), 7 .* (J[chosen] .- 1) .+ rand(1:7, 50)
    of_elements, v = Assembly(layout, rows, cols; elements = true), Float64.(rand(-4:4, 50))
    @test Matrix(add!(A, of_elements, v)) == Matrix(sparse(rows, cols, v, 20, 28))
    @test_throws TartanError add!(BlockSparseMatrix(ones(20, 28), (4, 7)), Assembly(BlockLayout(trues(1, 1), 2), [1], [1]), ones(2, 2, 1))
    @test_throws TartanError Assembly(BlockLayout([true false; true true], 2), [1], [2])
end
