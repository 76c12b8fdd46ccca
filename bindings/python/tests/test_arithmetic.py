# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, reductions, parts and element access against NumPy on dense copies."""

import numpy as np
import pytest
from conftest import random_matrix

import tartan
from tartan import BlockMatrix


@pytest.fixture(params=["C", "F", "transpose"])
def w(rng, request):
    if request.param == "transpose":
        return random_matrix(rng, (14, 10), (3, 4)).T
    return random_matrix(rng, (10, 14), (4, 3), order=request.param)


def same(matrix, dense, **tolerances):
    assert isinstance(matrix, BlockMatrix)
    np.testing.assert_allclose(matrix.toarray(), dense, **({"rtol": 1e-15, "atol": 1e-15} | tolerances))


@pytest.mark.parametrize(
    "function",
    [
        lambda w: 2 * w, lambda w: w * 2.5, lambda w: np.float32(2) * w, lambda w: w / 4, lambda w: -w, lambda w: +w,
        abs, lambda w: w**2, lambda w: w + w, lambda w: w - 3 * w, lambda w: w + 0, lambda w: 0 - w, np.abs, np.sign,
        np.negative, np.square, lambda w: np.add(w, w), lambda w: np.multiply(3, w), lambda w: np.multiply(w, np.array(2.0)),
        lambda w: w * w, lambda w: np.maximum(w, -w), lambda w: np.minimum(w, 2 * w), lambda w: np.sqrt(w * w),
    ],
)  # fmt: skip
def test_operators(w, function):
    same(function(w), function(w.toarray()))


def test_sparse_operands(rng, w):
    sparse = pytest.importorskip("scipy.sparse")
    other = sparse.random_array(w.shape, density=0.3, rng=rng, format="csr")
    dense, x = w.toarray(), other.toarray()
    same(w + other, dense + x)
    same(other + w, dense + x)
    same(other - w, x - dense)
    same(w * other, dense * x)
    same(other * w, dense * x)
    same(w.maximum(other), np.maximum(dense, x))
    whole = w + BlockMatrix.from_dense(np.ones(w.shape), (5, 2))  # another block size
    same(whole, dense + 1)
    assert whole.block_shape == w.copy().block_shape
    integers = sparse.csr_array(np.eye(*w.shape, dtype=int))
    same(w + integers, dense + integers.toarray())
    with pytest.raises(tartan.DTypeError, match="real numbers"):
        w + other.astype(complex)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_the_star_of_scipy(rng, w, format):
    """For its arrays the product element by element, for its matrices that of matrices."""
    sparse = pytest.importorskip("scipy.sparse")
    x = rng.standard_normal(w.shape)
    same(getattr(sparse, f"{format}_array")(x) * w, x * w.toarray())
    same(getattr(sparse, f"{format}_matrix")(x) * w.T, x @ w.toarray().T, rtol=1e-14, atol=1e-14)
    with pytest.raises(tartan.ArgumentTypeError, match="unasked"):
        getattr(sparse, f"{format}_array")(x).multiply(w)


def test_sparse_vectors(w):
    sparse = pytest.importorskip("scipy.sparse")
    vector = sparse.coo_array(np.arange(w.shape[1]) % 3.0)
    if vector.ndim != 1:
        pytest.skip("this SciPy has no sparse vectors")
    same(w * vector, w.toarray() * vector.toarray())
    for call in (lambda: w @ vector, lambda: w.dot(vector), lambda: w + vector, lambda: w == vector):
        with pytest.raises(tartan.ShapeError):
            call()


def test_dense_factors(rng, w):
    dense = w.toarray()
    for factor in (rng.standard_normal(w.shape), rng.standard_normal(w.shape[1]), rng.standard_normal((1, w.shape[1])),
                   rng.standard_normal((w.shape[0], 1))):  # fmt: skip
        same(w.multiply(factor), dense * factor)
        same(factor * w, dense * factor)
        same(w / factor, dense / factor, rtol=1e-14)
        same(w / factor.astype("f4"), dense / factor.astype("f4"), rtol=1e-14)  # the reciprocals in float64, too
    same(w.scale(rows=np.arange(10.0), cols=np.arange(14)), np.arange(10)[:, None] * dense * np.arange(14))
    with pytest.raises(tartan.ShapeError, match="a row or a column"):
        w.multiply(np.ones(3))


