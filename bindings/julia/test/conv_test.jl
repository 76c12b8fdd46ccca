# SPDX-License-Identifier: Apache-2.0

# The convolution of the formula: x (spatial..., C, n), dense (kernel..., C, K), everything in Float64.
function direct_conv(x, dense, stride, dilation, before, out)
    D = ndims(dense) - 2
    y = zeros(out..., size(dense, D + 2), size(x, D + 2))
    for p in CartesianIndices(out), t in CartesianIndices(size(dense)[1:D])
        q = (Tuple(p) .- 1) .* stride .+ (Tuple(t) .- 1) .* dilation .- before .+ 1
        all(1 .<= q .<= size(x)[1:D]) || continue
        y[p, :, :] .+= transpose(dense[t, :, :]) * x[q..., :, :]
    end
    return y
end

random_filter(::Type{T}, c) where {T} = BlockSparseMatrix(c.layout, normal(T, blocksize(c.layout)..., nblocks(c.layout)))
near(a, b; unit = 1e-12) = size(a) == size(b) && isapprox(wide(a), wide(b); rtol = unit, atol = unit)

# Image sizes, options, and the padding before and the size of the result.
const CONV_CASES = [
    ((9,), (kernel = 3,), 0, (7,)),
    ((9, 7), (kernel = (3, 2), padding = (1, 0)), (1, 0), (9, 6)),
    ((9, 7), (kernel = (3, 5), padding = :same, stride = (2, 1)), (1, 2), (5, 7)),
    ((8, 7), (kernel = (3, 3), stride = 2, padding = :tf), (0, 1), (4, 4)),
    ((9, 8), (kernel = (2, 3), dilation = (3, 1), padding = (0, 2, 1, 3)), (0, 1), (8, 10)),
    ((6, 5, 4), (kernel = (3, 1, 2), padding = (1, 0, 0)), (1, 0, 0), (6, 5, 3)),
]

@testset "convolution against a loop, $n, $options" for (n, options, before, out) in CONV_CASES
    channels = random_layout(20, 12, (8, 4), 0.7)
    c = BlockConv(channels; options...)
    @test conv_size(c, n) == out
    @test (c.in_channels, c.out_channels, ndims(c)) == (12, 20, length(n))
    stride, dilation = get(options, :stride, 1), get(options, :dilation, 1)
    for (T, unit) in ((Float64, 1e-12), (Float32, 1e-4), (Float16, 2.0^-8))
        w, x = random_filter(T, c), normal(T, n..., 12, 2)
        dense = dense_filter(c, w)
        @test size(dense) == (c.kernel..., 12, 20)
        wanted = direct_conv(wide(x), wide(dense), stride, dilation, before, out)
        y = conv(c, w, x)
        @test eltype(y) === T && near(y, wanted; unit)
        @test conv(c, w, selectdim(x, ndims(x), 1)) == selectdim(y, ndims(y), 1)
        @test conv(c, conv_filter(c, dense), x) == y
    end
    # Both gradients: derivatives of sum(r .* y), which is linear in x and in w.
    w, x = random_filter(Float64, c), randn(n..., 12, 2)
    y = conv(c, w, x)
    r = randn(size(y))
    x_grad = conv_input_gradient(c, w, r; size = n)
    w_grad = conv_filter_gradient(c, x, r)
    change = randn(size(x))
    @test sum(x_grad .* change) ≈ (sum(r .* conv(c, w, x .+ 0.5 .* change)) - sum(r .* conv(c, w, x .- 0.5 .* change)))
    moved, step = copy(w), random_filter(Float64, c)
    nonzeros(moved) .+= nonzeros(step)
    @test sum(dense_filter(c, w_grad) .* dense_filter(c, step)) ≈ sum(r .* conv(c, moved, x)) - sum(r .* y)
    @test near(conv_input_gradient!(similar(x), c, w, r), x_grad)
    @test near(conv_filter_gradient!(copy(w_grad), c, x, r; beta = 2).values, 3 .* w_grad.values)
    c.stride == ntuple(_ -> 1, ndims(c)) && @test conv_input_gradient(c, w, r) == x_grad
end

