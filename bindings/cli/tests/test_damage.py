# SPDX-License-Identifier: Apache-2.0
"""`tartan convert` on files that are wrong: a plain failure with its reason, never a crash, nothing left behind."""

import json
import struct

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from tool import files_in, load, run, sparse, survives, write_safetensors

COORDINATE = "%%MatrixMarket matrix coordinate real general\n"

BAD_MTX = {
    "empty": "",
    "no banner": "3 3 1\n1 1 1\n",
    "complex": COORDINATE.replace("real", "complex") + "1 1 1\n1 1 1 0\n",
    "hermitian": COORDINATE.replace("general", "hermitian") + "1 1 1\n1 1 1\n",
    "vector": COORDINATE.replace("matrix coordinate", "vector coordinate") + "1 1 1\n1 1 1\n",
    "pattern array": "%%MatrixMarket matrix array pattern general\n1 1\n1\n",
    "no sizes": COORDINATE + "% only comments\n",
    "two sizes": COORDINATE + "3 3\n1 1 1\n",
    "four sizes": COORDINATE + "3 3 1 1\n1 1 1\n",
    "negative sizes": COORDINATE + "-3 3 1\n1 1 1\n",
    "huge sizes": COORDINATE + "99999999999999999999 3 1\n1 1 1\n",
    "huge rows": COORDINATE + "9223372036854775807 3 1\n1 1 1\n",
    "huge count": COORDINATE + "3 3 9223372036854775807\n1 1 1\n",
    "huge symmetric count": COORDINATE.replace("general", "symmetric") + "3 3 9223372036854775807\n1 1 1\n",
    "huge array": "%%MatrixMarket matrix array real general\n4294967296 4294967296\n1\n",
    "huge skew array": "%%MatrixMarket matrix array real skew-symmetric\n3037000499 3037000499\n1\n",
    "wide symmetric": COORDINATE.replace("general", "symmetric") + "3 4 1\n3 4 1\n",
    "wide symmetric array": "%%MatrixMarket matrix array real symmetric\n1 2\n1\n2\n",
    "diagonal of skew": COORDINATE.replace("general", "skew-symmetric") + "3 3 1\n2 2 1\n",
    "row 0": COORDINATE + "3 3 1\n0 1 1\n",
    "row 4": COORDINATE + "3 3 1\n4 1 1\n",
    "column -1": COORDINATE + "3 3 1\n1 -1 1\n",
    "column 4": COORDINATE + "3 3 1\n1 4 1\n",
    "least row": COORDINATE + "3 3 1\n-9223372036854775808 1 1\n",
    "huge row": COORDINATE + "3 3 1\n99999999999999999999 1 1\n",
    "no value": COORDINATE + "3 3 1\n1 1\n",
    "two values": COORDINATE + "3 3 1\n1 1 1 1\n",
    "no imaginary part": COORDINATE.replace("real", "complex") + "3 3 1\n1 1 1\n",
    "words": COORDINATE + "3 3 1\n1 1 one\n",
    "too few": COORDINATE + "3 3 2\n1 1 1\n",
    "too many": COORDINATE + "3 3 1\n1 1 1\n2 2 2\n",
    "array too short": "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n",
    "zeros inside": COORDINATE + "3 3 1\n1 1 \0\n",
}


@pytest.mark.parametrize("name", BAD_MTX)
def test_bad_mtx(here, name):
    (here / "a.mtx").write_text(BAD_MTX[name])
    run("convert", "a.mtx", "b.h5", code=1, text="a.mtx")
    run("convert", "a.mtx", "b.h5", "--reorder", "rcm", code=1)
    assert files_in(here) == ["a.mtx"]


def test_bad_mtx_entries_are_named(here):
    for text, why in ((COORDINATE + "3 3 2\n1 1 1\n\n% no entry\n4 1 1\n", "line 6, entry 2 of 2, is outside the matrix"),
                      (COORDINATE + "3 3 1\n1 1 1 1\n", "line 3, entry 1 of 1, has something behind its value"),
                      (COORDINATE.replace("real", "pattern") + "3 3 1\n1 1 1 1\n", "line 3, entry 1 of 1, has something behind")):
        (here / "a.mtx").write_text(text)
        run("convert", "a.mtx", "b.h5", code=1, text=why)


