#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh PYTHON PACKAGE_FOLDER TESTS [option of pytest...]: the tests (a folder, or files) against a package that is
# not installed. Where TARTAN_TEST_RESULTS names a folder, a JUnit report is left there.
set -eu
python=$1 package=$2
shift 2
PYTHONPATH=$package${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE
set -- -q -p no:cacheprovider "$@"
if [ -n "${TARTAN_TEST_RESULTS:-}" ]; then
    mkdir -p "$TARTAN_TEST_RESULTS"
    set -- --junitxml="$TARTAN_TEST_RESULTS/${TARTAN_TEST_NAME:-python}.xml" "$@"
fi
exec "$python" -m pytest "$@"
