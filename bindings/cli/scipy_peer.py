# SPDX-License-Identifier: Apache-2.0
"""One scipy product at a time, for `tartan bench`.

Arguments: m k n block blocks dtype. Standard input: int64 row pointers, int32 block columns, then a line
"bsr" or "csr" for every product wanted; each is answered with the seconds that it took.
"""
import sys
import time

try:
    import numpy as np
    import scipy.sparse as sp
except ImportError as error:
    print("error", error, flush=True)
    sys.exit(1)

m, k, n, block, blocks = map(int, sys.argv[1:6])
dtype = np.dtype(sys.argv[6])
source = sys.stdin.buffer
pointers = np.frombuffer(source.read(8 * (m // block + 1)), np.int64).astype(np.int32)
columns = np.frombuffer(source.read(4 * blocks), np.int32)
random = np.random.default_rng(1)
values = random.standard_normal((blocks, block, block)).astype(dtype)
bsr = sp.bsr_matrix((values, columns, pointers), shape=(m, k))
matrices = {b"bsr": bsr, b"csr": bsr.tocsr()}
b = random.standard_normal((k, n)).astype(dtype)
print("ready", flush=True)
for line in source:
    a = matrices[line.strip()]
    start = time.perf_counter()
    a @ b
    print(time.perf_counter() - start, flush=True)
