# SPDX-License-Identifier: Apache-2.0
"""Device memory of other libraries in, ours out: DLPack and __cuda_array_interface__."""

import gc
import sys
import types

import numpy as np
import pytest
from conftest import assert_product, random_matrix
from device_support import (
    HAS_DEVICE,
    HOST_DTYPES,
    Exporter,
    Interface,
    consume,
    dummy_only,
    opened,
    random_array,
)

import tartan
from tartan import BlockMatrix, DeviceArray, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


# ---- In ----


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("form", ["new", "old", "old signature"])
def test_dlpack_in(rng, dtype, form):
    a = random_matrix(rng, (24, 16), 8, dtype=dtype)
    b = random_array(rng, (16, 5), dtype)
    options = {"new": {}, "old": {"versioned": False}, "old signature": {"old_signature": True}}[form]
    x, out = Exporter(to_device(b), **options), Exporter(DeviceArray.zeros((24, 5), dtype), **options)
    up = a.to_device()
    assert spmm(up, x, out=out) is out
    assert_product(out.array.to_host(), a.toarray(), b, dtype)
    assert x.exported == out.exported == 0  # all given back
    assert set(x.streams) == {1} == set(out.streams)
    y = up @ x  # a library without from_dlpack
    assert isinstance(y, DeviceArray)
    assert_product(y.to_host(), a.toarray(), b, dtype)
    transposed = Exporter(to_device(np.ascontiguousarray(b.T)).T, **options)
    assert_product((up @ transposed).to_host(), a.toarray(), b, dtype)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_cuda_array_interface_in(rng, dtype, order):
    a = random_matrix(rng, (24, 16), 8, dtype=dtype)
    b = random_array(rng, (16, 5), dtype)
    x = Interface(to_device(np.asarray(b, order=order)))
    out = Interface(DeviceArray.zeros((24, 5), dtype))
    up = a.to_device()
    assert spmm(up, x, out=out) is out
    assert_product(out.array.to_host(), a.toarray(), b, dtype)
    assert_product((up @ x).to_host(), a.toarray(), b, dtype)
    np.testing.assert_array_equal(to_device(x).to_host(), b)
    flat = Interface(to_device(b[:, 0].copy()), strides=None)
    assert_product((up @ flat).to_host(), a.toarray(), b[:, 0], dtype)


def test_matrices_hold_what_they_wrap(rng):
    a = random_matrix(rng, (24, 16), 8)
    x = Exporter(to_device(a.values))
    up = BlockMatrix.wrap(a.layout, x)
    assert x.exported == 1 and up.device == "cuda:0"
    values = up.values
    b = rng.standard_normal((16, 5))
    assert_product((up @ to_device(b)).to_host(), a.toarray(), b, "float64")
    tartan.sddmm(up, to_device(np.zeros((24, 1))), to_device(np.zeros((1, 16))), beta=3)
    np.testing.assert_array_equal(x.array.to_host(), 3 * a.values)
    up.close()
    assert x.exported == 1  # by the values
    del values, up
    gc.collect()
    assert x.exported == 0
    up = BlockMatrix.wrap(a.layout, Interface(to_device(a.values)))
    gc.collect()
    assert_product((up @ to_device(b)).to_host(), a.toarray(), b, "float64")
    with pytest.raises(tartan.ShapeError, match="values"):
        BlockMatrix.wrap(a.layout, Exporter(DeviceArray.zeros((a.blocks, 8, 4))))


def test_what_is_refused(rng):
    a = random_matrix(rng, (16, 16), 8)
    up, x = a.to_device(), to_device(np.ones((16, 2)))
    out = DeviceArray.zeros((16, 2))
    readonly = Exporter(out, readonly=True)
    with pytest.raises(tartan.ArgumentError, match="read-only"):
        spmm(up, x, out=readonly)
    with pytest.raises(tartan.ArgumentError, match="read-only"):
        spmm(up, x, out=Interface(out, data=(out._open.address, True)))
    frozen = BlockMatrix.wrap(a.layout, Exporter(to_device(a.values), readonly=True))
    for write in (frozen.fill_zero, lambda: tartan.sddmm(frozen, x, x.mT)):
        with pytest.raises(tartan.ArgumentError, match="read-only"):
            write()
    np.testing.assert_array_equal((frozen @ x).to_host(), (up @ x).to_host())
    assert readonly.exported == 0 and (up @ Exporter(x, readonly=True)).shape == (16, 2)
    constant = type("Array", (Exporter,), {"__module__": "jaxlib._jax"})
    with pytest.raises(tartan.ArgumentTypeError, match="JAX"):
        spmm(up, x, out=constant(out))
    far = Exporter(x, device=(2, 1))
    with pytest.raises(tartan.UnsupportedError, match="b is on"):
        spmm(up, far, context="cuda:0")
    assert far.exported == 0
    with pytest.raises(tartan.UnsupportedError, match="b is on a device of DLPack.s type 4"):
        up @ Exporter(x, device=(4, 0))
    for changes, words, kind in [
        ({"stream": 0}, "stream 0", ValueError),
        ({"mask": object()}, "mask", TypeError),
        ({"typestr": ">f8"}, "elements of >f8", TypeError),
        ({"typestr": "<i8"}, "elements of <i8", TypeError),
        ({"strides": (8,)}, "2 sizes and 1 strides", ValueError),
        ({"strides": (17, 8)}, "strides .17, 8. in bytes", ValueError),
    ]:
        with pytest.raises(kind, match=words):
            up @ Interface(x, **changes)
    np.testing.assert_array_equal(out.to_host(), 0)


