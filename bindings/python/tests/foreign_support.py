# SPDX-License-Identifier: Apache-2.0
"""Another library on the device that the plug-in poses as: its own memory, and work on its own streams. The
plug-in knows what each stream has waited for, so every missing wait fails a test."""

import ctypes
import os

import numpy as np
from device_support import _DESTRUCTOR, _NAMES, _STREAM, _VIEW, IS_DUMMY, Exchange, New, Tensor, _api

DEVICE = 0
_C = ctypes.CDLL(os.path.join(os.environ["TARTAN_PLUGIN_PATH"], "libtartan_cuda.so")) if IS_DUMMY else None
if _C is not None:
    _C.dummy_foreign_new.restype = ctypes.c_void_p
    _C.dummy_foreign_new.argtypes = [ctypes.c_int32, ctypes.c_int64]
    _C.dummy_foreign_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    _C.dummy_foreign_wait.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    _C.dummy_foreign_works.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32]
    _C.dummy_foreign_free.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    _C.dummy_times_synced.restype = ctypes.c_int64


def times_synced():
    """How often the host has waited for a stream."""
    return _C.dummy_times_synced()


def works(stream, address, writes):
    """Work of the library on `stream` with any memory of the device."""
    assert _C.dummy_foreign_works(DEVICE, stream, address, writes), "a wait is missing"


def wait(stream, first):
    _C.dummy_foreign_wait(DEVICE, stream, first)


class Memory:
    """Owned by all arrays and exports of it; given back in the order of the stream that it came from."""

    unordered = 0  # how often that was too early

    def __init__(self, stream, data):
        self.stream, self.bytes = stream, max(data.nbytes, 1)
        self.address = _C.dummy_foreign_new(DEVICE, self.bytes)
        _C.dummy_foreign_copy(self.address, data.ctypes.data, data.nbytes)
        works(stream, self.address, True)

    def __del__(self):
        if not _C.dummy_foreign_free(DEVICE, self.stream, self.address):
            Memory.unordered += 1


class Array:
    """An array of the library, used on `self.stream`. It has DLPack alone, which does not say which stream
    that is."""

    def __init__(self, data, stream=512):
        self.kept = np.ascontiguousarray(data)
        self.stream, self.memory = stream, Memory(stream, self.kept)
        self.shape, self.dtype = self.kept.shape, self.kept.dtype

    def read(self):
        """The library reads it."""
        works(self.stream, self.memory.address, False)
        result = np.empty_like(self.kept)
        _C.dummy_foreign_copy(result.ctypes.data, self.memory.address, result.nbytes)
        return result

    def write(self, data):
        works(self.stream, self.memory.address, True)
        data = np.ascontiguousarray(data, self.dtype)
        _C.dummy_foreign_copy(self.memory.address, data.ctypes.data, data.nbytes)

    def describe(self):
        code = 6 if self.dtype == bool else 2
        shape = (ctypes.c_int64 * 8)(*self.shape)
        strides = (ctypes.c_int64 * 8)(*(s // self.dtype.itemsize for s in self.kept.strides))
        tensor = Tensor(
            self.memory.address, 2, DEVICE, len(self.shape), code, 8 * self.dtype.itemsize, 1, shape, strides,
            0,
        )  # fmt: skip
        return tensor, shape, strides

    def __dlpack_device__(self):
        return 2, DEVICE

    def __dlpack__(self, *, stream=None, max_version=None):
        if stream != -1:
            wait(1 if stream is None else stream, self.stream)
        tensor, *rest = self.describe()
        managed = New(1, 0, None, None, 0, tensor)
        capsule = _api.PyCapsule_New(ctypes.addressof(managed), _NAMES[True], _RELEASE)
        Array.exports[id(capsule)] = self.memory, managed, rest
        return capsule

    exports = {}  # what capsules keep


_release = _DESTRUCTOR(lambda capsule: Array.exports.pop(capsule) and None)
_RELEASE = ctypes.cast(_release, ctypes.c_void_p).value


class Interface(Array):
    """With __cuda_array_interface__ alone, which says the stream."""

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3, "shape": self.shape, "typestr": self.dtype.str, "strides": None,
            "data": (self.memory.address, False), "stream": self.stream,
        }  # fmt: skip

    __dlpack__ = __dlpack_device__ = property()  # hasattr says no


class Exchanging(Array):
    """With DLPack's exchange interface too, which says what stream is current, as PyTorch's tensors have
    it."""


def _view(address, out):
    x = ctypes.cast(address, ctypes.py_object).value
    out[0], *x.described = x.describe()
    return 0


def _stream(kind, number, out):
    out[0] = Exchanging.current
    return 0


Exchanging.current = 512
_table = Exchange(1, 3, None, None, None, None, _VIEW(_view), _STREAM(_stream))
_name = ctypes.create_string_buffer(b"dlpack_exchange_api")
Exchanging.__dlpack_c_exchange_api__ = _api.PyCapsule_New(ctypes.addressof(_table), _name, None)
