#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs from Python: one JSON row a case (tests/calls/table.py says what is in it).

Ours and the peer take turns in one process. With --device cuda, times are those of the host: calls are queued on the current
stream and nobody waits for them, as in a training step; the peer is torch.matmul on the dense matrix.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import numpy as np

import tartan

FLOOR, GOAL = 9.0, 4.0  # microseconds, on the CPU
GPU_FLOOR, GPU_GOAL = 1.3, 1.0  # times torch.matmul


def measure(arms, rounds, sync=lambda: None):
    """For each function the least and the median time of a call in microseconds, in turns of about 200 microseconds."""
    counts = []
    for call in arms:
        for _ in range(50):
            call()
        sync()
        begin = time.perf_counter()
        for _ in range(20):
            call()
        counts.append(max(1, int(200e-6 * 20 / (time.perf_counter() - begin))))
        sync()
    times = [[] for _ in arms]
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for call, count, found in zip(arms, counts, times):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            found.append(1e6 * (time.perf_counter() - begin) / count)
            sync()
    gc.enable()
    return [(min(found), statistics.median(found)) for found in times]


def report(case, found, peer, floor, goal):
    """One row; `found` has our times and, where there is one, the peer's."""
    row = {"language": "python", "case": case, "us": found[0][0], "median_us": found[0][1], "floor_us": floor,
           "goal_us": goal}  # fmt: skip
    if len(found) > 1:
        row.update(peer=peer, peer_us=found[1][0], peer_median_us=found[1][1])
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


def with_numpy(rounds):
    dense = np.diag([1.0, 2, 3, 4])
    w = tartan.BlockMatrix.from_dense(dense, block=2)
    x, out, v = np.ones((4, 2)), np.empty((4, 2)), np.ones(4)
    peers = []
    try:
        import scipy.sparse

        s = scipy.sparse.bsr_array(dense, blocksize=(2, 2))
        peers = [lambda: s @ x, lambda: s @ x, lambda: s @ v]
    except ImportError:
        pass
    cases = [
        ("W @ x", lambda: w @ x),
        ("spmm(W, x, out=out)", lambda: tartan.spmm(w, x, out=out)),
        ("W @ vector", lambda: w @ v),
    ]
    for i, (name, call) in enumerate(cases):
        report(f"{name}, 4 x 4, NumPy", measure([call, *peers[i : i + 1]], rounds), "SciPy", FLOOR, GOAL)


def with_torch(torch, rounds):
    a = torch.diag(torch.arange(1.0, 5, dtype=torch.float64))
    w = tartan.BlockMatrix.from_dense(a.numpy(), block=2)
    x, out = torch.ones(4, 2, dtype=torch.float64), torch.empty(4, 2, dtype=torch.float64)
    for name, call, peer in (
        ("W @ x", lambda: w @ x, lambda: torch.matmul(a, x)),
        ("spmm(W, x, out=out)", lambda: tartan.spmm(w, x, out=out), lambda: torch.matmul(a, x, out=out)),
    ):
        report(f"{name}, 4 x 4, PyTorch on the CPU", measure([call, peer], rounds), "torch.matmul", FLOOR, GOAL)
    layout, sdpa = tartan.Layout.pattern("dense", (16, 16), 16), torch.nn.functional.scaled_dot_product_attention
    q = torch.randn(1, 1, 16, 8)
    found = measure([lambda: tartan.attention(q, q, q, layout), lambda: sdpa(q, q, q)], rounds)
    text = "attention(q, k, v, layout), 16 tokens of 8, PyTorch on the CPU"
    report(text, found, "scaled_dot_product_attention", 1.5 * found[1][0], found[1][0])


def on_the_gpu(torch, rounds):
    layout = tartan.Layout.pattern("random", (128, 128), 32, density=0.5, seed=1)
    for dtype in (torch.float32, torch.bfloat16):
        w = tartan.BlockMatrix.wrap(layout, torch.randn(layout.blocks, 32, 32, device="cuda").to(dtype))
        a, x = (torch.randn(128, n, device="cuda").to(dtype) for n in (128, 64))
        out = torch.empty(128, 64, device="cuda", dtype=dtype)
        for name, call, peer in (
            ("W @ x", lambda: w @ x, lambda: torch.matmul(a, x)),
            ("spmm(W, x, out=out)", lambda: tartan.spmm(w, x, out=out), lambda: torch.matmul(a, x, out=out)),
            ("sddmm(layout, x, y)", lambda: tartan.sddmm(layout, x, x.mT), lambda: torch.matmul(x, x.mT)),
        ):
            for place, stream in (("", torch.cuda.default_stream()), (", another stream", torch.cuda.Stream())):
                torch.cuda.synchronize()
                with torch.cuda.stream(stream):
                    found = measure([call, peer], rounds, torch.cuda.synchronize)
                text = f"{name}, 128 x 128 x 64, {str(dtype)[6:]}, PyTorch on the GPU{place}"
                report(text, found, "torch.matmul", GPU_FLOOR * found[1][0], GPU_GOAL * found[1][0])


def attention_times(torch, device, direction, heads, tokens, d, rounds):
    """What `measure` finds of our attention and of PyTorch's, all blocks on; "backward": both passes, by autograd."""
    layout = tartan.Layout.pattern("dense", (tokens, tokens), 128)
    q, k, v, out_grad = (torch.randn(1, heads, tokens, d, device=device, dtype=torch.bfloat16) for _ in range(4))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = [lambda: tartan.attention(q, k, v, layout), lambda: sdpa(q, k, v)]
    if direction == "backward":
        leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
        calls = [lambda call=call: torch.autograd.grad(call(), leaves, out_grad) for call in calls]
    return measure(calls, rounds, torch.cuda.synchronize if q.is_cuda else lambda: None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=400)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    if options.device == "cuda":
        if torch is None or not torch.cuda.is_available():
            sys.exit("calls: PyTorch with a GPU is needed")
        on_the_gpu(torch, options.rounds)
        return
    with_numpy(options.rounds)
    if torch is not None:
        with_torch(torch, options.rounds)


if __name__ == "__main__":
    main()
