# SPDX-License-Identifier: Apache-2.0
# How BSON.jl stores objects: the fields of a struct, one by one, of which it makes another one without a constructor.
module BSON

structdata(x) = Any[getfield(x, name) for name in fieldnames(typeof(x))]
newstruct(T, data...) = made(T, Any[convert(fieldtype(T, i), x) for (i, x) in enumerate(data)])
made(T, data) = ismutable_type(T) ? filled(ccall(:jl_new_struct_uninit, Any, (Any,), T), data) :
    ccall(:jl_new_structv, Any, (Any, Ptr{Cvoid}, UInt32), T, data, length(data))
function filled(x, data)
    for (i, y) in enumerate(data)
        ccall(:jl_set_nth_field, Nothing, (Any, Csize_t, Any), x, i - 1, y)
    end
    return x
end
ismutable_type(T) = VERSION < v"1.7" ? T.mutable : ismutabletype(T)

is_leaf(x) = x isa Union{Number, AbstractString, Symbol, Type, Ptr, Nothing}
lower(x) = is_leaf(x) ? x : x isa Array ? (size(x), eltype(x), Any[lower(y) for y in vec(x)]) :
    x isa Union{Tuple, NamedTuple} ? map(lower, x) : typeof(x) => Any[lower(y) for y in structdata(x)]
raise(x) = is_leaf(x) ? x : map(raise, x)
raise(x::Tuple{Tuple, Type, Vector{Any}}) = reshape(Array{x[2]}(map(raise, x[3])), x[1])
raise(x::Pair{<:Type, Vector{Any}}) = newstruct(x[1], map(raise, x[2])...)
roundtrip(x) = raise(lower(x))

end
