# SPDX-License-Identifier: Apache-2.0

upright(rows...) = permutedims(reduce(vcat, permutedims.(collect.(rows)))) # rows as printed, to (w, h)

# SBNet's mask: ones at (1, 2) and (2, 0) of 5 rows and 5 columns, from 0.
const SBNET_MASK = upright((0, 0, 0, 0, 0), (0, 0, 1, 0, 0), (1, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0))

# The convolution of ones with a filter of ones in the active windows of a mask.
function golden(mask, kernel; padding = :same, stride = 1, size)
    inputs, outputs = windows_for_conv(Base.size(mask); kernel = (kernel, kernel), size, padding, stride)
    c = BlockConv(pattern(:dense, (1, 1), 1); kernel = (kernel, kernel), stride, padding = padding === :same ? :tf : padding)
    w = conv_filter(c, ones(kernel, kernel, 1, 1))
    active = active_windows(mask, inputs)
    x = ones(Base.size(mask)..., 1)
    y = conv(c, w, x; active, windows = outputs)
    blocks = window_gather(x, active, inputs) # the same, window by window
    valid = BlockConv(pattern(:dense, (1, 1), 1); kernel = (kernel, kernel), stride)
    @test window_scatter!(zero(y), conv(valid, w, blocks), active, outputs) == y
    return y[:, :, 1]
end

@testset "SBNet's known maps" begin
    @test golden(SBNET_MASK, 3; size = 3) ==
        upright((0, 6, 6, 6, 0), (6, 9, 9, 9, 0), (6, 9, 9, 9, 0), (6, 9, 0, 0, 0), (0, 0, 0, 0, 0))
    @test golden(SBNET_MASK, 3; size = 3, padding = :valid) == upright((9, 9, 9), (9, 9, 9), (9, 0, 0))
    @test golden(SBNET_MASK, 3; size = 4) ==
        upright((4, 6, 6, 6, 0), (6, 9, 9, 9, 0), (6, 9, 9, 9, 0), (6, 9, 9, 9, 0), (0, 0, 0, 0, 0))
    @test golden(SBNET_MASK, 3; size = 5, stride = 2) == upright((4, 6, 0), (6, 9, 0), (0, 0, 0))
    corner = zeros(8, 8)
    corner[8, 1] = corner[1, 1] = corner[8, 8] = 1
    wanted = fill(4.0, 7, 7)
    wanted[1:4, 5:7] .= 0
    @test golden(corner, 2; size = 5, padding = :valid) == wanted
end

@testset "windows" begin
    inputs, outputs = windows_for_conv((96, 64); kernel = (3, 3), output = 16)
    @test inputs == Windows((18, 18); stride = (16, 16), offset = (-1, -1), count = (6, 4))
    @test outputs == Windows(16; count = (6, 4))
    @test windows_for_conv((96, 64); kernel = [1, (3, 3), 1], output = 16)[1] == inputs
    @test windows_for_conv((96, 60); kernel = (5, 3), output = (16, 20), padding = :valid)[1].size == (20, 22)
    @test windows_text(inputs) == "size=18x18 stride=16x16 offset=-1x-1 count=4x6"
    for w in (inputs, outputs, Windows(3; count = 7), Windows((1, 2, 3); stride = 4, offset = (0, -5, 2), count = (6, 0, 2)))
        @test Windows(windows_text(w)) == w
        @test eval(Meta.parse(repr(w))) == w
    end
    @test Windows("size=2 count=3x4") == Windows(2; count = (4, 3))
    @test refuses(() -> Windows("size=2 counts=3"), :argument, "counts=3")
    @test refuses(() -> Windows("size=2"), :argument, "expected a count")
    @test refuses(() -> Windows((2, 0); count = 1), :argument, "size is (2, 0)")
    @test refuses(() -> Windows((2, 2); count = (1, 2, 3)), :argument, "size is (2, 2), expected 3")
    @test refuses(() -> windows_for_conv((9, 8); kernel = (3, 3)), :argument, "neither size nor output is given")
    @test refuses(() -> windows_for_conv((9, 8); kernel = (3, 3), output = (2, 20), padding = :valid), :argument, "in dimension 2")
    @test refuses(() -> windows_for_conv((9, 8); kernel = (3, 3), size = (2, 6)), :argument, "size is 2 in dimension 1")
