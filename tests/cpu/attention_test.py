# SPDX-License-Identifier: Apache-2.0
"""The benchmark of attention on the CPU: NumPy's attention, the rows, and small runs. Runs alone or under pytest."""
import json
import os
import subprocess
import sys
from pathlib import Path

try:
    import ml_dtypes  # noqa: F401
    import numpy as np
    import pytest
except ImportError:
    sys.exit(77)  # Meson: skipped

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import attention as bench
from attention_numpy import Head


def sample(block=(4, 8), tq=22, tk=30, d=5):
    """A head, and which keys each query sees; one block row is empty."""
    generator = np.random.default_rng(1)
    mask = generator.random((-(-tq // block[0]), -(-tk // block[1]))) < .6
    mask[1] = False
    seen = mask.repeat(block[0], 0)[:tq].repeat(block[1], 1)[:, :tk]
    return Head(*(generator.standard_normal((n, d)) for n in (tq, tk, tk)), block, *mask.nonzero()), seen


def test_numpy_forward():
    head, seen = sample()
    scores = np.where(seen, head.q @ head.k.T / np.sqrt(5), -np.inf)
    weights = np.exp(scores)
    total = weights.sum(1, keepdims=True)
    out, lse = head.forward()
    np.testing.assert_allclose(out, weights / np.where(total == 0, 1, total) @ head.v, rtol=0, atol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse, np.log(total[:, 0]), rtol=1e-12)
    assert np.isneginf(lse[4:8]).all() and (out[4:8] == 0).all()


def test_numpy_backward():
    head, _ = sample()
    generator = np.random.default_rng(2)
    out_grad = generator.standard_normal(head.q.shape)
    grads = head.backward(head.forward()[0], out_grad)
    for array, grad in zip((head.q, head.k, head.v), grads):
        step = generator.standard_normal(array.shape)
        values = []
        for sign in (1, -2, 1):
            array += sign * 1e-6 * step
            values.append((head.forward()[0] * out_grad).sum())
        assert (values[0] - values[1]) / 2e-6 == pytest.approx((grad * step).sum(), rel=1e-7)


def test_rows_hold_the_goals():
    rows = list(bench.rows(4096, 16))
    assert len(set(map(bench.text_of, rows))) == len(rows)

    def limits(peer, direction, type_name, name):
        return {(row.floor, row.goal) for row in rows if (row.peer, row.direction, row.case.type_name, row.case.name)
                == (peer, direction, type_name, name)}
    assert limits(bench.PEAK, "forward", "f32", "random 10%") == {(.50, .80)}
    assert limits(bench.PEAK, "forward", "bf16", "random 10%") == {(.22, .45)}
    for type_name in ("f32", "bf16"):
        assert limits(bench.SDPA, "forward", type_name, "all on") == {(.9, 1.2)}
        assert limits(bench.SDPA, "forward", type_name, "random 10%") == {(6.0, 9.0)}
    peaks = {(row.case.type_name, row.case.d, row.case.block[0]) for row in rows if row.peer == bench.PEAK}
    assert peaks == {(type_name, d, block) for type_name in ("f32", "bf16") for d in (64, 128) for block in (64, 128)}
    assert all(row.case.tq == 65536 for row in rows if row.metric == "memory")


def run(*options):
    found = subprocess.run([sys.executable, HERE / "attention.py", *options], capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr
    return found.stdout


def measured(only, **more):
    options = bench.parse(["--only", only, "--tokens", "300", "--rounds", "2", "--threads", "2"])
    made = bench.Bench(options)
    for name, value in more.items():
        setattr(made, name, value)
    return made, [result for _, result in made.run()]


def test_rows_of_one_thread():
    _, results = measured("one thread.*f32")
    assert len(results) == 4
    for r in results:
        assert r["ratio"] == pytest.approx(r["tflops"] / r["peer_tflops"]) and 0 < r["ratio"] < 1.5
        assert r["peer"] == f"{r['kernel']} peak" and r["error"] < 1e-5 and r["verdict"] in ("goal", "floor", "BELOW")


def test_rows_of_all_threads():
    made, results = measured("all threads.*d 64.*f32")
    assert {r["pass"] for r in results} == {"forward", "backward"}
    numpy_rows = [r for r in results if r["peer"] == bench.NUMPY]
    assert len(numpy_rows) == 3 and all(r["ratio"] > 0 and r["verdict"] == "shown" for r in numpy_rows)
    others = [r for r in results if r["peer"] == bench.SDPA]
    assert all(("peer_tflops" in r) == (made.torch is not None) for r in others)


def test_without_torch_rows_are_skipped():
    made = bench.Bench(bench.parse(["--only", "d 64.*SDPA.*bf16", "--tokens", "256", "--rounds", "1"]))
    made.torch = None
    results = [result for _, result in made.run()]
    assert results and all(r["verdict"] == "skipped" and "PyTorch" in r["note"] for r in results)


@pytest.mark.parametrize("spoil", ["out", "lse", 0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, 1.0])
def test_wrong_results_are_found(spoil, value):
    library = bench.tartan.Library()
    case = bench.random("f32", 32, 2, 100, 16)
    operands = bench.Operands(library, bench.tartan.Context(library, False, threads=1), case)
    for call in operands.calls.values():
        call()
    assert max(operands.check().values()) < 1e-5
    array = getattr(operands, spoil) if isinstance(spoil, str) else operands.gradients[spoil]
    array[0, 1, 70] += value
    assert operands.check()["forward" if isinstance(spoil, str) else "backward"] > 1e-3
    operands.free()


def test_wrong_rows_say_so(monkeypatch):
    monkeypatch.setattr(bench, "MOST_ERROR", {"f32": 0.0, "bf16": 0.0})
    _, results = measured("one thread.*d 64.*f32")
    assert [r["verdict"] for r in results] == ["WRONG"] * 2


def test_memory():
    held = float(run("--memory", "forward"))
    assert 5e8 < held < 2e9  # five arrays of 67 MB, and Python
    row = next(row for row in bench.rows(256, 1) if row.metric == "memory")
    result = bench.memory_result(row, {})
    assert result["ratio"] == pytest.approx(2e9 / result["bytes"]) and result["verdict"] == "goal"


def test_command():
    listed = run("--list", "--only", "one thread.*bf16").splitlines()
    assert len(listed) == 4 and all(line.endswith("| bf16") for line in listed)
    text = run("--only", "one thread.*d 64.*f32", "--tokens", "256", "--rounds", "1", "--markdown")
    assert "### Attention, one thread" in text and text.splitlines()[-1].startswith("2 rows: ")
    place = HERE.parents[1] / "build" / "bench" / "attention.jsonl"
    assert [json.loads(line)["pass"] for line in place.read_text().splitlines()] == ["forward", "forward"]
    none = subprocess.run([sys.executable, HERE / "attention.py", "--only", "nothing"], capture_output=True, text=True, check=False)
    assert none.returncode == 2 and "no row matches" in none.stderr


if __name__ == "__main__":
    results = os.environ.get("TARTAN_TEST_RESULTS")
    report = [f"--junitxml={results}/cpu_bench.xml"] if results else []
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *report, __file__]))
