#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that tests fail when the code is wrong. Copies the sources to FOLDER, makes one small change of lib/ at a time, chosen by a seed,
and runs the test programs of that part of lib/ until one fails.

Exit status 1: fewer than 0.95 of the changes are noticed, or a line of the list of changes without effect is gone.
"""
import argparse
import json
import os
import pathlib
import platform
import random
import re
import shutil
import subprocess
import sys
import time

import mutants

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOOR = 0.95

# Tests mirror lib: the programs that run the files of a folder, the nearest first. "ops/schema" is schema_test in tests/ops.
PROGRAMS = {
    "core": ("core", "ops/schema", "backend"),
    "layout": ("layout", "matrix", "backend"),
    "matrix": ("matrix", "ops"),
    "conv": ("conv", "ops"),
    "kernels": ("kernels", "ops", "backend"),
    "simd": ("kernels", "ops"),
    "ops": ("ops/schema", "ops", "matrix", "backend"),
    "backend": ("backend", "ops", "matrix"),
    "device": ("backend",),
    "io": ("io",),
}

# Changes that were looked at and change no result: file, a part of the line, kinds of change, why.
WITHOUT_EFFECT = (
    ("lib/backend/cpu_conv_gradient.c", "slots without a channel stay 0", "statement", "store_task clears what they give; checkers of memory see it"),
    ("lib/backend/cpu_conv_tile.c", "any = any || w->spans[i].begin < w->spans[i].end", "comparison", "a tile of empty spans is packed and adds nothing"),
    ("lib/backend/cpu_spmm_plan.c", "in_pointers[j] == p->form.in_pointers[j + 1]) continue", "jump", "room for rows of B that no block needs"),
    ("lib/kernels/pairs.c", "round < rounds", "bound", "of a loop that measures a rate"),
    ("lib/kernels/sums.def", "POINT2(differences,", "arithmetic", "GPUs alone run it"),
)

# What programs want beside them.
PLUGINS = {"backend": ("tests/backend/libtest_plugin.so",)}

# How long the tests of one program may take for a change. There are slower ones, of long products and many threads.
SECONDS = 60

# A share of the random cases must do. Threads that wait for work sleep, as there are others.
ENVIRONMENT = os.environ | {"TARTAN_TEST_SHARE": "7", "OMP_WAIT_POLICY": "passive"}
# What takes long and whose ways through the code other tests take, too.
LONG = "*OpenAiMatmul*:PytorchBlockSparse.*:*Large*:Hostile.*:*/dummy"


def run(*command, timeout=1800):
    """(exit status, text); the status is None if it took too long."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=ENVIRONMENT, start_new_session=True)
    try:
        text, _ = process.communicate(timeout=timeout)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # with the children of death tests
        process.wait()
        return None, ""


def copy_tree(tree):
    """The sources that the library and its C++ tests need, as they are in the working tree. Whether any of them was another one."""
    changed = []

    def copy_if_newer(source, target):
        source, target = pathlib.Path(source), pathlib.Path(target)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            changed.append(shutil.copy(source, target))

    for name in ("meson.build", "meson_options.txt", "lib", "cuda", "swig", "bindings", "tests", "data", "notebooks"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, copy_function=copy_if_newer, dirs_exist_ok=True)
        else:
            copy_if_newer(source, tree / name)
    return len(changed) > 0


class Program:
    """A test program of the build folder. It runs once as the code is, which tells how long each test takes. A test that fails then can
    notice nothing, so it is left out."""

    def __init__(self, build, name):
        folder, _, last = name.rpartition("/")
        folder = folder or last
        self.build, self.program = build, build / f"tests/{folder}/{last}_test"
        self.targets = [f"tests/{folder}/{last}_test", *PLUGINS.get(folder, ())]
        if not self.compiles():
            sys.exit(self.text)
        report, fresh = build / f"mutations-{last}.json", build / "mutations.json"
        if not report.exists():
            fresh.unlink(missing_ok=True)
            self.start("*-" + LONG, 7200, f"--gtest_output=json:{fresh}", "--gtest_fail_fast=0")
            if not fresh.exists():
                sys.exit(f"{self.text}\nmutations: {self.program} dies as it is")
            fresh.rename(report)
        suites = json.loads(report.read_text())["testsuites"]
        self.seconds = {}
        for suite in suites:
            for test in suite["testsuite"]:
                name = f"{suite['name']}.{test['name']}"
                if "failures" in test:
                    print(f"LEFT OUT: {name} fails as it is", flush=True)
                elif test["result"] == "COMPLETED":
                    self.seconds[name] = float(test["time"].rstrip("s"))

    def compiles(self):
        code, self.text = run("ninja", "-C", str(self.build), *self.targets)
        return code == 0

    def start(self, only, timeout, *more):
        flags = self.build / "mutations.flags"  # in a file, as the names of all tests are longer than an argument may be
        flags.write_text(f"--gtest_brief=1\n--gtest_fail_fast\n--gtest_filter={only}\n")
        code, self.text = run(str(self.program), f"--gtest_flagfile={flags}", *more, timeout=timeout)
        return code == 0

    def tests(self, file, seconds):
        """Tests for a file, those that are named like it first, and of all others the quick ones, which take so many seconds together."""
        words = [w for w in pathlib.PurePath(file).stem.split("_") if w not in ("cpu", "hdf5", "of", "from")]
        ordered = sorted(self.seconds, key=lambda t: (-sum(w in t.lower() for w in words), self.seconds[t]))
        limit, taken = seconds, []
        for name in ordered:
            limit -= self.seconds[name]
            if limit >= 0:
                taken.append(name)
            else:
                limit += self.seconds[name]
        near = [t for t in taken if any(w in t.lower() for w in words)]
        return [part for part in (near, [t for t in taken if t not in set(near)]) if part]

    def passes(self, tests):
        return self.start(":".join(tests), 30 + 5 * sum(self.seconds[t] for t in tests))


