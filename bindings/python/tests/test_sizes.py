# SPDX-License-Identifier: Apache-2.0
"""Blocks of different sizes, beside NumPy."""

import copy
import io
import pickle

import numpy as np
import pytest

import tartan


def any_bounds(rng, blocks, most):
    return np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, blocks))])


def any_matrix(rng, heads=1, dtype="float64", order="C"):
    rows, cols = any_bounds(rng, rng.integers(2, 7), 6), any_bounds(rng, rng.integers(2, 7), 5)
    mask = rng.random((heads, rows.size - 1, cols.size - 1)) < 0.5
    layout = tartan.Layout.from_mask(mask, rows=rows, cols=cols)
    shape = (rows[-1], cols[-1]) if heads == 1 else (heads, rows[-1], cols[-1])
    full = rng.standard_normal(shape)
    spread = np.repeat(np.repeat(mask, np.diff(rows), 1), np.diff(cols), 2)
    dense = np.where(spread if heads > 1 else spread[0], full, 0)
    return tartan.BlockMatrix.from_dense(full, layout=layout, dtype=dtype, order=order), dense


def test_layouts_say_their_sizes():
    layout = tartan.Layout.from_mask([[1, 0, 1], [0, 1, 1]], rows=[0, 3, 5], cols=[0, 4, 5, 12])
    assert layout.variable and layout.shape == (5, 12) and layout.block_shape == (3, 7) and layout.grid == (2, 3)
    assert repr(layout) == "<Layout 5x12, 4 of 6 blocks up to 3x7, density 0.667>"
    assert [b.tolist() for b in layout.boundaries] == [[0, 3, 5], [0, 4, 5, 12]]
    assert layout.nnz == 3 * 4 + 3 * 7 + 2 * 1 + 2 * 7
    assert layout.with_boundaries() == layout and layout.T.T == layout
    assert [b.tolist() for b in layout.T.boundaries] == [[0, 4, 5, 12], [0, 3, 5]]
    assert (layout | layout) == layout and (layout - layout).blocks == 0
    even = layout.with_boundaries([0, 2, 4], [0, 3, 6, 8])
    assert not even.variable and even == tartan.Layout.from_mask([[1, 0, 1], [0, 1, 1]], (2, 3), shape=(4, 8))
    assert [b.tolist() for b in even.boundaries] == [[0, 2, 4], [0, 3, 6, 8]]
    assert "<svg" in layout.svg()
    other = layout.with_boundaries([0, 2, 5])
    assert other != layout and other.identity != layout.identity and len({other, layout, layout.T.T}) == 2


