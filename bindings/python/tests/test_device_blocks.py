# SPDX-License-Identifier: Apache-2.0
"""What is made of the blocks of a matrix on a device has the bits of the CPU."""

import copy

import numpy as np
import pytest
from conftest import random_layout, random_matrix
from device_support import HAS_DEVICE, HOST_DTYPES, Exporter, dummy_only

import tartan
from tartan import BlockMatrix, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


def assert_same(there, here):
    """A matrix on the device and the one that the CPU made."""
    assert isinstance(there, BlockMatrix) and there.device == "cuda:0"
    assert (there.dtype_name, there.order, there.layout) == (here.dtype_name, here.order, here.layout)
    back = there.to_host()
    np.testing.assert_array_equal(back.values, here.values)
    assert back.device == "cpu"


CHANGES = {
    "copy": lambda a: a.copy(),
    "copy.copy": lambda a: copy.copy(a),
    "cast": lambda a: a.astype("float16"),
    "order": lambda a: a.astype(order="F" if a.order == "C" else "C"),
    "fp8": lambda a: a.astype("float8_e4m3fn"),
    "both": lambda a: a.astype("float64", order="F"),
    "transpose": lambda a: a.T.copy(),
    "permute": lambda a: a.permute(rows=[2, 0, 1, 3], cols=[1, 0, 2]),
    "slice": lambda a: a.block[1:3, :2],
    "union": lambda a: a.project(a.layout | random_layout(np.random.default_rng(5), a.shape, a.block_shape)),
    "prune": lambda a: a.project(a.layout.prune((np.arange(a.blocks) % 2).astype(float))),
    "keep": lambda a: a.project(a.layout.keep_largest(a.block_norms(), 3)),
    "rearrange": lambda a: a.rearrange(a.layout, np.arange(a.blocks)[::-1].copy() - 1),
    "scatter": lambda a: a.copy().scatter(a.permute(rows=[1, 0, 2, 3]).block[:1], _targets(a)),
}


def _targets(a):
    blocks = a.permute(rows=[1, 0, 2, 3]).block[:1].blocks
    return [-1 if i == 1 else a.blocks - 1 - i for i in range(blocks)]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("shape", [(32, 24), (29, 19)], ids=["whole", "ragged"])
def test_the_same_bits_as_on_the_cpu(rng, change, dtype, shape):
    a = random_matrix(rng, shape, 8, dtype=dtype, density=0.7, order=rng.choice(["C", "F"]))
    assert_same(change(a.to_device()), change(a))


def test_multiples_in_place_are_seen_by_the_transpose(rng):
    a = random_matrix(rng, (32, 24), 8)
    there = a.to_device()
    view = there.T
    there *= 3
    view /= 2
    assert_same(there, a * 3 / 2)
    np.testing.assert_array_equal(view.to_host().toarray(), (a * 3 / 2).toarray().T)


def _set_diagonal(a):
    a = a.add_diagonal(0.0)
    a.setdiag(np.arange(float(min(a.shape))))
    return a


def _here_or_there(a, numbers):
    return numbers if a.device == "cpu" else to_device(numbers)


ARITHMETIC = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "negative": lambda a, b: -a,
    "times": lambda a, b: 0.3 * a,
    "divide": lambda a, b: a / 7,
    "square": lambda a, b: a**2,
    "abs": lambda a, b: abs(a),
    "hadamard": lambda a, b: a.multiply(b),
    "maximum": lambda a, b: a.maximum(b),
    "minimum": lambda a, b: a.minimum(b),
    "transposed": lambda a, b: a.T.copy() + b.T,
    "scale": lambda a, b: a.scale(rows=np.arange(a.shape[0]), cols=np.linspace(0, 1, a.shape[1])),
    "scale there": lambda a, b: a.scale(rows=_here_or_there(a, np.arange(a.shape[0], dtype="float32") / 3)),
    "diagonal added": lambda a, b: a.add_diagonal(np.arange(float(min(a.shape)))),
    "zeros dropped": lambda a, b: (a.multiply(b) + 0 * b).drop_zeros(),
    "diagonal written": lambda a, b: _set_diagonal(a),
}


@pytest.mark.parametrize("compute", ARITHMETIC.values(), ids=ARITHMETIC)
@pytest.mark.parametrize("dtype", HOST_DTYPES)
def test_arithmetic_has_the_same_bits_as_on_the_cpu(rng, compute, dtype):
    for shape in ((32, 24), (29, 19)):
        a = random_matrix(rng, shape, 8, dtype=dtype, density=0.6, order=rng.choice(["C", "F"]))
        b = random_matrix(rng, shape, 8, dtype=dtype, density=0.6)
        assert_same(compute(a.to_device(), b.to_device()), compute(a, b))


