# SPDX-License-Identifier: Apache-2.0
"""What a block-sparse matrix answers where NumPy or Python takes it for an array or a sequence."""

from __future__ import annotations

from typing import Any, Callable, ClassVar

import numpy as np

from tartan._errors import ArgumentError, ArgumentTypeError


class Sparse:
    """The part that `BlockMatrix` and `TransposedMatrix` share: NumPy's functions get no dense copy and no array of
    objects, and comparisons that would be of elements are refused."""

    __slots__ = ()
    __array_ufunc__ = None  # lets array @ matrix reach __rmatmul__
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
        if arguments == (self,) and not options:
            if function is np.shape:
                return self.shape
            if function is np.ndim:
                return len(self.shape)
            if function is np.transpose and len(self.shape) == 2:
                return self.transpose()
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
