# SPDX-License-Identifier: Apache-2.0

"""
    TartanError(status, message)

A call that the C library or this package refused. `status` is one of `:argument`, `:handle`, `:shape`,
`:dtype`, `:layout`, `:unsupported`, `:memory`, `:overflow`, `:device`, `:file`, `:format`, `:version`,
`:not_found`, `:internal` and, when the package is loaded, `:library`. The message names the argument, its
value and what was expected.

    try
        load("weights.h5") # which is not there
    catch error
        error isa TartanError && error.status == :file || rethrow()
    end

If Julia has a suitable exception, that is thrown instead: `DimensionMismatch` or `BoundsError` (`mul!`, `*`, indexing),
`ArgumentError` (element types).
"""
struct TartanError <: Exception
    status::Symbol
    message::String
end

# The exception for a status code of C. "ERR_NOT_FOUND" becomes :not_found.
function failure(code::Integer, message)
    code == Raw.TARTAN_ERR_INTERRUPTED && return InterruptException()
    code == Raw.TARTAN_ERR_DTYPE && is_of_operation(message) && return ArgumentError(in_julia(message))
    name = Raw.tartan_status_name(code)
    return TartanError(Symbol(lowercase(replace(name, r"^ERR_" => ""))), in_julia(message))
end

Base.showerror(io::IO, error::TartanError) = print(io, "TartanError (", error.status, "): ", error.message)

# A whole number as an Int64; the C library checks its range.
function whole(x::Real, name)
    (isinteger(x) && typemin(Int64) <= x <= typemax(Int64)) ||
        throw(TartanError(:argument, "$name is $x, expected a whole number$(isinteger(x) ? " of 64 bits" : "")"))
    return Int64(x)
end

true_or_false(x::Bool, name) = x
true_or_false(x, name) = throw(ArgumentError("$name is $(repr(x)), expected true or false"))

# A real factor as a Float64.
real_factor(x::Real, name) = Float64(x)
real_factor(x, name) = throw(ArgumentError("$name is $x, expected a real number"))

# The enum code for a word.
function code_of(codes::NamedTuple, word, name)
    haskey(codes, Symbol(word)) ||
        throw(TartanError(:argument, "$name is $(repr(word)), expected one of $(join(map(repr, keys(codes)), ", "))"))
    return Int32(codes[Symbol(word)])
end
