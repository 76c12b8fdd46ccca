#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What training costs on the CPU, against its goals.

Operations on f32 arrays of 16 MiB by one thread are held against what this machine can do at best: the bytes that they move at least once, at
the rate of a copy of 16 MiB, or the exponentials that they need, at the rate of `tartan.exp` on an array in the L1 cache, whichever
takes longer. Arms of one group are timed in turns, and the fastest sample counts. Then 100 steps of training of 16 block-sparse layers with
and without a change of all layouts. Then a transformer of openai/blocksparse's enwik8
example (state 512, 6 layers, 320 bytes, batch 4), whose linear layers have 10% of their blocks, beside the dense model with
scaled_dot_product_attention, if this Python has PyTorch. Needs NumPy and the package tartan. Writes one JSON object per row to
build/bench/cpu_train.jsonl, then prints the table. Exit status 1: a row is below its floor.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import time

import numpy as np
import tartan

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPE = (2048, 2048)  # 16 MiB of f32
FLOOR, GOAL = 0.60, 0.85
MODEL_FLOOR, MODEL_GOAL = 1.0, 2.0
CHANGE_FLOOR, CHANGE_GOAL, BETWEEN = 0.95, 0.99, 100  # what steps have of the time of training, and how many there are between changes
SAMPLE = 0.02  # seconds that a sample takes at least


class Row:
    """An operation: what calls it, the arrays that it moves once, and exponentials for each element."""

    def __init__(self, name, call, moved, exps=0.0):
        self.name, self.call, self.exps = name, call, exps * np.prod(SHAPE)
        self.bytes = sum(x.nbytes for x in moved)


def draw(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape) + shape[0]).standard_normal(shape).astype(dtype)


# Exponentials, logarithms and the like for each element of the function and of its gradient.
POINTS = {"relu": (0, 0), "elu": (1, 1), "square": (0, 0), "sqrt": (0, 0), "exp": (1, 0), "log": (1, 0), "sigmoid": (1, 0), "tanh": (1, 0),
          "gelu": (1, 2), "gelu_tanh": (1, 1), "silu": (1, 1), "softplus": (2, 1)}  # fmt: skip


def point_rows(run):
    x, g = np.abs(draw(*SHAPE)) + 0.5, draw(*SHAPE)
    y, z = np.empty_like(x), np.empty_like(x)
    for name, (forward, backward) in POINTS.items():
        f, df = getattr(tartan, name), getattr(tartan, name + "_gradient")
        yield Row(name, lambda f=f: f(x, out=y, **run), (x, y), forward)
        yield Row(name + "_gradient", lambda df=df: df(x, g, out=z, **run), (x, g, z), backward)
    for name in ("add", "multiply", "divide"):
        f = getattr(tartan, name)
        yield Row(name, lambda f=f: f(x, g, out=y, **run), (x, g, y))
    h, other = draw(*SHAPE), np.empty_like(x)
    yield Row("swiglu", lambda: tartan.swiglu(x, h, out=y, **run), (x, h, y), 1)
    yield Row("swiglu_gradient", lambda: tartan.swiglu_gradient(x, h, g, a_grad=z, b_grad=other, **run), (x, h, g, z, other), 1)
    bias = draw(2048)
    yield Row("add_gelu", lambda: tartan.add_gelu(x, bias, out=y, **run), (x, y), 1)
    yield Row("dropout", lambda: tartan.dropout(x, dropout=0.1, seed=1, out=y, **run), (x, y))
    yield Row("random_uniform", lambda: tartan.random_uniform(y, seed=1, **run), (y,))
    yield Row("random_normal", lambda: tartan.random_normal(y, seed=1, **run), (y,), 1.5)  # a logarithm, a root, a sine and a cosine make two


