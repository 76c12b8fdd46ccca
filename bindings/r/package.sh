#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# package.sh R PYTHON STAGED NOTEBOOKS OUT: makes the source package OUT/tartan_<version>.tar.gz of the staged sources, with
# the R notebooks as vignettes. R installs the package to make them: TARTAN_CFLAGS and TARTAN_LIBS, or pkg-config, say where
# libtartan is.
set -eu
r=$1 python=$2 staged=$3 notebooks=$4 out=$5
here=$(cd "$(dirname "$0")" && pwd)
staged=$(cd "$staged" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$staged" "$work/tartan"
mkdir "$work/tartan/vignettes"
for notebook in "$notebooks"/r_*.ipynb; do
    name=$(basename "$notebook" .ipynb)
    "$python" "$here/vignette.py" "$notebook" "$work/tartan/vignettes/${name#r_}.html.asis"
done
echo "VignetteBuilder: tartan" >> "$work/tartan/DESCRIPTION"
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$work"
mkdir library # the package itself is the builder of its vignettes
{ "$r" CMD INSTALL --library="$work/library" "$staged" &&
    R_LIBS="$work/library${R_LIBS:+:$R_LIBS}" "$r" CMD build tartan; } > build.log 2>&1 || { cat build.log >&2; exit 1; }
mv tartan_*.tar.gz "$out/"
ls "$out"/tartan_*.tar.gz
