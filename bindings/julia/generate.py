# SPDX-License-Identifier: Apache-2.0
"""generate.py SCHEMA_FOLDER FILE...: writes what Julia takes from the schema of operations, each file by its name.

    operations_generated.jl    the table of operations, and a function f and one f! for each, with docstrings
    operation_rules.jl         the rules of ChainRulesCore (ext/chain_rules.jl includes it)

Sizes are in Julia's order: the [lines..., n] of the schema is (n, lines...). Of a fixed number of dimensions the last ones may be left
out if they are 1. Element-wise functions go to the module Pointwise, since Base has some of their names. generator/ has a module for each
kind of text.
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import schema  # noqa: E402
from generator.code import plain_function, table_row, terms_function, tracked_function, writing_function  # noqa: E402
from generator.docstrings import plain_docs, writing_docs  # noqa: E402
from generator.functions import Function  # noqa: E402
from generator.rules import rule  # noqa: E402
from generator.texts import broken  # noqa: E402

HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Written by bindings/julia/generate.py from lib/ops/schema. Not to be edited.\n"


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
