# SPDX-License-Identifier: Apache-2.0
# Bad input: what is refused names the argument, its value and what was expected, and nothing is written.

const TWO = BlockLayout([true false; true true], 4)
dense_of(n...) = zeros(Float64, n...)
weights() = BlockSparseMatrix(TWO, ones(4, 4, 3))

@testset "frames" begin
    @test refuses(() -> BlockLayout((16, 16), 0, [1], [1]), :argument, "block is (0, 0), expected 1 .. 256")
    @test refuses(() -> BlockSparseMatrix(ones(4, 4), 0), :argument, "block is (0, 0)") && refuses(() -> BlockSparseMatrix(ones(4, 4), 2.5), :argument, "block is 2.5, expected a whole number")
    @test refuses(() -> BlockLayout((16, 16), (4, 257), [1], [1]), :argument, "257")
    @test refuses(() -> BlockLayout((16, 16), NaN, [1], [1]), :argument, "NaN")
    @test refuses(() -> BlockLayout((16, 16), Inf, [1], [1]), :argument, "Inf")
    @test refuses(() -> BlockLayout((16, 16), 2.5, [1], [1]), :argument, "2.5")
    @test refuses(() -> BlockLayout((big(2)^70, 16), 8, [1], [1]), :argument, "1180591620717411303424")
    @test refusal(() -> BlockLayout((-1, 16), 8, [1], [1])) isa TartanError
    @test refusal(() -> BlockLayout((16, 16), 8, [1], [1]; heads = 0)) isa TartanError
    @test refusal(() -> BlockLayout((typemax(Int64), typemax(Int64)), 1, [1], [1])) isa TartanError
    @test refuses(() -> BlockLayout(trues(2, 3), 8; shape = (100, 24)), :shape, "13 x 3")
    @test refuses(() -> BlockLayout(trues(3, 2), 8; shape = (16, 24)), :shape, "2 x 3")
    @test refusal(() -> BlockLayout((16, 16), (8, 8, 8), [1], [1])) isa MethodError
    @test refuses(() -> BlockLayout((2^38, 2^38), 256, [1], [1]; heads = 16), :overflow, "16 heads")
end

@testset "indices" begin
    @test refuses(() -> BlockLayout((16, 16), 8, [3], [1]), :layout)
    @test refuses(() -> BlockLayout((16, 16), 8, [0], [1]), :layout)
    @test refuses(() -> BlockLayout((16, 16), 8, [typemin(Int)], [1]), :layout)
    @test refuses(() -> BlockLayout((16, 16), 8, [1, 1], [2, 2]), :layout)
    @test refuses(() -> BlockLayout((16, 16), 8, [1, 2], [2]), :shape)
    @test refuses(() -> BlockLayout((16, 16), 8, [1.5], [1]), :argument, "1.5")
    @test refuses(() -> findblock(TWO, 3, 1), :layout)
    @test refuses(() -> grow(TWO, [3], [1]), :layout)
    @test refuses(() -> move_blocks(TWO, [1], [2], [1]), :layout)
    @test refuses(() -> slice(TWO, 1:3, 1:1), :argument)
    @test refusal(() -> permute_blocks(TWO; rows = [1, 1])) isa TartanError
    @test refuses(() -> rearrange(weights(), TWO, [1, 2, 4]), :layout)
    @test refuses(() -> reach(TWO; head = 2), :argument)
    @test refuses(() -> partition(TWO, 0), :argument, "parts is 0")
    @test refuses(() -> number_blocks(TWO, :spiral), :argument, ":spiral", ":morton")
end

