# SPDX-License-Identifier: Apache-2.0
"""What matrices have in common with SciPy's sparse arrays, by the same names."""

import operator
import warnings
from fractions import Fraction

import numpy as np
import pytest
from conftest import random_matrix

import tartan
from tartan import BlockMatrix

sparse = pytest.importorskip("scipy.sparse")


@pytest.fixture(params=["C", "F", "transpose"])
def w(rng, request):
    if request.param == "transpose":
        return random_matrix(rng, (12, 8), (3, 4)).T
    return random_matrix(rng, (8, 12), (4, 3), order=request.param)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "lil", "dia", "dok"])
def test_formats(w, format):
    made = w.asformat(format)
    assert sparse.issparse(made) and made.format == format
    np.testing.assert_array_equal(made.toarray(), w.toarray())
    if hasattr(w, "to" + format):
        np.testing.assert_array_equal(getattr(w, "to" + format)().toarray(), w.toarray())


def test_names(w):
    assert w.asformat(None) is w and w.tobsr((2, 2)).blocksize == (2, 2)
    assert all(np.array_equal(w.asformat(dense), w.toarray()) for dense in ("array", "dense"))
    assert w.blocksize == w.block_shape == w.copy().block_shape
    assert w.nbytes == w.blocks * 12 * 8 == w.values.nbytes
    peer = sparse.bsr_array((w.data, w.indices, w.indptr), shape=w.shape)
    np.testing.assert_array_equal(peer.toarray(), w.toarray())
    np.testing.assert_array_equal(w.todense(), w.toarray())
    assert w.toarray("F").flags.f_contiguous and w.toarray(order="C").flags.c_contiguous
    out = np.empty(w.shape)
    assert w.toarray(out=out) is out
    np.testing.assert_array_equal(out, w.toarray())
    for found, wanted in zip(w.nonzero(), w.toarray().nonzero()):
        np.testing.assert_array_equal(found, wanted)
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(w.argmax(axis), w.toarray().argmax(axis))
        np.testing.assert_array_equal(w.argmin(axis), w.toarray().argmin(axis))
    assert w.conj(copy=False) is w and w.real is w and w.conjugate().isclose_all(w, 0, 0)
    assert w.astype(w.dtype, copy=False) is w and w.astype("float32", copy=False).dtype == np.float32
    assert w.transpose(copy=True).shape == w.T.shape and w.transpose((1, 0)).shape == w.T.shape
    with pytest.raises(tartan.ArgumentError, match="order"):
        w.toarray("K")
    with pytest.raises(tartan.ArgumentError, match="format is 'ell', expected one of 'bsr', 'coo'"):
        w.asformat("ell")
    with pytest.raises(tartan.ArgumentError, match="together with out"):
        w.toarray("C", out=out)


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_comparisons(rng, w, compare):
    dense = w.toarray()
    other = w.copy().drop_zeros()
    other.values[::2] += 1
    for b in (other, other.T.copy().T, other.to_scipy("csr"), other.reblock((2, 5)), 0.5, -1):
        theirs = b if np.isscalar(b) else b.toarray()
        found = compare(w, b)
        assert sparse.issparse(found) and found.dtype == np.bool_
        np.testing.assert_array_equal(found.toarray(), compare(dense, theirs))
        np.testing.assert_array_equal(compare(b, w).toarray(), compare(theirs, dense))
    for b in (other.toarray(), dense):
        assert isinstance(compare(w, b), np.ndarray)
        np.testing.assert_array_equal(compare(w, b), compare(dense, b))
        np.testing.assert_array_equal(compare(b, w), compare(b, dense))
    try:
        np.testing.assert_array_equal(compare(w, 0).toarray(), compare(dense, 0))
    except tartan.UnsupportedError as error:
        assert compare in (operator.le, operator.ge) and "don't work with 0" in str(error)  # of SciPy before 1.18
    with pytest.raises(tartan.ShapeError, match="expected"):
        compare(w, w.T)
    with pytest.raises(tartan.ShapeError, match="expected"):
        compare(w, np.ones(3))
    assert (w != w.copy()).nnz == 0 and (w != 2 * w).nnz == w.count_nonzero()
    half = compare(dense, 0.5)
    for number, wanted in (
        (np.float16(0.5), half), (np.array(0.5, np.float16), half), (Fraction(1, 2), half), (10**400, compare(dense, np.inf)),
    ):  # of which SciPy compares none  # fmt: skip
        np.testing.assert_array_equal(compare(w, number).toarray(), wanted)
    assert (w.astype("bfloat16") != w.astype("bfloat16")).nnz == 0
    for number in (0, 0.5, -1, np.nan, np.inf, np.float32(0.25), np.int8(1), True):
        try:
            wanted = compare(w.tocsr(), number)
        except NotImplementedError:
            continue
        found = compare(w, number)
        np.testing.assert_array_equal(found.toarray(), wanted.toarray())
        assert (found.format, found.nnz, found.dtype) == (wanted.format, wanted.nnz, wanted.dtype)


