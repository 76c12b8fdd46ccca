#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the R package on a GPU with the R of build/gpu/r.tar.xz (pack.sh); R need not be installed.
# shellcheck source=tests/gpu/unpack.sh
source "$(dirname "${BASH_SOURCE[0]}")/unpack.sh"
unpack r
"$packed/run" tests/gpu/test.R