@testset "errors count from 1, as Julia does" begin
    twice = BlockLayout((16, 16), 8, [1, 2], [2, 1]; heads = 2)
    A = weights()
    A.values[2, 3, 3] = NaN
    S = sparse([1, 6], [2, 3], [1.0, 2.0], 8, 8)
    for (f, status, part) in (
            (() -> BlockLayout((16, 16), 8, [1, 3], [1, 1]), :layout, "block_rows[2] is 3, expected 1 to 2"),
            (() -> BlockLayout((16, 16), 8, [1], [0]), :layout, "block_cols[1] is 0, expected 1 to 2"),
            (() -> BlockLayout((16, 16), 8, [1], [1]; heads = 2, block_heads = [3]), :layout, "block_heads[1] is 3, expected 1 to 2"),
            (() -> BlockLayout((16, 16), 8, [1, 2, 1], [2, 2, 2]), :layout, "block row 1, block column 2 appears twice"),
            (() -> BlockLayout((16, 16), 8, [1, 1], [2, 2]; heads = 2, block_heads = [2, 2]), :layout, "of head 2 appears twice"),
            (() -> findblock(TWO, [1, 3], [1, 1]), :layout, "rows[2] is 3, expected 1 to 2"),
            (() -> findblock(TWO, 1, 1; head = 2), :layout, "head[1] is 2, expected 1 to 1"),
            (() -> grow(TWO, [1], [3]), :layout, "block_cols[1] is 3, expected 1 to 2"),
            (() -> move_blocks(TWO, [4], [1], [1]), :layout, "ids[1] is 4, expected 1 to 3"),
            (() -> move_blocks(TWO, [2, 2], [1, 1], [2, 2]), :layout, "ids[2] is 2 again"),
            (() -> move_blocks(TWO, [1], [2], [1]), :layout, "block row 2, block column 1 of head 1 appears twice"),
            (() -> slice(TWO, 1:3, 1:1), :argument, "block_rows is 1:3, expected a range within 1:2"),
            (() -> slice(weights(), 1:2, 0:1), :argument, "block_cols is 0:1"),
            (() -> permute_blocks(TWO; rows = [1, 1]), :layout, "rows[2] is 1 again"),
            (() -> permute_blocks(weights(); cols = [2, 3]), :layout, "cols[2] is 3, expected 1 to 2"),
            (() -> permute_blocks(BlockLayout(trues(2, 2), 4; shape = (7, 8)); rows = [2, 1]), :argument, "rows moves block 2"),
            (() -> permute_blocks(TWO; rows = [1]), :shape, "rows has length 1, expected 2"),
            (() -> rearrange(weights(), TWO, [1, 2, 4]), :layout, "sources[3] is 4, expected 0 to 3"),
            (() -> scatter!(weights(), weights(), [1, 2, 2]), :layout, "targets[3] is 2 again"),
            (() -> scatter!(weights(), weights(), [-1, 2, 3]), :layout, "targets[1] is -1, expected 0 to 3"),
            (() -> prune(TWO, [1, NaN, 1]), :argument, "gates[2] is NaN"),
            (() -> keep_largest(TWO, [NaN, 1, 1], 1), :argument, "scores[1] is NaN"),
            (() -> reach(twice; head = 3), :argument, "head is 3, expected 1 to 2"),
            (() -> Tartan.check(A), :argument, "A has NaN in block 3 at [6, 7]"),
            (() -> BlockSparseMatrix(S, BlockLayout([true false; false true], 4)), :layout, "an entry at [6, 3], in block row 2, block column 1"))
        @test refuses(f, status, part)
    end
    @test occursin("[1, 9]", sprint(showerror, refusal(() -> weights()[1, 9])))
end

@testset "lengths and values" begin
    @test refuses(() -> prune(TWO, [1.0]), :shape)
    @test refuses(() -> prune(TWO, [1.0, NaN, 1.0]), :argument)
    @test refuses(() -> keep_largest(TWO, [1.0, 2.0, 3.0], 4), :argument, "4")
    @test_throws DimensionMismatch BlockSparseMatrix(TWO, ones(4, 4, 2))
    @test_throws DimensionMismatch BlockSparseMatrix(TWO, ones(4, 2, 3))
    @test refuses(() -> TWO ∪ BlockLayout([true false; true true], 8), :shape)
    @test refuses(() -> project(weights(), BlockLayout([true true; true true], 8)), :shape)
    @test refuses(() -> largest_blocks(ones(4, 4), 2, 1.5), :argument, "1.5")
    @test refuses(() -> largest_blocks(ones(4, 4), 2, 0.5; norm = :l3), :argument, ":l3")
    @test refusal(() -> fill_normal!(weights(); scale = Inf)) isa TartanError
    @test refusal(() -> fill_normal!(weights(); seed = -2)) isa TartanError
    A = weights()
    A.values[2, 2, 2] = Inf
    @test refuses(() -> Tartan.check(A), :argument)
