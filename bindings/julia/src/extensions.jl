# SPDX-License-Identifier: Apache-2.0
# Julia 1.9 and newer load what ext/ has for other packages by themselves (see Project.toml). Older versions call
# `load_extension` for each package that is loaded.

const EXTENSIONS = (
    (Base.PkgId(Base.UUID("d360d2e6-b24c-11e9-a2a3-2a2ae2dbcce4"), "ChainRulesCore"), :TartanChainRulesCoreExt, "chain_rules.jl"),
    (Base.PkgId(Base.UUID("052768ef-5323-5732-b1bb-66c8b64840ba"), "CUDA"), :TartanCUDAExt, "cuda.jl"),
    (Base.PkgId(Base.UUID("fbb218c0-5317-5bc6-957e-2ee96dd4b1f0"), "BSON"), :TartanBSONExt, "bson.jl"),
    (Base.PkgId(Base.UUID("033835bb-8acc-5ee8-8aae-3f567f8a3819"), "JLD2"), :TartanJLD2Ext, "jld2.jl"),
    (Base.PkgId(Base.UUID("42fd0dbc-a981-5370-80f2-aaf504508153"), "IterativeSolvers"), :TartanIterativeSolversExt, "iterative_solvers.jl"),
)
const has_extensions = isdefined(Base, :get_extension)

function load_extension(package::Base.PkgId)
    for (id, name, file) in EXTENSIONS
        id == package && !isdefined(Tartan, name) || continue
        place = Core.eval(Tartan, :(module $name end))
        Core.eval(place, :(const Tartan = $Tartan))
        Core.eval(place, :(const $(Symbol(package.name)) = $(Base.root_module(package))))
        Base.include(place, joinpath(dirname(@__DIR__), "ext", file))
    end
    return nothing
end

function watch_packages()
    for (id, _, _) in EXTENSIONS
        haskey(Base.loaded_modules, id) && load_extension(id)
    end
    push!(Base.package_callbacks, load_extension)
    return nothing
end
