# SPDX-License-Identifier: Apache-2.0
"""`tartan bench`: what its lines hold, and that they are consistent."""

import json
import os
import re
import sys

import pytest
from tool import HERE, run

ROOT = HERE.parents[2]
KEYS = {"op", "device", "kernels", "dtype", "threads", "block", "density", "shape", "heads", "ms", "tflops", "gbytes_per_s",
        "planning_ms", "peak_tflops_per_thread", "samples", "speedup", "peers", "ratios"}
PRODUCTS = ["spmm", "sddmm"]
OTHERS = ["growth_score", "block_copy", "block_norms", "elementwise", "elements", "reduce", "compare"]
ATTENTION = ["attention_forward", "attention_backward", "attention_bias_gradient"]
WINDOWS = ["window_pool", "window_gather", "window_scatter"]
CONV = ["conv", "conv_filter_gradient"]
NORMALIZE = ["conv_normalize", "conv_normalize_gradient"]
BY_HAND = PRODUCTS + OTHERS + ATTENTION + WINDOWS + CONV + NORMALIZE


def bench(*arguments, **env):
    text = run("bench", *arguments, "--json", PYTHON=sys.executable, TARTAN_SCIPY_PEER=str(HERE.parent / "scipy_peer.py"),
               **env)
    return [json.loads(line) for line in text.splitlines()]


def near(a, b):
    return a == pytest.approx(b, rel=1e-4)


def test_bench_has_every_operation():
    """Help and manual name what `tartan bench` measures, but for what follows from the library's descriptions."""
    names = run("bench", "--list").split()
    assert names[:len(BY_HAND)] == BY_HAND and len(set(names)) == len(names)
    assert {"gate_gradient", "block_softmax", "attention_merge", "channel_linear", "relu", "layer_norm_gradient"} <= set(names)
    manual = (HERE.parent / "tartan.1").read_text().replace("\\-", "-")
    for name in BY_HAND:
        assert re.search(rf"^  .*\b{name}\b", run("bench", "--help"), re.MULTILINE)
        assert re.search(rf"^\.B {name}$", manual, re.MULTILINE)
    run("bench", "--list", "spmm", code=2, text="Usage: tartan bench")
    run("bench", "--list", "--json", code=2, text="Usage: tartan bench")
    run("bench", "gemm", code=2, text='no benchmark "gemm", expected ' + ", ".join(names[:-1]) + " or " + names[-1])


def test_peak():
    """One line for each dtype and each level of memory that the system knows, for each number of threads."""
    lines = [json.loads(line) for line in run("bench", "peak", "--json", "--threads", "1,2", "--dtype", "f32,bf16").splitlines()]
    for threads in (1, 2):
        mine = [line for line in lines if line["threads"] == threads]
        assert all(line["op"] == "peak" for line in mine)
        products = [line for line in mine if line["what"] == "multiply_adds"]
        assert [line["dtype"] for line in products] == ["float32", "bfloat16"]
        assert all(line["gflops"] > 0 and line["kernels"] in run("info") for line in products)
        reading = [line for line in mine if line["what"] == "reading"]
        assert [line["level"] for line in reading if line["level"] not in ("L2", "L3")] == ["L1", "memory"]
        sizes = [line["bytes"] for line in reading]
        assert sizes == sorted(sizes) and all(line["gbytes_per_s"] > 0 for line in reading)
    assert len(lines) == len([line for line in lines if line["threads"] in (1, 2)])
    text = run("bench", "peak", "--threads", "1", "--dtype", "f64")
    assert re.match(r"multiply-adds  float64  threads   1 +[\d.]+ GFLOP/s", text) and re.search(r"^reading +memory", text, re.MULTILINE)
    for option in ("block", "size", "n", "density", "rounds", "device", "math"):
        run("bench", "peak", f"--{option}", "8", code=2, text=f"--{option} is not for peak, which takes --dtype, --threads and --json")
    for option in ("no-peers", "allow-dense"):
        run("bench", "peak", f"--{option}", code=2, text=f"--{option} is not for peak")
    run("bench", "peak", "--threads", "0", code=2, text='--threads has "0"')
    run("bench", "peak", "--dtype", "i8", code=2, text='--dtype has "i8"')
    assert re.search(r"bench peak", run("bench", "--help"))


