# SPDX-License-Identifier: Apache-2.0
"""The GPU benchmark without a GPU: its rows, its table, and attention tried on the CPU where PyTorch is there. Runs alone or under
pytest."""
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

try:
    import numpy
    import pytest
except ImportError:
    sys.exit(77)  # Meson: skipped

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from gpu_bench import attention_cases as cases
from gpu_bench import table
from gpu_bench.attention_cases import ANY_ORDER, BACKWARD, CAUSAL, COPY, DENSE, FLEX, FORWARD, HOST, UNMASKED

SCALE = cases.Scale()


def limits(name, direction, peer=DENSE, d=128, block=None):
    """The different (floor, goal) of rows."""
    return {(row.floor, row.goal) for row in cases.rows(SCALE)
            if re.fullmatch(name, row.case.name) and row.direction == direction and row.peer == peer and row.case.d == d
            and block in (None, row.case.block)}


def test_rows_hold_the_goals():
    for name, block, forward, backward in (
            ("all on", (128, 128), (.70, .97), (.55, .93)), ("causal", (128, 128), (.68, .97), (.52, .92)),
            ("random .*", (128, 128), (.62, .92), (.48, .82)), ("random .*", (64, 64), (.52, .85), (.38, .68)),
            ("random .*", (128, 32), (.50, .88), (.32, .70)), ("random .*", (128, 16), (.50, .88), (.32, .70)),
            ("random .*", (32, 32), (.22, .42), (.15, .30)), ("random .*", (16, 16), (.10, .22), (None, None)),
            ("random .*", (8, 8), (.05, .11), (None, None)), ("(local|strided|fixed) .*", (128, 128), (.55, .92), (.40, .80))):
        assert limits(name, FORWARD, block=block) == {forward}
        assert limits(name, BACKWARD, block=block) == {backward}
    assert limits("bit mask.*", FORWARD, UNMASKED) == limits("bit mask.*", BACKWARD, UNMASKED) == {(.75, .92)}
    assert limits("decoding.*", FORWARD, COPY) == {(.50, .85)}
    assert limits(".*", FORWARD, FLEX) == {(1.5, 2.2)} and limits(".*", BACKWARD, FLEX) == {(1.3, 2.0)}
    assert limits(".*", FORWARD, HOST) == limits(".*", BACKWARD, HOST) == {(1.0, 1.0)}
    for d in (64, 256):
        assert limits("all on", FORWARD, d=d) == {(.9 * .70, .9 * .97)}
        assert limits("causal", BACKWARD, d=d) == {(.9 * .52, .9 * .92)}
    names = {row.case.name for row in cases.rows(SCALE) if row.case.block == (128, 128)}
    assert names >= {"random 10%", "random 30%", "random 50%"}
    assert limits("causal", FORWARD, CAUSAL) == {(None, None)}


@pytest.mark.parametrize("scale", [SCALE, cases.TINY])
def test_rows_differ(scale):
    rows = list(cases.rows(scale, cases.LONG))
    assert len({row.text for row in rows}) == len({(row.case, row.direction, row.peer, row.section) for row in rows}) == len(rows)
    assert all(row.floor is None or row.floor <= row.goal for row in rows)
    assert {row.section for row in rows} <= set(table.TITLES)
    for row in rows:  # rows of a group share q, k and v
        assert all(other.case.shape == row.case.shape for other in rows if other.group == row.group)


def test_shapes_are_large_enough():
    for row in cases.rows(SCALE, cases.LONG):
        if row.peer not in (HOST,):
            assert row.case.batch * row.case.heads >= 16 and 8192 <= row.case.tk <= 65536


