# SPDX-License-Identifier: Apache-2.0
"""Windows of images, for spatial sparsity. `Layout.from_windows` says which windows are active."""

from __future__ import annotations

import re
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._context import ContextLike
from tartan._device import DeviceArray
from tartan._errors import ArgumentError, ArgumentTypeError, SizeOverflowError
from tartan._images import Numbers, Sizes, array_like, numbers_text, sizes_of
from tartan._layout import Layout
from tartan._operations import _WINDOW_GATHER, _WINDOW_SCATTER

_run: Any = _raw.operation_of_images


def windows_for_conv(
    image: Sizes, kernel: Any, *, stride: Numbers = 1, size: Optional[Numbers] = None,
    output: Optional[Numbers] = None, padding: str = "same",
) -> tuple[str, str]:  # fmt: skip
    """The windows of an image for one or more successive convolutions that run window by window. Returns the windows
    of the input, which overlap by the halo, and the windows of the output, which are adjacent.

    `image` has the spatial lengths. `kernel` is for instance (3, 3), or for a stack a list of kernels, whose
    receptive field counts; `stride` is the product over the stack. Give the `size` of the input windows with their
    halo, or the size of the `output` windows. `padding` is "same" (TensorFlow's) or "valid".

    Windows are texts, which all functions accept: ``"size=18x18 stride=16x16 offset=-1x-1 count=22x44"``.

    >>> import tartan
    >>> inputs, outputs = tartan.windows_for_conv((64, 96), (3, 3), output=16)
    >>> outputs
    'size=16x16 stride=16x16 offset=0x0 count=4x6'
    """
    stack = kernel if isinstance(kernel, list) and kernel and not isinstance(kernel[0], int) else [kernel]
    text = "kernel=" + "+".join(numbers_text(k, "kernel") for k in stack)
    for name, value in (("stride", stride), ("size", size), ("output", output)):
        if value is not None:
            text += f" {name}={numbers_text(value, name)}"
    try:
        lengths = np.array(sizes_of(image, "image"), np.int64)
    except OverflowError:
        raise SizeOverflowError(f"image is {image!r}, expected lengths below 2^63") from None
    return _raw.tartan_windows_for_conv(lengths, f"{text} padding={padding}")


def window_gather(
    x: Any, active: Layout, windows: Numbers, *, channels_last: bool = False, out: Any = None,
    context: ContextLike = None,
) -> Any:  # fmt: skip
    """The active windows of `x`, [windows, channels, size...], in the order of block ids. Positions outside the image
    are 0. PyTorch's autograd works for `x`.

    `x` is [n, channels, spatial...] with any strides, or with `channels_last` [n, spatial..., channels], and so is
    the result; n may be left out for a single image. The result has the memory order of `x`.

    >>> import numpy as np, tartan
    >>> mask = np.zeros((4, 4)); mask[3, 0] = 1
    >>> active = tartan.Layout.from_windows(mask, "size=2x2 count=2x2")
    >>> tartan.window_gather(np.arange(16.0).reshape(1, 4, 4), active, (2, 2))
    array([[[[ 8.,  9.],
             [12., 13.]]]])
    """
    text = text_of(windows)
    x = array_like(x, "x")
    return _run(_WINDOW_GATHER, context, 0, _dims_of(text, x), channels_last, active, x, out, text)


def window_scatter(
    blocks: Any, active: Layout, windows: Numbers, y: Any = None, *, base: Any = None, add: bool = False,
    channels_last: bool = False, context: ContextLike = None,
) -> Any:  # fmt: skip
    """Write blocks, as `window_gather` returns them, to their windows of the image `y`, in place, and return it.
    Parts outside the image are dropped. Other positions keep their values or, with `base`, an image of the shape of
    `y`, take the values of `base`. Without `y` the result is a new image like `base`. `blocks` may be None for zeros.

    With `add`, blocks are added, in the order of block ids; windows may overlap only then. PyTorch's autograd works
    for `blocks` and `base` if `y` is not given.

    >>> import numpy as np, tartan
    >>> active = tartan.Layout.from_windows(np.eye(4), "size=2x2 count=2x2")
    >>> x = np.arange(16.0).reshape(1, 4, 4)
    >>> blocks = tartan.window_gather(x, active, (2, 2))
    >>> tartan.window_scatter(blocks, active, (2, 2), np.zeros_like(x))[0]
    array([[ 0.,  1.,  0.,  0.],
           [ 4.,  5.,  0.,  0.],
           [ 0.,  0., 10., 11.],
           [ 0.,  0., 14., 15.]])
    """
    text = text_of(windows)
    if y is None and base is None:
        raise ArgumentError("window_scatter: neither y nor base is given, expected one of them")
    if not all(isinstance(v, (np.ndarray, type(None))) for v in (blocks, base)) and _raw.records(blocks, base):
        if y is not None:
            raise ArgumentError(
                "window_scatter: y is given, expected none where PyTorch records gradients: use detach(), or torch.no_grad()"
            )
        for name, given in (("blocks", blocks), ("base", base)):
            if given is not None and not hasattr(given, "detach"):
                raise ArgumentTypeError(
                    f"window_scatter: {name} is of type {type(given).__name__}, expected a tensor, since PyTorch records gradients"
                )
        y = base.detach().clone()
    elif y is None:
        y, base = _copy_of(array_like(base, "base")), None
    y = array_like(y, "y")
    _run(_WINDOW_SCATTER, context, 0, _dims_of(text, y), channels_last, active, blocks, base, y, text, add)
    return y


# ---- Shared with convolutions ----


def text_of(windows: Any) -> str:
    """Windows as a text: given as one, or by their size."""
    return windows if isinstance(windows, str) and "=" in windows else f"size={numbers_text(windows, 'windows')}"


def _copy_of(x: Any) -> Any:
    if isinstance(x, DeviceArray):
        return x._copy(x._context(None))
    return x.clone() if hasattr(x, "clone") else x.copy(order="K")


def _dims_of(text: str, image: Any) -> int:
    """The spatial dimensions of an image, which may lack a batch: as many as the text has numbers, or if it has single ones, as many
    as an image with a batch has."""
    found = re.search(r"(?:^|[\s,])size=\d+((?:x\d+)+)", text)
    return found.group(1).count("x") + 1 if found else max(1, min(3, len(image.shape) - 2))
