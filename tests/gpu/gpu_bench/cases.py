# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark: what is measured, against whom, with which floor and goal."""

import dataclasses

LEFT, RIGHT = "left", "right"
BF16, F16, F32, F64, FP8 = "bfloat16", "float16", "float32", "float64", "float8_e4m3fn"
SHORT = {BF16: "bf16", F16: "f16", F32: "f32", F64: "f64", FP8: "fp8"}


@dataclasses.dataclass(frozen=True)
class Product:
    """spmm: the stored matrix is rows x cols, `size` the other size of the dense operands. sddmm: the result is rows x
    cols, `size` the summed size. `layout`: random, banded, dense, "ba m=.." or "experts e". `form` of sddmm: NT (the summed
    index is contiguous in both factors) or TN (in none). `rotate`: take turns among operand sets that exceed the cache."""
    operation: str
    dtype: str
    block: int
    rows: int
    cols: int
    size: int
    layout: str = "random"
    density: float = 0.1
    side: str = LEFT
    transpose: int = 0
    form: str = ""
    tf32: bool = False
    rotate: bool = False

    @property
    def type_name(self):
        return "tf32" if self.tf32 else SHORT[self.dtype]

    @property
    def name(self):
        if self.operation == "sddmm":
            return "sddmm " + self.form
        return f"spmm {self.side}{' T' if self.transpose else ''}"

    @property
    def dense_shape(self):
        """Shape (m, n, k) of the dense product that computes the same."""
        if self.operation == "sddmm":
            return self.rows, self.cols, self.size
        m, k = (self.cols, self.rows) if self.transpose else (self.rows, self.cols)
        return (m, self.size, k) if self.side == LEFT else (self.size, k, m)

    @property
    def size_name(self):
        if self.rows == self.cols == self.size:
            return str(self.rows)
        return f"{self.rows}x{self.cols}, {self.size}"


@dataclasses.dataclass(frozen=True)
class Row:
    """`metric`: "rate" compares useful FLOP/s with what the peer does, "time" the times for the same result, "bytes" the
    bytes that must move with the copy rate of the device. No floor: shown, not judged."""
    section: str
    product: Product
    peer: str  # cuBLAS, PyTorch BSR, cuSPARSE BSR, cuSPARSE ELL, cuBLAS bmm, copy
    metric: str
    floor: float | None = None
    goal: float | None = None

    @property
    def text(self):
        """What --only looks at."""
        p = self.product
        return f"{self.section} | {p.name} {p.type_name} b{p.block} {p.layout} {p.density:g} {p.size_name} | {self.peer}"

    @property
    def group(self):
        """Rows of one group are timed together, in turns."""
        p = self.product
        kind = "copy" if self.peer == "copy" else ""
        return p.type_name, tuple(sorted(p.dense_shape)), kind, p.layout if p.layout.startswith("experts") else ""


SPMM_16BIT = {128: (.70, .92), 64: (.42, .55), 32: (.22, .35), 16: (.12, .25), 8: (.06, .12)}
SDDMM_16BIT = {128: (.60, .90), 64: (.35, .58), 32: (.18, .30), 16: (.09, .15), 8: (.04, .07)}
SPMM_TF32 = {128: (.60, .85), 64: (.40, .55), 32: (.20, .33), 16: (.10, .20)}
SPMM_F64 = {64: (.70, .92), 32: (.55, .80), 16: (.35, .50), 8: (.15, .25)}
SPMM_F32 = {64: (.70, .90), 32: (.70, .90), 16: (.45, .70), 8: (.25, .45)}
SPMM_FP8 = {128: (.45, .80), 64: (.30, .50)}
BREAK_EVEN = {128: .8, 64: .5, 32: .3}
SIDES = [(LEFT, 0), (LEFT, 1), (RIGHT, 0), (RIGHT, 1)]


def cube(operation, dtype, block, size, **more):
    return Product(operation, dtype, block, size, size, size, **more)


def goal_rows(size):
    """The table of goals for M = N = K = size."""
    def against(product, limits, peer="cuBLAS", metric="rate", section="goals"):
        return Row(section, product, peer, metric, *limits)

    for dtype in (BF16, F16):
        for block, limits in SPMM_16BIT.items():
            for side, transpose in SIDES:
                yield against(cube("spmm", dtype, block, size, side=side, transpose=transpose), limits)
    yield against(cube("spmm", BF16, 64, size, layout="banded"), (.65, .80))
    yield against(cube("spmm", BF16, 64, size, density=.5), (.65, .80))
    yield against(cube("spmm", BF16, 32, size, layout="banded"), (.40, .55))
    for block, limits in SDDMM_16BIT.items():
        for form in ("NT", "TN"):
            yield against(cube("sddmm", BF16, block, size, form=form), limits)
    for block, limits in SPMM_TF32.items():
        yield against(cube("spmm", F32, block, size, tf32=True), limits)
    for block, limits in SPMM_F64.items():
        yield against(cube("spmm", F64, block, size), limits)
    for block, limits in SPMM_F32.items():
        yield against(cube("spmm", F32, block, size), limits)
    for block, limits in SPMM_FP8.items():
        yield against(cube("spmm", FP8, block, size), limits)
    for n in (64, 128):
        yield against(Product("spmm", BF16, 32, size, size, n, rotate=True), (.70, .70), "copy", "bytes", "minibatch")
    for block in (16, 32, 64, 128):
        factor = 3 if size <= 4096 else 2
        yield against(cube("spmm", BF16, block, size), (factor, factor), "PyTorch BSR", "time", "peers")
    for dtype, factor in ((F64, 10), (F32, 5)):
        for block in (16, 32, 64):
            for peer in ("cuSPARSE BSR", "cuSPARSE ELL"):
                yield against(cube("spmm", dtype, block, size), (factor, factor), peer, "time", "peers")
    for block, density in BREAK_EVEN.items():
        yield against(cube("spmm", BF16, block, size, density=density), (1, 1), "cuBLAS", "time", "break-even")