@pytest.mark.parametrize("block", [(8, 8), (8, 16), (32, 8)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_visible_pairs(block, causal, shared):
    tq, tk, heads = 37, 45, 3
    case = cases.Case("", block, "", "", 2, heads, tq, tk, 16, causal=causal, shared=shared)
    grid = 1 if shared else heads, -(-tq // block[0]), -(-tk // block[1])
    mask = numpy.random.default_rng(1).random(grid) < .5
    seen = mask.repeat(block[0], 1)[:, :tq].repeat(block[1], 2)[:, :, :tk]
    if causal:
        seen = seen & numpy.tri(tq, tk, dtype=bool)
    assert cases.visible_pairs(case, *mask.nonzero()) == 2 * (heads if shared else 1) * seen.sum()
    assert cases.visible_pairs(case, *mask.nonzero(), kept=10) == 20 * (heads if shared else 1)


# ---- The table ----

def result(**more):
    row = next(cases.rows(SCALE))
    return {"section": row.section, "case": row.case.name, "pass": row.direction, "block": row.case.block_name,
            "size": row.case.size_name, "peer": row.peer, "floor": row.floor, "goal": row.goal, "verdict": "goal"} | more


def test_table():
    results = [result(density=.5, kernel="k", error=1.25, ms=2.5, tflops=400.0, peer="cuDNN", peer_tflops=500.0, ratio=.8),
               result(verdict="REFUSED", note="no kernel")]
    text = table.lines(results, False)
    assert "attention" in text[1].lower() and text[2].split()[0] == "layout"
    assert re.search(r"all on +128 +2x16, 8192, d 128 +forward +50% +k +- +1\.25 +2\.50 +400 +cuDNN +500 +0\.80 +- +0\.70 +0\.97 +goal",
                     text[3])
    assert text[4].endswith("REFUSED  (no kernel)")
    marked = table.lines(results, True)
    assert marked[1].startswith("### Attention") and marked[3].count("|") == marked[4].count("|") == marked[5].count("|")
    assert marked[-1].startswith("* all on") and marked[-1].endswith("no kernel")
    assert table.failed(results) and not table.failed(results[:1])
    assert not table.failed([result(verdict=verdict) for verdict in ("shown", "floor", "peer refuses", "skipped")])
    assert table.summary(results) == "2 rows: 1 goal, 1 REFUSED"


def test_a_peer_may_be_missing():
    flex, dense = (next(row for row in cases.rows(SCALE) if row.peer == peer) for peer in (FLEX, DENSE))
    assert table.no_peer(flex) == "peer refuses" and table.no_peer(dense) == "NO PEER"


def test_list():
    listed = subprocess.run([sys.executable, HERE / "bench.py", "attention", "--list", "--no-flex", "--only", "decoding"],
                            capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(listed) == 3 and all(line.startswith("attention decoding | ") for line in listed)


# ---- Tried on the CPU ----

@pytest.fixture(scope="module")
def here():
    pytest.importorskip("torch")
    from gpu_bench import machine
    return machine.Machine("cpu", 600)


def measure(here, rows):
    from gpu_bench.attention import Attention
    return [result for _, result in Attention(SimpleNamespace(rows=rows, samples=2), here).run()]


def tiny(**more):
    return cases.Case("tiny", (32, 32), "random", "density=0.5", 1, 2, 100, 100, 16, **more)


@pytest.mark.parametrize("more", [{}, {"causal": True}, {"masked": True}, {"shared": True}])
def test_trial(here, more):
    rows = list(cases.with_peer("attention", tiny(**more), ((.1, .2), (.1, .2))))
    results = measure(here, rows)
    assert [r["pass"] for r in results] == [FORWARD, BACKWARD]
    for r in results:
        assert .5 < r["error"] <= 2 and r["ratio"] > 0 and r["peer"] == "flash" and "note" not in r
        assert r["ms"] > 0 and 0 < r["density"] < 1 and r["verdict"] in ("goal", "floor", "BELOW")
    assert "deterministic" not in results[0] and "other_ratio" not in results[0]


def test_the_faster_order_of_sums_is_judged(here):
    backward = next(row for row in cases.with_peer("attention", tiny(), ((.1, .2), (.1, .2))) if row.direction == BACKWARD)
    [r] = measure(here, [backward])
    assert r["deterministic"] in (0, 1) and r["ms"] <= r["other_ms"] and r["ratio"] >= r["other_ratio"] > 0
    assert f"backward, deterministic={r['deterministic']}" in table.lines([r], False)[3]


@pytest.mark.parametrize("failing", [BACKWARD, ANY_ORDER])
def test_an_order_of_sums_that_fails_fails_the_row(here, failing, monkeypatch):
    from gpu_bench import attention_operands
    run = attention_operands.Ours.run

    def spoiled(ours, direction):
        run(ours, direction)
        if direction == failing:
            ours.inputs.gradients[0].fill_(1)
    monkeypatch.setattr(attention_operands.Ours, "run", spoiled)
    backward = next(row for row in cases.with_peer("attention", tiny(), ((.1, .2), (.1, .2))) if row.direction == BACKWARD)
    [r] = measure(here, [backward])
    assert r["verdict"] == "WRONG" and r["deterministic"] == (failing == BACKWARD) and "q_grad" in r["note"]


def test_refusals_are_rows(here):
    bad = cases.Case("bad", (32, 32), "no such pattern", "", 1, 2, 100, 100, 16)
    rows = [*cases.with_peer("attention", bad, ((.1, .2), (.1, .2))), *cases.with_peer("attention", tiny(), (None, None))]
    results = measure(here, rows)
    assert [r["verdict"] for r in results] == ["REFUSED", "REFUSED", "shown", "shown"]
    assert all("no such pattern" in r["note"] for r in results[:2])


def test_late_rows_are_not_run(here):
    late = SimpleNamespace(**vars(here) | {"late": lambda: True})
    results = measure(late, list(cases.with_peer("attention", tiny(), ((.1, .2), (.1, .2)))))
    assert [r["verdict"] for r in results] == ["NOT RUN", "NOT RUN"]


def test_host_time(here, monkeypatch):
    """With a package in the place of ours, without one, and with one that refuses."""
    import torch

    def attention(q, k, v, _layout):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def refuse(*_):
        raise ValueError("no such case")
    pattern = SimpleNamespace(pattern=lambda *_: None)
    rows = [row for row in cases.rows(cases.TINY) if row.peer == HOST]
    for package, verdicts in ((SimpleNamespace(Layout=pattern, attention=attention), ("goal", "BELOW")), (None, ("skipped",)),
                              (SimpleNamespace(Layout=pattern, attention=refuse), ("REFUSED",))):
        monkeypatch.setitem(sys.modules, "tartan", package)
        results = measure(here, rows)
        assert [r["pass"] for r in results] == [FORWARD, BACKWARD] and all(r["verdict"] in verdicts for r in results)
        assert all(("ratio" in r) == (verdicts[0] == "goal") and ("note" in r) != ("ratio" in r) for r in results)


@pytest.mark.parametrize("spoil", ["out", "lse", "q_grad", "k_grad", "v_grad"])
@pytest.mark.parametrize("value", ["nan", "other"])
def test_wrong_results_are_found(here, spoil, value):
    from gpu_bench import attention_operands
    from gpu_bench.operands import Wrong
    case = tiny(causal=True)
    inputs = attention_operands.Inputs.make(case, here.generator, True)
    ours = attention_operands.Ours(here.library, here.contexts[False], case, inputs, True)
    ours.run(FORWARD)
    ours.run(BACKWARD)
    checker = ours.checker()
    assert checker.check_forward() <= 2 and checker.check_backward() <= 2
    arrays = dict(zip(("q_grad", "k_grad", "v_grad"), inputs.gradients)) | {"out": ours.out, "lse": ours.lse}
    arrays[spoil][0, 1, 99] = float("nan") if value == "nan" else arrays[spoil][0, 1, 99] + .1
    with pytest.raises(Wrong, match=spoil):
        checker.check_forward() if spoil in ("out", "lse") else checker.check_backward()
    ours.free()


@pytest.mark.parametrize("name", ["random 30%", "causal", "local 1024", "fixed 1024"])
def test_flex_attention_gets_the_same_blocks(here, name):
    from gpu_bench import attention_operands, attention_peers
    case = next(row.case for row in cases.rows(cases.TINY) if row.peer == FLEX and row.case.name == name)
    inputs = attention_operands.Inputs.make(case, here.generator, False)
    ours = attention_operands.Ours(here.library, here.contexts[False], case, inputs, False)
    mask = attention_peers.block_mask(case, ours.stored())
    assert (mask.to_dense().bool()[0] == ours.stored()).all()
    assert (mask.full_kv_num_blocks + mask.kv_num_blocks).sum() == ours.layout.blocks * (case.heads if case.shared else 1)
    assert bool(mask.kv_num_blocks.any()) == case.causal
    ours.free()


if __name__ == "__main__":
    results = os.environ.get("TARTAN_TEST_RESULTS")
    report = [f"--junitxml={results}/gpu_bench.xml"] if results else []
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *report, __file__]))
