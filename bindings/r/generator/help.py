# SPDX-License-Identifier: Apache-2.0
"""Help pages: one for an operation and its gradient, and one for all element-wise functions."""

import re
import textwrap

from .code import WIDTH, usage, wrapped
from .examples import examples
from .names import ELEMENTWISE, POSITIONS, in_order_of_r, is_image, is_matrix, is_returned, items_of, name_of, renamed, result_name

# Words of C in the texts of the schema, in R.
WORDS = [
    (r"\bbf16\b", "bfloat16"),
    (r"\bf(64|32|16)\b", r"float\1"),
    (r"along the last axis", "along the first dimension"),
    (r"counted from the last dimension", "counted from the first dimension"),
    (r"along (its|the) first axis", r"along \1 last dimension"),
    (r"with causal=1,", "with `causal = TRUE`,"),
    (r"with causal=1:", "with `causal = TRUE`:"),
    (r"\bcausal=1\b", "`causal = TRUE`"),
    (r"\b([a-z_]+)=1\b", r"`\1 = TRUE`"),
    (r"\brebase=0\b", "`rebase = FALSE`"),
    (r" \(UNSUPPORTED\)", ""),
    (r"\(tartan_(\w+)\)", r"(`\1`)"),
    (r"\bin_size\b", "`size`"),
    (r"a row for each edge class", "a column for each edge class"),
    (r"dimensions of length 1, and those that are missing on the left, are repeated",
     "dimensions of length 1, and those that are missing at the end, are repeated"),
    (r"-infinity", "`-Inf`"),
    (r"\+infinity", "`Inf`"),
]  # fmt: skip


def in_r(shape):
    """[lines..., n] is n x lines... in R; so is [n, channels, rest...] rest... x channels x n."""
    if shape.count("[") > 1 or not shape.endswith("]"):
        return re.sub(r"\[.*?\]", lambda one: in_r(one.group()), shape)
    return " x ".join(renamed_item(item) for item in in_order_of_r(items_of(shape)))


def renamed_item(item):
    if "&" in item:
        return "of both"
    if match := re.fullmatch(r"(\w+)\.(blocks|rows|cols|heads)", item):
        return match.group(2)
    return "..." if item == "rest..." else item


def escaped(text):
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("{", "\\{").replace("}", "\\}")


