# SPDX-License-Identifier: Apache-2.0
"""generate.py SCHEMA_DIR EXAMPLES_DIR STAGED: adds the operations of the schema to the staged R package.

    R/operations.R   a function for each operation, and .operations, which says what each takes
    NAMESPACE        their exports
    man/<op>.Rd      a page for each operation and its gradient; one for all element-wise functions

Examples are those in EXAMPLES_DIR/<op>.R; where there are none, they are made of the shapes of the operands.
"""

import pathlib
import re
import sys
import textwrap

WIDTH = 118
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by bindings/r/generate.py from the schema of operations.\n"

# What the package calls otherwise than the schema, so that a word means the same in all of its functions.
RENAMED = {"block_mask": "mask", "in_size": "size", "gate_grad": "gates_grad"}
# Options that are positions, which R counts from 1.
POSITIONS = {"causal_from"}
# Element-wise functions would mask those of base R.
ELEMENTWISE = {"point1", "point1_gradient", "point2", "point2_gradient"}

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


def name_of(op):
    return f"tartan_{op.name}" if op.kind in ELEMENTWISE else op.name


def renamed(name):
    return RENAMED.get(name, name)


def result_name(argument):
    return re.sub(r"_grad$", "", renamed(argument.name)) if argument.use != "in" else ""


def is_returned(argument):
    """Whether the user says if an optional result is wanted; gradients are always returned."""
    return argument.use == "out" and argument.optional and not argument.name.endswith("_grad")


# ---- Shapes: dimensions are in reverse order, but spatial lengths keep theirs ----


def items_of(shape):
    return [item.strip() for item in shape.strip("[] ").split(",") if item.strip()]


def is_image(op, argument):
    if match := re.fullmatch(r"=(\w+)", argument.shape):
        return is_image(op, op[match.group(1)])
    return argument.kind == "array" and argument.shape.endswith(", rest...]")


def is_matrix(op, argument):
    """A batch of matrices, [batch..., rows, columns]: rows x columns x batch in R."""
    if match := re.fullmatch(r"=(\w+)", argument.shape):
        return is_matrix(op, op[match.group(1)])
    return argument.kind == "array" and argument.computed and argument.shape.startswith("[batch..., ")


def in_order_of_r(items):
    return [*items[1:], items[0]] if items[:1] == ["batch..."] else items[::-1]


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


def fixed_ndim(op, argument):
    """The dimensions of a shape without runs, whose last ones may be left out in R: of inputs, and of results that have heads."""
    shape = argument.shape
    if match := re.fullmatch(r"=(\w+)", shape):
        return fixed_ndim(op, op[match.group(1)]) if argument.use != "out" else 0
    if is_matrix(op, argument):
        return 2
    if argument.kind != "array" or not shape.startswith("[") or "..." in shape or " or " in shape:
        return 0
    items = items_of(shape)
    if argument.use == "out" and not re.search(r"heads$|^batch$", items[0] if items else ""):
        return 0
    return len(items)


def like(op, argument):
    """The position, from 1, of the input whose shape and names, or whose layout, a result has; 0: none; NA: as the sizes decide."""
    if argument.use == "in":
        return "0"
    places = {a.name: i + 1 for i, a in enumerate(op.arguments)}
    if match := re.fullmatch(r"=(\w+)|on (\w+)", argument.shape):
        return str(places[match.group(1) or match.group(2)])
    if "&" in argument.shape:
        return "NA"
    if argument.name.endswith("_grad") and op.has(argument.name[: -len("_grad")]):
        return str(places[argument.name[: -len("_grad")]])
    for other in op.inputs:
        if argument.kind == "array" and other.kind == "array" and other.shape == argument.shape and other is not argument:
            return str(places[other.name])
    return "0"


# ---- R functions ----


def default_of(option):
    if option.kind == "flag":
        return "TRUE" if option.default == "1" else "FALSE"
    if option.kind == "word":
        words = sorted(option.words, key=lambda w: w != option.default)
        return "c(" + ", ".join(f'"{w}"' for w in words) + ")"
    if option.kind == "sizes" or option.computed:
        return "NULL"
    value = option.default
    if option.name in POSITIONS:
        value = str(int(value) + 1)
    return value


def signature(op):
    """(name, default or None) of the arguments of the R function: required inputs, then what may be left out, beginning with what
    follows the first required input in the schema."""
    required = [a for a in op.inputs if not a.optional]
    items = [i for i in op.items if i is not None and (i.use != "out" if hasattr(i, "use") else i in op.asked)]
    first = next((k for k, i in enumerate(items) if i in required), 0)
    rest = [i for i in items[first:] + items[:first] if i not in required]
    found = [(renamed(a.name), None) for a in required]
    found += [(renamed(i.name), "NULL" if hasattr(i, "use") else default_of(i)) for i in rest]
    found += [(f"return_{result_name(a)}", "FALSE") for a in op.arguments if is_returned(a)]
    return found


