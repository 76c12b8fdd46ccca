#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of training a GPT whose linear layers are block-sparse, beside the same dense model; of one linear layer; and what it costs to
change the layouts of many.

The dense model is compiled and has SDPA and fused AdamW. Beside it, with 90% of the blocks of each linear layer of its blocks
gone: the model written by hand with `spmm`, what `patch_model` makes of the dense one, that compiled, and that with
`linear_cross_entropy` for its last layer and loss. All train in bfloat16
by autocast on the same tokens, in turns in one process; times are medians of whole steps, by the clock of the host. Losses are
compared before. Needs PyTorch and the package tartan (tests/gpu/python.sh build). Writes one JSON object per row to
build/bench/gpu_train.jsonl (and to $OUT), then prints the table. Exit status 1: a row is wrong or below its floor.
"""

import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from gpu_bench import gpt, timing

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Floors and goals by row and block; how many times as fast as the dense peer.
GOALS = {("loss in one, compiled", 64): (1.8, 2.5), ("loss in one, compiled", 32): (1.6, 2.1), ("patched, compiled", 64): (1.4, 1.7),
         ("patched, compiled", 32): (1.25, 1.5), ("linear layer", 64): (4.0, 6.0), ("linear layer", 32): (2.7, 3.3)}  # fmt: skip
COMPILED, IN_ONE, GRAPHS = "patched, compiled", "loss in one, compiled", "loss in one, graphs"
LAST = 0.75, 0.95  # of the rate of the products of a last layer with its loss
CHANGE, BETWEEN = (0.05, 0.01), 100  # the share of a change of layouts in the time of training, and steps between two


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a tiny model, only to try this program")
    parser.add_argument("--samples", type=int, default=20, help="steps of each arm (default 20)")
    parser.add_argument("--blocks", help="sides of blocks (default 64,32)")
    parser.add_argument("--no-linear", action="store_true", help="without the single layer, the layers whose layouts change, and the last layer")
    parser.add_argument("--no-model", action="store_true", help="without the model")
    parser.add_argument("--no-compile", action="store_true", help="nothing is compiled")
    parser.add_argument("--profile", action="store_true", help="also print what the GPU does in a step of each arm")
    options = parser.parse_args(arguments)
    options.scale = gpt.Scale() if options.device == "cuda" else gpt.TINY
    options.blocks = tuple(int(b) for b in options.blocks.split(",")) if options.blocks else options.scale.blocks
    options.compiler = None if options.no_compile else "inductor" if options.device == "cuda" else "aot_eager"
    return options


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def in_turns(arms, device, samples):
    """Medians of the ms of each arm's steps."""
    times = {name: [] for name in arms}
    for arm in arms.values():
        for _ in range(3):
            arm()
    for _ in range(samples):
        for name, arm in arms.items():
            wait(device)
            begin = time.perf_counter()
            arm()
            wait(device)
            times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(x) for name, x in times.items()}


def profile(name, arm, device):
    kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.profiler.profile(activities=kinds) as seen:
        arm()
        wait(device)
    print(f"# {name}\n{seen.key_averages().table(sort_by=f'self_{device}_time_total', row_limit=25)}", flush=True)


def row(text, block, ms, dense_ms, right, **more):
    floor, goal = GOALS.get((text, block), (None, None))
    times = dense_ms / ms
    verdict = "wrong" if not right else "" if floor is None else "goal" if times >= goal else "floor" if times >= floor else "below"
    return {"row": text, "block": block, "ms": round(ms, 3), "dense_ms": round(dense_ms, 3), "times_as_fast": round(times, 3),
            "floor": floor, "goal": goal, "verdict": verdict, **more}  # fmt: skip


def models(options):
    scale, device, compiler = options.scale, options.device, options.compiler
    print(f"# {sum(p.numel() for p in gpt.dense(scale, 'meta').parameters()) / 1e6:.1f} M parameters", flush=True)
    dense = gpt.Training(gpt.dense(scale, device), scale, device, compiler)
    dense_graphs = gpt.Training(dense.model, scale, device, compiler, graphs=device == "cuda")
    dense_graphs.optimizer = dense.optimizer
    for block in options.blocks:
        model, report = gpt.patched(scale, device, block)
        hand = gpt.Training(gpt.by_hand(model, scale, device), scale, device)
        eager = gpt.Training(model, scale, device)
        arms = {"dense": dense, "dense, graphs": dense_graphs, "by hand": hand, "patched": eager}
        if compiler:
            arms[COMPILED] = gpt.Training(model, scale, device, compiler)
            other = gpt.patched(scale, device, block)[0]
            other.load_state_dict(model.state_dict())
            other.loss_in_one = True
            arms[IN_ONE] = gpt.Training(other, scale, device, compiler)
            arms[COMPILED].optimizer = eager.optimizer  # of the same parameters
            if device == "cuda":
                arms[GRAPHS] = gpt.Training(other, scale, device, compiler, graphs=True)
                arms[GRAPHS].optimizer = arms[IN_ONE].optimizer
        losses = {name: float(arm.loss().detach()) for name, arm in arms.items()}
        begin = time.monotonic()
        ms = in_turns(arms, device, options.samples)
        print(f"# blocks of {block}: losses {losses}, {time.monotonic() - begin:.0f} s", flush=True)
        if options.profile:
            for name, arm in arms.items():
                profile(f"{name}, blocks of {block}", arm, device)
        for name, found in ms.items():
            if name != "dense":
                alike = losses["dense" if name.startswith("dense") else "by hand"]  # the dense model has learned since the first blocks
                right = abs(losses[name] - alike) < 2e-2 * abs(alike)
                yield row(name, block, found, ms["dense"], right, parameters=report.parameters_after)
        del model, hand, eager, arms
        other = None
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


