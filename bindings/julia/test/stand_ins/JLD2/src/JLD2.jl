# SPDX-License-Identifier: Apache-2.0
# How JLD2 asks for another type to store, and converts to it and back.
module JLD2

writeas(T::Type) = T
writeas(::Type{Ptr{T}}) where {T} = Nothing
wconvert(T, x) = convert(T, x)
rconvert(T, x) = convert(T, x)

roundtrip(x) = (T = writeas(typeof(x)); T === typeof(x) ? fields_of(x) : rconvert(typeof(x), read_again(wconvert(T, x))))
# What a file gives back has arrays of its own.
read_again(x::T) where {T} = T((again(getfield(x, i)) for i in 1:fieldcount(T))...)
again(x) = x isa Array ? copy(x) : x isa Tuple ? map(again, x) : x
fields_of(x) = (foreach(i -> writeas(fieldtype(typeof(x), i)), 1:fieldcount(typeof(x))); x)

end
