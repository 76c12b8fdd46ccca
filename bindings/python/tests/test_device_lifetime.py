# SPDX-License-Identifier: Apache-2.0
"""Device memory: closing, freeing in any order, threads, devices that fail."""

import gc
import random
import resource
import threading

import numpy as np
import pytest
from conftest import random_matrix
from device_support import HAS_DEVICE, dummy_only

import tartan
from tartan import BlockMatrix, DeviceArray, spmm, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


def test_closed_objects(rng):
    a = random_matrix(rng, (16, 16), 8).to_device()
    x = DeviceArray.zeros((16, 2))
    x.close()
    x.close()
    assert x.closed and "closed" in repr(x)
    for use in (lambda: x.shape, lambda: a @ x, lambda: x.to_host(), lambda: x.T, lambda: x.__dlpack__(),
                lambda: x.__cuda_array_interface__, lambda: to_device(x), lambda: x.device,
                lambda: spmm(a, DeviceArray.zeros((16, 2)), out=x)):  # fmt: skip
        with pytest.raises(tartan.HandleError, match="closed"):
            use()
    with DeviceArray.zeros(3) as y:
        assert not y.closed
    assert y.closed
    a.close()
    with pytest.raises(tartan.HandleError, match="closed"):
        a @ DeviceArray.zeros((16, 2))
    with pytest.raises(tartan.HandleError, match="closed"):
        a.values
    context = tartan.Context("cuda")
    z = to_device(np.ones(4), context)
    context.close()
    np.testing.assert_array_equal(z.to_host(), 1)  # by another context on the same queue
    with pytest.raises(tartan.HandleError, match="context is closed"):
        z.to_host(context)


@dummy_only
def test_memory_comes_back(monkeypatch, rng):
    """A device with room for one array and a half."""
    gc.collect()
    monkeypatch.setenv("TARTAN_DUMMY_BYTES", "1500000")
    size = 125_000
    for _ in range(5):
        x = DeviceArray.zeros(size)
        with pytest.raises(tartan.OutOfMemoryError, match="out of memory"):
            DeviceArray.zeros(size)
        view = x.T
        x.close()
        with pytest.raises(tartan.OutOfMemoryError):
            DeviceArray.zeros(size)  # the view keeps it
        del view
    capsule = DeviceArray.zeros(size).__dlpack__()
    with pytest.raises(tartan.OutOfMemoryError):
        DeviceArray.zeros(size)
    del capsule
    layout = tartan.Layout.pattern("dense", (250, 500), 250)
    matrix = BlockMatrix.wrap(layout, DeviceArray.zeros((2, 250, 250)))
    values = matrix.values
    matrix.close()
    with pytest.raises(tartan.OutOfMemoryError):
        DeviceArray.zeros(size)
    del values, matrix
    DeviceArray.zeros(size).close()
    host = BlockMatrix.zeros(layout)
    up = host.to_device()
    with pytest.raises(tartan.OutOfMemoryError):
        up.copy()
    with pytest.raises(tartan.OutOfMemoryError):
        tartan.sddmm(layout, DeviceArray.zeros((250, 1)), DeviceArray.zeros((1, 500)))
    up.close()
    host.to_device().close()


@dummy_only
def test_a_lost_device_leaves_a_usable_process(monkeypatch, rng):
    a = random_matrix(rng, (16, 16), 8)
    up, x = a.to_device(), to_device(np.ones(16))
    with tartan.Context("cuda", stream=64) as context:
        spmm(up, x, context=context)  # they are to be waited for before they go
    monkeypatch.setenv("TARTAN_DUMMY_LOST", "1")
    for call in (lambda: up @ x, lambda: x.to_host(), lambda: tartan.Context("cuda"), lambda: up.to_host(),
                 lambda: to_device(np.ones(3)), lambda: DeviceArray.zeros(3),
                 lambda: tartan.default_context("cuda").sync()):  # fmt: skip
        with pytest.raises(tartan.DeviceError, match="lost"):
            call()
    assert (a @ np.ones(16)).shape == (16,)
    up.close()
    x.close()
    gc.collect()


def test_any_order_of_freeing(rng):
    for seed in range(30):
        a = random_matrix(rng, (16, 16), 4)
        context = tartan.Context("cuda")
        up, x = a.to_device(context), to_device(np.ones((16, 2)), context)
        things = [a, up, x, context, x.T, up.values, up.T, up @ x, up.layout, up.copy(), x.__dlpack__(),
                  BlockMatrix.wrap(a.layout, up.values), tartan.sddmm(a.layout, x, x.T)]  # fmt: skip
        del a, up, x, context
        random.Random(seed).shuffle(things)
        while things:
            thing = things.pop()
            if seed % 2 and hasattr(thing, "close"):
                thing.close()
            del thing


def test_threads(rng):
    a = random_matrix(rng, (64, 64), 8)
    up, b = a.to_device(), rng.standard_normal((64, 9))
    x = to_device(b)
    wanted, results, contexts, failures = (up @ x).to_host().tobytes(), [], [], []

    def work():
        try:
            contexts.append(tartan.default_context("cuda"))
            results.extend((up @ x).to_host().tobytes() for _ in range(20))
            results.extend((up @ to_device(b)).to_host().tobytes() for _ in range(20))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and set(results) == {wanted} and len(results) == 160
    assert len(set(map(id, contexts))) == 4


def test_freeing_in_other_threads(rng):
    made = [DeviceArray.zeros(1000) for _ in range(50)]

    def work():
        while made:
            try:
                made.pop().close()
            except IndexError:
                pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not made


def test_memory_does_not_grow(rng):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    a, b = random_matrix(rng, (16, 16), 8), np.ones((16, 2))

    def turn():
        up = a.to_device()
        x = to_device(b)
        y = up @ x
        x.__dlpack__(max_version=(1, 0)), up.values.T, BlockMatrix.wrap(a.layout, up.values)
        with pytest.raises(tartan.UnsupportedError):
            up @ b
        y.close()

    for _ in range(500):
        turn()
    gc.collect()
    before = resident()
    for _ in range(3000):
        turn()
    gc.collect()
    assert resident() - before < 2**20
