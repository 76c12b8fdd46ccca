# SPDX-License-Identifier: Apache-2.0
"""Shapes and dtypes of results by the notation of the schema, for PyTorch's operators: sizes may be symbols."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional

import torch


class Argument(NamedTuple):
    """An operand: see lib/ops/schema/schema.py."""

    name: str
    kind: str
    dtype: str
    shape: str  # empty where a function of the library computes it
    optional: bool
    updated: bool
    image: bool


class Option(NamedTuple):
    """An option; if `computed`, it may be left out."""

    name: str
    kind: str
    computed: bool


class Operator(NamedTuple):
    """An operation: its number in tartan._operations, its names in the schema and in Python, the operation of its gradient, and
    whether its results have a place each in what it returns."""

    number: int
    name: str
    called: str
    gradient: Optional[str]
    images: bool
    places: bool
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    options: tuple[Option, ...]


def items_of(shape: str) -> list[str]:
    """The parts of "[a, b...]"."""
    inside = shape.strip()[1:-1].strip()
    return [item.strip() for item in inside.split(",")] if inside else []


def alternatives(shape: str) -> list[list[str]]:
    return [items_of(one) for one in shape.split(" or ") if one.strip().startswith("[") and one.strip().endswith("]")]


def bind(items: list[str], lengths: Any, sizes: dict[str, Any]) -> None:
    """Give the names in `items` the sizes of an array, where they have none yet."""
    many = next((i for i, item in enumerate(items) if item.endswith("...")), None)
    after = 0 if many is None else len(items) - many - 1
    for i, item in enumerate(items):
        if many is None or i < many:
            size: Any = lengths[i]
        elif i == many:
            size = tuple(lengths[i : len(lengths) - after])
        else:
            size = lengths[len(lengths) - len(items) + i]
        sizes.setdefault(item, size)


def read(argument: Argument, array: Any, sizes: dict[str, Any]) -> None:
    """Take the sizes of an input."""
    if not argument.shape.startswith("["):
        return
    lengths = array.shape
    for items in alternatives(argument.shape):
        least = sum(not item.endswith("...") for item in items)
        if least == len(lengths) or (least < len(lengths) and least < len(items)):
            bind(items, lengths, sizes)
            return


def length_of(item: str, sizes: dict[str, Any]) -> tuple[Any, ...]:
    if "&" in item:
        parts = [sizes[part.strip()] for part in item.split("&")]
        return tuple(torch.broadcast_shapes(*parts))  # type: ignore[no-untyped-call, unused-ignore]
    if item.isdigit():
        return (int(item),)
    size = sizes[item]
    return size if isinstance(size, tuple) else (size,)


def shape_of(argument: Argument, given: dict[str, Any], sizes: dict[str, Any]) -> Optional[tuple[Any, ...]]:
    """The shape of an output; None if the notation does not determine it."""
    found = re.fullmatch(r"=(\w+)", argument.shape)
    of = argument.name[: -len("_grad")] if argument.name.endswith("_grad") else ""
    like = given.get(of) if of in given else given.get(found.group(1)) if found else None
    if like is not None and not argument.image:
        return tuple((like[0] if isinstance(like, (list, tuple)) else like).shape)
    if found or " or " in argument.shape or not argument.shape.startswith("["):
        return None
    try:
        return tuple(size for item in items_of(argument.shape) for size in length_of(item, sizes))
    except KeyError:
        return None


def dtype_of(argument: Argument, given: dict[str, Any], dtype: Any) -> Any:
    """The dtype of an output; `dtype` is the dtype of the operation."""
    of = given.get(argument.name[: -len("_grad")]) if argument.name.endswith("_grad") else None
    if of is not None:
        return of.dtype
    if argument.dtype == "I":
        return torch.int64
    if argument.dtype in ("F64", "R"):
        return torch.float64 if argument.dtype == "F64" or dtype == torch.float64 else torch.float32
    if argument.dtype == "S":
        return torch.float64 if dtype == torch.float64 else torch.float32
    return torch.float32 if dtype.itemsize == 1 else dtype
