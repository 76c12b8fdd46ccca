# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors in host memory; test_gpu.py has those on a GPU."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_product, random_matrix

import tartan
from tartan import BlockMatrix, spmm

torch = pytest.importorskip("torch")
DTYPES = ["float64", "float32", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["matrix", "column-major", "strided", "vector", "batch"])
def test_products_are_tensors(rng, dtype, form):
    a = random_matrix(rng, (24, 16), 8, dtype=dtype)
    shape = {"vector": (16,), "batch": (3, 16, 5), "strided": (32, 10)}.get(form, (16, 5))
    x = torch.from_numpy(rng.standard_normal(shape)).to(getattr(torch, dtype))
    if form == "column-major":
        x = x.T.contiguous().T
    if form == "strided":
        x = x[::2, ::2]
    wide = a.astype("float64").toarray()
    for op, y in ((wide, a @ x), (wide, spmm(a, x)), (wide, a.T.T @ x)):
        assert isinstance(y, torch.Tensor) and y.dtype == x.dtype
        assert_product(y.double().numpy(), op, x.double().numpy(), dtype)
    if form == "column-major":
        assert (a @ x).stride() == (1, 24)
    out = torch.full((*shape[:-2], 24, 5) if form in ("matrix", "batch") else (a @ x).shape, 7.0, dtype=x.dtype)
    assert spmm(a, x, out=out) is out
    assert torch.equal(out, a @ x)
    if form == "matrix":
        left = x.T.contiguous()
        assert_product((left @ a.T).double().numpy(), left.double().numpy(), wide.T, dtype)


def test_other_operations(rng):
    a = random_matrix(rng, (24, 16), 8, dtype="float32")
    x, y = torch.randn(24, 6), torch.randn(6, 16)
    s = tartan.sddmm(a.layout, x, y)
    np.testing.assert_array_equal(s.values, tartan.sddmm(a.layout, x.numpy(), y.numpy()).values)
    gates = torch.rand(a.blocks)
    assert torch.equal(spmm(a, y.T.contiguous(), gates=gates),
                       torch.from_numpy(spmm(a, y.T.numpy().copy(), gates=gates.numpy())))  # fmt: skip
    gradient = tartan.gate_gradient(a, s, gates=gates)
    assert isinstance(gradient, torch.Tensor) and gradient.shape == (a.blocks,)
    assert isinstance(tartan.gate_gradient(a, s), np.ndarray)
    score = tartan.growth_score(x, y, 8)
    assert isinstance(score, torch.Tensor) and score.shape == (3, 2)
    np.testing.assert_array_equal(score.numpy(), tartan.growth_score(x.numpy(), y.numpy(), 8))
    eight = a.astype("float8_e4m3fn")
    z = eight @ torch.eye(16).to(torch.float8_e4m3fn)
    assert z.dtype == torch.float32
    np.testing.assert_array_equal(z.numpy(), eight.astype("float32").toarray())


def test_memory_is_shared(rng):
    values = torch.zeros(2, 4, 4, dtype=torch.bfloat16)
    w = BlockMatrix(tartan.Layout.from_mask([[1, 0], [0, 1]], 4), values)
    values[0, 0, 1] = 2
    assert w[0, 1] == 2
    assert (w @ torch.ones(8, dtype=torch.bfloat16)).tolist() == [2] + [0] * 7
    del values
    assert w[0, 1] == 2


@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16", "float8_e4m3fn", "float32"])
def test_masks_that_are_tensors(dtype):
    mask = torch.tensor([[1, 0, 1], [0, 1, 0]])
    assert tartan.Layout.from_mask(mask.to(getattr(torch, dtype)), 4) == tartan.Layout.from_mask(mask.numpy(), 4)


def test_gradients_are_not_lost(rng):
    a = random_matrix(rng, (8, 8), 4, dtype="float32")
    x = torch.nn.Parameter(torch.randn(8, 3))
    out = torch.zeros(8, 3)
    for call in (lambda: tartan.sddmm(a.layout, x, torch.ones(3, 8)), lambda: spmm(a, x.detach(), out=x),
                 lambda: tartan.growth_score(2 * x, torch.ones(3, 8), 4)):  # fmt: skip
        with pytest.raises(tartan.ArgumentError, match="requires gradients, which this call does not record"):
            call()
    with pytest.raises(tartan.ArgumentError, match="out is given, expected none where PyTorch records gradients"):
        spmm(a, x, out=out)
    assert not out.any()
    with torch.no_grad():
        assert torch.equal(a @ x, a @ x.detach())
        weight = torch.nn.Parameter(torch.zeros(8, 3))
        assert spmm(a, x, out=weight) is weight and torch.equal(weight, a @ x)
    assert torch.equal(a @ x.detach(), torch.from_numpy(a @ x.detach().numpy()))


