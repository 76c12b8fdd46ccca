# SPDX-License-Identifier: Apache-2.0
"""Arrays, matrices and products on a device: a GPU, or the plug-in that poses as one (TARTAN_PLUGIN_PATH).
Memory of the latter is out of the processor's reach, so that whoever looks at it by mistake dies of it."""

import pickle
import sys
import types

import numpy as np
import pytest
from conftest import assert_product, random_matrix
from device_support import HAS_DEVICE, HOST_DTYPES, IS_DUMMY, random_array

import tartan
from tartan import BlockMatrix, DeviceArray, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize(
    "change",
    [
        lambda x: x,
        np.asfortranarray,
        lambda x: x.transpose(2, 0, 1),
        lambda x: x[::2, 1:, ::3],
        lambda x: x[:, ::-1],
        lambda x: x[:0],
        lambda x: x[0, 0, 0],
        lambda x: x[1, 2],
        lambda x: np.broadcast_to(x[:, :1], x.shape),
    ],
    ids="c f permuted sliced reversed empty scalar vector repeated".split(),
)
def test_round_trips(rng, dtype, change):
    x = np.asarray(change(random_array(rng, (4, 5, 6), dtype)))
    with to_device(x) as there:
        assert there.shape == x.shape and there.dtype == x.dtype and there.dtype_name == dtype
        assert there.device == "cuda:0" and there.ndim == x.ndim and there.size == x.size
        back = there.to_host()
    assert back.dtype == x.dtype and back.tobytes() == np.ascontiguousarray(x).tobytes()
    assert back.base is None or back.base.base is None  # memory of its own


def test_memory_orders():
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    assert to_device(x).strides == x.strides
    assert to_device(np.asfortranarray(x)).strides == np.asfortranarray(x).strides
    assert to_device(np.asfortranarray(x)).to_host().flags.f_contiguous
    assert to_device(x[:, ::2]).strides == np.ascontiguousarray(x[:, ::2]).strides
    a, b = DeviceArray.zeros((3, 5), "float32"), DeviceArray.zeros((3, 5), "float16", "cuda", order="F")
    assert a.strides == (20, 4) and b.strides == (2, 6) and not a.to_host().any() and not b.to_host().any()
    assert DeviceArray.zeros((), "float64").to_host().shape == () and DeviceArray.zeros(4).nbytes == 32
    assert len(a) == 3
    with pytest.raises(TypeError):
        len(DeviceArray.zeros(()))


def test_views_share_memory():
    x = np.arange(24.0).reshape(2, 3, 4)
    there = to_device(x)
    for view, wanted in [
        (there.T, x.T),
        (there.mT, x.swapaxes(1, 2)),
        (there.transpose(1, 0, 2), x.transpose(1, 0, 2)),
    ]:
        assert view.shape == wanted.shape and view.strides == wanted.strides
        np.testing.assert_array_equal(view.to_host(), wanted)
    again = to_device(there)  # a copy on the device
    there.close()
    np.testing.assert_array_equal(view.to_host(), wanted)  # the memory lives on
    np.testing.assert_array_equal(again.to_host(), x)
    with pytest.raises(tartan.ArgumentError, match="axes"):
        again.transpose(0, 0, 1)
    with pytest.raises(tartan.ShapeError, match="at least 2"):
        DeviceArray.zeros(3).mT


def test_the_source_may_change_at_once(rng):
    x = rng.standard_normal((500, 400))
    was = x.copy()
    there = to_device(x)
    x[:] = 0
    np.testing.assert_array_equal(there.to_host(), was)


# ---- Matrices ----


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_matrices_go_and_come(rng, dtype, order):
    a = random_matrix(rng, (20, 13), 8, dtype=dtype, order=order)
    there = a.to_device("cuda:0")
    assert (there.device, there.order, there.dtype_name, there.layout) == ("cuda:0", order, dtype, a.layout)
    assert "on cuda:0" in repr(there) and "on" not in repr(a).split("density")[1] and a.device == "cpu"
    values = there.values
    assert isinstance(values, DeviceArray) and values.shape == a.values.shape
    np.testing.assert_array_equal(values.to_host(), a.values)
    copy = there.copy()
    assert copy.device == "cuda:0"
    there.close()
    np.testing.assert_array_equal(values.to_host(), a.values)  # they keep the memory
    back = copy.to_host()
    assert back.device == "cpu" and back.order == order
    np.testing.assert_array_equal(back.values, a.values)


