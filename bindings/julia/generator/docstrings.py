# SPDX-License-Identifier: Apache-2.0
"""The docstrings of the functions of an operation."""

import schema

from .examples import plain_example, writing_example
from .texts import POSITIONS, broken, escaped, formula_of, in_julia, sentence, tuple_of, wrapped


def shown_keywords(f, requests):
    """The keywords of a signature in a docstring: their defaults say nothing where they are `nothing`."""
    return [k.removesuffix(" = nothing") for k in [*f.keywords(False), *requests, "context"]]


def item_lines(f, names):
    for item in f.op.items:
        if item is None or item is f.op.count:
            continue
        if isinstance(item, schema.Option):
            if item.base:
                continue
            words = f": {', '.join('`:' + word + '`' for word in item.words)}" if item.words else ""
            limits = item.limits_text if item.name not in POSITIONS else ""
            default = "" if item.kind == "sizes" or item.computed else f" = {f.default(item)}"
            yield f"`{f.name(item)}{default}`: {in_julia(item.help, names)}{words}{', ' + limits if limits else ''}"
        elif item.use != "out" and not f.pointwise:
            shape = f.shapes[item.name].words(f.name)
            yield f"`{f.name(item)}`{', ' + shape if shape else ''}: {in_julia(item.help, names)}"


def outputs_words(f):
    """What is said of results."""
    if f.is_tuple:
        of = [f.of(a) for a in f.outputs]
        left = [f"`{f.name(x)}`" for x in of if x is not None and x.optional]
        fields = ", ".join(f"`{f.field(a)}`" for a in f.outputs)
        text = f"The result is a named tuple of the gradients {fields}"
        return text + (f"; without {' or '.join(left)} {'its' if len(left) == 1 else 'their'} gradient is `nothing`." if left else ".")
    parts = []
    for a in f.on_request:
        others = ", ".join(f.name(x) for x in f.outputs)
        parts.append(f"With `return_{f.name(a)}` the result is a named tuple ({others}), where `{f.name(a)}`, {f.shapes[a.name].words(f.name)}, is {a.help}.")
    return " ".join(parts)


def paragraph(*texts):
    return wrapped(" ".join(t for t in texts if t))


def docstring(f, signatures, paragraphs, items, example):
    lines = ["    " + line for signature in signatures for line in signature]
    for text in paragraphs:
        if text:
            lines += ["", *text]
    if items:
        lines.append("")
        for item in items:
            lines += wrapped(item, "* ", "  ")
    # Fences, as lines that are only indented would belong to the item above them.
    lines += ["", "```julia", *example, "```"]
    return ['"""', *map(escaped, lines), '"""']


def call_words(f, name, targets, requests):
    prefix = "Tartan.Pointwise." if f.pointwise else ""
    before = f"{prefix}{name}("
    return broken(f"{before}{', '.join(targets + f.positional(False))}; ", shown_keywords(f, requests), ")", len(before))


def plain_docs(f, names, gradient_of):
    op = f.op
    requests = [] if f.is_tuple else [f"return_{f.name(a)} = false" for a in f.on_request]
    signatures = [call_words(f, op.name, [], requests)]
    if f.terms:
        terms = tuple_of(f"{f.name(a)} = ..." for a in f.terms)
        signatures.append([f"{op.name}({', '.join(f.positional(False))}, {terms}; options...)"])
    if f.pointwise:
        text = sentence(in_julia(op.help, names))
        if not f.op.name.endswith("_gradient"):
            inputs = " and ".join(f"`{f.name(a)}`" for a in f.inputs)
            text = f"{text[:-1]}, for each element of {inputs}{'' if len(f.inputs) == 1 else ', with broadcasting'}."
    else:
        text = sentence(in_julia(op.help, names) + formula_of(op))
    second = ""
    if f.terms:
        grads = " and ".join(f"`{f.name(a)}`" for a in f.terms)
        second = f"Zygote and other packages that use ChainRulesCore differentiate the second form with respect to {grads}."
    source = sentence("Source: " + op.source) if op.source else ""
    first = paragraph(text, sentence(in_julia(op.details, names)) if op.details else "")
    return docstring(f, signatures, [first, paragraph(outputs_words(f), second), paragraph(source)], list(item_lines(f, names)), plain_example(f, names, gradient_of))


def writing_docs(f, names, gradient_of):
    op = f.op
    more = [] if f.is_tuple else [f.name(a) for a in f.on_request]
    targets = f.targets(False)
    signatures = [call_words(f, op.name + "!", targets, more)]
    own = f"[`{f.path}`](@ref)"
    if f.updated:
        text = sentence(in_julia(op.help, names) + formula_of(op))
        first = paragraph(text, sentence(in_julia(op.details, names)) if op.details else "", may_be_words(f))
        return docstring(f, signatures, [first], list(item_lines(f, names)), writing_example(f, names, gradient_of))
    if f.is_tuple:
        fields = ", ".join(f"{f.field(a)} = ..." for a in f.outputs)
        text = f"Writes the results of {own} to the arrays of the named tuple `grads`, ({fields}), and returns it. Gradients that `grads` does not name are not computed."
    else:
        optional = "".join(f" and, if given, to `{f.name(a)}`" for a in f.on_request)
        text = f"Writes the result of {own} to {' and '.join(f'`{t}`' for t in targets)}{optional}."
    return docstring(f, signatures, [paragraph(text, may_be_words(f))], [], writing_example(f, names, gradient_of))


def may_be_words(f):
    found = [f"`{f'grads.{f.field(a)}' if f.is_tuple else f.name(a)}` may be {' or '.join(f'`{f.name(x)}`' for x in a.may_be)}" for a in f.outputs if a.may_be]
    return sentence("; ".join(found)) if found else ""
