# SPDX-License-Identifier: Apache-2.0
# Sparsifiers: equal to programs that call evolve and project themselves, and to themselves after a stop.

sparse_model() = (a = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (60, 75), (8, 16))); seed = 1), bias = collect(range(-1, 1; length = 60)),
                  b = fill_normal!(BlockSparseMatrix{Float64}(pattern(:random, (64, 32), 8; density = 0.8, seed = 2)); seed = 2))
zeros_beside(p) = map(x -> 0 * x, p)
# What a loss would give: of each parameter by its place and the step.
function step_gradients(p, step)
    found = map(keys(p), values(p)) do k, x
        random = MersenneTwister(100 * step + findfirst(isequal(k), keys(p)))
        x isa BlockSparseMatrix ? BlockSparseMatrix(randn(random, size(x)), x.layout) : randn(random, length(x))
    end
    return NamedTuple{keys(p)}(found)
end
growth_for(layout, step) = rand(MersenneTwister(step), gridsize(layout)...)
same_parameter(x::BlockSparseMatrix, y) = x.layout == y.layout && Matrix(x) == Matrix(y)
same_parameter(x, y) = x == y

@testset "a sparsifier does what the program written by hand does" begin
    schedules = ((density = 0.3, start = 4, stop = 16, every = 4),
                 (density = 0.4, initial = 1, curve = :linear, stop = 18, every = 3, score = :l2),
                 (threshold = 0.7, score = :max, start = 3),
                 (swap = 0.3, every = 2, stop = 19),
                 (density = 0.5, swap = 0.3, growth = :random, seed = 3, decay = :linear, stop = 20))
    for schedule in schedules
        ours, theirs = sparse_model(), sparse_model()
        means, squares, other_means, other_squares = zeros_beside(ours), zeros_beside(ours), zeros_beside(ours), zeros_beside(ours)
        s = Sparsifier(ours; schedule...)
        hand = Dict(k => v for (k, v) in pairs(schedule) if !(k in (:score, :growth, :seed, :initial)))
        initial = map(w -> get(schedule, :initial, density(w.layout)), (a = ours.a, b = ours.b))
        for step in 1:22
            adam!(ours, step_gradients(ours, step), means, squares; step = step, rate = 0.05)
            needs_growth(s) && add_growth!(s, map(l -> growth_for(l, step), layouts(s))...)
            ours, means, squares = step!(s, ours, means, squares)
            adam!(theirs, step_gradients(theirs, step), other_means, other_squares; step = step, rate = 0.05)
            for (i, k) in enumerate((:a, :b))
                w = theirs[k]
                norms = block_norms(w; norm = get(schedule, :score, :l2) == :max ? :max : :l2)
                haskey(schedule, :score) || (norms ./= sqrt(prod(blocksize(w.layout))))
                growth = get(schedule, :growth, :score) == :random ? nothing : growth_for(w.layout, step)
                layout = evolve(w.layout, norms, step; growth = growth, initial = initial[k], seed = get(schedule, :seed, 0) + i - 1, hand...)
                move(p) = merge(p, NamedTuple{(k,)}((project(p[k], layout),)))
                theirs, other_means, other_squares = move(theirs), move(other_means), move(other_squares)
            end
            @test all(map(same_parameter, ours, theirs)) && all(map(same_parameter, means, other_means)) && all(map(same_parameter, squares, other_squares))
        end
        @test s.steps == 22
        @test layouts(s) == [ours.a.layout, ours.b.layout]
        @test nblocks(ours.a) < 40 || ours.b.layout != sparse_model().b.layout
    end
end

function train_with(s, state, last)
    for step in s.steps + 1:last
        p, means, squares = state
        grads = step_gradients(p, step)
        occursin(r"score=(movement|gate)", s.options) && observe!(s, p, grads)
        adam!(p, grads, means, squares; step = step, rate = 0.05, rates = learning_rates(s, p))
        needs_growth(s) && add_growth!(s, map(l -> growth_for(l, step), layouts(s))...)
        state = step!(s, p, means, squares)
    end
    return state
end

@testset "training that was killed goes on with the same bits" begin
    runs = ((density = 0.3, start = 4, stop = 16, every = 4, fresh_rate = 3, fresh_steps = 4),
            (density = 0.4, swap = 0.3, stop = 18, every = 3, fresh_rate = 3, fresh_steps = 4),
            (density = 0.4, swap = 0.2, stop = 18, scope = :model, growth = :random, seed = 5),
            (density = 0.3, swap = 0.2, stop = 18, every = 2, score = :movement, growth = :random, fill = :normal),
            (score = :gate, l0 = 0.5, gate_rate = 0.5, every = 3, swap = 0.1, growth = :random))
    mktempdir() do folder
        path = joinpath(folder, "run.h5")
        for run in runs, killed in (1, 4, 9, 17)
            p = sparse_model()
            s = Sparsifier(p; run...)
            state = train_with(s, (p, zeros_beside(p), zeros_beside(p)), killed)
            save(path, "run" => s, ("$g $k" => state[g][k] for g in 1:3 for k in keys(p))...)
            wanted = train_with(s, state, 22)
            again = Sparsifier(path, "run")
            @test (again.steps, again.options) == (killed, s.options)
            file = load(path)
            loaded = Tuple(NamedTuple{keys(p)}(Tuple(file["$g $k"] for k in keys(p))) for g in 1:3)
            found = train_with(again, loaded, 22)
            @test all(all(map(same_parameter, found[g], wanted[g])) for g in 1:3)
            @test nblocks(wanted[1].a) < 40
        end
    end
