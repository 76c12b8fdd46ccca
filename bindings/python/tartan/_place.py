# SPDX-License-Identifier: Apache-2.0
"""The order of work on one piece of device memory."""

from __future__ import annotations

import sys
from typing import Any, Optional

from tartan._context import wait
from tartan._errors import TartanError
from tartan._queue import CPU, Queue, queue_of, view


class Place:
    """Tartan's own memory: which queues may still be working on it. Work on one queue needs no care; the host
    waits before work on another queue, and before the memory is returned to the queue that allocated it.

    While all work is on one queue, `only` is that queue, which the extension module reads, and the rest is unused."""

    __slots__ = ("home", "keep", "only", "readers", "writer")

    def __init__(self, home: Queue, keep: Any) -> None:
        self.home, self.keep = home, keep
        self.only: Optional[Queue] = home
        self.writer: Optional[Queue] = None
        self.readers: set[Queue] = set()

    def _spread(self) -> None:
        """Starts to track several queues."""
        if self.only is not None:
            self.writer, self.readers, self.only = self.only, {self.only}, None

    def read(self, queue: Queue) -> None:
        if self.only == queue:
            return
        self._spread()
        writer = self.writer
        if writer is not None and writer != queue:
            wait(writer)
            self.writer = None
            self.readers.discard(writer)
        self.readers.add(queue)

    def write(self, queue: Queue) -> None:
        if self.only == queue:
            return
        self.settle(queue)
        self.only, self.writer = queue, None

    def settle(self, queue: Queue) -> None:
        """Waits for all queues but one."""
        if self.only == queue:
            return
        self._spread()
        for other in list(self.readers if self.writer is None else {*self.readers, self.writer}):
            if other != queue:
                wait(other)
        self.readers.clear()
        if self.writer != queue:
            self.writer = None

    def leave(self) -> None:
        """Called before the memory is released."""
        try:
            self.settle(self.home)
        except TartanError:  # a lost device: there is nothing left to wait for
            pass

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.leave()


class Foreign:
    """Memory of another library's array, which that library still uses on its own current stream."""

    __slots__ = ("source",)

    def __init__(self, source: Any) -> None:
        self.source = source

    @property
    def home(self) -> Queue:
        return queue_of(self.source) or CPU

    def order(self, queue: Queue) -> bool:
        """Orders later work on `queue` after the earlier work of the array's owner. Returns whether the owner
        uses another queue."""
        home = self.home
        if home == queue:
            return False
        if hasattr(self.source, "__dlpack__"):
            view(self.source, queue.stream)  # the export itself orders the streams
        elif home.stream:
            wait(home)
        return True
