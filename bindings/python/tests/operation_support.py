# SPDX-License-Identifier: Apache-2.0
"""What tests of all operations share: the library's description of them, and operands made by it."""

import ctypes
import inspect
import json

import numpy as np
from conftest import random_layout

import tartan
from tartan import _operations

# Arguments that the package calls otherwise.
RENAMED = {"block_mask": "mask", "in_size": "size"}
SIZES = (6, 5, 2, 3, 4, 7)
# Whose indices may not be there twice: two of them.
DISTINCT = {"scatter_rows": "ids", "scatter_rows_gradient": "ids", "segment_sum": "entries", "segment_sum_gradient": "entries", "top_k_gradient": "k"}


def _described():
    library = ctypes.CDLL(tartan._raw.__file__)  # and what it links
    library.tartan_op_describe.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)]
    library.tartan_text_free.argtypes = [ctypes.c_void_p]
    text = ctypes.c_void_p()
    assert library.tartan_op_describe(-1, 1, ctypes.byref(text)) == 0
    found = json.loads(ctypes.string_at(text))
    library.tartan_text_free(text)
    return found


class Op:
    """An operation, by its description."""

    def __init__(self, row, gradients):
        self.name, self.row = row["name"], row
        self.function = getattr(_operations, self.name)
        self.arguments = row["arguments"]
        self.has_lists = any(a["kind"] == "arrays" for a in self.arguments)
        counts = [o for o in row["options"] if self.has_lists and o["positional"] and o["kind"] == "whole"]
        self.options = [o for o in row["options"] if not o["base"] and o not in counts]
        self.inputs = [a for a in self.arguments if a["use"] != "out"]
        self.outputs = [a for a in self.arguments if a["use"] == "out"]
        self.optional = [a for a in self.outputs if a["optional"]]
        self.is_tuple = self.name in gradients and len(self.outputs) > 1
        seed = inspect.signature(self.function).parameters.get("seed")
        self.draws = seed is not None and seed.default is None  # of tensors by PyTorch's generator
        self.arrays_only = all(a["kind"] == "array" for a in self.arguments)
        self.has_conv = any(a["kind"] == "conv" for a in self.arguments)
        required = [a for a in self.outputs if not a["optional"]]
        self.names = {x["name"]: RENAMED.get(x["name"], x["name"]) for x in (*self.arguments, *self.options)}
        if not self.is_tuple and self.outputs:
            self.names[(required or self.outputs)[0]["name"]] = "out"

    def __repr__(self):
        return self.name

    def argument(self, name):
        return next(a for a in self.arguments if a["name"] == name)

    def call(self, operands, **keywords):
        """Calls the function with operands by their names in the schema."""
        given = [operands[a["name"]] for a in self.inputs if not a["optional"]]
        if self.draws:
            keywords.setdefault("seed", 0)
        named = {self.names[a["name"]]: operands[a["name"]] for a in self.inputs if a["optional"] and a["name"] in operands}
        return self.function(*given, **named, **keywords)

    def results(self, operands, **keywords):
        """All results, by their names in the schema."""
        if self.is_tuple:
            found = self.call(operands, **keywords)
            return {a["name"]: x for a, x in zip(self.outputs, found) if x is not None}
        flags = {f"return_{self.names[a['name']]}": True for a in self.optional}
        found = self.call(operands, **flags, **keywords)
        return dict(zip([a["name"] for a in self.outputs], found if len(self.outputs) > 1 else (found,)))


DESCRIBED = _described()
_GRADIENTS = {row["gradient"] for row in DESCRIBED if row["gradient"]}
OPS = [Op(row, _GRADIENTS) for row in DESCRIBED if not row["wrapped"]]
BY_NAME = {op.name: op for op in OPS}


def sum_dtype(dtype):
    return "float64" if dtype == "float64" else "float32"


# Shapes of lists whose arrays are matrices.
MATRICES = {"adafactor": {"parameters": (6, 5), "row_squares": (6,), "col_squares": (5,)}, "muon": {"parameters": (6, 5)}}


