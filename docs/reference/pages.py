#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py FOLDER: the sources of the reference that Sphinx reads, of what the package has: a page for each class of Python, one for
the functions, and an index of these, of the other languages' references and of the pages in docs/."""

import ast
import inspect
import pathlib
import sys

import tartan

LANGUAGES = {
    "Python": "pages in this reference: [functions](python/functions), [errors](python/errors), and one for each class below",
    "PyTorch": "[tartan.torch](python/torch), and how to use it: [PyTorch](pytorch)",
    "R": "the help pages: [R](r/index.html)",
    "Julia": "the docstrings: [Julia](julia/index.html)",
}
GUIDES = (
    "conventions", "training", "attention", "convolution", "pytorch", "python_gpu", "julia", "r", "file_format", "binsparse_bsr", "numerics", "manners",
    "performance", "performance_attention", "performance_published", "building", "architecture",
)  # fmt: skip


def page(title, directives):
    return f"# {title}\n\n```{{eval-rst}}\n" + "\n\n".join(directives) + "\n```\n"


def definition(node, kind):
    """A function or class as its source says, without importing it."""
    init = next((x for x in getattr(node, "body", ()) if isinstance(x, ast.FunctionDef) and x.name == "__init__"), None)
    arguments = node.args if isinstance(node, ast.FunctionDef) else init.args if init else ast.arguments([], [], None, [], [], None, [])
    signature = ast.unparse(arguments).removeprefix("self, ").removeprefix("self")
    text = (ast.get_docstring(node) or "").replace("|", "\\|")
    lines = [f".. py:{kind}:: {node.name}({signature})", "", *("   " + line for line in text.splitlines()), ""]
    for member in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_") and ast.get_docstring(member):
            lines += ["   " + line for line in definition(member, "method").splitlines()]
    return "\n".join(lines)


def of_torch():
    """What tartan.torch offers. It is read, not imported, so the reference needs no PyTorch."""
    folder = pathlib.Path(tartan.__file__).parent / "torch"
    top = ast.parse((folder / "__init__.py").read_text())
    names = {x.name for node in top.body if isinstance(node, ast.ImportFrom) for x in node.names if not x.name.startswith("_")}
    for path in sorted(folder.glob("_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in names:
                yield definition(node, "class" if isinstance(node, ast.ClassDef) else "function")


def write(folder):
    python = folder / "python"
    python.mkdir(parents=True, exist_ok=True)
    members = {name: getattr(tartan, name) for name in sorted(tartan.__all__)}
    errors = [name for name, x in members.items() if inspect.isclass(x) and issubclass(x, Exception)]
    classes = [name for name, x in members.items() if inspect.isclass(x) and name not in errors]
    functions = [name for name, x in members.items() if inspect.isroutine(x)]
    for name in classes:
        (python / f"{name}.md").write_text(page(name, [f".. autoclass:: tartan.{name}\n   :members:\n   :undoc-members:\n   :inherited-members: Mapping, MutableMapping, tuple"]))
    (python / "errors.md").write_text(page("Errors", [f".. autoexception:: tartan.{name}\n   :members:" for name in errors]))
    (python / "functions.md").write_text(page("Functions", [f".. autofunction:: tartan.{name}" for name in functions]))
    (python / "torch.md").write_text(page("tartan.torch", list(of_torch())))
    guides = [name for name in GUIDES if (folder / f"{name}.md").exists()]
    lines = ["# Tartan", "", "Block-sparse computing in C, with Python, R and Julia.", "", "| language | reference |", "|---|---|"]
    lines += [f"| {language} | {text} |" for language, text in LANGUAGES.items()]
    for caption, names in (("Guides", guides), ("Python", ["python/functions", *(f"python/{x}" for x in classes), "python/errors", "python/torch"])):
        lines += ["", "```{toctree}", f":caption: {caption}", ":maxdepth: 1", "", *names, "```"]
    (folder / "index.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
