# SPDX-License-Identifier: Apache-2.0
"""The schema: what every operation is, read from the .def files beside this one.

An entry reads like a call in C. Adjacent strings are joined; commas between items may be left out.

    OP(layer_norm, "Layer normalisation along the last axis.",
       FORMULA("y = (x - mean) rstd gain + bias")
       IN(x, ARRAY, T, "[lines..., n]", "the input")
       IN_OPT(gain, ARRAY, S, "[n]", "the factor of each position of a line; 1 if left out")
       REAL(epsilon, 1e-5, "0 <=", "added to the variance")
       OUT(y, ARRAY, O, "=x", "the result", MAY_BE(x))
       OUT_OPT(stats, ARRAY, S, "[lines..., 2]", "mean and rstd of each line")
       FLOPS(8 * elements(x))
       GRADIENT(layer_norm_gradient))

Items, in the order of the arguments of the C function:

    IN IN_OPT OUT OUT_OPT UPDATE UPDATE_OPT (name, kind, dtype, shape, help, MAY_BE(inputs)..., OLD(inputs and options)...)
        kind    ARRAY MATRIX LAYOUT MASK CONV, or ARRAYS: an IN, IN_OPT or UPDATE of as many arrays as COUNT says, consecutive in memory
        dtype   T    f64, f32, f16 or bf16; the first T of an entry decides, the others have the same. For ARRAYS of any number, the first
                     list of T decides, element by element, for the other lists
                P    of a product: like T, or an 8-bit type
                O    of a result: T, or f32 if T has 16 bits; f32, f16 or bf16 if it has 8
                S    of sums: f64 if T is, else f32
                L    of another operand: a type whose sums are of S
                C    of a cast: a floating-point type. The first option that is a word names it for new results; "same" means T
                M    of moments: like L, or float8_e4m3fn if sums are of f32
                R    f32 or f64
                F64 U8 NONE (layouts, masks and convolutions)
                I    whole numbers, such as indices: U8, I32 or I64. Languages convert other integer types. New results are I64, in R I32
        shape   of an array, "[n, lines..., 2]": names stand for sizes, which their first use binds; `lines...` is any number of
                dimensions; `w.blocks w.rows w.cols w.heads` are sizes of a matrix or layout; `a... & b...` is the broadcast shape of a...
                and b...; "=x" is the shape of x, for lists element by element; "[a] or [b, a]" are alternatives, told apart by their
                numbers of dimensions; "any"; "{[n, out...]}" is a shape that SHAPES computes, where the braces hold words for people. If the
                words for a result are sizes of inputs and options that are whole numbers, Julia allocates the result by them.
                Of a matrix or mask, "on w": it has the layout of w (a matrix, a layout, or a convolution with its layout of filters), or an
                equal one; "any".
        MAY_BE  the inputs whose memory the output may use, with the same dtype and strides
        OLD     of an output: the optional inputs, flags and numbers with which the operation uses the old values. If one of them is given,
                or is not 0, languages create a new output as zeros
    REAL(name, default, range, help)   an option: a number; range: "", "0 <", "0 <=", "<= 1", "0 <= < 1". A default in quotes describes what
                                       CHECK substitutes: it finds NaN if the option is not given. Languages use None, NULL and nothing
    WHOLE(name, default, range, help)  an option: a whole number
    FLAG(name, default, help)          an option: 0 or 1; the default 0 may be left out. The help says what 1 does
    WORD(name, default, (words), help) an option: one of the words; in C TARTAN_I_<OP>_<NAME>_<WORD>
    BASE()                             an option called base: the number of the first element that arrays of I count, 0 or 1. Languages do
                                       not show it: R and Julia pass 1, Python 0, so indices are as in the language,
                                       and no array is copied
    LENGTHS(name, help)                an option: a list of whole numbers
    SIZES(name, help)                  an argument: the same
    WINDOWS(name, help)                an argument: a text that describes windows of images (tartan/windows.h), or NULL. As an option it
                                       is in brackets: windows=(size=16x16 stride=8x8)
    NUMBER(name, default, range, help) an argument: a number
    COUNT(name, most, help)            an argument: the number of arrays in each of the ARRAYS, 1 or more; `most` is at most 8, or 0 for any number
    OPTIONS()                          the position of the text of options in the C function; by default before the first output
    FLOPS(expression)                  useful floating-point operations; elements(x) is a number of elements, stored(w) the stored elements
                                       of a matrix
    FORMULA(text), DETAILS(text), SOURCE(text)   further parts of the help
    GRADIENT(operation)                the operation that computes the gradients (see below)
    SHAPES(function)                   computes the shapes in braces, which named sizes cannot express, for checks and for tartan_op_infer:
                                       tartan_status function(const tartan_op *, int32_t argument, tartan_array *shape). The struct has
                                       the options, all inputs and the outputs of the call, but KEEPS are not set yet. `argument` is
                                       TARTAN_I_<OP>_ARGUMENT_<NAME>. On entry, `shape` is the shape of the argument (so a function may leave
                                       lengths unchanged), or has no dimensions if tartan_op_infer asks for an output. The
                                       function sets ndim and shape. For ARRAYS, `shape` is a list; for ARRAYS of any number it is one array, whose
                                       position is passed as strides[0]. The function refuses operands for which no shape fits
    CHECK(function)                    checks that rows cannot express: tartan_status function(tartan_op *, const tartan_context *), after all
                                       other checks; END(function) undoes it after the call
    KEEPS(type, name)                  a member of the struct that CHECK fills
    RUNS(function)                     runs an operation that is composed of others: tartan_status function(const tartan_op *, tartan_context *)
                                       makes the remaining checks and runs them. Without CHECK and KEEPS. If the entry has FLOPS, a backend may
                                       also have the operation itself, for operands that it supports, and then runs that
    STAYS(w)                           matrix w may not have a dynamic layout
    VARIABLE(w, ...)                   blocks of these matrices and layouts may differ in size; blocks of all others may not
    AS(operation)                      CHECK converts the entry's struct to the struct of this operation, which is written by hand, and backends
                                       run that
    WRAPPED()                          languages have functions written by hand for it, because a generated one would not be idiomatic
    BENCH("lines... M, n K")           sizes in `tartan bench`, where M, K and N are options; "blocks" if all operands are matrices of M x K.
                                       Without it the entry adds no line to the bench

The arguments of a gradient are named after those of its operation: `y_grad` is the input for an output y, and `x_grad` the output for an
input x. Every other argument is an input or an output of the operation, which must therefore be kept. Its options have the
names of the operation's options.

    BY_HAND(name, operands...)
        an operation whose checks and public functions are written by hand in lib/ops, or that other operations use internally. An operand
        is READS, WRITES or WRITES_IF (kind, name, member, expression), where kind may also be LIST or ARRAYS (the expression is its length), and
        member is its member of the struct. A name that depends on the call is NAMED(member).
    POINT1(name, help, value, gradient)             rows of lib/kernels/points.def (see there), each of which makes two operations
    POINT1_WITH(name, (parameters), help, value, gradient)
    POINT2(name, help, value, gradient of a, gradient of b)
"""

