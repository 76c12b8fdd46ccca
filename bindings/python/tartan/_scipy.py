# SPDX-License-Identifier: Apache-2.0
"""SciPy's sparse arrays. SciPy is optional and imported on first use."""

from __future__ import annotations

import importlib
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import code_of, dtype_code, numpy_dtype
from tartan._errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, UnsupportedError
from tartan._frame import Block, block_shape, frame_of
from tartan._layout import Layout

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def _sparse() -> Any:
    return importlib.import_module("scipy.sparse")


def _values(data: Any, dtype: Any) -> Any:
    if data.dtype.kind == "c":
        raise DTypeError(f"matrix is of {data.dtype}, expected real numbers: take its `real` part")
    if dtype is not None:
        return data.astype(numpy_dtype(dtype_code(dtype)), copy=False)
    try:
        code_of(data, "matrix")
    except DTypeError as error:
        raise DTypeError(f"{error}: pass dtype to convert") from None
    return data


def from_scipy(matrix: Any, block: Optional[Block], dtype: Any, copy: bool) -> tuple[Optional[Layout], tuple[Any, ...]]:
    """For BSR, the layout and the values of the blocks; else no layout, and the arguments of
    tartan_matrix_from_compressed. Repeated elements are added."""
    if not _sparse().issparse(matrix):
        raise ArgumentTypeError(f"matrix is of type {type(matrix).__name__}, expected a SciPy sparse matrix")
    if len(matrix.shape) != 2:
        raise ShapeError(f"matrix has {len(matrix.shape)} dimensions, expected 2")
    if matrix.format == "bsr" and (block is None or block_shape(block) == matrix.blocksize):
        return _from_bsr(matrix, dtype, copy)
    if block is None:
        raise ArgumentError(f"block is None, expected a size for a matrix in {matrix.format} format")
    lines = matrix if matrix.format in ("csr", "csc") else matrix.tocsr()
    indptr, indices = (np.ascontiguousarray(x, np.int64) for x in (lines.indptr, lines.indices))
    return None, (
        frame_of(lines.shape, block), (indptr, indices, lines.format == "csc"), _values(lines.data, dtype),
        _raw.TARTAN_DUPLICATES_ADDED, 0, _raw.TARTAN_ROW_MAJOR,
    )  # fmt: skip


def _from_bsr(matrix: Any, dtype: Any, copy: bool) -> tuple[Layout, tuple[Any, ...]]:
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    values = _values(matrix.data, dtype)
    if copy or not values.flags.c_contiguous:
        values = values.copy(order="C")
    return Layout.from_csr(matrix.shape, matrix.blocksize, matrix.indptr, matrix.indices), (values,)


def to_scipy(matrix: Any, format: str, drop_zeros: bool = False) -> Any:
    """Convert a BlockMatrix to a SciPy array."""
    if format not in FORMATS:
        raise ArgumentError(f"format is {format!r}, expected one of {', '.join(map(repr, FORMATS))}")
    if matrix.dtype_name not in ("float32", "float64"):
        raise DTypeError(f"SciPy has no sparse {matrix.dtype_name}: use astype('float32') first")
    layout = matrix.layout
    if layout.heads != 1:
        raise ShapeError(f"matrix has {layout.heads} heads, expected 1")
    if format != "bsr":
        indptr, cols, values = matrix.to_csr()
        if max(matrix.nnz, *matrix.shape) <= np.iinfo(np.int32).max:  # as SciPy does: some of its solvers take nothing else
            indptr, cols = indptr.astype(np.int32), cols.astype(np.int32)
        made = _sparse().csr_array((values, cols, indptr), shape=matrix.shape)
        if drop_zeros:
            made.eliminate_zeros()
        return made.asformat(format)
    if drop_zeros:
        matrix = matrix.drop_zeros()
        layout = matrix.layout
    if layout.variable:
        raise UnsupportedError("the blocks differ in size, which BSR cannot hold: use to_scipy('csr')")
    if any(n % b for n, b in zip(layout.shape, layout.block_shape)):
        raise ShapeError(
            f"shape {layout.shape} is no multiple of the block {layout.block_shape}, which BSR needs: "
            "use to_scipy('csr')"
        )
    indptr, cols = layout.row_lists()
    if layout.nnz <= np.iinfo(np.int32).max:
        indptr, cols = indptr.astype(np.int32), cols.astype(np.int32)
    values = np.ascontiguousarray(matrix.values)
    return _sparse().bsr_array((values, cols, indptr), shape=layout.shape, blocksize=layout.block_shape)
