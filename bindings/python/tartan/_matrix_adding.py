# SPDX-License-Identifier: Apache-2.0
"""Adding blocks and elements into a matrix, in place."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from tartan._matrix_facts import MatrixFacts

M = TypeVar("M", bound="MatrixAdding")


class MatrixAdding(MatrixFacts):
    """The part of `BlockMatrix` that adds lists of blocks and elements."""

    __slots__ = ()
    _assembly: ClassVar[Any]  # tartan._assembly.Assembly, which is made of operations and so knows this class

    def add_blocks(self: M, rows: Any, cols: Any, values: Any, *, heads: Any = None) -> M:
        """Add values[i] to the block at (rows[i], cols[i]) in the grid of blocks, in place, and return the matrix.
        A block may be listed any number of times; all must be stored. To add many lists of values at the same
        positions, make a plan once: `Assembly`.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
        >>> A.add_blocks([1, 1], [1, 1], np.ones((2, 2, 2))).toarray()[3].tolist()
        [0.0, 0.0, 2.0, 3.0]
        """
        self._assembly(self.layout, rows, cols, heads=heads).add(self, values)
        return self

    def add_elements(self: M, rows: Any, cols: Any, values: Any, *, heads: Any = None) -> M:
        """Add values[i] to the element at (rows[i], cols[i]), in place, and return the matrix. An element may be listed
        any number of times; all must be in stored blocks. See `Assembly.of_elements`.

        >>> import numpy as np, tartan
        >>> A = tartan.BlockMatrix.from_dense(np.eye(4), block=2)
        >>> A.add_elements([2, 2], [3, 3], [0.5, 2.0])[2, 3]
        2.5
        """
        self._assembly.of_elements(self.layout, rows, cols, heads=heads, order=self.order).add(self, values)
        return self
