# SPDX-License-Identifier: Apache-2.0
# Objects that are closed while other tasks compute with them: each call either works or says that it is closed. Needs
# more than one thread to mean anything; meson.build gives it two.

# Closes x a little after another thread began to use it; true where the use gave `expected` or was told that something
# is closed.
function beside(use, x, expected, delay)
    started = Threads.Atomic{Bool}(false)
    user = Threads.@spawn begin
        started[] = true
        try
            use() == expected
        catch error
            error isa TartanError && error.status === :handle && occursin("closed", error.message)
        end
    end
    spin(() -> started[], 1e9)
    spin(() -> false, delay)
    close(x)
    return fetch(user)
end

# This thread stays at work, so that tasks run on others.
function spin(done, nanoseconds)
    start = time_ns()
    while !done() && time_ns() - start < nanoseconds
        GC.safepoint()
    end
end

# `round` gives the use, what is closed, and what is expected. The first call compiles it.
function rounds(round)
    use, x, expected = round()
    use() == expected || return false
    took = @elapsed use()
    return all(beside(round()..., rand() * took * 1e9) for _ in 1:60)
end

Threads.nthreads() > 1 && let
    X = ones(256, 64)
    layout = random_layout(256, 256, (8, 8), 0.5)
    values = exact(Float64, 8, 8, nblocks(layout))
    product = BlockSparseMatrix(layout, values) * X

    @testset "matrices" begin
        @test rounds(() -> (A = BlockSparseMatrix(layout, values); (() -> A * X, A, product)))
        @test rounds(() -> (A = BlockSparseMatrix(layout, values); (() -> sum(sparse(A)), A, sum(values))))
    end

    @testset "layouts" begin
        rows = coordinates(layout)
        @test rounds(() -> (l = transpose(transpose(layout)); (() -> coordinates(l), l, rows)))
        @test rounds(() -> (l = transpose(transpose(layout)); (() -> layout_identity(l), l, layout_identity(layout))))
    end

    @testset "masks" begin
        q, window = exact(Float64, 16, 256), BlockMask((q, k, head) -> k <= q, layout)
        seen = attention(q, q, q, layout; mask = window)
        @test rounds() do
            mask = BlockMask((q, k, head) -> k <= q, layout)
            (() -> attention(q, q, q, layout; mask = mask), mask, seen)
        end
    end

    @testset "contexts" begin
        A = BlockSparseMatrix(layout, values)
        @test rounds() do
            context = Context(threads = 1)
            (() -> spmm!(zeros(256, 64), A, X; context = context), context, product)
        end
    end

    @testset "files" begin
        path = joinpath(mktempdir(), "f.h5")
        save(path, "a" => BlockSparseMatrix(layout, values))
        @test rounds(() -> (f = BlockFile(path); (() -> f["a"].values, f, values)))
        @test rounds() do
            f = BlockFile()
            f["a"] = BlockSparseMatrix(layout, copy(values)) # nobody else keeps it
            (() -> (save(tempname(), f); GC.gc(false); 1), f, 1)
        end
    end

    @testset "arrays and matrices of devices, $place" for place in DEVICES
        context = Context(place; threads = 1)
        A = BlockSparseMatrix(layout, values)
        D = to_device(A, context)
        @test rounds() do
            x = to_device(X, context)
            (() -> to_host(D * x), x, product)
        end
    end
end

@testset "the last user frees" begin
    A = BlockSparseMatrix(pattern(:dense, (8, 8), 4), ones(4, 4, 4))
    handle = A.handle
    @test Raw.c_enter(handle) && Raw.c_enter(handle) && isopen(A)
    close(A)
    close(A)
    @test !isopen(A) && !Raw.c_enter(handle) && handle.keep !== nothing # in use twice
    Raw.c_leave(handle)
    @test handle.keep !== nothing
    Raw.c_leave(handle)
    @test handle.keep === nothing && handle.users[] == 1 # freed
    close(A)
    @test refuses(() -> A * ones(8), :handle, "BlockSparseMatrix is closed")
    # What is refused holds nothing.
    open_one, closed_one = BlockLayout(trues(2, 2), 4), BlockLayout(trues(2, 2), 4)
    close(closed_one)
    for _ in 1:3
        @test refuses(() -> union(open_one, closed_one), :handle) && refuses(() -> union(closed_one, open_one), :handle)
        @test refusal(() -> Raw.tartan_layout_find(open_one, (nothing, "no index", nothing), Ref(Int64(0)))) isa MethodError
        @test refusal(() -> BlockFile("nul\0")) isa ArgumentError
    end
    @test open_one.handle.users[] == 0
end

@testset "contexts of calls that were given none" begin
    A, x = BlockSparseMatrix(pattern(:dense, (8, 8), 4), ones(4, 4, 4)), ones(8)
    A * x
    closed = copy(A)
    close(closed)
    n = length(Tartan.SPARES)
    for _ in 1:3n
        @test_throws TartanError closed * x
        @test_throws DimensionMismatch A * ones(9)
        @test refuses(() -> mul!(ones(8), A, x, NaN, 0), :argument)
    end
    @test all(spare -> spare.busy[] == 0, Tartan.SPARES) && length(Tartan.SPARES) == n
    # Where all are at work, a call makes one of its own.
    foreach(Tartan.take, Tartan.SPARES)
    @test A * x == fill(8, 8)
    @test all(spare -> spare.busy[] == 1, Tartan.SPARES)
    foreach(Raw.c_leave, Tartan.SPARES)
end

@testset "memory of C's that nobody needs is found" begin
    Tartan.count_memory(0)
    one() = BlockLayout((4_000_000, 1), 1, [1], [1])
    bytes = one().handle.bytes
    @test bytes >= 32_000_000
    most = 0
    for _ in 1:60
        one()
        most = max(most, Tartan.C_MEMORY[])
    end
    @test most < 40 * bytes # of 60
    context = Context("cpu")
    GC.gc()
    before = Tartan.C_MEMORY[]
    x = to_device(ones(1000, 100), context)
    @test Tartan.C_MEMORY[] - before == 800_000
    close(x)
    close(x)
    @test Tartan.C_MEMORY[] == before
end
