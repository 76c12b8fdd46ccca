# SPDX-License-Identifier: Apache-2.0
"""What all rows of a run share: the device with its stream and timer, the library, and the clock of the whole run."""

import datetime
import subprocess
import sys
import time

import torch

from . import library, timing


def driver_version():
    """The version of the CUDA driver, as nvidia-smi has it, or None."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


class Machine:
    def __init__(self, device, limit):
        self.library = library.Library()
        self.cuda = device == "cuda"
        pointer = None
        self.about = {"date": datetime.date.today().isoformat(), "tartan": self.library.version, "torch": torch.__version__}
        if self.cuda:
            self.stream = torch.cuda.Stream()
            torch.cuda.set_stream(self.stream)
            pointer = self.stream.cuda_stream
            self.timer = timing.CudaTimer(self.stream)
            self.about |= {"gpu": torch.cuda.get_device_name(), "driver": driver_version(), "cuda": torch.version.cuda}
        else:
            self.stream, self.timer = None, timing.CpuTimer()
            self.about |= {"gpu": "none: tried on the CPU"}
        self.contexts = {tf32: library.Context(self.library, self.cuda, pointer, tf32) for tf32 in (False, True)}
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(1)
        self.begin, self.limit = time.monotonic(), limit

    def late(self):
        return time.monotonic() - self.begin > self.limit


def in_groups(rows, measure):
    """Yields what `measure` makes of the rows of each group, and says how long each took."""
    groups = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    for chosen in groups.values():
        begin = time.monotonic()
        yield from measure(chosen)
        print(f"# {chosen[0].group}: {len(chosen)} rows, {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
