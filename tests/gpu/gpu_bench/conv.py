# SPDX-License-Identifier: Apache-2.0
"""Convolutions with block-sparse filters and in sparse windows of images, on the CPU or a GPU: our operands, and the peers,
PyTorch's dense convolution (oneDNN, cuDNN) and SBNet's recipe of gather, dense convolution and scatter."""

import statistics
import time

import numpy as np

from . import library as tartan
from . import table
from .conv_cases import DENSE, FILTER_GRADIENT, FORWARD, INPUT_GRADIENT, PEAK, RECIPE, SHARE

try:
    import torch
except ImportError:
    torch = None

MOST_ERROR = {"f32": 1e-5, "bf16": 5e-3}  # of the norm of the result
CHANNELS_LAST = (0, 3, 1, 2)  # memory [n, h, w, channels] as [n, channels, h, w]
TOLERANCE = .05


# ---- Ours ----

def placed(array, case):
    """f32 numbers of NumPy as an operand: of NumPy on the CPU, of PyTorch on a GPU."""
    if case.threads:
        return np.ascontiguousarray(array, np.float32)
    return torch.from_numpy(np.ascontiguousarray(array, np.float32)).to("cuda", torch.bfloat16)


def as_channels(memory):
    return memory.transpose(CHANNELS_LAST) if isinstance(memory, np.ndarray) else memory.permute(CHANNELS_LAST)


def as_tensor(operand):
    return torch.from_numpy(operand) if isinstance(operand, np.ndarray) else operand


def as_numpy(operand):
    return operand if isinstance(operand, np.ndarray) else operand.float().cpu().numpy()


def error_of(ours, want):
    error = np.linalg.norm(ours - want) / max(float(np.linalg.norm(want)), 1e-30)
    return float(np.nan_to_num(error, nan=np.inf))


class Image:
    """x, the dense filter and, for gradients, y_grad, which all cases of an image share."""

    def __init__(self, case):
        generator = np.random.default_rng(1)
        self.memory = placed(generator.standard_normal((case.n, case.h, case.w, case.c), np.float32), case)
        self.x = as_channels(self.memory)
        self.dense = as_numpy(placed(generator.standard_normal((case.k, case.c, case.kernel, case.kernel), np.float32), case))
        self.y_grad = None
        if case.which != FORWARD:
            self.y_grad = placed(generator.standard_normal((case.n, case.h, case.w, case.k), np.float32), case)


