# SPDX-License-Identifier: Apache-2.0
"""generate.py SCHEMA_FOLDER FILE...: writes what Julia takes from the schema of operations, each file by its name.

    operations_generated.jl    the table of operations, and a function f and one f! for each, with docstrings
    operation_rules.jl         the rules of ChainRulesCore (ext/chain_rules.jl includes it)

Sizes are in Julia's order: the [lines..., n] of the schema is (n, lines...). Of a fixed number of dimensions the last ones may be left
out if they are 1. Element-wise functions go to the module Pointwise, since Base has some of their names.
"""

import pathlib
import re
import sys
import textwrap

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import schema  # noqa: E402

WIDTH = 128
EXAMPLES = pathlib.Path(__file__).resolve().parent / "examples"
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by bindings/julia/generate.py from lib/ops/schema. Not to be edited.\n"

# What the package calls otherwise than the schema, so that a word means the same in all of its functions.
RENAMED = {"block_mask": "mask", "in_size": "size"}
# Options that are positions, which count from 1.
POSITIONS = {"causal_from"}

# Words of the schema's texts in Julia.
WORDS = [
    (r"\bbf16\b", "`BFloat16`"),
    (r"\bf(64|32|16)\b", r"`Float\1`"),
    (r"\b([a-z_]+)=1\b", r"`\1 = true`"),
    (r"\balong the last axis\b", "along the first dimension"),
    (r"\balong (its|the) first axis\b", r"along \1 last dimension"),
    (r"\bmissing on the left\b", "missing at the end"),
    (r" ?\(tartan_conv_edge_classes\)", " ([`edge_classes`](@ref))"),
    (r" \(UNSUPPORTED\)", ""),
    (r"\ba row for each edge class\b", "a column for each edge class"),
    (r"(?<![\w)])([-+]?)infinity\b", r"\1Inf"),
]
CLASSES = {"array": "Dense", "matrix": "Blocks", "layout": "BlockLayout", "mask": "BlockMask", "conv": "BlockConv"}


def in_julia(text, names=()):
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    for old, new in RENAMED.items():
        text = re.sub(rf"\b{old}\b", f"`{new}`", text)
    return re.sub(r"`(\w+)`", lambda m: f"[`{names[m.group(1)].path}`](@ref)" if m.group(1) in names else m.group(0), text)


def formula_of(op):
    """What follows the help: formulas are in C's words, within backticks."""
    return ": `" + re.sub(r"\b([a-z_]+)=1\b", r"\1 = true", op.formula) + "`" if op.formula else ""


def sentence(text):
    return text if text.endswith(".") else text + "."


def escaped(text):
    return re.sub(r'(["\\$])', r"\\\1", text)


