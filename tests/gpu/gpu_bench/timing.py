# SPDX-License-Identifier: Apache-2.0
"""Times of arms in turns. An arm is a list of calls that ask for work on one stream; a sample is the mean of as many calls as
last long enough for events to resolve, taken from a CUDA graph where the arm can be captured, so that neither Python nor the
launch of kernels counts; else they are asked for while the GPU is kept busy."""

import math
import statistics
import time

import torch

SAMPLE_MS = 0.5    # a sample is at least so long,
MOST_CALLS = 64    # or so many calls
BUDGET_MS = 1500   # of one arm's samples
GRAPH_BELOW_MS = 0.3
SLOW_MS = 20


class Arm:
    """`calls` are taken in turns; `before` is run ahead of each capture or sample (global switches of a library). `capture`:
    whether a CUDA graph may hold the calls."""

    def __init__(self, calls, before=None, capture=True):
        self.calls, self.before, self.capture = list(calls), before or (lambda: None), capture
        self.times, self.graph, self.count, self.host_ms, self.samples = [], None, 1, 0.0, 0

    @property
    def ms(self):
        return statistics.median(self.times)

    @property
    def how(self):
        return "graph" if self.graph is not None else "queue"

    def ask(self, count):
        for i in range(count):
            self.calls[i % len(self.calls)]()

    def free(self):
        self.calls, self.graph, self.before = [], None, None


class CpuTimer:
    """Wall time, to try the program on a machine without a GPU."""

    def prepare(self, arm, samples):
        arm.before()
        arm.ask(len(arm.calls))
        arm.count, arm.samples = len(arm.calls), min(samples, 3)

    def sample(self, arm):
        begin = time.perf_counter()
        arm.ask(arm.count)
        arm.times.append(1e3 * (time.perf_counter() - begin) / arm.count)


class CudaTimer:
    def __init__(self, stream):
        self.stream = stream
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._spin(200_000_000)  # clocks rise
        begin = time.perf_counter()
        self._spin(20_000_000)
        self.cycles_per_ms = 20_000_000 / (1e3 * (time.perf_counter() - begin))

    def _spin(self, cycles):
        torch.cuda._sleep(cycles)
        self.stream.synchronize()

    def _time(self, work, ahead_ms):
        """ms between the events around `work`, which is asked for while the GPU spins for `ahead_ms`."""
        if ahead_ms > 0:
            torch.cuda._sleep(int(ahead_ms * self.cycles_per_ms))
        self.begin.record(self.stream)
        work()
        self.end.record(self.stream)
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)

    def prepare(self, arm, samples):
        """Warms up, then chooses how and how often."""
        arm.before()
        turns = len(arm.calls)
        arm.ask(turns)
        self.stream.synchronize()
        begin = time.perf_counter()
        ms = self._time(lambda: arm.ask(1), 0)
        arm.host_ms = 1e3 * (time.perf_counter() - begin)  # at most
        if ms < SLOW_MS:
            ms = self._time(lambda: arm.ask(2), min(3 * arm.host_ms, 10.0)) / 2
        arm.count = max(1, min(math.ceil(SAMPLE_MS / max(ms, 1e-3)), MOST_CALLS))
        arm.count = turns * math.ceil(arm.count / turns)
        if arm.capture and ms < GRAPH_BELOW_MS:
            self._capture(arm)
        total = max(ms, arm.host_ms) * arm.count
        arm.samples = max(2 if total > BUDGET_MS else 3, min(samples, int(BUDGET_MS / total)))

    def _capture(self, arm):
        graph = torch.cuda.CUDAGraph()
        try:
            graph.capture_begin()
            try:
                arm.ask(arm.count)
            finally:
                graph.capture_end()
            graph.replay()
            self.stream.synchronize()
            arm.graph = graph
        except RuntimeError:  # timed without a graph then
            torch.cuda.synchronize()

    def sample(self, arm):
        if arm.graph is not None:
            ms = self._time(arm.graph.replay, 0.05)
        else:
            arm.before()
            ms = self._time(lambda: arm.ask(arm.count), min(1.3 * arm.host_ms * arm.count + 0.05, 50.0))
        arm.times.append(ms / arm.count)


def measure(timer, arms, samples):
    """Fills in the times of prepared arms, one sample of each in turn."""
    for i in range(samples):
        for arm in arms:
            if i < arm.samples:
                timer.sample(arm)


def first_call_ms(context, call):
    """Wall time that the first of three calls takes more than the others; of two, if they are slow."""
    times = []
    context.sync()
    for _ in range(3):
        begin = time.perf_counter()
        call()
        context.sync()
        times.append(1e3 * (time.perf_counter() - begin))
        if len(times) == 2 and times[1] > SLOW_MS:
            break
    return max(times[0] - min(times[1:]), 0.0)
