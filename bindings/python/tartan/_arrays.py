# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries in host memory, in place, as NumPy arrays or arguments of the raw layer."""

from __future__ import annotations

import sys
from typing import Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, UnsupportedError
from tartan._queue import queue_of

try:  # the dtypes that NumPy lacks come from ml_dtypes
    import ml_dtypes

    _FOREIGN = {
        name: np.dtype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
        if hasattr(ml_dtypes, name)
    }
except ImportError:
    _FOREIGN = {}
BFLOAT16: Optional[np.dtype[Any]] = _FOREIGN.get("bfloat16")
_raw.use_numpy(
    np.ndarray,
    (BFLOAT16, _FOREIGN.get("float8_e4m3fn"), _FOREIGN.get("float8_e5m2")),
    tuple(np.zeros((2, 3), dtype) for dtype in ("f8", "f4", "f2", "bool", "u1", "i8", *_FOREIGN.values())),
)
BITS: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype(np.uint16),
    "float8_e4m3fn": np.dtype(np.uint8),
    "float8_e5m2": np.dtype(np.uint8),
}

Array = np.ndarray[Any, Any]

NUMPY: dict[int, np.dtype[Any]] = {
    _raw.TARTAN_F64: np.dtype(np.float64),
    _raw.TARTAN_F32: np.dtype(np.float32),
    _raw.TARTAN_F16: np.dtype(np.float16),
    **{_raw.tartan_dtype_of(name): dtype for name, dtype in _FOREIGN.items()},
}
_KNOWN = set(NUMPY.values())
NUMPY.update({code: np.dtype(name) for code, name in ((_raw.TARTAN_U8, "u1"), (_raw.TARTAN_I32, "i4"), (_raw.TARTAN_I64, "i8"))})
WHOLE = (np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint8))  # indices that the library reads as they are
EXPECTED = "expected float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2"


def dtype_code(dtype: Any) -> int:
    """The library's code of a dtype, given as NumPy's, by name, or as another library's ("torch.float32")."""
    name = str(dtype).rpartition(".")[2]
    code = _raw.tartan_dtype_of(name)
    if code == 0:
        try:
            name = np.dtype(dtype).name
        except TypeError:
            pass
        code = _raw.tartan_dtype_of(name)
    if code == 0:
        raise DTypeError(f"dtype is {name}, {EXPECTED}")
    return code


def dtype_name(code: int) -> str:
    name = _raw.tartan_dtype_name(code)
    assert name is not None
    return name


def in_numpy(code: int) -> bool:
    """Whether NumPy has the dtype on this machine."""
    return code in NUMPY


def numpy_dtype(code: int) -> np.dtype[Any]:
    if code not in NUMPY:
        raise DTypeError(f"NumPy has {dtype_name(code)} only with the package ml_dtypes: install it")
    return NUMPY[code]


def order_code(order: str) -> int:
    """The memory order of a block or of a dense matrix: "C" is row-major, "F" column-major."""
    if order not in ("C", "F"):
        raise ArgumentError(f"order is {order!r}, expected 'C' (row-major) or 'F' (column-major)")
    return _raw.TARTAN_COL_MAJOR if order == "F" else _raw.TARTAN_ROW_MAJOR


_NORMS = {"max": _raw.TARTAN_NORM_MAX, "l1": _raw.TARTAN_NORM_L1, "l2": _raw.TARTAN_NORM_L2}


def norm_code(norm: str) -> int:
    if norm not in _NORMS:
        raise ArgumentError(f"norm is {norm!r}, expected one of {', '.join(map(repr, _NORMS))}")
    return _NORMS[norm]


def refuse_device(x: Any, name: str) -> None:
    """For operations that only run on the CPU."""
    queue = queue_of(x)
    if queue is not None:
        raise UnsupportedError(
            f"{name} is on {queue.device}, expected CPU memory here: copy it to the host first"
        )


def is_real(dtype: Any) -> bool:
    """Whether a dtype of NumPy is one of real numbers or booleans."""
    return dtype.kind in "biuf" or dtype in _KNOWN


def cast(x: Any, name: str, code: int, casting: str = "safe") -> Array:
    """An array of real numbers in the dtype `code`, if NumPy's rule `casting` allows that."""
    if code in (_raw.TARTAN_I64, _raw.TARTAN_U8):
        return whole(x, name, code)
    wanted = numpy_dtype(code)
    if not is_real(x.dtype):
        raise DTypeError(f"{name} is of {x.dtype}, expected real numbers")
    try:
        allowed = np.can_cast(x.dtype, wanted, casting)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ArgumentError(f"casting is {casting!r}, expected 'no', 'safe', 'same_kind' or 'unsafe'") from None
    if not allowed:
        raise DTypeError(
            f"{name} is of {x.dtype}, expected {wanted} or what NumPy casts to it safely: cast it, or pass "
            "casting='same_kind'"
        )
    return np.asarray(x).astype(wanted)


