# SPDX-License-Identifier: Apache-2.0

"""
    BlockFile()
    BlockFile(path)

A collection of named layouts, matrices and arrays, empty or from an HDF5 file, in the order in which they were first stored.
Objects are read and verified on demand, so opening costs the same however many there are.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    B, g = 2A, ones(nblocks(A))
    file = BlockFile()
    file["encoder"] = A                     # a matrix; layouts are stored once for all matrices that share them
    store!(file, "decoder", B; gates = g, metadata = "{\\"epoch\\": 3}")
    save("weights.h5", file)

    file = BlockFile("weights.h5")
    keys(file)                              # names
    file["encoder"] * ones(64)
    file["decoder"].layout == B.layout

`file[name]` is the matrix or array of that name, else the layout; a BlockFile is a dictionary of them. Only one task
at a time may use it. `close(file)` frees memory early; objects read from the file remain valid.
"""
struct BlockFile <: AbstractDict{String, Any}
    handle::Handle{Raw.tartan_file}
    # C reads the values of matrices when the file is saved, so the handle keeps them alive.
    BlockFile(address::Ptr{Raw.tartan_file}) = new(Handle(address, Dict{String, BlockSparseMatrix}()))
end
BlockFile() = BlockFile(Raw.tartan_file_create())
BlockFile(path::AbstractString) = BlockFile(Raw.tartan_file_open(path))

Raw.c_handle(::Type{Raw.tartan_file}, file::BlockFile) = file.handle
Base.close(file::BlockFile) = close(file.handle)
Base.isopen(file::BlockFile) = isopen(file.handle)

# The matrices that were stored by the user, not read from a file; empty if the file is closed.
function kept(file::BlockFile)
    found = file.handle.keep
    return found === nothing ? Dict{String, BlockSparseMatrix}() : found::Dict{String, BlockSparseMatrix}
end

function names_of(file, wanted)
    Raw.tartan_file_list(file)
    return String[Raw.tartan_file_name(file, i) for i in 0:Raw.tartan_file_count(file) - 1
                  if wanted(Raw.tartan_file_kind(file, i))]
end

"`layouts(file)`: the names of the layouts of a [`BlockFile`](@ref)."
layouts(file::BlockFile) = names_of(file, isequal(Raw.TARTAN_KIND_LAYOUT))

"`matrices(file)`: the names of the matrices of a [`BlockFile`](@ref)."
matrices(file::BlockFile) = names_of(file, isequal(Raw.TARTAN_KIND_MATRIX))

"""
    matrices(file, layout)

The names of the matrices on this layout.
"""
function matrices(file::BlockFile, layout::BlockLayout)
    same = layout_identity(layout)
    Raw.tartan_file_list(file)
    return String[Raw.tartan_file_name(file, i) for i in 0:Raw.tartan_file_count(file) - 1
                  if Raw.tartan_file_kind(file, i) == Raw.TARTAN_KIND_MATRIX &&
                     Raw.tartan_file_layout_identity(file, i) == same]
end

Base.keys(file::BlockFile) = unique(names_of(file, kind -> true))
Base.length(file::BlockFile) = length(keys(file))
Base.haskey(file::BlockFile, name::AbstractString) = kind_of(file, name) !== nothing
Base.get(file::BlockFile, name::AbstractString, default) = haskey(file, name) ? file[name] : default
Base.iterate(file::BlockFile, (names, i) = (keys(file), 1)) =
    i > length(names) ? nothing : (names[i] => file[names[i]], (names, i + 1))

# Kind, dtype, number of dimensions and shape of an object; the kind is 0 if there is none.
function about(file, name)
    x = Vector{Int64}(undef, 11)
    Raw.tartan_file_describe(file, name, x)
    return x
end

# A matrix or an array takes precedence over a layout of the same name; nothing if there is none.
function kind_of(file, name)
    kind = about(file, name)[1]
    return kind == 0 ? nothing : kind
end

function expect_kind(file, name)
    kind = kind_of(file, name)
    kind === nothing || return kind
    names = keys(file)
    list = isempty(names) ? "it is empty" : "it has $(join(map(repr, names[1:min(end, 8)]), ", "))$(length(names) > 8 ? ", ..." : "")"
    throw(TartanError(:not_found, "the file has no matrix, array or layout $(repr(name)): $list"))
end

function Base.getindex(file::BlockFile, name::AbstractString)
    kind = expect_kind(file, name)
    kind == Raw.TARTAN_KIND_ARRAY && return get_array(file, name)
    kind == Raw.TARTAN_KIND_MATRIX || return BlockLayout(Raw.tartan_file_get_layout(file, name))
    A = get(kept(file), name, nothing)
    return A !== nothing && isopen(A) ? A : adopt(Raw.tartan_file_get_matrix(file, name))