def test_in_place(w):
    dense = w.toarray()
    matrix = w.copy()
    values, same = matrix.values, matrix
    matrix *= 2
    assert matrix is same and np.shares_memory(matrix.values, values)
    matrix /= 4
    np.testing.assert_allclose(matrix.toarray(), dense / 2)
    matrix += w
    matrix -= 2 * w
    matrix *= dense
    np.testing.assert_allclose(matrix.toarray(), -dense / 2 * dense)
    before = matrix.toarray()
    for wrong in (np.nan, np.inf):
        with pytest.raises(tartan.ArgumentError, match="finite"):
            matrix *= wrong
    with pytest.raises(tartan.ArgumentError, match="not 0"):
        matrix /= 0
    np.testing.assert_array_equal(matrix.toarray(), before)


def test_in_place_of_a_transpose(w):
    """What is written into one is in the other."""
    dense, matrix = w.toarray(), w.copy()
    view = same = matrix.T
    view *= -2
    view /= 4
    assert view is same and matrix.T is not None
    np.testing.assert_array_equal(matrix.toarray(), dense / -2)
    np.testing.assert_array_equal(view.toarray(), dense.T / -2)
    with pytest.raises(tartan.ArgumentError, match="not 0"):
        view /= 0
    view *= np.ones(dense.shape[0])  # a new matrix
    view[:, :] = 0 * view.toarray()
    np.testing.assert_array_equal(matrix.toarray(), dense / -2)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_in_place_gives_the_bits_of_the_operator(rng, dtype):
    w = random_matrix(rng, (10, 14), (4, 3)).astype(dtype)
    for number in (0.1, np.float32(3.3), Fraction(1, 3), 1e-30):
        scaled, divided = w.copy(), w.copy()
        scaled *= number
        divided /= number
        for found, wanted in ((scaled, w * number), (divided, w / number)):
            np.testing.assert_array_equal(found.values.view("u1"), wanted.values.view("u1"))


def test_in_place_refuses_what_the_operator_refuses(w):
    matrix = w.astype("float32")
    before = matrix.toarray()
    for number in (1e300, 10**400, -(10**400), np.nan):
        for function in (operator.mul, operator.truediv, operator.imul, operator.itruediv):
            with pytest.raises(tartan.ArgumentError, match="finite in float32"):
                function(matrix, number)
    np.testing.assert_array_equal(matrix.toarray(), before)


def test_eliminate_zeros(rng):
    matrix = BlockMatrix.from_dense(np.ones((8, 8)), 2)
    view, old = matrix.T, matrix.values
    matrix[2:6, :4] = 0
    dense = matrix.toarray()
    assert matrix.eliminate_zeros() is None and matrix.blocks == 12 and old.shape == (16, 2, 2)
    np.testing.assert_array_equal(matrix.toarray(), dense)
    np.testing.assert_array_equal(view.toarray(), dense.T)
    view.eliminate_zeros()
    np.testing.assert_array_equal(matrix @ np.ones(8), dense.sum(axis=1))


@pytest.mark.parametrize("shape", [(8, 12), (5, 12), (8, 7), (3, 20), (20, 3), (11, 13), (0, 4), (4, 0)])
def test_resize(rng, shape):
    matrix = random_matrix(rng, (8, 12), (4, 3))
    wanted = np.zeros(shape)
    rows, cols = min(shape[0], 8), min(shape[1], 12)
    wanted[:rows, :cols] = matrix.toarray()[:rows, :cols]
    assert matrix.resize(*shape) is None and matrix.shape == shape
    np.testing.assert_array_equal(matrix.toarray(), wanted)
    matrix.resize((8, 12))
    assert matrix.shape == (8, 12) and matrix.block_shape == (4, 3)
    with pytest.raises(tartan.ShapeError, match="expected two numbers of at least 0"):
        matrix.resize(3)


