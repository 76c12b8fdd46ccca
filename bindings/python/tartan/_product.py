# SPDX-License-Identifier: Apache-2.0
"""Products with operands that the library does not multiply itself: sparse matrices, complex arrays, and tensors that
PyTorch records. The extension module calls `product` for them."""

from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arithmetic import Arithmetic, is_sparse, left_factor_of
from tartan._arrays import in_numpy, numpy_dtype
from tartan._errors import ArgumentError, DTypeError

_torch: Any = None  # the module for PyTorch's gradients, once they are recorded


def product(
    a: Any, b: Any, side: str = "left", transpose: bool = False, alpha: float = 1.0, beta: float = 0.0,
    out: Any = None, gates: Any = None, context: Any = None,
) -> Any:  # fmt: skip
    """`tartan.spmm` of such an operand `b`; NotImplemented if it is none of them."""
    if _raw.is_torchs(b, gates):
        return recorded(a, b, None, side, transpose, alpha, out, gates, context)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(b, torch.Tensor) and not is_sparse(b):
        from tartan import _torch_products

        return _torch_products.refused(a, b, side, transpose, alpha, beta, out, gates, context)
    if isinstance(b, np.ndarray) and b.dtype.kind == "c":
        return _complex(a, b, side, transpose, alpha, beta, out, gates, context)
    if not is_sparse(b):
        operators = out is None and gates is None and (alpha, beta) == (1, 0) and not isinstance(b, (list, tuple))
        return _by_operand(a.T if transpose else a, b, side) if operators else NotImplemented
    if out is not None or gates is not None or context is not None:
        raise ArgumentError("out, gates or context is given, expected none of them for the product of two sparse matrices")
    factor = a.T if transpose else a
    if side == "right":
        plain = factor._plain()
        result = (b if isinstance(b, Arithmetic) else left_factor_of(b, plain))._times(plain)
    else:
        result = factor._times(b)
    return result if alpha == 1 else result * alpha


def recorded(
    a: Any, b: Any, values: Any, side: str, transpose: bool, alpha: float, out: Any, gates: Any, context: Any
) -> Any:
    """A product under PyTorch's autograd, of a matrix, or of a layout and `values`."""
    global _torch
    if out is not None:
        raise ArgumentError(
            "spmm: out is given, expected none where PyTorch records gradients: use detach(), or torch.no_grad()"
        )
    if _torch is None:
        from tartan import _torch_products as _torch
    return _torch.recorded(a, b, values, side, transpose, alpha, gates, context)


def is_intercepted(x: Any) -> bool:
    """Whether something that has no memory is a tensor that PyTorch traces or transforms."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return False
    from tartan._torch import is_intercepted

    return is_intercepted(x)


def _by_operand(a: Any, b: Any, side: str) -> Any:
    """The result of an operand that is not an array, such as an operator of SciPy, with a matrix."""
    if any(hasattr(type(b), name) for name in ("__array__", "__dlpack__", "__array_interface__", "__cuda_array_interface__")):
        return NotImplemented
    operator = getattr(type(b), "__rmatmul__" if side == "left" else "__matmul__", None)
    return NotImplemented if operator is None else operator(b, a)


def _complex(
    a: Any, b: Any, side: str, transpose: bool, alpha: float, beta: float, out: Any, gates: Any, context: Any
) -> Any:
    """Two real products."""
    if in_numpy(a._code) and not np.can_cast(b.real.dtype, numpy_dtype(a._code)):
        raise DTypeError(
            f"b is of {b.dtype}, expected parts that NumPy casts to {numpy_dtype(a._code)} safely: cast it, or pass "
            "casting='same_kind'"
        )
    if out is not None and (not isinstance(out, np.ndarray) or out.dtype.kind != "c"):
        raise DTypeError(f"out is of {getattr(out, 'dtype', type(out).__name__)}, expected complex numbers (as b)")
    outs: tuple[Optional[Any], Optional[Any]] = (None, None) if out is None else (out.real, out.imag)
    real, imag = (
        _raw.spmm(a, part, side, transpose, alpha, beta, into, gates, context) for part, into in zip((b.real, b.imag), outs)
    )
    if out is not None:
        return out
    result = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
    result.real, result.imag = real, imag
    return result

