# SPDX-License-Identifier: Apache-2.0
"""Dynamic layouts: masks on a device change their blocks."""

import ctypes

import numpy as np
import pytest
from conftest import random_matrix
from device_support import HAS_DEVICE, Exporter, Old, Tensor, dummy_only

import tartan
from tartan import BlockMatrix, DeviceArray, Layout, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


class Mask(Exporter):
    """A mask in device memory, as another library with DLPack would export it."""

    def __init__(self, mask, code=6, bits=8, **options):
        data = np.ascontiguousarray(mask).view(np.uint8)
        padded = np.zeros(-(-data.size // 8) * 8, np.uint8)
        padded[: data.size] = data.ravel()
        super().__init__(to_device(padded.view(np.float64)), **options)
        self.lengths, self.code, self.bits = data.shape, code, bits

    def __dlpack__(self, *, stream=None, max_version=None):
        capsule = super().__dlpack__(stream=stream)  # of the form before 1.0
        managed, *rest = self.kept[-1]
        n = len(self.lengths)
        lengths = (ctypes.c_int64 * 8)(*self.lengths)
        strides = (ctypes.c_int64 * 8)(*(int(np.prod(self.lengths[i + 1 :])) for i in range(n)))
        assert isinstance(managed, Old)
        t = managed.tensor
        managed.tensor = Tensor(
            t.data + t.byte_offset, t.device_type, t.device_id, n, self.code, self.bits, 1, lengths, strides, 0,
        )  # fmt: skip
        self.kept[-1] = (managed, *rest, lengths, strides)
        return capsule


@pytest.fixture
def mask(rng):
    return rng.random((2, 5, 4)) < 0.5


@pytest.mark.parametrize("on_host", [False, True])
def test_products_follow_the_mask(rng, mask, on_host):
    given = (lambda m: m) if on_host else Mask
    layout = Layout.from_device_mask(given(mask), 8, context="cuda")
    assert layout.dynamic and layout.blocks == mask.size and layout.shape == (2, 40, 32)
    values = rng.standard_normal((mask.size, 8, 8))
    a = BlockMatrix(layout, to_device(values))
    b = rng.standard_normal((2, 32, 6))
    x, y = rng.standard_normal((2, 40, 3)), rng.standard_normal((2, 3, 32))
    for density in (0.5, 0.0, 1.0, 0.2):
        now = rng.random(mask.shape) < density
        assert layout.update(given(now)) is layout
        fixed = Layout.from_mask(now, 8)
        host = BlockMatrix(fixed, values[: fixed.blocks].copy())
        np.testing.assert_allclose((a @ to_device(b)).to_host(), host @ b, atol=1e-12)
        c = rng.standard_normal((2, 40, 6))
        np.testing.assert_allclose(
            spmm(a, to_device(c), transpose=True).to_host(), spmm(host, c, transpose=True), atol=1e-12
        )
        s = tartan.sddmm(layout, to_device(x), to_device(y))
        assert s.layout == layout and s.values.shape == values.shape
        back = s.to_host()
        assert back.layout == fixed == layout.to_host() and not back.layout.dynamic
        np.testing.assert_allclose(back.toarray(), tartan.sddmm(fixed, x, y).toarray(), atol=1e-12)


def test_gates_go_with_the_room(rng, mask):
    layout = Layout.from_device_mask(Mask(mask), 8)
    fixed = Layout.from_mask(mask, 8)
    values, gates = rng.standard_normal((mask.size, 8, 8)), rng.standard_normal(mask.size)
    a, host = BlockMatrix(layout, to_device(values)), BlockMatrix(fixed, values[: fixed.blocks].copy())
    b = rng.standard_normal((2, 32, 6))
    np.testing.assert_allclose(
        spmm(a, to_device(b), gates=to_device(gates)).to_host(),
        spmm(host, b, gates=gates[: fixed.blocks]), atol=1e-12,
    )  # fmt: skip


def test_one_head_ragged_edges_and_unsigned_bytes(rng):
    mask = rng.random((3, 4)) < 0.6
    layout = Layout.from_device_mask(Mask(mask.astype(np.uint8) * 3, code=1), (8, 4), shape=(20, 15))
    assert layout.shape == (20, 15) and layout.heads == 1
    assert layout.to_host() == Layout.from_mask(mask, (8, 4), shape=(20, 15))


def test_what_it_says(mask):
    layout = Layout.from_device_mask(Mask(mask), 8, capacity=30)
    assert repr(layout) == "<Layout 2x40x32, dynamic, capacity 30 of 40 blocks of 8x8, on cuda:0>"
    other = Layout.from_device_mask(Mask(mask), 8, capacity=30)
    assert layout == layout and layout != other and layout != layout.to_host()
    assert hash(layout) == hash(layout) and layout._repr_svg_() is None
    a = BlockMatrix.zeros(layout, "float32", context="cuda")
    assert repr(a) == "<BlockMatrix 2x40x32 float32, dynamic, capacity 30 of 40 blocks of 8x8, on cuda:0>"
    assert a.layout == layout and a.copy().layout == layout and hash(a.layout) == hash(layout)
    x = to_device(np.ones((2, 32, 8), np.float32))
    assert tartan.explain(tartan.spmm, a, x)[0]["device"] == "cuda:0"
    a.close()
    layout.close()
    assert repr(layout) == "<Layout, closed>"
    with pytest.raises(tartan.HandleError, match="closed"):
        layout.update(mask)


def test_more_blocks_than_room(mask):
    mask[:] = True
    layout = Layout.from_device_mask(Mask(mask), 8, capacity=39)
    with pytest.raises(tartan.LayoutError, match="the last mask has 40 blocks, expected at most 39"):
        layout.to_host()
    mask[0, 0, 0] = False
    assert layout.update(Mask(mask)).to_host().blocks == 39


@pytest.mark.parametrize("what", ["nnz", "density", "identity", "T"])
def test_what_needs_the_blocks_refuses(mask, what):
    layout = Layout.from_device_mask(Mask(mask), 8)
    with pytest.raises(tartan.UnsupportedError, match="expected an ordinary"):
        getattr(layout, what)


def test_refusals(rng, mask):
    layout = Layout.from_device_mask(Mask(mask), 8)
    for call in (
        layout.row_lists, layout.mask, lambda: layout | layout, layout.__reduce__, layout.svg,
        lambda: BlockMatrix.from_dense(np.ones((2, 40, 32)), layout=layout),
    ):  # fmt: skip
        with pytest.raises(tartan.UnsupportedError, match="expected an ordinary"):
            call()
    with pytest.raises(tartan.DTypeError, match="expected bool or uint8"):
        layout.update(Mask(mask, code=0))
    with pytest.raises(tartan.DTypeError, match="mask is a device array of float64"):
        layout.update(to_device(np.ones((2, 5, 4))))
    with pytest.raises(tartan.DTypeError, match="mask has elements of <U1"):
        layout.update(np.array([["a"]]))
    with pytest.raises(tartan.ShapeError, match=r"expected \[2, 5, 4\]"):
        layout.update(Mask(mask[:, :4]))
    with pytest.raises(tartan.ShapeError, match="mask has 1 dimensions"):
        Layout.from_device_mask(Mask(mask[0, 0]), 8)
    with pytest.raises(tartan.ArgumentError, match="capacity is 41, expected 0"):
        Layout.from_device_mask(Mask(mask), 8, capacity=41)
    with pytest.raises(tartan.ArgumentError, match="is not dynamic"):
        Layout.from_mask(mask, 8).update(Mask(mask))
    with pytest.raises(tartan.UnsupportedError, match="that of the layout"):
        BlockMatrix(layout, np.ones((40, 8, 8)))
    w = random_matrix(rng, (40, 32), 8, heads=2).to_device()
    dynamic = BlockMatrix(layout, DeviceArray.zeros((40, 8, 8)))
    with pytest.raises(tartan.UnsupportedError, match="w has a dynamic layout"):
        tartan.gate_gradient(dynamic, w)


@dummy_only
def test_the_other_device_refuses(mask):
    layout = Layout.from_device_mask(mask, 8, context="cuda:1")
    with pytest.raises(tartan.UnsupportedError, match="that of the context"):
        layout.update(mask, context="cuda:0")


def test_on_the_cpu(rng, mask):
    layout = Layout.from_device_mask(mask, 8)
    a = BlockMatrix.zeros(layout)
    a.values[:] = rng.standard_normal(a.values.shape)
    b = rng.standard_normal((2, 32, 6))
    for _ in range(3):
        now = rng.random(mask.shape) < 0.5
        fixed = Layout.from_mask(now, 8)
        layout.update(now)
        np.testing.assert_array_equal(a @ b, BlockMatrix(fixed, a.values[: fixed.blocks]) @ b)
    with pytest.raises(tartan.UnsupportedError, match="expected an ordinary"):
        a.toarray()
