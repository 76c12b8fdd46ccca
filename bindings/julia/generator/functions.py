# SPDX-License-Identifier: Apache-2.0
"""The functions f and f! of an operation: their arguments, and the sizes and types of their results."""

import re

import schema

from .texts import CLASSES, POSITIONS, RENAMED, in_julia


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