end

stored_type(code) = code == Raw.TARTAN_U8 ? UInt8 : code == Raw.TARTAN_I32 ? Int32 : code == Raw.TARTAN_I64 ? Int64 : TYPES_BY_CODE[code]

function get_array(file, name, rows = nothing)
    shape = about(file, name)
    shape[1] == Raw.TARTAN_KIND_ARRAY || throw(TartanError(:not_found, "the file has no array $(repr(name))"))
    dims = shape[4:3 + shape[3]]
    first = 0
    if rows !== nothing
        isempty(dims) && throw(ArgumentError("rows are given, but $(repr(name)) is a single number"))
        expect_part(rows, "rows", dims[1])
        first, dims[1] = Base.first(rows) - 1, length(rows)
    end
    x = Array{stored_type(Int32(shape[2]))}(undef, dims...)
    Raw.tartan_file_get_array(file, name, first, described(as_it_is, x))
    return x
end

expect_part(range, name, n) = range isa AbstractUnitRange{<:Integer} && (isempty(range) || 1 <= first(range) && last(range) <= n) ||
    throw(ArgumentError("$name is $range, expected a range in 1:$n"))

"""
    Tartan.read_rows(file, name, rows)

Read some rows of a matrix (a range of whole block rows) or of the first dimension of an array. Other rows are not read. `file`
is a [`BlockFile`](@ref) or a path.

    save("w.h5", "encoder" => BlockSparseMatrix(ones(128, 96), 16))
    Tartan.read_rows(BlockFile("w.h5"), "encoder", 1:64)
"""
function read_rows(file::BlockFile, name::AbstractString, rows)
    kind = expect_kind(file, name)
    kind == Raw.TARTAN_KIND_ARRAY && return get_array(file, name, rows)
    kind == Raw.TARTAN_KIND_MATRIX || throw(ArgumentError("$(repr(name)) is a layout, expected a matrix or an array"))
    expect_part(rows, "rows", size(BlockLayout(Raw.tartan_file_get_matrix_layout(file, name)), 1))
    return adopt(Raw.tartan_file_get_rows(file, name, first(rows) - 1, last(rows)))
end

"""
    Tartan.read_blocks(file, name, ids)

Read the values of some blocks of a matrix, given by a range of ids: `A.values[:, :, ids]`. Other values are not read. `file`
is a [`BlockFile`](@ref) or a path.

    save("w.h5", "encoder" => BlockSparseMatrix(ones(128, 96), 16))
    Tartan.read_blocks("w.h5", "encoder", 1:8)
"""
function read_blocks(file::BlockFile, name::AbstractString, ids)
    kind = expect_kind(file, name)
    kind == Raw.TARTAN_KIND_MATRIX || throw(ArgumentError("$(repr(name)) is no matrix, expected one: arrays and layouts have no blocks of values"))
    layout = BlockLayout(Raw.tartan_file_get_matrix_layout(file, name))
    expect_part(ids, "ids", nblocks(layout))
    x = Array{stored_type(Int32(about(file, name)[2]))}(undef, blocksize(layout)..., length(ids))
    Raw.tartan_file_get_blocks(file, name, first(ids) - 1, described(as_matrix, x))
    return x
end

for read_part in (:read_rows, :read_blocks)
    @eval function $read_part(path::AbstractString, name::AbstractString, range)
        file = BlockFile(path)
        try
            return $read_part(file, name, range)
        finally
            close(file)
        end
    end
end

Base.setindex!(file::BlockFile, object, name) = (store!(file, name, object); object)

"""
    store!(file, name, object; gates, metadata)
    file[name] = object

Store a layout, a matrix or an array of numbers under a name, with gates (one for each block of a matrix) and your own metadata
as JSON text. A number is read again as an array without dimensions, `fill(x)`. Gates and metadata that are not given are kept
from an object of the same kind and name, gates only if its layout is the same; `nothing` removes them.
"""
function store!(file::BlockFile, name::AbstractString, A::BlockSparseMatrix;
                gates = kept_gates(file, name, A.layout), metadata = kept_metadata(file, name, Raw.TARTAN_KIND_MATRIX))
    Raw.tartan_file_put_matrix(file, name, A, gate_input(gates), json_text(metadata))
    kept(file)[name] = A
    return file