def line_rows(run):
    x, g, gain, bias = draw(*SHAPE), draw(*SHAPE), draw(2048), draw(2048)
    y, dx = np.empty_like(x), np.empty_like(x)
    dgain, dbias = np.empty_like(gain), np.empty_like(bias)
    _, stats = tartan.layer_norm(x, return_stats=True)
    yield Row("layer_norm", lambda: tartan.layer_norm(x, gain=gain, bias=bias, out=y, **run), (x, y))
    yield Row("layer_norm_gradient", lambda: tartan.layer_norm_gradient(
        x, stats, g, gain=gain, x_grad=dx, gain_grad=dgain, bias_grad=dbias, **run), (x, g, dx))
    _, scales = tartan.rms_norm(x, return_stats=True)
    yield Row("rms_norm", lambda: tartan.rms_norm(x, gain=gain, out=y, **run), (x, y))
    yield Row("rms_norm_gradient", lambda: tartan.rms_norm_gradient(x, scales, g, gain=gain, x_grad=dx, gain_grad=dgain, **run), (x, g, dx))
    images, image_grads = (a.reshape(64, 64, 32, 32) for a in (x, g))  # 64 channels
    channel_gain, channel_bias, channel_grads = draw(64), draw(64), (np.empty(64, np.float32), np.empty(64, np.float32))
    image_out = y.reshape(images.shape)
    _, moments = tartan.batch_norm(images, return_stats=True)
    yield Row("batch_norm", lambda: tartan.batch_norm(images, gain=channel_gain, bias=channel_bias, out=image_out, **run), (x, x, y))
    yield Row("batch_norm_gradient", lambda: tartan.batch_norm_gradient(
        images, moments, image_grads, gain=channel_gain, x_grad=image_out, gain_grad=channel_grads[0], bias_grad=channel_grads[1], **run), (x, g, x, g, y))
    yield Row("reduce_max", lambda: tartan.reduce_max(x, **run), (x,))
    p, logs = tartan.softmax(x), tartan.log_softmax(x)
    yield Row("softmax", lambda: tartan.softmax(x, out=y, **run), (x, y), 1)
    yield Row("softmax_gradient", lambda: tartan.softmax_gradient(p, g, out=dx, **run), (p, g, dx))
    yield Row("log_softmax", lambda: tartan.log_softmax(x, out=y, **run), (x, y), 1)
    yield Row("log_softmax_gradient", lambda: tartan.log_softmax_gradient(logs, g, out=dx, **run), (logs, g, dx), 1)
    labels, each = np.random.default_rng(1).integers(0, 2048, 2048), np.full(2048, 1 / 2048, np.float32)
    loss, lse = tartan.cross_entropy(x, labels, return_lse=True)
    yield Row("cross_entropy", lambda: tartan.cross_entropy(x, labels, out=loss, **run), (x,), 1)
    yield Row("cross_entropy_gradient", lambda: tartan.cross_entropy_gradient(x, labels, lse, each, out=dx, **run), (x, dx), 1)


def other_rows(run):
    cells, gates, h_grad = draw(2048, 512), draw(2048, 4, 512), draw(2048, 512)
    next_cells, h, dc, dgates = (np.empty_like(a) for a in (cells, cells, cells, gates))
    yield Row("lstm_gates", lambda: tartan.lstm_gates(cells, gates, out=next_cells, h=h, **run), (cells, gates, cells, cells), 1.25)
    tartan.lstm_gates(cells, gates, out=next_cells, h=h)
    yield Row("lstm_gates_gradient", lambda: tartan.lstm_gates_gradient(
        cells, gates, c_next_grad=h_grad, h_grad=h_grad, c_grad=dc, gates_grad=dgates, **run), (cells, gates, h_grad, dc, dgates), 1.25)
    table, ids = draw(50257, 512), np.random.default_rng(2).integers(0, 50257, 8192)
    rows, table_grad = np.empty((8192, 512), np.float32), np.empty_like(table)
    yield Row("embedding", lambda: tartan.embedding(table, ids, out=rows, **run), (rows, rows))
    yield Row("embedding_gradient", lambda: tartan.embedding_gradient(table, ids, rows, out=table_grad, **run), (rows, table_grad))
    p, g, m, v = (np.abs(draw(*SHAPE)) for _ in range(4))
    yield Row("sgd", lambda: tartan.sgd([p], [g], velocities=[m], rate=1e-6, momentum=0.9, **run), (p, p, g, m, m))
    yield Row("adam", lambda: tartan.adam([p], [g], [m], [v], rate=1e-6, **run), (p, p, g, m, m, v, v))
    yield Row("lion", lambda: tartan.lion([p], [g], [m], rate=1e-6, **run), (p, p, g, m, m))
    yield Row("exponential_average", lambda: tartan.exponential_average([m], [p], **run), (m, m, p))
    yield Row("global_norm", lambda: tartan.global_norm([g], **run), (g,))
    w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", SHAPE, 32), "float32").fill_normal(seed=1)
    yield Row("group_lasso", lambda: tartan.group_lasso([w], rate=1e-9, **run), (w.values, w.values))


