# SPDX-License-Identifier: Apache-2.0
"""Things that ``with`` closes."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, TypeVar

T = TypeVar("T", bound="Closing")


class Closing:
    """Has `close`, which ``with`` calls at its end."""

    __slots__ = ()

    def close(self) -> None:
        """Frees what it holds; again is fine."""
        raise NotImplementedError

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