end

@testset "gates" begin
    p = sparse_model()
    s = Sparsifier(p; score = :gate, seed = 11, gate_initial = -1, l0 = 0.5)
    for step in 1:2
        for (i, k) in enumerate((:a, :b))
            loga = fill(-1.0, nblocks(p[k]))
            g = gates(s, p)
            @test g.bias === nothing && g[k] == concrete_gate(loga; seed = 10 + 2 * step + i)
            @test gates(s, p; training = false)[k] == Tartan.Pointwise.concrete_gate_infer(loga)
        end
        p = step!(s, p)
    end
    opens = 1 / (1 + exp(1 - 2 / 3 * log(11)))
    stored, all = sum(length(nonzeros(p[k])) for k in (:a, :b)), sum(prod(gridsize(p[k].layout)) * prod(blocksize(p[k].layout)) for k in (:a, :b))
    @test s.penalty ≈ 0.5 * opens * stored / all

    # The gradient of a weight without gates, or that of its gates.
    w, dw = p.a, step_gradients(p, 1).a
    one, other = Sparsifier(w; score = :gate, start = 100), Sparsifier(w; score = :gate, start = 100)
    observe!(one, w, copy(dw))
    observe!(other, w, gate_gradient!(zeros(nblocks(w)), w, dw))
    foreach(x -> step!(x, w), (one, other))
    @test gates(one, w) == gates(other, w)
    @test gates(one, w; training = false) != gates(Sparsifier(w; score = :gate), w; training = false)
end

@testset "gates find the blocks that a task needs" begin
    random = MersenneTwister(3)
    grid = falses(8, 8)
    for (i, j) in zip(randperm(random, 8)[1:6], randperm(random, 8)[1:6]); grid[i, j] = true; end
    wanted = randn(random, 64, 64) .* kron(grid, ones(8, 8))
    function found_by_gates()
        w = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 8)); seed = 1)
        mean, square = 0 * w, 0 * w
        s = Sparsifier(w; score = :gate, l0 = 10, gate_rate = 0.05, start = 200, every = 50)
        for step in 1:400
            x = randn(random, 64, 32)
            g = gates(s, w)
            _, (dw, dg) = value_and_gradient((w, g) -> sum(abs2, spmm(w, x; gates = g) - wanted * x) / 64, w, g)
            observe!(s, w, dg)
            adam!((w,), (dw,), (mean,), (square,); step = step, rate = 0.02)
            w, mean, square = step!(s, w, mean, square)
        end
        return w
    end
    w = found_by_gates()
    @test block_norms(w) |> length == 6 && maximum(abs, Matrix(w) - wanted) < 0.1
end

# Beside the tests in the package that the build makes.
const TRAINING = joinpath(isdir(joinpath(@__DIR__, "data")) ? (@__DIR__) : joinpath(@__DIR__, "..", "..", ".."), "data", "cases")

@testset "the shared case of training" begin
    file = BlockFile(joinpath(TRAINING, "training.h5"))
    lines = readlines(joinpath(TRAINING, "training.csv"))[2:end]
    @test length(lines) >= 4
    mktempdir() do folder
        path = joinpath(folder, "stopped.h5")
        for line in lines
            words = split(line, ',')
            name, checksums = words[1], words[5:end]
            from, killed, finish = (parse(Int, word) for word in words[2:4])
            s = Sparsifier(file, name)
            @test s.steps + 1 == from
            state = ([file["$name w $i"] for i in 0:1], [file["$name velocity $i"] for i in 0:1])
            for step in from:finish
                p, velocities = state
                grads = [BlockSparseMatrix(Array(file["gradient $step $(i - 1)"]), p[i].layout) for i in 1:2]
                occursin(r"score=(movement|gate)", s.options) && observe!(s, p, grads)
                sgd!(p, grads; velocities = velocities, momentum = 0.9, step = step, rate = 0.1, rates = learning_rates(s, p))
                needs_growth(s) && add_growth!(s, file["growth $step 0"], file["growth $step 1"])
                state = step!(s, p, velocities)
                if step == killed # and killed once more, and loaded
                    save(path, "s" => s, ("$g $i" => state[g][i] for g in 1:2 for i in 1:2)...)
                    s = Sparsifier(path, "s")
                    state = ([load(path, "1 $i") for i in 1:2], [load(path, "2 $i") for i in 1:2])
                end
            end
            @test [checksum(Matrix(x)) for group in state for x in group] == checksums
        end
    end