@pytest.mark.parametrize("operation", PRODUCTS)
def test_bench(operation):
    lines = bench(operation, "--size", "256x128", "--n", 32, "--block", "8,32", "--dtype", "f32,f64", "--rounds", 3,
                  "--density", 0.25, "--threads", 2)
    assert [(line["dtype"], line["block"]) for line in lines] == [("float32", 8), ("float32", 32), ("float64", 8),
                                                                  ("float64", 32)]
    for line in lines:
        assert set(line) == KEYS and line["op"] == operation and line["device"] == "cpu"
        assert line["shape"] == [256, 128, 32] and line["threads"] == 2 and line["samples"] == 3
        assert near(line["density"], 0.25) and line["ms"] > 0 and line["planning_ms"] > 0
        assert line["peak_tflops_per_thread"] > 0 and line["speedup"] == 1
        assert line["kernels"] and "," not in line["kernels"]
        size = 4 if line["dtype"] == "float32" else 8
        sparse, dense = 256 * 128 * line["density"], {"spmm": 128 * 32 + 256 * 32, "sddmm": 256 * 32 + 32 * 128}[operation]
        assert near(line["gbytes_per_s"], 1e-6 * size * (sparse + dense) / line["ms"])
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


@pytest.mark.parametrize("operation", OTHERS + WINDOWS + NORMALIZE)
def test_bench_of_what_is_no_product(operation):
    lines = bench(operation, "--size", "256x128", "--n", 32, "--block", "16", "--dtype", "bf16,f32,f64", "--rounds", 2,
                  "--density", 0.25, "--threads", 2)
    assert [line["dtype"] for line in lines] == ["bfloat16", "float32", "float64"]
    for line, size, sums in zip(lines, (2, 4, 8), (4, 4, 8)):
        assert set(line) == KEYS and line["op"] == operation and line["device"] == "cpu"
        with_n = operation in ("growth_score", "window_gather", "window_scatter")
        assert line["shape"] == ([256, 128, 32] if with_n else [256, 128])
        assert line["ms"] > 0 and line["planning_ms"] > 0 and line["samples"] == 2 and line["threads"] == 2
        stored, blocks = 256 * 128 * line["density"], 128 * line["density"]
        flops, bytes_ = {"growth_score": (2 * 32 * (256 + 128 + 128), 32 * (256 + 128) * size + 128 * sums),
                         "block_copy": (0, 2 * stored * size + 8 * blocks),
                         "block_norms": (2 * stored, stored * size + 8 * blocks),
                         "elementwise": (3 * stored, 3 * stored * size),
                         "elements": (0, 128 * (8 + size)),
                         "reduce": (stored, stored * size + 8 * blocks),
                         "compare": (stored, 2 * stored * size),
                         "window_pool": (256 * 128, 256 * 128 * size),
                         "window_gather": (0, 2 * blocks * 32 * 18 * 18 * size),
                         "window_scatter": (0, 2 * stored * 32 * size),
                         "conv_normalize": (3 * 9 * stored, 2 * 9 * stored * size + 256 * sums),
                         "conv_normalize_gradient": (7 * 9 * stored, 3 * 9 * stored * size + 2 * 256 * sums)}[operation]
        assert near(line["gbytes_per_s"], 1e-6 * bytes_ / line["ms"])
        assert near(line["tflops"], 1e-9 * flops / line["ms"]) if flops else line["tflops"] is None
        assert line["peak_tflops_per_thread"] is None
        assert set(line["peers"]) == set(line["ratios"]) == {"memcpy"}
        peer = line["peers"]["memcpy"]
        assert near(peer["gbytes_per_s"], 1e-6 * bytes_ / peer["ms"]) and peer["samples"] == 2
        assert near(line["ratios"]["memcpy"], line["gbytes_per_s"] / peer["gbytes_per_s"])
    (line,) = bench(operation, "--size", 64, "--block", 8, "--dtype", "f32", "--rounds", 1, "--no-peers")
    assert line["peers"] == {"memcpy": {"gbytes_per_s": None, "reason": "not asked for"}}
    assert line["ratios"] == {"memcpy": None}


