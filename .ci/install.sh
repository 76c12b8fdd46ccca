#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing: Debian packages, build/venv, Julia. Silent and quick when nothing is.
# Arguments name further lists: `check` (debian-packages-check.txt), `bench` (requirements-bench.txt), `cuda`
# (requirements-cuda.txt, where there is no nvcc).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stamps=build/.stamps
mkdir -p "$stamps" build/bin

say() { echo "install: $*"; }
fail() { echo "install: $*" >&2; exit 1; }
key() { cat "$@" | sha256sum | cut -c1-16; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; } # version minimum

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "neither root nor sudo; run as root: $*"
    fi
}

absent_packages() { # name...: those that are not installed
    local installed name
    installed=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null |
        sed -n 's/^.i *//p' | tr '\n' ' ')"
    for name; do
        [[ $installed == *" $name "* ]] || echo "$name"
    done
}

install_packages() { # list: a file of lines `name [optional] # why`
    local list=$1 unknown names absent known=() name
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        [ -e "$stamps/no-apt" ] || say "no apt here; the packages of $list are taken to be installed"
        touch "$stamps/no-apt"
        return 0
    fi
    unknown=$stamps/unknown-packages-$(key "$list")
    names=$(sed 's/#.*//' "$list" | awk 'NF { print $1 }')
    # shellcheck disable=SC2086
    absent=$(absent_packages $names)
    if [ -e "$unknown" ]; then
        absent=$(comm -23 <(sort <<<"$absent") "$unknown")
    fi
    [ -n "$absent" ] || return 0

    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        fail "neither root nor sudo; as root: apt-get install $(tr '\n' ' ' <<<"$absent")"
    as_root apt-get -q update >build/apt.log 2>&1 || say "apt-get update failed (build/apt.log); going on with the lists at hand"
    for name in $absent; do
        if [ -n "$(apt-cache show --no-all-versions "$name" 2>/dev/null)" ]; then
            known+=("$name")
        elif grep -Eq "^$name +optional" "$list"; then
            say "apt does not know $name (optional): left out"
            echo "$name" >>"$unknown"
        else
            fail "apt does not know $name, which is needed"
        fi
    done
    [ ! -e "$unknown" ] || sort -u -o "$unknown" "$unknown"
    [ ${#known[@]} -gt 0 ] || return 0
    say "apt-get install ${known[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy -o DPkg::Lock::Timeout=300 install \
        --no-install-recommends "${known[@]}" </dev/null >>build/apt.log 2>&1 ||
        { tail -n 30 build/apt.log >&2; fail "apt-get install failed (build/apt.log)"; }
}

base_python() { # the distribution's, for which python3-dev has the headers; else one on PATH
    local python
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$python"
            return 0
        fi
    done
    fail "no Python >= 3.10 with venv"
}

install_venv() {
    local python want
    python=$(base_python)
    want="$("$python" -V) $PWD $(key .ci/requirements.txt)"
    [ "$(cat build/venv/.tartan 2>/dev/null)" != "$want" ] || return 0
    say "build/venv from .ci/requirements.txt"
    rm -rf build/venv
    "$python" -m venv build/venv
    build/venv/bin/python -m pip install -q --no-input --disable-pip-version-check -r .ci/requirements.txt
    echo "$want" >build/venv/.tartan
}

install_baselines() {
    local want
    want=$(key .ci/requirements-bench.txt)
    [ "$(cat build/venv/.tartan-bench 2>/dev/null)" != "$want" ] || return 0
    say "baselines from .ci/requirements-bench.txt"
    if build/venv/bin/python -m pip install -q --no-input --disable-pip-version-check -r .ci/requirements-bench.txt; then
        echo "$want" >build/venv/.tartan-bench
    else
        say "baselines could not be had; the benchmarks go without"
    fi
}

install_nvcc() { # from PyPI where there is none, or one that is too old
    local version want home
    version=$(nvcc --version 2>/dev/null | sed -n 's/^.*release \([0-9.]*\),.*/\1/p' || true)
    if [ ! -e build/bin/nvcc ] && at_least "${version:-0}" 12.8; then return 0; fi
    want=$(key .ci/requirements-cuda.txt)
    [ "$(cat build/venv/.tartan-cuda 2>/dev/null)" != "$want" ] || return 0
    say "nvcc ${version:-(none)} on PATH: that of .ci/requirements-cuda.txt is used"
    build/venv/bin/python -m pip install -q --no-input --disable-pip-version-check -r .ci/requirements-cuda.txt
    home=$(build/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
    ln -sfn lib "$home/lib64" # where nvcc looks for the runtime
    # Not a link: nvcc finds its parts from the name that it was started by.
    printf '#!/bin/sh\nexec "%s/bin/nvcc" "$@"\n' "$home" >build/bin/nvcc
    chmod +x build/bin/nvcc
    echo "$want" >build/venv/.tartan-cuda
}

install_tools() { # from the venv or PyPI where the distribution's are too old
    local version
    if [ ! -x build/bin/meson ]; then
        version=$(meson --version 2>/dev/null || echo 0)
        if ! at_least "$version" 1.0; then
            say "meson $version is too old: build/venv's is used"
            ln -sfn ../venv/bin/meson build/bin/meson
        fi
    fi
    if [ ! -x build/bin/swig ]; then
        version=$(swig -version 2>/dev/null | sed -n 's/^SWIG Version //p')
        if ! at_least "${version:-0}" 4.1; then
            say "swig ${version:-(none)} is too old: 4.2.1 from PyPI is used"
            build/venv/bin/python -m pip install -q --no-input --disable-pip-version-check swig==4.2.1
            ln -sfn ../venv/bin/swig build/bin/swig
        fi
    fi
}

install_packages .ci/debian-packages.txt
install_venv
install_tools
.ci/setup-julia.sh
for part; do
    case "$part" in
        check) install_packages .ci/debian-packages-check.txt ;;
        bench) install_baselines ;;
        cuda) install_nvcc ;;
        *) fail "unknown part '$part'" ;;
    esac
done
