# SPDX-License-Identifier: Apache-2.0
"""Signals end long calls: what their handlers raise comes out of the call, and the next call is right."""

import os
import subprocess
import sys

import pytest

# Portable C takes many seconds of the processor for each call.
SCRIPT = """
import signal, sys, threading, time
import numpy as np
import tartan

rng = np.random.default_rng(1)
full = tartan.Layout.from_mask(np.ones((250, 250), bool), block=8)
a = tartan.BlockMatrix(full, rng.standard_normal((full.blocks, 8, 8)))
wide = tartan.Layout.from_mask(np.ones((375, 375), bool), block=8)
b = tartan.BlockMatrix(wide, rng.standard_normal((wide.blocks, 8, 8)))
x = rng.standard_normal((2000, 6000))
q = rng.standard_normal((1, 4, 8192, 64))
pairs = tartan.Layout.from_mask(np.ones((128, 128), bool), block=64)
y = np.asarray(x.T, order="C")
first = a @ x[:, :3]
calls = {
    "matmul": lambda: a @ x,
    "blocks": lambda: b @ b,
    "sddmm": lambda: tartan.sddmm(a, x, y),
    "attention": lambda: tartan.attention(q, q, q, pairs),
}

class Alarm(Exception):
    pass

def ring(number, frame):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
for name, call in calls.items():
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
        print(name, raised == expected.__name__, took < 3, np.array_equal(a @ x[:, :3], first), raised, took)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
def test_signals_end_long_calls():
    environment = {**os.environ, "TARTAN_CPU": "c", "TARTAN_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == [name for name in ("matmul", "blocks", "sddmm", "attention") for _ in range(2)]
    for line in lines:
        assert line[1:4] == ["True", "True", "True"], done.stdout