class Ours:
    """A convolution as a call, with its result checked."""

    def __init__(self, library, context, case, image):
        self.case, self.library, self.image = case, library, image
        generator = np.random.default_rng(2)
        block = (case.block, case.block) if case.block else (min(case.k, 64), min(case.c, 64))
        mask = np.zeros(-(-case.k // block[0]) * -(-case.c // block[1]), np.uint8)
        mask[generator.permutation(mask.size)[: max(1, round(case.density * mask.size))]] = 1
        self.channels = tartan.Layout(library, case.k, case.c, block, mask=mask)
        self.conv = tartan.Conv(library, self.channels, f"kernel={case.kernel}x{case.kernel} padding=same")
        self.filter = tartan.Matrix(library, self.conv.layout, self.values())
        self.active, self.windows = None, None
        if case.windows:
            self.choose_windows(context, generator)
        to = case.c if case.which == INPUT_GRADIENT else case.k
        self.memory = None  # of an image
        if case.which != FILTER_GRADIENT:
            self.memory = placed(np.full((case.n, case.h, case.w, to), 7, np.float32), case)
        if case.which == FORWARD:
            self.call = tartan.conv_forward(context, self.conv, self.filter, image.x, as_channels(self.memory), self.active,
                                            self.windows)
        elif case.which == INPUT_GRADIENT:
            self.call = tartan.conv_input_gradient(context, self.conv, self.filter, as_channels(image.y_grad),
                                                   as_channels(self.memory))
        else:
            self.call = tartan.conv_filter_gradient(context, self.conv, image.x, as_channels(image.y_grad), self.filter)

    def values(self):
        """The blocks of the dense filter."""
        case, layout = self.case, self.conv.layout
        rows, cols = layout.block
        wide = np.zeros((layout.rows + rows, case.kernel ** 2, layout.cols // case.kernel ** 2), np.float32)
        wide[: case.k, :, : case.c] = self.image.dense.reshape(case.k, case.c, -1).transpose(0, 2, 1)
        wide = wide.reshape(wide.shape[0], -1)
        _, at, across = layout.coordinates(np)
        blocks = np.stack([wide[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols] for i, j in zip(at, across)])
        self.sparse = np.zeros_like(wide)
        for block, i, j in zip(blocks, at, across):
            self.sparse[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols] = block
        self.sparse = self.sparse[: case.k].reshape(case.k, case.kernel ** 2, -1)[:, :, : case.c]
        return placed(blocks, case)

    def choose_windows(self, context, generator):
        case, edge = self.case, self.case.windows
        counts = [-(-n // edge) for n in (case.h, case.w)]
        self.windows = f"size={edge}x{edge} stride={edge}x{edge} offset=0x0 count={counts[0]}x{counts[1]}"
        if case.corner:
            side = case.active ** .5
            image = np.zeros((case.n, case.h, case.w), np.float32)
            image[:, : round(case.h * side), : round(case.w * side)] = 1
            mask = image if case.threads else torch.from_numpy(image).cuda()
            text = f"pool=average tolerance={TOLERANCE}"
            times = []
            for _ in range(3):
                begin = time.perf_counter()
                self.active = tartan.windows_layout(context, mask, self.windows, text)
                context.sync()
                times.append(1e3 * (time.perf_counter() - begin))
            self.plan_ms = statistics.median(times)
            grid = np.pad(image, ((0, 0), *((0, n * edge - m) for n, m in zip(counts, image.shape[1:]))))
            self.mask = grid.reshape(case.n, counts[0], edge, counts[1], edge).mean((2, 4)) > TOLERANCE
        else:
            total = case.n * counts[0] * counts[1]
            mask = np.zeros(total, np.uint8)
            mask[generator.permutation(total)[: max(1, round(case.active * total))]] = 1
            self.active = tartan.Layout(self.library, counts[0], counts[1], 1, mask=mask, heads=case.n)
            self.mask = mask.reshape(case.n, *counts) != 0

    @property
    def share(self):
        """Of the output positions, those that are computed."""
        return float(self.seen().mean()) if self.case.windows else 1.0

    @property
    def flops(self):
        return self.case.dense_flops * self.channels.density * self.share

    def seen(self):
        case, edge = self.case, self.case.windows
        return self.mask.repeat(edge, 1).repeat(edge, 2)[:, : case.h, : case.w]

    def check(self):
        """The error of the result, as a share of its norm; infinite if other positions were written."""
        if self.case.which == INPUT_GRADIENT:
            return self.check_input_gradient()
        if self.case.which == FILTER_GRADIENT:
            return self.check_filter_gradient()
        case, half = self.case, self.case.kernel // 2
        x = np.pad(as_numpy(self.image.memory)[:1], ((0, 0), (half, half), (half, half), (0, 0)))
        want = np.zeros((case.h, case.w, case.k), np.float32)
        for tap in range(case.kernel ** 2):
            i, j = divmod(tap, case.kernel)
            want += x[0, i : i + case.h, j : j + case.w] @ np.ascontiguousarray(self.sparse[:, tap].T)
        ours = as_numpy(self.memory)[0]
        if case.windows:
            seen = self.seen()[0]
            if (ours[~seen] != 7).any():
                return float("inf")
            ours, want = ours[seen], want[seen]
        return error_of(ours, want)

    def check_input_gradient(self):
        """Of the first image."""
        case, half = self.case, self.case.kernel // 2
        dy = np.pad(as_numpy(self.image.y_grad[:1]), ((0, 0), (half, half), (half, half), (0, 0)))[0]
        want = np.zeros((case.h, case.w, case.c), np.float32)
        for tap in range(case.kernel ** 2):
            i, j = (2 * half - at for at in divmod(tap, case.kernel))
            want += dy[i : i + case.h, j : j + case.w] @ np.ascontiguousarray(self.sparse[:, tap])
        return error_of(as_numpy(self.memory[:1])[0], want)

    def check_filter_gradient(self):
        """All of it, beside sums in f32."""
        case, half, (rows, cols) = self.case, self.case.kernel // 2, self.conv.layout.block
        x, dy = self.image.memory, self.image.y_grad
        if isinstance(x, np.ndarray):
            x = np.pad(x, ((0, 0), (half, half), (half, half), (0, 0)))
        else:
            x, dy = torch.nn.functional.pad(x.float(), (0, 0, half, half, half, half)), dy.float()
        dy = dy.reshape(-1, case.k).T
        taps = [dy @ x[:, i : i + case.h, j : j + case.w].reshape(-1, case.c)
                for i in range(case.kernel) for j in range(case.kernel)]
        dense = np.concatenate([as_numpy(tap) for tap in taps], 1)
        _, at, across = self.conv.layout.coordinates(np)
        want = np.stack([dense[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols] for i, j in zip(at, across)])
        return error_of(as_numpy(self.filter.values), want)

    def free(self):
        for part in (self.filter, self.conv, self.channels, self.active):
            if part is not None:
                part.free()


# ---- Peers ----

def dense_peer(case, image):
    torch.backends.cudnn.benchmark = True
    x = as_tensor(image.memory).permute(CHANNELS_LAST)
    weight = torch.from_numpy(image.dense).to(x.device, x.dtype).contiguous(memory_format=torch.channels_last)
    half = case.kernel // 2
    if case.which == FORWARD:
        return lambda: torch.nn.functional.conv2d(x, weight, padding=half)
    dy, of_input = as_tensor(image.y_grad).permute(CHANNELS_LAST), case.which == INPUT_GRADIENT
    return lambda: torch.ops.aten.convolution_backward(dy, x, weight, None, (1, 1), (half, half), (1, 1), False, (0, 0), 1,
                                                       (of_input, not of_input, False))


def recipe_peer(ours):
    """Gather with the halo, the peer's convolution of the blocks, scatter."""
    case, edge, half = ours.case, ours.case.windows, ours.case.kernel // 2
    memory = as_tensor(ours.image.memory)
    counts = ours.mask.shape[1:]
    sizes = [n * edge for n in counts]
    wide = memory.new_zeros(case.n, sizes[0] + 2 * half, sizes[1] + 2 * half, case.c)
    wide[:, half : half + case.h, half : half + case.w] = memory
    size, (sn, sh, sw, sc) = edge + 2 * half, wide.stride()
    views = wide.as_strided((case.n, *counts, size, size, case.c), (sn, edge * sh, edge * sw, sh, sw, sc))
    places = [torch.from_numpy(at).to(memory.device) for at in ours.mask.nonzero()]
    weight = torch.from_numpy(ours.image.dense).to(memory.device, memory.dtype).contiguous(memory_format=torch.channels_last)
    y = memory.new_zeros(case.n, counts[0], edge, counts[1], edge, case.k).permute(0, 1, 3, 2, 4, 5)

    def call():
        blocks = views[places[0], places[1], places[2]].permute(CHANNELS_LAST)
        y[places[0], places[1], places[2]] = torch.nn.functional.conv2d(blocks, weight).permute(0, 2, 3, 1)
    return call


# ---- The run ----

def residual_kind():
    from . import residual
    return residual.Image, residual.Ours, residual.dense_peer


class Bench:
    def __init__(self, options):
        self.options, self.library = options, tartan.Library()
        cpu, self.timer, stream = options.device == "cpu", None, 0
        if not cpu:
            from . import timing
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)
            self.timer, stream = timing.CudaTimer(self.stream), self.stream.cuda_stream
        kinds = {1, options.threads} if cpu else {0}
        self.contexts = {n: tartan.Context(self.library, not cpu, stream, threads=n or None) for n in kinds}
        self.about = {"device": options.device if cpu else torch.cuda.get_device_name(), "tartan": self.library.version,
                      "torch": "none" if torch is None else torch.__version__, "threads": options.threads if cpu else None}

    def run(self):
        groups = {}
        for row in self.options.rows:
            groups.setdefault((row.section, row.case.image), []).append(row)
        for rows in groups.values():
            yield from self.measure(rows)

    def measure(self, rows):
        """Ours and the peers of one image, in turns."""
        kind = residual_kind() if rows[0].case.unit else (Image, Ours, dense_peer)
        threads, image = rows[0].case.threads, kind[0](rows[0].case)
        context, made, facts, arms = self.contexts[threads], {}, {}, {}
        if torch is not None and threads:
            torch.set_num_threads(threads)
        for case in dict.fromkeys(row.case for row in rows):
            try:
                ours = made[case] = kind[1](self.library, context, case, image)
                steps = self.library.explain_all(ours.call)
                ours.call()
                context.sync()
                kernels = dict.fromkeys(step.get("kernel") or step.get("instruction_set") for step in steps)
                facts[case] = {"kernel": ", ".join(filter(None, kernels)), "error": ours.check()}
                arms["ours", case] = ours.call
            except tartan.Refused as error:
                facts[case] = {"verdict": "REFUSED", "note": str(error)}
        if torch is not None and any(row.peer != PEAK for row in rows):
            arms[DENSE] = kind[2](rows[0].case, image)
        if any(row.peer == PEAK for row in rows):
            arms[PEAK] = None
        for row in rows:
            if row.peer == RECIPE and torch is not None and ("ours", row.case) in arms:
                arms[RECIPE, row.case] = recipe_peer(made[row.case])
        times = self.times(arms, context, threads)
        results = {row: self.result(row, made.get(row.case), facts[row.case], times) for row in rows if row.peer != SHARE}
        for row in rows:
            yield row, results[row] if row in results else self.break_even(row, results)
        for ours in made.values():
            ours.free()

    def times(self, arms, context, threads):
        """Seconds of each arm, PEAK's in FLOP/s. Of one thread on the CPU, its processor time: other processes disturb that less."""
        if self.timer is not None:
            from . import timing
            timed = {key: timing.Arm([call]) for key, call in arms.items()}
            for arm in timed.values():
                self.timer.prepare(arm, self.options.rounds)
            timing.measure(self.timer, timed.values(), self.options.rounds)
            return {key: [1e-3 * ms for ms in arm.times] for key, arm in timed.items()}
        times = {key: [] for key in arms}
        for call in filter(None, arms.values()):
            call()
        clock = time.thread_time if threads == 1 else time.perf_counter
        for _ in range(self.options.rounds):
            for key, call in arms.items():
                if call is None:
                    times[key].append(1e9 * context.peak("float32"))
                    continue
                time.sleep(.01)  # the threads of other libraries stop spinning
                begin = clock()
                call()
                times[key].append(clock() - begin)
        return times

    def result(self, row, ours, facts, times):
        case = row.case
        result = {"section": row.section, "name": row.name, "size": row.text.split(" | ")[1], "block": case.block,
                  "density": ours.channels.density if ours else case.density, "windows": case.windows, "active": case.active,
                  "peer": row.peer, "metric": row.metric, "floor": row.floor, "goal": row.goal,
                  "shape": [case.h, case.w, case.c, case.k]} | facts | self.about
        if "verdict" in facts:
            return result
        typical = min if row.peer == PEAK else statistics.median
        seconds = typical(times["ours", case])
        result |= {"share": ours.share, "ms": 1e3 * seconds, "tflops": 1e-12 * ours.flops / seconds,
                   "plan_ms": getattr(ours, "plan_ms", None)}
        if facts["error"] > MOST_ERROR[case.type_name]:
            return result | {"verdict": "WRONG", "note": f"error {facts['error']:.2g} of the norm"}
        theirs = times.get((RECIPE, case) if row.peer == RECIPE else row.peer)
        if theirs is None:
            return result | {"verdict": "skipped", "note": "this Python has no PyTorch"}
        if row.peer == PEAK:
            result |= {"peer_tflops": 1e-12 * max(theirs), "ratio": result["tflops"] / (1e-12 * max(theirs))}
        else:
            peer = statistics.median(theirs)
            result |= {"peer_ms": 1e3 * peer, "peer_tflops": 1e-12 * case.dense_flops / peer}
            result["ratio"] = peer / seconds if row.metric == "time" else result["tflops"] / result["peer_tflops"]
            result["speedup"] = peer / seconds
        return result | {"verdict": table.verdict(row, result["ratio"])}

    def break_even(self, row, results):
        """The largest share of active windows at which we are not slower than the dense peer."""
        found = [r for other, r in results.items() if other.peer == DENSE and other.section == row.section and "speedup" in r]
        result = {"section": row.section, "name": row.name, "size": row.text.split(" | ")[1], "block": 0, "density": 1.0,
                  "windows": row.case.windows, "peer": SHARE, "metric": "share", "floor": row.floor, "goal": row.goal,
                  "shape": [row.case.h, row.case.w, row.case.c, row.case.k]} | self.about
        if not found:
            return result | {"verdict": "skipped", "note": "no dense peer"}
        ratio = max([r["share"] for r in found if r["speedup"] >= 1], default=0.0)
        return result | {"ratio": ratio, "verdict": table.verdict(row, ratio)}
