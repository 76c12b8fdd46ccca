# SPDX-License-Identifier: Apache-2.0
"""The order of work between streams, Tartan's and those of another library. The plug-in that poses as a
device refuses work on memory that another stream may still be using, and ends the process if such memory is
released."""

import gc
import threading

import numpy as np
import pytest
from conftest import random_matrix
from device_support import consume, dummy_only
from foreign_support import Array, Exchanging, Interface, Memory, times_synced, wait, works

import tartan
from tartan import BlockMatrix, DeviceArray, Layout, spmm, to_device

pytestmark = dummy_only
KINDS = [Interface, Exchanging, Array]


@pytest.fixture(autouse=True)
def in_order():
    Memory.unordered = 0
    yield
    gc.collect()
    assert Memory.unordered == 0 and not Array.exports


@pytest.fixture
def contexts():
    """Of streams of ours."""
    return tuple(tartan.Context("cuda", stream=s) for s in (64, 128, 192))


class Waits:
    """Counts how often the host waited."""

    def __enter__(self):
        self.before = times_synced()
        return self

    def __exit__(self, *ignored):
        self.count = times_synced() - self.before


# ---- Tartan's own memory ----


def test_the_plug_in_sees_what_is_missing(contexts):
    x = to_device(np.ones(4), contexts[0])
    with pytest.raises(AssertionError, match="a wait is missing"):
        works(512, x._open.address, False)
    contexts[0].sync()
    works(512, x._open.address, False)
    wait(64, 512)  # before the memory is released
    y = Array(np.ones(4))
    with pytest.raises(AssertionError, match="a wait is missing"):
        works(64, y.memory.address, False)
    y.memory.stream = 64
    del y  # by a stream that has not waited
    assert Memory.unordered == 1
    Memory.unordered = 0


def test_contexts_of_one_device(rng, contexts):
    """Operands of several contexts, written, read and freed in turns: the device waits, the host does not."""
    a, b = random_matrix(rng, (16, 16), 8), rng.standard_normal((16, 3))
    with Waits() as waits:
        for one, two, three in (contexts, contexts[::-1]):
            up, x = a.to_device(one), to_device(b, two)
            y = spmm(up, x, context=three)
            spmm(up, x, out=y, beta=1, context=one)
            s = tartan.sddmm(a.layout, y, x.mT, context=two)
            tartan.gate_gradient(s, up, context=three)
            s.scatter(up, np.arange(up.blocks))
            s.values.close(), x.close(), s.close()
            up = up.astype("float32").copy()
            del y, up
    assert waits.count == 0
    up, x = a.to_device(contexts[0]), to_device(b, contexts[1])
    y = spmm(up, x, context=contexts[2])
    np.testing.assert_allclose(y.to_host(contexts[1]), a @ b, atol=1e-12)
    np.testing.assert_array_equal(up.to_host(contexts[1]).values, a.values)
    np.testing.assert_array_equal(up.values.mT.to_host(contexts[2]), a.values.swapaxes(1, 2))


def test_changing_layouts(rng, contexts):
    one, two, three = contexts
    mask = rng.random((2, 2)) < 0.7
    layout = Layout.from_device_mask(mask, 8, context=one)
    a = BlockMatrix(layout, to_device(rng.standard_normal((4, 8, 8)), two))
    x = to_device(np.ones((16, 2)), three)
    with Waits() as waits:
        spmm(a, x, context=two)
        layout.update(~mask, context=three)
        a.layout.update(mask, context=one)
        spmm(a, x, context=three)
    assert waits.count == 0
    assert layout.to_host(two) == Layout.from_mask(mask, 8)
    a.close(), layout.close()


@pytest.mark.parametrize("form", [{}, {"max_version": (1, 0)}])
def test_results_for_other_libraries(rng, contexts, form):
    """Their work on the stream that they name comes after our work, and before our later work and the
    release."""
    one, two, _ = contexts
    up, x = random_matrix(rng, (16, 16), 8).to_device(one), to_device(np.ones((16, 2)), two)
    with Waits() as waits:
        for stream in (512, 1, None, 64):
            y = spmm(up, x, context=one)
            spmm(up, y, context=two)  # reads it
            give_back = consume(y.__dlpack__(stream=stream, **form))
            works(stream or 1, y._open.address, True)
            give_back()
            spmm(up, x, out=y, context=two)
            give_back = consume(y.T.__dlpack__(stream=stream, **form))
            works(stream or 1, y._open.address, True)
            address = y._open.address
            if stream == 512:
                y.close()
            del y
            works(stream or 1, address, False)  # it is still there
            give_back()
            values = up.values.__dlpack__(stream=stream, **form)
            works(stream or 1, up.values._open.address, False)
            consume(values)()
    assert waits.count == 0


