# SPDX-License-Identifier: Apache-2.0
"""Writes the file that notebooks/julia_sparse_attention.ipynb saves: runs its cells in Julia and copies what they saved.

    python make_characters.py characters.h5
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

folder = pathlib.Path(__file__).resolve().parent.parent / "notebooks"
notebook = json.loads((folder / "julia_sparse_attention.ipynb").read_text(encoding="utf-8"))
cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
with tempfile.TemporaryDirectory() as scratch:
    script = pathlib.Path(scratch, "notebook.jl")
    script.write_text("\n".join([*cells, "cp(path, ARGS[1]; force = true)"]), encoding="utf-8")
    target = os.path.abspath(sys.argv[1])
    subprocess.run([os.environ["JULIA"], "--startup-file=no", str(script), target], cwd=folder, check=True)