def test_matrices_around_device_memory(rng):
    a = random_matrix(rng, (16, 16), 8)
    values = to_device(a.values)
    for wrapped in (BlockMatrix(a.layout, values), BlockMatrix.wrap(a.layout, values)):
        assert wrapped.device == "cuda:0" and wrapped.values is values
    tartan.sddmm(wrapped, to_device(np.zeros((16, 1))), to_device(np.zeros((1, 16))), beta=2)
    np.testing.assert_array_equal(values.to_host(), 2 * a.values)
    own = BlockMatrix(a.layout, values, copy=True)
    values.close()
    np.testing.assert_array_equal(own.to_host().values, 2 * a.values)
    np.testing.assert_array_equal(wrapped.to_host().values, 2 * a.values)  # still held
    for order in "CF":
        zeros = BlockMatrix.zeros(a.layout, "float32", order=order, context="cuda")
        assert (zeros.device, zeros.order, zeros.dtype_name) == ("cuda:0", order, "float32")
        assert not zeros.to_host().values.any()
    with pytest.raises(tartan.ShapeError, match="values"):
        BlockMatrix(a.layout, to_device(a.values[:, :, :4]))


# ---- What the CPU alone does ----


def test_nothing_is_copied_unasked(rng):
    a = random_matrix(rng, (16, 16), 8)
    there, x, y = a.to_device(), rng.standard_normal((16, 3)), to_device(np.ones((16, 3)))
    host = np.full((16, 3), 7.0)
    for kind, call in [
        (tartan.UnsupportedError, lambda: there @ x),
        (tartan.UnsupportedError, lambda: a @ y),
        (tartan.UnsupportedError, lambda: there @ [1.0] * 16),
        (tartan.UnsupportedError, lambda: spmm(there, y, out=host)),
        (tartan.UnsupportedError, lambda: spmm(a, x, out=y)),
        (tartan.UnsupportedError, lambda: spmm(there, y, gates=np.ones(a.blocks))),
        (tartan.UnsupportedError, lambda: spmm(there, y, context="cpu")),
        (tartan.UnsupportedError, lambda: spmm(a, x, context="cuda")),
        (tartan.UnsupportedError, lambda: tartan.sddmm(there, x, x.T)),
        (tartan.UnsupportedError, lambda: tartan.sddmm(a, y, y.T)),
        (tartan.UnsupportedError, lambda: tartan.gate_gradient(a, there)),
        (tartan.UnsupportedError, lambda: tartan.checksum(y)),
        (tartan.UnsupportedError, lambda: BlockMatrix.from_dense(y, 8)),
        (tartan.UnsupportedError, lambda: a.toarray(out=y)),
        (tartan.UnsupportedError, lambda: there.toarray()),
        (tartan.UnsupportedError, lambda: there.fill_zero()),
        (tartan.UnsupportedError, lambda: there[0, 0]),
        (tartan.UnsupportedError, lambda: there.scatter(a, range(a.blocks))),
        (tartan.UnsupportedError, lambda: a.scatter(there, range(a.blocks))),
        (tartan.UnsupportedError, lambda: pickle.dumps(there)),
        (tartan.ArgumentTypeError, lambda: np.asarray(y)),
        (TypeError, lambda: x.T @ y),
        (TypeError, lambda: DeviceArray()),
    ]:
        with pytest.raises(kind):
            call()
    assert (host == 7).all()
    np.testing.assert_array_equal(y.to_host(), 1)


def test_texts_of_refusals(rng):
    a = random_matrix(rng, (16, 16), 8)
    with pytest.raises(tartan.UnsupportedError, match="spmm: b is on .*, expected .*context"):
        a.to_device() @ np.ones(16)
    with pytest.raises(tartan.UnsupportedError, match="x is on cuda:0, expected CPU memory"):
        tartan.checksum(DeviceArray.zeros(3))
    with pytest.raises(tartan.DTypeError, match="b is of float32, expected float64"):
        a.to_device() @ DeviceArray.zeros(16, "float32")
    with pytest.raises(tartan.ArgumentError, match="overlap"):
        both = DeviceArray.zeros((16, 2))
        spmm(a.to_device(), both, out=both)
    with pytest.raises(tartan.DeviceError, match="cuda:99|does not exist"):
        tartan.Context("cuda:99")
    with pytest.raises(tartan.ArgumentError, match='device is "gpu"'):
        to_device(np.ones(3), "gpu")
    with pytest.raises(tartan.DTypeError):
        to_device(np.arange(3, dtype=np.int16))
    with pytest.raises(tartan.ShapeError):
        DeviceArray.zeros((3, -1))
    with pytest.raises((tartan.SizeOverflowError, tartan.OutOfMemoryError)):
        DeviceArray.zeros((2**40, 2**40))


