# SPDX-License-Identifier: Apache-2.0
"""`tartan convert`: the same numbers in every format, and its options."""

import gzip
import json
import pathlib
import re

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from tool import DTYPES, files_in, from_bf16, load, read_safetensors, run, sparse, to_bf16, write_safetensors

TARGETS = ["b.h5", "b.mtx", "b.npz", "b.npy", "b.safetensors"]


def check(source, expected):
    """Converts `source` to every format, always with the same numbers."""
    for target in TARGETS:
        run("convert", source, target)
        assert np.array_equal(load(target), expected), (source, target)


def check_all_pairs(source, expected):
    """And each result to every other."""
    check(source, expected)
    for first in TARGETS:
        for second in TARGETS:
            copy = "c" + pathlib.Path(second).suffix
            run("convert", first, copy)
            assert np.array_equal(load(copy), expected), (source, first, second)


def sources():
    a = sparse()
    square = sparse(45, 45, 1)
    lower = sp.tril(square, -1).tocsr()
    count = sp.csr_matrix(np.rint(a.toarray() * 3))

    def mtx(matrix, **options):
        return lambda: scipy.io.mmwrite("a.mtx", matrix, **options)

    def npz(matrix):
        return lambda: sp.save_npz("a.npz", matrix)

    def npy(array):
        return lambda: np.save("a.npy", array)

    def tensor(kind, array, **options):
        return lambda: write_safetensors("a.safetensors", {"w": (kind, array)}, **options)

    symmetric, skew, dense = lower + lower.T + sp.eye(45), lower - lower.T, a.toarray()
    yield "mtx general", "a.mtx", mtx(a, symmetry="general", precision=17), dense
    yield "mtx symmetric", "a.mtx", mtx(symmetric, symmetry="symmetric", precision=17), symmetric.toarray()
    yield "mtx skew", "a.mtx", mtx(skew, symmetry="skew-symmetric", precision=17), skew.toarray()
    yield "mtx integer", "a.mtx", mtx(count.astype(np.int64), symmetry="general"), count.toarray()
    yield "mtx pattern", "a.mtx", mtx(a, field="pattern", symmetry="general"), (dense != 0).astype(float)
    yield "mtx array", "a.mtx", mtx(dense, symmetry="general", precision=17), dense
    yield "mtx symmetric array", "a.mtx", mtx(symmetric.toarray(), symmetry="symmetric", precision=17), symmetric.toarray()
    yield "mtx skew array", "a.mtx", mtx(skew.toarray(), symmetry="skew-symmetric", precision=17), skew.toarray()
    for kind in ("csr", "csc", "coo"):
        yield "npz " + kind, "a.npz", npz(a.asformat(kind)), dense
    yield "npz bsr", "a.npz", npz(a.tobsr((6, 10))), dense
    yield "npz bsr transposed", "a.npz", npz(a.T.tobsr((10, 6)).T), dense
    yield "npz one block in Fortran order", "a.npz", npz(sp.bsr_matrix(dense[:6, :4], blocksize=(6, 4)).T), dense[:6, :4].T
    yield "npz f4", "a.npz", npz(a.astype(np.float32)), dense.astype(np.float32)
    yield "npz int32", "a.npz", npz(count.astype(np.int32)), count.toarray()
    yield "npz uint64", "a.npz", npz(sp.csr_matrix(np.array([[2**63, 0], [0, 5]], np.uint64))), np.diag([2.0**63, 5.0])
    yield "npz bool", "a.npz", npz(a.astype(bool)), (dense != 0).astype(float)
    for kind in ("f8", "f4", "f2"):
        array = dense.astype(kind)
        yield "npy C " + kind, "a.npy", npy(array), array.astype(np.float64)
        yield "npy Fortran " + kind, "a.npy", npy(np.asfortranarray(array)), array.astype(np.float64)
    yield "npy int16", "a.npy", npy(count.toarray().astype(np.int16)), count.toarray()
    yield "npy bool", "a.npy", npy(np.asfortranarray(dense != 0)), (dense != 0).astype(float)
    for kind in ("F64", "F32", "F16"):
        array = dense.astype(DTYPES[kind])
        yield "safetensors " + kind, "a.safetensors", tensor(kind, array, padding=3), array.astype(np.float64)
    yield "safetensors BF16", "a.safetensors", tensor("BF16", to_bf16(dense)), from_bf16(to_bf16(dense)).astype(np.float64)
    yield "ragged", "a.npy", npy(dense[:37, :53]), dense[:37, :53]
    yield "nothing stored", "a.npy", npy(np.zeros((20, 30))), np.zeros((20, 30))
    yield "one element", "a.npy", npy(np.array([[2.5]])), np.array([[2.5]])


