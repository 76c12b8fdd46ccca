# SPDX-License-Identifier: Apache-2.0
"""The generated layer: arrays in place, handles refused rather than followed."""

import ctypes
import sys

import numpy as np
import pytest

import tartan
from tartan import _raw

FRAME = (4, 4, 2, 2, 1)


def layout():
    return _raw.tartan_layout_from_mask(FRAME, bytes([1, 0, 0, 1]))


def test_names_match_the_stub():
    stub = open(tartan.__file__.replace("__init__.py", "_raw.pyi")).read()
    import re

    declared = set(re.findall(r"^(?:def |class )?(\w+)(?:\(|:)", stub, re.M))
    present = {name for name in dir(_raw) if not name.startswith("_") and name != "SWIG_PyInstanceMethod_New"}
    present -= {name for name in present if name.startswith("SWIG")}
    assert present == declared


def test_masks_and_indices_come_from_any_buffer():
    a = layout()
    b = _raw.tartan_layout_from_mask(FRAME, np.array([[True, False], [False, True]]).view(np.uint8))
    c = _raw.tartan_layout_from_coordinates(FRAME, (None, np.array([0, 1]), memoryview(np.array([0, 1]))))
    assert _raw.tartan_layout_identity(a) == _raw.tartan_layout_identity(b) == _raw.tartan_layout_identity(c)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.array([0, 1], np.int32), "int64"),
        (np.array([0.0, 1.0]), "int64"),
        (np.array([0, 1], ">i8"), "byte order"),
        (np.array([0, 1, 1, 0])[::2], "contiguous"),
        ([0, 1], "of type list"),
        ("01", "of type str"),
    ],
)
def test_indices_are_never_converted(rows, words):
    with pytest.raises(tartan.TartanError, match=words) as caught:
        _raw.tartan_layout_from_coordinates(FRAME, (None, rows, np.array([0, 1])))
    assert "rows " in str(caught.value) and isinstance(caught.value, (TypeError, ValueError))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (None, "NoneType"),
        (5, "int"),
        (object(), "object"),
        ("wrong kind", "matrix"),
        ("closed", "closed"),
    ],
)
def test_handles_are_checked(bad, words):
    if bad == "wrong kind":
        bad = _raw.tartan_matrix_create(layout(), _raw.TARTAN_F64, 0)
    elif bad == "closed":
        bad = layout()
        bad.close()
        bad.close()
    with pytest.raises(tartan.HandleError, match=words) as caught:
        _raw.tartan_layout_blocks(bad)
    assert "layout is" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_handles_cannot_be_forged():
    with pytest.raises(TypeError):
        _raw.Handle()
    with pytest.raises(TypeError):
        type("Sub", (_raw.Handle,), {})
    import pickle

    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(layout())
    assert "closed" not in repr(layout())
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    with pytest.raises(tartan.HandleError, match="PyCapsule"):
        _raw.tartan_layout_blocks(capsule(1, b"tartan_layout", None))


def test_operands_are_never_converted():
    matrix = _raw.tartan_matrix_create(layout(), _raw.TARTAN_F64, 0)
    good = np.zeros((4, 4))
    for bad, kind in [
        (np.zeros((4, 4), int), TypeError),
        (np.zeros((4, 4), complex), TypeError),
        (np.zeros((4, 4), ">f8"), TypeError),
        (np.zeros((4, 4), object), TypeError),
        (np.zeros((4, 4), np.float32), None),  # dense may differ in dtype here
        ([0.0], TypeError),
        (bytearray(b"abc"), TypeError),
    ]:
        if kind is None:
            _raw.tartan_matrix_to_dense(matrix, bad)
        else:
            with pytest.raises(kind):
                _raw.tartan_matrix_to_dense(matrix, bad)
    good.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        _raw.tartan_matrix_to_dense(matrix, good)
    split = np.zeros(40, np.uint8)[: 4 * 9].reshape(4, 9)[:, :8].copy()
    odd = np.lib.stride_tricks.as_strided(np.zeros(64).view(np.float64), (4, 4), (36, 8))
    with pytest.raises(ValueError, match="stride of 36 bytes"):
        _raw.tartan_matrix_to_dense(matrix, odd)
    with pytest.raises(TypeError, match="uint|unsigned"):
        _raw.tartan_matrix_to_dense(matrix, split)
    with pytest.raises(tartan.ShapeError, match="9 dimensions"):
        _raw.tartan_matrix_to_dense(matrix, np.zeros((1,) * 9))


