# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by r.sh and julia.sh: unpacks what pack.sh made and finds the plug-in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

lacking() { echo "gpu: $*" >&2; exit 1; }

extract() { # archive directory
    if command -v xz >/dev/null; then
        tar -C "$2" -xf "$1"
    else
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"
    fi
}

unpack() { # language: into $packed, gone at exit
    local pack=build/gpu/$1.tar.xz
    [ -e "$pack" ] || lacking "no $pack here; run tests/gpu/pack.sh $1 where the language is installed"
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    extract "$pack" "$place"
    # The plug-in of the tree, or else the packed one.
    : "${TARTAN_PLUGIN_PATH:=$PWD/build/release/cuda}"
    if [ ! -e "$TARTAN_PLUGIN_PATH/libtartan_cuda.so" ]; then
        [ -e build/gpu/cuda.tar.xz ] || lacking "no CUDA plug-in: neither build/release/cuda nor build/gpu/cuda.tar.xz is here"
        extract build/gpu/cuda.tar.xz "$place"
        TARTAN_PLUGIN_PATH=$place/cuda
    fi
    export TARTAN_PLUGIN_PATH TARTAN_TEST_DEVICES=${TARTAN_TEST_DEVICES:-cuda}
    unset TARTAN_DUMMY_PLUGIN TARTAN_TEST_RESULTS R_LIBS R_HOME JULIA_LOAD_PATH JULIA_PROJECT
    # shellcheck disable=SC2034 # for the callers
    packed=$place/$1
}
