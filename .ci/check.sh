#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Format, warnings, sanitizers, valgrind, rules of the source tree, other processors, NEON kernels, other GPUs. Every step runs; a
# verdict for each at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
mkdir -p build/check
no_bindings=(-Dpython=disabled -Dr=disabled -Djulia=disabled -Dcuda=disabled)
verdicts=()
failed=0

step() { # name command...
    local name=$1 status=0 begin=$SECONDS took
    shift
    echo "== $name"
    # In a process of its own: `set -e` would not hold in a function whose status is asked for.
    (set -e; "$@") >"build/check/$name.log" 2>&1 &
    wait $! || status=$?
    took="$((SECONDS - begin)) s"
    if [ "$status" -eq 0 ]; then
        verdicts+=("passed  $name, $took")
    else
        tail -n 40 "build/check/$name.log"
        verdicts+=("FAILED  $name, $took (build/check/$name.log)")
        failed=1
    fi
}

# TARTAN_TEST_SHARE=7 runs a seventh of the random cases, where each is slow: the whole of them runs natively in
# `./run test`.
share() { # [n]
    export TARTAN_TEST_SHARE=${1-7}
}

setup() { # directory option...
    local dir=$1
    shift
    if [ -e "$dir/build.ninja" ]; then
        "$MESON" configure "$dir" "${no_bindings[@]}" "$@"
    else
        "$MESON" setup "$dir" "${no_bindings[@]}" "$@"
    fi
    ninja -k 0 -C "$dir" # all errors, not the first alone
}

sources() { # null-separated
    git ls-files -z --cached --others --exclude-standard -- lib cuda bindings/cli tests |
        grep -zE '\.(c|h|cc|cu|cuh)$' | while IFS= read -r -d '' file; do
        [ ! -e "$file" ] || printf '%s\0' "$file"
    done
}

format() {
    sources >build/check/sources
    [ -s build/check/sources ]
    xargs -0 clang-format --dry-run -Werror <build/check/sources
}

warnings() {
    setup build/werror -Dbuildtype=release -Dwerror=true -Dfuzz=disabled
}

sanitizers() {
    # C++ is the tests' alone: GoogleTest's code with checks of each pointer in it takes five times as long to compile.
    setup build/asan -Dbuildtype=debugoptimized -Db_ndebug=false -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args=-g1 '-Dcpp_args=-g1 -O1 -fno-sanitize=null,vptr,alignment,object-size'
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/check/lsan.supp:print_suppressions=0
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    "$MESON" test -C build/asan --print-errorlogs --no-suite long --no-suite check --timeout-multiplier 5
}

memory() {
    setup build/valgrind -Dbuildtype=debug -Doptimization=1 -Db_ndebug=false -Dcli=disabled -Dfuzz=disabled
    local valgrind='valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,possible'
    valgrind+=" --errors-for-leak-kinds=definite,possible --suppressions=$PWD/tests/check/valgrind.supp"
    # Hostile lets HDF5 die of damaged files, and valgrind hides where it died. The others are long products whose
    # ways through the code shorter tests take too.
    export GTEST_FILTER='-Hostile.*:*OpenAiMatmul*:PytorchBlockSparse.*:*SameBits*:*Large*'
    # valgrind computes long double in 64 bits, and fused multiply-adds with another sign of a zero sum, so tests of
    # the last bit fail there.
    GTEST_FILTER+=':PointsAccuracy.*:Words.FunctionsAreTheSame*:*Norms.SumsAreNear*:*/Points.HaveTheBits*/avx2:*/Fused.HaveTheBits*/avx2'
    local suite suites=()
    for suite in core layout matrix conv kernels ops backend io; do
        suites+=(--suite "$suite")
    done
    share
    OMP_NUM_THREADS=2 "$MESON" test -C build/valgrind --no-rebuild --print-errorlogs --wrapper "$valgrind" \
        --timeout-multiplier 5 "${suites[@]}" --no-suite long
}

