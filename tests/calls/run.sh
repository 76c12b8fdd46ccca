#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh FILE: what a call costs from each language of this tree: rows to FILE, then a table with verdicts (table.py). A
# language joins with a program here that prints such rows: python.py, r.R, julia.jl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source .ci/env.sh
rows=$1
mkdir -p "$(dirname "$rows")"
: >"$rows"
[ ! -e "$TARTAN_BUILD/bindings/python/tartan/__init__.py" ] || "$PYTHON" tests/calls/python.py >>"$rows"
[ ! -e tests/calls/r.R ] || [ ! -d "$TARTAN_BUILD/rlib/tartan" ] || Rscript tests/calls/r.R >>"$rows"
[ ! -e tests/calls/julia.jl ] || [ -z "$JULIA" ] || "$JULIA" --startup-file=no tests/calls/julia.jl >>"$rows"
exec "$PYTHON" tests/calls/table.py "$rows"
