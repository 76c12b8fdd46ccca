#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convolutions that users of PyTorch write, off the beaten track: strides, first layers, depthwise filters, f32, contiguous
images of few pixels. All three passes, beside cuDNN's dense convolution at its best algorithm (f32: with tf32, its default; how long
it takes without is printed as well).

Arms of a row are timed in turns in one process, on one stream, from CUDA graphs; results are compared with PyTorch's before. A
pass takes at most twice the dense time (floor), 1.2 times at densities below .3. Needs PyTorch and libtartan ($TARTAN_LIBRARY).
Prints one JSON object per row. Exit status 1: a result is wrong, or a row is below its floor.
"""

import argparse
import dataclasses
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np
import torch
from gpu_bench import library as tartan
from gpu_bench import machine, timing

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32, "f64": torch.float64}
MOST_ERROR = {"bf16": 5e-3, "f16": 1e-3, "f32": 2e-6, "tf32": 1e-3, "f64": 1e-12}  # of the norm of the result
PASSES = "y", "dx", "dw"


@dataclasses.dataclass(frozen=True)
class Case:
    n: int
    c: int
    h: int
    k: int
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    block: int = 32
    density: float = 1.0
    dtype: str = "bf16"
    last: bool = True  # channels last in memory

    @property
    def text(self):
        special = [f"stride {self.stride}"] * (self.stride > 1) + [f"dilation {self.dilation}"] * (self.dilation > 1) + [
            f"{self.groups} groups"] * (self.groups > 1) + ["channels first"] * (not self.last)
        return ", ".join([f"{self.kernel}x{self.kernel} {self.n}x{self.c}x{self.h}x{self.h} to {self.k}", f"b {self.block}",
                          f"density {self.density:.2f}", self.dtype, *special])

    @property
    def most(self):
        """The largest time, in dense times."""
        return 1.2 if self.density < .3 and self.groups == 1 else 2.0


def cases():
    yield Case(32, 256, 56, 256, block=64, density=.44)
    yield Case(32, 256, 56, 256, block=16, density=.12)
    yield Case(32, 128, 56, 128, stride=2, density=.31)
    yield Case(32, 128, 56, 128, stride=2, density=.31, last=False)
    yield Case(32, 1024, 14, 256, kernel=1, block=64, density=.31)
    yield Case(32, 256, 56, 512, kernel=1, stride=2, density=.25)
    for dtype in "f32", "tf32":
        yield Case(16, 128, 56, 128, density=.44, dtype=dtype)
        yield Case(16, 128, 56, 128, density=.25, dtype=dtype)
        yield Case(16, 128, 56, 128, density=.44, dtype=dtype, last=False)
        yield Case(16, 128, 56, 128, stride=2, density=.44, dtype=dtype)
        yield Case(16, 512, 14, 512, stride=2, density=.25, dtype=dtype)
    yield Case(16, 256, 28, 256, density=.25, dtype="tf32")
    yield Case(16, 256, 28, 256, stride=2, density=.25, dtype="tf32")
    yield Case(32, 256, 28, 256, block=16, density=.25, dtype="tf32")
    for dtype in "bf16", "f32":
        yield Case(32, 3, 224, 64, kernel=7, stride=2, block=1, dtype=dtype)
        yield Case(32, 256, 28, 256, groups=256, block=1, dtype=dtype)
        yield Case(32, 256, 28, 256, groups=32, block=8, dtype=dtype)
        yield Case(32, 96, 56, 96, kernel=7, groups=96, block=1, dtype=dtype)
        yield Case(32, 256, 28, 256, kernel=5, stride=2, groups=256, block=1, dtype=dtype)
    yield Case(32, 3, 224, 64, kernel=7, stride=2, block=1, last=False)
    yield Case(16, 96, 28, 96, block=24, density=.44)
    yield Case(16, 100, 28, 100, block=5, density=.5)
    yield Case(16, 128, 28, 128, dilation=4, density=.31)
    yield Case(1, 512, 7, 512, density=.25)
    yield Case(4, 64, 28, 64, density=.5, dtype="f64", block=16)
    yield Case(16, 128, 56, 128, density=.44, dtype="f16", stride=2)


class Problem:
    """Our operands and the dense ones."""

    def __init__(self, library, case, device):
        torch.manual_seed(1)
        dtype, self.case = DTYPES[case.dtype], case
        format_ = torch.channels_last if case.last else torch.contiguous_format
        rows, cols = -(-case.k // case.block), -(-case.c // case.block)
        if case.groups > 1:
            same = case.block * case.groups // case.c
            mask = torch.kron(torch.eye(case.groups // same), torch.ones(rows * same // case.groups, cols * same // case.groups))
        else:
            mask = torch.zeros(rows * cols)
            mask[torch.randperm(rows * cols)[: max(1, round(case.density * rows * cols))]] = 1
            mask = mask.view(rows, cols)
        half = case.dilation * (case.kernel // 2)
        self.peer = (case.stride,) * 2, (half,) * 2, (case.dilation,) * 2, False, (0, 0), case.groups
        side = f"{case.kernel}x{case.kernel}"
        self.channels = tartan.Layout(library, case.k, case.c, (case.block,) * 2, mask=mask.flatten().to(torch.uint8).numpy())
        self.conv = tartan.Conv(library, self.channels, f"kernel={side} stride={case.stride}x{case.stride} "
                                f"dilation={case.dilation}x{case.dilation} padding={half}x{half}")
        stored = mask.bool().repeat_interleave(case.block, 0).repeat_interleave(case.block, 1)[: case.k, : case.c].to(device)
        self.stored = stored[:, :, None, None].expand(case.k, case.c, case.kernel, case.kernel)
        self.weight = (torch.randn(case.k, case.c, case.kernel, case.kernel, device=device) * self.stored).to(dtype)
        self.x = torch.randn(case.n, case.c, case.h, case.h, device=device).to(dtype).contiguous(memory_format=format_)
        grouped = self.weight if case.groups == 1 else torch.cat([
            part[:, i * case.c // case.groups : (i + 1) * case.c // case.groups]
            for i, part in enumerate(self.weight.chunk(case.groups))])
        self.dense = grouped.contiguous(memory_format=format_)
        y = torch.ops.aten.convolution(self.x, self.dense, None, *self.peer)
        self.dy = torch.randn_like(y)
        self.filter = tartan.Matrix(library, self.conv.layout, self.blocks(self.weight))
        self.y, self.dx = torch.empty_like(y), torch.empty_like(self.x)
        self.dw = tartan.Matrix(library, self.conv.layout, torch.zeros_like(self.filter_values))

    def blocks(self, weight):
        case, layout, edge = self.case, self.conv.layout, self.case.block
        wide = weight.new_zeros(-(-case.k // edge) * edge, case.kernel ** 2, layout.cols // case.kernel ** 2)
        wide[: case.k, :, : case.c] = weight.reshape(case.k, case.c, -1).transpose(1, 2)
        wide = wide.reshape(wide.shape[0] // edge, edge, -1, edge).transpose(1, 2)
        _, at, across = layout.coordinates(np)
        self.places = [torch.from_numpy(places).long().to(weight.device) for places in (at, across)]
        values = wide[tuple(self.places)].contiguous()
        if not hasattr(self, "filter_values"):
            self.filter_values = values
        return values

    def ours(self, context):
        return {"y": tartan.conv_forward(context, self.conv, self.filter, self.x, self.y),
                "dx": tartan.conv_input_gradient(context, self.conv, self.filter, self.dy, self.dx),
                "dw": tartan.conv_filter_gradient(context, self.conv, self.x, self.dy, self.dw)}

    def theirs(self):
        def backward(*mask):
            return lambda: torch.ops.aten.convolution_backward(self.dy, self.x, self.dense, None, *self.peer, mask)
        return {"y": lambda: torch.ops.aten.convolution(self.x, self.dense, None, *self.peer),
                "dx": backward(True, False, False), "dw": backward(False, True, False)}

    def errors(self):
        """Of the norms, beside f64."""
        wide = [t.double() for t in (self.x, self.dense, self.dy)]
        y = torch.ops.aten.convolution(wide[0], wide[1], None, *self.peer)
        dx, dw, _ = torch.ops.aten.convolution_backward(wide[2], wide[0], wide[1], None, *self.peer, (True, True, False))
        if self.case.groups > 1:
            full = dw.new_zeros(self.stored.shape)
            for i, part in enumerate(dw.chunk(self.case.groups)):
                rows, cols = part.shape[0], part.shape[1]
                full[i * rows : (i + 1) * rows, i * cols : (i + 1) * cols] = part
            dw = full
        dw = self.blocks(dw * self.stored)
        pairs = {"y": (self.y, y), "dx": (self.dx, dx), "dw": (self.dw.values, dw)}
        return {name: float((ours.double() - want).norm() / want.norm()) for name, (ours, want) in pairs.items()}


def measure(this, call, peer):
    arms = {"ours": timing.Arm([call]), "peer": timing.Arm([peer])}
    for arm in arms.values():
        this.timer.prepare(arm, 12)
    timing.measure(this.timer, list(arms.values()), 12)
    return {name: arm.ms for name, arm in arms.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda", help="cpu: to try the program")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
    this, failed = machine.Machine(options.device, 3600), False
    for case in cases():
        if not re.search(options.only, case.text):
            continue
        problem = Problem(this.library, case, options.device)
        context = this.contexts[case.dtype == "tf32"]
        ours, theirs = problem.ours(context), problem.theirs()
        kernels = {}
        for name in PASSES:
            steps = this.library.explain_all(ours[name])
            kernels[name] = ", ".join(dict.fromkeys(step.get("kernel", "") for step in steps))
            ours[name]()
        context.sync()
        errors = problem.errors()
        for name in PASSES:
            ms, exact = measure(this, ours[name], theirs[name]), {}
            if case.dtype == "f32":
                torch.backends.cudnn.allow_tf32 = False
                exact = {"dense_exact_us": round(1e3 * measure(this, ours[name], theirs[name])["peer"], 1)}
                torch.backends.cudnn.allow_tf32 = True
            times = ms["ours"] / ms["peer"]
            wrong, below = not errors[name] <= MOST_ERROR[case.dtype], times > case.most
            failed |= wrong or below
            print(json.dumps({"case": f"{name}, {case.text}", "us": round(1e3 * ms["ours"], 1), "dense_us": round(1e3 * ms["peer"], 1),
                              "times_dense": round(times, 2), "floor": case.most, "kernel": kernels[name],
                              **exact, "error": float(f"{errors[name]:.2g}"),
                              "verdict": "WRONG" if wrong else "BELOW" if below else "good", **this.about}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
