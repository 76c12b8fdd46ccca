# SPDX-License-Identifier: Apache-2.0
"""Checking files, those of other programs in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from tartan import _errors, _raw
from tartan._errors import FileError, FormatError, TartanError, about_file
from tartan._store import encode_path

_SEAL = b"\x89TARTAN\r\n\x1a\nseal\0"
_LEAST_SECONDS = 60  # of CPU time; one more for each MiB

# What the process runs: sys.argv has the seconds, the path in hexadecimal digits and the parent's sys.path as JSON.
_CHILD = """
import json, resource, sys
seconds = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path[:] = json.loads(sys.argv[3])
from tartan._verify import answer
print(json.dumps(answer(bytes.fromhex(sys.argv[2]))))
"""


def answer(path: bytes) -> tuple[int, str]:
    """Verify a file in this process: its status, and the report or the reason."""
    try:
        return 0, _raw.tartan_file_verify(path)
    except TartanError as error:
        return error.status, error.text


def verify(path: Any) -> str:
    """Read a whole file and check it against its seal, checksums and identities. Raise if it is damaged, else
    returns a report. HDF5 can crash or hang on a damaged file without a seal, so such a file is read in a separate
    process, and a crash counts as damage. Verify files that you do not trust before you load them."""
    name = encode_path(path)
    with about_file(path):
        if _sealed(name) or not sys.executable:
            return _raw.tartan_file_verify(name)
        return _in_child(name)


def _sealed(path: bytes) -> bool:
    """Whether the library verifies all bytes before HDF5 sees any. What cannot be read is left to it, too."""
    try:
        if not os.path.isfile(path):
            return True
        with open(path, "rb") as file:
            return file.read(len(_SEAL)) == _SEAL
    except OSError:
        return True


def _in_child(path: bytes) -> str:
    seconds = _LEAST_SECONDS + os.path.getsize(path) // 2**20
    command = [sys.executable, "-I", "-c", _CHILD, str(seconds), path.hex(), json.dumps([p for p in sys.path if isinstance(p, str)])]
    try:
        child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise FileError(f"{os.fsdecode(path)}: no process can be started to verify it: {error.strerror}") from None
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise FormatError(f"{os.fsdecode(path)}: damaged: HDF5 was still reading it after {seconds} s")
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        raise FormatError(f"{os.fsdecode(path)}: damaged: HDF5 crashed while reading it ({name})")
    if child.returncode > 0:
        words = child.stderr.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
        raise _errors.InternalError(f"the process that verifies {os.fsdecode(path)} failed: {words[-1]}")
    status, text = json.loads(child.stdout)
    if status != 0:
        raise _errors.of_status(status, text)
    return str(text)
