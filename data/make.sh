#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the sample files of this folder anew: ./run demo builds the tool first, then
#   source .ci/env.sh; data/make.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tool=$TARTAN_BUILD/bindings/cli/tartan
samples=$here/samples.h5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

Rscript "$here/make_us_counties.R" "$scratch/us_counties.mtx"
"$tool" convert "$scratch/us_counties.mtx" "$samples" --block 8 --reorder rcm --name us_counties
"$tool" new "$samples" --append --pattern barabasi_albert --size 5120 --block 32 --param m=5 --seed 1
"$tool" new "$samples" --append --name small_world --pattern watts_strogatz --size 512 --block 16 --param m=3 --param rewire=0.2 --seed 1
"$PYTHON" "$here/make_digits.py" "$here/digits.h5"
"$PYTHON" "$here/make_characters.py" "$here/characters.h5"
"$here/make_genesis.sh" "$here/genesis.txt" # needs Debian's packages bible-kjv and bible-kjv-text
MPLBACKEND=agg "$PYTHON" "$here/make_transformer.py" "$here/transformer.h5"
"$PYTHON" "$here/cases/make_cases.py"
"$PYTHON" "$here/cases/make_training.py"
