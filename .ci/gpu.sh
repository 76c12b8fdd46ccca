#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU, from a tree that was built elsewhere; installs and builds nothing.
#   gpu.sh test [sanitize] [LANGUAGE...] [--gtest_...]   the backend tests on the device; then compute-sanitizer's four tools on
#                                                        them; then .ci/gpu_LANGUAGE.sh (python, r, julia) where it is there
#   gpu.sh bench [option...]                             gpu_bench.py against the goals (--help lists the options)
#   gpu.sh carry                                         before the tree is taken along: copies the shared libraries it uses
#                                                        to build/gpu/lib; test and bench use those that the machine lacks
# TARTAN_GPU_PYTHON names the Python that has PyTorch, if that is not python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
what=${1-}
[ $# -eq 0 ] || shift
carried=build/gpu/lib
backend=$TARTAN_BUILD/tests/backend/backend_test
export TARTAN_DEVICE=cuda

lacking() { echo "gpu-$what: $*" >&2; exit 1; }

carry() {
    mkdir -p "$carried"
    # Not the C library and the compiler's run time: every machine has its own.
    ldd "$TARTAN_LIBRARY" | awk '$3 ~ /^\// { print $3 }' |
        grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so' | xargs -r cp -L -t "$carried"
    du -sh "$carried"
}

# The carried libraries that this machine lacks, and no others, go on the search path.
use_carried() {
    local needed name found=1
    needed=$(mktemp -d)
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$needed
    while [ "$found" -eq 1 ]; do
        found=0
        for name in $(ldd "$TARTAN_LIBRARY" | awk '/not found/ { print $1 }' | sort -u); do
            [ -e "$carried/$name" ] || lacking "$name is neither on this machine nor in $carried (.ci/gpu.sh carry)"
            ln -sf "$PWD/$carried/$name" "$needed/$name"
            found=1
        done
    done
}

ready() {
    local plugin
    [ -e "$TARTAN_LIBRARY" ] || lacking "no ${TARTAN_LIBRARY#"$TARTAN_ROOT"/}; build the tree first (./run demo)"
    plugin=$(find "$TARTAN_BUILD/cuda" -name 'libtartan_cuda.so*' -print -quit 2>/dev/null || true)
    [ -n "$plugin" ] || lacking "no CUDA plug-in (libtartan_cuda.so) in ${TARTAN_BUILD#"$TARTAN_ROOT"/}; build it with ./run cuda"
    TARTAN_PLUGIN_PATH=$(dirname "$plugin")
    export TARTAN_PLUGIN_PATH
    use_carried
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "gpu-$what: no nvidia-smi here; is there a driver?" >&2
}

# Each tool over the tests of the real device; what is meant to run out of memory is left out.
sanitize() {
    local tool status=0
    command -v compute-sanitizer >/dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
    command -v compute-sanitizer >/dev/null || lacking "compute-sanitizer is neither on PATH nor in CUDA_HOME"
    for tool in memcheck racecheck initcheck synccheck; do
        echo "== compute-sanitizer $tool"
        compute-sanitizer --tool "$tool" --error-exitcode 99 --report-api-errors no --print-limit 10 \
            "$backend" --gtest_brief=1 --gtest_filter='*/cuda-*MoreMemory*' "$@" 2>&1 | tail -n 25 || status=1
    done
    return "$status"
}

tests() {
    local argument status=0 words=() options=()
    for argument; do
        case "$argument" in
            --gtest_*) options+=("$argument") ;;
            sanitize) words+=("$argument") ;;
            [a-z]*) [ -e ".ci/gpu_$argument.sh" ] || lacking "unknown '$argument' (no .ci/gpu_$argument.sh)"; words+=("$argument") ;;
            *) lacking "unknown option '$argument'" ;;
        esac
    done
    [ -x "$backend" ] || lacking "the backend tests are not built"
    ready
    local verdicts=()
    part() { # name command...: runs it and keeps its verdict
        local name=$1
        shift
        echo "== $name"
        if "$@"; then verdicts+=("passed  $name"); else verdicts+=("FAILED  $name"); status=1; fi
    }
    part backend "$backend" --gtest_brief=1 "${options[@]}"
    part runtime "$TARTAN_BUILD/tests/cuda/cuda_device_test" --gtest_brief=1 "${options[@]}"
    for argument in "${words[@]}"; do
        case "$argument" in
            sanitize) part sanitize sanitize "${options[@]}" ;;
            *) part "$argument" bash ".ci/gpu_$argument.sh" ;;
        esac
    done
    printf '%s\n' "${verdicts[@]}"
    return "$status"
}

bench() {
    local python=${TARTAN_GPU_PYTHON:-python3} argument
    for argument; do # these run nothing
        case "$argument" in --list | --render* | -h | --help) exec "$python" .ci/gpu_bench.py "$@" ;; esac
    done
    ready
    "$python" -c 'import torch' 2>/dev/null || lacking "$python has no PyTorch; TARTAN_GPU_PYTHON names one that has"
    # The paths of env.sh are for the built Python package, which may be of another Python version.
    exec env -u PYTHONPATH "$python" .ci/gpu_bench.py "$@"
}

case "$what" in
    test) tests "$@" ;;
    bench) bench "$@" ;;
    carry) carry ;;
    *) sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
