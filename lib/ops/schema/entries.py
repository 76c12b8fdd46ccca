# SPDX-License-Identifier: Apache-2.0
"""Entries of the schema, OP and BY_HAND, as operations; whatever does not fit is refused."""

import re

from model import Argument, Operand, Operation, Option
from notation import Call, SchemaError, Text

USES = {"IN": ("in", False), "IN_OPT": ("in", True), "OUT": ("out", False), "OUT_OPT": ("out", True), "UPDATE": ("update", False), "UPDATE_OPT": ("update", True)}
KINDS = {"ARRAY", "ARRAYS", "MATRIX", "LAYOUT", "MASK", "CONV"}
DTYPES = {"T", "P", "O", "S", "L", "M", "C", "R", "F64", "U8", "I", "NONE"}
CASTS = ("same", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")  # in the order of the library's numbers
TEXTS = {"FORMULA": "formula", "DETAILS": "details", "SOURCE": "source", "GRADIENT": "gradient", "SHAPES": "shapes", "CHECK": "check", "END": "end",
         "BENCH": "bench", "FLOPS": "flops"}  # fmt: skip

MOST_ARRAYS = 8  # of a list; TARTAN_I_MAX_PAIRS


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
