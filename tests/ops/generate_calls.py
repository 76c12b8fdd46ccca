# SPDX-License-Identifier: Apache-2.0
"""generate_calls.py SCHEMA_FOLDER FILE: for tests, a table of functions that call those of operations.h with a list of arguments."""
import pathlib
import sys

sys.path.insert(0, sys.argv[1])
import c_functions  # noqa: E402
import schema  # noqa: E402

HEAD = """// Written by tests/ops/generate_calls.py.
#include "ops/call.h"
#include "tartan/operations.h"

using operation_call = tartan_status (*)(tartan_context *context, void *const *a, const tartan_i_positional *numbers, const char *options);
static const operation_call operation_calls[] = {"""


def values(op):
    """What each argument of the C function is, in its order."""
    places = {a.name: i for i, a in enumerate(op.arguments)}
    positional = {o.name: i for i, o in enumerate(o for o in op.options if o.positional)}
    for declaration, name in c_functions.parameters(op):
        if name in places:
            yield f"({declaration.removesuffix(name).strip()})a[{places[name]}]"
        elif name in positional:
            member = {"real": "number", "whole": "whole", "sizes": "sizes.data", "windows": "text"}[op[name].kind]
            yield f"numbers[{positional[name]}].{member}"
        elif name == "options":
            yield "options"
        else:
            yield f"numbers[{positional[name.removeprefix('n')]}].sizes.count"


def lines():
    yield HEAD
    for op in schema.load():
        if op.by_hand:
            continue
        given = ", ".join(values(op))
        yield "    [](tartan_context *context, void *const *a, const tartan_i_positional *numbers, const char *options) -> tartan_status {"
        yield "        (void)numbers, (void)options;"
        if c_functions.is_wide(op):
            yield f"        const tartan_{op.name}_arguments all = {{{given}}};"
            yield f"        return tartan_{op.name}(context, &all);"
        else:
            yield f"        return tartan_{op.name}(context, {given});"
        yield "    },"
    yield "};"


pathlib.Path(sys.argv[2]).write_text("\n".join(lines()) + "\n", encoding="utf-8")
