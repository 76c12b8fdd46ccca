# SPDX-License-Identifier: Apache-2.0
"""The bottleneck unit in windows, beside the same unit over the whole image."""

import numpy as np
import pytest

import tartan

RNG = np.random.default_rng(1)


def part(rows, cols, kernel, dtype, last, **options):
    layout = tartan.Layout.from_mask(RNG.random((rows // 4, cols // 4)) < 0.7, block=4)
    conv = tartan.BlockConv(layout, (kernel, kernel), channels_last=last, **options)
    w = conv.filter(RNG.normal(size=(rows, cols, kernel, kernel)) / cols, dtype)
    sums = "float64" if dtype == "float64" else "float32"
    return conv, w, RNG.normal(size=rows).astype(sums), RNG.normal(size=rows).astype(sums)


def unit(dtype="float64", last=False):
    return part(8, 16, 1, dtype, last), part(12, 8, 3, dtype, last, padding="same"), part(16, 12, 1, dtype, last)


def image(shape, dtype, last):
    x = RNG.normal(size=shape).astype(dtype)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x


def whole(x, parts, relu=True, preactivate=False, x_gain=None, x_bias=None):
    y = x
    if preactivate:
        y = tartan.channel_linear(x, gain=x_gain, bias=x_bias, relu=True, channels_last=parts[0][0].channels_last)
    for i, (conv, w, gain, bias) in enumerate(parts):
        y = conv(y, w, gain=gain, bias=bias, relu=i < 2)
    y = x + y
    return np.maximum(y, 0) if relu else y


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("options", [{}, {"relu": False, "preactivate": True}])
def test_equals_the_unit_over_the_whole_image(dtype, last, options):
    parts, shape = unit(dtype, last), (1, 16, 13, 18)
    x = image(shape, dtype, last)
    if options:
        options = options | {"x_gain": RNG.normal(size=16).astype(dtype), "x_bias": RNG.normal(size=16).astype(dtype)}
    grid = RNG.random((3, 4)) < 0.5
    active = tartan.Layout.from_mask(grid, block=1)
    seen = grid.repeat(5, 0).repeat(5, 1)[None, :13, :18]
    seen = seen[..., None] if last else seen[:, None]
    want = np.where(seen, whole(x, parts, **options), x)
    before = x.copy()
    y = tartan.residual_unit(x, *parts, active, 5, **options)
    assert y.dtype == x.dtype and np.array_equal(x, before)
    np.testing.assert_array_equal(y, want)
    assert tartan.residual_unit(x, *parts, active, (5, 5), out=x, **options) is x
    np.testing.assert_array_equal(x, want)


def test_parts_without_gain_and_without_a_batch():
    parts = [p[:2] for p in unit()]
    x = RNG.normal(size=(16, 10, 10))
    y = tartan.residual_unit(x, *parts, tartan.Layout.from_mask(np.ones((2, 2)), block=1), 5)
    np.testing.assert_array_equal(y, whole(x, [(*p, None, None) for p in parts]))
    again = tartan.residual_unit(x.tolist(), *parts, tartan.Layout.from_mask(np.zeros((2, 2)), block=1), 5)
    np.testing.assert_array_equal(again, x)


def test_refusals():
    parts, x = unit(), np.zeros((1, 16, 10, 10))
    active = tartan.Layout.from_mask(np.ones((2, 2)), block=1)
    with pytest.raises(TypeError, match="spatial is not \\(conv, filter\\)"):
        tartan.residual_unit(x, parts[0], parts[1][0], parts[2], active, 5)
    with pytest.raises(TypeError, match="expand is not"):
        tartan.residual_unit(x, *parts[:2], parts[2][:3], active, 5)
    with pytest.raises(tartan.ArgumentError, match="windows overlap"):
        tartan.residual_unit(x, *parts, active, "size=5 stride=4")
    with pytest.raises(tartan.ArgumentError, match="larger than x"):
        tartan.residual_unit(x, *parts, active, 11)
    with pytest.raises(tartan.ShapeError, match="reduce has 16 input channels, expected 12"):
        tartan.residual_unit(x[:, :12], *parts, active, 5)
    with pytest.raises(tartan.ArgumentError, match="x_gain is given, which needs preactivate=True"):
        tartan.residual_unit(x, *parts, active, 5, x_gain=np.ones(16))
    with pytest.raises(tartan.ShapeError, match="out has shape"):
        tartan.residual_unit(x, *parts, active, 5, out=np.zeros((1, 16, 10, 9)))


def test_torch():
    torch = pytest.importorskip("torch")
    parts = [(c, w, torch.from_numpy(g), torch.from_numpy(b)) for c, w, g, b in unit("float32")]
    x = torch.randn(1, 16, 10, 10).contiguous(memory_format=torch.channels_last)
    active = tartan.Layout.from_mask(np.ones((2, 2)), block=1)
    y = tartan.residual_unit(x, *parts, active, 5)
    z = x
    for i, (conv, w, gain, bias) in enumerate(parts):
        z = torch.nn.functional.conv2d(z, torch.from_numpy(conv.to_dense(w)), padding="same")
        z = gain[:, None, None] * z + bias[:, None, None]
        z = z.relu() if i < 2 else (z + x).relu()
    assert isinstance(y, torch.Tensor) and y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-4)
    with pytest.raises(tartan.ArgumentError, match="records gradients"):
        tartan.residual_unit(x.requires_grad_(), *parts, active, 5)