@pytest.mark.parametrize("keep", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_pickles(keep):
    a, dense = any_matrix(np.random.default_rng(1), heads=2)
    assert keep(a.layout) == a.layout and keep(a.layout).identity == a.layout.identity
    b = keep(a)
    assert b.layout == a.layout and np.array_equal(b.toarray(), dense)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_and_elements(dtype, order):
    rng = np.random.default_rng(2)
    for _ in range(40):
        a, dense = any_matrix(rng, dtype=dtype, order=order)
        dense = dense.astype(dtype)
        eps = np.finfo(dtype).eps * 100
        assert np.array_equal(a.toarray(), dense)
        for n in (1, 3, 40):
            x, y = rng.standard_normal((dense.shape[1], n)).astype(dtype), rng.standard_normal((dense.shape[0], n)).astype(dtype)
            np.testing.assert_allclose(a @ x, dense @ x, atol=eps)
            np.testing.assert_allclose(a.T @ y, dense.T @ y, atol=eps)
            np.testing.assert_allclose(y.T @ a, y.T @ dense, atol=eps)
        np.testing.assert_allclose(a @ np.ones(dense.shape[1], dtype), dense.sum(1), atol=eps)
        s = tartan.sddmm(a.layout, y, np.ascontiguousarray(x.T))
        np.testing.assert_allclose(s.toarray(), np.where(_stored(a), y @ x.T, 0), atol=eps)
        i, j = int(rng.integers(dense.shape[0])), int(rng.integers(dense.shape[1]))
        assert a[i, j] == dense[i, j]
        assert np.array_equal(a[[i, 0], [j, 0]], dense[[i, 0], [j, 0]])


def _stored(a):
    rows, cols = a.layout.boundaries
    return np.repeat(np.repeat(a.layout.mask(), np.diff(rows), -2), np.diff(cols), -1)


def test_heads():
    rng = np.random.default_rng(3)
    a, dense = any_matrix(rng, heads=3)
    x = rng.standard_normal((3, dense.shape[2], 5))
    np.testing.assert_allclose(a @ x, dense @ x, atol=1e-12)


def test_arithmetic_and_reductions():
    rng = np.random.default_rng(4)
    for _ in range(20):
        a, x = any_matrix(rng)
        b = tartan.BlockMatrix.from_dense(rng.standard_normal(x.shape), layout=a.layout)
        y = b.toarray()
        np.testing.assert_allclose((2 * a - b).toarray(), 2 * x - y)
        np.testing.assert_allclose((a * b).toarray(), x * y)
        np.testing.assert_allclose(abs(a).toarray(), abs(x))
        np.testing.assert_allclose(a.trace(), x.trace())
        np.testing.assert_allclose((a.T @ a).toarray(), x.T @ x, atol=1e-12)
        assert (a @ b.T).layout.boundaries[0].tolist() == a.layout.boundaries[0].tolist()
        np.testing.assert_allclose(a.T.toarray(), x.T)
        for axis in (0, 1, None):
            np.testing.assert_allclose(a.sum(axis=axis), x.sum(axis=axis))
        np.testing.assert_allclose(a.max(axis=0), x.max(axis=0))
        np.testing.assert_allclose(a.to_scipy("csr").toarray(), x)
        rows, cols, values = a.to_coo()
        np.testing.assert_array_equal(tartan.BlockMatrix.from_coo(a.layout, rows, cols, values).toarray(), x)


def test_blocks_and_ranges():
    rng = np.random.default_rng(5)
    for _ in range(20):
        a, x = any_matrix(rng)
        rows, cols = a.layout.boundaries
        for i in range(rows.size - 1):
            for j in range(-1, cols.size - 1):
                part = x[rows[i] : rows[i + 1], cols[:-1][j] : cols[1:][j]]
                assert np.array_equal(a.block[i, j], part)
        part = a.block[1:, :1]
        assert np.array_equal(part.toarray(), x[rows[1] :, : cols[1]])
        assert np.array_equal(a[rows[1] :, : cols[1]].toarray(), x[rows[1] :, : cols[1]])
    a = tartan.BlockMatrix.from_dense(np.ones((5, 5)), layout=tartan.Layout.from_mask([[1, 1], [0, 1]], rows=[0, 1, 5], cols=[0, 2, 5]))
    a.block[0, 0] = [[7, 8]]
    assert a.toarray()[0].tolist() == [7, 8, 1, 1, 1]
    assert a[0:4, 1:3].toarray().tolist() == a.toarray()[0:4, 1:3].tolist() and not a[0:4, 1:3].layout.variable
    assert np.array_equal(a.reblock(2).toarray(), a.toarray())


def test_files():
    rng = np.random.default_rng(6)
    a, x = any_matrix(rng, dtype="float32")
    file = io.BytesIO()
    tartan.save(file, {"a": a, "l": a.layout})
    file.seek(0)
    assert tartan.load(file, "l") == a.layout
    file.seek(0)
    back = tartan.load(file, "a")
    assert back.layout == a.layout and np.array_equal(back.toarray(), a.toarray())


def test_pruning_and_projection():
    a, x = any_matrix(np.random.default_rng(7))
    half = a.layout.keep_largest(a.block_norms(), a.blocks // 2)
    assert [b.tolist() for b in half.boundaries] == [b.tolist() for b in a.layout.boundaries]
    kept = a.project(half)
    assert np.array_equal(kept.toarray(), np.where(_stored(kept), x, 0))


def test_refusals():
    layout = tartan.Layout.from_mask([[1, 0], [1, 1]], rows=[0, 1, 4], cols=[0, 1, 4])
    a = tartan.BlockMatrix.zeros(layout).fill_normal(seed=1)
    text = "blocks of different sizes"
    for call in (
        lambda: tartan.BlockMask.from_rule(layout, lambda i, j, head: i >= j),
        lambda: tartan.attention(np.ones((1, 4, 8)), np.ones((1, 4, 8)), np.ones((1, 4, 8)), layout),
    ):
        with pytest.raises(tartan.UnsupportedError, match=text):
            call()
    with pytest.raises(tartan.UnsupportedError, match="blocks differ in size, which BSR cannot hold"):
        a.to_scipy("bsr")
    mask = [[1, 0], [1, 1]]
    for words, match in (
        ({"rows": [0, 1, 4]}, "block is None"),
        ({"rows": [0, 1, 4], "block": 2}, "alone, expected both"),
        ({"rows": [0, 1, 4], "cols": [0, 1, 4], "block": 2}, "together with block"),
        ({}, "block is None"),
    ):
        with pytest.raises(tartan.ArgumentError, match=match):
            tartan.Layout.from_mask(mask, **words)
    for rows in ([0, 1], [1, 2, 3], [0, 2, 2], [0, 1, 400]):
        with pytest.raises(tartan.TartanError, match="rows"):
            tartan.Layout.from_mask(mask, rows=rows, cols=[0, 1, 2])
    for call, match in (
        (lambda: a.reblock(), "either block, or boundaries"),
        (lambda: a.reblock(2, rows=[0, 4]), "either block, or boundaries"),
        (lambda: a.reblock(rows=[0, 3]), "rows ends with 3, expected 4"),
        (lambda: a.reblock(cols=[0, 2, 2, 4]), "cols.2. is 2 after 2"),
    ):
        with pytest.raises(tartan.TartanError, match=match):
            call()
    with pytest.raises(tartan.ShapeError, match="other block boundaries"):
        a.layout | a.layout.with_boundaries([0, 3, 4])


@pytest.mark.parametrize("seed", range(20))
def test_beside_matrices_with_other_blocks(seed):
    """Other boundaries, blocks of one size, and sparse matrices of SciPy, on both sides."""
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(seed)
    a, x = any_matrix(rng)
    y = np.where(rng.random(x.shape) < 0.4, rng.standard_normal(x.shape), 0)
    others = [
        tartan.BlockMatrix.from_dense(y, block=tuple(rng.integers(1, 6, 2).tolist())),
        tartan.BlockMatrix.from_dense(y, block=64),
        tartan.BlockMatrix.from_dense(y, block=1).reblock(rows=[0, *range(2, x.shape[0] + 1)], cols=[0, x.shape[1]]),
        sparse.csr_array(y),
    ]
    for b in others:
        for result, wanted in (
            (a + b, x + y), (b - a, y - x), (a * b, x * y), (a @ b.T, x @ y.T), (b.T @ a, y.T @ x), (b @ a.T, y @ x.T), (a.T @ b, x.T @ y),
        ):
            np.testing.assert_allclose(result.toarray(), wanted, atol=1e-12)
        for result, wanted in ((a != b, x != y), (a < b, x < y)):
            np.testing.assert_array_equal(result.toarray(), wanted)
        np.testing.assert_array_equal(a.maximum(b).toarray(), np.maximum(x, y))
        assert not a.isclose_all(b) and a.isclose_all(sparse.csr_array(x))
        np.testing.assert_array_equal(tartan.vstack([a, b]).toarray(), np.vstack([x, y]))
        np.testing.assert_array_equal(tartan.hstack([b, a, b]).toarray(), np.hstack([y, x, y]))
    np.testing.assert_array_equal((a * (a > 0)).toarray(), x * (x > 0))
    np.testing.assert_array_equal(a[::-2, [0, -1, 0]].toarray(), x[::-2, [0, -1, 0]])
    np.testing.assert_array_equal(a.T[[1, 0]].toarray(), x.T[[1, 0]])
    np.testing.assert_array_equal(tartan.kron(a, np.ones((2, 1))).toarray(), np.kron(x, np.ones((2, 1))))


def test_other_formats(tmp_path):
    pytest.importorskip("h5py")
    a, x = any_matrix(np.random.default_rng(8))
    tartan.write_h5ad(tmp_path / "a.h5ad", a)
    assert np.array_equal(tartan.read_h5ad(tmp_path / "a.h5ad", block=2).toarray(), x)
    with pytest.raises(tartan.UnsupportedError, match="blocks differ in size, which BSR cannot hold"):
        tartan.write_binsparse(tmp_path / "b.h5", a)


def test_triangles_and_plans_of_assembly():
    rng = np.random.default_rng(7)
    for order in ("C", "F"):
        a, dense = any_matrix(rng, order=order)
        assert (a.tril(1).toarray() == np.tril(dense, 1)).all() and (a.triu(-1).toarray() == np.triu(dense, -1)).all()
        rows, cols = np.nonzero(dense)
        places = rng.integers(0, rows.size, 3 * rows.size)
        added = rng.standard_normal(places.size)
        expected = np.zeros_like(dense)
        np.add.at(expected, (rows[places], cols[places]), added)
        plan = tartan.Assembly.of_elements(a.layout, rows[places], cols[places], order=order)
        np.testing.assert_allclose(plan.matrix(added).toarray(), expected)
        block_rows, block_cols = a.layout.coordinates()[-2:]
        np.testing.assert_allclose(tartan.Assembly(a.layout, block_rows, block_cols).add(a, a.values.copy()).toarray(), 2 * dense)


def test_attention_of_products_and_softmax():
    rng = np.random.default_rng(8)
    rows = cols = np.array([0, 3, 4, 11, 16])
    layout = tartan.Layout.pattern("banded", (4, 4), 1, lower=1, upper=1).with_boundaries(rows, cols)
    q, k, v = (rng.standard_normal((16, 8)) for _ in range(3))
    scores = tartan.sddmm(layout, q, k.T)
    weights, lse = tartan.block_softmax(scores, scale=8**-0.5, return_lse=True)
    out = tartan.spmm(weights, v)
    stored = tartan.BlockMatrix.from_dense(np.ones((16, 16)), layout=layout).toarray() != 0
    dense = np.where(stored, q @ k.T * 8**-0.5, -np.inf)
    expected = np.exp(dense - np.logaddexp.reduce(dense, 1, keepdims=True))
    np.testing.assert_allclose(out, expected @ v)
    np.testing.assert_allclose(np.asarray(lse).ravel(), np.logaddexp.reduce(dense, 1))
    with pytest.raises(tartan.UnsupportedError, match="sddmm, block_softmax and spmm take them"):
        tartan.attention(q[None, None], k[None, None], v[None, None], layout)
