# SPDX-License-Identifier: Apache-2.0
# value_and_gradient records attention, convolutions and windows.

const Recordable = Union{Dense, Tracked}

# ---- Attention ----

attention(q::Recordable, k::Recordable, v::Recordable, layout::BlockLayout; options...) =
    record_attention(q, k, v, layout; options...)
attention(q::Recordable, k::Recordable, v::Recordable, layout::BlockLayout, terms::NamedTuple; options...) =
    attention(q, k, v, layout; with_terms(terms, options, ATTENTION_TERMS)...)

function record_attention(q, k, v, layout; return_lse::Bool = false, options...)
    all_options = (; options...)
    given = filter(name -> get(all_options, name, nothing) !== nothing, ATTENTION_TERMS)
    for (name, x) in pairs(all_options)
        x isa Tracked && !(name in given) &&
            throw(ArgumentError("attention has no gradient with respect to $name, expected untracked($name)"))
    end
    terms = NamedTuple{given}(all_options)
    inputs, plain = map(untracked, (q, k, v)), map(untracked, all_options)
    out, lse = attention(inputs..., layout; plain..., return_lse = true)
    function pullback(grads)
        grads[2] === nothing || throw(ArgumentError("attention has no gradient of its result lse, expected untracked of it"))
        dout = grad_at(out, grads[1])
        own = any_tracked(q, k, v) ? attention_gradient(inputs..., layout, out, lse, dout; plain...) : (nothing, nothing, nothing)
        found = any_tracked(terms...) ? attention_bias_gradient(inputs..., layout, out, lse, dout; plain...) : (nothing, nothing)
        return (own..., map(name -> found[name === :sinks ? 2 : 1], given)...)
    end
    recorded = record_all((q, k, v, terms...), (out, lse), pullback)
    return return_lse ? recorded : recorded[1]
end

# ---- Convolutions ----

conv(c::BlockConv, w::Union{Blocks, Tracked}, x::Recordable; options...) = record_conv_steps(c, w, x; options...)
conv(c::BlockConv, w::Union{Blocks, Tracked}, x::Recordable, terms::NamedTuple; options...) =
    conv(c, w, x; with_terms(terms, options, (:gain, :bias))...)

# The steps of conv one by one: each has its own gradient.
function record_conv_steps(c, w, x; gain = nothing, bias = nothing, relu::Bool = false, bias_first::Bool = false, active = nothing,
                           windows = nothing, size = nothing, context = nothing)
    z = any_tracked(w, x) ? record_conv(c, w, x, size; active, windows, context) : conv(c, w, x; active, windows, size, context)
    y = z
    if relu || gain !== nothing || bias !== nothing
        y = channel_linear(images(c, z); gain, bias, relu, bias_first, conv = c, size = lengths_at(c, x, z), context)
        y = reshape(y, Base.size(z))
    end
    active === nothing && return y
    return window_scatter(zero_of(untracked(z)), window_gather(y, active, windows; context), active, windows; context)
end

# The filter's product alone.
function record_conv(c, w, x, n; where...)
    filter, image = untracked(w), untracked(x)
    y = conv(c, filter, image; size = n, where...)
    function pullback(g)
        dy = grad_at(y, g)
        return (w isa Tracked ? conv_filter_gradient(c, image, dy; where...) : nothing,
                x isa Tracked ? conv_input_gradient(c, filter, dy; size = size(image)[1:ndims(c)], where...) : nothing)
    end
    return record(pullback, y, w, x)
end

# With a dimension for the images.
images(c, x) = ndims(x) == ndims(c) + 1 ? reshape(x, size(x)..., 1) : x
# What channel_linear has to know of a result z of images x.
lengths_at(c, x, z) = c.transposed ? (size(x)[1:ndims(c)], size(z)[1:ndims(c)]) : size(x)[1:ndims(c)]

# ---- Windows ----

function window_gather(x::Tracked, active::BlockLayout, windows::Windows; context = nothing)
    blocks = window_gather(x.value, active, windows; context)
    return record(g -> (window_scatter(zero_of(x.value), grad_at(blocks, g), active, windows; add = true, context),), blocks, x)
end

function window_scatter(y::Recordable, blocks::Union{Recordable, Nothing}, active::BlockLayout, windows::Windows; add::Bool = false,
                        context = nothing)
    result = window_scatter(untracked(y), untracked(blocks), active, windows; add, context)
    function pullback(g)
        grad = grad_at(result, g)
        return (y isa Tracked ? (add ? grad : window_scatter(grad, nothing, active, windows; context)) : nothing,
                blocks isa Tracked ? window_gather(grad, active, windows; context) : nothing)
    end
    return record(pullback, result, y, blocks)
end