def test_parameters_where_nothing_is_recorded(rng):
    a = random_matrix(rng, (8, 8), 4, dtype="float32")
    values, dense = torch.nn.Parameter(torch.randn(a.blocks, 4, 4)), torch.nn.Parameter(torch.randn(8, 8))
    for call in (lambda: BlockMatrix(a.layout, values), lambda: BlockMatrix.from_dense(dense, 4),
                 lambda: tartan.Layout.from_dense(dense, 4), lambda: BlockMatrix.from_torch(dense.to_sparse_bsr(4))):  # fmt: skip
        with pytest.raises(tartan.ArgumentError, match="requires gradients"):
            call()
        with torch.no_grad():
            call()
    with pytest.raises(tartan.ArgumentError, match=r"spmm\(layout, b, values=values\) does"):
        BlockMatrix(a.layout, values)
    with torch.no_grad():
        w = BlockMatrix(a.layout, values)
        values[0, 0, 0] = 7
        assert w.values[0, 0, 0] == 7
        np.testing.assert_array_equal(BlockMatrix.from_dense(dense, 4).toarray(), dense.numpy())


@pytest.mark.parametrize("turned", [False, True])
def test_operators_with_tensors(rng, turned):
    w = random_matrix(rng, (6, 8), 2)
    w, dense = (w.T, torch.from_numpy(w.toarray()).T) if turned else (w, torch.from_numpy(w.toarray()))
    x, row = torch.from_numpy(rng.standard_normal(w.shape)), torch.arange(1.0, w.shape[1] + 1)
    for found, wanted in (
        (w + x, dense + x), (x + w, x + dense), (w - x, dense - x), (x - w, x - dense), (w + row, dense + row),
        (w == dense, dense == dense), (dense == w, dense == dense), (w != x, dense != x), (w < x, dense < x), (x < w, x < dense),
    ):  # fmt: skip
        assert isinstance(found, torch.Tensor) and torch.equal(found, wanted)
    for found, wanted in (
        (w * x, dense * x), (x * w, dense * x), (w / row, dense / row.double()), (w * torch.tensor(2.0), 2 * dense),
        (torch.tensor(2.0) * w, 2 * dense), (w / torch.tensor(4.0), dense / 4),
    ):  # fmt: skip
        np.testing.assert_allclose(found.toarray(), wanted.numpy(), rtol=1e-14)
    np.testing.assert_array_equal(w[x > 0], dense[x > 0])
    np.testing.assert_array_equal((w == torch.tensor(0.5)).toarray(), dense == 0.5)
    assert (w != torch.tensor(0.0)).nnz == w.count_nonzero()
    with pytest.raises(tartan.ShapeError, match="a row or a column"):
        w + x[:3]
    weight = x.clone().requires_grad_()
    (w + weight).sum().backward()  # of a sum PyTorch records itself
    assert torch.equal(weight.grad, torch.ones_like(x))
    for call in (lambda: w * weight, lambda: w.scale(rows=weight[:, 0]), lambda: w.add_diagonal(weight[0]),
                 lambda: w.setdiag(weight[0])):  # fmt: skip
        with pytest.raises(tartan.ArgumentError, match="requires gradients"):
            call()


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e4m3fn"])
def test_bsr_there_and_back(rng, dtype):
    a = random_matrix(rng, (24, 16), (8, 4), dtype=dtype)
    t = a.to_torch()
    assert t.layout == torch.sparse_bsr and t.shape == a.shape and t.dtype == getattr(torch, dtype)
    back = BlockMatrix.from_torch(t)
    assert back.layout == a.layout and back.dtype_name == dtype
    np.testing.assert_array_equal(back.astype("float64").values, a.astype("float64").values)
    t.values()[0, 0, 0] = 3  # one memory
    assert float(a[tuple(int(x[0]) * b for x, b in zip(a.layout.coordinates()[-2:], (8, 4)))]) == 3 == float(back.astype("float32").values[0, 0, 0])
    copied = BlockMatrix.from_torch(t, copy=True)
    t.values()[0, 0, 0] = 4
    assert float(copied.astype("float32").values[0, 0, 0]) == 3
    if dtype in ("float32", "float64"):
        np.testing.assert_array_equal(t.to_dense().numpy(), a.toarray())
        np.testing.assert_array_equal(a.T.to_torch().to_dense().numpy(), a.toarray().T)
        half = BlockMatrix.from_torch(t, dtype="float16")
        np.testing.assert_array_equal(half.values, a.values.astype("float16"))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_other_sparse_tensors(rng):
    dense = torch.from_numpy(random_matrix(rng, (24, 16), 4).toarray() * (rng.random((24, 16)) < 0.5))
    dense[3, 5], dense[5, 3] = 1, 2
    for t, block in (
        (dense.to_sparse_bsr((4, 4)), None), (dense.to_sparse_bsc((8, 4)), None), (dense.to_sparse_bsc((8, 4)), (8, 4)),
        (dense.to_sparse_csr(), 4), (dense.to_sparse_csc(), (8, 2)), (dense.to_sparse(), 5),
    ):  # fmt: skip
        np.testing.assert_array_equal(BlockMatrix.from_torch(t, block).toarray(), dense.numpy())
    twice = torch.sparse_coo_tensor([[1, 1, 0], [2, 2, 0]], [1.0, 2.0, 4.0], (4, 4))
    np.testing.assert_array_equal(BlockMatrix.from_torch(twice, 2).toarray(), twice.to_dense().numpy())
    turned = torch.sparse_bsr_tensor([0, 2], [1, 0], torch.arange(8.0).reshape(2, 2, 2), (2, 4))  # not in order of columns
    np.testing.assert_array_equal(BlockMatrix.from_torch(turned).toarray(), [[4, 5, 0, 1], [6, 7, 2, 3]])
    bf16 = dense.bfloat16().to_sparse_csr()
    np.testing.assert_array_equal(BlockMatrix.from_torch(bf16, 4).astype("float32").toarray(), dense.bfloat16().float().numpy())
    assert BlockMatrix.from_torch(bf16, 4).dtype_name == "bfloat16"


