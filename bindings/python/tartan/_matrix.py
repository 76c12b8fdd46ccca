# SPDX-License-Identifier: Apache-2.0
"""Matrices: a layout and its values."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

import numpy as np

from tartan import _raw
from tartan._arithmetic import Arithmetic, wrapped
from tartan._arrays import (
    BITS,
    Array,
    array_of,
    dtype_code,
    in_numpy,
    indices,
    of_bits,
    optional_gates,
    order_code,
    output_of,
    refuse_device,
)
from tartan._call import Call, Dense, dense_of, raw_dense
from tartan._context import Context, ContextLike, context_of
from tartan._device import DeviceArray
from tartan._errors import ArgumentError, ArgumentTypeError, DTypeError, HandleTypeError, UnsupportedError
from tartan._frame import Block, block_ranges, element_range
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._matrix_facts import MatrixFacts
from tartan._matrix_fill import MatrixFills
from tartan._queue import Queue
from tartan._scipy import from_scipy, to_scipy
from tartan._sparse import Sparse
from tartan._store import json_text, save_one
from tartan._torch_sparse import from_torch, to_torch
from tartan._transposed import TransposedMatrix

if TYPE_CHECKING:
    import scipy.sparse
    import torch


class BlockMatrix(MatrixFacts, MatrixFills, Arithmetic["BlockMatrix"], Sparse):
    """A block-sparse matrix: a `Layout` and an array of values [blocks, block rows, block columns].

    ``BlockMatrix(layout, values)`` uses the memory of `values`, which the caller may still change; with
    ``copy=True`` it has its own. Blocks may be row-major or column-major inside. The values may be on a GPU:
    a device array, a tensor of PyTorch, an array of CuPy, ... `to_device` copies a matrix to a device.

    >>> import numpy as np, tartan
    >>> layout = tartan.Layout.from_mask([[1, 0], [1, 1]], block=2)
    >>> A = tartan.BlockMatrix(layout, np.ones((3, 2, 2)))
    >>> A
    <BlockMatrix 4x4 float64, 3 of 4 blocks of 2x2, density 0.75>
    >>> A @ np.arange(4.0)
    array([1., 1., 6., 6.])
    """

    __slots__ = ("_handle", "_home", "_layout_home", "_values", "__weakref__")

    def __init__(self, layout: Layout, values: Any, *, copy: bool = False) -> None:
        lent = layout_handle(layout, "layout")
        array = dense_of(values, "values", copy)
        self._handle = _raw.tartan_matrix_wrap(lent, raw_dense(array))
        self._layout_home = layout._home
        self._home: Any = array._home if isinstance(array, DeviceArray) else None  # as a DeviceArray's
        self._values: Optional[Dense] = None if self._home is not None and self.device == "cpu" else array

    @classmethod
    def _own(
        cls, handle: _raw.Handle, home: Optional[Queue] = None, layout_home: Optional[Queue] = None
    ) -> BlockMatrix:
        """Takes ownership of a handle. `home` is given if the values are memory of a context, `layout_home` if the
        layout is dynamic."""
        self = object.__new__(cls)
        self._handle = handle
        self._home = home
        self._layout_home = layout_home
        self._values = None
        return self

    def _made(self, make: Callable[..., _raw.Handle], *arguments: Any) -> BlockMatrix:
        """A new matrix made from this one by the library, on its device."""
        with Call(None, self) as call:
            handle = make(call.handle, self._handle, *arguments)
            return BlockMatrix._own(handle, call.queue if call.on_device else None)

    # ---- Making ----

    @classmethod
    def from_bits(cls, layout: Layout, values: Any, dtype: str = "bfloat16") -> BlockMatrix:
        """A matrix of `dtype`, "bfloat16", "float8_e4m3fn" or "float8_e5m2", around an array of its bit patterns
        (uint16, uint8). Needs no ml_dtypes; `bits` gives such an array back."""
        array = np.asarray(values)
        if dtype not in BITS:
            raise DTypeError(f"dtype is {dtype!r}, expected one of {', '.join(map(repr, BITS))}")
        if array.dtype != BITS[dtype]:
            raise DTypeError(f"values has dtype {array.dtype}, expected {BITS[dtype]}")
        return cls._own(_raw.tartan_matrix_wrap(layout_handle(layout, "layout"), (array, dtype)))

    @classmethod
    def wrap(cls, layout: Layout, values: Any) -> BlockMatrix:
        """Uses the memory of `values`, on any device; the same as ``BlockMatrix(layout, values)``."""
        return cls(layout, values)

    @classmethod
    def zeros(
        cls, layout: Layout, dtype: Any = "float64", *, order: str = "C", context: ContextLike = None
    ) -> BlockMatrix:
        """All zeros, on the context's device. `order` is that of the elements inside a block."""
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
        cls, dense: Any, block: Optional[Block] = None, *, layout: Optional[Layout] = None,
        density: Optional[float] = None, norm: str = "l2", dtype: Any = None, order: str = "C",
    ) -> BlockMatrix:  # fmt: skip
        """From a dense array [rows, cols] or [heads, rows, cols]: its blocks at `layout`; or, for a `block`
        size, those that hold a non-zero or, with a `density`, those with the largest `norm`.

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
        cls, layout: Layout, rows: Any, cols: Any, values: Any, *, dtype: Any = None, order: str = "C"
    ) -> BlockMatrix:
        """From the elements at (rows[i], cols[i]), in any order, each once and in a stored block."""
        code = 0 if dtype is None else dtype_code(dtype)
        return cls._own(
            _raw.tartan_matrix_from_coo(
                layout_handle(layout, "layout"), indices(rows, "rows"), indices(cols, "cols"),
                array_of(values, "values", code or _raw.TARTAN_F64), code, order_code(order),
            )
        )  # fmt: skip

    @classmethod
    def from_csr(
        cls, layout: Layout, indptr: Any, cols: Any, values: Any, *, dtype: Any = None, order: str = "C"
    ) -> BlockMatrix:
        """From CSR of elements, columns in any order within a row."""
        code = 0 if dtype is None else dtype_code(dtype)
        return cls._own(
            _raw.tartan_matrix_from_csr(
                layout_handle(layout, "layout"), indices(indptr, "indptr"), indices(cols, "cols"),
                array_of(values, "values", code or _raw.TARTAN_F64), code, order_code(order),
            )
        )  # fmt: skip

    @classmethod
    def from_scipy(
        cls, matrix: Any, block: Optional[Block] = None, *, dtype: Any = None, copy: bool = False
    ) -> BlockMatrix:
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
        cls, tensor: Any, block: Optional[Block] = None, *, dtype: Any = None, copy: bool = False
    ) -> BlockMatrix:
        """From a sparse tensor of PyTorch on any device. Blocks (BSR; with a batch dimension, a head for each entry) are
        used in place if their order and dtype allow it and `copy` is False. CSR, CSC and COO need a `block`, and make
        a matrix on the CPU."""
        layout, given = from_torch(tensor, block, dtype, copy)
        if layout is not None:
            return cls(layout, given)
        with Call(None) as call:
            return cls._own(_raw.tartan_matrix_from_compressed(call.handle, *given))

    # ---- Asking ----

    @property
    def values(self) -> Any:
        """The values [blocks, block rows, block columns]: the matrix's own memory, which stays valid as long
        as this array exists. bfloat16 and float8 need ml_dtypes; `bits` does not. Values on a GPU are a
        `DeviceArray`."""
        if self._values is None or self._handle.closed:
            lease = _raw.tartan_matrix_values(self._handle)
            if lease.device[0] != _raw.TARTAN_CPU:
                self._values = DeviceArray._of(lease, self._home)
            else:
                self._values = of_bits(np.asarray(lease), self._code)
        return self._values

    @values.setter
    def values(self, changed: Any) -> None:
        if changed is not self._values or changed is None:  # else: the end of `A.values *= 2`
            raise ArgumentTypeError("values cannot be another array: write into them, A.values[:] = x")

    @property
    def bits(self) -> Array:
        """The values of a matrix of bfloat16 or float8 in host memory as bit patterns, uint16 or uint8,
        without a copy."""
        if self.dtype_name not in BITS:
            raise DTypeError(f"the matrix is {self.dtype_name}, expected one of {', '.join(BITS)}")
        refuse_device(self, "the matrix")
        return np.asarray(_raw.tartan_matrix_values(self._handle))

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<BlockMatrix, closed>"
        shape, _, rest = repr(self.layout)[len("<Layout ") : -1].partition(",")
        place = "" if self.device == "cpu" or self.layout.dynamic else f", on {self.device}"
        return f"<BlockMatrix {shape} {self.dtype_name},{rest}{place}>"

    def _repr_svg_(self) -> Optional[str]:
        return self.layout._repr_svg_()

    def __getitem__(self, key: Any) -> Any:
        """An element at (row, col) or (head, row, col), 0 if its block is not stored. For a slice of rows or slices of
        rows and columns, or a list of indices (or booleans) beside a slice, a new matrix of those rows and columns in
        all heads; for lists of rows and columns, an array of the elements at these places. See also `slice_blocks`.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.arange(16.0).reshape(4, 4), block=2)
        >>> A[1, 2], A[2:, :3].toarray().tolist()
        (6.0, [[8.0, 9.0, 10.0], [12.0, 13.0, 14.0]])
        """
        if isinstance(key, (list, np.ndarray)) or (
            isinstance(key, tuple) and any(isinstance(k, (list, np.ndarray)) for k in key)
        ):
            return self._listed(key)
        if isinstance(key, slice) or (isinstance(key, tuple) and any(isinstance(k, slice) for k in key)):
            return self._slice(key)
        shape = self.shape
        if not isinstance(key, tuple) or len(key) != len(shape):
            raise ArgumentTypeError(f"index is {key!r}, expected {len(shape)} integers or two slices")
        place = []
        for name, k, n in zip(("head", "row", "col")[-len(shape) :], key, shape):
            if not isinstance(k, (int, np.integer)):
                raise ArgumentTypeError(f"{name} is of type {type(k).__name__}, expected an integer")
            if not -n <= k < n:
                raise ArgumentError(f"{name} is {k}, expected {-n} .. {n - 1}")
            place.append(int(k) % n)
        return _raw.tartan_matrix_entry(self._handle, *([0] * (3 - len(place)) + place))

    def _slice(self, key: Any) -> BlockMatrix:
        """Slices of elements: moves whole blocks if the slices begin and end on blocks."""
        layout = self.layout
        pair = key if isinstance(key, tuple) else (key, slice(None))
        if len(pair) != 2:
            raise ArgumentTypeError(f"index is {key!r}, expected two slices, which count in every head")
        sizes = (layout.rows, layout.cols)
        if all(isinstance(part, slice) for part in pair) and any(part.step not in (None, 1) for part in pair):
            return self.select(*(np.arange(*part.indices(n)) for part, n in zip(pair, sizes)))
        bounds = [element_range(part, n) for part, n in zip(pair, sizes)]
        whole = all(
            begin % b == 0 and (end % b == 0 or end == n)
            for (begin, end), b, n in zip(bounds, layout.block_shape, sizes)
        )
        if whole:
            blocks = [(begin // b, -(-end // b)) for (begin, end), b in zip(bounds, layout.block_shape)]
            return self._made(_raw.tartan_matrix_slice, *blocks[0], *blocks[1])
        return self._made(_raw.tartan_matrix_cut, *bounds[0], *bounds[1])

    def _listed(self, key: Any) -> Any:
        """Lists of rows and columns: a matrix, or an array of elements if both are lists."""
        pair = list(key) if isinstance(key, tuple) else [key, slice(None)]
        if len(pair) != 2:
            raise ArgumentTypeError(f"index is {key!r}, expected rows and columns, which count in every head")
        for i, (part, n) in enumerate(zip(pair, self.shape[-2:])):
            if isinstance(part, (list, np.ndarray)):
                array = np.asarray(part)
                if array.dtype == np.bool_:
                    if array.shape != (n,):
                        raise ArgumentError(f"index has booleans of shape {array.shape}, expected ({n},)")
                    array = np.flatnonzero(array)
                pair[i] = array.astype(np.int64) if array.size == 0 else array
        rows, cols = pair
        if isinstance(rows, np.ndarray) and isinstance(cols, np.ndarray) and not (
            rows.ndim == 2 and rows.shape[1] == 1 and cols.ndim == 2 and cols.shape[0] == 1
        ):
            return self._elements(rows, cols)
        lists = [
            np.ravel(part) if isinstance(part, np.ndarray)
            else np.arange(*part.indices(n)) if isinstance(part, slice)
            else np.array([operator.index(part)])
            for part, n in zip(pair, self.shape[-2:])
        ]  # fmt: skip
        return self.select(*lists)

    def _places(self, rows: Any, cols: Any) -> tuple[Array, Array, tuple[int, ...]]:
        """Flat lists of rows and columns, and the shape that they were broadcast to."""
        if self.ndim != 2:
            raise UnsupportedError("lists of elements are for matrices of one head")
        rows, cols = np.broadcast_arrays(rows, cols)
        flat = (wrapped(indices(x.reshape(-1), name), n) for x, name, n in zip((rows, cols), ("rows", "cols"), self.shape))
        return (*flat, rows.shape)

    def _elements(self, rows: Any, cols: Any) -> Array:
        i, j, shape = self._places(rows, cols)
        values = np.empty(i.size, self.dtype)
        _raw.tartan_matrix_get_elements(self._handle, None, i, j, values)
        return values.reshape(shape)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Writes elements at (row, col), numbers or lists, in place. A zero where nothing is stored is ignored; another
        number there is refused, and nothing is written.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
        >>> A[[0, 1], [1, 0]] = [5.0, 6.0]
        >>> A.sum()
        15.0
        """
        if not isinstance(key, tuple) or len(key) != 2 or any(isinstance(k, slice) for k in key):
            raise ArgumentTypeError(f"index is {key!r}, expected (row, col), numbers or lists")
        i, j, shape = self._places(np.asarray(key[0]), np.asarray(key[1]))
        values = np.ascontiguousarray(np.broadcast_to(np.asarray(value, np.float64), shape)).reshape(-1)
        _raw.tartan_matrix_set_elements(self._handle, None, i, j, values, 0)

    def setdiag(self, values: Any, k: int = 0) -> None:
        """Writes diagonal k in place, an array or a number. Where nothing is stored, only zeros can be written;
        `add_diagonal` adds blocks."""
        numbers = np.ascontiguousarray(values, np.float64).reshape(-1)
        _raw.tartan_matrix_set_diagonal(self._handle, k, numbers)

    def slice_blocks(self, rows: slice, cols: slice = slice(None)) -> BlockMatrix:
        """A new matrix of a range of block rows and block columns, counted in blocks as in ``layout[rows, cols]``."""
        return self._made(_raw.tartan_matrix_slice, *block_ranges((rows, cols), self.layout.grid))

    # ---- Products ----

    def __matmul__(self, other: Any) -> Any:
        return _raw.spmm(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _raw.spmm(self, other, "right")

    @property
    def T(self) -> TransposedMatrix[BlockMatrix]:
        """The transpose: a view without a copy, whose products use the transposed operation."""
        return TransposedMatrix(self)

    def transpose(self) -> TransposedMatrix[BlockMatrix]:
        return self.T

    def _plain(self) -> BlockMatrix:
        return self

    def _transposed(self) -> BlockMatrix:
        return self._made(_raw.tartan_matrix_transpose)

    # ---- Devices ----

    def to_device(self, context: ContextLike = "cuda") -> BlockMatrix:
        """A copy with its values on the context's device. The layout is shared."""
        context = context_of(context)
        with Call(context, self) as call:
            handle = _raw.tartan_matrix_to_device(call.handle, self._handle)
            return BlockMatrix._own(handle, call.queue, self._layout_home)

    def to_host(self, context: ContextLike = None) -> BlockMatrix:
        """Waits for earlier work on the matrix and copies its values to host memory."""
        with Call(context, self) as call:
            return BlockMatrix._own(_raw.tartan_matrix_to_host(call.handle, self._handle))

    # ---- Conversion ----

    def toarray(self, out: Any = None) -> Array:
        """The dense array [rows, cols] or [heads, rows, cols]; `out` may have any of Tartan's dtypes. Without
        `out` it has the dtype of the matrix, or float32 if that dtype needs ml_dtypes and ml_dtypes is not
        installed."""
        if out is None:
            out = np.empty(self.shape, self.dtype if in_numpy(self._code) else np.float32)
        _raw.tartan_matrix_to_dense(self._handle, output_of(out, "out", self._code))
        result: Array = out
        return result

    to_dense = toarray

    def to_coo(self) -> tuple[Array, Array, Array]:
        """Rows, columns and values of every stored element, row by row."""
        rows, cols = (np.empty(self.nnz, np.int64) for _ in range(2))
        values = np.empty(self.nnz, self.dtype)
        _raw.tartan_matrix_to_coo(self._handle, rows, cols, values)
        return rows, cols, values

    def to_csr(self) -> tuple[Array, Array, Array]:
        """indptr [rows + 1], columns and values of every stored element."""
        indptr, cols = np.empty(self.layout.rows + 1, np.int64), np.empty(self.nnz, np.int64)
        values = np.empty(self.nnz, self.dtype)
        _raw.tartan_matrix_to_csr(self._handle, indptr, cols, values)
        return indptr, cols, values

    def to_scipy(self, format: str = "bsr") -> scipy.sparse.sparray:
        """A SciPy sparse array of float32 or float64. "bsr" shares the memory of row-major values, and needs
        sizes that are multiples of the block's; any other format is made from the stored elements."""
        result: scipy.sparse.sparray = to_scipy(self, format)
        return result

    def to_torch(self) -> torch.Tensor:
        """A BSR tensor of PyTorch on the same device that shares the memory of row-major values. Sizes must be multiples
        of the block's; several heads become a batch, and need as many blocks each."""
        result: torch.Tensor = to_torch(self)
        return result

    def copy(self) -> BlockMatrix:
        """A copy on the same device."""
        return self._made(_raw.tartan_matrix_copy)

    def astype(self, dtype: Any = None, *, order: Optional[str] = None) -> BlockMatrix:
        """A copy in another dtype and order of elements inside a block, on the same device."""
        code = 0 if dtype is None else dtype_code(dtype)
        wanted = order_code(self.order if order is None else order)
        return self._made(_raw.tartan_matrix_cast, code, wanted)

    def permute(self, rows: Any = None, cols: Any = None) -> BlockMatrix:
        """Block row i of the result is block row rows[i], and likewise for columns; None keeps the order."""
        orders = (None if o is None else indices(o, n) for o, n in ((rows, "rows"), (cols, "cols")))
        return self._made(_raw.tartan_matrix_permute, *orders)

    def project(self, layout: Layout) -> BlockMatrix:
        """The values at the blocks of another layout of the same shape; blocks that were not stored are
        zero."""
        return self._made(_raw.tartan_matrix_project, layout_handle(layout, "layout"))

    def rearrange(self, layout: Layout, sources: Any) -> BlockMatrix:
        """Block i of the result is block sources[i], or zeros for -1; see `Layout.move`."""
        handle = layout_handle(layout, "layout")
        return self._made(_raw.tartan_matrix_rearrange, handle, indices(sources, "sources"))

    def scatter(self, matrix: BlockMatrix, targets: Any) -> BlockMatrix:
        """Copies block i of `matrix` to block targets[i] of this matrix, rounded once; -1 skips it. Other
        blocks keep their values. Returns this matrix.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (4, 4), 2))
        >>> B = tartan.BlockMatrix.from_dense(np.ones((2, 2)), block=2)
        >>> A.scatter(B, [3]).block_norms("max")
        array([0., 0., 0., 1.])
        """
        check_matrix(matrix, "matrix")
        with Call(None, self, matrix) as call:
            _raw.tartan_matrix_scatter(call.handle, matrix._handle, indices(targets, "targets"), self._handle)
        return self

    # ---- Keeping ----

    def save(
        self,
        path: Any,
        name: str = "matrix",
        *,
        gates: Any = None,
        metadata: Any = None,
        compress: bool = False,
    ) -> None:
        """Writes a file with only this matrix."""
        save_one(path, name, self._handle, optional_gates(gates), json_text(metadata), compress, matrix=True)

    def __reduce__(self) -> tuple[Any, ...]:
        refuse_device(self, "the matrix")
        values = self.bits if self.dtype_name in BITS else self.values
        if self.order == "F":
            values = values.transpose(0, 2, 1)
        return _restore, (self.layout, values, self.dtype_name, self.order)

    def __copy__(self) -> BlockMatrix:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> BlockMatrix:
        return self.copy()

    def close(self) -> None:
        """Frees the matrix; may be called again. Arrays that share its values stay valid."""
        self._handle.close()
        self._values = None

    @property
    def closed(self) -> bool:
        return self._handle.closed


def _restore(layout: Layout, values: Array, dtype: str, order: str) -> BlockMatrix:
    """Unpickles; values in read-only memory are copied."""
    values = values if values.flags.writeable else values.copy()
    values = values.transpose(0, 2, 1) if order == "F" else values
    return BlockMatrix.from_bits(layout, values, dtype) if dtype in BITS else BlockMatrix(layout, values)


def check_matrix(matrix: Any, name: str) -> None:
    if not isinstance(matrix, BlockMatrix):
        raise HandleTypeError(f"{name} is of type {type(matrix).__name__}, expected an open BlockMatrix")
