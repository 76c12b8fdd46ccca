# SPDX-License-Identifier: Apache-2.0
"""Checks of the tree itself: python3 check_tree.py NAME SOURCE_ROOT [ARGUMENTS]. Prints each fault, exits 1 on any."""
import pathlib
import re
import subprocess
import sys
import tempfile

# Who may include whom (docs/architecture.md): a folder of lib/ and the folders it may use besides itself.
MAY_USE = {
    "core": set(),
    "simd": set(),
    "kernels": {"core", "simd"},
    "layout": {"core"},
    "matrix": {"core", "layout"},
    "conv": {"core", "layout", "matrix"},
    "backend": {"core", "layout", "matrix", "conv", "kernels"},
    "device": {"core", "layout", "matrix", "conv", "backend"},
    "ops": {"core", "layout", "matrix", "conv", "backend", "device"},
    "io": {"core", "layout", "matrix"},
}
INTRINSICS = re.compile(r"#include\s*<(immintrin|x86intrin|arm_neon)\.h>|\b_mm\d*_\w+\(")
THREADS = re.compile(r"#include\s*<omp\.h>|#pragma omp")


def sources(root, *folders, endings=(".c", ".h", ".cc", ".cu", ".cuh")):
    return [p for f in folders for p in sorted((root / f).rglob("*")) if p.suffix in endings]


def includes(root):
    """Includes go one way, intrinsics stay in simd, threads in core/parallel.c, HDF5 in io/hdf5*.c; public headers are installed."""
    installed = (root / "lib/meson.build").read_text()
    for path in sources(root, "lib"):
        relative = path.relative_to(root / "lib")
        folder, text = relative.parts[0], path.read_text()
        if folder == "include":
            if f"'{relative.as_posix()}'" not in installed:
                yield f"{relative}: lib/meson.build does not install it"
            for name in re.findall(r'#include "([^"]+)"', text):
                if not name.startswith("tartan/"):
                    yield f"{relative}: a public header includes {name}"
            continue
        for name in re.findall(r'#include "([^"]+)"', text):
            other = name.split("/")[0]
            if other not in MAY_USE[folder] | {folder, "tartan", "tartan.h"}:
                yield f"{relative}: {folder} may not include {name}"
        if folder != "simd" and INTRINSICS.search(text):
            yield f"{relative}: intrinsics belong in simd/"
        if THREADS.search(text) and relative.name != "parallel.c":
            yield f"{relative}: threads belong in core/parallel.c"
        if "<hdf5.h>" in text and not relative.name.startswith("hdf5"):
            yield f"{relative}: HDF5 belongs in io/hdf5*.c"
        if re.search(r"\b(malloc|calloc|realloc|aligned_alloc|free)\(", text) and relative.as_posix() != "core/memory.c":
            yield f"{relative}: memory comes from core/memory.c"
        if re.search(r"\b(printf|puts|abort|exit)\(", text):
            yield f"{relative}: the library does not print, abort or exit"


# The plug-in's rooms: what each may include of cuda/. "plain" is C without CUDA, tested on any machine.
CUDA_MAY_USE = {
    "plain": {"plain"},
    "runtime": {"plain", "runtime", "device"},
    "device": {"plain", "runtime", "device"},
    "kernels": {"plain", "runtime", "device", "kernels"},
}
CUDA_LIB = {"backend", "conv", "core", "layout", "matrix", "tartan"}
CUDA_TABLES = {
    "kernels.def",
    "kernels/fused.def",
    "kernels/norms.def",
    "kernels/points.def",
    "kernels/steps.def",
    "kernels/sums.def",
    "kernels/updates.def",
}