@pytest.mark.skipif(not IS_DUMMY, reason="needs two devices")
def test_two_devices(rng):
    a = random_matrix(rng, (16, 16), 8)
    x = rng.standard_normal((16, 3))
    far, near = a.to_device("cuda:1"), to_device(x)
    assert far.device == "cuda:1"
    for call in (lambda: far @ near, lambda: spmm(far, near, context="cuda:1"),
                 lambda: near.to_host("cuda:1")):  # fmt: skip
        with pytest.raises(tartan.UnsupportedError):
            call()
    assert_product((far @ to_device(x, "cuda:1")).to_host(), a.toarray(), x, "float64")
    moved, back = to_device(near, "cuda:1"), far.to_device("cuda:0")  # copies between devices
    assert moved.device == "cuda:1" and back.device == "cuda:0"
    assert_product((far @ moved).to_host(), a.toarray(), x, "float64")
    assert_product((back @ near).to_host(), a.toarray(), x, "float64")


# ---- Contexts ----


@pytest.mark.parametrize("asks", [lambda matmul: setattr(matmul, "fp32_precision", "tf32"), lambda matmul: setattr(matmul, "allow_tf32", True)])
def test_default_contexts_round_as_pytorch_does(monkeypatch, asks):
    if "torch" in sys.modules:
        pytest.skip("PyTorch itself is asked here (test_gpu.py)")
    matmul = types.SimpleNamespace(allow_tf32=False)  # of PyTorch before 2.9
    exact = tartan.default_context("cuda")
    torch = types.SimpleNamespace(backends=types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert tartan.default_context("cuda") is exact and exact.math_mode == "exact"
    asks(matmul)
    rounded = tartan.default_context("cuda")
    assert rounded is not exact and rounded.math_mode == "tf32" and rounded is tartan.default_context("cuda")
    assert tartan.default_context().math_mode == tartan.Context("cuda").math_mode == "exact"
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())  # while it is imported
    assert tartan.default_context("cuda") is exact


def test_contexts():
    context = tartan.default_context("cuda")
    assert context is tartan.default_context("cuda:0") and context.device == "cuda:0" and context.stream == 1
    assert repr(context) == "<Context, cuda:0>"
    assert tartan.default_context().device == "cpu" and tartan.default_context().stream is None
    context.close()
    assert not tartan.default_context("cuda").closed
    with tartan.Context("cuda", math_mode="tf32") as context:
        x = to_device(np.ones((3, 4)), context)
        np.testing.assert_array_equal(x.to_host(context), 1)
        context.sync()
    w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 32), "float32").fill_normal(seed=1)
    x = np.linspace(-1, 1, 64 * 40, dtype=np.float32).reshape(64, 40)
    modes = ["exact", "tf32", "bf16x3", "bf16x6"]
    assert [tartan.Context(math_mode=mode).math_mode for mode in modes] == modes
    for mode in modes[2:]:
        with tartan.Context(math_mode=mode) as context:
            (plan,) = tartan.explain(tartan.spmm, w, x, context=context)
            refused = {one["kernel"]: one["why"] for one in plan["refused"]}
            assert plan["kernel"] == f"spmm_{mode}" or "amx" in refused[f"spmm_{mode}"]
            bound = 2 ** -14 * (np.abs(w.to_dense()) @ np.abs(x))
            assert (np.abs(tartan.spmm(w, x, context=context) - w.to_dense().astype(float) @ x) <= bound).all()
    w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 32), "float32", context="cuda")
    for allowed in (False, True):
        with tartan.Context("cuda", allow_dense=allowed) as context:
            x = to_device(np.ones((64, 8), np.float32), context)
            (plan,) = tartan.explain(tartan.spmm, w, x, context=context)
            refused = str(plan["refused"])
            assert ("dense copy" in refused) != allowed
    with pytest.raises(tartan.ArgumentError, match="math_mode"):
        tartan.Context("cuda", math_mode="bf16")
    for options, text in [({"threads": "2"}, "threads is of type str"), ({"seed": 1.0}, "seed is of type float")]:
        with pytest.raises(TypeError, match=text):
            tartan.Context("cuda", **options)
    with pytest.raises(tartan.ArgumentError, match="seed is -1, expected"):
        tartan.Context("cuda", seed=-1)
    for bad, kind in [("s", TypeError), (object(), TypeError), (True, TypeError), (-1, ValueError)]:
        with pytest.raises(kind, match="stream is"):
            tartan.Context("cuda", stream=bad)
    with pytest.raises(tartan.ArgumentError, match="stream is 0x10, expected 0"):
        tartan.Context("cpu", stream=16)


