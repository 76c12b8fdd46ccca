# SPDX-License-Identifier: Apache-2.0
"""Files of AnnData and of Binsparse: h5py sees them as these projects' pages describe them, and what they describe is read."""

import io
import json
import sys

import numpy as np
import pytest
from conftest import random_matrix

import tartan
from tartan import ArgumentError, BlockMatrix, DTypeError, FileError, FormatError, NotFoundError, ShapeError

h5py = pytest.importorskip("h5py")
sparse = pytest.importorskip("scipy.sparse")


def elements(group):
    return {name: group[name][()] for name in ("data", "indices", "indptr")}


# ---- AnnData ----


@pytest.mark.parametrize("format", ["csr", "csc", "dense"])
@pytest.mark.parametrize("block", [1, 3, (4, 5)])
def test_h5ad_there_and_back(rng, tmp_path, format, block):
    matrix = random_matrix(rng, (13, 9), (4, 3))
    tartan.write_h5ad(tmp_path / "a.h5ad", matrix, format=format)
    again = tartan.read_h5ad(tmp_path / "a.h5ad", block=block)
    assert again.block_shape == (block if isinstance(block, tuple) else (block, block))
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    assert tartan.read_h5ad(tmp_path / "a.h5ad", dtype="float32").dtype_name == "float32"
    with open(tmp_path / "a.h5ad", "rb") as file:
        np.testing.assert_array_equal(tartan.read_h5ad(io.BytesIO(file.read())).toarray(), matrix.toarray())


def test_h5ad_is_as_anndata_describes_it(rng, tmp_path):
    matrix = random_matrix(rng, (4, 6), (2, 3))
    tartan.write_h5ad(tmp_path / "a.h5ad", matrix.T.copy(), format="csc", var_names=["a", "b", "c", "d"])
    with h5py.File(tmp_path / "a.h5ad") as file:
        assert dict(file.attrs) == {"encoding-type": "anndata", "encoding-version": "0.1.0"}
        assert set(file) == {"X", "layers", "obs", "obsm", "obsp", "uns", "var", "varm", "varp"}
        x = file["X"]
        assert x.attrs["encoding-type"] == "csc_matrix" and list(x.attrs["shape"]) == [6, 4]
        lists = elements(x)
        made = sparse.csc_matrix((lists["data"], lists["indices"], lists["indptr"]), (6, 4))
        np.testing.assert_array_equal(made.toarray(), matrix.toarray().T)
        assert made.nnz == np.count_nonzero(matrix.toarray())
        for axis, names in {"obs": list("012345"), "var": list("abcd")}.items():
            frame = file[axis]
            assert frame.attrs["encoding-type"] == "dataframe" and frame.attrs["encoding-version"] == "0.2.0"
            assert len(frame.attrs["column-order"]) == 0
            assert [x.decode() for x in frame[frame.attrs["_index"]][()]] == names


def test_h5ad_layers_are_added_and_replaced(rng, tmp_path):
    path = tmp_path / "a.h5ad"
    first, second = random_matrix(rng, (8, 6), (2, 3)), random_matrix(rng, (8, 6), (4, 2))
    tartan.write_h5ad(path, first, obs_names=[f"cell {i}" for i in range(8)])
    for matrix in (first, second):
        tartan.write_h5ad(path, matrix, "layers/blocks", append=True)
        np.testing.assert_array_equal(tartan.read_h5ad(path, "layers/blocks").toarray(), matrix.toarray())
    np.testing.assert_array_equal(tartan.read_h5ad(path).toarray(), first.toarray())
    with h5py.File(path) as file:
        assert file["obs/_index"][7] == b"cell 7"
    assert [x.name for x in tmp_path.iterdir()] == ["a.h5ad"]


def test_h5ad_of_old_anndata_and_of_counts(tmp_path):
    counts = sparse.csr_matrix(np.array([[0, 3, 0], [70000, 0, 1]]))
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        for name, marks in {"X": {"h5sparse_format": "csr", "h5sparse_shape": (2, 3)}, "new": {"encoding-type": "csr_matrix", "shape": (2, 3)}}.items():
            group = file.create_group(name)
            group.attrs.update(marks)
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(counts, part)
        file["plain"] = counts.toarray()
    for name in ("X", "new", "plain"):
        np.testing.assert_array_equal(tartan.read_h5ad(tmp_path / "a.h5ad", name).toarray(), counts.toarray())