def test_odd_but_good_mtx(here):
    (here / "a.mtx").write_text("%%matrixMARKET".replace("matrixMARKET", "MatrixMarket") + " Matrix Coordinate Real General\r\n%" +
                                "c" * 5000 + "\r\n\r\n 3  3\t2 \r\n\n1 1 1e0\r\n%late comment\n  3 2 -2.5  \n\n")
    run("convert", "a.mtx", "a.npy")
    assert np.array_equal(np.load("a.npy"), [[1, 0, 0], [0, 0, 0], [0, -2.5, 0]])
    for rows, cols in ((0, 0), (0, 3), (3, 0)):
        (here / "a.mtx").write_text(COORDINATE + "%d %d 0\n" % (rows, cols))
        run("convert", "a.mtx", "a.npy")
        assert np.load("a.npy").shape == (rows, cols)


def test_npy_that_is_no_matrix_says_so(here):
    for shape, text in (((1, 2, 3, 4), "has 4 dimensions, expected a matrix"), ((4,), "has 1 dimension, expected")):
        np.save("a.npy", np.ones(shape))
        run("convert", "a.npy", "b.h5", code=1, text=text)


@pytest.mark.parametrize("kind", [">f8", ">f4", ">f2", ">i8", ">i4", ">i2", ">u4"])
def test_big_endian_numbers(here, kind):
    a = (sparse().toarray() * 100).astype(kind)
    np.save("a.npy", a)
    run("convert", "a.npy", "b.npy", "--dtype", "f64")
    assert np.array_equal(np.load("b.npy"), a.astype(float))
    s = sp.csr_matrix(a.astype(float))
    np.savez("a.npz", format=np.array("csr", ">U3"), shape=np.array(s.shape, ">i8"), data=s.data.astype(kind),
             indptr=s.indptr.astype(">i4"), indices=s.indices.astype(">i8"))
    run("convert", "a.npz", "c.npy", "--dtype", "f64")
    assert np.array_equal(np.load("c.npy"), a.astype(float))


def test_entries_that_stand_twice_are_added(here):
    """As Matrix Market and scipy have it; sums in the order of the file."""
    (here / "a.mtx").write_text(COORDINATE + "3 3 6\n3 1 0.1\n1 1 1\n3 1 0.2\n1 1 2\n2 2 5\n3 1 0.3\n")
    expected = np.array([[3, 0, 0], [0, 5, 0], [0.1 + 0.2 + 0.3, 0, 0]])
    for options in ([], ["--block", "2"], ["--block", "1"]):
        run("convert", "a.mtx", "a.npy", *options)
        assert np.array_equal(np.load("a.npy"), expected)
    run("convert", "a.mtx", "r.mtx", "--reorder", "rcm")
    assert sorted(scipy.io.mmread("r.mtx").data) == [0.1 + 0.2 + 0.3, 3, 5]
    (here / "s.mtx").write_text(COORDINATE.replace("general", "symmetric") + "2 2 3\n2 1 1\n2 1 4\n1 1 2\n")
    run("convert", "s.mtx", "s.npy")
    assert np.array_equal(np.load("s.npy"), [[2, 5], [5, 0]])
    rng = np.random.default_rng(3)
    row, col, data = rng.integers(0, 20, 500), rng.integers(0, 30, 500), rng.integers(-9, 9, 500).astype(float)
    coo = sp.coo_matrix((data, (row, col)), shape=(20, 30))
    np.savez("coo.npz", format=b"coo", shape=coo.shape, data=data, row=row, col=col)
    run("convert", "coo.npz", "coo.npy", "--block", 4)
    assert np.array_equal(np.load("coo.npy"), coo.toarray())
    np.savez("csr.npz", format=b"csr", shape=(2, 3), data=[1.0, 2.0, 4.0], indptr=[0, 2, 3], indices=[1, 1, 0])
    run("convert", "csr.npz", "csr.npy")
    assert np.array_equal(np.load("csr.npy"), [[0, 3, 0], [4, 0, 0]])


