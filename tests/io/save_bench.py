# SPDX-License-Identifier: Apache-2.0
"""Times saving and loading beside NumPy: save_bench.py FOLDER [--mib 1024] [--rounds 7].

One matrix of 64 x 64 blocks in f32, all stored, and the same numbers as an array. tartan.save synchronises the file and
replaces the old one at the end; np.save does neither, so it is also timed with fsync. Each round runs every row once; the
figures are medians in seconds and ratios of the medians. "new" removes the file first; "cold" drops it from the page cache.
"""

import argparse
import os
import statistics
import time

import numpy as np
import tartan


def flush(path, drop):
    """Waits until the file is on the disk, so that no row pays for the one before."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        if drop:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def save_synchronised(path, array):
    with open(path, "wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    blocks = options.mib * 2**20 // (64 * 64 * 4)
    layout = tartan.Layout.from_csr((64 * blocks, 64), 64, np.arange(blocks + 1), np.zeros(blocks, int))
    values = np.random.default_rng(1).standard_normal((blocks, 64, 64), dtype=np.float32)
    matrix = tartan.BlockMatrix(layout, values)
    theirs, ours = os.path.join(options.folder, "bench.npy"), os.path.join(options.folder, "bench.h5")
    saves = {
        "np.save": (theirs, lambda: np.save(theirs, values)),
        "np.save, fsync": (theirs, lambda: save_synchronised(theirs, values)),
        "tartan.save": (ours, lambda: tartan.save(ours, matrix)),
    }
    loads = {"np.load": (theirs, lambda: np.load(theirs)), "tartan.load": (ours, lambda: tartan.load(ours))}
    cases = [("saved anew", saves), ("saved over", saves), ("loaded, warm", loads), ("loaded, cold", loads)]
    times = {(case, row): [] for case, rows in cases for row in rows}
    for _ in range(options.rounds):
        for case, rows in cases:
            for row, (path, action) in rows.items():
                if case == "saved anew" and os.path.exists(path):
                    os.remove(path)
                if rows is loads:
                    flush(path, case == "loaded, cold")
                    if case == "loaded, warm":
                        action()
                begin = time.perf_counter()
                action()
                times[case, row].append(time.perf_counter() - begin)
                flush(path, False)
    for case, rows in cases:
        medians = {row: statistics.median(times[case, row]) for row in rows}
        mine = medians.popitem()
        figures = ", ".join(f"{row} {seconds:.2f} ({seconds / mine[1]:.2f})" for row, seconds in medians.items())
        print(f"{case}: {mine[0]} {mine[1]:.2f} s; {figures}")
    for path in (theirs, ours):
        os.remove(path)


if __name__ == "__main__":
    main()
