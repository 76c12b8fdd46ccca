# SPDX-License-Identifier: Apache-2.0
"""The demonstration, part 4, in Python; then the file is read with h5py and scipy alone."""
import sys
import time

import h5py
import numpy as np
import scipy.sparse
import tartan

path, names = sys.argv[1], sys.argv[2:]
i, j = np.arange(1, 3112)[:, None], np.arange(1, 65)[None, :]
X = ((7 * i + 13 * j) % 17 - 8) / 8
for name in names:
    A = tartan.load(path, name)
    Y = A @ X  # the first product also warms up
    started = time.perf_counter()
    for _ in range(20):
        Y = A @ X
    taken = (time.perf_counter() - started) / 20
    print(f"Python  {name:14} times 3111 x 64 in {1e3 * taken:6.2f} ms   checksum {tartan.checksum(Y)}")

    with h5py.File(path) as file:  # without Tartan: what is stored is what scipy calls BSR
        group = file["tensors"][name]
        blocks = group["blocks"][()]
        if group.attrs["block_order"] in ("F", b"F"):
            blocks = blocks.transpose(0, 2, 1)
        bsr = scipy.sparse.bsr_array((blocks, group["indices_1"][()], group["pointers_to_1"][()]))
        difference = np.abs(bsr.tocsr()[:3111, :3111] @ X - Y).max()
    print(f"h5py    {name:14} read without Tartan, multiplied by scipy: largest difference {difference:.1e}")
