# SPDX-License-Identifier: Apache-2.0
"""HDF5 files of other programs, read and written by h5py."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from tartan import _raw
from tartan._arrays import array_of, dtype_code, indices
from tartan._call import Call
from tartan._errors import ArgumentTypeError, FileError, FormatError, LayoutError, NotFoundError, ShapeError, TartanError, about_file
from tartan._frame import Block, frame_beside
from tartan._matrix import BlockMatrix
from tartan._store import encode_path
from tartan._transposed import TransposedMatrix


def h5py() -> Any:
    """The module."""
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise ImportError("h5py, which reads and writes files of other programs, is not installed") from None


@contextlib.contextmanager
def _faults(path: Any) -> Iterator[None]:
    """Errors of h5py as those of Tartan."""
    with about_file(path):
        try:
            yield
        except TartanError:
            raise
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise FileError(f"{path}: {os.strerror(error.errno)}") from None
            raise FormatError(f"{path}: {str(error).strip(chr(39))}") from None


@contextlib.contextmanager
def reading(path: Any) -> Iterator[Any]:
    """The file, open. `path` may be a binary file object."""
    module = h5py()
    if not hasattr(path, "read"):
        encode_path(path)
    with _faults(path), module.File(path, "r") as file:
        yield file


@contextlib.contextmanager
def writing(path: Any, append: bool) -> Iterator[Any]:
    """A new file, or with `append` a copy of the old one, open; it takes the place of the old one when all is written."""
    module = h5py()
    target = os.path.realpath(os.fsdecode(encode_path(path)))
    with _faults(path), tempfile.TemporaryDirectory(prefix=".tartan-", dir=os.path.dirname(target)) as folder:
        name = os.path.join(folder, "file")
        if append:
            shutil.copy(target, name)
        with module.File(name, "a" if append else "w") as file:
            yield file
        with open(name, "rb") as made:
            os.fsync(made.fileno())
        os.replace(name, target)


def found(file: Any, key: str) -> Any:
    """An object of a file."""
    if not isinstance(key, str):
        raise ArgumentTypeError(f"key is of type {type(key).__name__}, expected str")
    if key not in file:
        raise NotFoundError(f"nothing is named {key!r}; there are {', '.join(map(repr, sorted(file)[:8])) or 'none'}")
    return file[key]


def text_of(attribute: Any) -> str:
    """A text, which HDF5 keeps in several ways; "" if there is none."""
    if hasattr(attribute, "item"):
        attribute = attribute.item()
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute or "")


@contextlib.contextmanager
def contents(key: str) -> Iterator[None]:
    """What the library refuses is the file's fault."""
    try:
        yield
    except (LayoutError, ShapeError) as error:
        raise FormatError(f"{key!r}: {error.text}") from None


def from_compressed(
    key: str, shape: Sequence[int], indptr: Any, cols: Any, values: Any, block: Block, dtype: Any, by_column: bool
) -> BlockMatrix:
    """Of the elements of an item; by column, `cols` are rows."""
    frame = frame_beside(shape, block)
    lists = (indices(indptr, "indptr"), indices(cols, "cols"), by_column)
    array = array_of(values, "values", _raw.TARTAN_F64)
    code = 0 if dtype is None else dtype_code(dtype)
    with Call(None) as call, contents(key):
        return BlockMatrix._own(
            _raw.tartan_matrix_from_compressed(
                call.handle, frame, lists, array, _raw.TARTAN_DUPLICATES_ADDED, code, _raw.TARTAN_ROW_MAJOR
            )
        )


def one_head(matrix: Any) -> BlockMatrix:
    if isinstance(matrix, TransposedMatrix):
        matrix = matrix.copy()
    if not isinstance(matrix, BlockMatrix):
        raise ArgumentTypeError(f"matrix is of type {type(matrix).__name__}, expected a BlockMatrix")
    if matrix.heads != 1:
        raise ShapeError(f"matrix has {matrix.heads} heads, expected 1")
    return matrix
