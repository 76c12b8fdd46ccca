# SPDX-License-Identifier: Apache-2.0
"""The operands of a call, on any device, and the context that it runs in. For products the extension module
does this in C and calls this module for objects that it does not know."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import (
    EXPECTED,
    NUMPY,
    WHOLE,
    Array,
    array_of,
    cast,
    code_of,
    dtype_name,
    host_of,
    of_bits,
    refuse_copied,
    unrecorded,
)
from tartan._context import (
    Context,
    ContextLike,
    context_of,
    context_on,
    default_context,
    make_context,
    rounds_to_tf32,
)
from tartan._device import DeviceArray
from tartan._errors import DTypeError
from tartan._queue import CPU, Queue, cuda_array_interface, export, layout_of_interface, queue_of, view

Dense = Union[Array, DeviceArray]


def raw_dense(x: Dense) -> Union[Array, _raw.Lease]:
    return x._open if isinstance(x, DeviceArray) else x


def dense_of(x: Any, name: str, copy: bool) -> Dense:
    """An array for a matrix to keep: used in place if possible, else copied on its device."""
    if copy and queue_of(x) is not None:
        return to_device(x)
    if isinstance(x, DeviceArray):
        return x
    home = queue_of(x)
    if home is not None:
        return borrow(x, name, home, None)
    if isinstance(x, np.ndarray):
        code_of(x, name)  # a cast would be a copy
    host = host_of(x, name, _raw.TARTAN_F64)
    if isinstance(host, _raw.Lease):
        if host.dtype not in NUMPY:  # without the package ml_dtypes
            array = DeviceArray._of(host, x)
            return to_device(array, "cpu") if copy else array
        host = of_bits(np.asarray(host), host.dtype)
    return host.copy(order="K") if copy else host


def borrow(x: Any, name: str, home: Queue, queue: Optional[Queue]) -> DeviceArray:
    """A view of another library's array in device memory, which the library uses on `home`; exported for
    later work on `queue`, if that is on the same device."""
    interface = None if hasattr(x, "__dlpack__") else cuda_array_interface(x)
    if interface is None:
        lease, _ = view(unrecorded(x, name), queue.stream if queue is not None and queue.device == home.device else None)
        return DeviceArray._of(lease, x)
    address, typestr, shape, strides, readonly = layout_of_interface(interface, name)
    code = _raw.tartan_dtype_of(np.dtype(typestr).name) if np.dtype(typestr).isnative else 0
    if code == 0:
        raise DTypeError(f"{name} has elements of {typestr}, {EXPECTED}")
    device = (_raw.TARTAN_CUDA, 0 if queue is None else queue.device_id)  # the interface names no GPU
    return DeviceArray._of(_raw.lease(x, address, code, device, shape, strides, readonly), x)


def borrow_mask(x: Any, home: Queue, queue: Optional[Queue]) -> _raw.Lease:
    """The same for a mask of booleans or bytes."""
    interface = None if hasattr(x, "__dlpack__") else cuda_array_interface(x)
    if isinstance(x, DeviceArray):
        raise DTypeError(f"mask is a device array of {x.dtype_name}, expected booleans or bytes")
    if interface is None:
        return view(x, queue.stream if queue is not None and queue.device == home.device else None, True)[0]
    address, typestr, shape, strides, readonly = layout_of_interface(interface, "mask")
    if np.dtype(typestr) not in (np.dtype(np.bool_), np.dtype(np.uint8)):
        raise DTypeError(f"mask has elements of {typestr}, expected bool or uint8")
    device = (_raw.TARTAN_CUDA, 0 if queue is None else queue.device_id)
    return _raw.lease(x, address, _raw.TARTAN_U8, device, shape, strides, readonly)


class Call:
    """One call of the library: its context and its operands.

    Without a given context, it is the calling thread's for the queue of the first operand on a device: for a
    PyTorch or CuPy array, the current stream there. The library orders the call with other work on Tartan's
    memory. If another library's array is used on another stream than the context's, the call runs after the
    earlier work there, and later work there runs after the call."""

    __slots__ = ("context", "queue", "_operands", "_others")

    def __init__(self, context: ContextLike, *operands: Any) -> None:
        if context is None:
            queues = [q for q in map(queue_of, operands) if q is not None]
            known = [q for q in queues if q.stream]
            context = context_on(known[0] if known else queues[0] if queues else CPU)
        self.context = context_of(context)
        self.queue = self.context._queue if isinstance(self.context, Context) else None
        self._operands = operands
        self._others: list[Queue] = []

    @property
    def handle(self) -> _raw.Handle:
        return self.context._handle if isinstance(self.context, Context) else self.context

    @property
    def on_device(self) -> bool:
        return self.queue is not None and self.queue.device != "cpu"

    @property
    def home(self) -> Optional[Queue]:
        """The queue to which a new matrix of this call belongs; None in host memory."""
        return self.queue if self.on_device else None

    def __enter__(self) -> Call:
        for x in self._operands:
            home = getattr(x, "_home", None)
            if home is not None and not isinstance(home, Queue):  # made around another library's array
                self._beside(home)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            for other in self._others:
                self.context._lead(other)

    def _beside(self, source: Any, exported: bool = False) -> None:
        other = self.context._follow(source, exported) if isinstance(self.context, Context) else None
        if other is not None:
            self._others.append(other)

    def read(self, x: Any, name: str, code: int) -> Dense:
        """A dense operand on any device; see `array_of`."""
        if isinstance(x, DeviceArray):
            return x
        home = queue_of(x)
        if home is None:
            return array_of(x, name, code)
        array = borrow(x, name, home, self.queue)
        self._beside(x, exported=True)
        return array

    def mask(self, x: Any) -> Union[Array, _raw.Lease]:
        """A mask: used in place on a device, as bytes on the host."""
        home = queue_of(x)
        if home is None:
            array = np.asarray(x)
            if array.dtype.kind not in "biuf":
                raise DTypeError(f"mask has elements of {array.dtype}, expected numbers or booleans")
            return np.ascontiguousarray(array != 0).view(np.uint8)
        lease = borrow_mask(x, home, self.queue)
        self._beside(x, exported=True)
        return lease


    def scores(self, x: Any) -> Dense:
        """Scores of blocks: used in place on a device, contiguous on the host. Tensors that PyTorch records are
        detached, since a choice by scores has no gradient."""
        if getattr(x, "requires_grad", False):
            x = x.detach()
        given = self.read(x, "scores", _raw.TARTAN_F64)
        return given if isinstance(given, DeviceArray) else np.ascontiguousarray(given)


# ---- Called by the extension module ----


def look(x: Any, name: str, code: int, queue: Optional[Queue], writes: bool) -> Union[Array, _raw.Lease]:
    """An object from which the extension module can borrow instead of `x`, for work on `queue`. Numbers
    become arrays of dtype `code`."""
    if writes:
        refuse_copied(x, name)
    home = queue_of(x)
    return host_of(x, name, code) if home is None else borrow(x, name, home, queue)._open


def fresh(like: Any, shape: tuple[int, ...], code: int, column_major: bool, context: ContextLike) -> Any:
    """Memory for a result on a device: CuPy's if `like` is CuPy's, else ours."""
    if type(like).__module__.partition(".")[0] == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device.id):
            return cupy.empty(shape, dtype_name(code), "F" if column_major else "C")
    order = _raw.TARTAN_COL_MAJOR if column_major else _raw.TARTAN_ROW_MAJOR
    return DeviceArray._zeros(context_of(context), shape, code, order)


def given_as(result: Any, like: Any) -> Any:
    """A result in device memory as an array of `like`'s library, if that library supports DLPack."""
    if not isinstance(result, DeviceArray) or isinstance(like, DeviceArray) or queue_of(like) is None:
        return result
    library = type(like).__module__.partition(".")[0]
    module = sys.modules.get("jax.numpy" if library in ("jax", "jaxlib") else library)
    take = getattr(module, "from_dlpack", None)
    return result if take is None else take(result)


