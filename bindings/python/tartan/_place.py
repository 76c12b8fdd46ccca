# SPDX-License-Identifier: Apache-2.0
"""The order of work on one piece of device memory."""

from __future__ import annotations

import sys
from typing import Any, Optional

from tartan._context import wait
from tartan._errors import TartanError
from tartan._queue import CPU, Queue, queue_of, view


class Place:
    """Memory of ours: which queues may still be at work on it. Work on one queue needs no care; before work
    on another, and before the memory goes back to the queue it came from, the host waits.

    As long as all work is on one queue, that is `only`, which the extension module looks at, and the rest is not kept."""

    __slots__ = ("home", "keep", "only", "readers", "writer")

    def __init__(self, home: Queue, keep: Any) -> None:
        self.home, self.keep = home, keep
        self.only: Optional[Queue] = home
        self.writer: Optional[Queue] = None
        self.readers: set[Queue] = set()

    def _spread(self) -> None:
        """From here on several queues are told apart."""
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
        """Before the memory goes back."""
        try:
            self.settle(self.home)
        except TartanError:  # a lost device: there is nothing left to wait for
            pass

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.leave()


class Foreign:
    """Memory of another library's array, which goes on working with it on its own current stream."""

    __slots__ = ("source",)

    def __init__(self, source: Any) -> None:
        self.source = source

    @property
    def home(self) -> Queue:
        return queue_of(self.source) or CPU

    def order(self, queue: Queue) -> bool:
        """Work asked for on `queue` from now on comes after what the array's owner has asked for. Returns
        whether the owner works on another queue."""
        home = self.home
        if home == queue:
            return False
        if hasattr(self.source, "__dlpack__"):
            view(self.source, queue.stream)  # exporting it is what orders
        elif home.stream:
            wait(home)
        return True