def whole(x: Any, name: str, code: int) -> Array:
    """Indices as an array of int64 (`code` TARTAN_I64), or a mask as one of bytes (TARTAN_U8)."""
    refuse_masked(x, name)
    refuse_device(x, name)
    try:
        array = np.asarray(unrecorded(x, name))
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"{name} cannot become an array: {error}") from None
    if code == _raw.TARTAN_U8:
        if not is_real(array.dtype):
            raise DTypeError(f"{name} is of {array.dtype}, expected numbers or booleans")
        mask: Array = (array != 0).view(np.uint8)
        return mask
    if array.size == 0 and array.dtype.kind == "f" and not hasattr(x, "dtype"):
        array = array.astype(np.int64)  # [] has no dtype of its own
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name} is of {array.dtype}, expected integers")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ArgumentError(f"{name} has the value {int(array.max())}, beyond int64")
    return array.astype(np.int64)


def in_dtype(x: Any, name: str, code: int, casting: str) -> Any:
    """An operand for a matrix of dtype `code`: an array, also one of pandas or xarray, is cast by the rule `casting`."""
    if casting == "safe":
        return x  # the extension module casts what is safe
    if not isinstance(x, np.ndarray):
        if not is_converted(x):
            return x
        x = converted(x, name)
    if x.dtype.kind == "c":
        result = np.empty(x.shape, np.complex128 if code == _raw.TARTAN_F64 else np.complex64)
        result.real, result.imag = (cast(part, name, code, casting) for part in (x.real, x.imag))
        return result
    return cast(x, name, code, casting)


def doubles_of(x: Any, name: str) -> Array:
    """Real numbers as an array of float64, of any number of dimensions."""
    refuse_masked(x, name)
    x = unrecorded(x, name)
    try:
        array = np.asarray(x)
        if not is_real(array.dtype):
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise DTypeError(f"{name} cannot become an array of float64") from None


def refuse_masked(x: Any, name: str) -> None:
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{name} is a masked array, whose mask would be ignored: fill it first")


def host_of(x: Any, name: str, code: int) -> Union[Array, _raw.Lease]:
    """A dense operand in host memory, in place; lists and numbers become arrays of dtype `code`."""
    refuse_masked(x, name)
    if code in (_raw.TARTAN_I64, _raw.TARTAN_U8):
        return whole(x, name, code)
    if isinstance(x, np.ndarray):
        return x if x.dtype in _KNOWN else cast(x, name, code)
    if isinstance(x, (list, tuple, int, float)):
        wanted = numpy_dtype(code)
        try:
            given = np.asarray(x)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentTypeError(f"{name} cannot become an array: {error}") from None
        if given.dtype.kind not in "biuf":
            raise ArgumentTypeError(f"{name} has elements of {given.dtype}, expected real numbers")
        return given.astype(wanted)
    if "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(x):
        raise ArgumentTypeError(f"{name} is a sparse {type(x).__name__}, expected a dense array")
    if isinstance(x, np.generic):
        return np.asarray(x)
    refuse_device(x, name)
    if is_converted(x):
        array = converted(x, name)
        return array if array.dtype in _KNOWN else cast(array, name, code)
    lease, _ = _raw.view(unrecorded(x, name), None, False, name)
    if lease.device[0] != _raw.TARTAN_CPU:
        raise UnsupportedError(
            f"{name} is on a device of DLPack's type {lease.device[0]}, expected the CPU or CUDA"
        )
    return lease


def _has_buffer(x: Any) -> bool:
    try:
        memoryview(x)
    except TypeError:
        return False
    except Exception:  # one that is refused
        pass
    return True


def is_converted(x: Any) -> bool:
    """Whether NumPy's arrays of `x`, such as a DataFrame of pandas, are made by its __array__."""
    kind = type(x)
    return (
        hasattr(kind, "__array__")
        and not any(hasattr(x, name) for name in ("__dlpack__", "__cuda_array_interface__"))
        and not _has_buffer(x)
        and kind.__module__.partition(".")[0] != "tartan"
    )


def converted(x: Any, name: str) -> Array:
    try:
        array = np.asarray(x)
    except Exception as error:
        raise ArgumentTypeError(f"{name} cannot become an array: {error}") from error
    if array.dtype.kind not in "biufcV":
        raise ArgumentTypeError(f"{name} has elements of {array.dtype}, expected real numbers")
    return array


def is_tensor(x: Any) -> bool:
    return "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor)


