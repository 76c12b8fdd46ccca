#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package_test.sh PACKAGE.SH JULIA STAGED LIBRARY: the package works with Pkg and without a network. The library comes from the
# artifact alone.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" "$2" "$3" "$4" "$place/made" file:///nowhere
unset TARTAN_LIBRARY JULIA_LOAD_PATH JULIA_PROJECT TARTAN_PROBE TARTAN_TEST_RESULTS

# A depot with the artifact and a registry without packages, so that Pkg looks for none.
depot=$place/depot
hash=$(sed -n 's/^git-tree-sha1 = "\(.*\)"/\1/p' "$place/made/Tartan/Artifacts.toml")
mkdir -p "$depot/artifacts/$hash" "$depot/registries/Empty" "$place/unpacked"
tar -C "$depot/artifacts/$hash" -xzf "$place"/made/libtartan-*.tar.gz
printf 'name = "Empty"\nuuid = "23338594-aafe-5451-b93e-139f81909106"\nrepo = "none"\n\n[packages]\n' >"$depot/registries/Empty/Registry.toml"
tar -C "$place/unpacked" -xzf "$place"/made/Tartan-*.tar.gz
export JULIA_DEPOT_PATH=$depot JULIA_PKG_OFFLINE=true JULIA_PKG_SERVER=

"$2" --startup-file=no -e '
    using Pkg
    Pkg.activate(mktempdir())
    Pkg.develop(PackageSpec(path = ARGS[1]))
    using Tartan, Libdl
    loaded = filter(path -> occursin("libtartan", path), dllist())
    length(loaded) == 1 && startswith(realpath(loaded[1]), realpath(ARGS[2])) || error("loaded $loaded, expected the artifact")
    Pkg.test("Tartan"; test_args = ["bfloat16", "cases", "extensions"])
    println("ok")' "$place/unpacked/Tartan" "$depot/artifacts" | tee "$place/log"
grep -qx ok "$place/log"
