# SPDX-License-Identifier: Apache-2.0
"""The benchmark of training on a GPU, tried with a tiny model on the CPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "tests" / "gpu" / "train_bench.py"


def test_training(tmp_path):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--device", "cpu", "--samples", "2", "--blocks", "8"],
        capture_output=True, text=True, env={**os.environ, "OUT": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "gpu_train.jsonl").read_text().splitlines()]
    assert [x["row"] for x in rows] == [
        "linear layer", "change of layouts", "last layer and loss", "dense, graphs", "by hand", "patched", "patched, compiled",
        "loss in one, compiled",
    ]  # fmt: skip
    change = rows.pop(1)
    assert change["verdict"] == "" and change["step_ms"] > 0 and 0 <= change["share"] < 1
    assert all(x["verdict"] == "" and x["ms"] > 0 and x["dense_ms"] > 0 for x in rows)
