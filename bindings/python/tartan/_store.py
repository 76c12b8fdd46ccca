# SPDX-License-Identifier: Apache-2.0
"""Helpers for writing files: file names, metadata as JSON, files with a single object."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array
from tartan._errors import ArgumentTypeError, about_file


def encode_path(path: Any) -> bytes:
    try:
        return os.fsencode(path)
    except TypeError:
        raise ArgumentTypeError(f"path is of type {type(path).__name__}, expected a file name") from None


def _of_numpy(x: Any) -> Any:
    """Numbers and arrays of NumPy as what JSON has."""
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
    """Writes a file with a single layout or matrix."""
    file = _raw.tartan_file_create()
    try:
        if matrix:
            _raw.tartan_file_put_matrix(file, name, thing, gates, metadata)
            file.hold(thing)
        else:
            _raw.tartan_file_put_layout(file, name, thing, metadata)
        with about_file(path):
            _raw.tartan_file_save(file, encode_path(path), compression(compress))
    finally:
        file.close()
