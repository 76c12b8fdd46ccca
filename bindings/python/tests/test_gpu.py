# SPDX-License-Identifier: Apache-2.0
"""On a real GPU, with the libraries that share its memory: PyTorch, CuPy, JAX, Numba."""

import gc
import threading

import numpy as np
import pytest
from conftest import EPS, assert_product, random_layout, random_matrix
from device_support import DEVICE_DTYPES as DTYPES
from device_support import HAS_GPU

import tartan
from tartan import BlockMatrix, DeviceArray, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_GPU, reason="no GPU here")


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def jax(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return pytest.importorskip("jax")


def weights(torch, rng, shape, block, dtype, density=0.4):
    """A matrix on the GPU, and its dense copy there in float64."""
    layout = random_layout(rng, shape, block, density)
    host = BlockMatrix.zeros(layout, "float32")
    host.values[:] = rng.standard_normal(host.values.shape)
    values = torch.from_numpy(host.values).cuda().to(getattr(torch, dtype))
    matrix = BlockMatrix.wrap(layout, values)
    dense = BlockMatrix(layout, values.double().cpu().numpy()).toarray()
    return matrix, torch.from_numpy(dense).cuda(), values


def check(y, a, b, dtype):
    """y = a @ b, given in float64 on the GPU."""
    assert_product(y.double().cpu().numpy(), a.cpu().numpy(), b.double().cpu().numpy(), dtype)


# ---- PyTorch ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("n", [64, 200])
def test_torch_products(torch, rng, dtype, block, n):
    w, dense, _ = weights(torch, rng, (512, 384), block, dtype)
    for op, a in ((w, dense), (w.T, dense.T)):
        x = torch.randn(a.shape[1], n, device="cuda", dtype=getattr(torch, dtype))
        y = op @ x
        assert isinstance(y, torch.Tensor) and y.dtype == x.dtype and y.is_cuda and y.shape == (a.shape[0], n)
        check(y, a, x, dtype)
        wanted = a @ x.double()
        ours, theirs = ((c.double() - wanted).abs().max() for c in (y, torch.matmul(a.to(x.dtype), x)))
        assert ours <= 8 * theirs + EPS[dtype]
        left = torch.randn(n, a.shape[0], device="cuda", dtype=x.dtype)
        check(spmm(w, left, side="right", transpose=op is not w), left.double(), a, dtype)
        check(left @ op, left.double(), a, dtype)


def test_torch_memory_is_used_in_place(torch, rng):
    w, dense, values = weights(torch, rng, (128, 96), 16, "float32")
    x = torch.randn(96, 40, device="cuda")
    out = torch.full((128, 40), 2.0, device="cuda")
    address = out.data_ptr()
    assert spmm(w, x, alpha=2, beta=0.5, out=out) is out and out.data_ptr() == address
    torch.testing.assert_close(out.double(), 2 * dense @ x.double() + 1, rtol=1e-4, atol=1e-4)
    wide = torch.zeros(128, 80, device="cuda")
    spmm(w, x, out=wide[:, ::2])
    check(wide[:, ::2], dense, x, "float32")
    assert not wide[:, 1::2].any()
    columns = torch.randn(40, 96, device="cuda").T
    y = w @ columns
    assert y.stride() == (1, 128)
    check(y, dense, columns, "float32")
    check(w @ x[:, 0], dense, x[:, 0], "float32")
    values.mul_(3)  # the matrix has the tensor's memory
    check(w @ x, 3 * dense, x, "float32")
    del values
    gc.collect()
    check(w @ x, 3 * dense, x, "float32")
    gates = torch.zeros(w.blocks, device="cuda")
    assert not spmm(w, x, gates=gates).any()


def test_torch_on_a_gpu_that_is_not_current(torch, rng):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    layout = random_layout(rng, (128, 96), 16, 0.4)
    values = torch.randn(layout.blocks, 16, 16)
    x = torch.randn(96, 40)
    results = []
    for device in ("cuda:0", "cuda:1"):
        w = BlockMatrix.wrap(layout, values.to(device))
        y = w @ x.to(device)
        assert y.device == torch.device(device)
        spmm(w, x.to(device), alpha=2, out=y)
        results.append(y.cpu())
    assert torch.cuda.current_device() == 0
    assert torch.equal(*results)


def test_torch_gradients(torch, rng):
    w, _, _ = weights(torch, rng, (128, 96), 16, "float32")
    x, dy = torch.randn(96, 40, device="cuda"), torch.randn(128, 40, device="cuda")
    dw = tartan.sddmm(w.layout, dy, x.T)
    assert dw.device == "cuda:0"
    got = torch.from_dlpack(dw.values)
    assert got.data_ptr() == dw.values._open.address
    wanted = BlockMatrix.from_dense((dy.double() @ x.double().T).cpu().numpy(), layout=w.layout)
    np.testing.assert_allclose(got.cpu().numpy(), wanted.values, rtol=1e-3, atol=1e-3)
    tartan.sddmm(dw, [dy, dy], [x.T, x.T], beta=1)
    np.testing.assert_allclose(got.cpu().numpy(), 3 * wanted.values, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_gradients(torch, rng, dtype):
    w, dense, values = weights(torch, rng, (128, 96), 16, dtype)
    x = torch.randn(96, 40, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
    values = values.requires_grad_()
    y, weight = spmm(w.layout, x, values=values), torch.randn(128, 40, device="cuda", dtype=x.dtype)
    check(y.detach(), dense, x.detach(), dtype)
    y.backward(weight)
    check(x.grad, dense.T, weight, dtype)
    wanted = BlockMatrix.from_dense((weight.double() @ x.detach().double().T).cpu().numpy(), layout=w.layout).values
    assert values.grad.is_cuda and np.abs(values.grad.double().cpu().numpy() - wanted).max() < 40 * EPS[dtype] * np.abs(wanted).max()
    x.grad = None
    (w @ x).backward(weight)
    check(x.grad, dense.T, weight, dtype)


def test_torch_refusals(torch, rng):
    w, _, _ = weights(torch, rng, (64, 64), 16, "float32")
    x = torch.randn(64, 8, device="cuda")
    with pytest.raises(tartan.UnsupportedError, match="b is on"):
        w @ torch.randn(64, 8)
    with pytest.raises(tartan.UnsupportedError, match="out is on"):
        spmm(w, x, out=torch.zeros(64, 8))
    with pytest.raises(tartan.UnsupportedError):
        random_matrix(rng, (64, 64), 16, dtype="float32") @ x
    with pytest.raises(tartan.DTypeError, match="b is of bfloat16, expected float32"):
        w @ x.bfloat16()
    with pytest.raises(tartan.DTypeError):
        w @ x.int()
    with pytest.raises(tartan.ArgumentError, match="overlap"):
        spmm(w, x, out=x)
    if torch.cuda.device_count() > 1:
        with pytest.raises(tartan.UnsupportedError):
            w @ x.to("cuda:1")
    check(w @ x, torch.from_numpy(w.to_host().toarray()).cuda().double(), x, "float32")  # all is well


def test_calls_follow_the_current_stream(torch, rng):
    """The operand is written after a long sleep on the stream: a product elsewhere would read what was
    before."""
    w, dense, _ = weights(torch, rng, (256, 256), 32, "float32")
    fresh = torch.randn(256, 64, device="cuda")
    w @ fresh
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(256, 64, device="cuda")
        torch.cuda._sleep(500_000_000)
        x.copy_(fresh)
        y = w @ x
        z = y * 2  # after ours
        done = torch.cuda.Event()
        done.record()
        assert not done.query()  # nothing was waited for
    stream.synchronize()
    check(y, dense, fresh, "float32")
    check(z, 2 * dense, fresh, "float32")


def test_a_context_on_another_stream_is_ordered(torch, rng):
    w, dense, _ = weights(torch, rng, (256, 256), 32, "float32")
    fresh = torch.randn(256, 64, device="cuda")
    context = tartan.Context("cuda", stream=torch.cuda.Stream())
    assert context.stream not in (0, 1)
    x, out = torch.zeros(256, 64, device="cuda"), torch.empty(256, 64, device="cuda")
    spmm(w, fresh, out=out, context=context)
    torch.cuda.synchronize()
    out.zero_()
    torch.cuda._sleep(200_000_000)
    x.copy_(fresh)
    spmm(w, x, out=out, context=context)  # after the copy, and done when it returns
    check(out, dense, fresh, "float32")
    own = to_device(fresh, context)
    torch.cuda._sleep(200_000_000)
    check(torch.from_dlpack(spmm(w, own, context=context)), dense, fresh, "float32")


def test_threads_with_streams(torch, rng):
    w, _, _ = weights(torch, rng, (256, 256), 32, "float32")
    x = torch.randn(256, 64, device="cuda")
    wanted = w @ x
    torch.cuda.synchronize()
    failures = []

    def work():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    y = w @ x
                torch.cuda.current_stream().synchronize()
                assert torch.equal(y, wanted)  # the same bits
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_tf32_is_asked_for(torch, rng):
    w, dense, _ = weights(torch, rng, (512, 512), 64, "float32", density=0.5)
    x = torch.randn(512, 256, device="cuda")
    with tartan.Context("cuda", math_mode="tf32") as rounded, tartan.Context("cuda") as exact:
        low, high = (spmm(w, x, context=c).double() for c in (rounded, exact))
        names = [tartan.explain(spmm, w, x, context=c)[0]["kernel"] for c in (rounded, exact)]
    wanted, weight = dense @ x.double(), dense.abs() @ x.abs().double()
    bound = (8 + 2 * np.sqrt(512)) * weight
    assert ((high - wanted).abs() <= bound * 2.0**-23).all()
    assert ((low - wanted).abs() <= bound * 2.0**-10).all()
    if names[0] != names[1]:
        assert (low - wanted).abs().max() > (high - wanted).abs().max()


def test_tf32_as_pytorch_is_asked_for_it(torch, rng):
    w, _, _ = weights(torch, rng, (512, 512), 64, "float32", density=0.5)
    x = torch.randn(512, 256, device="cuda")
    with tartan.Context("cuda", math_mode="tf32") as rounded, tartan.Context("cuda") as exact:
        low, high = (spmm(w, x, context=c) for c in (rounded, exact))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert torch.equal(w @ x, low)
        torch.set_float32_matmul_precision("highest")
        assert torch.equal(w @ x, high)
    finally:
        torch.set_float32_matmul_precision(before)


def test_explain_knows_the_orders(torch):
    """8 bits have a fast kernel on Hopper where the summed index is contiguous in both factors."""
    layout = tartan.Layout.pattern("dense", (512, 512), 64)
    hopper = torch.cuda.get_device_capability() == (9, 0)
    for blocks in "CF":
        w = tartan.BlockMatrix.zeros(layout, "float8_e4m3fn", order=blocks, context="cuda")
        for transpose in (False, True):
            for order in "CF":
                x = torch.zeros(256, 512, device="cuda").to(torch.float8_e4m3fn).t()
                x = x if order == "F" else x.contiguous()
                (plan,) = tartan.explain(spmm, w, x, transpose=transpose)
                kernel = plan["kernel"]
                fast = hopper and order == "F" and transpose == (blocks == "F")
                assert kernel == ("spmm_wgmma" if fast else "spmm_plain")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_copies_are_allowed(torch, rng, dtype):
    """PyTorch brings cuBLAS; without its own cuBLAS the test shows that the others serve."""
    w, dense, _ = weights(torch, rng, (720, 480), 24, dtype, density=1)
    x = torch.randn(480, 256, device="cuda").to(getattr(torch, dtype))
    y = torch.empty(720, 256, device="cuda", dtype=x.dtype)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with tartan.Context("cuda", stream=stream, allow_dense=True) as context, torch.cuda.stream(stream):
        (plan,) = tartan.explain(spmm, w, x, out=y, context=context)
        assert plan["kernel"] == "spmm_dense" or "cuBLAS was not found" in str(plan["refused"])
        spmm(w, x, out=y, context=context)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            spmm(w, x, out=y, context=context)
        y.fill_(torch.nan)
        graph.replay()
        stream.synchronize()
        check(y, dense, x, dtype)
        del graph


def test_device_memory_does_not_grow(torch, rng):
    a = random_matrix(rng, (256, 256), 32, dtype="float32")
    x = torch.randn(256, 64, device="cuda")

    def turn():
        w = a.to_device()
        y = w @ to_device(x)
        y.close()
        torch.from_dlpack(w.values)

    for _ in range(50):
        turn()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(500):
        turn()
    gc.collect()
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 2**22


@pytest.mark.parametrize("dtype", DTYPES)
def test_our_memory_in_torch(torch, rng, dtype):
    t = torch.randn(5, 7, device="cuda").to(getattr(torch, dtype))
    x = to_device(t)
    seen = torch.from_dlpack(x)
    assert seen.data_ptr() == x._open.address and torch.equal(seen, t)
    turned = torch.from_dlpack(x.T)
    assert turned.stride() == (1, 7)
    if dtype != "bfloat16":
        assert torch.as_tensor(x, device="cuda").data_ptr() == seen.data_ptr()
    x.close()
    del x
    seen.mul_(2)
    assert torch.equal(seen, 2 * t)  # the tensor keeps the memory


# ---- Others ----


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_cupy(cupy, rng, dtype):
    a = random_matrix(rng, (128, 96), 16, dtype=dtype)
    w = a.to_device()
    b = rng.standard_normal((96, 40)).astype(dtype)
    x = cupy.asarray(b)
    y = w @ x
    assert isinstance(y, cupy.ndarray) and y.dtype == x.dtype
    assert_product(y.get(), a.toarray(), b, dtype)
    out = cupy.zeros((128, 40), dtype)
    assert spmm(w, x, out=out) is out
    assert (out == y).all()
    assert (w @ cupy.asfortranarray(x)).flags.f_contiguous
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x2 = x * 2
        y2 = w @ x2
        stream.synchronize()
    assert_product(y2.get(), a.toarray(), 2 * b, dtype)
    ours = to_device(x)
    for seen in (cupy.from_dlpack(ours), cupy.asarray(ours)):
        assert seen.data.ptr == ours._open.address and (seen == x).all()
    wrapped = BlockMatrix.wrap(a.layout, cupy.asarray(a.values))
    assert_product((wrapped @ x).get(), a.toarray(), b, dtype)
    with tartan.Context("cuda", stream=cupy.cuda.Stream()) as context:
        assert_product(spmm(w, x, context=context).get(), a.toarray(), b, dtype)


def test_jax(jax, rng):
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    a = random_matrix(rng, (128, 96), 16, dtype="float32")
    w = a.to_device()
    b = rng.standard_normal((96, 40)).astype(np.float32)
    x = jax.numpy.asarray(b)
    y = w @ x
    assert isinstance(y, jax.Array)
    assert_product(np.asarray(y), a.toarray(), b, "float32")
    with pytest.raises(tartan.ArgumentTypeError, match="JAX"):
        spmm(w, x, out=y)
    bits = a.astype("bfloat16").to_device() @ x.astype(jax.numpy.bfloat16)
    assert bits.dtype == jax.numpy.bfloat16


def test_numba(rng):
    cuda = pytest.importorskip("numba.cuda")
    a = random_matrix(rng, (128, 96), 16, dtype="float32")
    b = rng.standard_normal((96, 40)).astype(np.float32)
    try:
        x, out = cuda.to_device(b), cuda.device_array((128, 40), np.float32)
    except Exception as error:
        pytest.skip(f"Numba cannot use this GPU: {error}")
    y = a.to_device() @ x
    assert isinstance(y, DeviceArray)
    spmm(a.to_device(), x, out=out)
    assert_product(out.copy_to_host(), a.toarray(), b, "float32")
    np.testing.assert_array_equal(y.to_host(), out.copy_to_host())
    np.testing.assert_array_equal(cuda.as_cuda_array(y).copy_to_host(), out.copy_to_host())
