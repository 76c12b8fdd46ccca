# SPDX-License-Identifier: Apache-2.0
"""Examples of help pages: from bindings/r/examples or, where there are none, made from the shapes of the operands."""

from .names import is_returned, items_of, name_of, renamed, result_name

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
