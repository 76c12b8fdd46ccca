# SPDX-License-Identifier: Apache-2.0
import sys

import numpy as np
import pytest
from conftest import assert_product, random_layout, random_matrix

import tartan
from tartan import BlockMatrix, spmm

DTYPES = ["float64", "float32", "float16", "bfloat16"]


def dense_operand(rng, shape, dtype, order="C"):
    x = rng.standard_normal(shape)
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return np.asarray(x.astype(dtype), order=order)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block", [(1, 1), (3, 5), (8, 8)])
def test_products(rng, dtype, order, block):
    a = random_matrix(rng, (19, 23), block, dtype=dtype, order=order)
    wide = a.astype("float64").toarray()
    for n in (0, 1, 7):
        for memory in ("C", "F"):
            b, c = (dense_operand(rng, (k, n), dtype, memory) for k in (23, 19))
            assert_product(a @ b, wide, b, dtype)
            assert_product(a.T @ c, wide.T, c, dtype)
            assert_product(c.T @ a, c.T, wide, dtype)
            assert_product(b.T @ a.T, b.T, wide.T, dtype)
            assert (a @ b).dtype == b.dtype
    x = dense_operand(rng, 23, dtype)
    assert_product(a @ x, wide, x, dtype)
    y = dense_operand(rng, 19, dtype)
    assert_product(y @ a, y, wide, dtype)
    assert_product(a.T @ y, wide.T, y, dtype)


def test_column_major_stays_column_major(rng):
    a = random_matrix(rng, (16, 16), 4)
    assert (a @ np.asfortranarray(np.ones((16, 3)))).flags.f_contiguous
    assert (a @ np.ones((16, 3))).flags.c_contiguous


def test_batches_and_strides(rng):
    a = random_matrix(rng, (12, 8), 4)
    b = rng.standard_normal((2, 3, 8, 5))
    assert_product(a @ b, a.toarray(), b, "float64")
    strided = rng.standard_normal((3, 16, 10))[:, ::2, ::-2]
    assert_product(a @ strided, a.toarray(), strided, "float64")
    assert_product(b.swapaxes(-1, -2) @ a.T, b.swapaxes(-1, -2), a.toarray().T, "float64")


def test_heads(rng):
    a = random_matrix(rng, (12, 8), 4, heads=3)
    b = rng.standard_normal((2, 3, 8, 5))
    assert_product(a @ b, a.toarray(), b, "float64")
    shared = rng.standard_normal((8, 5))
    assert_product(a @ shared, a.toarray(), shared, "float64")
    assert (a @ np.ones(8)).shape == (3, 12)


