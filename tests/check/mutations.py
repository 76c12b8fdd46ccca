#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that tests fail when the code is wrong. Copies the sources to FOLDER, makes one small change of lib/ at a time, chosen by a seed,
and runs the test programs of that part of lib/ until one fails.

Exit status 1: fewer than 0.95 of the changes are noticed, or a line of the list of changes without effect is gone.
"""
import argparse
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
    "backend": ("ops", "backend", "matrix"),
    "device": ("backend",),
    "io": ("io",),
}

# Changes that were looked at and change no result: file, a part of the line, kinds of change, why.
WITHOUT_EFFECT = ()

# A share of the random cases must do. Threads that wait for work sleep, as there are others.
ENVIRONMENT = os.environ | {"TARTAN_TEST_SHARE": "7", "OMP_WAIT_POLICY": "passive"}
# What takes long and whose ways through the code other tests take, too.
LONG = "*OpenAiMatmul*:PytorchBlockSparse.*:*Large*:Hostile.*"


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
    """The sources that the library and its C++ tests need, as they are in the working tree."""
    for name in ("meson.build", "meson_options.txt", "lib", "cuda", "swig", "bindings", "tests", "data", "notebooks"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, copy_function=copy_if_newer, dirs_exist_ok=True)
        else:
            copy_if_newer(source, tree / name)


def copy_if_newer(source, target):
    target = pathlib.Path(target)
    if not target.exists() or target.read_bytes() != pathlib.Path(source).read_bytes():
        shutil.copy(source, target)


class Program:
    """A test program of the build folder. It is built and runs once as the code is: it must pass then, and the time is the measure of
    how long a changed one may take."""

    def __init__(self, build, name):
        folder, _, last = name.rpartition("/")
        self.build, self.target, self.seconds = build, f"tests/{folder or last}/{last}_test", {}
        if not self.compiles():
            sys.exit(self.text)

    def compiles(self):
        code, self.text = run("ninja", "-C", str(self.build), self.target)
        return code == 0

    def start(self, only, timeout):
        arguments = ("--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={only}-{LONG}")
        code, self.text = run(str(self.build / self.target), *arguments, timeout=timeout)
        return code == 0

    def measure(self, only):
        if only not in self.seconds:
            begin = time.monotonic()
            if not self.start(only, 3600):
                sys.exit(f"{self.text}\nmutations: {self.target} fails as it is")
            self.seconds[only] = time.monotonic() - begin

    def passes(self, only):
        return self.start(only, 20 + 4 * self.seconds[only])


def near(file):
    """A filter for the tests that are named like a file."""
    words = [w for w in pathlib.PurePath(file).stem.split("_") if w not in ("cpu", "hdf5", "of", "from")]
    return ":".join(f"*{w.capitalize()}*" for w in words) or "*"


class Runner:
    def __init__(self, folder, files):
        # Places and options are those of `./run test`, so a compiler cache knows everything but the changes.
        self.tree, build = folder, folder / "build/release"
        self.tree.mkdir(parents=True, exist_ok=True)
        copy_tree(self.tree)
        if not (build / "build.ninja").exists():
            off = (f"-D{x}=disabled" for x in ("python", "r", "julia", "cuda", "fuzz", "cli"))
            code, text = run(os.environ.get("MESON", "meson"), "setup", str(build), str(self.tree), "-Dbuildtype=release", *off)
            if code != 0:
                sys.exit(text)
        folders = {file.split("/")[1] for file in files}
        self.programs = {name: Program(build, name) for name in sorted({x for f in folders for x in PROGRAMS[f]})}
        for program in self.programs.values():
            program.measure("*")
        for file in files:
            self.of(file)[0].measure(near(file))

    def of(self, file):
        return [self.programs[name] for name in PROGRAMS[file.split("/")[1]]]

    def verdict(self, mutant):
        """ "noticed", "UNNOTICED", or None if it doesn't compile."""
        path, programs = self.tree / mutant.file, self.of(mutant.file)
        good = path.read_text()
        path.write_text(mutant.apply(good))
        try:
            # Tests of the file's name in the nearest program, then each program whole.
            for program, only in [(programs[0], near(mutant.file))] + [(program, "*") for program in programs]:
                if not program.compiles():
                    return None
                if not program.passes(only):
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
    runner = Runner(args.folder.resolve(), sorted(set(wanted)))
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