def test_npz_of_diagonals(here):
    rng = np.random.default_rng(4)
    for rows, cols, offsets in ((6, 6, [0]), (7, 5, [-6, -2, 0, 1, 4]), (4, 9, [3, -3, 8]), (5, 5, [])):
        a = sp.dia_matrix((rng.integers(-3, 3, (len(offsets), cols)).astype(float), offsets), shape=(rows, cols))
        sp.save_npz("a.npz", a)
        run("convert", "a.npz", "a.npy", "--block", 2)
        assert np.array_equal(np.load("a.npy"), a.toarray()), (rows, cols, offsets)
    np.savez("wide.npz", format=b"dia", shape=(3, 3), data=np.arange(1.0, 11).reshape(2, 5), offsets=[-2**62, 1])
    run("convert", "wide.npz", "wide.npy")
    assert np.array_equal(np.load("wide.npy"), [[0, 7, 0], [0, 0, 8], [0, 0, 0]])
    np.savez("fortran.npz", format=b"dia", shape=(3, 3), data=np.asfortranarray([[1.0, 2, 3], [4, 5, 6]]), offsets=[0, 1])
    run("convert", "fortran.npz", "fortran.npy")
    assert np.array_equal(np.load("fortran.npy"), [[1, 5, 0], [0, 2, 6], [0, 0, 3]])


def npy_bytes(text, body=b"", version=1, length=None):
    text = text.encode() + b"\n"
    length = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", length) + text + body


HEADER = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }"
BAD_NPY = {
    "empty": b"",
    "magic": b"\x93NUMPX" + npy_bytes(HEADER % ("<f8", "(1, 1)"), bytes(8))[6:],
    "version": npy_bytes(HEADER % ("<f8", "(1, 1)"), bytes(8), version=9),
    "length": npy_bytes(HEADER % ("<f8", "(1, 1)"), bytes(8), length=60000),
    "long length": npy_bytes(HEADER % ("<f8", "(1, 1)"), bytes(8), version=2, length=2**32 - 1),
    "complex": npy_bytes(HEADER % ("<c16", "(1, 1)"), bytes(16)),
    "object": npy_bytes(HEADER % ("|O", "(1, 1)"), bytes(16)),
    "long double": npy_bytes(HEADER % ("<f16", "(1, 1)"), bytes(16)),
    "text": npy_bytes(HEADER % ("<U4", "(1, 1)"), bytes(16)),
    "huge type": npy_bytes(HEADER % ("<f99999999999", "(1, 1)"), bytes(16)),
    "structure": npy_bytes("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1, 1), }", bytes(8)),
    "no shape": npy_bytes("{'descr': '<f8', 'fortran_order': False, }", bytes(8)),
    "open shape": npy_bytes("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1", bytes(8)),
    "odd shape": npy_bytes(HEADER % ("<f8", "(1, x)"), bytes(8)),
    "vector": npy_bytes(HEADER % ("<f8", "(4,)"), bytes(32)),
    "scalar": npy_bytes(HEADER % ("<f8", "()"), bytes(8)),
    "four dimensions": npy_bytes(HEADER % ("<f8", "(1, 1, 2, 3)"), bytes(48)),
    "no heads": npy_bytes(HEADER % ("<f8", "(0, 2, 3)"), b""),
    "nine dimensions": npy_bytes(HEADER % ("<f8", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), bytes(8)),
    "negative": npy_bytes(HEADER % ("<f8", "(-1, -1)"), bytes(8)),
    "huge": npy_bytes(HEADER % ("<f8", "(4294967296, 4294967296)"), bytes(8)),
    "huge row": npy_bytes(HEADER % ("<f8", "(1, 1152921504606846976)"), bytes(8)),
    "huger": npy_bytes(HEADER % ("<f8", "(99999999999999999999, 1)"), bytes(8)),
    "none times huge": npy_bytes(HEADER % ("<f8", "(0, 9223372036854775807)")),
    "short": npy_bytes(HEADER % ("<f8", "(2, 2)"), bytes(31)),
}


