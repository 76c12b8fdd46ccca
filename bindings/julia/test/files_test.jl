# SPDX-License-Identifier: Apache-2.0

const FOLDER = mktempdir()
in_folder(name) = joinpath(FOLDER, name)

@testset "round trip, $T, compress = $compress" for T in TYPES, compress in (false, true)
    A = random_matrix(T, 37, 29, (8, 4); make = normal)
    path = in_folder("round_$(T)_$compress.h5")
    save(path, "weights" => A, "pattern" => A.layout; compress = compress)
    B = load(path, "weights")
    @test B isa BlockSparseMatrix{T} && B == A && B.layout == A.layout
    @test load(path, "pattern") == A.layout
    all = load(path)
    @test sort(collect(keys(all))) == ["pattern", "weights"] && all["weights"] == A
    @test occursin("weights", Tartan.verify(path))
end

@testset "heads" begin
    A = BlockSparseMatrix(exact(Float32, 12, 8, 3), random_layout(12, 8, (4, 4), 0.5; heads = 3))
    save(in_folder("heads.h5"), "A" => A)
    @test load(in_folder("heads.h5"), "A") == A
end

@testset "collections" begin
    A = random_matrix(Float64, 16, 16, (4, 4), 0.7)
    B = BlockSparseMatrix(exact(Float64, 16, 16), A.layout)
    g = rand(nblocks(A))
    file = BlockFile()
    file["encoder"] = A
    store!(file, "decoder", B; gates = g, metadata = "{\"epoch\": 3}")
    store!(file, "mask", transpose(A.layout); metadata = "{}")
    @test matrices(file) == ["encoder", "decoder"] && "mask" in layouts(file)
    @test matrices(file, A.layout) == ["encoder", "decoder"]
    @test haskey(file, "mask") && !haskey(file, "other")
    path = in_folder("collection.h5")
    save(path, file)
    close(file)
    again = BlockFile(path)
    @test Tartan.issealed(again)
    @test again["encoder"] == A && again["decoder"] == B && again["mask"] == transpose(A.layout)
    @test gates(again, "decoder") == g && gates(again, "encoder") === nothing
    @test refuses(() -> gates(again, "nobody"), :not_found, "no matrix, array or layout \"nobody\"", "decoder")
    @test replace(metadata(again, "decoder"), " " => "") == "{\"epoch\":3}" && metadata(again, "encoder") == ""
    @test occursin("2 matrices", sprint(show, again))
    store!(again, "encoder", A; metadata = metadata(again, "encoder"))
    @test metadata(again, "encoder") == ""
    delete!(again, "encoder")
    @test matrices(again) == ["decoder"]
    save(in_folder("less.h5"), again)
    @test load(in_folder("less.h5"), "decoder") == B
    one = again["decoder"]
    close(again)
    @test one == B # lives on
end

@testset "an object that replaces another" begin
    A = random_matrix(Float64, 16, 16, (4, 4), 0.7)
    file = BlockFile()
    store!(file, "a", A; gates = ones(nblocks(A)), metadata = "{}")
    file["a"] = random_matrix(Float64, 16, 16, (8, 8), 1.0)
    @test gates(file, "a") === nothing && metadata(file, "a") == "{}" # gates were for other blocks
    store!(file, "a", A; metadata = nothing)
    @test metadata(file, "a") == ""
    store!(file, "a", A; gates = ones(nblocks(A)))
    store!(file, "a", A; gates = nothing)
    @test gates(file, "a") === nothing
    store!(file, "l", A.layout; metadata = "{}")
    file["l"] = transpose(A.layout)
    @test metadata(file, "l") == "{}" && file["l"] == transpose(A.layout)
end

@testset "what was loaded is saved whole" begin
    A = random_matrix(Float64, 16, 16, (4, 4), 0.7)
    file = BlockFile()
    store!(file, "a", A; gates = rand(nblocks(A)), metadata = "{\"epoch\":3}")
    store!(file, "a", transpose(A.layout); metadata = "{\"of\":\"a layout\"}")
    file["l"] = A.layout
    @test file["a"] === A && get(file, "none", 7) == 7 && !haskey(file, "none")
    first_path, second_path = in_folder("first.h5"), in_folder("second.h5")
    save(first_path, file)
    all = load(first_path)
    @test all isa AbstractDict && sort(collect(keys(all))) == ["a", "l"] && length(all) == 2 && !isempty(all)
    @test Dict(all)["a"] == A && [name for (name, _) in all] == keys(all)
    all["b"] = all["a"]
    all["a"] = 2A # what is stored beside a matrix stays
    @test gates(all, "a") == gates(file, "a") && occursin("epoch", metadata(all, "a")) && all["a"] == 2A
    all["a"] = A
    save(second_path, all)
    again = BlockFile(second_path)
    @test sort(matrices(again)) == ["a", "b"] && sort(layouts(again)) == sort(layouts(file))
    @test gates(again, "a") == gates(file, "a") && gates(again, "b") === nothing
    @test replace(metadata(again, "a"), " " => "") == "{\"epoch\":3}"
    @test Raw.tartan_file_get_layout(again, "a") |> BlockLayout == transpose(A.layout)
    save(in_folder("dict.h5"), Dict("x" => A, "y" => A.layout))
    @test load(in_folder("dict.h5"), "x") == A
