#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# package_test.sh R RSCRIPT PYTHON STAGED NOTEBOOKS LIBDIR INCLUDE...: the source package is made, installs with R CMD INSTALL by
# pkg-config alone, computes, and has its vignettes.
set -eu
r=$1 rscript=$2 python=$3 staged=$4 notebooks=$5 libdir=$6
shift 6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'Name: tartan\nDescription: of the build\nVersion: 0\nLibs: -L%s -Wl,-rpath,%s -ltartan\nCflags:' \
    "$libdir" "$libdir" > "$work/tartan.pc"
printf ' -I%s' "$@" >> "$work/tartan.pc"
export PKG_CONFIG_PATH="$work"
unset TARTAN_CFLAGS TARTAN_LIBS R_LIBS
"$(dirname "$0")/package.sh" "$r" "$python" "$staged" "$notebooks" "$work/out"
mkdir "$work/library"
"$r" CMD INSTALL --library="$work/library" "$work"/out/tartan_*.tar.gz > "$work/install.log" 2>&1 ||
    { cat "$work/install.log"; exit 1; }
cd "$work"
# shellcheck disable=SC2016 # R code
R_LIBS="$work/library" "$rscript" --vanilla -e '
library(tartan)
stopifnot(identical(block_matrix(diag(2), block = 2) %*% c(3, 4), cbind(c(3, 4))))
found <- vignette(package = "tartan")$results[, "Item"]
print(found)
stopifnot(setequal(found, sub("^r_(.*)[.]ipynb$", "\\1", list.files(commandArgs(TRUE), "^r_.*ipynb$"))))
for (name in found) {
  page <- readLines(system.file("doc", vignette(name, package = "tartan")$PDF, package = "tartan"))
  stopifnot(any(grepl("library(tartan)", gsub("<[^>]*>", "", page), fixed = TRUE)), any(grepl("data:image/png", page)))
}
# The code of a vignette runs from the installed package.
pdf(NULL)
code <- system.file("doc", vignette("gaussian_fields", package = "tartan")$R, package = "tartan")
stopifnot(any(grepl("Cholesky", readLines(code))))
source(code)
' "$notebooks"
