#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention off the beaten track: few tokens and few heads, grouped heads, head sizes that products don't like. Forward and
backward, beside PyTorch's dense scaled_dot_product_attention by the faster of cuDNN and FlashAttention, which skips what a causal mask hides.

Arms of a row are timed in turns in one process, on one stream. A pass has to reach a share of the dense rate, in operations on pairs
that are seen: 0.7 with one set of keys a head and 0.68 backward where heads share them (floors). Needs PyTorch and the package
tartan. Prints one JSON object per row. Exit status 1: a result is wrong, or a row is below its floor.
"""

import argparse
import dataclasses
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tartan
import torch
from gpu_bench import timing
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

PEERS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
MOST_ERROR = 1e-2  # of the norm of a result in bf16, beside f32


@dataclasses.dataclass(frozen=True)
class Case:
    batch: int
    heads: int
    tokens: int
    d: int = 128
    kv_heads: int = 0  # 0: as many as heads
    block: int = 128
    density: float = 1.0
    causal: bool = False

    @property
    def text(self):
        kv = f" on {self.kv_heads}" if self.kv_heads else ""
        what = "causal" if self.causal else f"density {self.density:g}"
        return f"{self.batch}x{self.heads}{kv}, {self.tokens}, d {self.d}, b {self.block}, {what}"

    @property
    def layout(self):
        shape = self.tokens, self.tokens
        if self.causal:
            return tartan.Layout.pattern("causal", shape, self.block)
        if self.density == 1:
            return tartan.Layout.pattern("dense", shape, self.block)
        return tartan.Layout.pattern("random", shape, self.block, density=self.density, seed=1)


def cases():
    for d in 64, 128:
        for batch in 1, 4:
            yield Case(batch, 8, 2048, d)
            yield Case(batch, 8, 2048, d, causal=True)
            for block in 64, 128:
                for density in .5, .3, .1:
                    yield Case(batch, 8, 2048, d, block=block, density=density)
    yield Case(1, 8, 1024, 64, causal=True)
    yield Case(8, 12, 512, 64, block=64, causal=True)
    for heads, kv_heads in (32, 8), (16, 4), (32, 1):
        yield Case(1, heads, 4096, 128, kv_heads, causal=True)
        yield Case(1, heads, 4096, 128, kv_heads, density=.3)
        yield Case(1, heads, 4096, 128, kv_heads, 64, density=.3)
    yield Case(1, 32, 2048, 64, 8, 64, causal=True)


class Problem:
    def __init__(self, case):
        self.case, self.layout = case, case.layout
        draw = torch.Generator("cuda").manual_seed(1)
        kv_heads = case.kv_heads or case.heads

        def tensor(heads):
            return torch.randn(case.batch, heads, case.tokens, case.d, device="cuda", generator=draw).bfloat16()
        self.q, self.k, self.v, self.out_grad = (tensor(n) for n in (case.heads, kv_heads, kv_heads, case.heads))
        self.out, self.lse = tartan.attention(self.q, self.k, self.v, self.layout, causal=case.causal, return_lse=True)
        pairs = case.tokens ** 2
        self.seen = case.tokens * (case.tokens + 1) / 2 if case.causal else self.layout.density * pairs
        self.dense_seen = self.seen if case.causal else pairs
        self.flops = 4.0 * case.d * case.batch * case.heads

    def ours(self):
        c = self.case
        forward = timing.Arm([lambda: tartan.attention(self.q, self.k, self.v, self.layout, causal=c.causal, out=self.out, lse=self.lse)])
        backward = timing.Arm([self.gradients])
        return {"forward": forward, "backward": backward}

    def gradients(self):
        return tartan.attention_gradient(self.q, self.k, self.v, self.layout, self.out, self.lse, self.out_grad, causal=self.case.causal)

    def peer(self, backend):
        leaves = [t.detach().requires_grad_() for t in (self.q, self.k, self.v)]
        more = {"is_causal": self.case.causal, "enable_gqa": bool(self.case.kv_heads)}

        def forward():
            with torch.no_grad(), sdpa_kernel([backend]):
                return scaled_dot_product_attention(self.q, self.k, self.v, **more)
        forward()
        with sdpa_kernel([backend]):
            out = scaled_dot_product_attention(*leaves, **more)
        backward = [lambda: torch.autograd.grad(out, leaves, self.out_grad, retain_graph=True)]
        return {"forward": timing.Arm([forward], capture=False), "backward": timing.Arm(backward, capture=False)}

    def error(self):
        """The largest of out, dq, dk and dv, beside f32."""
        c, share = self.case, self.case.heads // (self.case.kv_heads or self.case.heads)
        q, k, v = (t.float().requires_grad_() for t in (self.q, self.k, self.v))
        mask = torch.as_tensor(self.layout.mask(), device="cuda").reshape(self.layout.grid)
        mask = mask.bool().repeat_interleave(c.block, 0).repeat_interleave(c.block, 1)
        if c.causal:
            mask = mask.tril()
        worst = 0.0
        for b in range(c.batch):
            scores = (q[b] @ k[b].repeat_interleave(share, 0).mT) * c.d ** -0.5
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num()
            out = weights @ v[b].repeat_interleave(share, 0)
            wants = [out, *torch.autograd.grad(out, (q, k, v), self.out_grad[b].float())]
            ours = [self.out[b], *(g[b] for g in self.gradients())]
            wants = [wants[0]] + [w[b] for w in wants[1:]]
            for want, mine in zip(wants, ours):
                worst = max(worst, float((mine.float() - want.detach()).norm() / want.detach().norm()))
        return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose text matches")
    options = parser.parse_args()
    stream = torch.cuda.Stream()
    failed = False
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    with torch.cuda.stream(stream):
        timer = timing.CudaTimer(stream)
        for case in cases():
            if not re.search(options.only, case.text):
                continue
            problem = Problem(case)
            error = problem.error()
            arms = {"ours": problem.ours()}
            for name, backend in PEERS.items():
                try:
                    arms[name] = problem.peer(backend)
                except RuntimeError:  # a backend that does not take the case
                    pass
            for direction, operations in ("forward", 1.0), ("backward", 2.5):
                turns = {name: two[direction] for name, two in arms.items()}
                for arm in turns.values():
                    timer.prepare(arm, 12)
                timing.measure(timer, list(turns.values()), 12)
                peer = min((name for name in turns if name != "ours"), key=lambda name: turns[name].ms)
                mine, theirs = turns["ours"].ms, turns[peer].ms
                rate = operations * problem.flops * problem.seen / (1e9 * mine)
                dense_rate = operations * problem.flops * problem.dense_seen / (1e9 * theirs)
                floor = .68 if case.kv_heads and direction == "backward" else .7
                verdict = "WRONG" if not error <= MOST_ERROR else "BELOW" if rate < floor * dense_rate else "good"
                failed |= verdict != "good"
                row = {
                    "case": f"{direction}, {case.text}", "us": round(1e3 * mine, 1), "dense_us": round(1e3 * theirs, 1),
                    "dense_by": peer, "tflops": round(rate), "of_dense_rate": round(rate / dense_rate, 2),
                    "of_dense_time": round(mine / theirs, 2), "floor": floor, "how": turns["ours"].how,
                    "error": float(f"{error:.2g}"), "verdict": verdict, **about}  # fmt: skip
                print(json.dumps(row), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
