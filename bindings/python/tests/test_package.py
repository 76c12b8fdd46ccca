# SPDX-License-Identifier: Apache-2.0
"""Examples in docstrings, types, and what is exported."""

import ast
import doctest
import graphlib
import importlib
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import tartan

MODULES = [
    "",
    "._arrays",
    "._arithmetic",
    "._assembly",
    "._attention",
    "._block_mask",
    "._call",
    "._closing",
    "._context",
    "._device",
    "._errors",
    "._formats",
    "._index",
    "._io",
    "._join",
    "._layout",
    "._layout_facts",
    "._linalg",
    "._matrix",
    "._matrix_adding",
    "._matrix_facts",
    "._matrix_fill",
    "._operations",
    "._patterns",
    "._product",
    "._queue",
    "._residual",
    "._reductions",
    "._sequences",
    "._sparse",
    "._sparsifier",
    "._store",
    "._transposed",
]
PACKAGE = pathlib.Path(tartan.__file__).parent


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module("tartan" + name)
    options = doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(module, optionflags=options).failed == 0


def test_there_are_examples():
    assert (
        sum(len(doctest.DocTestFinder().find(importlib.import_module("tartan" + m))) > 0 for m in MODULES) > 5
    )


def test_exports_are_sorted():
    assert tartan.__all__ == sorted(tartan.__all__)


def members(owner):
    """The public names that a class has of Tartan's own classes, and what they stand for."""
    for base in owner.__mro__:
        if base.__module__.partition(".")[0] == "tartan" and not issubclass(base, tuple):
            yield from ((name, getattr(owner, name)) for name in vars(base) if not name.startswith("_"))


def test_public_members_are_documented():
    modules = [tartan]
    if importlib.util.find_spec("torch"):
        modules.append(importlib.import_module("tartan.torch"))
    lacking = []
    for module in modules:
        for name in module.__all__:
            found = getattr(module, name)
            about = [(name, found)]
            if inspect.isclass(found):
                about += [(f"{name}.{member}", value) for member, value in members(found)]
            lacking += [
                f"{module.__name__}.{name}" for name, value in about
                if (callable(value) or inspect.isdatadescriptor(value)) and not inspect.getdoc(value)
            ]  # fmt: skip
    assert not lacking


def test_works_without_optional_packages():
    """Without ml_dtypes, SciPy and h5py; bit patterns are never taken for numbers, nor integers for bit patterns."""
    code = """
import sys
for name in ("ml_dtypes", "scipy", "h5py"): sys.modules[name] = None
import numpy as np, tartan
def refused(kind, words, call):
    try: call()
    except kind as error: assert words in str(error), error
    else: raise AssertionError(words)
A = tartan.BlockMatrix.from_dense(np.diag([1.0, 2, 3, 4]), 2, dtype="bfloat16")
assert A.dtype_name == "bfloat16" and A.bits[0].tolist() == [[0x3F80, 0], [0, 0x4000]]
assert A.toarray().dtype == np.float32 and A.toarray().tolist() == np.diag([1.0, 2, 3, 4]).tolist()
for use in (lambda: A.values, lambda: A.dtype, lambda: A.to_coo(), lambda: A @ [1.0, 2, 3, 4]):
    refused(tartan.DTypeError, "ml_dtypes", use)
bits = np.array([0x3F80, 0x4000, 0, 0], np.uint16)
refused(tartan.DTypeError, "install", lambda: A @ bits)
refused(tartan.DTypeError, "install", lambda: tartan.spmm(A, bits, out=bits.copy()))
B = tartan.BlockMatrix.from_bits(A.layout, A.bits.copy())
assert B.astype("float32").toarray().tolist() == A.toarray().tolist()
import pickle; again = pickle.loads(pickle.dumps(A)); assert again.dtype_name == "bfloat16" and (again.bits == A.bits).all()
refused(ImportError, "", tartan.BlockMatrix.from_dense(np.eye(4), 2).to_scipy)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_import_each_other_one_way():
    """Imports inside functions and those for types count."""
    uses = {}
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        found = {node.module for node in imports if node.module}
        found |= {f"tartan.{name.name}" for node in imports if node.module == "tartan" for name in node.names}
        names = {name.partition(".")[2] for name in found if name.startswith("tartan.")}
        uses[path.stem] = {name for name in names if (PACKAGE / f"{name}.py").exists()}
    order = list(graphlib.TopologicalSorter(uses).static_order())  # raises CycleError
    assert order[-1] == "__init__" and len(order) == len(uses)


def test_types_hold():
    pytest.importorskip("mypy")
    assert (PACKAGE / "py.typed").exists()
    installed = ["-p", "tartan"]  # whose neighbours are no sources of ours
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--no-incremental",
         "--cache-dir=/dev/null", *(installed if "site-packages" in PACKAGE.parts else [str(PACKAGE)])],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_stub_of_the_raw_layer_holds():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "tartan._raw", "--ignore-missing-stub"],
        capture_output=True, text=True, env={**os.environ, "MYPY_CACHE_DIR": os.devnull},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_info_and_kernels():
    assert tartan.info()["tartan"] == tartan.__version__
    known = {"c", "avx2", "avx512", "avx512bf16", "avx512fp16", "amx", "neon", "sve"}
    assert set(tartan.cpu_kernels().split(",")) <= known
    assert tartan.info()["cpu"]["kernels"] == tartan.cpu_kernels()
    with tartan.Context(threads=1) as context:
        assert context.peak() > 0.1 and context.peak("float32") > context.peak() / 4
    with pytest.raises(tartan.DTypeError):
        tartan.default_context().peak("int8")
