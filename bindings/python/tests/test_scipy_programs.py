# SPDX-License-Identifier: Apache-2.0
"""First programs of SciPy's users: its classes, direct solvers and files."""

import copy
import io
import pickle

import numpy as np
import pytest

import tartan
from conftest import random_matrix
from tartan import BlockMatrix

sparse = pytest.importorskip("scipy.sparse")
linalg = pytest.importorskip("scipy.sparse.linalg")


@pytest.fixture
def spd(rng):
    """Symmetric and positive definite, with a bandwidth of two blocks."""
    dense = rng.standard_normal((12, 12)) * (abs(np.subtract.outer(np.arange(12) // 4, np.arange(12) // 4)) < 2)
    return BlockMatrix.from_dense(dense @ dense.T + 12 * np.eye(12), block=4)


@pytest.mark.parametrize(
    "solve",
    [
        lambda p, b: linalg.spsolve(p.tocsc(), b),
        lambda p, b: linalg.spsolve(p.tocsr(), b),
        lambda p, b: linalg.splu(p.tocsc()).solve(b),
        lambda p, b: linalg.factorized(p.tocsc())(b),
        lambda p, b: linalg.cg(p, b, rtol=1e-14)[0],
        lambda p, b: linalg.minres(p, b, rtol=1e-14)[0],
        lambda p, b: linalg.gmres(p, b, rtol=1e-14, M=sparse.diags_array(1 / p.diagonal()))[0],
        lambda p, b: linalg.cg(p, b, rtol=1e-14, M=linalg.LinearOperator(p.shape, linalg.spilu(p.tocsc()).solve))[0],
        lambda p, b: linalg.lsqr(p, b, atol=1e-15, btol=1e-15)[0],
    ],
)
def test_solvers(spd, solve, rng):
    b = rng.standard_normal(12)
    np.testing.assert_allclose(solve(spd, b), np.linalg.solve(spd.toarray(), b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr"])
def test_indices_are_as_narrow_as_those_of_scipy(spd, format):
    """Solvers of SciPy's refuse wider ones: spsolve_triangular does."""
    made, peer = spd.asformat(format), getattr(sparse, f"{format}_array")(spd.toarray())
    for name in ("indptr", "indices", "coords"):
        for mine, wanted in zip(np.atleast_2d(getattr(made, name, 0)), np.atleast_2d(getattr(peer, name, 0))):
            assert mine.dtype == wanted.dtype
    lower = spd.tril()
    x = linalg.spsolve_triangular(lower.tocsr(), np.ones(12))
    np.testing.assert_allclose(lower.toarray() @ x, np.ones(12), rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.coo_array,
        lambda w: linalg.spsolve(w, np.ones(12)), linalg.splu, linalg.spilu, linalg.factorized,
        lambda w: sparse.vstack([w, w]), sparse.tril, sparse.find,
    ],
)  # fmt: skip
def test_what_needs_scipys_own_classes_says_how_to_make_them(spd, make):
    for w in (spd, spd.T):
        with pytest.raises((ValueError, TypeError)) as caught:
            make(w)
        text = str(caught.value) + str(caught.value.__cause__)
        assert "tocsr() or tocsc()" in text and "toarray()" in text


def test_files_of_scipy_hold_what_they_can(rng):
    w = random_matrix(rng, (8, 12), (4, 3), order="F")
    file = io.BytesIO()
    sparse.save_npz(file, w)
    file.seek(0)
    np.testing.assert_array_equal(sparse.load_npz(file).toarray(), w.toarray())
    ragged, heads = random_matrix(rng, (7, 12), (4, 3)), random_matrix(rng, (8, 12), (4, 3), heads=2)
    for other in (ragged, heads, ragged.T, w.astype("float16")):
        assert other.format == "blocks"
        with pytest.raises(NotImplementedError, match="format blocks"):  # it would be a file that cannot be read
            sparse.save_npz(io.BytesIO(), other)


def test_copies(spd, tmp_path):
    for made in (pickle.loads(pickle.dumps(spd)), copy.copy(spd), copy.deepcopy({"w": [spd]})["w"][0]):
        assert made is not spd and made.isclose_all(spd, 0, 0) and made.layout == spd.layout
        assert not np.shares_memory(made.values, spd.values)


def test_joblib(spd, tmp_path):
    joblib = pytest.importorskip("joblib")
    joblib.dump(spd, tmp_path / "w.joblib")
    assert joblib.load(tmp_path / "w.joblib").isclose_all(spd, 0, 0)
    mapped = joblib.load(tmp_path / "w.joblib", mmap_mode="r")
    np.testing.assert_array_equal(mapped @ np.ones(12), spd @ np.ones(12))
    with pytest.raises(tartan.ArgumentError, match="read-only"):
        mapped.fill_zero()
    assert joblib.hash(spd) == joblib.hash(spd.copy()) != joblib.hash(2 * spd)


def test_pandas(spd):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.ones((12, 2)), columns=["a", "b"])
    np.testing.assert_array_equal(spd @ frame, spd @ np.ones((12, 2)))
    np.testing.assert_array_equal(spd @ frame["a"], spd @ np.ones(12))
    made = BlockMatrix.from_dense(pandas.DataFrame(spd.toarray()), block=4)
    assert made.isclose_all(spd, 0, 0)
    np.testing.assert_array_equal(spd[pandas.Series([3, 1])].toarray(), spd.toarray()[[3, 1]])
    np.testing.assert_array_equal(spd[:, pandas.Index([3, 1])].toarray(), spd.toarray()[:, [3, 1]])
    with pytest.raises(TypeError, match="unasked"):
        pandas.DataFrame(spd)
    row, dense = pandas.Series(np.arange(12.0)), spd.toarray()
    np.testing.assert_array_equal((row * spd).toarray(), dense * row.to_numpy())
    for found in (row + spd, spd + row):
        np.testing.assert_array_equal(found, dense + row.to_numpy())
    np.testing.assert_array_equal(pandas.DataFrame(dense) - spd, np.zeros((12, 12)))
    np.testing.assert_array_equal(pandas.DataFrame(dense) == spd, dense == dense)
