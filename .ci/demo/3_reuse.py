# SPDX-License-Identifier: Apache-2.0
"""The demonstration, part 3, in Python: the pattern again, with weights in single precision."""
import sys

import tartan

path = sys.argv[1]
with tartan.File(path) as file:
    layout = file["counties"].layout
    weights = tartan.BlockMatrix.zeros(layout, "float32").fill_normal(seed=7)
    file.put("python weights", weights)
    file.save(path)
print(f"Python  loaded pattern {layout.identity}, saved new weights \"python weights\" with it")
