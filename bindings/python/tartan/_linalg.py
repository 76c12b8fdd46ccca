# SPDX-License-Identifier: Apache-2.0
"""Products of block-sparse and dense matrices."""

from __future__ import annotations

import json
from typing import Any, Union

from tartan import _raw
from tartan._arrays import array_of, dtype_code, dtype_name, norm_code, order_code
from tartan._call import Call
from tartan._context import Context, ContextLike
from tartan._errors import ArgumentError
from tartan._frame import Block, block_shape
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._matrix import BlockMatrix, check_matrix
from tartan._transposed import TransposedMatrix


def spmm(
    a: Union[BlockMatrix, TransposedMatrix[BlockMatrix]], b: Any, *, side: str = "left", transpose: bool = False,
    alpha: float = 1.0, beta: float = 0.0, out: Any = None, gates: Any = None,
    context: ContextLike = None,
) -> Any:  # fmt: skip
    """``alpha * op(a) @ b + beta * out`` (side "left"), or ``alpha * b @ op(a) + beta * out`` ("right").

    `b` is a vector, a matrix, or a batch of matrices [batch..., rows, cols], row- or column-major, used in
    place. Where `a` has heads, the last batch dimension goes with them; a `b` without it is used for each.
    `gates`, one number a block, scales blocks and skips those of gate 0. `out` is written in place and
    returned; without it the result has b's memory order, and `beta` must be 0. Where `a` and `b` are of a
    float8 dtype, `out` is float32 (the default), float16 or bfloat16, and `alpha` takes their scales.

    All operands are in host memory, or all on one GPU: then `b`, `gates` and `out` are device arrays, tensors
    of PyTorch, arrays of CuPy, or what else speaks DLPack or __cuda_array_interface__, used in place; the
    result is of b's library. Without a `context` the work goes to the stream that is current for `b`, and
    the call does not wait for it (docs/python_gpu.md).

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), block=2)
    >>> tartan.spmm(A, np.ones(4), alpha=10, gates=[1.0, 0.0])
    array([10., 20.,  0.,  0.])
    """
    if isinstance(a, TransposedMatrix):
        a, transpose = a.T, not transpose
    check_matrix(a, "a")
    return _raw.spmm(a, b, side, transpose, alpha, beta, out, gates, context)


def sddmm(
    s: Union[BlockMatrix, Layout], x: Any, y: Any, *, alpha: float = 1.0, beta: float = 0.0,
    gates: Any = None, context: ContextLike = None,
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
    make = None
    if isinstance(s, Layout):
        layout = s

        def make(code: int, context: Context) -> BlockMatrix:
            return BlockMatrix.zeros(layout, dtype_name(code), context=context)

    else:
        check_matrix(s, "s")
    result: BlockMatrix = _raw.sddmm(s, x, y, alpha, beta, gates, context, make)
    return result


def gate_gradient(w: BlockMatrix, dw: BlockMatrix, gates: Any = None, *, context: ContextLike = None) -> Any:
    """The gradient of gates, ``sum(dw * w)`` of each block; where `gates` is given, dw is then multiplied by
    them in place."""
    check_matrix(w, "w")
    check_matrix(dw, "dw")
    return _raw.gate_gradient(w, dw, gates, context)


def growth_score(
    x: Any, y: Any, block: Block, *, norm: str = "max", scale: float = 1.0, beta: float = 0.0,
    out: Any = None, context: ContextLike = None,
) -> Any:  # fmt: skip
    """A score of every block of the grid of ``x @ y``, stored or not, that tells where blocks are worth
    growing: ``beta * out + scale * sum_k |x[rows, k]| * |y[k, cols]|``, |.| being the `norm`
    ("max" or "l2")."""
    rows, cols = block_shape(block)
    return _raw.growth_score(x, y, rows, cols, norm_code(norm), scale, beta, out, context)


def explain(
    a: Union[Layout, BlockMatrix, TransposedMatrix[BlockMatrix]], operation: str = "spmm", *, n: int, dtype: Any = None,
    side: str = "left", transpose: bool = False, order: str = "C", context: ContextLike = None,
) -> dict[str, Any]:  # fmt: skip
    """What a product of `a` would do, without doing it: backend, device, kernel and why that one, the kernels
    that were not taken and why, floating-point operations, bytes that must move at least, and the rate
    expected.

    `operation` is "spmm" or "sddmm"; `n` is the dense operand's other size (spmm) or the summed size (sddmm).
    The dtype and the order inside blocks are those of a matrix; for a layout float64, unless given, and
    row-major. `order` is that of the dense operands and the result: "C" row-major, "F" column-major, as
    ``x.mT`` of a contiguous x is. Kernels may want one of them, those for float8 "F" where `a` is left.

    >>> import tartan
    >>> layout = tartan.Layout.pattern("dense", (64, 64), 16)
    >>> plan = tartan.explain(layout, "spmm", dtype="float32", n=8)
    >>> plan["backend"], plan["device"], plan["flops"]
    ('cpu', 'cpu', 65536)
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"side is {side!r}, expected 'left' or 'right'")
    if isinstance(a, TransposedMatrix):
        a, transpose = a.T, not transpose
    call = Call(context, a)
    if dtype is None:
        dtype = a.dtype_name if isinstance(a, BlockMatrix) else "float64"
    result: dict[str, Any] = json.loads(
        _raw.tartan_explain(
            call.handle, operation, layout_handle(a.layout if isinstance(a, BlockMatrix) else a, "a"),
            dtype_code(dtype), order_code(a.order if isinstance(a, BlockMatrix) else "C"),
            _raw.TARTAN_LEFT if side == "left" else _raw.TARTAN_RIGHT,
            _raw.TARTAN_TRANSPOSE if transpose else _raw.TARTAN_NO_TRANSPOSE, n, order_code(order),
        )
    )  # fmt: skip
    return result


def checksum(x: Any) -> str:
    """XXH3-128 of the elements of an array in row-major order of their indices, as 32 hexadecimal digits:
    equal for equal values whatever the memory order, and in every language.

    >>> import numpy as np, tartan
    >>> a = np.arange(6.0).reshape(2, 3)
    >>> tartan.checksum(a) == tartan.checksum(np.asfortranarray(a))
    True
    """
    digits = _raw.tartan_array_checksum(array_of(x, "x", _raw.TARTAN_F64))
    assert digits is not None
    return digits
