# SPDX-License-Identifier: Apache-2.0
"""`tartan explain`: which kernel would run, on the CPU and on the dummy device of the tests."""

import json

import pytest
from tool import files_in, run


def explained(*arguments, **env):
    return json.loads(run("explain", *arguments, "--json", **env))


def test_explain_text(here):
    run("new", "a.h5", "--pattern", "banded", "--size", "320x256", "--block", 32)
    text = run("explain", "a.h5", "spmm", "--dtype", "bf16", "--n", 100, TARTAN_CPU="c")
    assert text.startswith("spmm of bfloat16, sparse left: a 320 x 256, ")
    assert "; b 256 x 100\n" in text
    assert "device cpu, backend cpu, kernel spmm: " in text and "  instructions c, threads " in text
    assert "  not spmm with avx512: " in text
    facts, rate = text.rstrip("\n").rsplit("\n", 1)
    assert "GFLOP useful" in facts and rate.startswith("expected 0.") and rate.endswith(" TFLOP/s")
    again = run("explain", "a.h5:banded", "spmm", "--dtype", "bf16", "--n", 100, TARTAN_CPU="c")
    assert again.rstrip("\n").rsplit("\n", 1)[0] == facts  # the rate builds on a measured peak
    assert files_in(here) == ["a.h5"]


def test_explain_counts(here):
    run("new", "a.h5", "--pattern", "dense", "--size", "60x40", "--block", 16, "--values", "zeros")
    answer = explained("a.h5", "spmm", "--n", 10, "--side", "right", "--transpose", "--dtype", "f64")
    assert answer["operation"] == "spmm" and answer["side"] == "right" and answer["transposed"] is True
    a = answer["operands"][0]
    assert a["name"] == "a" and a["shape"] == [60, 40] and a["block"] == [16, 16] and a["blocks"] == 12
    assert answer["flops"] == 2 * 60 * 40 * 10 and answer["bytes"] == 8 * (60 * 40 + 10 * (60 + 40))
    assert answer["supported"] is True and answer["expected_tflops"] > 0
    answer = explained("a.h5", "sddmm", "--n", 7)
    assert answer["flops"] == 2 * 60 * 40 * 7 and answer["bytes"] == 8 * (60 * 40 + 7 * (60 + 40))


def test_explain_takes_the_dtype_of_the_matrix(here):
    for dtype, name in (("f64", "float64"), ("bf16", "bfloat16")):
        run("new", f"{dtype}.h5", "--pattern", "dense", "--size", 64, "--values", "zeros", "--dtype", dtype)
        assert {x["dtype"] for x in explained(f"{dtype}.h5", "spmm")["operands"]} == {name}
    assert explained("f64.h5", "spmm", "--dtype", "f32")["operands"][0]["dtype"] == "float32"


def test_explain_orders(here):
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    assert explained("a.h5", "spmm", "--order", "row")["operands"] == explained("a.h5", "spmm")["operands"]
    strides = {order: [x["strides"] for x in explained("a.h5", "spmm", "--n", 8, "--order", order)["operands"][1:]]
               for order in ("row", "col")}
    assert strides == {"row": [[8, 1], [8, 1]], "col": [[1, 64], [1, 64]]}
    assert run("explain", "a.h5", "spmm", "--transpose").startswith("spmm of float32, sparse left, transposed: a ")


def test_explain_a_pattern(here):
    answer = explained("--pattern", "banded", "spmm", "--size", 256, "--block", 64, "--param", "lower=0", "--param",
                       "upper=0", "--heads", 3)
    a, b, _ = answer["operands"]
    assert a["blocks"] == 12 and a["heads"] == 3 and b["shape"] == [3, 256, 512]
    assert explained("spmm", "--pattern", "dense", "--n", 8)["operands"][0]["shape"] == [4096, 4096]
    assert files_in(here) == []
    run("explain", "--pattern", "tweed", "spmm", code=1, text="tweed")


def test_explain_names_with_colons(here):
    run("new", "a:b.h5", "--pattern", "dense", "--size", 64)
    run("new", "a:b.h5", "--pattern", "banded", "--size", 96, "--append")
    assert explained("a:b.h5:banded", "spmm")["operands"][0]["shape"] == [96, 96]
    run("explain", "a:b.h5", "spmm", code=2, text="choose one with a:b.h5:NAME")
    run("explain", "a:b.h5:tweed", "spmm", code=1, text="tweed")
    run("explain", "c.h5:banded", "spmm", code=1, text="c.h5")


@pytest.mark.parametrize("arguments, text", [
    (["a.h5"], "Usage"), (["a.h5", "spmm", "extra"], "Usage"), (["a.h5", "spgemm"], "operation is \"spgemm\""),
    (["a.h5", "spmm", "--dtype", "f8"], "--dtype is \"f8\""), (["a.h5", "spmm", "--side", "up"], "--side is \"up\""),
    (["a.h5", "spmm", "--order", "F"], "--order is \"F\""),
    (["a.h5", "spmm", "--n", "-1"], "--n is -1"), (["a.h5", "spmm", "--n", "x"], "--n"),
    (["a.h5", "sddmm", "--transpose"], "are for spmm only"), (["a.h5", "sddmm", "--side", "right"], "are for spmm only"),
    (["--pattern", "dense", "a.h5", "spmm"], "Usage"), (["--pattern", "dense", "spmm", "--size", "0x"], "--size")])
def test_explain_refuses(here, arguments, text):
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    run("explain", *arguments, code=2, text=text)


def test_explain_devices(here):
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    run("explain", "a.h5", "spmm", "--device", "gpu", code=1, text="expected \"cpu\", \"cuda\" or \"cuda:1\"")
    run("explain", "a.h5", "spmm", "--device", "cuda", code=1, text="no libtartan_cuda.so", TARTAN_PLUGIN_PATH=str(here))


def test_explain_in_a_mode(here):
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    for mode in "bf16x3", "bf16x6":
        name = f"spmm_{mode}"
        reasons = {one["kernel"]: one["why"] for one in explained("a.h5", "spmm")["refused"]}
        assert reasons[name] == "the context does not allow it"
        answer = explained("a.h5", "spmm", "--math", mode)
        reasons = {one["kernel"]: one["why"] for one in answer["refused"]}
        assert answer["kernel"] == name or "amx" in reasons[name]
    run("explain", "a.h5", "spmm", "--math", "fast", code=1, text="expected exact, tf32, bf16x3 or bf16x6")


def test_explain_on_a_device(here, dummy):
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    answer = explained("a.h5", "spmm", "--device", "cuda:1", TARTAN_PLUGIN_PATH=dummy)
    assert answer["backend"] == "dummy" and answer["device"] == "cuda:1" and answer["kernel"] == "plain"
    assert answer["refused"] == [{"kernel": "dense", "why": "uses a dense copy of a, which the context does not allow"}]
    answer = explained("a.h5", "spmm", "--device", "cuda", "--allow-dense", TARTAN_PLUGIN_PATH=dummy)
    assert answer["refused"] == [{"kernel": "dense", "why": "the dummy has no cuBLAS"}]
    run("explain", "a.h5", "spmm", "--device", "cuda", code=1, text="was lost", TARTAN_PLUGIN_PATH=dummy,
        TARTAN_DUMMY_LOST="1")