def barabasi_albert(side, density):
    """The `m` by which openai/blocksparse reaches a density on side x side blocks: blocks = 2m(n-m) + m^2 + n - m."""
    for m in range(1, side // 2):
        if 2 * m * (side - m) + m * m + side - m >= density * side * side:
            return m
    return None


def published_rows():
    """Settings of openai/blocksparse (hidden 2560 h, minibatch 64), MegaBlocks (experts, b = 128) and Qwen2.5-7B."""
    densities = (1, .2562, .1125, .0656, .0425, .0271, .0196, .0141)
    for h, density in enumerate(densities, start=1):
        hidden, block = 2560 * h, 32
        layout = "dense" if h == 1 else f"ba m={barabasi_albert(hidden // block, density)}"
        for more in ({}, {"transpose": 1}):
            product = Product("spmm", BF16, block, hidden, hidden, 64, layout, density, **more)
            yield Row("openai", product, "cuBLAS", "time")
        yield Row("openai", Product("sddmm", BF16, block, hidden, hidden, 64, layout, density, form="NT"), "cuBLAS", "time")
    for tokens, hidden, ffn, experts in ((65536, 512, 2048, 64), (32768, 768, 3072, 64), (8192, 1024, 4096, 64),
                                         (8192, 4096, 16384, 4)):
        shape = {"dtype": F16, "block": 128, "rows": tokens, "cols": ffn * experts, "size": hidden,
                 "layout": f"experts {experts}", "density": 1 / experts}
        yield Row("megablocks", Product("sddmm", form="NT", **shape), "cuBLAS bmm", "rate")
        yield Row("megablocks", Product("spmm", **shape), "cuBLAS bmm", "rate")
        yield Row("megablocks", Product("spmm", transpose=1, **shape), "cuBLAS bmm", "rate")
    for out, inner in ((3584, 3584), (512, 3584), (18944, 3584), (3584, 18944)):
        for tokens in (4096, 16384, 65536):
            product = Product("spmm", BF16, 128, out, inner, tokens, side=RIGHT, transpose=1)
            yield Row("qwen", product, "cuBLAS", "time")


def cliff_rows():
    """Block sizes that are no powers of two between those that are, at the multiple of the block nearest to 4096; odd numbers
    of columns beside even ones. No row may be below 0.7 of its neighbours."""
    for dtype, tf32 in ((BF16, False), (F32, False), (F32, True), (F64, False)):
        for block in (16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128):
            size = round(4096 / block) * block
            yield Row("cliffs", Product("spmm", dtype, block, size, size, 4096, tf32=tf32), "cuBLAS", "rate")
    for block in (16, 24, 32):
        size = round(4096 / block) * block
        yield Row("cliffs", Product("spmm", BF16, block, size, size, 4096, side=RIGHT), "cuBLAS", "rate")
    for dtype in (BF16, F64):
        for block in (16, 24, 32, 40, 48, 64, 72, 96, 120, 128):
            size = round(4096 / block) * block
            for form in ("NT", "TN") if dtype == BF16 else ("NT",):
                yield Row("cliffs", Product("sddmm", dtype, block, size, size, 4096, form=form), "cuBLAS", "rate")
    for n in (1, 2, 3, 7, 8, 15, 16, 63, 64):
        yield Row("cliffs", Product("spmm", BF16, 32, 8192, 8192, n), "cuBLAS", "time")
    for block in (8, 16, 24, 32, 72):
        size = round(4096 / block) * block
        yield Row("cliffs", Product("spmm", BF16, block, size, size, 64), "cuBLAS", "time")
    for n in (333, 336):
        yield Row("cliffs", Product("spmm", BF16, 32, 6144, 6144, n), "cuBLAS", "time")
    for dtype, tf32 in ((BF16, False), (F32, False), (F32, True), (F64, False)):
        for n in (511, 512, 4095, 4096):
            yield Row("cliffs", Product("spmm", dtype, 64, 4096, 4096, n, tf32=tf32), "cuBLAS", "time")
            yield Row("cliffs", Product("sddmm", dtype, 64, 4096, 4096, n, form="NT", tf32=tf32), "cuBLAS", "time")


def rows(sizes, published):
    for size in sizes:
        yield from goal_rows(size)
    if published:
        yield from published_rows()
        yield from cliff_rows()
