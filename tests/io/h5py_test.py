# SPDX-License-Identifier: Apache-2.0
"""Files between Tartan and h5py, both ways, with nothing of Tartan on the other side but the documented schema.

TARTAN_LIBRARY names libtartan.so."""

import ctypes
import json
import os

import pytest

h5py = pytest.importorskip("h5py")
numpy = pytest.importorskip("numpy")
sparse = pytest.importorskip("scipy.sparse")

if "TARTAN_LIBRARY" not in os.environ:
    pytest.skip("TARTAN_LIBRARY is not set", allow_module_level=True)
lib = ctypes.CDLL(os.environ["TARTAN_LIBRARY"])
lib.tartan_last_error.restype = ctypes.c_char_p
lib.tartan_file_layout_identity.restype = ctypes.c_char_p
lib.tartan_file_layout_identity.argtypes = [ctypes.c_void_p, ctypes.c_int64]
lib.tartan_file_name.restype = ctypes.c_char_p
lib.tartan_file_name.argtypes = [ctypes.c_void_p, ctypes.c_int64]
lib.tartan_file_count.restype = ctypes.c_int64

DTYPES = {"float64": 1, "float32": 2, "float16": 3, "bfloat16": 4}
ORDERS = {"C": 0, "F": 1}


class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8)]


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("rows", "cols", "block_rows", "block_cols", "heads")]


def call(name, *arguments):
    if getattr(lib, name)(*arguments) != 0:
        raise RuntimeError(lib.tartan_last_error().decode())


def handle(name, *arguments):
    out = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(out))
    return out


def array(values):
    """Describes a float64 array to the library."""
    out = Array(values.ctypes.data, 1, 1, 0, values.ndim)
    for i in range(values.ndim):
        out.shape[i] = values.shape[i]
        out.strides[i] = values.strides[i] // 8
    return out


def dense_of(matrix, shape):
    out = numpy.zeros(shape)
    call("tartan_matrix_to_dense", matrix, ctypes.byref(array(out)))
    return out


def load(path, name, shape):
    """The matrix as Tartan reads it, dense."""
    file = handle("tartan_file_open", str(path).encode())
    matrix = handle("tartan_file_get_matrix", file, name.encode())
    dense = dense_of(matrix, shape)
    lib.tartan_matrix_free(matrix)
    lib.tartan_file_free(file)
    return dense


def save(path, name, mask, values, block, dtype="float64", order="C", compression=0, gates=None):
    """Saves `values` (dense) at the blocks of `mask` by Tartan."""
    heads = 1 if mask.ndim == 2 else mask.shape[0]
    shape = Shape(values.shape[-2], values.shape[-1], block[0], block[1], heads)
    mask = numpy.ascontiguousarray(mask, dtype=numpy.uint8)
    layout = handle("tartan_layout_from_mask", ctypes.byref(shape), mask.ctypes.data_as(ctypes.c_void_p),
                    ctypes.c_int64(mask.size))
    matrix = handle("tartan_matrix_from_dense", layout, ctypes.byref(array(values)), DTYPES[dtype], ORDERS[order])
    file = handle("tartan_file_create")
    call("tartan_file_put_layout", file, b"pattern", layout, None)
    call("tartan_file_put_matrix", file, name.encode(), matrix,
         None if gates is None else ctypes.byref(array(gates)), b'{"made by": "test"}')
    call("tartan_file_save", file, str(path).encode(), compression)
    for kind, owned in (("matrix", matrix), ("layout", layout), ("file", file)):
        getattr(lib, f"tartan_{kind}_free")(owned)


def masked(mask, values, block):
    """What is left of dense values at the blocks of a mask."""
    wide = numpy.kron(mask, numpy.ones(block, dtype=int))[..., :values.shape[-2], :values.shape[-1]]
    return values * (wide != 0)