def test_dense_rows_and_columns(rng, w):
    dense = w.toarray()
    for other in (rng.standard_normal(w.shape[1]), rng.standard_normal((w.shape[0], 1)), np.array([2.0]), np.array([[3.0]])):
        np.testing.assert_array_equal(w + other, dense + other)
        np.testing.assert_array_equal(other - w, other - dense)
        np.testing.assert_array_equal(w < other, dense < other)
        np.testing.assert_array_equal(other == w, dense == other)
    for other in (np.ones(w.shape[0]), np.ones((2, *w.shape)), np.ones((1, 1, 1))):
        with pytest.raises(tartan.ShapeError, match="a row or a column"):
            w + other
        with pytest.raises(tartan.ShapeError, match="a row or a column"):
            w == other


def test_factors_that_become_arrays(w):
    class Series:  # as in pandas, without its operators
        def __array__(self, dtype=None, copy=None):
            return np.arange(w.shape[1], dtype=float)

    expected = w.toarray() * np.arange(w.shape[1])
    for factor in (Series(), list(range(w.shape[1]))):
        same(w * factor, expected)
        same(factor * w, expected)


def test_lists(rng, w):
    dense, x = w.toarray(), rng.standard_normal(w.shape)
    for given in (x.tolist(), x[0].tolist(), tuple(x[0])):
        array = np.asarray(given)
        for found, wanted in ((w + given, dense + array), (given - w, array - dense), (w < given, dense < array), (given == w, dense == array)):
            assert type(found) is np.ndarray
            np.testing.assert_array_equal(found, wanted)
        same(w * given, dense * array)
        same(w / given, dense / array, rtol=1e-14)
    for wrong in (["a"] * w.shape[1], [[1.0], [1.0, 2.0]]):
        for call in (lambda: w + wrong, lambda: w == wrong):
            with pytest.raises(tartan.ArgumentTypeError, match="the other operand"):
                call()


def test_operators_of_pandas(w):
    class Series:
        """As those of pandas, whose operators are left to classes of a higher priority."""

        __pandas_priority__ = 3000
        array = np.arange(w.shape[1]) + 1.0

        def __array__(self, dtype=None, copy=None):
            return self.array

        def _operator(self, other):
            assert other.__pandas_priority__ > 4000  # that of a DataFrame
            return NotImplemented

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _operator
        __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = _operator

    series, dense = Series(), w.toarray()
    same(series * w, dense * series.array)
    same(w / series, dense / series.array, rtol=1e-14)
    for found, wanted in (
        (w + series, dense + series.array), (series + w, dense + series.array), (w - series, dense - series.array),
        (series - w, series.array - dense), (w < series, dense < series.array), (series == w, dense == series.array),
    ):  # fmt: skip
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(tartan.UnsupportedError, match="by zero"):
        series / w
    Series.array = np.full(w.shape[1], "text", object)
    with pytest.raises(tartan.ArgumentTypeError, match="elements of object, expected real numbers"):
        w + series


def test_masks_are_not_ignored(w):
    row = np.ma.masked_array(np.ones(w.shape[1]), np.arange(w.shape[1]) == 1)
    for call in (lambda: w.scale(cols=row), lambda: w * row, lambda: w.multiply(row), lambda: tartan.spmm(w, row),
                 lambda: w.setdiag(row), lambda: w.add_diagonal(row)):  # fmt: skip
        with pytest.raises(tartan.ArgumentTypeError, match="masked array"):
            call()


def test_comparison_with_complex_numbers(w):
    pytest.importorskip("scipy.sparse")
    for number in (2j, np.complex64(1 + 1j), complex(w.max())):
        np.testing.assert_array_equal((w == number).toarray(), w.toarray() == number)


def test_nothing_becomes_dense(w):
    for call in (lambda: np.exp(w), lambda: np.add.reduce(w), lambda: w + "text", lambda: w * 2j, lambda: w / 2j,
                 lambda: w.maximum(1), lambda: w.apply(np.cos), lambda: w.apply(np.isfinite), lambda: w.apply(sum), lambda: np.arctan2(w, w),
                 lambda: np.multiply(w, 2, out=np.ones(w.shape)), lambda: np.frexp(w)):  # fmt: skip
        with pytest.raises(TypeError):
            call()
    for call in (lambda: w + 1, lambda: 1 - w, lambda: 1 / w, lambda: w / w, lambda: np.ones(w.shape) / w, lambda: w**-1,
                 lambda: w**0, lambda: w.power(w)):  # fmt: skip
        with pytest.raises(tartan.UnsupportedError):  # a NotImplementedError, as SciPy's
            call()
    with pytest.raises(tartan.ArgumentError, match="to divide by"):
        w / 0
    with pytest.raises(tartan.ShapeError, match="10 x 14|14 x 10"):
        w + BlockMatrix.from_dense(np.ones((3, 3)), 2)


