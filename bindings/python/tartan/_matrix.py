# SPDX-License-Identifier: Apache-2.0
"""Matrices: a layout and its values."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional

import numpy as np

from tartan import _raw
from tartan._arithmetic import double_of, is_scalar
from tartan._arrays import (
    BITS,
    Array,
    doubles_of,
    dtype_code,
    indices,
    of_bits,
    optional_gates,
    order_code,
    pickled,
    refuse_device,
    unpickled,
)
from tartan._call import Call, Dense, dense_of, raw_dense
from tartan._context import ContextLike, context_of
from tartan._device import DeviceArray
from tartan._errors import (
    ArgumentError,
    ArgumentIndexError,
    ArgumentTypeError,
    DTypeError,
    HandleTypeError,
    UnsupportedError,
)
from tartan._formats import Formats, check_axes
from tartan._index import BlockIndex, parse, places, range_of, selected, write
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._matrix_adding import MatrixAdding
from tartan._matrix_arrays import MatrixArrays
from tartan._matrix_fill import MatrixFills
from tartan._matrix_making import MatrixMaking, freeze_as
from tartan._queue import Queue
from tartan._sparse import Sparse
from tartan._store import json_text, save_one
from tartan._transposed import TransposedMatrix


class BlockMatrix(MatrixAdding, MatrixArrays, MatrixFills, MatrixMaking, Formats["BlockMatrix"], Sparse):
    """A block-sparse matrix: a `Layout` and an array of values [blocks, block rows, block columns].

    ``BlockMatrix(layout, values)`` uses the memory of `values`, which the caller may still change; with ``copy=True``
    it has its own. Around read-only memory (numpy.memmap, joblib) the matrix is read-only and refuses writes. Blocks
    may be row-major or column-major inside. The values may be on a GPU: a device array, a tensor of PyTorch, an array
    of CuPy, ... `to_device` copies a matrix to a device.

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
        if layout._unordered:
            warnings.warn(
                "values are taken in the order of block ids, row by row, which is not the order of the coordinates that the "
                "layout was made from; BlockMatrix.from_blocks takes blocks in the order of their coordinates",
                stacklevel=2,
            )
        if _raw.records(values):
            raise ArgumentError(
                "values requires gradients, which a matrix does not record: spmm(layout, b, values=values) does; or use "
                "detach(), or torch.no_grad()"
            )
        array = dense_of(values, "values", copy)
        dense = raw_dense(array)
        self._handle = _raw.tartan_matrix_wrap(lent, dense)
        freeze_as(self._handle, dense)
        self._layout_home = layout._home
        self._home: Any = array._home if isinstance(array, DeviceArray) else None  # as a DeviceArray's
        self._values: Optional[Dense] = None if self._home is not None and self.device == "cpu" else array

    @classmethod
    def _own(
        cls, handle: _raw.Handle, home: Optional[Queue] = None, layout_home: Optional[Queue] = None
    ) -> BlockMatrix:
        """Take ownership of a handle. `home` is given if the values are memory of a context, `layout_home` if the
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
            return BlockMatrix._own(handle, call.home)

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
        """The element at (row, col) or (head, row, col), 0 if its block is not stored. Other indices of NumPy give a
        new matrix of rows and columns (in all heads). Lists of both rows and columns, and booleans [rows, cols], give
        an array of the elements at these positions. `block` counts in blocks.

        Where rows or columns of a block do not stay together, the result has smaller blocks (see `select`).

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.arange(16.0).reshape(4, 4), block=2)
        >>> A[1, 2], A[2:, :3].toarray().tolist()
        (6.0, [[8.0, 9.0, 10.0], [12.0, 13.0, 14.0]])
        """
        shape = self.shape
        if type(key) is tuple and len(key) == len(shape) and all(type(k) is int or isinstance(k, np.integer) for k in key):
            return self._element(key, shape)
        i, j, points = parse(key, shape)
        if points:
            return self._elements(i, j)
        if len(shape) == 3 and (isinstance(i, int) or isinstance(j, int)):
            raise ArgumentTypeError(f"index is {key!r}, expected (head, row, col), or slices and lists in every head")
        if isinstance(i, int) and isinstance(j, int):
            return self._element((i, j), shape)
        rows, cols = range_of(i, shape[-2]), range_of(j, shape[-1])
        if rows is None or cols is None:
            return self.select(selected(i, shape[-2]), selected(j, shape[-1]))
        return self._range(rows, cols)

    def _element(self, key: tuple[int, ...], shape: tuple[int, ...]) -> float:
        for name, k, n in zip(("head", "row", "col")[-len(shape) :], key, shape):
            if not -n <= k < n:
                raise ArgumentIndexError(f"{name} is {k}, expected {-n} .. {n - 1}")
        place = [0] * (3 - len(shape)) + [int(k) % n for k, n in zip(key, shape)]
        return _raw.tartan_matrix_entry(self._handle, *place)

    def _range(self, rows: tuple[int, int], cols: tuple[int, int]) -> BlockMatrix:
        """A range of rows and columns: moves whole blocks if it begins and ends on blocks."""
        sizes = self.shape[-2:]
        if self.layout.variable:
            places = [[np.searchsorted(b, end) for end in part] for part, b in zip((rows, cols), self.layout.boundaries)]
            if all(b[i] == end for part, ends, b in zip(places, (rows, cols), self.layout.boundaries) for i, end in zip(part, ends)):
                return self._made(_raw.tartan_matrix_slice, *(int(i) for part in places for i in part))
            return self._made(_raw.tartan_matrix_cut, *rows, *cols)
        whole = all(
            begin % b == 0 and (end % b == 0 or end == n)
            for (begin, end), b, n in zip((rows, cols), self.block_shape, sizes)
        )
        if whole:
            blocks = [(begin // b, -(-end // b)) for (begin, end), b in zip((rows, cols), self.block_shape)]
            return self._made(_raw.tartan_matrix_slice, *blocks[0], *blocks[1])
        return self._made(_raw.tartan_matrix_cut, *rows, *cols)

    def _elements(self, rows: Any, cols: Any) -> Array:
        if self.ndim != 2:
            raise UnsupportedError("lists of elements are for matrices of one head")
        values = np.empty(rows.size, self.dtype)
        i, j = (np.ascontiguousarray(x.reshape(-1), np.int64) for x in (rows, cols))
        _raw.tartan_matrix_get_elements(self._handle, (None, i, j), values)
        return values.reshape(rows.shape)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements in place: numbers, dense arrays or sparse matrices. A zero for an element that is not
        stored is ignored. Another number there is refused and nothing is written; `with_elements` makes a matrix with
        room for it.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
        >>> A[[0, 1], [1, 0]] = [5.0, 6.0]
        >>> A[2:, 2:] = [[0.0, 1.0], [1.0, 0.0]]
        >>> float(A.sum())
        15.0
        """
        write(self, key, value)

    def with_elements(self, rows: Any, cols: Any, values: Any) -> BlockMatrix:
        """A copy with `values` at the positions (rows[i], cols[i]); missing blocks are added. If a position is
        repeated, the last value counts.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2).with_elements([0, 0], [2, 3], 5)
        >>> A.blocks, A[0].toarray().tolist()
        (3, [[1.0, 0.0, 5.0, 5.0]])
        """
        i, j, numbers = places(self, parse((np.atleast_1d(rows), np.atleast_1d(cols)), self.shape), values)
        i, j, numbers = np.ascontiguousarray(i), np.ascontiguousarray(j), np.ascontiguousarray(numbers)
        layout = Layout._own(_raw.tartan_layout_add_elements(layout_handle(self.layout, "layout"), (None, i, j)))
        result = self.project(layout)
        _raw.tartan_matrix_set_elements(result._handle, (None, i, j), numbers, 0)
        return result

    @property
    def block(self) -> BlockIndex:
        """Count in blocks: ``A.block[1:3, :2]`` is the matrix of these blocks, ``A.block[1, 0]`` is block (1, 0), an
        array that shares the memory of the matrix (zeros that cannot be written, if it is not stored).

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.arange(16.0).reshape(4, 4), block=2)
        >>> A.block[1, 0].tolist(), A.block[:1].shape
        ([[8.0, 9.0], [12.0, 13.0]], (2, 4))
        """
        return BlockIndex(self)

    def setdiag(self, values: Any, k: int = 0) -> None:
        """Write an array or a number to diagonal k, in place. Elements that are not stored can only be set to zero;
        `add_diagonal` adds blocks."""
        numbers = doubles_of(values, "values").reshape(-1)
        with Call(None, self) as call:
            _raw.tartan_matrix_set_diagonal(call.handle, self._handle, k, numbers)

    def eliminate_zeros(self) -> None:
        """Remove the blocks that hold only zeros, in place; arrays of the old values stay valid. `drop_zeros` makes a
        new matrix."""
        self._become(self.drop_zeros())

    def resize(self, *shape: Any) -> None:
        """Change the numbers of rows and columns in place. Elements keep their positions; those outside the new
        shape are dropped."""
        self._become(self._resized(*shape))

    def _become(self, other: BlockMatrix) -> None:
        self._handle, self._home, self._layout_home, self._values = other._handle, other._home, other._layout_home, None

    def _empty(self, shape: tuple[int, int]) -> BlockMatrix:
        """Zeros without a block, in this matrix's blocks, dtype and order."""
        layout = Layout.from_coordinates(shape, self.block_shape, [], [])
        return BlockMatrix._own(
            _raw.tartan_matrix_create(layout_handle(layout, "layout"), self._code, order_code(self.order))
        )

    def __imul__(self, other: Any) -> BlockMatrix:
        return self._changed(np.multiply, other)

    def __itruediv__(self, other: Any) -> BlockMatrix:
        return self._changed(np.true_divide, other)

    def _changed(self, function: Any, other: Any) -> BlockMatrix:
        """In place for a number, as for arrays; else a new matrix. On a device with new memory, which views of the matrix see."""
        if not is_scalar(other):
            result: BlockMatrix = function(self, other)
            return result
        if self.device != "cpu":
            self._become(function(self, other))
            return self
        values, number = self.values, double_of(other)
        if not values.flags.writeable:
            raise ArgumentError("the matrix is read-only, expected memory to write into: copy() can be written")
        sums = np.float64 if self.dtype_name == "float64" else np.float32
        with np.errstate(all="ignore"):  # as the library, which gives infinities without a warning
            if not np.isfinite(sums(number)) or (number == 0 and function is np.true_divide):
                raise ArgumentError(
                    f"the number is {number!r}, expected one that is finite in {np.dtype(sums)}, and not 0 to divide by"
                )
            # In float64 and rounded once, so that `A *= x` has the bits of `A * x`.
            function(values, number, out=values, dtype=np.float64, casting="unsafe")
        return self

    # ---- Products ----

    def __matmul__(self, other: Any) -> Any:
        return _raw.spmm(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _raw.spmm(self, other, "right")

    @property
    def T(self) -> TransposedMatrix[BlockMatrix]:
        """The transpose: a view without a copy, whose products use the transposed operation."""
        return TransposedMatrix(self)

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """The transpose: a view, or with `copy` a new matrix."""
        check_axes(axes, self)
        return self._transposed() if copy else self.T

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
        """Wait for earlier work on the matrix and copy its values to host memory."""
        with Call(context, self) as call:
            return BlockMatrix._own(_raw.tartan_matrix_to_host(call.handle, self._handle))

    # ---- Conversion ----

    def copy(self) -> BlockMatrix:
        """A copy on the same device."""
        return self._made(_raw.tartan_matrix_copy)

    def astype(self, dtype: Any = None, *, order: Optional[str] = None, copy: bool = True) -> BlockMatrix:
        """A copy in another dtype and order of elements inside a block, on the same device; the matrix itself if
        nothing changes and `copy` is False."""
        code = 0 if dtype is None else matrix_dtype_code(dtype)
        if not copy and code in (0, self._code) and order in (None, self.order):
            return self
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
        """Block i of the result is block sources[i], or zeros if sources[i] is -1; see `Layout.move`."""
        handle = layout_handle(layout, "layout")
        return self._made(_raw.tartan_matrix_rearrange, handle, indices(sources, "sources"))

    def scatter(self, matrix: BlockMatrix, targets: Any) -> BlockMatrix:
        """Copy block i of `matrix` to block targets[i] of this matrix, rounded once; -1 skips it. Other
        blocks keep their values. Return this matrix.

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
        """Write a file with only this matrix."""
        save_one(path, name, self._handle, optional_gates(gates), json_text(metadata), compress, matrix=True)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        refuse_device(self, "the matrix")
        values = self.bits if self.dtype_name in BITS else self.values
        if self.order == "F":
            values = values.transpose(0, 2, 1)
        return _restore, (self.layout, pickled(values, protocol), self.dtype_name, self.order)

    def __copy__(self) -> BlockMatrix:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> BlockMatrix:
        return self.copy()

    def close(self) -> None:
        """Free the matrix; may be called again. Arrays that share its values stay valid."""
        self._handle.close()
        self._values = None

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._handle.closed


def matrix_dtype_code(dtype: Any) -> int:
    try:
        return dtype_code(dtype)
    except DTypeError as error:
        raise DTypeError(f"{error}: to_scipy().astype() makes a SciPy array of other numbers") from None


def _restore(layout: Layout, values: Any, dtype: str, order: str) -> BlockMatrix:
    array = unpickled(values)
    values = array.transpose(0, 2, 1) if order == "F" else array
    return BlockMatrix.from_bits(layout, values, dtype) if dtype in BITS else BlockMatrix(layout, values)


def check_matrix(matrix: Any, name: str) -> None:
    if not isinstance(matrix, BlockMatrix):
        raise HandleTypeError(f"{name} is of type {type(matrix).__name__}, expected an open BlockMatrix")
