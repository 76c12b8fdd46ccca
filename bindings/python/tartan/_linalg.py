# SPDX-License-Identifier: Apache-2.0
"""Products of block-sparse and dense matrices."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Union

import numpy as np

from tartan import _raw
from tartan._arrays import array_of, code_of, dtype_name, in_dtype
from tartan._context import Context, ContextLike
from tartan._frame import Block, block_shape
from tartan._layout import Layout
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError
from tartan._matrix import BlockMatrix, check_matrix
from tartan._product import is_intercepted, product, recorded
from tartan._transposed import TransposedMatrix

_raw.use_product(product)


def spmm(
    a: Union[BlockMatrix, TransposedMatrix[BlockMatrix], Layout], b: Any, *, values: Any = None, side: str = "left",
    transpose: bool = False, alpha: float = 1.0, beta: float = 0.0, out: Any = None, gates: Any = None,
    context: ContextLike = None, casting: str = "safe",
) -> Any:  # fmt: skip
    """``alpha * op(a) @ b + beta * out`` (side "left"), or ``alpha * b @ op(a) + beta * out`` ("right").

    `b` is a vector, a matrix, or a batch of matrices [batch..., rows, cols], row- or column-major, used in
    place. If `a` has heads, the last batch dimension matches them; a `b` without it is used for every head.
    `gates`, one number per block, scales blocks and skips those with gate 0. `out` is written in place and
    returned; without it the result has the memory order of `b`, and `beta` must be 0. If `a` and `b` have a
    float8 dtype, `out` is float32 (the default), float16 or bfloat16, and `alpha` can undo their scaling.

    An array of NumPy of another dtype, integers and booleans included, is cast to that of `a` if NumPy's rule `casting`
    ("safe", "same_kind", "unsafe") allows it. A complex `b` gives a complex result. A sparse `b` (without `out`, `gates`
    and `context`) gives a `BlockMatrix`.

    PyTorch's autograd works for `b`, `gates` and `values`. If `a` is a layout, `values` [blocks, block rows, block
    columns] are the values of the matrix, for instance a Parameter. The backward pass reads a matrix `a` again, so do
    not change its values before.

    All operands are in host memory, or all on one GPU. On a GPU, `b`, `gates` and `out` are device arrays,
    tensors of PyTorch, arrays of CuPy, or anything else with DLPack or __cuda_array_interface__; they are used
    in place, and the result belongs to the library of `b`. Without a `context` the work goes to the current
    stream of that library, and the call does not wait for it (docs/python_gpu.md).

    >>> import numpy as np, tartan
    >>> A = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), block=2)
    >>> tartan.spmm(A, np.ones(4), alpha=10, gates=[1.0, 0.0])
    array([10., 20.,  0.,  0.])
    """
    if isinstance(a, TransposedMatrix):
        a, transpose = a.T, not transpose
    if values is not None:
        if not isinstance(a, Layout):
            raise ArgumentTypeError(f"spmm: a is of type {type(a).__name__}, expected a Layout, since values are given")
        if _raw.is_torchs(b, values, gates):
            if out is None and beta != 0:
                raise ArgumentError(f"spmm: beta is {beta}, expected 0 where no out is given")
            return recorded(a, b, values, side, transpose, alpha, out, gates, context)
        try:
            a = BlockMatrix(a, values)
        except ArgumentError:
            if not is_intercepted(values):
                raise
            return recorded(a, b, values, side, transpose, alpha, out, gates, context)
    check_matrix(a, "a")
    if casting != "safe":
        assert isinstance(a, BlockMatrix)
        b = in_dtype(b, "b", a._code, casting)
    return _raw.spmm(a, b, side, transpose, alpha, beta, out, gates, context)


def sddmm(
    s: Union[BlockMatrix, Layout], x: Any, y: Any, *, alpha: float = 1.0, beta: float = 0.0,
    gates: Any = None, context: ContextLike = None, casting: str = "safe",
) -> BlockMatrix:  # fmt: skip
    """``alpha * (x @ y) + beta * s`` at the stored blocks of `s` only. A matrix `s` is updated in place and
    returned; for a layout `s` a new matrix is made. `x` and `y` may be lists of up to 8 arrays, whose
    products are added. `casting` is as for `spmm`.

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
        x, y = (_in_dtypes(factors, name, s._code, casting) for factors, name in ((x, "x"), (y, "y")))
    result: BlockMatrix = _raw.sddmm(s, x, y, alpha, beta, gates, context, make)
    return result


def _in_dtypes(factors: Any, name: str, code: int, casting: str) -> Any:
    if isinstance(factors, (list, tuple)):
        return [in_dtype(x, f"{name}[{i}]", code, casting) for i, x in enumerate(factors)]
    return in_dtype(factors, name, code, casting)


