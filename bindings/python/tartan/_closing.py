# SPDX-License-Identifier: Apache-2.0
"""Objects that ``with`` closes."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, TypeVar

T = TypeVar("T", bound="Closing")


class Closing:
    """An object with `close`, which ``with`` calls at its end."""

    __slots__ = ()

    def close(self) -> None:
        """Free what the object holds; may be called again."""
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
