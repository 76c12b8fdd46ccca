# SPDX-License-Identifier: Apache-2.0
"""Puts the Julia package together.

    stage.py DIRECTORY STAMP FILE...        Project.toml into DIRECTORY, sources into DIRECTORY/src
    stage.py --install DIRECTORY FILE       FILE into DIRECTORY of the installation (run by Meson)
"""
import os
import shutil
import sys
from pathlib import Path


def stage(directory, stamp, files):
    source = directory / "src"
    source.mkdir(parents=True, exist_ok=True)
    names = {Path(file).name for file in files}
    for old in [path for path in source.iterdir() if path.name not in names]:
        old.unlink()
    for file in files:
        shutil.copyfile(file, (source if file.endswith(".jl") else directory) / Path(file).name)
    stamp.touch()


def install(directory, file):
    target = Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / directory
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target / Path(file).name)


if sys.argv[1] == "--install":
    install(sys.argv[2], sys.argv[3])
else:
    stage(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