end
store!(file::BlockFile, name::AbstractString, A::TransposedBlocks; options...) = store!(file, name, copy(A); options...)
const FileElement = Union{Float64, Float32, Float16, BFloat16, Float8E4M3, Float8E5M2, UInt8, Int32, Int64}
function store!(file::BlockFile, name::AbstractString, x::AbstractArray{<:FileElement}; metadata = kept_metadata(file, name, Raw.TARTAN_KIND_ARRAY))
    y = x isa Described ? x : collect(x)
    Raw.tartan_file_put_array(file, name, described(as_it_is, y), 0, json_text(metadata))
    delete!(kept(file), name)
    return file
end
store!(file::BlockFile, name::AbstractString, x::FileElement; options...) = store!(file, name, fill(x); options...)
store!(file::BlockFile, name, object; options...) = throw(ArgumentError(name isa AbstractString ?
    "the object for $(repr(name)) is a $(typeof(object)), expected a BlockSparseMatrix, a BlockLayout or an array of numbers" :
    "the name is $(repr(name)), expected a text: \"$name\""))
json_text(x::Union{AbstractString, Nothing}) = x
json_text(x) = throw(ArgumentError("metadata is a $(typeof(x)), expected JSON text or nothing, for instance \"{\\\"epoch\\\": 3}\""))
function store!(file::BlockFile, name::AbstractString, layout::BlockLayout; metadata = kept_metadata(file, name, Raw.TARTAN_KIND_LAYOUT))
    Raw.tartan_file_put_layout(file, name, layout, json_text(metadata))
    return file
end

# What is stored beside an object that is about to be replaced, or nothing.
function kept_gates(file, name, layout)
    Raw.tartan_file_find(file, Raw.TARTAN_KIND_MATRIX, name) >= 0 && Raw.tartan_file_has_gates(file, name) == 1 || return nothing
    return file[name].layout == layout ? gates_of(file, name, nblocks(layout)) : nothing
end
function kept_metadata(file, name, kind)
    Raw.tartan_file_find(file, kind, name) >= 0 || return nothing
    text = Raw.tartan_file_get_metadata(file, kind, name)
    return isempty(text) ? nothing : text
end

function Base.delete!(file::BlockFile, name::AbstractString)
    kind = expect_kind(file, name)
    Raw.tartan_file_remove(file, kind, name)
    kind == Raw.TARTAN_KIND_LAYOUT || delete!(kept(file), name)
    return file
end

"""
    gates(file, name)

The gates stored with a matrix, or `nothing`.
"""
function gates(file::BlockFile, name::AbstractString)
    expect_kind(file, name)
    Raw.tartan_file_has_gates(file, name) == 1 || return nothing
    return gates_of(file, name, nblocks(file[name]))
end
function gates_of(file, name, n)
    Raw.tartan_file_has_gates(file, name) == 1 || return nothing
    x = Vector{Float64}(undef, n)
    Raw.tartan_file_get_gates(file, name, x)
    return x
end

"`metadata(file, name)`: the JSON text stored with a matrix or layout, \"\" if there is none."
metadata(file::BlockFile, name::AbstractString) =
    Raw.tartan_file_get_metadata(file, expect_kind(file, name), name)

"""
    save(path, file::BlockFile; compress = false)
    save(path, objects::AbstractDict; compress = false)
    save(path, name => object, ...; compress = false, append = false)

Write a file atomically: a reader sees the complete old or new file. With `append = true` the objects are added to the file and
replace objects with the same names; others are not rewritten. A process that is killed leaves the old file or the new one.

    A = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (64, 64), 16)); seed = 1)
    save("weights.h5", "pattern" => A.layout, "first layer" => A)
"""
save(path::AbstractString, file::BlockFile; compress::Bool = false, append::Bool = false) =
    (append ? Raw.tartan_file_append : Raw.tartan_file_save)(file, path, compress ? Raw.TARTAN_KEEP_COMPRESSED : Raw.TARTAN_KEEP_PLAIN)

function save(path::AbstractString, objects::Pair...; compress::Bool = false, append::Bool = false)
    allunique(map(first, objects)) ||
        throw(TartanError(:argument, "a name is given to two objects, expected each name once"))
    file = BlockFile()
    try
        foreach(((name, object),) -> store!(file, name, object), objects)
        save(path, file; compress = compress, append = append)
    finally
        close(file)
    end
    return nothing
end

save(path::AbstractString, object; options...) =
    throw(ArgumentError("save(path, x) has no name for x, a $(typeof(object)): expected save(path, \"name\" => x)"))
save(path::AbstractString, objects::AbstractDict; options...) = save(path, objects...; options...)

