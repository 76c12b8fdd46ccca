# SPDX-License-Identifier: Apache-2.0
"""Programs of two ranks that torch.distributed connects."""

import socket
import subprocess
import sys


def run_two_ranks(program):
    """Runs a program for each rank, with the rank and a free port as its arguments: both have to end with "equal"."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", program]
    ranks = [subprocess.Popen([*command, str(rank), port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    for rank in ranks:
        out, errors = rank.communicate(timeout=300)
        assert out.endswith("equal\n"), errors