end

@testset "what a file has not" begin
    save(in_folder("has.h5"), "weights" => random_matrix(Float64, 8, 8, (4, 4)))
    file = BlockFile(in_folder("has.h5"))
    for f in (() -> file["wieghts"], () -> load(in_folder("has.h5"), "wieghts"), () -> delete!(file, "wieghts"),
              () -> metadata(file, "wieghts"))
        @test refuses(f, :not_found, "no matrix, array or layout \"wieghts\"", "\"weights\"")
    end
    @test refuses(() -> BlockFile()["a"], :not_found, "it is empty")
end

@testset "values are read when saved, and kept till then" begin
    file = BlockFile()
    layout = BlockLayout(trues(2, 2), 4)
    for i in 1:20
        file["m$i"] = BlockSparseMatrix(layout, fill(Float64(i), 4, 4, 4))
        GC.gc(i % 5 == 0)
    end
    file["m1"].values # a read in between
    save(in_folder("kept.h5"), file)
    @test all(load(in_folder("kept.h5"), "m$i") == fill(i, 8, 8) for i in 1:20)
end

@testset "names with slashes" begin
    A, path = random_matrix(Float64, 20, 13, (8, 4)), in_folder("slashes.h5")
    save(path, "model/layers/0" => A, "model/layers" => A.layout)
    again = load(path)
    @test again["model/layers/0"] == A && again["model/layers"] == A.layout && load(path, "model/layers/0") == A
end

@testset "bad files" begin
    A = random_matrix(Float64, 64, 64, (8, 8), 0.9; make = normal)
    good = in_folder("good.h5")
    save(good, "A" => A)
    bytes = read(good)
    @test refuses(() -> load(in_folder("missing.h5")), :file, "missing.h5")
    @test refuses(() -> load(good, "B"), :not_found, "B")
    @test refuses(() -> save(in_folder("no/such/folder.h5"), "A" => A), :file)
    @test refusal(() -> save(good, "" => A)) isa TartanError
    @test_throws ArgumentError save(in_folder("nul\0.h5"), "A" => A)
    for (f, part) in ((() -> save(good, "A" => [1im]), "expected a BlockSparseMatrix, a BlockLayout or an array of numbers"), (() -> save(good, :A => A), "expected a text: \"A\""),
                      (() -> save(good, A), "\"name\" => x"), (() -> store!(BlockFile(), "A", "text"), "object for \"A\" is a String"),
                      (() -> BlockFile()[:A] = A, "expected a text: \"A\""), (() -> store!(BlockFile(), "A", A; metadata = Dict("e" => 3)), "expected JSON text"))
        @test refusal(f) isa ArgumentError && occursin(part, refusal(f).msg)
    end
    damaged = in_folder("damaged.h5")
    write(damaged, bytes[1:end÷2])
    @test refuses(() -> load(damaged), :format)
    write(damaged, "no HDF5 at all, but long enough to be read as if it were one")
    @test refuses(() -> load(damaged), :format)
    write(damaged, UInt8[])
    @test refuses(() -> load(damaged), :format)
    for _ in 1:100
        copy_of = copy(bytes)
        at = rand(1:length(bytes))
        copy_of[at] = xor(copy_of[at], 0x01 << rand(0:7))
        write(damaged, copy_of)
        error = refusal(() -> load(damaged))
        @test error isa TartanError && error.status in (:format, :version)
        @test refusal(() -> Tartan.verify(damaged)) isa TartanError
    end
    @test read(good) == bytes # refused saves left the old file as it was
    @test refuses(() -> store!(BlockFile(), "A", A; gates = ones(1)), :shape)
    @test refuses(() -> delete!(BlockFile(), "A"), :not_found)
end

