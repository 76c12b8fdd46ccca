# SPDX-License-Identifier: Apache-2.0
# value_and_gradient beside differences of values. Functions are not compiled for each check.

numbers(x::BlockSparseMatrix) = x.values
numbers(x) = x
nudged(x::Number, i, by) = x + by
nudged(x, i, by) = (y = copy(x); numbers(y)[i] += by; y)

function check_gradient(@nospecialize(f), @nospecialize(args...))
    value, grads = value_and_gradient(f, args...)
    @test value ≈ f(args...)
    for (k, x) in enumerate(args)
        at(i, by) = f(Any[j == k ? nudged(x, i, by) : y for (j, y) in enumerate(args)]...)
        differences = [(at(i, 1e-5) - at(i, -1e-5)) / 2e-5 for i in 1:length(numbers(x))]
        @test typeof(grads[k]) == typeof(x)
        x isa BlockSparseMatrix && @test grads[k].layout == x.layout
        @test isapprox(vec(collect(numbers(grads[k]))), differences; rtol = 1e-6, atol = 1e-7)
    end
end

W = fill_normal!(BlockSparseMatrix{Float64}(pattern(:banded, (8, 12), 4; lower = 1, upper = 1)); seed = 1)
x = randn(12, 3)

@testset "products" begin
    check_gradient((w, x, b) -> mean(abs2, tanh.(w * x .+ b) .- 1), W, x, randn(8))
    check_gradient((x, w) -> sum(abs2, x * w), randn(2, 8), W)
    check_gradient((w, x) -> sum(abs2, w' * x), W, randn(8, 2))
    check_gradient((w, v) -> sum(abs2, w * v), W, randn(12))
    check_gradient((a, b) -> sum(transpose(a) * b) + sum(a * 2) - sum(3b), x, randn(12, 2))
    check_gradient(v -> sum(v * transpose(v)), randn(4))
    open = randn(nblocks(W))
    check_gradient((w, x, g) -> sum(abs2, spmm(w, x; gates = g)), W, x, open)
    check_gradient((w, x, g) -> sum(abs2, spmm(w', x; gates = g)), W, randn(8, 2), open)
    check_gradient((w, v) -> sum(abs2, spmm(w, v; gates = open)), W, randn(12))
    check_gradient(g -> sum(abs2, spmm(W, x; gates = g)), [0.0; open[2:end]])
    check_gradient((w, x) -> sum(abs2, spmm(w, x)), W, x)
    single = fill_normal!(BlockSparseMatrix{Float32}(W.layout); seed = 1)
    grads = value_and_gradient((w, g) -> sum(spmm(w, ones(Float32, 12, 2); gates = g)), single, Float32.(open)).grads
    @test eltype(grads[1]) == eltype(grads[2]) == Float32
    check_gradient((a, b) -> dot(a, b) + a' * b, randn(4), randn(4))
end

@testset "operations of the schema" begin
    check_gradient((x, g, b) -> sum(layer_norm(x; gain = g, bias = b) .* x), x, randn(12), randn(12))
    check_gradient(g -> sum(layer_norm(x; gain = g) .* x), randn(12))
    check_gradient((x, g) -> sum(abs2, rms_norm(x, (gain = g,))), x, randn(12))
    check_gradient((x, g) -> sum(abs2, rms_norm(x; gain = g, return_stats = true).y), x, randn(12))
    check_gradient((a, b) -> sum(abs2, Tartan.Pointwise.multiply(a, b)), x, randn(12))
    check_gradient(a -> sum(abs2, Tartan.Pointwise.multiply(a, x)), x)
    check_gradient(w -> sum(abs2, block_softmax(w)), W)
    c = BlockConv(pattern(:dense, (2, 2), 2); kernel = (1, 1))
    check_gradient(w -> sum(conv_normalize(c, w) .^ 3), conv_filter(c, randn(1, 1, 2, 2)))
end

@testset "operations with several results, indices, masks and seeds" begin
    c, gates = randn(5, 3), randn(5, 4, 3)
    check_gradient((c, g, b) -> ((next, h) = lstm_gates(c, g; bias = b, forget_bias = 0.5); sum(abs2, next) + sum(h .^ 3)), c, gates, randn(5, 4))
    check_gradient(g -> sum(abs2, lstm_gates(c, g)[2]), gates)
    check_gradient((c, b) -> sum(abs2, lstm_gates(lstm_gates(c, gates, (bias = b,))[1], gates)[1]), c, randn(5, 4))
    labels = [1, 12, 7]
    check_gradient(x -> mean(cross_entropy(x, labels; label_smoothing = 0.1)), x)
    check_gradient(x -> sum(abs2, cross_entropy(x, labels; return_lse = true).loss), x)
    grads = value_and_gradient(p -> sum(cross_entropy(p.x, p.labels)), (x = x, labels = labels)).grads[1]
    @test grads.x == cross_entropy_gradient(x, labels, cross_entropy(x, labels; return_lse = true).lse, ones(3)) && grads.labels == [0, 0, 0]
    check_gradient(t -> sum(abs2, embedding(t, [2 1; 2 4])), randn(3, 5))
    mask = rand(Bool, 12, 3)
    check_gradient(x -> sum(softmax(x; mask = mask, scale = 0.5) .^ 3), x)
    check_gradient(x -> sum(log_softmax(x) .* x), x)
    check_gradient(x -> sum(dropout(x; dropout = 0.3, seed = 5) .^ 3), x)
    check_gradient(a -> sum(concrete_gate(a; seed = 3) .^ 2), x)
    v = randn(4, 3, 2)
    check_gradient((v, g, b) -> sum(batch_norm(v; gain = g, bias = b) .^ 3), v, randn(3), randn(3))
    check_gradient((v, m, s, g) -> sum(abs2, batch_norm_inference(v, m, s, (gain = g,))), v, randn(3), rand(3) .+ 0.5, randn(3))
    check_gradient(x -> sum(abs2, top_k(x; k = 3)[1]), x)
    check_gradient(x -> sum(top_k_softmax(x; k = 4, mask = mask, scale = 0.5) .* x), x)
    check_gradient(x -> sum(abs2, rectified_top_k(x; k = 3)), x)
    check_gradient(x -> sum(abs2, rectified_top_k(x; k = 3, rebase = false)), x)
    check_gradient(x -> sum(abs2, sparse_relu(x; alpha = 0.5)), x)
    check_gradient(x -> sum(abs2, reduce_max(x)), x)
    check_gradient(x -> sum(take_along(x, [1 2 3; 12 2 1]) .^ 3), x)
    for word in (:set, :add, :multiply)
        check_gradient((x, y) -> sum(abs2, scatter_rows(x, [3, 1], y; combine = word)), x, randn(12, 2))
    end
    # In the form that it has otherwise, and of the type of the parameter.
    names = ()
    value_and_gradient(x -> (names = keys(cross_entropy(x, labels; return_lse = true)); sum(x)), x)
    @test names == keys(cross_entropy(x, labels; return_lse = true))
    @test value_and_gradient(x -> sum(layer_norm(x) .* 2.0), Float32[1 2; 3 5]).grads[1] isa Matrix{Float32}
end

@testset "values of the largest numbers, of elements and rows by their indices" begin
    x = randn(12, 3)
    places = reduce(hcat, [partialsortperm(c, 1:4; rev = true) for c in eachcol(x)])
    values = reduce(hcat, [c[p] for (c, p) in zip(eachcol(x), eachcol(places))])
    found = top_k(x; k = 4)
    @test found == (values, places)
    @test reduce_max(x; return_indices = true) == (y = values[1, :], indices = places[1, :])
    @test take_along(x, places) == values
    @test rectified_top_k(x; k = 4) == max.(x .- max.(values[4:4, :], 0), 0)
    @test rectified_top_k(x; k = 4, rebase = false) == x .* (x .>= max.(values[4:4, :], 0)) # a flag whose default is true
    @test count(!iszero, top_k_softmax(x; k = 4)) == 12
    y, map = randn(12, 2), [3, 1]
    product = copy(x)
    product[:, map] .*= y
    @test scatter_rows(x, map, y; combine = :multiply) == product
    @test_throws TartanError scatter_rows(x, [1, 1], y)
    @test_throws TartanError top_k(x; k = 13)
end

@testset "attention" begin
    layout = pattern(:banded, (6, 8), 2; lower = 1, upper = 1)
    seen = BlockMask((q, k, head) -> (q + k) % 4 != 0, layout)
    q, k, v = randn(3, 6, 2), randn(3, 8, 1), randn(3, 8, 1)
    check_gradient((q, k, v) -> sum(attention(q, k, v, layout) .^ 3), q, k, v)
    check_gradient((q, k, v, s, t) -> sum(attention(q, k, v, layout; scale = 0.7, causal = true, query_offset = 2, mask = seen, slopes = s,
                                                    sinks = t) .^ 3), q, k, v, [0.1, -0.2], [0.3, -1.0])
    check_gradient((q, b) -> sum(abs2, attention(q, k, v, layout, (distance_bias = b,))), q, randn(7, 2))
    check_gradient((v, b) -> sum(abs2, attention(q, k, v, layout; block_bias = b, dropout = 0.3, seed = 5)), v, randn(nblocks(layout), 2))
    # Only what is tracked has a gradient.
    check_gradient(t -> sum(abs2, attention(q, k, v, layout; sinks = t)), [0.3, -1.0])
    check_gradient(k -> sum(abs2, attention(q, k, v, layout; return_lse = true)[1]), k)
    check_gradient(x -> sum(abs2, attention(x, x, x, pattern(:dense, (6, 6), 2))), randn(3, 6))
end

@testset "convolutions" begin
    c = BlockConv(pattern(:banded, (4, 6), 2; lower = 1, upper = 1); kernel = (3, 2), stride = (2, 1), padding = :same)
    w = fill_normal!(BlockSparseMatrix{Float64}(c.layout); seed = 3)
    x, gain, bias = randn(5, 4, 6, 2), rand(4) .+ 0.5, randn(4)
    check_gradient((w, x) -> sum(conv(c, w, x) .^ 3), w, x)
    check_gradient((w, x, g, b) -> sum(abs2, conv(c, w, x; gain = g, bias = b, relu = true)), w, x, gain, bias)
    edges = maximum(edge_classes(c, (5, 4)))
    check_gradient((g, b) -> sum(abs2, conv(c, w, x, (gain = g, bias = b); bias_first = true)), rand(4, edges) .+ 0.5, randn(4, edges))
    check_gradient((w, b) -> sum(conv(c, w, x[:, :, :, 1]; bias = b) .^ 3), w, bias) # one image
    up = BlockConv(pattern(:dense, (4, 2), 2); kernel = 3, stride = 2, transposed = true)
    wide = fill_normal!(BlockSparseMatrix{Float64}(up.layout); seed = 4)
    check_gradient((w, x, b) -> sum(abs2, conv(up, w, x; bias = b, size = 10)), wide, randn(4, 4), randn(2))
end

@testset "windows" begin
    inputs, outputs = windows_for_conv((6, 5); kernel = (3, 3), output = 2)
    active = active_windows(reshape([1; zeros(28); 1], 6, 5), outputs)
    y = randn(6, 5, 2)
    check_gradient(x -> sum(window_gather(x, active, inputs) .^ 3), y)
    blocks = randn(2, 2, 2, nblocks(active))
    for add in (false, true)
        check_gradient((y, b) -> sum(window_scatter(y, b, active, outputs; add = add) .^ 3), y, blocks)
    end
    check_gradient(y -> sum(window_scatter(y, nothing, active, outputs) .^ 3), y)
    check_gradient(b -> sum(window_scatter(y, b, active, outputs) .^ 3), blocks)
    c = BlockConv(pattern(:dense, (2, 2), 2); kernel = (3, 3), padding = :same)
    w, bias = fill_normal!(BlockSparseMatrix{Float64}(c.layout); seed = 3), randn(2)
    run(w, x, b) = conv(c, w, x; bias = b, relu = true, active = active, windows = outputs)
    check_gradient((w, x, b) -> sum(abs2, run(w, x, b)), w, y, bias)
    recorded = nothing
    value_and_gradient(w -> (recorded = run(w, y, bias); sum(recorded)), w)
    @test untracked(recorded) ≈ run(w, y, bias) rtol = 1e-14
end

@testset "arithmetic and broadcasting" begin
    check_gradient((a, b) -> sum(log.(abs.(a) .+ 2) ./ b .^ 2) + maximum(a) - minimum(b), x, x .+ 10)
    check_gradient((a, v, s) -> sum((a .+ v) .* s) - sum(-v) + s^3 / 2 + exp(s) + 2^s + max(s, 0.5) + 1 / s, x, randn(12), 1.7)
    check_gradient(a -> sum(y -> y > 0 ? y^2 : zero(y), a), x)
    check_gradient(a -> sum(x .^ 2 .> 1) + sum(max.(a, 0) .- min.(0.1, a)), x)
    check_gradient((s, t) -> (s < t ? s - t : t) * abs(s) + s^t, 0.5, 0.7)
    inside = rand(3, 2) .* 0.8 .+ 0.1
    for f in Tartan.SMOOTH
        g = getfield(Base, f)
        check_gradient(a -> sum(g.(a)) + g(a[1]), inside)
    end
end

@testset "parts, sums and shapes" begin
    check_gradient(a -> sum(abs2, a[2:3, [1, 1, 3]]) + a[2, 3] * a[1] + a[end], x)
    check_gradient(a -> sum(reshape(a, 6, 6)[:, 2]) + sum(vec(a) .^ 3), x)
    check_gradient((a, b) -> sum(abs2, vcat(a, b)) + sum(hcat(a, b)[:, 4:5] .* 2) + sum(vcat(x, a) .^ 3), x, randn(12, 3))
    check_gradient(a -> sum(sum(a; dims = 1) .^ 3) + sum(mean(a; dims = 2) .* a), x)
end

@testset "penalties of block-sparse matrices keep to stored blocks" begin
    check_gradient(w -> sum(w .^ 2) + 3sum(abs, w) + mean(w) + sum(abs2, 2w - w / 3), W)
    check_gradient((w, s) -> sum(w .* s) + s * sum(w), W, 0.5)
    ragged = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (5, 6), 4)); seed = 2)
    dW = value_and_gradient(sum, ragged).grads[1]
    @test Matrix(dW) == ones(5, 6) && sum(dW.values) == 30
end

@testset "parameters may be nested, unused or constant" begin
    value, grads = value_and_gradient(p -> sum(p.a[1] .^ 2) * untracked(p.c), (a = ([1.0, 2],), c = 3.0, w = W))
    @test value == 15 && grads[1].a == ([6.0, 12],) && grads[1].c == 0 && iszero(grads[1].w.values)
    @test untracked(5) == 5
    @test value_and_gradient(x -> sum(x .* 2.0), Float32[1, 2]).grads[1] isa Vector{Float32}
end

@testset "refusals name the cause" begin
    refuses(text, f, parameters...) = @test occursin(text, sprint(showerror, try value_and_gradient(f, parameters...) catch error; error end))
    refuses("f returned a Int64, expected a number that was computed", p -> 3, x)
    refuses("expected one number", p -> p, x)
    refuses("no method", p -> sum(cumsum(p)), x)
    refuses("a function of a $(typeof(x)) has no gradient", p -> sum(exp(p)), x)
    refuses("a parameter is a $(Vector{Complex{Float64}})", sum, [Complex(1.0)])
    refuses("a parameter is a String", sum, "a")
    refuses("for zeros, expected one that keeps the zeros", w -> sum(exp.(w)), W)
    refuses("block-sparse matrices on one layout and numbers", w -> sum(w .* ones(8, 12)), W)
    refuses("a part of a block-sparse matrix has no gradient", w -> w[1, 1], W)
    refuses("softmax has no gradient with respect to scale", (p, s) -> sum(softmax(p; scale = s)), x, 0.5)
    refuses("layer_norm has no gradient of its result stats", p -> sum(layer_norm(p; return_stats = true).stats), x)
    q, dense = randn(2, 4), pattern(:dense, (4, 4), 2)
    refuses("attention has no gradient of its result lse", p -> sum(attention(p, p, p, dense; return_lse = true)[2]), q)
    refuses("attention has no gradient with respect to scale", s -> sum(attention(q, q, q, dense; scale = s)), 0.5)
    refuses("two calls of value_and_gradient", p -> value_and_gradient(q -> sum(q .* p), 2.0).value, x)
    @test sprint(show, Tartan.Tracked(Tartan.Tape(), x)) == "Tracked(" * summary(x) * ")"
end
