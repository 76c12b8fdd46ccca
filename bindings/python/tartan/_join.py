# SPDX-License-Identifier: Apache-2.0
"""Joining matrices."""

from __future__ import annotations

from typing import Any, Iterable, Optional, Sequence, TypeVar

import numpy as np

from tartan import _raw
from tartan._arithmetic import Arithmetic, is_sparse, matrix_of
from tartan._arrays import array_of
from tartan._call import Call
from tartan._errors import ArgumentError, ArgumentTypeError, HandleTypeError, ShapeError, UnsupportedError

M = TypeVar("M")
LARGEST_FACTOR = 65536  # elements


def check_arithmetic(matrix: Arithmetic[M]) -> Arithmetic[M]:
    if not isinstance(matrix, Arithmetic):
        raise HandleTypeError(f"a matrix is of type {type(matrix).__name__}, expected a BlockMatrix")
    return matrix


def list_of(given: Any, name: str, expected: str) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise ArgumentTypeError(f"{name} is of type {type(given).__name__}, expected a list of {expected}") from None


def _parts(matrices: Iterable[Any]) -> list[Any]:
    """Matrices of Tartan, and SciPy's in blocks of the size of the first of these."""
    given = list_of(matrices, "matrices", "matrices")
    if not given:
        raise ArgumentError("matrices is empty, expected one or more")
    like = next((m for m in given if isinstance(m, Arithmetic)), given[0])
    plain: Any = check_arithmetic(like)._plain()
    return [
        check_arithmetic(m)._plain() if isinstance(m, Arithmetic) or not is_sparse(m) else matrix_of(m, plain)
        for m in given
    ]


def _joined(matrices: Iterable[Any], direction: int) -> Any:
    parts = _parts(matrices)
    with Call(None, *parts) as call:
        handle = _raw.tartan_matrix_concatenate(call.handle, direction, [part._handle for part in parts])
        return type(parts[0])._own(handle)


def vstack(matrices: Iterable[Arithmetic[M]]) -> M:
    """Stack matrices vertically, in blocks of the size of the first."""
    result: M = _joined(matrices, _raw.TARTAN_DOWN)
    return result


def hstack(matrices: Iterable[Arithmetic[M]]) -> M:
    """Stack matrices horizontally, in blocks of the size of the first.

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.ones((4, 3)), block=2)
    >>> tartan.hstack([A, 2 * A]).sum(axis=0)
    array([4., 4., 4., 8., 8., 8.])
    """
    result: M = _joined(matrices, _raw.TARTAN_RIGHTWARD)
    return result


def block_diag(matrices: Iterable[Arithmetic[M]]) -> M:
    """A block-diagonal matrix of the given matrices, in blocks of the size of the first."""
    result: M = _joined(matrices, _raw.TARTAN_DIAGONAL)
    return result


def _side(sizes: Iterable[Optional[int]], name: str, number: int) -> int:
    found = {size for size in sizes if size is not None}
    if len(found) != 1:
        raise ShapeError(f"{name} {number} of the grid has sizes {sorted(found)}, expected one")
    return found.pop()


def block_array(grid: Sequence[Sequence[Any]]) -> Any:
    """A matrix from a grid of matrices; None stands for zeros.

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
    >>> tartan.block_array([[A, None], [2 * A, A]]).sum(axis=1)
    array([1., 1., 1., 1., 3., 3., 3., 3.])
    """
    lines = [list_of(line, "a row of the grid", "matrices") for line in list_of(grid, "grid", "lists of matrices")]
    if not lines or any(len(line) != len(lines[0]) for line in lines):
        raise ArgumentError("the grid is empty or its rows differ in length, expected a rectangle of matrices")
    given = [m for line in lines for m in line if m is not None]
    if not given:
        raise ArgumentError("the grid has no matrix, expected one in each row and column")
    like = next((m for m in given if isinstance(m, Arithmetic)), given[0])
    plain: Any = check_arithmetic(like)._plain()
    heights = [_side((None if m is None else m.shape[-2] for m in line), "row", i) for i, line in enumerate(lines)]
    widths = [_side((None if m is None else m.shape[-1] for m in line), "column", j) for j, line in enumerate(zip(*lines))]

    def part(m: Any, shape: tuple[int, int]) -> Any:
        return plain._empty(shape) if m is None else m

    return vstack(
        hstack([plain._empty((height, 0)), *(part(m, (height, width)) for m, width in zip(line, widths))])
        for line, height in zip(lines, heights)
    )


def kron(a: Any, b: Any) -> Any:
    """The Kronecker product of a matrix with a small dense or sparse matrix, in either order. The small matrix
    becomes dense.

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.eye(2), block=1)
    >>> tartan.kron(A, np.ones((1, 2))).toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    first = not isinstance(a, Arithmetic) or (isinstance(b, Arithmetic) and np.prod(a.shape) < np.prod(b.shape))
    matrix, dense = (b, a) if first else (a, b)
    check_arithmetic(matrix)
    if is_sparse(dense):
        if np.prod(dense.shape) > LARGEST_FACTOR:
            raise UnsupportedError(
                f"the smaller matrix has shape {dense.shape}, expected at most {LARGEST_FACTOR} elements, since it becomes dense"
            )
        dense = dense.toarray()
    name = "a" if first else "b"
    try:
        small = array_of(dense, name, _raw.TARTAN_F64)
    except ArgumentTypeError:
        if hasattr(dense, "__array__") or hasattr(dense, "__dlpack__"):
            raise
        raise ArgumentTypeError(f"{name} is of type {type(dense).__name__}, expected a matrix, sparse or dense") from None
    if small.ndim != 2:
        raise ShapeError(f"{name} has {small.ndim} dimensions, expected a matrix")
    return matrix._computed(lambda context, handle: _raw.tartan_matrix_kronecker(context, handle, small, int(first), 0))
