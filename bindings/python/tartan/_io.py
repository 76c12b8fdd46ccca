# SPDX-License-Identifier: Apache-2.0
"""Files: named layouts and matrices in one HDF5 file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array, optional_gates
from tartan._closing import Closing
from tartan._errors import ArgumentError, ArgumentTypeError, NotFoundError
from tartan._layout import Layout
from tartan._matrix import BlockMatrix

Thing = Union[Layout, BlockMatrix]


class File(Closing, Mapping[str, Thing]):
    """A collection of named layouts and matrices: ``File()`` is empty, ``File(path)`` reads one.

    Objects are read when asked for, so a file that is read must stay in place. Matrices are not copied by
    `put`: their values are read when the file is saved. A file serves one thread at a time.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
    >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
    >>> with tartan.File() as file:
    ...     file.put("w1", A, metadata={"layer": 1})
    ...     file["w2"] = A
    ...     file.save(path)
    >>> with tartan.File(path) as file:
    ...     file.matrices(), file.metadata("w1"), file["w1"].layout == file["w2"].layout
    (['w1', 'w2'], {'layer': 1}, True)
    """

    __slots__ = ("_handle",)

    def __init__(self, path: Any = None) -> None:
        self._handle = _raw.tartan_file_create() if path is None else _raw.tartan_file_open(_encode(path))

    # ---- Asking ----

    def _names(self, kind: int) -> list[str]:
        handle = self._handle
        found = []
        for i in range(_raw.tartan_file_count(handle)):
            if _raw.tartan_file_kind(handle, i) == kind:
                found.append(_raw.tartan_file_name(handle, i) or "")
        return found

    def layouts(self) -> list[str]:
        """Names of the layouts."""
        return self._names(_raw.TARTAN_KIND_LAYOUT)

    def matrices(self) -> list[str]:
        """Names of the matrices."""
        return self._names(_raw.TARTAN_KIND_MATRIX)

    def sharing(self, layout: Union[Layout, str]) -> list[str]:
        """Names of the matrices that use a layout, given itself or by its identity."""
        identity = layout.identity if isinstance(layout, Layout) else layout
        handle = self._handle
        return [
            _raw.tartan_file_name(handle, i) or ""
            for i in range(_raw.tartan_file_count(handle))
            if _raw.tartan_file_kind(handle, i) == _raw.TARTAN_KIND_MATRIX
            and _raw.tartan_file_layout_identity(handle, i) == identity
        ]

    @property
    def sealed(self) -> bool:
        """Whether the file that was read carried a valid seal over all its bytes."""
        return _raw.tartan_file_sealed(self._handle) == 1

    def _kind(self, name: str) -> int:
        """A matrix goes before a layout of the same name."""
        if name in self.matrices():
            return _raw.TARTAN_KIND_MATRIX
        if name in self.layouts():
            return _raw.TARTAN_KIND_LAYOUT
        raise NotFoundError(f"no object is named {name!r}; there are {', '.join(map(repr, self)) or 'none'}")

    def layout(self, name: str) -> Layout:
        return Layout._own(_raw.tartan_file_get_layout(self._handle, name))

    def matrix(self, name: str) -> BlockMatrix:
        return BlockMatrix._own(_raw.tartan_file_get_matrix(self._handle, name))

    def gates(self, name: str) -> Optional[Array]:
        """The gates stored with a matrix, in float64, or None."""
        matrix = self.matrix(name)
        if _raw.tartan_file_has_gates(self._handle, name) != 1:
            return None
        result = np.empty(matrix.blocks)
        _raw.tartan_file_get_gates(self._handle, name, result)
        return result

    def metadata(self, name: str) -> Any:
        """What was given as metadata, or None."""
        text = _raw.tartan_file_get_metadata(self._handle, self._kind(name), name)
        return json.loads(text) if text else None

    # ---- Mapping ----

    def __getitem__(self, name: str) -> Thing:
        if self._kind(name) == _raw.TARTAN_KIND_MATRIX:
            return self.matrix(name)
        return self.layout(name)

    def __setitem__(self, name: str, thing: Thing) -> None:
        self.put(name, thing)

    def __delitem__(self, name: str) -> None:
        self.remove(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self.layouts() + self.matrices()))

    def __len__(self) -> int:
        return len(set(self.layouts() + self.matrices()))

    def __contains__(self, name: object) -> bool:
        return name in self.layouts() or name in self.matrices()

    # ---- Changing and saving ----

    def put(self, name: str, thing: Thing, *, gates: Any = None, metadata: Any = None) -> None:
        """Puts a layout or a matrix under a name, replacing one of that kind. `metadata` is anything that
        JSON can express."""
        try:
            text = None if metadata is None else json.dumps(metadata)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(f"metadata cannot be written as JSON: {error}") from None
        if isinstance(thing, BlockMatrix):
            raw_gates = optional_gates(gates)
            _raw.tartan_file_put_matrix(self._handle, name, thing._handle, raw_gates, text)
            self._handle.hold(thing._handle)
        elif isinstance(thing, Layout):
            if gates is not None:
                raise ArgumentError("gates are given with a layout, expected them with a matrix")
            _raw.tartan_file_put_layout(self._handle, name, thing._handle, text)
        else:
            raise ArgumentTypeError(
                f"{name!r} is of type {type(thing).__name__}, expected a Layout or BlockMatrix"
            )

    def remove(self, name: str) -> None:
        """Removes a matrix, or else a layout, of that name."""
        _raw.tartan_file_remove(self._handle, self._kind(name), name)

    def save(self, path: Any, *, compress: bool = False) -> None:
        """Writes the collection: readers see the old file or the new one, never a mix."""
        keep = _raw.TARTAN_KEEP_COMPRESSED if compress else _raw.TARTAN_KEEP_PLAIN
        _raw.tartan_file_save(self._handle, _encode(path), keep)

    def close(self) -> None:
        """Frees the collection; again is fine. Objects got from it live on."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __repr__(self) -> str:
        return "<File, closed>" if self.closed else f"<File of {', '.join(map(repr, self)) or 'nothing'}>"