def timed(call, clock=time.thread_time):
    """The mean of as many calls as fill a sample. Calls of one thread take its own time, so others who use the core count less."""
    def arm():
        begin, count, seconds = clock(), 0, 0.0
        while seconds < SAMPLE:
            call()
            count, seconds = count + 1, clock() - begin
        return seconds / count
    arm()
    return arm


def measured(rows, rounds, run):
    """Results of rows that take turns with a copy and with exponentials in the cache."""
    source, small = draw(*SHAPE), draw(4096)
    target, small_out = np.empty_like(source), np.empty_like(small)

    def exponentials():
        for _ in range(64):
            tartan.exp(small, out=small_out, **run)

    arms = [timed(row.call) for row in rows] + [timed(lambda: np.copyto(target, source)), timed(exponentials)]
    best = [min(arm() for _ in range(rounds)) for arm in arms]
    bandwidth, rate = 2 * source.nbytes / best[-2], 64 * small.size / best[-1]
    for row, seconds in zip(rows, best):
        copies, exps = row.bytes / bandwidth, row.exps / rate
        ratio = max(copies, exps) / seconds
        yield {"row": row.name, "ms": 1e3 * seconds, "bound": "exp" if exps > copies else "memory", "bound_ms": 1e3 * max(copies, exps),
               "ratio": ratio, "floor": FLOOR, "goal": GOAL, "gb_s": 1e-9 * bandwidth, "gexp_s": 1e-9 * rate, "verdict": verdict(ratio, FLOOR, GOAL)}


def verdict(ratio, floor, goal):
    return "goal" if ratio >= goal else "floor" if ratio >= floor else "BELOW"


# ---- A change of layouts ----


def layout_change(rounds):
    """16 layers of 4096 at a density of 10% in blocks of 32, with Adam: a step on 256 columns is products and the optimiser, on all threads;
    a change of layouts counts with what the step after it takes longer, as new layouts are planned there."""
    n, lines = 4096, 256
    layouts = [tartan.Layout.pattern("random", (n, n), 32, density=0.1, seed=seed) for seed in range(16)]
    weights = [tartan.BlockMatrix.zeros(layout, "float32").fill_normal(0.01, seed=1) for layout in layouts]
    state = [weights, [w * 0 for w in weights], [w * 0 for w in weights]]
    sparsifier = tartan.Sparsifier(weights, swap=0.1, decay="constant", growth="random")
    x, g = draw(n, lines), draw(n, lines)

    def step():
        gradients = []
        for w in state[0]:
            w @ x, w.T @ g
            gradients.append(tartan.sddmm(w.layout, g, x.T))
        tartan.adam(state[0], gradients, state[1], state[2], rate=1e-6)

    def change():
        state[:] = sparsifier.step(*state)
        step()

    samples = {step: [], change: []}
    for _ in range(rounds + 1):  # the first one warms up
        for arm, times in samples.items():
            begin = time.perf_counter()
            arm()
            times.append(time.perf_counter() - begin)
    alone, both = (min(times[1:]) for times in samples.values())
    steps = BETWEEN * alone
    ratio = steps / (steps + max(both - alone, 0))
    return {"row": "change of layouts, 16 x 4096, block 32", "ms": 1e3 * (steps + both - alone), "bound": "100 steps", "bound_ms": 1e3 * steps,
            "ratio": ratio, "floor": CHANGE_FLOOR, "goal": CHANGE_GOAL, "change_ms": 1e3 * (both - alone),
            "verdict": verdict(ratio, CHANGE_FLOOR, CHANGE_GOAL)}


# ---- The transformer ----


