# SPDX-License-Identifier: Apache-2.0
"""The bottleneck unit of residual networks in active windows, and PyTorch's over the whole image: a case's `c` channels, `k`
between the convolutions. Ours updates the image in place, as a network without gradients does."""

import numpy as np

from . import conv
from . import library as tartan

SHAPES = (lambda c, k: (k, c, 1, 1), lambda c, k: (k, k, 3, 3), lambda c, k: (c, k, 1, 1))
OPTIONS = ("kernel=1x1", "kernel=3x3 padding=same", "kernel=1x1")


class Image:
    """x, the three filters and their biases."""

    def __init__(self, case):
        generator = np.random.default_rng(1)

        def numbers(*shape):
            return generator.standard_normal(shape, np.float32)
        self.memory = conv.placed(numbers(case.n, case.h, case.w, case.c), case)
        self.x = conv.as_channels(self.memory)
        shapes = [shape(case.c, case.k) for shape in SHAPES]
        self.filters = [conv.as_numpy(conv.placed(numbers(*s) / np.sqrt(np.prod(s[1:])), case)) for s in shapes]
        self.biases = [numbers(s[0]) for s in shapes]


class Ours(conv.Ours):
    """A unit as a call. The last gain of the calls that are timed is tiny, so that numbers stay finite."""

    def __init__(self, library, context, case, image):
        self.case, self.library, self.image, self.context = case, library, image, context
        self.parts, self.active, self.windows = [], None, None
        self.convs, self.filters = [], []
        for weights, options in zip(image.filters, OPTIONS):
            self.convs.append(tartan.Conv(library, self.dense_layout(*weights.shape[:2]), options))
            self.filters.append(tartan.Matrix(library, self.convs[-1].layout, self.blocks(weights)))
        self.channels = self.parts[0]
        self.choose_windows(context, np.random.default_rng(2))
        self.biases = [conv.as_tensor(b).to(conv.as_tensor(image.memory).device) if not case.threads else b for b in image.biases]
        self.gain = self.small_gain()
        self.memory = self.copy()
        self.call = self.unit(self.memory, [None, None, self.gain])

    def dense_layout(self, rows, cols):
        block = (min(rows, 64), min(cols, 64))
        layout = tartan.Layout(self.library, rows, cols, block, mask=np.ones(-(-rows // block[0]) * -(-cols // block[1]), np.uint8))
        self.parts.append(layout)
        return layout

    def blocks(self, weights):
        """The blocks of a dense filter [out, in, kernel, kernel] whose channels are whole blocks."""
        rows, cols = (min(n, 64) for n in weights.shape[:2])
        if weights.shape[0] % rows or weights.shape[1] % cols:
            raise ValueError("the benchmark's units have multiples of 64 channels, or less")
        wide = weights.reshape(weights.shape[0], weights.shape[1], -1).transpose(0, 2, 1).reshape(weights.shape[0], -1)
        blocks = wide.reshape(wide.shape[0] // rows, rows, wide.shape[1] // cols, cols).swapaxes(1, 2)
        return conv.placed(blocks.reshape(-1, rows, cols), self.case)

    def copy(self):
        memory = self.image.memory
        return memory.copy() if isinstance(memory, np.ndarray) else memory.clone()

    def small_gain(self):
        gain = np.full(self.case.c, 1e-6, np.float32)
        return gain if self.case.threads else conv.as_tensor(gain).cuda()

    def unit(self, memory, gains):
        y = conv.as_channels(memory)
        return tartan.residual_forward(self.context, y, list(zip(self.convs, self.filters, gains, self.biases)), self.active,
                                       self.windows, y)

    @property
    def flops(self):
        return self.case.dense_flops * self.share

    def check(self):
        """The error of the unit in place, with a gain of 1, in the active windows and elsewhere."""
        memory, case = self.copy(), self.case
        self.unit(memory, [None] * 3)()
        self.context.sync()
        ours, x = conv.as_numpy(memory)[0], conv.as_numpy(self.image.memory)[0]
        first, middle, last = self.image.filters
        b = np.maximum(x @ first[:, :, 0, 0].T + self.image.biases[0], 0)
        b = np.pad(b, ((1, 1), (1, 1), (0, 0)))
        c = np.zeros((case.h, case.w, case.k), np.float32) + self.image.biases[1]
        for tap in range(9):
            i, j = divmod(tap, 3)
            c += b[i : i + case.h, j : j + case.w] @ middle[:, :, i, j].T
        want = np.maximum(np.maximum(c, 0) @ last[:, :, 0, 0].T + self.image.biases[2] + x, 0)
        seen = self.seen()[0]
        if (ours[~seen] != x[~seen]).any():
            return float("inf")
        error = np.linalg.norm(ours[seen] - want[seen]) / max(float(np.linalg.norm(want[seen])), 1e-30)
        return float(np.nan_to_num(error, nan=np.inf))

    def free(self):
        for part in (*self.filters, *self.convs, *self.parts, self.active):
            if part is not None:
                part.free()


def dense_peer(case, image):
    torch = conv.torch
    torch.backends.cudnn.benchmark = True
    x = conv.as_tensor(image.memory).permute(conv.CHANNELS_LAST)
    weights = [torch.from_numpy(w).to(x.device, x.dtype).contiguous(memory_format=torch.channels_last) for w in image.filters]
    biases = [torch.from_numpy(b).to(x.device, x.dtype) for b in image.biases]

    def call():
        with torch.no_grad():
            y = torch.nn.functional.conv2d(x, weights[0], biases[0]).relu_()
            y = torch.nn.functional.conv2d(y, weights[1], biases[1], padding=1).relu_()
            torch.nn.functional.conv2d(y, weights[2], biases[2]).add_(x).relu_()
    return call
