# SPDX-License-Identifier: Apache-2.0
import copy
import errno
import io
import os
import pickle
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import random_layout, random_matrix

import tartan
from tartan import ArgumentError, File, FormatError, Layout, NotFoundError, ShapeError, load, load_all, save, verify
from tartan._errors import about_file

DTYPES = ["float64", "float32", "float16", "bfloat16"]


def test_a_transpose_is_saved_as_a_copy(rng, tmp_path):
    matrix = random_matrix(rng, (13, 9), (4, 3))
    for things in (matrix.T, {"matrix": matrix.T}):
        save(tmp_path / "t.h5", things)
        loaded = load_all(tmp_path / "t.h5")
        assert (loaded["matrix"].toarray() == matrix.toarray().T).all()
        loaded["other"] = loaded["matrix"].T
        assert loaded["other"].shape == (13, 9)


@pytest.mark.parametrize("compress", [False, True])
def test_a_collection_there_and_back(rng, tmp_path, compress):
    path = tmp_path / "weights.h5"
    layout = Layout.pattern("barabasi_albert", (64, 64), 8, seed=1, m=2)
    file = File()
    file.put("graph", layout, metadata=["any", "JSON"])
    matrices = {}
    for dtype in DTYPES:
        dense = rng.standard_normal((64, 64))
        matrices[dtype] = tartan.BlockMatrix.from_dense(dense, layout=layout, dtype=dtype)
        file[dtype] = matrices[dtype]
    other = random_matrix(rng, (13, 9), (4, 3), heads=2, order="F")
    gates = rng.standard_normal(other.blocks)
    file.put("other", other, gates=gates, metadata={"é": 1})
    file.save(path, compress=compress)
    file.close()
    with File(path) as file:
        assert file.sealed and set(file) >= {"graph", "other", *DTYPES}
        assert sorted(file.matrices()) == sorted([*DTYPES, "other"])
        assert sorted(file.sharing(layout)) == sorted(DTYPES)
        assert file.metadata("graph") == ["any", "JSON"] and file.metadata("other") == {"é": 1}
        assert file.metadata("float32") is None and file.gates("float32") is None
        np.testing.assert_array_equal(file.gates("other"), gates)
        again = file.layout("graph")
        assert again == layout and again.recipe == layout.recipe
        for dtype in DTYPES:
            assert file[dtype].dtype_name == dtype
            np.testing.assert_array_equal(
                np.asarray(file[dtype].values, float), np.asarray(matrices[dtype].values, float)
            )
        np.testing.assert_array_equal(file["other"].toarray(), other.toarray())
        kept = file["float64"]
    np.testing.assert_array_equal(kept.toarray(), matrices["float64"].toarray())  # outlives the file
    report = tartan.verify(path)
    assert all(name in report for name in ("graph", "other"))


def test_short_forms(rng, tmp_path):
    matrix, layout = random_matrix(rng, (8, 8), 4), random_layout(rng, (8, 8), 2)
    one, two = tmp_path / "one.h5", str(tmp_path / "two.h5")
    matrix.save(one, metadata=1)
    np.testing.assert_array_equal(tartan.load(one).toarray(), matrix.toarray())
    layout.save(one, "grid")
    assert tartan.load(one) == layout and tartan.load(one, "grid") == layout
    tartan.save(two, {"a": matrix, "b": matrix, "grid": layout})
    assert set(tartan.load_all(two)) >= {"a", "b", "grid"}
    with pytest.raises(tartan.ArgumentError, match="'a'"):
        tartan.load(two)
    with pytest.raises(KeyError, match="nothing.*'a'"):
        tartan.load(two, "nothing")


def test_metadata_of_numpy(rng, tmp_path):
    matrix = random_matrix(rng, (8, 8), 4)
    given = {"epoch": np.int64(3), "loss": np.float32(0.5), "best": np.bool_(True), "sizes": np.arange(3)}
    matrix.save(tmp_path / "one.h5", metadata=given)
    assert tartan.load_all(tmp_path / "one.h5").metadata("matrix") == {"epoch": 3, "loss": 0.5, "best": True, "sizes": [0, 1, 2]}
    with pytest.raises(tartan.ArgumentTypeError, match="object of type object is not JSON serializable"):
        matrix.save(tmp_path / "one.h5", metadata={"thing": object()})


