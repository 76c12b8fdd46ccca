#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# notebooks.sh [--check] [--tap] [notebook...]: executes notebooks (all of notebooks/ if none is named) and stores their
# outputs; --check stores nothing and looks for errors only. Status 77: every one was skipped for want of its language.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/env.sh"
exec "$PYTHON" "$here/notebooks.py" "$@"
