#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh R STAGED WORK: R CMD build and R CMD check --as-cran, without the tests, which Meson runs by themselves.
# Fails on any error, warning or note but those about the network and a first submission.
set -eu
r=$1 staged=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
"$r" CMD build "$staged" > build.log 2>&1 || { cat build.log; exit 1; }
_R_CHECK_CRAN_INCOMING_=FALSE _R_CHECK_FORCE_SUGGESTS_=FALSE \
    "$r" CMD check --as-cran --no-manual --no-tests tartan_*.tar.gz > check.log 2>&1 || { cat check.log; exit 1; }
# A "* checking ... NOTE" line and what follows it up to the next; without the clock that no network can confirm, and without
# the wish for checkbashisms, a program that may be missing (configure is plain sh and has a test of its own).
findings=$(awk 'function show() { if (bad && text !~ /A complete check needs the .checkbashisms. script/) print text }
    /^\* / { show(); bad = 0; text = "" } { text = text $0 "\n" }
    /^\* checking .*(ERROR|WARNING|NOTE)$/ && !/future file timestamps/ { bad = 1 } END { show() }' check.log)
[ -z "$findings" ] || { echo "$findings"; exit 1; }
tail -n 3 check.log
