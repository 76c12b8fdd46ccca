# SPDX-License-Identifier: Apache-2.0
"""Windows and channel_linear on PyTorch's tensors in host memory, with the gradients that PyTorch records."""

import functools

import numpy as np
import pytest

import tartan
from tartan import BlockConv, Layout, channel_linear, window_gather, window_scatter

torch = pytest.importorskip("torch")
check = functools.partial(torch.autograd.gradcheck, fast_mode=True)


def random_windows(rng, size, stride, count):
    """Active windows of two images, some of them partly outside."""
    text = f"size={size} stride={stride} offset=-1x-1 count={count}"
    return Layout.from_windows((rng.random((2, 7, 8)) < 0.2).astype(np.float64), text), text


def leaf(rng, *shape, last=False):
    data = torch.from_numpy(rng.standard_normal(shape))
    return (data.contiguous(memory_format=torch.channels_last) if last else data).requires_grad_()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("stride", ["3x3", "2x2", "4x4"])  # side by side, overlapping, with gaps
def test_gradients_of_gather_and_scatter(rng, last, stride):
    active, windows = random_windows(rng, "3x3", stride, "2x2")
    x = leaf(rng, 2, 5, 7, 8, last=last)
    blocks = window_gather(x, active, windows)
    assert blocks.grad_fn is not None and torch.equal(blocks, window_gather(x.detach(), active, windows))
    assert check(lambda x: window_gather(x, active, windows), (x,))
    given = leaf(rng, *blocks.shape)
    for add in (True, False) if stride != "2x2" else (True,):
        y = window_scatter(given, active, windows, base=x, add=add)
        assert torch.equal(y, window_scatter(given.detach(), active, windows, base=x.detach(), add=add))
        assert check(lambda b, x: window_scatter(b, active, windows, base=x, add=add), (given, x))  # noqa: B023
    if stride != "2x2":
        assert check(lambda x: window_scatter(None, active, windows, base=x), (x,))


def test_channels_last_shapes(rng):
    active, windows = random_windows(rng, "3x3", "3x3", "2x2")
    x = leaf(rng, 2, 7, 8, 3)
    assert check(lambda x: window_gather(x, active, windows, channels_last=True), (x,))
    blocks = leaf(rng, active.blocks, 3, 3, 3)
    assert check(lambda b, x: window_scatter(b, active, windows, base=x, channels_last=True), (blocks, x))


@pytest.mark.parametrize("options", [{}, {"relu": True}, {"bias_first": True}])
@pytest.mark.parametrize("classes", [False, True])
def test_gradients_of_channel_linear(rng, options, classes):
    conv = BlockConv(Layout.pattern("dense", (4, 4), 2), (3, 3), padding="same")
    more, rows = ({"conv": conv, "size": (4, 5)}, (9,)) if classes else ({}, ())
    x, gain, bias = leaf(rng, 2, 4, 4, 5), leaf(rng, *rows, 4), leaf(rng, *rows, 4)
    y = channel_linear(x, gain=gain, bias=bias, **options, **more)
    with torch.no_grad():
        assert torch.equal(y, channel_linear(x, gain=gain, bias=bias, **options, **more))
    assert check(lambda x, g, b: channel_linear(x, gain=g, bias=b, **options, **more), (x, gain, bias))
    assert check(lambda x, b: channel_linear(x, bias=b, **options, **more), (x, bias))
    assert check(lambda g: channel_linear(x.detach(), gain=g, **options, **more), (gain,))


def test_refusals(rng):
    active, windows = random_windows(rng, "3x3", "3x3", "2x2")
    x = leaf(rng, 2, 5, 7, 8)
    blocks = window_gather(x, active, windows)
    with pytest.raises(tartan.ArgumentError, match="window_gather: out is given"):
        window_gather(x, active, windows, out=torch.empty_like(blocks))
    with pytest.raises(tartan.ArgumentError, match="window_scatter: y is given"):
        window_scatter(blocks, active, windows, x.detach())
    with pytest.raises(tartan.ArgumentTypeError, match="window_scatter: base is of type ndarray, expected a tensor"):
        window_scatter(blocks, active, windows, base=x.detach().numpy())
    with pytest.raises(tartan.ArgumentError, match="channel_linear: out is given"):
        channel_linear(x, gain=torch.ones(5, dtype=torch.float64), out=x.detach())
    with pytest.raises(tartan.HandleTypeError, match="active"):
        window_gather(x, "active", windows)
