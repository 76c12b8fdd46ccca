# SPDX-License-Identifier: Apache-2.0
"""Puts the Julia package together.

    stage.py DIRECTORY STAMP SOURCE FILE...  files of the folder SOURCE to the same places in DIRECTORY, others to its src, or
                                             to its ext if their names end in _rules.jl
    stage.py --install DIRECTORY FILE        FILE into DIRECTORY of the installation (run by Meson)
"""
import os
import shutil
import sys
from pathlib import Path


def stage(directory, stamp, source, files):
    places = {}
    for file in map(Path, files):
        inside = source in file.resolve().parents
        folder = Path("ext" if file.name.endswith("_rules.jl") else "src")
        places[directory / (file.resolve().relative_to(source) if inside else folder / file.name)] = file
    for old in [path for path in directory.rglob("*") if path.is_file() and path not in places]:
        old.unlink()
    for place, file in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    stamp.touch()


def install(directory, file):
    target = Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / directory
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target / Path(file).name)


if sys.argv[1] == "--install":
    install(sys.argv[2], sys.argv[3])
else:
    stage(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).resolve(), sys.argv[4:])