@pytest.mark.parametrize("name", BAD_NPY)
def test_bad_npy(here, name):
    (here / "a.npy").write_bytes(BAD_NPY[name])
    run("convert", "a.npy", "b.h5", code=1, text="a.npy")
    assert files_in(here) == ["a.npy"]


def test_complex_numbers_are_refused(here):
    np.save("a.npy", np.eye(3) * 1j)
    sp.save_npz("a.npz", sp.csr_matrix(np.eye(3) * 1j))
    for source, text in (("a.npy", "a.npy: not"), ("a.npz", "a.npz: data.npy: not")):
        run("convert", source, "b.h5", code=1, text=text + " an .npy file of real numbers")


def test_odd_but_good_npy(here):
    body = np.arange(6.0).tobytes()
    for version in (1, 2, 3):  # and a header that aligns nothing
        (here / "a.npy").write_bytes(npy_bytes("{'shape': (2L,3L), 'fortran_order':True,  'descr': '<f8'}", body, version))
        run("convert", "a.npy", "b.npy")
        assert np.array_equal(np.load("b.npy"), np.arange(6.0).reshape(3, 2).T)


def bad_npz():
    a = sparse(20, 30)
    good = {"format": b"csr", "shape": np.array([20, 30]), "data": a.data, "indptr": a.indptr, "indices": a.indices}

    def variant(**changes):
        members = {**good, **changes}
        return {name: value for name, value in members.items() if value is not None}

    reverse, far, before = a.indptr.copy(), a.indices.copy(), a.indices.copy()
    reverse[3:5] = reverse[4], reverse[3] - 1
    far[0], before[0] = 30, -1
    b = a.tobsr((5, 5))
    blocks = {"format": b"bsr", "data": b.data, "indptr": b.indptr, "indices": b.indices}
    yield "not a sparse matrix", {"a": np.arange(3)}
    for name in good:
        yield "no " + name, variant(**{name: None})
    yield "dia without offsets", variant(format=b"dia")
    dia = {"format": b"dia", "shape": np.array([4, 5]), "data": np.ones((2, 5)), "offsets": np.array([-1, 2])}
    yield "dia of flat data", {**dia, "data": np.ones(10)}
    yield "dia of few rows", {**dia, "data": np.ones((1, 5))}
    yield "dia of real offsets", {**dia, "offsets": np.array([-1.0, 2.0])}
    yield "dia with an offset twice", {**dia, "offsets": np.array([2, 2])}
    yield "dia of negative shape", {**dia, "shape": np.array([-4, 5])}
    yield "dia of texts", {**dia, "data": np.full((2, 5), b"x")}
    yield "two formats", variant(format=np.array([b"csr", b"csr"]))
    yield "number as format", variant(format=np.array(1.0))
    yield "no rows", variant(shape=np.array([20]))
    yield "real shape", variant(shape=np.array([20.0, 30.0]))
    yield "negative shape", variant(shape=np.array([20, -30]))
    yield "huge shape", variant(shape=np.array([2**63 - 1, 30]))
    yield "other shape", variant(shape=np.array([21, 30]))
    yield "narrow shape", variant(shape=np.array([20, 3]))
    yield "short data", variant(data=a.data[:-1])
    yield "long data", variant(data=np.append(a.data, 1.0))
    yield "square data", variant(data=np.ones((len(a.data), 1)))
    yield "complex data", variant(data=a.data.astype(complex))
    yield "text data", variant(data=a.data.astype("S4"))
    yield "long double data", variant(data=a.data.astype(np.longdouble))
    yield "real indices", variant(indices=a.indices.astype(float))
    yield "real pointers", variant(indptr=a.indptr.astype(float))
    yield "descending pointers", variant(indptr=reverse)
    yield "pointers from 1", variant(indptr=a.indptr + 1)
    yield "no pointers", variant(indptr=a.indptr[:0])
    yield "few pointers", variant(indptr=a.indptr[:-1])
    yield "far index", variant(indices=far)
    yield "index before 0", variant(indices=before)
    yield "flat blocks", variant(**{**blocks, "data": b.data.reshape(-1, 25)})
    yield "blocks that do not fit", variant(**blocks, shape=np.array([21, 30]))
    yield "empty blocks", variant(**{**blocks, "data": np.zeros((len(b.indices), 0, 5))})
    yield "coo row far", {"format": b"coo", "shape": np.array([3, 3]), "data": np.ones(1), "row": np.array([3]),
                          "col": np.array([0])}
    yield "coo short", {"format": b"coo", "shape": np.array([3, 3]), "data": np.ones(1), "row": np.array([1, 1]),
                        "col": np.array([0])}
    yield "coo huge", {"format": b"coo", "shape": np.array([2**62, 2**62]), "data": np.ones(1),
                       "row": np.array([2**61]), "col": np.array([0])}


