#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What products cost on the CPU, against their goals.

Sparse products, attention and convolutions on one thread are held against the peak rate of multiply-adds that the same thread
reaches in registers, and what is bound by memory against the rate at which it reads. 4096 x 4096, N = 512 and density 10% unless a row says otherwise;
only operations on stored blocks count. Then two threads beside one, a new layout beside a call, and peers: a dense product of NumPy's BLAS and
of MKL, SciPy's BSR and CSR, MKL's BSR (where TARTAN_MKL names libmkl_rt), Julia's SparseArrays (where JULIA names a program). The arms of a row take turns with the measurement of the peak, and medians count. Calls
of one thread take its own time, so that others who use the core count less; two threads take the clock on the wall. Needs
NumPy, SciPy and the package tartan. Writes one JSON object per row to build/bench/cpu.jsonl, then prints the table and, if all rows
were measured, draws the roofline that README shows. Exit status 1: a row is
below its floor.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
import peers
import tartan
from tartan import BlockConv, BlockMatrix, Layout

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = 0.01  # seconds that a sample takes at least
BLOCKS = (8, 16, 32, 64, 128)
DTYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16"}


class Row:
    """A call, and what it is held against: useful operations at the rate of the peak, bytes that must be read or written once at the
    rate of reading, or another call (`share` of its time; `timed`: it returns its time). Those with operations and bytes (`moved`, or `touched` where they are not the bound) are points of the
    roofline. A row of one thread with another call and operations says, besides, what the ratio would be at the peak (`most`): a floor above it is beyond the
    machine."""

    def __init__(self, name, dtype, call, floor, goal, *, flops=0.0, moved=0.0, touched=0.0, other=None, share=1.0, timed=False, threads=1):
        self.name, self.dtype, self.call, self.floor, self.goal = name, dtype, call, floor, goal
        self.flops, self.moved, self.touched, self.threads = flops, moved, moved or touched, threads
        self.other, self.share, self.timed = other, share, timed


# ---- Operands ----


def draw(*shape, dtype="f32"):
    x = np.random.default_rng(len(shape) + shape[0]).standard_normal(shape)
    if dtype == "bf16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16)
    return x.astype(DTYPES[dtype])


def matrix(size, block, density, dtype):
    rows, cols = size if isinstance(size, tuple) else (size, size)
    shape = block if isinstance(block, tuple) else (block, block)
    layout = Layout.pattern("random", (rows, cols), shape, density=density, seed=1)
    w = BlockMatrix.zeros(layout, DTYPES[dtype]).fill_normal(seed=1)
    return w


def elements(w):
    return w.layout.blocks * math.prod(w.layout.block_shape)


def ordered(x, order):
    """The array with its columns or its rows contiguous."""
    return x if order == "rows" else np.ascontiguousarray(x.T).T


# ---- Rows ----


def spmm_rows(one):
    """Each transpose and each order of the operands."""
    for dtype in ("f32", "f64"):
        for block in BLOCKS:
            w = matrix(4096, block, 0.1, dtype)
            floor, goal = (0.60, 0.85) if block == 8 else (0.75, 0.90)
            for side in ("left", "right"):
                for transpose in (False, True):
                    for order in ("rows", "columns"):
                        shape = (4096, 512) if side == "left" else (512, 4096)
                        x, y = ordered(draw(*shape, dtype=dtype), order), ordered(draw(*shape, dtype=dtype), order)
                        text = ("A'" if transpose else "A") + " B" if side == "left" else "B " + ("A'" if transpose else "A")
                        yield Row(f"spmm {text}, {order}, b {block}", dtype,
                                  lambda w=w, x=x, y=y, s=side, t=transpose: tartan.spmm(w, x, side=s, transpose=t, out=y, context=one),
                                  floor, goal, flops=2.0 * elements(w) * 512,
                                  touched=w.values.nbytes + x.nbytes + y.nbytes if (side, transpose, order) == ("left", False, "rows") else 0)


