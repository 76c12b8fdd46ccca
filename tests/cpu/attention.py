#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark of attention on the CPU against its goals: each row is interleaved with its peers in one process.

One thread is held against the measured peak of its multiply-adds, all threads against dense scaled_dot_product_attention of
PyTorch, if this Python has it. NumPy, by block rows, is shown. Results are compared with NumPy's of f64 before they are timed.
Needs NumPy, ml_dtypes and libtartan ($TARTAN_LIBRARY). Writes one JSON object per row to build/bench/attention.jsonl, then
prints the table. Exit status 1: a row is below its floor or wrong.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
from attention_numpy import Head

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))
from gpu_bench import library as tartan
from gpu_bench import table
from gpu_bench.attention_cases import BACKWARD, FORWARD, Case, Row, visible_pairs

PEAK, SDPA, NUMPY, MEMORY = "peak", "SDPA", "NumPy", "2 GB"
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
MOST_ERROR = {"f32": 1e-5, "bf16": 5e-3}  # of the norm of a head's result
# (floor, goal)
OF_PEAK = {"f32": (.50, .80), "bf16": (.22, .45)}  # bf16: of the peak of AMX, where there is AMX
DENSE_LIMITS, MASKED_LIMITS = (.9, 1.2), (6.0, 9.0)  # times as fast as dense SDPA
PAUSE = .01  # seconds between samples, in which the threads of other libraries stop spinning
SAMPLE = .02  # seconds that a sample takes at least
MEMORY_TOKENS, MEMORY_BYTES = 65536, 2e9


def random(type_name, block, heads, tokens, d):
    return Case("random 10%", (block, block), "random", "density=0.1", 1, heads, tokens, tokens, d, type_name=type_name)


def rows(tokens, threads):
    heads = max(4, min(2 * threads, 16))
    for type_name in DTYPES:
        for d in (64, 128):
            for block in (64, 128):
                yield Row("attention, one thread", random(type_name, block, 2, tokens, d), FORWARD, PEAK, "rate", *OF_PEAK[type_name])
            full = Case("all on", (128, 128), "dense", "", 1, heads, tokens, tokens, d, shared=True, type_name=type_name)
            for case, limits in ((full, DENSE_LIMITS), (random(type_name, 64, heads, tokens, d), MASKED_LIMITS),
                                 (random(type_name, 128, heads, tokens, d), MASKED_LIMITS)):
                yield Row("attention, all threads", case, FORWARD, SDPA, "time", *limits)
                yield Row("attention, all threads", case, BACKWARD, SDPA, "time")
                if type_name == "f32":
                    yield Row("attention, all threads", case, FORWARD, NUMPY, "time")
    local = Case("local 1024", (64, 64), "local", "window=16 causal=1", 1, 8, MEMORY_TOKENS, MEMORY_TOKENS, 64, causal=True,
                 shared=True, type_name="bf16")
    yield Row("attention, memory", local, FORWARD, MEMORY, "memory", 1, 1)
    yield Row("attention, memory", local, BACKWARD, MEMORY, "memory", 1, 1)


# ---- Operands ----

def random_array(generator, shape, dtype):
    return generator.standard_normal(shape, np.float32).astype(dtype)


class Operands:
    """Ours: both passes of one case as calls."""

    def __init__(self, library, context, case):
        self.case, dtype, generator = case, DTYPES[case.type_name], np.random.default_rng(1)
        queries, keys = (1, case.heads, case.tq, case.d), (1, case.heads, case.tk, case.d)
        self.q, self.out_grad = (random_array(generator, queries, dtype) for _ in range(2))
        self.k, self.v = (random_array(generator, keys, dtype) for _ in range(2))
        self.out, self.lse = np.full(queries, np.nan, dtype), np.full(queries[:3], np.nan, np.float32)
        self.gradients = [np.full_like(array, np.nan) for array in (self.q, self.k, self.v)]
        self.layout = tartan.Layout(library, case.tq, case.tk, case.block, pattern=(case.pattern, case.parameters, 1),
                                    heads=1 if case.shared else case.heads)
        self.coordinates = self.layout.coordinates(np)
        options, inputs = "causal=1" if case.causal else "", (self.q, self.k, self.v)
        self.calls = {
            FORWARD: tartan.attention(context, self.layout, options, None, inputs, (self.out, self.lse)),
            BACKWARD: tartan.attention(context, self.layout, options, None, (*inputs, self.out, self.lse, self.out_grad),
                                       self.gradients)}
        self.pairs = visible_pairs(case, *self.coordinates)

    def flops(self, direction):
        return (4.0 if direction == FORWARD else 10.0) * self.case.d * self.pairs

    def head(self, number, dtype):
        heads, block_rows, block_cols = self.coordinates
        mine = heads == (0 if self.case.shared else number)
        q, k, v = (array[0, number].astype(dtype) for array in (self.q, self.k, self.v))
        return Head(q, k, v, self.case.block, block_rows[mine], block_cols[mine])

    def check(self):
        """{direction: largest error of a result of the last head, as a share of its norm}."""
        head = self.head(self.case.heads - 1, np.float64)
        out, lse = head.forward()
        grads = head.backward(out, self.out_grad[0, -1].astype(np.float64))
        return {FORWARD: max(apart(self.out, out), apart(self.lse, lse)),
                BACKWARD: max(apart(ours, want) for ours, want in zip(self.gradients, grads))}

    def free(self):
        self.layout.free()