class Exporter:
    """DLPack as old and new producers speak it."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, *, stream=None, **options):
        if not self.versioned and options:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack(versioned):
    matrix = _raw.tartan_matrix_create(layout(), _raw.TARTAN_F32, 0)
    np.asarray(_raw.tartan_matrix_values(matrix))[:] = 3
    out = np.full((4, 4), 9.0)
    _raw.tartan_matrix_to_dense(matrix, Exporter(out.T, versioned))
    assert (out == np.kron(np.eye(2), np.full((2, 2), 3))).all()
    lease, name = _raw.view(Exporter(out, versioned))
    assert name == "float64" and np.shares_memory(np.asarray(lease), out)


class HandMade:
    """A DLPack tensor of any dtype and device, as PyTorch or CuPy would export it."""

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
            ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16),
            ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
            ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ]  # fmt: skip

    def __init__(self, array, code, device=1, lanes=1):
        self.array, self.shape = array, np.array(array.shape, np.int64)
        self.tensor = self.Tensor(
            array.ctypes.data - 2, device, 0, array.ndim, code, 8 * array.itemsize, lanes,
            self.shape.ctypes.data, None, 2, None, None,
        )  # fmt: skip

    def __dlpack__(self):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_bfloat16_by_dlpack():
    bits = np.array([[0x3F80, 0x4000], [0xC000, 0x4040]], np.uint16)
    lease, name = _raw.view(HandMade(bits, code=4))
    assert name == "bfloat16" and np.shares_memory(np.asarray(lease), bits)
    if tartan._arrays.BFLOAT16 is None:
        with pytest.raises(tartan.DTypeError, match="ml_dtypes"):
            tartan.BlockMatrix.from_dense(HandMade(bits, code=4), 2)
        return
    made = tartan.BlockMatrix.from_dense(HandMade(bits, code=4), 2)
    assert made.dtype_name == "bfloat16"
    np.testing.assert_array_equal(made.astype("float64").toarray(), [[1, 2], [-2, 3]])
    np.testing.assert_array_equal(np.asarray(made @ HandMade(bits[:, 0].copy(), code=4), float), [-3, -8])


def test_foreign_tensors_are_checked():
    bits = np.zeros((2, 2), np.uint16)
    lease, _ = _raw.view(HandMade(bits, code=4, device=2))
    assert lease.device == (2, 0)
    with pytest.raises(BufferError, match="on a device"):
        memoryview(lease)
    with pytest.raises(tartan.UnsupportedError, match="device 0"):
        _raw.tartan_array_checksum(lease)
    assert _raw.view(HandMade(bits, code=4, device=3))[0].device == (1, 0)  # pinned memory
    assert _raw.view(HandMade(bits, code=4, device=13))[0].device == (2, 0)  # managed memory
    for wrong in (HandMade(bits, code=1), HandMade(bits, code=77), HandMade(bits, code=4, lanes=2)):
        with pytest.raises(tartan.DTypeError):
            _raw.view(wrong)


def test_read_only_dlpack_is_refused():
    out = np.zeros((4, 4))
    out.flags.writeable = False
    matrix = _raw.tartan_matrix_create(layout(), _raw.TARTAN_F32, 0)
    try:
        out.__dlpack__(max_version=(1, 0))
    except (TypeError, BufferError):
        pytest.skip("this NumPy does not export read-only arrays")
    with pytest.raises(ValueError, match="read-only"):
        _raw.tartan_matrix_to_dense(matrix, Exporter(out))
    lease, _ = _raw.view(Exporter(out))
    assert not np.asarray(lease).flags.writeable


def test_used_capsules_are_refused():
    class Worn(Exporter):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__()
            once = {"__dlpack__": lambda self, **k: capsule, "__dlpack_device__": lambda self: (1, 0)}
            np.from_dlpack(type("Once", (), once)())
            return capsule

    with pytest.raises(TypeError, match="fresh"):
        _raw.view(Worn(np.zeros(3)))
    with pytest.raises(ZeroDivisionError):
        _raw.view(type("Bad", (), {"__dlpack__": lambda self, **k: 1 / 0})())


def test_leases():
    memory = np.arange(6.0).reshape(2, 3)
    lease, _ = _raw.view(memory)
    assert (lease.address, lease.dtype, lease.device) == (memory.ctypes.data, _raw.TARTAN_F64, (1, 0))
    assert lease.shape == (2, 3) and lease.strides == (3, 1) and not lease.readonly
    turned = _raw.lease(lease, lease.address, lease.dtype, lease.device, (3, 2), (1, 3), True)
    assert np.shares_memory(np.asarray(turned), memory) and (np.asarray(turned) == memory.T).all()
    assert turned.readonly and not np.asarray(turned).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        turned.dlpack(False, 0)
    assert _raw.tartan_array_checksum(turned) == _raw.tartan_array_checksum(memory.T)
    for bad in ((lease, 0, 77, (1, 0), (1,), (1,), False), (lease, 0, 1, (1, 0), (1,), (), False),
                (lease, 0, 1, (1, 0), (1,) * 9, (1,) * 9, False),
                (lease, 0, 1, (1, 0), (1.5,), (1,), False)):  # fmt: skip
        with pytest.raises(tartan.TartanError):
            _raw.lease(*bad)
    with pytest.raises(TypeError):
        _raw.Lease()


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "u1", "?", "i8", "i4", "i2", "u4"])
def test_arrays_are_looked_at_alike(dtype):
    """NumPy's own arrays are read by their fields, others by their capsules: subclasses, and those with a dtype of their own."""
    code = {"f8": _raw.TARTAN_F64, "f4": _raw.TARTAN_F32, "f2": _raw.TARTAN_F16, "u1": _raw.TARTAN_U8, "?": _raw.TARTAN_U8,
            "i8": _raw.TARTAN_I64, "i4": _raw.TARTAN_I32}.get(dtype)  # fmt: skip
    plain = np.ones((4, 3), dtype)[::-1, 1:]
    mine = plain.view(type("Mine", (np.ndarray,), {}))
    tagged = plain.view(np.dtype(dtype, metadata={"unit": "m"}))
    for array in (plain, mine, tagged):
        frozen = array.view()
        frozen.flags.writeable = False
        if code is None:
            with pytest.raises(TypeError, match=r"array has \d-byte (unsigned or boolean|integer) elements"):
                _raw.view(array)
            continue
        lease, _ = _raw.view(array)
        assert (lease.address, lease.dtype, lease.shape) == (plain.ctypes.data, code, (4, 2))
        assert lease.strides == (-3, 1) and not lease.readonly and _raw.view(frozen)[0].readonly
        users = sys.getrefcount(array)
        del lease
        assert sys.getrefcount(array) <= users