end

@testset "what has numbers for blocks moves with them" begin
    w = fill_normal!(BlockSparseMatrix{Float32}(pattern(:dense, (32, 48), (8, 16))); seed = 1)
    rows, counts, bias = rand(8, 12), collect(1:12), [1.0, 2.0]
    thin = BlockSparseMatrix{Float64}(pattern(:dense, (4, 3), 1))
    nonzeros(thin) .= 1:12
    s = Sparsifier((w, bias); density = 0.5)
    (v, same), (moved_rows, _), moved_counts, none, (moved_thin, _) =
        step!(s, (w, bias), (rows, nothing), Any[counts, bias], (nothing, nothing), (thin, nothing))
    old = [findblock(w.layout, i, j) for (i, j) in zip(coordinates(v.layout)[1:2]...)]
    @test nblocks(v) == 6 && same === bias && none == (nothing, nothing)
    @test moved_rows == rows[:, old] && moved_counts == [counts[old], bias] && vec(nonzeros(moved_thin)) == old
    alone = Sparsifier(w; density = 0.5)
    @test sprint(show, alone) == "Sparsifier of 1 weight, density 1.0, after 0 steps"
    @test nblocks(step!(alone, w)) == 6
    @test learning_rates(s, (v, bias))[2] === nothing && learning_rates(s, (v, bias))[1] == ones(Float32, 6)
    close(alone)
    @test sprint(show, alone) == "Sparsifier (closed)" && !isopen(alone)
    @test_throws TartanError alone.steps
end

@testset "what does not fit is refused, and nothing changes" begin
    p = sparse_model()
    half = project(p.b, keep_largest(p.b.layout, block_norms(p.b), 5))
    s = Sparsifier(p; density = 0.3)
    refused(text, f) = @test occursin(text, message_of(f))
    message_of(f) = try
        f()
        "nothing was thrown"
    catch error
        sprint(showerror, error)
    end
    refused("state 1.b: matrix has 5 blocks in a grid of 8 x 4", () -> step!(s, p, merge(p, (b = half,))))
    refused("expected those of weight 1", () -> step!(s, p, merge(p, (b = half,))))
    refused("state 1 has 2 entries, expected 3, one for each parameter", () -> step!(s, p, (p.a, p.bias)))
    refused("state 1 has the names (:a, :c, :b), expected those of the parameters", () -> step!(s, p, (a = p.a, c = p.bias, b = p.b)))
    refused("state 1.a: has size (3,), expected 40 entries along the last dimension", () -> step!(s, p, merge(p, (a = ones(3),))))
    refused("state 1.a: is a String, expected a block-sparse matrix, an Array or nothing", () -> step!(s, p, merge(p, (a = "x",))))
    refused("parameters have 1 block-sparse matrices, expected the 2 weights", () -> step!(s, (p.a, p.bias)))
    refused("parameters[2]: matrix has 5 blocks", () -> step!(s, [p.a, half]))
    @test s.steps == 0
    w = p.a
    refused("step 1 is to grow blocks of weight 0, expected add_growth! before it", () -> step!(Sparsifier(w; swap = 0.5), w))
    refused("expected observe! before it", () -> step!(Sparsifier(w; density = 0.5, score = :movement), w))
    refused("has no gates, expected the option score=gate", () -> gates(Sparsifier(w), w))
    refused("has no gates, expected the option score=gate", () -> Sparsifier(w).penalty)
    refused("expected $(nblocks(w)) (blocks)", () -> observe!(Sparsifier(w; score = :gate), w, ones(3)))
    refused("score=rms, expected score=movement or score=gate", () -> observe!(Sparsifier(w; density = 0.5), w, 2 * w))
    refused("growth has 2 arrays, expected one for each of the 1 weights", () -> add_growth!(Sparsifier(w; swap = 0.5), ones(8, 5), ones(8, 5)))
    refused("growth has size (3, 3), expected (8, 5)", () -> add_growth!(Sparsifier(w; swap = 0.5), ones(3, 3)))
    refused("density=2", () -> Sparsifier(p; density = 2))
    refused("score is :l3", () -> Sparsifier(p; score = :l3))
    refused("fresh_steps=-1", () -> Sparsifier(p; fresh_steps = -1))
    refused("parameters have no block-sparse matrix, expected one or more", () -> Sparsifier((1, 2)))
    mktempdir() do folder
        path = joinpath(folder, "x.h5")
        save(path, "x" => [1.0, 2.0, 3.0])
        refused("no array \"s\", expected that of a sparsifier", () -> Sparsifier(path, "s"))
        refused("array \"x\" is not that of a sparsifier", () -> Sparsifier(path, "x"))
    end
end