def cuda(root):
    """Includes of cuda/ go one way, plain C sees no CUDA, inline assembly stays in device/ptx*.cuh, tables are not positional."""
    folder = root / "cuda"
    texts = {p.relative_to(folder).as_posix(): p.read_text() for p in sources(root, "cuda")}
    includes_of = {name: re.findall(r'#include "([^"]+)"', text) for name, text in texts.items()}

    def sees_cuda(name, seen):
        if name in seen or name not in texts:
            return False
        seen.add(name)
        return bool(re.search(r"#include <(cuda|library_types)", texts[name])) or any(sees_cuda(n, seen) for n in includes_of[name])

    def room(name):
        if "/" in name:
            return name.split("/")[0]
        return "runtime" if name.endswith(".cu") or sees_cuda(name, set()) else "plain"

    for name, text in texts.items():
        if name.endswith(".c") and room(name) != "plain":
            yield f"cuda/{name}: plain C includes a CUDA header"
        for other in includes_of[name]:
            if other in texts:
                if room(other) not in CUDA_MAY_USE[room(name)]:
                    yield f"cuda/{name}: {room(name)} may not include {other} ({room(other)})"
                if not name.endswith(".cu") and room(name) == "runtime" and room(other) == "device":
                    yield f"cuda/{name}: a header of the run-time side may not include {other}"
            elif other not in CUDA_TABLES and other.split("/")[0] not in CUDA_LIB:
                yield f"cuda/{name}: {other} is neither in cuda/ nor in lib/{{{','.join(sorted(CUDA_LIB))}}}"
        if re.search(r"\basm\b", text) and not re.fullmatch(r"device/ptx\w*\.cuh", name):
            yield f"cuda/{name}: inline assembly belongs in device/ptx*.cuh"
        if re.search(r"\btartan_backend\s+\w+\s*=\s*\{\s*[^.\s]", text) or re.search(r"\btartan_cuda_kernel\b[^;(]*=\s*\{+\s*[^.{\[\s_]", text) \
                or (name == "kernels.c" and re.search(r'\{\s*"', text)):
            yield f"cuda/{name}: a table is positional, expected designated initialisers"


def words(root):
    """Words of the table in docs/architecture.md stand in no other places of lib/ and cuda/ than it says; those that they replace in none."""
    found = sources(root, "lib", "cuda", endings=(".c", ".h", ".cu", ".cuh", ".def"))
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in found if root / "lib/include" not in path.parents}
    rows = re.search(r"^## Words\n+(?:\|.*\n){2}((?:\|.*\n)+)", (root / "docs/architecture.md").read_text(), re.M)
    yield from misused_words(rows.group(1) if rows else "", texts)


def misused_words(rows, texts):
    """`rows` of the table: | word | means | stands only in | instead of |. `texts`: {path: text}."""
    if not rows:
        yield "docs/architecture.md has no table of words"
    for row in rows.splitlines():
        word, _, places, replaced = (cell.strip() for cell in row.strip("|").split("|"))
        places = tuple(re.findall(r"`([^`]+)`", places))
        if places:
            # As a word, or as a part of a name: stage_bytes, kStages, MOST_STAGES.
            used = re.compile(rf"(?<![A-Za-z]){word}s?(?![a-z])|(?<![A-Z]){word.capitalize()}s?(?![a-z])|(?<![A-Z]){word.upper()}S?(?![A-Z])")
            where = [path for path, text in texts.items() if used.search(text)]
            yield from (f"{path}: '{word}' stands only in {', '.join(places)}" for path in where if not path.startswith(places))
            yield from (f"'{word}' is not used in {place}" for place in places if not any(path.startswith(place) for path in where))
        if replaced:
            again = re.compile(rf"\b{replaced}s?\b", re.I)
            yield from (f"{path}: '{replaced}', expected '{word}'" for path, text in texts.items() if again.search(text))


def generated_header(root, folder):
    """tartan/operations.h, which the build makes of the schema, in `folder`."""
    path = pathlib.Path(folder) / "tartan/operations.h"
    path.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, root / "lib/ops/schema/generate_c.py", path], check=True)
    return path