end

@testset "patterns" begin
    @test refuses(() -> pattern(:nonesuch, (16, 16), 8), :not_found, "nonesuch")
    @test refuses(() -> pattern_help(:nonesuch), :not_found, "nonesuch", "barabasi_albert")
    @test refuses(() -> pattern(:barabasi_albert, (160, 160), 16; mm = 5), :argument, "mm")
    @test refuses(() -> pattern(:barabasi_albert, (160, 160), 16; m = -1), :argument)
    @test refuses(() -> pattern(:barabasi_albert, (160, 160), 16; m = [1]), :argument)
    @test refusal(() -> pattern(:barabasi_albert, (160, 160), 16; seed = -5)) isa TartanError
end

@testset "shapes of products" begin
    A = weights()
    out = fill(7.0, 8, 3)
    @test_throws DimensionMismatch A * ones(7)
    @test_throws DimensionMismatch A * ones(7, 2)
    @test_throws DimensionMismatch ones(2, 9) * A
    @test_throws DimensionMismatch ones(9)' * A
    @test_throws DimensionMismatch A' * ones(9)
    for f in (() -> mul!(out, A, ones(8, 2)), () -> mul!(out, A, ones(7, 3)), () -> mul!(view(out, 1:7, :), A, ones(8, 3)))
        @test_throws DimensionMismatch f()
    end
    @test refuses(() -> spmm!(out, A, ones(7, 3)), :shape, "7", "8")
    @test refuses(() -> spmm!(out, A, ones(8, 3, 2)), :shape)
    @test refuses(() -> spmm!(out, A, ones(8, 3); gates = ones(2)), :shape)
    @test refuses(() -> spmm!(zeros(ntuple(_ -> 1, 9)), A, ones(8, 3)), :shape, "9")
    S = weights()
    @test refuses(() -> sddmm!(S, ones(8, 2), ones(3, 8)), :shape)
    @test refuses(() -> sddmm!(S, ones(7, 2), ones(2, 8)), :shape)
    @test refuses(() -> sddmm!(S, (ones(8, 2), ones(8, 2)), (ones(2, 8),)), :argument, "Y has 1 arrays", "expected 2")
    @test refuses(() -> sddmm!(S, ntuple(_ -> ones(8, 2), 9), ntuple(_ -> ones(2, 8), 9)), :argument)
    @test refuses(() -> sddmm!(S, (), ()), :argument)
    @test S == weights()
    @test refuses(() -> gate_gradient!(zeros(2), A, S), :shape)
    @test refuses(() -> gate_gradient!(zeros(3), A, BlockSparseMatrix(BlockLayout([true true; false true], 4), ones(4, 4, 3))),
                  :layout)
    @test refuses(() -> growth_score!(zeros(3, 2), ones(8, 2), ones(2, 8), 4), :shape)
    @test out == fill(7.0, 8, 3)
end

@testset "dtypes" begin
    A, out = weights(), fill(7.0, 8, 3)
    @test_throws ArgumentError spmm!(out, A, ones(Float32, 8, 3))
    @test_throws ArgumentError spmm!(zeros(Float32, 8, 3), A, ones(8, 3))
    @test_throws ArgumentError spmm!(out, A, ones(8, 3); gates = [1, 1, 1])
    @test_throws ArgumentError sddmm!(weights(), ones(Float32, 8, 2), ones(Float32, 2, 8))
    @test_throws ArgumentError gate_gradient!(zeros(Float32, 3), A, weights())
    @test_throws ArgumentError gate_gradient!(zeros(3), A, BlockSparseMatrix{Float32}(A))
    @test_throws ArgumentError growth_score!(zeros(Float32, 2, 2), ones(8, 2), ones(2, 8), 4)
    @test_throws MethodError BlockLayout(["a" "b"; "c" "d"], 2)
    @test out == fill(7.0, 8, 3)
