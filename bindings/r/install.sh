#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh R STAGED LIBRARY STAMP: installs the staged package into the R library LIBRARY. TARTAN_CFLAGS and
# TARTAN_LIBS say where libtartan is. What R says is shown where it fails.
set -eu
r=$1 staged=$2 library=$3 stamp=$4
mkdir -p "$library"
if ! "$r" CMD INSTALL --preclean --no-test-load --library="$library" "$staged" > "$stamp.log" 2>&1; then
    cat "$stamp.log" >&2
    exit 1
fi
: > "$stamp"
