# SPDX-License-Identifier: Apache-2.0
"""Signals end long calls: what their handlers raise comes out of the call, and the next call is right."""

import os
import subprocess
import sys

import pytest

# Portable C takes many seconds of the processor for each call. What a stopped one took is held against the time of the whole,
# which is estimated from a small part of the work.
SCRIPT = """
import signal, sys, threading, time
import numpy as np
import tartan

rng = np.random.default_rng(1)

def dense(n, block):
    return tartan.Layout.from_mask(np.ones((n // block, n // block), bool), block=block)

def matrix(n):
    layout = dense(n, 8)
    return tartan.BlockMatrix(layout, rng.standard_normal((layout.blocks, 8, 8)))

a, b, few = matrix(2000), matrix(3000), matrix(600)
x = rng.standard_normal((2000, 6000))
q = rng.standard_normal((1, 4, 8192, 64))
pairs, few_pairs = dense(8192, 64), dense(512, 64)
y = np.asarray(x.T, order="C")
first = a @ x[:, :3]
narrow, low, short = x[:, :60].copy(), y[:60].copy(), q[:, :, :512].copy()
s = a.copy()  # what a stopped call was to write holds any mix of old and new
calls = {  # the call, a part of it, and how often that fits into the call
    "matmul": (lambda: a @ x, lambda: a @ narrow, 100),
    "blocks": (lambda: b @ b, lambda: few @ few, 5**3),
    "sddmm": (lambda: tartan.sddmm(s, x, y), lambda: tartan.sddmm(s, narrow, low), 100),
    "attention": (lambda: tartan.attention(q, q, q, pairs), lambda: tartan.attention(short, short, short, few_pairs), 16**2),
}

class Alarm(Exception):
    pass

def ring(number, frame):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have their background jobs ignore it
for name, (call, part, times) in calls.items():
    begin = time.process_time()
    part()
    whole = times * (time.process_time() - begin)
    for expected in (Alarm, KeyboardInterrupt):
        begin = time.process_time()
        try:
            if expected is Alarm:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
            else:
                threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
            call()
            raised = "nothing"
        except BaseException as error:
            raised = type(error).__name__
        took = time.process_time() - begin
        print(name, raised == expected.__name__, took < whole / 3, np.array_equal(a @ x[:, :3], first), raised, took, whole)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
def test_signals_end_long_calls():
    environment = {**os.environ, "TARTAN_CPU": "c", "TARTAN_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == [name for name in ("matmul", "blocks", "sddmm", "attention") for _ in range(2)]
    for line in lines:
        assert line[1:4] == ["True", "True", "True"], done.stdout
