# SPDX-License-Identifier: Apache-2.0
"""Windows of images: which are active, gather and scatter."""

import pathlib
import runpy

import numpy as np
import pytest

import tartan
from tartan import Layout, window_gather, window_scatter, windows_for_conv


def test_windows_of_a_convolution():
    inputs, outputs = windows_for_conv((64, 96), (3, 3), output=(16, 8))
    assert outputs == "size=16x8 stride=16x8 offset=0x0 count=4x12"
    assert inputs == "size=18x10 stride=16x8 offset=-1x-1 count=4x12"
    assert windows_for_conv((64, 96), (3, 3), size=(18, 10)) == (inputs, outputs)
    assert windows_for_conv((64, 96), [(1, 1), (3, 3), (1, 1)], output=(16, 8)) == (inputs, outputs)
    assert windows_for_conv(40, 5, output=8, padding="valid")[1].startswith("size=8")
    with pytest.raises(tartan.ArgumentError):
        windows_for_conv((64, 96), (3, 3), padding="none", output=16)
    with pytest.raises(tartan.ArgumentTypeError, match="output is 1.5"):
        windows_for_conv((64, 96), (3, 3), output=1.5)
    with pytest.raises(tartan.ArgumentError, match="^neither size nor output is given"):
        windows_for_conv((64, 96), (3, 3))
    with pytest.raises(tartan.ArgumentTypeError, match=r"image is \(64, 9.5\)"):
        windows_for_conv((64, 9.5), (3, 3), output=8)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float32, np.float64, np.float16])
def test_active_windows_of_masks(rng, dtype):
    mask = rng.random((3, 10, 12)) < 0.1
    _, windows = windows_for_conv((10, 12), (3, 3), output=4)
    wanted = np.pad(mask, ((0, 0), (0, 2), (0, 0))).reshape(3, 3, 4, 3, 4).any((2, 4))
    active = Layout.from_windows(mask.astype(dtype), windows)
    assert active.heads == 3 and not active.dynamic and np.array_equal(active.mask(), wanted)
    assert Layout.from_windows(mask[:, None].astype(dtype), windows) == active
    assert np.array_equal(Layout.from_windows(mask[1].astype(dtype), windows).mask(), wanted[1])


def test_pooling(rng):
    mask = rng.random((2, 8, 8)).astype(np.float32)
    mean = mask.reshape(2, 2, 4, 2, 4).mean((2, 4))
    for tolerance in (0.45, 0.5, 0.55):
        active = Layout.from_windows(mask, "size=4 count=2x2", pool="average", tolerance=tolerance)
        assert np.array_equal(active.mask(), mean > tolerance)
    with pytest.raises(tartan.ArgumentError, match="pool"):
        Layout.from_windows(mask, "size=4 count=2x2", pool="min")
    with pytest.raises(tartan.ArgumentError):
        Layout.from_windows(np.full((4, 4), np.nan), "size=4 count=1x1")
    with pytest.raises(tartan.ArgumentError, match="layout is not dynamic"):
        Layout.pattern("dense", (2, 2), 1).update_windows(mask[0], "size=4 count=2x2")


@pytest.mark.parametrize("last", [False, True])
def test_gather_and_scatter(rng, last):
    x = rng.standard_normal((2, 5, 7, 9))
    mask = rng.random((2, 4, 5)) < 0.5
    active, windows = Layout.from_mask(mask, 1), "size=2x2 stride=2x2"
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 1)))
    wanted = np.stack([padded[n, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] for n, i, j in np.argwhere(mask)])
    given, turned = (x.transpose(0, 2, 3, 1), wanted.transpose(0, 2, 3, 1)) if last else (x, wanted)
    blocks = window_gather(given, active, windows, channels_last=last)
    assert np.array_equal(blocks, turned)
    inside = np.repeat(np.repeat(mask, 2, 1), 2, 2)[:, None, :7, :9]
    inside = inside.transpose(0, 2, 3, 1) if last else inside
    y = np.full(given.shape, 3.0)
    assert window_scatter(blocks, active, windows, y, channels_last=last) is y
    assert np.array_equal(y, np.where(inside, given, 3))
    assert np.array_equal(window_scatter(None, active, windows, base=given, channels_last=last), np.where(inside, 0, given))
    added = window_scatter(blocks, active, windows, base=given, add=True, channels_last=last)
    assert np.array_equal(added, np.where(inside, 2 * given, given))


def test_gather_keeps_the_order_of_memory_and_takes_single_images(rng):
    x = np.asfortranarray(rng.standard_normal((1, 6, 6, 4))).copy()
    active = Layout.from_mask([[1, 0, 1]], 1)
    blocks = window_gather(x.transpose(0, 3, 1, 2), active, "size=6x2")
    assert blocks.transpose(0, 2, 3, 1).flags.c_contiguous
    assert np.array_equal(window_gather(x[0].transpose(2, 0, 1), active, "size=6x2"), blocks)
    assert window_gather(np.arange(12.0).reshape(1, 2, 6), active, 2).tolist() == [[[0, 1], [6, 7]], [[4, 5], [10, 11]]]
    out = np.empty_like(blocks)
    assert window_gather(x.transpose(0, 3, 1, 2), active, "size=6x2", out=out) is out and np.array_equal(out, blocks)


def test_refusals(rng):
    active, x = Layout.from_mask([[1, 0], [1, 1]], 1), rng.standard_normal((1, 3, 4, 4))
    with pytest.raises(tartan.ArgumentError, match="neither y nor base"):
        window_scatter(None, active, (2, 2))
    with pytest.raises(tartan.ArgumentError):
        window_scatter(np.zeros((3, 3, 3, 3)), active, "size=3x3 stride=2x2", x)
    with pytest.raises(tartan.ShapeError, match=r"active has \d x \d windows, expected 7 x 1 \(size=2x2"):
        window_gather(x, active, "size=2x2 count=7x1")
    with pytest.raises(tartan.ShapeError, match="x has 2 dimensions, expected 4, or 3 without a batch"):
        window_gather(x[0, 0], active, (2, 2))
    with pytest.raises(tartan.HandleTypeError, match="active"):
        window_gather(x, "active", (2, 2))
    with pytest.raises(tartan.ShapeError, match="window_scatter: blocks"):
        window_scatter(np.zeros((2, 3, 2, 2)), active, (2, 2), x)


# ---- The worked example of docs/convolution.md ----

DOCS = pathlib.Path(__file__).parents[3] / "docs"


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not here")
def test_pictures_are_those_of_the_library():
    page = (DOCS / "convolution.md").read_text()
    example = runpy.run_path(str(DOCS / "convolution" / "blocks.py"))
    for size in example["PICTURES"]:
        active = example["windows_of"](size)[2]
        assert (DOCS / "convolution" / f"windows_{size}.svg").read_text() == active.svg(256) + "\n"
        assert f"(convolution/windows_{size}.svg)" in page
    for size in example["SIZES"]:
        active, (height, width) = example["windows_of"](size)[2], example["SHAPE"]
        share = active.blocks * size * size / (height * width)
        assert f"| {size} x {size} | {active.blocks} of {active.rows * active.cols} | {share:.1%} |" in page
