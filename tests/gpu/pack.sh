#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pack.sh [r] [julia] [cuda]: packs R and Julia, with the libraries and packages they need, for a GPU machine that has neither
# language: build/gpu/r.tar.xz and build/gpu/julia.tar.xz. Each unpacks anywhere into a folder of its name; the program `run`
# in it starts the language on its arguments. build/gpu/cuda.tar.xz is the plug-in, for trees that travel without their build.
# r.sh and julia.sh use these packs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source .ci/env.sh
out=$PWD/build/gpu
limit=$((45 * 1024 * 1024))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

fail() { echo "gpu-pack: $*" >&2; exit 1; }

# The C library and the C++ compiler's run time are left out: every machine has its own.
own_of_machine='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so'

add_libraries() { # directory target: copies to target the libraries that files under directory need and lack
    local library LD_LIBRARY_PATH=$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    while read -r library; do
        [ -n "$(find "$1" -name "$(basename "$library")" -print -quit)" ] || cp -L "$library" "$2/"
    done < <(find "$1" -type f \( -name '*.so' -o -name '*.so.*' -o -perm -u+x \) -print0 | xargs -0 ldd 2>/dev/null |
        awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | grep -Ev "$own_of_machine")
}

add_tartan() { # directory
    [ -e "$TARTAN_LIBRARY" ] || fail "no ${TARTAN_LIBRARY#"$PWD"/}; build the tree first"
    cp -L "$TARTAN_LIBRARY" "$1/libtartan.so.0"
}

pack_cuda() {
    local plugin=$TARTAN_BUILD/cuda/libtartan_cuda.so
    [ -e "$plugin" ] || fail "no ${plugin#"$PWD"/}; build it with ./run cuda"
    mkdir -p "$work/cuda"
    cp -L "$plugin" "$work/cuda/"
    archive cuda
}

# stub name user pattern target: writes an empty library in place of a large one that is linked but never called. It has the
# functions that match the pattern and that the library `user` refers to.
stub() {
    local user symbols version
    user=$(realpath "$2")
    symbols=$(nm -D --undefined-only --with-symbol-versions "$user" | awk '{ print $2 }' | grep -E "$3" || true)
    [ -n "$symbols" ] || return 0
    version=$(sed -n 's/.*@//p' <<<"$symbols" | head -n 1)
    echo "$version { global: *; };" >"$work/version"
    sed 's/@.*//; s/.*/void &(void) { __builtin_trap(); }/' <<<"$symbols" |
        gcc -w -O1 -shared -fPIC -Wl,-soname,"$1" ${version:+-Wl,--version-script="$work/version"} -x c - -o "$4/$1"
}

# HDF5 links libcurl to read files in cloud stores; Debian's LLVM 9 links the solver Z3.
add_stubs() { # target llvm: no llvm where there is none
    local hdf5
    hdf5=$(ldd "$TARTAN_LIBRARY" | awk '$1 ~ /^libhdf5/ { print $3 }')
    stub libcurl.so.4 "$hdf5" '^curl_' "$1"
    [ -z "$2" ] || stub libz3.so.4 "$2" '^Z3_' "$1"
}

archive() { # name
    find "$work/$1" -type f \( -name '*.so' -o -name '*.so.*' \) -exec strip --strip-unneeded {} + 2>/dev/null || true
    tar -C "$work" --owner=0 --group=0 -cf - "$1" | xz --x86 --lzma2=preset=9,dict=128MiB >"$out/$1.tar.xz.new"
    local bytes
    bytes=$(stat -c %s "$out/$1.tar.xz.new")
    [ "$bytes" -lt "$limit" ] || fail "$1.tar.xz has $bytes bytes, expected less than $limit"
    mv "$out/$1.tar.xz.new" "$out/$1.tar.xz"
    echo "gpu-pack: build/gpu/$1.tar.xz, $((bytes / 1024)) KiB"
}

# The paths of the named R packages and of all they need.
r_packages() {
    Rscript --vanilla -e '
        need <- commandArgs(TRUE)
        all <- installed.packages(.libPaths())
        more <- tools::package_dependencies(need, all, c("Depends", "Imports"), recursive = TRUE)
        names <- intersect(unique(c(need, unlist(more))), rownames(all))
        writeLines(find.package(names))' "$@"
}