def test_dtypes(rng):
    narrow, wide = (random_matrix(rng, (6, 6), 2, dtype=d) for d in ("float32", "float64"))
    assert (narrow + wide).dtype == np.float64 and (narrow * 2.0).dtype == np.float32
    np.testing.assert_array_equal((narrow + narrow).toarray(), narrow.toarray() + narrow.toarray())
    with pytest.raises(tartan.ArgumentError, match="finite in float32"):
        narrow * 1e300


@pytest.mark.parametrize("axis", [None, 0, 1, -1, -2])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "count_nonzero", "norm"])
def test_reductions(w, name, axis):
    dense = w.toarray()
    if name == "norm":
        np.testing.assert_allclose(w.norm(axis=axis), np.linalg.norm(dense, axis=axis), rtol=1e-14)
    else:
        oracle = getattr(np, name)
        np.testing.assert_allclose(getattr(w, name)(axis), oracle(dense, axis=axis), rtol=1e-14, atol=1e-14)


def test_norms_traces_and_heads(rng, w):
    dense = w.toarray()
    for ord in (1, np.inf, "fro"):
        np.testing.assert_allclose(w.norm(ord), np.linalg.norm(dense, ord), rtol=1e-14)
    assert w.norm("max") == abs(dense).max()
    for ord in (1, 2, np.inf):
        for axis in (0, 1, -1):
            np.testing.assert_allclose(w.norm(ord, axis), np.linalg.norm(dense, ord, axis), rtol=1e-14)
    with pytest.raises(tartan.ArgumentError, match="ord is 'fro', expected 1, 2 or inf"):
        w.norm("fro", axis=1)
    np.testing.assert_allclose(w.trace(), np.trace(dense), rtol=1e-14)
    with pytest.raises(tartan.ArgumentError, match="ord is 2"):
        w.norm(2)
    with pytest.raises(tartan.ArgumentError, match="axis is 2"):
        w.sum(2)
    heads = random_matrix(rng, (6, 4), 2, heads=3)
    many = heads.toarray()
    np.testing.assert_allclose(heads.sum(), many.sum(axis=(1, 2)))
    np.testing.assert_allclose(heads.sum(axis=-1), many.sum(axis=-1))
    np.testing.assert_allclose(heads.max(axis=1), many.max(axis=1))
    np.testing.assert_allclose(heads.trace(), np.trace(many, axis1=1, axis2=2))
    np.testing.assert_array_equal(heads.diagonal(1), np.diagonal(many, 1, 1, 2))
    with pytest.raises(tartan.ArgumentError, match="axis is 0"):
        heads.sum(0)


@pytest.mark.parametrize("shape, refused", [((0, 6), (None, 0)), ((6, 0), (None, 1)), ((0, 0), (None,))])
def test_reductions_of_nothing(shape, refused):
    w = BlockMatrix.from_dense(np.zeros(shape), 3)
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(w.sum(axis=axis), w.toarray().sum(axis=axis))
        for extreme in (w.max, w.min):
            if axis in refused:  # as NumPy and SciPy do
                with pytest.raises(tartan.ArgumentError, match="of no elements is asked for"):
                    extreme(axis=axis)
            else:
                assert extreme(axis=axis).shape == (0,)


def test_diagonals(w):
    dense = w.toarray()
    for k in (-12, -3, 0, 2, 9):
        if -w.shape[0] <= k <= w.shape[1]:
            np.testing.assert_array_equal(w.diagonal(k), np.diagonal(dense, k))
            d = np.arange(len(np.diagonal(dense, k))) + 1.0
            want = dense.copy()
            i = np.arange(len(d))
            want[i + max(0, -k), i + max(0, k)] += d
            same(w.add_diagonal(d, k), want)
    same(w.add_diagonal(2.5), dense + 2.5 * np.eye(*dense.shape))


def test_setting(rng):
    matrix = BlockMatrix.from_dense(np.kron(np.eye(3), np.ones((2, 2))), 2)
    matrix.setdiag(np.arange(6.0))
    np.testing.assert_array_equal(matrix.diagonal(), np.arange(6))
    matrix.setdiag([1, 0, 2, 0, 3], 1)  # zeros where nothing is stored
    np.testing.assert_array_equal(matrix.diagonal(1), [1, 0, 2, 0, 3])
    before = matrix.toarray()
    with pytest.raises(tartan.LayoutError, match="nothing is stored"):
        matrix.setdiag(7.0, 1)
    for call in (matrix.setdiag, matrix.add_diagonal):
        with pytest.raises(tartan.ShapeError, match="values has 2 entries, expected 6 .the length of the diagonal, or 1"):
            call([1, 2])
    for wrong in ("text", 1j, None, [[1], [1, 2]]):
        for call in (matrix.setdiag, matrix.add_diagonal):
            with pytest.raises(tartan.DTypeError, match="values cannot become"):
                call(wrong)
    np.testing.assert_array_equal(matrix.toarray(), before)


