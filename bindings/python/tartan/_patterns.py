# SPDX-License-Identifier: Apache-2.0
"""The list of patterns, and the reverse Cuthill-McKee order."""

from __future__ import annotations

from typing import Any

from tartan import _raw
from tartan._arrays import Array, indices, new_indices


def patterns() -> dict[str, str]:
    """The names of all patterns, each with a description and its parameters.

    >>> import tartan
    >>> "barabasi_albert" in tartan.patterns()
    True
    """
    names = [_raw.tartan_pattern_name(i) or "" for i in range(_raw.tartan_pattern_count())]
    return {name: _raw.tartan_pattern_help(i) or "" for i, name in enumerate(names)}


def reverse_cuthill_mckee(indptr: Any, cols: Any) -> Array:
    """An order of the rows of a square matrix, given as CSR of its elements, that brings its entries near the
    diagonal: row i of the reordered matrix is row order[i].

    >>> import tartan
    >>> tartan.reverse_cuthill_mckee([0, 1, 2, 4], [2, 2, 0, 1]).tolist()
    [0, 2, 1]
    """
    indptr = indices(indptr, "indptr")
    order = new_indices(indptr.size - 1)
    _raw.tartan_reorder_rcm((indptr, indices(cols, "cols"), False), order)
    return order
