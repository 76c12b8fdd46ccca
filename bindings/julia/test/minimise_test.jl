# SPDX-License-Identifier: Apache-2.0
using Tartan, Test

const DATA_OF_MINIMISE = reshape(sin.(1:3200), 32, 100)
model_to_minimise() = (w = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (32, 32), 8)); seed = 1), b = zeros(32))
loss_to_minimise(p) = sum(abs2, p.w * DATA_OF_MINIMISE .+ p.b .- DATA_OF_MINIMISE) / 3200
pruned_by(p; options...) = Sparsifier(p; density = 0.5, start = 10, stop = 40, every = 10, options...)

@testset "minimise takes the steps of the loop written by hand" begin
    p = model_to_minimise()
    before = copy(nonzeros(p.w))
    found = minimise(loss_to_minimise, p, 50; rate = 0.02, sparsifier = pruned_by(p))
    @test nonzeros(p.w) == before && p.b == zeros(32)
    q, s, losses = model_to_minimise(), pruned_by(p), Float64[]
    means, squares = ((w = 0 * q.w, b = zeros(32)) for _ in 1:2)
    for step in 1:50
        value, (grads,) = value_and_gradient(loss_to_minimise, q)
        adam!(q, grads, means, squares; step = step, rate = 0.02)
        q, means, squares = step!(s, q, means, squares)
        push!(losses, value)
    end
    @test found.losses == losses && found.steps == 50 && nblocks(found.parameters.w) == 8
    @test Matrix(found.parameters.w) == Matrix(q.w) && found.squares.b == squares.b
    @test losses[end] < losses[1] / 2
end

@testset "minimise goes on from what it returned, also after an interrupt" begin
    p = model_to_minimise()
    whole = minimise(loss_to_minimise, p, 30; rate = 0.02, sparsifier = pruned_by(p))
    s = pruned_by(p)
    part = minimise(loss_to_minimise, minimise(loss_to_minimise, p, 17; rate = 0.02, sparsifier = s), 13; rate = 0.02, sparsifier = s)
    @test part.losses == whole.losses && Matrix(part.parameters.w) == Matrix(whole.parameters.w)
    stopping(p, step) = step == 6 ? throw(InterruptException()) : loss_to_minimise(p)
    cut = @test_logs (:info, r"interrupted after 5 steps") minimise(stopping, p, 20; rate = 0.02)
    @test cut.steps == 5 && length(cut.losses) == 5
    @test minimise(loss_to_minimise, cut, 15; rate = 0.02).losses == minimise(loss_to_minimise, p, 20; rate = 0.02).losses
    @test length(cut.losses) == 5 # going on leaves it as it was
end

@testset "minimise observes movement, shows a bar, and refuses what does not fit" begin
    p = model_to_minimise()
    s = Sparsifier(p; density = 0.5, start = 10, stop = 10, score = :movement)
    @test nblocks(minimise(loss_to_minimise, p, 12; rate = 0.02, sparsifier = s).parameters.w) == 8
    @test occursin("[===============               ] 6/12  loss 0.5", sprint(Tartan.show_progress, 6, 12, 0.5))
    @test_throws ArgumentError minimise(loss_to_minimise, p.w, 3)
    @test_throws ArgumentError minimise(loss_to_minimise, p, -1)
    @test_throws ArgumentError minimise(loss_to_minimise, p, 3; sparsifier = Sparsifier(p; score = :gate))
    @test_throws TartanError minimise(loss_to_minimise, p, 3; sparsifier = Sparsifier(p; swap = 0.5))
end
