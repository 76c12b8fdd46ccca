# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/pytorch.md, and those of tartan.torch's docstrings."""

import doctest
import importlib
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")
import tartan.torch  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"
MODULES = ["", "._attention", "._conv", "._linear", "._patch", "._sparsifier"]


def test_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    names = {}
    for i, example in enumerate(examples):
        exec(compile(example, f"example {i + 1} of pytorch.md", "exec"), names)
    assert len(examples) == 7 and "parameters" in capsys.readouterr().out
    model, again, x = names["model"], names["again"], torch.randn(3, 64)
    assert torch.equal(model(x), again(x)) and model[0].density == 0.25
    assert len(PAGE.read_text().splitlines()) <= 160


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    module = importlib.import_module("tartan.torch" + name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0 and found.attempted > 0


def test_exports_are_documented_and_sorted():
    assert tartan.torch.__all__ == sorted(tartan.torch.__all__)
    for name in tartan.torch.__all__:
        public = getattr(tartan.torch, name)
        assert public.__doc__, name
        for member, value in vars(public).items() if isinstance(public, type) else ():
            if not member.startswith("_") and (callable(value) or isinstance(value, (property, classmethod))):
                overrides = any(hasattr(base, member) for base in public.__mro__[1:])
                assert value.__doc__ or overrides, f"{name}.{member}"