pack_r() {
    local home place=$work/r package part
    command -v R >/dev/null || fail "no R here"
    [ -d "$TARTAN_BUILD/rlib/tartan" ] || fail "no R package in ${TARTAN_BUILD#"$PWD"/}/rlib; build the tree first"
    home=$(R RHOME)
    mkdir -p "$place/home/bin/exec" "$place/home/library" "$place/lib"
    cp -L "$home/bin/exec/R" "$place/home/bin/exec/"
    cp -LR "$home/lib" "$home/modules" "$home/etc" "$place/home/"
    while read -r package; do
        cp -LR "$package" "$place/home/library/"
    done < <(R_LIBS="$TARTAN_BUILD/rlib" r_packages base compiler methods parallel stats utils graphics grDevices tools tartan testthat)
    for part in help html doc demo po tests include examples java tcl; do rm -rf "$place"/home/library/*/"$part"; done
    # Graphics and downloads would pull in half a desktop.
    rm -f "$place"/home/modules/R_X11.so "$place"/home/modules/R_de.so "$place"/home/library/grDevices/libs/cairo.so
    rm -f "$place"/home/modules/internet.so
    add_tartan "$place/lib"
    add_stubs "$place/lib" ''
    # The reference BLAS, which Debian keeps beside the fast one.
    find /usr/lib \( -path '*/blas/libblas.so.3' -o -path '*/lapack/liblapack.so.3' \) -exec cp -L -t "$place/lib" {} +
    add_libraries "$place" "$place/lib"
    cat >"$place/run" <<'RUN'
#!/bin/sh
# run script.R [argument...]
here=$(cd "$(dirname "$0")" && pwd)
export R_HOME="$here/home" R_SHARE_DIR="$here/home/share" R_INCLUDE_DIR="$here/home/include" R_DOC_DIR="$here/home/doc"
export R_LIBS="$here/home/library" R_LIBS_USER=- R_LIBS_SITE=- R_DEFAULT_PACKAGES=methods,grDevices,graphics,stats,utils
export LD_LIBRARY_PATH="$here/lib:$here/home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
script=$1
shift
exec "$here/home/bin/exec/R" --no-echo --no-restore --vanilla --file="$script" --args "$@"
RUN
    chmod +x "$place/run"
    archive r
}

pack_julia() {
    local bin home libraries place=$work/julia link target shim
    [ -n "$JULIA" ] || fail "no Julia here"
    [ -d "$TARTAN_BUILD/bindings/julia/Tartan" ] || fail "no Julia package in ${TARTAN_BUILD#"$PWD"/}; build the tree first"
    bin=$("$JULIA" --startup-file=no -e 'print(Sys.BINDIR)')
    libraries=$("$JULIA" --startup-file=no -e 'using Libdl
        print(dirname(first(filter(path -> occursin("/libjulia", path), dllist()))))')
    home=$(dirname "$bin")
    case "$home" in /usr | /usr/local | /) fail "Julia is in $home beside other programs, expected a folder of its own" ;; esac
    mkdir -p "$place/home/bin" "$place/lib" "$place/packages"
    cp -L "$bin/julia" "$place/home/bin/"
    # Without what only git, downloads, sparse solvers and messages about Julia's own source need.
    (cd "$home" && tar -cf - --exclude='*.a' --exclude=base.cache --exclude=share/julia/base --exclude=share/julia/test \
        --exclude='stdlib/*/*/test' --exclude='stdlib/*/*/docs' --exclude='libgit2*' --exclude='libmbed*' \
        --exclude='libssh2*' --exclude='libcurl*' --exclude='libhttp_parser*' --exclude='libumfpack*' --exclude='libspqr*' \
        lib share/julia) | tar -C "$place/home" -xf -
    # Replace links that leave the folder by the files they point to.
    find "$place/home" -type l -lname '/*' | while read -r link; do
        target=$(readlink "$link")
        rm "$link"
        if [ -e "$target" ]; then cp -L "$target" "$link"; fi
    done
    add_tartan "$place/lib"
    add_stubs "$place/lib" "$(find "$place/home" -type f -name 'libLLVM*.so*' -print -quit)"
    add_libraries "$place" "$place/lib"
    cp -R "$TARTAN_BUILD/bindings/julia/Tartan" "$place/packages/"
    # What ./run has a script in front of Julia preload.
    shim=$(head -c 4096 "$JULIA" | grep -ao '/[^" :]*/libunwind_shim\.so' | head -n 1 || true)
    [ -z "$shim" ] || cp "$shim" "$place/lib/"
    echo "${libraries#"$home"/}" >"$place/libraries"
    cat >"$place/run" <<'RUN'
#!/bin/sh
# run script.jl [argument...]
here=$(cd "$(dirname "$0")" && pwd)
libraries=$here/home/$(cat "$here/libraries")
export LD_LIBRARY_PATH="$libraries:$libraries/julia:$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export JULIA_LOAD_PATH="$here/packages:@stdlib" JULIA_DEPOT_PATH="$here/depot" TARTAN_LIBRARY="$here/lib/libtartan.so.0"
if [ -e "$here/lib/libunwind_shim.so" ]; then export LD_PRELOAD="$here/lib/libunwind_shim.so${LD_PRELOAD:+:$LD_PRELOAD}"; fi
exec "$here/home/bin/julia" --startup-file=no --color=no "$@"
RUN
    chmod +x "$place/run"
    archive julia
}

[ $# -gt 0 ] || set -- r julia cuda
for part; do
    case "$part" in
        r) pack_r ;;
        julia) pack_julia ;;
        cuda) pack_cuda ;;
        *) fail "unknown part '$part'" ;;
    esac
done