def wrapped(head, parts, tail, indent=None, width=WIDTH):
    """head(part, part, ...)tail in lines."""
    indent = " " * (len(head) if indent is None else indent)
    lines, line = [], head
    for k, part in enumerate(parts):
        end = tail if k + 1 == len(parts) else ","
        if len(line) + len(part) + len(end) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        pieces = part.split(", ") if len(line) + len(part) + len(end) > width else [part]
        for n, piece in enumerate(pieces):  # a long list of words goes on in the next line
            piece += end if n + 1 == len(pieces) else ","
            if n > 0 and len(line) + len(piece) > width:
                lines.append(line.rstrip())
                line = indent + "  "
            line += piece + ("" if k + 1 == len(parts) and n + 1 == len(pieces) else " ")
    if not parts:
        line += tail
    return "\n".join([*lines, line])


def usage(op, width=WIDTH, head=None):
    parts = [name if default is None else f"{name} = {default}" for name, default in signature(op)]
    head = f"{name_of(op)} <- function(" if head is None else head
    return head, parts


def r_function(op):
    head, parts = usage(op)
    inputs = ", ".join(renamed(a.name) for a in op.inputs)
    call = [f".operations${op.name}", f"list({inputs})"]
    returned = [f"return_{result_name(a)}" for a in op.arguments if is_returned(a)]
    if op.asked:
        call.append(f"list({', '.join(renamed(o.name) for o in op.asked)})")
    elif returned:
        call.append("NULL")
    if returned:
        call.append(f"list({', '.join(returned)})")
    while len(call) < 4:
        call.append("NULL")
    yield wrapped(head, parts, ") {")
    yield wrapped("  tartan_r_run(", call, ")")
    yield "}"


def vector(values, kind="c"):
    if not values:
        return {"c": "character()", "i": "integer()", "l": "logical()"}[kind]
    if kind == "c":
        values = [f'"{v}"' for v in values]
    elif kind == "l":
        values = ["TRUE" if v else "FALSE" for v in values]
    else:
        values = [v if v == "NA" else f"{v}L" for v in values]
    if len(set(values)) == 1 and len(values) > 1:
        return f"rep({values[0]}, {len(values)}L)"
    return f"c({', '.join(values)})"


def option_kind(op, option):
    """Spatial lengths have the same order as in C; those of all dimensions are "lengths", in reverse order."""
    return "lengths" if option.kind == "sizes" and not any(is_image(op, a) for a in op.arguments) else option.kind


def entry(op, gradient_names):
    """What .operations has of an operation. bindings/r/src/operation.c reads the elements by position."""
    a, o = op.arguments, op.asked
    defaults = ", ".join("NULL" if x.kind == "sizes" or x.computed else f'"{x.default}"' if x.kind == "word" else str(float_of(x)) for x in o)
    words = ", ".join(vector(sorted(x.words, key=lambda w: w != x.default)) if x.words else "NULL" for x in o)
    fields = [
        ("name", f'"{op.name}"'),
        ("arguments", vector([renamed(x.name) for x in a])),
        ("uses", vector([x.use for x in a])),
        ("kinds", vector([x.kind for x in a])),
        ("dtypes", vector([x.dtype for x in a])),
        ("optional", vector([x.optional for x in a], "l")),
        ("ndim", vector([str(fixed_ndim(op, x)) for x in a], "i")),
        ("orders", vector(["1" if is_image(op, x) else "2" if is_matrix(op, x) else "0" for x in a], "i")),
        ("like", vector([like(op, x) for x in a], "i")),
        ("results", vector([result_name(x) for x in a])),
        ("returned", vector([is_returned(x) for x in a], "l")),
        ("options", vector([renamed(x.name) for x in o])),
        ("option_kinds", vector([option_kind(op, x) for x in o])),
        ("defaults", f"list({defaults})"),
        ("words", f"list({words})"),
        ("from_one", vector([x.name in POSITIONS for x in o], "l")),
        ("c_options", vector([x.name for x in o])),
        ("count", f'"{op.count.name}"' if op.count is not None else '""'),
        ("base", "TRUE" if op.base else "FALSE"),
        ("shapes", vector([shape_text(x) for x in a])),
        ("ranges", vector([x.range for x in o])),
        ("f", f'"{name_of(op)}"'),
        ("gradient", f'"{op.gradient}"'),
        ("gradient_f", f'"{gradient_names.get(op.gradient, "")}"'),
    ]
    return wrapped(f"  {op.name} = list(", [f"{name} = {value}" for name, value in fields], ")", indent=4)


def shape_text(argument):
    """A shape as .operations has it: in R's order."""
    shape = argument.shape
    if not shape.startswith("["):
        return shape
    return re.sub(r"\[.*?\]", lambda one: " x ".join(in_order_of_r(items_of(one.group()))), shape)


def float_of(option):
    if option.kind == "flag":
        return int(option.default)
    value = {"pi": "pi"}.get(option.default, option.default)
    return default_of(option) if option.name in POSITIONS else value


