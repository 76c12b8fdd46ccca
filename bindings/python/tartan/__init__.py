# SPDX-License-Identifier: Apache-2.0
"""Block-sparse linear algebra: matrices whose non-zeros come in small dense blocks.

>>> import numpy as np, tartan
>>> layout = tartan.Layout.pattern("barabasi_albert", (256, 256), 32, m=2, seed=7)
>>> A = tartan.BlockMatrix.zeros(layout, "float32").fill_normal(seed=1)
>>> Y = A @ np.ones((256, 4), np.float32)
>>> Y.shape, Y.dtype
((256, 4), dtype('float32'))
>>> dA = tartan.sddmm(layout, Y, np.ones((4, 256), np.float32))
>>> dA.layout == A.layout
True
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tartan import _operations, _raw, _threads
from tartan._operations import *  # noqa: F403  # isort: split
from tartan._assembly import Assembly
from tartan._attention import attention, attention_bias_gradient, attention_gradient, from_flex_attention
from tartan._binsparse import read_binsparse, write_binsparse
from tartan._block_mask import BlockMask
from tartan._call import to_device
from tartan._collection import Collection
from tartan._context import Context, cpu_kernels, default_context, get_num_threads, info, set_num_threads
from tartan._conv import BlockConv
from tartan._device import DeviceArray
from tartan._errors import (
    ArgumentError,
    ArgumentIndexError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    FileError,
    FormatError,
    HandleError,
    HandleTypeError,
    InternalError,
    LayoutError,
    NotFoundError,
    OutOfMemoryError,
    ShapeError,
    SizeOverflowError,
    TartanError,
    UnsupportedError,
    VersionError,
)
from tartan._file import File
from tartan._h5ad import read_h5ad, write_h5ad
from tartan._io import load, load_all, save
from tartan._join import block_array, block_diag, hstack, kron, vstack
from tartan._layout import Layout
from tartan._layout_facts import Bandwidth, RowSpread
from tartan._linalg import checksum, explain, growth_score, sddmm, spmm
from tartan._matrix import BlockMatrix
from tartan._patterns import patterns, reorder_blocks, reverse_cuthill_mckee
from tartan._residual import residual_unit
from tartan._sequences import packed
from tartan._sparsifier import Sparsifier
from tartan._transposed import TransposedMatrix
from tartan._verify import verify
from tartan._windows import window_gather, window_scatter, windows_for_conv

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """`tartan.torch` needs no import of its own, and nothing else needs PyTorch."""
        if name == "torch":
            from importlib import import_module

            return import_module("tartan.torch")
        raise AttributeError(f"module 'tartan' has no attribute {name!r}")


__version__ = _raw.tartan_version() or ""

if _raw.tartan_abi_version() != _raw.TARTAN_ABI_VERSION:
    raise ImportError(
        f"tartan was built for ABI {_raw.TARTAN_ABI_VERSION} of libtartan, "
        f"but the library found has {_raw.tartan_abi_version()}"
    )

__all__ = [
    "ArgumentError", "ArgumentIndexError", "ArgumentTypeError", "Assembly", "Bandwidth", "BlockConv", "BlockMask", "BlockMatrix", "Collection", "Context",
    "DTypeError", "DeviceArray", "DeviceError", "File", "FileError", "FormatError", "HandleError", "HandleTypeError",
    "InternalError", "Layout", "LayoutError", "NotFoundError", "OutOfMemoryError", "RowSpread", "ShapeError",
    "SizeOverflowError", "Sparsifier", "TartanError", "TransposedMatrix", "UnsupportedError", "VersionError", "attention",
    "attention_bias_gradient", "attention_gradient", "block_array", "block_diag",
    "checksum", "cpu_kernels", "default_context", "explain", "from_flex_attention", "get_num_threads",
    "growth_score", "hstack", "info", "kron", "load", "load_all", "packed",
    "patterns", "read_binsparse", "read_h5ad", "reorder_blocks", "residual_unit", "reverse_cuthill_mckee", "save", "sddmm", "set_num_threads", "spmm", "to_device", "verify", "vstack", "window_gather",
    "window_scatter", "windows_for_conv", "write_binsparse", "write_h5ad",
]  # fmt: skip
__all__ += _operations.__all__
__all__.sort()