# Bytes of operands by their sizes: of elements, of sums.
IMAGE, DENSE, STORED, BLOCKS = 256 * 128 * 32, 256 * 128, 256 * 128 // 4, 128 // 4
DESCRIBED = {"gate_gradient": (2 * STORED, BLOCKS), "block_softmax": (2 * STORED, 256), "block_softmax_gradient": (3 * STORED, 0),
             "attention_merge": (3 * 256 * 32, 3 * 256), "channel_linear": (2 * IMAGE, 2 * 32),
             "channel_linear_gradient": (3 * IMAGE, 4 * 32), "relu": (2 * DENSE, 0), "add": (3 * DENSE, 0),
             "multiply_gradient": (5 * DENSE, 0), "layer_norm": (2 * DENSE, 2 * 128 + 2 * 256), "rms_norm_gradient": (3 * DENSE, 2 * 128 + 256)}


@pytest.mark.parametrize("operation", DESCRIBED)
def test_bench_of_what_the_library_describes(operation):
    """Operands follow from the description; M x K are the sizes of arrays, and --n channels or head dimensions."""
    lines = bench(operation, "--size", "256x128", "--n", 32, "--block", "16", "--dtype", "bf16,f64", "--rounds", 2, "--density", 0.25)
    assert [line["dtype"] for line in lines] == ["bfloat16", "float64"]
    elements, numbers = DESCRIBED[operation]
    for line, size, sums in zip(lines, (2, 8), (4, 8)):
        with_n = operation.startswith(("attention", "channel"))
        assert set(line) == KEYS and line["op"] == operation and line["shape"] == ([256, 128, 32] if with_n else [256, 128])
        assert near(line["gbytes_per_s"], 1e-6 * (elements * size + numbers * sums) / line["ms"]) and line["tflops"] is None
        assert set(line["peers"]) == set(line["ratios"]) == {"memcpy"}
    lines = bench(operation, "--size", 64, "--block", "8,16", "--dtype", "f32", "--rounds", 1, "--no-peers")
    with_blocks = "softmax" in operation or operation == "gate_gradient"
    assert [line["block"] for line in lines] == ([8, 16] if with_blocks else [None])
    assert all((line["density"] is not None) == with_blocks for line in lines)
    text = run("bench", operation, "--size", 64, "--block", 8, "--dtype", "f32", "--rounds", 1)
    assert re.match(operation + r" +float32 +" + (r"b +8  density 0\.\d{3} +" if with_blocks else "") + r"\d+\.\d{3} ms ", text)


def test_every_described_operation_can_be_measured():
    for operation in run("bench", "--list").split()[len(BY_HAND):]:
        (line,) = bench(operation, "--size", 32, "--n", 8, "--block", 8, "--dtype", "f32", "--rounds", 1, "--no-peers")
        assert line["op"] == operation and line["ms"] > 0


@pytest.mark.parametrize("operation", ATTENTION)
def test_bench_of_attention(operation):
    """One head, whose dimension is --n; held against the peak alone."""
    lines = bench(operation, "--size", "256x128", "--block", "16,32", "--dtype", "bf16,f64", "--rounds", 2, "--density", 0.25,
                  "--threads", 2)
    assert [(line["dtype"], line["block"]) for line in lines] == [("bfloat16", 16), ("bfloat16", 32), ("float64", 16),
                                                                  ("float64", 32)]
    for line in lines:
        assert set(line) == KEYS and line["op"] == operation and line["shape"] == [256, 128, 64] and line["samples"] == 2
        size, sums = (2, 4) if line["dtype"] == "bfloat16" else (8, 8)
        flops, queries, keys, numbers = {"attention_forward": (4, 2, 2, 0), "attention_backward": (10, 4, 4, 0),
                                         "attention_bias_gradient": (4, 3, 2, 2 * (257 + 1))}[operation]
        tokens = 64 * (queries * 256 + keys * 128) * size + (256 + numbers) * sums
        assert near(line["tflops"], 1e-9 * flops * 64 * 256 * 128 * line["density"] / line["ms"])
        assert near(line["gbytes_per_s"], 1e-6 * tokens / line["ms"])
        assert near(line["ratios"]["peak"], line["tflops"] / (2 * line["peak_tflops_per_thread"]))
        assert line["peers"] == {} and set(line["ratios"]) == {"peak"}
    text = run("bench", operation, "--size", 64, "--n", 8, "--block", 8, "--dtype", "f32", "--rounds", 1)
    assert re.fullmatch(operation + r" +float32 .* GFLOP/s useful; \d+\.\d\d of the \w+ peak of \d+\.\d\n", text)


