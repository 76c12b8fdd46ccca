# SPDX-License-Identifier: Apache-2.0
# What the rules need of ChainRulesCore, with its names and its methods that could be ambiguous with those of the rules.
module ChainRulesCore

abstract type AbstractZero end
struct NoTangent <: AbstractZero end

abstract type AbstractThunk end
struct Thunk{F} <: AbstractThunk
    f::F
end
macro thunk(body)
    return :(Thunk(() -> $(esc(body))))
end
unthunk(x) = x
unthunk(x::Thunk) = x.f()

struct Tangent{P, T}
    backing::T
end
Tangent{P}(; fields...) where {P} = Tangent{P, typeof(values(fields))}(values(fields))
Tangent{P}(first, rest...) where {P} = Tangent{P, typeof((first, rest...))}((first, rest...))
Base.getindex(x::Tangent, i::Int) = getfield(x, :backing)[i]
Base.getproperty(x::Tangent, name::Symbol) = get(getfield(x, :backing), name, NoTangent())

struct ProjectTo{P, D <: NamedTuple}
    info::D
end
ProjectTo{P}(; info...) where {P} = ProjectTo{P, typeof(values(info))}(values(info))
Base.getproperty(p::ProjectTo, name::Symbol) = getproperty(getfield(p, :info), name)
(p::ProjectTo{T})(dx::AbstractZero) where {T} = dx
(p::ProjectTo{T})(dx::Tangent{<:T}) where {T} = dx
ProjectTo(x::AbstractArray) = ProjectTo{AbstractArray}(; axes = axes(x))
function (p::ProjectTo{AbstractArray})(dx::AbstractArray)
    axes(dx) == p.axes || throw(DimensionMismatch("a gradient has axes $(axes(dx)), expected $(p.axes)"))
    return dx
end

rrule(f, arguments...; options...) = nothing
rrule(::typeof(*), A::AbstractVecOrMat{<:Union{Real, Complex}}, B::AbstractVecOrMat{<:Union{Real, Complex}}) = error("the dense rule")
rrule(::typeof(*), A::AbstractVector{<:Union{Real, Complex}}, B::AbstractMatrix{<:Union{Real, Complex}}) = error("the dense rule")

export NoTangent, ProjectTo, Tangent, rrule, unthunk, @thunk

end