@pytest.mark.parametrize("dtype", HOST_DTYPES)
def test_reductions(rng, dtype):
    a = random_matrix(rng, (29, 19), 8, dtype=dtype, density=0.6)
    there = a.to_device()
    for axis in (None, 0, 1):
        for name in ("max", "min", "count_nonzero"):
            np.testing.assert_array_equal(getattr(there, name)(axis=axis), getattr(a, name)(axis=axis))
        for name in ("sum", "mean"):
            np.testing.assert_allclose(getattr(there, name)(axis=axis), getattr(a, name)(axis=axis), rtol=1e-12, atol=1e-12)
    for kind in ("fro", 1, np.inf, "max"):
        np.testing.assert_allclose(there.norm(kind), a.norm(kind), rtol=1e-14)
    np.testing.assert_allclose(there.norm(axis=1), a.norm(axis=1), rtol=1e-14)
    np.testing.assert_array_equal(there.diagonal(1), a.diagonal(1))
    assert there.trace() == a.trace()
    assert there.isclose_all(a.to_device(), 0, 0) and not there.isclose_all((2 * a).to_device())


def test_arithmetic_with_the_host_is_refused(rng):
    a = random_matrix(rng, (16, 16), 8)
    with pytest.raises(tartan.UnsupportedError, match="a is on device 1:0, expected 2:0"):
        a + a.to_device()
    with pytest.raises(tartan.UnsupportedError, match="matrix is on device 1:0, expected 2:0"):
        a.scale(cols=to_device(np.ones(16)), rows=None)


@pytest.mark.parametrize("norm", ["max", "l1", "l2"])
def test_norms(rng, norm):
    a = random_matrix(rng, (29, 19), 8, dtype="float32")
    there = a.to_device().block_norms(norm)
    assert type(there) is np.ndarray
    np.testing.assert_allclose(there, a.block_norms(norm), rtol=1e-14)


def test_memory_of_another_library(rng):
    a = random_matrix(rng, (16, 16), 8)
    x = to_device(a.values)
    wrapped = BlockMatrix(a.layout, Exporter(x))
    assert_same(wrapped.astype("float32"), a.astype("float32"))
    assert_same(wrapped.copy(), a)
    np.testing.assert_allclose(wrapped.block_norms(), a.block_norms())
    wrapped.scatter(a.to_device(), [-1] * (a.blocks - 1) + [0])
    np.testing.assert_array_equal(x.to_host()[0], a.values[-1])


def test_results_are_ordered_with_other_contexts(rng):
    a = random_matrix(rng, (16, 16), 8)
    cast = a.to_device().astype("float32").copy()
    x = rng.standard_normal((16, 2)).astype("float32")
    with tartan.Context("cuda") as context:
        y = tartan.spmm(cast, to_device(x, context), context=context)
        np.testing.assert_allclose(y.to_host(), a.astype("float32") @ x, rtol=1e-4, atol=1e-4)


@dummy_only
def test_no_memory_on_the_device(rng, monkeypatch):
    there = random_matrix(rng, (16, 16), 8).to_device()
    monkeypatch.setenv("TARTAN_DUMMY_BYTES", "8")
    for call in (there.copy, there.block_norms, there.T.copy, lambda: there.astype("float32")):
        with pytest.raises(tartan.OutOfMemoryError):
            call()
    monkeypatch.delenv("TARTAN_DUMMY_BYTES")
    assert there.copy().device == "cuda:0"


def test_scatter_refuses(rng):
    a, b = random_matrix(rng, (16, 16), 8, density=1.0).to_device(), random_matrix(rng, (8, 8), 8, density=1.0)
    with pytest.raises(tartan.UnsupportedError, match="matrix is on device"):
        a.scatter(b, [0])
    with pytest.raises(tartan.LayoutError, match="targets.0. is 4, expected -1 .. 3"):
        a.scatter(b.to_device(), [4])
    with pytest.raises(tartan.HandleTypeError, match="matrix is of type ndarray"):
        a.scatter(b.values, [0])
    with pytest.raises(tartan.ArgumentError, match="overlaps"):
        a.scatter(a, [0, 1, 2, 3])


def test_a_sparsifier_moves_weights_on_a_device(rng):
    w = BlockMatrix.zeros(random_layout(rng, (64, 64), 8, 0.9)).fill_normal(seed=1)
    here, there = (tartan.Sparsifier(w, density=0.3, swap=0.2, growth="random", end=4) for _ in range(2))
    far, far_mean, mean = w.to_device("cuda"), (w * 2).to_device("cuda"), w * 2
    for _ in range(4):
        w, mean = here.step(w, mean)
        far, far_mean = there.step(far, far_mean)
    assert w.blocks < 40
    assert_same(far, w)
    assert_same(far_mean, mean)