def growth_score(
    x: Any, y: Any, block: Block, *, norm: str = "max", scale: float = 1.0, beta: float = 0.0,
    out: Any = None, context: ContextLike = None,
) -> Any:  # fmt: skip
    """Score every block of the grid of ``x @ y``, stored or not, to show where new blocks are useful: ``beta * out +
    scale * sum_k |x[rows, k]| * |y[k, cols]|``, where |.| is the `norm` ("max" or "l2"). The scores of a batch (`x`
    [batch..., rows, k] and `y` [batch..., k, cols]) are added.

    Both are cheap upper bounds: "l2" is never below the norm of the block of ``x @ y``, "max" never below its largest
    element. They do not see cancellation in the sum over k, so they cannot tell a block with correlated rows and
    columns from noise. "gradient" is the exact norm (the root of the sum of squares) of each block of ``x @ y``, as
    RigL uses it, and costs the whole product; a batch is summed before the norm.

    >>> import numpy as np, tartan
    >>> x, y = np.array([[1.0, 1], [1, -1]]), np.ones((2, 2))
    >>> tartan.growth_score(x, y, 1).tolist(), tartan.growth_score(x, y, 1, norm="gradient").tolist()
    ([[2.0, 2.0], [2.0, 2.0]], [[2.0, 2.0], [0.0, 0.0]])
    """
    if norm not in ("max", "l2", "gradient"):
        raise ArgumentError(f"norm is {norm!r}, expected 'max', 'l2' or 'gradient'")
    rows, cols = block_shape(block)
    batch = tuple(getattr(x, "shape", ()))[:-2]
    if batch:
        if tuple(getattr(y, "shape", ()))[:-2] != batch:
            raise ShapeError(f"y has shape {tuple(getattr(y, 'shape', ()))}, expected the batch dimensions of x, {batch}")
        if math.prod(batch) == 0:
            raise ShapeError(f"x has shape {tuple(x.shape)}, expected a batch of one or more")
        if norm == "gradient":  # of the sum over the batch, which is one product over the batch and k
            order = len(batch), *range(len(batch)), len(batch) + 1
            x = (x.permute(order) if hasattr(x, "permute") else x.transpose(order)).reshape(x.shape[-2], -1)
            return _raw.growth_score(x, y.reshape(-1, y.shape[-1]), rows, cols, norm, scale, beta, out, context)
        for i in np.ndindex(*batch):
            out = growth_score(x[i], y[i], (rows, cols), norm=norm, scale=scale, beta=beta, out=out, context=context)
            beta = 1.0
        return out
    return _raw.growth_score(x, y, rows, cols, norm, scale, beta, out, context)


def explain(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    """Describe the operations that ``function(*args, **kwargs)`` calls, without running them: returns one dict for
    each, in the order of the calls.

    The function runs, but in this thread `spmm`, `sddmm`, `gate_gradient`, `growth_score` and ``@`` only check their
    operands and describe themselves; the arrays that they return hold no results. Each dict has the
    operation, backend, device, operands, the kernel and why it was chosen, the refused kernels and why, the
    floating-point operations, the least number of bytes that must move, the expected rate ("expected_tflops",
    or None) and, on the CPU, the rate of the last such call ("measured_tflops", or None).

    >>> import numpy as np, tartan
    >>> w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 16), "float32")
    >>> x = np.ones((64, 8), np.float32)
    >>> (plan,) = tartan.explain(tartan.spmm, w, x)
    >>> plan["operation"], plan["device"], plan["flops"]
    ('spmm', 'cpu', 65536)
    >>> [p["operation"] for p in tartan.explain(lambda: w @ (w @ x))]
    ['spmm', 'spmm']
    """
    _raw.tartan_explain_begin()
    try:
        function(*args, **kwargs)
    finally:
        text = _raw.tartan_explain_end()
    result: list[dict[str, Any]] = json.loads(text)
    return result


def checksum(x: Any) -> str:
    """XXH3-128 of the elements of an array in row-major order, as 32 hexadecimal digits. Equal values have equal
    checksums, whatever their memory order, in every language.

    >>> import numpy as np, tartan
    >>> a = np.arange(6.0).reshape(2, 3)
    >>> tartan.checksum(a) == tartan.checksum(np.asfortranarray(a))
    True
    """
    if isinstance(x, np.ndarray):
        code_of(x, "x")  # a cast would change what is summed
    digits = _raw.tartan_array_checksum(array_of(x, "x", _raw.TARTAN_F64))
    assert digits is not None
    return digits
