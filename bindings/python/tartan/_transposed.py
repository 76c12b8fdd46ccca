# SPDX-License-Identifier: Apache-2.0
"""The lazy transpose of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tartan import _raw
from tartan._arithmetic import Arithmetic
from tartan._arrays import Array
from tartan._layout import Layout
from tartan._matrix_facts import MatrixFacts
from tartan._scipy import to_scipy
from tartan._torch_sparse import to_torch
from tartan._sparse import Sparse

if TYPE_CHECKING:
    import scipy.sparse
    import torch

M = TypeVar("M", bound=MatrixFacts)


class TransposedMatrix(Arithmetic[M], Sparse, Generic[M]):
    """The transpose of a `BlockMatrix`, sharing its memory. `copy()` makes a new matrix."""

    __slots__ = ("T",)

    def __init__(self, matrix: M) -> None:
        self.T: M = matrix

    @property
    def shape(self) -> tuple[int, ...]:
        *heads, rows, cols = self.T.shape
        return (*heads, cols, rows)

    @property
    def ndim(self) -> int:
        return self.T.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.T.dtype

    @property
    def layout(self) -> Layout:
        return self.T.layout.T

    @property
    def nnz(self) -> int:
        return self.T.nnz

    @property
    def blocks(self) -> int:
        return self.T.blocks

    @property
    def density(self) -> float:
        return self.T.density

    @property
    def device(self) -> str:
        return self.T.device

    def transpose(self) -> M:
        return self.T

    def __matmul__(self, other: Any) -> Any:
        return _raw.spmm(self.T, other, "left", True)

    def __rmatmul__(self, other: Any) -> Any:
        return _raw.spmm(self.T, other, "right", True)

    def copy(self) -> M:
        return self.T._transposed()

    def _plain(self) -> M:
        return self.copy()

    def toarray(self) -> Array:
        return self.T.toarray().swapaxes(-1, -2)

    to_dense = toarray

    def to_scipy(self, format: str = "bsr") -> scipy.sparse.sparray:
        return to_scipy(self.copy(), format)

    def to_torch(self) -> torch.Tensor:
        """Like `BlockMatrix.to_torch`, of a copy."""
        result: torch.Tensor = to_torch(self.copy())
        return result

    def __repr__(self) -> str:
        return f"<transpose of {self.T!r}>"
