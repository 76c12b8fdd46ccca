# SPDX-License-Identifier: Apache-2.0
"""HDF5 files with named layouts, matrices and arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arrays import Array, numpy_dtype, optional_gates
from tartan._closing import Closing
from tartan._errors import ArgumentError, ArgumentIndexError, ArgumentTypeError, NotFoundError, about_file
from tartan._layout import Layout
from tartan._matrix import BlockMatrix
from tartan._store import compression, encode_path, json_text, readable, writable
from tartan._things import KINDS, NAMES, Put, Thing, checked, not_found, parsed

Range = Union[slice, range, tuple[int, int]]


class File(Closing, Mapping[str, Thing]):
    """A collection of named layouts, matrices and NumPy arrays: ``File()`` is empty, ``File(path)`` reads one.

    Objects are read on demand, so opening costs the same however many there are. They keep the order in which they
    were first put. `path` may be a binary file object, such as io.BytesIO; it is read to its end. `put` does not copy
    matrices: their values are read when the file is saved. Only one thread at a time may use a file. Files of other
    programs have no seal (`sealed`), so damage in them can go unnoticed: `verify` files that you do not trust first.

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
        if path is None:
            self._handle = _raw.tartan_file_create()
            return
        with about_file(path), readable(path) as name:
            self._handle = _raw.tartan_file_open(name)

    # ---- Asking ----

    def _all(self) -> list[tuple[str, int]]:
        """Names and kinds, in order."""
        handle = self._handle
        with about_file(self._path):
            _raw.tartan_file_list(handle)
        return [
            (_raw.tartan_file_name(handle, i) or "", _raw.tartan_file_kind(handle, i))
            for i in range(_raw.tartan_file_count(handle))
        ]

    def _names(self, kind: int) -> list[str]:
        return [name for name, found in self._all() if found == kind]

    def arrays(self) -> list[str]:
        """Names of the arrays."""
        return self._names(_raw.TARTAN_KIND_ARRAY)

    def layouts(self) -> list[str]:
        """Names of the layouts."""
        return self._names(_raw.TARTAN_KIND_LAYOUT)

    def matrices(self) -> list[str]:
        """Names of the matrices."""
        return self._names(_raw.TARTAN_KIND_MATRIX)

    def sharing(self, layout: Union[Layout, str]) -> list[str]:
        """Names of the matrices that use a layout, given as an object or by its identity."""
        identity = layout.identity if isinstance(layout, Layout) else layout
        return [
            name
            for i, (name, kind) in enumerate(self._all())
            if kind == _raw.TARTAN_KIND_MATRIX and _raw.tartan_file_layout_identity(self._handle, i) == identity
        ]

    @property
    def sealed(self) -> bool:
        """Whether the file that was read has a valid seal over all its bytes."""
        return _raw.tartan_file_sealed(self._handle) == 1

    def layout(self, name: str) -> Layout:
        """The layout of that name, read from the file."""
        with about_file(self._path):
            return Layout._own(_raw.tartan_file_get_layout(self._handle, name))

    def matrix(self, name: str, rows: Optional[Range] = None) -> BlockMatrix:
        """The matrix with that name. `rows`, a pair of numbers or a slice of whole block rows, reads only these
        rows."""
        with about_file(self._path):
            if rows is None:
                return BlockMatrix._own(_raw.tartan_file_get_matrix(self._handle, name))
            begin, end = bounds_of(rows, "rows", self._layout_of(name).shape[0])
            return BlockMatrix._own(_raw.tartan_file_get_rows(self._handle, name, begin, end))

    def blocks(self, name: str, ids: Range) -> Array:
        """The values [count, block rows, block columns] of some blocks of a matrix; `ids` is a pair of numbers or a
        slice. Other values are not read."""
        with about_file(self._path):
            layout = self._layout_of(name)
            begin, end = bounds_of(ids, "ids", layout.blocks)
            result = np.empty((end - begin, *layout.block_shape), numpy_dtype(self._describe(name)[1]))
            _raw.tartan_file_get_blocks(self._handle, name, begin, result)
        return result

    def array(self, name: str, rows: Optional[Range] = None) -> Array:
        """The array with that name. `rows`, a pair of numbers or a slice, reads only this part of its first
        dimension."""
        with about_file(self._path):
            kind, code, ndim, *shape = self._describe(name)
            if kind != _raw.TARTAN_KIND_ARRAY:
                raise not_found(name, self) if kind == 0 else NotFoundError(f"{name!r} is a {NAMES[kind]}, expected an array")
            shape, begin = shape[:ndim], 0
            if rows is not None:
                if ndim == 0:
                    raise ArgumentError(f"rows are given, but {name!r} is a single number")
                begin, end = bounds_of(rows, "rows", shape[0])
                shape[0] = end - begin
            result = np.empty(shape, numpy_dtype(code))
            _raw.tartan_file_get_array(self._handle, name, begin, result)
        return result

    def _describe(self, name: str) -> list[int]:
        about = np.empty(11, np.int64)
        _raw.tartan_file_describe(self._handle, name, about)
        return [int(x) for x in about]

    def _layout_of(self, name: str) -> Layout:
        """The layout of a matrix."""
        return Layout._own(_raw.tartan_file_get_matrix_layout(self._handle, name))

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
        """The metadata of an object, or None. A matrix or an array takes precedence over a layout of the same name,
        unless `kind`, "matrix", "array" or "layout", is given."""
        return parsed(self._metadata_text(name, kind), name)

    def _metadata_text(self, name: str, kind: Optional[str]) -> Optional[str]:
        if kind is not None and kind not in KINDS:
            raise ArgumentError(f"kind is {kind!r}, expected 'matrix', 'array' or 'layout'")
        code = self._kind(name) if kind is None else KINDS[kind]
        with about_file(self._path):
            return _raw.tartan_file_get_metadata(self._handle, code, name) or None

    def _kind(self, name: str) -> int:
        """A matrix or an array takes precedence over a layout of the same name."""
        with about_file(self._path):
            kind = self._describe(name)[0] if isinstance(name, str) else 0
        if kind == 0:
            raise not_found(name, self)
        return kind

    # ---- Mapping ----

    def __getitem__(self, name: str) -> Thing:
        kind = self._kind(name)
        if kind == _raw.TARTAN_KIND_ARRAY:
            return self.array(name)
        return self.matrix(name) if kind == _raw.TARTAN_KIND_MATRIX else self.layout(name)

    def __setitem__(self, name: str, thing: Thing) -> None:
        self.put(name, thing)

    def __delitem__(self, name: str) -> None:
        self.remove(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self._all()))

    def __len__(self) -> int:
        return len({name for name, _ in self._all()})

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(_raw.tartan_file_has(self._handle, kind, name) for kind in KINDS.values())

    # ---- Changing and saving ----

    def put(self, name: str, thing: Put, *, gates: Any = None, metadata: Any = None) -> None:
        """Store a layout, a matrix or a copy of an array under a name, in place of an object with that name. A
        transpose is copied. Layouts have a name space of their own. `metadata` is anything that JSON can express.
        A `Sparsifier` becomes several objects, which `Sparsifier.load` reads."""
        self._put(name, thing, gates, json_text(metadata))

    def _put(self, name: str, thing: Put, gates: Any, text: Optional[str]) -> None:
        if hasattr(thing, "_put_into"):
            if gates is not None or text is not None:
                raise ArgumentError(f"gates or metadata are given with a {type(thing).__name__}, which has none")
            thing._put_into(self._handle, name)
            return
        thing = checked(name, thing, gates)
        if isinstance(thing, BlockMatrix):
            _raw.tartan_file_put_matrix(self._handle, name, thing._handle, optional_gates(gates), text)
            self._handle.hold(thing._handle)
        elif not isinstance(thing, Layout):
            _raw.tartan_file_put_array(self._handle, name, thing, 0, text)
        else:
            _raw.tartan_file_put_layout(self._handle, name, thing._handle, text)

    def remove(self, name: str) -> None:
        """Remove the matrix or the array or, if there is none, the layout of that name."""
        _raw.tartan_file_remove(self._handle, self._kind(name), name)

    def save(self, path: Any, *, compress: bool = False) -> None:
        """Write the collection atomically: readers see the complete old or new file. `path` may be a binary file object."""
        with about_file(path), writable(path) as name:
            _raw.tartan_file_save(self._handle, name, compression(compress))

    def append(self, path: Any, *, compress: bool = False) -> None:
        """Add the objects to a file, where they replace objects with the same names, without rewriting the others;
        saves a new file if there is none. A process that is killed leaves the old file or the new one."""
        with about_file(path):
            _raw.tartan_file_append(self._handle, encode_path(path), compression(compress))

    def _write_to(self, path: Any, compress: bool, append: bool) -> None:
        if append:
            self.append(path, compress=compress)
        else:
            self.save(path, compress=compress)

    def close(self) -> None:
        """Free the collection; may be called again. Objects read from it stay valid."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._handle.closed

    def __repr__(self) -> str:
        return "<File, closed>" if self.closed else f"<File of {', '.join(map(repr, self)) or 'nothing'}>"


def bounds_of(rows: Any, name: str, size: int) -> tuple[int, int]:
    """Where a range of rows begins and ends. Slices are Python's, a pair of numbers must lie inside."""
    if isinstance(rows, (slice, range)):
        if rows.step not in (None, 1):
            raise ArgumentError(f"{name} has the step {rows.step}, expected 1")
        try:
            begin, end, _ = slice(rows.start, rows.stop).indices(size)
        except TypeError:
            raise ArgumentTypeError(f"{name} is {rows!r}, expected whole numbers") from None
        return begin, max(begin, end)
    try:
        begin, end = (operator.index(x) for x in rows)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} is {rows!r}, expected a slice or a pair of whole numbers") from None
    if not 0 <= begin <= end <= size:
        raise ArgumentIndexError(f"{name} is {rows!r}, expected a range of 0 to {size}")
    return begin, end
