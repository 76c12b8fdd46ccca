# SPDX-License-Identifier: Apache-2.0

"""
    BlockFile()
    BlockFile(path)

A collection of named layouts and matrices: empty, or read from an HDF5 file. The file is verified first, objects
are read when they are asked for.

    file = BlockFile()
    file["encoder"] = A                     # a matrix; layouts are stored once for all matrices that share them
    store!(file, "decoder", B; gates = g, metadata = "{\\"epoch\\": 3}")
    save("weights.h5", file)

    file = BlockFile("weights.h5")
    keys(file)                              # names
    file["encoder"] * x
    file["decoder"].layout == B.layout

`file[name]` is the matrix of that name, else the layout. A BlockFile is for one task at a time. `close(file)` gives
memory back early; what was read from the file lives on.
"""
struct BlockFile
    handle::Handle{Raw.tartan_file}
    kept::Dict{String, BlockSparseMatrix} # C reads their values when the file is saved
    BlockFile(address::Ptr{Raw.tartan_file}) = new(Handle(address), Dict{String, BlockSparseMatrix}())
end
BlockFile() = BlockFile(Raw.tartan_file_create())
BlockFile(path::AbstractString) = BlockFile(Raw.tartan_file_open(path))

Base.cconvert(::Type{Ptr{Raw.tartan_file}}, file::BlockFile) = file.handle
Base.close(file::BlockFile) = (close(file.handle); empty!(file.kept); nothing)
Base.isopen(file::BlockFile) = isopen(file.handle)

const KINDS = (layout = Raw.TARTAN_KIND_LAYOUT, matrix = Raw.TARTAN_KIND_MATRIX)

names_of(file, kind) = String[Raw.tartan_file_name(file, i) for i in 0:Raw.tartan_file_count(file) - 1
                              if Raw.tartan_file_kind(file, i) == kind]

"`layouts(file)`: the names of the layouts of a [`BlockFile`](@ref)."
layouts(file::BlockFile) = names_of(file, Raw.TARTAN_KIND_LAYOUT)

"`matrices(file)`: the names of the matrices of a [`BlockFile`](@ref)."
matrices(file::BlockFile) = names_of(file, Raw.TARTAN_KIND_MATRIX)

"""
    matrices(file, layout)

The names of the matrices that have this layout.
"""
function matrices(file::BlockFile, layout::BlockLayout)
    same = layout_identity(layout)
    return String[Raw.tartan_file_name(file, i) for i in 0:Raw.tartan_file_count(file) - 1
                  if Raw.tartan_file_kind(file, i) == Raw.TARTAN_KIND_MATRIX &&
                     Raw.tartan_file_layout_identity(file, i) == same]
end

Base.keys(file::BlockFile) = union(layouts(file), matrices(file))
Base.length(file::BlockFile) = length(keys(file))
Base.haskey(file::BlockFile, name::AbstractString) = name in keys(file)

function Base.getindex(file::BlockFile, name::AbstractString)
    name in matrices(file) && return adopt(Raw.tartan_file_get_matrix(file, name))
    return BlockLayout(Raw.tartan_file_get_layout(file, name))
end

Base.setindex!(file::BlockFile, object, name::AbstractString) = (store!(file, name, object); object)

"""
    store!(file, name, object; gates = nothing, metadata = nothing)

Puts a layout or matrix under a name, with gates (one for each block of a matrix) and text in JSON of your own.
"""
function store!(file::BlockFile, name::AbstractString, A::BlockSparseMatrix; gates = nothing, metadata = nothing)
    g = gate_input(gates)
    GC.@preserve g Raw.tartan_file_put_matrix(file, name, A, described(g), metadata)
    file.kept[name] = A
    return file
end
function store!(file::BlockFile, name::AbstractString, layout::BlockLayout; metadata = nothing)
    Raw.tartan_file_put_layout(file, name, layout, metadata)
    return file
end

kind_of(file, name) = name in matrices(file) ? Raw.TARTAN_KIND_MATRIX : Raw.TARTAN_KIND_LAYOUT

function Base.delete!(file::BlockFile, name::AbstractString)
    Raw.tartan_file_remove(file, kind_of(file, name), name)
    delete!(file.kept, name)
    return file
end

"""
    gates(file, name)

The gates stored with a matrix, or `nothing`.
"""
function gates(file::BlockFile, name::AbstractString)
    Raw.tartan_file_has_gates(file, name) == 1 || return nothing
    x = Vector{Float64}(undef, nblocks(file[name]))
    Raw.tartan_file_get_gates(file, name, x)
    return x
end

"`metadata(file, name)`: the JSON stored with a matrix or layout, \"\" where there is none."
metadata(file::BlockFile, name::AbstractString) = Raw.tartan_file_get_metadata(file, kind_of(file, name), name)

"""
    save(path, file::BlockFile; compress = false)
    save(path, name => object, ...; compress = false)

Writes a file whole: a reader sees the old one or the new one, never a mix.

    save("weights.h5", "pattern" => A.layout, "first layer" => A)
"""
save(path::AbstractString, file::BlockFile; compress::Bool = false) =
    Raw.tartan_file_save(file, path, compress ? Raw.TARTAN_KEEP_COMPRESSED : Raw.TARTAN_KEEP_PLAIN)

function save(path::AbstractString, objects::Pair{<:AbstractString}...; compress::Bool = false)
    allunique(map(first, objects)) ||
        throw(TartanError(:argument, "a name is given to two objects, expected each name once"))
    file = BlockFile()
    try
        foreach(((name, object),) -> store!(file, name, object), objects)
        save(path, file; compress = compress)
    finally
        close(file)
    end
    return nothing
end

"""
    load(path)
    load(path, name)

All matrices and layouts of a file, as a `Dict`, or the one of a name.
"""
function load(path::AbstractString)
    file = BlockFile(path)
    try
        return Dict{String, Any}(name => file[name] for name in keys(file))
    finally
        close(file)
    end
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

Reads all of a file and checks it against its checksums and seal. Returns a report; throws where the file is damaged.
"""
verify(path::AbstractString) = Raw.tartan_file_verify(path)

"`Tartan.issealed(file)`: whether the file carried a valid seal, as every file does that Tartan wrote."
issealed(file::BlockFile) = Raw.tartan_file_sealed(file) == 1

Base.show(io::IO, file::BlockFile) = isopen(file) ?
    print(io, "BlockFile with ", length(matrices(file)), " matrices and ", length(layouts(file)), " layouts") :
    print(io, "BlockFile (closed)")
