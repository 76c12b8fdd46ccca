# SPDX-License-Identifier: Apache-2.0
"""`tartan bench`: what its lines hold, and that they are consistent."""

import json
import re
import sys

import pytest
from tool import HERE, run

KEYS = {"op", "device", "kernels", "dtype", "threads", "block", "density", "shape", "heads", "ms", "tflops", "planning_ms",
        "peak_tflops_per_thread", "samples", "peers", "ratios"}


def bench(*arguments, **env):
    text = run("bench", *arguments, "--json", PYTHON=sys.executable, TARTAN_SCIPY_PEER=str(HERE.parent / "scipy_peer.py"),
               **env)
    return [json.loads(line) for line in text.splitlines()]


def near(a, b):
    return a == pytest.approx(b, rel=1e-4)


@pytest.mark.parametrize("operation", ["spmm", "sddmm"])
def test_bench(operation):
    lines = bench(operation, "--size", "256x128", "--n", 32, "--block", "8,32", "--dtype", "f32,f64", "--rounds", 3,
                  "--density", 0.25, "--threads", 2)
    assert [(line["dtype"], line["block"]) for line in lines] == [("float32", 8), ("float32", 32), ("float64", 8),
                                                                  ("float64", 32)]
    for line in lines:
        assert set(line) == KEYS and line["op"] == operation and line["device"] == "cpu"
        assert line["shape"] == [256, 128, 32] and line["threads"] == 2 and line["samples"] == 3
        assert near(line["density"], 0.25) and line["ms"] > 0 and line["planning_ms"] > 0
        assert line["peak_tflops_per_thread"] > 0
        useful, dense = 2e-9 * 256 * 128 * 32 * line["density"], 2e-9 * 256 * 128 * 32
        assert near(line["tflops"], useful / line["ms"])
        assert near(line["ratios"]["peak"], line["tflops"] / (2 * line["peak_tflops_per_thread"]))
        assert set(line["peers"]) == {"openblas", "mkl", "scipy", "scipy_csr"}
        assert set(line["ratios"]) == {*line["peers"], "peak"}
        for name, peer in line["peers"].items():
            if peer["tflops"] is None:
                assert peer["reason"] and line["ratios"][name] is None
                continue
            work = useful if name.startswith("scipy") else dense
            assert near(peer["tflops"], work / peer["ms"]) and peer["samples"] == 3
            assert near(line["ratios"][name], line["tflops"] / peer["tflops"])
        scipy_there = [line["peers"][name]["tflops"] is not None for name in ("scipy", "scipy_csr")]
        assert scipy_there == [operation == "spmm"] * 2, line["peers"]
        if line["peers"]["openblas"]["tflops"] is not None:
            assert line["peers"]["openblas"]["core"]


def test_bench_takes_the_best_openblas():
    """An environment that names a lesser core type must not make the peer a straw man."""
    arguments = ["spmm", "--size", 128, "--n", 32, "--block", 32, "--dtype", "f32", "--rounds", 1]
    (line,) = bench(*arguments, OPENBLAS_CORETYPE="Prescott")
    if line["peers"]["openblas"]["tflops"] is None:
        pytest.skip(line["peers"]["openblas"]["reason"])
    assert line["peers"]["openblas"]["core"] != "Prescott" or "avx2" not in run("info")


def test_bench_without_peers():
    (line,) = bench("spmm", "--size", 64, "--n", 8, "--block", 8, "--dtype", "bf16", "--rounds", 1, "--no-peers")
    assert all(peer == {"tflops": None, "reason": "not asked for"} for peer in line["peers"].values())
    (line,) = bench("spmm", "--size", 64, "--n", 8, "--block", 8, "--dtype", "f16", "--rounds", 2)
    assert line["dtype"] == "float16" and line["ratios"]["peak"] > 0
    assert all(peer["reason"] == "no products of this dtype" for peer in line["peers"].values())


