#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and benchmarks on a machine with a GPU, from a tree built elsewhere; installs and builds nothing.
#   run.sh test [sanitize] [LANGUAGE...] [--gtest_...]   the backend tests on the device; "sanitize" repeats them under the four
#                                                        tools of compute-sanitizer; LANGUAGE is python, r or julia
#   run.sh bench [option...]                             bench.py against the goals (--help lists the options)
#   run.sh bench attention [option...]                   its rows of attention
#   run.sh bench attention-cpu [option...]               attention on this machine's CPU (tests/cpu/attention.py)
#   run.sh bench conv|sbnet [option...]                  convolutions on the GPU (conv_bench.py)
#   run.sh bench cliffs [option...]                      convolutions with strides, few channels, depthwise, f32 (cliffs_bench.py)
#   run.sh bench attention-cliffs [option...]            attention of few tokens, and of grouped heads (attention_cliffs_bench.py)
#   run.sh bench points [option...]                      element-wise functions and norms (points_bench.py)
#   run.sh bench shapes [option...]                      shapes that these leave out: other axes, short and long lines (shapes_bench.py)
#   run.sh bench train [option...]                       steps of training with PyTorch (train_bench.py)
#   run.sh bench quality FILE [option...]                losses of a GPT that trains with fewer blocks (quality_bench.py)
#   run.sh bench conv-cpu|sbnet-cpu [option...]          and on this machine's CPU
#   run.sh bench calls                                   what a call costs from Python beside torch.matmul, with verdicts
#   run.sh carry                                         on the machine that built the tree: copies the shared libraries it
#                                                        needs to build/gpu/lib; test and bench use those the GPU machine lacks.
#                                                        tartan_ctypes.py, which bench needs, goes there too
# TARTAN_GPU_PYTHON names the Python that has PyTorch, if that is not python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
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
    cp "$TARTAN_BUILD/swig/tartan_ctypes.py" "$carried/"
    du -sh "$carried"
}

# Adds to the search path only the carried libraries that this machine lacks.
use_carried() {
    local needed name found=1
    needed=$(mktemp -d)
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$needed
    while [ "$found" -eq 1 ]; do
        found=0
        for name in $(ldd "$TARTAN_LIBRARY" | awk '/not found/ { print $1 }' | sort -u); do
            [ -e "$carried/$name" ] || lacking "$name is neither on this machine nor in $carried (tests/gpu/run.sh carry)"
            ln -sf "$PWD/$carried/$name" "$needed/$name"
            found=1
        done
    done
}

ready() {
    local plugin
    [ -e "$TARTAN_LIBRARY" ] || lacking "no ${TARTAN_LIBRARY#"$TARTAN_ROOT"/}; build the tree first (./run cuda)"
    plugin=$(find "$TARTAN_BUILD/cuda" -name 'libtartan_cuda.so*' -print -quit 2>/dev/null || true)
    [ -n "$plugin" ] || lacking "no CUDA plug-in (libtartan_cuda.so) in ${TARTAN_BUILD#"$TARTAN_ROOT"/}; build it with ./run cuda"
    TARTAN_PLUGIN_PATH=$(dirname "$plugin")
    export TARTAN_PLUGIN_PATH
    use_carried
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "gpu-$what: no nvidia-smi here; is there a driver?" >&2
}

# Runs the tests of the real device under each tool, without those that are meant to run out of memory.
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
            sanitize | python | r | julia) words+=("$argument") ;;
            *) lacking "unknown argument '$argument', expected sanitize, python, r, julia or --gtest_..." ;;
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
            *) part "$argument" bash "tests/gpu/$argument.sh" ;;
        esac
    done
    printf '%s\n' "${verdicts[@]}"
    return "$status"
}

calls() {
    local rows=build/bench/gpu_calls.jsonl
    bash tests/gpu/python.sh build
    mkdir -p build/bench
    PYTHONPATH=build/gpu-python "$1" tests/calls/python.py --device cuda >"$rows"
    "$1" tests/calls/table.py "$rows"
}

bench() {
    local python=${TARTAN_GPU_PYTHON:-python3} argument
    if [ "${1-}" = attention-cpu ]; then
        [ -e "$TARTAN_LIBRARY" ] || lacking "no ${TARTAN_LIBRARY#"$TARTAN_ROOT"/}; build the tree first (./run demo)"
        use_carried
        exec env -u PYTHONPATH "$python" tests/cpu/attention.py "${@:2}"
    fi
    if [ "${1-}" = conv-cpu ] || [ "${1-}" = sbnet-cpu ]; then
        [ -e "$TARTAN_LIBRARY" ] || lacking "no ${TARTAN_LIBRARY#"$TARTAN_ROOT"/}; build the tree first (./run demo)"
        use_carried
        exec env -u PYTHONPATH "$python" tests/gpu/conv_bench.py "${1%-cpu}" "${@:2}"
    fi
    for argument; do # these need no GPU
        case "$argument" in --list | --render* | -h | --help)
            case "${1-}" in
                conv | sbnet) exec "$python" tests/gpu/conv_bench.py "$@" --device cuda ;;
                *) exec "$python" tests/gpu/bench.py "$@" ;;
            esac ;;
        esac
    done
    ready
    "$python" -c 'import torch' 2>/dev/null || lacking "$python has no PyTorch; TARTAN_GPU_PYTHON names one that has"
    if [ "${1-}" = conv ] || [ "${1-}" = sbnet ]; then
        exec env -u PYTHONPATH "$python" tests/gpu/conv_bench.py "$@" --device cuda
    fi
    if [ "${1-}" = cliffs ]; then
        exec env -u PYTHONPATH "$python" tests/gpu/cliffs_bench.py "${@:2}"
    fi
    if [ "${1-}" = attention-cliffs ]; then
        bash tests/gpu/python.sh build
        exec env PYTHONPATH=build/gpu-python "$python" tests/gpu/attention_cliffs_bench.py "${@:2}"
    fi
    if [ "${1-}" = points ]; then
        exec env -u PYTHONPATH "$python" tests/gpu/points_bench.py "${@:2}"
    fi
    if [ "${1-}" = shapes ]; then
        bash tests/gpu/python.sh build
        exec env PYTHONPATH=build/gpu-python "$python" tests/gpu/shapes_bench.py "${@:2}"
    fi
    if [ "${1-}" = train ]; then
        bash tests/gpu/python.sh build
        exec env PYTHONPATH=build/gpu-python "$python" tests/gpu/train_bench.py "${@:2}"
    fi
    if [ "${1-}" = quality ]; then
        bash tests/gpu/python.sh build
        exec env PYTHONPATH=build/gpu-python "$python" tests/gpu/quality_bench.py "${@:2}"
    fi
    if [ "${1-}" = calls ]; then
        calls "$python"
        return
    fi
    if [ "${1-}" = attention ] && bash tests/gpu/python.sh build; then # without the package, rows of the host's time are left out
        exec env PYTHONPATH=build/gpu-python "$python" tests/gpu/bench.py "$@"
    fi
    # PYTHONPATH of env.sh leads to the built Python package, which may be for another Python.
    exec env -u PYTHONPATH "$python" tests/gpu/bench.py "$@"
}

case "$what" in
    test) tests "$@" ;;
    bench) bench "$@" ;;
    carry) carry ;;
    *) sed -n '3,22s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
