# SPDX-License-Identifier: Apache-2.0
"""Reading and writing elements, rows, columns and blocks against NumPy on dense copies."""

import numpy as np
import pytest
from conftest import random_matrix

import tartan
from tartan import BlockMatrix

MASK = np.random.default_rng(5).uniform(size=(10, 14)) > 0.7
KEYS = [
    np.s_[3], np.s_[-1], np.s_[:, 5], np.s_[2, 3:9], np.s_[4:, -2], np.s_[...], np.s_[1:3, ...], np.s_[..., 2:], np.s_[2:7],
    np.s_[4:8, 3:9], np.s_[:, 3:], np.s_[5:2], np.s_[::2, 1::3], np.s_[::-1], np.s_[[3, 1, 1]], np.s_[[3, 1, 1], :],
    np.s_[:, [0, -1]], np.s_[[4]], np.s_[[], :], np.s_[1:7, np.arange(14) % 3 == 0], np.arange(10) > 4,
    np.ix_([9, 0, 0], [2, 2, 13]),
]  # fmt: skip
POINTS = [
    np.s_[[1, 2], [3, -4]], np.s_[[1, 2], 3], np.s_[5, [3, 4, 4]], np.s_[np.array([[0, 1], [2, 3]]), np.array([[0, 1], [2, 3]])],
    MASK,
]  # fmt: skip


@pytest.fixture(params=["C", "F", "transpose"])
def w(rng, request):
    if request.param == "transpose":
        return random_matrix(rng, (14, 10), (3, 4)).T
    return random_matrix(rng, (10, 14), (4, 3), order=request.param)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_parts(w, key):
    part, dense = w[key], w.toarray()[key]
    if np.ndim(dense) == 1:  # rows and columns keep two dimensions, as SciPy's matrices do
        dense = dense.reshape(part.shape)
    assert isinstance(part, BlockMatrix) and part.shape == dense.shape
    np.testing.assert_array_equal(part.toarray(), dense)


@pytest.mark.parametrize("key", POINTS, ids=str)
def test_points(w, key):
    found = w[key]
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, w.toarray()[key])


def test_keys_of_scipy(w):
    sparse = pytest.importorskip("scipy.sparse")
    np.testing.assert_array_equal(w[sparse.csr_array(MASK)], w.toarray()[MASK])
    np.testing.assert_array_equal(w[w > 0.5], w.toarray()[w.toarray() > 0.5])


def test_booleans_of_other_libraries(w):
    class Frame:
        def __array__(self, dtype=None, copy=None):
            return MASK

    np.testing.assert_array_equal(w[Frame()], w.toarray()[MASK])


def full(rng, turned):
    """A matrix that stores every block, and its copy."""
    dense = rng.standard_normal((10, 14))
    if turned:
        return BlockMatrix.from_dense(dense.T, (3, 4)).T, dense
    return BlockMatrix.from_dense(dense, (4, 3)), dense


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("key", KEYS + POINTS + [np.s_[1, 2]], ids=str)
def test_writing(rng, key, turned):
    w, dense = full(rng, turned)
    wanted = dense.copy()
    for value in (7.0, rng.standard_normal(np.shape(dense[key])), 0):
        wanted[key] = value
        w[key] = value
        np.testing.assert_array_equal(w.toarray()[key], wanted[key])
        if not (isinstance(key, tuple) and len(key) == 2 and np.shape(key[1]) == (1, 3)):
            np.testing.assert_array_equal(w.toarray(), wanted)


def test_writing_rows_and_matrices(rng):
    sparse = pytest.importorskip("scipy.sparse")
    for turned in (False, True):
        w, dense = full(rng, turned)
        row = rng.standard_normal(5)
        w[2:5, 3:8] = row
        dense[2:5, 3:8] = row
        w[:, 3] = np.arange(10)[:, None]
        dense[:, 3] = np.arange(10)
        part = sparse.random_array((4, 14), density=0.3, rng=rng, format="csr")
        w[[1, 5, 3, 9], :] = part
        dense[[1, 5, 3, 9], :] = part.toarray()
        w[0:2] = w[5:7]
        dense[0:2] = dense[5:7]
        np.testing.assert_array_equal(w.toarray(), dense)


def test_refused_writing_changes_nothing(rng):
    w = BlockMatrix.from_dense(np.kron(np.eye(3), np.ones((2, 2))), 2)
    before = w.toarray()
    for key, value in (((0, 3), 1), (np.s_[1:3], 4), (np.s_[0], np.arange(6)), (np.s_[:, 2:3], np.ones((6, 1))), (np.s_[:], 2),
                       (([0, 0], [0, 5]), 9), (np.s_[:2, :4], BlockMatrix.from_dense(np.ones((2, 4)), 2))):  # fmt: skip
        with pytest.raises(tartan.LayoutError, match="with_elements"):
            w[key] = value
    with pytest.raises(tartan.LayoutError, match=r"^element 0 at \(0, 3\) is not stored, expected only zeros there \(with_elem"):
        w[0, 3] = 1
    with pytest.raises(tartan.ArgumentTypeError, match="value is a masked array"):
        w[:2, :2] = np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]])
    for value, kind in ((1j, tartan.DTypeError), ("x", tartan.DTypeError), (np.ones(5), tartan.ShapeError), (np.ones((3, 6)), tartan.ShapeError)):
        with pytest.raises(kind, match="value"):
            w[0:2] = value
    with pytest.raises(tartan.ShapeError, match="value has shape"):
        w[[0, 1], [0, 1]] = np.ones(3)
    with pytest.raises(tartan.ShapeError, match="value has shape"):
        w[0:3] = w[0:2]
    np.testing.assert_array_equal(w.toarray(), before)
    w[:, 2] = 0  # zeros where nothing is stored are ignored
    w[0, 1], w[[-1, 0], [5, 5]] = 8, [4.0, 0.0]
    before[:, 2], before[0, 1], before[5, 5] = 0, 8, 4
    np.testing.assert_array_equal(w.toarray(), before)
    with pytest.raises(tartan.UnsupportedError, match="2 heads"):
        random_matrix(rng, (4, 4), 2, heads=2)[0, 1] = 3.0


