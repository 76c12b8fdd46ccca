#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Benchmark of convolutions against their goals, on the CPU or a GPU: each row is interleaved with its peers in one process.

"conv": block-sparse filters, beside the measured peak of one core (CPU) or cuDNN's dense convolution at its best algorithm,
channels last (GPU). "sbnet": windows of images, beside the dense convolution of PyTorch (oneDNN, cuDNN) and SBNet's recipe of
gather, dense convolution and scatter; then SBNet's plans of channels, sizes and sparsities. Results are checked before they are
timed; useful FLOP/s count stored blocks and active windows alone.

Needs NumPy and libtartan ($TARTAN_LIBRARY); without PyTorch the peers are left out. Writes one JSON object per row to
build/bench/conv.jsonl or sbnet.jsonl (gpu_... on a GPU; and to $OUT), for SBNet's plans also a .csv with SBNet's columns and,
with matplotlib, an .svg of speed-up over sparsity; then prints the table. Exit status 1: a row is below its floor or wrong.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpu_bench import conv, conv_cases, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ("H", "W", "C", "K", "BH", "BW", "sparsity", "block_sparsity", "dense_time", "sparse_time", "speedup")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("conv", "sbnet"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches; --list shows the texts")
    parser.add_argument("--plans", type=names, help="SBNet's plans (default: all on a GPU, resnet-v2 on the CPU; '' for none)")
    parser.add_argument("--sparsities", type=numbers, help="of SBNet's plans (default: all nine; CPU: 0.6,0.8,0.9,0.95)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of sbnet (default: all cores)")
    parser.add_argument("--rounds", type=int, help="samples of each arm (default 5; GPU: 20)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--render", metavar="FILE", help="print the table of an earlier run; runs nothing")
    parser.add_argument("--list", action="store_true", help="print the rows' texts; runs nothing")
    options = parser.parse_args(arguments)
    cpu = options.device == "cpu"
    options.rounds = options.rounds or (5 if cpu else 20)
    if options.plans is None:
        options.plans = ["resnet-v2"] if cpu else list(conv_cases.PLANS)
    options.sparsities = options.sparsities or ((.6, .8, .9, .95) if cpu else conv_cases.SPARSITIES)
    rows = (conv_cases.conv_rows if options.what == "conv" else conv_cases.sbnet_rows)(options)
    options.rows = [row for row in rows if re.search(options.only, row.text)]
    return options


def names(text):
    found = [name for name in text.split(",") if name]
    if any(name not in conv_cases.PLANS for name in found):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(conv_cases.PLANS)}")
    return found


def numbers(text):
    return tuple(float(number) for number in text.split(","))


def best_windows(results):
    """Of SBNet's plans, for each plan, stage and sparsity the row of the dense peer with the fastest size of windows."""
    best = {}
    for r in results:
        if r["section"] == "sbnet plans" and r["peer"] == conv_cases.DENSE and "speedup" in r and r["verdict"] != "WRONG":
            key = r["name"], *r["shape"], r["active"]
            if key not in best or r["ms"] < best[key]["ms"]:
                best[key] = r
    return [best[key] for key in best]


def write_csv(path, best):
    """Times in ms; that of planning, the mask's windows, is part of ours."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for r in best:
            sparse = r["ms"] + r["plan_ms"]
            writer.writerow([*r["shape"], r["windows"], r["windows"], f"{1 - r['active']:.2f}", f"{1 - r['share']:.4f}",
                             f"{r['peer_ms']:.4f}", f"{sparse:.4f}", f"{r['peer_ms'] / sparse:.3f}"])


def plot(path, best):
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("svg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for name, *shape in dict.fromkeys((r["name"], *r["shape"]) for r in best):
        line = sorted((1 - r["active"], r["peer_ms"] / (r["ms"] + r["plan_ms"])) for r in best if [r["name"], *r["shape"]] == [name, *shape])
        axes.plot(*zip(*line), marker="o", label=f"{name} {shape[0]}x{shape[1]}, {shape[2]} to {shape[3]}")
    axes.axhline(1, color="grey", linewidth=.8)
    axes.set(xlabel="sparsity of the mask", ylabel="times as fast as the dense convolution", title=f"3x3 convolutions, {best[0]['device']}")
    axes.legend(fontsize="small")
    figure.savefig(path)
    pyplot.close(figure)


def main(arguments):
    options = parse(arguments)
    if (status := table.shown(options)) is not None:
        return status
    bench, results = conv.Bench(options), []
    name = options.what if options.device == "cpu" else f"gpu_{options.what}"
    places = [ROOT / "build" / "bench"] + ([pathlib.Path(os.environ["OUT"])] if os.environ.get("OUT") else [])
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.jsonl").write_text("", encoding="utf-8")
    for _, result in bench.run():
        results.append(result)
        for place in places:  # after each row: a run that is cut off leaves what it has
            with open(place / f"{name}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
    best = best_windows(results)
    for place in places if best else ():
        write_csv(place / f"{name}.csv", best)
        plot(place / f"{name}.svg", best)
    print(", ".join(f"{key} {value}" for key, value in bench.about.items() if value is not None))
    print("\n".join(table.lines(results, options.markdown)))
    print(table.summary(results))
    return 1 if table.failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
