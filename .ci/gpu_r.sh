#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The R package on a GPU, from build/gpu/r.tar.xz: R need not be installed.
# shellcheck source=.ci/gpu_unpack.sh
source "$(dirname "${BASH_SOURCE[0]}")/gpu_unpack.sh"
unpack r
"$packed/run" .ci/gpu_test.R
