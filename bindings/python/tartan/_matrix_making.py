# SPDX-License-Identifier: Apache-2.0
"""Constructors of matrices: from dense arrays, elements and other libraries' sparse matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._arrays import BITS, array_of, dtype_code, indices, optional_indices, order_code
from tartan._call import Call
from tartan._context import Context, ContextLike, context_of
from tartan._device import DeviceArray
from tartan._errors import ArgumentError, DTypeError, ShapeError
from tartan._frame import Block, frame_beside, frame_of, refuse_block
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._scipy import from_scipy
from tartan._torch_sparse import from_torch

M = TypeVar("M", bound="MatrixMaking")


class MatrixMaking:
    """The part of `BlockMatrix` that makes matrices."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, layout: Layout, values: Any, *, copy: bool = False) -> None: ...

        @classmethod
        def _own(cls: type[M], handle: _raw.Handle) -> M: ...

    @classmethod
    def from_bits(cls: type[M], layout: Layout, values: Any, dtype: str = "bfloat16") -> M:
        """A matrix of `dtype`, "bfloat16", "float8_e4m3fn" or "float8_e5m2", around an array of its bit patterns
        (uint16, uint8). Needs no ml_dtypes; `bits` gives such an array back."""
        array = np.asarray(values)
        if dtype not in BITS:
            raise DTypeError(f"dtype is {dtype!r}, expected one of {', '.join(map(repr, BITS))}")
        if array.dtype != BITS[dtype]:
            raise DTypeError(f"values has dtype {array.dtype}, expected {BITS[dtype]}")
        handle = _raw.tartan_matrix_wrap(layout_handle(layout, "layout"), (array, dtype))
        freeze_as(handle, array)
        return cls._own(handle)

    @classmethod
    def wrap(cls: type[M], layout: Layout, values: Any) -> M:
        """Use the memory of `values`, on any device; the same as ``BlockMatrix(layout, values)``."""
        return cls(layout, values)

    @classmethod
    def zeros(
        cls: type[M], layout: Layout, dtype: Any = "float64", *, order: str = "C", context: ContextLike = None
    ) -> M:
        """A matrix of zeros on the context's device. `order` is the memory order inside a block."""
        handle = layout_handle(layout, "layout")
        context = context_of(context)
        if isinstance(context, Context) and (context.device != "cpu" or layout.dynamic):
            rows, cols = layout.block_shape
            shape = (
                (layout.blocks, rows, cols)
                if order_code(order) == _raw.TARTAN_ROW_MAJOR
                else (layout.blocks, cols, rows)
            )
            values = DeviceArray.zeros(shape, dtype, context)
            return cls(layout, values if order == "C" else values.mT)
        return cls._own(_raw.tartan_matrix_create(handle, dtype_code(dtype), order_code(order)))

    @classmethod
    def from_dense(
        cls: type[M], dense: Any, block: Optional[Block] = None, *, layout: Optional[Layout] = None,
        density: Optional[float] = None, norm: str = "l2", dtype: Any = None, order: str = "C",
    ) -> M:  # fmt: skip
        """From a dense array [rows, cols] or [heads, rows, cols]: its blocks at `layout` or, with a `block` size, the
        blocks that contain a non-zero or, with a `density`, the blocks with the largest `norm`.

        >>> import numpy as np, tartan
        >>> tartan.BlockMatrix.from_dense(np.eye(6), block=2).blocks
        3
        """
        array = array_of(dense, "dense", _raw.TARTAN_F64)
        if layout is None:
            if block is None:
                raise ArgumentError("neither block nor layout is given, expected one of them")
            layout = Layout.from_dense(array, block, density=density, norm=norm)
        elif block is not None or density is not None:
            raise ArgumentError("layout is given together with block or density, expected it alone")
        if array.ndim == 3 and array.shape[0] == 1:
            array = array[0]
        code = 0 if dtype is None else dtype_code(dtype)
        return cls._own(
            _raw.tartan_matrix_from_dense(
                layout_handle(layout, "layout"), array, code, order_code(order)
            )
        )

    @classmethod
    def from_coo(
        cls: type[M], layout: Any, rows: Any, cols: Any, values: Any, *, block: Optional[Block] = None,
        dtype: Any = None, order: str = "C",
    ) -> M:  # fmt: skip
        """From the elements at (rows[i], cols[i]), in any order. `layout` is a Layout; each element must be in a
        stored block and appear once. Or it is the shape (rows, cols) of a matrix with all blocks of size `block` that
        contain an element; repeated elements are then added.

        >>> import tartan
        >>> tartan.BlockMatrix.from_coo((4, 4), [0, 3, 3], [1, 2, 2], [5.0, 1.0, 2.0], block=2).sum(axis=1)
        array([5., 0., 0., 3.])
        """
        code = 0 if dtype is None else dtype_code(dtype)
        places = (None, indices(rows, "rows"), indices(cols, "cols"))
        array = array_of(values, "values", _raw.TARTAN_F64)
        if isinstance(layout, Layout):
            refuse_block(block)
            handle = layout_handle(layout, "layout")
            return cls._own(_raw.tartan_matrix_from_coo(handle, places, array, code, order_code(order)))
        frame = frame_beside(layout, block)
        with Call(None) as call:
            return cls._own(
                _raw.tartan_matrix_from_elements(
                    call.handle, frame, places, array, _raw.TARTAN_DUPLICATES_ADDED, code, order_code(order)
                )
            )

    @classmethod
    def from_blocks(
        cls: type[M], shape: Any, rows: Any, cols: Any, values: Any, *, heads: Any = None, dtype: Any = None,
        order: str = "C",
    ) -> M:  # fmt: skip
        """From blocks in any order: values[i], of values [count, block rows, block columns], is at block row rows[i]
        and block column cols[i] (and head heads[i]). Blocks at the same position are added in their order. `shape` is
        (rows, cols) or (heads, rows, cols) in elements. To add into an existing matrix, or repeatedly, use
        `add_blocks` or `Assembly`.

        >>> import numpy as np, tartan
        >>> blocks = np.full((3, 2, 2), [[[1.0]], [[2.0]], [[4.0]]])
        >>> tartan.BlockMatrix.from_blocks((4, 4), [1, 0, 1], [0, 1, 0], blocks).sum(axis=1)
        array([ 4.,  4., 10., 10.])
        """
        array = array_of(values, "values", _raw.TARTAN_F64)
        if array.ndim != 3:
            raise ShapeError(f"values has {array.ndim} dimensions, expected [count, block rows, block columns]")
        frame = frame_of(shape, array.shape[1:])
        places = (optional_indices(heads, "heads"), indices(rows, "rows"), indices(cols, "cols"))
        code = 0 if dtype is None else dtype_code(dtype)
        with Call(None) as call:
            return cls._own(_raw.tartan_matrix_from_blocks(call.handle, frame, places, array, code, order_code(order)))

    @classmethod
    def from_csr(
        cls: type[M], layout: Any, indptr: Any, cols: Any, values: Any, *, block: Optional[Block] = None,
        dtype: Any = None, order: str = "C",
    ) -> M:  # fmt: skip
        """From CSR of elements, columns in any order within a row. `layout` is a Layout or a shape, as for
        `from_coo`."""
        code = 0 if dtype is None else dtype_code(dtype)
        lists = (indices(indptr, "indptr"), indices(cols, "cols"), False)
        array = array_of(values, "values", _raw.TARTAN_F64)
        if isinstance(layout, Layout):
            refuse_block(block)
            handle = layout_handle(layout, "layout")
            return cls._own(_raw.tartan_matrix_from_csr(handle, lists, array, code, order_code(order)))
        frame = frame_beside(layout, block)
        with Call(None) as call:
            return cls._own(
                _raw.tartan_matrix_from_compressed(
                    call.handle, frame, lists, array, _raw.TARTAN_DUPLICATES_ADDED, code, order_code(order)
                )
            )

    @classmethod
    def from_scipy(
        cls: type[M], matrix: Any, block: Optional[Block] = None, *, dtype: Any = None, copy: bool = False
    ) -> M:
        """From any SciPy sparse matrix. `block` is required unless the matrix is BSR, whose values are used
        in place if their order and dtype allow it and `copy` is False.

        >>> import scipy.sparse, tartan
        >>> S = scipy.sparse.random(6, 4, density=0.5, format="csr", random_state=1)
        >>> A = tartan.BlockMatrix.from_scipy(S, block=2)
        >>> bool(abs(A.to_scipy("csr") - S).max() == 0)
        True
        """
        layout, arguments = from_scipy(matrix, block, dtype, copy)
        if layout is not None:
            return cls(layout, arguments[0])
        with Call(None) as call:
            return cls._own(_raw.tartan_matrix_from_compressed(call.handle, *arguments))

    @classmethod
    def from_torch(
        cls: type[M], tensor: Any, block: Optional[Block] = None, *, dtype: Any = None, copy: bool = False
    ) -> M:
        """From a sparse tensor of PyTorch on any device; with a batch dimension, a head for each entry. Blocks (BSR) are
        used in place if their order and dtype allow it and `copy` is False. CSR, CSC and COO need a `block`, and make
        a matrix on the CPU."""
        layout, given = from_torch(tensor, block, dtype, copy)
        if layout is not None:
            return cls(layout, given)
        with Call(None) as call:
            return cls._own(_raw.tartan_matrix_from_compressed(call.handle, *given))


def freeze_as(handle: _raw.Handle, values: Any) -> None:
    """A matrix around read-only memory is read-only."""
    if values.readonly if isinstance(values, _raw.Lease) else not values.flags.writeable:
        handle.freeze()
