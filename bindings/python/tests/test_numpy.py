# SPDX-License-Identifier: Apache-2.0
"""What NumPy's functions and Python's operators make of a matrix: never an array of objects, never a wrong answer."""

import io

import numpy as np
import pytest
from conftest import random_matrix

import tartan


@pytest.fixture(params=["matrix", "transpose"])
def w(rng, request):
    matrix = random_matrix(rng, (6, 4), 2)
    return matrix if request.param == "matrix" else matrix.T


@pytest.mark.parametrize(
    "call",
    [
        np.asarray,
        np.array,
        lambda w: np.asarray(w, np.float64),
        lambda w: np.array([w, w]),
        lambda w: np.concatenate([w, np.ones((6, 4))]),
        lambda w: np.concatenate([w, w], axis=2),
        np.size,
        lambda w: np.save(io.BytesIO(), w),
        lambda w: np.savez(io.BytesIO(), w=w),
        lambda w: np.allclose(w, np.ones((6, 4))),
        lambda w: np.transpose(w, (0, 1)),
        np.linalg.det,
        np.cumsum,
        lambda w: np.sum(w, keepdims=True),
        lambda w: np.where(w, w, w),
        len,
    ],
)
def test_numpy_makes_no_objects(w, call):
    with pytest.raises(TypeError, match=r"toarray\(\)|a matrix is of type|axis is|keepdims|ambiguous") as caught:
        call(w)
    assert isinstance(caught.value, tartan.TartanError)


@pytest.mark.parametrize(
    "call",
    [
        np.sum, np.mean, np.max, np.min, np.trace, np.count_nonzero, np.argmax, np.argmin, np.linalg.norm, np.diagonal,
        np.nonzero, np.copy, np.transpose, np.tril, np.triu, np.real, np.conjugate, np.tanh, np.expm1, np.floor,
        lambda w: np.sum(w, axis=0), lambda w: np.mean(w, 1), lambda w: np.linalg.norm(w, axis=1),
        lambda w: np.linalg.norm(w, 1), lambda w: np.vstack([w, w]), lambda w: np.hstack([w, 2 * w]),
        lambda w: np.concatenate([w, w], axis=1), lambda w: np.kron(w, np.ones((2, 1))), lambda w: np.round(w, 1),
        lambda w: np.reshape(w, (3, 8)), lambda w: np.allclose(w, w), lambda w: np.array_equal(w, 2 * w),
        lambda w: np.block([[w, w], [w, 2 * w]]), lambda w: np.dot(2, w), lambda w: np.sum(w, dtype="f4"),
    ],
)  # fmt: skip
def test_functions_of_numpy(w, call):
    found, wanted = call(w), call(w.toarray())
    sparse = isinstance(found, (tartan.BlockMatrix, tartan.TransposedMatrix))
    assert sparse == (np.ndim(wanted) == 2 and not isinstance(wanted, tuple))
    np.testing.assert_allclose(found.toarray() if sparse else found, wanted, rtol=1e-6)


def test_ufuncs_are_refused(w):
    for call in (np.exp, lambda w: np.arctan2(w, w), lambda w: np.add.outer(w, w), np.isnan):
        with pytest.raises(tartan.ArgumentTypeError):
            call(w)


def test_matrices_are_no_outputs(w):
    before = w.toarray()
    for call in (lambda: np.multiply(w, 2, out=w), lambda: np.add(w.toarray(), 1, out=w), lambda: np.negative(w, out=(w,))):
        with pytest.raises(tartan.ArgumentTypeError, match="out of numpy.* is a matrix, expected an array"):
            call()
    np.testing.assert_array_equal(w.toarray(), before)


def test_sums_in_memory_of_numpy(w):
    y = np.ones(w.shape)
    same = y
    y += w
    y -= 2 * w
    assert y is same
    np.testing.assert_allclose(y, 1 - w.toarray())
    with pytest.raises(TypeError, match="sparse matrix"):
        y *= w
    assert (y == same).all() and np.add(w, y, out=same) is same


