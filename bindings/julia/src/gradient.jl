# SPDX-License-Identifier: Apache-2.0
# Gradients of a function of parameters, by recording what it computes (reverse mode). While the function runs, its parameters are
# Tracked: each holds a value and its number on a tape. What is computed with them is computed as ever, and adds to the tape a function
# from the gradients of its results to those of its operands. The tape is then gone through backwards.
#
# Operations of the library find their gradients in their description (operations_generated.jl), so a new one needs nothing here.

struct Step
    from::Vector{Int} # the numbers of the operands
    to::Vector{Int}   # of the results
    pullback::Any     # from the gradients of the results, nothing where there is none, to a tuple of those of the operands
end

mutable struct Tape
    numbers::Int
    steps::Vector{Step}
end
Tape() = Tape(0, Step[])

"""
    Tartan.Tracked

What a function gets in place of its parameters while [`value_and_gradient`](@ref) runs it.
"""
struct Tracked{V}
    value::V
    number::Int # 0: a constant
    tape::Tape
end
Tracked(tape::Tape, value) = Tracked(value, tape.numbers += 1, tape)

"""
    untracked(x)

The value of a parameter within [`value_and_gradient`](@ref), or of something computed from parameters, as a constant: no
gradient flows through it. Anything else is returned unchanged.
"""
untracked(x) = x
untracked(x::Tracked) = x.value

is_tracked(x) = false
is_tracked(x::Tracked) = true
any_tracked(xs...) = any(is_tracked, xs)

# The constant x beside operands that are tracked, so that methods for Tracked are chosen.
constant(x, others...) = is_tracked(x) ? x : Tracked(x, 0, first(filter(is_tracked, others)).tape)

function tape_of(operands)
    tapes = [x.tape for x in operands if x isa Tracked]
    all(tape -> tape === tapes[1], tapes) || throw(ArgumentError(
        "operands belong to two calls of value_and_gradient, expected one (untracked(x) is the value of the other)"))
    return tapes[1]
end

# A Tracked for each of the values that were computed from operands. pullback(grads) returns a tuple with the gradient of each operand.
function record_all(operands, values, pullback)
    tape = tape_of(operands)
    found = map(value -> Tracked(tape, value), values)
    from = [x isa Tracked ? x.number : 0 for x in operands]
    push!(tape.steps, Step(from, [x.number for x in found], pullback))
    return found
end
record(pullback, value, operands...) = first(record_all(operands, (value,), grads -> pullback(grads[1])))

added(::Nothing, b) = b
added(a, b) = a + b
added(a::DeviceArray, b::DeviceArray) = Pointwise.add(a, b)

function gradients(tape::Tape, last::Tracked, count)
    grads = Vector{Any}(nothing, tape.numbers)
    grads[last.number] = one(last.value)
    for step in Iterators.reverse(tape.steps)
        given = grads[step.to]
        grads[step.to] .= nothing
        all(isnothing, given) && continue
        for (number, grad) in zip(step.from, step.pullback(given))
            number > 0 && grad !== nothing && (grads[number] = added(grads[number], grad))
        end
    end
    return grads[1:count]
end

const Group = Union{Tuple, NamedTuple}
const Parameter = Union{Real, AbstractArray{<:Real}, DeviceArray, DeviceBlockSparseMatrix}

tracked(tape, x::Group) = map(y -> tracked(tape, y), x)
tracked(tape, x::Parameter) = Tracked(tape, x isa Real ? float(x) : x)
tracked(tape, x) = throw(ArgumentError("a parameter is a $(typeof(x)), expected numbers, an array, a block-sparse matrix, or a tuple of these"))

gradient_in(grads, x::Group, of) = map((y, z) -> gradient_in(grads, y, z), x, of)
gradient_in(grads, x, of) = grads[of.number] === nothing ? zero_of(of.value) : grad_at(of.value, grads[of.number])
zero_of(x) = zero(x)
zero_of(x::DeviceArray) = fill!(similar(x), 0)
zero_of(A::BlockSparseMatrix) = fill_zero!(similar(A))
zero_of(A::DeviceBlockSparseMatrix) = fill_zero!(copy(A))

"""
    value, grads = value_and_gradient(f, parameters...)

The value of `f(parameters...)`, a number such as the loss of a model, and its derivatives with respect to all parameters, by
reverse-mode automatic differentiation. The cost is a small multiple of the cost of the function, whatever the number of
parameters.

Parameters are numbers, arrays, block-sparse matrices, arrays on a device, or (named) tuples of these, which may be nested.
`grads` is a tuple with a gradient for each, of the same form. The gradient of a block-sparse matrix has the same layout: only
the derivatives of stored blocks are computed. Parameters that `f` does not use have the gradient 0.

`f` runs once, with objects of type [`Tartan.Tracked`](@ref) in place of the parameters. These support `+ - * / ^`, broadcasting
of functions that are made of arithmetic and the usual mathematical functions, `dot`, `sum`, `mean`, `maximum`, `minimum`,
`transpose`, `reshape`, `vec`, `vcat`, `hcat`, indexing, for block-sparse matrices `map`, `sparse`, `opnorm`, [`project`](@ref),
[`slice`](@ref) and [`block_norms`](@ref), and all operations of this package that have a gradient. Other functions refuse them.
Comparisons compare the values. Gradients are sums in a fixed order, so they have the same bits in each run. Gradients of
gradients are not computed.

    layout = pattern(:banded, (16, 12), 4; lower = 1, upper = 1)
    W = fill_normal!(BlockSparseMatrix{Float64}(layout); seed = 1)
    x, y = randn(12, 8), randn(16, 8)
    loss(p) = sum(abs2, tanh.(p.W * x .+ p.b) .- y) / length(y)
    value, (grad,) = value_and_gradient(loss, (W = W, b = zeros(16)))
    W -= 0.1 * grad.W
"""
function value_and_gradient(f, parameters...)
    tape = Tape()
    given = tracked(tape, parameters)
    count = tape.numbers
    result = f(given...)
    result isa Tracked || throw(ArgumentError("f returned a $(typeof(result)), expected a number that was computed from its parameters"))
    result.value isa Real || throw(ArgumentError("f returned a $(typeof(result.value)), expected one number (such as a sum or a mean)"))
    return (value = result.value, grads = gradient_in(gradients(tape, result, count), parameters, given))
