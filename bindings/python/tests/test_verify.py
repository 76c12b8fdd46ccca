# SPDX-License-Identifier: Apache-2.0
"""Files without a seal are verified in a process of their own, which may crash."""

import signal

import pytest

import tartan
from conftest import random_matrix
from tartan import _raw, _verify


@pytest.fixture
def foreign(rng, tmp_path):
    """A file as another program writes it: ours without its seal."""
    path = tmp_path / "größe 1.h5"
    random_matrix(rng, (8, 8), 4).save(path, "w")
    path.write_bytes(path.read_bytes()[512:])
    return path


def refuse(*arguments):
    raise AssertionError("HDF5 reads an unsealed file in this process")


def test_unsealed_files_are_read_elsewhere(foreign, monkeypatch):
    here = _raw.tartan_file_verify(bytes(foreign))
    monkeypatch.setattr(_raw, "tartan_file_verify", refuse)
    assert tartan.verify(foreign) == here
    assert "seal: none" in here and 'matrix "w"' in here


def test_sealed_files_are_read_here(rng, tmp_path, monkeypatch):
    path = tmp_path / "w.h5"
    random_matrix(rng, (8, 8), 4).save(path)
    monkeypatch.setattr(_verify.subprocess, "run", refuse)
    assert "seal: ok" in tartan.verify(path)


def test_what_the_process_finds_is_raised_here(foreign):
    foreign.write_bytes(foreign.read_bytes()[:-100])
    with pytest.raises(tartan.FormatError, match="größe 1.h5: cannot be read as HDF5: truncated") as caught:
        tartan.verify(foreign)
    assert caught.value.filename == foreign
    with pytest.raises(tartan.FormatError, match="is not an HDF5 file"):
        foreign.write_text("text")
        tartan.verify(foreign)
    foreign.unlink()
    with pytest.raises(FileNotFoundError):
        tartan.verify(foreign)
    with pytest.raises(IsADirectoryError):
        tartan.verify(foreign.parent)


@pytest.mark.parametrize(
    "end, words",
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "HDF5 crashed while reading it .SIGSEGV"),
        ("while True: pass", "HDF5 was still reading it after 1 s"),
    ],
)
def test_a_crash_and_a_hang_are_damage(foreign, monkeypatch, end, words):
    monkeypatch.setattr(_verify, "_LEAST_SECONDS", 1)
    monkeypatch.setattr(_verify, "_CHILD", _verify._CHILD.replace("print(", end + "\nprint("))
    with pytest.raises(tartan.FormatError, match=words) as caught:
        tartan.verify(foreign)
    assert caught.value.filename == foreign
    assert signal.getsignal(signal.SIGXCPU) == signal.SIG_DFL  # of this process


def test_a_process_that_cannot_work_is_no_damage(foreign, monkeypatch):
    monkeypatch.setattr(_verify, "_CHILD", "raise SystemExit('no such luck')")
    with pytest.raises(tartan.InternalError, match="failed: no such luck"):
        tartan.verify(foreign)
    monkeypatch.setattr(_verify.sys, "executable", str(foreign))
    with pytest.raises(tartan.FileError, match="no process can be started"):
        tartan.verify(foreign)
