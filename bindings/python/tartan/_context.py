# SPDX-License-Identifier: Apache-2.0
"""Contexts, and the features of this build and machine."""

from __future__ import annotations

import json
import operator
import re
import sys
from typing import Any, Optional, Union

from tartan import _raw
from tartan._arrays import dtype_code
from tartan._closing import Closing
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan._queue import CPU, LEGACY, Queue, device_name, export, queue_of, stream_address


def _whole(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is of type {type(value).__name__}, expected an integer") from None


class Context(Closing):
    """One ordered queue of work: a team of threads, or a stream of a GPU. Its options are fixed at creation.

    Only one thread at a time may use a context. Functions called without a context use one that Tartan creates on
    first use and keeps for the calling thread and queue.

    On a GPU, calls return before their work is done. Later work on the same stream, by any library, sees the
    results; `sync` waits for them.

    >>> import tartan
    >>> with tartan.Context(threads=2) as context:
    ...     context.threads
    2
    """

    __slots__ = ("_handle", "_math_mode", "_queue", "__weakref__")

    def __init__(
        self, device: str = "cpu", threads: int = 0, seed: int = 0, *, stream: Any = None,
        math_mode: str = "exact", allow_dense: bool = False,
    ) -> None:  # fmt: skip
        """`device` is "cpu", "cuda" or "cuda:1". `threads` 0: TARTAN_NUM_THREADS, else OMP_NUM_THREADS, else all
        processors. `seed` starts the sequence of seeds for functions that are called without one. `stream` is the
        CUDA stream to work on: an address, a torch.cuda.Stream, a cupy.cuda.Stream, or any object with
        __cuda_stream__; None is the device's default stream, which PyTorch and CuPy also use by default. `math_mode`
        says how float32 factors may be multiplied: "tf32" allows a GPU to round them to tf32; "bf16x3" and "bf16x6"
        allow a CPU with AMX to use three or six products of bfloat16, with errors within 2^-15 of the products or
        about as small as those of float32. `tartan.explain` says which kernel runs. ``allow_dense=True`` allows a GPU
        to multiply a dense copy of a matrix that stores most of its blocks, with cuBLAS, if that is available and
        expected to be faster. NaN and infinity in the other factor then reach every row, and results may differ in
        their last bits between versions of cuBLAS."""
        if math_mode not in ("exact", "tf32", "bf16x3", "bf16x6"):
            raise ArgumentError(f"math_mode is {math_mode!r}, expected 'exact', 'tf32', 'bf16x3' or 'bf16x6'")
        on_gpu = isinstance(device, str) and device.startswith("cuda")
        address = (LEGACY if on_gpu else 0) if stream is None else stream_address(stream, device)
        self._handle = _raw.tartan_context_create(
            device,
            f"threads={_whole(threads, 'threads')} seed={_whole(seed, 'seed')} math={math_mode} "
            f"allow_dense={int(bool(allow_dense))} stream={address}",
        )
        self._math_mode = math_mode
        self._queue = Queue(device_name(device), address, stream) if on_gpu else CPU

    @property
    def device(self) -> str:
        """ "cpu", "cuda:0", ..."""
        return self._queue.device

    @property
    def stream(self) -> Optional[int]:
        """The address of the CUDA stream (1: the device's default one); None on the CPU."""
        return self._queue.stream or None

    @property
    def math_mode(self) -> str:
        """ "exact", or how float32 factors may be multiplied: see `Context`."""
        return self._math_mode

    @property
    def threads(self) -> int:
        """The number of workers of an operation on the CPU."""
        return _raw.tartan_context_threads(self._handle)

    def sync(self) -> None:
        """Wait for all work of the context."""
        _raw.tartan_context_sync(self._handle)

    def _follow(self, source: Any, exported: bool = False) -> Optional[Queue]:
        """Order later work after the work so far of the owner of `source`, an array of another library.
        Return the owner's queue if it is another one, for `_lead`. If the owner does not say which stream
        it uses, exporting the array orders the work; `exported`: that has been done."""
        other = queue_of(source)
        if other is None or self.device == "cpu" or other == self._queue:
            return None
        if not hasattr(source, "__dlpack__"):  # __cuda_array_interface__ does not say which GPU
            other = Queue(self.device, other.stream, source)
        near = other.device == self.device
        if not other.stream and not exported:
            export(source, self._queue.stream if near else None)
        if other.stream or not near:  # exported for no stream of its device, it is ready for the default one
            _raw.tartan_context_wait_stream(self._handle, other.device_id, other.stream or LEGACY)
        return other

    def _lead(self, other: Queue) -> None:
        """Order later work of `other`, another library's queue, after the work so far. If the library does
        not say which stream it uses, there is no stream that could wait, so the host does."""
        if other.stream:
            _raw.tartan_context_signal_stream(self._handle, other.device_id, other.stream)
        else:
            self.sync()

    def peak(self, dtype: Any = "float64") -> float:
        """Measure the rate of multiply-adds in registers on one thread, in 1e9 operations per second."""
        return _raw.tartan_context_peak(self._handle, dtype_code(dtype))

    def close(self) -> None:
        """Free the context; may be called again."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._handle.closed

    def __repr__(self) -> str:
        if self.closed:
            return "<Context, closed>"
        return f"<Context, {self.threads} threads>" if self.stream is None else f"<Context, {self.device}>"


ContextLike = Union[Context, str, None]


def default_context(device: str = "cpu") -> Context:
    """The context of the calling thread on a device ("cpu", "cuda", "cuda:1"); on a GPU, for its default stream. If
    PyTorch may use tf32 for float32 products (`torch.set_float32_matmul_precision`), default contexts of GPUs may,
    too."""
    if not isinstance(device, str) or not re.fullmatch(r"cpu|cuda(:[0-9]+)?", device):
        return Context(device)  # the library says what is wrong
    return context_on(CPU if device == "cpu" else Queue(device_name(device), LEGACY))


def context_on(queue: Queue) -> Context:
    """The calling thread's context for a queue."""
    stream = 0 if queue.device == "cpu" else queue.stream or LEGACY
    context: Context = _raw.context_on(queue.device_type, queue.device_id, stream, queue)
    return context


def rounds_to_tf32() -> bool:
    """Whether PyTorch is in use and may use tf32 for float32 products (`torch.set_float32_matmul_precision("high")`,
    `torch.backends.cuda.matmul.allow_tf32`). Default contexts of GPUs then do the same."""
    try:
        matmul = sys.modules["torch"].backends.cuda.matmul
    except (KeyError, AttributeError):  # not there, or only in part, while it is imported
        return False
    try:
        return bool(matmul.fp32_precision == "tf32")
    except (AttributeError, AssertionError):  # before PyTorch 2.9
        return bool(matmul.allow_tf32)


def make_context(device_type: int, device_id: int, stream: int, queue: Optional[Queue], tf32: bool) -> Context:
    """A default context, which the extension module keeps for the calling thread."""
    if device_type == _raw.TARTAN_CPU:
        return Context()
    context = Context(f"cuda:{device_id}", stream=stream, math_mode="tf32" if tf32 else "exact")
    if queue is not None and queue.stream == stream:
        context._queue = queue  # keeps the owner of the stream
    return context


def context_of(context: ContextLike) -> Context:
    """The context that an argument stands for."""
    if context is None:
        return default_context()
    return default_context(context) if isinstance(context, str) else context


def handle_of(context: ContextLike) -> _raw.Handle:
    context = context_of(context)
    return context._handle if isinstance(context, Context) else context


def set_num_threads(threads: int) -> None:
    """Limit the threads of every later call, ``A @ x`` included, whatever its context has; 0 removes the limit. No
    result depends on it. threadpoolctl's `threadpool_limits` sets it, too.

    >>> import tartan
    >>> tartan.set_num_threads(1)
    >>> tartan.get_num_threads()
    1
    >>> tartan.set_num_threads(0)
    """
    _raw.tartan_set_num_threads(_whole(threads, "threads"))


def get_num_threads() -> int:
    """The number of threads that a call may use now: TARTAN_NUM_THREADS, else OMP_NUM_THREADS, else all processors,
    unless `set_num_threads` allows fewer."""
    return _raw.tartan_get_num_threads()


def info() -> dict[str, Any]:
    """Features of this build and machine: version, CPU, kernels, backends.

    >>> import tartan
    >>> tartan.info()["tartan"] == tartan.__version__
    True
    """
    result: dict[str, Any] = json.loads(_raw.tartan_info())
    return result


def cpu_kernels() -> str:
    """The instruction sets of the kernels in use, for instance "avx512", or "c" for portable C. TARTAN_CPU restricts
    them."""
    return _raw.tartan_cpu_kernels() or ""