import dataclasses
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
POINTS = HERE.parent.parent / "kernels" / "points.def"


class SchemaError(Exception):
    pass


# ---- The notation ----


@dataclasses.dataclass
class Call:
    name: str
    arguments: list  # of Call, str, Text or tuple
    where: str


class Text(str):
    """A string literal, unlike a word."""


TOKEN = re.compile(r'\s+|#(?:[^\n\\]|\\.)*|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_][\w.]*|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign>.)', re.S)


def tokens_of(path):
    """(kind, token, position) without blanks, comments and lines of the preprocessor."""
    source = path.read_text(encoding="utf-8")
    for match in TOKEN.finditer(source):
        if match.lastgroup is not None:
            yield match.lastgroup, match.group(), match.start()
    yield "end", "", len(source)


# Items whose arguments are expressions of C, kept as they are written.
EXPRESSIONS = {"FLOPS": (0,), "READS": (2, 3), "WRITES": (2, 3), "WRITES_IF": (2, 3), "NAMED": (0,), "POINT1": (2, 3), "POINT1_WITH": (3, 4), "POINT2": (2, 3, 4)}


class Reader:
    def __init__(self, path):
        self.path, self.source = path, path.read_text(encoding="utf-8")
        self.tokens = list(tokens_of(path))
        self.at = 0

    def where(self):
        return f"{self.path.name}:{self.source.count(chr(10), 0, self.tokens[self.at][2]) + 1}"

    def fail(self, text):
        raise SchemaError(f"{self.where()}: {text}")

    def take(self, sign=None):
        kind, token, _ = self.tokens[self.at]
        if sign is not None and token != sign:
            self.fail(f"'{token}', expected '{sign}'")
        self.at += 1
        return kind, token

    def peek(self):
        return self.tokens[self.at][1]

    def expression(self):
        """The source up to the comma or bracket that ends it."""
        begin, depth = self.tokens[self.at][2], 0
        while depth > 0 or self.peek() not in (",", ")"):
            if self.tokens[self.at][0] == "end":
                self.fail("the file ends in an expression")
            depth += {"(": 1, ")": -1}.get(self.peek(), 0)
            self.at += 1
        return " ".join(self.source[begin : self.tokens[self.at][2]].split())

    def call(self):
        where = self.where()
        kind, name = self.take()
        if kind != "word":
            self.fail(f"'{name}', expected the name of an entry")
        self.take("(")
        arguments = []
        while self.peek() != ")":
            if len(arguments) in EXPRESSIONS.get(name, ()):
                arguments.append(self.expression())
            else:
                arguments.append(self.argument())
            if self.peek() == ",":
                self.take()
        self.take(")")
        return Call(name, arguments, where)

    def argument(self):
        kind, token = self.tokens[self.at][:2]
        if kind == "text":
            text = ""
            while self.tokens[self.at][0] == "text":
                text += self.take()[1][1:-1].replace('\\"', '"')
            return Text(text)
        if token == "(":
            self.take()
            words = []
            while self.peek() != ")":
                words.append(self.argument())
                if self.peek() == ",":
                    self.take()
            self.take(")")
            return tuple(words)
        if kind != "word":
            self.fail(f"'{token}' is no argument")
        if self.tokens[self.at + 1][1] == "(":
            return self.call()
        return self.take()[1]

    def calls(self):
        while self.tokens[self.at][0] != "end":
            yield self.call()