def test_reshape(w):
    for order in "CF":
        for shape in ((6, 16), (96, 1), (1, -1), (-1, 4)):
            made = w.reshape(shape, order=order)
            np.testing.assert_array_equal(made.toarray(), w.toarray().reshape(shape, order=order))
            assert made.block_shape == w.block_shape and made.dtype == w.dtype
    assert w.reshape(8, 12) is w and w.reshape(8, 12, copy=True) is not w
    for shape in ((5, 5), (-1, -1), (96,), (-1, 5), (2, 3, 16)):
        with pytest.raises(ValueError, match="shape"):
            w.reshape(shape)
    with pytest.raises(TypeError, match="expected integers"):
        w.reshape(2.5, 3)


def test_functions_that_keep_zero(w):
    dense = w.toarray()
    for name in ("arctan", "arcsinh", "ceil", "deg2rad", "expm1", "floor", "rad2deg", "sin", "sinh", "tan", "tanh", "trunc"):
        np.testing.assert_allclose(getattr(w, name)().toarray(), getattr(np, name)(dense))
        assert getattr(BlockMatrix, name).__doc__
    np.testing.assert_array_equal(round(w, 1).toarray(), dense.round(1))
    np.testing.assert_array_equal(w.maximum(-0.5).toarray(), np.maximum(dense, -0.5))
    np.testing.assert_array_equal(w.minimum(0).toarray(), np.minimum(dense, 0))
    np.testing.assert_array_equal(w.apply(lambda x: x * abs(x)).toarray(), dense * abs(dense))


def test_transposed_view(rng):
    matrix = random_matrix(rng, (10, 14), (4, 3))
    view = matrix.T
    assert (view.heads, view.block_shape, view.order, view.dtype_name) == (1, (3, 4), "F", "float64")
    np.testing.assert_array_equal(view.values, view.copy().values)
    np.testing.assert_array_equal(view.block_norms(), view.copy().block_norms())
    assert not view.values.flags.writeable and view.astype("float32").shape == (14, 10)
    assert view.astype("float64", copy=False) is view
    view.check()
    view[1, 2] = 0.0
    view.setdiag(0.0, 2)
    assert matrix[2, 1] == 0 and not matrix.diagonal(-2).any()
    for found, wanted in zip(view.to_coo() + view.to_csr(), view.copy().to_coo() + view.copy().to_csr()):
        np.testing.assert_array_equal(found, wanted)
    assert view.getnnz() == matrix.getnnz()


def test_shapes_of_several_heads(rng):
    heads = random_matrix(rng, (6, 4), 2, heads=3)
    for axes in (None, (0, 2, 1), [0, -1, -2]):
        np.testing.assert_array_equal(heads.transpose(axes).toarray(), heads.toarray().swapaxes(1, 2))
    for axes in ((1, 0), 1):
        with pytest.raises(tartan.ArgumentTypeError, match="axes is .*, expected None or \\(0, 2, 1\\)"):
            heads.transpose(axes)
    for call in (lambda: heads.reshape(4, 18), lambda: heads.resize(4, 4)):
        with pytest.raises(tartan.ShapeError, match="3 heads, expected 1"):
            call()


def test_saved_transpose(rng, tmp_path):
    matrix = random_matrix(rng, (10, 14), (4, 3))
    matrix.T.save(tmp_path / "t.h5")
    np.testing.assert_array_equal(tartan.load(tmp_path / "t.h5").toarray(), matrix.toarray().T)