@pytest.mark.parametrize("operation", CONV)
def test_bench_of_convolutions(operation):
    """3 x 3, of one image whose side is --n; held against the peak alone."""
    lines = bench(operation, "--size", "64x32", "--n", 12, "--block", "8,16", "--dtype", "f32,f64", "--rounds", 2, "--density", 0.25,
                  "--threads", 2)
    assert [(line["dtype"], line["block"]) for line in lines] == [("float32", 8), ("float32", 16), ("float64", 8), ("float64", 16)]
    for line in lines:
        assert set(line) == KEYS and line["op"] == operation and line["shape"] == [64, 32, 12] and line["samples"] == 2
        assert near(line["density"], 0.25)
        size, stored = 4 if line["dtype"] == "float32" else 8, 9 * 64 * 32 * line["density"]
        assert near(line["tflops"], 1e-9 * 2 * stored * 144 / line["ms"])
        assert near(line["gbytes_per_s"], 1e-6 * size * (stored + 144 * (64 + 32)) / line["ms"])
        assert near(line["ratios"]["peak"], line["tflops"] / (2 * line["peak_tflops_per_thread"]))
        assert line["peers"] == {} and set(line["ratios"]) == {"peak"}


def test_bench_counts_the_peak_of_the_dtype():
    """bf16 is held against the instructions that multiply bf16, not against those of f32."""
    kernels = json.loads(run("info", "--json"))["cpu"]["kernels"].split(",")
    short, narrow = bench("spmm", "--size", 512, "--n", 128, "--block", 32, "--dtype", "f32,bf16", "--rounds", 3, "--no-peers")
    assert short["kernels"] == kernels[0]
    assert narrow["kernels"] == (kernels[-1] if kernels[-1] in ("amx", "avx512bf16") else kernels[0])
    if narrow["kernels"] == "amx":
        assert narrow["peak_tflops_per_thread"] > 2 * short["peak_tflops_per_thread"]
    (plain,) = bench("spmm", "--size", 512, "--n", 128, "--block", 32, "--dtype", "bf16", "--rounds", 3, "--no-peers",
                     TARTAN_CPU="c")
    assert plain["kernels"] == "c" and plain["peak_tflops_per_thread"] < narrow["peak_tflops_per_thread"] or kernels == ["c"]


def test_bench_with_several_numbers_of_threads():
    lines = bench("spmm", "--size", 256, "--n", 32, "--block", "16,32", "--dtype", "f32", "--rounds", 2, "--threads", "2,1,3",
                  "--no-peers")
    assert [(line["block"], line["threads"]) for line in lines] == [(block, t) for block in (16, 32) for t in (2, 1, 3)]
    for first, *rest in (lines[:3], lines[3:]):
        assert first["speedup"] == 1
        for line in rest:
            assert near(line["speedup"], first["ms"] / line["ms"])
    text = run("bench", "block_norms", "--size", 64, "--block", 8, "--dtype", "f32", "--rounds", 1, "--threads", "1,2")
    first, second = text.splitlines()
    assert first.endswith("; threads 1: 1.00 x the first") and re.search(r"; threads 2: \d+\.\d\d x the first$", second)


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