# ---- What an operation is ----


@dataclasses.dataclass
class Argument:
    """An operand."""

    name: str
    use: str  # in, out, update
    optional: bool
    kind: str  # array, arrays, matrix, layout, mask, conv
    dtype: str  # T P O S L R F64 U8 I NONE
    shape: str
    help: str
    may_be: list = dataclasses.field(default_factory=list)
    stays: bool = False
    variable: bool = False
    computed: bool = False  # the shape, by SHAPES; `shape` are words for people
    old: list = dataclasses.field(default_factory=list)

    @property
    def written(self):
        return self.use != "in"


@dataclasses.dataclass
class Option:
    """An option of the text; with `positional`, an argument of its own: a NUMBER, SIZES, WINDOWS or, of whole numbers, the COUNT."""

    name: str
    kind: str  # real, whole, flag, word, sizes, windows
    default: str
    range: str
    help: str
    words: tuple = ()
    positional: bool = False
    computed: bool = False  # the default is what CHECK makes of the operands, and `default` says what
    most: int = 0  # of a COUNT; 0: any number
    base: bool = False  # what the first index is called; languages give it by themselves


@dataclasses.dataclass
class Operand:
    """What an operation written by hand reads or writes."""

    name: str
    kind: str
    member: str
    written: str  # an expression of C
    length: str = ""
    named: bool = False  # `name` is a member


