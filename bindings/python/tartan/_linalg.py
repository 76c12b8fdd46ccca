# SPDX-License-Identifier: Apache-2.0
"""Products of block-sparse and dense matrices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from tartan import _raw
from tartan._arrays import code_of, dtype_code, dtype_name, norm_code, operand, order_code
from tartan._call import Call, Dense, given_as, raw_dense
from tartan._context import ContextLike
from tartan._device import DeviceArray
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError
from tartan._frame import Block, frame_of
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle

if TYPE_CHECKING:
    from tartan._matrix import BlockMatrix
    from tartan._transposed import TransposedMatrix


def spmm(
    a: Union[BlockMatrix, TransposedMatrix], b: Any, *, side: str = "left", transpose: bool = False,
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
    left, axis = side == "left", -1 if side == "left" else -2
    with Call(context, b, out, gates, a) as call:
        call.matrix(a)
        dense = call.read(b, "b", code)
        vector = dense.ndim == 1
        if dense.ndim == 0:
            raise ShapeError("b has 0 dimensions, expected at least 1")
        if vector:
            dense = with_axis(dense, axis)
        if layout.heads > 1 and dense.ndim == 2:
            dense = repeated(dense, layout.heads)
        result = out
        if out is None:
            length = layout.rows if left != transpose else layout.cols
            shape = (*dense.shape[:-2], length, dense.shape[-1]) if left else (*dense.shape[:-1], length)
            if vector:
                shape = shape[:-1] if left else (*shape[:-2], length)
            new = _raw.TARTAN_F32 if code in (_raw.TARTAN_F8E4M3, _raw.TARTAN_F8E5M2) else code
            result = call.new(b, shape, new, is_column_major(dense))
        target = call.write(result, "out", code)
        if vector:
            target = with_axis(target, axis)
        _raw.tartan_spmm(
            call.handle,
            _raw.TARTAN_LEFT if left else _raw.TARTAN_RIGHT,
            _raw.TARTAN_TRANSPOSE if transpose else _raw.TARTAN_NO_TRANSPOSE,
            alpha, handle, call.gates(gates), raw_dense(dense), beta, raw_dense(target),
        )  # fmt: skip
    return result if out is not None else given_as(result, b)


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
    from tartan._matrix import BlockMatrix, handle_of

    xs, ys = _pairs(x, "x"), _pairs(y, "y")
    with Call(context, *xs, *ys, gates, s) as call:
        if isinstance(s, Layout):
            if beta != 0:
                raise ArgumentError(f"beta is {beta}, expected 0 where s is a layout")
            if not xs:
                raise ArgumentError("x has 0 arrays, expected 1 .. 8")
            call.layout(s)
            first = call.read(xs[0], "x[0]", _raw.TARTAN_F64)
            dtype = dtype_name(first._code) if isinstance(first, DeviceArray) else first.dtype
            s = BlockMatrix.zeros(s, dtype, context=call.context)
        handle = handle_of(s, "s")
        code = s._code
        call.matrix(s, writes=True)
        _raw.tartan_sddmm(
            call.handle, alpha, call.gates(gates),
            [raw_dense(call.read(v, f"x[{i}]", code)) for i, v in enumerate(xs)],
            [raw_dense(call.read(v, f"y[{i}]", code)) for i, v in enumerate(ys)],
            beta, handle,
        )  # fmt: skip
    return s


def gate_gradient(w: BlockMatrix, dw: BlockMatrix, gates: Any = None, *, context: ContextLike = None) -> Any:
    """The gradient of gates, ``sum(dw * w)`` of each block; where `gates` is given, dw is then multiplied by
    them in place."""
    from tartan._matrix import handle_of

    w_handle, dw_handle = handle_of(w, "w"), handle_of(dw, "dw")
    sums = _raw.TARTAN_F64 if w._code == _raw.TARTAN_F64 else _raw.TARTAN_F32
    with Call(context, gates, w, dw) as call:
        call.matrix(w)
        call.matrix(dw, writes=gates is not None)
        result = call.new(None, (w.blocks,), sums)
        target = raw_dense(call.write(result, "out", sums))
        _raw.tartan_gate_gradient(call.handle, w_handle, call.gates(gates), dw_handle, target)
    return given_as(result, gates)


def growth_score(
    x: Any, y: Any, block: Block, *, norm: str = "max", scale: float = 1.0, beta: float = 0.0,
    out: Any = None, context: ContextLike = None,
) -> Any:  # fmt: skip
    """A score of every block of the grid of ``x @ y``, stored or not, that tells where blocks are worth
    growing: ``beta * out + scale * sum_k |x[rows, k]| * |y[k, cols]|``, |.| being the `norm`
    ("max" or "l2")."""
    given = _pairs(x, "x"), _pairs(y, "y")
    with Call(context, *given[0], *given[1], out) as call:
        xs, ys = ([call.read(v, n, _raw.TARTAN_F64) for v in vs] for n, vs in zip("xy", given))
        if not xs or not ys or xs[0].ndim < 2 or ys[0].ndim < 2:
            raise ShapeError("x and y are expected to have at least 2 dimensions")
        code = xs[0]._code if isinstance(xs[0], DeviceArray) else code_of(xs[0], "x")
        frame = frame_of((xs[0].shape[-2], ys[0].shape[-1]), block)
        result = out
        if out is None:
            if beta != 0:
                raise ArgumentError(f"beta is {beta}, expected 0 where no out is given")
            grid = (-(-frame[0] // frame[2]) if frame[2] else 0, -(-frame[1] // frame[3]) if frame[3] else 0)
            sums = _raw.TARTAN_F64 if code == _raw.TARTAN_F64 else _raw.TARTAN_F32
            result = call.new(None, tuple(max(g, 0) for g in grid), sums)
        target = call.write(result, "out", code)
        _raw.tartan_growth_score(
            call.handle, frame, norm_code(norm), scale,
            [raw_dense(v) for v in xs], [raw_dense(v) for v in ys], beta, raw_dense(target),
        )  # fmt: skip
    return result if out is not None else given_as(result, given[0][0])


def explain(
    a: Union[Layout, BlockMatrix, TransposedMatrix], operation: str = "spmm", *, n: int, dtype: Any = None,
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
    from tartan._matrix import BlockMatrix
    from tartan._transposed import TransposedMatrix

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


def with_axis(x: Dense, axis: int) -> Dense:
    """A vector as a matrix of one column (axis -1) or one row (-2)."""
    if isinstance(x, DeviceArray):
        return x._insert(x.ndim + 1 + axis)
    return np.expand_dims(x, axis)


def repeated(x: Dense, times: int) -> Dense:
    return x._repeat(times) if isinstance(x, DeviceArray) else np.broadcast_to(x, (times, *x.shape))


def is_column_major(x: Dense) -> bool:
    """Whether a matrix or a batch of them has its first index fastest."""
    if isinstance(x, np.ndarray):
        return x.flags.f_contiguous and not x.flags.c_contiguous
    return x._order == "F"
