# SPDX-License-Identifier: Apache-2.0
"""Operands of attention, our arms, and their check against dense attention in f32."""

import dataclasses
import math

import numpy
import torch

from . import library as tartan
from .attention_cases import ANY_ORDER, BACKWARD, FORWARD, visible_pairs
from .operands import Wrong, random_tensor
from .timing import first_call_ms

CHUNK_ELEMENTS = 1 << 27     # scores that the reference holds at once
MOST_CHECKED = 1 << 33       # scores of all heads; beyond them the first and the last head are checked
MOST_OVER_PLAIN = 2.0        # our error over that of plain bf16 attention
MOST_LSE_ERROR = 1e-3
HIDDEN_SHARE = 64 / 256      # of the elements, by the bit mask


@dataclasses.dataclass
class Inputs:
    """What cases of equal shape share."""
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out_grad: torch.Tensor
    gradients: tuple

    @classmethod
    def make(cls, case, generator, backward):
        queries, keys = (case.batch, case.heads, case.tq, case.d), (case.batch, case.heads, case.tk, case.d)
        q, k, v = (random_tensor(generator, shape, torch.bfloat16) for shape in (queries, keys, keys))
        if not backward:
            return cls(q, k, v, None, ())
        out_grad = random_tensor(generator, queries, torch.bfloat16)
        return cls(q, k, v, out_grad, tuple(torch.empty_like(tensor) for tensor in (q, k, v)))


