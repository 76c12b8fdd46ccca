# SPDX-License-Identifier: Apache-2.0
"""vignette.py NOTEBOOK OUT: an executed notebook as one HTML file for R's vignettes, which needs nothing from the network. If its code
reads no files of the source tree, the page holds the code, too, for what R calls the code of a vignette."""
import pathlib
import re
import sys

import nbformat
from nbconvert import HTMLExporter

STYLE = """body { max-width: 50em; margin: 2em auto; padding: 0 1em; font-family: sans-serif; line-height: 1.5; }
pre { background: #f6f6f6; padding: 0.6em; overflow-x: auto; line-height: 1.3; }
img { max-width: 100%; } .output pre { background: none; } .anchor-link, .prompt { display: none; }"""

notebook = nbformat.read(sys.argv[1], as_version=4)
title = re.match(r"# (.*)", notebook.cells[0].source).group(1)
notebook.cells = [c for c in notebook.cells if not (c.cell_type == "code" and not c.source.strip())]
code = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "code")
script = "" if "../" in code else f'<script type="text/x-r">\n{code}\n</script>\n'
body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
pathlib.Path(sys.argv[2]).write_text(
    f"""<!DOCTYPE html>
<!--
%\\VignetteIndexEntry{{{title}}}
%\\VignetteEngine{{tartan::asis}}
%\\VignetteEncoding{{UTF-8}}
-->
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head>
<body>
{body}
{script}</body></html>
""",
    encoding="utf-8",
)
