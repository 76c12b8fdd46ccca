#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions, norms, softmax, losses, the largest numbers, elements by indices, embeddings and optimisers on the GPU, beside PyTorch and a copy of the same bytes.

Arms of a row are timed in turns in one process, on one stream, from CUDA graphs. Results are compared with PyTorch's before. Needs
PyTorch and libtartan ($TARTAN_LIBRARY). Prints one JSON object per row: ms, TB/s, the share of the copy's rate, and how many times as
fast as PyTorch. Exit status 1: a result is wrong, or a share is below its goal with --strict.
"""

import argparse
import ctypes
import json
import os
import re
import sys
from ctypes import byref, c_int32, c_void_p

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from gpu_bench import library as tartan
from gpu_bench import machine, timing

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float64: 1e-9}
FORWARD, BACKWARD = 0.85, 0.75  # of the copy's rate
EPSILON = 1e-5


def call(context, name, arguments, options=""):
    """A function that asks for an operation of the schema once; None stands for an argument that is left out."""
    library, op = context.library, c_int32()
    library.ok(library.c.tartan_op_find(name.encode(), byref(op)))
    arrays = [None if a is None else library.array(a) for a in arguments]
    places = (c_void_p * len(arrays))(*[None if a is None else ctypes.addressof(a) for a in arrays])

    def ask():
        library.ok(library.c.tartan_op_run(context.handle, op.value, places, len(arrays), options.encode()))
    ask.keep = arrays
    return ask


def call_lists(context, name, lists, options):
    """The same of an operation on lists of arrays, all of one length, with None for what is left out."""
    library, op = context.library, c_int32()
    library.ok(library.c.tartan_op_find(name.encode(), byref(op)))
    arrays = [None if tensors is None else [library.array(t) for t in tensors] for tensors in lists]
    tables = [None if a is None else (type(a[0]) * len(a))(*a) for a in arrays]
    places = (c_void_p * len(tables))(*[None if t is None else ctypes.addressof(t) for t in tables])
    text = f"count={len(lists[0])} {options}"

    def ask():
        library.ok(library.c.tartan_op_run(context.handle, op.value, places, len(tables), text.encode()))
    ask.keep = arrays, tables
    return ask


class Row:
    """ours and theirs: lists of results that `ask` and `peer` make; bytes: moved once each."""

    def __init__(self, text, ask, ours, peer, tensors, goal):
        self.text, self.ask, self.ours, self.peer, self.goal = text, ask, ours, peer, goal
        self.bytes = sum(t.numel() * t.element_size() for t in tensors)


def normal(shape, dtype):
    return torch.randn(shape, device="cuda").to(dtype)


def point1_rows(context, dtype, shape):
    functions = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu, "exp": torch.exp,
                 "tanh": torch.tanh}
    for name, function in functions.items():
        x = normal(shape, dtype)
        y = torch.empty_like(x)
        yield Row(name, call(context, name, (x, y)), [y], lambda x=x, f=function: [f(x)], (x, y), FORWARD)
    x, g = normal(shape, dtype), normal(shape, dtype)
    y = torch.empty_like(x)
    yield Row("gelu_gradient", call(context, "gelu_gradient", (x, g, y)), [y],
              lambda: [torch.ops.aten.gelu_backward(g, x)], (x, g, y), FORWARD)


def point2_rows(context, dtype, shape):
    a, b, y, g = (normal(shape, dtype) for _ in range(4))
    row, column = normal(shape[-1:], dtype), normal((shape[0], 1), dtype)
    turned = normal(shape[::-1], dtype).T
    yield Row("add", call(context, "add", (a, b, y)), [y], lambda: [a + b], (a, b, y), FORWARD)
    yield Row("add, b a row", call(context, "add", (a, row, y)), [y], lambda: [a + row], (a, y), FORWARD)
    yield Row("multiply, b a column", call(context, "multiply", (a, column, y)), [y], lambda: [a * column], (a, y), FORWARD)
    yield Row("multiply, a transposed", call(context, "multiply", (turned, b, y)), [y], lambda: [turned * b], (a, b, y), None)
    a_grad, b_grad = torch.empty_like(a), torch.empty_like(b)
    yield Row("multiply_gradient", call(context, "multiply_gradient", (a, b, g, a_grad, b_grad)), [a_grad, b_grad],
              lambda: [g * b, g * a], (a, b, g, a_grad, b_grad), FORWARD)
    row_grad, column_grad = torch.empty_like(row), torch.empty_like(column)
    yield Row("add_gradient, sums of columns", call(context, "add_gradient", (a, row, g, None, row_grad)), [row_grad],
              lambda: [g.sum(0)], (g,), BACKWARD)
    yield Row("add_gradient, sums of rows", call(context, "add_gradient", (a, column, g, None, column_grad)), [column_grad],
              lambda: [g.sum(1, keepdim=True)], (g,), BACKWARD)


def norm_rows(context, dtype, shape, turned=False):
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    x, g = (normal(shape[::-1], dtype).T if turned else normal(shape, dtype) for _ in range(2))
    gain, bias = normal(shape[-1:], sums), normal(shape[-1:], sums)
    theirs = gain.to(dtype), bias.to(dtype)
    gain, bias = theirs[0].to(sums), theirs[1].to(sums)
    y, x_grad, stats = torch.empty_like(x), torch.empty_like(x), torch.empty((*shape[:-1], 2), dtype=sums, device="cuda")
    rstd = torch.empty(shape[:-1], dtype=sums, device="cuda")
    gain_grad, bias_grad = torch.empty_like(gain), torch.empty_like(bias)
    size, where = shape[-1:], ", lines that are neighbours" if turned else ""
    options, aten = f"epsilon={EPSILON}", torch.ops.aten
    goals = (None, None) if turned else (FORWARD, BACKWARD)
    forward = call(context, "layer_norm", (x, gain, bias, y, stats), options)
    yield Row("layer_norm" + where, forward, [y], lambda: [aten.native_layer_norm(x, size, *theirs, EPSILON)[0]], (x, y), goals[0])
    forward()
    _, mean, scale = aten.native_layer_norm(x, size, *theirs, EPSILON)
    yield Row("layer_norm_gradient" + where, call(context, "layer_norm_gradient", (x, gain, stats, g, x_grad, gain_grad, bias_grad)),
              [x_grad, gain_grad, bias_grad],
              lambda: list(aten.native_layer_norm_backward(g, x, size, mean, scale, *theirs, [True] * 3)), (x, g, x_grad), goals[1])
    forward = call(context, "rms_norm", (x, gain, y, rstd), options)
    peer = getattr(torch.nn.functional, "rms_norm", None)
    yield Row("rms_norm" + where, forward, [y], peer and (lambda: [peer(x, size, theirs[0], EPSILON)]), (x, y), goals[0])
    forward()
    yield Row("rms_norm_gradient" + where, call(context, "rms_norm_gradient", (x, gain, rstd, g, x_grad, gain_grad)),
              [x_grad, gain_grad], None, (x, g, x_grad), goals[1])


def fused_rows(context, dtype, shape):
    a, b, y = (normal(shape, dtype) for _ in range(3))
    silu = torch.nn.functional.silu
    yield Row("swiglu", call(context, "swiglu", (a, b, y)), [y], lambda: [(a.float() * silu(b.float())).to(dtype)], (a, b, y), FORWARD)
    yield Row("dropout", call(context, "dropout", (a, y), "dropout=0.1"), [y], None, (a, y), FORWARD)
    sums = torch.float32
    c, h = normal(shape, dtype), torch.empty_like(a)
    gates, c_next = normal((*shape[:-1], 4, shape[-1]), dtype), torch.empty_like(c)
    yield Row("lstm_gates", call(context, "lstm_gates", (c, gates, None, c_next, h)), [], None, (c, gates, c_next, h), FORWARD)
    x = normal((32, 256, shape[0] * shape[1] // 8192), dtype)
    z, stats = torch.empty_like(x), torch.empty((256, 3), dtype=sums, device="cuda")
    yield Row("batch_norm of 32 x 256 x ...", call(context, "batch_norm", (x, None, None, z, stats)), [], None, (x, z), None)


def class_rows(context, dtype, shape):
    x, g, y, slope = (normal(shape, dtype) for _ in range(4))
    yield Row("softmax", call(context, "softmax", (x, None, y)), [y], lambda: [torch.softmax(x, -1)], (x, y), FORWARD)
    z = torch.softmax(x, -1)
    yield Row("softmax_gradient", call(context, "softmax_gradient", (z, g, y)), [y],
              lambda: [torch.ops.aten._softmax_backward_data(g, z, -1, dtype)], (z, g, y), FORWARD)
    labels = torch.randint(0, shape[-1], shape[:-1], device="cuda")
    loss = torch.empty(shape[:-1], dtype=torch.float32, device="cuda")
    yield Row("cross_entropy with its gradient", call(context, "cross_entropy", (x, labels, None, loss, None, slope)), [loss],
              lambda: [torch.nn.functional.cross_entropy(x.float(), labels, reduction="none")], (x, slope), BACKWARD)


def selection_rows(context, dtype, shape):
    x, g, y, x_grad = normal(shape, dtype), normal(shape, dtype), torch.empty(shape, dtype=dtype, device="cuda"), torch.empty(shape, dtype=dtype, device="cuda")
    for k in sorted({1, min(50, shape[-1] // 4), shape[-1] // 2}):
        values, places = torch.empty((*shape[:-1], k), dtype=dtype, device="cuda"), torch.empty((*shape[:-1], k), dtype=torch.int64, device="cuda")
        yield Row(f"top_k, k {k}", call(context, "top_k", (x, values, places), f"k={k}"), [values], lambda k=k: [torch.topk(x, k).values],
                  (x, values, places), None)
    k = min(50, shape[-1] // 4)
    weights, places = torch.topk(x, k)

    def softmax_of_largest():
        largest, where = torch.topk(x, k)
        return [torch.zeros_like(x).scatter_(-1, where, torch.softmax(largest.float(), -1).to(dtype))]
    yield Row(f"top_k_softmax, k {k}", call(context, "top_k_softmax", (x, None, y), f"k={k}"), [y], softmax_of_largest, (x, y), None)
    yield Row(f"rectified_top_k, k {k}", call(context, "rectified_top_k", (x, y, None), f"k={k}"), [y],
              lambda: [torch.relu(x - torch.relu(torch.topk(x, k).values[..., -1:]))], (x, y), None)
    yield Row(f"top_k_gradient, k {k}", call(context, "top_k_gradient", (x, places, weights, x_grad)), [x_grad],
              lambda: [torch.zeros_like(x).scatter_(-1, places, weights)], (x_grad, weights, places), None)
    stats, largest = torch.empty((*shape[:-1], 2), dtype=torch.float32, device="cuda"), torch.empty(shape[:-1], dtype=dtype, device="cuda")
    place = torch.empty(shape[:-1], dtype=torch.int64, device="cuda")
    yield Row("sparse_relu", call(context, "sparse_relu", (x, y, stats)), [y],
              lambda: [torch.relu(x - (x.float().mean(-1, keepdim=True) + x.float().std(-1, correction=0, keepdim=True)).to(dtype))], (x, y), FORWARD)
    yield Row("sparse_relu_gradient", call(context, "sparse_relu_gradient", (x, stats, g, x_grad)), [], None, (x, g, x_grad), FORWARD)
    yield Row("reduce_max", call(context, "reduce_max", (x, largest, place)), [largest], lambda: [x.max(-1).values], (x,), FORWARD)
    across, place_across = torch.empty(shape[-1:], dtype=dtype, device="cuda"), torch.empty(shape[-1:], dtype=torch.int64, device="cuda")
    yield Row("reduce_max along the first axis", call(context, "reduce_max", (x.T, across, place_across)), [across],
              lambda: [x.max(0).values], (x,), None)
    yield Row("reduce_max_gradient", call(context, "reduce_max_gradient", (x, place, largest, x_grad)), [], None, (x_grad,), FORWARD)
    yield Row("take_along, as many as there are", call(context, "take_along", (x, places, weights)), [weights],
              lambda: [torch.gather(x, -1, places)], (places, weights, weights), None)


def row_map_rows(context, dtype):
    rows, ids, n = 65536, 16384, 1024
    x, z, g, y = normal((rows, n), dtype), torch.empty((rows, n), dtype=dtype, device="cuda"), normal((rows, n), dtype), normal((ids, n), dtype)
    places = torch.randperm(rows, device="cuda")[:ids].sort().values
    y_grad = torch.empty_like(y)
    peers = {"set": lambda: [x.index_copy(0, places, y)], "add": lambda: [x.index_add(0, places, y)],
             "multiply": lambda: [x.index_copy(0, places, x[places] * y)]}
    for word, peer in peers.items():
        yield Row(f"scatter_rows, {word}", call(context, "scatter_rows", (x, places, y, z), f"combine={word}"), [z], peer, (x, y, z), FORWARD)
    yield Row("scatter_rows_gradient, multiply", call(context, "scatter_rows_gradient", (g, places, y, x, y_grad, z), "combine=multiply"),
              [y_grad], lambda: [g[places] * x[places]], (g, z, y, y, y, y), None)


def embedding_rows(context, dtype):
    table, indices = normal((50257, 1024), dtype), torch.randint(0, 50257, (16384,), device="cuda")
    y, g, grad = torch.empty((16384, 1024), dtype=dtype, device="cuda"), normal((16384, 1024), dtype), torch.empty_like(table)
    yield Row("embedding", call(context, "embedding", (table, indices, y)), [y],
              lambda: [torch.nn.functional.embedding(indices, table)], (y, y), FORWARD)
    yield Row("embedding_gradient", call(context, "embedding_gradient", (table, indices, g, grad)), [grad],
              lambda: [torch.ops.aten.embedding_dense_backward(g, indices, 50257, -1, False)], (g, grad), None)


def optimiser_rows(context):
    generator = torch.Generator().manual_seed(1)
    many = [(int(n),) for n in torch.randint(1000, 200000, (1000,), generator=generator)]
    for text, shapes in (("1000 tensors of 1k to 200k", many), ("one tensor of 64 M", [(1 << 26,)])):
        p, g, m, v = ([torch.rand(s, device="cuda") for s in shapes] for _ in range(4))
        theirs = [[t.clone() for t in tensors] for tensors in (p, m, v)]
        steps = [torch.zeros((), device="cuda") for _ in shapes]
        peer = lambda q=theirs[0], g=g, m=theirs[1], v=theirs[2], steps=steps: torch._fused_adamw_(  # noqa: E731
            q, g, m, v, [], steps, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False) or []
        tensors = [t for group in (p, g, m, v) for t in group] + [t for group in (p, m, v) for t in group]
        yield Row(f"adam, {text}", call_lists(context, "adam", (p, g, m, v, *[None] * 5), "weight_decay=0.01 step=5"), [], peer,
                  tensors, FORWARD)
        norm = torch.empty(1, device="cuda")
        norm_call = call_norm(context, g, norm)
        yield Row(f"global_norm, {text}", norm_call, [norm], lambda g=g: [torch.stack(torch._foreach_norm(g)).norm().reshape(1)], g, None)


def more_optimiser_rows(context):
    """Those that PyTorch has no fused form of; bytes are counted as often as they have to be moved."""
    whole, blocks = [(1 << 26,)], [(16384, 64, 64)]
    p, g, m, v = ([torch.rand(s, device="cuda") for s in whole] for _ in range(4))
    half = [t.bfloat16() for t in p]
    yield Row("sgd with momentum, one tensor of 64 M", call_lists(context, "sgd", (p, g, None, None, None, m, None), "momentum=0.9 step=5"), [], None,
              (*p, *p, *g, *m, *m), FORWARD)
    yield Row("lion, one tensor of 64 M", call_lists(context, "lion", (p, g, m, *[None] * 4), ""), [], None, (*p, *p, *g, *m, *m), FORWARD)
    for text, options in (("", ""), (", rounded at random", " stochastic=1 seed=1")):
        yield Row(f"adam, one tensor of 64 M of bf16{text}", call_lists(context, "adam", (half, g, m, v, *[None] * 5), "step=5" + options), [],
                  None, (*half, *half, *g, *m, *m, *v, *v), FORWARD)
    for text, shapes in (("a matrix of 8192 x 8192", [(8192, 8192)]), ("16384 blocks of 64", blocks)):
        p, g = ([torch.rand(s, device="cuda") for s in shapes] for _ in range(2))
        m, v = ([torch.zeros(s, dtype=torch.float8_e4m3fn, device="cuda") for s in shapes] for _ in range(2))
        scales = [[torch.zeros(s[0], device="cuda") for s in shapes] for _ in range(2)]
        yield Row(f"adam with moments of 8 bits, {text}", call_lists(context, "adam", (p, g, m, v, None, None, None, *scales), "step=5"), [], None,
                  (*p, *p, *g, *m, *m, *v, *v), FORWARD)
    for text, shapes in (("a matrix of 8192 x 8192", [(8192, 8192)]), ("16384 blocks of 64", blocks), ("262144 blocks of 16", [(262144, 16, 16)])):
        p, g = ([torch.rand(s, device="cuda") for s in shapes] for _ in range(2))
        rows, cols = [torch.rand(s[:-1], device="cuda") for s in shapes], [torch.rand((*s[:-2], s[-1]), device="cuda") for s in shapes]
        yield Row(f"adafactor, {text}", call_lists(context, "adafactor", (p, g, rows, cols, None), "step=5"), [], None, (*p, *p, *g, *g, *g), FORWARD)
    p, g, m = ([torch.rand(s, device="cuda") for s in blocks] for _ in range(3))
    yield Row("muon, 16384 blocks of 64", call_lists(context, "muon", (p, g, m, None), ""), [], None, (*p, *p, *g, *m, *m), None)


def quantize_rows(context, dtype, shape):
    x, y = normal(shape, dtype), torch.empty(shape, dtype=dtype, device="cuda")
    stats = torch.empty(5, dtype=torch.float64, device="cuda")
    e4m3 = "emax=8 largest=448 rounding="
    yield Row("quantize to float8_e4m3fn", call(context, "quantize", (x, y), e4m3 + "even"), [y],
              lambda: [x.clamp(-448, 448).to(torch.float8_e4m3fn).to(dtype)], (x, y), FORWARD)
    yield Row("quantize to float8_e4m3fn at random", call(context, "quantize", (x, y), e4m3 + "stochastic"), [], None, (x, y), FORWARD)
    yield Row("quantize_stats", call(context, "quantize_stats", (x, stats)), [], None, (x,), FORWARD)


def call_norm(context, gradients, norm):
    """global_norm, whose results are arrays beside a list."""
    library, op = context.library, c_int32()
    library.ok(library.c.tartan_op_find(b"global_norm", byref(op)))
    arrays = [library.array(t) for t in gradients]
    table, out = (type(arrays[0]) * len(arrays))(*arrays), library.array(norm)
    places = (c_void_p * 3)(ctypes.addressof(table), ctypes.addressof(out), None)
    text = f"count={len(arrays)}".encode()

    def ask():
        library.ok(library.c.tartan_op_run(context.handle, op.value, places, 3, text))
    ask.keep = arrays, table, out
    return ask


def rows_of(context, name):
    dtype = DTYPES[name]
    yield from (((16384, 4096), row) for row in fused_rows(context, dtype, (16384, 4096)))
    yield from (((16384, 4096), row) for row in quantize_rows(context, dtype, (16384, 4096)))
    for shape in ((262144, 256), (65536, 1024), (8192, 8192), (512, 131072), (256, 262144), (4096, 32768), (1024, 131072), (140, 4096), (4096, 50257)):
        yield from ((shape, row) for row in class_rows(context, dtype, shape))
    for shape in ((262144, 64), (65536, 1024), (8192, 8192), (4096, 50257), (256, 262144)):
        yield from ((shape, row) for row in selection_rows(context, dtype, shape))
    yield from (((), row) for row in row_map_rows(context, dtype))
    yield from (((), row) for row in embedding_rows(context, dtype))
    if name == "f32":
        yield from (((), row) for row in optimiser_rows(context))
        yield from (((), row) for row in more_optimiser_rows(context))
    for shape in ((16384, 4096), (4096, 1024)):
        yield from ((shape, row) for row in point1_rows(context, dtype, shape))
        yield from ((shape, row) for row in point2_rows(context, dtype, shape))
    for shape in ((4096, 1024), (65536, 768), (8192, 4096), (4096, 8192), (262144, 64), (140, 4096), (4096, 4095), (256, 131072)):
        yield from ((shape, row) for row in norm_rows(context, dtype, shape))
    yield from (((65536, 768), row) for row in norm_rows(context, dtype, (65536, 768), turned=True))


def is_right(row, dtype):
    if row.peer is None:
        return True
    for ours, theirs in zip(row.ours, row.peer()):
        scale = theirs.double().abs().max().clamp(min=1)
        if not (ours.double() - theirs.double()).abs().max() <= TOLERANCE[dtype] * scale:
            return False
    return True


def measure(this, row):
    """ms of ours, theirs and a copy of as many bytes."""
    half = torch.empty(row.bytes // 2, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(half)
    arms = {"ours": timing.Arm([row.ask]), "copy": timing.Arm([lambda: other.copy_(half)])}
    if row.peer is not None:
        arms["torch"] = timing.Arm([row.peer])
    for arm in arms.values():
        this.timer.prepare(arm, 20)
    timing.measure(this.timer, list(arms.values()), 20)
    return {name: arm.ms for name, arm in arms.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--strict", action="store_true", help="a share below its goal is a failure")
    options = parser.parse_args()
    this, failed = machine.Machine("cuda", 3600), False
    for name in options.dtypes.split(","):
        for shape, row in rows_of(this.contexts[False], name):
            text = f"{row.text}, {name}, {' x '.join(map(str, shape))}"
            if not re.search(options.only, text):
                continue
            row.ask()
            right, ms = is_right(row, DTYPES[name]), measure(this, row)
            share = ms["copy"] / ms["ours"]
            below = row.goal is not None and share < row.goal
            failed |= not right or (below and options.strict)
            print(json.dumps({"case": text, "ms": round(ms["ours"], 5), "tb_s": round(row.bytes / ms["ours"] / 1e9, 3),
                              "of_copy": round(share, 3), "goal": row.goal,
                              "times_torch": round(ms["torch"] / ms["ours"], 2) if "torch" in ms else None,
                              "verdict": "WRONG" if not right else "BELOW" if below else "goal", **this.about}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
