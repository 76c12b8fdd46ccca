# SPDX-License-Identifier: Apache-2.0
"""Parts shared by the functions of tartan._operations, which are generated from the schema of operations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

from tartan import _raw
from tartan._arrays import dtype_name
from tartan._context import Context
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan._layout import Layout
from tartan._matrix import BlockMatrix

operation: Any = _raw.operation
operation_of_images: Any = _raw.operation_of_images
own = BlockMatrix._own  # called by the extension module with the handle of a result in host memory


class Recording(NamedTuple):
    """How PyTorch's autograd calls the gradient of an operation. Positions count the inputs, then the outputs, then
    the gradients of outputs."""

    name: str
    gradient: int  # the number of the operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optional: tuple[bool, ...]  # of the outputs
    kept: int  # bits of the optional outputs that the gradient needs
    sources: tuple[int, ...]  # the places of its inputs
    options: tuple[int, ...]  # those of its options among the operation's
    results: tuple[int, ...]  # of which input each of its outputs is the gradient
    several: bool  # whether it has several outputs
    gradients: bool  # whether the operation's own outputs have a place each in what it returns
    updated: Optional[int]  # the input that the operation updates; it then has no outputs, and its result is this one


def wanted(wrt: Union[str, Sequence[str], None], names: tuple[str, ...], bits: tuple[int, ...], function: str) -> int:
    """The bits of the named outputs; all bits if there are no names."""
    if wrt is None:
        return -1
    found = 0
    try:
        for name in (wrt,) if isinstance(wrt, str) else wrt:
            found |= bits[names.index(name)]
    except TypeError:
        raise ArgumentTypeError(f"{function}: wrt is of type {type(wrt).__name__}, expected names of inputs") from None
    except ValueError:
        expected = ", ".join(map(repr, names))
        raise ArgumentError(f"{function}: wrt has {name!r}, expected some of {expected}") from None
    return found


def seed_of(seed: Optional[int], x: Any) -> int:
    """The seed that is given, or 0; or for a tensor of PyTorch, also one that it traces, a number of its generator, so that calls
    differ and torch.manual_seed makes programs repeat."""
    if seed is not None:
        return seed
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, (torch.Tensor, torch.fx.Proxy)):
        return 0
    if not torch._C._len_torch_dispatch_stack():
        return int(torch.randint(2**62, (), device="cpu"))
    with torch.utils._python_dispatch._disable_current_modes():
        return int(torch.randint(2**62, (), device="cpu"))


def matrix_like(like: Any, code: int, context: Context) -> BlockMatrix:
    """A new matrix for a result; called by the extension module where it is not in host memory, or the layout is dynamic."""
    if isinstance(like, BlockMatrix):
        return BlockMatrix.zeros(like.layout, dtype_name(code), order=like.order, context=context)
    return BlockMatrix.zeros(like if isinstance(like, Layout) else like.layout, dtype_name(code), context=context)
