# SPDX-License-Identifier: Apache-2.0
# Memory, tasks, sessions.

@testset "finalizers" begin
    function churn(n)
        for i in 1:n
            A = BlockSparseMatrix{Float64}(BlockLayout(trues(32, 32), 1))
            A * ones(32)
            i % 3 == 0 && close(A)
            i % 5 == 0 && close(A.layout)
        end
    end
    resident() = parse(Int, split(read("/proc/self/statm", String))[2])
    churn(12000) # to what memory lies idle between two collections
    # Each layout is more than 20 kB in C, and each matrix holds on to one. What is not freed adds up in every round; what a
    # collection leaves for the next does not.
    growth = map(1:3) do _
        GC.gc()
        before = Sys.islinux() ? resident() : 0
        churn(12000)
        GC.gc()
        Sys.islinux() ? (resident() - before) * 4096 : 0
    end
    @test minimum(growth) < 100_000_000
end

@testset "values outlive what made them" begin
    layout = BlockLayout(trues(4, 4), 8)
    matrices = [BlockSparseMatrix(layout, fill(Float64(i), 8, 8, 16)) for i in 1:50]
    foreach(A -> A.values[1], matrices)
    values = [A.values for A in matrices]
    matrices = nothing
    GC.gc()
    @test all(all(values[i] .== i) for i in 1:50)
    A = BlockSparseMatrix(layout, fill(2.0, 8, 8, 16)) # the array has no other name
    GC.gc()
    garbage = [fill(NaN, 8, 8, 16) for _ in 1:100]
    @test A * ones(32) == fill(64.0, 32)
    lazy = BlockSparseMatrix(layout, fill(2.0, 8, 8, 16))'
    GC.gc()
    @test lazy * ones(32) == fill(64.0, 32)
end

@testset "tasks share layouts and matrices" begin
    A = random_matrix(Float64, 96, 96, (8, 8))
    xs = [exact(Float64, 96) for _ in 1:64]
    ys = Vector{Vector{Float64}}(undef, 64)
    Threads.@threads for i in 1:64
        ys[i] = A * xs[i]
        transpose(A.layout) == A.layout
        i % 8 == 0 && GC.gc(false)
    end
    @test ys == [Matrix(A) * x for x in xs]
    messages = Vector{Any}(undef, 64)
    Threads.@threads for i in 1:64
        messages[i] = refusal(() -> BlockLayout((100, 100), 256 + i, [1], [1]))
    end
    # Each thread reads the text of its own failure.
    @test all(messages[i] isa TartanError && occursin(string(256 + i), messages[i].message) for i in 1:64)
end

@testset "the loop of Julia's threads" begin
    context = Context(threads = 2, parallel = :julia)
    @test Tartan.threads(context) == 2 && occursin("2", sprint(show, context))
    A = random_matrix(Float64, 200, 200, (8, 8))
    X = exact(Float64, 200, 20)
    for _ in 1:50
        @test spmm!(zeros(200, 20), A, X; context = context) == Matrix(A) * X
    end
    results = Vector{Matrix{Float64}}(undef, 8)
    Threads.@threads for i in 1:8
        own = Context(threads = 3, parallel = :julia)
        results[i] = spmm!(zeros(200, 20), A, X; context = own)
        close(own)
    end
    @test all(==(Matrix(A) * X), results)
    close(context)
end

