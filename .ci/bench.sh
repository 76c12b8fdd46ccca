#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [operation...] [-- option...]: every benchmark of `tartan bench`, one JSON object a case, also kept in
# build/bench/<operation>.jsonl. Options go to `tartan bench`.
# bench.sh attention [-- option...]: attention beside PyTorch and NumPy, with verdicts (tests/cpu/attention.py).
# bench.sh conv, bench.sh sbnet [-- option...]: convolutions beside the measured peak and PyTorch (tests/gpu/conv_bench.py).
# bench.sh cpu [-- option...]: products, attention and convolutions on one and two cores against their goals (tests/cpu/products.py).
# bench.sh train [-- option...]: operations of training on one core and a transformer beside PyTorch, with verdicts (tests/cpu/train.py).
# bench.sh calls: what a call costs from each language, with verdicts; rows in build/bench/calls.jsonl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE # a peer uses the kernels that it chooses for this processor
tartan=$TARTAN_BUILD/bindings/cli/tartan
[ "${1-}" != calls ] || exec bash tests/calls/run.sh build/bench/calls.jsonl
# MKL from PyPI, where install could have it; a baseline that is not there is left out of the results.
mkl=$(find build/venv/lib -maxdepth 1 -name 'libmkl_rt.so*' -print -quit 2>/dev/null || true)
[ -z "$mkl" ] || export TARTAN_MKL="$PWD/$mkl"
if [ "${1-}" = attention ] || [ "${1-}" = cpu ] || [ "${1-}" = train ]; then
    what=$1
    shift
    [ "${1-}" != -- ] || shift
    exec "$PYTHON" "tests/cpu/${what/#cpu/products}.py" "$@"
fi
if [ "${1-}" = conv ] || [ "${1-}" = sbnet ]; then
    what=$1
    shift
    [ "${1-}" != -- ] || shift
    exec "$PYTHON" tests/gpu/conv_bench.py "$what" "$@"
fi
operations=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    operations+=("$1")
    shift
done
[ $# -eq 0 ] || shift
[ -x "$tartan" ] || { echo "bench: $tartan is not built" >&2; exit 1; }
[ ${#operations[@]} -gt 0 ] || mapfile -t operations < <("$tartan" bench --list)
mkdir -p build/bench
status=0
for operation in "${operations[@]}"; do
    "$tartan" bench "$operation" --json "$@" | tee "build/bench/$operation.jsonl" || status=1
done
exit "$status"
