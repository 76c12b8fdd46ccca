# SPDX-License-Identifier: Apache-2.0
"""Contexts, and what this build and machine offer."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any, Optional

from tartan import _raw
from tartan._arrays import dtype_code


class Context:
    """One ordered queue of work: a team of threads. Its options do not change.

    A context serves one thread at a time. Functions that are given none use one of their own for each
    thread, made on first use.

    >>> import tartan
    >>> with tartan.Context(threads=2) as context:
    ...     context.threads
    2
    """

    __slots__ = ("_handle", "__weakref__")

    def __init__(self, device: str = "cpu", threads: int = 0, seed: int = 0) -> None:
        """`threads` 0: TARTAN_NUM_THREADS, else OMP_NUM_THREADS, else all processors. `seed` is used where
        a function is given a seed of -1."""
        self._handle = _raw.tartan_context_open(device, threads, seed)

    @property
    def threads(self) -> int:
        """The number of workers that an operation uses."""
        self.sync()  # refuses a closed context
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

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return "<Context, closed>" if self.closed else f"<Context, {self.threads} threads>"


_local = threading.local()


def default_context() -> Context:
    """The context of the calling thread."""
    context: Optional[Context] = getattr(_local, "context", None)
    if context is None or context.closed:
        context = _local.context = Context()
    return context


def handle_of(context: Optional[Context]) -> _raw.Handle:
    if context is None:
        context = default_context()
    return context._handle if isinstance(context, Context) else context


def info() -> dict[str, Any]:
    """What this build and machine offer: version, CPU, kernels, backends.

    >>> import tartan
    >>> tartan.info()["tartan"] == tartan.__version__
    True
    """
    result: dict[str, Any] = json.loads(_raw.tartan_info())
    return result


def cpu_level() -> str:
    """The kernels in use: "c", "avx2", "avx512", "avx512bf16" or "amx"."""
    return _raw.tartan_cpu_level() or ""
