# SPDX-License-Identifier: Apache-2.0
"""Writes the file that notebooks/python_sparse_transformer.ipynb saves: runs its cells and copies what they saved.

    python make_transformer.py transformer.h5
"""
import json
import os
import pathlib
import shutil
import sys

target = os.path.abspath(sys.argv[1])
folder = pathlib.Path(__file__).resolve().parent.parent / "notebooks"
notebook = json.loads((folder / "python_sparse_transformer.ipynb").read_text(encoding="utf-8"))
cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
os.chdir(folder)
names = {}
exec("\n".join(cells), names)
shutil.copy(names["path"], target)