def test_an_empty_file_has_nothing_to_load(tmp_path):
    tartan.save(tmp_path / "empty.h5", {})
    assert not tartan.load_all(tmp_path / "empty.h5")
    with pytest.raises(tartan.NotFoundError, match="has no matrix and no layout"):
        tartan.load(tmp_path / "empty.h5")


def test_what_is_loaded_is_saved_whole(rng, tmp_path):
    """Gates, metadata, and layouts that are named like a matrix."""
    path, other = tmp_path / "w.h5", tmp_path / "other.h5"
    a, grid = random_matrix(rng, (8, 8), 4, 0.9), random_layout(rng, (8, 8), 2)
    gates = rng.standard_normal(a.blocks)

    def fill():
        with File() as file:
            file.put("n", a, gates=gates, metadata={"of": "a matrix"})
            file.put("n", grid, metadata="of a layout")
            file.put("plain", a)
            file.save(path)

    def check(where):
        with File(where) as file:
            assert (file.layouts(), file.matrices()) == (["n"], ["n", "plain"])
            np.testing.assert_array_equal(file.gates("n"), gates)
            assert file.gates("plain") is None
            assert file.metadata("n") == file.metadata("n", "matrix") == {"of": "a matrix"}
            assert file.metadata("n", "layout") == "of a layout" and file.layout("n") == grid

    fill()
    things = tartan.load_all(path)
    assert isinstance(things["n"], tartan.BlockMatrix) and things["n"] is things["n"]
    assert things.layout("n") == grid and things.metadata("n", "layout") == "of a layout"
    for where in (other, path):
        tartan.save(where, things)
        check(where)
        fill()
        with File(path) as file:
            tartan.save(where, file)
        check(where)
    things.save(path)
    check(path)
    things["n"] = random_matrix(rng, (8, 8), 4)  # another matrix has no gates
    assert things.gates("n") is None and things.metadata("n") is None
    del things["n"]
    assert things["n"] == grid and things.matrices() == ["plain"]
    with pytest.raises(KeyError, match="nothing.*'n'"):
        things["nothing"]
    with pytest.raises(tartan.ArgumentTypeError, match="'x' is of type int"):
        things["x"] = 3
    with pytest.raises(tartan.ArgumentError, match="kind is 'file'"):
        with File(path) as file:
            file.metadata("n", "file")


def test_errors_of_files_say_which_and_why(rng, tmp_path):
    missing, folder = tmp_path / "missing.h5", tmp_path / "no folder" / "w.h5"
    for path, call in (
        (missing, lambda: File(missing)),
        (missing, lambda: tartan.load_all(missing)),
        (missing, lambda: tartan.verify(missing)),
        (folder, lambda: random_matrix(rng, (4, 4), 2).save(folder)),
        (folder, lambda: tartan.save(folder, {})),
    ):
        with pytest.raises(tartan.FileError, match="No such file or directory") as caught:
            call()
        error = caught.value
        assert (error.errno, error.filename) == (errno.ENOENT, path)
        assert error.strerror == "No such file or directory" and str(error).startswith(str(path))
    missing.write_text("no HDF5")
    with pytest.raises(tartan.FormatError) as caught:
        File(missing)
    assert (caught.value.errno, caught.value.filename) == (None, missing)