def test_h5ad_refusals(rng, tmp_path):
    path, matrix = tmp_path / "a.h5ad", random_matrix(rng, (8, 6), (2, 3))
    with pytest.raises(FileNotFoundError) as missing:
        tartan.read_h5ad(path)
    assert isinstance(missing.value, FileError) and missing.value.filename == path
    with pytest.raises(FileNotFoundError):
        tartan.write_h5ad(path, matrix, append=True)
    with pytest.raises(FileNotFoundError):
        tartan.write_h5ad(tmp_path / "none" / "a.h5ad", matrix)
    (tmp_path / "text").write_text("no HDF5")
    with pytest.raises(FormatError, match="text"):
        tartan.read_h5ad(tmp_path / "text")
    with pytest.raises(ArgumentError, match="format is 'coo', expected one of 'csr'"):
        tartan.write_h5ad(path, matrix, format="coo")
    with pytest.raises(ShapeError, match="obs_names has 2 names, expected 8"):
        tartan.write_h5ad(path, matrix, obs_names=["a", "b"])
    with pytest.raises(ShapeError, match="2 heads"):
        tartan.write_h5ad(path, random_matrix(rng, (8, 6), (2, 3), heads=2))
    with pytest.raises(TypeError, match="matrix is of type ndarray, expected a BlockMatrix"):
        tartan.write_h5ad(path, np.eye(3))
    with pytest.raises(TypeError, match="path is of type int"):
        tartan.read_h5ad(3)
    assert not path.exists()
    tartan.write_h5ad(path, matrix)
    with pytest.raises(ArgumentError, match="names are given with append"):
        tartan.write_h5ad(path, matrix, "layers/a", var_names=list("abcdef"), append=True)
    with pytest.raises(NotFoundError, match="nothing is named 'Y'; there are 'X'"):
        tartan.read_h5ad(path, "Y")
    with pytest.raises(FormatError, match="'obs' is of encoding 'dataframe'"):
        tartan.read_h5ad(path, "obs")
    with h5py.File(path, "a") as file:
        file["X/indices"][0] = 6
        file["cube"] = np.zeros((2, 2, 2))
        del file.attrs["encoding-type"]
    with pytest.raises(FormatError, match="'X': .* is 6"):
        tartan.read_h5ad(path)
    with pytest.raises(FormatError, match="cube"):
        tartan.read_h5ad(path, "cube")
    with pytest.raises(FormatError, match="is no AnnData file"):
        tartan.write_h5ad(path, matrix, "layers/a", append=True)
    with h5py.File(path, "a") as file:
        del file["X/indptr"]
    with pytest.raises(FormatError):
        tartan.read_h5ad(path)


