#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What block sparsity costs in quality: the loss of a GPT that trains with fewer and fewer blocks, beside the dense model.

All arms see the same tokens in the same order, once. A sparse arm begins with all blocks; between a tenth and six tenths of its
steps `tartan.torch.Sparsifier` removes the smallest along a cubic curve, down to its density. Linear layers of the blocks are
sparse; the embedding and the last layer are dense in every arm. Arms run at the same time, each in a process of its own.

Needs PyTorch, the package tartan (tests/gpu/python.sh build), and a file of tokens as unsigned 16-bit numbers, below the
vocabulary; the last million is kept for the test. Writes a JSON object per arm and evaluation to build/bench/gpu_quality.jsonl (and
to $OUT), then prints the table. Exit status 1: an arm of density 0.5 or more is more than 1% above the dense model.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import torch
from gpu_bench import gpt
from tartan.torch import Sparsifier, patch_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 1.01  # of the dense model's loss, at densities from 0.5


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tokens", type=pathlib.Path, help="unsigned 16-bit tokens")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--densities", default="1,0.5,0.1", help="one arm each; 1 is the dense model (default 1,0.5,0.1)")
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step")
    parser.add_argument("--vocabulary", type=int, default=16384)
    parser.add_argument("--rate", type=float, default=6e-4, help="the highest learning rate")
    parser.add_argument("--steps", type=int, help="fewer than the tokens give")
    parser.add_argument("--changes", type=int, default=32, help="changes of the layout (default 32)")
    parser.add_argument("--swap", type=float, default=0.0, help="share of the blocks that moves at a change (default 0)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def read(options):
    tokens = np.fromfile(options.tokens, np.uint16)
    held = min(1_000_000, len(tokens) // 10)
    cut = lambda x, rows: torch.from_numpy(x[: rows * (options.length + 1)].astype(np.int64)).view(rows, -1)  # noqa: E731
    train, test = tokens[:-held], tokens[-held:]
    return cut(train, len(train) // (options.length + 1)), cut(test, held // (options.length + 1))


def initial(options):
    """A GPT whose weights begin as GPT-2's: the outputs of a residual branch smaller by the root of their number."""
    scale = gpt.Scale(width=options.width, layers=options.layers, tokens=options.length, batch=options.batch,
                      vocabulary=options.vocabulary, head=min(64, options.width))  # fmt: skip
    torch.manual_seed(options.seed)
    model = gpt.Gpt(scale)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            last = name.endswith(("proj.weight", "down.weight"))
            torch.nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * options.layers) if last else 1))
    return model.to(options.device)


def optimiser(model, options):
    many = [p for p in model.parameters() if p.ndim > 1]
    few = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": many, "weight_decay": 0.1}, {"params": few, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, options.rate, betas=(0.9, 0.95), fused=options.device == "cuda")


def schedule(step, steps):
    warm = max(steps // 25, 1)
    return (step + 1) / warm if step < warm else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))


def loss_of(run, batch, device):
    batch = batch.to(device)
    with torch.autocast(device, torch.bfloat16):
        return run(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())


def arm(options, density):
    train, test = read(options)
    steps = len(train) // options.batch
    steps = min(steps, options.steps or steps)
    model = initial(options)
    run, sparsifier = model, None
    if density < 1:
        patch_model(model, {gpt.PATTERN: dict(density=1.0, block=options.block)})
        model.loss_in_one = True
    elif options.device == "cuda":
        run = torch.compile(model)
    optimizer = optimiser(model, options)
    if density < 1:
        begin, every = steps // 10, max(steps // 2 // options.changes, 1)
        sparsifier = Sparsifier(model, optimizer, density=density, begin=begin, every=every, end=begin + every * options.changes,
                                swap=options.swap, seed=options.seed)  # fmt: skip
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(options.seed))
    began = time.monotonic()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * schedule(step, steps)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(run, train[order[step * options.batch : (step + 1) * options.batch]], options.device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if sparsifier is not None:
            sparsifier.step()
        if (step + 1) % max(steps // 10, 1) == 0 or step + 1 == steps:
            with torch.no_grad():
                parts = [float(loss_of(run, x, options.device)) for x in test.split(options.batch)[: len(test) // options.batch]]
            yield {"density": density, "step": step + 1, "steps": steps, "loss": sum(parts) / len(parts), "train_loss": float(loss.detach()),
                   "seconds": round(time.monotonic() - began, 1), "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip


def main(arguments):
    options = parse(arguments)
    if options.arm:
        for found in arm(options, float(options.arm)):
            print(json.dumps(found), flush=True)
        return 0
    places = [ROOT / "build" / "bench"] + ([pathlib.Path(os.environ["OUT"])] if os.environ.get("OUT") else [])
    command = [sys.executable, __file__, *arguments]
    arms = {x: subprocess.Popen([*command, "--arm", x], stdout=subprocess.PIPE, text=True) for x in options.densities.split(",")}
    last, files = {}, []
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        files.append(open(place / "gpu_quality.jsonl", "w", encoding="utf-8"))

    def follow(name, process):
        for line in process.stdout:
            last[name] = json.loads(line)
            for file in files:
                file.write(line)
                file.flush()
        return process.wait() != 0

    with concurrent.futures.ThreadPoolExecutor(len(arms)) as readers:
        failed = any(list(readers.map(follow, arms.keys(), arms.values())))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{name}, PyTorch {torch.__version__}; width {options.width}, {options.layers} layers, blocks of {options.block}")
    dense = last.get("1", {}).get("loss")
    for name, found in sorted(last.items(), reverse=True):
        above = found["loss"] / dense - 1 if dense else math.nan
        missed = float(name) >= 0.5 and above > LIMIT - 1
        failed |= missed
        print(f"density {found['density']:4}: step {found['step']} of {found['steps']}, loss {found['loss']:.4f} ({100 * above:+.2f}%), "
              f"{found['parameters'] / 1e6:.1f} M parameters, {found['seconds']:.0f} s{', above the limit' if missed else ''}")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