def test_errors_of_files_are_those_of_python(rng, tmp_path):
    """What other programs catch: FileNotFoundError and its like."""
    matrix = random_matrix(rng, (8, 8), 4)
    (tmp_path / "file").write_bytes(b"x" * 1000)
    for kind, number, path, call in (
        (FileNotFoundError, errno.ENOENT, tmp_path / "none.h5", tartan.load),
        (FileNotFoundError, errno.ENOENT, tmp_path / "no" / "x.h5", matrix.save),
        (IsADirectoryError, errno.EISDIR, tmp_path, tartan.load_all),
        (IsADirectoryError, errno.EISDIR, tmp_path, matrix.save),
        (NotADirectoryError, errno.ENOTDIR, tmp_path / "file" / "x.h5", File),
    ):
        with pytest.raises(kind) as caught:
            call(path)
        error = caught.value
        assert isinstance(error, tartan.FileError) and error.status == tartan.FileError.status
        assert (error.errno, error.filename, error.strerror) == (number, path, os.strerror(number))
        assert str(path) in str(error)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)
    with pytest.raises(PermissionError) as caught, about_file("there"):
        raise tartan.FileError(f"f: there: {os.strerror(errno.EACCES)}")  # root may read all files
    assert caught.value.errno == errno.EACCES and caught.value.filename == "there"


def test_names_with_slashes(rng, tmp_path):
    matrix, path = random_matrix(rng, (8, 8), 4), tmp_path / "names.h5"
    names = ["a%2Fb", "a.b", "a/b", "model/layers.0/w", "/", "100%"]
    save(path, {name: matrix for name in names})
    for things in (File(path), load_all(path)):
        assert list(things) == names and "a/b" in things and "a" not in things and 3 not in things
        for name in names:
            np.testing.assert_array_equal(things[name].values, matrix.values)
    h5py = pytest.importorskip("h5py")
    with h5py.File(path) as file:
        assert sorted(file["tensors"]) == sorted(n.replace("%", "%25").replace("/", "%2F") for n in names)
        assert file["tensors/a%2Fb"].attrs["layout"].decode() in ("/layouts/" + name for name in file["layouts"])


def test_files_of_many_objects(tmp_path):
    """Each a file of its own length: no step looks at all others, so ten times as many take about ten times as long."""

    def seconds(call):
        start = time.process_time()
        return call(), time.process_time() - start

    def steps(count):
        layouts = {
            f"l{i}": tartan.Layout.from_mask((i >> np.arange(16).reshape(4, 4)) & 1, block=2) for i in range(1, count + 1)
        }
        path = tmp_path / f"{count}.h5"
        _, saved = seconds(lambda: save(path, layouts))
        things, loaded = seconds(lambda: load_all(path))
        assert things["l77"] == layouts["l77"] and len(things) == count
        with File(path) as file:
            found, each = seconds(lambda: [file[name] for name in layouts])
            there, asked = seconds(lambda: all(name in file for name in layouts))
            assert there and found == list(layouts.values())
            with pytest.raises(tartan.NotFoundError, match="there are 'l1', .*, [.]{3}$") as caught:
                file["l0"]
            assert len(str(caught.value)) < 200
        return saved, loaded, each, asked

    few = [steps(200) for _ in range(3)]
    many = steps(2000)
    # Where all were compared with each other, it would be a hundred times.
    assert all(long < 30 * max(short) for long, short in zip(many, zip(*few))), (few, many)


def test_metadata_must_be_json(rng):
    file = File()
    matrix = random_matrix(rng, (4, 4), 2)
    with pytest.raises(tartan.ArgumentError, match='metadata is "not JSON", expected JSON'):
        tartan._raw.tartan_file_put_matrix(file._handle, "w", matrix._handle, None, "not JSON")
    assert not list(file)