@testset "a convolution is a product with its unrolled image" begin
    c = BlockConv(random_layout(16, 8, (8, 4), 0.8); kernel = (3, 2))
    w, x = random_filter(Float64, c), randn(6, 5, 8)
    unrolled = zeros(4 * 4, size(w, 2)) # positions x (taps, channels side by side); a row of the kernel is C's last dimension
    for i in 1:4, j in 1:4, a in 1:3, b in 1:2
        tap = (b - 1) * 3 + a
        unrolled[i + (j - 1) * 4, (tap - 1) * 8 .+ (1:8)] = x[i + a - 1, j + b - 1, :]
    end
    @test near(reshape(conv(c, w, x), 16, 16), unrolled * w')
    pointwise = BlockConv(random_layout(16, 8, (8, 4), 0.8); kernel = (1, 1))
    v = random_filter(Float64, pointwise)
    @test near(reshape(conv(pointwise, v, x), 30, 16), reshape(x, 30, 8) * v')
end

@testset "transposed" begin
    layout = random_layout(12, 8, (4, 4), 0.8)
    forward = BlockConv(layout; kernel = (3, 2), stride = 2, padding = (1, 0))
    c = BlockConv(layout; kernel = (3, 2), stride = 2, padding = (1, 0), transposed = true)
    @test (c.in_channels, c.out_channels) == (12, 8)
    w = random_filter(Float64, c)
    x = randn(5, 4, 12)
    @test conv_size(c, (5, 4)) == (9, 8)
    @test conv(c, w, x) == conv_input_gradient(forward, w, x; size = (9, 8))
    @test conv(c, w, x; size = (10, 9)) == conv_input_gradient(forward, w, x; size = (10, 9))
    y = randn(10, 9, 8)
    @test conv_input_gradient(c, w, y; size = (5, 4)) == conv(forward, w, y)
    @test conv_filter_gradient(c, x, y).values == conv_filter_gradient(forward, y, x).values
    @test size(dense_filter(c, w)) == (3, 2, 8, 12)
    @test refuses(() -> conv(c, w, x; size = (11, 8)), :shape, "y has size (11, 8, 8)", "9 to 10 x 8 to 9")
    @test edge_classes(c, (5, 4); size = (10, 9)) isa Matrix{Int}
end

@testset "sets of channels" begin
    blocks = [[1, 5, 2] => [3, 1], [2, 4] => [1], [6] => [5, 4, 3]]
    c = BlockConv(6, 5, blocks; kernel = (2, 3))
    list = randn(6 * (6 + 2 + 3))
    w = conv_filter(c, list)
    @test filter_list(c, w) == list
    dense, at = zeros(2, 3, 6, 5), 0
    for (ins, outs) in blocks
        n = 6 * length(ins) * length(outs)
        dense[:, :, ins, outs] .+= reshape(list[at + 1:at + n], 2, 3, length(ins), length(outs))
        at += n
    end
    @test dense_filter(c, w) == dense
    x = randn(5, 6, 6, 2)
    y = conv(c, w, x)
    @test near(y, direct_conv(x, dense, 1, 1, 0, (4, 4)))
    @test iszero(y[:, :, 2, :])
    @test near(conv_input_gradient(c, w, y), conv_input_gradient(BlockConv(pattern(:dense, (5, 6), (5, 6)); kernel = (2, 3)),
        conv_filter(BlockConv(pattern(:dense, (5, 6), (5, 6)); kernel = (2, 3)), dense), y))
    gradient = conv_filter_gradient(c, x, y)
    step = randn(length(list))
    @test filter_list(c, gradient)' * step ≈ sum(y .* conv(c, conv_filter(c, step), x))
    overlapping = BlockConv(2, 1, [[1] => [1], [1, 2] => [1]]; kernel = 1)
    @test vec(dense_filter(overlapping, conv_filter(overlapping, [1.0, 2.0, 4.0]))) == [3, 4]
    @test refuses(() -> conv_filter(overlapping, ones(1, 2, 1)), :unsupported, "several sets")
    @test refuses(() -> BlockConv(6, 5, [[1, 7] => [1]]; kernel = 1), :argument, "input channels of block 1 have 7 at place 2", "1 to 6")
    @test refuses(() -> BlockConv(6, 5, [[1] => [2], [1] => [0]]; kernel = 1), :argument, "output channels of block 2 have 0")
    @test refuses(() -> BlockConv(6, 5, [[1, 1] => [2]]; kernel = 1), :argument, "twice")
    @test refuses(() -> BlockConv(6, 5, [([1],)]; kernel = 1), :argument, "block 1 is", "expected a pair of lists")
    back = BlockConv(5, 6, [last(b) => first(b) for b in blocks]; kernel = (2, 3), transposed = true)
    @test conv(back, conv_filter(back, list), y) == conv_input_gradient(c, w, y)
end

@testset "gain, bias, ReLU and edges" begin
    c = BlockConv(random_layout(8, 4, (4, 4), 1.0); kernel = (3, 3), padding = :same)
    w, x = random_filter(Float64, c), randn(6, 5, 4)
    y, gain, bias = conv(c, w, x), randn(8), randn(8)
    over(v) = reshape(v, 1, 1, :)
    @test near(conv(c, w, x; gain, bias), over(gain) .* y .+ over(bias))
    @test near(conv(c, w, x; gain, bias, bias_first = true), over(gain) .* (y .+ over(bias)))
    @test near(conv(c, w, x; bias, relu = true), max.(y .+ over(bias), 0))
    @test near(conv!(copy(y), c, w, x; add = true), 2 .* y)
    classes = edge_classes(c, (6, 5))
    @test size(classes) == (6, 5) && all(==(1), classes[2:5, 2:4]) && sort(unique(classes)) == 1:9
    @test classes[1, 1] == 2 && classes[2, 1] == 3 && classes[6, 1] == 4 # C's order is Julia's
    table = randn(8, 9)
    @test near(conv(c, w, x; bias = table), y .+ permutedims(table[:, classes], (2, 3, 1)))
    @test refuses(() -> conv(c, w, x; bias = randn(8, 4)), :shape, "bias", "(8,), or (8, 9)")
    @test refuses(() -> conv(c, w, x; gain = randn(7)), :shape, "gain has size (7,), expected 8")
end

@testset "memory of any order, and devices" begin
    c = BlockConv(random_layout(8, 4, (4, 4), 1.0); kernel = (3, 2), padding = (1, 0))
    w, x = random_filter(Float64, c), randn(6, 5, 4, 2)
    y = conv(c, w, x)
    last = PermutedDimsArray(randn(4, 6, 5, 2), (2, 3, 1, 4)) # channels side by side
    last .= x
    @test conv(c, w, last) == y
    @test conv(c, w, view(cat(x, x; dims = 1), 1:6, :, :, :)) == y
    @test refuses(() -> conv!(y, c, w, y), :shape, "channels")
    for device in DEVICES
        context = Context(device)
        there = refusal(() -> global placed = conv(c, to_device(w, context), to_device(x, context)))
        if there === nothing
            @test to_host(placed) ≈ y
            moved = conv_filter_gradient(c, to_device(x, context), placed)
            @test to_host(moved).values ≈ conv_filter_gradient(c, x, y).values
        else # the device has no convolutions yet
            @test there isa TartanError && there.status == :unsupported
        end
    end
end

@testset "saved and restored" begin
    c = BlockConv(random_layout(8, 4, (4, 4), 1.0); kernel = (3, 2), padding = (1, 0, 0, 0))
    w = random_filter(Float64, c)
    mktempdir() do place
        save(joinpath(place, "filter.h5"), "filter" => w)
        back = load(joinpath(place, "filter.h5"))["filter"]
        @test back.layout == c.layout && conv(c, back, ones(4, 4, 4)) == conv(c, w, ones(4, 4, 4))
    end
    io = IOBuffer()
    sets = BlockConv(3, 2, [[1] => [2]]; kernel = 1)
    serialize(io, (c, sets))
    seekstart(io)
    again, sets_again = deserialize(io)
    @test again == c && again.layout == c.layout && sets_again == sets && hash(again) == hash(c)
    @test copy(c) === c && deepcopy(c) === c
    @test sprint(show, c) == "BlockConv of 4 to 8 channels, kernel = (3, 2), padding = (1, 0, 0, 0)"
    close(c)
    @test !isopen(c) && sprint(show, c) == "BlockConv of 4 to 8 channels (closed)"
    @test refuses(() -> conv_size(c, (4, 4)), :handle, "BlockConv")
    close(c)
end

@testset "weight normalisation, $place, $T" for place in DEVICES, T in (Float64, Float32)
    context = Context(place)
    channels = random_layout(12, 8, (4, 2), 0.7)
    c = BlockConv(channels; kernel = (3, 2))
    w, r, gain = random_filter(T, c), random_filter(T, c), T.(1 .+ rand(12))
    # In each block of channels, the weights of an output channel have the norm 1, times the gain.
    function expected(w, gain)
        dense = Float64.(dense_filter(c, w))
        for (i, j) in zip(coordinates(channels)[1:2]...), o in 4i - 3:4i
            part = view(dense, :, :, 2j - 1:2j, o)
            part .*= gain[o] / norm(part)
        end
        return dense
    end
    there(x) = to_device(x, context)
    out = to_host(conv_normalize(c, there(w); gain = there(gain)))
    @test dense_filter(c, out) ≈ expected(w, gain)
    @test conv_normalize(c, w; gain = gain) == out && conv_normalize(c, w; context = Context()) == conv_normalize(c, w; gain = ones(T, 12))
    own = copy(w)
    @test conv_normalize!(own, c, own; gain = gain) === own && own == out
    @test iszero(conv_normalize(c, BlockSparseMatrix{T}(c.layout)).values)
    found = conv_normalize_gradient(c, there(w), there(r); gain = there(gain))
    value(w, gain) = sum(expected(w, gain) .* dense_filter(c, r))
    toward, step = random_filter(T, c), 1e-4
    shifted(s) = BlockSparseMatrix(c.layout, T.(w.values .+ s .* toward.values))
    T === Float64 && @test isapprox(sum(to_host(found.filter).values .* toward.values), (value(shifted(step), gain) - value(shifted(-step), gain)) / 2step; rtol = 1e-5)
    @test isapprox(to_host(found.gain), [value(w, (1:12) .== k) for k in 1:12]; rtol = 1e-4)
    @test conv_normalize_gradient(c, w, r).gain === nothing
    @test refuses(() -> conv_normalize(c, w; epsilon = 0), :argument, "epsilon is 0")
    @test refuses(() -> conv_normalize(c, w; gain = gain[1:3]), :shape, "gain has size (3,)", "12")
    @test refuses(() -> conv_normalize_gradient(c, w, random_filter(T, BlockConv(random_layout(8, 8, (4, 2), 1.0); kernel = 3))), :layout, "out_grad")
end

@testset "refusals" begin
    layout = random_layout(8, 4, (4, 4), 1.0)
    c = BlockConv(layout; kernel = (3, 5))
    w, x = random_filter(Float64, c), randn(6, 6, 4)
    @test refuses(() -> BlockConv(layout; kernel = (3, 3), stride = 0), :argument, "stride is (0, 0)")
    @test refuses(() -> BlockConv(layout; kernel = (3, 3), stride = (1, 2, 3)), :argument, "stride is (1, 2, 3), expected 2")
    @test refuses(() -> BlockConv(layout; kernel = (3, 3), padding = -1), :argument, "padding is")
    @test refuses(() -> BlockConv(layout; kernel = 3, padding = :full), :argument, "padding is :full")
    @test refuses(() -> BlockConv(layout; kernel = (1, 1, 1, 1)), :argument, "4 spatial dimensions")
    @test refuses(() -> BlockConv(layout; kernel = 1.5), :argument, "kernel")
    @test refuses(() -> BlockConv(random_layout(8, 4, (4, 4); heads = 2); kernel = 3), :shape, "heads")
    @test refuses(() -> conv(c, w, randn(6, 4, 4)), :shape, "size has length 4 in dimension 2", "at least 5")
    @test refuses(() -> conv(c, w, randn(2, 6, 4)), :shape, "has length 2 in dimension 1", "at least 3")
    @test refuses(() -> conv(c, w, randn(6, 6, 5)), :shape, "x has size (6, 6, 5), expected 4 channels in dimension 3")
    @test refuses(() -> conv(c, w, randn(6, 6)), :shape, "expected 4 dimensions: (w, h, channels, n)")
    @test refuses(() -> conv!(zeros(4, 3, 8), c, w, x), :shape, "y has size (4, 3, 8), expected 4 x 2")
    @test refuses(() -> conv!(zeros(4, 2, 8, 2), c, w, x), :shape, "1 images")
    @test refuses(() -> conv(c, random_filter(Float64, BlockConv(layout; kernel = 3)), x), :layout, "c.layout")
    @test_throws ArgumentError conv(c, w, Float32.(x))
    @test_throws ArgumentError conv(c, w, rand(1:3, 6, 6, 4))
    @test refuses(() -> conv_input_gradient(BlockConv(layout; kernel = 3, stride = 2), w, randn(4, 8)), :argument, "size is not given")
    @test refuses(() -> conv_filter(c, randn(5, 3, 4, 8)), :shape, "dense has size (5, 3, 4, 8), expected (3, 5, 4, 8)")
    @test refuses(() -> conv_filter(c, randn(7)), :shape, "list has size (7,), expected")
    @test refuses(() -> conv(c, w, x; windows = Windows((2, 2); count = 1)), :argument, "only one of active and windows")
end
