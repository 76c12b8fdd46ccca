# SPDX-License-Identifier: Apache-2.0
"""Protection of block-sparse matrices from NumPy and Python functions that take them for arrays or
sequences."""

from __future__ import annotations

from typing import Any, Callable, ClassVar

import numpy as np

from tartan._errors import ArgumentError, ArgumentTypeError


class Sparse:
    """The common part of `BlockMatrix` and `TransposedMatrix`: NumPy's functions get neither a dense copy nor
    an array of objects, and elementwise comparisons are refused."""

    __slots__ = ()
    __iter__: ClassVar[None] = None
    __hash__ = object.__hash__

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def transpose(self) -> Any:
        raise NotImplementedError

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise ArgumentTypeError(
            f"a {type(self).__name__} does not become a dense array unasked: use toarray()"
        )

    def __array_function__(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        if len(arguments) == 1 and not options and arguments[0] is self:
            if function is np.shape:
                return self.shape
            if function is np.ndim:
                return len(self.shape)
            if function is np.transpose and len(self.shape) == 2:
                return self.transpose()
        if function is np.dot and len(arguments) == 2 and not options:
            a, b = arguments
            return a @ b if isinstance(a, Sparse) or np.ndim(a) > 0 else a * b
        raise ArgumentTypeError(
            f"numpy.{function.__name__} takes no {type(self).__name__}: toarray() makes a dense copy, to_scipy() a "
            "SciPy array"
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Sparse, np.ndarray, np.generic, int, float)):
            raise ArgumentTypeError(
                f"== of a {type(self).__name__} would compare elements, which Tartan does not: compare layout and values"
            )
        return NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        raise ArgumentError(
            f"the truth value of a {type(self).__name__} is ambiguous: ask for nnz, or values.any()"
        )