def half_rows(one):
    has = tartan.info()["cpu"]["kernels"]
    for dtype in ("bf16", "f16"):
        for block in BLOCKS:
            w, x = matrix(4096, block, 0.1, dtype), draw(4096, 512, dtype=dtype)
            y = np.empty_like(x)
            call = lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one)  # noqa: E731
            flops = 2.0 * elements(w) * 512
            if dtype == "f16":
                w32, x32 = matrix(4096, block, 0.1, "f32"), draw(4096, 512)
                y32 = np.empty_like(x32)
                yield Row(f"spmm, b {block}, of f32's rate", dtype, call, 0.75, 0.95,
                          other=lambda w=w32, x=x32, y=y32: tartan.spmm(w, x, out=y, context=one))
            elif "amx" in has and block >= 32:
                yield Row(f"spmm by AMX, b {block}", dtype, call, 0.30, 0.50, flops=flops)
            elif "avx512bf16" in has and "amx" not in has:
                yield Row(f"spmm by AVX512-BF16, b {block}", dtype, call, *((0.45, 0.70) if block == 8 else (0.65, 0.85)), flops=flops)


def parts_rows(one):
    """f32 as sums of bf16, against the f32 peak."""
    if "amx" not in tartan.info()["cpu"]["kernels"]:
        return
    for mode, floor in (("bf16x3", 1.2), ("bf16x6", 1.0)):
        context = tartan.Context(threads=1, math_mode=mode)
        for block in (16, 32, 64, 128):
            w, x = matrix(4096, block, 0.1, "f32"), draw(4096, 512)
            y = np.empty_like(x)
            yield Row(f"spmm {mode}, b {block}", "f32", lambda w=w, x=x, y=y, c=context: tartan.spmm(w, x, out=y, context=c),
                      floor, 1.8, flops=2.0 * elements(w) * 512)


def sddmm_rows(one):
    for dtype in ("f32", "f64"):
        for block in BLOCKS:
            w, x, y = matrix(4096, block, 0.1, dtype), draw(4096, 512, dtype=dtype), draw(512, 4096, dtype=dtype)
            yield Row(f"sddmm, b {block}", dtype, lambda w=w, x=x, y=y: tartan.sddmm(w, x, y, beta=0.0, context=one), 0.65, 0.85,
                      flops=2.0 * elements(w) * 512, touched=w.values.nbytes + x.nbytes + y.nbytes)


def shape_rows(one):
    for dtype in ("f32", "f64"):
        for size, n, density in ((4096, 512, 0.01), (4096, 512, 0.5), (4096, 64, 0.1), (1024, 512, 0.1), (16384, 512, 0.1)):
            w, x = matrix(size, 32, density, dtype), draw(size, n, dtype=dtype)
            y = np.empty_like(x)
            yield Row(f"spmm {size}, N {n}, density {density:g}, b 32", dtype, lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one),
                      0.6, 0.8, flops=2.0 * elements(w) * n, touched=w.values.nbytes + x.nbytes + y.nbytes)
        for block in BLOCKS:
            w = matrix(4096, block, 0.1, dtype)
            for n in (1, 8):
                x = draw(4096, n, dtype=dtype)
                y = np.empty_like(x)
                yield Row(f"spmm, N {n}, b {block}, of the rate of reading", dtype,
                          lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one), 0.7, 0.9, flops=2.0 * elements(w) * n,
                          moved=w.values.nbytes + x.nbytes + y.nbytes)
        for block in (4, 12, 24, 48, 96, (5, 7)):
            w, x = matrix((4096, 4096), block, 0.1, dtype), draw(4096, 512, dtype=dtype)
            y = np.empty_like(x)
            text = block if isinstance(block, int) else "5x7"
            yield Row(f"spmm, b {text}", dtype, lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one), 0.35, 0.6,
                      flops=2.0 * elements(w) * 512)
        for block in (16, 32):
            w, x, x1 = matrix(4096, block, 0.1, dtype), draw(4096, 512, dtype=dtype), draw(4096, 511, dtype=dtype)
            y, y1 = np.empty_like(x), np.empty_like(x1)
            yield Row(f"spmm, N 511 beside 512, b {block}", dtype, lambda w=w, x=x1, y=y1: tartan.spmm(w, x, out=y, context=one), 0.90, 1.0,
                      other=lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one))


def attention_rows(one):
    for d in (64, 128):
        layout = Layout.pattern("random", (2048, 2048), 64, density=0.25, seed=1)
        q, k, v, g = (draw(1, 2048, d) for _ in range(4))
        pairs = layout.blocks * 64 * 64
        out, lse = tartan.attention(q, k, v, layout, return_lse=True, context=one)
        yield Row(f"attention, d {d}, b 64", "f32", lambda q=q, k=k, v=v, o=out: tartan.attention(q, k, v, layout, out=o, context=one), 0.65, 0.80,
                  flops=4.0 * pairs * d, touched=4 * q.nbytes)
        yield Row(f"attention backward, d {d}, b 64", "f32",
                  lambda q=q, k=k, v=v, o=out, l=lse, g=g: tartan.attention_gradient(q, k, v, layout, o, l, g, context=one), 0.60, 0.75,
                  flops=10.0 * pairs * d)