@testset "Serialization" begin
    for T in TYPES
        A = random_matrix(T, 20, 13, (8, 4); make = normal)
        io = IOBuffer()
        serialize(io, (A, A.layout, "text"))
        seekstart(io)
        B, layout, text = deserialize(io)
        @test B isa BlockSparseMatrix{T} && B == A && layout == A.layout && text == "text"
        @test B * ones(T, 13) == A * ones(T, 13)
    end
    H = BlockSparseMatrix(exact(Float32, 12, 8, 3), random_layout(12, 8, (4, 4), 0.5; heads = 3))
    io = IOBuffer()
    serialize(io, H)
    seekstart(io)
    @test deserialize(io) == H
    @test_throws ArgumentError serialize(IOBuffer(), Context(threads = 1))
    A, file = BlockSparseMatrix(randn(12, 8), random_layout(12, 8, (4, 4))), BlockFile()
    mask = BlockMask((q, k, head) -> k <= q, A.layout)
    file["A"] = A
    io = IOBuffer()
    serialize(io, ([A, A], A.layout, mask, file, A'))
    seekstart(io)
    (a, b), l, m, f, t = deserialize(io)
    @test a === b && a == A && l === a.layout && m.layout === l && kept(m) == kept(mask) && f["A"] == A && t == A'
    sizes = map(x -> (io = IOBuffer(); serialize(io, x); position(io)), ([A], [A, A]))
    @test sizes[2] - sizes[1] < 16
    @test_throws ArgumentError deepcopy(Context(threads = 1))
end

@testset "another session reads what this one saved" begin
    path = joinpath(mktempdir(), "saved.jls")
    A = random_matrix(Float64, 20, 13, (8, 4))
    serialize(path, A)
    code = "using Tartan, Serialization; A = deserialize(ARGS[1]); print(sum(A * ones(13)))"
    @test parse(Float64, read(`$(Base.julia_cmd()) --startup-file=no -e $code $path`, String)) == sum(A * ones(13))
end

# A worker that is sent half of a message waits for the rest, and with it all that is sent later.
@testset "objects sent to a worker" begin
    code = """
    using Distributed
    addprocs(1; exeflags = "--startup-file=no")
    @everywhere using Tartan
    layout = pattern(:dense, (8, 8), 4)
    mask = BlockMask((q, k, head) -> k <= q, layout)
    ok = remotecall_fetch(kept, 2, mask) == kept(mask)
    closed = BlockSparseMatrix{Float64}(layout)
    close(closed)
    for x in (Context("cpu"), to_device(ones(3), Context("cpu")), closed)
        refused = try remotecall_fetch(identity, 2, x); false catch; true end
        global ok &= refused && remotecall_fetch(+, 2, 1, 1) == 2
    end
    print(ok)
    """
    child = open(`$(Base.julia_cmd()) --startup-file=no -e $code`)
    timer = Timer(_ -> kill(child), 240)
    @test read(child, String) == "true"
    close(timer)
end

@testset "the number of threads" begin
    default = Tartan.get_num_threads()
    Tartan.set_num_threads(1)
    @test Tartan.get_num_threads() == 1 && Tartan.threads(Context()) == 1 && Tartan.threads(Context(threads = 2)) == 2
    A = random_matrix(Float64, 20, 20, (4, 4))
    @test A * ones(20) == Matrix(A) * ones(20)
    spare = Tartan.SPARES[Threads.threadid()]
    @test Raw.tartan_context_threads(spare.handle) == 1
    Tartan.set_num_threads(3)
    @test A * ones(20) == Matrix(A) * ones(20) && Raw.tartan_context_threads(spare.handle) == 3
    @test refusal(() -> Tartan.set_num_threads(-1)) isa TartanError && Tartan.get_num_threads() == 3
    Tartan.set_num_threads(0)
    @test Tartan.get_num_threads() == default
end

@testset "the sources alone are no package" begin
    path = cp(pathof(Tartan), joinpath(mktempdir(), "Tartan.jl"))
    @test occursin("no raw.jl", sprint(showerror, refusal(() -> Base.include(Module(), path))))
end

@testset "a library that is not there, and another one" begin
    another = first(filter(path -> occursin("libjulia", path), Libdl.dllist()))
    for (library, text) in ("/no/such/library.so" => "cannot load", another => "has no function tartan_abi_version")
        errors = Pipe()
        command = setenv(`$(Base.julia_cmd()) --startup-file=no -e "using Tartan"`, merge(Dict(ENV), Dict("TARTAN_LIBRARY" => library)))
        @test !success(pipeline(command, stderr = errors, stdout = devnull))
        close(errors.in)
        message = read(errors, String)
        @test occursin(text, message) && occursin("TARTAN_LIBRARY", message) && occursin(library, message)
    end
end