def test_metadata_of_other_programs_that_is_no_json(rng, tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "w.h5"
    random_matrix(rng, (4, 4), 2).save(path, "w", metadata={"epoch": 1})
    path.write_bytes(path.read_bytes()[512:])  # without the seal
    with h5py.File(path, "r+") as file:
        file["tensors/w"].attrs["metadata"] = "{not JSON"
    for things in (File(path), load_all(path)):
        with pytest.raises(tartan.FormatError, match="the metadata of 'w' is no JSON"):
            things.metadata("w")


def test_copies_of_a_collection(rng, tmp_path):
    matrix = random_matrix(rng, (4, 4), 2)
    save(tmp_path / "w.h5", {"a": matrix})
    things = load_all(tmp_path / "w.h5")
    for made in (things.copy(), copy.copy(things)):
        made["b"] = matrix
        assert made["a"] is things["a"] and list(made) == ["a", "b"] and list(things) == ["a"]


def test_a_path_of_none_is_no_empty_file():
    for read in (tartan.load, load_all, tartan.verify):
        with pytest.raises(TypeError, match="path is of type NoneType, expected a file name"):
            read(None)


def test_changing_a_file(rng, tmp_path):
    path = tmp_path / "w.h5"
    a, b = random_matrix(rng, (8, 8), 4), random_matrix(rng, (8, 8), 2)
    tartan.save(path, {"a": a, "b": b})
    with File(path) as file:
        del file["a"]
        file["c"] = a
        with pytest.raises(KeyError):
            file.remove("a")
        file.save(path)
    assert sorted(tartan.load_all(path)) == ["b", "c"]


def test_matrices_in_a_file_outlive_their_closing(rng, tmp_path):
    matrix = random_matrix(rng, (8, 8), 4)
    dense = matrix.toarray()
    with File() as file:
        file["a"] = matrix
        matrix.close()
        del matrix
        file.save(tmp_path / "w.h5")
    np.testing.assert_array_equal(tartan.load(tmp_path / "w.h5").toarray(), dense)


def test_values_are_read_when_saved(rng, tmp_path):
    matrix = random_matrix(rng, (8, 8), 4, 0.9)
    with File() as file:
        file["a"] = matrix
        matrix.values[0, 0, 0] = 42
        file.save(tmp_path / "w.h5")
    assert tartan.load(tmp_path / "w.h5").values[0, 0, 0] == 42


def test_file_opens_without_us(rng, tmp_path):
    h5py = pytest.importorskip("h5py")
    matrix = random_matrix(rng, (12, 8), (4, 2), dtype="float32")
    matrix.save(tmp_path / "w.h5", "w")
    found = []
    with h5py.File(tmp_path / "w.h5") as file:
        file.visititems(lambda name, item: found.append(item[()]) if isinstance(item, h5py.Dataset) else None)
    assert any(f.shape == matrix.values.shape and (f == matrix.values).all() for f in found)


# ---- Bad files ----


@pytest.fixture
def saved(rng, tmp_path):
    path = tmp_path / "good.h5"
    random_matrix(rng, (32, 32), 4).save(path)
    return path


def test_missing_file(tmp_path):
    with pytest.raises(tartan.FileError, match="none.h5") as caught:
        File(tmp_path / "none.h5")
    assert isinstance(caught.value, OSError)


def test_not_ours(tmp_path):
    (tmp_path / "text").write_text("hello " * 100)
    with pytest.raises(tartan.FormatError, match="text"):
        File(tmp_path / "text")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(tartan.FormatError):
        File(tmp_path / "empty")
    with pytest.raises(OSError):
        File(tmp_path)


def test_foreign_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["x"] = np.arange(5)
    with pytest.raises(tartan.FormatError):
        File(tmp_path / "f.h5")


def test_truncated(saved):
    data = saved.read_bytes()
    for keep in (10, len(data) // 2, len(data) - 1):
        saved.write_bytes(data[:keep])
        with pytest.raises(tartan.FormatError):
            File(saved)
        with pytest.raises(tartan.FormatError):
            tartan.verify(saved)


def test_flipped_bytes(rng, saved):
    data = saved.read_bytes()
    for place in rng.integers(0, len(data), 200):
        bad = bytearray(data)
        bad[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bad)
        with pytest.raises(tartan.FormatError):
            tartan.load_all(saved)


def test_newer_version(saved):
    h5py = pytest.importorskip("h5py")
    with h5py.File(saved, "r+") as file:
        names = [n for n in file.attrs if "version" in n.lower() or "schema" in n.lower()]
        assert names
        for name in names:
            value = file.attrs[name]
            file.attrs[name] = "99.0" if isinstance(value, str) else np.full_like(value, 99)
    with pytest.raises(tartan.FormatError):  # the seal, or the version
        File(saved)


def test_full_disk(saved):
    """With a limit on file size, a save fails with the system's words and the old file stays."""
    before = saved.read_bytes()
    code = """
import resource, signal, sys, numpy as np, tartan
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
A = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (512, 512), 16))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    A.save(sys.argv[1])
except tartan.FileError as error:
    assert isinstance(error, OSError), error
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code, saved], capture_output=True, text=True, check=True)
    assert "refused:" in done.stdout and "large" in done.stdout.lower(), done
    assert saved.read_bytes() == before and os.listdir(saved.parent) == [saved.name]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


def test_unwritable_folder(rng, tmp_path):
    with pytest.raises(tartan.FileError, match="nowhere"):
        random_matrix(rng, (8, 8), 4).save(tmp_path / "nowhere" / "x.h5")


def test_bad_names_and_things(rng, tmp_path):
    matrix = random_matrix(rng, (8, 8), 4)
    with File() as file:
        for name in ("", ".", "..", "a\nb", "x" * 256):
            with pytest.raises(tartan.ArgumentError):
                file[name] = matrix
        with pytest.raises(TypeError):
            file[3] = matrix
        with pytest.raises(TypeError, match="of type int"):
            file["a"] = 3
        with pytest.raises(TypeError, match="JSON"):
            file.put("a", matrix, metadata=object())
        with pytest.raises(tartan.ShapeError):
            file.put("a", matrix, gates=np.zeros(matrix.blocks + 1))
        with pytest.raises(tartan.ArgumentError):
            file.put("a", matrix.layout, gates=[1.0])
        assert len(file) == 0
    with pytest.raises(tartan.HandleError):
        file.save(tmp_path / "x.h5")
    with pytest.raises(tartan.HandleError):
        file["a"] = matrix
    with pytest.raises(TypeError):
        File(3.5)
    with pytest.raises(TypeError):
        tartan.save(tmp_path / "x.h5", 3)


def test_paths_of_any_bytes(rng, tmp_path):
    matrix = random_matrix(rng, (8, 8), 4)
    path = tmp_path / "größe.h5"
    matrix.save(path)
    assert tartan.load(os.fsencode(path)).shape == (8, 8)


def test_objects_keep_their_order(rng, tmp_path):
    path = tmp_path / "order.h5"
    A = random_matrix(rng, (8, 8), 4)
    names = ["layer1", "layer2", "layer10", "bias", "a"]
    save(path, {name: np.ones(3) if name == "bias" else A.layout if name == "layer10" else A for name in names})
    assert list(File(path)) == list(load_all(path)) == names
    again = load_all(path)
    again["layer2"] = A
    again["last"] = A
    save(path, again)
    assert list(File(path)) == list(load_all(path)) == [*names, "last"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 3, 4, 5)])
def test_arrays(rng, tmp_path, dtype, shape):
    path = tmp_path / "arrays.h5"
    x = (rng.random(shape) * 100).astype(dtype)
    file = File()
    file.put("c", x, metadata={"of": "c"})
    file["f"] = np.array(x, order="F")
    if shape:
        file["part"] = np.repeat(x, 2, axis=-1)[..., ::2]
    for things in (file, (file.save(path), File(path))[1], load_all(path)):
        for name in ("c", "f", *(["part"] if shape else [])):
            assert things[name].dtype == x.dtype and things[name].shape == shape and np.array_equal(things[name], x)
        assert things.metadata("c") == {"of": "c"} and things.arrays()[:2] == ["c", "f"] and things.matrices() == []


def test_arrays_are_copied_and_matrices_precede_layouts(rng, tmp_path):
    path, x, A = tmp_path / "x.h5", np.zeros(3), random_matrix(rng, (8, 8), 4)
    file = File()
    file["x"] = x
    file.put("x", A.layout)
    x[:] = 1
    assert not file["x"].any() and file.layouts() == ["x"]
    file["x"] = A  # takes the array's place
    file.save(path)
    assert File(path).arrays() == [] and File(path)["x"].layout == A.layout
    with pytest.raises(ArgumentError, match="gates are given with an array"):
        file.put("y", x, gates=[1.0])
    with pytest.raises(TypeError, match="'y' is of type list, expected a Layout, a BlockMatrix or an array"):
        file["y"] = [1.0]
    with pytest.raises(NotFoundError, match="'x' is a matrix, expected an array"):
        file.array("x")


def test_append(rng, tmp_path):
    path = tmp_path / "log.h5"
    A, B = random_matrix(rng, (40, 40), 8), random_matrix(rng, (24, 16), 4)
    save(path, {"w": A, "step": np.array(1)}, append=True)  # where there is nothing
    save(path, {"v": B, "step": np.array(2)}, append=True)
    things = load_all(path)
    assert list(things) == ["w", "step", "v"] and things["step"] == 2
    assert np.array_equal(things["w"].toarray(), A.toarray()) and np.array_equal(things["v"].toarray(), B.toarray())
    with File() as file:
        file.put("w", B, gates=np.ones(B.blocks), metadata=[1])
        file.append(path, compress=True)
    assert File(path).metadata("w") == [1] and File(path).gates("w").shape == (B.blocks,)
    assert "seal: ok" in verify(path)


def test_parts(rng, tmp_path):
    path, A, x = tmp_path / "parts.h5", random_matrix(rng, (50, 30), (8, 4)), rng.random((9, 4))
    save(path, {"w": A, "x": x, "l": A.layout, "n": np.array(1.0)})
    dense, file = A.toarray(), File(path)
    for rows, wanted in (((8, 32), dense[8:32]), (slice(40, None), dense[40:]), (slice(0, -10), dense[:40]), ((0, 50), dense)):
        assert np.array_equal(file.matrix("w", rows).toarray(), wanted)
        assert np.array_equal(load(path, "w", rows=rows).toarray(), wanted)
    assert np.array_equal(load(path, "x", rows=(2, 5)), x[2:5]) and np.array_equal(file.array("x", slice(-2, None)), x[-2:])
    assert np.array_equal(file.blocks("w", (3, 7)), A.values[3:7]) and len(file.blocks("w", slice(3, 1))) == 0
    with pytest.raises(ShapeError, match="whole block rows"):
        load(path, "w", rows=(3, 8))
    with pytest.raises(IndexError, match="expected a range of 0 to 9"):
        load(path, "x", rows=(3, 10))
    with pytest.raises(ArgumentError, match="step"):
        load(path, "x", rows=slice(0, 4, 2))
    for rows in (3, "ab", (1, 2, 3), (1.5, 2)):
        with pytest.raises(TypeError, match="expected a slice or a pair"):
            load(path, "x", rows=rows)
    for name in ("l", "n"):
        with pytest.raises(ArgumentError, match="rows are given, but"):
            load(path, name, rows=(0, 1))


def test_file_objects(rng, tmp_path):
    A, buffer = random_matrix(rng, (16, 16), 4), io.BytesIO()
    save(buffer, {"w": A, "x": np.arange(3)})
    with open(tmp_path / "same.h5", "wb") as file:
        A.save(file, "w")
    buffer.seek(0)
    things = load_all(buffer)
    assert np.array_equal(things["w"].toarray(), A.toarray()) and list(things["x"]) == [0, 1, 2]
    for path in (io.BytesIO(buffer.getvalue()), tmp_path / "same.h5"):
        assert np.array_equal(load(path, "w").toarray(), A.toarray())
    with pytest.raises(FormatError):
        load(io.BytesIO(b"no file of ours"))
    with pytest.raises(TypeError, match="binary"):
        load(io.StringIO("text"))
    with pytest.raises(TypeError, match="file name"):
        save(buffer, {"w": A}, append=True)


def test_opening_costs_the_same_however_many_objects(tmp_path):
    """Counted in reads, not in time: no walk over the objects."""
    reads = []
    for many in (10, 3000):
        path = tmp_path / f"{many}.h5"
        save(path, {f"x{i}": np.full(4, i) for i in range(many)})
        code = (
            "import sys, tartan\n"
            "before = int(open('/proc/self/io').read().split()[1])\n"
            "assert tartan.load(sys.argv[1], 'x7')[0] == 7\n"
            "print(int(open('/proc/self/io').read().split()[1]) - before)"
        )
        run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        reads.append(int(run.stdout))
    assert reads[1] < reads[0] + 2**20  # of 1.4 MB: some pages