def test_results_are_of_the_callers_library(rng):
    """A library is known by the module of its arrays, and takes results by its from_dlpack."""
    taken = []
    library = types.ModuleType("some_arrays")

    class Array(Exporter):
        __module__ = "some_arrays.core"

    def from_dlpack(x):
        taken.append(x)
        capsule = x.__dlpack__(stream=1)
        give_back = consume(capsule)
        made = Array(x)
        give_back()
        return made

    library.from_dlpack = from_dlpack
    sys.modules["some_arrays"] = library
    try:
        a = random_matrix(rng, (24, 16), 8)
        b = rng.standard_normal((16, 5))
        y = a.to_device() @ Array(to_device(b))
        assert type(y) is Array and len(taken) == 1
        assert_product(y.array.to_host(), a.toarray(), b, "float64")
        score = tartan.growth_score(Array(to_device(b)), Array(to_device(b.T.copy())), 8)
        assert type(score) is Array
    finally:
        del sys.modules["some_arrays"]


# ---- Out ----


@pytest.mark.parametrize("dtype", HOST_DTYPES)
def test_dlpack_out(rng, dtype):
    x = to_device(random_array(rng, (3, 5), dtype)).T
    assert x.__dlpack_device__() == (2, 0)
    for options, versioned in [
        ({}, False),
        ({"max_version": (1, 0)}, True),
        ({"max_version": (0, 8)}, False),
    ]:
        capsule = x.__dlpack__(stream=1, **options)
        managed = opened(capsule)
        t = managed.tensor
        assert (t.data, t.device_type, t.device_id) == (x._open.address, 2, 0)
        assert t.shape[:2] == [5, 3] and t.strides[:2] == [1, 5] and t.ndim == 2 and t.byte_offset == 0
        assert (t.code, t.bits, t.lanes) == (4 if dtype == "bfloat16" else 2, 8 * x.itemsize, 1)
        assert hasattr(managed, "flags") == versioned and (
            not versioned or (managed.major, managed.flags) == (1, 0)
        )


def test_exports_keep_the_memory(rng):
    b = rng.standard_normal((16, 3))
    a = random_matrix(rng, (16, 16), 8)
    x = to_device(b)
    capsule = x.__dlpack__(max_version=(1, 0))
    x.close()
    del x
    gc.collect()

    class Holder:
        def __dlpack_device__(self):
            return 2, 0

        def __dlpack__(self, **options):
            return capsule

    assert_product((a.to_device() @ Holder()).to_host(), a.toarray(), b, "float64")
    consume(capsule)()
    with pytest.raises(TypeError, match="fresh"):
        a.to_device() @ Holder()


def test_refused_exports():
    x = DeviceArray.zeros((2, 3), "float32")
    assert x.__dlpack__(dl_device=(2, 0), copy=False) is not None
    for options, kind in [({"dl_device": (1, 0)}, BufferError), ({"stream": 0}, ValueError)]:
        with pytest.raises(kind):
            x.__dlpack__(**options)
    copied = opened(x.__dlpack__(copy=True))
    assert copied.tensor.data != x._open.address


def test_cuda_array_interface_out():
    x = to_device(np.ones((2, 3), np.float32)).T
    assert x.__cuda_array_interface__ == {
        "version": 3, "shape": (3, 2), "typestr": "<f4", "data": (x._open.address, False), "strides": (4, 12),
        "stream": 1,
    }  # fmt: skip
    bits = DeviceArray.zeros(3, "bfloat16")
    assert not hasattr(bits, "__cuda_array_interface__") and bits.__dlpack__() is not None


@dummy_only
def test_contexts_of_streams_are_bounded(rng):
    up = random_matrix(rng, (16, 16), 8).to_device()
    x = to_device(np.ones((16, 2)))
    for stream in range(64, 64 + 100):
        up @ Interface(x, stream=stream)
    assert len(tartan._raw.contexts()) == 32
