# SPDX-License-Identifier: Apache-2.0
"""The benchmark of products runs, and holds a row of each kind against its bound."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

root = pathlib.Path(os.environ["TARTAN_ROOT"])
ROWS = {"spmm 1024, N 512, density 0.1, b 32 f32": "peak", "spmm, N 1, b 128, of the rate of reading f64": "memory", "spmm, N 511 beside 512, b 32 f64": "peer"}
with tempfile.TemporaryDirectory() as scratch:
    # Its results go into the folder that it lies in.
    program = pathlib.Path(scratch, "tests", "cpu", "products.py")
    program.parent.mkdir(parents=True)
    program.write_bytes((root / "tests" / "cpu" / "products.py").read_bytes())
    wanted = "|".join(f"^{name}$" for name in ROWS)
    found = subprocess.run([sys.executable, str(program), "--rounds", "1", "--only", wanted], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr  # 1: below a floor, which a busy machine may be
    rows = [json.loads(line) for line in pathlib.Path(scratch, "build", "bench", "cpu.jsonl").read_text().splitlines()]
    listed = subprocess.run([sys.executable, str(program), "--list", "--only", wanted], capture_output=True, text=True, check=True).stdout.splitlines()
assert {f"{r['row']} {r['dtype']}": r["bound"] for r in rows} == ROWS, rows
assert set(listed) == set(ROWS), listed
for row in rows:
    assert row["ms"] > 0 and row["bound_ms"] > 0 and abs(row["ratio"] - row["bound_ms"] / row["ms"]) < 1e-9, row
    assert row["verdict"] == ("goal" if row["ratio"] >= row["goal"] else "floor" if row["ratio"] >= row["floor"] else "BELOW"), row
assert "verdict" in found.stdout and " rows reach their goal, " in found.stdout, found.stdout

# The roofline has a point for each row with operations and bytes, under roofs of the dtypes that there are.
sys.path.insert(0, str(root / "tests" / "cpu"))
import roofline  # noqa: E402

peaks = [{"what": "multiply_adds", "dtype": d, "gflops": r} for d, r in (("float32", 100.0), ("float64", 50.0), ("bfloat16", 200.0))]
peaks += [{"what": "reading", "level": level, "gbytes_per_s": r} for level, r in (("L1", 200.0), ("memory", 10.0))]
image = roofline.draw(rows, peaks)
points = [r for r in rows if r["flops_per_byte"]]
xml.etree.ElementTree.fromstring(image)
assert len(points) == 2 and all(f"{r['row']}, {r['dtype']}: " in image for r in points), image
assert "f32 100 GFLOP/s" in image and "memory 10 GB/s" in image and "bf16 200" not in image and rows[0]["kernels"] in image, image
try:
    roofline.draw([r for r in rows if not r["flops_per_byte"]], peaks)
    raise AssertionError("no rows make no picture")
except ValueError as error:
    assert "no row says" in str(error)
print("ok")