def conv_rows(one):
    for block in (16, 32, 64):
        layout = Layout.pattern("random", (256, 256), block, density=0.25, seed=1)
        conv = BlockConv(layout, (3, 3), padding="same", channels_last=True)
        w, x = BlockMatrix.zeros(conv.layout, "float32").fill_normal(seed=1), draw(4, 28, 28, 256)
        y = conv(x, w, context=one)
        g = np.ascontiguousarray(y)
        flops = 2.0 * w.values.size * 4 * 28 * 28
        yield Row(f"conv, b {block}", "f32", lambda c=conv, x=x, w=w, y=y: c(x, w, out=y, context=one), 0.65, 0.85, flops=flops,
                  touched=w.values.nbytes + x.nbytes + y.nbytes)
        dx = np.empty_like(x)
        yield Row(f"conv, gradient of the input, b {block}", "f32",
                  lambda c=conv, g=g, w=w, dx=dx: c.input_gradient(g, w, size=(28, 28), out=dx, context=one), 0.65, 0.85, flops=flops)
        yield Row(f"conv, gradient of the filter, b {block}", "f32", lambda c=conv, x=x, g=g: c.filter_gradient(x, g, context=one), 0.65, 0.85,
                  flops=flops)


def thread_rows(one):
    """Two threads beside one, and sixteen where there are as many cores."""
    cores = len(os.sched_getaffinity(0))
    for count, text, floor, goal in ((2, "two", 1.8, 1.95), (16, "sixteen", 11, 14)):
        if cores >= count:
            yield from team_rows(one, tartan.Context(threads=count), f"{text} threads beside one", floor, goal)
    if cores >= 16 and "amx" in tartan.info()["cpu"]["kernels"]:
        team = tartan.Context(threads=16)
        for block in (32, 64):
            w, x = matrix(4096, block, 0.1, "bf16"), draw(4096, 512, dtype="bf16")
            y = np.empty_like(x)
            call = lambda c, w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=c)  # noqa: E731
            yield Row(f"spmm by AMX, sixteen threads beside one, b {block}", "bf16", lambda f=call, c=team: f(c), 8, 11, flops=2.0 * elements(w) * 512,
                      other=lambda f=call: f(one), threads=16)


def team_rows(one, team, text, floor, goal):
    for dtype in ("f32", "f64"):
        for block in (32, 64):
            w, x, z = matrix(4096, block, 0.1, dtype), draw(4096, 512, dtype=dtype), draw(512, 4096, dtype=dtype)
            y = np.empty_like(x)
            for name, call in (("spmm", lambda c, w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=c)),
                               ("spmm A'", lambda c, w=w, x=x, y=y: tartan.spmm(w, x, transpose=True, out=y, context=c)),
                               ("sddmm", lambda c, w=w, x=x, z=z: tartan.sddmm(w, x, z, context=c))):
                yield Row(f"{name}, {text}, b {block}", dtype, lambda f=call: f(team), floor, goal, flops=2.0 * elements(w) * 512,
                          other=lambda f=call: f(one), threads=team.threads)
    layout = Layout.pattern("random", (2048, 2048), 64, density=0.25, seed=1)
    q, k, v = (draw(16, 2048, 64) for _ in range(3))
    yield Row(f"attention, {text}, b 64", "f32", lambda: tartan.attention(q, k, v, layout, context=team), floor, goal,
              other=lambda: tartan.attention(q, k, v, layout, context=one), threads=team.threads)
    if team.threads > 2:  # gelu is bound by memory before
        return
    big, out = draw(2048, 2048), np.empty((2048, 2048), np.float32)
    yield Row(f"gelu, {text}", "f32", lambda: tartan.gelu(big, out=out, context=team), floor, goal,
              other=lambda: tartan.gelu(big, out=out, context=one), threads=team.threads)


def plan_rows(one):
    """What a new layout costs, from row lists, beside a call."""
    for block in BLOCKS:
        w, x = matrix(4096, block, 0.1, "f32"), draw(4096, 512)
        y, (pointers, columns) = np.empty_like(x), w.layout.row_lists()
        yield Row(f"new layout beside 5% of spmm, b {block}", "f32", lambda w=w, p=pointers, c=columns: Layout.from_csr(w.layout.shape, w.layout.block_shape, p, c),
                  1.0, 1.0, other=lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one), share=0.05)