class Ours:
    """One case: its layout, both passes as calls, and what they must compute and move."""

    def __init__(self, library, context, case, inputs, backward):
        self.library, self.context, self.case, self.inputs = library, context, case, inputs
        self.mask = None
        self.layout = self.make_layout()
        self.coordinates = self.layout.coordinates(numpy)
        self.keep = self.make_keep() if case.masked else None
        if self.keep is not None:
            self.mask = tartan.BlockMask(library, self.layout, self.keep)
        self.pairs = visible_pairs(case, *self.coordinates, self.mask.kept if self.mask else None)
        self.out = torch.full_like(inputs.q, math.nan)
        self.lse = torch.full(inputs.q.shape[:3], math.nan, dtype=torch.float32, device=inputs.q.device)
        self.calls = {FORWARD: self.call_forward(self.layout)}
        if backward:
            given = (inputs.q, inputs.k, inputs.v, self.out, self.lse, inputs.out_grad)
            for direction, order in ((BACKWARD, "deterministic=1"), (ANY_ORDER, "deterministic=0")):
                self.calls[direction] = tartan.attention(context, self.layout, f"{self.options} {order}".strip(), self.mask,
                                                         given, inputs.gradients)

    @property
    def options(self):
        return "causal=1" if self.case.causal else ""

    def make_layout(self):
        c = self.case
        return tartan.Layout(self.library, c.tq, c.tk, c.block, pattern=(c.pattern, c.parameters, 1),
                             heads=1 if c.shared else c.heads)

    def make_keep(self):
        bits = numpy.random.default_rng(1).integers(0, 256, (self.case.tq, self.case.tk), numpy.uint8)
        return torch.from_numpy((bits >= 256 * HIDDEN_SHARE).astype(numpy.uint8))

    def call_forward(self, layout):
        i = self.inputs
        return tartan.attention(self.context, layout, self.options, self.mask, (i.q, i.k, i.v), (self.out, self.lse))

    def run(self, direction):
        """Once, into arrays that hold nothing of an earlier case."""
        if direction != FORWARD:
            for gradient in self.inputs.gradients:
                gradient.fill_(math.nan)
        self.calls[direction]()

    def flops(self, direction):
        return (4.0 if direction == FORWARD else 10.0) * self.case.d * self.pairs

    @property
    def block_bytes(self):
        """Bytes of a forward pass: the keys and values of every stored block, queries and results."""
        c, each = self.case, self.case.batch * (self.case.heads if self.case.shared else 1)
        return 2.0 * c.d * (2 * each * self.layout.elements / c.tq + 2 * c.batch * c.heads * c.tq)

    def array_bytes(self, direction):
        """Bytes of all arrays of a pass: what it moves at least where every query and every key is used."""
        c = self.case
        queries, keys = (2, 2) if direction == FORWARD else (4, 4)
        return 2.0 * c.d * c.batch * c.heads * (queries * c.tq + keys * c.tk)

    def explain(self, direction):
        return self.library.explain(self.calls[direction])

    def plan_ms(self):
        """What the first call with a layout takes longer than the next, in wall time; kernels are loaded already."""
        if self.mask:  # it belongs to its layout
            return None
        layout = self.make_layout()
        ms = first_call_ms(self.context, self.call_forward(layout))
        layout.free()
        return ms

    def free(self):
        if self.mask:
            self.mask.free()
        self.layout.free()
        self.calls, self.inputs, self.out, self.lse, self.keep = {}, None, None, None, None

    # ---- The check ----

    def stored(self):
        """The block mask [1 or heads, grid rows, grid columns] on the device."""
        c = self.case
        heads, rows, cols = (torch.from_numpy(part).to(self.out.device) for part in self.coordinates)
        grid = (1 if c.shared else c.heads, -(-c.tq // c.block[0]), -(-c.tk // c.block[1]))
        mask = torch.zeros(grid, dtype=torch.bool, device=self.out.device)
        mask[heads, rows, cols] = True
        return mask

    def checker(self):
        return Checker(self)


class Checker:
    """Dense attention of the last batch entry in f32, and the same with the roundings that bf16 asks for ("plain"): weights and
    their gradients before the products, and the results."""

    def __init__(self, ours):
        c, i = ours.case, ours.inputs
        self.ours, self.case = ours, c
        self.heads = list(range(c.heads)) if c.heads * c.tq * c.tk <= MOST_CHECKED else [0, c.heads - 1]
        stored = ours.stored()
        self.stored = stored if c.shared else stored[self.heads]
        self.keep = ours.keep.to(i.q.device).bool() if ours.keep is not None else None
        self.q, self.k, self.v = (tensor[-1, self.heads].float() for tensor in (i.q, i.k, i.v))
        self.scale = 1 / math.sqrt(c.d)

    def chunks(self):
        step = max(1, CHUNK_ELEMENTS // (len(self.heads) * self.case.tk))
        for begin in range(0, self.case.tq, step):
            yield slice(begin, min(begin + step, self.case.tq))

    def seen(self, chunk):
        """Which keys each query of the chunk sees, [1 or heads, queries, keys]."""
        c, device = self.case, self.q.device
        queries, keys = torch.arange(chunk.start, chunk.stop, device=device), torch.arange(c.tk, device=device)
        seen = self.stored[:, queries // c.block[0]][:, :, keys // c.block[1]]
        if c.causal:
            seen = seen & (keys <= queries[:, None])
        return seen & self.keep[chunk] if self.keep is not None else seen

    def forward(self, chunk):
        """(weights, out, plain out, lse) of the chunk's queries."""
        seen = self.seen(chunk)
        scores = (self.q[:, chunk] @ self.k.mT).mul_(self.scale).masked_fill_(~seen, -math.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse[:, :, None]).masked_fill_(~seen, 0).exp_().masked_fill_(~seen, 0)
        most = weights.amax(-1, keepdim=True).clamp_min_(1e-30)
        plain = (weights / most).bfloat16().float() @ self.v * most
        return weights, weights @ self.v, plain.bfloat16().float(), lse

    def check_forward(self):
        """Our error over the plain one's, the worst of the heads. Over the limit is Wrong."""
        error, lse_error = Error(), 0.0
        for chunk in self.chunks():
            _, out, plain, lse = self.forward(chunk)
            error.add(self.ours.out[-1, self.heads, chunk], plain, out)
            ours = self.ours.lse[-1, self.heads, chunk]
            apart = torch.where(ours == lse, 0.0, (ours - lse).abs()).max()  # -inf equals -inf
            lse_error = max(lse_error, float(apart.nan_to_num(math.inf)))
        worst = error.over_plain()
        if not worst <= MOST_OVER_PLAIN:
            raise Wrong(f"error of out is {worst:.3g} times that of plain bf16 attention")
        if not lse_error <= MOST_LSE_ERROR:
            raise Wrong(f"error of lse is {lse_error:.3g}")
        return worst

    def check_backward(self):
        i, all_errors = self.ours.inputs, {"q_grad": Error(), "k_grad": Error(), "v_grad": Error()}
        grads = dict(zip(all_errors, i.gradients))
        sums = {name: [torch.zeros_like(self.k) for _ in range(2)] for name in ("k_grad", "v_grad")}
        for chunk in self.chunks():
            weights, out, plain_out, _ = self.forward(chunk)
            out_grad, q = i.out_grad[-1, self.heads, chunk].float(), self.q[:, chunk]
            weights_grad = out_grad @ self.v.mT
            parts = []
            for rounded, result in ((False, out), (True, plain_out)):
                delta = (out_grad * result).sum(-1, keepdim=True)
                ds = (weights_grad - delta).mul_(weights)
                parts.append((ds.bfloat16().float(), weights.bfloat16().float()) if rounded else (ds, weights))
            for j, (ds, p) in enumerate(parts):
                sums["k_grad"][j] += ds.mT @ q * self.scale
                sums["v_grad"][j] += p.mT @ out_grad
            exact, plain = (ds @ self.k * self.scale for ds, _ in parts)
            all_errors["q_grad"].add(grads["q_grad"][-1, self.heads, chunk], plain.bfloat16().float(), exact)
        for name, (exact, plain) in sums.items():
            all_errors[name].add(grads[name][-1, self.heads], plain.bfloat16().float(), exact)
        name, worst = max(((name, error.over_plain()) for name, error in all_errors.items()), key=lambda item: item[1])
        if not worst <= MOST_OVER_PLAIN:
            raise Wrong(f"error of {name} is {worst:.3g} times that of plain bf16 attention")
        return worst


class Error:
    """Sums of squared errors by head: ours, and plain attention's."""

    def __init__(self):
        self.ours, self.plain = 0.0, 0.0

    def add(self, ours, plain, exact):
        self.ours = self.ours + (ours.float() - exact).square().sum((1, 2))
        self.plain = self.plain + (plain - exact).square().sum((1, 2))

    def over_plain(self):
        """The worst of the heads; infinite where ours has a NaN."""
        ratio = torch.where(self.ours == 0, 0.0, self.ours / self.plain).sqrt()
        return float(ratio.nan_to_num(math.inf).max())
