# SPDX-License-Identifier: Apache-2.0
"""Saving and loading: whole files, or one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from tartan import _raw
from tartan._collection import Collection
from tartan._errors import ArgumentError, ArgumentTypeError, NotFoundError
from tartan._file import File, Range
from tartan._layout import Layout
from tartan._matrix import BlockMatrix
from tartan._store import encode_path
from tartan._things import Put, Thing, listed
from tartan._transposed import TransposedMatrix


def save(path: Any, things: Union[Thing, Mapping[str, Put]], *, compress: bool = False, append: bool = False) -> None:
    """Write a layout, a matrix, or a dict of several, of arrays and of a `Sparsifier` by name, to one file, which may be a
    binary file object. Collections from `load_all` or ``File(path)`` are written with all their gates and metadata. With
    ``append=True`` they are added to the file and replace objects with the same names; other objects are not
    rewritten.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.h5")
    >>> tartan.save(path, {"w": tartan.BlockMatrix.from_dense(np.eye(4), block=2), "bias": np.zeros(4)})
    >>> tartan.save(path, {"step": np.array(7)}, append=True)
    >>> list(tartan.File(path)), tartan.load(path, "step")
    (['w', 'bias', 'step'], array(7))
    """
    if isinstance(things, (Layout, BlockMatrix, TransposedMatrix)):
        things = {"layout" if isinstance(things, Layout) else "matrix": things}
    if not isinstance(things, Mapping):
        raise ArgumentTypeError(
            f"things is of type {type(things).__name__}, expected a Layout, BlockMatrix or dict"
        )
    if isinstance(things, File):
        things._write_to(path, compress, append)
        return
    with File() as file:
        if isinstance(things, Collection):
            things._write(file)
        else:
            for name, thing in things.items():
                file.put(name, thing)
        file._write_to(path, compress, append)


def _opened(path: Any) -> File:
    """A file that exists; ``File(None)`` is an empty one."""
    if not hasattr(path, "read"):
        encode_path(path)
    return File(path)


def load(path: Any, name: Optional[str] = None, *, rows: Optional[Range] = None) -> Thing:
    """Read one object of a file, or of a binary file object. The name may be left out if there is only one matrix,
    or no matrix and only one layout. `rows`, a pair of numbers or a slice, reads only these rows of a matrix (whole
    block rows) or an array.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "one.h5")
    >>> tartan.save(path, tartan.BlockMatrix.from_dense(np.eye(4), block=2))
    >>> tartan.load(path)
    <BlockMatrix 4x4 float64, 2 of 4 blocks of 2x2, density 0.5>
    >>> tartan.load(path, rows=(2, 4)).toarray()
    array([[0., 0., 1., 0.],
           [0., 0., 0., 1.]])
    """
    with _opened(path) as file:
        if name is None:
            names = file.matrices() or file.layouts()
            if not names:
                raise NotFoundError("the file has no matrix and no layout, expected one")
            if len(names) != 1:
                raise ArgumentError(f"name is not given, expected one of {listed(file)}")
            name = names[0]
        if rows is None:
            return file[name]
        if file._kind(name) == _raw.TARTAN_KIND_LAYOUT:
            raise ArgumentError(f"rows are given, but {name!r} is a layout")
        return file.array(name, rows) if file._kind(name) == _raw.TARTAN_KIND_ARRAY else file.matrix(name, rows)


def load_all(path: Any) -> Collection:
    """Read a whole file: every object with its gates and metadata. Matrices that share a layout share it in memory.

    >>> import numpy as np, os, tartan, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "two.h5")
    >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
    >>> A.save(path, "w", gates=[1.0, 0.5])
    >>> things = tartan.load_all(path)
    >>> things["v"] = A
    >>> tartan.save(path, things)
    >>> things = tartan.load_all(path)
    >>> things, things.gates("w")
    (<Collection of 'w', 'v'>, array([1. , 0.5]))
    """
    things = Collection()
    with _opened(path) as file:
        things._read(file)
    return things