def test_streams_of_other_libraries():
    class Device:
        index = 0

    class Torch:
        cuda_stream, device = 0, Device()

    class CuPy:
        ptr, device_id = 2, 0

    class Plain:
        def __cuda_stream__(self):
            return 0, 1

    for stream, address in [(Torch(), 1), (CuPy(), 2), (Plain(), 1), (0, 1), (np.int64(2), 2)]:
        with tartan.Context("cuda", stream=stream) as context:
            assert context.stream == address
    CuPy.device_id = 1
    with pytest.raises(tartan.ArgumentError, match="stream is of cuda:1, expected one of cuda:0"):
        tartan.Context("cuda", stream=CuPy())


def test_explain(rng):
    a = random_matrix(rng, (64, 32), 8, dtype="float32")
    x = np.ones((32, 16), np.float32)
    product = a @ x
    for w, b, device in [(a, x, "cpu"), (a.to_device(), to_device(x), "cuda:0")]:
        (plan,) = tartan.explain(tartan.spmm, w, b)
        assert plan["operation"] == "spmm" and plan["device"] == device and plan["kernel"] and plan["supported"]
        assert plan["flops"] == 2 * a.nnz * 16 and not plan["transposed"] and plan["side"] == "left"
        matrix, dense, out = plan["operands"]
        assert matrix["name"] == "a" and matrix["shape"] == [64, 32] and matrix["block"] == [8, 8]
        assert dense["dtype"] == "float32" and dense["shape"] == [32, 16] and out["shape"] == [64, 16]
    for order, name in [("C", "row-major"), ("F", "column-major")]:
        (plan,) = tartan.explain(lambda: a.astype(order=order) @ np.asarray(x, order=order))
        assert plan["operands"][0]["block_order"] == name
        assert plan["operands"][1]["strides"] == ([16, 1] if order == "C" else [1, 32])
    w, y = a.to_device(), to_device(np.ones((64, 4), np.float32))
    told = tartan.explain(lambda: (w.T @ y, tartan.sddmm(w, y, to_device(np.ones((4, 32), np.float32)))))
    assert [p["operation"] for p in told] == ["spmm", "sddmm"] and told[0]["transposed"]
    assert tartan.explain(lambda: None) == []
    np.testing.assert_array_equal(a @ x, product)  # what comes afterwards runs


def test_explain_and_errors(rng):
    a = random_matrix(rng, (64, 32), 8, dtype="float32")
    with pytest.raises(tartan.ShapeError):
        tartan.explain(tartan.spmm, a, np.ones((33, 4), np.float32))
    with pytest.raises(TypeError):
        tartan.explain(3)
    assert tartan.explain(tartan.spmm, a, np.ones((32, 4), np.float32))
    with pytest.raises(tartan.ArgumentError, match="explain was already called"):
        tartan.explain(tartan.explain, lambda: None)


def test_on_the_cpu_all_of_it_works_too(rng):
    a = random_matrix(rng, (16, 16), 8)
    x = rng.standard_normal((16, 3))
    here = to_device(x, "cpu")
    assert here.device == "cpu" and here.__dlpack_device__() == (1, 0)
    y = a.to_device("cpu") @ here
    assert isinstance(y, DeviceArray)
    np.testing.assert_array_equal(y.to_host(), a @ x)
    np.testing.assert_array_equal(np.from_dlpack(here), x)
    wrapped = BlockMatrix.wrap(a.layout, to_device(a.values, "cpu"))
    assert (
        isinstance(wrapped.values, np.ndarray)
        and (pickle.loads(pickle.dumps(wrapped)).values == a.values).all()
    )
    assert np.shares_memory(np.from_dlpack(here), np.from_dlpack(here))
    with pytest.raises(AttributeError):
        here.__cuda_array_interface__
    assert not hasattr(here, "__cuda_array_interface__")