def apart(ours, want):
    ours = ours[0, -1].astype(np.float64)
    if not np.array_equal(np.isneginf(ours), np.isneginf(want)):
        return np.inf
    finite = ~np.isneginf(want)
    error = np.linalg.norm(ours[finite] - want[finite]) / max(np.linalg.norm(want[finite]), 1e-300)
    return float(np.nan_to_num(error, nan=np.inf))


# ---- Arms: functions that return the seconds of one call ----

def timed(call):
    """The mean of as many calls as fill a sample: a call after a pause finds caches cold and the clock low."""
    def arm():
        begin, count, seconds = time.perf_counter(), 0, 0
        while seconds < SAMPLE:
            call()
            count, seconds = count + 1, time.perf_counter() - begin
        return seconds / count
    arm()
    return arm


def sdpa_arms(torch, operands, threads):
    torch.set_num_threads(threads)

    def tensor(array):
        return torch.from_numpy(array) if array.dtype == np.float32 else torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v, out_grad = (tensor(array) for array in (operands.q, operands.k, operands.v, operands.out_grad))
    leaves = [part.detach().requires_grad_() for part in (q, k, v)]
    out = attention(*leaves)
    return {FORWARD: timed(lambda: attention(q, k, v)),
            BACKWARD: timed(lambda: torch.autograd.grad(out, leaves, out_grad, retain_graph=True))}


def numpy_arm(operands):
    heads = [operands.head(number, np.float32) for number in range(operands.case.heads)]

    def forward():
        for head in heads:
            head.forward()
    return timed(forward)


class Bench:
    def __init__(self, options):
        self.options, self.library = options, tartan.Library()
        self.contexts = {threads: tartan.Context(self.library, False, threads=threads) for threads in {1, options.threads}}
        try:
            import torch
            self.torch, version = torch, torch.__version__
        except ImportError:
            self.torch, version = None, "none"
        self.about = {"cpu": cpu_name(), "threads": options.threads, "tartan": self.library.version, "torch": version,
                      "numpy": np.__version__}

    def run(self):
        """Yields (row, result). Rows of one section, dtype and head size take turns."""
        groups = {}
        for row in self.options.rows:
            groups.setdefault((row.section, row.case.type_name, row.case.d), []).append(row)
        for (section, *_), chosen in groups.items():
            if section == "attention, memory":
                yield from ((row, memory_result(row, self.about)) for row in chosen)
            else:
                yield from self.measure(chosen, 1 if section == "attention, one thread" else self.options.threads)

    def measure(self, chosen, threads):
        context, facts, arms, ours = self.contexts[threads], {}, {}, {}
        for row in chosen:
            if row.case in ours:
                continue
            made = ours[row.case] = Operands(self.library, context, row.case)
            for direction in (FORWARD, BACKWARD):
                made.calls[direction]()
                said = self.library.explain(made.calls[direction])
                facts[row.case, direction] = {"kernel": said.get("instruction_set"),
                                              "density": made.pairs / (row.case.heads * row.case.tq * row.case.tk)}
            for direction, error in made.check().items():
                facts[row.case, direction]["error"] = error
                arms["ours", row.case, direction] = timed(made.calls[direction])
        for row in chosen:
            arms.update(self.peer_arms(row, ours[row.case], threads, arms))
        times = {key: [] for key in arms}
        for _ in range(self.options.rounds):
            for key, arm in arms.items():
                time.sleep(PAUSE)
                times[key].append(arm())
        for row in chosen:
            yield row, self.result(row, ours[row.case], facts[row.case, row.direction], times)
        for made in ours.values():
            made.free()

    def peer_arms(self, row, operands, threads, arms):
        key = self.peer_key(row)
        if key in arms:
            return {}
        if row.peer == PEAK:
            return {key: lambda: self.contexts[1].peak(str(DTYPES[row.case.type_name]))}
        if row.peer == NUMPY:
            return {key: numpy_arm(operands)}
        if self.torch is None:
            return {}
        found = sdpa_arms(self.torch, operands, threads)
        return {(SDPA, operands.case.shape, direction): arm for direction, arm in found.items()}

    @staticmethod
    def peer_key(row):
        """Cases of one shape share the dense peer."""
        return {PEAK: (PEAK,), NUMPY: (NUMPY, row.case)}.get(row.peer) or (SDPA, row.case.shape, row.direction)

    def result(self, row, ours, facts, times):
        # The peak is that of the fastest of many bursts, so the fastest sample is held against it.
        typical = min if row.peer == PEAK else statistics.median
        seconds, theirs = typical(times["ours", row.case, row.direction]), times.get(self.peer_key(row))
        result = describe(row, self.about) | facts | {"ms": 1e3 * seconds, "tflops": 1e-12 * ours.flops(row.direction) / seconds,
                                                      "samples": self.options.rounds}
        if facts["error"] > MOST_ERROR[row.case.type_name]:
            return result | {"verdict": "WRONG", "note": "the result is not that of NumPy"}
        if theirs is None:
            return result | {"verdict": "skipped", "note": "this Python has no PyTorch"}
        if row.peer == PEAK:
            peak = 1e-3 * max(theirs)
            result |= {"peer": f"{facts['kernel']} peak", "peer_tflops": peak, "ratio": result["tflops"] / peak}
            if row.case.type_name == "bf16" and facts["kernel"] != "amx":
                return result | {"verdict": "shown", "note": "the goal is for AMX"}
        else:
            peer = statistics.median(theirs)
            result |= {"peer_ms": 1e3 * peer, "ratio": peer / seconds}
            if row.peer == SDPA:
                c = row.case
                dense = (4.0 if row.direction == FORWARD else 10.0) * c.d * c.heads * c.tq * c.tk
                result["peer_tflops"] = 1e-12 * dense / peer
        return result | {"verdict": table.verdict(row, result["ratio"])}


