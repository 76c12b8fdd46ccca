# SPDX-License-Identifier: Apache-2.0
"""generate.py SCHEMA_DIR EXAMPLES_DIR STAGED: adds the operations of the schema to the staged R package.

    R/operations.R   a function for each operation, and .operations, which says what each takes
    NAMESPACE        their exports
    man/<op>.Rd      a page for each operation and its gradient; one for all element-wise functions

Examples come from EXAMPLES_DIR/<op>.R or, where there are none, are made from the shapes of the operands. generator/ has a module for
each kind of text.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
from generator.code import code, wrapped  # noqa: E402
from generator.help import elementwise_page, page  # noqa: E402
from generator.names import ELEMENTWISE, name_of  # noqa: E402


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
