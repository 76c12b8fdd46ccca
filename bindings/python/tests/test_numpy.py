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
        lambda w: np.vstack([w, w]),
        lambda w: np.concatenate([w, np.ones((6, 4))]),
        np.size,
        np.sum,
        lambda w: np.save(io.BytesIO(), w),
        lambda w: np.savez(io.BytesIO(), w=w),
        lambda w: np.allclose(w, np.ones((6, 4))),
        lambda w: np.array_equal(w, w),
        lambda w: np.transpose(w, (0, 1)),
        lambda w: np.linalg.norm(w),
        lambda w: np.kron(w, w),
    ],
)
def test_numpy_makes_no_objects(w, call):
    with pytest.raises(tartan.ArgumentTypeError, match="toarray()"):
        call(w)


def test_ufuncs_are_refused(w):
    for call in (np.exp, lambda w: np.arctan2(w, w), lambda w: np.add.outer(w, w), lambda w: w + np.ones(4)):
        with pytest.raises(TypeError):
            call(w)


def test_what_numpy_may_ask(w):
    assert np.shape(w) == w.shape and np.ndim(w) == 2
    assert np.transpose(w) is w.T or np.transpose(w).T is w


def test_equality_and_truth_are_not_guessed(w):
    for other in (w, w.copy(), w.toarray(), 3, 2.5, np.float64(1)):
        for call in (lambda: w == other, lambda: w != other, lambda: other == w):
            with pytest.raises(tartan.ArgumentTypeError, match="compare layout and values"):
                call()
    assert not (w == None) and w != "w" and w not in ({}, "w")  # noqa: E711
    assert {w: 1}[w] == 1 and len({w, w.copy()}) == 2
    for call in (lambda: bool(w), lambda: not w, lambda: w and 1):
        with pytest.raises(ValueError, match="ambiguous"):
            call()


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
        (tartan.ArgumentTypeError, "b is of type BlockMatrix", lambda: tartan.spmm(a, a.T.copy())),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()
