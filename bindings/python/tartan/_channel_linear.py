# SPDX-License-Identifier: Apache-2.0
"""Gain, bias and ReLU by channel: the last step of a convolution alone."""

from __future__ import annotations

from typing import Any, Optional

from tartan import _raw
from tartan._context import ContextLike
from tartan._conv_facts import ConvFacts
from tartan._errors import ArgumentError, HandleTypeError
from tartan._operations import _CHANNEL_LINEAR, _CHANNEL_LINEAR_GRADIENT
from tartan._windows import Sizes, array_like, sizes_of

_run: Any = _raw.operation_of_images


def channel_linear(
    x: Any, *, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False,
    conv: Optional[ConvFacts] = None, size: Optional[Sizes] = None, channels_last: bool = False, out: Any = None,
    context: ContextLike = None,
) -> Any:  # fmt: skip
    """``gain * x + bias`` for each channel of `x`, or with `bias_first` ``gain * (x + bias)``, then with `relu`
    ``max(y, 0)``: the last step of a convolution by itself. `x` is [n, channels, ...], or with `channels_last` [n,
    ..., channels]; `out` may be `x`. PyTorch's autograd works for `x`, `gain` and `bias`.

    `gain` and `bias` are [channels], or [classes, channels] with a row for each of ``conv.edge_classes(size)``; `x`
    is then a result of `conv` for images with the spatial lengths `size`.

    >>> import numpy as np, tartan
    >>> tartan.channel_linear(np.array([[1.0, 2, 3]]), gain=[1.0, 2, 3], bias=[0.0, -5, 1], relu=True)
    array([[ 1.,  0., 10.]])
    """
    x = array_like(x, "x")
    dims, last, lengths = _images(x, conv, size, channels_last)
    return _run(_CHANNEL_LINEAR, context, 0, dims, last, conv, x, gain, bias, out, lengths, relu, bias_first)


def channel_linear_gradient(
    x: Any, y_grad: Any, *, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False,
    conv: Optional[ConvFacts] = None, size: Optional[Sizes] = None, channels_last: bool = False,
    context: ContextLike = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients with respect to `x`, `gain` and `bias` (None for what is not given), from the gradient with
    respect to the result of `channel_linear` with the same arguments.

    >>> import numpy as np, tartan
    >>> x = np.array([[1.0, 2], [3, 4]])
    >>> dx, _, db = tartan.channel_linear_gradient(x, np.ones((2, 2)), bias=np.array([0.0, -3]), relu=True)
    >>> db
    array([2., 1.])
    """
    x = array_like(x, "x")
    dims, last, lengths = _images(x, conv, size, channels_last)
    result: tuple[Any, Any, Any] = _run(
        _CHANNEL_LINEAR_GRADIENT, context, -1, dims, last, conv, x, gain, bias, y_grad, None, None, None, lengths, relu,
        bias_first,
    )  # fmt: skip
    return result


def _images(
    x: Any, conv: Optional[ConvFacts], size: Optional[Sizes], last: bool
) -> tuple[int, bool, Optional[tuple[int, ...]]]:
    """The spatial dimensions, whether channels are last, and the lengths for edge classes."""
    if (conv is None) != (size is None):
        raise ArgumentError("one of conv and size is given, expected both or none")
    if conv is None or size is None:
        return max(0, len(x.shape) - 2), last, None
    if not isinstance(conv, ConvFacts):
        raise HandleTypeError(f"conv is of type {type(conv).__name__}, expected a BlockConv or None")
    return conv.dims, conv.channels_last, sizes_of(size)
