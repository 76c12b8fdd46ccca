# SPDX-License-Identifier: Apache-2.0
"""The rows of convolutions with block-sparse filters ("conv") and in sparse windows of images ("sbnet"), with their goals."""

import dataclasses

from .cases import SPMM_16BIT

PEAK, DENSE, RECIPE, SHARE = "peak", "dense", "recipe", "break-even"
FORWARD, INPUT_GRADIENT, FILTER_GRADIENT = "forward", "input gradient", "filter gradient"
# SBNet's plans of channels: (H, W, C, K) of the four stages.
SIZES = ((400, 700), (200, 350), (100, 175), (50, 88))
PLANS = {"resnet-50": ((256, 64), (512, 128), (1024, 256), (2048, 512)),
         "resnet-v2": ((96, 24), (192, 48), (256, 64), (384, 96)),
         "resnet-v3": ((128, 32), (256, 64), (384, 96), (512, 128))}
SPARSITIES = (.6, .65, .7, .75, .8, .85, .9, .95, .99)


@dataclasses.dataclass(frozen=True)
class Case:
    """Images [n, c, h, w], channels last, to k channels, with padding that keeps the size. `block` of channels and `density` of
    the filter, 0 and 1 if it is dense; `windows`: edge of the windows of which the share `active` is computed, 0: all."""
    h: int
    w: int
    c: int
    k: int
    block: int = 0
    density: float = 1.0
    windows: int = 0
    active: float = 1.0
    corner: bool = False  # the active part is the upper left corner, else windows are chosen at random
    kernel: int = 3
    n: int = 1
    type_name: str = "f32"
    threads: int = 0  # 0: a GPU
    unit: bool = False  # a bottleneck unit (residual.py): from c channels to k, 3x3, back to c
    which: str = FORWARD

    @property
    def image(self):
        """Cases of one image, kernel and pass have the same operands and the same dense peer."""
        return self.h, self.w, self.c, self.k, self.kernel, self.n, self.type_name, self.threads, self.unit, self.which

    @property
    def dense_flops(self):
        if self.unit:
            return 2.0 * self.n * self.h * self.w * self.k * (2 * self.c + 9 * self.k)
        return 2.0 * self.n * self.h * self.w * self.c * self.k * self.kernel ** 2


@dataclasses.dataclass(frozen=True)
class Row:
    """`metric`: "rate" compares useful FLOP/s with the peer's, "time" the times. No floor: shown, not judged."""
    section: str
    name: str
    case: Case
    peer: str
    metric: str
    floor: float | None = None
    goal: float | None = None

    @property
    def text(self):
        c = self.case
        what = f"b{c.block} {100 * c.density:.0f}%" if c.block else "dense filter"
        where = f"windows {c.windows} {100 * c.active:.0f}%" if c.windows else "all"
        return f"{self.section} | {self.name} {c.kernel}x{c.kernel} {c.n}x{c.h}x{c.w} {c.c}->{c.k} {c.type_name} | {what} | {where} | {self.peer}"


def conv_rows(options):
    if options.device == "cpu":
        base = Case(56, 56, 256, 256, threads=1)
        for block, density in ((b, d) for b in (64, 32, 16, 8) for d in (.1, .25, .5)):
            case = dataclasses.replace(base, block=block, density=density)
            yield Row("conv", "3x3", case, PEAK, "rate", *((.5, .85) if block >= 16 else ()))
            yield Row("conv", "3x3", case, DENSE, "time")
        yield Row("conv", "1x1", dataclasses.replace(base, kernel=1, block=32, density=.25), PEAK, "rate")
        return
    limits = {64: (.5, .9), 32: (.3, .75), 16: (.15, .45), 8: (.07, .22)}
    for base in (Case(56, 56, 256, 256, n=32, type_name="bf16"), Case(28, 28, 512, 512, n=32, type_name="bf16")):
        for block, density in ((b, d) for b in limits for d in (.1, .25, .5)):
            yield Row("conv", "3x3", dataclasses.replace(base, block=block, density=density), DENSE, "rate", *limits[block])
        for which in (INPUT_GRADIENT, FILTER_GRADIENT):
            for block, density in ((b, d) for b in limits for d in (.1, .25, .5)):
                case = dataclasses.replace(base, block=block, density=density, which=which)
                yield Row("conv", f"{which} of", case, DENSE, "rate")
        for block, density in ((b, d) for b in limits for d in (.25, .5)):
            yield Row("conv", "1x1", dataclasses.replace(base, kernel=1, block=block, density=density), DENSE, "rate",
                      *SPMM_16BIT[block])


def sbnet_rows(options):
    cpu = options.device == "cpu"
    type_name, threads = ("f32", options.threads) if cpu else ("bf16", 0)
    for channels in (64,) if cpu else (64, 128, 256):
        base = Case(400, 704, channels, channels, windows=16, type_name=type_name, threads=threads)
        shares = (.1, .25, .5, .6, .7, .85, 1.0)
        for active in shares:
            case = dataclasses.replace(base, active=active)
            if cpu:
                yield Row("sbnet", "random windows", case, DENSE, "time", *((5.0, 8.0) if active == .1 else ()))
            else:
                yield Row("sbnet", "random windows", case, DENSE, "rate", *((.45, .85) if active <= .5 else ()))
            yield Row("sbnet", "random windows", case, RECIPE, "time")
        yield Row("sbnet", "random windows", base, SHARE, "share", *(() if cpu else (.6, .85)))
    (h, w), (c, k) = SIZES[1], PLANS["resnet-50"][1]
    for windows, active in ((w, a) for w in (8, 16, 32) for a in (.1, .25, .5)):
        case = Case(h, w, c, k, windows=windows, active=active, type_name=type_name, threads=threads, unit=True)
        limits = ((5.0, 8.0) if cpu else (4.0, 8.0)) if (windows, active) == (16, .1) else ()
        yield Row("sbnet", "residual unit", case, DENSE, "time", *limits)
    for plan in options.plans:
        for (h, w), (c, k) in zip(SIZES, PLANS[plan]):
            for sparsity in options.sparsities:
                for windows in (8, 16, 32):
                    case = Case(h, w, c, k, windows=windows, active=round(1 - sparsity, 2), corner=True, type_name=type_name,
                                threads=threads)
                    yield Row("sbnet plans", plan, case, DENSE, "time")
                    yield Row("sbnet plans", plan, case, RECIPE, "time")
