#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes build/bin/julia: a wrapper of $JULIA, else of the julia on PATH, else of Debian 11's Julia 1.5.3, unpacked under
# build/julia (Debian 12 has none; the system's own apt settings and packages stay as they are). Where there is no
# usable Julia the reason is left in build/.stamps/julia-missing, and what needs Julia is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
wrapper=$root/build/bin/julia
shim=$root/build/lib/libunwind_shim.so
stamp=build/.stamps/julia
missing=build/.stamps/julia-missing
packages=$root/build/julia
suite=bullseye
mkdir -p build/.stamps build/bin build/lib

say() { echo "install: $*"; }

give_up() {
    rm -f "$wrapper" "$stamp"
    echo "$*" >"$missing"
    say "no Julia: $*"
    exit 0
}

# An exception through a compiled frame is what crashes with the wrong libunwind.
probe() { # command...
    ("$@" --startup-file=no -e '
        VERSION >= v"1.5" || exit(3)
        f(x) = error("e")
        try f(1) catch; end
        using LinearAlgebra, SparseArrays, Test, Libdl, Random, Printf
        lu(sparse([2.0 1.0; 0.0 1.0])) \ [1.0, 1.0]
        println("ok")' </dev/null 2>/dev/null | grep -qx ok) 2>/dev/null
}

build_shim() {
    gcc -O2 -shared -fPIC -o "$shim" .ci/libunwind_shim.c
}

write_wrapper() { # line...: what it exports before it runs $target
    {
        echo '#!/bin/sh'
        echo '# Written by .ci/setup-julia.sh.'
        printf '%s\n' "$@"
        echo "exec \"$target\" \"\$@\""
    } >"$wrapper.new"
    chmod +x "$wrapper.new"
    mv "$wrapper.new" "$wrapper"
}

# wrap program [line...]: true if it works, with the shim if it must be.
wrap() {
    target=$1
    shift
    write_wrapper "$@"
    if probe "$wrapper"; then
        return 0
    fi
    build_shim
    write_wrapper "$@" "export LD_PRELOAD=\"$shim\${LD_PRELOAD:+:\$LD_PRELOAD}\""
    if probe "$wrapper"; then
        how=', with .ci/libunwind_shim.c'
        return 0
    fi
    rm -f "$wrapper"
    return 1
}

# apt with a state of its own: the system's sources and Debian 11's, signatures checked as ever.
private_apt() {
    apt-get -q -c "$packages/apt/apt.conf" "$@"
}

prepare_apt() {
    local apt=$packages/apt release mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/sources.d"
    find /etc/apt/sources.list.d -maxdepth 1 \( -name '*.list' -o -name '*.sources' \) \
        -exec cp -t "$apt/sources.d" {} + 2>/dev/null || true
    cat >"$apt/apt.conf" <<EOF
Dir::State "$apt";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourceparts "$apt/sources.d";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Debug::NoLocking "true";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
EOF
    private_apt update || true
    release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mirror=$(private_apt indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v r="$release" '$1 == r || $1 == "stable" || $1 == "oldstable" { print $2; exit }')
    [ -n "$mirror" ] || return 1
    [ -e "$keyring" ] || keyring=
    echo "deb ${keyring:+[signed-by=$keyring] }$mirror $suite main" >"$apt/sources.d/tartan-$suite.list"
    # A plain `update` succeeds even when one source failed, so look for the package.
    private_apt update || true
    apt-cache -c "$apt/apt.conf" show julia >/dev/null 2>&1
}

unpack_julia() {
    local deb link name found
    private_apt install -y --download-only julia || return 1
    rm -rf "$packages/root"
    mkdir -p "$packages/root"
    for deb in "$packages"/apt/cache/archives/*.deb; do
        dpkg -x "$deb" "$packages/root"
    done
    # Links to libraries of which the system has the same version, so that they were not unpacked beside Julia.
    find "$packages/root/usr/lib" -xtype l -path '*/julia/*' | while read -r link; do
        name=$(basename "$(readlink "$link")")
        found=$(find "$(dirname "$link")/.." "/usr/lib/$(basename "$(dirname "$(dirname "$link")")")" \
            -maxdepth 1 -name "$name" -print -quit)
        [ -z "$found" ] || ln -sfn "$(realpath -s "$found")" "$link"
    done
    rm -rf "$packages/apt"
}

debian_julia() {
    local log=build/julia.log libraries
    [ "$(. /etc/os-release 2>/dev/null && echo "${ID:-}")" = debian ] ||
        give_up "no julia >= 1.5 on PATH; install one, or set JULIA=/path/to/julia"
    if [ ! -x "$packages/root/usr/bin/julia" ]; then
        say "Julia 1.5.3 of Debian 11 into build/julia"
        rm -rf "$packages"
        prepare_apt >"$log" 2>&1 || give_up "this machine's Debian mirror has no $suite any more ($log); set JULIA=/path/to/julia"
        unpack_julia >>"$log" 2>&1 || give_up "Debian 11's Julia could not be unpacked ($log); set JULIA=/path/to/julia"
    fi
    libraries=$(dirname "$(find "$packages/root/usr/lib" -name 'libjulia.so.1' -print -quit)")
    wrap "$packages/root/usr/bin/julia" \
        "export LD_LIBRARY_PATH=\"$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\"" \
        "export JULIA_DEPOT_PATH=\"\${JULIA_DEPOT_PATH:-$root/build/julia-depot}\"" ||
        give_up "Debian 11's Julia does not run here; set JULIA=/path/to/julia"
}

asked=${JULIA:-}
# The wrapper itself, by whatever path, is no Julia to wrap.
[ -z "$asked" ] || [ ! "$asked" -ef "$wrapper" ] || asked=
if [ -z "$asked" ]; then
    elsewhere=:$PATH:
    elsewhere=${elsewhere//":$root/build/bin:"/:}
    elsewhere=${elsewhere#:}
    candidate=$(PATH=${elsewhere%:} && command -v julia || true)
    [ -z "$candidate" ] || [ ! "$candidate" -ef "$wrapper" ] || candidate=
else
    candidate=$(command -v "$asked" || echo "$asked")
fi

want="$root ${candidate:-debian} $(cat .ci/setup-julia.sh .ci/libunwind_shim.c | sha256sum | cut -c1-16)"
if [ -x "$wrapper" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    exit 0
fi
how=
if [ -n "$asked" ]; then
    if ! wrap "$candidate"; then
        echo "install: JULIA=$asked does not run, or is older than 1.5" >&2
        exit 1
    fi
elif [ -z "$candidate" ] || ! wrap "$candidate"; then
    candidate=
    debian_julia
fi
rm -f "$missing"
echo "$want" >"$stamp"
say "build/bin/julia is $("$wrapper" --version)$how"
