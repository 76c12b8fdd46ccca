# SPDX-License-Identifier: Apache-2.0
# Operands and calls of any operation, by its description.

using Tartan: OPERATIONS, Operation

place_of(op) = op.place === :Tartan ? Tartan : getfield(Tartan, op.place)
plain(op) = getfield(place_of(op), op.name)
writing(op) = getfield(place_of(op), Symbol(op.name, "!"))
has_plain(op) = all(a.use !== :update for a in op.arguments)
operation_named(name) = OPERATIONS[findfirst(op -> op.name === name, OPERATIONS)]
needed(op) = [a for a in op.arguments if a.use !== :out && !a.optional]
optional(op) = [a for a in op.arguments if a.use !== :out && a.optional]
outputs(op) = [a for a in op.arguments if a.use === :out]
asked_for(op) = [a.name for a in outputs(op) if a.optional]
is_gradient(op) = any(other -> other.gradient === op.name, OPERATIONS)
# Also of an operation whose function is written by hand.
gives_tuple(op) = endswith(string(op.name), "_gradient") && length(outputs(op)) > 1

# ---- Operands ----

# A length for each name in a shape.
length_of!(lengths, name, made) = get!(lengths, name) do
    name == "k" && haskey(made, :conv) ? made[:conv].out_channels : name == "n" ? 9 : name == "lines" ? 20 : name == "ids" ? 2 : endswith(name, "...") ? (5, 3) : 4 + length(lengths)
end
function size_of(op, shape, made, lengths)
    startswith(shape, "=") && return size(made[Symbol(shape[2:end])])
    occursin('&', shape) && return (5, 3)
    occursin(r"lines.*segments", shape) && (lengths["segments"] = 1) # of lines, as the option has it
    items = filter(!isempty, split(chop(first(split(shape, " or ")); head = 1), r",\s*"))
    order = first(items) == "batch..." ? [2, 3, 1] : reverse(eachindex(items)) # matrices keep their rows and columns
    return Tuple(Iterators.flatten(map(item -> length_in(item, made, lengths), items[order])))
end
function length_in(item, made, lengths)
    all(isdigit, item) && return parse(Int, item)
    occursin(r"^\w+\.\w+$", item) || return length_of!(lengths, item, made)
    matrix, part = split(item, '.')
    A = made[Symbol(matrix)]
    return (blocks = nblocks(A), heads = heads(A), rows = size(A, 1), cols = size(A, 2))[Symbol(part)]
end

# Sizes of parameters that can't be any; and of lists that are not those of parameters: means of the rows and columns of matrices.
const OF_ONE_KIND = Dict(:muon => ((5, 3), (4, 2)), :add_n => ((5, 3), (5, 3)))
const LISTS = Dict((:adafactor, :row_squares) => ((3,), (4,)), (:adafactor, :col_squares) => ((5,), (0,)))

function operand(op, a, T, make, made, lengths)
    S = a.dtype in (:S, :R) ? Tartan.gate_type(T) : T
    a.dtype === :I && startswith(string(op.name), "scatter_rows") && return [2, 1] # no row twice
    a.name === :order && return [2, 1] # no item twice
    a.name === :ends && return min.(1:only(size_of(op, a.shape, made, lengths)), 2) # of both
    a.dtype === :I && return rand(1:2, size_of(op, a.shape, made, lengths)...) # what every array has
    of = Symbol(replace(string(a.name), r"_grad$" => "")) # the result that it is the gradient of
    a.kind === :array && of !== a.name && haskey(made, of) && made[of] isa Array && return make(S, size(made[of])...)
    a.dtype === :U8 && return rand(size_of(op, a.shape, made, lengths)...) .< 0.7
    a.kind === :array && return make(S, size_of(op, a.shape, made, lengths)...)
    a.kind === :arrays && return [make(S, n...) for n in get(LISTS, (op.name, a.name), get(OF_ONE_KIND, op.name, ((5, 3), (4,))))]
    a.kind === :layout && return random_layout(20, 20, (4, 4), 0.6)
    a.kind === :conv && return BlockConv(random_layout(8, 12, (4, 4), 0.6); kernel = (3, 2))
    a.kind === :matrix || return nothing
    on = startswith(a.shape, "on ") ? get(made, Symbol(a.shape[4:end]), nothing) : nothing
    layout = on === nothing ? random_layout(20, 20, (4, 4), 0.6) : on isa BlockLayout ? on : on.layout
    A = BlockSparseMatrix{S}(layout)
    nonzeros(A) .= make(S, size(nonzeros(A))...)
    return A