def layers(options):
    device = options.device
    timer = timing.CudaTimer(torch.cuda.current_stream()) if device == "cuda" else timing.CpuTimer()
    for block in options.blocks:
        dense, ours, results = gpt.linear_layers(options.scale, device, block)
        with torch.no_grad():
            found, wanted = results()
        right = bool((found - wanted).abs().max() <= 2e-2 * wanted.abs().max())
        arms = {name: timing.Arm([call], capture=False) for name, call in (("dense", dense), ("ours", ours))}
        for arm in arms.values():
            timer.prepare(arm, options.samples)
        timing.measure(timer, list(arms.values()), options.samples)
        yield row("linear layer", block, arms["ours"].ms, arms["dense"].ms, right)


def last_layer(options):
    device = options.device
    timer = timing.CudaTimer(torch.cuda.current_stream()) if device == "cuda" else timing.CpuTimer()
    theirs, ours, products, losses = gpt.last_layers(options.scale, device)
    mine, expected = losses()
    arms = {name: timing.Arm([call], capture=False) for name, call in (("theirs", theirs), ("ours", ours), ("products", products))}
    for arm in arms.values():
        timer.prepare(arm, options.samples)
    timing.measure(timer, list(arms.values()), options.samples)
    found = row("last layer and loss", 0, arms["ours"].ms, arms["theirs"].ms, abs(mine - expected) < 1e-2 * expected)
    share = arms["products"].ms / arms["ours"].ms
    verdict = "" if device != "cuda" else "goal" if share >= LAST[1] else "floor" if share >= LAST[0] else "below"
    yield {**found, "of_products": round(share, 3), "verdict": found["verdict"] or verdict, "floor": LAST[0], "goal": LAST[1]}


def changes(options):
    """What a change of layouts adds to training: itself, with what the step after it takes longer, as new layouts are planned there."""
    for block in options.blocks:
        step, change, blocks = gpt.changing_layers(options.scale, options.device, block)
        before = blocks()
        ms = in_turns({"step": step, "change": lambda: (change(), step())}, options.device, options.samples)
        added = max(ms["change"] - ms["step"], 0)
        share = added / (BETWEEN * ms["step"] + added)
        verdict = "wrong" if blocks() != before else "" if options.device != "cuda" else verdict_of(share)
        yield {"row": "change of layouts", "block": block, "ms": round(added, 3), "step_ms": round(ms["step"], 3), "share": round(share, 5),
               "floor": CHANGE[0], "goal": CHANGE[1], "verdict": verdict}  # fmt: skip


def verdict_of(share):
    return "goal" if share < CHANGE[1] else "floor" if share < CHANGE[0] else "below"


def main(arguments):
    options = parse(arguments)
    if options.device == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())
    places = [ROOT / "build" / "bench"] + ([pathlib.Path(os.environ["OUT"])] if os.environ.get("OUT") else [])
    name, results = torch.cuda.get_device_name() if options.device == "cuda" else "none: tried on the CPU", []
    parts = ([] if options.no_linear else [layers, changes, last_layer]) + ([] if options.no_model else [models])
    for part in parts:
        for found in part(options):
            results.append({"gpu": name, "torch": torch.__version__, **found})
            for place in places:
                place.mkdir(parents=True, exist_ok=True)
                with open(place / "gpu_train.jsonl", "w" if len(results) == 1 else "a", encoding="utf-8") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    print(f"{name}, PyTorch {torch.__version__}")
    print(f"{'row':22} {'block':>5} {'ms':>9} {'dense ms':>9} {'times':>6}  floor  goal  verdict")
    for x in results:
        floor, goal = ("" if x[key] is None else x[key] for key in ("floor", "goal"))
        peer, times = (x["step_ms"], "") if "share" in x else (x["dense_ms"], f"{x['times_as_fast']:.2f}")
        print(f"{x['row']:22} {x['block']:5} {x['ms']:9.3f} {peer:9.3f} {times:>6} {floor:>6} {goal:>5}  {x['verdict']}"
              + (f", {x['of_products']:.2f} of the rate of its products" if "of_products" in x else "")
              + (f", {x['share']:.2%} of {BETWEEN} steps of the second time" if "share" in x else ""))
    return 1 if any(x["verdict"] in ("wrong", "below") for x in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
