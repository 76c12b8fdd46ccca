# SPDX-License-Identifier: Apache-2.0
# Julia counts from 1. C counts from 0, also in the texts of its errors, so indices are checked here.

# Indices from `least` (1, or 0 if that means none) to n, counted from 0 for C.
function from_zero(x, name, n, least = 1)
    result = Vector{Int64}(undef, length(x))
    for (k, i) in enumerate(x)
        isinteger(i) || bad_index(:argument, name, k, i, "a whole number")
        least <= i <= n || bad_index(:layout, name, k, i, "$least to $n")
        result[k] = Int64(i) - 1
    end
    return result
end
from_zero(::Nothing, name, n) = nothing

@noinline bad_index(status, name, k, i, expected) = throw(TartanError(status, "$name[$k] is $i, expected $expected"))

from_one!(x::Vector{Int64}) = (x .+= 1; x)

# Indices from 0, or -1 for none; none may occur twice.
function expect_once(x::Vector{Int64}, name, n)
    seen = falses(n)
    for (k, i) in enumerate(x)
        i >= 0 || continue
        seen[i + 1] && bad_index(:layout, name, k, "$(i + 1) again", "each block once")
        seen[i + 1] = true
    end
    return x
end

# The new order of n blocks on a side; the last must stay last if it is ragged.
function order_from_zero(x, name, n, ragged)
    length(x) == n || throw(TartanError(:shape, "$name has length $(length(x)), expected $n (blocks on this side)"))
    order = expect_once(from_zero(x, name, n), name, n)
    ragged && order[n] != n - 1 && throw(TartanError(:argument,
        "$name moves block $n, which is ragged, to $(findfirst(==(n - 1), order)), expected it to stay last"))
    return order
end
order_from_zero(::Nothing, name, n, ragged) = nothing

function range_from_zero(x, name, n)
    isempty(x) || (first(x) >= 1 && last(x) <= n) ||
        throw(TartanError(:argument, "$name is $x, expected a range within 1:$n"))
    return first(x) - 1, last(x)
end

# Calls `make`, which uses blocks at these positions, and reports repeated ones. `heads` is nothing if all
# heads have them.
function at_positions(make, heads, rows, cols)
    try
        return make()
    catch error
        error isa TartanError && error.status === :layout || rethrow()
    end
    seen = Set{NTuple{3, Int}}()
    for (k, (i, j)) in enumerate(zip(rows, cols))
        position = (heads === nothing ? 1 : heads[k], i, j)
        position in seen && throw(TartanError(:layout, string("the block at block row ", i, ", block column ", j,
            heads === nothing ? "" : " of head $(position[1])", " appears twice, expected once")))
        push!(seen, position)
    end
    return make()
end
