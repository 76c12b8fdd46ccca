# SPDX-License-Identifier: Apache-2.0
"""Files: named layouts and matrices in one HDF5 file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array, doubles, optional_gates
from tartan._closing import Closing
from tartan._errors import ArgumentError, ArgumentTypeError, FormatError, NotFoundError, about_file
from tartan._layout import Layout
from tartan._matrix import BlockMatrix
from tartan._store import compression, encode_path, json_text
from tartan._transposed import TransposedMatrix

Thing = Union[Layout, BlockMatrix]
_KINDS = {"layout": _raw.TARTAN_KIND_LAYOUT, "matrix": _raw.TARTAN_KIND_MATRIX}


class File(Closing, Mapping[str, Thing]):
    """A collection of named layouts and matrices: ``File()`` is empty, ``File(path)`` reads one.

    Objects are read on demand. `put` does not copy matrices: their values are read when the file is saved.
    Only one thread at a time may use a file. Files of other programs have no seal (`sealed`), so damage in them can go
    unnoticed: `verify` those that you do not trust first.

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

    __slots__ = ("_handle", "_path")

    def __init__(self, path: Any = None) -> None:
        self._path = path
        with about_file(path):
            self._handle = _raw.tartan_file_create() if path is None else _raw.tartan_file_open(encode_path(path))

    # ---- Asking ----

    def _names(self, kind: int) -> list[str]:
        handle = self._handle
        return [
            _raw.tartan_file_name(handle, i) or ""
            for i in range(_raw.tartan_file_count(handle))
            if _raw.tartan_file_kind(handle, i) == kind
        ]

    def layouts(self) -> list[str]:
        """Names of the layouts."""
        return self._names(_raw.TARTAN_KIND_LAYOUT)

    def matrices(self) -> list[str]:
        """Names of the matrices."""
        return self._names(_raw.TARTAN_KIND_MATRIX)

    def sharing(self, layout: Union[Layout, str]) -> list[str]:
        """Names of the matrices that use a layout, given as an object or by its identity."""
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
        """Whether the file that was read has a valid seal over all its bytes."""
        return _raw.tartan_file_sealed(self._handle) == 1

    def layout(self, name: str) -> Layout:
        with about_file(self._path):
            return Layout._own(_raw.tartan_file_get_layout(self._handle, name))

    def matrix(self, name: str) -> BlockMatrix:
        with about_file(self._path):
            return BlockMatrix._own(_raw.tartan_file_get_matrix(self._handle, name))

    def gates(self, name: str) -> Optional[Array]:
        """The gates stored with a matrix, in float64, or None."""
        return self._gates(name, self.matrix(name).blocks)

    def _gates(self, name: str, blocks: int) -> Optional[Array]:
        if _raw.tartan_file_has_gates(self._handle, name) != 1:
            return None
        result = np.empty(blocks)
        with about_file(self._path):
            _raw.tartan_file_get_gates(self._handle, name, result)
        return result

    def metadata(self, name: str, kind: Optional[str] = None) -> Any:
        """The metadata of an object, or None. A matrix takes precedence over a layout of the same name,
        unless `kind`, "matrix" or "layout", is given."""
        return _parsed(self._metadata_text(name, kind), name)

    def _metadata_text(self, name: str, kind: Optional[str]) -> Optional[str]:
        if kind is not None and kind not in _KINDS:
            raise ArgumentError(f"kind is {kind!r}, expected 'matrix' or 'layout'")
        code = self._kind(name) if kind is None else _KINDS[kind]
        with about_file(self._path):
            return _raw.tartan_file_get_metadata(self._handle, code, name) or None

    def _kind(self, name: str) -> int:
        """A matrix takes precedence over a layout of the same name."""
        for kind in (_raw.TARTAN_KIND_MATRIX, _raw.TARTAN_KIND_LAYOUT):
            if _raw.tartan_file_find(self._handle, kind, name) >= 0:
                return kind
        raise _not_found(name, self)

    # ---- Mapping ----

    def __getitem__(self, name: str) -> Thing:
        return self.matrix(name) if self._kind(name) == _raw.TARTAN_KIND_MATRIX else self.layout(name)

    def __setitem__(self, name: str, thing: Thing) -> None:
        self.put(name, thing)

    def __delitem__(self, name: str) -> None:
        self.remove(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self.layouts() + self.matrices()))

    def __len__(self) -> int:
        return len(set(self.layouts() + self.matrices()))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(
            _raw.tartan_file_find(self._handle, kind, name) >= 0 for kind in _KINDS.values()
        )

    # ---- Changing and saving ----

    def put(self, name: str, thing: Thing, *, gates: Any = None, metadata: Any = None) -> None:
        """Stores a layout or a matrix under a name, replacing one of the same kind; of a transpose, a copy.
        `metadata` is anything that JSON can express."""
        self._put(name, thing, gates, json_text(metadata))

    def _put(self, name: str, thing: Thing, gates: Any, text: Optional[str]) -> None:
        thing = _checked(name, thing, gates)
        if isinstance(thing, BlockMatrix):
            _raw.tartan_file_put_matrix(self._handle, name, thing._handle, optional_gates(gates), text)
            self._handle.hold(thing._handle)
        else:
            _raw.tartan_file_put_layout(self._handle, name, thing._handle, text)

    def remove(self, name: str) -> None:
        """Removes the matrix or, if there is none, the layout of that name."""
        _raw.tartan_file_remove(self._handle, self._kind(name), name)

    def save(self, path: Any, *, compress: bool = False) -> None:
        """Writes the collection atomically: readers see the complete old or new file."""
        with about_file(path):
            _raw.tartan_file_save(self._handle, encode_path(path), compression(compress))

    def close(self) -> None:
        """Frees the collection; may be called again. Objects read from it stay valid."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def __repr__(self) -> str:
        return "<File, closed>" if self.closed else f"<File of {', '.join(map(repr, self)) or 'nothing'}>"


class _Entry(NamedTuple):
    thing: Thing
    gates: Any
    metadata: Optional[str]  # as JSON


class Collection(MutableMapping[str, Thing]):
    """Named layouts and matrices in memory with gates and metadata: a dict that `save` writes as completely
    as `load_all` reads it. If a matrix and a layout have the same name, ``[name]`` is the matrix. A copy has the same
    objects."""

    __slots__ = ("_layouts", "_matrices")

    def __init__(self) -> None:
        self._layouts: dict[str, _Entry] = {}
        self._matrices: dict[str, _Entry] = {}

    def _read(self, file: File) -> None:
        """Matrices that share a layout share it in memory."""
        for name in file.layouts():
            text = file._metadata_text(name, "layout")
            self._layouts[name] = _Entry(file.layout(name), None, text)
        for name in file.matrices():
            matrix, text = file.matrix(name), file._metadata_text(name, "matrix")
            self._matrices[name] = _Entry(matrix, file._gates(name, matrix.blocks), text)

    def _write(self, file: File) -> None:
        for entries in (self._layouts, self._matrices):
            for name, entry in entries.items():
                file._put(name, *entry)

    def _entry(self, name: str, kind: Optional[str] = None) -> _Entry:
        for which, entries in (("matrix", self._matrices), ("layout", self._layouts)):
            if kind in (None, which) and name in entries:
                return entries[name]
        raise _not_found(name, self)

    def layouts(self) -> list[str]:
        """Names of the layouts."""
        return list(self._layouts)

    def matrices(self) -> list[str]:
        """Names of the matrices."""
        return list(self._matrices)

    def layout(self, name: str) -> Layout:
        thing = self._entry(name, "layout").thing
        assert isinstance(thing, Layout)
        return thing

    def matrix(self, name: str) -> BlockMatrix:
        thing = self._entry(name, "matrix").thing
        assert isinstance(thing, BlockMatrix)
        return thing

    def gates(self, name: str) -> Optional[Array]:
        """The gates stored with a matrix, in float64, or None."""
        gates = self._entry(name, "matrix").gates
        return None if gates is None else doubles(gates, "gates")

    def metadata(self, name: str, kind: Optional[str] = None) -> Any:
        """Like `File.metadata`."""
        return _parsed(self._entry(name, kind).metadata, name)

    def put(self, name: str, thing: Thing, *, gates: Any = None, metadata: Any = None) -> None:
        """Like `File.put`; ``collection[name] = thing`` is the same without gates and metadata."""
        thing = _checked(name, thing, gates)
        entries = self._matrices if isinstance(thing, BlockMatrix) else self._layouts
        entries[name] = _Entry(thing, gates, json_text(metadata))

    def save(self, path: Any, *, compress: bool = False) -> None:
        """Like `File.save`."""
        save(path, self, compress=compress)

    def copy(self) -> Collection:
        result = Collection()
        result._layouts.update(self._layouts)
        result._matrices.update(self._matrices)
        return result

    __copy__ = copy

    def __getitem__(self, name: str) -> Thing:
        return self._entry(name).thing

    def __setitem__(self, name: str, thing: Thing) -> None:
        self.put(name, thing)

    def __delitem__(self, name: str) -> None:
        self._entry(name)
        (self._matrices if name in self._matrices else self._layouts).pop(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._layouts, *self._matrices]))

    def __len__(self) -> int:
        return len({*self._layouts, *self._matrices})

    def __repr__(self) -> str:
        return f"<Collection of {', '.join(map(repr, self)) or 'nothing'}>"


def _checked(name: str, thing: Any, gates: Any) -> Thing:
    if isinstance(thing, TransposedMatrix):
        thing = thing.copy()
    if not isinstance(thing, (Layout, BlockMatrix)):
        raise ArgumentTypeError(f"{name!r} is of type {type(thing).__name__}, expected a Layout or BlockMatrix")
    if isinstance(thing, Layout) and gates is not None:
        raise ArgumentError("gates are given with a layout, expected them with a matrix")
    return thing


def _parsed(text: Optional[str], name: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise FormatError(f"the metadata of {name!r} is no JSON: {error}") from None


def _not_found(name: str, among: Any) -> NotFoundError:
    return NotFoundError(f"no object is named {name!r}; there are {_listed(among)}")


def _listed(names: Any) -> str:
    """The first of many names."""
    few = list(map(repr, itertools.islice(names, 9)))
    return "none" if not few else ", ".join(few[:8] + ["..."] * (len(few) > 8))


def save(path: Any, things: Union[Thing, Mapping[str, Thing]], *, compress: bool = False) -> None:
    """Writes a layout, a matrix, or a dict of several by name, to one file. Collections from `load_all` or
    ``File(path)`` are written with all their gates and metadata."""
    if isinstance(things, (Layout, BlockMatrix, TransposedMatrix)):
        things = {"layout" if isinstance(things, Layout) else "matrix": things}
    if not isinstance(things, Mapping):
        raise ArgumentTypeError(
            f"things is of type {type(things).__name__}, expected a Layout, BlockMatrix or dict"
        )
    if isinstance(things, File):
        things.save(path, compress=compress)
        return
    with File() as file:
        if isinstance(things, Collection):
            things._write(file)
        else:
            for name, thing in things.items():
                file.put(name, thing)
        file.save(path, compress=compress)


def _opened(path: Any) -> File:
    """A file that exists; ``File(None)`` is an empty one."""
    encode_path(path)
    return File(path)


def load(path: Any, name: Optional[str] = None) -> Thing:
    """Reads one object of a file. The name may be omitted if there is only one matrix, or no matrix and only
    one layout.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "one.h5")
    >>> tartan.save(path, tartan.BlockMatrix.from_dense(np.eye(4), block=2))
    >>> tartan.load(path)
    <BlockMatrix 4x4 float64, 2 of 4 blocks of 2x2, density 0.5>
    """
    with _opened(path) as file:
        if name is not None:
            return file[name]
        names = file.matrices() or file.layouts()
        if not names:
            raise NotFoundError("the file has no matrix and no layout, expected one")
        if len(names) != 1:
            raise ArgumentError(f"name is not given, expected one of {_listed(file)}")
        return file[names[0]]


def load_all(path: Any) -> Collection:
    """Reads a whole file: every object with its gates and metadata. Matrices that share a layout share it in memory.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "two.h5")
    >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
    >>> A.save(path, "w", gates=[1.0, 0.5])
    >>> things = tartan.load_all(path)
    >>> things["v"] = A
    >>> tartan.save(path, things)
    >>> things = tartan.load_all(path)
    >>> things, things.gates("w")
    (<Collection of 'v', 'w'>, array([1. , 0.5]))
    """
    things = Collection()
    with _opened(path) as file:
        things._read(file)
    return things
