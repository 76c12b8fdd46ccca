# SPDX-License-Identifier: Apache-2.0
"""What functions of images share: numbers for each spatial dimension, and arrays that may be lists."""

from __future__ import annotations

from operator import index
from typing import Any, Union

from tartan import _raw
from tartan._arrays import array_of
from tartan._errors import ArgumentTypeError

Numbers = Union[int, str, "tuple[int, ...]", "list[int]"]
Sizes = Union[int, "tuple[int, ...]", "list[int]"]


def numbers_text(value: Any, name: str) -> str:
    """3, (3, 3) or "3x3" as the library takes it."""
    if isinstance(value, str):
        return value
    try:
        return "x".join(str(index(v)) for v in value) if isinstance(value, (tuple, list)) else str(index(value))
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}, expected a whole number, or one for each dimension") from None


def sizes_of(size: Sizes, name: str = "size") -> tuple[int, ...]:
    """Spatial lengths: 5 is (5,)."""
    try:
        return (index(size),) if hasattr(size, "__index__") else tuple(index(n) for n in size)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {size!r}, expected whole numbers, one for each dimension") from None


def array_like(x: Any, name: str) -> Any:
    """`x`, or an array of it if it is a list."""
    return x if hasattr(x, "shape") else array_of(x, name, _raw.TARTAN_F64)