def test_bench_says_why_a_peer_is_missing(here):
    arguments = ["bench", "spmm", "--size", "60", "--n", 8, "--block", 10, "--dtype", "f32", "--rounds", 1, "--json"]

    def reason(**env):
        return json.loads(run(*arguments, **env))["peers"]["scipy"]["reason"]

    script = str(HERE.parent / "scipy_peer.py")
    assert "TARTAN_SCIPY_PEER" in reason(TARTAN_SCIPY_PEER="/nowhere/peer.py")
    assert "No such file" in reason(TARTAN_SCIPY_PEER=script, PYTHON="/nowhere/python")
    (here / "dies.py").write_text("raise SystemExit(3)\n")
    assert "without an answer" in reason(TARTAN_SCIPY_PEER="dies.py", PYTHON=sys.executable)
    (here / "fails.py").write_text("print('error no scipy today', flush=True)\n")
    assert reason(TARTAN_SCIPY_PEER="fails.py", PYTHON=sys.executable) == "no scipy today"
    ragged = json.loads(run("bench", "spmm", "--size", 60, "--n", 8, "--block", 8, "--dtype", "f32", "--rounds", 1,
                            "--json", TARTAN_SCIPY_PEER=script, PYTHON=sys.executable))
    assert "multiples of the block" in ragged["peers"]["scipy"]["reason"]
    mkl = json.loads(run(*arguments, TARTAN_MKL="/nowhere/libmkl_rt.so"))["peers"]["mkl"]
    assert mkl["tflops"] is None and mkl["reason"]


def test_bench_for_people():
    text = run("bench", "sddmm", "--size", 64, "--n", 8, "--block", 8, "--dtype", "f32", "--rounds", 1, "--no-peers")
    assert re.fullmatch(r"sddmm float32 .* GFLOP/s useful; \d+\.\d\d of peak, - x scipy bsr.*\n", text)


@pytest.mark.parametrize("operation", ["spmm", "sddmm"])
def test_bench_on_a_device(dummy, operation):
    lines = bench(operation, "--device", "cuda:1", "--size", "128x64", "--n", 24, "--block", "8,32", "--dtype", "f32,bf16",
                  "--rounds", 2, "--density", 0.25, TARTAN_PLUGIN_PATH=dummy)
    assert [(line["dtype"], line["block"]) for line in lines] == [("float32", 8), ("float32", 32), ("bfloat16", 8),
                                                                  ("bfloat16", 32)]
    for line in lines:
        assert set(line) == KEYS and line["op"] == operation and line["device"] == "cuda:1"
        assert line["kernels"] == "plain" and line["shape"] == [128, 64, 24] and line["samples"] == 2
        assert line["threads"] is line["peak_tflops_per_thread"] is None and line["peers"] == line["ratios"] == {}
        assert line["ms"] > 0 and line["planning_ms"] > 0
        assert near(line["tflops"], 2e-9 * 128 * 64 * 24 * line["density"] / line["ms"])
    text = run("bench", operation, "--device", "cuda", "--size", 64, "--n", 8, "--block", 8, "--dtype", "f64", "--rounds", 1,
               "--allow-dense", TARTAN_PLUGIN_PATH=dummy)
    assert re.fullmatch(operation + r" +float64 .* GFLOP/s useful; planning \d+\.\d+ ms, kernel plain on cuda:0\n", text)


def test_bench_on_a_device_fails_with_the_reason(here, dummy):
    def fails(text, code=1, device="cuda", *more, **env):
        run("bench", "spmm", "--size", 64, "--n", 8, "--block", 8, "--rounds", 1, "--device", device, *more, code=code,
            text=text, **env)

    fails("no libtartan_cuda.so", TARTAN_PLUGIN_PATH=str(here))
    fails("expected \"cpu\", \"cuda\" or \"cuda:1\"", device="gpu")
    fails("dummy:7 is not there", device="cuda:7", TARTAN_PLUGIN_PATH=dummy)
    fails("was lost", TARTAN_PLUGIN_PATH=dummy, TARTAN_DUMMY_LOST="1")
    fails("out of memory on device", TARTAN_PLUGIN_PATH=dummy, TARTAN_DUMMY_BYTES="1000")
    fails("--threads is of the CPU", 2, "cuda", "--threads", 2)
    fails("--allow-dense is of a GPU", 2, "cpu", "--allow-dense")