def code(ops):
    names = {op.name: name_of(op) for op in ops}
    yield HEAD
    yield "# What an operation takes: arguments in the order of C, then options. src/operation.c reads the first nineteen elements by position."
    yield ".operations <- list("
    yield ",\n".join(entry(op, names) for op in ops)
    yield ")\n"
    for op in ops:
        yield from r_function(op)
        yield ""


# ---- Help ----


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


RANGES = {"0 <=": "0 or more", "0 <": "above 0", "<= 1": "at most 1", "0 <= < 1": "from 0, below 1", "0 <= <= 1": "from 0 to 1"}


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
        elif item.range in RANGES:
            text += f" ({RANGES[item.range]})"
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


# ---- Examples of their shapes ----

SIZES = [4, 3, 2, 5]


def examples(op, gradient, examples_dir):
    given = examples_dir / f"{op.name}.R"
    if given.exists():
        return given.read_text(encoding="utf-8").rstrip().split("\n")
    sizes, lines = {}, []
    for a in op.inputs:
        if a.optional or a.kind != "array" or not a.shape.startswith("["):
            continue
        dims = []
        for item in reversed(items_of(a.shape)):
            name = item.rstrip(".")
            sizes.setdefault(name, int(name) if name.isdigit() else SIZES[len(sizes) % len(SIZES)])
            dims.append(str(sizes[name]))
        count = " * ".join(dims)
        numbers = f"rep_len(1:2, {count})" if a.dtype == "I" else f"rnorm({count})"
        lines.append(f"{renamed(a.name)} <- " + (numbers if len(dims) == 1 else f"array({numbers}, c({', '.join(dims)}))"))
    for a in op.inputs:
        if not a.optional and a.kind == "matrix":
            lines.append(f"{renamed(a.name)} <- block_matrix(block_pattern(\"banded\", c(16, 16), 4, lower = 1, upper = 1),\n  init = \"normal\", seed = 1)")
    for a in op.inputs:
        if not a.optional and a.kind == "arrays" and a.shape == "any":
            lines.append(f"{renamed(a.name)} <- list(matrix(rnorm(12), 4, 3), rnorm(5))")
    for a in op.inputs:
        if not a.optional and a.shape.startswith("="):
            lines.append(f"{renamed(a.name)} <- {renamed(a.shape[1:])}")
    required = ", ".join(renamed(a.name) for a in op.inputs if not a.optional)
    if gradient is None:
        return [*lines, f"{name_of(op)}({required})"]
    needed = [a.name for a in gradient.inputs if op.has(a.name) and op[a.name].use == "out"]
    returned = [a for a in op.arguments if is_returned(a) and a.name in needed]
    main = next(a for a in op.outputs if not is_returned(a))
    call = required + "".join(f", return_{result_name(a)} = TRUE" for a in returned)
    lines.append(f"found <- {name_of(op)}({call})")
    result = f"found${result_name(main)}" if returned else "found"
    arguments = []
    for a in gradient.inputs:
        if a.optional:
            continue
        name = renamed(a.name)
        if a.name == main.name:
            arguments.append(f"{name} = {result}")
        elif a.name in needed:
            arguments.append(f"{name} = found${result_name(op[a.name])}")
        elif a.name == main.name + "_grad":
            arguments.append(f"{name} = {result}")
        else:
            arguments.append(name)
    lines.append(f"{name_of(gradient)}({', '.join(arguments)})")
    return lines


# ---- All of it ----


def refuse_twins(ops, staged):
    """A function that is written by hand as well would hide the one of the schema."""
    names = {name_of(op) for op in ops}
    for path in sorted((staged / "R").glob("*.R")):
        for name in re.findall(r"^(\w+) <- function", path.read_text(encoding="utf-8"), re.M):
            if name in names and path.name != "operations.R":
                sys.exit(f"generate.py: {name} is an operation of the schema and is written by hand in R/{path.name}, too")


def main(arguments):
    if len(arguments) != 3:
        sys.exit("usage: generate.py SCHEMA_DIR EXAMPLES_DIR STAGED")
    schema_dir, examples_dir, staged = map(pathlib.Path, arguments)
    sys.path.insert(0, str(schema_dir))
    sys.dont_write_bytecode = True
    import schema

    ops = [op for op in schema.load() if not op.by_hand and not op.wrapped]
    by_name = {op.name: op for op in ops}
    refuse_twins(ops, staged)
    write = lambda path, lines: (staged / path).write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")  # noqa: E731
    write("R/operations.R", code(ops))
    with open(staged / "NAMESPACE", "a", encoding="utf-8") as namespace:
        namespace.write("\n" + wrapped("export(", [name_of(op) for op in ops], ")") + "\n")
    gradients = {op.gradient for op in ops}
    for op in ops:
        if op.kind not in ELEMENTWISE and op.name not in gradients:
            write(f"man/{op.name}.Rd", page(op, by_name, examples_dir))
    write("man/tartan_elementwise.Rd", elementwise_page([op for op in ops if op.kind in ELEMENTWISE], by_name))


if __name__ == "__main__":
    main(sys.argv[1:])
