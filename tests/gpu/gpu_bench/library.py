# SPDX-License-Identifier: Apache-2.0
"""libtartan by ctypes, as far as the GPU benchmark needs it. Tensors are used in place, on their own stream."""

import ctypes
import importlib.util
import json
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int64, c_uint8, c_void_p, cast
from pathlib import Path


def declarations():
    """tartan_ctypes.py, which the build generates; run.sh carry takes it along beside the libraries."""
    places = [Path(os.environ["TARTAN_BUILD"], "swig"), Path(os.environ["TARTAN_ROOT"], "build/gpu/lib")]
    found = [place / "tartan_ctypes.py" for place in places if (place / "tartan_ctypes.py").exists()]
    if not found:
        raise SystemExit("no tartan_ctypes.py: build the tree, or call tests/gpu/run.sh carry before it is taken along")
    spec = importlib.util.spec_from_file_location("tartan_ctypes", found[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


C = declarations()


class Refused(RuntimeError):
    """The library refused: the text says why."""


class Library:
    def __init__(self, path=None):
        self.path = path or os.environ["TARTAN_LIBRARY"]
        self.c = ctypes.CDLL(self.path)
        C.bind(self.c)
        assert self.c.tartan_abi_version() == C.TARTAN_ABI_VERSION, "the library and tartan_ctypes.py are of different builds"
        self.version = self.c.tartan_version().decode()

    def ok(self, status):
        if status != 0:
            name = self.c.tartan_status_name(status).decode()
            raise Refused(f"{name}: {self.c.tartan_last_error().decode(errors='replace')}")

    def text(self, pointer):
        try:
            return ctypes.string_at(pointer.value).decode()
        finally:
            self.c.tartan_text_free(pointer)

    def explain(self, call):
        """What a product that `call` asks for would do."""
        return (self.explain_all(call) or [{}])[0]

    def explain_all(self, call):
        """The same for each operation of a call."""
        text = c_void_p()
        self.ok(self.c.tartan_explain_begin())
        try:
            call()
        finally:
            self.ok(self.c.tartan_explain_end(byref(text)))
        return json.loads(self.text(text))

    def dtype(self, name):
        others = {"uint8": C.TARTAN_U8, "int32": C.TARTAN_I32, "int64": C.TARTAN_I64}  # of masks and indices
        if name in others:
            return others[name]
        number = self.c.tartan_dtype_of(name.encode())
        if number == 0:
            raise Refused(f"the library has no dtype {name}")
        return number

    def array(self, tensor):
        """The memory of a tensor, or of a NumPy array; it must live as long as the result is used."""
        if hasattr(tensor, "ctypes"):
            a = C.tartan_array(data=tensor.ctypes.data, dtype=self.dtype(str(tensor.dtype)), ndim=tensor.ndim,
                               device_type=C.TARTAN_CPU)
            a.shape[:tensor.ndim] = tensor.shape
            a.strides[:tensor.ndim] = [step // tensor.itemsize for step in tensor.strides]
            a.owner = tensor
            return a
        a = C.tartan_array(data=tensor.data_ptr(), dtype=self.dtype(str(tensor.dtype).removeprefix("torch.")),
                  ndim=tensor.dim())
        a.device_type = C.TARTAN_CUDA if tensor.is_cuda else C.TARTAN_CPU
        a.device_id = tensor.device.index or 0 if tensor.is_cuda else 0
        a.shape[:tensor.dim()] = list(tensor.shape)
        a.strides[:tensor.dim()] = list(tensor.stride())
        a.owner = tensor
        return a


class Context:
    def __init__(self, library, cuda, stream=None, tf32=False, threads=None):
        self.library, self.handle = library, c_void_p()
        options = f"math={'tf32' if tf32 else 'exact'} " + (f"threads={threads}" if threads else f"stream={stream or 0}")
        library.ok(library.c.tartan_context_create(b"cuda" if cuda else b"cpu", options.encode(), None,
                                                   byref(self.handle)))

    def peak(self, dtype):
        """Multiply-adds in registers by one thread of the CPU, in GFLOP/s."""
        found = ctypes.c_double()
        self.library.ok(self.library.c.tartan_context_peak(self.handle, self.library.dtype(dtype), byref(found)))
        return found.value

    def free(self):
        self.library.c.tartan_context_free(self.handle)
        self.handle = c_void_p()

    def sync(self):
        self.library.ok(self.library.c.tartan_context_sync(self.handle))


class Layout:
    """Made from a mask (numpy, uint8) or from a pattern (name, parameters, seed). `block`: an edge, or (rows, columns)."""

    def __init__(self, library, rows, cols, block, mask=None, pattern=None, heads=1):
        self.library, self.handle = library, c_void_p()
        self.rows, self.cols, self.block = rows, cols, block if isinstance(block, tuple) else (block, block)
        shape = C.tartan_shape(rows, cols, *(block if isinstance(block, tuple) else (block, block)), heads)
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
        """Heads, block rows and block columns of every block, in the order of block ids."""
        heads, rows, cols = (numpy.empty(self.blocks, numpy.int64) for _ in range(3))
        places = [part for a in (heads, rows, cols) for part in (a.ctypes.data_as(POINTER(c_int64)), self.blocks)]
        self.library.ok(self.library.c.tartan_layout_get_coordinates(self.handle, *places))
        return heads, rows, cols

    def free(self):
        self.library.c.tartan_layout_free(self.handle)
        self.handle = c_void_p()


class Taken(Layout):
    """A layout that the library made."""

    def __init__(self, library, handle):
        self.library, self.handle, c = library, handle, library.c
        self.rows, self.cols = c.tartan_layout_rows(handle), c.tartan_layout_cols(handle)
        self.block = c.tartan_layout_block_rows(handle), c.tartan_layout_block_cols(handle)
        self.blocks = c.tartan_layout_blocks(handle)


class Conv:
    """A convolution with the blocks of a layout of channels."""

    def __init__(self, library, channels, options):
        self.library, self.handle, layout = library, c_void_p(), c_void_p()
        library.ok(library.c.tartan_conv_create(channels.handle, options.encode(), byref(self.handle)))
        library.ok(library.c.tartan_conv_get_layout(self.handle, byref(layout)))
        self.layout = Taken(library, layout)

    def free(self):
        self.layout.free()
        self.library.c.tartan_conv_free(self.handle)
        self.handle = c_void_p()


class BlockMask:
    """From a tensor [rows, cols] of bytes, for all heads; in host memory."""

    def __init__(self, library, layout, keep):
        self.library, self.handle = library, c_void_p()
        library.ok(library.c.tartan_block_mask_from_dense(layout.handle, byref(library.array(keep)), byref(self.handle)))
        self.kept = library.c.tartan_block_mask_kept(self.handle)

    def free(self):
        self.library.c.tartan_block_mask_free(self.handle)
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
    options = f"side={side} transpose={int(transpose)}".encode()
    arguments = (context.handle, matrix.handle, None, byref(arrays[0]), 1.0, 0.0, options, byref(arrays[1]))

    def call():
        library.ok(library.c.tartan_spmm(*arguments))
    call.keep = (matrix, arrays)
    return call


def sddmm(context, x, y, matrix):
    """A function that asks for S = X Y at the blocks of S once."""
    library, arrays = context.library, (context.library.array(x), context.library.array(y))
    arguments = (context.handle, byref(arrays[0]), byref(arrays[1]), 1, None, 1.0, 0.0, matrix.handle)

    def call():
        library.ok(library.c.tartan_sddmm(*arguments))
    call.keep = (matrix, arrays)
    return call


def attention(context, layout, options, mask, inputs, outputs):
    """A function that asks for attention once: forward with inputs (q, k, v) and outputs (out, lse), or backward with inputs
    (q, k, v, out, lse, out_grad) and outputs (q_grad, k_grad, v_grad)."""
    library = context.library
    arrays = [library.array(tensor) for tensor in (*inputs, *outputs)]
    places = [byref(array) for array in arrays]
    forward = len(inputs) == 3
    bias_and_sinks = (None, None) if forward else (None,)
    text = c_char_p(options.encode())
    # The struct of arguments has nothing but pointers.
    given = (layout.handle, *places[:3], text, mask.handle if mask else None, *bias_and_sinks, *places[3:])
    arguments = (c_void_p * len(given))(*(cast(one, c_void_p) for one in given))
    function = library.c.tartan_attention_forward if forward else library.c.tartan_attention_backward

    def call():
        library.ok(function(context.handle, arguments))
    call.keep = (layout, mask, arrays, text)
    return call


def windows_layout(context, mask, windows, options):
    """The windows that a mask [n, spatial...] makes active."""
    library, handle = context.library, c_void_p()
    library.ok(library.c.tartan_layout_from_windows(context.handle, byref(library.array(mask)), windows.encode(),
                                                    options.encode(), byref(handle)))
    return Taken(library, handle)


def conv_forward(context, conv, filter_, x, y, active=None, windows=None):
    """A function that asks for the convolution of x [n, channels, spatial...] once."""
    library, arrays = context.library, (context.library.array(x), context.library.array(y))
    text = windows.encode() if windows else None
    # The struct of arguments has nothing but pointers.
    given = (conv.handle, filter_.handle, byref(arrays[0]), None, None, None, active.handle if active else None, text, byref(arrays[1]))
    arguments = (c_void_p * len(given))(*(cast(one, c_void_p) for one in given))

    def call():
        library.ok(library.c.tartan_conv_forward(context.handle, arguments))
    call.keep = (conv, filter_, active, arrays, text)
    return call


def residual_forward(context, x, parts, active, windows, y):
    """A function that asks for a bottleneck unit once; parts: three times a convolution, filter, gain (or None) and bias."""
    library = context.library
    arrays = [library.array(x), library.array(y)]

    def place(operand):
        if operand is None:
            return None
        arrays.append(library.array(operand))
        return byref(arrays[-1])
    operands = [item for conv, filter_, gain, bias in parts for item in (conv.handle, filter_.handle, place(gain), place(bias))]
    text = windows.encode()
    # The struct of arguments has nothing but pointers.
    given = (byref(arrays[0]), None, None, *operands, None, active.handle, text, byref(arrays[1]))
    arguments = (c_void_p * len(given))(*(cast(one, c_void_p) for one in given))

    def call():
        library.ok(library.c.tartan_residual_forward(context.handle, arguments))
    call.keep = (parts, active, arrays, text)
    return call


def conv_input_gradient(context, conv, filter_, y_grad, x_grad):
    library, arrays = context.library, (context.library.array(y_grad), context.library.array(x_grad))
    arguments = (context.handle, conv.handle, filter_.handle, byref(arrays[0]), None, None, None, byref(arrays[1]))

    def call():
        library.ok(library.c.tartan_conv_input_gradient(*arguments))
    call.keep = (conv, filter_, arrays)
    return call


def conv_filter_gradient(context, conv, x, y_grad, filter_grad):
    library, arrays = context.library, (context.library.array(x), context.library.array(y_grad))
    arguments = (context.handle, conv.handle, byref(arrays[0]), byref(arrays[1]), None, None, c_double(0), filter_grad.handle)

    def call():
        library.ok(library.c.tartan_conv_filter_gradient(*arguments))
    call.keep = (conv, filter_grad, arrays)
    return call