end

@testset "numbers" begin
    A, out = weights(), fill(7.0, 8, 3)
    @test refuses(() -> mul!(out, A, ones(8, 3), NaN, 0), :argument, "alpha")
    @test refuses(() -> mul!(out, A, ones(8, 3), 1, Inf), :argument, "beta")
    @test_throws ArgumentError mul!(out, A, ones(8, 3), 1im, 0)
    @test refuses(() -> spmm!(out, A, ones(8, 3); side = :middle), :argument, ":middle")
    @test refuses(() -> growth_score!(zeros(2, 2), ones(8, 2), ones(2, 8), 4; norm = :l1), :argument)
    @test out == fill(7.0, 8, 3)
end

@testset "overlap" begin
    A = weights()
    x = ones(8)
    @test refuses(() -> mul!(x, A, x), :argument)
    both = ones(12)
    @test refuses(() -> mul!(view(both, 1:8), A, view(both, 5:12)), :argument)
    @test refuses(() -> spmm!(reshape(view(vec(A.values), 1:8), 8, 1), A, ones(8, 1)), :argument)
    @test refuses(() -> gate_gradient!(zeros(3), A, A), :argument)
    @test refuses(() -> sddmm!(A, reshape(view(vec(A.values), 1:16), 8, 2), ones(2, 8)), :argument)
    @test x == ones(8) && both == ones(12) && A == weights()
end

@testset "read-only outputs" begin
    A = weights()
    @test refusal(() -> mul!(1.0:8.0, A, ones(8))) !== nothing
    @test refusal(() -> spmm!(1.0:8.0, A, ones(8))) isa ArgumentError
end