BAD_NPZ = dict(bad_npz())


@pytest.mark.parametrize("name", BAD_NPZ)
def test_bad_npz(here, name):
    np.savez("a.npz", **BAD_NPZ[name])
    run("convert", "a.npz", "b.h5", code=1, text="a.npz: ")
    run("convert", "a.npz", "b.h5", "--reorder", "rcm", "--dtype", "f32", code=1)
    assert files_in(here) == ["a.npz"]


def test_bad_npz_checksum(here):
    a = sparse()
    sp.save_npz("a.npz", a, compressed=False)
    data = bytearray((here / "a.npz").read_bytes())
    at = bytes(data).index(a.data.tobytes())
    data[at] ^= 1
    (here / "a.npz").write_bytes(data)
    run("convert", "a.npz", "b.h5", code=1, text="cannot read member data.npy")


def test_npz_of_half_precision(here):
    """scipy itself refuses it, but other programs write it."""
    a = sparse()
    np.savez("a.npz", format=b"csr", shape=a.shape, data=a.data.astype(np.float16), indptr=a.indptr, indices=a.indices)
    assert " float16, " in run("convert", "a.npz", "b.h5")
    assert np.array_equal(load("b.h5"), a.toarray().astype(np.float16))
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 6.1e-5, 65504, 1 / 3], np.float16)
    np.savez("a.npz", format=b"coo", shape=(3, 3), data=odd, row=np.arange(9) // 3, col=np.arange(9) % 3)
    run("convert", "a.npz", "b.npy")
    assert np.array_equal(np.load("b.npy"), odd.reshape(3, 3), equal_nan=True)


def safetensors_bytes(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor(kind="F64", shape=(2, 2), begin=0, end=32):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


BSR = {"w.blocks": tensor(shape=(1, 2, 2)), "w.indptr": tensor("I64", (2,), 32, 48),
       "w.indices": tensor("I64", (1,), 48, 56), "__metadata__": {"shape": "2,2"}}
BSR_BODY = np.ones(4).tobytes() + np.array([0, 1, 0]).tobytes()
BAD_SAFETENSORS = {
    "empty": b"",
    "short length": b"\0\0\0",
    "long length": safetensors_bytes({"w": tensor()}, bytes(32), length=2**63),
    "all ones": b"\xff" * 64,
    "not json": safetensors_bytes(b"{not json", bytes(32)),
    "a list": safetensors_bytes([1, 2], bytes(32)),
    "a number": safetensors_bytes(b"7", bytes(32)),
    "deep": safetensors_bytes(b"[" * 100000),
    "no tensors": safetensors_bytes({}),
    "a text as tensor": safetensors_bytes({"w.blocks": "w"}),
    "no offsets": safetensors_bytes({"w": {"dtype": "F64", "shape": [2, 2]}}, bytes(32)),
    "three offsets": safetensors_bytes({"w": {**tensor(), "data_offsets": [0, 32, 32]}}, bytes(32)),
    "real offsets": safetensors_bytes({"w": {**tensor(), "data_offsets": [0.0, 32.0]}}, bytes(32)),
    "integer type": safetensors_bytes({"w": tensor("I32", end=16)}, bytes(16)),
    "numeric type": safetensors_bytes({"w": tensor(7)}, bytes(32)),
    "negative shape": safetensors_bytes({"w": tensor(shape=(-2, -2))}, bytes(32)),
    "real shape": safetensors_bytes({"w": tensor(shape=(2.0, 2.0))}, bytes(32)),
    "huge shape": safetensors_bytes({"w": tensor(shape=(2**32, 2**32))}, bytes(32)),
    "none times huge": safetensors_bytes({"w": tensor(shape=(0, 2**62), end=0)}),
    "too few bytes": safetensors_bytes({"w": tensor(end=31)}, bytes(32)),
    "negative begin": safetensors_bytes({"w": tensor(begin=-8, end=24)}, bytes(32)),
    "backwards": safetensors_bytes({"w": tensor(begin=32, end=0)}, bytes(32)),
    "past the end": safetensors_bytes({"w": tensor(begin=8, end=40)}, bytes(32)),
    "far past the end": safetensors_bytes({"w": tensor(begin=2**62, end=2**62 + 32)}, bytes(32)),
    "bsr without indices": safetensors_bytes({k: v for k, v in BSR.items() if k != "w.indices"}, BSR_BODY),
    "bsr without shape": safetensors_bytes({k: v for k, v in BSR.items() if k != "__metadata__"}, BSR_BODY),
    "bsr of odd shape": safetensors_bytes({**BSR, "__metadata__": {"shape": "2;2"}}, BSR_BODY),
    "bsr of negative shape": safetensors_bytes({**BSR, "__metadata__": {"shape": "-2,2"}}, BSR_BODY),
    "bsr of other shape": safetensors_bytes({**BSR, "__metadata__": {"shape": "4,2"}}, BSR_BODY),
    "bsr of flat blocks": safetensors_bytes({**BSR, "w.blocks": tensor(shape=(4,))}, BSR_BODY),
    "bsr of real indices": safetensors_bytes({**BSR, "w.indices": tensor("F64", (1,), 48, 56)}, BSR_BODY),
    "bsr index out of range": safetensors_bytes(BSR, BSR_BODY[:-8] + struct.pack("<q", 1)),
    "bsr pointers": safetensors_bytes(BSR, np.ones(4).tobytes() + np.array([0, 2, 0]).tobytes()),
}


@pytest.mark.parametrize("name", BAD_SAFETENSORS)
def test_bad_safetensors(here, name):
    (here / "a.safetensors").write_bytes(BAD_SAFETENSORS[name])
    run("convert", "a.safetensors", "b.h5", code=1, text="a.safetensors")
    run("convert", "a.safetensors", "b.h5", "--tensor", "w", code=1, text="a.safetensors")
    assert files_in(here) == ["a.safetensors"]


def test_safetensors_of_several_matrices_want_a_name(here):
    a, b = np.eye(2), 2 * np.eye(2)
    write_safetensors("one.safetensors", {"bias": ("F32", np.ones(3)), "w": ("F64", a), "steps": ("I32", np.ones(2))})
    run("convert", "one.safetensors", "b.npy")
    assert np.array_equal(np.load("b.npy"), a)
    write_safetensors("two.safetensors", {"first": ("F64", a), "second": ("F64", b)})
    run("convert", "two.safetensors", "c.npy", code=1, text="has 2 matrices (first, second): name one with --tensor")
    assert not (here / "c.npy").exists()
    run("convert", "two.safetensors", "c.npy", "--tensor", "second")
    assert np.array_equal(np.load("c.npy"), b)
    write_safetensors("many.safetensors", {"m%d" % i: ("F64", a) for i in range(7)})
    run("convert", "many.safetensors", "d.npy", code=1, text="has 7 matrices (m0, m1, m2, m3, m4, ...)")
    (here / "mixed.safetensors").write_bytes(safetensors_bytes({**BSR, "v": tensor(begin=56, end=88)}, BSR_BODY + a.tobytes()))
    run("convert", "mixed.safetensors", "d.npy", code=1, text="has 2 matrices (w, v)")


def test_safetensors_cut_short_are_refused(here):
    """Also where the wanted tensor is whole; and bytes that belong to no tensor are damage."""
    write_safetensors("a.safetensors", {"w": ("F64", np.eye(4)), "last": ("I32", np.ones(100))})
    data = (here / "a.safetensors").read_bytes()
    (here / "a.safetensors").write_bytes(data[:-4])
    run("convert", "a.safetensors", "b.h5", code=1, text="truncated: its tensors take 528 bytes, but it has 524")
    run("convert", "a.safetensors", "b.h5", "--tensor", "w", code=1, text="truncated")
    (here / "a.safetensors").write_bytes(data + b"more")
    run("convert", "a.safetensors", "b.h5", code=1, text="damaged: its tensors take 528 bytes, but it has 532")
    (here / "a.safetensors").write_bytes(data)
    run("convert", "a.safetensors", "b.npy")
    assert np.array_equal(np.load("b.npy"), np.eye(4))


def test_the_smallest_good_sparse_safetensors(here):
    (here / "a.safetensors").write_bytes(safetensors_bytes(BSR, BSR_BODY))
    run("convert", "a.safetensors", "b.npy")
    assert np.array_equal(np.load("b.npy"), np.ones((2, 2)))


def make_sound(kind):
    """A sound file of each kind: one that other programs wrote, and one of ours."""
    a = sparse(24, 20)
    np.save("dense.npy", a.toarray())
    if kind == "mtx":
        scipy.io.mmwrite("a.mtx", a, symmetry="general")
        return "a.mtx"
    if kind == "npz":
        sp.save_npz("a.npz", a)
        return "a.npz"
    if kind == "bsr npz":
        run("convert", "dense.npy", "a.npz", "--block", 4)
        return "a.npz"
    if kind == "npy":
        np.save("a.npy", a.toarray().astype(np.float32))
        return "a.npy"
    if kind == "safetensors":
        write_safetensors("a.safetensors", {"bias": ("F32", np.ones(3)), "w": ("F16", a.toarray())})
        return "a.safetensors"
    run("convert", "dense.npy", "a." + kind.split()[-1], "--block", 4)
    return "a." + kind.split()[-1]


KINDS = ["mtx", "npz", "bsr npz", "npy", "safetensors", "bsr safetensors", "h5"]


@pytest.mark.parametrize("kind", KINDS)
def test_truncated(here, kind):
    path = here / make_sound(kind)
    data = path.read_bytes()
    points = sorted({*range(0, min(len(data), 24)), *np.linspace(0, len(data) - 1, 60).astype(int).tolist()})
    for size in points:
        path.write_bytes(data[:size])
        good = survives("convert", path, "b.h5")
        # Text may lose the end of its last number and still be text.
        assert not good or kind == "mtx" and size >= len(data) - 30, (kind, size, len(data))
        assert good or not (here / "b.h5").exists()
        if good:
            (here / "b.h5").unlink()
    assert files_in(here) == sorted(["dense.npy", path.name])


@pytest.mark.parametrize("kind", KINDS)
def test_flipped(here, kind):
    path = here / make_sound(kind)
    data = path.read_bytes()
    rng = np.random.default_rng(len(data))
    places = {*range(0, min(len(data), 16)), *rng.integers(0, len(data), 90).tolist()}
    for at in sorted(places):
        damaged = bytearray(data)
        damaged[at] = rng.integers(256) if at % 2 else damaged[at] ^ 1 << rng.integers(8)
        path.write_bytes(damaged)
        # Into a small format: a damaged shape may ask for a large one.
        if survives("convert", path, "b.h5"):
            assert kind != "h5" or bytes(damaged) == data, at
            assert "b.h5: good" in run("verify", "b.h5")
            (here / "b.h5").unlink()
    assert files_in(here) == sorted(["dense.npy", path.name])
