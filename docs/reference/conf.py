# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings for `./run docs`."""

project = "Tartan"
author = "the Tartan developers"
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode", "myst_parser"]
# One backtick in a docstring marks a name.
default_role = "code"
autodoc_member_order = "groupwise"
autodoc_mock_imports = ["jax"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Tartan"
exclude_patterns = ["lab"]
# Pages of the tree link to files of the tree, which are no pages here.
suppress_warnings = ["myst.xref_missing"]


def setup(app):
    # |x| is an absolute value in our texts, a substitution to docutils.
    def keep_bars(app, what, name, obj, options, lines):
        lines[:] = [line if line.lstrip().startswith(">>>") else line.replace("|", "\\|") for line in lines]

    app.connect("autodoc-process-docstring", keep_bars)
