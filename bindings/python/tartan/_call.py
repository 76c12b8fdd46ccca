# SPDX-License-Identifier: Apache-2.0
"""Operands of a call, wherever they lie, and the context that it runs on. The extension module does this for products, in C,
and comes here for objects that it does not know."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import EXPECTED, NUMPY, Array, array_of, dtype_name, host_of, refuse_copied
from tartan._context import (
    Context,
    ContextLike,
    context_of,
    context_on,
    default_context,
    make_context,
    wait,
)
from tartan._device import DeviceArray
from tartan._errors import DTypeError
from tartan._place import Foreign, Place
from tartan._queue import CPU, Queue, cuda_array_interface, layout_of_interface, queue_of, view

Dense = Union[Array, DeviceArray]


def raw_dense(x: Dense) -> Union[Array, _raw.Lease]:
    return x._open if isinstance(x, DeviceArray) else x


def dense_of(x: Any, name: str, copy: bool) -> Dense:
    """An array that a matrix is to keep: what it is made of is used in place, or copied on its device."""
    if copy and queue_of(x) is not None:
        return to_device(x)
    if isinstance(x, DeviceArray):
        return x
    home = queue_of(x)
    if home is not None:
        return borrow(x, name, home, None)
    array = array_of(x, name, _raw.TARTAN_F64)
    return array.copy(order="K") if copy else array


def borrow(x: Any, name: str, home: Queue, queue: Optional[Queue]) -> DeviceArray:
    """The view of another library's array in device memory, which that uses on `home`, for work on `queue`
    from now on."""
    interface = None if hasattr(x, "__dlpack__") else cuda_array_interface(x)
    if interface is None:
        lease, _ = view(x, queue.stream if queue is not None and queue.device == home.device else None)
        return DeviceArray._of(lease, Foreign(x))
    address, typestr, shape, strides, readonly = layout_of_interface(interface, name)
    code = _raw.tartan_dtype_of(np.dtype(typestr).name) if np.dtype(typestr).isnative else 0
    if code == 0:
        raise DTypeError(f"{name} has elements of {typestr}, {EXPECTED}")
    lease = _lease_at(x, address, code, shape, strides, readonly, home, queue)
    return DeviceArray._of(lease, Foreign(x))


def borrow_mask(x: Any, home: Queue, queue: Optional[Queue]) -> _raw.Lease:
    """The same for a mask of booleans or bytes."""
    interface = None if hasattr(x, "__dlpack__") else cuda_array_interface(x)
    if isinstance(x, DeviceArray):
        raise DTypeError(f"mask is a device array of {x.dtype_name}, expected booleans or bytes")
    if interface is None:
        stream = queue.stream if queue is not None and queue.device == home.device else None
        return view(x, stream, True)[0]
    address, typestr, shape, strides, readonly = layout_of_interface(interface, "mask")
    if np.dtype(typestr) not in (np.dtype(np.bool_), np.dtype(np.uint8)):
        raise DTypeError(f"mask has elements of {typestr}, expected bool or uint8")
    return _lease_at(x, address, _raw.TARTAN_U8, shape, strides, readonly, home, queue)


def _lease_at(
    x: Any,
    address: int,
    code: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    readonly: bool,
    home: Queue,
    queue: Optional[Queue],
) -> _raw.Lease:
    """The memory that a __cuda_array_interface__ tells of, after the work that its stream has been asked for."""
    number = 0 if queue is None else queue.device_id  # the interface does not say which GPU
    lease = _raw.lease(x, address, code, (_raw.TARTAN_CUDA, number), shape, strides, readonly)
    if home.stream and queue is not None and home.stream != queue.stream:
        wait(Queue(f"cuda:{number}", home.stream, x))
    return lease


class Call:
    """One call of the library: its context, and its operands in the order of their queues.

    Without a context given, it is the calling thread's for the queue of the first operand that lies on a
    device: for a PyTorch or CuPy array the stream that is current there. Where another library's array works
    on another stream than the context, the call is ordered after the work asked for before, and the host
    waits for the call."""

    __slots__ = ("context", "queue", "_foreign")

    def __init__(self, context: ContextLike, *operands: Any) -> None:
        if context is None:
            queues = [q for q in map(queue_of, operands) if q is not None]
            known = [q for q in queues if q.stream]
            context = context_on(known[0] if known else queues[0] if queues else CPU)
        self.context = context_of(context)
        self.queue = self.context._queue if isinstance(self.context, Context) else None
        self._foreign = False

    @property
    def handle(self) -> _raw.Handle:
        return self.context._handle if isinstance(self.context, Context) else self.context

    @property
    def on_device(self) -> bool:
        return self.queue is not None and self.queue.device != "cpu"

    def __enter__(self) -> Call:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._foreign and kind is None:
            self.context.sync()

    def _enter(self, place: Union[Place, Foreign, None], writes: bool) -> None:
        if place is not None and self.queue is not None:
            self._foreign |= order(place, self.queue, writes)

    def read(self, x: Any, name: str, code: int) -> Dense:
        """A dense operand, wherever it lies; see `array_of`."""
        if isinstance(x, DeviceArray):
            self._enter(x._place, False)
            return x
        home = queue_of(x)
        if home is None:
            return array_of(x, name, code)
        self._foreign |= self.on_device and home != self.queue
        return borrow(x, name, home, self.queue)

    def mask(self, x: Any) -> Union[Array, _raw.Lease]:
        """A mask, wherever it lies: on a device used in place, on the host as bytes."""
        home = queue_of(x)
        if home is None:
            array = np.asarray(x)
            if array.dtype.kind not in "biuf":
                raise DTypeError(f"mask has elements of {array.dtype}, expected numbers or booleans")
            return np.ascontiguousarray(array != 0).view(np.uint8)
        self._foreign |= self.on_device and home != self.queue
        return borrow_mask(x, home, self.queue)

    def matrix(self, matrix: Any, writes: bool = False) -> None:
        """Orders the values of a matrix, and the blocks of its layout where these change."""
        self._enter(matrix._place, writes)
        self._enter(matrix._sets, False)

    def layout(self, layout: Any, writes: bool = False) -> None:
        """Orders the blocks of a layout where these change."""
        self._enter(layout._place, writes)


# ---- What the extension module asks for ----


def look(
    x: Any, name: str, code: int, queue: Optional[Queue], writes: bool
) -> tuple[Union[Array, _raw.Lease], bool]:
    """What the extension module can borrow from in place of `x`, for work on `queue`; and whether the host must wait for
    the call, since the owner of `x` works on another queue. Numbers become arrays of dtype `code`."""
    if writes:
        refuse_copied(x, name)
    home = queue_of(x)
    if home is None:
        return host_of(x, name, code), False
    on_device = queue is not None and queue.device != "cpu"
    return borrow(x, name, home, queue)._open, on_device and home != queue


def order(thing: Any, queue: Queue, writes: bool) -> bool:
    """Orders work on `queue` after other work on a place or an array of another library. Returns whether the host must
    wait for the call."""
    place = thing if isinstance(thing, (Place, Foreign)) else Foreign(thing)
    if isinstance(place, Foreign):
        return queue.device != "cpu" and place.order(queue)
    if queue.device == place.home.device:  # else the library refuses it
        if writes:
            place.write(queue)
        else:
            place.read(queue)
    return False


def fresh(like: Any, shape: tuple[int, ...], code: int, column_major: bool, context: ContextLike) -> Any:
    """Memory for a result on a device: of CuPy where `like` is, else ours."""
    if type(like).__module__.partition(".")[0] == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device.id):
            return cupy.empty(shape, dtype_name(code), "F" if column_major else "C")
    order = _raw.TARTAN_COL_MAJOR if column_major else _raw.TARTAN_ROW_MAJOR
    return DeviceArray._zeros(context_of(context), shape, code, order)


def given_as(result: Any, like: Any) -> Any:
    """A result in device memory as an array of the library of `like`, where that takes DLPack."""
    if not isinstance(result, DeviceArray) or isinstance(like, DeviceArray) or queue_of(like) is None:
        return result
    library = type(like).__module__.partition(".")[0]
    module = sys.modules.get("jax.numpy" if library in ("jax", "jaxlib") else library)
    take = getattr(module, "from_dlpack", None)
    return result if take is None else take(result)


_raw.use_python(
    DeviceArray=DeviceArray, Place=Place, Foreign=Foreign, empty=np.empty, dtypes=NUMPY, queue_of=queue_of, look=look, order=order, fresh=fresh,
    given_as=given_as, make_context=make_context, context_of=context_of,
)  # fmt: skip


def to_device(x: Any, context: ContextLike = None) -> DeviceArray:
    """A copy of an array of the host, or of the same device, in the memory of the context's device ("cuda"
    unless `x` is on a device). Column-major arrays give a column-major copy, all others a row-major one."""
    home = queue_of(x)
    if context is None:
        context = default_context("cuda") if home is None else context_on(home)
    context = context_of(context)
    with Call(context, x) as call:
        source = call.read(x, "x", _raw.TARTAN_F64)
        handle = _raw.tartan_buffer_from_array(call.handle, raw_dense(source))
        return DeviceArray._own(handle, context._queue)
