# SPDX-License-Identifier: Apache-2.0
"""The rows of the section "attention": what is measured, against whom, with which floor and goal."""

import dataclasses

import numpy

FORWARD, BACKWARD = "forward", "backward"
ANY_ORDER = "backward, deterministic=0"  # the same pass, which may add up dq in any order
DENSE, CAUSAL, FLEX, UNMASKED, COPY, HOST = ("dense SDPA", "causal SDPA", "FlexAttention", "unmasked", "copy", "SDPA on the host")
LONG = (32768, 65536)


@dataclasses.dataclass(frozen=True)
class Case:
    """Random q [batch, heads, tq, d], k and v [batch, heads, tk, d]; a layout of `block` (queries, keys) by a pattern of the
    library. `shared`: one layout for all heads. `masked`: an in-block mask that hides a quarter of the elements."""
    name: str
    block: tuple
    pattern: str
    parameters: str
    batch: int
    heads: int
    tq: int
    tk: int
    d: int
    causal: bool = False
    shared: bool = False
    masked: bool = False
    type_name: str = "bf16"

    @property
    def shape(self):
        """Cases of equal shape have the same q, k and v and the same dense peers."""
        return self.batch, self.heads, self.tq, self.tk, self.d

    @property
    def block_name(self):
        return str(self.block[0]) if self.block[0] == self.block[1] else f"{self.block[0]}x{self.block[1]}"

    @property
    def size_name(self):
        length = str(self.tq) if self.tq == self.tk else f"{self.tq}x{self.tk}"
        return f"{self.batch}x{self.heads}, {length}, d {self.d}"


def visible_pairs(case, heads, rows, cols, kept=None):
    """Pairs of a query and a key of all batch entries and heads; the arguments are the blocks of the layout, `kept` the number
    of elements that a bit mask keeps. No case has both a mask and the causal rule."""
    (bq, bk), each = case.block, case.batch * (case.heads if case.shared else 1)
    if kept is not None:
        return each * kept
    queries = rows[:, None] * bq + numpy.arange(bq)
    most = numpy.clip(case.tk - cols * bk, 0, bk)[:, None]
    seen = numpy.clip(queries + 1 - cols[:, None] * bk, 0, most) if case.causal else numpy.broadcast_to(most, queries.shape)
    return each * int(seen[queries < case.tq].sum())


@dataclasses.dataclass(frozen=True)
class Row:
    """`metric`: "rate" compares useful FLOP/s with those of the peer, "time" the times, "bytes" the bytes that must move with
    the copy rate of the device, "host" the host's time of a call. No floor: shown, not judged."""
    section: str
    case: Case
    direction: str
    peer: str
    metric: str
    floor: float | None = None
    goal: float | None = None

    @property
    def text(self):
        """What --only looks at."""
        c = self.case
        return f"{self.section} | {c.name} b{c.block_name} {c.size_name} | {self.direction} | {self.peer}"

    @property
    def group(self):
        """Rows of one group are timed together, in turns."""
        return self.section in ("attention flex", "attention host") and self.section, self.case.shape


# (floor, goal) of forward and backward, as ratios of useful FLOP/s to the best dense attention; None: shown, not judged
ALL_ON = (.70, .97), (.55, .93)
CAUSAL_ALL = (.68, .97), (.52, .92)
RANDOM = {128: ((.62, .92), (.48, .82)), 64: ((.52, .85), (.38, .68))}
RANDOM_DENSITIES = (.1, .3, .5)
NARROW = {(128, 32): ((.50, .88), (.32, .70)), (128, 16): ((.50, .88), (.32, .70)), (32, 32): ((.22, .42), (.15, .30)),
          (16, 16): ((.10, .22), None), (8, 8): ((.05, .11), None)}
