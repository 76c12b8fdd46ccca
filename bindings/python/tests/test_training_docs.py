# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/training.md: one in each language, of at most 30 lines, which prune a layer to 30% of its blocks."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("TARTAN_BUILD", ROOT / "build" / "release"))
LANGUAGES = ["R", "Julia", "Python, with NumPy", "C"]


def program(language):
    page = (ROOT / "docs" / "training.md").read_text()
    part = page.split(f"\n## {language}\n")[1].split("\n## ")[0]
    return "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))


def printed(command, seconds=300):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return [float(number) for number in re.findall(r"[-+\d.e]+\d", done.stdout)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_programs_are_short(language):
    lines = program(language).splitlines()
    assert 10 < len(lines) <= 30 and max(map(len, lines)) < 150


def test_python():
    names = {}
    exec(program("Python, with NumPy"), names)
    assert names["w"].blocks == round(0.3 * 64) and (names["error"] ** 2).mean() < 0.5 * np.var(names["y"])


def test_c(tmp_path):
    compiler, library = shutil.which("cc"), BUILD / "lib" / "libtartan.so"
    if compiler is None or not library.exists():
        pytest.skip("no C compiler, or the library is not in a build folder")
    (tmp_path / "model.c").write_text(program("C"))
    includes = [f"-I{folder / 'lib' / 'include'}" for folder in (ROOT, BUILD)]
    subprocess.run([compiler, "-Wall", "-Werror", *includes, "model.c", str(library), f"-Wl,-rpath,{library.parent}", "-o", "model"],
                   cwd=tmp_path, check=True)  # fmt: skip
    error, blocks = printed([tmp_path / "model"])
    assert abs(error) < 0.1 and blocks == round(0.3 * 64)


def test_r(tmp_path):
    if shutil.which("Rscript") is None or not (BUILD / "rlib" / "tartan").exists():
        pytest.skip("no R, or its package is not built")
    (tmp_path / "model.R").write_text(program("R"))
    loss, blocks = printed(["Rscript", "--vanilla", tmp_path / "model.R"])[-2:]
    assert 0 < loss < 0.5 and blocks == round(0.3 * 64)
