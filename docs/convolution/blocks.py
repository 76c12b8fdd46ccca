# SPDX-License-Identifier: Apache-2.0
"""The worked example of convolution.md, "How do I choose the blocks?": its pictures, and with --measure its figures on this CPU.

python3 docs/convolution/blocks.py [--measure]
"""

import argparse
import pathlib
import time

import numpy as np
import tartan

SHAPE, CHANNELS, SIZES, PICTURES = (192, 320), 64, (4, 8, 16, 32, 64), (8, 16, 32)


def road(shape):
    """A mask like that of a road: its edges meet at the horizon, two fifths down."""
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    below = rows / shape[0] - 0.4
    middle = shape[1] * (0.5 + 0.1 * below)
    return ((below > 0) & (abs(cols - middle) < shape[1] * 0.45 * below)).astype(np.float32)


def windows_of(size):
    """The windows that a 3 x 3 convolution reads, those that it writes, and which are active."""
    inputs, outputs = tartan.windows_for_conv(SHAPE, (3, 3), output=size)
    return inputs, outputs, tartan.Layout.from_windows(road(SHAPE)[None], outputs)


def seconds(functions, rounds=15):
    """The least seconds of processor time of each function, called in turns."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for i, function in enumerate(functions):
            start = time.thread_time()
            function()
            best[i] = min(best[i], time.thread_time() - start)
    return best


def measure_windows():
    asked = road(SHAPE).mean()
    print(f"The mask asks for {asked:.1%} of the positions.\n")
    print("| windows | active | computed | read for each computed | time, of the whole image's |")
    print("|---|---|---|---|---|")
    context = tartan.Context("cpu", threads=1)
    conv = tartan.BlockConv(tartan.Layout.pattern("dense", (CHANNELS, CHANNELS), 32), (3, 3), padding="same")
    weights = tartan.BlockMatrix.zeros(conv.layout, "float32").fill_normal(seed=1)
    x = np.random.default_rng(1).random((1, *SHAPE, CHANNELS), dtype=np.float32).transpose(0, 3, 1, 2)
    y = np.zeros((1, *SHAPE, CHANNELS), np.float32).transpose(0, 3, 1, 2)
    made = [windows_of(size) for size in SIZES]

    def call(active=None, windows=None):
        return lambda: conv(x, weights, active=active, windows=windows, out=y, context=context)

    times = seconds([call()] + [call(active, outputs) for _, outputs, active in made])
    for size, (_, _, active), took in zip(SIZES, made, times[1:]):
        computed = active.blocks * size * size / (SHAPE[0] * SHAPE[1])
        read = (size + 2) ** 2 / size**2
        print(f"| {size} x {size} | {active.blocks} of {active.rows * active.cols} "
              f"| {computed:.1%} | {read:.2f} | {took / times[0]:.1%} |")  # fmt: skip


def measure_filters():
    print("\n| blocks of channels | forward | gradient of the image | gradient of the filter |")
    print("|---|---|---|---|")
    context = tartan.Context("cpu", threads=1)
    rng = np.random.default_rng(2)
    x = rng.random((1, 56, 56, 256), dtype=np.float32).transpose(0, 3, 1, 2)
    for block in (8, 16, 32, 64):
        n = 256 // block
        mask = np.zeros(n * n, bool)
        mask[rng.permutation(n * n)[: n * n // 4]] = True
        layout = tartan.Layout.from_mask(mask.reshape(n, n), block=block)
        conv = tartan.BlockConv(layout, (3, 3), padding="same")
        w = tartan.BlockMatrix.zeros(conv.layout, "float32").fill_normal(seed=1)
        dw = tartan.BlockMatrix.zeros(conv.layout, "float32")
        y, dx = np.empty_like(x), np.empty_like(x)
        calls = (
            lambda: conv(x, w, out=y, context=context),
            lambda: conv.input_gradient(x, w, out=dx, context=context),
            lambda: conv.filter_gradient(x, x, out=dw, context=context),
        )
        flops = 2.0 * conv.layout.blocks * block * block * 56 * 56
        peak = max(context.peak("float32") for _ in range(10)) * 1e9
        print(f"| {block} | " + " | ".join(f"{flops / took / peak:.2f}" for took in seconds(calls)) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    folder = pathlib.Path(__file__).parent
    for size in PICTURES:
        (folder / f"windows_{size}.svg").write_text(windows_of(size)[2].svg(256) + "\n")
    if parser.parse_args().measure:
        measure_windows()
        measure_filters()


if __name__ == "__main__":
    main()