# Tests of kernels run every instruction set that the processor has. This is for what takes for granted that it has them: the
# same programs with fewer sets allowed, one after the other, then under an emulator without AVX and with AVX2 alone; it knows no
# AVX-512, so that set alone is for machines that have it.
processors() {
    if [ "$(uname -m)" != x86_64 ]; then
        echo 'these are processors of x86-64, and this machine has another'
        return 0
    fi
    local set model suite
    local sets=(c:Nehalem avx2:Haswell) # and the BLAS of NumPy and R, as far as it is OpenBLAS
    if grep -qw avx512bw /proc/cpuinfo; then sets+=(avx512:SkylakeX); fi
    local run=("$MESON" test -C "$TARTAN_BUILD" --no-rebuild --print-errorlogs)
    for suite in core layout matrix conv kernels ops cases; do run+=(--suite "$suite"); done
    share
    # Long products, whose ways through the code shorter tests take too, and the dummy, for which the CPU works.
    export GTEST_FILTER='-*OpenAiMatmul*:PytorchBlockSparse.*:*Large*:*/dummy'
    for set in "${sets[@]}"; do
        TARTAN_CPU=${set%:*} OPENBLAS_CORETYPE=${set#*:} "${run[@]}" --suite backend --suite python --logbase "processors-${set%:*}"
    done
    # In qemu a forked child starts no threads, and masked loads read what is masked out. The others are long.
    GTEST_FILTER='-Parallel.WorksInAForkedChild:Parallel.ThreadsThatDoNotStartLoseNoWork:*.NothingBehindARowIsTouched/*'
    GTEST_FILTER+=':*OpenAiMatmul*:PytorchBlockSparse.*:*SameBits*:*Large*:*Long*:*Interrupt*:*Failed*:ConvSets.TheNine*:OpenAiGated.*'
    GTEST_FILTER+=':UnfusedAttention.Equals*:Attention.WholeSpans:Attention.ScoresThatGrow:Attention.HeadDimensions'
    GTEST_FILTER+=':Attention.RaggedBlocksInAChunk:AttentionAccuracy.*:AttentionBias.Heads:Spmm.RowsOfManyBlocks:Residual.ManyWindowsAtATimeOrFew'
    share 50
    export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
    for model in Nehalem Haswell; do
        TARTAN_EMULATE=$model "${run[@]}" --wrapper "$PWD/.ci/emulate.sh" --logbase "processors-$model" --timeout-multiplier 5
    done
    # NumPy sees the other processor, too. With AVX2 it has masked loads. Programs that a test starts run natively, so these are
    # tests that start few.
    local file files=()
    for file in cases device device_operations linalg operations; do
        files+=("bindings/python/tests/test_$file.py")
    done
    # The environment may name the core of this machine to OpenBLAS, which then asks the processor no more.
    TARTAN_PLUGIN_PATH=$TARTAN_DUMMY_PLUGIN LD_LIBRARY_PATH="$TARTAN_BUILD/lib:$TARTAN_DUMMY_PLUGIN" PYTHONDONTWRITEBYTECODE=1 \
        OPENBLAS_CORETYPE=Nehalem qemu-x86_64 -cpu Nehalem "$PYTHON" -m pytest -q -p no:cacheprovider "${files[@]}"
}

# The kernels for AArch64, by a cross-compiler and an emulator. Random123 and xxHash are headers that know no
# architecture; the folder that they are in is of this machine, so they are linked into one of their own.
neon() {
    mkdir -p build/headers
    ln -sfn /usr/include/Random123 /usr/include/xxhash.h build/headers/
    [ -e build/neon/build.ninja ] || "$MESON" setup build/neon --cross-file .ci/aarch64.ini "${no_bindings[@]}" \
        -Dhdf5=disabled -Dfuzz=disabled -Dbuildtype=release "-Dc_args=-I$PWD/build/headers" "-Dcpp_args=-I$PWD/build/headers"
    ninja -C build/neon tests/kernels/kernels_test tests/ops/ops_test tests/ops/schema_test
    # Long products, whose ways through the code shorter tests take too.
    export GTEST_FILTER='-*OpenAiMatmul*:PytorchBlockSparse.*'
    share
    "$MESON" test -C build/neon --no-rebuild --print-errorlogs --timeout-multiplier 5 \
        --suite kernels --suite ops
}

# Machine code for GPUs before Hopper, which only an assembler checks; ./run cuda makes it where such a GPU is.
ampere() {
    command -v nvcc >/dev/null || PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
    if ! command -v nvcc >/dev/null; then
        echo 'there is no nvcc here'
        return 0
    fi
    setup build/ampere -Dcuda=enabled -Dgpu_code=all -Dbuildtype=release -Dtests=disabled -Dcli=disabled -Dfuzz=disabled
}

rules() {
    "$MESON" test -C "$TARTAN_BUILD" --print-errorlogs --suite check
    # Meson is content when there is nothing to run.
    grep -q '"result": "OK"' "$TARTAN_BUILD/meson-logs/testlog.json"
}

if [ $# -gt 0 ]; then
    steps=("$@")
else
    steps=(format warnings rules sanitizers memory processors neon ampere)
fi
for name in "${steps[@]}"; do
    case "$name" in
        format | warnings | sanitizers | memory | rules | processors | neon | ampere) step "$name" "$name" ;;
        *) echo "check: unknown step '$name' (format warnings rules sanitizers memory processors neon ampere)" >&2; exit 2 ;;
    esac
done
printf '%s\n' "${verdicts[@]}"
exit "$failed"
