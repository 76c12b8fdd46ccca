#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# configure_test.sh SOURCE STAGED: configure names what is missing, and passes where nothing is.
set -eu
source=$1 staged=$2
unset TARTAN_LIBS
expect() { # directory text [PATH]: refused with this text
    if out=$(cd "$1" && PATH=${3-$PATH} /bin/sh ./configure 2>&1); then echo "configure passed in $1"; exit 1; fi
    case $out in *"$2"*) ;; *) echo "configure in $1 says: $out"; exit 1 ;; esac
}
export PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=
expect "$source" "lacks the sources that the build generates"
expect "$staged" "pkg-config does not know libtartan"
expect "$staged" "pkg-config was not found" /nonexistent
cd "$staged" && TARTAN_LIBS=-ltartan sh ./configure