def test_parts(w):
    dense = w.toarray()
    for k in (-4, 0, 3):
        same(w.tril(k), np.tril(dense, k))
        same(w.triu(k), np.triu(dense, k))
    same(w.reblock((5, 2)), dense)
    assert w.reblock(7).block_shape == (7, 7)
    assert (w - w).drop_zeros().blocks == 0
    assert w.isclose_all(w + 0) and w.isclose_all(w * (1 + 1e-7)) and not w.isclose_all(w * (1 + 1e-7), 0, 0)
    assert w.isclose_all(w.reblock(3), 0, 0)


def test_joining(rng, w):
    a, b = random_matrix(rng, (7, w.shape[1]), 2), random_matrix(rng, (w.shape[0], 3), 4)
    same(tartan.vstack([w, a, w, a, a]), np.vstack([x.toarray() for x in (w, a, w, a, a)]))
    same(tartan.hstack([b, w]), np.hstack([b.toarray(), w.toarray()]))
    diagonal = tartan.block_diag([a, b])
    same(diagonal, np.block([[a.toarray(), np.zeros((7, 3))], [np.zeros((w.shape[0], w.shape[1])), b.toarray()]]))
    small = rng.standard_normal((2, 3))
    same(tartan.kron(w, small), np.kron(w.toarray(), small))
    same(tartan.kron(small, w), np.kron(small, w.toarray()))
    same(tartan.vstack([w]), w.toarray())
    with pytest.raises(tartan.ShapeError, match="columns"):
        tartan.vstack([a, b])
    for call in (lambda: tartan.hstack([w, np.ones(w.shape)]), lambda: tartan.kron(np.ones((2, 2)), np.ones((2, 2)))):
        with pytest.raises(tartan.HandleTypeError, match="expected a BlockMatrix"):
            call()
    with pytest.raises(tartan.ArgumentError, match="empty"):
        tartan.hstack([])


def test_scipy_linalg(rng):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    w = random_matrix(rng, (12, 12), 4)
    a = (w + w.T).add_diagonal(40.0)
    dense, b = a.toarray(), rng.standard_normal(12)
    for solve in (linalg.cg, linalg.gmres, linalg.bicgstab):
        x, info = solve(a, b)
        assert info == 0
        np.testing.assert_allclose(dense @ x, b, atol=1e-3)
    np.testing.assert_allclose(linalg.lsqr(a, b)[0], np.linalg.solve(dense, b), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(linalg.lsmr(w.T, b)[0].shape, (12,))
    np.testing.assert_allclose(linalg.eigsh(a, k=2)[0], np.linalg.eigvalsh(dense)[-2:])
    np.testing.assert_allclose(np.sort(linalg.svds(w, k=3)[1]), np.linalg.svd(w.toarray())[1][2::-1])
    assert 0.3 * a.norm(1) <= linalg.onenormest(a) <= 1.001 * a.norm(1)  # a lower bound
    operator = linalg.aslinearoperator(w.T)
    np.testing.assert_allclose(operator.matmat(np.eye(12)), w.toarray().T)
    np.testing.assert_allclose(operator.rmatvec(b), w.toarray() @ b)


def test_products_by_numpy(rng, w):
    x, y, dense = rng.standard_normal(w.shape[1]), rng.standard_normal((3, w.shape[0])), w.toarray()
    for product in (np.dot(w, x), np.matmul(w, x), w.dot(x)):
        np.testing.assert_allclose(product, dense @ x)
    for product in (np.dot(y, w), np.matmul(y, w), y @ w):
        np.testing.assert_allclose(product, y @ dense)
    same(w.dot(2), 2 * dense)


def test_scipy_matrices_of_any_format(rng):
    sparse = pytest.importorskip("scipy.sparse")
    rows, cols = rng.integers(0, 11, 60), rng.integers(0, 7, 60)
    twice = sparse.coo_array((rng.standard_normal(60), (rows, cols)), shape=(11, 7))  # with repeats
    for format in ("coo", "csr", "csc", "lil", "dia"):
        given = twice.asformat(format)
        made = BlockMatrix.from_scipy(given, (4, 3))
        np.testing.assert_allclose(made.toarray(), twice.toarray(), rtol=1e-14, atol=1e-15)
    raw = sparse.csr_array((np.ones(4), np.array([3, 0, 0, 3]), np.array([0, 3, 4])), shape=(2, 4))
    np.testing.assert_array_equal(BlockMatrix.from_scipy(raw, 2).toarray(), raw.toarray())
    assert not raw.has_canonical_format and raw.nnz == 4  # the caller's is as it was
