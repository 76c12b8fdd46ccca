# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs on a real GPU."""

import ctypes

import pytest
from conftest import random_layout
from device_support import HAS_GPU
from test_gpu import check, weights

import tartan
from tartan import BlockConv, BlockMatrix, Layout, block_softmax, block_softmax_gradient, residual_unit, spmm, windows_for_conv

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


def replayed(torch, stream, step, change):
    """Captures the step after it ran once, and has each replay's results beside those of the step itself."""
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    for number in range(3):
        change(number)
        torch.cuda.synchronize()
        graph.replay()  # on the current stream: nothing else of the context that was captured may run beside it
        torch.cuda.synchronize()
        found = [array.clone() for array in captured]
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            wanted = step()
        stream.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(found, wanted))
        yield found


def test_windows_that_a_mask_makes_active(torch, rng):
    """Frame by frame: windows of the frame's mask, a convolution in them, and a residual unit."""
    stream, size = torch.cuda.Stream(), 8
    _, windows = windows_for_conv((40, 56), (3, 3), output=size)
    mask = (torch.rand(2, 40, 56, device="cuda") < 0.01).float()
    x = torch.randn(2, 64, 40, 56, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    active = Layout.from_windows(mask, windows)

    def part(rows, cols, kernel):
        layout = random_layout(rng, (rows, cols), 16, 0.6)
        conv = BlockConv(layout, (kernel, kernel), padding="same")
        shape = BlockMatrix.zeros(conv.layout, "float32").values.shape
        values = torch.from_numpy(rng.standard_normal(shape).astype("float32") / cols).cuda().bfloat16()
        return conv, values, torch.rand(rows, device="cuda"), torch.randn(rows, device="cuda")

    parts = part(32, 64, 1), part(48, 32, 3), part(64, 48, 1)
    conv, values = part(64, 64, 3)[:2]
    out, frame = torch.zeros_like(x), torch.zeros_like(x)

    def step():
        active.update_windows(mask, windows)
        conv(x, values, active=active, windows=windows, out=out)
        residual_unit(out, *parts, active, windows, out=frame)
        return out, frame

    def change(number):
        mask.copy_(torch.rand(2, 40, 56, device="cuda") < (0.0, 0.02, 0.5)[number])
        x.normal_()
        out.zero_()

    for number, (_, found) in enumerate(replayed(torch, stream, step, change)):
        assert found.any() == (number > 0)


def test_softmax(torch, rng):
    stream, layout = torch.cuda.Stream(), random_layout(rng, (256, 192), 32, 0.5)
    a, b, y, dx = (torch.randn(layout.blocks, 32, 32, device="cuda") for _ in range(4))
    made = [BlockMatrix.wrap(layout, values) for values in (a, b, y, dx)]

    def step():
        block_softmax(made[0], scale=0.5, out=made[2])
        block_softmax_gradient(made[2], made[1], scale=0.5, out=made[3])
        return y, dx

    for found in replayed(torch, stream, step, lambda number: a.normal_()):
        assert all(array.any() for array in found)


def test_what_the_host_would_wait_for_is_refused(torch, rng):
    """Sums that the host gets, and new matrices, cannot be part of a graph; the refusals leave the graph as it was."""
    stream = torch.cuda.Stream()
    layout = random_layout(rng, (64, 64), 16, 0.5)
    values, out = torch.randn(layout.blocks, 16, 16, device="cuda"), torch.zeros(64, 8, device="cuda")
    a = BlockMatrix.wrap(layout, values)
    x = torch.randn(64, 8, device="cuda")
    with torch.cuda.stream(stream):
        spmm(a, x, out=out)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in (a.sum, lambda: a + a):
            with pytest.raises(tartan.UnsupportedError, match="captur"):
                call()
        spmm(a, x, out=out)
    wanted = out.clone()
    out.zero_()
    graph.replay()
    stream.synchronize()
    assert torch.equal(out, wanted)
