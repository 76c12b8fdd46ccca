#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Julia package on a GPU, from build/gpu/julia.tar.xz: Julia need not be installed.
# shellcheck source=.ci/gpu_unpack.sh
source "$(dirname "${BASH_SOURCE[0]}")/gpu_unpack.sh"
unpack julia
"$packed/run" .ci/gpu_test.jl
