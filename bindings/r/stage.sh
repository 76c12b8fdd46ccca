#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stage.sh SOURCE STAGED PYTHON SCHEMA WRAPPER.c WRAPPER.R CONSTANTS.R STAMP: the package's sources and the generated ones side by
# side in STAGED, ready for `R CMD INSTALL` and `R CMD build`.
set -eu
source=$1 staged=$2 python=$3 schema=$4 wrapper=$5 code=$6 constants=$7 stamp=$8
rm -rf "$staged"
mkdir -p "$staged"
for part in DESCRIPTION NAMESPACE configure R inst man src tests; do
    cp -R "$source/$part" "$staged/"
done
cp "$wrapper" "$staged/src/tartan_wrap.c"
cp "$code" "$staged/R/tartan.R"
cp "$constants" "$staged/R/constants.R"
"$python" "$source/generate.py" "$schema" "$source/examples" "$staged"
: > "$stamp"