end

# Inputs by name; those of a gradient are what its operation took and gave. What is optional is there, too, if `all_of_it`.
function operands(op, T; make = apart_from_zero, all_of_it = true)
    made, lengths = Dict{Symbol, Any}(), Dict{String, Any}()
    add(op) = for a in op.arguments
        a.use === :out || haskey(made, a.name) || a.optional && !all_of_it && a.kind === :array || a.optional && a.kind !== :array ||
            (made[a.name] = operand(op, a, T, make, made, lengths))
    end
    if is_gradient(op)
        source = OPERATIONS[findfirst(other -> other.gradient === op.name, OPERATIONS)]
        add(source)
        merge!(made, results(source, made))
    end
    add(op)
    return made
end
apart_from_zero(T, n...) = T.((0.5 .+ rand(n...)) .* rand((-1, 1), n...))
positive(T, n...) = T.(0.5 .+ rand(n...))
# Numbers for which the operation has a value.
function fitting(op)
    source = is_gradient(op) ? OPERATIONS[findfirst(other -> other.gradient === op.name, OPERATIONS)] : op
    has_plain(source) || return apart_from_zero
    fails() = (y = results(source, operands(source, Float64))[first_output(source)]; y isa Array && any(isnan, y))
    return any(_ -> fails(), 1:12) ? positive : apart_from_zero # few numbers may happen to be positive
end

positional(op, made) = Any[made[a.name] for a in needed(op)]
keywords(op, made) = (; (a.name => made[a.name] for a in optional(op) if haskey(made, a.name))...)

# Calls with keywords in a Dict, and results in one: a named tuple would have a type of its own in each case, and all would be compiled for it.
call(@nospecialize(f), arguments, options) = f(arguments...; options...)
given(op, made, more) = merge(Dict{Symbol, Any}(a.name => made[a.name] for a in optional(op) if haskey(made, a.name)), more)

# All results by name.
function results(op, made, options = Dict{Symbol, Any}())
    requests = Dict{Symbol, Any}(Symbol("return_", name) => true for name in (gives_tuple(op) ? Symbol[] : asked_for(op)))
    return by_name(op, call(plain(op), positional(op, made), given(op, made, merge(requests, options))))
end
function by_name(op, @nospecialize(y))
    found = Dict{Symbol, Any}()
    if y isa NamedTuple
        for k in keys(y)
            v = getfield(y, k)
            v === nothing || (found[gives_tuple(op) ? Symbol(k, "_grad") : k] = v)
        end
    else
        for (i, a) in enumerate(a for a in outputs(op) if !a.optional)
            found[a.name] = y isa Tuple ? y[i] : y
        end
    end
    return found
end
first_output(op) = outputs(op)[1].name

# The same by f!, written to arrays by name.
function write_results!(op, rooms, made, options = Dict{Symbol, Any}())
    if gives_tuple(op)
        grads = (; (Symbol(chop(string(k); tail = 5)) => v for (k, v) in rooms)...)
        call(writing(op), Any[grads; positional(op, made)], given(op, made, options))
    else
        first_ones = Any[rooms[a.name] for a in outputs(op) if !a.optional]
        more = Dict{Symbol, Any}(name => rooms[name] for name in asked_for(op) if haskey(rooms, name))
        call(writing(op), Any[first_ones; positional(op, made)], given(op, made, merge(more, options)))
    end
    return rooms
end

numbers(@nospecialize(x)) = x isa BlockSparseMatrix ? nonzeros(x) : x
same(@nospecialize(a), @nospecialize(b)) = all(isequal(numbers(a[k]), numbers(b[k])) for k in keys(a)) && keys(a) == keys(b)
CALLED = filter(has_plain, OPERATIONS)
