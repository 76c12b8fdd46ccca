# SPDX-License-Identifier: Apache-2.0
"""Assembly: blocks and elements, in any order and with repeats, added into matrices of one layout again and again."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tartan import _operations, _raw
from tartan._arrays import Array, indices, order_code
from tartan._call import to_device
from tartan._context import ContextLike
from tartan._device import DeviceArray
from tartan._errors import ArgumentError, LayoutError
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._matrix import BlockMatrix, check_matrix
from tartan._matrix_adding import MatrixAdding


def _list(array: Array) -> Array:
    """In 32 bits where that is enough: lists are read at each call."""
    return array.astype(np.int32) if array.size == 0 or array.max() <= np.iinfo(np.int32).max else array


def places_of(layout: Layout, heads: Any, rows: Any, cols: Any) -> tuple[Any, Array, Array]:
    if heads is None and layout.heads > 1:
        raise ArgumentError(f"heads is None, expected the head of each item: the layout has {layout.heads} heads")
    return (None if heads is None else indices(heads, "heads"), indices(rows, "rows"), indices(cols, "cols"))


class Assembly:
    """An assembly plan: which of the listed blocks or elements add up at each position of a layout. A plan is made
    once and then adds values into any matrix of the layout as fast as memory allows. It adds in the order of the
    list, so every call gives the same bits. `Assembly(layout, rows, cols)` adds blocks at (rows[i], cols[i]) in the
    grid, `Assembly.of_elements` adds elements. All of them must be in stored blocks.

    >>> import numpy as np, tartan
    >>> layout = tartan.Layout.from_mask([[1, 0], [1, 1]], block=2)
    >>> plan = tartan.Assembly(layout, [1, 0, 1], [1, 0, 1])
    >>> W = plan.matrix(np.full((3, 2, 2), [[[1.0]], [[2.0]], [[4.0]]]))
    >>> W.toarray()[:, 0].tolist(), W.toarray()[:, 3].tolist()
    ([2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 5.0, 5.0])
    >>> bool((plan.add(W, np.ones((3, 2, 2))).block[1, 1] == 7).all())
    True
    """

    __slots__ = {
        "layout": "The layout of the matrices that the plan is for.",
        "count": "How many blocks or elements are listed.",
        **dict.fromkeys(("_order", "_ends", "_block_order", "_copies"), ""),
    }

    def __init__(self, layout: Layout, rows: Any, cols: Any, *, heads: Any = None) -> None:
        places = places_of(layout, heads, rows, cols)
        order, ends = np.empty(len(places[1]), np.int64), np.empty(layout.blocks, np.int64)
        _raw.tartan_layout_block_plan(layout_handle(layout, "layout"), places, order, ends)
        self._set(layout, order, ends, None)

    @classmethod
    def of_elements(cls, layout: Layout, rows: Any, cols: Any, *, heads: Any = None, order: str = "C") -> Assembly:
        """A plan for elements at (rows[i], cols[i]), for matrices with blocks in this memory order.

        >>> import tartan
        >>> plan = tartan.Assembly.of_elements(tartan.Layout.pattern("dense", (2, 2), 2), [0, 1, 0], [1, 1, 1])
        >>> plan.matrix([1.0, 2.0, 4.0]).toarray().tolist()
        [[0.0, 5.0], [0.0, 2.0]]
        """
        places, code = places_of(layout, heads, rows, cols), order_code(order)
        block_rows, block_cols = layout.block_shape
        list_, ends = np.empty(len(places[1]), np.int64), np.empty(layout.blocks * block_rows * block_cols, np.int64)
        _raw.tartan_layout_element_plan(layout_handle(layout, "layout"), places, code, list_, ends)
        self = object.__new__(cls)
        self._set(layout, list_, ends, order)
        return self

    def _set(self, layout: Layout, order: Array, ends: Array, block_order: Optional[str]) -> None:
        self.layout, self.count = layout, len(order)
        self._order, self._ends, self._block_order = _list(order), _list(ends), block_order
        self._copies: dict[str, tuple[Any, Any]] = {}

    def __repr__(self) -> str:
        items = "blocks" if self._block_order is None else "elements"
        return f"<Assembly of {self.count} {items} into {self.layout!r}>"

    def add(self, matrix: BlockMatrix, values: Any, *, context: ContextLike = None) -> BlockMatrix:
        """Add values [count, block rows, block columns], or [count] for elements, into a matrix of the layout, in
        place, and return it. Values and matrix may be on a device."""
        return self._add(matrix, values, 1.0, context)

    def set(self, matrix: BlockMatrix, values: Any, *, context: ContextLike = None) -> BlockMatrix:
        """Set a matrix of the layout to the sums, in place, with zeros where nothing is added, and return it."""
        return self._add(matrix, values, 0.0, context)

    def matrix(self, values: Any, dtype: Any = None, *, context: ContextLike = None) -> BlockMatrix:
        """A new matrix of the sums, in the dtype of the values unless another is given."""
        given = values if hasattr(values, "dtype") else np.asarray(values, np.float64)
        order = "C" if self._block_order is None else self._block_order
        made = BlockMatrix.zeros(self.layout, given.dtype if dtype is None else dtype, order=order, context=context)
        return self._add(made, given, 0.0, context)

    def _add(self, matrix: BlockMatrix, values: Any, beta: float, context: ContextLike) -> BlockMatrix:
        check_matrix(matrix, "matrix")
        if matrix.layout != self.layout:
            raise LayoutError("matrix has another layout than the plan, expected that of the plan")
        if self._block_order not in (None, matrix.order):
            raise ArgumentError(f"matrix has order {matrix.order!r}, expected {self._block_order!r}, for which the plan was made")
        to = matrix.values
        if self._block_order is not None:
            to = to._view((to.size,), (1,)) if isinstance(to, DeviceArray) else _flat(to, matrix.order)
        order, ends = self._lists(matrix)
        _operations.segment_sum(to, values, order, ends, beta=beta, out=to, context=context)
        return matrix

    def _lists(self, matrix: BlockMatrix) -> tuple[Any, Any]:
        if matrix.device == "cpu":
            return self._order, self._ends
        if matrix.device not in self._copies:
            self._copies[matrix.device] = (to_device(self._order, matrix.device), to_device(self._ends, matrix.device))
        return self._copies[matrix.device]


def _flat(values: Any, order: str) -> Any:
    """The memory of values as one line."""
    return (values if order == "C" else values.swapaxes(1, 2)).reshape(-1)


MatrixAdding._assembly = Assembly
