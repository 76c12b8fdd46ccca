# SPDX-License-Identifier: Apache-2.0
"""Gain, bias and ReLU by channel: the last step of a convolution alone."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._context import ContextLike
from tartan._conv import BlockConv
from tartan._errors import ArgumentError, HandleTypeError
from tartan._windows import Sizes, array_like, sizes_of


def channel_linear(
    x: Any, *, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False,
    conv: Optional[BlockConv] = None, size: Optional[Sizes] = None, channels_last: bool = False, out: Any = None,
    context: ContextLike = None,
) -> Any:  # fmt: skip
    """``gain * x + bias`` for each channel of `x`, or with `bias_first` ``gain * (x + bias)``, then with `relu`
    ``max(y, 0)``: the last step of a convolution alone. `x` is [n, channels, ...], or with `channels_last` [n, ...,
    channels]; `out` may be `x`. If PyTorch records gradients of `x`, `gain` or `bias`, they are recorded.

    `gain` and `bias` are [channels]; or [classes, channels], with a row for each of ``conv.edge_classes(size)``. Then
    `x` is a result of `conv` for images with the spatial lengths `size`.

    >>> import numpy as np, tartan
    >>> tartan.channel_linear(np.array([[1.0, 2, 3]]), gain=[1.0, 2, 3], bias=[0.0, -5, 1], relu=True)
    array([[ 1.,  0., 10.]])
    """
    if not isinstance(x, np.ndarray) and _raw.records(x, gain, bias):
        from tartan import _torch_windows

        if out is not None:
            raise ArgumentError(
                "channel_linear: out is given, expected none where PyTorch records gradients: use detach(), or torch.no_grad()"
            )
        options = {
            "relu": relu, "bias_first": bias_first, "conv": conv, "size": size, "channels_last": channels_last,
            "context": context,
        }  # fmt: skip
        return _torch_windows.linear(x, gain, bias, (channel_linear, channel_linear_gradient), options)
    x = array_like(x, "x")
    given = _linear(x, relu, bias_first, conv, size, channels_last, context)
    (result,) = _raw.image_operation(
        "channel_linear", given[0], (), (x, gain, bias), (tuple(x.shape) if out is None else out,), *given[1:]
    )
    return result


def channel_linear_gradient(
    x: Any, y_grad: Any, *, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False,
    conv: Optional[BlockConv] = None, size: Optional[Sizes] = None, channels_last: bool = False,
    context: ContextLike = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients of `x`, `gain` and `bias` (None for one that is not given), given that of the result of
    `channel_linear` with the same arguments.

    >>> import numpy as np, tartan
    >>> x = np.array([[1.0, 2], [3, 4]])
    >>> dx, _, db = tartan.channel_linear_gradient(x, np.ones((2, 2)), bias=np.array([0.0, -3]), relu=True)
    >>> db
    array([2., 1.])
    """
    x = array_like(x, "x")
    gain, bias = (None if v is None else array_like(v, name) for v, name in ((gain, "gain"), (bias, "bias")))
    given = _linear(x, relu, bias_first, conv, size, channels_last, context)
    outputs = (tuple(x.shape), None if gain is None else 2, None if bias is None else 3)
    result: Any = _raw.image_operation(
        "channel_linear_gradient", given[0], (), (x, y_grad, gain, bias), outputs, *given[1:]
    )
    return result  # type: ignore[no-any-return, unused-ignore]


def _linear(
    x: Any, relu: bool, bias_first: bool, conv: Optional[BlockConv], size: Optional[Sizes], last: bool, context: ContextLike
) -> tuple[Any, ...]:
    """The arguments that both share: handles, and what follows the outputs."""
    if (conv is None) != (size is None):
        raise ArgumentError("one of conv and size is given, expected both or none")
    if conv is not None and not isinstance(conv, BlockConv):
        raise HandleTypeError(f"conv is of type {type(conv).__name__}, expected a BlockConv or None")
    dims = len(x.shape) - 2 if conv is None else conv.dims
    text = f"relu={int(bool(relu))} bias_first={int(bool(bias_first))}"
    sizes = () if size is None else sizes_of(size)
    last = last if conv is None else conv.channels_last
    handles = (None if conv is None else conv._handle,)
    return handles, (text, None), sizes, 0.0, max(0, dims), last, False, context
