# SPDX-License-Identifier: Apache-2.0
# Files of JLD2 hold a Tartan.StoredData in place of an object with addresses. Runs in a module that has JLD2 and Tartan.

for X in Base.uniontypes(Tartan.Storable)
    @eval JLD2.writeas(::Type{X}) where {X<:$X} = Tartan.StoredData{X}
end
JLD2.writeas(::Type{<:Tartan.Handle{S}}) where {S} = throw(Tartan.cannot_be_stored(S))