@pytest.mark.filterwarnings("ignore:Sparse")
def test_bsr_without_blocks():
    for shape, heads in (((4, 6), ()), ((4, 6), (2,))):
        empty = torch.zeros(*heads, *shape).to_sparse_bsr((2, 3))
        w = BlockMatrix.from_torch(empty)
        assert w.blocks == 0 and w.shape == (*heads, *shape) and w.block_shape == (2, 3)


def test_bsr_of_heads(rng):
    layout = tartan.Layout.from_mask([[[1, 0], [1, 1]], [[0, 1], [1, 1]]], 2)
    a = BlockMatrix(layout, rng.standard_normal((6, 2, 2)))
    t = a.to_torch()
    assert t.shape == (2, 4, 4)
    np.testing.assert_array_equal(t.to_dense().numpy(), a.toarray())
    assert BlockMatrix.from_torch(t).layout == layout
    np.testing.assert_array_equal(BlockMatrix.from_torch(t).toarray(), a.toarray())


@pytest.mark.filterwarnings("ignore:Sparse")
def test_batches_of_entries_become_heads(rng):
    pattern = rng.random((10, 7)) < 0.4
    dense = torch.from_numpy(rng.standard_normal((3, 10, 7)) * pattern)  # CSR wants as many entries in each
    dense[1] = dense[1].flip(0)
    for t in (dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse(), dense.to_sparse_csr().float()):
        for block in (4, (3, 2)):
            w = BlockMatrix.from_torch(t, block)
            assert w.heads == 3 and w.layout == tartan.Layout.from_dense(dense.numpy(), block)
            np.testing.assert_array_equal(w.toarray(), t.to_dense().numpy())
    twice = torch.sparse_coo_tensor([[1, 1, 0], [1, 1, 0], [2, 2, 0]], [1.0, 2.0, 4.0], (2, 4, 4))
    for dtype in ("float16", torch.float64, np.float32):
        w = BlockMatrix.from_torch(twice, 2, dtype=dtype)
        assert w.dtype == np.dtype(str(dtype).rpartition(".")[2] if isinstance(dtype, torch.dtype) else dtype)
        np.testing.assert_array_equal(w.toarray(), twice.to_dense().numpy())
    assert BlockMatrix.from_torch(torch.zeros(2, 4, 6).to_sparse_csr(), 2).shape == (2, 4, 6)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_that_are_refused(rng):
    eye = torch.eye(4)
    for kind, words, call in (
        (tartan.ArgumentTypeError, "tensor is of type ndarray", lambda: BlockMatrix.from_torch(np.eye(4))),
        (tartan.ArgumentTypeError, "layout torch.strided, .*from_dense", lambda: BlockMatrix.from_torch(eye, 2)),
        (tartan.ArgumentError, "block is None", lambda: BlockMatrix.from_torch(eye.to_sparse_csr())),
        (tartan.ArgumentError, "block is 4, expected \\(2, 2\\)", lambda: BlockMatrix.from_torch(eye.to_sparse_bsr(2), 4)),
        (tartan.DTypeError, "int64", lambda: BlockMatrix.from_torch(eye.long().to_sparse_csr(), 2)),
        (tartan.DTypeError, "int64", lambda: BlockMatrix.from_torch(eye.long().expand(2, 4, 4).to_sparse(), 2)),
        (tartan.ShapeError, "4 dimensions", lambda: BlockMatrix.from_torch(eye.expand(2, 2, 4, 4).to_sparse(), 2)),
        (tartan.ShapeError, "1 of them dense", lambda: BlockMatrix.from_torch(eye.expand(2, 4, 4).to_sparse(2), 2)),
        (tartan.ShapeError, "no multiple of the block", lambda: BlockMatrix.from_dense(np.eye(5), 2).to_torch()),
        (tartan.ShapeError, "heads have 1 to 2 blocks",
         lambda: BlockMatrix.zeros(tartan.Layout.from_mask([[[1, 1]], [[1, 0]]], 2)).to_torch()),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()


def test_what_is_refused(rng):
    a = random_matrix(rng, (8, 8), 4, dtype="float32")
    negative = torch.imag(torch.complex(torch.ones(8), torch.ones(8)).conj())
    assert negative.is_neg()  # its memory holds the opposite numbers
    for kind, words, x in (
        (tartan.ArgumentError, "b has its negative bit set", negative),
        (tartan.ArgumentError, "b cannot be used in place: .*layout", torch.eye(8).to_sparse()),
        (tartan.ArgumentError, "b cannot be used in place", torch.eye(8).to_sparse_csr()),
        (tartan.DTypeError, "b has 8-byte integer elements", torch.ones(8, dtype=torch.int64)),
        (tartan.DTypeError, "b has 8-byte other elements", torch.ones(8, dtype=torch.complex64)),
        (tartan.DTypeError, "b is of float64, expected float32", torch.ones(8, dtype=torch.float64)),
        (tartan.ShapeError, "b has shape", torch.ones(7)),
    ):
        with pytest.raises(kind, match=words):
            a @ x
    assert (a @ torch.ones(8, device="meta")).shape == (8,)
    assert torch.equal(torch.func.vmap(lambda x: a @ x)(torch.ones(3, 8))[1], a @ torch.ones(8))
    with pytest.raises(tartan.ArgumentError, match="out overlaps b"):
        spmm(a, (x := torch.ones(8, 2)), out=x)


def test_without_the_exchange_interface(rng, monkeypatch):
    """As PyTorch before 2.10: through __dlpack__."""
    code = """
import torch, numpy as np, tartan
class Old(torch.Tensor):
    __dlpack_c_exchange_api__ = None
a = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]).astype("f4"), 2)
x = torch.ones(4, 3).as_subclass(Old)
y = a @ x
assert tartan._raw.exchange_queue(x) is None and isinstance(y, torch.Tensor)
assert y.tolist() == [[i] * 3 for i in (1, 2, 3, 4)]
b = a.astype("bfloat16") @ torch.ones(4, 3, dtype=torch.bfloat16).as_subclass(Old)
assert b.dtype == torch.bfloat16 and b.tolist() == y.tolist()
(a @ x.requires_grad_()).sum().backward()
assert x.grad.tolist() == y.tolist()
try: tartan.sddmm(a, x, x.T)
except tartan.ArgumentError as error: assert "gradient" in str(error)
else: raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bfloat16_needs_no_ml_dtypes():
    code = """
import sys; sys.modules["ml_dtypes"] = None
import torch, numpy as np, tartan
w = tartan.BlockMatrix.from_dense(np.eye(4), 2, dtype="bfloat16")
y = w @ torch.ones(4, 2, dtype=torch.bfloat16)
assert y.dtype == torch.bfloat16 and y.tolist() == [[1, 1]] * 4
s = tartan.sddmm(w.layout, y, y.T)
assert s.dtype_name == "bfloat16" and s[0, 0] == 2
values = torch.ones(4, 2, 2, dtype=torch.bfloat16)
u, v = (tartan.BlockMatrix(tartan.Layout.pattern("dense", (4, 4), 2), values, copy=copy) for copy in (False, True))
values.zero_()
assert u[0, 0] == 0 and v[0, 0] == 1 and tartan.BlockMatrix.from_torch(v.to_torch())[3, 3] == 1
coo = torch.sparse_coo_tensor(torch.arange(4).repeat(2, 1), torch.ones(4, dtype=torch.bfloat16), (4, 4))
assert tartan.BlockMatrix.from_torch(coo, 2).dtype_name == "bfloat16" and tartan.BlockMatrix.from_torch(coo, 2)[1, 1] == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
