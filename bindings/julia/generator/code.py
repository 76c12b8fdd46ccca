# SPDX-License-Identifier: Apache-2.0
"""The code of the functions of an operation, and its row in the table of operations."""

from .texts import CLASSES, POSITIONS, broken, tuple_of


def option_code(f, option):
    name, default = f.name(option), f.default(option)
    if option is f.op.count:
        return f'whole_option("{name}", length(items_of({f.name(f.lists[0])})), 1)'
    if option.kind == "flag":
        return f'{name} ? "" : "{option.name}=0 "' if option.default == "1" else f'{name} ? "{option.name}=1 " : ""'
    if option.kind == "sizes":
        return f'sizes_option("{option.name}", {name})'
    if option.kind == "word":
        words = ", ".join(f":{word}" for word in option.words)
        return f'word_option("{option.name}", {name}, {default}, ({words}))'
    if option.name in POSITIONS:
        return f'position_option("{option.name}", {name})'
    return f'{option.kind}_option("{option.name}", {name}, {default})'


def argument_code(f, a):
    """What C gets for an argument."""
    value = f"grads.{f.field(a)}" if f.is_tuple and a.use == "out" else f.name(a)
    if a.kind == "arrays":
        first = f.name(f.lists[0])
        return f'list_operand({value}, "{f.name(a)}", {first}, "{first}", {str(a.written).lower()})'
    if a.kind != "array":
        return f"handle_of({value})"
    if a.dtype == "I":
        return f'index_{"input" if a.use == "in" else "output"}({f.dims(a)}, {value}, "{f.name(a)}")'
    if a.dtype == "U8":
        return f'mask_input({f.dims(a)}, {value}, "{f.name(a)}")'
    if a.dtype in ("P", "C"):
        return f'number_{"input" if a.use == "in" else "output"}({f.dims(a)}, {value}, "{f.name(a)}")'
    if a.use != "in":
        return f'dense_output({f.dims(a)}, {value}, "{f.name(a)}")'
    if a.dtype == "S":
        return f'sum_input({f.dims(a)}, {value}, "{f.name(a)}", eltype({f.name(f.first)}))'
    return f'dense_input({f.dims(a)}, {value}, "{f.name(a)}")'


def definition(before, keywords, after):
    return broken(f"{before}; ", keywords, after, before.index("(") + 1)


def plain_function(f):
    """f, which makes room for the results."""
    requests = [f"return_{f.name(a)}::Bool = false" for a in f.on_request] if not f.is_tuple else []
    head = f"function {f.op.name}({', '.join(f.positional())}"
    yield from definition(head, [*f.keywords(), *requests, "context = nothing"], ")")
    arrays = [f.name(a) for a in f.terms]
    if arrays:
        first = next(i for i, a in enumerate(f.needed) if a.kind in ("array", "matrix"))
        operands = [f"constant({f.name(a)}, {', '.join(arrays)})" if i == first else f.name(a) for i, a in enumerate(f.needed)]
        tracked = broken(f"{f.op.name}({', '.join(operands)}; ", [*f.passed(), *(r.split("::")[0] for r in requests), "context"], ")")
        yield f"    any_tracked({', '.join(arrays)}) && return {tracked[0]}"
        yield from ("        " + line for line in tracked[1:])
    if f.is_tuple:
        parts = []
        for a in f.outputs:
            of = f.of(a)
            room = f.room(a)
            parts.append(f"{f.field(a)} = {f'{f.name(of)} === nothing ? nothing : ' if of is not None and of.optional else ''}{room}")
        yield from broken("    grads = (", parts, ",)" if len(parts) == 1 else ")")
        targets = ["grads"]
    else:
        for a in f.results:
            yield f"    {f.name(a)} = {f.room(a)}"
        for a in f.on_request:
            yield f"    {f.name(a)} = return_{f.name(a)} ? {f.room(a)} : nothing"
        targets = [f.name(a) for a in f.results]
    names = [f.name(a) for a in f.on_request] if not f.is_tuple else []
    call = broken(f"{f.op.name}!({', '.join(targets + f.positional(False))}; ", f.passed() + names + ["context"], ")")
    if names:
        yield from ("    " + line for line in call)
        every = ", ".join(f"{f.name(a)} = {f.name(a)}" for a in f.outputs)
        asked = " || ".join(f"return_{name}" for name in names)
        yield f"    return {asked} ? ({every}) : {f.name(f.results[0])}"
    else:
        call[0] = "return " + call[0]
        yield "    " + call[0]
        yield from ("           " + line for line in call[1:])
    yield "end"


