# SPDX-License-Identifier: Apache-2.0
"""Products on a device equal those of the CPU."""

import numpy as np
import pytest
from conftest import EPS, assert_product, random_layout, random_matrix
from device_support import HAS_DEVICE, HOST_DTYPES, random_array

import tartan
from tartan import DeviceArray, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("block", [8, 16, (4, 6), 32])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("transpose", [False, True])
def test_products_equal_those_of_the_cpu(rng, dtype, block, side, transpose):
    a = random_matrix(rng, (70, 50), block, dtype=dtype, order=rng.choice(["C", "F"]))
    op = a.T if transpose else a
    inner, outer = op.shape[::-1] if side == "left" else op.shape
    b = random_array(rng, (inner, 24) if side == "left" else (24, inner), dtype)
    there = a.to_device()
    for x in (b, np.asfortranarray(b)):
        y = spmm(there, to_device(x), side=side, transpose=transpose)
        assert isinstance(y, DeviceArray) and y.dtype_name == dtype and y.device == there.device == "cuda:0"
        dense = op.toarray()
        pair = (dense, b) if side == "left" else (b, dense)
        assert_product(y.to_host(), *pair, dtype)
        assert y.to_host().flags.f_contiguous == x.flags.f_contiguous
        np.testing.assert_allclose(
            y.to_host().astype(float),
            np.asarray(spmm(a, x, side=side, transpose=transpose), float),
            rtol=4 * EPS[dtype], atol=200 * EPS["float32" if dtype != "float64" else dtype],
        )  # fmt: skip


def test_operators_vectors_batches_and_heads(rng):
    a = random_matrix(rng, (20, 30), 8)
    there, dense = a.to_device(), a.toarray()
    x = rng.standard_normal(30)
    y = there @ to_device(x)
    assert y.shape == (20,)
    assert_product(y.to_host(), dense, x, "float64")
    z = to_device(rng.standard_normal(20)) @ there
    assert z.shape == (30,)
    assert (there.T @ y).shape == (30,) and there.T.device == "cuda:0"
    batch = rng.standard_normal((3, 30, 4))
    assert_product((there @ to_device(batch)).to_host(), dense, batch, "float64")
    heads = random_matrix(rng, (20, 30), 8, heads=2)
    up = heads.to_device()
    one = rng.standard_normal((30, 5))
    assert_product(
        (up @ to_device(one)).to_host(), heads.toarray(), np.broadcast_to(one, (2, 30, 5)), "float64"
    )
    assert (up @ to_device(x)).shape == (2, 20)


def test_in_place(rng):
    a = random_matrix(rng, (24, 16), 8, dtype="float32")
    b, c = random_array(rng, (16, 5), "float32"), random_array(rng, (24, 5), "float32")
    gates = np.arange(a.blocks, dtype=np.float32) % 3
    there, out = a.to_device(), to_device(c)
    result = spmm(there, to_device(b), alpha=2, beta=-1, gates=to_device(gates), out=out)
    assert result is out
    wanted = spmm(a, b, alpha=2, beta=-1, gates=gates, out=c.copy())
    np.testing.assert_allclose(out.to_host(), wanted, rtol=1e-5, atol=1e-5)
    wide = to_device(np.zeros((24, 10), np.float32))
    with pytest.raises(tartan.ShapeError, match="out has"):
        spmm(there, to_device(b), out=wide)
    into = to_device(np.zeros((5, 24), np.float32))
    spmm(there, to_device(b), out=into.T)  # any strides
    np.testing.assert_allclose(into.to_host().T, a @ b, rtol=1e-5, atol=1e-5)
    bits = random_matrix(rng, (24, 16), 8, dtype="float16").to_device()
    wide = DeviceArray.zeros((24, 5), "float32")
    assert spmm(bits, to_device(b.astype(np.float16)), out=wide).dtype == np.float32


def test_sampled_products(rng):
    layout = random_layout(rng, (24, 16), 8)
    x, y = rng.standard_normal((24, 7)), rng.standard_normal((7, 16))
    there, beside = to_device(x), to_device(y)
    made = tartan.sddmm(layout, there, beside)
    assert made.device == "cuda:0" and made.layout == layout
    wanted = tartan.sddmm(layout, x, y)
    np.testing.assert_allclose(made.to_host().values, wanted.values, rtol=1e-13)
    gates = rng.integers(0, 2, layout.blocks).astype(float)
    again = tartan.sddmm(made, [there, there], [beside, beside], alpha=0.5, beta=2, gates=to_device(gates))
    assert again is made
    tartan.sddmm(wanted, [x, x], [y, y], alpha=0.5, beta=2, gates=gates)
    np.testing.assert_allclose(made.to_host().values, wanted.values, rtol=1e-12)


def test_gates_and_growth(rng):
    w, dw = (random_matrix(np.random.default_rng(1), (24, 16), 8, dtype="float32") for _ in range(2))
    gates = rng.random(w.blocks).astype(np.float32)
    wanted_dw = dw.copy()
    wanted = tartan.gate_gradient(w, wanted_dw, gates=gates)
    up = dw.to_device()
    got = tartan.gate_gradient(w.to_device(), up, gates=to_device(gates))
    assert isinstance(got, DeviceArray)
    np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-5)
    np.testing.assert_allclose(up.to_host().values, wanted_dw.values, rtol=1e-6)
    x, y = rng.standard_normal((24, 5)), rng.standard_normal((5, 16))
    score = tartan.growth_score(to_device(x), to_device(y), 8)
    np.testing.assert_allclose(score.to_host(), tartan.growth_score(x, y, 8), rtol=1e-12)
    tartan.growth_score(to_device(x), to_device(y), 8, beta=1, out=score)
    np.testing.assert_allclose(score.to_host(), 2 * tartan.growth_score(x, y, 8), rtol=1e-12)