def test_files_of_others_need_h5py(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for call in (tartan.read_h5ad, tartan.read_binsparse):
        with pytest.raises(ImportError, match="h5py"):
            call(tmp_path / "a.h5")


# ---- Binsparse ----


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_bsr_there_and_back(rng, tmp_path, dtype, order):
    matrix = random_matrix(rng, (13, 9), (4, 3), order=order).astype(dtype)
    tartan.write_binsparse(tmp_path / "a.h5", matrix)
    again = tartan.read_binsparse(tmp_path / "a.h5")
    assert again.layout == matrix.layout and again.dtype_name == dtype
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    tartan.write_binsparse(tmp_path / "a.h5", 2 * matrix, "more/w", append=True)
    np.testing.assert_array_equal(tartan.read_binsparse(tmp_path / "a.h5", "more/w").toarray(), 2 * matrix.toarray())
    np.testing.assert_array_equal(tartan.read_binsparse(tmp_path / "a.h5").toarray(), matrix.toarray())


def put(path, about, **lists):
    with h5py.File(path, "w") as file:
        file.attrs["binsparse"] = json.dumps({"binsparse": about})
        for name, data in lists.items():
            file[name] = data


def test_bsr_as_the_draft_describes_it(tmp_path):
    path = tmp_path / "a.h5"
    tartan.write_binsparse(path, BlockMatrix.from_dense(np.array([[1.0, 2, 0, 0, 5], [3, 4, 0, 0, 6], [0, 0, 7, 0, 0]]), (2, 2)))
    with h5py.File(path) as file:
        about = json.loads(file.attrs["binsparse"])["binsparse"]
        assert about["format"] == "BSR" and about["shape"] == [3, 5] and about["block_shape"] == [2, 2]
        assert list(file["pointers_to_1"]) == [0, 2, 3] and list(file["indices_1"]) == [0, 2, 1]
        assert list(file["values"]) == [1, 2, 3, 4, 5, 0, 6, 0, 7, 0, 0, 0] and about["number_of_stored_values"] == 12
    # Blocks of a row in any order, stored by column.
    put(path, about | {"block_order": "column_major"}, pointers_to_1=[0, 2, 3], indices_1=[2, 0, 1],
        values=[5, 6, 0, 0, 1, 3, 2, 4, 7.0, 0, 0, 0])  # fmt: skip
    np.testing.assert_array_equal(tartan.read_binsparse(path).toarray(), [[1, 2, 0, 0, 5], [3, 4, 0, 0, 6], [0, 0, 7, 0, 0]])
    assert tartan.read_binsparse(path, dtype="float32").dtype_name == "float32"


@pytest.mark.parametrize("format", ["CSR", "CSC"])
def test_compressed_elements_of_binsparse(tmp_path, format):
    dense = np.array([[0, 1.5, 0], [2, 0, 3]])
    lists = getattr(sparse, format.lower() + "_matrix")(dense)
    about = {"version": "0.1", "format": format, "shape": [2, 3], "data_types": {"values": "float64"}}
    put(tmp_path / "a.h5", about, pointers_to_1=lists.indptr, indices_1=lists.indices, values=lists.data)
    np.testing.assert_array_equal(tartan.read_binsparse(tmp_path / "a.h5", block=2).toarray(), dense)
    about["data_types"]["values"] = "iso[float64]"
    put(tmp_path / "a.h5", about, pointers_to_1=lists.indptr, indices_1=lists.indices, values=[4.0])
    np.testing.assert_array_equal(tartan.read_binsparse(tmp_path / "a.h5", block=2).toarray(), 4 * (dense != 0))


def test_binsparse_refusals(rng, tmp_path):
    path, matrix = tmp_path / "a.h5", random_matrix(rng, (8, 6), (2, 3))
    with pytest.raises(DTypeError, match="bfloat16"):
        tartan.write_binsparse(path, matrix.astype("bfloat16"))
    uneven = tartan.Layout.pattern("dense", (2, 2), 1).with_boundaries([0, 3, 8], [0, 2, 6])
    with pytest.raises(tartan.UnsupportedError, match="differ in size"):
        tartan.write_binsparse(path, BlockMatrix.zeros(uneven))
    assert not path.exists()
    tartan.write_binsparse(path, matrix)
    for key in ("/", "values"):
        with pytest.raises(ArgumentError, match="which the file has already"):
            tartan.write_binsparse(path, matrix, key, append=True)
    with pytest.raises(ArgumentError, match="a file of BSR has its own"):
        tartan.read_binsparse(path, block=2)
    with pytest.raises(NotFoundError, match="'w'"):
        tartan.read_binsparse(path, "w")
    good = {"version": "0.1", "format": "BSR", "shape": [4, 4], "block_shape": [2, 2], "data_types": {"values": "float64"}}
    lists = {"pointers_to_1": [0, 1, 2], "indices_1": [0, 1], "values": np.ones(8)}
    put(path, good, **lists)
    assert tartan.read_binsparse(path).blocks == 2
    for change, message in [
        ({"format": "COO"}, "expected BSR, CSR or CSC"), ({"shape": [4]}, "1 dimensions"), ({"shape": 4}, "no descriptor"),
        ({"block_shape": [2]}, "no block_shape"), ({"block_shape": [2, "x"]}, "no block_shape"), ({"block_order": "odd"}, "block_order 'odd'"),
        ({"data_types": {"values": "complex[float64]"}}, "expected real numbers"), ({"shape": [4, 4, 4]}, "3 dimensions"),
    ]:  # fmt: skip
        put(path, good | change, **lists)
        with pytest.raises(FormatError, match=message):
            tartan.read_binsparse(path)
    for change in [{"values": np.ones(7)}, {"indices_1": [0, 2]}, {"pointers_to_1": [0, 2, 1]}, {"pointers_to_1": [0, 1]}, {"pointers_to_1": [0, 1, 3]}]:
        put(path, good, **(lists | change))
        with pytest.raises(FormatError):
            tartan.read_binsparse(path)
    put(path, good | {"format": "CSR"}, **lists)
    with pytest.raises(ArgumentError, match="expected the size of the blocks"):
        tartan.read_binsparse(path)
    with h5py.File(path, "a") as file:
        del file.attrs["binsparse"]
    with pytest.raises(FormatError, match="no descriptor"):
        tartan.read_binsparse(path)
