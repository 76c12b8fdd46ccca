# SPDX-License-Identifier: Apache-2.0
"""The list of patterns, and orders of rows and columns."""

from __future__ import annotations

from typing import Any

from tartan import _raw
from tartan._arrays import Array, array_of, indices, new_indices
from tartan._errors import ShapeError
from tartan._frame import Block, frame_of


def patterns() -> dict[str, str]:
    """The names of all patterns, each with a description and its parameters.

    >>> import tartan
    >>> "barabasi_albert" in tartan.patterns()
    True
    """
    names = [_raw.tartan_pattern_name(i) or "" for i in range(_raw.tartan_pattern_count())]
    return {name: _raw.tartan_pattern_help(i) or "" for i, name in enumerate(names)}


def reverse_cuthill_mckee(indptr: Any, cols: Any) -> Array:
    """An order of the rows of a square matrix, given as CSR of its elements, that brings its entries close to the
    diagonal: row i of the reordered matrix is row order[i].

    >>> import tartan
    >>> tartan.reverse_cuthill_mckee([0, 1, 2, 4], [2, 2, 0, 1]).tolist()
    [0, 2, 1]
    """
    indptr = indices(indptr, "indptr")
    order = new_indices(indptr.size - 1)
    _raw.tartan_reorder_rcm((indptr, indices(cols, "cols"), False), order)
    return order


def reorder_blocks(dense: Any, block: Block, density: float) -> tuple[Array, Array]:
    """Order the rows and columns of a dense matrix so that its large elements gather in few blocks. The reordered
    matrix is ``dense[rows][:, cols]``. A heuristic maximises the sum of squares in the fraction `density` of the
    blocks, by exchanging rows and columns. Better orders may exist, but the result is always the same. A layer that
    computes ``dense @ x`` becomes ``reordered @ x[cols]``, whose row i is row ``rows[i]`` of the result.

    >>> import numpy as np, tartan
    >>> dense = np.kron([[0, 1], [1, 0]], np.ones((2, 2)))[[0, 2, 1, 3]]
    >>> rows, cols = tartan.reorder_blocks(dense, 2, density=0.5)
    >>> tartan.Layout.from_dense(dense, 2).blocks, tartan.Layout.from_dense(dense[rows][:, cols], 2).blocks
    (4, 2)
    """
    array = array_of(dense, "dense", _raw.TARTAN_F64)
    if array.ndim != 2:
        raise ShapeError(f"dense has {array.ndim} dimensions, expected 2")
    rows, cols = new_indices(array.shape[0]), new_indices(array.shape[1])
    _raw.tartan_reorder_blocks(frame_of(array.shape, block, 1), array, density, rows, cols)
    return rows, cols
