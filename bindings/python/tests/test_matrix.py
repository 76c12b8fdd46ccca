# SPDX-License-Identifier: Apache-2.0
import copy
import gc
import math
import pickle

import numpy as np
import pytest
from conftest import EPS, random_layout, random_matrix

import tartan
from tartan import BlockMatrix, Layout

DTYPES = ["float64", "float32", "float16", "bfloat16"]


def test_values_are_the_callers(rng):
    layout = random_layout(rng, (12, 12), 4)
    values = rng.standard_normal((layout.blocks, 4, 4))
    matrix = BlockMatrix(layout, values)
    assert matrix.values is values and matrix.order == "C"
    values[0, 0, 0] = 17
    assert matrix.block_norms("max")[0] == 17
    own = BlockMatrix(layout, values, copy=True)
    values[0, 0, 0] = 18
    assert own.block_norms("max")[0] == 17


def test_column_major_blocks_are_used_in_place(rng):
    layout = random_layout(rng, (12, 8), (4, 2))
    values = rng.standard_normal((layout.blocks, 2, 4)).transpose(0, 2, 1)
    matrix = BlockMatrix(layout, values)
    assert matrix.order == "F"
    np.testing.assert_array_equal(matrix.toarray(), BlockMatrix(layout, values.copy(order="C")).toarray())


def test_memory_of_the_library_is_lent():
    layout = Layout.from_mask([[1, 1]], 4)
    matrix = BlockMatrix.zeros(layout, "float32", order="F")
    values = matrix.values
    assert values.shape == (2, 4, 4) and values.dtype == np.float32 and values.strides == (64, 4, 16)
    values[1, 2, 3] = 5
    assert matrix[2, 7] == 5
    matrix.close()
    del matrix
    gc.collect()
    values[:] = 7  # still alive
    assert values.sum() == 7 * 32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_there_and_back(rng, dtype, order):
    layout = random_layout(rng, (13, 9), (4, 3), heads=2)
    dense = rng.standard_normal((2, 13, 9))
    mask = np.kron(layout.mask(), np.ones((4, 3)))[:, :13, :9]
    matrix = BlockMatrix.from_dense(dense, layout=layout, dtype=dtype, order=order)
    assert matrix.dtype_name == dtype and matrix.order == order and matrix.shape == (2, 13, 9)
    wide = matrix.astype("float64").toarray()
    assert (np.abs(wide - dense * mask) <= EPS[dtype] / 2 * np.abs(dense)).all()
    out = np.empty((2, 13, 9), np.float32, order="F")
    assert matrix.toarray(out=out) is out
    np.testing.assert_array_equal(out, wide.astype(np.float32))


def test_from_dense_by_density():
    dense = np.diag(np.arange(8.0))
    assert BlockMatrix.from_dense(dense, 2).blocks == 4
    assert BlockMatrix.from_dense(dense, 2, density=2 / 16).layout.mask().diagonal().tolist() == [
        0,
        0,
        1,
        1,
    ]


def test_entries_and_slices(rng):
    matrix = random_matrix(rng, (10, 14), (4, 4))
    dense = matrix.toarray()
    assert all(matrix[i, j] == dense[i, j] for i in range(-10, 10) for j in range(-14, 14))
    np.testing.assert_array_equal(matrix.block[1:, :2].toarray(), dense[4:, :8])
    heads = random_matrix(rng, (4, 4), 2, heads=3)
    assert heads[2, 1, 3] == heads.toarray()[2, 1, 3]
    np.testing.assert_array_equal(heads[:2, 2:].toarray(), heads.toarray()[:, :2, 2:])
    np.testing.assert_array_equal(heads[1:].toarray(), heads.toarray()[:, 1:])
    with pytest.raises(tartan.ArgumentError, match="row is -13, expected -10 .. 9"):
        matrix[-13, 0]
    with pytest.raises(TypeError, match="not iterable"):
        iter(matrix.layout)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "key",
    [
        np.s_[4:, :8], np.s_[:3], np.s_[4:7, 8:13], np.s_[5:, :], np.s_[:, 3:9], np.s_[-6:-1, -5:], np.s_[2:50, -99:],
        np.s_[3:3], np.s_[8:2, 4:8], np.s_[:],
    ],
    ids=str,
)  # fmt: skip
def test_slices_count_elements(rng, key, order):
    matrix = random_matrix(rng, (10, 14), (4, 4), order=order)
    part = matrix[key]
    slices = (*key, slice(None))[:2] if isinstance(key, tuple) else (key, slice(None))
    block = tuple(math.gcd(4, s.indices(n)[0]) for s, n in zip(slices, matrix.shape))  # without zeros beside them
    assert isinstance(part, BlockMatrix) and part.block_shape == block and part.order == order
    np.testing.assert_array_equal(part.toarray(), matrix.toarray()[key])
    assert not np.shares_memory(part.values, matrix.values)