def samples(rows, cols, block, heads=1, seed=0):
    random = numpy.random.default_rng(seed)
    grid = (-(-rows // block[0]), -(-cols // block[1]))
    lead = () if heads == 1 else (heads,)
    mask = random.random(lead + grid) < 0.5
    values = random.integers(-64, 64, lead + (rows, cols)) / 4  # exact in every dtype
    return mask, values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("rows,cols,block", [(48, 60, (4, 5)), (53, 58, (4, 5)), (60, 60, (1, 1)), (80, 60, (32, 16))])
def test_ours_reads_alone(tmp_path, dtype, order, compression, rows, cols, block):
    mask, values = samples(rows, cols, block)
    path = tmp_path / "ours.h5"
    save(path, "w", mask, values, block, dtype, order, compression)
    with h5py.File(path) as file:
        group = file["tensors/w"]
        blocks = group["blocks"][()].astype(float)
        if order == "F":
            blocks = blocks.transpose(0, 2, 1)
        read = sparse.bsr_matrix((blocks, group["indices_1"][()], group["pointers_to_1"][()])).toarray()
        assert numpy.array_equal(group["values"][()], group["blocks"][()].ravel())
        assert group["indices_1"] == file["layouts/pattern/indices_1"], "one dataset under two names"
        assert file["layouts/pattern"].attrs["shape"].tolist() == [rows, cols]
    wanted = masked(mask, values, block)
    padded = numpy.zeros((mask.shape[0] * block[0], mask.shape[1] * block[1]))
    padded[:rows, :cols] = wanted
    assert numpy.array_equal(read, padded[:read.shape[0], :read.shape[1]])  # scipy drops empty columns at the end
    assert not padded[read.shape[0]:].any() and not padded[:, read.shape[1]:].any()
    assert numpy.array_equal(load(path, "w", (rows, cols)), wanted)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("heads", [1, 3])
def test_binsparse_descriptor_is_the_matrix(tmp_path, order, heads):
    """Follows the descriptor literally: levels, then the transpose, then a reshape."""
    rows, cols, block = 48, 60, (4, 5)
    mask, values = samples(rows, cols, block, heads)
    path = tmp_path / "binsparse.h5"
    save(path, "w", mask, values, block, "float32", order)
    with h5py.File(path) as file:
        group = file["tensors/w"]
        about = json.loads(group.attrs["binsparse"])["binsparse"]
        level = about["custom"]["level"]
        kinds = []
        while level["level_desc"] != "element":
            kinds += [level["level_desc"]] * level["rank"]
            level = level["level"]
        depth = kinds.index("sparse")
        transpose = about["custom"]["transpose"]
        stored = [about["shape"][i] for i in transpose]  # the shape in the order of the levels
        pointers, indices = group[f"pointers_to_{depth}"][()], group[f"indices_{depth}"][()]
        for name in (f"pointers_to_{depth}", f"indices_{depth}", "values"):
            assert group[name].dtype == about["data_types"][name]
        assert group["values"].size == about["number_of_stored_values"]
        flat = numpy.zeros([int(numpy.prod(stored[:depth])), stored[depth], int(numpy.prod(stored[depth + 1:]))])
        pieces = group["values"][()].reshape(-1, flat.shape[2])
        for line in range(flat.shape[0]):
            for at in range(pointers[line], pointers[line + 1]):
                flat[line, indices[at]] = pieces[at]
    tensor = flat.reshape(stored).transpose(numpy.argsort(transpose))
    assert list(tensor.shape) == about["shape"]
    assert numpy.array_equal(tensor.reshape(values.shape), masked(mask, values, block))


def test_layout_is_a_binsparse_matrix(tmp_path):
    mask, values = samples(12, 20, (4, 5))
    save(tmp_path / "l.h5", "w", mask, values, (4, 5))
    with h5py.File(tmp_path / "l.h5") as file:
        group = file["layouts/pattern"]
        about = json.loads(group.attrs["binsparse"])["binsparse"]
        assert about["format"] == "CSR" and about["data_types"]["values"] == "iso[bint8]"
        ones = numpy.repeat(group["values"][()], group["indices_1"].size)
        read = sparse.csr_matrix((ones, group["indices_1"][()], group["pointers_to_1"][()]), shape=about["shape"])
    assert numpy.array_equal(read.toarray(), mask)


def test_gates_and_metadata(tmp_path):
    mask, values = samples(12, 20, (4, 5))
    gates = numpy.arange(mask.sum()) / 8
    save(tmp_path / "g.h5", "w", mask, values, (4, 5), gates=gates)
    with h5py.File(tmp_path / "g.h5") as file:
        assert numpy.array_equal(file["tensors/w/gates"][()], gates)
        assert file["tensors/w"].attrs["metadata"].decode() == '{"made by": "test"}'
        assert file["tensors/w"].attrs["dtype"].decode() == "float64"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_small_matrices_are_datasets(tmp_path, dtype, order):
    mask, values = samples(13, 9, (4, 3), seed=8)
    save(tmp_path / "s.h5", "w", mask, values, (4, 3), dtype, order)
    with h5py.File(tmp_path / "s.h5") as file:
        blocks, layout = file["tensors/w"], file[file["tensors/w"].attrs["layout"].decode()]
        read = blocks[()].astype(float)
        if blocks.attrs.get("block_order") == b"F":
            read = read.transpose(0, 2, 1)
        read = sparse.bsr_matrix((read, layout["indices_1"][()], layout["pointers_to_1"][()])).toarray()
    wanted = masked(mask, values, (4, 3))
    padded = numpy.zeros((16, 9))
    padded[:13] = wanted
    assert numpy.array_equal(read, padded[:read.shape[0], :read.shape[1]])
    assert numpy.array_equal(load(tmp_path / "s.h5", "w", (13, 9)), wanted)


def write_by_h5py(path, matrix, shape, dtype, order="C", **options):
    """What docs/file_format.md asks of other programs, and no more."""
    with h5py.File(path, "w") as file:
        file.attrs["tartan_schema"] = "block-sparse"
        file.attrs["tartan_schema_version"] = "1.0"
        layout = file.create_group("layouts/p")
        layout.attrs["kind"] = "layout"
        layout.attrs["shape"] = numpy.array(shape)
        layout.attrs["block_shape"] = numpy.array(matrix.blocksize)
        layout["pointers_to_1"] = matrix.indptr
        layout["indices_1"] = matrix.indices
        tensor = file.create_group("tensors/w")
        tensor.attrs["kind"] = "bsr"
        tensor.attrs["layout"] = "/layouts/p"
        tensor.attrs["block_order"] = order
        blocks = matrix.data if order == "C" else matrix.data.transpose(0, 2, 1)
        if dtype == "bfloat16":
            kind = h5py.h5t.IEEE_F32LE.copy()
            kind.set_fields(15, 7, 8, 0, 7)
            kind.set_size(2)
            kind.set_ebias(127)
            tensor.attrs["dtype"] = "bfloat16"
            space = h5py.h5s.create_simple(blocks.shape)
            dataset = h5py.h5d.create(tensor.id, b"blocks", kind, space)
            bits = (numpy.ascontiguousarray(blocks, dtype=numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, bits, kind)
        else:
            tensor.create_dataset("blocks", data=blocks.astype(dtype), **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_theirs_loads(tmp_path, dtype, order):
    mask, values = samples(12, 20, (4, 5), seed=3)
    wanted = masked(mask, values, (4, 5))
    matrix = sparse.bsr_matrix(wanted, blocksize=(4, 5))
    matrix.sort_indices()
    path = tmp_path / "theirs.h5"
    write_by_h5py(path, matrix, wanted.shape, dtype, order)
    assert numpy.array_equal(load(path, "w", wanted.shape), wanted)


def test_theirs_loads_compressed_and_with_wide_indices(tmp_path):
    mask, values = samples(12, 20, (4, 5), seed=4)
    wanted = masked(mask, values, (4, 5))
    matrix = sparse.bsr_matrix(wanted, blocksize=(4, 5))
    matrix.indptr, matrix.indices = matrix.indptr.astype(numpy.int64), matrix.indices.astype(numpy.int64)
    path = tmp_path / "wide.h5"
    write_by_h5py(path, matrix, wanted.shape, "float32", chunks=True, compression="gzip", shuffle=True, fletcher32=True)
    assert numpy.array_equal(load(path, "w", wanted.shape), wanted)


def test_theirs_gets_our_identity(tmp_path):
    """The same pattern has the same identity whoever wrote it, so files find each other's layouts."""
    mask, values = samples(12, 20, (4, 5), seed=5)
    wanted = masked(mask, numpy.where(values == 0, 1, values), (4, 5))
    matrix = sparse.bsr_matrix(wanted, blocksize=(4, 5))
    write_by_h5py(tmp_path / "theirs.h5", matrix, wanted.shape, "float64")
    save(tmp_path / "ours.h5", "w", mask, wanted, (4, 5))
    found = []
    for name in ("ours.h5", "theirs.h5"):
        file = handle("tartan_file_open", str(tmp_path / name).encode())
        found.append({lib.tartan_file_layout_identity(file, i) for i in range(lib.tartan_file_count(file))})
        lib.tartan_file_free(file)
    assert found[0] == found[1] and len(found[0]) == 1


def test_their_faults_are_named(tmp_path):
    mask, values = samples(12, 20, (4, 5), seed=6)
    matrix = sparse.bsr_matrix(masked(mask, values, (4, 5)), blocksize=(4, 5))
    path = tmp_path / "bad.h5"
    write_by_h5py(path, matrix, (12, 20), "float64")
    with h5py.File(path, "a") as file:
        file["layouts/p/indices_1"][0] = 99
    with pytest.raises(RuntimeError, match=r'layout "p": indices_1\[0\] is 99, but the grid has 4 block columns'):
        load(path, "w", (12, 20))
    with h5py.File(path, "a") as file:
        file.attrs["tartan_schema_version"] = "2.0"
    with pytest.raises(RuntimeError, match="2.0.*reads versions 1.x"):
        load(path, "w", (12, 20))
