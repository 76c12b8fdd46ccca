# SPDX-License-Identifier: Apache-2.0
"""Threads, processes and memory."""

import gc
import multiprocessing
import resource
import threading
import time

import numpy as np
import pytest
from conftest import random_layout, random_matrix

import tartan
from tartan import BlockMatrix, Layout, spmm


def test_other_threads_run_meanwhile(rng):
    """While one thread multiplies, another goes on counting."""
    a = random_matrix(rng, (2048, 2048), 32, 0.5)
    b = rng.standard_normal((2048, 512))
    with tartan.Context(threads=1) as context:
        calls, ticks, stop = 5, [], threading.Event()

        def tick():
            while not stop.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.001)

        watcher = threading.Thread(target=tick)
        watcher.start()
        begin = time.perf_counter()
        for _ in range(calls):
            spmm(a, b, context=context)
        end = time.perf_counter()
        stop.set()
        watcher.join()
    inside = [t for t in ticks if begin < t < end]
    assert len(inside) > 4 * calls  # with the lock held there would be one at most between two calls


def test_threads_have_contexts_of_their_own(rng):
    a = random_matrix(rng, (64, 64), 8)
    b = rng.standard_normal((64, 9))
    wanted, results, contexts = (a @ b).tobytes(), [], []

    def work():
        contexts.append(tartan.default_context())
        results.extend((a @ b).tobytes() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(results) == {wanted} and len(results) == 80 and len(set(map(id, contexts))) == 4


def test_one_context_in_two_threads_is_refused(rng):
    a = random_matrix(rng, (2048, 2048), 32, 0.5)
    b = rng.standard_normal((2048, 512))
    refusals = []
    with tartan.Context(threads=1) as context:

        def work():
            try:
                for _ in range(8):
                    spmm(a, b, context=context)
            except tartan.ArgumentError as error:
                refusals.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(refusals) == 1 and "in use by another thread" in refusals[0]


def test_closing_during_use_waits(rng):
    a = random_matrix(rng, (2048, 2048), 32, 0.5)
    b = rng.standard_normal((2048, 512))
    wanted = a @ b
    result = []
    refused = []

    def work():
        try:
            while True:
                result.append(a @ b)
        except tartan.HandleError as error:
            refused.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    while not result:
        time.sleep(0.001)
    a.close()  # in the middle of a product, which ends as if nothing had been
    worker.join()
    assert refused and all((r == wanted).all() for r in result)


def test_closing_what_other_threads_use(rng):
    """Whatever is closed, whenever: a call ends as if nothing had been, or is refused."""
    b = rng.standard_normal((256, 64))
    x, y = rng.standard_normal((256, 8)), rng.standard_normal((8, 256))
    failures = []
    for _ in range(20):
        a = random_matrix(rng, (256, 256), 16, 0.5)
        s, layout, gates = a.copy(), a.layout, rng.standard_normal(a.blocks)
        context = tartan.Context(threads=1)
        wanted = a @ b
        started = threading.Barrier(4)

        def work(call, wanted):
            started.wait()
            try:
                while True:
                    result = call()
                    assert wanted is None or (result == wanted).all()
            except tartan.HandleError as error:
                if "closed" not in str(error):
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

        calls = [
            (lambda: spmm(a, b), wanted),
            (lambda: spmm(a, b, context=context), wanted),
            (lambda: (tartan.sddmm(s, x, y), tartan.gate_gradient(a, s, gates=gates), a.T @ b, layout.T, a.values, a.copy()), None),
        ]
        threads = [threading.Thread(target=work, args=args) for args in calls]
        for t in threads:
            t.start()
        started.wait()
        time.sleep(rng.uniform(0, 0.01))
        things = [a, s, layout, context]
        rng.shuffle(things)
        for thing in things:
            thing.close()
        for t in threads:
            t.join()
    assert not failures, failures


def _child(a, b, queue):
    queue.put((a @ b).tobytes())


def test_fork(rng):
    a = random_matrix(rng, (512, 512), 8)
    b = rng.standard_normal((512, 64))  # enough work for a team
    wanted = (a @ b).tobytes()  # the parent's threads exist now
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    children = [fork.Process(target=_child, args=(a, b, queue)) for _ in range(2)]
    for c in children:
        c.start()
    assert [queue.get(timeout=600) for _ in children] == [wanted] * 2
    for c in children:
        c.join(600)
        assert c.exitcode == 0
    assert (a @ b).tobytes() == wanted


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize(
    "make",
    [
        lambda layout, values, x: layout.T,
        lambda layout, values, x: BlockMatrix.zeros(layout, "float32").values,
        lambda layout, values, x: BlockMatrix(layout, values),
        lambda layout, values, x: BlockMatrix(layout, values) @ x,
        lambda layout, values, x: layout._repr_svg_() and None,
        lambda layout, values, x: pytest.raises(tartan.ShapeError, BlockMatrix, layout, values[:1]),
    ],
    ids=["layout", "matrix", "wrap", "product", "text", "failure"],
)
def test_memory_does_not_grow(make):
    layout = Layout.from_mask(np.eye(8), 2)
    values, x = np.ones((8, 2, 2)), np.ones(16)
    for _ in range(5_000):
        make(layout, values, x)
    grown = []
    for _ in range(3):  # a leak grows in each; the heap, torn by other tests, may once
        gc.collect()
        before = _resident()
        for _ in range(20_000):
            make(layout, values, x)
        gc.collect()
        grown.append(_resident() - before)
    assert min(grown) < 2**20, grown


def test_100_000_matrices():
    layout = Layout.from_mask(np.eye(8), 2)
    for _ in range(1_000):
        BlockMatrix.zeros(layout)
    gc.collect()
    before = _resident()
    for _ in range(100_000):
        BlockMatrix.zeros(layout)
    gc.collect()
    assert _resident() - before < 2**20


def test_any_order_of_freeing(rng):
    for _ in range(50):
        layout = random_layout(rng, (16, 16), 4)
        matrix = BlockMatrix.zeros(layout)
        things = [layout, matrix, matrix.values, matrix.T, matrix.layout, matrix.copy()]
        del layout, matrix
        rng.shuffle(things)
        while things:
            things.pop()