end

slice_head(layout, h) = BlockLayout(block_mask(layout)[:, :, h], blocksize(layout))

@testset "active windows" begin
    mask = zeros(6, 4, 3)
    mask[6, 1, 1] = mask[1, 4, 1] = mask[1, 1, 3] = mask[4, 2, 3] = 1
    windows = Windows(2; count = (3, 2))
    active = active_windows(mask, windows)
    @test size(active) == (2, 3) && heads(active) == 3 && blocksize(active) == (1, 1)
    @test block_mask(active)[:, :, 1] == [false false true; true false false]
    @test block_mask(active)[:, :, 3] == [true true false; false false false]
    for same in (mask .== 1, Float32.(mask), UInt8.(mask), Int.(mask), reshape(mask, 6, 4, 1, 3), PermutedDimsArray(mask, (1, 2, 3)))
        @test active_windows(same, windows) == active
    end
    @test active_windows(mask[:, :, 3], windows) == slice_head(active, 3)
    @test nblocks(active_windows(zeros(6, 4), windows)) == 0
    @test nblocks(active_windows(mask, windows; pool = :average, tolerance = 0.2)) == 4
    @test nblocks(active_windows(mask, windows; pool = :average, tolerance = 0.25)) == 0
    @test nblocks(active_windows(0.5 .* mask, windows; tolerance = 0.5)) == 0
    solid = zeros(4, 3, 2)
    solid[4, 1, 2] = 1
    @test block_mask(active_windows(solid, Windows(1; count = (4, 3, 2)))) == (reshape(1:24, 4, 6)' .== 16)
    @test block_mask(active_windows([0, 0, 1, 0], Windows(2; count = 2))) == [false true]
    mktempdir() do place
        save(joinpath(place, "active.h5"), "active" => active)
        @test load(joinpath(place, "active.h5"))["active"] == active
    end
    @test refuses(() -> active_windows(fill(NaN, 6, 4), windows), :argument, "NaN")
    @test refuses(() -> active_windows(zeros(6), windows), :shape, "mask has size (6,)")
    @test refuses(() -> active_windows(mask, windows; pool = :sum), :argument, "pool is :sum")
    @test refuses(() -> active_windows(mask, windows; tolerance = Inf), :argument, "tolerance")
end
@testset "gather and scatter, $T" for T in (Float64, Float32, Float16)
    x = normal(T, 7, 5, 3, 2)
    windows = Windows((3, 2); offset = (-1, 0), count = (3, 3))
    active = active_windows(rand(7, 5, 2) .< 0.2, windows)
    blocks = window_gather(x, active, windows)
    @test size(blocks) == (3, 2, 3, nblocks(active))
    rows, cols, images = coordinates(active)
    inside(k) = [(i, j) for i in 1:3, j in 1:2 if 1 <= (cols[k] - 1) * 3 - 1 + i <= 7 && (rows[k] - 1) * 2 + j <= 5]
    wanted, kept = zeros(T, size(blocks)), zeros(T, size(x))
    for k in 1:nblocks(active), (i, j) in inside(k)
        p, q = (cols[k] - 1) * 3 - 1 + i, (rows[k] - 1) * 2 + j
        wanted[i, j, :, k] = kept[p, q, :, images[k]] = x[p, q, :, images[k]]
    end
    @test blocks == wanted
    @test window_gather!(similar(blocks), PermutedDimsArray(permutedims(x, (3, 1, 2, 4)), (2, 3, 1, 4)), active, windows) == blocks
    @test window_scatter!(zero(x), blocks, active, windows) == kept
    @test window_scatter!(copy(x), nothing, active, windows) == x .- kept
    @test window_scatter!(similar(x), blocks, active, windows; base = zero(x)) == kept
    @test window_scatter!(copy(kept), blocks, active, windows; add = true) == 2 .* kept
    overlapping = Windows((3, 2); stride = 1, count = (5, 4))
    all_active = active_windows(ones(7, 5, 2), overlapping)
    covered = window_scatter!(zeros(7, 5, 1, 2), ones(3, 2, 1, 40), all_active, overlapping; add = true)
    @test covered[:, :, 1, 1] == [1, 2, 3, 3, 3, 2, 1] * [1 2 2 2 1]
    @test refuses(() -> window_scatter!(zeros(7, 5, 1, 2), ones(3, 2, 1, 40), all_active, overlapping), :argument, "may overlap")
    @test refuses(() -> window_gather(x, all_active, windows), :shape, "active has 4×5 blocks in 2 heads, expected 3×3")
    @test refuses(() -> window_gather(x[:, :, :, 1], active, windows), :shape, "in 1")
    @test refuses(() -> window_scatter!(zero(x), blocks[:, :, 1:2, :], active, windows), :shape, "blocks has size")
    @test refuses(() -> window_gather(x, pattern(:dense, (6, 6), 2), windows), :shape, "expected 1×1")
    @test refuses(() -> window_gather(randn(7, 5), active, windows), :shape, "(w, h, channels, n)")
end

@testset "convolution in active windows" begin
    c = BlockConv(random_layout(8, 4, (4, 4), 1.0); kernel = (3, 3), padding = :same)
    w, x = BlockSparseMatrix(c.layout, randn(4, 4, nblocks(c.layout))), randn(10, 8, 4, 2)
    windows = Windows((4, 3); count = (3, 3))
    active = active_windows(rand(10, 8, 2) .< 0.1, windows)
    covered = window_scatter!(zeros(10, 8, 1, 2), ones(4, 3, 1, nblocks(active)), active, windows) .== 1
    whole = conv(c, w, x)
    @test conv(c, w, x; active, windows) == covered .* whole
    y = randn(10, 8, 8, 2)
    @test conv!(copy(y), c, w, x; active, windows, relu = true) == ifelse.(covered, max.(whole, 0), y)
    @test conv_input_gradient(c, w, y; active, windows) ≈ conv_input_gradient(c, w, covered .* y)
    @test conv_filter_gradient(c, x, y; active, windows).values ≈ conv_filter_gradient(c, x, covered .* y).values
    @test refuses(() -> conv(c, w, x; active, windows = Windows((4, 3); stride = 3, count = 3)), :argument, "may overlap")
    @test refuses(() -> conv(c, w, x; active, windows = Windows(4; count = 3)), :shape, "has 1 dimensions, expected 2")
    @test refuses(() -> conv(c, w, x; active), :argument, "only one of active and windows")
end

@testset "dynamic windows" begin
    for device in filter(!=("cpu"), DEVICES)
        context, windows = Context(device), Windows(2; count = (3, 2))
        mask = zeros(Float32, 6, 4)
        mask[5, 1] = 1
        active = refusal(() -> global dynamic = active_windows(mask, windows; context))
        if active === nothing && isdynamic(dynamic)
            @test to_host(dynamic, context) == active_windows(mask, windows)
            mask[1, 3] = 1
            @test to_host(update!(dynamic, mask, windows, context), context) == active_windows(mask, windows)
        else
            @test active === nothing || active.status == :unsupported
        end
    end
    ordinary = active_windows(ones(4, 4), Windows(2; count = (2, 2)))
    @test refuses(() -> update!(ordinary, ones(4, 4), Windows(2; count = (2, 2)), Context("cpu")), :argument, "dynamic")
end
