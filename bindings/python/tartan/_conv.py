# SPDX-License-Identifier: Apache-2.0
"""Convolutions with block-sparse filters, over whole images or only in their active windows."""

from __future__ import annotations

from operator import index
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array, code_of, dtype_name, host_of, indices, unrecorded
from tartan._context import ContextLike
from tartan._conv_facts import ConvFacts, options_text
from tartan._device import DeviceArray
from tartan._errors import ArgumentError, ArgumentTypeError, HandleTypeError
from tartan._images import Numbers, Sizes
from tartan._layout import Layout
from tartan._layout import handle_of as layout_handle
from tartan._matrix import BlockMatrix
from tartan._operations import (
    _CONV_FILTER_GRADIENT,
    _CONV_FORWARD,
    _CONV_INPUT_GRADIENT,
    conv_normalize,
    conv_normalize_gradient,
)
from tartan._windows import text_of

_run: Any = _raw.operation_of_images
_torch: Any = None  # the module for PyTorch's gradients, once they are recorded


class BlockConv(ConvFacts):
    """A convolution in 1, 2 or 3 spatial dimensions: its geometry, and the `layout` of its filters.

    `channels` is a layout of output channels x input channels; a filter stores its blocks at each tap. `kernel`,
    `stride` and `dilation` have a number for each spatial dimension, for instance (3, 3); `stride` and `dilation` may
    be a single number for all dimensions. `padding` is "valid" (none), "same" (as in PyTorch, TensorFlow and JAX:
    ceil(size / stride) positions; if the total is odd, the larger part comes after), "half" (half of the kernel on
    both sides, openai/blocksparse's rule), or numbers: 1, (1, 0), or pairs (before, after), ((0, 1), (2, 2)). With
    `transposed` it is PyTorch's ConvTranspose: images have the channels of the layout's rows, results the channels of
    its columns. With `per_tap`, `channels` is the layout of the filter itself, in which each tap has its own blocks.

    Images are [n, channels, spatial...], or [channels, spatial...], with any strides. Memory with contiguous channels
    is the fastest: PyTorch's ``memory_format=torch.channels_last``, or ``x.transpose(0, 3, 1, 2)`` of an array of
    NumPy; results have the memory order of their input. With `channels_last`, shapes are [n, spatial..., channels],
    as in scikit-image and TensorFlow.

    A filter is a `BlockMatrix` on `layout`, with all methods of matrices, or the array of its values. Column ``t * Cp
    + c`` holds the weights of input channel c at tap t, where Cp is the number of input channels rounded up to whole
    blocks.

    >>> import numpy as np, tartan
    >>> channels = tartan.Layout.pattern("barabasi_albert", (64, 64), 16, m=1, seed=1)
    >>> conv = tartan.BlockConv(channels, (3, 3), padding="same")
    >>> w = tartan.BlockMatrix.zeros(conv.layout, "float32").fill_normal(seed=1)
    >>> conv(np.ones((2, 64, 20, 30), np.float32), w, relu=True).shape
    (2, 64, 20, 30)
    """

    __slots__ = ("_handle", "_layout", "_last", "_recipe", "_sizes", "__weakref__")

    def __init__(
        self, channels: Layout, kernel: Numbers, *, stride: Numbers = 1, dilation: Numbers = 1, padding: Any = "valid",
        transposed: bool = False, per_tap: bool = False, channels_last: bool = False,
    ) -> None:  # fmt: skip
        text = options_text(kernel, stride, dilation, padding, transposed)
        self._open(channels, text + " per_tap=1" if per_tap else text, channels_last)

    @classmethod
    def from_sets(
        cls, in_channels: int, out_channels: int, blocks: Any, kernel: Numbers, *, stride: Numbers = 1,
        dilation: Numbers = 1, padding: Any = "valid", transposed: bool = False, channels_last: bool = False,
    ) -> BlockConv:  # fmt: skip
        """A convolution whose blocks have arbitrary channels and sizes: `blocks` lists, for each block, a pair of its
        input and its output channels. Blocks may overlap; their results are added. Output channels without a block
        are 0. The rows and columns of such filters are not in the order of the channels; make filters with `filter`
        or `filter_from_sets`.

        >>> import tartan
        >>> conv = tartan.BlockConv.from_sets(6, 4, [([0, 2], [1, 3]), ([1, 3, 4], [0])], (3, 3), padding="same")
        >>> conv.in_channels, conv.out_channels
        (6, 4)
        """
        recipe = (in_channels, out_channels, _sets_of(blocks, in_channels, out_channels), bool(transposed))
        return _restored(recipe, options_text(kernel, stride, dilation, padding, transposed), channels_last)

    def _open(self, channels: Any, options: str, last: bool) -> None:
        """By a layout, or by (in_channels, out_channels, blocks, whether it is transposed)."""
        self._recipe = channels, options, last
        if isinstance(channels, tuple):
            self._handle = _handle_from_sets(channels, options)
        else:
            self._handle = _raw.tartan_conv_create(layout_handle(channels, "channels"), options)
        self._layout = Layout._own(_raw.tartan_conv_get_layout(self._handle))
        self._last = bool(last)
        self._sizes = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, self._recipe

    def __copy__(self) -> BlockConv:
        return self

    def __deepcopy__(self, memo: Any) -> BlockConv:
        return self

    @classmethod
    def from_options(cls, channels: Layout, options: str, *, channels_last: bool = False) -> BlockConv:
        """From the text that `options` returns. To restore a convolution together with a saved filter, save its
        `options` in the metadata of the filter, and its `channels` as a layout."""
        if not isinstance(options, str):
            raise ArgumentTypeError(f"options is {options!r}, expected a text")
        return _restored(channels, options, channels_last)

    # ---- Filters ----

    def filter(self, dense: Any, dtype: Any = None) -> BlockMatrix:
        """A filter from the stored blocks of a dense filter [out_channels, in_channels, kernel...], or for a
        transposed convolution [in_channels, out_channels, kernel...], as PyTorch stores its weights. Other blocks are
        ignored. The result is in host memory. Sets that overlap are refused: use `filter_from_sets`.

        >>> import numpy as np, tartan
        >>> conv = tartan.BlockConv(tartan.Layout.from_mask([[1, 0], [1, 1]], block=2), (3, 3))
        >>> w = conv.filter(np.ones((4, 4, 3, 3)))
        >>> w.blocks, conv.to_dense(w).sum()
        (27, 108.0)
        """
        return self._filled(_raw.tartan_conv_filter_from_dense, dense, "dense", dtype)

    def to_dense(self, filter: Any) -> Array:
        """The dense filter, in the form that `filter` takes. Blocks that are not stored are 0; sets that overlap are
        added."""
        matrix = self._filter(filter)
        kernel = tuple(int(n) for n in self._option("kernel").split("x"))
        rows, cols = self.out_channels, self.in_channels
        if self._option("transposed") == "1":
            rows, cols = cols, rows
        result = np.empty((rows, cols, *kernel), matrix.dtype)
        _raw.tartan_conv_filter_to_dense(self._handle, matrix._handle, result)
        return result

    def filter_from_sets(self, values: Any, dtype: Any = None) -> BlockMatrix:
        """A filter from the order of openai/blocksparse: a vector, block after block, each [output channels, input
        channels, kernel...]. The blocks are the ones given to `from_sets`, or the stored blocks of `channels`."""
        return self._filled(_raw.tartan_conv_filter_from_sets, values, "values", dtype)

    def to_sets(self, filter: Any) -> Array:
        """The values of a filter in the order of openai/blocksparse; see `filter_from_sets`."""
        matrix, channels = self._filter(filter), self._recipe[0]
        taps = int(np.prod([int(n) for n in self._option("kernel").split("x")]))
        if isinstance(channels, tuple):
            count = sum(len(ins) * len(outs) for ins, outs in channels[2])
        else:
            _, rows, cols = channels.coordinates()
            height, width = channels.block_shape
            count = int((np.minimum(height, channels.rows - rows * height)
                         * np.minimum(width, channels.cols - cols * width)).sum())  # fmt: skip
        result = np.empty(count * taps, matrix.dtype)
        _raw.tartan_conv_filter_to_sets(self._handle, matrix._handle, result)
        return result

    def _filled(self, fill: Any, source: Any, name: str, dtype: Any) -> BlockMatrix:
        host = host_of(source, name, _raw.TARTAN_F64)
        code = code_of(host, name) if isinstance(host, np.ndarray) else host.dtype
        result = BlockMatrix.zeros(self._layout, dtype_name(code) if dtype is None else dtype)
        fill(self._handle, host, result._handle)
        return result

    # ---- The passes ----

    def __call__(
        self, x: Any, filter: Any, *, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False,
        add: bool = False, active: Optional[Layout] = None, windows: Any = None, size: Optional[Sizes] = None,
        out: Any = None, context: ContextLike = None,
    ) -> Any:  # fmt: skip
        """The convolution of `x` (a cross-correlation, as in all neural-network libraries), then for each channel ``y
        = gain * y + bias``, or with `bias_first` ``gain * (y + bias)``, then with `relu` ``max(y, 0)``. With `add`
        the result is added to `out`.

        `gain` and `bias` are [out_channels], or [classes, out_channels] with a row for each of `edge_classes`, in
        float64 if `x` is, else in float32.

        `active` is a layout of windows of the result (`Layout.from_windows`) and `windows` their text: only these
        windows are computed. The rest of `out` keeps its values; in a new result it is 0.

        `size` gives the spatial lengths of the result if a transposed convolution with strides has several possible
        ones. `out` is written in place and returned. PyTorch's autograd works for `x`, `filter` (a tensor of values),
        `gain` and `bias`.

        >>> import numpy as np, tartan
        >>> conv = tartan.BlockConv(tartan.Layout.pattern("dense", (1, 1), 1), (1, 3), padding=(0, 1))
        >>> w = conv.filter(np.array([[[[1.0, 2, 1]]]]))
        >>> conv(np.array([[[0.0, 0, 1, 0, 0]]]), w)
        array([[[0., 1., 2., 1., 0.]]])
        """
        global _torch
        if not isinstance(filter, BlockMatrix) or not isinstance(x, np.ndarray):
            if _raw.is_torchs(x, filter, gain, bias) or getattr(x, "is_meta", False):
                if out is not None:
                    raise ArgumentError(
                        "conv: out is given, expected none where PyTorch records gradients: use detach(), or torch.no_grad()"
                    )
                if _torch is None:
                    from tartan import _torch_conv as _torch
                constants = (self, relu, bias_first, active, windows, size, context)
                return _torch.recorded(x, filter, gain, bias, constants)
        if add and out is None:
            raise ArgumentError("conv: add is True without out, expected an array to add to")
        return _run(
            _CONV_FORWARD, context, 0, self.dims, self._last, self, self._filter(filter), x, gain, bias, active, out, relu,
            bias_first, add, None if size is None else self._lengths(size, "size"), _text(windows),
        )  # fmt: skip

    def input_gradient(
        self, y_grad: Any, filter: Any, size: Optional[Sizes] = None, *, active: Optional[Layout] = None,
        windows: Any = None, out: Any = None, context: ContextLike = None,
    ) -> Any:  # fmt: skip
        """The gradient with respect to `x`, from `y_grad`, the gradient with respect to the result before gain, bias
        and ReLU. `size` has the spatial lengths of `x`; with stride 1 it may be left out. With `active`, `y_grad`
        counts as 0 outside these windows."""
        return _run(
            _CONV_INPUT_GRADIENT, context, 0, self.dims, self._last, self, self._filter(filter), y_grad, active, out,
            _text(windows), None if size is None else self._lengths(size, "size"),
        )  # fmt: skip

    def filter_gradient(
        self, x: Any, y_grad: Any, *, active: Optional[Layout] = None, windows: Any = None, beta: float = 0.0,
        out: Optional[BlockMatrix] = None, context: ContextLike = None,
    ) -> BlockMatrix:  # fmt: skip
        """The gradient with respect to the filter, from `y_grad`, the gradient with respect to the result before
        gain, bias and ReLU, plus ``beta * out``. `out` is written in place and returned; a new matrix has the dtype
        of `x`."""
        if out is None and beta != 0:
            raise ArgumentError(f"filter_gradient: beta is {beta!r}, expected 0 where no out is given")
        result: BlockMatrix = _run(
            _CONV_FILTER_GRADIENT, context, 0, self.dims, self._last, self, x, y_grad, active, out, _text(windows), beta,
        )  # fmt: skip
        return result

    # ---- Weight normalisation ----

    def normalize(
        self, filter: Any, gain: Any = None, *, epsilon: float = 1e-12, out: Optional[BlockMatrix] = None,
        context: ContextLike = None,
    ) -> BlockMatrix:  # fmt: skip
        """Weight normalisation: ``gain * filter / sqrt(max(s, epsilon))``, where s is the sum of squares of the
        weights of an output channel within a block of channels, or a set, over its input channels and all taps.
        `gain` is [out_channels]. `out` is written in place and returned; it may be `filter`.

        >>> import numpy as np, tartan
        >>> conv = tartan.BlockConv(tartan.Layout.pattern("dense", (2, 2), 2), (1, 1))
        >>> w = conv.normalize(conv.filter(np.array([[3.0, 4], [0, 2]]).reshape(2, 2, 1, 1)))
        >>> conv.to_dense(w).reshape(2, 2)
        array([[0.6, 0.8],
               [0. , 1. ]])
        """
        return conv_normalize(self, self._filter(filter), gain=gain, epsilon=epsilon, out=out, context=context)

    def normalize_gradient(
        self, filter: Any, out_grad: Any, gain: Any = None, *, epsilon: float = 1e-12, context: ContextLike = None
    ) -> tuple[BlockMatrix, Any]:
        """The gradients with respect to `filter` and `gain` (None without `gain`), from the gradient with respect to
        the result of `normalize`."""
        found = conv_normalize_gradient(
            self, self._filter(filter), self._filter(out_grad), gain=gain, epsilon=epsilon, context=context
        )
        return found.filter, found.gain

    # ---- Parts ----

    def _filter(self, filter: Any) -> BlockMatrix:
        """A matrix: the given one, or one around its values."""
        if isinstance(filter, BlockMatrix):
            return filter
        if not hasattr(filter, "shape"):
            raise HandleTypeError(
                f"filter is of type {type(filter).__name__}, expected a BlockMatrix, or an array of its values"
            )
        if isinstance(filter, (np.ndarray, DeviceArray)) or not str(getattr(filter, "device", "")).startswith("cpu"):
            return BlockMatrix(self._layout, filter)
        return BlockMatrix._own(_raw.tartan_matrix_wrap(layout_handle(self._layout, "layout"), unrecorded(filter, "filter")))


