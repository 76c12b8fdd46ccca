#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the CUDA backend against its goals: each row is interleaved with cuBLAS, PyTorch and cuSPARSE in one process.

Needs PyTorch and libtartan ($TARTAN_LIBRARY) with its CUDA plug-in. Operands are random; each of our results is checked against
float64 before it is timed. Our rates count operations on stored blocks only; those of dense peers count everything. Times are
medians of CUDA events with a warm cache as far as operands fit (rows "minibatch": a cold one); planning is timed separately.
Writes one JSON object per row to build/bench/gpu.jsonl (and $OUT/gpu.jsonl), then prints the table. Exit status 1: a row is
below its floor, wrong or missing.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_bench import cases, table

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches; --list shows the texts")
    parser.add_argument("--sizes", metavar="N,N", help="M = N = K of the goals (default 4096,8192)")
    parser.add_argument("--quick", action="store_true", help="4096 alone, fewer samples, no published settings")
    parser.add_argument("--samples", type=int, help="samples of each arm (default 20; quick: 7)")
    parser.add_argument("--limit", type=float, help="seconds after which no further rows are begun (default 440; quick: 105)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--render", metavar="FILE", help="print the table of an earlier run's gpu.jsonl; runs nothing")
    parser.add_argument("--list", action="store_true", help="print the rows' texts; runs nothing")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only to try this program")
    options = parser.parse_args(arguments)
    options.samples = options.samples or (7 if options.quick else 20)
    options.limit = options.limit or (105 if options.quick else 440)
    sizes = options.sizes or ("4096" if options.quick else "4096,8192")
    options.rows = [row for row in cases.rows([int(size) for size in sizes.split(",")], not options.quick)
                    if re.search(options.only, row.text)]
    return options