PATTERNS = (.55, .92), (.40, .80)
OTHER_HEAD_SIZES = .9, (64, 256)  # of the ratios for d = 128
MASK = .75, .92                   # of the speed without the mask
DECODING = .50, .85               # of the copy rate
FLEX_LIMITS = (1.5, 2.2), (1.3, 2.0)  # times as fast as FlexAttention
HOST_LIMITS = 1.0, 1.0            # SDPA's host time over ours


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large. TINY is for a trial on the CPU; its patterns keep the number of blocks, not their edges."""
    sizes: tuple = (8192,)
    pattern_size: int = 16384
    keys: int = 65536
    heads: int = 16
    decoding: tuple = (4, 32)  # batch and heads
    head_sizes: tuple = OTHER_HEAD_SIZES[1]

    def batch(self, size):
        return 2 if size <= 8192 and self.heads == 16 else 1


TINY = Scale(sizes=(512,), pattern_size=2048, keys=2560, heads=2, decoding=(1, 2), head_sizes=(64,))


def with_peer(section, case, limits, peer=DENSE, metric="rate"):
    for direction, pair in zip((FORWARD, BACKWARD), limits):
        yield Row(section, case, direction, peer, metric, *(pair or (None, None)))


def full(batch, heads, size, d):
    return Case("all on", (128, 128), "dense", "", batch, heads, size, size, d, shared=True)


def causal(batch, heads, size, d):
    return Case("causal", (128, 128), "causal", "", batch, heads, size, size, d, causal=True, shared=True)


def random(block, density, batch, heads, size, d, **more):
    return Case(f"random {100 * density:g}%", block, "random", f"density={density:g}", batch, heads, size, size, d, **more)


def goal_rows(scale, size):
    shape = scale.batch(size), scale.heads, size, 128
    section = "attention"
    yield from with_peer(section, full(*shape), ALL_ON)
    yield from with_peer(section, causal(*shape), CAUSAL_ALL)
    yield from with_peer(section, causal(*shape), (None, None), CAUSAL, "time")
    for block, limits in RANDOM.items():
        for density in RANDOM_DENSITIES:
            yield from with_peer(section, random((block, block), density, *shape), limits)
    for block, limits in NARROW.items():
        yield from with_peer(section, random(block, .1, *shape), limits)
    for block in RANDOM:
        masked = random((block, block), .3, *shape, masked=True)
        yield from with_peer(section, dataclasses.replace(masked, name="bit mask, " + masked.name), (MASK, MASK), UNMASKED, "time")
    for d in scale.head_sizes:
        factor, shape = OTHER_HEAD_SIZES[0], (1, scale.heads, size, d)
        for case, limits in ((full(*shape), ALL_ON), (causal(*shape), CAUSAL_ALL),
                             (random((128, 128), .3, *shape), RANDOM[128]), (random((64, 64), .3, *shape), RANDOM[64])):
            yield from with_peer(section, case, [tuple(factor * value for value in pair) for pair in limits])


def pattern_cases(scale):
    """Those of the Sparse Transformer. "strided" is its permuted form: squares on the diagonal, 128 of them with stride 128."""
    shape, block = (1, scale.heads, scale.pattern_size, scale.pattern_size, 128), (128, 128)
    for name, pattern, parameters in (("local 1024", "local", "window=8 causal=1"),
                                      ("strided 128", "strided", f"stride={min(128, scale.pattern_size // 128)} causal=1"),
                                      ("strided 16", "strided", "stride=16 causal=1"),
                                      ("fixed 1024", "fixed", "stride=8 num_verts=2 vertsize=1 causal=1")):
        yield Case(name, block, pattern, parameters, *shape, causal=True, shared=pattern != "fixed")


def decoding_rows(scale):
    for queries in (1, 4, 16):
        case = Case("decoding 10%", (16, 128), "random", "density=0.1", *scale.decoding, queries, scale.keys, 128)
        yield Row("attention decoding", case, FORWARD, COPY, "bytes", *DECODING)


def flex_rows(scale):
    """Last: compiling FlexAttention takes longer than all measurements. Blocks of 64 it may refuse."""
    size = min(scale.sizes)
    shape = scale.batch(size), scale.heads, size, 128
    cases = [full(*shape), *(random((128, 128), density, *shape) for density in RANDOM_DENSITIES), causal(*shape),
             *pattern_cases(scale), random((64, 64), .3, *shape)]
    shape = 1, scale.heads, size, 64
    cases += [full(*shape), random((128, 128), .3, *shape), causal(*shape)]
    for case in cases:
        yield from with_peer("attention flex", case, FLEX_LIMITS, FLEX, "time")


def rows(scale, long=()):
    """`long`: further numbers of tokens."""
    for size in (*scale.sizes, *long):
        yield from goal_rows(scale, size)
    for case in pattern_cases(scale):
        yield from with_peer("attention patterns", case, PATTERNS)
    yield from decoding_rows(scale)
    case = full(1, scale.heads, 128, 128)
    yield from with_peer("attention host", case, (HOST_LIMITS, HOST_LIMITS), HOST, "host")
    yield from flex_rows(scale)