def _encode(path: Any) -> bytes:
    try:
        return os.fsencode(path)
    except TypeError:
        raise ArgumentTypeError(f"path is of type {type(path).__name__}, expected a file name") from None


def save(path: Any, things: Union[Thing, Mapping[str, Thing]], *, compress: bool = False) -> None:
    """Writes a layout, a matrix, or several under names, to one file."""
    if isinstance(things, (Layout, BlockMatrix)):
        things = {"layout" if isinstance(things, Layout) else "matrix": things}
    if not isinstance(things, Mapping):
        raise ArgumentTypeError(
            f"things is of type {type(things).__name__}, expected a Layout, BlockMatrix or dict"
        )
    with File() as file:
        for name, thing in things.items():
            file.put(name, thing)
        file.save(path, compress=compress)


def load(path: Any, name: Optional[str] = None) -> Thing:
    """Reads one object of a file; the name may be left out where there is a single matrix, or no matrix and
    a single layout.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "one.h5")
    >>> tartan.save(path, tartan.BlockMatrix.from_dense(np.eye(4), block=2))
    >>> tartan.load(path)
    <BlockMatrix 4x4 float64, 2 of 4 blocks of 2x2, density 0.5>
    """
    with File(path) as file:
        if name is not None:
            return file[name]
        names = file.matrices() or file.layouts()
        if len(names) != 1:
            raise ArgumentError(f"name is not given, expected one of {', '.join(map(repr, file)) or 'none'}")
        return file[names[0]]


def load_all(path: Any) -> dict[str, Thing]:
    """Reads every object of a file. Matrices that share a layout share it in memory."""
    with File(path) as file:
        return dict(file)


def verify(path: Any) -> str:
    """Reads a whole file and checks it against its seal, checksums and identities; raises where it is
    damaged, else returns a report."""
    return _raw.tartan_file_verify(_encode(path))