end

# ---- Operations of the library ----

# The function of an operation, which is in the module that its description names.
function_of(op::Operation) = getfield(op.place === :Tartan ? Tartan : getfield(Tartan, op.place), op.name)
operation_of(name::Symbol) = getfield(Tartan, Symbol(uppercase(string(name))))
inputs_of(op::Operation) = filter(a -> a.use !== :out, op.arguments)
outputs_of(op::Operation) = filter(a -> a.use !== :in, op.arguments)

# The input whose gradient an output of a rule is, and the output whose gradient an input is.
without_grad(name) = Symbol(chop(string(name); tail = length("_grad")))

# For a call in which an operand is tracked: `operands` are the inputs that must be given, `options` all else.
function record_operation(op::Operation, operands::Tuple, options)
    options = (; options...)
    needed = [a.name for a in inputs_of(op) if !a.optional]
    all_operands = merge(NamedTuple{Tuple(needed)}(operands), (; (k => v for (k, v) in pairs(options) if v isa Tracked)...))
    known = map(untracked, merge(NamedTuple{Tuple(needed)}(operands), options))
    rule = operation_of(op.gradient)
    refuse_constants(op, rule, all_operands)
    takes = [a.name for a in inputs_of(rule)]
    asked(a) = !a.optional || get(options, Symbol("return_", a.name), false)
    wanted = [a.name for a in outputs_of(op) if a.optional && (a.name in takes || asked(a))]
    requests = (; (Symbol("return_", name) => true for name in wanted)...)
    found = function_of(op)(map(untracked, operands)...; map(untracked, options)..., requests...)
    outputs = Tuple(a.name for a in outputs_of(op) if !a.optional || a.name in wanted)
    results = found isa NamedTuple ? NamedTuple{outputs}(found) : NamedTuple{outputs}(found isa Tuple ? found : (found,))
    function pullback(grads)
        given = (; (Symbol(name, "_grad") => grad_at(results[name], grad) for (name, grad) in zip(outputs, grads))...)
        for (name, grad) in pairs(given)
            grad === nothing || name in takes || throw(ArgumentError(
                "$(op.name) has no gradient of its result $(without_grad(name)), expected untracked of it"))
        end
        all_known = merge(known, results, given)
        value(a) = begin
            x = get(all_known, a.name, nothing)
            x === nothing && !a.optional ? zero_of(results[without_grad(a.name)]) : x
        end
        rest = (; (a.name => value(a) for a in inputs_of(rule) if a.optional)...)
        more = (; (o.name => options[o.name] for o in rule.options if haskey(options, o.name))...)
        grads_found = function_of(rule)((value(a) for a in inputs_of(rule) if !a.optional)...; rest..., more...,
                                        context = get(options, :context, nothing))
        named = grads_found isa NamedTuple ? grads_found : NamedTuple{Tuple(without_grad(a.name) for a in outputs_of(rule))}((grads_found,))
        return map(name -> get(named, name, nothing), keys(all_operands))
    end
    recorded = NamedTuple{outputs}(record_all(Tuple(all_operands), Tuple(results), pullback))
    # In the form that the operation has; what only the gradient needs is not the caller's.
    shown = [a.name => asked(a) ? recorded[a.name] : nothing for a in outputs_of(op)]
    any(a -> a.optional && asked(a), outputs_of(op)) && return (; shown...)
    return found isa Tuple ? Tuple(recorded) : first(recorded)
end

# Tracked operands and options that the rule has no gradient of. Indices never have one.
function refuse_constants(op, rule, operands)
    trained = [without_grad(a.name) for a in outputs_of(rule)]
    for (name, x) in pairs(operands)
        x isa Tracked && !(name in trained) && !any(a -> a.name === name && a.dtype in (:I, :U8), op.arguments) && throw(ArgumentError(
            "$(op.name) has no gradient with respect to $name, expected untracked($name)"))
    end
end

# A gradient in the form and of the type of what it belongs to: C takes no other type, and nobody expects one.
grad_at(y, ::Nothing) = nothing
grad_at(y, g) = shaped(g, y)
grad_at(y::Array{T}, g::AbstractArray) where {T <: AbstractFloat} = in_type(T, shaped(g, y))