def prose(text, names):
    """A text of the schema as Rd: `code` is marked, names of operations are links."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    parts = re.split(r"`([^`]*)`", text)
    out = ""
    for k, part in enumerate(parts):
        if k % 2 == 0:
            out += escaped(part)
        elif part in names:
            out += f"\\code{{\\link{{{names[part]}}}}}"
        else:
            out += f"\\code{{{escaped(part)}}}"
    return out


def sentence(text):
    text = text.strip()
    return text if text.endswith(".") or not text else text + "."


def capital(text):
    return text[:1].upper() + text[1:]


def filled(text):
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def shape_words(argument):
    """What a shape is called before the help of an array: "a vector of length n: "."""
    shape = argument.shape
    if argument.kind != "array" or shape == "any":
        return ""
    if shape.startswith("="):
        return f"an array like \\code{{{renamed(shape[1:])}}}: "
    if not items_of(shape):
        return "a number: "
    if " or " not in shape and len(items_of(shape)) == 1 and "..." not in shape:
        return f"a vector of length {in_r(shape)}: "
    return f"an array, {in_r(shape)}: "


def item_text(op, item, names):
    """What the help says of an argument."""
    text = prose(item.help, names)
    if not hasattr(item, "use"):
        if item.name in POSITIONS:
            text += " (counted from 1)"
        elif item.limits_text:
            text += f" ({item.limits_text})"
        if item.kind == "word":
            text += ": " + ", ".join(f'\\code{{"{w}"}}' for w in item.words)
        return sentence(text)
    kinds = {"matrix": "a block matrix: ", "arrays": "a list of arrays and block matrices, or one of them: ", "mask": "a \\code{\\link{attention_mask}}: ", "layout": "a layout: ",
             "conv": "a \\code{\\link{block_conv}}: "}  # fmt: skip
    return sentence(kinds.get(item.kind, "") + (shape_words(item) if op.kind not in ELEMENTWISE else "") + text)


def arguments_text(ops, names):
    """\\item for each argument of the functions of a page; the first that describes one counts."""
    found = {}
    for op in ops:
        for item in op.items:
            if item is None or (item.use == "out" if hasattr(item, "use") else item not in op.asked):
                continue
            text = item_text(op, item, names)
            found.setdefault(renamed(item.name), text)
        for a in op.arguments:
            if is_returned(a):
                found.setdefault(f"return_{result_name(a)}", sentence(f"whether to return {prose(a.help, names)}"))
    for name, text in found.items():
        yield filled(f"\\item{{{name}}}{{{text}}}")


def value_lines(op, names, title):
    """What a function returns: the only result, or a list."""
    outputs = [a for a in op.arguments if a.written]
    sure, more = [a for a in outputs if not is_returned(a)], [a for a in outputs if is_returned(a)]
    says = {result_name(a): sentence(shape_words(a) + prose(a.help, names)) for a in outputs}
    if len(sure) == 1:
        text = title + says[result_name(sure[0])]
        if more:
            wish = " or ".join(f"\\code{{return_{result_name(a)} = TRUE}}" for a in more)
            text += f" With {wish} a list of this, \\code{{{result_name(sure[0])}}}, and:"
        yield filled(text)
    else:
        yield filled(f"{title}a list:")
        more = outputs
    for a in more:
        source = result_name(a)
        only = f" Only if \\code{{{source}}} is given." if a.optional and op.has(source) and op[source].use == "in" and op[source].optional else ""
        yield filled(f"\\item{{{source}}}{{{says[source]}{only}}}")


def details_of(op, names):
    if op.formula:
        formula = op.formula
        for pattern, replacement in WORDS:
            formula = re.sub(pattern, replacement.replace("`", ""), formula)
        yield f"\\code{{{name_of(op)}}}: \\code{{{escaped(formula)}}}."
    if op.details:
        yield sentence(prose(op.details, names))


def page(op, ops_by_name, examples_dir):
    names = {o.name: name_of(o) for o in ops_by_name.values()}
    gradient = ops_by_name.get(op.gradient)
    elsewhere = gradient and next(o for o in ops_by_name.values() if o.gradient == op.gradient) is not op  # has a page already
    both = [op] + ([gradient] if gradient and not elsewhere else [])
    yield f"% Written by bindings/r/generate.py from the schema of operations.\n\\name{{{op.name}}}"
    yield from (f"\\alias{{{o.name}}}" for o in both)
    yield filled(f"\\title{{{prose(capital(op.help), names)}}}")
    yield "\\description{"
    text = sentence(prose(capital(op.help), names))
    if gradient:
        many = sum(a.written for a in gradient.arguments) > 1
        text += f" \\code{{{gradient.name}}} computes its gradient{'s' if many else ''}."
        gradient = None if elsewhere else gradient
    yield filled(text)
    yield "}\n\\usage{"
    for o in both:
        head, parts = usage(o, head=f"{name_of(o)}(")
        yield wrapped(head, parts, ")", width=78)
    yield "}\n\\arguments{"
    yield from arguments_text(both, names)
    yield "}\n\\value{"
    for o in both:
        yield from value_lines(o, names, f"\\code{{{o.name}}}: ")
    yield "\nResults are in the memory of the operands."
    yield "}\n\\details{"
    yield filled(" ".join(t for o in both for t in details_of(o, names)))
    if any(is_image(op, a) for a in op.arguments):
        yield filled("Arrays are spatial lengths x channels x n, as for \\code{\\link{conv_forward}}.")
    elif any("..." in a.shape and not is_matrix(op, a) for a in op.arguments):
        yield filled("Arrays have their dimensions in reverse order compared with Python and C, where a line lies along the last axis: here it "
                     "lies along the first dimension, so each column of a matrix is a line.")  # fmt: skip
    yield "}"
    if op.source:
        yield "\\references{\n" + filled(sentence(prose(op.source, names))) + "\n}"
    yield "\\examples{\n" + escaped_code("\n".join(examples(op, gradient, examples_dir))) + "\n}"


def escaped_code(text):
    return text.replace("\\", "\\\\").replace("%", "\\%").rstrip()


def elementwise_page(ops, ops_by_name):
    names = {o.name: name_of(o) for o in ops_by_name.values()}
    yield "% Written by bindings/r/generate.py from the schema of operations.\n\\name{tartan_elementwise}\n\\alias{tartan_elementwise}"
    yield from (f"\\alias{{{name_of(op)}}}" for op in ops)
    yield "\\title{Element-wise functions and their gradients}"
    yield "\\description{\n" + filled(
        "Functions of each element of an array, or of the elements of two arrays, in R's memory or on a device, and their gradients for "
        "backpropagation.") + "\n}\n\\usage{"  # fmt: skip
    for op in ops:
        head, parts = usage(op, head=f"{name_of(op)}(")
        yield wrapped(head, parts, ")", width=78)
    yield "}\n\\arguments{"
    yield filled("\\item{x, a, b}{vectors, matrices or arrays. Dimensions of \\code{a} or \\code{b} of length 1, and those that are "
                 "missing at the end, are repeated.}")  # fmt: skip
    yield "\\item{y}{the result of the function.}"
    yield "\\item{y_grad}{the gradient with respect to \\code{y}.}"
    options = {}
    for op in ops:
        for o in op.options if op.kind in ("point1", "point2") else []:
            options.setdefault(o.name, {}).setdefault(o.help, name_of(op))
    for name, helps in options.items():
        texts = [prose(text, names) if len(helps) == 1 else f"for \\code{{{of}}}, {prose(text, names)}" for text, of in helps.items()]
        yield filled(f"\\item{{{name}}}{{{sentence('; '.join(texts))}}}")
    yield "}\n\\value{"
    yield filled("An array like \\code{x}, or with the dimensions of \\code{a} and \\code{b} together, in the memory of the operands; names are "
                 "kept. The gradient of a function of \\code{x} is an array like its first argument. The gradient of a function of two arrays is a "
                 "list of \\code{a} and \\code{b}, each summed over the dimensions that were repeated.")  # fmt: skip
    yield "}\n\\details{\n\\tabular{ll}{"
    rows = [f"\\code{{{name_of(op)}}} \\tab {prose(op.help, names)}" for op in ops if op.kind in ("point1", "point2")]
    yield " \\cr\n".join(rows)
    yield "}\n" + filled(
        "A gradient takes what it needs from the call: the operands, the result or neither. Names begin with \\code{tartan_} so as not to "
        "mask functions of base R.") + "\n}\n\\examples{"  # fmt: skip
    yield escaped_code("""x <- matrix(c(-1, 0, 1, 2), 2)
y <- tartan_gelu(x)
tartan_gelu_gradient(x, y_grad = matrix(1, 2, 2))
tartan_multiply(x, c(10, 20)) # each column by the vector, as in R
tartan_multiply_gradient(x, c(10, 20), y_grad = matrix(1, 2, 2))$b""")
    yield "}"
