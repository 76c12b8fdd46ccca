#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python.sh [build|test] [option of pytest...]: builds the Python package in build/gpu-python for the Python of a GPU machine,
# from a tree built elsewhere for another Python; `test` (the default) also runs its device tests on the GPU.
# Needs gcc and that Python's headers. TARTAN_GPU_PYTHON names the Python, if that is not python3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source .ci/env.sh
what=${1-test}
[ $# -eq 0 ] || shift
python=${TARTAN_GPU_PYTHON:-python3}
package=$TARTAN_ROOT/build/gpu-python
wrapper=$TARTAN_BUILD/swig/python_raw.c

lacking() { echo "gpu-python: $*" >&2; exit 1; }

build() {
    [ -e "$wrapper" ] || lacking "no ${wrapper#"$TARTAN_ROOT"/}; build the tree with -Dpython=enabled first"
    [ -e "$TARTAN_LIBRARY" ] || lacking "no ${TARTAN_LIBRARY#"$TARTAN_ROOT"/}; build the tree first"
    local include suffix library
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    [ -e "$include/Python.h" ] || lacking "$python has no headers in $include"
    library=$(dirname "$(realpath "$TARTAN_LIBRARY")")
    rm -rf "$package"
    mkdir -p "$package/tartan"
    # Those of the build folder are all of them, what is generated included.
    cp "$TARTAN_BUILD"/bindings/python/tartan/*.py bindings/python/tartan/py.typed "$package/tartan"
    cp -R "$TARTAN_BUILD"/bindings/python/tartan/torch "$package/tartan"
    "${CC:-gcc}" -shared -fPIC -O2 -std=gnu17 -D_GNU_SOURCE -fvisibility=hidden -w \
        -Ilib/include "-I$TARTAN_BUILD/lib/include" -Ibindings/python/raw "-I$include" "$wrapper" bindings/python/raw/*.c \
        "$TARTAN_BUILD"/bindings/python/tartan/*.c \
        "$TARTAN_LIBRARY" "-Wl,-rpath,$library" -o "$package/tartan/_raw$suffix"
}

run_tests() {
    local tests=bindings/python/tests
    export TARTAN_TEST_NAME=python-gpu PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
    # Without a device every test would be skipped.
    PYTHONPATH=$package "$python" -c 'import tartan; tartan.Context("cuda").close()' || lacking "there is no device to test on"
    exec env -u PYTHONPATH bash "$tests/run.sh" "$python" "$package" \
        "$tests"/test_device*.py "$tests"/test_exchange*.py "$tests"/test_gpu*.py "$tests/test_torch.py" "$@"
}

case "$what" in
    build) build ;;
    test) build; run_tests "$@" ;;
    *) sed -n '3,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