def driver_version():
    """The version of the CUDA driver, as nvidia-smi has it, or None."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


class Bench:
    def __init__(self, options):
        import torch  # not needed to list or render
        from gpu_bench import library, operands, peers, timing
        self.options, self.torch = options, torch
        self.operands, self.peers, self.timing, self.Refused = operands, peers, timing, library.Refused
        self.library = library.Library()
        self.cuda = options.device == "cuda"
        stream = None
        self.about = {"date": datetime.date.today().isoformat(), "tartan": self.library.version, "torch": torch.__version__}
        if self.cuda:
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)
            stream = self.stream.cuda_stream
            self.timer = timing.CudaTimer(self.stream)
            self.about |= {"gpu": torch.cuda.get_device_name(), "driver": driver_version(), "cuda": torch.version.cuda}
        else:
            self.stream, self.timer = None, timing.CpuTimer()
            self.about |= {"gpu": "none: tried on the CPU"}
        self.contexts = {tf32: library.Context(self.library, self.cuda, stream, tf32) for tf32 in (False, True)}
        self.generator = torch.Generator(device=options.device)
        self.generator.manual_seed(1)
        self.begin = time.monotonic()

    def late(self):
        return time.monotonic() - self.begin > self.options.limit

    def setup_ours(self, product):
        """(our operands or None, arm or None, facts of the row)."""
        facts, ours = {}, None
        if self.late():
            return None, None, {"verdict": "NOT RUN", "note": "out of time"}
        try:
            ours = self.operands.Ours(self.library, self.contexts[product.tf32], product, self.generator)
            facts["density"] = ours.layout.density
            facts |= self.explained(ours)
            for call in ours.calls:
                call()
            facts["error_over_bound"] = ours.check()
            facts["plan_ms"] = ours.plan_ms()
            arm = self.timing.Arm(ours.calls)
            self.timer.prepare(arm, self.options.samples)
            return ours, arm, facts
        except self.Refused as error:
            facts |= {"verdict": "REFUSED", "note": str(error)}
        except self.operands.Wrong as error:
            facts |= {"verdict": "WRONG", "note": str(error)}
        except self.torch.cuda.OutOfMemoryError:
            facts |= {"verdict": "REFUSED", "note": "out of device memory"}
        except RuntimeError as error:  # a fault of the device, which PyTorch finds
            facts |= {"verdict": "WRONG", "note": self.peers.first_line(error)}
        return ours, None, facts

    def explained(self, ours):
        try:
            said = ours.explain()
            return {"kernel": said.get("kernel"), "why": said.get("why"), "expected_tflops": said.get("expected_tflops")}
        except self.Refused as error:
            return {"kernel": "?", "why": str(error)}

    def setup_peer(self, row, ours):
        try:
            arm, work, note = self.peers.make(row, ours, self.generator, self.stream)
            self.timer.prepare(arm, self.options.samples)
            return arm, work, note
        except Exception as error:  # whatever a peer throws is its row's note
            return None, 0.0, self.peers.first_line(error)

    def run_group(self, rows):
        ours, others = {}, {}
        for row in rows:
            if row.product not in ours:
                ours[row.product] = self.setup_ours(row.product)
            key = self.peers.key(row)
            if self.late():
                others.setdefault(key, (None, 0.0, ""))
            elif key not in others:
                others[key] = self.setup_peer(row, ours[row.product][0])
        arms = [arm for _, arm, _ in ours.values() if arm] + [arm for arm, _, _ in others.values() if arm]
        self.timing.measure(self.timer, arms, self.options.samples)
        results = [(row, self.result(row, *ours[row.product], *others[self.peers.key(row)])) for row in rows]
        for arm in arms:
            arm.free()
        for operands, _, _ in ours.values():
            if operands:
                operands.free()
        del ours, others, arms
        if self.cuda:
            self.torch.cuda.empty_cache()
        return results

    def result(self, row, ours, arm, facts, peer, work, note):
        result = describe(row) | self.about | {k: v for k, v in facts.items() if k not in ("verdict", "note")}
        notes = [facts["note"]] if "note" in facts else []
        if peer:
            result |= {"peer_ms": peer.ms, "peer_tflops": work / peer.ms / 1e9, "peer_samples": len(peer.times),
                       "peer_timing": peer.how}
        notes += [note] if note else []
        if arm:
            done = ours.bytes if row.metric == "bytes" else ours.flops
            result |= {"ms": arm.ms, "tflops": done / arm.ms / 1e9, "samples": len(arm.times), "timing": arm.how}
        if arm and peer:
            result["ratio"] = peer.ms / arm.ms if row.metric == "time" else result["tflops"] / result["peer_tflops"]
        if not arm:
            result["verdict"] = facts["verdict"]
        else:
            result["verdict"] = table.verdict(row, result["ratio"]) if peer else "NO PEER"
        if notes:
            result["note"] = "; ".join(notes)
        return result

    def run(self):
        """Yields (row, result), group by group."""
        groups = {}
        for row in self.options.rows:
            groups.setdefault(row.group, []).append(row)
        for rows in groups.values():
            begin = time.monotonic()
            yield from self.run_group(rows)
            print(f"# {rows[0].group}: {len(rows)} rows, {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


def describe(row):
    p = row.product
    return {"section": row.section, "operation": p.name, "type": p.type_name, "dtype": p.dtype, "block": p.block,
            "layout": p.layout, "density": p.density, "size": p.size_name, "rows": p.rows, "cols": p.cols, "n": p.size,
            "peer": row.peer, "metric": row.metric, "floor": row.floor, "goal": row.goal}


def main(arguments):
    options = parse(arguments)
    if options.render:
        with open(options.render, encoding="utf-8") as file:
            results = [json.loads(line) for line in file if line.strip()]
        print("\n".join(table.lines(results, options.markdown)))
        print(table.summary(results))
        return 0
    if options.list:
        print("\n".join(row.text for row in options.rows))
        return 0
    if not options.rows:
        print("gpu-bench: no row matches", file=sys.stderr)
        return 2
    bench = Bench(options)
    places = [ROOT / "build" / "bench"] + ([pathlib.Path(os.environ["OUT"])] if os.environ.get("OUT") else [])
    found = {}
    try:
        for row, result in bench.run():
            found[row] = result
            for place in places:  # after each row: a run that is cut off leaves what it has
                place.mkdir(parents=True, exist_ok=True)
                with open(place / "gpu.jsonl", "w" if len(found) == 1 else "a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
    finally:
        results = [found[row] for row in options.rows if row in found]
        print(", ".join(str(value) for value in bench.about.values()))
        print("\n".join(table.lines(results, options.markdown)))
        print(table.summary(results))
    return 1 if table.failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
