# SPDX-License-Identifier: Apache-2.0
"""The rules of ChainRulesCore, made of the operations of gradients."""

import re

import schema

from .texts import CLASSES, broken, tuple_of


def rule(f, g):
    """The rule of ChainRulesCore, from the operation of its gradient."""
    name, path = f.op.name, f.path if f.pointwise else "Tartan." + f.op.name
    arguments = ", ".join(f.positional(False))
    types = {"array": "AbstractArray", "matrix": "Sparse"}
    typed = ", ".join(f"{f.name(a)}::{types.get(a.kind) or 'Tartan.' + CLASSES[a.kind]}" for a in f.needed)
    terms = tuple_of(f":{f.name(a)}" for a in f.terms)
    if f.terms:
        call = f"{name}({arguments}, {tuple_of(f'{f.name(a)} = ...' for a in f.terms)})"
        yield f"function ChainRulesCore.rrule(::typeof({path}), {typed}; options...)"
        yield f'    refuse_options("{name}", "{call}", chosen(options, {terms[1:-1].rstrip(",")}))'
        yield f"    y, pullback = {name}_rule({arguments}, NamedTuple(); options...)"
        yield f"    return y, dy -> pullback(dy)[1:{len(f.needed) + 1}]"
        yield "end"
        yield from broken(f"ChainRulesCore.rrule(::typeof({path}), ", [*typed.split(", "), "terms::NamedTuple; options..."], ") =")
        yield f"    {name}_rule({arguments}, terms; options...)"
        yield f"function {name}_rule({arguments}, terms; options...)"
    else:
        yield f"function ChainRulesCore.rrule(::typeof({path}), {typed}; options...)"
    given = "options"
    if f.on_request:
        given = f'without_requests("{name}", options, {tuple_of(f"return_{f.name(a)} = false" for a in f.on_request)})'
    if f.terms:
        given = f"Tartan.with_terms(terms, {given}, {terms})"
    if given != "options":
        yield f"    given = {given}"
        given = "given"
    grads_of = {f"{a.name}_grad" for a in f.outputs}
    own = {a.name for a in f.needed}  # some are optional inputs of the gradient
    options = [f.name(i) for i in g.op.items if (not i.base if isinstance(i, schema.Option) else i is not None and i.use == "in" and i.optional and i.name not in grads_of | own)]
    yield from broken(f"    kept = picked({given}, (", [f"{o} = nothing" for o in [*options, "context"]], "))" if options else ",))")
    results = [f.name(a) for a in f.results]
    out, several = ", ".join(results), len(results) > 1
    extra = [f.op[a.name] for a in g.needed if f.op.has(a.name) and f.op[a.name].use == "out" and f.op[a.name].optional]
    if extra:
        rooms = [f"    {f.name(a)} = {in_tartan(f.room(a))}" for a in [*f.results, *extra]]
        for o in f.op.asked:  # sizes may be options
            if re.search(rf"\b{f.name(o)}\b", "\n".join(rooms)):
                yield f"    {f.name(o)} = get({given}, :{f.name(o)}, {f.default(o)})"
        yield from rooms
        yield from broken(f"    {path}!({out}, {arguments}; ", [f"{given}...", *(f.name(a) for a in extra)], ")")
    else:
        yield f"    {out} = {path}({arguments}; {given}...)"
    yield f"    function {name}_pullback(dy)"
    # Those of several results may be left out: the gradient of one that was not used is none.
    at = {f"{a.name}_grad": f"gradient_of_result({f.name(a)}, dy, {i + 1})" if several else f"gradient_at({out}, dy)" for i, a in enumerate(f.results)}
    passed = [at.get(a.name, g.name(a)) for a in g.needed]
    kept = [f"{g.name(a)} = {at.get(a.name, g.name(a))}" for a in g.optional if a.name in at or a.name in own] + ["kept..."]
    gradient = g.path if g.pointwise else "Tartan." + g.op.name
    yield from broken(f"        grads = {gradient}({', '.join(passed)}; ", kept, ")", 8 + len(f"grads = {gradient}("))
    fields = {g.field(a) for a in g.outputs}
    grads = [f"projected({f.name(a)}, grads{'.' + f.name(a) if g.is_tuple else ''})" if f.name(a) in fields else "NoGradient()" for a in f.needed]
    if f.terms:
        grads.append("tangent(terms, map(name -> grads[name], keys(terms)))")
    yield f"        return NoGradient(), {', '.join(grads)}"
    yield "    end"
    yield f"    return {f'({out})' if several else out}, {name}_pullback"
    yield "end"


def in_tartan(code):
    """Calls of what is the package's own, in a module that has not imported it."""
    return re.sub(r"\b(room_for|room_beside|gate_type|following|by_head|broadcast_size|nblocks|heads)\(", r"Tartan.\1(", code)