def describe(row, about):
    c = row.case
    return {"section": row.section, "case": c.name, "pass": row.direction, "type": c.type_name, "block": c.block_name,
            "size": f"{c.type_name}, {c.size_name}", "peer": row.peer, "metric": row.metric, "floor": row.floor,
            "goal": row.goal} | about


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# ---- Memory: the most that a process of its own has held ----

def memory_result(row, about):
    """The ratio is that of 2 GB to what the process held, with its operands."""
    child = [sys.executable, __file__, "--memory", row.direction]
    found = subprocess.run(child, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return describe(row, about) | {"verdict": "WRONG", "note": (found.stderr.strip().splitlines() or ["no message"])[-1]}
    held = float(found.stdout)
    ratio = MEMORY_BYTES / held
    return describe(row, about) | {"bytes": held, "ratio": ratio, "verdict": table.verdict(row, ratio),
                                   "note": f"{1e-9 * held:.2f} GB with operands and Python"}


def hold(direction):
    """Prints the most bytes that this process has held after both passes, or the first alone."""
    case = next(row.case for row in rows(1024, 1) if row.metric == "memory")
    library = tartan.Library()
    operands = Operands(library, tartan.Context(library, False), case)
    operands.calls[FORWARD]()
    if direction == BACKWARD:
        operands.calls[BACKWARD]()
    print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches; --list shows the texts")
    parser.add_argument("--tokens", type=int, default=4096, help="queries and keys (default 4096)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="all threads (default: all cores)")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each arm (default 7)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--list", action="store_true", help="print the rows' texts; runs nothing")
    parser.add_argument("--memory", choices=(FORWARD, BACKWARD), help="print the bytes that one process holds")
    options = parser.parse_args(arguments)
    options.rows = [row for row in rows(options.tokens, options.threads) if re.search(options.only, text_of(row))]
    return options


def text_of(row):
    return f"{row.text} | {row.case.type_name}"


def main(arguments):
    options = parse(arguments)
    if options.memory:
        hold(options.memory)
        return 0
    if options.list:
        print("\n".join(map(text_of, options.rows)))
        return 0
    if not options.rows:
        print("bench: no row matches", file=sys.stderr)
        return 2
    bench, results = Bench(options), []
    place = ROOT / "build" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "attention.jsonl", "w", encoding="utf-8") as file:
        for _, result in bench.run():
            results.append(result)
            print(json.dumps(result), file=file, flush=True)
    print(", ".join(f"{key} {value}" for key, value in bench.about.items()))
    print("\n".join(table.lines(results, options.markdown)))
    print(table.summary(results))
    return 1 if table.failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
