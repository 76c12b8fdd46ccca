# SPDX-License-Identifier: Apache-2.0
# The loop of training: gradients, a step of Adam, a step of a sparsifier, until it ends or is interrupted.

"""
    minimise(loss, parameters, steps; sparsifier = nothing, progress = isinteractive(), options...)

Minimises a loss by Adam. In each step it calls [`value_and_gradient`](@ref), [`adam!`](@ref) with the options (such as `rate`) and, if there is a
`sparsifier` without gates and growth by score, [`step!`](@ref). `loss` is a function of the parameters, or of them and the number of the step
(for a batch of data). `parameters` are a named tuple or a tuple, which are copied; or what an earlier call returned, to go on.

Returns the `parameters`, their moments `means` and `squares`, the number of `steps`, and the `losses` of all steps. A progress bar on
standard error shows how far it is; Ctrl-C (`InterruptException`) ends it after a whole step and loses nothing.

    x = randn(32, 100)
    p = (w = fill_normal!(BlockSparseMatrix{Float64}(pattern(:dense, (32, 32), 8)); seed = 1),)
    s = Sparsifier(p; density = 0.5, start = 20, stop = 80, every = 20)
    found = minimise(p -> sum(abs2, p.w * x .- x) / 3200, p, 100; rate = 0.02, sparsifier = s)
    nblocks(found.parameters.w) == 8
"""
function minimise(loss, parameters, steps::Integer; sparsifier = nothing, progress::Bool = isinteractive(), options...)
    steps >= 0 || throw(ArgumentError("steps is $steps, expected 0 or more"))
    sparsifier === nothing || !occursin("score=gate", sparsifier.options) ||
        throw(ArgumentError("sparsifier has score = :gate, expected another one: with gates write the loop yourself"))
    state, shown = minimised(parameters), -Inf
    losses = copy(state.losses) # which grows in place: a copy in each step would cost the square of the steps
    try
        for i in 1:steps
            step = state.steps + 1
            value, grads = applicable(loss, state.parameters, step) ? value_and_gradient(p -> loss(p, step), state.parameters) :
                           value_and_gradient(loss, state.parameters)
            # A step is taken as a whole: an interrupt waits for its end.
            state = disable_sigint(() -> minimised_step(state, losses, value, grads[1], step, sparsifier, options))
            if progress && (i == steps || time() - shown > 0.2)
                show_progress(stderr, i, steps, value)
                shown = time()
            end
        end
    catch error
        error isa InterruptException || rethrow()
        @info "minimise: interrupted after $(state.steps) steps; what it returns goes on as `parameters` of another call"
    end
    progress && println(stderr)
    return state
end

const Minimised = NamedTuple{(:parameters, :means, :squares, :steps, :losses)}
minimised(state::Minimised) = state
minimised(p::Union{NamedTuple, Tuple}) =
    (parameters = map(copy, p), means = map(zero_of, p), squares = map(zero_of, p), steps = 0, losses = Float64[])
minimised(p) = throw(ArgumentError("parameters are of type $(typeof(p)), expected a (named) tuple, or what minimise returned"))

function minimised_step(state, losses, value, grads, step, sparsifier, options)
    p = state.parameters
    sparsifier === nothing || !occursin("score=movement", sparsifier.options) || observe!(sparsifier, p, grads)
    adam!(p, grads, state.means, state.squares; step = step, options...)
    moved = sparsifier === nothing ? (p, state.means, state.squares) : step!(sparsifier, p, state.means, state.squares)
    return (parameters = moved[1], means = moved[2], squares = moved[3], steps = step, losses = push!(losses, value))
end

function show_progress(io, i, steps, loss)
    done = div(30 * i, steps)
    print(io, "\r[", "="^done, " "^(30 - done), "] ", i, "/", steps, "  loss ", round(loss; sigdigits = 4), "    ")
end
