# SPDX-License-Identifier: Apache-2.0
# Environment of a built tree; `source .ci/env.sh` from bash or zsh. Sourcing it twice does no harm.
TARTAN_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd)
export TARTAN_ROOT
export TARTAN_BUILD="${TARTAN_BUILD:-$TARTAN_ROOT/build/release}"
export TARTAN_LIBRARY="$TARTAN_BUILD/lib/libtartan.so"
export TARTAN_PLUGIN_PATH="$TARTAN_BUILD/cuda"
# A plug-in that poses as a CUDA device: a test starts a process with TARTAN_PLUGIN_PATH set to this folder.
export TARTAN_DUMMY_PLUGIN="$TARTAN_BUILD/tests/support/dummy_plugin"
export TARTAN_TEST_RESULTS="$TARTAN_BUILD/test-results"
export TARTAN_SCIPY_PEER="$TARTAN_ROOT/bindings/cli/scipy_peer.py"

tartan_prepend() { # value list: the list with value in front, once
    case ":$2:" in
        *":$1:"*) printf '%s' "$2" ;;
        *) printf '%s' "$1${2:+:$2}" ;;
    esac
}

# build/bin holds julia and, where the system's are too old, meson and swig. The tool `tartan` is with the bindings.
PATH=$(tartan_prepend "$TARTAN_ROOT/build/bin" "$PATH")
PATH=$(tartan_prepend "$TARTAN_BUILD/bindings/cli" "$PATH")
export PATH
MESON=$(command -v meson || echo meson)
export MESON

if [ -z "${PYTHON:-}" ]; then
    PYTHON=$TARTAN_ROOT/build/venv/bin/python
    [ -x "$PYTHON" ] || PYTHON=$(command -v python3 || echo python3)
fi
export PYTHON
PYTHONPATH=$(tartan_prepend "$TARTAN_BUILD/bindings/python" "${PYTHONPATH:-}")
export PYTHONPATH

R_LIBS=$(tartan_prepend "$TARTAN_BUILD/rlib" "${R_LIBS:-}")
export R_LIBS

# Empty where there is no usable Julia.
if [ -z "${JULIA:-}" ]; then
    JULIA=$TARTAN_ROOT/build/bin/julia
    [ -x "$JULIA" ] || JULIA=
fi
export JULIA
JULIA_LOAD_PATH=$(tartan_prepend "$TARTAN_BUILD/bindings/julia" "${JULIA_LOAD_PATH:-@:@v#.#:@stdlib}")
export JULIA_LOAD_PATH

JUPYTER_PATH=$(tartan_prepend "$TARTAN_ROOT/notebooks" "${JUPYTER_PATH:-}")
export JUPYTER_PATH

# Test and notebook output has letters beyond ASCII.
case "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" in
    *[Uu][Tt][Ff]*8*) ;;
    *) export LC_ALL=C.UTF-8 ;;
esac
unset -f tartan_prepend
