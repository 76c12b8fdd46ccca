# SPDX-License-Identifier: Apache-2.0
# Files of BSON.jl hold the data of an object in place of its fields, some of which are addresses. Runs in a module that has BSON and
# Tartan.

BSON.structdata(x::Tartan.Storable) = Any[Tartan.stored_form(x)...]
BSON.structdata(::Tartan.Handle{S}) where {S} = throw(Tartan.cannot_be_stored(S))

for X in Base.uniontypes(Tartan.Storable)
    @eval BSON.newstruct(::Type{X}, data...) where {X<:$X} = Tartan.restored(X, data)
end