def dense_operand(x: Any) -> Any:
    """A dense operand of an operator: an array of NumPy, also one of pandas or of a list, or a tensor of PyTorch; None if
    it is none of them."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (list, tuple)):
        return converted(x, "the other operand")
    if is_tensor(x):
        refuse_device(x, "the other operand")
        return x if x.ndim > 0 else None
    return converted(x, "the other operand") if hasattr(type(x), "__pandas_priority__") and is_converted(x) else None


def dense_like(matrix: Any, x: Any) -> Any:
    """A dense copy of a matrix, an array or a tensor as `x` is, which must have its shape or be a row or a column."""
    try:
        fits = np.broadcast_shapes(x.shape, matrix.shape) == matrix.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"the array has shape {tuple(x.shape)}, expected {matrix.shape}, a row or a column")
    if not is_tensor(x):
        return matrix.toarray()
    torch = sys.modules["torch"]
    return matrix.toarray(out=torch.empty(matrix.shape, dtype=getattr(torch, matrix.dtype_name)))


def has_tangent(x: Any) -> bool:
    """Whether PyTorch follows a tensor in forward mode."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor) or torch.autograd.forward_ad._current_level < 0:
        return False
    return torch.autograd.forward_ad.unpack_dual(x).tangent is not None


def unrecorded(x: Any, name: str) -> Any:
    """A tensor of PyTorch that needs gradients without them, where gradients are not recorded."""
    if has_tangent(x):
        raise UnsupportedError(f"{name} has a tangent, and this call has no derivatives in forward mode: use detach()")
    if not getattr(x, "requires_grad", False) or "torch" not in sys.modules:
        return x
    if sys.modules["torch"].is_grad_enabled():
        raise ArgumentError(
            f"{name} requires gradients, which this call does not record: use detach(), or torch.no_grad()"
        )
    return x.detach()


def array_of(x: Any, name: str, code: int) -> Array:
    """The same as an array of NumPy."""
    host = host_of(x, name, code)
    return host if isinstance(host, np.ndarray) else of_bits(np.asarray(host), host.dtype)


def output_of(x: Any, name: str, code: int) -> Array:
    """Like array_of, for arrays that are written in place."""
    refuse_copied(x, name)
    return x if isinstance(x, np.ndarray) else array_of(x, name, code)


def refuse_copied(x: Any, name: str) -> None:
    """Refuse objects that can only be written through a copy, and arrays of JAX, which are immutable."""
    if isinstance(x, (list, tuple, int, float, np.generic)):
        raise ArgumentTypeError(
            f"{name} is a {type(x).__name__}, expected an array that can be written in place"
        )
    if is_converted(x):
        raise ArgumentTypeError(f"{name} is a {type(x).__name__}, expected an array that can be written in place")
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise ArgumentTypeError(f"{name} is an array of JAX, expected one that can be written in place")


def of_bits(view: Array, code: int) -> Array:
    """The memory of `view` as a NumPy array of dtype `code`."""
    return view if view.dtype == numpy_dtype(code) else view.view(numpy_dtype(code))


def pickled(array: Array, protocol: Any) -> Any:
    """An array as part of a pickle; in protocol 2, which torch.save has, of what torch.load takes with `weights_only`."""
    return array if protocol > 2 else (array.dtype.str, array.shape, array.tobytes())


def unpickled(x: Any) -> Array:
    """The array that `pickled` was given."""
    return x if isinstance(x, np.ndarray) else np.frombuffer(x[2], x[0]).reshape(x[1]).copy()


def optional_gates(gates: Any) -> Optional[Array]:
    return None if gates is None else array_of(gates, "gates", _raw.TARTAN_F64)


def code_of(array: Array, name: str) -> int:
    """The dtype code of a NumPy array; refuses dtypes that are not Tartan's."""
    code = _raw.tartan_dtype_of(array.dtype.name)
    if code == 0 or not array.dtype.isnative:
        raise DTypeError(
            f"{name} has dtype {array.dtype.str if not array.dtype.isnative else array.dtype}, "
            f"{EXPECTED} in this machine's byte order"
        )
    return code


def indices(x: Any, name: str) -> Array:
    """Index arrays as contiguous int64; the library copies them anyway."""
    try:
        array = np.asarray(x)
    except ValueError:
        raise ArgumentTypeError(f"{name} is no list of integers: its items have different shapes") from None
    if array.size == 0 and array.dtype.kind == "f" and not isinstance(x, np.ndarray):
        array = array.astype(np.int64)  # [] has no dtype of its own
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name} has dtype {array.dtype}, expected integers")
    if array.ndim != 1:
        raise ShapeError(f"{name} has {array.ndim} dimensions, expected 1")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ArgumentError(f"{name} has the value {int(array.max())}, beyond int64")
    return np.ascontiguousarray(array, np.int64)


def optional_indices(x: Any, name: str) -> Optional[Array]:
    return None if x is None else indices(x, name)


def doubles(x: Any, name: str) -> Array:
    """One number per block, as contiguous float64."""
    refuse_masked(x, name)
    x = unrecorded(x, name)
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "fiub" and array.dtype != BFLOAT16:
            raise TypeError
        array = np.ascontiguousarray(array, np.float64)
    except (TypeError, ValueError):
        raise DTypeError(f"{name} cannot become an array of float64") from None
    if array.ndim != 1:
        raise ShapeError(f"{name} has {array.ndim} dimensions, expected 1")
    return array


def new_indices(n: int) -> Array:
    return np.empty(max(n, 0), np.int64)
