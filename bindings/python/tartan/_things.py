# SPDX-License-Identifier: Apache-2.0
"""What files and collections hold: the kinds of things, and errors about them."""

from __future__ import annotations

import itertools
import json
from typing import Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array
from tartan._errors import ArgumentError, ArgumentTypeError, FormatError, NotFoundError
from tartan._layout import Layout
from tartan._matrix import BlockMatrix
from tartan._transposed import TransposedMatrix

Thing = Union[Layout, BlockMatrix, Array]
Put = Any  # a Thing, or a Sparsifier, which puts itself into a file
KINDS = {"layout": _raw.TARTAN_KIND_LAYOUT, "matrix": _raw.TARTAN_KIND_MATRIX, "array": _raw.TARTAN_KIND_ARRAY}
NAMES = {code: kind for kind, code in KINDS.items()}


def kind_of(thing: Thing) -> str:
    return "layout" if isinstance(thing, Layout) else "matrix" if isinstance(thing, BlockMatrix) else "array"


def checked(name: str, thing: Any, gates: Any) -> Thing:
    if isinstance(thing, TransposedMatrix):
        thing = thing.copy()
    if isinstance(thing, np.generic):
        thing = np.asarray(thing)
    if not isinstance(thing, (Layout, BlockMatrix, np.ndarray)) and not hasattr(thing, "__dlpack__"):
        raise ArgumentTypeError(f"{name!r} is of type {type(thing).__name__}, expected a Layout, a BlockMatrix or an array")
    if not isinstance(thing, BlockMatrix) and gates is not None:
        raise ArgumentError(f"gates are given with {'a layout' if isinstance(thing, Layout) else 'an array'}, expected them with a matrix")
    return thing  # type: ignore[no-any-return]


def parsed(text: Optional[str], name: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise FormatError(f"the metadata of {name!r} is no JSON: {error}") from None


def not_found(name: str, among: Any) -> NotFoundError:
    return NotFoundError(f"no object is named {name!r}; there are {listed(among)}")


def listed(names: Any) -> str:
    """The first of many names."""
    few = list(map(repr, itertools.islice(names, 9)))
    return "none" if not few else ", ".join(few[:8] + ["..."] * (len(few) > 8))