def test_joining_with_scipy(rng, w):
    other = sparse.random_array((5, 12), density=0.4, rng=rng)
    np.testing.assert_array_equal(tartan.vstack([other, w]).toarray(), np.vstack([other.toarray(), w.toarray()]))
    grid = tartan.block_array([[w, None], [None, other]])
    np.testing.assert_array_equal(grid.toarray(), sparse.block_array([[w.tocsr(), None], [None, other]]).toarray())
    np.testing.assert_allclose(tartan.kron(other, w).toarray(), np.kron(other.toarray(), w.toarray()))
    np.testing.assert_allclose(tartan.kron(w, w.T).toarray(), np.kron(w.toarray(), w.toarray().T))
    for grid in ([], [[]], [[None]], [[w], [w, w]]):
        with pytest.raises(tartan.ArgumentError, match="grid"):
            tartan.block_array(grid)
    with pytest.raises(tartan.ShapeError, match="row 0"):
        tartan.block_array([[w, other]])
    large = BlockMatrix.zeros(tartan.Layout.from_coordinates((300, 300), 4, [], []))
    with pytest.raises(tartan.UnsupportedError, match="becomes dense"):
        tartan.kron(large, large)
    for nothing in (None, "x"):
        with pytest.raises(tartan.ArgumentTypeError, match="b is of type .*, expected a matrix, sparse or dense"):
            tartan.kron(w, nothing)
        with pytest.raises(tartan.ArgumentTypeError, match="a is of type .*, expected a matrix"):
            tartan.kron(nothing, w)
    for number in (3, np.ones(2)):
        with pytest.raises(tartan.ShapeError, match="b has . dimensions, expected a matrix"):
            tartan.kron(w, number)


def test_from_lists_without_a_layout(rng):
    rows, cols, numbers = rng.integers(0, 10, 30), rng.integers(0, 14, 30), rng.integers(1, 9, 30)
    wanted = sparse.coo_array((numbers, (rows, cols)), shape=(10, 14))
    made = BlockMatrix.from_coo((10, 14), rows, cols, numbers, block=[4, 3])
    np.testing.assert_array_equal(made.toarray(), wanted.toarray())
    lines = wanted.tocsr()
    made = BlockMatrix.from_csr((10, 14), lines.indptr, lines.indices, lines.data, block=(4, 3), dtype="float32")
    np.testing.assert_array_equal(made.toarray(), wanted.toarray())
    assert made.dtype == np.float32 and made.block_shape == (4, 3)
    with pytest.raises(tartan.ArgumentError, match="block is None"):
        BlockMatrix.from_coo((10, 14), rows, cols, numbers)
    with pytest.raises(tartan.ArgumentError, match="together with a layout"):
        BlockMatrix.from_coo(made.layout, rows, cols, numbers, block=2)


def test_reductions_into_given_memory(w):
    out = np.empty(8)
    assert w.sum(axis=1, out=out) is out
    np.testing.assert_allclose(out, w.toarray().sum(axis=1))
    assert w.sum(dtype="float32").dtype == np.float32 and w.mean(axis=0, dtype="f4").dtype == np.float32
    np.testing.assert_allclose(w.trace(2), np.trace(w.toarray(), 2))
    with pytest.raises(tartan.ShapeError, match="output parameter"):
        w.sum(axis=0, out=out)
    with pytest.raises(tartan.DTypeError, match="out is of int64, expected float64"):
        w.sum(axis=1, out=np.zeros(8, int))
    with pytest.raises(TypeError, match="axis is of type"):
        w.max(axis=(0, 1))
    with pytest.raises(TypeError, match="k is of type"):
        w.diagonal(0.5)
    assert w.diagonal(100).size == 0


def test_warnings_are_scipys(w):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        w != w.copy(), w > 0.5, 2 * w, w @ w.T, w[0], w.sum()


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_zeros_inside_of_blocks_are_kept_unless_dropped(format):
    """Stored elements, whatever their value; csgraph would take them for edges."""
    dense = np.zeros((4, 4))
    dense[1, 1], dense[2, 1] = 3, -1
    for w in (BlockMatrix.from_dense(dense, block=2), BlockMatrix.from_dense(dense.T.copy(), block=2).T):
        w = w + BlockMatrix.zeros(tartan.Layout.pattern("dense", (4, 4), 2))
        kept, dropped = w.to_scipy(format), w.to_scipy(format, drop_zeros=True)
        np.testing.assert_array_equal(dropped.toarray(), dense)
        if format not in ("lil", "dok", "dia"):  # SciPy's conversions to these drop zeros by themselves, or store lines
            assert kept.nnz == 16
        if format != "dia":
            assert dropped.nnz == (8 if format == "bsr" else 2)
        assert getattr(w, "to" + format)(drop_zeros=True).nnz == dropped.nnz
        assert w.asformat(format, drop_zeros=True).nnz == dropped.nnz
    graph = BlockMatrix.from_dense([[0, 0], [0, 1.0]], block=2)
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    assert csgraph.connected_components(graph.tocsr(drop_zeros=True), directed=False)[0] == 2