def wrapped(text, first="", rest=""):
    # A sign at the beginning of a line would make it an item of a list, so it stays with the word before.
    held = re.sub(r" (?=[-+*] )", "\xa0", text)
    lines = textwrap.wrap(held, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def broken(before, parts, after, indent=None):
    """`before`, `parts` with commas between them, and `after`, in lines that begin below the first part or after `indent`."""
    lines, line = [], before
    blanks = " " * (len(before) if indent is None else indent)
    for i, part in enumerate(parts):
        end = after if i + 1 == len(parts) else ", "
        if len(line + part + end.rstrip()) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = blanks
        line += part + end
    return lines + [line] if parts else [before + after]


def tuple_of(parts):
    parts = list(parts)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


# ---- Shapes ----


class Shape:
    """A shape of the schema in the order of Julia."""

    def __init__(self, text, computed=False):
        self.text, self.computed = text, computed
        self.like = text[1:] if text.startswith("=") else ""
        parts = [] if self.like or text == "any" or text.startswith("on ") else re.findall(r"\[(.*?)\]", text)
        self.alternatives = [[item.strip() for item in part.split(",")][::-1] if part else [] for part in parts]
        # Batches of matrices keep their rows and columns.
        self.matrices = computed and text.startswith("[batch..., ")
        if self.matrices:
            self.alternatives = [[rows, cols, batch] for cols, rows, batch in self.alternatives]
        self.items = self.alternatives[0] if parts and not computed else []

    def know(self, names):
        """Of a result that is computed, items that are sizes of inputs or options."""
        if self.computed and not self.matrices and re.fullmatch(r"\[[^\]]*\]", self.text) and names.issuperset(item for item in self.alternatives[0] if not item.isdigit()):
            self.items = self.alternatives[0]

    @property
    def least(self):
        """The dimensions that there are at least."""
        return min((sum("..." not in item for item in items) for items in self.alternatives), default=0)

    def words(self, name=str):
        if self.like:
            return f"like `{name(self.like)}`"
        if self.text.startswith("on "):
            return f"on the layout of `{name(self.text[3:])}`"
        if not self.alternatives:
            return ""
        if self.computed:
            return re.sub(r"\[.*?\]", lambda part: self.one(Shape(part.group(), True).alternatives[0]), self.text)
        broadcast = re.fullmatch(r"\[(\w+)\.\.\. & (\w+)\.\.\.\]", self.text)
        return "of the size that broadcasting gives" if broadcast else " or ".join(self.one(items) for items in self.alternatives)

    @staticmethod
    def one(items):
        names = [re.sub(r"\w+\.", "", in_julia(item)) if not item.endswith("...") else item for item in items]
        return f"({', '.join(names)}{',' if len(names) == 1 and not names[0].endswith('...') else ''})"


# ---- Functions of Julia ----


class Function:
    """The functions f and f! of an operation."""

    def __init__(self, op, gradient_op, is_gradient):
        self.op, self.gradient_op = op, gradient_op
        self.shapes = {a.name: Shape(a.shape, a.computed) for a in op.arguments}
        self.pointwise = op.kind.startswith("point")
        self.inputs = [a for a in op.arguments if a.use == "in"]
        self.updated = [a for a in op.arguments if a.use == "update"]
        self.outputs = [a for a in op.arguments if a.use == "out"]
        self.needed = [a for a in op.arguments if a.use != "out" and not a.optional]
        self.optional = [a for a in op.arguments if a.use != "out" and a.optional]
        self.results = [a for a in self.outputs if not a.optional]
        self.on_request = [a for a in self.outputs if a.optional]
        # Several gradients are a named tuple.
        self.is_tuple = is_gradient and len(self.outputs) > 1
        self.first = next(a for a in op.arguments if a.dtype in ("T", "P"))
        self.lists = [a for a in op.arguments if a.kind == "arrays"]
        wholes = {o.name for o in op.options if o.kind == "whole"}
        for shape in (self.shapes[a.name] for a in self.outputs):
            shape.know({item for a in self.needed for item in self.shapes[a.name].items} | wholes)
        trained = {a.name[:-5] for a in gradient_op.outputs if a.name.endswith("_grad")} if gradient_op else set()
        self.terms = [a for a in self.optional if a.name in trained]

    @property
    def path(self):
        return f"Tartan.Pointwise.{self.op.name}" if self.pointwise else self.op.name

    @property
    def constant(self):
        return self.op.name.upper()

    def name(self, item):
        name = item if isinstance(item, str) else item.name
        return RENAMED.get(name, name)

    @property
    def size(self):
        """The function `size`, unless an option is called so."""
        return "Base.size" if any(self.name(i) == "size" for i in self.op.options) else "size"

    def field(self, output):
        return self.name(output.name[:-5])

    def of(self, output):
        """The input whose gradient an output is, or None."""
        name = output.name[:-5] if output.name.endswith("_grad") else ""
        return next((a for a in self.op.arguments if a.name == name and a.use != "out"), None)

    # -- sizes and types of results --

    def dims(self, a):
        shape = self.shapes[a.name]
        while shape.like:
            shape = self.shapes[shape.like]
        if shape.matrices:
            return "as_matrix"
        return f"AtLeast{{{shape.least}}}()" if shape.least > 1 else "in_order_of_c"

    def element(self, a):
        first = f"eltype({self.name(self.first)})"
        if a.dtype == "C":
            return f"cast_type({self.name(next(o for o in self.op.options if o.kind == 'word'))}, {first})"
        return {"S": f"gate_type({first})", "R": f"gate_type({first})", "F64": "Float64", "I": "Int"}.get(a.dtype, first)

    def size_of(self, a):
        """An expression for the size of a result."""
        shape = self.shapes[a.name]
        if self.of(a) is not None:
            return f"{self.size}({self.name(self.of(a))})"
        if shape.like:
            name = self.name(shape.like)
            return f'{self.size}(first_array({name}, "{name}"))' if self.op[shape.like].kind == "arrays" else f"{self.size}({name})"
        if len(shape.items) == 1 and "&" in shape.items[0]:
            names = [self.holder(item.strip()) for item in shape.items[0].split("&")]
            return f"broadcast_size({', '.join(f'{self.size}({name})' for name in names)})"
        if len(shape.items) == 2 and shape.items[1].endswith(".heads"):
            matrix = self.name(shape.items[1][:-6])
            return f"by_head({matrix}, {self.length(a, shape.items[0])})"
        if len(shape.items) == 1 and shape.items[0].endswith("..."):
            return self.length(a, shape.items[0]).removesuffix("...")
        lengths = [self.length(a, item) for item in shape.items]
        return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"

    def holder(self, item):
        """The name of the first array that has a dimension."""
        return self.name(next(a for a in self.needed if item in self.shapes[a.name].items))

    def length(self, a, item):
        if item.isdigit() or any(item == o.name for o in self.op.options):
            return item
        if match := re.fullmatch(r"(\w+)\.(\w+)", item):
            matrix = self.name(match.group(1))
            return {"blocks": f"nblocks({matrix})", "heads": f"heads({matrix})", "rows": f"size({matrix}, 1)", "cols": f"size({matrix}, 2)"}[match.group(2)]
        for other in self.needed:
            items = self.shapes[other.name].items
            if item not in items:
                continue
            x, at = self.name(other), items.index(item)
            if any("..." in before for before in items[:at]):
                return f"{self.size}({x}, ndims({x}) - {len(items) - 1 - at})"
            return f"following({self.size}({x}), Val({at + 1}))..." if item.endswith("...") else f"{self.size}({x}, {at + 1})"
        raise schema.SchemaError(f"{self.op.where}: {self.op.name}: the size {item} of {a.name} is not that of an input")

    def room(self, a):
        if a.kind == "matrix":
            on = self.shapes[a.name].text[3:]
            matrix = next(m for m in self.needed if m.kind == "matrix" and (m.name == on or self.shapes[m.name].text == f"on {on}"))
            return f"room_for({self.name(matrix)})"
        if self.lists:
            first = f'first_array({self.name(self.lists[0])}, "{self.name(self.lists[0])}")'
            element = f"eltype({first})" if a.dtype == "O" else f"gate_type(eltype({first}))"
            return f"room_beside({first}, {element}, {self.size_of(a)})"
        beside = next((x for x in self.needed if x.kind == "array"), None) or next(x for x in self.needed if x.kind == "matrix")
        return f"room_beside({self.name(beside)}, {self.element(a)}, {self.size_of(a)})"

    # -- parameters --

    def default(self, option):
        if option.kind == "word":
            return ":" + option.default
        if option.kind == "flag":
            return "true" if option.default == "1" else "false"
        if option.kind == "sizes" or option.computed:
            return "nothing"
        if option.kind == "whole":
            return str(int(option.default) + (option.name in POSITIONS))
        return option.default

    def keywords(self, declared=True):
        """The inputs and options that may be left out; with their types in a declaration."""
        for item in self.op.items:
            if item is self.op.count and item is not None:
                continue
            if isinstance(item, schema.Option):
                if item.base:
                    continue
                kind = "::Bool" if item.kind == "flag" and declared else ""
                yield f"{self.name(item)}{kind} = {self.default(item)}"
            elif item is not None and item.use != "out" and item.optional:
                kind = f"::Union{{{CLASSES[item.kind]}, Nothing}}" if item.kind not in ("array", "arrays") and declared else ""
                yield f"{self.name(item)}{kind} = nothing"

    def positional(self, typed=True):
        return [f"{self.name(a)}::{CLASSES[a.kind]}" if typed and a.kind != "arrays" else self.name(a) for a in self.needed]

    def passed(self):
        return [self.name(i) for i in self.op.items if (isinstance(i, schema.Option) and i in self.op.asked) or (isinstance(i, schema.Argument) and i.use != "out" and i.optional)]

    def targets(self, typed=True):
        """What f! writes to, in front of the inputs."""
        if self.is_tuple:
            return ["grads::NamedTuple" if typed else "grads"]
        return [f"{self.name(a)}::{CLASSES[a.kind]}" if typed else self.name(a) for a in self.results]

    def signature(self, targets, typed, more):
        head = ", ".join(targets + self.positional(typed))
        return head, list(self.keywords(typed)) + more


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


# ---- Docstrings ----


def range_words(option):
    """ "0 <= < 1" as "at least 0 and below 1"."""
    if "1099511627776" in option.range:
        return ""  # far beyond what there is
    found, tokens = [], option.range.split()
    for i, token in enumerate(tokens):
        if token not in ("<", "<="):
            continue
        before = tokens[i - 1] if i > 0 and tokens[i - 1] not in ("<", "<=") else None
        after = tokens[i + 1] if i + 1 < len(tokens) and tokens[i + 1] not in ("<", "<=") else None
        if before is not None and (after is None or not found):
            found.append(f"{'above' if token == '<' else 'at least'} {before}")
        elif after is not None:
            found.append(f"{'below' if token == '<' else 'at most'} {after}")
    return " and ".join(found)


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
            limits = range_words(item) if item.name not in POSITIONS else ""
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


# ---- Examples ----

LENGTHS = (8, 5, 4, 3)


class Example:
    """Lines that make the operands of an operation and call it."""

    def __init__(self, f, names, gradient_of):
        self.f, self.names, self.lengths, self.lines = f, names, {}, []
        self.before = names[gradient_of[f.op.name]] if f.op.name in gradient_of else None

    def size(self, shape, shapes):
        while shape.like:
            shape = shapes[shape.like]
        found = []
        for item in shape.items:
            if match := re.fullmatch(r"(\w+)\.(\w+)", item):
                found.append({"blocks": 4, "heads": 1, "rows": 16, "cols": 16}[match.group(2)])
            elif item.isdigit():
                found.append(int(item))
            elif "&" in item or self.f.pointwise:
                found += [8, 5]
            else:
                found.append(self.lengths.setdefault(item, LENGTHS[min(len(self.lengths), len(LENGTHS) - 1)]))
        return found

    def value(self, f, a):
        """An expression for an operand, and what it needs."""
        if a.kind == "matrix":
            if not any(line.startswith("layout") for line in self.lines):
                self.lines.append("layout = pattern(:dense, (16, 16), 8)")
            return "fill_normal!(BlockSparseMatrix{Float64}(layout))"
        if a.kind == "arrays":
            return "[ones(8, 5), ones(5)]"
        if a.kind != "array":
            raise schema.SchemaError(f"{f.op.where}: {f.op.name}: no example of a {a.kind}, write examples/{f.op.name}.jl")
        if a.dtype in ("I", "U8"):
            return f"rand({'1:2' if a.dtype == 'I' else 'Bool'}, {', '.join(map(str, self.size(f.shapes[a.name], f.shapes)))})"
        make = "rand" if a.name in ("x", "a", "b") or a.use == "in" and not a.name.endswith("_grad") else "ones"
        return f"{make}({', '.join(map(str, self.size(f.shapes[a.name], f.shapes)))})"

    def operands(self):
        """The lines for the operands. A gradient gets what its operation gave."""
        f, made = self.f, {}
        if self.before is not None:
            b = self.before
            for a in b.needed:
                made[a.name] = True
                self.lines.append(f"{b.name(a)} = {self.value(b, a)}")
            kept = [a for a in b.outputs if f.op.has(a.name)]
            if kept:
                extra = [a for a in kept if a.optional]
                call = f"{b.path}({', '.join(b.positional(False))}{'; ' if extra else ''}{', '.join(f'return_{b.name(a)} = true' for a in extra)})"
                self.lines.append(f"{', '.join(b.name(a) for a in (b.outputs if extra else kept))} = {call}")
                made.update({a.name: True for a in b.outputs})
        for a in f.needed:
            if a.name in made:
                continue
            value = self.value(f, a)
            if a.name.endswith("_grad") and a.kind == "matrix":
                value = f"fill_normal!(similar({f.name(f.first)}))"
            self.lines.append(f"{f.name(a)} = {value}")


def plain_example(f, names, gradient_of):
    file = EXAMPLES / f"{f.op.name}.jl"
    if file.exists():
        return file.read_text(encoding="utf-8").rstrip().split("\n")
    made = Example(f, names, gradient_of)
    made.operands()
    given = [f"{f.name(a)} = {made.value(f, a)}" for a in f.terms]
    return made.lines + [f"{f.path}({', '.join(f.positional(False))}{'; ' if given else ''}{', '.join(given)})"]


def writing_example(f, names, gradient_of):
    file = EXAMPLES / f"{f.op.name}!.jl"
    if file.exists():
        return file.read_text(encoding="utf-8").rstrip().split("\n")
    made = Example(f, names, gradient_of)
    made.operands()
    if f.is_tuple:
        first = f.outputs[0]
        like = f.of(first) or f.shapes[first.name].like
        targets = [f"({f.field(first)} = similar({f.name(like)}),)"]
    else:
        first = f.results[0] if f.results else f.updated[0]
        needed = [x for x in f.needed if x.name in first.may_be]
        if not f.results:
            targets = []
        elif len(f.results) == 1 and needed and not f.op.kind.startswith("point2"):
            targets = [f.name(needed[0])]
        elif first.kind == "matrix":
            targets = [f"similar({f.name(f.first)})"]
        else:
            targets = [f"zeros({', '.join(map(str, made.size(f.shapes[a.name], f.shapes)))})" for a in f.results]
    return made.lines + [f"{f.path}!({', '.join(targets + f.positional(False))})"]


# ---- Rules ----


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


# ---- Files ----


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


def functions_file(functions, gradient_of):
    names = {f.op.name: f for f in functions}
    yield HEAD
    for f in functions:
        yield from table_row(f)
    yield from broken("const OPERATIONS = [", [f.constant for f in functions], "]")
    exported = []
    for place in ("Tartan", "Pointwise"):
        if place == "Pointwise":
            yield "\n" + POINTWISE
            yield from broken("using ..Tartan: ", [f.constant for f in functions if f.pointwise], "")
        for f in functions:
            if f.pointwise != (place == "Pointwise"):
                continue
            if not f.updated:
                yield ""
                yield from plain_docs(f, names, gradient_of)
                yield from plain_function(f)
                if f.op.gradient:
                    yield from tracked_function(f)
                if f.terms:
                    yield from terms_function(f)
                exported.append(f.op.name)
            yield ""
            yield from writing_docs(f, names, gradient_of)
            yield from writing_function(f)
            exported.append(f.op.name + "!")
        if place == "Tartan":
            yield ""
            yield from broken("export ", exported, "")
    yield "\nend # module Pointwise"


POINTWISE = '''"""
Functions of each number of arrays, and their gradients: `Tartan.Pointwise.exp(x)`. Of two arrays, dimensions of length 1 and
those that are missing at the end are repeated. Element types are `Float64`, `Float32`, `Float16` and `BFloat16`. Numbers of 16
bits are computed with in `Float32` and rounded once, or not at all if the result is `Float32`. Bits do not depend on the number
of threads.
"""
module Pointwise

using ..Tartan: Dense, Tracked, broadcast_size, call_context, dense_input, dense_output, gradients_of, in_order_of_c, options_text,
                real_option, record_operation, room_beside, run_operation'''


def rules_file(functions, gradient_of):
    names = {f.op.name: f for f in functions}
    yield HEAD
    for f in functions:
        if f.op.gradient:
            yield from rule(f, names[f.op.gradient])
            yield ""


WRITERS = {"operations_generated.jl": functions_file, "operation_rules.jl": rules_file}


def main():
    every = schema.load()
    ops = [op for op in every if not op.by_hand and not op.wrapped]
    names = {op.name: op for op in ops}
    gradient_of = {op.gradient: op.name for op in ops if op.gradient}
    functions = [Function(op, names.get(op.gradient), any(o.gradient == op.name for o in every)) for op in ops]
    for path in map(pathlib.Path, sys.argv[2:]):
        path.write_text("\n".join(WRITERS[path.name](functions, gradient_of)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except schema.SchemaError as error:
        sys.exit(f"schema: {error}")
