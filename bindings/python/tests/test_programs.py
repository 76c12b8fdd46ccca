# SPDX-License-Identifier: Apache-2.0
"""Random programs: operations that users write one after the other, beside the same on dense arrays. The suite `long` runs
more of them (TARTAN_PROGRAMS)."""

import os

import numpy as np
import pytest

import tartan
from program_operations import OPERATIONS
from tartan import BlockMatrix, Layout

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}
PROGRAMS, STEPS, BATCH = int(os.environ.get("TARTAN_PROGRAMS", "200")), 12, 20


class Program:
    """A pool of matrices, each beside its elements in float64."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pool = [self.fresh(), self.fresh()]
        self.steps = []

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def chance(self, p):
        return self.rng.random() < p

    def one(self, things):
        return things[int(self.rng.integers(len(things)))]

    def numbers(self, shape, dtype="float64"):
        return (self.rng.integers(-16, 17, shape) / 8).astype(dtype)

    def block(self):
        return (self.integer(1, 5), self.integer(1, 5)) if self.chance(0.6) else self.one([1, 2, 3, 4, 8])

    def bounds(self, n):
        inner = set(self.rng.integers(1, n, self.integer(0, 4)).tolist()) if n > 1 else ()
        return [0, *sorted(inner), n]

    def size(self):
        return self.one([1, 2, 3, 5, 8, 13, 16, 17])

    def fresh(self, shape=None, dtype=None):
        shape, dtype = shape or (self.size(), self.size()), dtype or self.one(["float64", "float64", "float32", "float16"])
        density = self.one([0.0, 0.3, 0.6, 1.0])
        if self.chance(0.2):
            rows, cols = self.bounds(shape[0]), self.bounds(shape[1])
            layout = Layout.from_mask(self.rng.random((len(rows) - 1, len(cols) - 1)) < density, rows=rows, cols=cols)
        else:
            block = self.block()
            grid = [-(-n // b) for n, b in zip(shape, block if isinstance(block, tuple) else (block, block))]
            layout = Layout.from_mask(self.rng.random(grid) < density, block, shape=shape)
        w = BlockMatrix.from_dense(self.numbers(shape), layout=layout, dtype=dtype, order=self.one("CF"))
        return w, w.toarray().astype(float)

    def beside(self, w, d):
        """Another matrix of the same shape."""
        found = [pair for pair in self.pool if pair[1].shape == d.shape]
        return self.one(found) if found and self.chance(0.5) else self.fresh(d.shape)

    def index(self, n):
        """An index of an axis of n elements, of every kind that NumPy takes."""
        return [
            lambda: slice(None), lambda: slice(self.integer(-n - 1, n), self.integer(-n - 1, n + 2)),
            lambda: slice(None, None, self.one([2, 3, -1, -2])), lambda: slice(self.integer(-n, n), None, self.one([1, 2, -1, -3])),
            lambda: self.rng.integers(-n, n, self.integer(0, 2 * n)), lambda: self.rng.random(n) < 0.5,
            lambda: self.rng.permutation(n), lambda: self.rng.integers(0, n, self.integer(1, 4)).tolist(),
            lambda: self.rng.permutation(n).astype(self.one(["int32", "int16", "uint8"])),
        ][self.integer(0, 8)]()  # fmt: skip

    def operand(self, shape, dtype="float64"):
        """A dense operand: of any strides, and of any dtype that NumPy casts to `dtype` safely."""
        x = self.numbers(shape, dtype)
        return [
            lambda: np.asfortranarray(x), lambda: np.repeat(x, 2, -1)[..., ::2], lambda: x[..., ::-1].copy()[..., ::-1],
            lambda: self.rng.integers(-3, 4, shape, "int8"), lambda: self.rng.random(shape) < 0.5, lambda: x.astype("float16"),
            lambda: np.broadcast_to(self.numbers(shape[-1:], dtype), shape), lambda: x, lambda: x[::-1],
        ][self.integer(0, 8)]()  # fmt: skip

    def keep(self, made):
        if 0 in made.shape or max(made.shape) > 64:
            return
        d = made.toarray().astype(float)
        for w, e in self.pool:
            if np.shares_memory(memory(made), memory(w)) and w is not made:
                d = e if type(made) is type(w) else e.T
        if np.isfinite(d).all() and np.abs(d).max() < 1e4:
            self.pool.append((made, d))
            if len(self.pool) > 6:
                del self.pool[self.integer(0, 5)]

    def step(self):
        name = self.one(list(OPERATIONS))
        w, d = self.one(self.pool)
        self.steps.append((name, repr(w), w.dtype_name if isinstance(w, BlockMatrix) else w.T.dtype_name))
        with np.errstate(all="ignore"):
            made, wanted = OPERATIONS[name](self, w, d)
        check(made, wanted, str(w.dtype))
        for v, e in self.pool:  # what the operation changed, and nothing else
            check(v, e, str(v.dtype))
            e[...] = v.toarray()
        for x in made if isinstance(made, tuple) else (made,):
            if isinstance(x, (BlockMatrix, tartan.TransposedMatrix)) and x is not w:
                self.keep(x)


def memory(w):
    return w.T.values if isinstance(w, tartan.TransposedMatrix) else w.values


def check(made, wanted, dtype):
    if isinstance(wanted, tuple):
        assert len(made) == len(wanted)
        for x, y in zip(made, wanted):
            check(x, y, dtype)
        return
    x, y = np.asarray(made.toarray() if hasattr(made, "toarray") else made), np.asarray(wanted)
    assert x.shape == y.shape
    if y.dtype.kind not in "fc":
        np.testing.assert_array_equal(x, y)
        return
    eps = max(EPS.get(name, 2.0**-52) for name in (dtype, str(x.dtype)))
    largest = np.abs(y[np.isfinite(y)]).max(initial=1)
    np.testing.assert_allclose(x.astype(y.dtype), y, rtol=0, atol=400 * eps * largest)


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
def test_random_programs(first):
    for seed in range(first, first + BATCH):
        program = Program(seed)
        try:
            for _ in range(STEPS):
                program.step()
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n" + "\n".join(map(str, program.steps))) from error