@pytest.mark.parametrize("turned", [False, True])
def test_writing_lines_twice_or_not_at_all(rng, turned):
    w, dense = full(rng, turned)
    for key in (np.s_[[0, -1, 0, 3] * 4, :], np.s_[:, [2, 2] * 9], np.s_[10:, 3], np.s_[2, 5:5], np.s_[[], 1], np.s_[4, []]):
        w[key] = 7
        w[key] = dense[key] = np.arange(dense[key].size, dtype=float).reshape(dense[key].shape)
        np.testing.assert_array_equal(w.toarray(), dense)


def test_zeros_take_time_for_what_is_stored():
    w = BlockMatrix.from_coo((2**22, 2**22), [0, 2**22 - 1], [5, 7], [1.0, 2.0], block=4)
    w[:, 6:] = 0
    assert w.sum() == 1
    w[:] = np.float32(0)
    assert w.count_nonzero() == 0


def test_with_elements(rng):
    w = random_matrix(rng, (10, 14), (4, 3), density=0.2)
    rows, cols, numbers = rng.integers(-10, 10, 20), rng.integers(-14, 14, 20), rng.standard_normal(20)
    dense = w.toarray()
    dense[rows, cols] = numbers
    made = w.with_elements(rows, cols, numbers)
    np.testing.assert_array_equal(made.toarray(), dense)
    assert made.blocks > w.blocks and w.with_elements([], [], []).layout == w.layout
    with pytest.raises(IndexError, match="row\\[0\\] is 10"):
        w.with_elements([10], [0], [1.0])


def test_blocks(rng):
    w = random_matrix(rng, (10, 14), (4, 3))
    w = w - w[:, :].project(tartan.Layout.from_coordinates((10, 14), (4, 3), [0], [0]))  # without block (0, 0)
    dense = w.toarray()
    np.testing.assert_array_equal(w.block[1:, :2].toarray(), dense[4:, :6])
    np.testing.assert_array_equal(w.block[:1].toarray(), dense[:4])
    heads, rows, cols = w.layout.coordinates()
    i, j = int(rows[-1]), int(cols[-1])
    assert np.shares_memory(w.block[i, j], w.values)
    w.block[i, j] = 5
    assert w[4 * i, 3 * j] == 5
    bare = tartan.BlockMatrix.zeros(tartan.Layout.from_mask([[0, 1], [1, 0]], 2))
    assert not bare.block[0, 0].any() and not bare.block[0, 0].flags.writeable
    with pytest.raises(tartan.LayoutError, match="not stored"):
        bare.block[0, 0] = 1
    with pytest.raises(IndexError, match="block row is 2"):
        bare.block[2, 0]
    with pytest.raises(TypeError, match="block row, block column"):
        bare.block[0, 0.5]
    with pytest.raises(TypeError, match="slices"):
        bare.block[0]
    many = random_matrix(rng, (4, 6), 2, heads=3)
    head, row, col = (int(x[-1]) for x in many.layout.coordinates())
    np.testing.assert_array_equal(
        many.block[head, row, col], many.toarray()[head, 2 * row : 2 * row + 2, 2 * col : 2 * col + 2]
    )


def test_several_heads(rng):
    w = random_matrix(rng, (5, 6), 2, heads=2)
    dense = w.toarray()
    np.testing.assert_array_equal(w[1:4, 1:].toarray(), dense[:, 1:4, 1:])
    np.testing.assert_array_equal(w[[3, 0], :].toarray(), dense[:, [3, 0], :])
    np.testing.assert_array_equal(w.T[1:, :2].toarray(), dense.swapaxes(1, 2)[:, 1:, :2])
    assert w[1, 2, 3] == dense[1, 2, 3] and w.T[1, 3, 2] == dense[1, 2, 3]
    for key in (np.s_[1], np.s_[0, :], np.s_[0, 1]):
        for matrix in (w, w.T):
            with pytest.raises(tartan.ArgumentTypeError, match="head, row, col"):
                matrix[key]
    with pytest.raises(tartan.ArgumentError, match="2 heads"):
        list(w)


def test_rows_one_after_the_other(w):
    rows = list(w)
    assert len(rows) == 10 and all(row.shape == (1, 14) for row in rows)
    np.testing.assert_array_equal(np.vstack([row.toarray() for row in rows]), w.toarray())
    np.testing.assert_allclose(sum(w).toarray(), w.toarray().sum(axis=0, keepdims=True))