SOURCES = list(sources())


@pytest.mark.parametrize("name, path, make, expected", SOURCES, ids=[source[0] for source in SOURCES])
def test_convert_round_trips(here, name, path, make, expected):
    make()
    thorough = name in ("mtx general", "npy Fortran f4", "npy C f2", "safetensors BF16", "ragged", "nothing stored")
    (check_all_pairs if thorough else check)(path, expected)


def test_convert_keeps_the_dtype(here):
    dense = sparse().toarray()
    for kind, name in (("f8", "float64"), ("f4", "float32"), ("f2", "float16")):
        np.save("a.npy", dense.astype(kind))
        assert " %s, " % name in run("convert", "a.npy", "a.h5")
        assert " %s, " % name in run("convert", "a.h5", "a.safetensors")
        assert " %s, " % name in run("convert", "a.safetensors", "b.npy")
        assert np.load("b.npy").dtype == kind
    write_safetensors("a.safetensors", {"w": ("BF16", to_bf16(dense))})
    assert " bfloat16, " in run("convert", "a.safetensors", "a.h5")
    run("convert", "a.h5", "b.safetensors")
    _, types, _ = read_safetensors("b.safetensors")
    assert types["matrix.blocks"] == "BF16"
    run("convert", "b.safetensors", "b.npz")
    assert sp.load_npz("b.npz").dtype == np.float32


@pytest.mark.parametrize("source", ["a.npy", "a.mtx", "a.h5"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "float32"])
def test_convert_dtype(here, source, dtype):
    dense = sparse().toarray()
    np.save("a.npy", dense)
    run("convert", "a.npy", "a.mtx")
    run("convert", "a.npy", "a.h5")
    run("convert", source, "b.h5", "--dtype", dtype)
    expected = from_bf16(to_bf16(dense)) if dtype == "bf16" else dense.astype({"f64": "f8", "f16": "f2"}.get(dtype, "f4"))
    if dtype == "bf16":  # from f64 in one rounding; two would differ only in ties
        assert np.mean(load("b.h5") == expected) > 0.999
    else:
        assert np.array_equal(load("b.h5"), expected)


