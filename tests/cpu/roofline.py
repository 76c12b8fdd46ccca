#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws rows of the benchmark of products under the roofs of the machine: roofline.py ROWS PEAKS PICTURE.

ROWS is build/bench/cpu.jsonl; PEAKS the lines of `tartan bench peak --json --threads 1`. Rows that say how many operations they do for a byte that must be read
or written once become points. Roofs are the measured rate of multiply-adds and that of reading from memory and each cache.
"""

import json
import math
import pathlib
import sys
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 520, 62, 190, 58, 52
COLORS = {"f32": "#1f6fb4", "f64": "#d9691e", "bf16": "#3a8f4d", "f16": "#8a5bb5"}
NAMES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}
SHAPES = ("spmm", "sddmm", "attention", "conv")


def shape_of(row):
    return next((shape for shape in SHAPES[1:] if row["row"].startswith(shape)), "spmm")


def marker(shape, x, y, color, text):
    size = 4.5
    paths = {"sddmm": f"M{-size},{-size}h{2 * size}v{2 * size}h{-2 * size}z", "attention": f"M0,{-1.2 * size}L{1.1 * size},{size}H{-1.1 * size}z",
             "conv": f"M0,{-1.3 * size}L{1.3 * size},0L0,{1.3 * size}L{-1.3 * size},0z"}
    form = f'<path d="{paths[shape]}"' if shape in paths else f'<circle r="{size}"'
    return (f'<g transform="translate({x:.1f},{y:.1f})">{form} fill="{color}" fill-opacity="0.75" stroke="white" stroke-width="0.7"/>'
            f"<title>{escape(text)}</title></g>")


class Axes:
    """Both are logarithmic."""

    def __init__(self, low, high, bottom, top):
        self.x, self.y = (math.log10(low), math.log10(high)), (math.log10(bottom), math.log10(top))

    def at(self, intensity, rate):
        across = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP)

    def ticks(self, bounds):
        return [10.0**i * m for i in range(math.floor(bounds[0]), math.ceil(bounds[1]) + 1) for m in (1, 2, 5)
                if bounds[0] <= math.log10(10.0**i * m) <= bounds[1]]

    def lines(self):
        for value in self.ticks(self.x):
            x, _ = self.at(value, 10 ** self.y[0])
            yield f'<path class="grid" d="M{x:.1f},{TOP}V{HEIGHT - BOTTOM}"/><text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
        for value in self.ticks(self.y):
            _, y = self.at(10 ** self.x[0], value)
            yield f'<path class="grid" d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}"/><text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">useful operations a byte that is read or written once</text>'
        yield (f'<text transform="translate(16,{(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">GFLOP/s, one thread</text>')


def roofs(axes, products, reading, dtypes):
    low, high = 10 ** axes.x[0], 10 ** axes.x[1]
    top = max(products[d] for d in dtypes)
    for number, (level, rate) in enumerate(reading.items()):
        along = 8 + 100 * (number % 2)  # so that caches of nearly the same rate can be read
        (x0, y0), (x1, y1) = axes.at(max(low, 10 ** axes.y[0] / rate), max(low * rate, 10 ** axes.y[0])), axes.at(min(high, top / rate), min(high * rate, top))
        angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
        yield f'<path class="roof" d="M{x0:.1f},{y0:.1f}L{x1:.1f},{y1:.1f}"/>'
        yield f'<text class="small" transform="translate({x0 + along:.1f},{y0 + math.tan(math.radians(angle)) * along - 4:.1f}) rotate({angle:.1f})">{level} {rate:.0f} GB/s</text>'
    for dtype in dtypes:
        rate, fastest = products[dtype], max(reading.values())
        (x0, y), (x1, _) = axes.at(max(low, rate / fastest), rate), axes.at(high, rate)
        yield f'<path class="peak" stroke="{COLORS[dtype]}" d="M{x0:.1f},{y:.1f}H{x1:.1f}"/>'
        yield f'<text x="{x1 + 6:.1f}" y="{y + 4:.1f}" fill="{COLORS[dtype]}">{dtype} {rate:.0f} GFLOP/s</text>'


def legend(shapes, dtypes):
    y = HEIGHT - BOTTOM - 18 * (len(shapes) + len(dtypes))
    for name in (*shapes, *dtypes):
        color = COLORS.get(name, "#555")
        yield marker(name if name in SHAPES else "spmm", WIDTH - RIGHT + 20, y, color, name)
        yield f'<text x="{WIDTH - RIGHT + 32}" y="{y + 4}">{name}</text>'
        y += 18


def draw(rows, peaks):
    """The picture, as SVG."""
    rows = [row for row in rows if row.get("flops_per_byte") and row["gflops"]]
    if not rows:
        raise ValueError("no row says how many operations it does for a byte")
    reading = {line["level"]: line["gbytes_per_s"] for line in peaks if line["what"] == "reading"}
    known = {line["dtype"]: line["gflops"] for line in peaks if line["what"] == "multiply_adds"}
    dtypes = [d for d in NAMES if any(row["dtype"] == d for row in rows) and NAMES[d] in known]
    products = {d: known[NAMES[d]] for d in dtypes}
    rows = [row for row in rows if row["dtype"] in dtypes]
    low = min(row["flops_per_byte"] for row in rows) / 2
    axes = Axes(low, 3 * max(row["flops_per_byte"] for row in rows), min(row["gflops"] for row in rows) / 2, 1.6 * max(products.values()))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             "<style>.grid{stroke:#e4e4e4}.roof{stroke:#777;fill:none}.peak{fill:none;stroke-width:1.5}.small{font-size:11px;fill:#555}</style>",
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
             f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">Tartan on one CPU thread, and what the machine can do</text>',
             f'<text x="{LEFT}" y="42" fill="#555">{escape(rows[0]["processor"])}, {escape(rows[0]["kernels"])}</text>']
    parts += axes.lines()
    parts += roofs(axes, products, reading, dtypes)
    for row in rows:
        x, y = axes.at(row["flops_per_byte"], row["gflops"])
        parts.append(marker(shape_of(row), x, y, COLORS[row["dtype"]], f'{row["row"]}, {row["dtype"]}: {row["gflops"]:.1f} GFLOP/s, {row["flops_per_byte"]:.3g} FLOP a byte'))
    parts += legend([s for s in SHAPES if any(shape_of(row) == s for row in rows)], dtypes)
    return "\n".join([*parts, "</svg>", ""])


def read_lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def main(arguments):
    if len(arguments) != 3:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    rows, peaks, picture = arguments
    pathlib.Path(picture).write_text(draw(read_lines(rows), read_lines(peaks)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