_raw.use_python(
    DeviceArray=DeviceArray, Queue=Queue, empty=np.empty, dtypes=NUMPY, queue_of=queue_of, look=look,
    export=export, fresh=fresh, given_as=given_as, make_context=make_context, rounds_to_tf32=rounds_to_tf32,
    context_of=context_of, cast=cast,
)  # fmt: skip


def _current_gpu() -> str:
    """The current device of PyTorch if it uses GPUs, so that each process of a multi-GPU program uses its own; else
    the first."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "cuda"
    return f"cuda:{torch.cuda.current_device()}"


def to_device(x: Any, context: ContextLike = None) -> DeviceArray:
    """Copy an array in host memory or on a device of the same kind to the context's device (PyTorch's current GPU
    if it uses one, else the first, unless `x` is on a device). Integers of 32 and 64 bits serve as indices, bytes and
    booleans as masks. A column-major array gives a column-major copy, any other a row-major one."""
    home = queue_of(x)
    if isinstance(x, np.ndarray) and x.dtype == np.bool_:
        x = x.view(np.uint8)
    is_whole = isinstance(x, np.ndarray) and x.dtype in WHOLE
    if isinstance(x, np.ndarray) and not is_whole:
        code_of(x, "x")
    if context is None:
        context = default_context(_current_gpu()) if home is None else context_on(home)
    context = context_of(context)
    with Call(context, x) as call:
        source = x if is_whole else call.read(x, "x", _raw.TARTAN_F64)
        handle = _raw.tartan_buffer_from_array(call.handle, raw_dense(source))
        return DeviceArray._own(handle, context._queue)