def writing_function(f):
    """f!, which runs the operation."""
    more = [] if f.is_tuple else [f"{f.name(a)}{'' if a.kind == 'array' else f'::Union{{{CLASSES[a.kind]}, Nothing}}'} = nothing" for a in f.on_request]
    head = f"function {f.op.name}!({', '.join(f.targets() + f.positional())}"
    yield from definition(head, [*f.keywords(), *more, "context = nothing"], ")")
    if f.is_tuple:
        fields = ", ".join(f"{f.field(a)} = nothing" for a in f.outputs)
        yield f"    grads = gradients_of(grads, ({fields}{',' if len(f.outputs) == 1 else ''}))"
    operands = [f"grads.{f.field(a)}" if f.is_tuple and a.use == "out" else f.name(a) for a in f.op.arguments if a.kind in ("array", "matrix")]
    operands += [f"placed({f.name(a)})" for a in f.lists]
    yield from broken("    queue = call_context(context, ", operands, ")")
    arguments = [argument_code(f, a) for a in f.op.arguments]
    yield from broken("    arguments = (", arguments, ",)" if len(arguments) == 1 else ")")
    counts = [f.op.count] if f.lists else []
    options = (['"base=1 "'] if f.op.base else []) + [option_code(f, o) for o in [*counts, *f.op.asked]]
    if options:
        yield from broken("    options = options_text(", options, ")")
    text = "options" if options else '""'
    yield f"    run_operation({f.constant}, queue, arguments, {text})"
    targets = ["grads"] if f.is_tuple else [f.name(a) for a in f.results or f.updated[:1]]
    yield f"    return {targets[0] if len(targets) == 1 else ', '.join(targets)}"
    yield "end"


def tracked_function(f):
    """The form for operands within value_and_gradient."""
    operands = [a for a in f.needed if a.kind in ("array", "matrix")]
    one = len(operands) == 1
    types = [f"{f.name(a)}::{CLASSES[a.kind]}" if a not in operands else f"{f.name(a)}::Tracked" if one
             else f"{f.name(a)}::Union{{{CLASSES[a.kind]}, Tracked}}" for a in f.needed]  # fmt: skip
    yield f"{f.op.name}({', '.join(types)}; options...) ="
    yield f"    record_operation({f.constant}, ({', '.join(f.positional(False))},), options)"


def terms_function(f):
    """The form that takes what is trained in a named tuple."""
    names = tuple_of(f":{f.name(a)}" for a in f.terms)
    positional = [f"{f.name(a)}::Union{{{CLASSES[a.kind]}, Tracked}}" if a.kind in ("array", "matrix") else f"{f.name(a)}::{CLASSES[a.kind]}" for a in f.needed]
    yield f"{f.op.name}({', '.join(positional)}, terms::NamedTuple; options...) ="
    yield f"    {f.op.name}({', '.join(f.positional(False))}; with_terms(terms, options, {names})...)"


def table_row(f):
    op = f.op
    arguments = [f'Argument(:{f.name(a)}, :{a.use}, {str(a.optional).lower()}, :{a.kind}, :{a.dtype}, "{a.shape}", Symbol[{", ".join(":" + f.name(m) for m in a.may_be)}])'
                 for a in op.arguments]  # fmt: skip
    options = []
    for o in op.asked:
        options.append(f'Option(:{f.name(o)}, :{o.kind}, {f.default(o)}, "{o.range}", Symbol[{", ".join(":" + w for w in o.words)}])')
    yield f"const {f.constant} = Operation("
    yield f"    :{op.name}, :{'Pointwise' if f.pointwise else 'Tartan'},"
    yield "    [" + ",\n     ".join(arguments) + "],"
    yield "    Option[" + ",\n           ".join(options) + "],"
    yield f"    {':' + op.gradient if op.gradient else 'nothing'})"
