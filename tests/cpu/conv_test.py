# SPDX-License-Identifier: Apache-2.0
"""The benchmark of convolutions: the rows, small runs, and what is written. Runs alone or under pytest."""
import csv
import dataclasses
import sys
from pathlib import Path

try:
    import numpy as np
    import pytest
except ImportError:
    sys.exit(77)  # Meson: skipped

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import conv_bench as bench
from gpu_bench import conv, conv_cases, table

GRADIENTS = conv_cases.INPUT_GRADIENT, conv_cases.FILTER_GRADIENT
SMALL = {"h": 20, "w": 24, "c": 32, "k": 48, "threads": 1}


@pytest.mark.parametrize("what", ["conv", "sbnet"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rows_hold_the_goals(what, device):
    rows = bench.parse([what, "--device", device]).rows
    texts = [row.text for row in rows]
    assert len(set(texts)) == len(texts)
    limits = {(row.floor, row.goal) for row in rows} - {(None, None)}
    assert limits == {("conv", "cpu"): {(.5, .85)}, ("sbnet", "cpu"): {(5.0, 8.0)},
                      ("conv", "cuda"): {(.5, .9), (.3, .75), (.15, .45), (.07, .22),  # 3x3; 1x1 as SpMM:
                                         (.42, .55), (.22, .35), (.12, .25), (.06, .12)},
                      ("sbnet", "cuda"): {(.45, .85), (.6, .85), (4.0, 8.0)}}[what, device]


def small_rows():
    blocks, windows = conv_cases.Case(**SMALL, block=16, density=.4), conv_cases.Case(**SMALL, windows=8, active=.3)
    corner = conv_cases.Case(**SMALL, windows=8, active=.3, corner=True)
    return [conv_cases.Row("conv", "3x3", blocks, conv_cases.PEAK, "rate", .5, .85), conv_cases.Row("conv", "3x3", blocks, conv_cases.DENSE, "time"),
            conv_cases.Row("sbnet", "windows", windows, conv_cases.RECIPE, "time"), conv_cases.Row("sbnet", "windows", windows, conv_cases.SHARE, "share"),
            conv_cases.Row("sbnet plans", "plan", corner, conv_cases.DENSE, "time"),
            *(conv_cases.Row("conv", which, dataclasses.replace(blocks, which=which), conv_cases.DENSE, "time") for which in GRADIENTS),
            conv_cases.Row("sbnet", "residual unit", conv_cases.Case(**SMALL, windows=8, active=.3, unit=True), conv_cases.DENSE, "time")]


def run(rows):
    options = bench.parse(["conv", "--rounds", "1", "--threads", "1"])
    options.rows = rows
    return dict(conv.Bench(options).run())


def test_small_runs():
    results = run(small_rows())
    assert len(results) == 8
    for row, result in results.items():
        if row.peer == conv_cases.PEAK:
            assert 0 < result["ratio"] < 1.5 and result["verdict"] in ("goal", "floor", "BELOW")
        assert result.get("error", 0) < 1e-5
        if row.section == "sbnet" and row.peer == conv_cases.RECIPE:
            assert 0.2 < result["share"] < 0.4
        if row.section == "sbnet plans":
            assert result["plan_ms"] > 0
    text = "\n".join(table.lines(list(results.values()), False))
    assert "b16" in text and "8x8" in text and "peak" in text


def test_a_wrong_result_is_found(monkeypatch):
    right = conv.tartan.conv_forward

    def wrong(context, made, filter_, x, y, *others):
        call = right(context, made, filter_, x, y, *others)

        def spoilt():
            call()
            y[0, 0, 0, 0] += 100
        return spoilt
    monkeypatch.setattr(conv.tartan, "conv_forward", wrong)
    (result,) = run(small_rows()[:1]).values()
    assert result["verdict"] == "WRONG" and table.failed([result])


def test_a_wrong_unit_is_found(monkeypatch):
    right = conv.tartan.residual_forward

    def wrong(context, x, parts, active, windows, y):
        call = right(context, x, parts, active, windows, y)

        def spoilt():
            call()
            y[0, 0] += 1
        return spoilt
    monkeypatch.setattr(conv.tartan, "residual_forward", wrong)
    (result,) = run(small_rows()[-1:]).values()
    assert result["verdict"] == "WRONG" and table.failed([result])


def test_the_peer_is_the_same_unit():
    torch = pytest.importorskip("torch")
    case = conv_cases.Case(**SMALL, windows=8, active=1.0, unit=True)
    image_of, ours_of, peer_of = conv.residual_kind()
    image, library = image_of(case), conv.tartan.Library()
    context = conv.tartan.Context(library, False, threads=1)
    ours = ours_of(library, context, case, image)
    memory = ours.copy()
    ours.unit(memory, [None] * 3)()
    found, plain = [], torch.Tensor.relu_
    try:
        torch.Tensor.relu_ = lambda tensor: found.append(plain(tensor)) or tensor
        peer_of(case, image)()
    finally:
        torch.Tensor.relu_ = plain
    assert len(found) == 3 and np.allclose(found[-1].permute(0, 2, 3, 1).numpy(), memory, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("which", GRADIENTS)
def test_a_wrong_gradient_is_found(monkeypatch, which):
    name = f"conv_{which.replace(' ', '_')}"
    right = getattr(conv.tartan, name)

    def wrong(context, made, first, second, result):
        call = right(context, made, first, second, result)

        def spoilt():
            call()
            getattr(result, "values", result)[0, 0, 0] += 100
        return spoilt
    monkeypatch.setattr(conv.tartan, name, wrong)
    (row,) = [row for row in small_rows() if row.case.which == which]
    (result,) = run([row]).values()
    assert result["verdict"] == "WRONG"


def test_recipe_is_the_same_convolution():
    torch = pytest.importorskip("torch")
    case, library = conv_cases.Case(**SMALL, windows=8, active=.5), conv.tartan.Library()
    context = conv.tartan.Context(library, False, threads=1)
    image = conv.Image(case)
    ours = conv.Ours(library, context, case, image)
    ours.call()
    found = {}
    plain = torch.nn.functional.conv2d
    try:
        torch.nn.functional.conv2d = lambda *a, **k: found.setdefault("y", plain(*a, **k))
        conv.recipe_peer(ours)()
    finally:
        torch.nn.functional.conv2d = plain
    whole = np.zeros((24, 24, 48), np.float32)
    whole[:20] = ours.memory[0]
    blocks = [whole[8 * i : 8 * i + 8, 8 * j : 8 * j + 8] for _, i, j in np.argwhere(ours.mask)]
    for block, (_, i, _), theirs in zip(blocks, np.argwhere(ours.mask), found["y"].permute(0, 2, 3, 1).numpy()):
        inside = slice(0, 4 if i == 2 else 8)
        assert np.allclose(block[inside], theirs[inside], rtol=1e-3, atol=1e-3)


def test_the_csv_has_the_best_windows(tmp_path):
    common = {"section": "sbnet plans", "name": "resnet-v2", "peer": conv_cases.DENSE, "shape": [400, 700, 96, 24], "active": .1,
              "share": .12, "verdict": "shown", "speedup": 2, "peer_ms": 12.0, "plan_ms": 1.0}
    results = [common | {"windows": 8, "ms": 5.0}, common | {"windows": 16, "ms": 3.0}, common | {"windows": 32, "ms": 4.0}]
    best = bench.best_windows(results)
    bench.write_csv(tmp_path / "x.csv", best)
    (row,) = csv.DictReader((tmp_path / "x.csv").open(encoding="utf-8"))
    assert tuple(row) == bench.COLUMNS and (row["BH"], row["speedup"], row["block_sparsity"]) == ("16", "3.000", "0.8800")
    pytest.importorskip("matplotlib")
    bench.plot(tmp_path / "x.svg", [b | {"device": "cpu"} for b in best])
    assert (tmp_path / "x.svg").stat().st_size > 1000


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", __file__]))