def symbols(root, library):
    """The shared library exports, and the headers declare, exactly tests/check/abi.txt, all of it with the prefix."""
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    found = {line.split()[-1] for line in out.splitlines()}
    listed = (root / "tests/check/abi.txt").read_text().split()
    declared = set()
    for path in sources(root, "lib/include", endings=(".h",)):
        declared |= set(re.findall(r"TARTAN_API[^;(]*?\b(tartan_\w+)\(", path.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        declared |= set(re.findall(r"TARTAN_API[^;(]*?\b(tartan_\w+)\(", generated_header(root, folder).read_text()))
    yield from compare_symbols(found, declared, listed)


def compare_symbols(exported, declared, listed):
    """What was added to the library and its headers, and what was removed from them, since abi.txt was written."""
    added, removed = sorted((exported | declared) - set(listed)), sorted(set(listed) - (exported & declared))
    for name in added:
        where = "exported and declared" if name in exported & declared else \
            "exported, declared in no public header" if name in exported else "declared, but not exported"
        yield f"added:   {name} ({where})"
    for name in removed:
        where = "declared, but no longer exported" if name in declared else \
            "exported, but no longer declared" if name in exported else "neither exported nor declared"
        yield f"removed: {name} ({where})"
    if added or removed:
        yield f"{len(added)} added, {len(removed)} removed: if you mean it, edit tests/check/abi.txt, else mend the library"
    for name in sorted(n for n in exported if not n.startswith("tartan_")):
        yield f"{name}: exported without the prefix"
    if listed != sorted(set(listed)):
        yield "tests/check/abi.txt is not sorted, or has a name twice"


def headers(root, language, *compiler):
    """Every public header compiles on its own; compiler is a command, perhaps behind ccache."""
    options = ["-x", language, "-std=c17" if language == "c" else "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    with tempfile.TemporaryDirectory() as folder:
        for path in [*sources(root, "lib/include", endings=(".h",)), generated_header(root, folder)]:
            command = [*compiler, *options, "-I", str(root / "lib/include"), "-I", folder, str(path)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                yield f"{path.name}: {done.stderr}"


def tests(root):
    """Every status is produced by a test, every public function is called by one, and each that can run out of
    memory fails every allocation in turn (BRUTAL)."""
    text = "".join(p.read_text() for p in sources(root, "tests", endings=(".cc", ".h")))
    header = (root / "lib/include/tartan/status.h").read_text()
    for status in re.findall(r"X\(ERR_(\w+),", header):
        if status != "INTERNAL" and not re.search(rf"FAILS\(\s*{status}\b|TARTAN_ERR_{status}\b", text):
            yield f"ERR_{status} is produced by no test"
    brutal = "".join(body for body in re.split(r"^TEST(?:_[FP])?\(", text, flags=re.M) if "BRUTAL(" in body)
    for path in sources(root, "lib/include", endings=(".h",)):
        for name in re.findall(r"TARTAN_API[^;(]*?\b(tartan_\w+)\(", path.read_text()):
            if not re.search(rf"\b{name}\b", text):
                yield f"{name} is called by no test"
        for name in re.findall(r"TARTAN_API tartan_status (tartan_\w+)\([^;]*?\*\*out", path.read_text()):
            # A wrapper of the tests may stand for it: from_csr(...), or csr(...) for what takes many arguments.
            short = name.split("_", 2)[-1].removeprefix("from_")
            if name != "tartan_matrix_get_layout" and not re.search(rf"\b(\w+_)?{short}\(", brutal):  # that one counts up only
                yield f"{name} hands over an object but has no BRUTAL test"
    # What reads or writes the values of a matrix is shown one on a device; the others only ask or free.
    elsewhere = (root / "tests/backend/elsewhere_test.cc").read_text()
    matrix_header = (root / "lib/include/tartan/matrix.h").read_text()
    harmless = {"tartan_matrix_free", "tartan_matrix_get_layout", "tartan_matrix_dtype", "tartan_matrix_block_order", "tartan_matrix_values"}
    for name in re.findall(r"TARTAN_API[^;(]*?\b(tartan_\w+)\([^;]*?tartan_matrix \*matrix\b", matrix_header):
        if name not in harmless and not re.search(rf"\b{name}\b", elsewhere):
            yield f"{name} has no test with a matrix on a device (tests/backend/elsewhere_test.cc)"


def files(root):
    """Each source carries its licence, has no tabs or trailing blanks, and is not overlong."""
    for path in sources(root, "lib", "cuda", "tests", "bindings/cli", "bindings/r/src", endings=(".c", ".h", ".cc", ".cu", ".cuh", ".py")):
        lines = path.read_text().splitlines()
        name = path.relative_to(root)
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            yield f"{name}: no SPDX line"
        for i, line in enumerate(lines, 1):
            if "\t" in line or line != line.rstrip():
                yield f"{name}:{i}: tab or trailing blank"
        long = len(lines) > 450 and path.suffix in (".c", ".h", ".cu", ".cuh")
        if long and name.parts[:2] != ("lib", "kernels"):
            yield f"{name}: {len(lines)} lines, expected under 450"
    tops = {p.name for p in root.iterdir() if not p.name.startswith(".")}
    allowed = {"meson.build", "meson_options.txt", "lib", "cuda", "swig", "bindings", "data", "tests", "notebooks",
               "docs", "README.md", "LICENSE", "run", "build"}
    for name in sorted(tops - allowed):
        yield f"{name}: not part of the tree"


if __name__ == "__main__":
    name, root, *arguments = sys.argv[1:]
    faults = list(globals()[name](pathlib.Path(root), *arguments))
    print(*faults, sep="\n")
    sys.exit(bool(faults))
