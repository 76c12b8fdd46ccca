# SPDX-License-Identifier: Apache-2.0
"""libtartan by ctypes: as much of it as the GPU benchmark needs. Tensors are used in place, on their own stream."""

import ctypes
import json
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_uint8, c_void_p

CPU, CUDA = 1, 2
LEFT, RIGHT = 0, 1
ROW_MAJOR, COL_MAJOR = 0, 1


class Refused(RuntimeError):
    """The library refused: the text says why."""


class Array(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("shape", c_int64 * 8), ("strides", c_int64 * 8)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", c_int64), ("device_type", c_int32), ("device_id", c_int32), ("threads", c_int32),
                ("determinism", c_int32), ("math_mode", c_int32), ("allow_dense", c_int32), ("seed", c_int64),
                ("stream", c_void_p), ("parallel_for", c_void_p), ("parallel_user", c_void_p)]


class Shape(ctypes.Structure):
    _fields_ = [("rows", c_int64), ("cols", c_int64), ("block_rows", c_int64), ("block_cols", c_int64),
                ("heads", c_int64)]


# Name, result ("status" raises Refused), arguments.
PROTOTYPES = [
    ("tartan_last_error", c_char_p, []),
    ("tartan_status_name", c_char_p, [c_int32]),
    ("tartan_version", c_char_p, []),
    ("tartan_text_free", None, [c_void_p]),
    ("tartan_dtype_of", c_int32, [c_char_p]),
    ("tartan_array_init", "status", [c_void_p, c_int32, c_int32, POINTER(c_int64), POINTER(c_int64), POINTER(Array)]),
    ("tartan_context_options_init", None, [POINTER(Options)]),
    ("tartan_context_create", "status", [POINTER(Options), POINTER(c_void_p)]),
    ("tartan_context_free", None, [c_void_p]),
    ("tartan_context_sync", "status", [c_void_p]),
    ("tartan_layout_from_mask", "status", [POINTER(Shape), POINTER(c_uint8), c_int64, POINTER(c_void_p)]),
    ("tartan_layout_from_pattern", "status", [POINTER(Shape), c_char_p, c_char_p, c_int64, POINTER(c_void_p)]),
    ("tartan_layout_free", None, [c_void_p]),
    ("tartan_layout_blocks", c_int64, [c_void_p]),
    ("tartan_layout_elements", c_int64, [c_void_p]),
    ("tartan_layout_density", c_double, [c_void_p]),
    ("tartan_layout_get_coordinates", "status", [c_void_p] + [c_void_p, c_int64] * 3),
    ("tartan_matrix_wrap", "status", [c_void_p, POINTER(Array), c_void_p, c_void_p, POINTER(c_void_p)]),
    ("tartan_matrix_free", None, [c_void_p]),
    ("tartan_spmm", "status", [c_void_p, c_int32, c_int32, c_double, c_void_p, POINTER(Array), POINTER(Array),
                               c_double, POINTER(Array)]),
    ("tartan_sddmm", "status", [c_void_p, c_double, POINTER(Array), POINTER(Array), c_int64, POINTER(Array), c_int64,
                                c_double, c_void_p]),
    ("tartan_explain", "status", [c_void_p, c_char_p, c_void_p, c_int32, c_int32, c_int32, c_int32, c_int64, c_int32,
                                  POINTER(c_void_p)]),
]


class Library:
    def __init__(self, path=None):
        self.path = path or os.environ["TARTAN_LIBRARY"]
        self.c = ctypes.CDLL(self.path)
        for name, result, arguments in PROTOTYPES:
            function = getattr(self.c, name)
            function.argtypes = arguments
            function.restype = c_int32 if result == "status" else result
        self._check_structs()
        self.version = self.c.tartan_version().decode()

    def _check_structs(self):
        """The structs above must be the library's: sizes, and each field where the library writes it."""
        options = Options(struct_size=-1)
        self.c.tartan_context_options_init(byref(options))
        assert options.struct_size == ctypes.sizeof(Options), "tartan_context_options has another size"
        size = ctypes.sizeof(Array)
        room = (c_uint8 * (size + 64))(*([0xA5] * (size + 64)))
        data = (c_double * 24)()
        array = ctypes.cast(room, POINTER(Array))
        self.ok(self.c.tartan_array_init(ctypes.addressof(data), self.c.tartan_dtype_of(b"float64"), 3,
                                         (c_int64 * 3)(2, 3, 4), (c_int64 * 3)(12, 4, 1), array))
        got = array.contents
        fields = (got.data, got.device_type, got.device_id, got.ndim, got.shape[:3], got.strides[:3])
        assert fields == (ctypes.addressof(data), CPU, 0, 3, [2, 3, 4], [12, 4, 1]), "tartan_array differs"
        assert bytes(room[size:]) == b"\xa5" * 64, "tartan_array is larger than its mirror"

    def ok(self, status):
        if status != 0:
            name = self.c.tartan_status_name(status).decode()
            raise Refused(f"{name}: {self.c.tartan_last_error().decode(errors='replace')}")

    def text(self, pointer):
        try:
            return ctypes.string_at(pointer.value).decode()
        finally:
            self.c.tartan_text_free(pointer)

    def dtype(self, name):
        number = self.c.tartan_dtype_of(name.encode())
        if number == 0:
            raise Refused(f"the library has no dtype {name}")
        return number

    def array(self, tensor):
        """The tensor's memory; the tensor must live as long as the array is used."""
        a = Array(data=tensor.data_ptr(), dtype=self.dtype(str(tensor.dtype).removeprefix("torch.")),
                  ndim=tensor.dim())
        a.device_type = CUDA if tensor.is_cuda else CPU
        a.device_id = tensor.device.index or 0 if tensor.is_cuda else 0
        a.shape[:tensor.dim()] = list(tensor.shape)
        a.strides[:tensor.dim()] = list(tensor.stride())
        a.owner = tensor
        return a


