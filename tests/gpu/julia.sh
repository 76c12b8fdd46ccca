#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the Julia package on a GPU with the Julia of build/gpu/julia.tar.xz (pack.sh); Julia need not be installed.
# shellcheck source=tests/gpu/unpack.sh
source "$(dirname "${BASH_SOURCE[0]}")/unpack.sh"
unpack julia
"$packed/run" tests/gpu/test.jl
