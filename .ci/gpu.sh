#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh test|bench [option...]: on a machine with a GPU, from a tree that was built elsewhere; installs and builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source .ci/env.sh
what=$1
shift
tartan=$TARTAN_BUILD/bindings/cli/tartan
export TARTAN_DEVICE=cuda

lacking() { echo "gpu-$what: $*" >&2; exit 1; }

[ -x "$tartan" ] || lacking "no command-line tool at ${tartan#"$TARTAN_ROOT"/}; build the tree first (./run demo)"
plugin=$(find "$TARTAN_BUILD" -name 'libtartan_cuda.so*' -print -quit 2>/dev/null || true)
[ -n "$plugin" ] || lacking "no CUDA plug-in (libtartan_cuda.so) in ${TARTAN_BUILD#"$TARTAN_ROOT"/}; build it with ./run cuda"
TARTAN_PLUGIN_PATH=${TARTAN_PLUGIN_PATH:-$(dirname "$plugin")}
export TARTAN_PLUGIN_PATH
command -v nvidia-smi >/dev/null || echo "gpu-$what: no nvidia-smi here; is there a driver?" >&2
"$tartan" info

case "$what" in
    test)
        backend=$(find "$TARTAN_BUILD/tests/backend" -maxdepth 1 -type f -perm -u+x -name '*_test' -print -quit 2>/dev/null || true)
        [ -n "$backend" ] || lacking "the backend tests are not built"
        exec "$backend" "$@"
        ;;
    bench) exec .ci/bench.sh -- --device cuda "$@" ;;
    *) lacking "unknown command" ;;
esac