def transformer(torch, threads, rounds):
    from tartan.torch import BlockSparseAttention, patch_model

    functional = torch.nn.functional
    torch.set_num_threads(threads)
    state, heads, layers, context, batch = 512, 4, 6, 320, 4

    class Layer(torch.nn.Module):
        def __init__(self, attend):
            super().__init__()
            self.norm1, self.norm2, self.attend = torch.nn.LayerNorm(state), torch.nn.LayerNorm(state), attend
            self.qkv, self.out = torch.nn.Linear(state, 3 * state), torch.nn.Linear(state, state)
            self.up, self.down = torch.nn.Linear(state, 4 * state), torch.nn.Linear(4 * state, state)

        def forward(self, x):
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(torch.nn.Module):
        def __init__(self, attend):
            super().__init__()
            self.table, self.place = torch.nn.Embedding(256, state), torch.nn.Embedding(context, state)
            self.layers = torch.nn.Sequential(*(Layer(attend) for _ in range(layers)))
            self.norm = torch.nn.LayerNorm(state)

        def forward(self, x):
            return functional.linear(self.norm(self.layers(self.table(x) + self.place.weight)), self.table.weight)

    dense = Model(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    layout = tartan.Layout.pattern("causal", (context, context), 32)
    sparse = Model(BlockSparseAttention(layout, causal=True))
    patch_model(sparse, density=0.1, block=32)
    text = torch.randint(0, 256, (batch, context + 1))

    def step_of(model):
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)

        def step():
            loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return step

    arms = [timed(step_of(model), time.perf_counter) for model in (sparse, dense)]
    samples = [[arm() for arm in arms] for _ in range(rounds)]
    ours, theirs = (statistics.median(column) for column in zip(*samples))
    tokens = batch * context
    return {"row": "transformer, density 0.1, block 32", "ms": 1e3 * ours, "bound": "dense PyTorch", "bound_ms": 1e3 * theirs,
            "ratio": theirs / ours, "floor": MODEL_FLOOR, "goal": MODEL_GOAL, "tokens_s": tokens / ours, "peer_tokens_s": tokens / theirs,
            "threads": threads, "verdict": verdict(theirs / ours, MODEL_FLOOR, MODEL_GOAL)}


# ---- The table ----


def lines(results):
    table = [("row", "ms", "bound", "ms", "ratio", "floor", "goal", "verdict")]
    for r in results:
        table.append((r["row"], f"{r['ms']:.2f}", r["bound"], f"{r['bound_ms']:.2f}", f"{r['ratio']:.2f}", f"{r['floor']:.2f}", f"{r['goal']:.2f}",
                      r["verdict"]))
    widths = [max(map(len, column)) for column in zip(*table)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in table]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose name matches; the last two are called change of layouts and transformer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the transformer (default: all cores)")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each arm (default 7)")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    os.environ["TARTAN_NUM_THREADS"] = str(options.threads)  # before the default context is made
    run = {"context": tartan.Context(threads=1)}
    place = ROOT / "build" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    results = []
    for group in (point_rows, line_rows, other_rows):
        chosen = [row for row in group(run) if re.search(options.only, row.name)]
        if chosen:
            results += measured(chosen, options.rounds, run)
    if re.search(options.only, "change of layouts"):
        results.append(layout_change(options.rounds))
    note = ""
    if re.search(options.only, "transformer"):
        try:
            import torch
        except ImportError:
            note = "transformer: NOT RUN, this Python has no PyTorch ($PYTHON names one that has)"
        else:
            results.append(transformer(torch, options.threads, options.rounds))
    (place / "cpu_train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results), encoding="utf-8")
    print("\n".join(lines(results)))
    if any("gb_s" in r for r in results):
        last = [r for r in results if "gb_s" in r][-1]
        print(f"measured: copy {last['gb_s']:.1f} GB/s, {last['gexp_s']:.2f} exponentials a ns")
    for r in results:
        if "change_ms" in r:
            print(f"change of layouts: {r['change_ms']:.0f} ms, {1 - r['ratio']:.3%} of the time of training with {BETWEEN} steps between changes")
    if "tokens_s" in (results or [{}])[-1]:
        print(f"transformer: {results[-1]['tokens_s']:.0f} tokens a second, dense {results[-1]['peer_tokens_s']:.0f}, {options.threads} threads")
    if note:
        print(note)
    return int(any(r["verdict"] == "BELOW" for r in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
