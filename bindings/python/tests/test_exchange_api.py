# SPDX-License-Identifier: Apache-2.0
"""Tensors whose types have DLPack's exchange interface: looked at in C, on the stream that is current for them."""

import ctypes
import gc
import os
import sys

import numpy as np
import pytest
from conftest import assert_product, random_matrix
from device_support import HAS_DEVICE, HOST_DTYPES, dummy_only, exchanging, random_array

import tartan
from tartan import BlockMatrix, DeviceArray, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


@pytest.fixture
def shared():
    return exchanging()


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("stream", [0, 1])
def test_operands_are_seen_in_c(rng, shared, dtype, stream):
    shared.current = stream  # both are the default one
    a = random_matrix(rng, (24, 16), 8, dtype=dtype)
    up = a.to_device()
    b = random_array(rng, (16, 5), dtype)
    for array, wanted in ((b, b), (np.asfortranarray(b), b), (b[:, 0].copy(), b[:, 0])):
        x = shared(to_device(array))
        out = shared(DeviceArray.zeros((24, *wanted.shape[1:]), dtype))
        assert spmm(up, x, out=out) is out
        assert_product(out.array.to_host(), a.toarray(), wanted, dtype)
        assert_product((up @ x).to_host(), a.toarray(), wanted, dtype)
        assert x.streams == out.streams == []  # never through __dlpack__
    gates = shared(to_device(np.ones(a.blocks)))
    assert_product(spmm(up, shared(to_device(b)), gates=gates).to_host(), a.toarray(), b, dtype)
    s = tartan.sddmm(up.layout, shared(to_device(random_array(rng, (24, 3), dtype))),
                     [shared(to_device(random_array(rng, (3, 16), dtype)))])  # fmt: skip
    assert s.device == "cuda:0" and s.dtype_name == dtype
    x = shared(to_device(b))
    held = [x]
    assert_product((up @ held.pop()).to_host(), a.toarray(), b, dtype)
    before = gc.get_referrers(x)
    up @ x
    assert len(gc.get_referrers(x)) == len(before)  # nothing is kept


@dummy_only
def test_the_current_stream_is_the_contexts(rng, shared):
    one = tartan.Context("cuda", stream=64)
    a = random_matrix(rng, (16, 16), 8)
    up, x = a.to_device(one), shared(to_device(np.ones((16, 2)), one))
    for _ in range(3):
        y = up @ x
        assert y.__cuda_array_interface__["stream"] == 64
        spmm(up, x, out=shared(y), context=one)
    shared.current = 128
    spmm(up, x, context=one)
    assert x.streams == []  # never exported
    assert [c.stream for c in tartan._raw.contexts()][:1] == [64]
    up @ x  # the context follows the current stream
    assert {c.stream for c in tartan._raw.contexts()} >= {64, 128}


@dummy_only
def test_no_python_runs_inside_a_call(rng, shared):
    """Whatever the matrix is made of, and whatever stream is current."""
    one = tartan.Context("cuda", stream=64)
    a = random_matrix(rng, (16, 16), 8)
    x, out = (shared(to_device(np.ones((16, 2)), one)) for _ in range(2))
    gates = shared(to_device(np.ones(a.blocks), one))
    moved, wrapped = a.to_device(one), BlockMatrix.wrap(a.layout, shared(to_device(a.values, one)))
    columns = shared(to_device(np.ones((2, 16)), one))
    ours = to_device(np.ones((16, 2)), one)
    for w, shared.current in ((w, stream) for w in (moved, wrapped) for stream in (64, 128)):
        for call in (lambda: spmm(w, x, out=out), lambda: spmm(w, x, out=out, gates=gates),
                     lambda: spmm(w, ours, out=out), lambda: spmm(w, x, out=out, context=one),
                     lambda: tartan.sddmm(w, x, columns)):  # fmt: skip
            call()
            ran = set()

            def note(frame, event, argument):
                if event == "call":
                    ran.add(os.path.basename(frame.f_code.co_filename))

            sys.setprofile(note)
            try:
                call()
            finally:
                sys.setprofile(None)
            assert not ran & {"_call.py", "_context.py", "_queue.py"}


@dummy_only
def test_matrices_around_such_tensors(rng, shared):
    a = random_matrix(rng, (16, 16), 8)
    one = tartan.Context("cuda", stream=64)
    values = shared(to_device(a.values, one))
    up, x = BlockMatrix.wrap(a.layout, values), shared(to_device(np.ones((16, 2)), one))
    np.testing.assert_array_equal((up @ x).to_host(), a @ np.ones((16, 2)))
    spmm(up, x, out=shared(DeviceArray.zeros((16, 2), context=one)))
    assert values.streams == [None] and x.streams == []  # exported to be wrapped, then looked at in C


def test_what_the_interface_cannot_give_dlpack_does(rng, shared):
    a = random_matrix(rng, (16, 16), 8)
    up, b = a.to_device(), np.ones((16, 2))
    shared.fails, shared.current = True, 1
    x = shared(to_device(b))
    np.testing.assert_array_equal((up @ x).to_host(), (up @ to_device(b)).to_host())
    assert shared.views > 0 and x.streams == [1]


@pytest.mark.parametrize("major, view", [(2, True), (1, False)])
def test_tables_of_no_use(rng, major, view):
    """Of another major version, or without a view."""
    a, b = random_matrix(rng, (16, 16), 8), np.ones((16, 2))
    other = exchanging(major, view)
    x = other(to_device(b))
    np.testing.assert_array_equal((a.to_device() @ x).to_host(), (a.to_device() @ to_device(b)).to_host())
    assert other.views == 0 and len(x.streams) == 1


def test_older_tables_are_found(rng, shared):
    a, b = random_matrix(rng, (16, 16), 8), np.ones((16, 2))
    newer = exchanging(2, prev=ctypes.addressof(shared.table))
    x = newer(to_device(b))
    shared.current = 1
    np.testing.assert_array_equal((a.to_device() @ x).to_host(), (a.to_device() @ to_device(b)).to_host())
    assert (shared.views, newer.views, x.streams) == (1, 0, [])


def test_refusals_name_the_argument(rng, shared):
    shared.current = 1
    a = random_matrix(rng, (16, 16), 8)
    up, x = a.to_device(), shared(to_device(np.ones((16, 2))))
    wide = shared(to_device(np.ones((16, 2)).astype(np.float32)))
    for kind, words, call in (
        (tartan.DTypeError, "spmm: b is of float32, expected float64", lambda: up @ wide),
        (tartan.DTypeError, "spmm: out is of float32", lambda: spmm(up, x, out=wide)),
        (tartan.ShapeError, r"spmm: out has shape \[16, 3\], expected \[16, 2\]",
         lambda: spmm(up, x, out=shared(DeviceArray.zeros((16, 3))))),
        (tartan.ArgumentError, "spmm: out overlaps b", lambda: spmm(up, x, out=x)),
        (tartan.UnsupportedError, "spmm: b is on device 2:0, expected 1:0", lambda: spmm(a, x, context="cpu")),
        (tartan.UnsupportedError, "spmm: out is on device 1:0", lambda: spmm(up, x, out=np.ones((16, 2)))),
        (tartan.UnsupportedError, "spmm: b is on device 2:1",
         lambda: spmm(up, type(x)(x.array, device=(2, 1)), context="cuda:0")),
        (tartan.ArgumentError, "sddmm: y has 2 arrays, expected 1, as x", lambda: tartan.sddmm(up, [x], [x, x])),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()
