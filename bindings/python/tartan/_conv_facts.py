# SPDX-License-Identifier: Apache-2.0
"""Properties of a convolution, and the text of its options."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array, indices
from tartan._closing import Closing
from tartan._errors import ArgumentError, ArgumentTypeError, HandleTypeError, ShapeError, UnsupportedError
from tartan._images import Sizes, array_like, numbers_text, sizes_of
from tartan._layout import Layout


class ConvFacts(Closing):
    """The part of `BlockConv` that describes it."""

    __slots__ = ()
    _handle: _raw.Handle
    _layout: Layout
    _last: bool
    _recipe: tuple[Any, str, bool]
    _sizes: dict[tuple[int, ...], tuple[int, ...]]

    @property
    def channels(self) -> Layout:
        """The layout of channels from which the convolution was made."""
        if isinstance(self._recipe[0], tuple):
            raise UnsupportedError("channels: the convolution is made of sets of channels, expected one made of a layout")
        channels: Layout = self._recipe[0]
        return channels

    @property
    def layout(self) -> Layout:
        """The layout of filters: output channels x (taps * input channels, rounded up to whole blocks)."""
        return self._layout

    @property
    def dims(self) -> int:
        """The number of spatial dimensions."""
        return _raw.tartan_conv_dims(self._handle)

    @property
    def in_channels(self) -> int:
        """The number of channels of an image."""
        return _raw.tartan_conv_in_channels(self._handle)

    @property
    def out_channels(self) -> int:
        """The number of channels of a result."""
        return _raw.tartan_conv_out_channels(self._handle)

    @property
    def options(self) -> str:
        """All options with their values: "kernel=3x3 stride=1x1 ..."."""
        text = _raw.tartan_conv_options(self._handle)
        assert text is not None
        return text

    @property
    def channels_last(self) -> bool:
        """Whether images are [n, lengths..., channels] rather than [n, channels, lengths...]."""
        return self._last

    def output_size(self, size: Sizes) -> tuple[int, ...]:
        """The spatial lengths of a result, from those of an image. A transposed convolution with strides has several
        possible ones; this returns the smallest, and a call accepts any of them as `size`."""
        key = sizes_of(size)
        known = self._sizes.get(key)
        if known is None:
            result = np.empty(self.dims, np.int64)
            _raw.tartan_conv_output_size(self._handle, indices(list(key), "size"), result)
            if len(self._sizes) > 255:
                self._sizes.clear()
            known = self._sizes[key] = tuple(int(n) for n in result)
        return known

    def edge_classes(self, size: Sizes, out_size: Optional[Sizes] = None) -> Array:
        """The class of each position of a result, from the spatial lengths of an image: 0 in the interior, and a
        number for each set of taps that fall outside the image. `gain` and `bias` may have a row for each class. Give
        `out_size` for a transposed convolution if its result does not have the lengths of `output_size`."""
        key = sizes_of(size)
        shape = self.output_size(key) if out_size is None else self._lengths(out_size, "out_size")
        lengths = list(key) if out_size is None else [*key, *shape]
        result = np.empty(shape, np.int64)
        _raw.tartan_conv_edge_classes(self._handle, indices(lengths, "size"), result.reshape(-1))
        return result

    def __repr__(self) -> str:
        if self._handle.closed:
            return "<BlockConv, closed>"
        return f"<BlockConv {self.in_channels} to {self.out_channels} channels, {self.options}>"

    def close(self) -> None:
        """Release the convolution; may be called again."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._handle.closed

    def _option(self, name: str) -> str:
        return self.options.partition(name + "=")[2].split(" ")[0]

    def _lengths(self, size: Sizes, name: str) -> tuple[int, ...]:
        lengths = sizes_of(size, name)
        if len(lengths) != self.dims or min(lengths) < 0:
            raise ShapeError(f"{name} is {size!r}, expected {self.dims} lengths from 0 on")
        return lengths

    def _places(self, shape: tuple[int, ...], name: str) -> tuple[int, int, int]:
        """Where the channels are, and where the spatial dimensions begin and end."""
        ndim, dims = len(shape), self.dims
        if not dims + 1 <= ndim <= dims + 2:
            raise ShapeError(f"{name} has {ndim} dimensions, expected {dims + 2}, or {dims + 1} without a batch")
        batch = ndim - dims - 1
        return (ndim - 1, batch, ndim - 1) if self._last else (batch, batch + 1, ndim)


def options_text(kernel: Any, stride: Any, dilation: Any, padding: Any, transposed: bool) -> str:
    text = f"kernel={numbers_text(kernel, 'kernel')}"
    for name, value in (("stride", stride), ("dilation", dilation)):
        text += f" {name}={numbers_text(value, name)}"
    if isinstance(padding, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in padding):
        pairs = [p if isinstance(p, (tuple, list)) else (p, p) for p in padding]
        if any(len(p) != 2 for p in pairs):
            raise ArgumentTypeError(f"padding is {padding!r}, expected pairs of numbers before and after")
        text += " padding=" + "x".join(f"{int(a)}:{int(b)}" for a, b in pairs)
    else:
        text += f" padding={numbers_text(padding, 'padding')}"
    return text + " transposed=1" if transposed else text


def image_facts(
    x: Any, conv: Any, size: Optional[Sizes], last: bool
) -> tuple[Any, int, bool, Optional[tuple[int, ...]]]:
    """An image `x` for an operation that `conv` may be an operand of, its spatial dimensions, whether its channels are
    last, and `size`, the lengths of the convolution's images."""
    x = array_like(x, "x")
    lengths = None if size is None else sizes_of(size)
    if (conv is None) == bool(lengths):
        raise ArgumentError("one of conv and size is given, expected both or none")
    if conv is None:
        return x, min(max(0, len(x.shape) - 2), 6), last, None  # the library refuses an array of more by its name
    if not isinstance(conv, ConvFacts):
        raise HandleTypeError(f"conv is of type {type(conv).__name__}, expected a BlockConv or None")
    return x, conv.dims, conv.channels_last, lengths
