# SPDX-License-Identifier: Apache-2.0
"""Initial values of a matrix, in place."""

from __future__ import annotations

from typing import Optional, TypeVar

import numpy as np

from tartan import _raw
from tartan._context import Context, ContextLike
from tartan._context import handle_of as context_handle

M = TypeVar("M", bound="MatrixFills")


class MatrixFills:
    """The part of `BlockMatrix` that sets initial values; each function returns the matrix."""

    __slots__ = ()
    _handle: _raw.Handle

    def fill_zero(self: M) -> M:
        """Set every stored element to 0, and return the matrix, as the other fills do."""
        _raw.tartan_matrix_fill_zero(self._handle)
        return self

    def fill_identity(self: M, scale: float = 1.0) -> M:
        """scale * I in the blocks on the (wrapped) diagonal, zeros elsewhere."""
        _raw.tartan_matrix_fill_identity(self._handle, scale)
        return self

    def fill_orthogonal(self: M, scale: float = 1.0, *, seed: Optional[int] = None, context: ContextLike = None) -> M:
        """Fill each block column with orthonormal columns (or rows) times `scale`. `seed` is as for `fill_normal`."""
        _raw.tartan_matrix_fill_orthogonal(context_handle(context), self._handle, scale, _seed(seed, context))
        return self

    def fill_normal(self: M, scale: float = 1.0, *, seed: Optional[int] = None, context: ContextLike = None) -> M:
        """Normal random numbers with standard deviation scale / sqrt(fan-in). The same seed gives the same numbers
        everywhere. Without a seed, the call takes the next seed of the given `Context`, or draws one from NumPy's
        global generator, so numbers differ from call to call and `numpy.random.seed` repeats them.

        >>> import tartan
        >>> A = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (8, 8), 4))
        >>> bool((A.fill_normal(seed=1).values == A.copy().fill_normal(seed=1).values).all())
        True
        """
        _raw.tartan_matrix_fill_normal(context_handle(context), self._handle, scale, _seed(seed, context))
        return self


def _seed(seed: Optional[int], context: ContextLike) -> int:
    """A given seed; else -1 for the next of a context's, or a drawn one."""
    if seed is not None:
        return seed
    return -1 if isinstance(context, Context) else int(np.random.randint(2**31))