def test_buffers():
    context = _raw.tartan_context_create("cpu", "threads=1")
    buffer = _raw.tartan_buffer_create(context, _raw.TARTAN_F32, np.array([2, 3]), _raw.TARTAN_COL_MAJOR)
    lease = _raw.tartan_buffer_view(buffer)
    assert lease.shape == (2, 3) and lease.strides == (1, 2)
    view = np.asarray(lease)
    view[:] = [[1, 2, 3], [4, 5, 6]]
    out = np.zeros((2, 3), np.float32)
    _raw.tartan_buffer_to_array(context, buffer, out)
    np.testing.assert_array_equal(out, view)
    buffer.close()
    del lease
    view[:] = 7  # lent memory lives as long as the view
    with pytest.raises(tartan.HandleError, match="buffer is closed"):
        _raw.tartan_buffer_view(buffer)
    assert np.asarray(_raw.tartan_buffer_view(_raw.tartan_buffer_create(context, 1, None, 0))).shape == ()
    with pytest.raises(tartan.HandleError, match="buffer is of type"):
        _raw.tartan_buffer_view(context)


def test_plain_arguments():
    shape = (4, 4, 2, 2, 1)
    with pytest.raises(TypeError, match="seed is of type str"):
        _raw.tartan_layout_from_pattern(shape, "random", None, "1")
    with pytest.raises(ValueError, match="i is .*expected"):
        _raw.tartan_pattern_name(2**40)
    with pytest.raises(ValueError, match="seed is above"):
        _raw.tartan_layout_from_pattern(shape, "random", None, 2**63)
    with pytest.raises(TypeError, match="device is of type int"):
        _raw.tartan_context_create(1, None)
    with pytest.raises(ValueError, match="NUL"):
        _raw.tartan_context_create("c\0pu", None)
    with pytest.raises(ValueError, match="UTF-8"):
        _raw.tartan_context_create("\ud800", None)
    with pytest.raises(ValueError, match="options has 'colour=1', expected one of"):
        _raw.tartan_context_create("cpu", "colour=1")
    with pytest.raises(TypeError, match="5 integers"):
        _raw.tartan_layout_from_mask((4, 4), b"")
    with pytest.raises(TypeError, match="block is of type"):
        _raw.tartan_layout_from_mask((4, 4, 2.0, 2, 1), b"")


def test_wrapped_values_are_held_and_returned():
    import sys

    values = np.zeros((2, 2, 2))
    before = sys.getrefcount(values)
    for _ in range(10):
        matrix = _raw.tartan_matrix_wrap(layout(), values)
        assert sys.getrefcount(values) > before
        matrix.close()
        with pytest.raises(tartan.ShapeError):
            _raw.tartan_matrix_wrap(layout(), values[:1])
    assert sys.getrefcount(values) == before


def test_checksums_do_not_depend_on_strides():
    a = np.arange(12.0).reshape(3, 4)
    assert _raw.tartan_array_checksum(a) == _raw.tartan_array_checksum(np.asfortranarray(a))
    assert _raw.tartan_array_checksum(a) != _raw.tartan_array_checksum(a.T)
