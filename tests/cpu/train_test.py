# SPDX-License-Identifier: Apache-2.0
"""The benchmark of training runs, and its table has a row for each operation."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(os.environ["TARTAN_ROOT"])
with tempfile.TemporaryDirectory() as scratch:
    # Its results go into the folder that it lies in.
    program = pathlib.Path(scratch, "tests", "cpu", "train.py")
    program.parent.mkdir(parents=True)
    program.write_bytes((root / "tests" / "cpu" / "train.py").read_bytes())
    found = subprocess.run([sys.executable, str(program), "--rounds", "1", "--only", "^(relu|softmax|adam)$"], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr  # 1: below a floor, which a busy machine may be
    rows = [json.loads(line) for line in pathlib.Path(scratch, "build", "bench", "cpu_train.jsonl").read_text().splitlines()]
assert [r["row"] for r in rows] == ["relu", "softmax", "adam"], rows
assert rows[0]["bound"] == rows[2]["bound"] == "memory" and rows[1]["bound"] in ("memory", "exp"), rows
for row in rows:
    assert row["ms"] > 0 and 0 < row["ratio"] < 100, row
    assert row["verdict"] == ("goal" if row["ratio"] >= 0.85 else "floor" if row["ratio"] >= 0.6 else "BELOW"), row
assert all(text in found.stdout for text in ("verdict", "GB/s", "exponentials")), found.stdout
print("ok")