@testset "closed and foreign handles" begin
    layout = BlockLayout([true false; true true], 4)
    A = BlockSparseMatrix(layout, ones(4, 4, 3))
    close(layout)
    close(layout)
    @test !isopen(layout)
    @test A * ones(8) == [4, 4, 4, 4, 8, 8, 8, 8] # the matrix has its own reference
    for f in (() -> nblocks(layout), () -> transpose(layout), () -> layout ∪ TWO, () -> TWO ∪ layout, () -> svg(layout),
              () -> layout == TWO, () -> hash(layout), () -> coordinates(layout), () -> density(layout),
              () -> BlockSparseMatrix{Float64}(layout), () -> project(weights(), layout))
        @test refuses(f, :handle, "BlockLayout", "closed")
    end
    @test occursin("closed", sprint(show, layout))
    close(A)
    close(A)
    out = fill(7.0, 8)
    for f in (() -> mul!(out, A, ones(8)), () -> A * ones(8), () -> A[1, 1], () -> Matrix(A), () -> A[1, 1] = 2,
              () -> block_norms(A), () -> fill_zero!(A), () -> sddmm!(A, ones(8, 1), ones(1, 8)), () -> copy(A'),
              () -> serialize(IOBuffer(), A))
        @test refuses(f, :handle, "closed")
    end
    @test out == fill(7.0, 8) && A.values == ones(4, 4, 3)
    @test occursin("closed", sprint(show, A))
    context = Context(threads = 1)
    close(context)
    close(context)
    @test refuses(() -> spmm!(out, weights(), ones(8); context = context), :handle, "Context")
    file = BlockFile()
    close(file)
    close(file)
    @test refuses(() -> keys(file), :handle, "BlockFile")
    # A handle of another kind is a matter of types; one that is none of Tartan's, of C's own check.
    @test refusal(() -> Raw.tartan_layout_transpose(weights())) isa Union{MethodError, ErrorException}
    @test_throws MethodError Raw.tartan_layout_transpose(12345)
    @test refuses(() -> Raw.tartan_layout_transpose(Ptr{Raw.tartan_layout}(C_NULL)), :handle)
    memory = zeros(UInt8, 4096)
    foreign = Ptr{Raw.tartan_layout}(pointer(memory))
    @test GC.@preserve memory refuses(() -> Raw.tartan_layout_transpose(foreign), :handle)
    inner = weights()
    wrong = Ptr{Raw.tartan_layout}(inner.handle.address)
    @test GC.@preserve inner refuses(() -> Raw.tartan_layout_transpose(wrong), :handle)
end

@testset "contexts" begin
    @test refusal(() -> Context(threads = -1)) isa TartanError
    @test refusal(() -> Context(device = "abacus")) isa TartanError
    @test refuses(() -> Context(parallel = :sideways), :argument, ":sideways")
    @test refuses(() -> Context(device = "cuda", parallel = :julia), :argument, "cuda")
    @test refusal(() -> Context(device = "cuda:999")) isa TartanError
end

@testset "what would lose something" begin
    A = BlockSparseMatrix{Float32}(pattern(:dense, (4, 4), 2))
    @test_throws ArgumentError A * fill(2^24 + 1, 4)
    @test A * fill(2^24, 4) == zeros(Float32, 4)
    path = joinpath(mktempdir(), "twice.h5")
    @test refusal(() -> save(path, "a" => A, "a" => A)).status == :argument
    @test !isfile(path)
end

@testset "messages have Julia's names and sizes" begin
    A, x = random_matrix(Float64, 21, 17, (4, 3)), ones(17)
    text(f) = (error = refusal(f); error isa TartanError ? error.message : repr(error))
    for (f, words) in (
            (() -> spmm!(zeros(20, 3), A, ones(17, 3)), "C has size (20, 3), expected (21, 3), which is (rows of op(A), n, batch...)"),
            (() -> spmm!(zeros(21, 3, 5), A, ones(16, 3, 5)), "B has size (16, 3, 5), expected (17, 3, 5), which is (columns of op(A), n, batch...)"),
            (() -> spmm!(zeros(21), A, x; gates = ones(2)), "gates has size (2), expected ($(nblocks(A))), which is (A.blocks)"),
            (() -> (y = ones(20); B = random_matrix(Float64, 20, 20, (4, 4)); spmm!(y, B, y)), "C overlaps B"),
            (() -> spmm!(zeros(21), A, x; alpha = NaN), "alpha is nan"),
            (() -> sddmm!(copy(A), ones(20, 2), ones(2, 17)), "X has size (20, 2), expected (21, 2), which is (rows of S, k, batch...)"),
            (() -> growth_score!(zeros(2, 2), ones(8, 3), ones(2, 8), 4), "Y has"),
            (() -> gate_gradient!(zeros(1 + nblocks(A)), A, copy(A)), "gate_grad has"),
            (() -> attention(ones(8, 32, 2), ones(8, 32, 3), ones(8, 32, 2), pattern(:local, (32, 32), 8)), "v has size (8, 32, 2)"),
            (() -> project(A, BlockLayout(trues(2, 2), 4)), "layout is 8 x 8"))
        @test startswith(text(f), words) || println(text(f))
    end
    @test Tartan.in_julia("tartan_spmm: b is of a type, expected that of a (f32) or of a: a has a block") ==
          "B is of a type, expected that of A (f32) or of A: A has a block"
    @test Tartan.in_julia("x is dynamic (tartan_layout_to_host makes one)") == "x is dynamic (to_host makes one)"
    @test Tartan.in_julia("tartan_attention_forward: lse has shape [1, 2, 3], expected [4, 5, 6]") == "lse has size (3, 2, 1), expected (6, 5, 4)"
    @test Tartan.in_julia("tartan_file_open: a b c: [1, 2]") == "a b c: [1, 2]"
end

@testset "arguments have the names that they have here" begin
    @test refuses(() -> pattern(:random, (8, 8), 4; density = 2), :argument, "density is 2, expected a number 0 .. 1")
    @test refuses(() -> pattern(:local, (8, 8), 4; windw = 1), :argument, "windw is given, which pattern 'local' does not have")
    @test refuses(() -> BlockSparseMatrix(ones(3, 3), -1), :argument, "block is (-1, -1), expected")
end