@dataclasses.dataclass
class Operation:
    name: str
    help: str
    where: str
    kind: str  # the struct of the backends; several operations may share one
    row: int = 0  # which of these it is
    converted: bool = False  # CHECK makes the struct of `kind` from one of its own
    runs: str = ""  # the function that runs it where there is no kind, or backends do not have it
    by_hand: bool = False
    wrapped: bool = False
    items: list = dataclasses.field(default_factory=list)  # arguments and options in order; OPTIONS is None
    operands: list = dataclasses.field(default_factory=list)
    keeps: list = dataclasses.field(default_factory=list)
    flops: str = ""
    formula: str = ""
    details: str = ""
    source: str = ""
    gradient: str = ""
    shapes: str = ""
    check: str = ""
    end: str = ""
    bench: str = ""

    @property
    def struct(self):
        """What its arguments are read into."""
        return self.name if self.converted or self.runs else self.kind

    @property
    def arguments(self):
        return [i for i in self.items if isinstance(i, Argument)]

    @property
    def options(self):
        return [i for i in self.items if isinstance(i, Option)]

    @property
    def count(self):
        """Of the arrays of lists; None: there are none."""
        return next((o for o in self.options if o.positional and o.kind == "whole"), None)

    @property
    def any_number(self):
        """Whether lists may have any number of arrays."""
        return self.count is not None and self.count.most == 0

    @property
    def text_options(self):
        return [i for i in self.options if not i.positional]

    @property
    def asked(self):
        """The options that languages have: they know by themselves from where they count, and how many arrays lists have."""
        return [o for o in self.options if not o.base and o is not self.count]

    @property
    def base(self):
        """Whether it has indices that count from 0 or 1."""
        return any(o.base for o in self.options)

    @property
    def inputs(self):
        return [a for a in self.arguments if a.use != "out"]

    @property
    def outputs(self):
        return [a for a in self.arguments if a.written]

    def __getitem__(self, name):
        for item in self.items:
            if item is not None and item.name == name:
                return item
        raise KeyError(name)

    def has(self, name):
        return any(item is not None and item.name == name for item in self.items)


