# SPDX-License-Identifier: Apache-2.0
"""Helpers for writing files: file names, metadata as JSON, files with a single object."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array
from tartan._errors import ArgumentTypeError, about_file


def encode_path(path: Any) -> bytes:
    try:
        return os.fsencode(path)
    except TypeError:
        raise ArgumentTypeError(f"path is of type {type(path).__name__}, expected a file name or a binary file object") from None


@contextlib.contextmanager
def readable(path: Any) -> Iterator[bytes]:
    """The name of a file with the bytes of `path`: `path` itself, or, for an object with ``read`` (from its position
    to its end), a copy, which may be deleted once it is open."""
    if not hasattr(path, "read"):
        yield encode_path(path)
        return
    data = path.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ArgumentTypeError(f"path reads {type(data).__name__}, expected a file that is open in binary mode")
    with tempfile.NamedTemporaryFile(prefix="tartan-") as copy:
        copy.write(data)
        copy.flush()
        yield os.fsencode(copy.name)


@contextlib.contextmanager
def writable(path: Any) -> Iterator[bytes]:
    """The name of a file to write: `path`, or, for an object with ``write``, a file whose bytes it then receives."""
    if not hasattr(path, "write"):
        yield encode_path(path)
        return
    with tempfile.TemporaryDirectory(prefix="tartan-") as folder:
        name = os.path.join(folder, "file.h5")
        yield os.fsencode(name)
        with open(name, "rb") as made:
            path.write(made.read())


def _of_numpy(x: Any) -> Any:
    """Numbers and arrays of NumPy as JSON types."""
    if isinstance(x, (np.generic, np.ndarray)):
        return x.tolist()
    raise TypeError(f"object of type {type(x).__name__} is not JSON serializable")


def json_text(metadata: Any) -> Optional[str]:
    try:
        return None if metadata is None else json.dumps(metadata, default=_of_numpy)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"metadata cannot be written as JSON: {error}") from None


def compression(compress: bool) -> int:
    return _raw.TARTAN_KEEP_COMPRESSED if compress else _raw.TARTAN_KEEP_PLAIN


def save_one(
    path: Any, name: str, thing: _raw.Handle, gates: Optional[Array], metadata: Optional[str], compress: bool, *,
    matrix: bool,
) -> None:  # fmt: skip
    """Write a file with a single layout or matrix."""
    file = _raw.tartan_file_create()
    try:
        if matrix:
            _raw.tartan_file_put_matrix(file, name, thing, gates, metadata)
            file.hold(thing)
        else:
            _raw.tartan_file_put_layout(file, name, thing, metadata)
        with about_file(path), writable(path) as name_of_file:
            _raw.tartan_file_save(file, name_of_file, compression(compress))
    finally:
        file.close()
