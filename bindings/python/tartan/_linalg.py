# SPDX-License-Identifier: Apache-2.0
"""Products of block-sparse and dense matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array, array_of, code_of, norm_code, numpy_dtype, operand, optional_gates, output_of, raw_of
from tartan._context import Context
from tartan._context import handle_of as context_handle
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError
from tartan._frame import Block, frame_of
from tartan._layout import Layout

if TYPE_CHECKING:
    from tartan._matrix import BlockMatrix
    from tartan._transposed import TransposedMatrix


def spmm(
    a: Union[BlockMatrix, TransposedMatrix], b: Any, *, side: str = "left", transpose: bool = False,
    alpha: float = 1.0, beta: float = 0.0, out: Any = None, gates: Any = None,
    context: Optional[Context] = None,
) -> Array:  # fmt: skip
    """``alpha * op(a) @ b + beta * out`` (side "left"), or ``alpha * b @ op(a) + beta * out`` ("right").

    `b` is a vector, a matrix, or a batch of matrices [batch..., rows, cols], row- or column-major, used in
    place. Where `a` has heads, the last batch dimension goes with them; a `b` without it is used for each.
    `gates`, one number a block, scales blocks and skips those of gate 0. `out` is written in place and
    returned; without it the result has b's memory order, and `beta` must be 0.

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), block=2)
    >>> tartan.spmm(A, np.ones(4), alpha=10, gates=[1.0, 0.0])
    array([10., 20.,  0.,  0.])
    """
    from tartan._matrix import handle_of
    from tartan._transposed import TransposedMatrix

    if isinstance(a, TransposedMatrix):
        a, transpose = a.T, not transpose
    handle = handle_of(a, "a")
    if side not in ("left", "right"):
        raise ArgumentError(f"side is {side!r}, expected 'left' or 'right'")
    if out is None and beta != 0:
        raise ArgumentError(f"beta is {beta}, expected 0 where no out is given")
    code = a._code
    layout = a.layout
    heads, left = layout.heads, side == "left"
    dense = array_of(b, "b", code)
    vector = dense.ndim == 1
    if dense.ndim == 0:
        raise ShapeError("b has 0 dimensions, expected at least 1")
    if vector:
        dense = dense[:, None] if left else dense[None, :]
    if heads > 1 and dense.ndim == 2:
        dense = np.broadcast_to(dense, (heads, *dense.shape))
    length = layout.rows if left != transpose else layout.cols
    shape = (*dense.shape[:-2], length, dense.shape[-1]) if left else (*dense.shape[:-1], length)
    given = None if out is None else output_of(out, "out", code)
    if given is None:
        column_major = dense.flags.f_contiguous and not dense.flags.c_contiguous
        target = np.empty(shape, numpy_dtype(code), order="F" if column_major else "C")
    else:
        target = given
        if vector:
            target = target[..., None] if left else target[..., None, :]
    _raw.tartan_spmm(
        context_handle(context),
        _raw.TARTAN_LEFT if left else _raw.TARTAN_RIGHT,
        _raw.TARTAN_TRANSPOSE if transpose else _raw.TARTAN_NO_TRANSPOSE,
        alpha, handle, optional_gates(gates), raw_of(dense, code), beta, raw_of(target, code),
    )  # fmt: skip
    if given is not None:
        result: Array = out
        return result
    if vector:
        target = target[..., 0] if left else target[..., 0, :]
    return target


def sddmm(
    s: Union[BlockMatrix, Layout], x: Any, y: Any, *, alpha: float = 1.0, beta: float = 0.0,
    gates: Any = None, context: Optional[Context] = None,
) -> BlockMatrix:  # fmt: skip
    """``alpha * (x @ y) + beta * s`` at the stored blocks of `s` only: `s` is updated in place and returned,
    or, where it is a layout, a new matrix is made. Lists of up to 8 `x` and `y` are summed.

    >>> import numpy as np, tartan
    >>> layout = tartan.Layout.from_mask([[1, 0], [0, 1]], block=2)
    >>> tartan.sddmm(layout, np.ones((4, 3)), np.ones((3, 4))).toarray()
    array([[3., 3., 0., 0.],
           [3., 3., 0., 0.],
           [0., 0., 3., 3.],
           [0., 0., 3., 3.]])
    """
    from tartan._matrix import BlockMatrix, handle_of

    xs, ys = _pairs(x, "x"), _pairs(y, "y")
    if isinstance(s, Layout):
        if beta != 0:
            raise ArgumentError(f"beta is {beta}, expected 0 where s is a layout")
        if not xs:
            raise ArgumentError("x has 0 arrays, expected 1 .. 8")
        s = BlockMatrix.zeros(s, _dtype_of(xs[0]))
    handle = handle_of(s, "s")
    code = s._code
    _raw.tartan_sddmm(
        context_handle(context), alpha, optional_gates(gates),
        [operand(v, f"x[{i}]", code) for i, v in enumerate(xs)],
        [operand(v, f"y[{i}]", code) for i, v in enumerate(ys)],
        beta, handle,
    )  # fmt: skip
    return s


def gate_gradient(
    w: BlockMatrix, dw: BlockMatrix, gates: Any = None, *, context: Optional[Context] = None
) -> Array:
    """The gradient of gates, ``sum(dw * w)`` of each block; where `gates` is given, dw is then multiplied by
    them in place."""
    from tartan._matrix import handle_of

    w_handle, dw_handle = handle_of(w, "w"), handle_of(dw, "dw")
    result = np.empty(w.blocks, np.float64 if w._code == _raw.TARTAN_F64 else np.float32)
    _raw.tartan_gate_gradient(context_handle(context), w_handle, optional_gates(gates), dw_handle, result)
    return result


def growth_score(
    x: Any, y: Any, block: Block, *, norm: str = "max", scale: float = 1.0, beta: float = 0.0,
    out: Any = None, context: Optional[Context] = None,
) -> Array:  # fmt: skip
    """A score of every block of the grid of ``x @ y``, stored or not, that tells where blocks are worth
    growing: ``beta * out + scale * sum_k |x[rows, k]| * |y[k, cols]|``, |.| being the `norm`
    ("max" or "l2")."""
    xs = [array_of(v, "x", _raw.TARTAN_F64) for v in _pairs(x, "x")]
    ys = [array_of(v, "y", _raw.TARTAN_F64) for v in _pairs(y, "y")]
    if not xs or not ys or xs[0].ndim < 2 or ys[0].ndim < 2:
        raise ShapeError("x and y are expected to have at least 2 dimensions")
    code = code_of(xs[0], "x")
    frame = frame_of((xs[0].shape[-2], ys[0].shape[-1]), block)
    if out is None:
        if beta != 0:
            raise ArgumentError(f"beta is {beta}, expected 0 where no out is given")
        grid = (-(-frame[0] // frame[2]) if frame[2] else 0, -(-frame[1] // frame[3]) if frame[3] else 0)
        out = np.empty([max(g, 0) for g in grid], np.float64 if code == _raw.TARTAN_F64 else np.float32)
    _raw.tartan_growth_score(
        context_handle(context), frame, norm_code(norm), scale,
        [raw_of(v, code) for v in xs], [raw_of(v, code) for v in ys], beta, raw_of(output_of(out, "out", code), code),
    )  # fmt: skip
    result: Array = out
    return result


def checksum(x: Any) -> str:
    """XXH3-128 of the elements of an array in row-major order of their indices, as 32 hexadecimal digits:
    equal for equal values whatever the memory order, and in every language.

    >>> import numpy as np, tartan
    >>> a = np.arange(6.0).reshape(2, 3)
    >>> tartan.checksum(a) == tartan.checksum(np.asfortranarray(a))
    True
    """
    digits = _raw.tartan_array_checksum(operand(x, "x", _raw.TARTAN_F64))
    assert digits is not None
    return digits


def _pairs(x: Any, name: str) -> list[Any]:
    """One array, or a list of them. A nested list of numbers is neither."""
    if not isinstance(x, (list, tuple)):
        return [x]
    if any(isinstance(v, (list, tuple, int, float)) for v in x):
        raise ArgumentTypeError(f"{name} is a list of numbers, expected an array or a list of arrays")
    return list(x)


def _dtype_of(x: Any) -> Any:
    return array_of(x, "x", _raw.TARTAN_F64).dtype