@testset "files without a seal are verified in a process of their own" begin
    path, plain, A = in_folder("sealed.h5"), in_folder("plain.h5"), random_matrix(Float64, 64, 64, (8, 8), 0.9; make = normal)
    save(path, "A" => A)
    bytes = read(path)[513:end] # what follows the seal is a file for any program with HDF5
    write(plain, bytes)
    @test !Tartan.starts_with_seal(plain) && Tartan.starts_with_seal(path) && load(plain, "A") == A
    @test occursin("matrix \"A\"", Tartan.verify(plain)) && Tartan.verify_in_child(path) == Tartan.verify(path)
    write(plain, bytes[1:end - 2000])
    @test refuses(() -> Tartan.verify(plain), :format, "plain.h5")
    @test refuses(() -> Tartan.verify_in_child(in_folder("nowhere.h5")), :file, "nowhere.h5")
    if Sys.islinux()
        @test refuses(() -> Tartan.verify_in_child(plain, 60, "unsafe_store!(Ptr{Int}(8), 1)"), :format, "plain.h5: damaged: HDF5 crashed", "signal 11")
        @test refuses(() -> Tartan.verify_in_child(plain, 1, replace(Tartan.VERIFYING, "status =" => "while true end; status =")), :format, "still reading it after 1 s")
        @test refuses(() -> Tartan.verify_in_child(plain, 60, "exit(3)"), :internal, "exit code 3")
    end
end

# A limit on the size of files stands for a full disk: write() fails in the middle either way.
const FULL_DISK = """
using Tartan
A = BlockSparseMatrix(BlockLayout(trues(8, 8), 32), ones(32, 32, 64))
ccall(:signal, Ptr{Cvoid}, (Cint, Ptr{Cvoid}), 25, Ptr{Cvoid}(1)) # SIGXFSZ is ignored
ccall(:setrlimit, Cint, (Cint, Ptr{UInt64}), 1, UInt64[65536, 65536]) == 0 || exit(2)
try
    save(ARGS[1], "A" => A)
catch error
    print(error isa TartanError ? error.status : typeof(error))
end
"""

@testset "a full disk leaves the old file" begin
    if Sys.islinux()
        folder = mktempdir()
        path = joinpath(folder, "full.h5")
        save(path, "old" => BlockLayout(trues(1, 1), 8))
        before = read(path)
        @test read(`$(Base.julia_cmd()) --startup-file=no -e $FULL_DISK $path`, String) == "file"
        @test read(path) == before && readdir(folder) == ["full.h5"]
    end
end

@testset "files: order, arrays, appending, rows" begin
    path = tempname() * ".h5"
    A = BlockSparseMatrix(rand(32, 24), 8)
    objects = ["layer1" => A, "layer2" => A, "p" => A.layout, "layer10" => A, "bias" => [1.0, 2.0], "a" => A]
    save(path, objects...)
    @test collect(keys(BlockFile(path))) == collect(keys(load(path))) == first.(objects)
    for x in (rand(3), rand(Float32, 2, 3, 4), fill(7), Int32[1 2; 3 4], UInt8[1], zeros(0), transpose(rand(2, 3)), view(rand(6, 6), 1:2:5, :))
        save(path, "x" => x)
        back = load(path, "x")
        @test back == x && eltype(back) == eltype(x) && size(back) == size(x) && load(path)["x"] == x
        @test (file = BlockFile(); file["x"] = x; file["x"] == x)
    end
    save(path, "w" => A, "step" => [1])
    save(path, "v" => 2A, "step" => [2]; append = true)
    @test collect(keys(load(path))) == ["w", "step", "v"] && load(path, "step") == [2] && load(path, "v") == 2A
    file = BlockFile(path)
    @test Tartan.read_rows(file, "w", 9:24) == Matrix(A)[9:24, :]
    @test Tartan.read_rows(file, "step", 1:1) == [2]
    @test_throws TartanError Tartan.read_rows(file, "w", 2:8)
    @test_throws ArgumentError Tartan.read_rows(file, "w", 9:40)
    @test_throws ArgumentError Tartan.read_rows(file, "w", 9)
    close(file)
    @test Tartan.read_rows(path, "w", 9:24) == A[9:24, :]
    save(path, "step" => 3)
    @test load(path, "step") == fill(3)
    rm(path)
end

@testset "files: values of some blocks" begin
    path = in_folder("parts.h5")
    for T in (Float64, Float32, Float16, BFloat16)
        A = random_matrix(T, 21, 14, (4, 3), 0.7; make = normal)
        n = nblocks(A)
        save(path, "A" => A, "b" => [1.0], "l" => A.layout)
        file = BlockFile()
        file["A"] = A
        for ids in (2:n - 1, n:n, 1:n, 3:2, Base.OneTo(2)), from in (path, BlockFile(path), file)
            @test Tartan.read_blocks(from, "A", ids) == A.values[:, :, ids]
            @test eltype(Tartan.read_blocks(from, "A", ids)) == T
        end
        for ids in (0:1, 1:n + 1, 2, [1, 2], 1.0:2.0)
            @test refusal(() -> Tartan.read_blocks(path, "A", ids)) isa ArgumentError
        end
        @test refusal(() -> Tartan.read_blocks(path, "b", 1:1)) isa ArgumentError
        @test refusal(() -> Tartan.read_blocks(path, "l", 1:1)) isa ArgumentError
        @test refuses(() -> Tartan.read_blocks(path, "none", 1:1), :not_found)
    end
end