USES = {"IN": ("in", False), "IN_OPT": ("in", True), "OUT": ("out", False), "OUT_OPT": ("out", True), "UPDATE": ("update", False), "UPDATE_OPT": ("update", True)}
KINDS = {"ARRAY", "ARRAYS", "MATRIX", "LAYOUT", "MASK", "CONV"}
DTYPES = {"T", "P", "O", "S", "L", "M", "C", "R", "F64", "U8", "I", "NONE"}
CASTS = ("same", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")  # in the order of the library's numbers
TEXTS = {"FORMULA": "formula", "DETAILS": "details", "SOURCE": "source", "GRADIENT": "gradient", "SHAPES": "shapes", "CHECK": "check", "END": "end",
         "BENCH": "bench", "FLOPS": "flops"}  # fmt: skip


MOST_ARRAYS = 8  # of a list; TARTAN_I_MAX_PAIRS
MOST_PARAMETERS = 4  # of an element-wise function; TARTAN_I_POINT_PARAMETERS


def need(condition, call, text):
    if not condition:
        raise SchemaError(f"{call.where}: {call.name}: {text}")


def argument_of(call):
    need(len(call.arguments) >= 5, call, "expected name, kind, dtype, shape and help")
    name, kind, dtype, shape, help_text = call.arguments[:5]
    use, optional = USES[call.name]
    need(kind in KINDS, call, f"the kind {kind} is none of {sorted(KINDS)}")
    need(dtype in DTYPES, call, f"the dtype {dtype} is none of {sorted(DTYPES)}")
    need(isinstance(help_text, Text) and help_text, call, "the help is missing")
    computed = shape.startswith("{")
    need(not computed or (kind in ("ARRAY", "ARRAYS") and shape.endswith("}")), call, f"{name} is {shape}, expected an array, and words in braces")
    found = Argument(name, use, optional, kind.lower(), dtype, shape.strip("{}") if computed else str(shape), str(help_text), computed=computed)
    for extra in call.arguments[5:]:
        need(isinstance(extra, Call) and extra.name in ("MAY_BE", "OLD"), extra, "is unknown here")
        (found.may_be if extra.name == "MAY_BE" else found.old).extend(extra.arguments)
    return found


def option_of(call):
    a = call.arguments
    if call.name in ("REAL", "WHOLE"):
        need(len(a) == 4, call, "expected name, default, range and help")
        return Option(a[0], call.name.lower(), a[1], str(a[2]), str(a[3]), computed=isinstance(a[1], Text))
    if call.name == "FLAG":
        need(len(a) == 2 or len(a) == 3 and a[1] in ("0", "1"), call, "expected name, perhaps 0 or 1, and help")
        return Option(a[0], "flag", a[1] if len(a) == 3 else "0", "", str(a[-1]))
    if call.name == "WORD":
        need(len(a) == 4 and a[1] in a[2], call, "expected name, default, words and help")
        return Option(a[0], "word", a[1], "", str(a[3]), a[2])
    if call.name in ("SIZES", "LENGTHS", "WINDOWS"):
        need(len(a) == 2, call, "expected name and help")
        kind = "windows" if call.name == "WINDOWS" else "sizes"
        return Option(a[0], kind, "", "", str(a[1]), positional=call.name != "LENGTHS")
    if call.name == "COUNT":
        need(len(a) == 3 and a[1].isdigit() and int(a[1]) <= MOST_ARRAYS, call, f"expected name, a number up to {MOST_ARRAYS}, and help")
        most = int(a[1])
        return Option(a[0], "whole", "1", f"1 <= <= {most}" if most else "1 <=", str(a[2]), positional=True, most=most)
    need(len(a) == 4, call, "expected name, default, range and help")
    return Option(a[0], "real", a[1], str(a[2]), str(a[3]), positional=True)


def operation_of(call):
    name, help_text = call.arguments[:2]
    need(isinstance(help_text, Text), call, "the help is missing")
    op = Operation(name, str(help_text), call.where, kind=name)
    for item in call.arguments[2:]:
        need(isinstance(item, Call), call, f"{item} is no item")
        if item.name in USES:
            op.items.append(argument_of(item))
        elif item.name in ("REAL", "WHOLE", "FLAG", "WORD", "SIZES", "LENGTHS", "WINDOWS", "NUMBER", "COUNT"):
            op.items.append(option_of(item))
        elif item.name == "BASE":
            op.items.append(Option("base", "whole", "0", "0 <= <= 1", "the number of the first index", base=True))
        elif item.name == "OPTIONS":
            op.items.append(None)
        elif item.name == "KEEPS":
            op.keeps.append(tuple(item.arguments))
        elif item.name == "RUNS":
            op.runs = item.arguments[0]
        elif item.name == "AS":
            op.kind, op.converted = item.arguments[0], True
        elif item.name == "WRAPPED":
            op.wrapped = True
        elif item.name == "STAYS":
            for one in item.arguments:
                op[one].stays = True
        elif item.name == "VARIABLE":
            for one in item.arguments:
                op[one].variable = True
        elif item.name in TEXTS:
            setattr(op, TEXTS[item.name], str(item.arguments[0]))
        else:
            need(False, item, "is no item of an operation")
    if op.runs and not op.flops:
        op.kind = ""
    finish(op, call)
    return op


def finish(op, call):
    """Puts the text of options before the first output unless the entry says where, and checks names."""
    names = [i.name for i in op.items if i is not None]
    need(len(names) == len(set(names)), call, "a name is there twice")
    if op.text_options and None not in op.items:
        first = next((i for i, item in enumerate(op.items) if isinstance(item, Argument) and item.use == "out"), len(op.items))
        op.items.insert(first, None)
    for a in op.arguments:
        for other in a.may_be:
            need(a.written and op.has(other) and not op[other].written, call, f"{a.name} may not be {other}")
        for other in a.old:
            counts = op.has(other) and (op[other].optional if isinstance(op[other], Argument) else op[other].kind in ("flag", "real"))
            need(a.use == "out" and counts, call, f"old values of {a.name} can't depend on {other}, expected an optional input, a flag or a number")
    lists = [a for a in op.arguments if a.kind == "arrays"]
    need(bool(lists) == (op.count is not None), call, "expected a COUNT and ARRAYS, or neither")
    places = {a.name for a in lists}
    for a in lists:
        like = a.shape.startswith("=") and a.shape[1:] in places
        need(a.computed or a.shape == "any" or like, call, f"the shapes of {a.name} are {a.shape}, expected computed ones, any, or those of a list")
        if op.any_number:
            need(a.use != "out" and not a.may_be, call, f"{a.name} are arrays of any number, expected IN, IN_OPT or UPDATE, and no MAY_BE")
        else:
            need(a.use == "in" and not a.optional and not like and len(lists) <= 2, call, f"{a.name} are ARRAYS, expected IN, and up to two of them")
    check_order(op, call)


def check_order(op, call):
    """Arguments are checked in their order, so each is described by those before it."""
    before, sizes, t = {}, set(), False
    need(any(a.computed for a in op.arguments) == bool(op.shapes), call, "expected SHAPES and shapes in braces, or neither")
    need(op.check or not op.converted, call, f"expected CHECK, which makes {op.kind} of it")
    need(not op.runs or not (op.check or op.keeps or op.converted), call, "expected RUNS without CHECK, KEEPS and AS")
    words = next((o.words for o in op.options if o.kind == "word"), ())
    need(tuple(words) == CASTS or not any(a.dtype == "C" for a in op.arguments), call, f"expected the words {', '.join(CASTS)} of the dtype of C")
    need(not op.base or any(a.dtype == "I" for a in op.arguments), call, "expected an argument of I, whose BASE it is")
    sure = any(a.dtype in ("T", "P") and not a.optional for a in op.arguments)
    for a in op.arguments:
        need(a.dtype not in ("O", "S", "L", "M") or t, call, f"{a.name} is of {a.dtype}, expected an argument of T before it")
        need(a.dtype not in ("T", "P") or sure, call, f"all arguments of {a.dtype} may be left out, as {a.name} may")
        need(a.dtype != "U8" or not a.written, call, f"{a.name} is of bytes, expected an input")
        t = t or (a.dtype in ("T", "P") and not a.optional)
        for name in re.findall(r"^=(\w+)|^on (\w+)", a.shape):
            name = name[0] or name[1]
            need(name in before, call, f"{a.name} is {a.shape}, expected an argument before it")
            need(not a.shape.startswith("on") or not before[name].optional, call, f"{a.name} is {a.shape}, which may be left out")
        if a.kind == "array" and not a.computed and not a.shape.startswith("="):
            for name in re.findall(r"(\w+)\.(?:blocks|rows|cols|heads)\b", a.shape):
                need(name in before and not before[name].optional, call, f"{a.name} has sizes of {name}, expected an argument before it that is always given")
            for pair in re.findall(r"(\w+\.\.\.) & (\w+\.\.\.)", a.shape):
                need(sizes.issuperset(pair), call, f"{a.name} has {' & '.join(pair)}, expected both in shapes before it")
            sizes.update(re.findall(r"\w+\.\.\.", a.shape))
        before[a.name] = a


def by_hand(call):
    op = Operation(call.arguments[0], "", call.where, kind=call.arguments[0], by_hand=True)
    for item in call.arguments[1:]:
        if isinstance(item, Call) and item.name == "FLOPS":
            op.flops = item.arguments[0]
            continue
        need(isinstance(item, Call) and item.name in ("READS", "WRITES", "WRITES_IF"), call, "expected READS, WRITES or WRITES_IF")
        kind, name, member = item.arguments[:3]
        extra = str(item.arguments[3]) if len(item.arguments) > 3 else ""
        written = {"READS": "false", "WRITES": "true"}.get(item.name, extra)
        named = isinstance(name, Call)
        op.operands.append(Operand(str(name.arguments[0] if named else name), kind.lower(), str(member), written, extra, named))
    return op


# ---- Rows of element-wise functions ----


def point_gradient(op, kind, needs, wrt):
    """The gradient of a row: `needs` are the operands that its expressions read, `wrt` its inputs."""
    grad = Operation(op.name + "_gradient", f"The gradient of `{op.name}`.", op.where, kind=kind, row=op.row)
    for name in needs:
        a = op[name]
        grad.items.append(Argument(name, "in", False, "array", "T" if a.use == "in" else "L", a.shape, a.help))
    out = op["y"]
    grad.items.append(Argument("y_grad", "in", False, "array", "L" if needs else "T", "[s...]" if not needs else out.shape, "the gradient with respect to y"))
    grad.items += [dataclasses.replace(o) for o in op.options]
    return grad


def mentions(expression, name):
    return re.search(rf"\b{name}\b", expression) is not None


def point1(call, row, parameters=()):
    a = call.arguments
    name, help_text, value, slope = a[0], a[-3], a[-2], a[-1]
    op = Operation(name, str(help_text), call.where, kind="point1", row=row, flops="elements(y)", bench="s... MxK")
    op.items = [Argument("x", "in", False, "array", "T", "[s...]", "the input")]
    op.items += parameters
    op.items.append(Argument("y", "out", False, "array", "O", "=x", "the result", ["x"]))
    op.gradient = name + "_gradient"
    needs = [n for n in ("x", "y") if mentions(slope, n)]
    grad = point_gradient(op, "point1_gradient", needs, ["x"])
    if needs == ["y"]:
        grad["y"].dtype, grad["y"].shape, grad["y_grad"].shape = "T", "[s...]", "=y"
    elif "y" in needs:
        grad["y"].shape = "=x"
    if "x" in needs:
        grad["y_grad"].shape = "=x"
    first = needs[0] if needs else "y_grad"
    grad.items.append(Argument("x_grad", "out", False, "array", "L", "=" + first, "the gradient with respect to x", needs + ["y_grad"]))
    grad.flops, grad.bench = "2 * elements(x_grad)", op.bench
    for one in (op, grad):
        finish(one, call)
    return [op, grad]


def point2(call, row):
    name, help_text, value, of_a, of_b = call.arguments
    op = Operation(name, str(help_text), call.where, kind="point2", row=row, flops="elements(y)", bench="s... MxK, t... MxK")
    op.items = [
        Argument("a", "in", False, "array", "T", "[s...]", "the first operand"),
        Argument("b", "in", False, "array", "L", "[t...]", "the second operand; dimensions of length 1, and those that are missing on the left, are repeated"),
        Argument("y", "out", False, "array", "O", "[s... & t...]", "the result", ["a", "b"]),
    ]  # fmt: skip
    op.gradient = name + "_gradient"
    both = of_a + " " + of_b
    grad = Operation(name + "_gradient", f"The gradients of `{name}`, each summed over the dimensions that were repeated.", call.where, kind="point2_gradient", row=row)
    grad.items = [dataclasses.replace(op["a"]), dataclasses.replace(op["b"])]
    if mentions(both, "y"):
        grad.items.append(Argument("y", "in", False, "array", "L", "[s... & t...]", "the result"))
    grad.items += [
        Argument("y_grad", "in", False, "array", "L", "[s... & t...]", "the gradient with respect to y"),
        Argument("a_grad", "out", True, "array", "L", "=a", "the gradient with respect to a"),
        Argument("b_grad", "out", True, "array", "L", "=b", "the gradient with respect to b"),
    ]
    grad.flops, grad.bench = "4 * elements(y_grad)", op.bench
    for one in (op, grad):
        finish(one, call)
    return [op, grad]


def points(path):
    rows = {"POINT1": 0, "POINT2": 0}
    for call in Reader(path).calls():
        table = call.name.partition("_")[0]
        need(table in rows, call, "is no row of element-wise functions")
        row = rows[table]
        rows[table] += 1
        if call.name == "POINT1_WITH":
            given = call.arguments[1]
            fits = isinstance(given, tuple) and all(isinstance(one, Call) and one.name in ("REAL", "FLAG") for one in given)
            need(fits and 1 <= len(given) <= MOST_PARAMETERS, call, f"expected 1 to {MOST_PARAMETERS} parameters, REAL or FLAG, in brackets")
            yield from point1(call, row, [option_of(one) for one in given])
        else:
            yield from point1(call, row) if table == "POINT1" else point2(call, row)


def load(folder=HERE, points_file=POINTS):
    """All operations, in the order of the files' names and of their entries."""
    found = []
    for path in sorted(folder.glob("*.def")):
        for call in Reader(path).calls():
            need(call.name in ("OP", "BY_HAND"), call, "expected OP or BY_HAND")
            found.append(operation_of(call) if call.name == "OP" else by_hand(call))
    found += points(points_file)
    names = {}
    for op in found:
        if op.name in names:
            raise SchemaError(f"{op.where}: {op.name} is there twice ({names[op.name].where})")
        names[op.name] = op
    for op in found:
        if op.converted and not (op.kind in names and names[op.kind].by_hand):
            raise SchemaError(f"{op.where}: {op.name} is run as {op.kind}, which is no operation by hand")
        if op.gradient and op.gradient not in names:
            raise SchemaError(f"{op.where}: the gradient {op.gradient} of {op.name} is no operation")
    return found