"""
    load(path)
    load(path, name)

Without a name, a [`BlockFile`](@ref) with the whole file in memory, gates and metadata included; with a name,
that matrix or layout.

    save("weights.h5", "first layer" => BlockSparseMatrix(ones(4, 4), 2))
    all = load("weights.h5")
    all["first layer"] * ones(4)
    save("copy.h5", all)
"""
function load(path::AbstractString)
    source, result = BlockFile(path), BlockFile()
    text(kind, name) = (found = Raw.tartan_file_get_metadata(source, kind, name); isempty(found) ? nothing : found)
    try
        Raw.tartan_file_list(source)
        for i in 0:Raw.tartan_file_count(source) - 1
            name, kind = Raw.tartan_file_name(source, i), Raw.tartan_file_kind(source, i)
            if kind == Raw.TARTAN_KIND_LAYOUT
                store!(result, name, BlockLayout(Raw.tartan_file_get_layout(source, name)); metadata = text(kind, name))
            elseif kind == Raw.TARTAN_KIND_ARRAY
                store!(result, name, get_array(source, name); metadata = text(kind, name))
            else
                A = adopt(Raw.tartan_file_get_matrix(source, name))
                store!(result, name, A; gates = gates_of(source, name, nblocks(A)), metadata = text(kind, name))
            end
        end
    finally
        close(source)
    end
    return result
end
function load(path::AbstractString, name::AbstractString)
    file = BlockFile(path)
    try
        return file[name]
    finally
        close(file)
    end
end

"""
    Tartan.verify(path)

Read a whole file and check it against its checksums and seal. Return a report, or throw if the file is damaged. HDF5 can crash
or hang on a damaged file without a seal, so such a file is read in a separate process, and a crash counts as damage. Verify
files that you do not trust before you load them.
"""
verify(path::AbstractString) = starts_with_seal(path) ? Raw.tartan_file_verify(path) : verify_in_child(path)

# Whether the library verifies all bytes before HDF5 sees any. What cannot be read is left to it, too.
const SEAL = UInt8[0x89, b"TARTAN\r\n\x1a\nseal\0"...]
function starts_with_seal(path)
    try
        return !isfile(path) || open(io -> read(io, length(SEAL)), path) == SEAL
    catch
        return true
    end
end

# The process needs the library alone. Its arguments are the library, the path and the seconds of CPU time that it may take; it
# answers with the status and the text.
const VERIFYING = """
using Libdl
const library = dlopen(ARGS[1])
f(name) = dlsym(library, name)
seconds = parse(UInt64, ARGS[3])
Sys.islinux() && (ccall(:setrlimit, Cint, (Cint, Ptr{UInt64}), 0, [seconds, seconds + 1]); ccall(:setrlimit, Cint, (Cint, Ptr{UInt64}), 4, UInt64[0, 0]))
text = Ref{Ptr{UInt8}}(C_NULL)
status = ccall(f(:tartan_file_verify), Int32, (Cstring, Ptr{Ptr{UInt8}}), ARGS[2], text)
print(status, " ", unsafe_string(status == 0 ? text[] : ccall(f(:tartan_last_error), Ptr{UInt8}, ())))
"""
const LEAST_SECONDS = 60 # one more for each MiB

function verify_in_child(path, least = LEAST_SECONDS, program = VERIFYING)
    answer, seconds = IOBuffer(), least + filesize(path) >> 20
    command = `$(Base.julia_cmd()) --startup-file=no --history-file=no -e $program $(dlpath(library_path())) $path $seconds`
    child = run(pipeline(ignorestatus(command); stdin = devnull, stdout = answer, stderr = devnull))
    child.termsignal in (9, 24) && throw(TartanError(:format, "$path: damaged: HDF5 was still reading it after $seconds s")) # KILL, XCPU
    child.termsignal == 0 || throw(TartanError(:format, "$path: damaged: HDF5 crashed while reading it (signal $(child.termsignal))"))
    code, text = split(String(take!(answer)) * " ", ' '; limit = 2)
    child.exitcode == 0 && !isempty(code) || throw(TartanError(:internal, "the process that verifies $path failed with exit code $(child.exitcode)"))
    code == "0" || throw(failure(parse(Int, code), chop(text)))
    return String(chop(text))
end

"`Tartan.issealed(file)`: whether the file has a valid seal, as every file written by Tartan does."
issealed(file::BlockFile) = Raw.tartan_file_sealed(file) == 1

Base.show(io::IO, ::MIME"text/plain", file::BlockFile) = show(io, file)
Base.show(io::IO, file::BlockFile) = isopen(file) ?
    print(io, "BlockFile with ", length(matrices(file)), " matrices and ", length(layouts(file)), " layouts") :
    print(io, "BlockFile (closed)")
