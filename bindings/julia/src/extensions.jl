# SPDX-License-Identifier: Apache-2.0
# Julia 1.9 and newer load what ext/ has for other packages by themselves (see Project.toml). Older versions call
# `load_extension` for each package that is loaded.

const EXTENSIONS = (
    (Base.PkgId(Base.UUID("d360d2e6-b24c-11e9-a2a3-2a2ae2dbcce4"), "ChainRulesCore"), :TartanChainRulesCoreExt, "chain_rules.jl"),
    (Base.PkgId(Base.UUID("052768ef-5323-5732-b1bb-66c8b64840ba"), "CUDA"), :TartanCUDAExt, "cuda.jl"),
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