def test_who_asks_for_no_order_has_none(rng, contexts):
    x = to_device(np.ones((16, 2)), contexts[0])
    give_back = consume(x.__dlpack__(stream=-1))
    with pytest.raises(AssertionError, match="a wait is missing"):
        works(512, x._open.address, False)
    give_back()
    wait(64, 512)


def test_the_stream_that_cuda_array_interface_tells(rng, contexts):
    """Waiting for it waits for the work of all."""
    one, two, three = contexts
    up, x = random_matrix(rng, (16, 16), 8).to_device(one), to_device(np.ones((16, 2)), two)
    y = spmm(up, x, context=three)
    spmm(up, x, out=y, context=two)
    spmm(up, y, context=one)
    with Waits() as waits:
        assert y.__cuda_array_interface__["stream"] == 192  # where it was made
    assert waits.count == 0
    wait(512, 192)
    works(512, y._open.address, True)
    wait(192, 512)  # as their users must


# ---- Memory of another library ----


def expected_waits(kind, calls):
    """The host waits for a library that does not say which stream it works on, for no other."""
    return calls if kind is Array else 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [True, False])
def test_operands_on_other_streams(rng, contexts, kind, given):
    a, b = random_matrix(rng, (16, 16), 8), rng.standard_normal((16, 3))
    up, x, out = a.to_device(contexts[0]), kind(b), kind(np.zeros((16, 3)))
    gates = kind(np.ones(a.blocks))
    context = contexts[1] if given else None
    with Waits() as waits:
        for turn in range(3):
            x.write(turn * b)
            assert spmm(up, x, out=out, gates=gates, context=context) is out
            x.write(0 * b)
            np.testing.assert_array_equal(out.read(), turn * (a @ b))
        spmm(up, x, out=out, context=context)
    assert waits.count == expected_waits(kind, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_several_streams_in_one_call(rng, contexts, kind):
    """Each operand has its own."""
    a, b = random_matrix(rng, (16, 16), 8), rng.standard_normal((16, 3))
    up = a.to_device(contexts[0])
    x, out, gates = kind(b, 512), Interface(np.zeros((16, 3)), 768), Interface(np.ones(a.blocks), 1024)
    spmm(up, x, out=out, gates=gates, context=contexts[1])
    x.write(0 * b), gates.write(np.zeros(a.blocks))
    np.testing.assert_array_equal(out.read(), a @ b)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_is_freed_while_we_work(rng, contexts, kind):
    """In the order of its library's stream, as soon as the call has returned."""
    a, b = random_matrix(rng, (16, 16), 8), rng.standard_normal((16, 3))
    up, out = a.to_device(contexts[0]), DeviceArray.zeros((16, 3), context=contexts[0])
    for _ in range(3):
        spmm(up, kind(b), out=out, context=contexts[0])
        spmm(up, kind(b), gates=kind(np.ones(a.blocks)), context=contexts[1])
        to_device(kind(b), contexts[2])
        w = BlockMatrix(a.layout, kind(a.values))
        spmm(w, to_device(b), context=contexts[1])
        del w
        tartan.sddmm(up, [kind(b), kind(b)], [kind(b.T), kind(b.T)], context=contexts[1])
        tartan.growth_score(kind(b), kind(b.T), 8, context=contexts[2])
        tartan.gate_gradient(up, up.copy(), gates=kind(np.ones(a.blocks)), context=contexts[2])
    assert Memory.unordered == 0 and not Array.exports


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_around_such_memory(rng, contexts, kind):
    a, b = random_matrix(rng, (16, 16), 8), rng.standard_normal((16, 3))
    values, x = kind(a.values), to_device(b, contexts[0])
    w = BlockMatrix(a.layout, values)
    with Waits() as waits:
        y = spmm(w, x, context=contexts[0])
        values.write(2 * a.values)
        spmm(w, x, out=y, beta=1, context=contexts[1])
        tartan.sddmm(w, y, x.mT, beta=1, context=contexts[0])
        values.read()
        tartan.gate_gradient(w, w.to_device(contexts[1]), context=contexts[1])
        values.read()
    assert waits.count == expected_waits(kind, 5)
    np.testing.assert_allclose(y.to_host(), 3 * (a @ b), atol=1e-12)
    values.write(a.values)
    np.testing.assert_array_equal(w.values.to_host(contexts[2]), a.values)
    np.testing.assert_array_equal(w.values.mT.to_host(contexts[1]), a.values.swapaxes(1, 2))
    np.testing.assert_array_equal(w.to_host(contexts[1]).values, a.values)
    values.write(0 * a.values)
    with Waits() as waits:
        w.copy(), w.astype("float32"), to_device(w.values, contexts[1])
        values.write(0 * a.values)


@pytest.mark.parametrize("kind", KINDS)
def test_masks(rng, contexts, kind):
    mask = kind(rng.random((2, 2)) < 0.5)
    with Waits() as waits:
        layout = Layout.from_device_mask(mask, 8, context=contexts[0])
        mask.write([[1, 0], [0, 0]])
        layout.update(mask, context=contexts[1])
        mask.write([[0, 0], [0, 1]])
    assert waits.count == expected_waits(kind, 2)
    assert layout.to_host(contexts[2]) == Layout.from_mask([[1, 0], [0, 0]], 8)


def test_a_refused_call_waits_for_nobody(rng, contexts):
    up = random_matrix(rng, (16, 16), 8).to_device(contexts[0])
    x = Array(np.ones((15, 3)))
    with Waits() as waits, pytest.raises(tartan.ShapeError):
        spmm(up, x, context=contexts[0])
    assert waits.count == 0


def test_a_lost_device(rng, contexts, monkeypatch):
    up, x = random_matrix(rng, (16, 16), 8).to_device(contexts[0]), Interface(np.ones((16, 3)))
    out = DeviceArray.zeros((16, 3), context=contexts[0])
    monkeypatch.setenv("TARTAN_DUMMY_LOST", "1")
    with pytest.raises(tartan.DeviceError, match="lost"):
        spmm(up, x, out=out, context=contexts[0])
    with pytest.raises(tartan.DeviceError, match="lost"):
        to_device(x, contexts[0])
    with pytest.raises(tartan.DeviceError, match="lost"):
        out.__dlpack__(stream=512)
    monkeypatch.delenv("TARTAN_DUMMY_LOST")
    spmm(up, x, out=out, context=contexts[0])


# ---- Contexts ----


def test_waiting_for_a_busy_context(rng, contexts):
    """`other` may be at work in another thread."""
    one, two, _ = contexts
    a = random_matrix(rng, (1024, 1024), 32, 0.5).to_device(two)
    x = to_device(np.ones((1024, 64)), two)
    failures = []

    def work():
        try:
            for _ in range(10):
                spmm(a, x, context=two)
        except tartan.TartanError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    count = 0
    while thread.is_alive():
        tartan._raw.tartan_context_wait(one._handle, two._handle)
        count += 1
    thread.join()
    assert not failures and count > 0


def test_a_context_may_be_used_while_arguments_are_looked_at(rng, contexts):
    """They may run any code: here it frees memory, works on the same context, and waits for it."""
    one, two, _ = contexts
    up, x = random_matrix(rng, (16, 16), 8).to_device(one), to_device(np.ones((16, 2)), one)
    things = [to_device(np.ones(5), one)]
    to_device(things[0], two)

    class Trap(Array):
        def __dlpack__(self, **options):
            things.clear()
            spmm(up, x, context=two)
            tartan._raw.tartan_context_wait(one._handle, two._handle)
            two.sync()
            return super().__dlpack__(**options)

    tartan._raw.tartan_spmm(
        two._handle, up._handle, None, Trap(np.ones((16, 2)), 128), 1.0, 0.0, None,
        DeviceArray.zeros((16, 2), context=two)._open,
    )  # fmt: skip
    assert not things
