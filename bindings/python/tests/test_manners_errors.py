# SPDX-License-Identifier: Apache-2.0
"""What is wrong is refused at once, with an error of Tartan's that says what was expected."""

import inspect

import numpy as np
import pytest

import tartan
from tartan import BlockConv, BlockMatrix, Layout

LAYOUT = Layout.pattern("dense", (4, 4), 2)
A = BlockMatrix.from_dense(np.ones((4, 4)), block=2)
CONV = BlockConv(LAYOUT, (1, 1))
HUGE = 10**400

REFUSED = {
    "tolerance": (lambda: Layout.from_windows(np.ones((4, 4)), "size=2x2 stride=2x2", tolerance="x"), "tolerance is 'x', expected a number"),
    "large tolerance": (lambda: Layout.from_windows(np.ones((4, 4)), "size=2x2 stride=2x2", tolerance=HUGE), "tolerance is above"),
    "softmax": (lambda: tartan.block_softmax(A, scale="x"), "scale is of type str, expected a number"),
    "windows": (lambda: tartan.windows_for_conv(2**70, 3, size=4), "image is .*, expected lengths below"),
    "packed": (lambda: tartan.packed([5, 64, (1, 2)], 8), "lengths is no list of integers"),
    "factor": (lambda: A.copy().__imul__(HUGE), "the number is inf"),
    "vstack": (lambda: tartan.vstack(2**70), "matrices is of type int, expected a list of matrices"),
    "block_diag": (lambda: tartan.block_diag(None), "matrices is of type NoneType, expected a list of matrices"),
    "block_array": (lambda: tartan.block_array([3]), "a row of the grid is of type int, expected a list of matrices"),
    "slice": (lambda: A.block[slice("a", 3)], "expected slices of integers"),
    "block": (lambda: A.block[3], "index is 3, expected a block row and a block column, or slices of both"),
    "options": (lambda: BlockConv.from_options(LAYOUT, (-1, 2)), "options is .*, expected a text"),
    "windows of a conv": (lambda: CONV(np.ones((1, 4, 4, 4)), CONV.filter(np.ones((4, 4, 1, 1))), active=LAYOUT), "windows is None, expected a text like"),
    "datetime": (lambda: A @ np.array(["2020-01-01"] * 4, "M8[D]"), r"b is of datetime64\[D\], expected real numbers"),
    "mask": (lambda: tartan.attention(*(np.ones((1, 1, 4, 2)),) * 3, LAYOUT, mask="x"), "BlockMask"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(name):
    call, text = REFUSED[name]
    with pytest.raises(tartan.TartanError, match=text):
        call()


def _working():
    """Functions with an `out` that do their work on square arrays, as (function, number of them)."""
    for name in tartan.__all__:
        function = getattr(tartan, name)
        if not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters
        required = [p for p in parameters.values() if p.default is p.empty and p.kind == p.POSITIONAL_OR_KEYWORD]
        if "out" not in parameters or parameters["out"].default is parameters["out"].empty:
            continue
        try:
            function(*(np.ones((4, 4)),) * len(required))
        except (tartan.TartanError, TypeError):
            continue
        yield function, len(required)


WORKING = list(_working())


@pytest.mark.parametrize("out", [-1, 0, 1, (1, 1, 4, 4), 1.5, "out"], ids=repr)
def test_out_is_an_array_alone(out):
    """Numbers and tuples say nothing to the binding itself, whatever the function."""
    x, filter = np.ones((1, 4, 4, 4)), CONV.filter(np.ones((4, 4, 1, 1)))
    calls = [lambda: CONV(x, filter, out=out), lambda: CONV.input_gradient(x, filter, out=out), lambda: tartan.spmm(A, np.ones(4), out=out)]
    assert len(WORKING) > 20
    calls += [lambda f=f, n=n: f(*(np.ones((4, 4)),) * n, out=out) for f, n in WORKING]
    for call in calls:
        with pytest.raises(tartan.TartanError):
            call()


def test_too_large_is_known_before_any_work():
    """Refused before blocks are counted one by one: these would be some 10**18 of them."""
    with pytest.raises((tartan.SizeOverflowError, tartan.OutOfMemoryError)):
        Layout.from_sequences(1, [0, 2**31 - 1])