class Operands(dict):
    """Random operands of an operation by their names, all of them or those that are required; arrays by `array`."""

    def __init__(self, op, rng, dtype="float64", optional=True, array=None, block=8):
        super().__init__()
        self.op, self.rng, self.dtype = op, rng, dtype
        self.array = array or (lambda values, dtype: values.astype(tartan._arrays.numpy_dtype(tartan._arrays.dtype_code(dtype))))
        heads = 1 if op.name.startswith(("linear_cross_entropy", "weight_normalize")) else 2  # a layer has one
        self.layout = random_layout(rng, (20, 28), block, 0.6, heads=heads)
        self.conv = None
        if op.has_conv:
            self.conv = tartan.BlockConv(tartan.Layout.pattern("dense", (5, 5), 5), (1, 1))
            self.layout = self.conv.layout
        self.lengths = {DISTINCT[op.name]: (2,)} if op.name in DISTINCT else {}
        for a in op.inputs:
            if a["name"].endswith("_scales"):  # of moments of 8 bits alone
                continue
            if not a["optional"] or (optional and a["kind"] in ("array", "arrays", "mask")):
                self[a["name"]] = self.made(a)
        if op.name == "linear_cross_entropy_gradient":  # of any other number the probabilities would be huge
            given = {name: self[name] for name in ("w", "x", "labels", "bias") if name in self}
            self["lse"] = tartan.linear_cross_entropy(**given, return_lse=True)[1]

    def length(self, name):
        """Dimensions for a name in a shape."""
        if name not in self.lengths:
            size = SIZES[len(self.lengths) % len(SIZES)]
            self.lengths[name] = (size, 3) if name == "s..." else (3,) if name == "t..." else (size,)
        return self.lengths[name]

    def shape(self, a):
        if a["name"] in MATRICES.get(self.op.name, ()):
            return MATRICES[self.op.name][a["name"]]
        if a["shape"].startswith("="):
            return self.shape(self.op.argument(a["shape"][1:]))
        found = ()
        for item in a["shape"].split(" or ")[0].strip("[] ").split(","):
            item = item.strip()
            if "&" in item:
                found += np.broadcast_shapes(*(self.length(part.strip()) for part in item.split("&")))
            elif item.isdigit():
                found += (int(item),)
            elif "." in item and not item.endswith("..."):
                found += (getattr(self.layout, item.partition(".")[2]),)
            elif item == "k" and self.conv is not None:
                found += (self.conv.out_channels,)
            elif item == "segments" and a["name"] == "stats":
                found += (1,)
            elif item == "lines":  # of a matrix
                found += (self.layout.rows,)
            elif item == "batch...":
                found += (self.layout.heads,)
            elif item == "channels":
                found += (5,)
            elif item.startswith("slices"):
                found += self.length("any")
            elif item:
                found += self.length(item)
        return found

    def made(self, a):
        if a["kind"] == "arrays":
            return [self.made({**a, "kind": "array"}) for _ in range(2)]
        if a["name"] == "ends":  # counts up to the two entries of an order
            return np.minimum(np.arange(1, self.shape(a)[0] + 1), 2)
        if a["dtype"] == "I":  # what every array has: no length is below 2
            return self.rng.permuted(np.broadcast_to([0, 1], self.shape(a)), axis=-1) if self.op.name in DISTINCT else self.rng.integers(0, 2, self.shape(a))
        if a["dtype"] == "U8":
            return self.rng.random(self.shape(a)) < 0.7
        if a["kind"] == "array":
            dtype = {"S": sum_dtype(self.dtype), "R": "float64", "F64": "float64"}.get(a["dtype"], self.dtype)
            sizes = self.rng.uniform(0.5, 2, self.shape(a)) * self.rng.choice([-1, 1], self.shape(a))
            return self.array(sizes, dtype)
        if a["kind"] == "matrix":
            rows, cols, heads = self.layout.rows, self.layout.cols, self.layout.heads
            dense = self.rng.standard_normal((heads, rows, cols) if heads > 1 else (rows, cols))
            return tartan.BlockMatrix.from_dense(dense, layout=self.layout, dtype=self.dtype)
        if a["kind"] == "layout":
            return self.layout
        if a["kind"] == "mask":
            dense = self.rng.random((self.layout.heads, self.layout.rows, self.layout.cols)) < 0.7
            return tartan.BlockMask.from_dense(self.layout, dense if self.layout.heads > 1 else dense[0])
        return self.conv
