# SPDX-License-Identifier: Apache-2.0
"""Matrices in files of AnnData (h5ad)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from tartan._errors import ArgumentError, FormatError, ShapeError
from tartan._foreign_hdf5 import found, from_compressed, h5py, one_head, reading, text_of, writing
from tartan._frame import Block
from tartan._matrix import BlockMatrix

_FORMATS = ("csr", "csc", "dense")
_GROUPS = ("layers", "obsm", "obsp", "uns", "varm", "varp")


def read_h5ad(path: Any, key: str = "X", block: Block = 1, *, dtype: Any = None) -> BlockMatrix:
    """Read one matrix of an AnnData file, for instance "X", "layers/counts" or "obsp/connectivities", in blocks of
    size `block`. Sparse matrices (csr_matrix, csc_matrix) never become dense; of dense ones, the blocks with a
    non-zero are kept. `path` may be a binary file object. Needs h5py.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "cells.h5ad")
    >>> A = tartan.BlockMatrix.from_dense(np.eye(6), block=2)
    >>> tartan.write_h5ad(path, A, obs_names=[f"cell{i}" for i in range(6)])
    >>> tartan.read_h5ad(path, block=3)
    <BlockMatrix 6x6 float64, 2 of 4 blocks of 3x3, density 0.5>
    """
    with reading(path) as file:
        item = found(file, key)
        encoding = text_of(item.attrs.get("encoding-type"))
        if hasattr(item, "dtype") and item.ndim == 2 and encoding in ("", "array"):
            return BlockMatrix.from_dense(item[()], block, dtype=dtype)
        # Before version 0.7 of anndata, groups had other attributes.
        encoding = encoding or text_of(item.attrs.get("h5sparse_format")) + "_matrix"
        if hasattr(item, "dtype") or encoding not in ("csr_matrix", "csc_matrix"):
            raise FormatError(f"{key!r} is of encoding {encoding!r}, expected csr_matrix, csc_matrix or a dense array of two dimensions")
        shape = item.attrs.get("shape", item.attrs.get("h5sparse_shape"))
        if shape is None or len(shape) != 2:
            raise FormatError(f"{key!r} has the shape {shape}, expected two numbers")
        indptr, cols, values = (item[name][()] for name in ("indptr", "indices", "data"))
        return from_compressed(key, [int(n) for n in shape], indptr, cols, values, block, dtype, encoding == "csc_matrix")


def write_h5ad(
    path: Any, matrix: Any, key: str = "X", *, format: str = "csr", obs_names: Optional[Sequence[str]] = None,
    var_names: Optional[Sequence[str]] = None, append: bool = False,
) -> None:  # fmt: skip
    """Write a matrix of one head as an AnnData file: rows are observations, columns are variables. `format` is
    "csr", "csc" (both leave out zeros) or "dense". With ``append=True`` the matrix goes into an existing AnnData
    file, for instance as "layers/blocks", and replaces what has that key. Readers see the old file or the new one.
    Needs h5py, and SciPy unless `format` is "dense"; `read_h5ad` has an example."""
    if format not in _FORMATS:
        raise ArgumentError(f"format is {format!r}, expected one of {', '.join(map(repr, _FORMATS))}")
    matrix = one_head(matrix)
    values = matrix.toarray() if format == "dense" else matrix.to_scipy(format, drop_zeros=True)
    names = {"obs": obs_names, "var": var_names}
    if append and any(x is not None for x in names.values()):
        raise ArgumentError("names are given with append=True, expected them in the file")
    for (axis, given), size in zip(names.items(), matrix.shape):
        if given is not None and len(given) != size:
            raise ShapeError(f"{axis}_names has {len(given)} names, expected {size}")
    with writing(path, append) as file:
        if not append:
            _marked(file, "anndata", "0.1.0")
            for (axis, given), size in zip(names.items(), matrix.shape):
                _put_names(file, axis, [str(i) for i in range(size)] if given is None else [str(x) for x in given])
            for name in _GROUPS:
                _marked(file.create_group(name), "dict", "0.1.0")
        elif text_of(file.attrs.get("encoding-type")) != "anndata":
            raise FormatError(f"{path}: is no AnnData file")
        if key in file:
            del file[key]
        _put_matrix(file, key, values, format)


def _marked(item: Any, encoding: str, version: str) -> Any:
    item.attrs["encoding-type"], item.attrs["encoding-version"] = encoding, version
    return item


def _put_names(file: Any, axis: str, names: list[str]) -> None:
    """A data frame without columns."""
    frame = _marked(file.create_group(axis), "dataframe", "0.2.0")
    frame.attrs["_index"] = "_index"
    frame.attrs["column-order"] = np.empty(0, h5py().string_dtype())
    index = frame.create_dataset("_index", data=np.array(names, dtype=object), dtype=h5py().string_dtype())
    _marked(index, "string-array", "0.2.0")


def _put_matrix(file: Any, key: str, values: Any, format: str) -> None:
    if format == "dense":
        _marked(file.create_dataset(key, data=values), "array", "0.2.0")
        return
    group = _marked(file.create_group(key), f"{format}_matrix", "0.1.0")
    group.attrs["shape"] = np.array(values.shape, np.int64)
    for name in ("data", "indices", "indptr"):
        group.create_dataset(name, data=getattr(values, name))