@pytest.mark.parametrize("how", ["hang", "crash"])
def test_bench_outlives_a_broken_openblas(here, how):
    broken = os.environ.get("TARTAN_BROKEN_BLAS", "")
    if not os.path.exists(broken):
        pytest.skip("TARTAN_BROKEN_BLAS does not name the library that breaks")
    os.symlink(broken, here / "libopenblas.so.0")
    (line,) = bench("sddmm", "--size", 64, "--n", 8, "--block", 8, "--dtype", "f32", "--rounds", 1, TARTAN_TEST_BLAS=how,
                    LD_LIBRARY_PATH=f"{here}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    assert line["peers"]["openblas"] == {"tflops": None, "reason": "libopenblas.so.0 is not there or does not work"}


def test_bench_for_people():
    text = run("bench", "sddmm", "--size", 64, "--n", 8, "--block", 8, "--dtype", "f32", "--rounds", 1, "--no-peers")
    assert re.fullmatch(r"sddmm +float32 .* GFLOP/s useful; \d+\.\d\d of the \w+ peak of \d+\.\d, - x scipy bsr, .*\n", text)
    text = run("bench", "block_copy", "--size", 64, "--block", 8, "--dtype", "f32", "--rounds", 1)
    assert re.fullmatch(r"block_copy +float32 .* GB/s; \d+\.\d\d x memcpy\n", text)


@pytest.mark.parametrize("operation", PRODUCTS + OTHERS + ATTENTION)
def test_bench_on_a_device(dummy, operation):
    lines = bench(operation, "--device", "cuda:1", "--size", "128x64", "--n", 24, "--block", "8,32", "--dtype", "f32,bf16",
                  "--rounds", 2, "--density", 0.25, TARTAN_PLUGIN_PATH=dummy)
    assert [(line["dtype"], line["block"]) for line in lines] == [("float32", 8), ("float32", 32), ("bfloat16", 8),
                                                                  ("bfloat16", 32)]
    for line in lines:
        assert set(line) == KEYS and line["op"] == operation and line["device"] == "cuda:1"
        explains = operation in PRODUCTS + OTHERS[:1] + ATTENTION
        assert line["kernels"] == ("plain" if explains else None) and line["samples"] == 2
        assert line["threads"] is line["peak_tflops_per_thread"] is line["speedup"] is None
        assert line["ms"] > 0 and line["planning_ms"] > 0 and line["gbytes_per_s"] > 0 and line["peers"] == line["ratios"] == {}
        if operation in PRODUCTS:
            assert line["shape"] == [128, 64, 24] and near(line["tflops"], 2e-9 * 128 * 64 * 24 * line["density"] / line["ms"])
    text = run("bench", operation, "--device", "cuda", "--size", 64, "--n", 8, "--block", 8, "--dtype", "f64", "--rounds", 1,
               "--allow-dense", TARTAN_PLUGIN_PATH=dummy)
    rate = "GFLOP/s useful" if operation in PRODUCTS + ATTENTION else "GB/s"
    kernel = "plain" if explains else "not known"
    assert re.fullmatch(rf"{operation} +float64 .* {rate}; planning \d+\.\d+ ms, kernel {kernel} on cuda:0\n", text)


def test_bench_on_a_device_fails_with_the_reason(here, dummy):
    def fails(text, code=1, device="cuda", *more, **env):
        run("bench", "spmm", "--size", 64, "--n", 8, "--block", 8, "--rounds", 1, "--device", device, *more, code=code,
            text=text, **env)

    fails("no libtartan_cuda.so", TARTAN_PLUGIN_PATH=str(here))
    fails("expected \"cpu\", \"cuda\" or \"cuda:1\"", device="gpu")
    fails("dummy:7 does not exist", device="cuda:7", TARTAN_PLUGIN_PATH=dummy)
    fails("was lost", TARTAN_PLUGIN_PATH=dummy, TARTAN_DUMMY_LOST="1")
    fails("out of memory on device", TARTAN_PLUGIN_PATH=dummy, TARTAN_DUMMY_BYTES="1000")
    fails("--threads is for the CPU only", 2, "cuda", "--threads", 2)
    fails("--allow-dense is for GPUs only", 2, "cpu", "--allow-dense")
    fails("expected exact, tf32, bf16x3 or bf16x6", 1, "cpu", "--math", "fast")