class Context:
    def __init__(self, library, cuda, stream=None, tf32=False):
        self.library, self.handle = library, c_void_p()
        options = Options()
        library.c.tartan_context_options_init(byref(options))
        options.device_type = CUDA if cuda else CPU
        options.math_mode = 1 if tf32 else 0
        options.stream = stream
        library.ok(library.c.tartan_context_create(byref(options), byref(self.handle)))

    def sync(self):
        self.library.ok(self.library.c.tartan_context_sync(self.handle))

    def explain(self, operation, layout, dtype, side, transpose, n, order):
        """Of row-major blocks; `order` is that of the dense operands."""
        text = c_void_p()
        self.library.ok(self.library.c.tartan_explain(self.handle, operation.encode(), layout.handle,
                                                      self.library.dtype(dtype), ROW_MAJOR, side, transpose, n, order,
                                                      byref(text)))
        return json.loads(self.library.text(text))


class Layout:
    """Made from a mask (numpy, uint8) or from a pattern (name, parameters, seed)."""

    def __init__(self, library, rows, cols, block, mask=None, pattern=None):
        self.library, self.handle = library, c_void_p()
        shape = Shape(rows, cols, block, block, 1)
        if mask is not None:
            data = mask.ctypes.data_as(POINTER(c_uint8))
            library.ok(library.c.tartan_layout_from_mask(byref(shape), data, mask.size, byref(self.handle)))
        else:
            name, parameters, seed = pattern
            library.ok(library.c.tartan_layout_from_pattern(byref(shape), name.encode(), parameters.encode(), seed,
                                                            byref(self.handle)))
        self.blocks = library.c.tartan_layout_blocks(self.handle)
        self.elements = library.c.tartan_layout_elements(self.handle)
        self.density = library.c.tartan_layout_density(self.handle)

    def coordinates(self, numpy):
        """Block rows and block columns of every block, in the order of block ids."""
        heads, rows, cols = (numpy.empty(self.blocks, numpy.int64) for _ in range(3))
        places = [part for a in (heads, rows, cols) for part in (a.ctypes.data, self.blocks)]
        self.library.ok(self.library.c.tartan_layout_get_coordinates(self.handle, *places))
        return rows, cols

    def free(self):
        self.library.c.tartan_layout_free(self.handle)
        self.handle = c_void_p()


class Matrix:
    """Around the tensor's memory, which this object keeps."""

    def __init__(self, library, layout, values):
        self.library, self.handle, self.values = library, c_void_p(), values
        library.ok(library.c.tartan_matrix_wrap(layout.handle, byref(library.array(values)), None, None,
                                                byref(self.handle)))

    def free(self):
        self.library.c.tartan_matrix_free(self.handle)
        self.handle = c_void_p()


def spmm(context, side, transpose, matrix, b, c):
    """A function that asks for C = op(A) B or C = B op(A) once; its arguments are made beforehand."""
    library, arrays = context.library, (context.library.array(b), context.library.array(c))
    arguments = (context.handle, side, transpose, 1.0, matrix.handle, None, byref(arrays[0]), 0.0, byref(arrays[1]))

    def call():
        library.ok(library.c.tartan_spmm(*arguments))
    call.keep = (matrix, arrays)
    return call


def sddmm(context, x, y, matrix):
    """A function that asks for S = X Y at the blocks of S once."""
    library, arrays = context.library, (context.library.array(x), context.library.array(y))
    arguments = (context.handle, 1.0, None, byref(arrays[0]), 1, byref(arrays[1]), 1, 0.0, matrix.handle)

    def call():
        library.ok(library.c.tartan_sddmm(*arguments))
    call.keep = (matrix, arrays)
    return call
