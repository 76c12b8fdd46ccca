# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of products on a real GPU."""

import ctypes

import pytest
from device_support import HAS_GPU
from test_gpu import check, weights

from tartan import spmm

pytestmark = pytest.mark.skipif(not HAS_GPU, reason="no GPU here")


def chain(torch, rng):
    """A square matrix that leaves what it multiplies about as large as it is, and where to begin."""
    w, _, values = weights(torch, rng, (1024, 1024), 64, "bfloat16")
    values.mul_(0.05)
    return w, torch.randn(1024, 1000, device="cuda", dtype=torch.bfloat16)


def one_by_one(torch, w, start, count):
    for _ in range(count):
        start = w @ start
        torch.cuda.synchronize()
    assert start.isfinite().all() and start.any()
    return start


@pytest.mark.parametrize("own_stream", [True, False], ids=["stream", "default capture stream"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graph_capture(torch, rng, own_stream, dtype):
    w, dense, _ = weights(torch, rng, (256, 256), 64, dtype)
    x = torch.randn(256, 64, device="cuda", dtype=getattr(torch, dtype))
    out = torch.zeros_like(x)
    stream = torch.cuda.Stream() if own_stream else None
    with torch.cuda.stream(stream or torch.cuda.Stream()):
        spmm(w, x, out=out)
        w @ x
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        spmm(w, x, out=out)
        made = w @ x
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        check(out, dense, x, dtype)
        assert torch.equal(out, made)


@pytest.mark.parametrize("captured", [1, 3])
def test_replays_among_products(torch, rng, captured):
    w, start = chain(torch, rng)
    pair, graph = [start.clone(), w @ start], torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for i in range(captured):
            spmm(w, pair[i % 2], out=pair[1 - i % 2])
    pair[0].copy_(start)
    for _ in range(40):
        graph.replay()
        spmm(w, pair[1], out=pair[0])
    assert torch.equal(pair[0], one_by_one(torch, w, start, 40 * (captured + 1)))


def test_captures_between_products(torch, rng):
    """What is captured and not run does not come between the products before and after it."""
    relaxed = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
    cuda, graph = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    w, start = chain(torch, rng)
    pair, other = [start.clone(), start.clone()], start.clone()
    stream = torch.cuda.Stream()
    at = ctypes.c_void_p(stream.cuda_stream)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        w @ start
        torch.cuda._sleep(200_000_000)  # so that products are queued close behind each other
        for i in range(60):
            spmm(w, pair[i % 2], out=pair[1 - i % 2])
            assert cuda.cuStreamBeginCapture_v2(at, relaxed) == 0
            spmm(w, start, out=other)
            assert cuda.cuStreamEndCapture(at, ctypes.byref(graph)) == 0
            assert cuda.cuGraphDestroy(graph) == 0
    torch.cuda.synchronize()
    assert torch.equal(pair[0], one_by_one(torch, w, start, 60))
    assert torch.equal(other, start)