class Runner:
    def __init__(self, folder, files, programs):
        # Places and options are those of `./run test`, so a compiler cache knows everything but the changes.
        self.tree, build = folder, folder / "build/release"
        self.tree.mkdir(parents=True, exist_ok=True)
        if copy_tree(self.tree):
            for report in build.glob("mutations-*.json"):
                report.unlink()
        if not (build / "build.ninja").exists():
            off = (f"-D{x}=disabled" for x in ("python", "r", "julia", "cuda", "fuzz", "cli"))
            code, text = run(os.environ.get("MESON", "meson"), "setup", str(build), str(self.tree), "-Dbuildtype=release", *off)
            if code != 0:
                sys.exit(text)
        self.names = {file: PROGRAMS[file.split("/")[1]][:programs] for file in files}
        self.programs = {name: Program(build, name) for name in sorted({x for names in self.names.values() for x in names})}

    def verdict(self, mutant):
        """ "noticed", "UNNOTICED", or None if it doesn't compile."""
        path, programs = self.tree / mutant.file, [self.programs[name] for name in self.names[mutant.file]]
        good = path.read_text()
        path.write_text(mutant.apply(good))
        try:
            for program in programs:
                if not program.compiles():
                    return None
                if not all(program.passes(tests) for tests in program.tests(mutant.file, SECONDS)):
                    return "noticed"
            return "UNNOTICED"
        finally:
            path.write_text(good)


def features():
    """Instruction sets of this machine, by the names of the kernel."""
    text = pathlib.Path("/proc/cpuinfo").read_text() if platform.system() == "Linux" else ""
    return set(" ".join(re.findall(r"^(?:flags|Features)\s*: (.*)$", text, flags=re.M)).split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="for the copy and its build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="how many changes; one a file at least")
    parser.add_argument("--files", default="", help="an expression that files match, and only those are changed")
    parser.add_argument("--sample", type=int, help="so many of the changes, drawn by the seed")
    parser.add_argument("--nearest", action="store_true", help="run the nearest test program alone: quick, and some changes go unnoticed")
    parser.add_argument("--list", action="store_true", help="only list the changes")
    args = parser.parse_args()
    texts = dict(mutants.files(ROOT, features()))
    stale = [entry for entry in WITHOUT_EFFECT if entry[1] not in texts.get(entry[0], "")]
    for file, line, *_ in stale:
        print(f"STALE: {file} has no line with {line}")
    orders = {file: mutants.in_order(file, text, args.seed, WITHOUT_EFFECT) for file, text in texts.items()}
    orders = {file: order for file, order in orders.items() if order}
    wanted = [file for file, n in mutants.shares(orders, args.count).items() if re.search(args.files, file) for _ in range(n)]
    if args.sample is not None:
        wanted = sorted(random.Random(args.seed).sample(wanted, min(args.sample, len(wanted))))
    if args.list:
        for file in wanted:
            print(orders[file].pop(0))
        return 0
    runner = Runner(args.folder.resolve(), sorted(set(wanted)), 1 if args.nearest else None)
    verdicts = []
    for file in wanted:
        verdict = None
        while verdict is None and orders[file]:
            mutant, begin = orders[file].pop(0), time.monotonic()
            verdict = runner.verdict(mutant)
        if verdict is not None:
            verdicts.append(verdict)
            print(f"{verdict:9}  {mutant} ({time.monotonic() - begin:.0f} s)", flush=True)
    share = verdicts.count("noticed") / len(verdicts)
    print(f"{share:.3f} of {len(verdicts)} changes are noticed, expected {FLOOR}")
    return 1 if stale or share < FLOOR else 0


if __name__ == "__main__":
    sys.exit(main())
