# SPDX-License-Identifier: Apache-2.0
"""What the tests on a device share: whether there is one, arrays, and an exporter of device memory."""

import ctypes

import numpy as np
import pytest

import tartan
from tartan._arrays import BFLOAT16

_CUDA = next(b for b in tartan.info()["backends"] if b["name"] == "cuda")
HAS_DEVICE = bool(_CUDA.get("loaded") and _CUDA.get("devices"))
IS_DUMMY = HAS_DEVICE and _CUDA["devices"][0]["name"].startswith("dummy")
HAS_GPU = HAS_DEVICE and not IS_DUMMY
dummy_only = pytest.mark.skipif(not IS_DUMMY, reason="needs the plug-in that poses as a device")

DEVICE_DTYPES = ["float64", "float32", "float16", "bfloat16"]
HOST_DTYPES = ["float64", "float32", "float16"] + ([] if BFLOAT16 is None else ["bfloat16"])


def numpy_dtype(name):
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def random_array(rng, shape, dtype):
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Old(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class New(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


def opened(capsule):
    """The struct that a fresh capsule holds."""
    name = _api.PyCapsule_GetName(capsule)
    kind = New if name == b"dltensor_versioned" else Old
    return kind.from_address(_api.PyCapsule_GetPointer(capsule, name))


def consume(capsule):
    """As a library takes a tensor over: returns a function that calls its deleter."""
    managed = opened(capsule)
    name = _api.PyCapsule_GetName(capsule)
    consumed = b"used_" + name
    consume.names = getattr(consume, "names", []) + [consumed]  # the capsule does not copy its name
    _api.PyCapsule_SetName(capsule, consumed)
    return lambda: _DESTRUCTOR(managed.deleter)(ctypes.addressof(managed))


class Exporter:
    """Memory of a device array, as another library with DLPack would export it. Counts what it is asked
    for."""

    def __init__(self, array, versioned=True, readonly=False, device=None, old_signature=False):
        self.array, self.versioned, self.readonly = array, versioned, readonly
        self.device = device or array.__dlpack_device__()
        self.old_signature = old_signature
        self.streams, self.exported = [], 0

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        if self.old_signature and max_version is not None:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        self.exported += 1
        lease = self.array._open
        shape = (ctypes.c_int64 * 8)(*lease.shape)
        strides = (ctypes.c_int64 * 8)(*lease.strides)
        codes = {tartan._raw.TARTAN_BF16: 4, tartan._raw.TARTAN_U8: 1, tartan._raw.TARTAN_I32: 0, tartan._raw.TARTAN_I64: 0}
        code, bits = codes.get(lease.dtype, 2), 8 * self.array.itemsize
        tensor = Tensor(
            lease.address - 2, *self.device, len(lease.shape), code, bits, 1, shape, strides, 2,
        )  # fmt: skip
        new = self.versioned and max_version is not None
        managed = New(1, 0, None, None, int(self.readonly), tensor) if new else Old(tensor, None, None)

        def release(capsule):
            self.exported -= 1

        destructor = _DESTRUCTOR(release)
        self.kept = getattr(self, "kept", []) + [(managed, shape, strides, destructor)]
        return _api.PyCapsule_New(
            ctypes.addressof(managed), _NAMES[new], ctypes.cast(destructor, ctypes.c_void_p).value
        )


class Interface:
    """The same with __cuda_array_interface__ alone."""

    def __init__(self, array, **changes):
        lease = array._open
        self.array = array
        self.__cuda_array_interface__ = {
            "version": 3, "shape": lease.shape, "typestr": array.dtype.str, "data": (lease.address, False),
            "strides": array.strides, "stream": 1, **changes,
        }  # fmt: skip

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("copied to the host")  # Numba's arrays would do that


# ---- DLPack's exchange interface, as PyTorch's tensors have it ----

_VIEW = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Tensor))
_STREAM = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Exchange(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("prev", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("export", ctypes.c_void_p), ("import_", ctypes.c_void_p),
        ("view", _VIEW), ("stream", _STREAM),
    ]  # fmt: skip


def exchanging(major=1, view=True, prev=None):
    """A type of tensors whose work is on `type.current`, a stream; counts how often it is looked at in C (`type.views`)
    and through __dlpack__ (`tensor.streams`)."""

    class Shared(Exporter):
        current, views, fails = 64, 0, False

    def look(address, out):
        Shared.views += 1
        x = ctypes.cast(address, ctypes.py_object).value
        if Shared.fails:
            return -1
        lease = x.array._open
        x.shape_kept = (ctypes.c_int64 * 8)(*lease.shape)
        x.strides_kept = (ctypes.c_int64 * 8)(*lease.strides)
        code, bits = (4, 16) if lease.dtype == tartan._raw.TARTAN_BF16 else (2, 8 * x.array.itemsize)
        out[0] = Tensor(
            lease.address, *x.device, len(lease.shape), code, bits, 1, x.shape_kept, x.strides_kept, 0
        )
        return 0

    def stream(kind, number, out):
        out[0] = Shared.current or None
        return 0

    table = Exchange(major, 3, prev, None, None, None, _VIEW(look if view else 0), _STREAM(stream))
    Shared.table = table
    name = ctypes.create_string_buffer(b"dlpack_exchange_api")
    Shared.__dlpack_c_exchange_api__ = _api.PyCapsule_New(ctypes.addressof(table), name, None)
    Shared.kept_name = name
    return Shared
