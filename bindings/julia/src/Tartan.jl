# SPDX-License-Identifier: Apache-2.0
"""
Block-sparse matrices: matrices whose non-zeros come in small dense blocks.

    using Tartan
    layout = pattern(:barabasi_albert, (160, 160), (16, 16); m = 5, seed = 1)   # which blocks exist
    A = BlockSparseMatrix{Float32}(layout)                                      # a layout and its values
    fill_normal!(A; seed = 2)
    y = A * ones(Float32, 160)
    save("weights.h5", "first layer" => A)

Rows, columns, blocks, heads and block ids count from 1. The package loads the library named by the
environment variable `TARTAN_LIBRARY`, else by the preference `library_path`, else the artifact "tartan" of the package,
else the one that the system's loader finds.
"""
module Tartan

using Libdl
using LinearAlgebra
using LinearAlgebra: AbstractTriangular, RealHermSymComplexHerm, RealHermSymComplexSym
using Random
using Serialization
using SparseArrays
using Statistics

isfile(joinpath(@__DIR__, "raw.jl")) ||
    error("this folder has no raw.jl, which the build generates: `./run julia-package` makes the package for Pkg in build/julia-package/Tartan")

include("texts.jl")
include("errors.jl")
include("raw.jl")
include("handles.jl")
include("bfloat16.jl")
include("float8.jl")
include("arrays.jl")
include("indices.jl")
include("context.jl")
include("layout.jl")
include("boundaries.jl")
include("layout_edit.jl")
include("matrix.jl")
include("sparselike.jl")
include("matrix_convert.jl")
include("device.jl")
include("matrix_edit.jl")
include("device_layout.jl")
include("products.jl")
include("arithmetic.jl")
include("broadcast.jl")
include("reduce.jl")
include("structure.jl")
include("order.jl")
include("writing.jl")
include("targets.jl")
include("wrapped.jl")
include("through_sparse.jl")
include("device_arithmetic.jl")
include("attention.jl")
include("sequences.jl")
include("windows.jl")
include("conv.jl")
include("residual.jl")
include("operations.jl")
include("gradient.jl")
include("gradient_arithmetic.jl")
include("gradient_broadcast.jl")
include("gradient_functions.jl")
include("operations_generated.jl")
include("assembly.jl")
include("gradient_images.jl")
include("explain.jl")
include("files.jl")
include("sparsifier.jl")
include("minimise.jl")
include("serialization.jl")
include("show.jl")
include("extensions.jl")

export TartanError, Context
export BlockLayout, pattern, patterns, pattern_help, largest_blocks, chosen_blocks
export blocksize, gridsize, heads, nblocks, density, coordinates, block_mask, findblock, number_blocks, layout_identity,
       recipe, row_lengths, row_spread, bandwidth, reach, partition, svg
export permute_blocks, slice, prune, keep_largest, evolve, grow, move_blocks, reblock, rcm_order, reorder_blocks
export with_boundaries, boundaries, isvariable, block_view
export Assembly, add!
export BlockSparseMatrix, block_norms, project, rearrange, scatter!, fill_zero!, fill_identity!, fill_orthogonal!, fill_normal!
export spmm, spmm!, sddmm!, growth_score!, checksum
export BlockMask, kept, attention, attention!, attention_gradient, attention_gradient!, attention_bias_gradient, packed, packed_layout, packed_mask,
       padded_layout, padded_mask, cut, take_heads
export BlockConv, conv, conv!, conv_input_gradient, conv_input_gradient!, conv_filter_gradient, conv_filter_gradient!
export residual_unit, residual_unit!
export conv_filter, dense_filter, filter_list, conv_size, edge_classes
export Windows, windows_text, windows_for_conv, active_windows, window_gather, window_gather!, window_scatter, window_scatter!
export to_device, to_host, DeviceArray, DeviceBlockSparseMatrix, explain, update!, isdynamic
export BlockFile, store!, layouts, matrices, gates, metadata, save, load
export value_and_gradient, untracked, minimise
export Sparsifier, step!, observe!, add_growth!, needs_growth, learning_rates
export diag_inverse, selected_inverse
export nnz, nonzeros, findnz, sparse, mul!, dropzeros, blockdiag

# The path of the library, looked up when the package is loaded, not when it is precompiled.
function library_path()
    path = get(ENV, "TARTAN_LIBRARY", "")
    isempty(path) || return path
    uuid = Base.PkgId(Tartan).uuid
    if isdefined(Base, :get_preferences) && uuid !== nothing
        path = get(Base.get_preferences(uuid), "library_path", "")
        isempty(path) || return path
    end
    name = Sys.isapple() ? "libtartan.0.dylib" : "libtartan.so.0"
    toml = joinpath(dirname(@__DIR__), "Artifacts.toml")
    return isfile(toml) ? something(artifact_library(toml, name), name) : name
end

# The library of the artifact, if that is installed. Before Julia 1.6 Pkg had the functions.
@noinline function artifact_library(toml, name)
    Artifacts = VERSION < v"1.6" ?
        Base.require(Base.PkgId(Base.UUID("44cfe95a-1eb2-52ea-b672-e2afdf69b78f"), "Pkg")).Artifacts :
        Base.require(Base.PkgId(Base.UUID("56f22d72-fd6d-98f1-02f0-08ddc0907c33"), "Artifacts"))
    hash = Base.invokelatest(Artifacts.artifact_hash, "tartan", toml)
    (hash === nothing || !Base.invokelatest(Artifacts.artifact_exists, hash)) && return nothing
    return joinpath(Base.invokelatest(Artifacts.artifact_path, hash), "lib", name)
end

function __init__()
    path = library_path()
    library = try
        dlopen(path)
    catch error
        throw(TartanError(:library, "cannot load '$path' ($(sprint(showerror, error))): set TARTAN_LIBRARY to the path " *
                                    "of libtartan.so.0"))
    end
    find(name) = (address = dlsym_e(library, name)) != C_NULL ? address : throw(TartanError(:library,
        "'$path' has no function $name: it is not the library of this package; set TARTAN_LIBRARY to the path of libtartan.so.0"))
    abi = ccall(find(:tartan_abi_version), Int32, ())
    abi == Raw.TARTAN_ABI_VERSION ||
        throw(TartanError(:library, "'$path' has ABI version $abi, expected $(Raw.TARTAN_ABI_VERSION)"))
    Raw.bind_all(find)
    PROCESS[] = rand(RandomDevice(), UInt)
    make_spares(isdefined(Threads, :maxthreadid) ? Threads.maxthreadid() : Threads.nthreads())
    has_extensions || watch_packages()
    return nothing
end

"""
    Tartan.version()

The version of the C library in use.
"""
version() = VersionNumber(Raw.tartan_version())

"""
    Tartan.info()

Features of the library and this machine, as JSON: CPU, kernels, backends, and why a backend is missing.
"""
info() = Raw.tartan_info()

end # module
