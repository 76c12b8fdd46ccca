# SPDX-License-Identifier: Apache-2.0
"""Makes the cases that C, Python, R and Julia run with equal bits: operands in products.h5, and what to do with
them and the checksum of the result in products.csv. `tests/cases` checks each result against an f64 oracle too.

    python make_cases.py            (with the tartan package of a build)
"""
import csv
import pathlib

import numpy as np
import tartan

here = pathlib.Path(__file__).parent
random = np.random.default_rng(20260101)
file, rows = tartan.File(), []

# name, pattern, parameters, m, k, block, n
SHAPES = [
    ("ba", "barabasi_albert", {"m": 2}, 96, 96, 8, 5),
    ("ragged", "random", {"density": 0.4}, 50, 43, (7, 5), 9),
    ("wide", "random", {"density": 0.3}, 33, 128, (16, 32), 17),
    ("local", "local", {"window": 2, "causal": 0}, 160, 160, 32, 64),
    ("empty", "random", {"density": 0.0}, 24, 24, 8, 3),
]


def dense(name, array):
    """A dense operand as a matrix of one pattern, so that every language can load it."""
    layout = tartan.Layout.pattern("dense", array.shape, 16)
    file.put(name, tartan.BlockMatrix.from_dense(array, layout=layout))


for shape, pattern, parameters, m, k, block, n in SHAPES:
    for dtype in ("float64", "float32"):
        base = f"{shape}_{dtype}"
        layout = tartan.Layout.pattern(pattern, (m, k), block, seed=3, **parameters)
        a = tartan.BlockMatrix.zeros(layout, dtype).fill_normal(seed=5)
        gates = np.round(random.uniform(-1, 1, layout.blocks), 1)
        file.put(f"{base} a", a, gates=gates)
        for side in ("left", "right"):
            for transpose in (0, 1):
                inner, outer = (m, k) if (side == "left") == bool(transpose) else (k, m)
                b_shape, c_shape = ((inner, n), (outer, n)) if side == "left" else ((n, inner), (n, outer))
                name = f"{base} {side} {transpose}"
                b = random.uniform(-1, 1, b_shape).astype(dtype)
                c = random.uniform(-1, 1, c_shape).astype(dtype)
                dense(f"{name} b", b)
                dense(f"{name} c", c)
                for alpha, beta, gated in ((1, 0, 0), (0.75, 1, 0), (-1.5, 0.25, 1)):
                    out = c.copy()
                    tartan.spmm(a, b, side=side, transpose=bool(transpose), alpha=alpha, beta=beta, out=out,
                                gates=gates if gated else None)
                    rows.append(["spmm", dtype, side, transpose, alpha, beta, gated, f"{base} a", f"{name} b", f"{name} c",
                                 tartan.checksum(out)])
        x, y = random.uniform(-1, 1, (m, n)).astype(dtype), random.uniform(-1, 1, (n, k)).astype(dtype)
        dense(f"{base} x", x)
        dense(f"{base} y", y)
        for alpha, beta, gated in ((1, 0, 0), (0.5, 1, 1)):
            s = a.copy()
            tartan.sddmm(s, x, y, alpha=alpha, beta=beta, gates=gates if gated else None)
            rows.append(["sddmm", dtype, "left", 0, alpha, beta, gated, f"{base} a", f"{base} x", f"{base} y",
                         tartan.checksum(s.toarray())])

file.save(here / "products.h5", compress=True)
with open(here / "products.csv", "w", newline="") as out:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["op", "dtype", "side", "transpose", "alpha", "beta", "gated", "a", "b", "c", "checksum"])
    writer.writerows(rows)
