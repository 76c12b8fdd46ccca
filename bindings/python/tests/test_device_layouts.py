# SPDX-License-Identifier: Apache-2.0
"""Dynamic layouts: masks and scores on a device change their blocks."""

import ctypes

import numpy as np
import pytest
from conftest import EPS, random_matrix
from device_support import HAS_DEVICE, HOST_DTYPES, Exporter, Old, Tensor, dummy_only, numpy_dtype

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
        layout.row_lists, layout.mask, lambda: layout | layout, lambda: layout.__reduce_ex__(4), layout.svg,
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
    with pytest.raises(tartan.UnsupportedError, match="as the layout"):
        BlockMatrix(layout, np.ones((40, 8, 8)))
    w = random_matrix(rng, (40, 32), 8, heads=2).to_device()
    dynamic = BlockMatrix(layout, DeviceArray.zeros((40, 8, 8)))
    with pytest.raises(tartan.UnsupportedError, match="w has a dynamic layout"):
        tartan.gate_gradient(dynamic, w)


@dummy_only
def test_the_other_device_refuses(mask):
    layout = Layout.from_device_mask(mask, 8, context="cuda:1")
    with pytest.raises(tartan.UnsupportedError, match="as the context"):
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


def largest(scores, k):
    """A mask of the k largest scores of each row, by a sort."""
    sure = np.where(np.isnan(scores), np.inf, np.asarray(scores, np.float64))
    order = np.argsort(-sure, axis=-1, kind="stable")[..., :k]
    mask = np.zeros(sure.shape, np.bool_)
    np.put_along_axis(mask, order, True, -1)
    return mask & (sure > -np.inf)


def some_scores(rng, shape, dtype):
    scores = np.round(rng.standard_normal(shape), 1)
    scores[rng.random(shape) < 0.1] = -np.inf
    scores[rng.random(shape) < 0.05] = np.nan
    return scores.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("place", ["cpu", "host", "device", "other"])
def test_the_largest_scores_are_chosen(rng, dtype, place):
    there = {"device": to_device, "other": lambda x: Exporter(to_device(x))}
    given = there.get(place, np.asarray)
    context = {"cpu": "cpu", "host": "cuda"}.get(place)
    scores = some_scores(rng, (3, 5, 40), dtype)
    layout = Layout.from_device_scores(given(scores), 6, 8, context=context)
    assert layout.dynamic and layout.blocks == 3 * 5 * 6 and layout.shape == (3, 40, 320)
    assert layout.to_host() == Layout.from_mask(largest(scores, 6), 8)
    for k in (1, 6, 3):
        scores = some_scores(rng, (3, 5, 40), dtype)
        assert layout.update_scores(given(scores), k, context=context) is layout
        assert layout.to_host() == Layout.from_mask(largest(scores, k), 8)
    with pytest.raises(tartan.ArgumentError, match="k is 7, expected at most 6"):
        layout.update_scores(given(scores), 7, context=context)
    flat = Layout.from_device_scores(given(scores[0].copy()), 50, (8, 4), shape=(37, 159), context=context)
    assert flat.heads == 1 and flat.blocks == 200 and flat.shape == (37, 159)


def test_scores_of_any_layout_in_host_memory(rng):
    scores = rng.standard_normal((40, 5, 3)).T
    assert not scores.flags.c_contiguous
    assert Layout.from_device_scores(scores, 2, 8).to_host() == Layout.from_mask(largest(scores, 2), 8)
    whole = Layout.from_device_scores([[1, 5, 3]], 2, 8)
    np.testing.assert_array_equal(whole.to_host().mask(), [[False, True, True]])


def test_scores_and_masks_take_turns(rng):
    scores, mask = rng.standard_normal((2, 5, 4)), rng.random((2, 5, 4)) < 0.2
    layout = Layout.from_device_mask(mask, 8, capacity=20)
    assert layout.update_scores(scores, 2).to_host() == Layout.from_mask(largest(scores, 2), 8)
    assert layout.update(mask).to_host() == Layout.from_mask(mask, 8)


def test_refused_scores(rng):
    scores = rng.standard_normal((2, 5, 4))
    layout = Layout.from_device_scores(to_device(scores), 2, 8)
    with pytest.raises(tartan.ArgumentError, match="k is 0, expected 1 or more"):
        Layout.from_device_scores(to_device(scores), 0, 8)
    with pytest.raises(tartan.ShapeError, match="scores has 1 dimensions"):
        Layout.from_device_scores(scores[0, 0], 2, 8)
    with pytest.raises(tartan.ShapeError, match=r"scores has shape \[2, 4, 4\], expected \[2, 5, 4\]"):
        layout.update_scores(to_device(scores[:, :4].copy()), 2)
    with pytest.raises(tartan.ShapeError, match="no gaps, row-major"):
        layout.update_scores(to_device(np.asfortranarray(scores)), 2)
    with pytest.raises(tartan.DTypeError, match="scores"):
        layout.update_scores(np.array([["a"]]), 2)
    with pytest.raises(tartan.ArgumentError, match="is not dynamic"):
        Layout.from_mask(scores > 0, 8).update_scores(scores, 2)


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("heads", [1, 4, 8])
def test_attention_follows_the_scores(rng, dtype, heads):
    q, k, v, grad = (rng.standard_normal((2, 4, t, 16)).astype(numpy_dtype(dtype)) for t in (40, 96, 96, 40))
    far = [to_device(x) for x in (q, k, v)]
    layout = Layout.from_device_scores(to_device(rng.standard_normal((heads, 5, 12))), 4, 8)
    for _ in range(2):
        layout.update_scores(to_device(rng.standard_normal((heads, 5, 12))), 3)
        fixed = layout.to_host()
        results = []
        for on in (layout, fixed):
            out, lse = tartan.attention(*far, on, causal=True, query_offset=56, return_lse=True)
            grads = tartan.attention_gradient(*far, on, out, lse, to_device(grad), causal=True, query_offset=56)
            results.append([x.to_host().astype(float) for x in (out, lse, *grads)])
        for x, y in zip(*results):
            np.testing.assert_allclose(x, y, rtol=8 * EPS[dtype], atol=40 * EPS[dtype])
        wanted = tartan.attention(q, k, v, fixed, causal=True, query_offset=56).astype(float)
        np.testing.assert_allclose(results[0][0], wanted, rtol=8 * EPS[dtype], atol=40 * EPS[dtype])
