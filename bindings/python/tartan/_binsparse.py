# SPDX-License-Identifier: Apache-2.0
"""Matrices in files of the Binsparse specification, with a draft of BSR (docs/binsparse_bsr.md)."""

from __future__ import annotations

import json
from typing import Any, Optional

import numpy as np

from tartan._arrays import Array
from tartan._errors import ArgumentError, DTypeError, FormatError, UnsupportedError
from tartan._foreign_hdf5 import contents, found, from_compressed, one_head, reading, text_of, writing
from tartan._frame import Block
from tartan._layout import Layout
from tartan._matrix import BlockMatrix

_VERSION = "0.1"


def read_binsparse(path: Any, key: str = "/", block: Optional[Block] = None, *, dtype: Any = None) -> BlockMatrix:
    """Read a matrix from a Binsparse file: BSR with the blocks of the file, CSR or CSC in blocks of size `block`
    (DCSR and DCSC are not supported). `key` names the group. `path` may be a binary file object. Needs h5py.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.bsp.h5")
    >>> tartan.write_binsparse(path, tartan.BlockMatrix.from_dense(np.eye(5), block=2))
    >>> tartan.read_binsparse(path)
    <BlockMatrix 5x5 float64, 3 of 9 blocks of 2x2, density 0.333>
    """
    with reading(path) as file:
        group = found(file, key)
        about = _descriptor(group, key)
        kind, shape = about["format"], about["shape"]
        if kind not in ("BSR", "CSR", "CSC"):
            raise FormatError(f"{key!r} has the format {kind}, expected BSR, CSR or CSC")
        if (block is None) != (kind == "BSR"):
            raise ArgumentError(f"block is {block}, expected {'None, as a file of BSR has its own' if kind == 'BSR' else 'the size of the blocks to make'}")
        pointers, cols, values = (group[name][()] for name in ("pointers_to_1", "indices_1", "values"))
        stored = text_of(about.get("data_types", {}).get("values"))
        if stored.startswith("complex["):
            raise FormatError(f"{key!r} has values of {stored}, expected real numbers")
        if kind == "BSR":
            return _from_blocks(about, key, pointers, cols, values, dtype)
        if stored.startswith("iso["):
            values = np.broadcast_to(values, cols.shape).copy()
        assert block is not None
        return from_compressed(key, shape, pointers, cols, values, block, dtype, kind == "CSC")


def _descriptor(group: Any, key: str) -> dict[str, Any]:
    text = text_of(group.attrs.get("binsparse"))
    try:
        about = json.loads(text)["binsparse"]
        shape = [int(n) for n in about["shape"]]
        about |= {"shape": shape, "format": str(about["format"])}
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"{key!r} has no descriptor of Binsparse for a matrix") from None
    if len(shape) != 2:
        raise FormatError(f"{key!r} has {len(shape)} dimensions, expected 2")
    return about  # type: ignore[no-any-return]


def _from_blocks(about: dict[str, Any], key: str, pointers: Any, cols: Any, values: Array, dtype: Any) -> BlockMatrix:
    try:
        rows, columns = (int(n) for n in about["block_shape"])
    except (KeyError, ValueError, TypeError):
        raise FormatError(f"{key!r} has no block_shape of two numbers") from None
    order = about.get("block_order", "row_major")
    if order not in ("row_major", "column_major"):
        raise FormatError(f"{key!r} has the block_order {order!r}, expected 'row_major' or 'column_major'")
    # Rows may have their blocks in any order; a layout has them ascending.
    place = np.lexsort((cols, np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))))
    with contents(key):
        layout = Layout.from_csr(about["shape"], (rows, columns), pointers, cols[place])
    if values.shape != (layout.blocks * rows * columns,):
        raise FormatError(f"{key!r} has values of shape {values.shape}, expected ({layout.blocks * rows * columns},)")
    blocks = values.reshape(-1, rows, columns) if order == "row_major" else values.reshape(-1, columns, rows).transpose(0, 2, 1)
    matrix = BlockMatrix(layout, np.ascontiguousarray(blocks[place]))
    return matrix if dtype is None else matrix.astype(dtype)


def write_binsparse(path: Any, matrix: Any, key: str = "/", *, append: bool = False) -> None:
    """Write a matrix of one head, in float32 or float64, in the format BSR of docs/binsparse_bsr.md, to a new file.
    With ``append=True`` it adds the group `key`, which must not exist yet, to an existing file. Readers see the old
    file or the new one. Needs h5py; `read_binsparse` has an example."""
    matrix = one_head(matrix)
    if matrix.dtype_name not in ("float32", "float64"):
        raise DTypeError(f"Binsparse has no {matrix.dtype_name}: use astype('float32') first")
    layout = matrix.layout
    if layout.variable:
        raise UnsupportedError("the blocks differ in size, which BSR cannot hold: use to_scipy('csr'), or save")
    pointers, cols = layout.row_lists()
    about = {
        "version": _VERSION, "format": "BSR", "shape": list(layout.shape), "block_shape": list(layout.block_shape), "block_order": "row_major",
        "number_of_stored_values": int(np.prod(matrix.values.shape)),
        "data_types": {"pointers_to_1": "int64", "indices_1": "int64", "values": matrix.dtype_name},
    }  # fmt: skip
    with writing(path, append) as file:
        if key in file and (key.strip("/") or len(file) > 0 or "binsparse" in file.attrs):
            raise ArgumentError(f"key is {key!r}, which the file has already")
        group = file[key] if key in file else file.create_group(key)
        group.attrs["binsparse"] = json.dumps({"binsparse": about})
        for name, data in (("pointers_to_1", pointers), ("indices_1", cols), ("values", np.ravel(matrix.values))):
            group.create_dataset(name, data=np.ascontiguousarray(data))
