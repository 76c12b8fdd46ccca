#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# emulate.sh program [argument...]: runs an x86 program under qemu-user as the processor model in TARTAN_EMULATE. A death test
# starts its program anew by argv[0]; this script stands there, as qemu would leave the new process to the machine's own processor.
set -euo pipefail
if [ -z "${TARTAN_EMULATED:-}" ]; then
    export TARTAN_EMULATED=$1
    shift
fi
exec qemu-x86_64 -cpu "$TARTAN_EMULATE" -0 "$(realpath "$0")" "$TARTAN_EMULATED" "$@"
