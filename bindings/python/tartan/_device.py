# SPDX-License-Identifier: Apache-2.0
"""Arrays in device memory."""

from __future__ import annotations

from typing import Any, Literal, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import BITS, Array, dtype_code, dtype_name, numpy_dtype, order_code
from tartan._closing import Closing
from tartan._context import Context, ContextLike, context_of, context_on
from tartan._errors import ArgumentError, ArgumentTypeError, HandleError, ShapeError
from tartan._queue import CPU, LEGACY, Queue, queue_of


class DeviceArray(Closing):
    """A dense array in device memory, created by `to_device`, by `DeviceArray.zeros`, and by products of operands on
    the device.

    PyTorch, CuPy, JAX and others use it in place through DLPack (``torch.from_dlpack(x)``) or
    ``__cuda_array_interface__``. For NumPy, ``x.to_host()`` makes a copy.

    >>> import numpy as np, tartan
    >>> x = tartan.to_device(np.arange(6.0).reshape(2, 3), "cpu")
    >>> x
    <DeviceArray 2x3 float64 on cpu>
    >>> x.to_host()
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """

    __slots__ = ("_handle", "_home", "_lease", "__weakref__")
    __array_ufunc__ = None  # array @ x fails instead of looping over elements
    _handle: Optional[_raw.Handle]  # of the buffer; views and borrowed memory have none
    _lease: Optional[_raw.Lease]  # None once closed
    _home: Any  # the Queue that the memory came from; or another library's array, whose memory this is

    def __init__(self) -> None:
        raise TypeError("make device arrays by tartan.to_device or DeviceArray.zeros")

    @classmethod
    def _of(cls, lease: _raw.Lease, home: Any, handle: Optional[_raw.Handle] = None) -> DeviceArray:
        self = object.__new__(cls)
        self._lease = lease
        self._home = home
        self._handle = handle
        return self

    @classmethod
    def _own(cls, handle: _raw.Handle, queue: Queue) -> DeviceArray:
        return cls._of(_raw.tartan_buffer_view(handle), queue, handle)

    @classmethod
    def zeros(
        cls, shape: Any, dtype: Any = "float64", context: ContextLike = "cuda", *, order: str = "C"
    ) -> DeviceArray:
        """An array of zeros, row-major ("C") or column-major ("F")."""
        sizes = np.asarray(shape, np.int64) if np.size(shape) else np.empty(0, np.int64)
        return cls._zeros(context_of(context), np.atleast_1d(sizes), dtype_code(dtype), order_code(order))

    @classmethod
    def _zeros(cls, context: Context, shape: Any, code: int, order: int) -> DeviceArray:
        lengths = np.ascontiguousarray(shape, np.int64)
        return cls._own(_raw.tartan_buffer_create(context._handle, code, lengths, order), context._queue)

    # ---- Asking ----

    @property
    def _open(self) -> _raw.Lease:
        if self._lease is None:
            raise HandleError("the device array is closed, expected an open one")
        return self._lease

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dimension."""
        return self._open.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._open.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def _code(self) -> int:
        return self._open.dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements; bfloat16 and float8 need the package ml_dtypes (`dtype_name` does
        not)."""
        return numpy_dtype(self._code)

    @property
    def dtype_name(self) -> str:
        """ "float64", "float32", "float16", "bfloat16", "float8_e4m3fn" or "float8_e5m2"."""
        return dtype_name(self._code)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _raw.tartan_dtype_bytes(self._code)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes, as in NumPy."""
        return tuple(s * self.itemsize for s in self._open.strides)

    @property
    def device(self) -> str:
        """ "cpu", "cuda:0", ..."""
        kind, number = self._open.device
        return "cpu" if kind == _raw.TARTAN_CPU else f"cuda:{number}"

    @property
    def _order(self) -> Literal["C", "F"]:
        """ "F" if the first index is fastest and the last is not, else "C"."""
        lease = self._open
        fits = []
        for order in (reversed(range(self.ndim)), range(self.ndim)):
            step, good = 1, True
            for i in order:
                good = good and (lease.shape[i] == 1 or lease.strides[i] == step)
                step *= lease.shape[i]
            fits.append(good)
        return "F" if fits == [False, True] else "C"

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("a device array of 0 dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        if self.closed:
            return "<DeviceArray, closed>"
        return f"<DeviceArray {'x'.join(map(str, self.shape))} {self.dtype_name} on {self.device}>"

    # ---- Views of the same memory ----

    def _view(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        lease = self._open
        made = _raw.lease(lease, lease.address, lease.dtype, lease.device, shape, strides, lease.readonly)
        return DeviceArray._of(made, self._home)

    def transpose(self, *axes: int) -> DeviceArray:
        """A view with the axes in another order; reversed by default."""
        order = axes or tuple(reversed(range(self.ndim)))
        if sorted(order) != list(range(self.ndim)):
            raise ArgumentError(f"axes is {order}, expected each of 0 .. {self.ndim - 1} once")
        shape, strides = self._open.shape, self._open.strides
        return self._view(tuple(shape[i] for i in order), tuple(strides[i] for i in order))

    @property
    def T(self) -> DeviceArray:
        """The transpose, in the same memory."""
        return self.transpose()

    @property
    def mT(self) -> DeviceArray:
        """A view with the last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"the device array has {self.ndim} dimensions, expected at least 2")
        return self.transpose(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2)

    def _insert(self, axis: int) -> DeviceArray:
        """A view with a new axis of size 1 before `axis`, which may be ndim."""
        shape, strides = self._open.shape, self._open.strides
        step = 1 if axis == self.ndim else shape[axis] * strides[axis]
        return self._view((*shape[:axis], 1, *shape[axis:]), (*strides[:axis], step, *strides[axis:]))

    def _repeat(self, times: int) -> DeviceArray:
        """A view that repeats the array `times` times along a new first axis."""
        return self._view((times, *self._open.shape), (0, *self._open.strides))

    # ---- Exchange ----

    def to_host(self, context: ContextLike = None) -> Array:
        """Wait for earlier work on the array and copy it to a NumPy array."""
        context = self._context(context)
        if not isinstance(self._home, Queue):
            context._follow(self._home)
        if self._handle is None:  # a view: its own elements first
            with self._copy(context) as copy:
                return copy.to_host(context)
        result = np.empty(self.shape, self.dtype, order=self._order)
        _raw.tartan_buffer_to_array(context._handle, self._handle, result)
        return result

    def _context(self, context: ContextLike) -> Context:
        self._open
        return context_on(queue_of(self) or CPU) if context is None else context_of(context)

    def _copy(self, context: Context) -> DeviceArray:
        return DeviceArray._own(_raw.tartan_buffer_from_array(context._handle, self._open), context._queue)

    def __array__(self, *arguments: Any, **options: Any) -> Array:
        raise ArgumentTypeError(
            f"a device array on {self.device} does not become a NumPy array unasked: use to_host()"
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._open.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Optional[bool] = None,
    ) -> Any:
        """Export the array, for from_dlpack of other libraries. Their work on `stream` starts after Tartan's work so
        far, and Tartan's work after they have released the memory starts after theirs; -1 orders nothing."""
        lease = self._open
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != lease.device:
            raise BufferError(
                f"the device array is on {self.device}, and exporting it to another device is a copy"
            )
        if stream == 0:
            raise ArgumentError("stream is 0, which DLPack does not allow: 1 is the default stream")
        if copy:
            return self._copy(self._context(None)).__dlpack__(stream=stream, max_version=max_version)
        taker = 0
        if lease.device[0] == _raw.TARTAN_CUDA and stream != -1:
            taker = LEGACY if stream is None else int(stream)
            _raw.tartan_array_signal_stream(lease, lease.device[1], taker)
        return lease.dlpack(max_version is not None and max_version[0] >= 1, taker)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        lease = self._open
        if lease.device[0] != _raw.TARTAN_CUDA:
            raise AttributeError(f"the device array is on {self.device}: it has no __cuda_array_interface__")
        if self.dtype_name in BITS:
            raise AttributeError(f"__cuda_array_interface__ has no {self.dtype_name}: use DLPack")
        home = queue_of(self)
        if home is not None and home is self._home:  # takers wait for that queue, and it for all others
            _raw.tartan_array_signal_stream(lease, home.device_id, home.stream)
        return {
            "version": 3,
            "shape": lease.shape,
            "typestr": self.dtype.str,
            "data": (lease.address, lease.readonly),
            "strides": self.strides,
            "stream": (home.stream or None) if home is not None else None,
        }

    # ---- Ending ----

    def close(self) -> None:
        """Free the memory as soon as no other array shares it; may be called again."""
        self._lease = None
        if self._handle is not None:
            self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._lease is None
