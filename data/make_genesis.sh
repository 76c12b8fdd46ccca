#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make_genesis.sh genesis.txt: Genesis and Exodus, a verse on each line, from Debian's packages bible-kjv and bible-kjv-text.
set -euo pipefail
bible -l2000 gen1:1-exo40:38 | sed -nE 's/^ +[0-9]+ //p' > "$1"
