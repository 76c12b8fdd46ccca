# SPDX-License-Identifier: Apache-2.0
"""Operands of a product, made at random; our arm; its check against float64."""

import math

import numpy
import torch

from . import library as tartan
from .cases import LEFT
from .timing import first_call_ms

EPSILON = {torch.float64: 2.0 ** -52, torch.float32: 2.0 ** -23, torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7}
EPSILON_SUMS_8BIT = 2.0 ** -13  # docs/numerics.md
CACHE_BYTES = 200 << 20  # several times the L2 of any Hopper
MOST_BLOCK_ROWS = 64     # of a product too large to be checked whole


class Wrong(Exception):
    """A result outside its error bound."""


def torch_dtype(name):
    return getattr(torch, name)


def random_tensor(generator, shape, dtype, count=1):
    """Normal numbers [shape], or `count` such tensors."""
    made = [torch.randn(shape, generator=generator, device=generator.device,
                        dtype=torch.float64 if dtype == torch.float64 else torch.float32).to(dtype) for _ in range(count)]
    return made[0] if count == 1 else made


def mask_of(product, random):
    rows, cols = -(-product.rows // product.block), -(-product.cols // product.block)
    if product.layout == "dense":
        return numpy.ones((rows, cols), numpy.uint8)
    i, j = numpy.ogrid[:rows, :cols]
    if product.layout == "banded":
        half = max(round((product.density * cols - 1) / 2), 0)
        return (abs(i - j) <= half).astype(numpy.uint8)
    if product.layout.startswith("experts"):
        experts = int(product.layout.split()[1])
        return (i * experts // rows == j * experts // cols).astype(numpy.uint8)
    mask = numpy.zeros(rows * cols, numpy.uint8)
    mask[random.permutation(rows * cols)[:max(round(product.density * rows * cols), 1)]] = 1
    return mask.reshape(rows, cols)


def make_layout(library, product, seed=1):
    size = (product.rows, product.cols, product.block)
    if product.layout.startswith("ba "):
        return tartan.Layout(library, *size, pattern=("barabasi_albert", product.layout[3:], seed))
    return tartan.Layout(library, *size, mask=mask_of(product, numpy.random.default_rng(seed)))


class Ours:
    """Our arm: one product with operands of its own. `calls` are taken in turns by the timing."""

    def __init__(self, library, context, product, generator):
        self.library, self.context, self.product = library, context, product
        library.dtype(product.dtype)
        self.layout = make_layout(library, product)
        self.matrices = []
        dtype = torch_dtype(product.dtype)
        m, n, k = product.dense_shape
        block = product.block
        value_shape = (self.layout.blocks, block, block)
        self.flops = 2.0 * self.layout.elements * product.size
        width = torch.finfo(dtype).bits // 8
        out_dtype = torch.bfloat16 if width == 1 else dtype
        if product.operation == "sddmm":
            x, y = (m, k), (n, k)
            self.bytes = width * (self.layout.elements + (m + n) * k)
        else:
            x = (k, n) if product.side == LEFT else (m, k)
            self.bytes = width * (self.layout.elements + x[0] * x[1]) + out_dtype.itemsize * m * n
        # Tensor cores want 8-bit factors with the summed index contiguous; cuBLAS gets them so too.
        turned = product.operation == "spmm" and width == 1 and product.side == LEFT
        sets = max(1, min(math.ceil(CACHE_BYTES / self.bytes), 64)) if product.rotate else 1
        self.sets = []
        for _ in range(sets):
            if product.operation == "sddmm":
                first = random_tensor(generator, x if product.form == "NT" else x[::-1], dtype)
                second = random_tensor(generator, y if product.form == "NT" else y[::-1], dtype)
                operands = (first, second.t()) if product.form == "NT" else (first.t(), second)
                values = torch.full(value_shape, math.nan, dtype=dtype, device=generator.device)
                self.sets.append((values, *operands))
            else:
                values = random_tensor(generator, value_shape, dtype)
                out = torch.full((m, n), math.nan, dtype=out_dtype, device=generator.device)
                dense = random_tensor(generator, x[::-1], dtype).t() if turned else random_tensor(generator, x, dtype)
                self.sets.append((values, dense, out))
        self.calls = [self._call(self.layout, operands) for operands in self.sets]
        self.result = self.sets[0][0] if product.operation == "sddmm" else self.sets[0][2]
        _, self.block_rows, self.block_cols = self.layout.coordinates(numpy)

    def _call(self, layout, operands):
        p = self.product
        matrix = tartan.Matrix(self.library, layout, operands[0])
        self.matrices.append(matrix)
        if p.operation == "sddmm":
            return tartan.sddmm(self.context, operands[1], operands[2], matrix)
        return tartan.spmm(self.context, p.side, p.transpose, matrix, operands[1], operands[2])

    def explain(self):
        return self.library.explain(self.calls[0])

    def plan_ms(self):
        """What the first product with a layout takes longer than the next, in wall time; kernels are loaded already."""
        layout = make_layout(self.library, self.product)
        ms = first_call_ms(self.context, self._call(layout, self.sets[0]))
        self.matrices.pop().free()
        layout.free()
        return ms

    def free(self):
        for matrix in self.matrices:
            matrix.free()
        self.matrices, self.sets, self.calls, self.result = [], [], [], None
        self.layout.free()

    def _lines(self):
        """(line, block ids, their positions along the sum or across) of the block rows of op(A), or of S."""
        lines, others = self.block_rows, self.block_cols
        p = self.product
        swap = p.operation == "spmm" and bool(p.transpose) == (p.side == LEFT)
        if swap:
            lines, others = others, lines
        order = numpy.lexsort((others, lines))
        count = -(-(p.cols if swap else p.rows) // p.block)
        bounds = numpy.searchsorted(lines[order], numpy.arange(count + 1))
        wanted = range(count)
        if p.rows * p.cols * p.size > 8192 ** 3 and count > MOST_BLOCK_ROWS:
            wanted = numpy.unique(numpy.linspace(0, count - 1, MOST_BLOCK_ROWS).astype(int)).tolist()
        for line in wanted:
            ids = order[bounds[line]:bounds[line + 1]]
            yield line, ids, others[ids]

    def check(self):
        """The largest error over its bound: (8 + 2 sqrt(terms)) eps (|A||B|) in the type of the sums, and the rounding of the
        output. Over 1 is Wrong. All factors have whole blocks here."""
        p, worst = self.product, torch.zeros((), dtype=torch.float64, device=self.result.device)
        values = self.sets[0][0]
        sums = torch.float64 if values.dtype == torch.float64 else torch.float32
        eps = 2.0 ** -10 if p.tf32 else EPSILON_SUMS_8BIT if values.dtype.itemsize == 1 else EPSILON[sums]
        # In both operations `left` has the lines and `right` what they are multiplied with; right-hand products are
        # looked at as C^T = op(A)^T B^T.
        if p.operation == "sddmm":
            left, right, result = self.sets[0][1], self.sets[0][2].double(), None
        else:
            flip = p.side != LEFT
            left = values.transpose(1, 2) if bool(p.transpose) != flip else values
            right = (self.sets[0][1].t() if flip else self.sets[0][1]).double()
            result = self.result.t() if flip else self.result
        inside = torch.arange(p.block, device=values.device)
        for line, ids, others in self._lines():
            here = slice(line * p.block, (line + 1) * p.block)
            at = (torch.from_numpy(others).to(values.device)[:, None] * p.block + inside).flatten()
            ids = torch.from_numpy(ids).to(values.device)
            if p.operation == "sddmm":
                a, b = left[here].double(), right[:, at]
                got = values[ids].transpose(0, 1).reshape(p.block, -1)
            else:
                a, b = left[ids].transpose(0, 1).reshape(p.block, -1).double(), right[at]
                got = result[here]
            want, size = a @ b, a.abs() @ b.abs()
            bound = (8 + 2 * math.sqrt(a.shape[1])) * eps * size
            if got.dtype != sums:
                bound += EPSILON[got.dtype] / 2 * (want.abs() + bound) + (2.0 ** -24 if got.dtype == torch.float16 else 0)
            if want.numel() > 0:
                error = (got.double() - want).abs()
                worst = torch.maximum(worst, torch.where(error == 0, 0.0, error / bound).max())
        worst = float(worst)
        if not worst <= 1:
            raise Wrong(f"error over bound {worst:.3g}")
        return worst