def test_convert_block(here):
    dense = sparse().toarray()
    np.save("a.npy", dense)
    for option, block in ((None, (16, 16)), ("8", (8, 8)), ("5x7", (5, 7)), ("256", (256, 256)), ("1", (1, 1))):
        text = run("convert", "a.npy", "a.h5", *(["--block", option] if option else []))
        rows, cols = [-(-n // b) for n, b in zip(dense.shape, block)]
        padded = np.zeros((rows * block[0], cols * block[1]))
        padded[:48, :80] = dense
        blocks = padded.reshape(rows, block[0], cols, block[1]).any((1, 3)).sum()
        assert "%d blocks of %d x %d, density %.4f" % (blocks, *block, blocks / (rows * cols)) in text
        assert np.array_equal(load("a.h5"), dense)
    # The blocks of the input are kept, where it has any.
    sp.save_npz("a.npz", sparse().tobsr((6, 10)))
    assert "blocks of 6 x 10" in run("convert", "a.npz", "a.h5")
    run("convert", "a.h5", "a.safetensors")
    assert "blocks of 6 x 10" in run("convert", "a.safetensors", "b.npz")
    again = sp.load_npz("b.npz")
    assert again.format == "bsr" and again.blocksize == (6, 10) and np.array_equal(again.toarray(), dense)
    assert "blocks of 4 x 4" in run("convert", "a.npz", "a.h5", "--block", 4)
    sp.save_npz("a.npz", sp.bsr_matrix(np.ones((300, 300)), blocksize=(300, 300)))
    assert "blocks of 16 x 16" in run("convert", "a.npz", "a.h5")


def test_convert_density(here):
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((48, 80))
    np.save("a.npy", dense)
    norms = np.linalg.norm(dense.reshape(6, 8, 10, 8), axis=(1, 3))
    for density in (0, 0.25, 1):
        run("convert", "a.npy", "b.h5", "--block", 8, "--density", density)
        keep = norms >= np.sort(norms.ravel())[::-1][round(60 * density) - 1] if density else norms < 0
        assert keep.sum() == round(60 * density)
        assert np.array_equal(load("b.h5"), dense * np.repeat(np.repeat(keep, 8, 0), 8, 1))
    run("convert", "a.npy", "a.mtx")
    run("convert", "a.mtx", "c.h5", "--density", 0.5, code=1, text="--density is for dense input")


def test_convert_reorder(here):
    rng = np.random.default_rng(4)
    order = rng.permutation(200)
    band = sp.diags([rng.standard_normal(200 - abs(k)) for k in (-1, 0, 1)], [-1, 0, 1]).tocsr()
    band = band + band.T
    shuffled = band[order][:, order]
    assert np.diff(shuffled.tocoo().coords, axis=0).max() > 100
    for save, path in ((lambda: scipy.io.mmwrite("a.mtx", shuffled, precision=17), "a.mtx"),
                       (lambda: sp.save_npz("a.npz", shuffled), "a.npz")):
        save()
        run("convert", path, "b.h5", "--reorder", "rcm", "--block", 8)
        result = load("b.h5")
        rows, cols = np.nonzero(result)
        assert abs(rows - cols).max() == 1
        assert np.allclose(np.linalg.eigvalsh(result), np.linalg.eigvalsh(band.toarray()), atol=1e-12)
    sp.save_npz("r.npz", sparse())
    run("convert", "r.npz", "c.h5", "--reorder", "rcm", code=1, text="square")
    np.save("d.npy", np.eye(8))
    run("convert", "d.npy", "c.h5", "--reorder", "rcm", code=1, text="sparse")
    assert not (here / "c.h5").exists()


def test_convert_names(here):
    dense = sparse().toarray()
    np.save("a.npy", dense)
    run("convert", "a.npy", "a.h5")
    assert re.search(r"^  matrix  matrix ", "\n" + run("show", "a.h5"), re.MULTILINE) or "matrix: 48" in run("show", "a.h5")
    run("convert", "a.npy", "a.h5", "--name", "first")
    assert "first: 48 x 80" in run("show", "a.h5")
    run("convert", "a.h5", "b.h5")
    assert "first: 48 x 80" in run("show", "b.h5")
    run("convert", "a.h5", "b.safetensors")
    assert "first.blocks" in read_safetensors("b.safetensors")[2]
    run("convert", "a.h5", "c.h5", "--name", "second", code=1, text="second")
    run("convert", "a.npy", "b.safetensors", "--name", "x" * 600, code=1, text="longer than 500 bytes")
    run("convert", "a.npy", "c.h5", "--name", "..", code=1, text='is "." or ".."')
    run("convert", "a.npy", "b.h5", "--name", "layer/0/w%")
    assert "layer/0/w%: 48 x 80" in run("show", "b.h5")
    assert "spmm of float64" in run("explain", "b.h5:layer/0/w%", "spmm")
    run("new", "d.h5", "--pattern", "dense", "--size", 8)
    run("convert", "d.h5", "c.npy", code=1, text="no matrix")
    for name in ("one", "two"):
        run("new", "d.h5", "--append", "--pattern", "dense", "--size", 8, "--values", "normal", "--name", name)
    run("convert", "d.h5", "c.npy", code=1, text="d.h5: has several matrices: name one with --name")
    run("convert", "d.h5", "c.mtx", "--name", "two")
    (here / "c.mtx").unlink()
    assert files_in(here) == ["a.h5", "a.npy", "b.h5", "b.safetensors", "d.h5"]


def test_convert_tensors(here):
    one, two = sparse(20, 30).toarray(), sparse(30, 20, 5).toarray()
    write_safetensors("a.safetensors", {"bias": ("F32", one[0]), "one": ("F64", one), "two": ("F32", two),
                                        "cube": ("F64", one.reshape(2, 10, 30)), "ids": ("I64", one.astype(int))})
    run("convert", "a.safetensors", "a.npy", code=1, text="has 2 matrices (one, two)")
    run("convert", "a.safetensors", "a.npy", "--tensor", "one")
    assert np.array_equal(np.load("a.npy"), one)
    run("convert", "a.safetensors", "a.npy", "--tensor", "two")
    assert np.array_equal(np.load("a.npy"), two.astype(np.float32))
    for name, text in (("three", "no tensor three"), ("bias", "not a matrix"), ("cube", "not a matrix"),
                       ("ids", "not a matrix"), ("__metadata__", "no tensor")):
        run("convert", "a.safetensors", "b.npy", "--tensor", name, code=1, text=text)
    write_safetensors("a.safetensors", {"bias": ("F32", one[0])})
    run("convert", "a.safetensors", "b.npy", code=1, text="no matrix")
    np.save("a.npy", one)
    run("convert", "a.npy", "c.safetensors", "--name", "w.x", "--block", 10)
    for options in ([], ["--tensor", "w.x"]):
        run("convert", "c.safetensors", "d.npy", *options)
        assert np.array_equal(np.load("d.npy"), one)
    assert not (here / "b.npy").exists()


def test_convert_heads(here):
    run("new", "a.h5", "--pattern", "random", "--size", 64, "--heads", 2, "--values", "normal")
    for target in TARGETS[1:]:
        if not target.endswith(".npy"):
            run("convert", "a.h5", target, code=1, text="2 heads")
    run("convert", "a.h5", "b.h5", "--dtype", "f32")
    assert "2 heads" in run("show", "b.h5") and "float32" in run("verify", "b.h5")
    assert files_in(here) == ["a.h5", "b.h5"]


@pytest.mark.parametrize("kind", [">f8", "<f4", ">i2", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_convert_arrays_of_heads(here, kind, order):
    heads = np.zeros((3, 6, 10))
    heads[0, :2, 4:6], heads[2, 5, 9], heads[1, 0, 0] = 1, 1, 1
    np.save("a.npy", np.asarray(heads, kind, order=order))
    run("convert", "a.npy", "a.h5", "--block", "2x5")
    shown = run("show", "a.h5")
    assert "6 x 10, blocks of 2 x 5, 3 heads" in shown
    run("convert", "a.h5", "b.npy")
    back = np.load("b.npy")
    assert back.shape == (3, 6, 10) and np.array_equal(back, heads)
    run("convert", "a.npy", "c.h5", "--block", "2x5", "--density", "0.1")
    np.save("one.npy", np.asarray(heads[:1], kind, order=order))
    run("convert", "one.npy", "c.npy", "--block", 4)
    assert np.array_equal(np.load("c.npy"), heads[0])


def test_convert_keeps_gates_and_metadata(here):
    h5py = pytest.importorskip("h5py")
    np.save("a.npy", sparse().toarray())
    run("convert", "a.npy", "a.h5", "--name", "w")
    (here / "plain.h5").write_bytes((here / "a.h5").read_bytes()[512:])  # without the seal
    with h5py.File("plain.h5", "r+") as file:
        weight = file["tensors/w"]
        gates = np.arange(len(weight["blocks"]), dtype=np.float64)
        weight["gates"] = gates
        weight.attrs["metadata"] = '{"epoch": 7}'
    run("convert", "plain.h5", "b.h5", "--dtype", "f16")
    with h5py.File("b.h5") as file:
        assert np.array_equal(file["tensors/w/gates"], gates) and file["tensors/w/blocks"].dtype == np.float16
        assert json.loads(file["tensors/w"].attrs["metadata"]) == {"epoch": 7}
    for target in TARGETS[1:]:
        run("convert", "b.h5", target, code=1, text="gates")
        assert not (here / target).exists()


def test_convert_nonfinite_numbers(here):
    dense = np.array([[np.nan, np.inf, 0], [-np.inf, 1e308, 5e-324]])
    np.save("a.npy", dense)
    for target in TARGETS:
        run("convert", "a.npy", target)
        assert np.array_equal(load(target), dense, equal_nan=True)


def test_convert_in_place(here):
    dense = sparse().toarray()
    np.save("a.npy", dense)
    run("convert", "a.npy", "a.npy", "--dtype", "f32")
    assert np.array_equal(np.load("a.npy"), dense.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_convert_writes_whole_files_or_none(here, target):
    rng = np.random.default_rng(0)
    np.save("a.npy", rng.standard_normal((64, 64)))
    run("convert", "a.npy", "missing/" + target, code=1, text="No such file")
    run("convert", "a.npy", target, code=1, limit=4096)
    assert files_in(here) == ["a.npy"]
    (here / target).write_bytes(b"old")
    run("convert", "a.npy", target, code=1, limit=4096)
    run("convert", "nothing.npy", target, code=1, text="nothing.npy: No such file")
    assert (here / target).read_bytes() == b"old" and files_in(here) == ["a.npy", target]


@pytest.mark.parametrize("source", ["x.h5", "x.mtx", "x.npz", "x.npy", "x.safetensors"])
def test_convert_refuses_what_is_not_a_file(here, source):
    run("convert", source, "b.npy", code=1, text=source)
    (here / source).mkdir()
    run("convert", source, "b.npy", code=1, text=source)
    (here / source).rmdir()
    (here / source).write_bytes(b"")
    run("convert", source, "b.npy", code=1, text=source)
    assert files_in(here) == [source]


def test_compressed_complex_and_numbered_patterns(here):
    random = np.random.default_rng(1)
    z = random.normal(size=(9, 9)) + 1j * random.normal(size=(9, 9))
    h = z + z.conj().T
    for matrix, symmetry in ((z, "general"), (h, "hermitian"), (z + z.T, "symmetric"), (z - z.T, "skew-symmetric")):
        for stored in (scipy.sparse.coo_array(matrix), matrix):
            scipy.io.mmwrite("z.mtx", stored, symmetry=symmetry, precision=17)
            for part, wanted in (("real", matrix.real), ("imaginary", matrix.imag)):
                run("convert", "z.mtx", "p.npy", "--part", part)
                assert np.array_equal(np.load("p.npy"), wanted), (symmetry, part)
    run("convert", "z.mtx", "p.npy", code=1, text="is complex: choose one part with --part real or --part imaginary")
    run("convert", "z.mtx", "p.npy", "--part", "abs", code=2, text="expected real or imaginary")
    (here / "p.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 2 7\n2 1\n")
    run("convert", "p.mtx", "p.npy")
    assert np.array_equal(np.load("p.npy"), [[0, 1], [1, 0]])
    run("convert", "p.mtx", "p.npy", "--part", "real", code=1, text="is not complex")
    with gzip.open("g.mtx.gz", "wb") as file:
        file.write((here / "p.mtx").read_bytes())
    run("convert", "g.mtx.gz", "g.npy")
    assert np.array_equal(np.load("g.npy"), np.load("p.npy"))
    data = (here / "g.mtx.gz").read_bytes()
    (here / "g.mtx.gz").write_bytes(data[:-12])
    run("convert", "g.mtx.gz", "g.npy", code=1, text="g.mtx.gz")
    run("convert", "p.npy", "p.mtx.gz", code=2, text="is for input")


def test_blocks_of_different_sizes(here):
    h5py = pytest.importorskip("h5py")
    dense = np.zeros((4, 5))
    dense[:1, :2], dense[1:, 2:] = [[1, 2]], np.arange(3, 12).reshape(3, 3)
    with h5py.File("a.h5", "w") as file:
        file.attrs["tartan_schema"], file.attrs["tartan_schema_version"] = "block-sparse", "1.3"
        layout, tensor = file.create_group("layouts/p"), file.create_group("tensors/w")
        layout.attrs["kind"], layout.attrs["shape"], layout.attrs["block_shape"] = "layout", [4, 5], [3, 3]
        tensor.attrs["kind"], tensor.attrs["layout"] = "bsr", "/layouts/p"
        for name, numbers in (("pointers_to_1", [0, 1, 2]), ("indices_1", [0, 1]), ("row_bounds", [0, 1, 4]), ("col_bounds", [0, 2, 5])):
            layout[name] = np.array(numbers, np.int64)
        blocks = np.zeros((2, 3, 3))
        blocks[0, :1, :2], blocks[1] = dense[:1, :2], dense[1:, 2:]
        tensor["blocks"] = blocks
    assert "w: 4 x 5, blocks up to 3 x 3, 1 head" in run("show", "a.h5", "w")
    for target in ("b.npz", "b.mtx", "b.npy"):
        run("convert", "a.h5", target)
        np.testing.assert_array_equal(load(target), dense)
    run("convert", "a.h5", "b.safetensors", code=1, text="the blocks of the matrix differ in size, which such files cannot hold")
