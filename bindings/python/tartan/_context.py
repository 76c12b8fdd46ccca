# SPDX-License-Identifier: Apache-2.0
"""Contexts, and what this build and machine offer."""

from __future__ import annotations

import json
import operator
import re
from typing import Any, Optional, Union

from tartan import _raw
from tartan._arrays import dtype_code
from tartan._closing import Closing
from tartan._errors import ArgumentError, ArgumentTypeError, HandleError
from tartan._queue import CPU, LEGACY, Queue, device_name, stream_address


def _whole(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is of type {type(value).__name__}, expected an integer") from None


class Context(Closing):
    """One ordered queue of work: a team of threads, or a stream of a GPU. Its options do not change.

    A context serves one thread at a time. Functions that are given none use one of their own for each
    thread and queue, made on first use.

    On a GPU, calls return before their work is done. What comes later on the same stream, by whatever
    library, sees its results; `sync` waits for them.

    >>> import tartan
    >>> with tartan.Context(threads=2) as context:
    ...     context.threads
    2
    """

    __slots__ = ("_handle", "_queue", "__weakref__")

    def __init__(
        self, device: str = "cpu", threads: int = 0, seed: int = 0, *, stream: Any = None,
        math_mode: str = "exact", allow_dense: bool = False,
    ) -> None:  # fmt: skip
        """`device` is "cpu", "cuda" or "cuda:1". `threads` 0: TARTAN_NUM_THREADS, else OMP_NUM_THREADS, else
        all processors. `seed` is used where a function is given a seed of -1. `stream` is the CUDA stream to
        work on: an address, a torch.cuda.Stream, a cupy.cuda.Stream, or what else has __cuda_stream__; None
        is the device's default stream, which PyTorch and CuPy use too unless told otherwise. `math_mode`
        "tf32" lets a GPU round factors of float32 to tf32. `allow_dense` True lets it multiply a matrix that has most of its blocks as a dense copy
        by cuBLAS, where that is there and expected to be faster: NaN and infinity of the other factor then
        reach every row, and results may differ in their last bits between versions of cuBLAS."""
        if math_mode not in ("exact", "tf32"):
            raise ArgumentError(f"math_mode is {math_mode!r}, expected 'exact' or 'tf32'")
        on_gpu = isinstance(device, str) and device.startswith("cuda")
        address = (LEGACY if on_gpu else 0) if stream is None else stream_address(stream, device)
        self._handle = _raw.tartan_context_create(
            device,
            f"threads={_whole(threads, 'threads')} seed={_whole(seed, 'seed')} math={math_mode} "
            f"allow_dense={int(bool(allow_dense))} stream={address}",
        )
        self._queue = Queue(device_name(device), address, stream) if on_gpu else CPU

    @property
    def device(self) -> str:
        """ "cpu", "cuda:0", ..."""
        return self._queue.device

    @property
    def stream(self) -> Optional[int]:
        """The address of the CUDA stream, 1 being the device's default one; None on the CPU."""
        return self._queue.stream or None

    @property
    def threads(self) -> int:
        """The number of workers that an operation on the CPU uses."""
        return _raw.tartan_context_threads(self._handle)

    def sync(self) -> None:
        """Waits for all work of the context."""
        _raw.tartan_context_sync(self._handle)

    def peak(self, dtype: Any = "float64") -> float:
        """Multiply-adds in registers, measured now on one thread, in 1e9 operations a second."""
        return _raw.tartan_context_peak(self._handle, dtype_code(dtype))

    def close(self) -> None:
        """Frees the context; again is fine."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __repr__(self) -> str:
        if self.closed:
            return "<Context, closed>"
        return f"<Context, {self.threads} threads>" if self.stream is None else f"<Context, {self.device}>"


ContextLike = Union[Context, str, None]


def default_context(device: str = "cpu") -> Context:
    """The context of the calling thread on a device ("cpu", "cuda", "cuda:1"); on a GPU, for its default
    stream."""
    if not isinstance(device, str) or not re.fullmatch(r"cpu|cuda(:[0-9]+)?", device):
        return Context(device)  # the library says what is wrong
    return context_on(CPU if device == "cpu" else Queue(device_name(device), LEGACY))


def context_on(queue: Queue) -> Context:
    """The calling thread's context for a queue."""
    stream = 0 if queue.device == "cpu" else queue.stream or LEGACY
    context: Context = _raw.context_on(queue.device_type, queue.device_id, stream, queue)
    return context


def make_context(device_type: int, device_id: int, stream: int, queue: Optional[Queue]) -> Context:
    """A default context, which the extension module keeps for the calling thread."""
    if device_type == _raw.TARTAN_CPU:
        return Context()
    context = Context(f"cuda:{device_id}", stream=stream)
    if queue is not None and queue.stream == stream:
        context._queue = queue  # keeps the owner of the stream
    return context


def wait(queue: Queue) -> None:
    """Returns when the work asked for on a queue has ended."""
    try:
        context_on(queue).sync()
    except HandleError:  # a collection of garbage in the middle of a call, which uses that context
        with Context(queue.device, stream=queue.stream) as context:
            context.sync()


def context_of(context: ContextLike) -> Context:
    """The context that an argument stands for."""
    if context is None:
        return default_context()
    return default_context(context) if isinstance(context, str) else context


def handle_of(context: ContextLike) -> _raw.Handle:
    context = context_of(context)
    return context._handle if isinstance(context, Context) else context


def info() -> dict[str, Any]:
    """What this build and machine offer: version, CPU, kernels, backends.

    >>> import tartan
    >>> tartan.info()["tartan"] == tartan.__version__
    True
    """
    result: dict[str, Any] = json.loads(_raw.tartan_info())
    return result


def cpu_kernels() -> str:
    """The instruction sets whose kernels run, such as "avx512", or "c" for portable C. TARTAN_CPU lowers them."""
    return _raw.tartan_cpu_kernels() or ""