def dense_rows(one):
    """Per useful operation: at a density of 0.8 a dense product does 1.25 times the work."""
    library = peers.mkl()
    for dtype in ("f32", "f64"):
        for block in (8, 16, 32, 64):
            w, x = matrix(2048, block, 0.8, dtype), draw(2048, 512, dtype=dtype)
            y, dense, z = np.empty_like(x), np.ascontiguousarray(w.to_dense()), np.empty_like(x)
            call = lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one)  # noqa: E731
            yield Row(f"spmm, density 0.8, b {block}, times as fast as NumPy's dense product", dtype, call, 1.0, 1.2,
                      other=lambda a=dense, x=x, z=z: np.matmul(a, x, out=z))
            if library:
                yield Row(f"spmm, density 0.8, b {block}, times as fast as MKL's dense product", dtype, call, 1.0, 1.2, other=library.dense(dense, x, z))


def sparse_rows(one):
    library = peers.mkl()
    for dtype in ("f32", "f64"):
        for block in (8, 16, 32, 64):
            w, x = matrix(4096, block, 0.1, dtype), draw(4096, 512, dtype=dtype)
            y, z, a, flops = np.empty_like(x), np.empty_like(x), w.to_scipy("bsr"), 2.0 * elements(w) * 512
            call = lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one)  # noqa: E731
            yield Row(f"spmm, b {block}, N 512, times as fast as SciPy's BSR", dtype, call, 30, 40, flops=flops, other=lambda a=a, x=x: a @ x)
            if library:
                yield Row(f"spmm, b {block}, N 512, times as fast as MKL's BSR", dtype, call, 3, 4, flops=flops, other=library.bsr(a, x, z))
        for n, floor, goal in ((1, 1, 1.2), (64, 3, 4)):
            w, x = matrix(4096, 1, 0.01, dtype), draw(4096, n, dtype=dtype)
            y, a = np.empty_like(x), w.to_scipy().tocsr()
            yield Row(f"spmm, b 1, N {n}, times as fast as SciPy's CSR", dtype, lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one), floor, goal,
                      other=lambda a=a, x=x: a @ x)


def julia_rows(one):
    for block in (8, 16, 32, 64):
        w, x = matrix(4096, block, 0.1, "f64"), ordered(draw(4096, 512, dtype="f64"), "columns")
        y, program = np.empty_like(x), peers.julia(w.to_scipy("bsr"), x)
        if program:
            yield Row(f"spmm, columns, b {block}, N 512, times as fast as Julia's SparseArrays", "f64",
                      lambda w=w, x=x, y=y: tartan.spmm(w, x, out=y, context=one), 20, 30, flops=2.0 * elements(w) * 512, other=program.seconds,
                      timed=True)
            program.close()


GROUPS = (spmm_rows, half_rows, parts_rows, sddmm_rows, shape_rows, attention_rows, conv_rows, thread_rows, plan_rows, dense_rows, sparse_rows, julia_rows)


# ---- Measuring ----


def arm(call, threads=1):
    """Seconds of a call: the mean of as many as fill a sample."""
    clock = time.thread_time if threads == 1 else time.perf_counter

    def sample():
        begin, count, seconds = clock(), 0, 0.0
        while seconds < SAMPLE:
            call()
            count, seconds = count + 1, clock() - begin
        return seconds / count

    call()
    return sample


def reader():
    """Bytes a second that one thread reads, from 64 MiB."""
    x = np.ones(1 << 23)
    seconds = arm(lambda: np.max(x))

    return lambda: x.nbytes / seconds()


def measured(row, rounds, context, read):
    ours = arm(row.call, row.threads)
    other = row.other if row.timed or not row.other else arm(row.other, row.threads)
    samples, bounds, least = [], [], []
    for _ in range(rounds):
        samples.append(ours())
        if row.flops and not row.moved and row.threads == 1:
            least.append(row.flops / (1e9 * context.peak(DTYPES[row.dtype])))
        bounds.append(row.share * other() if other else row.moved / read() if row.moved else least[-1])
    seconds, bound = statistics.median(samples), statistics.median(bounds)
    ratio, most = bound / seconds, bound / statistics.median(least) if other and least else None
    return {"row": row.name, "dtype": row.dtype, "ms": 1e3 * seconds, "bound": "peer" if other else "memory" if row.moved else "peak",
            "bound_ms": 1e3 * bound, "ratio": ratio, "most": most, "floor": row.floor, "goal": row.goal, "gflops": 1e-9 * row.flops / seconds or None,
            "flops_per_byte": row.flops / row.touched if row.touched else None,
            "spread": (max(samples) - min(samples)) / seconds,
            "verdict": "goal" if ratio >= row.goal else "floor" if ratio >= row.floor else "beyond" if most and most < row.floor else "BELOW"}


