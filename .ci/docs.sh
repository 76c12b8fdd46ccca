#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The reference of the three languages and the pages of docs/ as HTML, in build/docs/html, from a built tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
place=$PWD/build/docs
mkdir -p "$place"
if [ ! -x "$place/venv/bin/sphinx-build" ]; then
    "$PYTHON" -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet -r .ci/requirements-docs.txt
fi
rm -rf "$place/source" "$place/html"
mkdir -p "$place/source/python" "$place/html"
cp docs/*.md docs/*.svg docs/reference/conf.py "$place/source/"
for folder in attention convolution; do cp -R "docs/$folder" "$place/source/"; done
"$place/venv/bin/python" docs/reference/pages.py "$place/source"
# Only what is wrong is worth a line.
"$place/venv/bin/sphinx-build" --quiet --keep-going -b html "$place/source" "$place/html" 2>"$place/warnings.log" || {
    tail -n 40 "$place/warnings.log"
    exit 1
}
command -v Rscript >/dev/null && Rscript docs/reference/pages.R "$TARTAN_BUILD/bindings/r/tartan" "$place/html/r"
[ -z "$JULIA" ] || "$JULIA" --startup-file=no docs/reference/pages.jl "$place/html/julia"
echo "build/docs/html/index.html"
