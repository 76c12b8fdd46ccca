# SPDX-License-Identifier: Apache-2.0
"""Methods of SciPy's sparse arrays, under the same names."""

from __future__ import annotations

import operator
from typing import Any, Iterator, Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._arrays import Array
from tartan._call import Call
from tartan._compare import Comparisons, in_csr
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError
from tartan._index import rows_of

M = TypeVar("M")

# Functions that keep zero: SciPy's sparse arrays have a method for each.
KEEPING_ZERO = (
    "arcsin", "arcsinh", "arctan", "arctanh", "ceil", "deg2rad", "expm1", "floor", "log1p", "rad2deg", "sin", "sinh",
    "tan", "tanh", "trunc",
)  # fmt: skip


def shape_of(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as a tuple or as numbers."""
    given = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    try:
        return tuple(operator.index(n) for n in given)
    except TypeError:
        raise ArgumentTypeError(f"shape is {given!r}, expected integers") from None


def _filled(sizes: tuple[int, ...], elements: int) -> tuple[int, int]:
    """A new shape of `elements` elements, of which one size may be -1: what is left."""
    if len(sizes) != 2:
        raise ShapeError(f"shape has {len(sizes)} sizes, expected 2")
    if sizes.count(-1) > 1:
        raise ArgumentError("shape has two unknown sizes, expected at most one")
    if -1 in sizes:
        known = max(-sizes[0] * sizes[1], 1)
        sizes = tuple(elements // known if n == -1 else n for n in sizes)
    if min(sizes) < 0 or sizes[0] * sizes[1] != elements:
        raise ShapeError(f"shape is {sizes}, expected one of {elements} elements")
    return sizes[0], sizes[1]


def _check_one_head(matrix: Any) -> None:
    if matrix.ndim != 2:
        raise ShapeError(f"the matrix has {matrix.heads} heads, expected 1")


def check_axes(axes: Any, matrix: Any) -> None:
    allowed = ((1, 0), (-1, -2)) if matrix.ndim == 2 else ((0, 2, 1), (0, -1, -2))
    if axes is not None and (not isinstance(axes, (tuple, list)) or tuple(axes) not in allowed):
        raise ArgumentTypeError(
            f"axes is {axes!r}, expected None or {allowed[0]}: toarray() makes a dense copy of a {type(matrix).__name__}"
        )


class Formats(Comparisons[M]):
    """Methods under the names that SciPy's sparse arrays use."""

    __slots__ = ()

    def __iter__(self) -> Iterator[M]:
        return rows_of(self)

    @property
    def nbytes(self) -> int:
        """The size of the stored values in bytes."""
        plain: Any = self
        rows, cols = plain.block_shape
        return int(plain.blocks * rows * cols * _raw.tartan_dtype_bytes(plain._code))

    @property
    def size(self) -> int:
        """The number of stored elements, as `nnz`."""
        count: int = self.nnz  # type: ignore[attr-defined]
        return count

    def getnnz(self) -> int:
        """The number of stored elements, as `nnz`."""
        return self.size

    @property
    def format(self) -> str:
        """ "bsr", SciPy's block format, or "blocks" if that cannot hold the matrix: sizes that are not multiples of
        the block's, several heads, or dtypes that SciPy does not have."""
        plain: Any = self._plain()
        layout = plain.layout
        whole = layout.heads == 1 and not layout.variable and all(n % b == 0 for n, b in zip(layout.shape, layout.block_shape))
        return "bsr" if whole and plain.dtype_name in ("float64", "float32") else "blocks"

    @property
    def data(self) -> Any:
        """The same as `values`."""
        return self._plain().values  # type: ignore[attr-defined]

    @data.setter
    def data(self, changed: Any) -> None:
        plain: Any = self._plain()
        plain.values = changed

    @property
    def blocksize(self) -> tuple[int, int]:
        """The same as `block_shape`."""
        shape: tuple[int, int] = self.block_shape  # type: ignore[attr-defined]
        return shape

    @property
    def indptr(self) -> Array:
        """The first block id of each block row, and the number of blocks, as a copy; see `Layout.row_lists`."""
        plain: Any = self._plain()
        pointers: Array = plain.layout.row_lists()[0]
        return pointers

    @property
    def indices(self) -> Array:
        """The block column of each block, as a copy."""
        plain: Any = self._plain()
        cols: Array = plain.layout.row_lists()[1]
        return cols

    # ---- SciPy's arrays ----

    # Zeros inside of stored blocks are stored elements, in every format, so nothing depends on values. What takes stored
    # elements for something, as scipy.sparse.csgraph takes them for edges, needs `drop_zeros`.

    def to_scipy(self, format: str = "bsr", *, drop_zeros: bool = False) -> Any:
        """A SciPy sparse array."""
        raise NotImplementedError

    def asformat(self, format: Optional[str], copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """A SciPy sparse array in a format ("csr", "coo", ...), or a dense array ("array" or "dense"); the matrix itself for
        None. `drop_zeros` as for `to_scipy`."""
        if format in ("array", "dense"):
            matrix: Any = self  # of a class that has it
            return matrix.toarray()
        return self if format is None else self.to_scipy(format, drop_zeros=drop_zeros)

    def tocsr(self, copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """The stored elements as a SciPy CSR array. `drop_zeros` leaves out stored zeros, as needed for
        scipy.sparse.csgraph, where every stored element is an edge.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense([[0, 0], [0, 1.0]], block=2)
        >>> A.tocsr().nnz, A.tocsr(drop_zeros=True).nnz
        (4, 1)
        """
        return self.to_scipy("csr", drop_zeros=drop_zeros)

    def tocsc(self, copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """As `tocsr`, by columns."""
        return self.to_scipy("csc", drop_zeros=drop_zeros)

    def tocoo(self, copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """As `tocsr`, as coordinates (COO)."""
        return self.to_scipy("coo", drop_zeros=drop_zeros)

    def tolil(self, copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """As `tocsr`, with lists of rows."""
        return self.to_scipy("lil", drop_zeros=drop_zeros)

    def todia(self, copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """As `tocsr`, by diagonals."""
        return self.to_scipy("dia", drop_zeros=drop_zeros)

    def todok(self, copy: bool = False, *, drop_zeros: bool = False) -> Any:
        """As `tocsr`, as a dictionary of positions."""
        return self.to_scipy("dok", drop_zeros=drop_zeros)

    def tobsr(
        self, blocksize: Optional[tuple[int, int]] = None, copy: bool = False, *, drop_zeros: bool = False
    ) -> Any:
        """The blocks as a SciPy BSR array. `drop_zeros` leaves out blocks that hold only zeros."""
        matrix: Any = self if blocksize is None else self.reblock(blocksize)
        return matrix.to_scipy("bsr", drop_zeros=drop_zeros)

    def nonzero(self) -> tuple[Array, Array]:
        """The rows and columns of the non-zero elements, row by row.

        >>> import numpy as np, tartan
        >>> tartan.BlockMatrix.from_dense(np.eye(3)[::-1], block=2).nonzero()
        (array([0, 1, 2]), array([2, 1, 0]))
        """
        plain: Any = self._plain()
        rows, cols, values = plain.to_coo()
        keep = values != 0
        return (rows, cols) if keep.all() else (rows[keep], cols[keep])

    def argmax(self, axis: Optional[int] = None, out: Any = None, *, explicit: bool = False) -> Any:
        """The position of the largest element, counted row by row; with an axis, for every row (axis 1) or column
        (axis 0). `explicit` considers the stored elements only."""
        return in_csr(self).argmax(axis, out, explicit=explicit)

    def argmin(self, axis: Optional[int] = None, out: Any = None, *, explicit: bool = False) -> Any:
        """The position of the smallest element; see `argmax`."""
        return in_csr(self).argmin(axis, out, explicit=explicit)

    def nanmax(self, axis: Optional[int] = None) -> Any:
        """The largest element, ignoring NaN: of the matrix, of every row (axis 1) or of every column (axis 0)."""
        return self._nan_reduced("nanmax", axis)

    def nanmin(self, axis: Optional[int] = None) -> Any:
        """The smallest element, ignoring NaN; see `nanmax`."""
        return self._nan_reduced("nanmin", axis)

    def _nan_reduced(self, name: str, axis: Optional[int]) -> Any:
        plain: Any = self._plain()
        found = getattr(in_csr(plain), name)(axis)
        found = found if axis is None else found.toarray()
        return found.astype(np.float16) if plain.dtype_name == "float16" else found

    def conjugate(self, copy: bool = True) -> Any:
        """The matrix itself, which is real; a copy unless `copy` is False."""
        return +self if copy else self

    conj = conjugate

    @property
    def real(self) -> Any:
        """The matrix itself, which is real."""
        return self

    # ---- Shapes ----

    def reshape(self, *shape: Any, order: str = "C", copy: bool = False) -> Any:
        """The same elements in the same order, row by row ("C") or column by column ("F"), in another shape; a size
        of -1 is computed from the other. The matrix itself if it has this shape, unless `copy` is True."""
        plain: Any = self._plain()
        _check_one_head(plain)
        if order not in ("C", "F"):
            raise ArgumentError(f"order is {order!r}, expected 'C' or 'F'")
        rows, cols = _filled(shape_of(shape), plain.shape[0] * plain.shape[1])
        if (rows, cols) == plain.shape:
            return +self if copy else self
        return plain._computed(
            lambda context, matrix: _raw.tartan_matrix_reshape(context, matrix, rows, cols, int(order == "F"))
        )

    def _resized(self, *shape: Any) -> M:
        """A copy with other numbers of rows and columns: elements keep their places, or fall away."""
        plain: Any = self._plain()
        sizes = shape_of(shape)
        _check_one_head(plain)
        if len(sizes) != 2 or min(sizes) < 0:
            raise ShapeError(f"shape is {sizes}, expected two numbers of at least 0")
        rows, cols = (min(n, old) for n, old in zip(sizes, plain.shape))
        with Call(None, plain) as call:
            result = type(plain)._own(_raw.tartan_matrix_cut(call.handle, plain._handle, 0, rows, 0, cols))
        for direction, more in (
            (_raw.TARTAN_RIGHTWARD, (rows, sizes[1] - cols)), (_raw.TARTAN_DOWN, (sizes[0] - rows, sizes[1])),
        ):  # fmt: skip
            if more[direction == _raw.TARTAN_RIGHTWARD] > 0:
                empty = plain._empty(more)
                with Call(None, result, empty) as call:
                    handle = _raw.tartan_matrix_concatenate(call.handle, direction, [result._handle, empty._handle])
                    result = type(plain)._own(handle)
        made: M = result
        return made


def _method(name: str) -> Any:
    function = getattr(np, name)

    def method(self: Formats[M]) -> M:
        return self.apply(function)

    method.__name__ = name
    method.__doc__ = f"numpy.{name} of every stored element; that of 0 is 0."
    return method


for _name in KEEPING_ZERO:
    setattr(Formats, _name, _method(_name))
