# SPDX-License-Identifier: Apache-2.0
"""The unfused parts of attention in host memory."""

import numpy as np
import pytest
from attention_support import visible
from conftest import EPS, random_layout

import tartan
from tartan import (
    BlockMask,
    BlockMatrix,
    Layout,
    attention,
    attention_gradient,
    attention_merge,
    block_softmax,
    block_softmax_gradient,
)


def scores(rng, dtype="float64", heads=2, order="C", size=(40, 52), block=(8, 16)):
    layout = random_layout(rng, size, block, 0.6, heads=heads)
    values = rng.standard_normal((layout.blocks, *block)).astype(dtype)
    return BlockMatrix(layout, values if order == "C" else values.transpose(0, 2, 1).copy().transpose(0, 2, 1))


def dense(matrix):
    return matrix.toarray().reshape(matrix.layout.heads, matrix.layout.rows, matrix.layout.cols).astype(np.float64)


def dense_softmax(x, seen, scale):
    s = np.where(seen, scale * x, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = s.max(-1, keepdims=True)
        most = np.where(np.isfinite(most), most, 0)
        sums = np.exp(s - most).sum(-1, keepdims=True)
        return np.where(sums > 0, np.exp(s - most) / sums, 0), (np.log(sums) + most)[..., 0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("case", [{}, {"causal": True, "query_offset": 10, "causal_from": 3}, {"masked": True}], ids=str)
def test_equals_a_dense_computation(rng, dtype, order, case):
    case = dict(case)
    x = scores(rng, dtype, order=order)
    mask = BlockMask.from_rule(x.layout, lambda q, k, h: (q + 2 * k + h) % 3 != 0) if case.pop("masked", False) else None
    wanted, wanted_lse = dense_softmax(dense(x), visible(x.layout, mask, **case), 0.7)
    y, lse = block_softmax(x, scale=0.7, mask=mask, **case, return_lse=True)
    assert y.dtype == x.dtype and y.order == order and y.layout == x.layout
    assert lse.shape == (2, 40) and lse.dtype == (np.float64 if dtype == "float64" else np.float32)
    np.testing.assert_allclose(dense(y), wanted, rtol=20 * EPS[dtype], atol=1e-7 if dtype == "float16" else 0)
    np.testing.assert_allclose(lse, wanted_lse, rtol=0, atol=40 * EPS["float64" if dtype == "float64" else "float32"])
    dy = BlockMatrix(x.layout, rng.standard_normal(x.values.shape).astype(dtype))
    dx = block_softmax_gradient(y, dy, scale=0.7)
    w, g = dense(y), dense(dy)
    np.testing.assert_allclose(dense(dx), 0.7 * w * (g - (g * w).sum(-1, keepdims=True)), rtol=0, atol=10 * EPS[dtype])


def test_results_in_other_dtypes(rng):
    x = scores(rng, "float32")
    y = block_softmax(x)
    half = BlockMatrix.zeros(x.layout, "float16")
    assert np.array_equal(dense(block_softmax(x, out=half)), dense(y).astype(np.float16))
    narrow = BlockMatrix.zeros(x.layout, "bfloat16")
    assert block_softmax(x, out=narrow) is narrow
    np.testing.assert_allclose(dense(narrow.astype("float32")), dense(y), rtol=2**-8)


def test_unfused_attention_is_fused_attention(rng):
    layout = random_layout(rng, (40, 52), (8, 16), 0.6, heads=3)
    q, out_grad = rng.standard_normal((2, 3, 40, 8))
    k, v = rng.standard_normal((2, 3, 52, 8))
    out, lse = attention(q, k, v, layout, causal=True, query_offset=12, return_lse=True)
    y, row_lse = block_softmax(
        tartan.sddmm(layout, q, k.swapaxes(1, 2)), scale=8**-0.5, causal=True, query_offset=12, return_lse=True
    )
    np.testing.assert_allclose(tartan.spmm(y, v), out, atol=1e-13)
    np.testing.assert_allclose(row_lse, lse, atol=1e-13)
    ds = block_softmax_gradient(y, tartan.sddmm(layout, out_grad, v.swapaxes(1, 2)), scale=8**-0.5)
    dq, dk, dv = attention_gradient(q, k, v, layout, out, lse, out_grad, causal=True, query_offset=12)
    np.testing.assert_allclose(tartan.spmm(ds, k), dq, atol=1e-13)
    np.testing.assert_allclose(tartan.spmm(ds, q, transpose=True), dk, atol=1e-13)
    np.testing.assert_allclose(tartan.spmm(y, out_grad, transpose=True), dv, atol=1e-13)


@pytest.mark.parametrize("ndim", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_merges_parts_of_the_keys(rng, ndim, dtype):
    shape = (2, 3, 40, 8)[4 - ndim :]
    q, k, v = rng.standard_normal((3, *shape)).astype(dtype)
    out, lse = attention(q, k, v, Layout.pattern("dense", (40, 40), 8), return_lse=True)
    parts = [
        attention(q, k[..., i:j, :], v[..., i:j, :], Layout.pattern("dense", (40, j - i), 8), return_lse=True)
        for i, j in ((0, 8), (8, 32), (32, 40))
    ]
    total, total_lse = attention_merge(*parts[0], *parts[1], return_lse=True)
    assert total.shape == out.shape and total_lse.shape == lse.shape
    again = attention_merge(total, total_lse, *parts[2], out=total, lse=total_lse)
    assert again[0] is total and again[1] is total_lse
    np.testing.assert_allclose(total, out, atol=20 * EPS[dtype])
    np.testing.assert_allclose(total_lse, lse, atol=20 * EPS[dtype])


def test_a_part_without_keys_is_not_read():
    out, lse = attention_merge(np.full((4, 8), np.nan), np.full(4, -np.inf), np.ones((4, 8)), np.zeros(4), return_lse=True)
    assert np.array_equal(out, np.ones((4, 8))) and np.array_equal(lse, np.zeros(4))
    nothing = np.full((4, 8), np.nan), np.full(4, -np.inf)
    out, lse = attention_merge(*nothing, *nothing, return_lse=True)
    assert np.array_equal(out, np.zeros((4, 8))) and np.array_equal(lse, np.full(4, -np.inf))


def test_refusals(rng):
    x = scores(rng)
    with pytest.raises(tartan.LayoutError, match="block_softmax: out has another layout than x"):
        block_softmax(x, out=scores(rng, size=(48, 48)))
    with pytest.raises(tartan.ArgumentError, match="query_offset is given, which needs causal=True"):
        block_softmax(x, query_offset=3)
    a, lse = np.zeros((4, 8)), np.zeros(4)
    with pytest.raises(tartan.ShapeError, match="attention_merge: lse_b has 2 dimensions, expected 1, since out_a has 2"):
        attention_merge(a, lse, a, np.zeros((1, 4)))
    with pytest.raises(tartan.ShapeError, match="out_a has 1 dimensions, expected 2 to 4"):
        attention_merge(lse, lse, lse, lse)