def test_alpha_beta_gates_out(rng):
    a = random_matrix(rng, (12, 8), 4, 0.7)
    b, c = rng.standard_normal((8, 5)), rng.standard_normal((12, 5))
    gates = rng.standard_normal(a.blocks) * (np.arange(a.blocks) % 3 > 0)
    gated = BlockMatrix(a.layout, a.values * gates[:, None, None]).toarray()
    out = c.copy()
    assert spmm(a, b, alpha=2, beta=-1, gates=gates, out=out) is out
    np.testing.assert_allclose(out, 2 * gated @ b - c, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(spmm(a, b, gates=gates.astype(np.float32)), gated @ b, rtol=1e-5, atol=1e-5)
    nan = np.full((12, 5), np.nan)
    assert np.isfinite(spmm(a, b, out=nan)).all()
    x = np.zeros(12)
    spmm(a, b[:, 0].copy(), out=x)
    np.testing.assert_array_equal(x, (a @ b)[:, 0])
    np.testing.assert_array_equal(spmm(a.T, c), spmm(a, c, transpose=True))
    np.testing.assert_array_equal(spmm(a.T, b, transpose=True), a @ b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_for_any_thread_count(rng, dtype):
    a = random_matrix(rng, (200, 144), 8, dtype=dtype)
    b = dense_operand(rng, (144, 33), dtype)
    results = []
    for threads in (1, 2, 3, 7):
        with tartan.Context(threads=threads) as context:
            assert context.threads == threads
            results.append(spmm(a, b, context=context).tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_sddmm(rng, dtype):
    layout = random_layout(rng, (19, 23), (4, 5))
    x, y = dense_operand(rng, (19, 6), dtype), dense_operand(rng, (6, 23), dtype)
    s = tartan.sddmm(layout, x, y)
    assert s.dtype_name == dtype
    full = np.asarray(x, float) @ np.asarray(y, float)
    wanted = BlockMatrix.from_dense(full, layout=layout).toarray()
    eps = {"float64": 1e-14, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}[dtype]
    np.testing.assert_allclose(s.astype("float64").toarray(), wanted, atol=eps * np.abs(full).max())


def test_sddmm_accumulates_pairs(rng):
    layout = random_layout(rng, (12, 8), 4)
    xs = [rng.standard_normal((12, k)) for k in (3, 5)]
    ys = [rng.standard_normal((k, 8)) for k in (3, 5)]
    s = tartan.sddmm(layout, xs, ys)
    again = tartan.sddmm(s.copy(), xs, ys, alpha=0.5, beta=2)
    np.testing.assert_allclose(again.values, 2.5 * s.values, rtol=1e-13, atol=1e-13)
    gates = (np.arange(layout.blocks) % 2).astype(float)
    gated = tartan.sddmm(layout, xs, ys, gates=gates)
    np.testing.assert_allclose(gated.values, s.values * gates[:, None, None], rtol=1e-13, atol=1e-13)


def test_gradients_agree_with_finite_differences(rng):
    a = random_matrix(rng, (8, 12), 4, 0.6)
    x, dy = rng.standard_normal((12, 3)), rng.standard_normal((8, 3))
    da = tartan.sddmm(a.layout, dy, x.T)
    for i in range(0, a.values.size, 7):
        place = np.unravel_index(i, a.values.shape)
        up, down = a.copy(), a.copy()
        up.values[place] += 0.5
        down.values[place] -= 0.5
        np.testing.assert_allclose(da.values[place], ((up @ x - down @ x) * dy).sum(), rtol=1e-10, atol=1e-12)


def test_gate_gradient(rng):
    w, dw = (random_matrix(np.random.default_rng(1), (8, 12), 4, 0.6) for _ in range(2))
    dw.values[:] = rng.standard_normal(dw.values.shape)
    before, gates = dw.values.copy(), rng.standard_normal(w.blocks)
    np.testing.assert_allclose(tartan.gate_gradient(w, dw), (w.values * before).sum((1, 2)), rtol=1e-12)
    tartan.gate_gradient(w, dw, gates=gates)
    np.testing.assert_allclose(dw.values, before * gates[:, None, None])


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_growth_score(rng, norm):
    x, y = rng.standard_normal((10, 3)), rng.standard_normal((3, 7))
    xp, yp = np.zeros((12, 3)), np.zeros((3, 8))
    xp[:10], yp[:, :7] = x, y
    fold = (
        (lambda v, axis: np.abs(v).max(axis))
        if norm == "max"
        else (lambda v, axis: np.sqrt((v**2).sum(axis)))
    )
    wanted = 2 * fold(xp.reshape(3, 4, 3), 1) @ fold(yp.reshape(3, 2, 4), 2)
    score = tartan.growth_score(x, y, 4, norm=norm, scale=2)
    np.testing.assert_allclose(score, wanted, rtol=1e-13)
    again = tartan.growth_score([x, x], [y, y], 4, norm=norm, scale=1, beta=1, out=score)
    np.testing.assert_allclose(again, 2 * wanted, rtol=1e-13)


def test_growth_score_of_the_true_gradient(rng):
    """Noise, and one correlated block, which bounds by norms do not tell from noise."""
    x, y = rng.standard_normal((64, 256)), rng.standard_normal((256, 64))
    x[16:32] += 0.5 * y[:, 32:48].T
    gradient = (x @ y).reshape(4, 16, 4, 16)
    score = tartan.growth_score(x, y, 16, norm="gradient")
    np.testing.assert_allclose(score, np.sqrt((gradient**2).sum((1, 3))), rtol=1e-12)
    assert score.argmax() == 6 and score[1, 2] > 2 * np.median(score)
    bound = tartan.growth_score(x, y, 16, norm="l2")
    assert (bound >= score).all()
    halves = tartan.growth_score([x[:, :100], x[:, 100:]], [y[:100], y[100:]], 16, norm="gradient")
    np.testing.assert_allclose(halves, score, rtol=1e-12)
    batch = x.reshape(64, 16, 16).transpose(1, 0, 2), y.reshape(16, 16, 64)
    np.testing.assert_allclose(tartan.growth_score(*batch, 16, norm="gradient"), score, rtol=1e-12)


def test_lists_and_other_libraries(rng):
    a = random_matrix(rng, (4, 4), 2)
    np.testing.assert_array_equal(a @ [1, 2, 3, 4], a @ np.array([1.0, 2, 3, 4]))
    import array

    np.testing.assert_array_equal(a @ array.array("d", [1, 2, 3, 4]), a @ [1, 2, 3, 4])

    class Foreign:
        """An array library that has DLPack alone."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    b = rng.standard_normal((4, 3))
    np.testing.assert_array_equal(a @ Foreign(b), a @ b)
    out = np.zeros((4, 3))
    target = Foreign(out)
    assert spmm(a, b, out=target) is target
    np.testing.assert_array_equal(out, a @ b)


def test_operands_are_given_back(rng):
    """A factor that tells the dtype of a new matrix is looked at twice."""

    class Other(np.ndarray):
        pass

    layout = random_layout(rng, (12, 9), 3, 0.5)
    x, y = rng.standard_normal((12, 5)).view(Other), rng.standard_normal((5, 9)).view(Other)
    tartan.sddmm(layout, x, y)
    before = sys.getrefcount(x), sys.getrefcount(y)
    for _ in range(5):
        tartan.sddmm(layout, x, y)
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before


def test_torch(rng):
    torch = pytest.importorskip("torch")
    a = random_matrix(rng, (4, 4), 2, dtype="bfloat16")
    b = torch.ones(4, 3, dtype=torch.bfloat16)
    assert (a @ b).shape == (4, 3)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "i4", "u1", "?", ">f8", ">i4"])
@pytest.mark.parametrize("transpose", [False, True])
def test_operands_of_other_dtypes(rng, dtype, transpose):
    a = random_matrix(rng, (9, 9), (4, 2))
    w = a.T if transpose else a
    x = (8 * rng.standard_normal((9, 3))).astype(dtype)
    for left in (x, x[:, 0], x[::-1, ::2]):
        np.testing.assert_array_equal(w @ left, w @ left.astype("f8"))
    np.testing.assert_array_equal(x.T @ w, x.T.astype("f8") @ w)
    out = np.empty((9, 3))
    assert tartan.spmm(w, x, out=out) is out
    np.testing.assert_array_equal(out, w @ x.astype("f8"))
    gates = np.arange(a.blocks).astype(dtype)
    np.testing.assert_array_equal(
        tartan.spmm(a, np.ones(9), gates=gates), tartan.spmm(a, np.ones(9), gates=gates.astype("f8"))
    )
    sampled = tartan.sddmm(a.copy(), x, x.T)
    np.testing.assert_array_equal(sampled.values, tartan.sddmm(a.copy(), x.astype("f8"), x.T.astype("f8")).values)


def test_casting(rng):
    a = random_matrix(rng, (8, 8), 2, dtype="float32")
    x = rng.standard_normal((8, 3))
    for casting in ("same_kind", "unsafe"):
        found = tartan.spmm(a, x, casting=casting)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, a @ x.astype("f4"))
        np.testing.assert_array_equal(tartan.sddmm(a.copy(), [x], [x.T], casting=casting).values,
                                      tartan.sddmm(a.copy(), x.astype("f4"), x.T.astype("f4")).values)  # fmt: skip
    z = tartan.spmm(a, x + 1j, casting="same_kind")
    assert z.dtype == np.complex64
    np.testing.assert_array_equal(tartan.spmm(a, np.arange(8), casting="same_kind"), a @ np.arange(8, dtype="f4"))
    np.testing.assert_array_equal(a @ np.arange(8, dtype="i2"), a @ np.arange(8, dtype="f4"))  # safe

    class Frame:  # of pandas
        def __array__(self, dtype=None, copy=None):
            return x

    np.testing.assert_array_equal(tartan.spmm(a, Frame(), casting="same_kind"), a @ x.astype("f4"))
    integers = BlockMatrix.from_dense(np.eye(4, dtype=int), 2, dtype="float32")
    assert integers.dtype == np.float32 and integers.trace() == 4


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_complex_operands(rng, dtype):
    a = random_matrix(rng, (8, 12), (4, 3), dtype=dtype)
    dense, kind = a.toarray(), np.result_type(dtype, "c8")
    z = (rng.standard_normal((12, 5)) + 1j * rng.standard_normal((12, 5))).astype(kind)
    for b in (z, z[:, 0], np.asfortranarray(z), z[:, ::2], z.reshape(12, 5)[None]):
        found = a @ b
        assert found.dtype == kind and found.shape == (dense @ b).shape
        np.testing.assert_array_equal(found.real, a @ np.ascontiguousarray(b.real))
        np.testing.assert_array_equal(found.imag, a @ np.ascontiguousarray(b.imag))
    np.testing.assert_allclose(z.T @ a.T, z.T @ dense.T, rtol=1e-4)
    out = np.ones((8, 5), kind)
    assert tartan.spmm(a, z, alpha=2, beta=3, out=out) is out
    np.testing.assert_allclose(out, 2 * dense @ z + 3, rtol=1e-4)
    with pytest.raises(tartan.ShapeError, match="b has shape"):
        a @ z[:7]


@pytest.mark.parametrize("kind", ["matrix", "transpose", "csr", "coo", "integers"])
def test_products_of_two_sparse_matrices(rng, kind):
    sparse = pytest.importorskip("scipy.sparse")
    a = random_matrix(rng, (8, 12), (4, 3))
    b = {
        "matrix": lambda: random_matrix(rng, (12, 7), (2, 5)), "transpose": lambda: random_matrix(rng, (7, 12), 3).T,
        "csr": lambda: sparse.random_array((12, 7), density=0.3, rng=rng, format="csr"),
        "coo": lambda: sparse.random_array((12, 7), density=0.3, rng=rng),
        "integers": lambda: sparse.csr_array(rng.integers(0, 3, (12, 7))),
    }[kind]()  # fmt: skip
    for left in (a, random_matrix(rng, (12, 8), 4).T):
        found = left @ b
        assert isinstance(found, BlockMatrix) and found.block_shape[0] == left.block_shape[0]
        np.testing.assert_allclose(found.toarray(), left.toarray() @ b.toarray(), atol=1e-14)
    np.testing.assert_allclose((2 * a).dot(b).toarray(), tartan.spmm(a, b, alpha=2).toarray())
    np.testing.assert_allclose(tartan.spmm(a.T, b.T, side="right").toarray(), b.T.toarray() @ a.toarray().T, atol=1e-14)
    if sparse.issparse(b):  # SciPy's on the left
        found = b.T @ a.T
        assert isinstance(found, BlockMatrix)
        np.testing.assert_allclose(found.toarray(), b.T.toarray() @ a.toarray().T, atol=1e-14)
        scaled = sparse.diags_array(np.arange(8.0)) @ a
        np.testing.assert_allclose(scaled.toarray(), np.arange(8.0)[:, None] * a.toarray())
    gram = a.T @ a
    np.testing.assert_allclose(gram.toarray(), a.toarray().T @ a.toarray(), atol=1e-14)
    assert gram.isclose_all(gram.T)


def test_windows_of_one_buffer_are_apart(rng):
    a = random_matrix(rng, (8, 8), 2)
    memory = rng.standard_normal((8, 12))
    wanted = a @ memory[:, :4].copy()
    np.testing.assert_array_equal(tartan.spmm(a, memory[:, :4], out=memory[:, 4:8]), wanted)
    np.testing.assert_array_equal(memory[:, 4:8], wanted)
    tartan.spmm(a, memory[:, ::2], out=memory[:, 1::2])
    with pytest.raises(tartan.ArgumentError, match="out overlaps b"):
        tartan.spmm(a, memory[:, :4], out=memory[:, 3:7])


def test_growth_score_keeps_the_dtype_of_x(rng):
    x, y = rng.standard_normal((8, 5)).astype("f4"), rng.standard_normal((5, 12)).astype("f4")
    assert tartan.growth_score(x, y, 4).dtype == tartan.growth_score([x, x], [y, y], 4).dtype == np.float32
    np.testing.assert_array_equal(tartan.growth_score(x.astype("f8"), y, 4), tartan.growth_score(x.astype("f8"), y.astype("f8"), 4))
    np.testing.assert_array_equal(tartan.growth_score(np.ones((8, 5), int), y, 4), tartan.growth_score(np.ones((8, 5)), y.astype("f8"), 4))
    with pytest.raises(tartan.DTypeError, match="y\\[0\\] is of float64, expected float32"):
        tartan.growth_score(x, y.astype("f8"), 4)


def test_growth_score_of_a_batch(rng):
    x, y = rng.standard_normal((2, 3, 8, 5)), rng.standard_normal((2, 3, 5, 12))
    wanted = sum(tartan.growth_score(x[i, j], y[i, j], (4, 3)) for i in range(2) for j in range(3))
    np.testing.assert_allclose(tartan.growth_score(x, y, [4, 3]), wanted)
    out = np.ones_like(wanted)
    assert tartan.growth_score(x, y, (4, 3), beta=2.0, out=out) is out
    np.testing.assert_allclose(out, wanted + 2)
    for wrong in (y[0], y[:, :2]):
        with pytest.raises(tartan.ShapeError, match="batch dimensions of x"):
            tartan.growth_score(x, wrong, 4)
    with pytest.raises(tartan.ShapeError, match="one or more"):
        tartan.growth_score(x[:0], y[:0], 4)