# ---- The table ----


def lines(results):
    table = [("row", "dtype", "ms", "bound", "ms", "ratio", "floor", "goal", "verdict")]
    for r in results:
        verdict = f"beyond: {r['most']:.1f} at the peak" if r["verdict"] == "beyond" else r["verdict"]
        table.append((r["row"], r["dtype"], f"{r['ms']:.3f}", r["bound"], f"{r['bound_ms']:.3f}", f"{r['ratio']:.2f}", f"{r['floor']:g}",
                      f"{r['goal']:g}", verdict))
    widths = [max(map(len, column)) for column in zip(*table)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in table]


def markdown(results):
    """Tables for docs/performance.md: rows of several block sizes with a column for each, others with one for each dtype."""
    tables = {True: {}, False: {}}
    for r in results:
        match = re.fullmatch(r"(.*), b (\d+)(.*)", r["row"])
        key, column = ((match[1] + match[3], r["dtype"]), int(match[2])) if match else ((r["row"],), r["dtype"])
        tables[match is not None].setdefault(key, {})[column] = f"{r['ratio']:.2f}".removeprefix("0")
    for by_block, heads in ((True, ["op", "dtype"]), (False, ["row"])):
        columns = sorted({column for row in tables[by_block].values() for column in row})
        yield from ("| " + " | ".join(map(str, line)) + " |" for line in (heads + columns, ["---"] * (len(heads) + len(columns))))
        for key, row in tables[by_block].items():
            yield "| " + " | ".join([*key, *(row.get(column, "") for column in columns)]) + " |"
        yield ""


def processor():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    field = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    return f"{field.get('model name', '?')} (family {field.get('cpu family', '?')}, model {field.get('model', '?')})"


def picture(rows):
    """The roofline of this machine, where `tartan` is installed."""
    import roofline

    tool = shutil.which("tartan")
    if tool is None:
        return "no roofline: the program tartan is not on PATH"
    found = subprocess.run([tool, "bench", "peak", "--json", "--threads", "1"], capture_output=True, text=True, check=True)
    (ROOT / "docs" / "roofline.svg").write_text(roofline.draw(rows, [json.loads(line) for line in found.stdout.splitlines()]), encoding="utf-8")
    return "roofline: docs/roofline.svg"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose name and dtype match, such as 'sddmm.* f64'")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each arm (default 7)")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--markdown", action="store_true", help="only print the last run's ratios, as tables for docs/performance.md")
    options = parser.parse_args(arguments)
    if options.markdown:
        kept = (ROOT / "build" / "bench" / "cpu.jsonl").read_text(encoding="utf-8").splitlines()
        print("\n".join(markdown([json.loads(line) for line in kept])))
        return 0
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(name) != "1" and not options.list:  # NumPy's BLAS has read it already
            os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                                                                                 "TARTAN_NUM_THREADS": str(len(os.sched_getaffinity(0)))})
    one = tartan.Context(threads=1)
    place = ROOT / "build" / "bench"
    place.mkdir(parents=True, exist_ok=True)
    results, read = [], reader()
    kernels = tartan.info()["cpu"]["kernels"]
    with open(place / "cpu.jsonl", "w", encoding="utf-8") as file:
        for group in GROUPS:
            for row in group(one):
                if not re.search(options.only, f"{row.name} {row.dtype}"):
                    continue
                if options.list:
                    print(row.name, row.dtype)
                    continue
                results.append(measured(row, options.rounds, one, read) | {"processor": processor(), "kernels": kernels})
                file.write(json.dumps(results[-1]) + "\n")
                file.flush()
    if options.list:
        return 0
    print("\n".join(lines(results)))
    if not options.only:
        print(picture(results))
    count = {verdict: sum(r["verdict"] == verdict for r in results) for verdict in ("goal", "floor", "beyond", "BELOW")}
    beyond = f", of {count['beyond']} the floor is beyond this machine" if count["beyond"] else ""
    print(f"{processor()}, {kernels}: {count['goal']} rows reach their goal, {count['floor']} their floor, {count['BELOW']} neither{beyond}")
    return int(count["BELOW"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
