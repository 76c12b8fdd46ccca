# SPDX-License-Identifier: Apache-2.0
"""`tartan show`: text, SVG and PNG."""

import os
import re
import shutil
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from tool import HERE, braille, files_in, read_png, run


def test_show_text(here):
    run("new", "a.h5", "--pattern", "banded", "--size", 320, "--block", 32, "--param", "lower=2", "--param", "upper=1")
    text = run("show", "a.h5")
    assert text.startswith("banded: 320 x 320, blocks of 32 x 32, 1 head\n36 blocks, density 0.3600, 2 to 4 per row")
    assert "bandwidth 2 below, 1 above" in text
    i, j = np.indices((10, 10))
    assert np.array_equal(braille(text)[:10, :10], (i - j <= 2) & (j - i <= 1))
    assert not braille(text)[10:].any() and not braille(text)[:, 10:].any()
    assert run("show", "a.h5", "banded") == text


def test_show_text_of_odd_shapes(here):
    for size, block, heads in [("100000x8", 8, 1), ("8x100000", 8, 1), ("3x5", 256, 1), ("64x64", 8, 40), ("0x0", 8, 1),
                               ("0x64", 8, 1), ("64x0", 8, 2)]:
        run("new", "a.h5", "--pattern", "dense", "--size", size, "--block", block, "--heads", heads)
        text = run("show", "a.h5")
        assert len(text.splitlines()) < 400 and max(map(len, text.splitlines())) < 200
        for option in ("--svg", "--png"):
            run("show", "a.h5", option, "a.picture", "--pixels", 64)
            assert (here / "a.picture").stat().st_size > 60
    run("new", "a.h5", "--pattern", "dense", "--size", 64, "--block", 8, "--heads", 40)
    assert "(and 32 more heads)" in run("show", "a.h5")


def test_show_lists(here):
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    run("new", "a.h5", "--pattern", "banded", "--size", 64, "--append", "--values", "zeros")
    text = run("show", "a.h5")
    assert text.startswith("a.h5: 3 objects, sealed\n")
    run("show", "a.h5", "--svg", "a.svg", code=2, text="choose the one to draw")
    assert files_in(here) == ["a.h5"]
    assert "banded: 64 x 64" in run("show", "a.h5", "banded")
    run("show", "a.h5", "tweed", code=1, text="tweed")
    # A layout and a matrix of one name count as one.
    run("new", "b.h5", "--pattern", "banded", "--size", 64, "--values", "zeros")
    assert "banded: 64 x 64" in run("show", "b.h5")


def test_show_arrays(here):
    shutil.copy(HERE.parents[2] / "data/golden/v1.2/plain.h5", "a.h5")
    text = run("show", "a.h5")
    assert re.search(r"^  array +a bias +float32, 2 x 3$", text, re.MULTILINE)
    assert re.search(r"^  array +a/steps +int64, a single number$", text, re.MULTILINE)
    assert run("show", "a.h5", "a bias") == "a bias: array, float32, 2 x 3\n"
    run("show", "a.h5", "a bias", "--svg", "a.svg", code=1, text="a bias: is an array, which has no layout to draw")
    run("show", "a.h5", "a bias", "--png", "a.png", code=1, text="a bias: is an array, which has no layout to draw")
    assert files_in(here) == ["a.h5"]


def test_show_svg(here):
    run("new", "a.h5", "--pattern", "random", "--size", 512, "--heads", 2)
    assert run("show", "a.h5", "--svg", "a.svg", "--pixels", 300) == ""
    root = ElementTree.parse("a.svg").getroot()
    assert root.tag.endswith("svg") and root.get("width") == "300"
    run("show", "a.h5", "--svg", "b.svg", "--png", "b.png")
    assert ElementTree.parse("b.svg").getroot().get("width") == "800" and read_png("b.png").shape[1] == 800


def test_show_png(here):
    run("new", "a.h5", "--pattern", "banded", "--size", "256x512", "--block", 32)
    run("show", "a.h5", "--png", "a.png", "--pixels", 160)
    image = read_png("a.png")
    assert image.shape == (80, 160, 3)
    i, j = np.indices((8, 16))
    expected = np.where((abs(i - j) <= 1)[..., None], [0x1F, 0x4E, 0x79], 255)
    expected = np.repeat(np.repeat(expected, 10, 0), 10, 1)
    expected[[0, -1]] = expected[:, [0, -1]] = 0x80  # a frame
    assert np.array_equal(image, expected)


def test_show_png_heads_and_shades(here):
    run("new", "a.h5", "--pattern", "random", "--size", 64, "--block", 8, "--heads", 3, "--seed", 1)
    run("show", "a.h5", "--png", "a.png", "--pixels", 96)
    image = read_png("a.png")
    assert image.shape == (28, 96, 3)
    assert (image[:, 28:34] == 255).all() and (image[:, 62:68] == 255).all()
    assert all((image[1:-1, x + 1:x + 27] != 255).any() for x in (0, 34, 68))
    # Far more blocks than pixels: a shade, and single blocks stay visible.
    run("new", "b.h5", "--pattern", "checker", "--size", 1024, "--block", 1)
    run("show", "b.h5", "--png", "b.png", "--pixels", 32)
    image = read_png("b.png")[1:-1, 1:-1]
    assert (image == image[0, 0]).all() and abs(image[0, 0, 0] - (255 - (255 - 0x1F) / 2)) <= 1
    run("new", "c.h5", "--pattern", "banded", "--param", "lower=0", "--param", "upper=0", "--size", 4096, "--block", 1)
    run("show", "c.h5", "--png", "c.png", "--pixels", 32)
    image = read_png("c.png")[1:-1, 1:-1]
    assert (np.diagonal(image[..., 0]) < 180).all() and (image[0, 1:] == 255).all()


@pytest.mark.parametrize("option", ["--svg", "--png"])
def test_show_writes_whole_files_or_none(here, option):
    run("new", "a.h5", "--pattern", "random", "--size", 4096)
    run("show", "a.h5", option, "missing/a.out", code=1, text="missing/a.out: No such file or directory")
    run("show", "a.h5", option, ".", code=1, text="Is a directory")
    run("show", "a.h5", option, "a.out", code=1, text="File too large", limit=512)
    assert files_in(here) == ["a.h5"]
    (here / "a.out").write_bytes(b"old")
    run("show", "a.h5", option, "a.out", code=1, text="File too large", limit=512)
    assert (here / "a.out").read_bytes() == b"old" and files_in(here) == ["a.h5", "a.out"]
    # Through a link, keeping the permissions of what is replaced; a device is written in place.
    (here / "a.out").chmod(0o640)
    (here / "link").symlink_to("a.out")
    run("show", "a.h5", option, "link")
    assert (here / "link").is_symlink() and (here / "a.out").stat().st_size > 512
    assert (here / "a.out").stat().st_mode & 0o777 == 0o640
    run("show", "a.h5", option, "/dev/full", code=1, text="No space left on device")
    assert run("show", "a.h5", "--svg", "/dev/stdout").startswith("<svg")
    assert os.path.exists("/dev/full") and files_in(here) == ["a.h5", "a.out", "link"]


def test_show_refuses_what_is_not_a_file_of_ours(here):
    run("show", "a.h5", code=1, text="a.h5")
    (here / "a.h5").write_bytes(b"not ours at all" * 100)
    run("show", "a.h5", code=1, text="a.h5")
    run("show", ".", code=1)