def test_operands_that_multiply_themselves(w):
    class Operator:
        def __matmul__(self, other):
            return "left", other

        def __rmatmul__(self, other):
            return "right", other

    beside = Operator()
    for found, side in ((w @ beside, "right"), (beside @ w, "left")):
        assert found[0] == side and found[1].shape == w.shape
    linalg = pytest.importorskip("scipy.sparse.linalg")
    product = linalg.aslinearoperator(w) @ linalg.aslinearoperator(w.T)
    np.testing.assert_allclose(product @ np.ones(w.shape[0]), w @ (w.T @ np.ones(w.shape[0])))


def test_what_numpy_may_ask(w):
    assert np.shape(w) == w.shape and np.ndim(w) == 2
    assert np.isrealobj(w) and not np.iscomplexobj(w)
    assert np.transpose(w) is w.T or np.transpose(w).T is w


def test_truth_is_not_guessed(w):
    assert not (w == None) and w != "w" and w is not None  # noqa: E711
    assert {w: 1}[w] == 1 and len({w, w.copy()}) == 2
    for call in (lambda: bool(w), lambda: not w, lambda: w and 1):
        with pytest.raises(ValueError, match="ambiguous"):
            call()
    assert w[:1, :1] or w[:1, :1].sum() == 0


class Framed:
    """As pandas and xarray: an array only for those who ask for one."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        if isinstance(self.array, Exception):
            raise self.array
        return self.array if dtype is None else self.array.astype(dtype)

    def __getattr__(self, name):  # a column
        raise AttributeError(name)


def test_operands_with_an_array_of_their_own(rng):
    a = random_matrix(rng, (6, 4), 2)
    x, left, gates = rng.standard_normal((4, 3)), rng.standard_normal((3, 6)), rng.random(a.blocks)
    for result, expected in (
        (a @ Framed(x), a @ x),
        (a @ Framed(x[:, 0]), a @ x[:, 0]),
        (a.T @ Framed(left.T), a.T @ left.T),
        (Framed(left) @ a, left @ a),
        (a @ Framed(x.astype("f4")), a @ x.astype("f4")),
        (a @ Framed(np.arange(4)), a @ np.arange(4.0)),
        (tartan.spmm(a, Framed(x), gates=Framed(gates)), tartan.spmm(a, x, gates=gates)),
        (tartan.sddmm(a.layout, Framed(left.T), Framed(x.T)).values, tartan.sddmm(a.layout, left.T, x.T).values),
        (tartan.BlockMatrix.from_dense(Framed(a.toarray()), 2).toarray(), a.toarray()),
        (tartan.BlockMatrix(a.layout, Framed(a.values)).toarray(), a.toarray()),
        (tartan.Layout.from_dense(Framed(a.toarray()), 2).mask(), a.layout.mask()),
    ):
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, expected)
    for kind, words, call in (
        (tartan.ArgumentTypeError, "out is a Framed, expected an array that can be written", lambda: tartan.spmm(a, x, out=Framed(np.zeros((6, 3))))),
        (tartan.ArgumentTypeError, "b has elements of object", lambda: a @ Framed(x.astype(object))),
        (tartan.ArgumentTypeError, "b has elements of <U3", lambda: a @ Framed(np.full((4, 3), "one"))),
        (tartan.ArgumentTypeError, "b cannot become an array: no", lambda: a @ Framed(ValueError("no"))),
        (tartan.DTypeError, "b is of int64, expected float32", lambda: a.astype("float32") @ Framed(np.ones((4, 3), int))),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()


def test_extremes_of_16_bit_numbers(rng):
    """SciPy, which finds them, has no such arrays."""
    w = random_matrix(rng, (7, 6), (3, 2), dtype="float16")
    x = w.toarray()
    assert w.argmax() == x.argmax() and w.T.argmin() == x.T.argmin()
    np.testing.assert_array_equal(w.argmax(axis=1), x.argmax(axis=1))
    w.values[0, 0, 0] = np.nan
    x = w.toarray()
    assert w.nanmax() == np.nanmax(x) and w.nanmin().dtype == np.float16
    np.testing.assert_array_equal(np.ravel(w.nanmin(axis=0)), np.nanmin(x, axis=0))
