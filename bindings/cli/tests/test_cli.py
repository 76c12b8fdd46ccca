# SPDX-License-Identifier: Apache-2.0
"""The tool `tartan` as its users meet it: help, wrong use, and what each command does when all is well."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from tool import CLI, HERE, braille, files_in, run, sparse

COMMANDS = {
    "info": ["--json"],
    "new": ["--list", "--pattern", "--size", "--block", "--heads", "--param", "--seed", "--name", "--values", "--dtype",
            "--append"],
    "show": ["--svg", "--png", "--pixels"],
    "convert": ["--block", "--density", "--dtype", "--reorder", "--part", "--name", "--tensor"],
    "verify": ["--limit"],
    "bench": ["--dtype", "--block", "--size", "--n", "--density", "--threads", "--rounds", "--no-peers", "--json",
              "--device", "--allow-dense", "--math", "--list"],
    "demo": ["--threads"],
}


# ---- Help and wrong use ----


def test_help_of_the_tool():
    text = run("--help")
    assert text == run("-h") == run("help")
    for name in COMMANDS:
        assert re.search(r"^  %s\s+\w" % name, text, re.MULTILINE)
    assert re.fullmatch(r"tartan \d+\.\d+\.\d+\n", run("--version"))
    run(code=2, text="Usage: tartan COMMAND")
    run("frobnicate", code=2, text='no command "frobnicate"')


def test_first_try_of_the_help_works(here):
    examples = re.findall(r"^  tartan (.*)$", run("--help"), re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        run(*example.split())


def test_a_shell_set_up_by_env_has_the_tool():
    build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(CLI))))
    script = HERE.parents[2] / ".ci" / "env.sh"
    found = subprocess.run(["bash", "-c", f'source "{script}" && source "{script}" && command -v tartan && tartan --version'],
                           env={**os.environ, "TARTAN_BUILD": build}, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[0] == os.path.join(build, "bindings/cli/tartan") and run("--version") in found.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(name):
    text = run(name, "--help")
    assert text.startswith("Usage: tartan %s" % name)
    assert text == run(name, "-h") == run(name, "something", "--help")
    assert set(re.findall(r"--[a-z][a-z-]*", text)) >= set(COMMANDS[name])
    assert all(len(line) <= 120 for line in text.splitlines())


WRONG = [
    (["info", "--frob"], 'no option "--frob"'),
    (["info", "-x"], 'no option "-x"'),
    (["info", "more"], "Usage: tartan info"),
    (["info", "--json=1"], "takes no value"),
    (["info", "--json", "--json"], "given twice"),
    (["new"], "Usage: tartan new"),
    (["new", "a.h5", "--pattern", "dense"], "--size is missing"),
    (["new", "a.h5", "--size", "8"], "--pattern is missing"),
    (["new", "a.h5", "b.h5", "--pattern", "dense", "--size", "8"], "Usage: tartan new"),
    (["new", "a.h5", "--pattern", "dense", "--size"], "needs a value"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8x"], '--size is "8x"'),
    (["new", "a.h5", "--pattern", "dense", "--size", "many"], '--size is "many"'),
    (["new", "a.h5", "--pattern", "dense", "--size", "99999999999999999999"], "--size is"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8", "--block", "4x4x4"], "--block is"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8", "--heads", "two"], "--heads is"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8", "--seed", "1.5"], "--seed is"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8", "--values", "ones"], "--values is"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8", "--values", "zeros", "--dtype", "i8"], "--dtype is"),
    (["new", "a.h5", "--pattern", "dense", "--size", "8", "--dtype", "f32"], "--values"),
    (["new", "a.h5", "--pattern", "dense", "--pattern", "dense", "--size", "8"], "given twice"),
    (["show"], "Usage: tartan show"),
    (["show", "a", "b", "c"], "Usage: tartan show"),
    (["show", "a.h5", "--pixels", "15"], "--pixels is 15"),
    (["show", "a.h5", "--pixels", "4097"], "--pixels is 4097"),
    (["show", "a.h5", "--pixels", "wide"], "--pixels is"),
    (["convert", "a.mtx"], "Usage: tartan convert"),
    (["convert", "a.mtx", "b.h5", "c.h5"], "Usage: tartan convert"),
    (["convert", "a.txt", "b.h5"], "a.txt: expected a name ending in"),
    (["convert", "a.mtx", "b.txt"], "b.txt: expected a name ending in"),
    (["convert", "a.mtx", ".h5"], ".h5: expected a name ending in"),
    (["convert", "a.mtx", "b.h5", "--block", "0"], "--block is"),
    (["convert", "a.mtx", "b.h5", "--block", "8x257"], "--block is"),
    (["convert", "a.mtx", "b.h5", "--block", "big"], "--block is"),
    (["convert", "a.npy", "b.h5", "--density", "1.5"], "--density is 1.5"),
    (["convert", "a.npy", "b.h5", "--density", "nan"], "--density is"),
    (["convert", "a.npy", "b.h5", "--density=-1"], "--density is -1"),
    (["convert", "a.mtx", "b.h5", "--dtype", "f8"], "--dtype is"),
    (["convert", "a.mtx", "b.h5", "--reorder", "amd"], "--reorder is"),
    (["convert", "a.h5", "b.h5", "--block", "8"], "not for .h5 input"),
    (["convert", "a.h5", "b.h5", "--density", "0.5"], "not for .h5 input"),
    (["convert", "a.h5", "b.h5", "--reorder", "rcm"], "not for .h5 input"),
    (["convert", "a.npy", "b.h5", "--tensor", "w"], "--tensor is for"),
    (["verify"], "Usage: tartan verify"),
    (["verify", "a.h5", "--limit", "0"], "--limit is 0"),
    (["verify", "a.h5", "--limit", "soon"], "--limit is"),
    (["bench"], "Usage: tartan bench"),
    (["bench", "gemm"], 'no benchmark "gemm"'),
    (["bench", "spmm", "sddmm"], "Usage: tartan bench"),
    (["bench", "spmm", "--dtype", "f32,,f64"], "--dtype has"),
    (["bench", "spmm", "--dtype", ""], "--dtype has"),
    (["bench", "spmm", "--block", "8,"], "--block has"),
    (["bench", "spmm", "--block", ",".join(["8"] * 65)], "--block has more than 64"),
    (["bench", "spmm", "--dtype", ",".join(["f32"] * 65)], "--dtype has more than 64"),
    (["bench", "spmm", "--threads", ",".join(["1"] * 65)], "--threads has more than 64"),
    (["bench", "spmm", "--block", "8x16"], "--block has"),
    (["bench", "spmm", "--block", "512"], "--block has"),
    (["bench", "spmm", "--size", "0"], "--size is"),
    (["bench", "spmm", "--size", "4000000000"], "--size is"),
    (["bench", "spmm", "--n", "0"], "--n is 0"),
    (["bench", "spmm", "--density", "0"], "--density is 0"),
    (["bench", "spmm", "--density", "2"], "--density is 2"),
    (["bench", "spmm", "--threads", "0"], '--threads has "0", expected numbers of threads, 1 to 4096'),
    (["bench", "spmm", "--threads", "1,4097"], '--threads has "4097"'),
    (["bench", "spmm", "--threads", "1,,2"], '--threads has ""'),
    (["bench", "spmm", "--threads", "two"], '--threads has "two"'),
    (["bench", "spmm", "--rounds", "1000"], "--rounds is 1000"),
    (["demo", "a", "b"], "Usage: tartan demo"),
    (["demo", "--threads", "-1"], "--threads is -1"),
    (["demo", "--threads", "x"], "--threads is"),
]


@pytest.mark.parametrize("arguments, text", WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_use(here, arguments, text):
    assert run(*arguments, code=2, text=text) == ""
    assert files_in(here) == []


def test_too_many_arguments():
    run("verify", *["x.h5"] * 17, code=2, text="too many arguments")
    run("new", "a.h5", *["--param", "a=1"] * 65, code=2, text="too many options")


def test_two_dashes_end_the_options(here):
    run("new", "--pattern=dense", "--size=8", "--", "-odd.h5")
    assert files_in(here) == ["-odd.h5"]
    assert "-odd.h5: good" in run("verify", "--", "-odd.h5")


def test_full_standard_output():
    with open("/dev/full", "w") as full:
        for arguments in (["--help"], ["--version"], ["info"], ["new", "--list"], ["bench", "--help"]):
            run(*arguments, code=1, text="standard output", stdout=full)


# ---- info ----


def test_info():
    info = json.loads(run("info", "--json"))
    assert {"tartan", "cpu", "backends"} <= set(info)
    names = {backend["name"]: backend for backend in info["backends"]}
    assert names["cpu"]["loaded"] and len(names["cpu"]["devices"]) == 1
    assert names["cuda"]["devices"] or names["cuda"]["reason"]
    text = run("info")
    assert info["tartan"] in text and info["cpu"]["kernels"] in text
    assert re.search(r"^cpu: 1 device$", text, re.MULTILINE) and re.search(r"^cuda: \d+ device", text, re.MULTILINE)


def test_info_obeys_the_environment():
    info = json.loads(run("info", "--json", TARTAN_CPU="c", TARTAN_NUM_THREADS="3"))
    assert info["cpu"]["kernels"] == "c" and info["cpu"]["threads"] == 3


def test_info_names_no_kernels_that_are_not_there():
    cpu = json.loads(run("info", "--json"))["cpu"]
    assert "fp16" not in cpu["kernels"]  # this version has none, whatever the CPU has
    assert cpu["kernels"] == "c" or set(cpu["kernels"].split(",")) <= set(cpu["detected"].split(","))


# ---- new ----


def patterns():
    text = subprocess.run([CLI, "new", "--list"], capture_output=True, encoding="utf-8").stdout
    return re.findall(r"^  (\w+): \S", text, re.MULTILINE)


def identity_of(output):
    return re.search(r"identity ([0-9a-f]{32})", output).group(1)


def test_there_are_patterns():
    assert len(patterns()) >= 16
    assert {"dense", "banded", "random", "barabasi_albert", "watts_strogatz", "bigbird"} <= set(patterns())


@pytest.mark.parametrize("pattern", patterns())
def test_every_pattern(here, pattern):
    first = run("new", "a.h5", "--pattern", pattern, "--size", 512, "--seed", 7)
    assert re.search(r'^a.h5: layout "%s", \d+ blocks of 32 x 32, density (0\.\d+|1\.0+)' % pattern, first)
    assert identity_of(first) == identity_of(run("new", "b.h5", "--pattern=" + pattern, "--size=512x512", "--seed=7"))
    shown = run("show", "a.h5")
    assert identity_of(shown) == identity_of(first) and '"pattern":"%s"' % pattern in shown
    assert "a.h5: good" in run("verify", "a.h5")


def test_new_options(here):
    text = run("new", "a.h5", "--pattern", "random", "--size", "100x60", "--block", "8x4", "--heads", 3, "--param",
               "density=0.25", "--param", "shared=1", "--seed", 5, "--name", "w")
    assert 'layout "w"' in text and "blocks of 8 x 4," in text
    shown = run("show", "a.h5", "w")
    assert "w: 100 x 60, blocks of 8 x 4, 3 heads" in shown and '"density":0.25' in shown and '"seed":5' in shown
    other = run("new", "b.h5", "--pattern", "random", "--size", "100x60", "--block", "8x4", "--heads", 3, "--param",
                "density=0.25 shared=1", "--seed", 6)
    assert identity_of(text) != identity_of(other)


def test_new_appends(here):
    run("new", "a.h5", "--pattern", "dense", "--size", 64, "--append", code=1, text="a.h5")
    assert files_in(here) == []
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    run("new", "a.h5", "--pattern", "banded", "--size", 64, "--append", "--values", "zeros")
    assert re.findall(r"^  (\w+)\s+(\w+)", run("show", "a.h5"), re.MULTILINE) == [
        ("layout", "dense"), ("layout", "banded"), ("matrix", "banded")]
    run("new", "a.h5", "--pattern", "causal", "--size", 64)
    assert "causal: 64 x 64" in run("show", "a.h5")


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("values", ["zeros", "identity", "normal", "orthogonal"])
def test_new_values(here, values, dtype):
    run("new", "a.h5", "--pattern", "dense", "--size", 48, "--block", 16, "--values", values, "--dtype", dtype)
    assert run("convert", "a.h5", "a.npy").startswith("a.npy: 48 x 48 " + {
        "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}[dtype])
    dense = np.load("a.npy").astype(np.float64)
    tolerance = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-2, "bf16": 1e-1}[dtype]
    if values == "zeros":
        assert not dense.any()
    elif values == "identity":
        assert np.array_equal(dense, np.eye(48))
    elif values == "orthogonal":
        for columns in np.split(dense, 3, axis=1):  # of each block column
            assert np.abs(columns.T @ columns - np.eye(16)).max() < tolerance
    else:
        assert 0.8 < dense.std() * np.sqrt(48) < 1.2 and abs(dense.mean()) < 0.02
    if values == "normal":
        run("new", "b.h5", "--pattern", "dense", "--size", 48, "--block", 16, "--values", values, "--dtype", dtype)
        run("convert", "b.h5", "b.npy")
        assert np.array_equal(dense, np.load("b.npy"))


@pytest.mark.parametrize("arguments, text", [
    (["--pattern", "plaid", "--size", "64"], "plaid"),
    (["--pattern", "random", "--size", "64", "--param", "densitty=1"], "densitty"),
    (["--pattern", "random", "--size", "64", "--param", "density=7"], "density"),
    (["--pattern", "random", "--size", "64", "--seed", "-2"], "seed"),
    (["--pattern", "dense", "--size", "-4"], "-4"),
    (["--pattern", "dense", "--size", "64", "--block", "300"], "300"),
    (["--pattern", "dense", "--size", "64", "--heads", "0"], "heads"),
    (["--pattern", "dense", "--size", "9000000000000000000", "--block", "1"], "tartan: cannot make the layout: shape has"),
    (["--pattern", "dense", "--size", "64", "--name", "a\tb"], "control character"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_new_fails(here, arguments, text):
    run("new", "a.h5", *arguments, code=1, text=text)
    assert files_in(here) == []
    (here / "a.h5").write_bytes(b"old")
    run("new", "a.h5", *arguments, code=1, text=text)
    assert (here / "a.h5").read_bytes() == b"old" and files_in(here) == ["a.h5"]


# ---- verify ----


def test_verify(here):
    run("new", "a.h5", "--pattern", "dense", "--size", 64, "--values", "normal")
    run("new", "b.h5", "--pattern", "random", "--size", 64)
    text = run("verify", "a.h5", "b.h5")
    assert "a.h5: good\n" in text and "b.h5: good\n" in text and 'matrix "dense"' in text
    data = (here / "a.h5").read_bytes()
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0x10
    (here / "a.h5").write_bytes(damaged)
    text = run("verify", "a.h5", "b.h5", code=1, text="a.h5")
    assert "a.h5: good" not in text and "b.h5: good\n" in text
    run("verify", "missing.h5", code=1, text="missing.h5")
    for at in np.linspace(0, len(data) - 1, 50).astype(int).tolist():
        (here / "a.h5").write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1:])
        run("verify", "a.h5", code=1, text="a.h5")
        run("show", "a.h5", code=1)


def test_verify_outlives_hdf5(here):
    """A crash or an endless loop inside HDF5 is damage of that file, and the next file is still verified."""
    run("new", "a.h5", "--pattern", "dense", "--size", 64)
    (here / "empty.h5").write_bytes(b"")
    broken = os.environ.get("TARTAN_BROKEN_HDF5", "")
    if not os.path.exists(broken):
        pytest.skip("TARTAN_BROKEN_HDF5 does not name the library that breaks")
    env = {"LD_PRELOAD": broken, "ASAN_OPTIONS": "verify_asan_link_order=0:handle_abort=0"}
    for how, limit, text in (("crash", "300", "a.h5: damaged: HDF5 crashed"),
                             ("hang", "3", "a.h5: damaged: HDF5 was still reading it after 3 s")):  # fmt: skip
        result = subprocess.run([CLI, "verify", "--limit", limit, "a.h5", "empty.h5"], capture_output=True, text=True, timeout=1200,
                                env={**os.environ, **env, "TARTAN_TEST_HDF5": how})
        assert result.returncode == 1 and text in result.stderr and "empty.h5: is empty" in result.stderr, result.stderr
        assert result.stdout == ""


def test_files_open_with_h5py(here):
    h5py = pytest.importorskip("h5py")
    dense = sparse().toarray()
    np.save("a.npy", dense)
    run("convert", "a.npy", "a.h5", "--block", 8)
    shapes = []
    with h5py.File("a.h5") as file:
        file.visititems(lambda name, item: shapes.append(getattr(item, "shape", None)))
    blocks = dense.reshape(6, 8, 10, 8).any((1, 3)).sum()
    assert (blocks, 8, 8) in shapes


# ---- demo ----


def checksum(*arguments, **env):
    text = run("demo", *arguments, **env)
    return re.search(r"^checksum of the product ([0-9a-f]{32})$", text, re.MULTILINE).group(1)


def test_demo(here):
    text = run("demo", "--threads", 1)
    assert "a small-world layout: 4096 x 4096" in text and "on 1 thread\n" in text and "saved to tartan_demo.h5" in text
    assert "good" in run("verify", "tartan_demo.h5") and braille(text).any()
    expected = re.search(r"product ([0-9a-f]{32})", text).group(1)
    assert checksum("other.h5", "--threads", 2) == expected
    for sets in ("avx2", "avx512", "c"):
        assert checksum("other.h5", TARTAN_CPU=sets) == expected, sets
    assert files_in(here) == ["other.h5", "tartan_demo.h5"]


def test_demo_fails(here):
    run("demo", "missing/demo.h5", code=1, text="missing/demo.h5")
    run("demo", "demo.h5", code=1, limit=100000)
    assert files_in(here) == []


# ---- man page ----


def test_man_page_names_everything():
    text = (HERE.parent / "tartan.1").read_text().replace("\\-", "-")
    for name, options in COMMANDS.items():
        assert '.SS "tartan %s ' % name in text, name
        for option in options:
            assert re.search(re.escape(option) + r"\b", text), (name, option)


def test_man_page_has_no_errors(tmp_path):
    page = HERE.parent / "tartan.1"
    if shutil.which("mandoc"):
        command = ["mandoc", "-T", "lint", "-W", "warning", str(page)]
    elif shutil.which("groff"):
        command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)]
    else:
        pytest.skip("neither mandoc nor groff")
    result = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert result.returncode == 0 and result.stdout + result.stderr == ""
