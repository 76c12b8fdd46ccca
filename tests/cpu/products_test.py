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
ROWS = {"spmm 1024, N 512, density 0.1, b 32 f32": "peak", "spmm, N 1, b 128, of the rate of reading f64": "memory", "spmm, N 511 beside 512, b 32 f64": "peer",
        "new layout beside 5% of spmm, b 128 f32": "peer"}
with tempfile.TemporaryDirectory() as scratch:
    # Its results go into the folder that it lies in.
    program = pathlib.Path(scratch, "tests", "cpu", "products.py")
    program.parent.mkdir(parents=True)
    for name in ("products.py", "peers.py", "sparse.jl"):
        program.with_name(name).write_bytes((root / "tests" / "cpu" / name).read_bytes())
    wanted = "|".join(f"^{name}$" for name in ROWS)
    found = subprocess.run([sys.executable, str(program), "--rounds", "1", "--only", wanted], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr  # 1: below a floor, which a busy machine may be
    rows = [json.loads(line) for line in pathlib.Path(scratch, "build", "bench", "cpu.jsonl").read_text().splitlines()]
    tables = subprocess.run([sys.executable, str(program), "--markdown"], capture_output=True, text=True, check=True).stdout
    listed = subprocess.run([sys.executable, str(program), "--list", "--only", wanted], capture_output=True, text=True, check=True).stdout.splitlines()
assert {f"{r['row']} {r['dtype']}": r["bound"] for r in rows} == ROWS, rows
assert set(listed) == set(ROWS), listed
for row in rows:
    assert row["ms"] > 0 and row["bound_ms"] > 0 and abs(row["ratio"] - row["bound_ms"] / row["ms"]) < 1e-9, row
    assert row["verdict"] == ("goal" if row["ratio"] >= row["goal"] else "floor" if row["ratio"] >= row["floor"] else "BELOW"), row
assert "verdict" in found.stdout and " rows reach their goal, " in found.stdout, found.stdout

# Peers multiply as NumPy does, where they are there, and time only their product.
sys.path.insert(0, str(root / "tests" / "cpu"))
import numpy as np  # noqa: E402
import peers  # noqa: E402
import products  # noqa: E402

w, x = products.matrix(96, 8, 0.4, "f64"), products.draw(96, 5, dtype="f64")
want = w.to_dense() @ x
mkl = peers.mkl()
for dtype in (np.float64, np.float32) if mkl else ():
    a, b = w.to_scipy("bsr").astype(dtype), x.astype(dtype)
    for call in (mkl.bsr, mkl.dense):
        y = np.full_like(b, np.nan)
        call(a if call == mkl.bsr else a.toarray(), b, y)()
        assert np.allclose(y, want, rtol=1e-4, atol=1e-4), call
julia = peers.julia(w.to_scipy("bsr"), x)
if julia:
    assert julia.seconds() >= 0 and np.isclose(julia.sum, want.sum())
    julia.close()
    assert julia.process.returncode == 0
os.environ.pop("JULIA", None), os.environ.pop("TARTAN_MKL", None)
assert peers.mkl() is None and peers.julia(w, x) is None


# A floor above what a peer's time allows at the peak is beyond the machine.
class Slow:
    def peak(self, dtype):
        return 1e-3


def verdict_of(peer_seconds, flops):
    row = products.Row("row", "f64", lambda: w.to_dense() @ x, 1e6, 2e6, flops=flops, other=lambda: peer_seconds, share=0.5, timed=True)
    return products.measured(row, 1, Slow(), None)


found = [verdict_of(2.0, 1e6), verdict_of(2.0, 0.0), verdict_of(1e9, 1e6)]
assert [r["verdict"] for r in found] == ["beyond", "BELOW", "goal"], found
assert [r["most"] for r in found] == [1.0, None, 5e8] and found[0]["bound_ms"] == 1e3, found
assert "beyond: 1.0 at the peak" in products.lines(found)[1], products.lines(found)

# The roofline has a point for each row with operations and bytes, under roofs of the dtypes that there are.
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
ratio = next(f"{r['ratio']:.2f}".removeprefix("0") for r in rows if r["row"] == "spmm 1024, N 512, density 0.1, b 32")
assert f"| spmm 1024, N 512, density 0.1 | f32 | {ratio} |" in tables, tables