def _text(windows: Any) -> Optional[str]:
    return None if windows is None else text_of(windows)


def _sets_of(blocks: Any, in_channels: int, out_channels: int) -> tuple[Any, ...]:
    """Pairs of input and output channels."""
    result = []
    try:
        blocks = list(blocks)
    except TypeError:
        raise ArgumentTypeError(f"blocks is of type {type(blocks).__name__}, expected a list of pairs") from None
    for b, pair in enumerate(blocks):
        try:
            ins, outs = (tuple(index(c) for c in side) for side in pair)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"blocks[{b}] is {pair!r}, expected a pair of lists: its input and its output channels, whole numbers"
            ) from None
        for name, side, count in (("input", ins, in_channels), ("output", outs, out_channels)):
            wrong = next((c for c in side if not 0 <= c < count), None)
            if wrong is not None:
                raise ArgumentError(f"the {name} channels of blocks[{b}] have {wrong}, expected 0 .. {count - 1}")
            if len(set(side)) < len(side):
                raise ArgumentError(f"the {name} channels of blocks[{b}] have a channel twice, expected each once")
        result.append((ins, outs))
    return tuple(result)


def _handle_from_sets(recipe: tuple[int, int, Any, bool], options: str) -> _raw.Handle:
    in_channels, out_channels, sets, transposed = recipe
    ends: list[Any] = []
    for side in (0, 1):
        lists = [pair[side] for pair in sets]
        ends.append((np.cumsum([0, *map(len, lists)], dtype=np.int64), indices([i for ids in lists for i in ids], "blocks")))
    (c_offsets, c_ids), (k_offsets, k_ids) = reversed(ends) if transposed else ends
    if transposed:
        in_channels, out_channels = out_channels, in_channels
    return _raw.tartan_conv_from_sets((in_channels, c_offsets, c_ids), (out_channels, k_offsets, k_ids), options)


def _restored(channels: Any, options: str, last: bool) -> BlockConv:
    self = object.__new__(BlockConv)
    self._open(channels, options, last)
    return self
