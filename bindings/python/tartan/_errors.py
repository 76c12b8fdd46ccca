# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status of the library, with TartanError as their base.

The messages are the library's, with Python's names: they give the argument, its value and what was expected.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, ClassVar, Optional

from tartan._texts import in_python


class TartanError(Exception):
    """Base of all errors of Tartan. ``status`` is the library's status code, ``text`` its message."""

    status: ClassVar[int] = 0

    @property
    def text(self) -> str:
        """The message, as str() gives it."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return self.text


class ArgumentError(TartanError, ValueError):
    """An argument has a value that is not allowed."""

    status = -1


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument is of a Python type that cannot be used."""


class ArgumentIndexError(ArgumentError, IndexError):
    """An index is out of range."""


class HandleError(TartanError, ValueError):
    """An object is closed, or in use by another thread."""

    status = -2


class HandleTypeError(HandleError, TypeError):
    """None, or an object of another kind, where a handle is expected."""


class ShapeError(TartanError, ValueError):
    """Sizes do not fit together."""

    status = -3


class DTypeError(TartanError, TypeError):
    """A dtype is unknown or does not fit the others."""

    status = -4


class LayoutError(TartanError, ValueError):
    """Block indices are out of range or repeated, or layouts differ."""

    status = -5


class UnsupportedError(TartanError, NotImplementedError):
    """No backend of this build can do this."""

    status = -6


class OutOfMemoryError(TartanError, MemoryError):
    """Out of memory."""

    status = -7


class SizeOverflowError(TartanError, OverflowError, ValueError):
    """A product of sizes exceeds what can be addressed."""

    status = -8


class DeviceError(TartanError, RuntimeError):
    """A device failed or does not exist."""

    status = -9


class FileError(TartanError, OSError):
    """The operating system refused a file operation."""

    status = -10


class MissingFileError(FileError, FileNotFoundError):
    """A file or its folder does not exist."""


class FileAccessError(FileError, PermissionError):
    """A file may not be read or written."""


class FileIsFolderError(FileError, IsADirectoryError):
    """A folder was given where a file is expected."""


class NotFolderError(FileError, NotADirectoryError):
    """A file was given where a folder is expected."""


class FormatError(TartanError, OSError):
    """A file is damaged or not in Tartan's format."""

    status = -11


class VersionError(FormatError):
    """A file has a newer version."""

    status = -12


class NotFoundError(TartanError, KeyError):
    """There is no object with this name."""

    status = -13


class InternalError(TartanError, RuntimeError):
    """An internal check failed: please report this."""

    status = -14


_ERRNO = {os.strerror(number): number for number in errno.errorcode}
_BUILTIN: dict[int, type[FileError]] = {
    errno.ENOENT: MissingFileError,
    errno.EACCES: FileAccessError,
    errno.EPERM: FileAccessError,
    errno.EISDIR: FileIsFolderError,
    errno.ENOTDIR: NotFolderError,
}


@contextlib.contextmanager
def about_file(path: Any) -> Iterator[None]:
    """Set `filename` in errors of files, and `errno` and `strerror` if the system gave a reason, whose class they then
    have, such as FileNotFoundError."""
    try:
        yield
    except (FileError, FormatError) as error:
        reason = error.text.rpartition(": ")[2]
        number = errno.EISDIR if reason.startswith("is a directory") else _ERRNO.get(reason)
        if number in _BUILTIN and type(error) is FileError:
            raise _named(_BUILTIN[number](error.text), path, number) from None
        _named(error, path, number)
        raise


def _named(error: Any, path: Any, number: Optional[int]) -> Any:
    error.filename = path
    if number is not None:
        error.errno, error.strerror = number, os.strerror(number)
    return error


_CLASSES: dict[int, type[TartanError]] = {
    c.status: c
    for c in (
        ArgumentError, HandleError, ShapeError, DTypeError, LayoutError, UnsupportedError, OutOfMemoryError,
        SizeOverflowError, DeviceError, FileError, FormatError, VersionError, NotFoundError, InternalError,
    )
}  # fmt: skip
_TYPE_CLASSES: dict[int, type[TartanError]] = {-1: ArgumentTypeError, -2: HandleTypeError}


def of_status(status: int, text: str) -> TartanError:
    """The exception of a status; called by the extension module."""
    return _CLASSES.get(status, TartanError)(in_python(text))


def of_type(status: int, text: str) -> TartanError:
    """The exception for an object of the wrong Python type; called by the extension module."""
    return (_TYPE_CLASSES.get(status) or _CLASSES.get(status, TartanError))(in_python(text))
