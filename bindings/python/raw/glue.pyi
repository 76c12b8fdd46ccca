# SPDX-License-Identifier: Apache-2.0
"""The C functions, one for one, as swig/lang/python.i makes them. Arguments are positional; array lengths follow from
the arrays; `out` handles, texts and numbers are results; other outputs are written in place."""

from collections.abc import Sequence
from typing import Any, Optional, Union, final

# A lease, or anything with the buffer protocol or __dlpack__; or (uint16 array, "bfloat16"), and uint8 arrays with
# "float8_e4m3fn" or "float8_e5m2".
_Buffer = Any
_Operand = Any
_Frame = tuple[int, int, int, int, int]
_Text = Union[str, bytes]

@final
class Handle:
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def hold(self, other: Handle, /) -> None: ...

@final
class Lease:  # exports the buffer protocol where the memory is the CPU's
    @property
    def address(self) -> int: ...
    @property
    def dtype(self) -> int: ...
    @property
    def device(self) -> tuple[int, int]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def readonly(self) -> bool: ...
    def dlpack(self, versioned: bool, /) -> Any: ...

def view(array: Any, stream: Optional[int] = None, mask: bool = False, /) -> tuple[Lease, str]: ...
def lease(
    keep: Any,
    address: int,
    dtype: int,
    device: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    readonly: bool,
    /,
) -> Lease: ...
