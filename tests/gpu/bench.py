#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the CUDA backend against its goals: each row is interleaved with its peers in one process.

Products are measured beside cuBLAS, PyTorch and cuSPARSE; with the word "attention", attention beside PyTorch's dense attention
(cuDNN or FlashAttention, whichever is faster) and FlexAttention, and checked against dense attention in float32.

Needs PyTorch and libtartan ($TARTAN_LIBRARY) with its CUDA plug-in. Operands are random; each of our results is checked against
float64 before it is timed. Our rates count operations on stored blocks only; those of dense peers count everything. Times are
medians of CUDA events with a warm cache as far as operands fit (rows "minibatch": a cold one); planning is timed separately.
Writes one JSON object per row to build/bench/gpu.jsonl or gpu_attention.jsonl (and to $OUT), then prints the table. Exit status
1: a row is below its floor, wrong or missing.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_bench import attention_cases, cases, table

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="?", choices=("products", "attention"), default="products")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches; --list shows the texts")
    parser.add_argument("--sizes", metavar="N,N", help="M = N = K of the goals (default 4096,8192); of attention: tokens (8192)")
    parser.add_argument("--long", action="store_true", help="attention: 32768 and 65536 tokens too")
    parser.add_argument("--no-flex", action="store_true", help="attention: without FlexAttention, which takes long to compile")
    parser.add_argument("--quick", action="store_true", help="4096 alone, fewer samples, no published settings")
    parser.add_argument("--samples", type=int, help="samples of each arm (default 20; quick: 7)")
    parser.add_argument("--limit", type=float,
                        help="seconds after which no further rows are begun (default 440; quick: 105, attention: 225)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--render", metavar="FILE", help="print the table of an earlier run's gpu.jsonl; runs nothing")
    parser.add_argument("--list", action="store_true", help="print the rows' texts; runs nothing")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only to try this program")
    options = parser.parse_args(arguments)
    attention = options.what == "attention"
    options.samples = options.samples or (7 if options.quick else 20)
    options.limit = options.limit or (105 if options.quick else 225 if attention else 440)
    rows = attention_rows(options) if attention else product_rows(options)
    options.rows = [row for row in rows if re.search(options.only, row.text)]
    return options


def numbers(text):
    return tuple(int(number) for number in text.split(","))


def product_rows(options):
    return cases.rows(numbers(options.sizes or ("4096" if options.quick else "4096,8192")), not options.quick)


def attention_rows(options):
    scale = attention_cases.TINY if options.device == "cpu" else attention_cases.Scale()
    if options.sizes:
        scale = dataclasses.replace(scale, sizes=numbers(options.sizes))
    rows = attention_cases.rows(scale, attention_cases.LONG if options.long else ())
    return (row for row in rows if not (options.no_flex and row.peer == attention_cases.FLEX))


def main(arguments):
    options = parse(arguments)
    if (status := table.shown(options)) is not None:
        return status
    from gpu_bench import attention, machine, products  # they need PyTorch, which is not needed to list or render
    here = machine.Machine(options.device, options.limit)
    bench = (attention.Attention if options.what == "attention" else products.Products)(options, here)
    name = "gpu_attention.jsonl" if options.what == "attention" else "gpu.jsonl"
    places = [ROOT / "build" / "bench"] + ([pathlib.Path(os.environ["OUT"])] if os.environ.get("OUT") else [])
    found = {}
    try:
        for row, result in bench.run():
            found[row] = result
            for place in places:  # after each row: a run that is cut off leaves what it has
                place.mkdir(parents=True, exist_ok=True)
                with open(place / name, "w" if len(found) == 1 else "a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
    finally:
        results = [found[row] for row in options.rows if row in found]
        print(", ".join(str(value) for value in here.about.values()))
        print("\n".join(table.lines(results, options.markdown)))
        print(table.summary(results))
    return 1 if table.failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
