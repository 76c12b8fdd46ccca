# SPDX-License-Identifier: Apache-2.0
"""The benchmark of calls: its rows, and the verdicts on them."""

import json
import pathlib
import subprocess
import sys

import pytest

import tartan

CALLS = pathlib.Path(__file__).resolve().parents[3] / "tests/calls"


def verdicts(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return subprocess.run([sys.executable, CALLS / "table.py", path], capture_output=True, text=True)


@pytest.mark.parametrize("us, words, status", [(4, "goal", 0), (4.1, "floor", 0), (9, "floor", 0), (9.1, "ABOVE THE FLOOR", 1)])
def test_verdicts(tmp_path, us, words, status):
    row = {"language": "x", "case": "c", "us": us, "median_us": us, "floor_us": 9, "goal_us": 4}
    fine = {**row, "us": 1, "peer": "SciPy", "peer_us": 2.5}
    done = verdicts(tmp_path / "rows", [row, fine])
    lines = done.stdout.splitlines()
    assert lines[1].endswith(words) and "SciPy" in lines[2] and lines[2].endswith("goal")
    assert done.returncode == status


def test_no_rows_are_no_success(tmp_path):
    assert verdicts(tmp_path / "rows", []).returncode == 2


def test_rows_are_measured():
    done = subprocess.run(
        [sys.executable, CALLS / "python.py", "--rounds", "3"], capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) >= 3
    for row in rows:
        assert row["language"] == "python" and 0 < row["us"] <= row["median_us"] and row["goal_us"] < row["floor_us"]


def test_threads_of_the_process():
    most = tartan.get_num_threads()
    try:
        tartan.set_num_threads(1)
        assert tartan.get_num_threads() == 1
        with pytest.raises(tartan.ArgumentError, match="threads is -1, expected 0"):
            tartan.set_num_threads(-1)
        with pytest.raises(tartan.ArgumentTypeError, match="threads is of type str"):
            tartan.set_num_threads("2")
    finally:
        tartan.set_num_threads(0)
    assert tartan.get_num_threads() == most


def test_threadpoolctl_sees_and_limits_them():
    threadpoolctl = pytest.importorskip("threadpoolctl", "3.2")
    (found,) = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "tartan"]
    assert found["num_threads"] == tartan.get_num_threads() and found["version"] == tartan.__version__
    with threadpoolctl.threadpool_limits(1):
        assert tartan.get_num_threads() == 1
    assert tartan.get_num_threads() == found["num_threads"]