def test_coo_and_csr(rng):
    matrix = random_matrix(rng, (10, 14), (4, 3), dtype="float32")
    rows, cols, values = matrix.to_coo()
    shuffle = rng.permutation(rows.size)
    again = BlockMatrix.from_coo(matrix.layout, rows[shuffle], cols[shuffle], values[shuffle])
    np.testing.assert_array_equal(again.values, matrix.values)
    indptr, cols, values = matrix.to_csr()
    assert matrix.nnz == matrix.getnnz() == values.size == indptr[-1]
    again = BlockMatrix.from_csr(matrix.layout, indptr, cols, values)
    np.testing.assert_array_equal(again.values, matrix.values)


def test_scipy(rng):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = random_matrix(rng, (12, 20), (3, 5))
    bsr = matrix.to_scipy()
    assert bsr.format == "bsr" and np.shares_memory(bsr.data, matrix.values)
    np.testing.assert_array_equal(bsr.toarray(), matrix.toarray())
    again = BlockMatrix.from_scipy(bsr)
    assert np.shares_memory(again.values, matrix.values) and again.layout == matrix.layout
    assert not np.shares_memory(BlockMatrix.from_scipy(bsr, copy=True).values, bsr.data)
    for format in ("csr", "csc", "coo", "lil", "dok"):
        ragged = sparse.random_array((11, 7), density=0.3, format=format, rng=rng)
        made = BlockMatrix.from_scipy(ragged, 4)
        np.testing.assert_array_equal(made.toarray(), ragged.toarray())
        assert (made.to_scipy(format).toarray() == ragged.toarray()).all()
    np.testing.assert_array_equal(matrix.T.to_scipy().toarray(), matrix.toarray().T)
    np.testing.assert_array_equal(matrix.astype(order="F").to_scipy().toarray(), matrix.toarray())
    twice = sparse.coo_array((np.ones(3), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    assert BlockMatrix.from_scipy(twice.tocsr(), 2)[0, 0] == 2
    with pytest.raises(tartan.ArgumentError, match="block is None"):
        BlockMatrix.from_scipy(twice)
    with pytest.raises(tartan.DTypeError, match="pass dtype"):
        BlockMatrix.from_scipy(sparse.eye_array(4, dtype=int), 2)
    assert BlockMatrix.from_scipy(sparse.eye_array(4, dtype=int), 2, dtype="float32").dtype == np.float32
    for format in ("csr", "bsr"):  # imaginary parts are not dropped
        with pytest.raises(tartan.DTypeError, match="matrix is of complex128, expected real numbers"):
            BlockMatrix.from_scipy(sparse.eye_array(4, dtype=complex, format=format), 1, dtype="float32")
    with pytest.raises(tartan.DTypeError):
        matrix.astype("float16").to_scipy()
    with pytest.raises(tartan.ShapeError, match="no multiple"):
        random_matrix(rng, (5, 5), 2).to_scipy()


def test_unsorted_bsr_of_scipy(rng):
    sparse = pytest.importorskip("scipy.sparse")
    data = rng.standard_normal((3, 2, 2))
    bsr = sparse.bsr_array((data, np.array([1, 0, 1]), np.array([0, 2, 3])), shape=(4, 4))
    np.testing.assert_array_equal(BlockMatrix.from_scipy(bsr).toarray(), bsr.toarray())
    np.testing.assert_array_equal(bsr.indices, [1, 0, 1])  # the caller's is as it was


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickle_and_copies(rng, dtype, order):
    matrix = random_matrix(rng, (10, 14), (4, 3), dtype=dtype, order=order)
    for again in (
        pickle.loads(pickle.dumps(matrix)),
        copy.deepcopy(matrix),
        copy.copy(matrix),
        matrix.copy(),
    ):
        assert again.dtype_name == dtype and again.order == order and again.layout == matrix.layout
        np.testing.assert_array_equal(np.asarray(again.values), np.asarray(matrix.values))
        assert not np.shares_memory(again.values, matrix.values)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_transpose(rng, protocol):
    matrix = random_matrix(rng, (10, 14), (4, 3))
    again = pickle.loads(pickle.dumps(matrix.T, protocol))
    assert type(again) is tartan.TransposedMatrix
    np.testing.assert_array_equal(again.toarray(), matrix.toarray().T)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_float8(rng, dtype):
    matrix = random_matrix(rng, (8, 12), 4).astype(dtype)
    dense, x = matrix.toarray(), np.ones(12, matrix.dtype)
    assert dense.dtype == matrix.dtype
    np.testing.assert_array_equal(BlockMatrix.from_dense(dense, layout=matrix.layout).values, matrix.values)
    np.testing.assert_array_equal(BlockMatrix(matrix.layout, matrix.values).toarray(), dense)
    np.testing.assert_array_equal(matrix[[0, 7], [1, 11]], dense[[0, 7], [1, 11]])
    np.testing.assert_allclose(matrix @ x, dense.astype(float).sum(axis=1), rtol=1e-6)


def test_values_are_changed_in_place(rng):
    given = rng.standard_normal((2, 2, 2))
    before = given.copy()
    for matrix in (
        BlockMatrix(Layout.from_mask([[1, 0], [0, 1]], 2), given),
        BlockMatrix.zeros(Layout.from_mask([[1, 0], [0, 1]], 2)),
    ):
        values = matrix.values
        values[:] = before
        matrix.values *= 2
        matrix.values += 1
        assert matrix.values is values
        np.testing.assert_array_equal(matrix.values, 2 * before + 1)
        with pytest.raises(tartan.ArgumentTypeError, match=r"A.values\[:\] = x"):
            matrix.values = before
        np.testing.assert_array_equal(matrix.toarray()[:2, :2], 2 * before[0] + 1)


def test_bits_of_bfloat16(rng):
    layout = Layout.from_mask([[1]], 2)
    bits = np.array([[[0x3F80, 0x4000], [0xC000, 0]]], np.uint16)
    matrix = BlockMatrix.from_bits(layout, bits)
    assert matrix.dtype_name == "bfloat16"
    np.testing.assert_array_equal(matrix.astype("float32").toarray(), [[1, 2], [-2, 0]])
    assert np.shares_memory(matrix.bits, bits) and matrix.bits.dtype == np.uint16
    with pytest.raises(tartan.DTypeError, match="float64, expected one of bfloat16"):
        BlockMatrix.zeros(layout).bits
    with pytest.raises(tartan.DTypeError):
        BlockMatrix(layout, bits)


def test_transposed_view(rng):
    matrix = random_matrix(rng, (10, 14), (4, 3))
    view = matrix.T
    assert view.shape == (14, 10) and view.T is matrix and view.layout == matrix.layout.T
    np.testing.assert_array_equal(view.toarray(), matrix.toarray().T)
    np.testing.assert_array_equal(view.copy().toarray(), matrix.toarray().T)
    assert (view.nnz, view.blocks, view.density, view.dtype) == (
        matrix.nnz, matrix.blocks, matrix.density, matrix.dtype)  # fmt: skip


def test_rearranging(rng):
    matrix = random_matrix(rng, (12, 12), 3, 0.5)
    rows = rng.permutation(4)
    np.testing.assert_array_equal(
        matrix.permute(rows).toarray(), matrix.toarray().reshape(4, 3, 12)[rows].reshape(12, 12)
    )
    wider = matrix.layout.grow(range(4), range(4))
    np.testing.assert_array_equal(matrix.project(wider).toarray(), matrix.toarray())
    free = np.argwhere(~matrix.layout.mask())[0]
    layout, sources = matrix.layout.move([0], [free[0]], [free[1]])
    moved = matrix.rearrange(layout, sources)
    np.testing.assert_array_equal(moved.values, matrix.values[sources])


def test_fills(rng):
    layout = Layout.pattern("dense", (16, 16), 4)
    matrix = BlockMatrix.zeros(layout)
    np.testing.assert_array_equal(matrix.fill_identity(2).toarray(), 2 * np.eye(16))
    for q in np.split(matrix.fill_orthogonal(seed=1).toarray(), 4, axis=1):  # block columns
        np.testing.assert_allclose(q.T @ q, np.eye(4), atol=1e-14)
    a = matrix.fill_normal(seed=3).toarray()
    np.testing.assert_array_equal(a, matrix.fill_normal(seed=3).toarray())
    assert (a != matrix.fill_normal(seed=4).toarray()).all()
    with tartan.Context(seed=3) as context:
        np.testing.assert_array_equal(a, matrix.fill_normal(context=context).toarray())
    assert not matrix.fill_zero().values.any()


def test_norms_and_check(rng):
    matrix = random_matrix(rng, (9, 9), 3)
    np.testing.assert_allclose(matrix.block_norms(), np.linalg.norm(matrix.values.reshape(-1, 9), axis=1))
    np.testing.assert_array_equal(matrix.block_norms("max"), np.abs(matrix.values).max((1, 2)))
    np.testing.assert_allclose(matrix.block_norms("l1"), np.abs(matrix.values).sum((1, 2)))
    matrix.check()
    matrix.values[1, 0, 0] = np.nan
    matrix.check(finite=False)
    with pytest.raises(tartan.ArgumentError, match="1"):
        matrix.check()


def test_looks(rng):
    matrix = random_matrix(rng, (9, 12), 3)
    assert f"{matrix.blocks} of 12 blocks of 3x3" in repr(matrix) and "9x12 float64" in repr(matrix)
    assert "transpose" in repr(matrix.T) and matrix._repr_svg_().startswith("<svg")
    matrix.close()
    matrix.close()
    assert matrix.closed and repr(matrix) == "<BlockMatrix, closed>"


@pytest.mark.parametrize("fill", ["fill_normal", "fill_orthogonal"])
def test_random_numbers_differ_without_a_seed(fill):
    """From call to call; NumPy's seed, or a context of the same seed, repeats them."""
    layout = Layout.pattern("dense", (8, 8), 4)

    def drawn(**given):
        return getattr(BlockMatrix.zeros(layout), fill)(**given).toarray()

    assert not np.array_equal(drawn(), drawn())
    np.random.seed(5)
    first, second = drawn(), drawn()
    np.random.seed(5)
    np.testing.assert_array_equal(first, drawn())
    np.testing.assert_array_equal(second, drawn())
    with tartan.Context(seed=7) as one, tartan.Context(seed=7) as other:
        sequence = [drawn(context=one) for _ in range(3)]
        np.testing.assert_array_equal(sequence[0], drawn(seed=7))
        assert not np.array_equal(sequence[0], sequence[1]) and not np.array_equal(sequence[1], sequence[2])
        for x in sequence:
            np.testing.assert_array_equal(x, drawn(context=other))
