#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shapes that the tables of other benchmarks leave out, on the GPU, so that no operation falls off a cliff: lines that lie side by side,
short ones, a few long ones, strided ones; channels in the last place; indices of which many are the same; products with few columns and
blocks of any edges.

A case that PyTorch has is compared with its result, and is SLOW if it takes over twice PyTorch's time. One that it doesn't have is SLOW
below a tenth of the rate of reading and writing its bytes. Arms of a case are timed in turns; calls are queued while the GPU is busy, so
the host doesn't count. Prints one line a case. Exit status 1: a result is wrong, or with --strict a case is slow.
"""

import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import tartan
import torch
import torch.nn.functional as F
from gpu_bench import timing

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float64: 1e-10}
LEAST_US = 10  # below it the start of kernels decides
TIMES_TORCH, OF_READING = 2, 0.1


class Case:
    """ours and theirs return arrays, or None where results differ on purpose (random numbers); bytes are those that must be moved."""

    def __init__(self, text, ours, theirs=None, bytes=0, same=True):
        self.text, self.ours, self.theirs, self.bytes, self.same = text, ours, theirs, bytes, same


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tiny shapes, only to try this program")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose text matches")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--strict", action="store_true", help="a slow case is a failure")
    return parser.parse_args(arguments)


class Shapes:
    def __init__(self, device, dtype):
        self.device, self.dtype, self.small = device, dtype, device == "cpu"

    def n(self, count):
        return max(4, count // 4096) if self.small and count >= 4096 else count

    def normal(self, *shape, dtype=None):
        return torch.randn(*shape, device=self.device).to(dtype or self.dtype)

    def lines(self):
        n, normal = self.n, self.normal
        yield "1 x 16 M", normal(1, n(1 << 24))
        yield "64 x 256 k", normal(64, n(1 << 18))
        yield "8192 x 4096, transposed", normal(n(4096), n(8192)).T
        yield "32 x 64 x 64 x 256, channels first", normal(32, 256, n(4096)).movedim(1, -1)
        yield "2 M x 7", normal(n(1 << 21), 7)
        yield "16 k x 1000", normal(n(1 << 14), 1000)
        yield "8192 x 2048 of 4096", normal(n(8192), 4096)[:, ::2]
        yield "64 x 256 k, transposed", normal(n(1 << 18), 64).T

    def of_lines(self):
        aten, dtype = torch.ops.aten, self.dtype
        sums = torch.float64 if dtype == torch.float64 else torch.float32
        for text, x in self.lines():
            size, once = x.shape[-1:], x.numel() * x.element_size()
            g, y, w = torch.randn_like(x), torch.softmax(x, -1), torch.ones(size, device=self.device, dtype=sums)
            wide, row, column = w.to(dtype), self.normal(*size), self.normal(*x.shape[:-1], 1)
            yield Case(f"softmax, {text}", lambda: [tartan.softmax(x)], lambda: [torch.softmax(x, -1)], 2 * once)
            yield Case(f"log_softmax, {text}", lambda: [tartan.log_softmax(x)], lambda: [torch.log_softmax(x, -1)], 2 * once)
            yield Case(f"softmax_gradient, {text}", lambda: [tartan.softmax_gradient(y, g)],
                       lambda: [aten._softmax_backward_data(g, y, -1, dtype)], 3 * once)
            yield Case(f"reduce_max, {text}", lambda: [tartan.reduce_max(x)], lambda: [x.max(-1).values], once)
            yield Case(f"layer_norm, {text}", lambda: [tartan.layer_norm(x, gain=w, bias=w)], lambda: [F.layer_norm(x, size, wide, wide)], 2 * once)
            stats = tartan.layer_norm(x, gain=w, bias=w, return_stats=True)[1]
            _, mean, rstd = aten.native_layer_norm(x, size, wide, wide, 1e-5)
            yield Case(f"layer_norm_gradient, {text}", lambda: [tartan.layer_norm_gradient(x, stats, g, gain=w)[0]],
                       lambda: [aten.native_layer_norm_backward(g, x, size, mean, rstd, wide, wide, [True] * 3)[0]], 3 * once)
            yield Case(f"rms_norm, {text}", lambda: [tartan.rms_norm(x, gain=w)], lambda: [F.rms_norm(x, size, wide, 1e-5)], 2 * once)
            yield Case(f"l2_norm, {text}", lambda: [tartan.l2_norm(x)], lambda: [F.normalize(x, dim=-1)], 2 * once)
            yield Case(f"sparse_relu, {text}", lambda: [tartan.sparse_relu(x)], None, 2 * once)
            k = min(10, size[0] // 2)
            yield Case(f"top_k {k}, {text}", lambda: [tartan.top_k(x, k=k)[0]], lambda: [torch.topk(x, k).values], once)
            labels = torch.randint(0, size[0], x.shape[:-1], device=self.device)
            yield Case(f"cross_entropy with its gradient, {text}", lambda: [tartan.cross_entropy(x, labels, return_slope=True)[0]],
                       lambda: [F.cross_entropy(x.reshape(-1, *size), labels.reshape(-1), reduction="none").reshape(labels.shape)], 2 * once)
            yield Case(f"add of a row, {text}", lambda: [tartan.add(x, row)], lambda: [x + row], 2 * once)
            yield Case(f"multiply by a column, {text}", lambda: [tartan.multiply(x, column)], lambda: [x * column], 2 * once)
            dense = g.contiguous()
            yield Case(f"add of what is contiguous, {text}", lambda: [tartan.add(x, dense)], lambda: [x + dense], 3 * once)
            yield Case(f"multiply_gradient of a column, {text}", lambda: tartan.multiply_gradient(x, column, g),
                       lambda: [g * column, (g * x).sum(-1, keepdim=True)], 3 * once)
            yield Case(f"gelu, {text}", lambda: [tartan.gelu(x)], lambda: [F.gelu(x)], 2 * once)
            yield Case(f"dropout, {text}", lambda: [tartan.dropout(x, dropout=0.1, seed=1)], lambda: [F.dropout(x, 0.1)], 2 * once, same=False)
            yield Case(f"swiglu, {text}", lambda: [tartan.swiglu(x, g)], lambda: [x * F.silu(g)], 3 * once)
            yield Case(f"add_n of 4, {text}", lambda: [tartan.add_n([x, g, x, g])], lambda: [x + g + x + g], 3 * once, same=False)

    def of_many(self):
        """Selections of many numbers."""
        n = self.n
        for lines, size, ks in ((64, n(1 << 18), (100, 1000, 10000)), (n(1 << 14), 1000, (500,)), (n(8192), n(8192), (4096,)), (64, n(1 << 20), (4096,)),
                                (1, n(1 << 24), (1 << 20,))):
            x = self.normal(lines, size)
            for k in (min(k, size // 2) for k in ks):
                yield Case(f"top_k {k}, {lines} x {size}", lambda: [tartan.top_k(x, k=k)[0]], lambda: [torch.topk(x, k).values],
                           x.numel() * x.element_size())

    def of_sums_of_lines(self):
        """Norms of sums, beside the sum and the norm."""
        n, sums = self.n, torch.float64 if self.dtype == torch.float64 else torch.float32
        for lines, size in (n(65536), 768), (n(16384), 4096), (140, 4096):
            x, other, g = (self.normal(lines, size) for _ in range(3))
            w, once = torch.ones(size, device=self.device, dtype=sums), x.numel() * x.element_size()
            wide, text = w.to(self.dtype), f"{lines} x {size}"
            yield Case(f"add_layer_norm, {text}", lambda: list(tartan.add_layer_norm(x, residual=other, gain=w, bias=w, return_total=True)),
                       lambda: [F.layer_norm(x + other, (size,), wide, wide), x + other], 4 * once)
            yield Case(f"add_rms_norm, {text}", lambda: list(tartan.add_rms_norm(x, residual=other, gain=w, return_total=True)),
                       lambda: [F.rms_norm(x + other, (size,), wide, 1e-5), x + other], 4 * once)
            _, total, stats = tartan.add_layer_norm(x, residual=other, gain=w, bias=w, return_total=True, return_stats=True)
            yield Case(f"add_layer_norm_gradient, {text}", lambda: [tartan.add_layer_norm_gradient(total, stats, g, gain=w, bias=w, total_grad=other)[0]],
                       None, 4 * once)

    def of_channels(self):
        aten, n, sums = torch.ops.aten, self.n, torch.float64 if self.dtype == torch.float64 else torch.float32
        for shape in (32, 256, n(8192)), (64, 64, n(12544)), (n(1 << 20), 64), (256, 2048, 1), (8, 8, n(1 << 18)), (n(2048), 512), (16, 64, 16, 16), \
                     (n(8192), 512), (32, 128, 28, 28), (128, 256, 14, 14), (n(64), 2048, 7, 7), (32, 320, 17, 17):
            x, text = self.normal(*shape), " x ".join(map(str, shape))
            g, w, once = torch.randn_like(x), torch.ones(shape[1], device=self.device, dtype=sums), x.numel() * x.element_size()
            wide = w.to(self.dtype)
            yield Case(f"batch_norm, {text}", lambda: [tartan.batch_norm(x, gain=w, bias=w)], lambda: [F.batch_norm(x, None, None, wide, wide, True)], 2 * once)
            stats = tartan.batch_norm(x, gain=w, bias=w, return_stats=True)[1]
            _, mean, rstd = aten.native_batch_norm(x, wide, wide, None, None, True, 0.1, 1e-5)
            yield Case(f"batch_norm_gradient, {text}", lambda: [tartan.batch_norm_gradient(x, stats, g, gain=w)[0]],
                       lambda: [aten.native_batch_norm_backward(g, x, wide, None, None, mean, rstd, True, 1e-5, [True] * 3)[0]], 3 * once)

    def of_indices(self):
        n = self.n
        for rows, d, count, text in ((1000, 16, 1 << 22, "4 M of 1000 x 16"), (50257, 1024, 1 << 14, "16 k of 50257 x 1024"),
                                     (1 << 20, 64, 1 << 18, "256 k of 1 M x 64"), (100, 256, 1 << 18, "256 k of 100 x 256"),
                                     (1, 64, 1 << 18, "256 k times the same row of 64")):
            table, indices, g = self.normal(n(rows), d), torch.randint(0, n(rows), (n(count),), device=self.device), self.normal(n(count), d)
            yield Case(f"embedding, {text}", lambda: [tartan.embedding(table, indices)], lambda: [F.embedding(indices, table)], 2 * g.numel() * g.element_size())
            yield Case(f"embedding_gradient, {text}", lambda: [tartan.embedding_gradient(table, indices, g)],
                       lambda: [torch.ops.aten.embedding_dense_backward(g, indices, len(table), -1, False)],
                       (g.numel() + table.numel()) * g.element_size(), same=self.dtype != torch.bfloat16)
        x = self.normal(64, n(1 << 20))
        places = torch.randint(0, x.shape[1], (64, n(4096)), device=self.device)
        g = self.normal(*places.shape)
        yield Case("take_along, 4096 of 64 x 1 M", lambda: [tartan.take_along(x, places)], lambda: [torch.gather(x, -1, places)],
                   places.numel() * (8 + 2 * x.element_size()))
        yield Case("take_along_gradient, 4096 of 64 x 1 M", lambda: [tartan.take_along_gradient(x, places, g)],
                   lambda: [torch.zeros_like(x).scatter_add_(-1, places, g)], x.numel() * x.element_size())

    def of_blocks(self):
        n, name = 256 if self.small else 4096, {"f32": "float32", "bf16": "bfloat16", "f64": "float64"}
        dtype = next(name[k] for k, v in DTYPES.items() if v == self.dtype)
        draw = np.random.default_rng(1)
        for block in 1, 4, 5, 8, 20, 32, 64, 128:
            grid = -(-n // block)
            layout = tartan.Layout.from_mask(draw.random((grid, grid)) < 0.1, (block, block), shape=(n, n))
            w = tartan.BlockMatrix.zeros(layout, dtype, context=None if self.small else "cuda")
            stored = layout.blocks * block * block * self.dtype.itemsize
            for columns in 1, 8, 64, 512:
                x, a = self.normal(n, columns), self.normal(n, columns)
                y, moved = torch.empty_like(x), stored + 2 * x.numel() * x.element_size()
                yield Case(f"spmm, blocks of {block}, {columns} columns", lambda: tartan.spmm(w, x, out=y), None, moved)
                yield Case(f"spmm transposed, blocks of {block}, {columns} columns", lambda: tartan.spmm(w, x, out=y, transpose=True), None, moved)
                yield Case(f"sddmm, blocks of {block}, {columns} terms", lambda: tartan.sddmm(layout, a, x.T), None, moved)

    def cases(self):
        yield from self.of_lines()
        yield from self.of_many()
        yield from self.of_sums_of_lines()
        yield from self.of_channels()
        yield from self.of_indices()
        yield from self.of_blocks()


def is_right(case, dtype):
    if case.theirs is None or not case.same:
        case.ours()
        return True
    for ours, theirs in zip(case.ours(), case.theirs()):
        if ours is None:
            continue
        theirs = theirs.double()
        if not (ours.double() - theirs).abs().max() <= TOLERANCE[dtype] * theirs.abs().max().clamp(min=1):
            return False
    return True


def measure(case, timer):
    """us of ours and theirs."""
    arms = {"ours": timing.Arm([case.ours], capture=False)}
    if case.theirs is not None:
        arms["torch"] = timing.Arm([case.theirs], capture=False)
    for arm in arms.values():
        timer.prepare(arm, 7)
    timing.measure(timer, list(arms.values()), 7)
    return {name: 1e3 * arm.ms for name, arm in arms.items()}


def main(arguments=None):
    options = parse(arguments)
    failed = False
    if options.device == "cuda":
        timer, about = timing.CudaTimer(torch.cuda.current_stream()), {"gpu": torch.cuda.get_device_name()}
        source = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        copy = timing.Arm([lambda: source[: 1 << 27].copy_(source[1 << 27:])], capture=False)
        timer.prepare(copy, 7)
        timing.measure(timer, [copy], 7)
        rate = (1 << 28) / copy.ms / 1e3  # bytes in a us
    else:
        timer, about, rate = timing.CpuTimer(), {}, 1e4
    for name in options.dtypes.split(","):
        dtype = DTYPES[name]
        for case in Shapes(options.device, dtype).cases():
            text = f"{case.text}, {name}"
            if not re.search(options.only, text):
                continue
            right, us = is_right(case, dtype), measure(case, timer)
            times, share = us["torch"] / us["ours"] if "torch" in us else None, case.bytes / rate / us["ours"]
            slow = us["ours"] > LEAST_US and (times < 1 / TIMES_TORCH if times is not None else share < OF_READING)
            failed |= not right or (slow and options.strict)
            print(json.dumps({"case": text, "us": round(us["ours"], 2), "times_torch": times and round(times, 2), "of_copy": round(share, 3),
                              "verdict": "WRONG" if not right else "SLOW" if slow else "ok", **about}), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
