# SPDX-License-Identifier: Apache-2.0
"""Types, structs and names of C that several of the generated files use."""

import json

import schema

HEAD = "/* SPDX-License-Identifier: Apache-2.0\n * Written by lib/ops/schema/generate_c.py. */\n"
WIDTH = 118

TYPES = {"array": "tartan_array", "arrays": "tartan_array", "matrix": "tartan_matrix", "layout": "tartan_layout", "mask": "tartan_block_mask", "conv": "tartan_conv"}
OPTION_TYPES = {"real": "double", "whole": "int64_t", "flag": "bool", "word": "int32_t", "sizes": "tartan_i_sizes", "windows": "tartan_i_windows"}

# Structs that many operations share: their operands, which of them are written. lib/backend/operation.h has the structs.
SHARED = {
    "point1": [("x", False), ("y", True)],
    "point1_gradient": [("x", False), ("y", False), ("y_grad", False), ("x_grad", True)],
    "point2": [("a", False), ("b", False), ("y", True)],
    "point2_gradient": [("a", False), ("b", False), ("y", False), ("y_grad", False), ("a_grad", True), ("b_grad", True)],
}


def quoted(text):
    return json.dumps(text, ensure_ascii=False)


def member_of(op, item):
    """The parameters of an element-wise function are those of p, whatever they are called."""
    return f"p[{op.options.index(item)}]" if op.kind in SHARED and isinstance(item, schema.Option) else item.name


def kinds_of(ops):
    """The first operation of each kind."""
    found = {}
    for op in ops:
        if op.kind:
            found.setdefault(op.kind, op)
    return found
