#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package.sh JULIA STAGED LIBRARY OUTPUT [URL]: makes in OUTPUT
#   Tartan/                       the package for Pkg.develop and Pkg.test: sources, tests and their data, Artifacts.toml
#   Tartan-VERSION.tar.gz         the same
#   libtartan-VERSION-PLATFORM.tar.gz  the artifact "tartan" (lib, include, share/licenses, as in a JLL package), to be unpacked in
#                                 artifacts/HASH of a Julia depot
# With the URL where the last one will be, Artifacts.toml names it, and Pkg downloads the library.
set -euo pipefail
[ $# -ge 4 ] || { sed -n '3,8s/^# //p' "$0"; exit 2; }
julia=$1 staged=$2 library=$3 output=$4 url=${5-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..

rm -rf "$output"
mkdir -p "$output/artifact/lib" "$output/artifact/include" "$output/artifact/share/licenses/tartan"
cp -r "$staged" "$output/Tartan"
cp -r "$here/test" "$output/Tartan/test"
cp "$root/LICENSE" "$output/Tartan/"
mkdir "$output/Tartan/test/data"
cp -r "$root/data/cases" "$root/data/golden" "$root/data/corrupt" "$output/Tartan/test/data/"
name=libtartan.so.0
case $(uname) in Darwin) name=libtartan.0.dylib ;; esac
cp -L "$library" "$output/artifact/lib/$name"
cp -r "$root/lib/include/." "$output/artifact/include/"
rm "$output/artifact/include/tartan/meson.build"
cp "$(dirname "$library")/include/tartan/operations.h" "$output/artifact/include/tartan/" # generated, beside the library
cp "$root/LICENSE" "$output/artifact/share/licenses/tartan/"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Project.toml")
# The hash that Julia gives a folder, and the keys by which it finds the entry of its own platform.
read -r hash arch os libc < <("$julia" --startup-file=no -e '
    using Pkg
    print(bytes2hex(Pkg.GitTools.tree_hash(ARGS[1])), " ", Sys.ARCH, " ", Sys.isapple() ? "macos" : "linux", " ",
          Sys.islinux() ? "glibc" : "")' "$output/artifact"; echo)
platform=$arch-$os
tar -C "$output/artifact" -czf "$output/libtartan-$version-$platform.tar.gz" .
{
    printf '[[tartan]]\narch = "%s"\ngit-tree-sha1 = "%s"\n' "$arch" "$hash"
    [ -z "$libc" ] || printf 'libc = "%s"\n' "$libc"
    printf 'os = "%s"\n' "$os"
    [ -z "$url" ] || printf '\n    [[tartan.download]]\n    sha256 = "%s"\n    url = "%s"\n' \
        "$(sha256sum "$output/libtartan-$version-$platform.tar.gz" | cut -d' ' -f1)" "$url"
} >"$output/Tartan/Artifacts.toml"
tar -C "$output" -czf "$output/Tartan-$version.tar.gz" Tartan
rm -r "$output/artifact"
echo "$output/Tartan-$version.tar.gz"
echo "$output/libtartan-$version-$platform.tar.gz (artifacts/$hash)"
