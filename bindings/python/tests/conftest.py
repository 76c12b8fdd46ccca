# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

import re
import sys

import numpy as np
import pytest

import tartan
from tartan import _errors

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def random_layout(rng, shape, block, density=0.4, heads=1):
    block = block if isinstance(block, tuple) else (block, block)
    grid = [-(-n // b) for n, b in zip(shape, block)]
    mask = rng.random((heads, *grid)) < density
    return tartan.Layout.from_mask(mask, block, shape=(heads, *shape) if heads > 1 else shape)


def random_matrix(rng, shape, block, density=0.4, heads=1, dtype="float64", order="C"):
    layout = random_layout(rng, shape, block, density, heads)
    dense = rng.standard_normal((heads, *shape) if heads > 1 else shape)
    return tartan.BlockMatrix.from_dense(dense, layout=layout, dtype=dtype, order=order)


def assert_product(actual, a, b, dtype):
    """Within the documented bound of the f64 product; 16-bit results also carry one rounding of their own."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    wanted, weight, k = a @ b, np.abs(a) @ np.abs(b), b.shape[-2] if b.ndim > 1 else b.shape[0]
    eps = EPS[dtype]
    bound = (8 + 2 * np.sqrt(k)) * min(eps, EPS["float32"]) * weight
    if dtype in ("float16", "bfloat16"):
        bound = bound + eps / 2 * np.abs(wanted) * (1 + eps) + 2.0**-24
    error = np.abs(np.asarray(actual, np.float64) - wanted)
    assert actual.shape == wanted.shape
    assert (error <= bound).all(), (error - bound).max()


@pytest.fixture
def rng(request):
    return np.random.default_rng(sum(request.node.name.encode()))


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


# The first word of a message that speaks of an argument, and objects that need not be arguments.
ARGUMENT = re.compile(r"(?:\w+: )?(\w+)(?:\[[\d, ]*\])? (?:is|has|overlaps|ends|begins|cannot|holds) ")
OBJECTS = {"context", "conv", "file", "layout", "mask", "matrix", "sparsifier"}


def names_in_stack(frame):
    """The parameters of the package's functions between the library and the test; None if the test called the raw layer."""
    names = None
    while frame is not None and "/tests/" not in frame.f_code.co_filename:
        code = frame.f_code
        if "/tartan/_" in code.co_filename:
            count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
            operator = {"a", "b"} if code.co_name.startswith("__") else set()
            names = (names or OBJECTS) | operator | set(code.co_varnames[:count])
            if code.co_flags & 8:  # the keywords that it passes on
                names |= set(frame.f_locals[code.co_varnames[count - 1]])
        frame = frame.f_back
    return names


@pytest.fixture(autouse=True)
def messages_have_the_names_of_python(monkeypatch):
    """Every message of the library in every test: no C function, and no argument that the function called has not."""
    wrong = []

    def checked(make):
        def made(status, text):
            error = make(status, text)
            names, found = names_in_stack(sys._getframe(1)), ARGUMENT.match(error.text)
            if names is not None and not text.startswith("tartan_file_") and (  # which names files
                re.search(r"\btartan_\w+", error.text) or (found is not None and found[1] not in names)
            ):
                wrong.append(error.text)
            return error

        return made

    monkeypatch.setattr(_errors, "of_status", checked(_errors.of_status))
    monkeypatch.setattr(_errors, "of_type", checked(_errors.of_type))
    yield
    assert not wrong
