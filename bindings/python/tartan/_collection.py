# SPDX-License-Identifier: Apache-2.0
"""Collections of named layouts, matrices and arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple, Optional

from tartan import _raw
from tartan._arrays import Array, doubles
from tartan._file import File
from tartan._layout import Layout
from tartan._matrix import BlockMatrix
from tartan._store import json_text
from tartan._things import NAMES, Thing, checked, kind_of, not_found, parsed


class _Entry(NamedTuple):
    thing: Thing
    gates: Any
    metadata: Optional[str]  # as JSON


class Collection(MutableMapping[str, Thing]):
    """Named layouts, matrices and arrays in memory, with gates and metadata: a dict that `load_all` reads and `save`
    writes, completely and in the same order. If a layout and another object have the same name, ``[name]`` is the
    other object. A copy has the same objects."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[bool, str], _Entry] = {}  # by whether it is a layout, and name

    def _read(self, file: File) -> None:
        """Matrices that share a layout share it in memory."""
        for name, kind in file._all():
            text = file._metadata_text(name, NAMES[kind])
            if kind == _raw.TARTAN_KIND_LAYOUT:
                self._entries[True, name] = _Entry(file.layout(name), None, text)
            elif kind == _raw.TARTAN_KIND_ARRAY:
                self._entries[False, name] = _Entry(file.array(name), None, text)
            else:
                matrix = file.matrix(name)
                self._entries[False, name] = _Entry(matrix, file._gates(name, matrix.blocks), text)

    def _write(self, file: File) -> None:
        for (_, name), entry in self._entries.items():
            file._put(name, *entry)

    def _entry(self, name: str, kind: Optional[str] = None) -> _Entry:
        for layout in (False, True):
            entry = self._entries.get((layout, name))
            if entry is not None and kind in (None, kind_of(entry.thing)):
                return entry
        raise not_found(name, self)

    def _of_kind(self, kind: str) -> list[str]:
        return [name for (_, name), entry in self._entries.items() if kind_of(entry.thing) == kind]

    def layouts(self) -> list[str]:
        """Names of the layouts."""
        return self._of_kind("layout")

    def matrices(self) -> list[str]:
        """Names of the matrices."""
        return self._of_kind("matrix")

    def arrays(self) -> list[str]:
        """Names of the arrays."""
        return self._of_kind("array")

    def layout(self, name: str) -> Layout:
        """The layout of that name."""
        thing = self._entry(name, "layout").thing
        assert isinstance(thing, Layout)
        return thing

    def matrix(self, name: str) -> BlockMatrix:
        """The matrix of that name."""
        thing = self._entry(name, "matrix").thing
        assert isinstance(thing, BlockMatrix)
        return thing

    def array(self, name: str) -> Array:
        """The array of that name."""
        thing = self._entry(name, "array").thing
        assert not isinstance(thing, (Layout, BlockMatrix))
        return thing

    def gates(self, name: str) -> Optional[Array]:
        """The gates stored with a matrix, in float64, or None."""
        gates = self._entry(name, "matrix").gates
        return None if gates is None else doubles(gates, "gates")

    def metadata(self, name: str, kind: Optional[str] = None) -> Any:
        """Like `File.metadata`."""
        return parsed(self._entry(name, kind).metadata, name)

    def put(self, name: str, thing: Thing, *, gates: Any = None, metadata: Any = None) -> None:
        """Like `File.put`; ``collection[name] = thing`` is the same without gates and metadata."""
        thing = checked(name, thing, gates)
        self._entries[isinstance(thing, Layout), name] = _Entry(thing, gates, json_text(metadata))

    def save(self, path: Any, *, compress: bool = False) -> None:
        """Like `File.save`."""
        with File() as file:
            self._write(file)
            file.save(path, compress=compress)

    def copy(self) -> Collection:
        """Another collection of the same objects."""
        result = Collection()
        result._entries.update(self._entries)
        return result

    __copy__ = copy

    def __getitem__(self, name: str) -> Thing:
        return self._entry(name).thing

    def __setitem__(self, name: str, thing: Thing) -> None:
        self.put(name, thing)

    def __delitem__(self, name: str) -> None:
        self._entry(name)
        del self._entries[(False, name) not in self._entries, name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for _, name in self._entries))

    def __len__(self) -> int:
        return len({name for _, name in self._entries})

    def __repr__(self) -> str:
        return f"<Collection of {', '.join(map(repr, self)) or 'nothing'}>"
