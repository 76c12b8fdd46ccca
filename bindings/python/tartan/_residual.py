# SPDX-License-Identifier: Apache-2.0
"""The bottleneck unit of residual networks in the active windows of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan import _raw
from tartan._context import ContextLike
from tartan._conv import BlockConv
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan._images import Numbers, array_like
from tartan._layout import Layout
from tartan._operations import _RESIDUAL_FORWARD
from tartan._windows import text_of

_run: Any = _raw.operation_of_images


def residual_unit(
    x: Any, reduce: Any, spatial: Any, expand: Any, active: Layout, windows: Numbers, *, relu: bool = True,
    preactivate: bool = False, x_gain: Any = None, x_bias: Any = None, out: Any = None, context: ContextLike = None,
) -> Any:  # fmt: skip
    """The bottleneck unit of residual networks in the active windows of `x`; elsewhere the result is `x`. `reduce`,
    `spatial` and `expand` are convolutions with their filters: ``(conv, filter)`` or ``(conv, filter, gain, bias)``,
    where gain and bias are None or [channels], as from batch normalisation at inference. With ``r(v) = max(v, 0)``::

        b = r(reduce_gain * reduce(x) + reduce_bias)
        c = r(spatial_gain * spatial(b) + spatial_bias)
        y = r(x + expand_gain * expand(c) + expand_bias)

    In the windows, this equals the unit computed over the whole image. ``relu=False`` leaves out the last ReLU; with
    `preactivate` the first convolution reads ``r(x_gain * x + x_bias)``. ResNet v2 uses both.

    `reduce` and `expand` have kernels of 1; `spatial` has stride 1 and keeps the size of the image. `active` is a
    layout of windows (`Layout.from_windows`), `windows` their text or size. The axes of `x` are those of the
    convolutions (`channels_last`). ``out=x`` updates `x` in place, which saves copying the image. There are no
    gradients.

    >>> import numpy as np, tartan
    >>> one = tartan.Layout.pattern("dense", (1, 1), 1)
    >>> point, box = tartan.BlockConv(one, (1, 1)), tartan.BlockConv(one, (3, 3), padding="same")
    >>> parts = [(c, c.filter(np.ones((1, 1, *k)))) for c, k in ((point, (1, 1)), (box, (3, 3)), (point, (1, 1)))]
    >>> active = tartan.Layout.from_mask([[1, 0]], block=1)
    >>> tartan.residual_unit(np.ones((1, 2, 4)), *parts, active, (2, 2))
    array([[[5., 7., 1., 1.],
            [5., 7., 1., 1.]]])
    """
    parts = [_part(part, name) for part, name in ((reduce, "reduce"), (spatial, "spatial"), (expand, "expand"))]
    conv = parts[1][0]
    given = (x, x_gain, x_bias, *(operand for part in parts for operand in part[2:]))
    if not all(isinstance(v, (np.ndarray, type(None))) for v in given) and _raw.records(*given, *(p[1] for p in parts)):
        raise ArgumentError(
            "residual_unit: PyTorch records gradients of an operand, and it has none: use detach(), or torch.no_grad(), or "
            "compose window_gather, BlockConv and window_scatter"
        )
    return _run(
        _RESIDUAL_FORWARD, context, 0, conv.dims, conv.channels_last, array_like(x, "x"), x_gain, x_bias,
        *(operand for c, filter, gain, bias in parts for operand in (c, c._filter(filter), gain, bias)), active, out, relu,
        preactivate, text_of(windows),
    )  # fmt: skip


def _part(part: Any, name: str) -> tuple[BlockConv, Any, Any, Any]:
    """A convolution, its filter, gain and bias."""
    fits = isinstance(part, (tuple, list)) and len(part) in (2, 4) and isinstance(part[0], BlockConv)
    if not fits:
        raise ArgumentTypeError(f"{name} is not (conv, filter) or (conv, filter, gain, bias) with a BlockConv")
    return (*part, None, None) if len(part) == 2 else tuple(part)  # type: ignore[return-value, unused-ignore]
