# SPDX-License-Identifier: Apache-2.0
"""Convolutions of images with filters that are block-sparse in their channels."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch
from torch._prims_common import suggest_memory_format

from tartan import BlockConv, BlockMatrix, Layout
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedError
from tartan._torch import in_autocast, matrix_of
from tartan.torch._bilinear import Bilinear, check_size, numbers, transforms
from tartan.torch._cells import Cell, Numbered, cell_at, is_in_graph
from tartan.torch._linear import Block, chosen_layout, kept_layout, stored_widths
from tartan.torch._operators import check_tensor, is_plain
from tartan.torch._stored import Stored, shape_of


class ConvCell(Cell):
    """A layout of channels, and the convolution of it. Values are on the layout of its filters."""

    __slots__ = ("conv", "geometry")

    def __init__(self, layout: Layout, geometry: dict[str, Any]) -> None:
        self.geometry = geometry
        super().__init__(layout)

    def set(self, layout: Layout) -> None:
        super().set(layout)
        self.conv = BlockConv(layout, **self.geometry)
        self.stored = self.conv.layout

    def __reduce__(self) -> tuple[Any, ...]:
        return ConvCell, (self.layout, self.geometry)


class BlockSparseConv2d(Stored):
    """`torch.nn.Conv2d` with a filter that connects some blocks of input channels with some blocks of output channels.

    The first arguments are those of nn.Conv2d. `layout`, `pattern`, `density` and `block` choose blocks of (output channels, input
    channels), as for `BlockSparseLinear`; a chosen block is stored at each tap of the kernel. There is no `groups` argument: groups are the
    pattern "block_diagonal". Padding is zero.

    The parameters are `values`, the values of the filter of a `tartan.BlockConv` (which `conv` returns), and `bias` [out_channels]. Both
    are initialised as in nn.Conv2d, where the fan-in is the number of elements that a row of output channels stores. x is [n, in_channels,
    height, width], or without n. torch.channels_last memory is the fastest, and the result has the memory order of x. torch.autocast casts
    as for nn.Conv2d. Copies, state dicts and layouts behave as for `BlockSparseLinear`.

    >>> import torch
    >>> from tartan.torch import BlockSparseConv2d
    >>> conv = BlockSparseConv2d(64, 128, 3, padding=1, density=0.5, block=32)
    >>> conv(torch.ones(2, 64, 10, 12)).shape
    torch.Size([2, 128, 10, 12])
    """

    in_channels: int
    out_channels: int
    bias: Any  # a parameter or None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        bias: bool = True, device: Any = None, dtype: Any = None, *, layout: Optional[Layout] = None, pattern: Any = None,
        density: Optional[float] = None, block: Optional[Block] = None,
    ) -> None:  # fmt: skip
        super().__init__()
        chosen = chosen_layout((out_channels, in_channels), layout, pattern, density, block)
        self._open(chosen, _geometry(kernel_size, stride, padding, dilation), bias, device, dtype)
        self.reset_parameters()

    def _open(self, layout: Layout, geometry: dict[str, Any], bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels, self.in_channels = layout.shape[-2:]
        self._store(ConvCell(layout, geometry), device, dtype)
        own = torch.nn.Parameter(torch.empty(self.out_channels, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own)

    @classmethod
    def from_conv2d(
        cls, conv: Any, density: Optional[float] = None, block: Optional[Block] = None, *, keep: Any = "largest"
    ) -> BlockSparseConv2d:
        """A layer that keeps some blocks of channels of an nn.Conv2d; `keep` as for `BlockSparseLinear.from_linear`. The norm of a block
        runs over its channels and all taps."""
        if type(conv) is not torch.nn.Conv2d:
            raise ArgumentTypeError(f"conv is of type {type(conv).__name__}, expected torch.nn.Conv2d")
        if conv.groups != 1 or conv.padding_mode != "zeros":
            raise UnsupportedError(
                f"conv has groups {conv.groups} and padding_mode {conv.padding_mode!r}, expected 1 and 'zeros'"
            )
        weight = conv.weight.detach()
        norms = weight.flatten(2).double().norm(dim=2) if weight.device.type != "meta" else weight[:, :, 0, 0]
        layout = kept_layout(norms, density, block, keep)
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        geometry = _geometry(conv.kernel_size, conv.stride, conv.padding, conv.dilation)
        layer._open(layout, geometry, conv.bias is not None, weight.device, weight.dtype)
        with torch.no_grad():
            if weight.device.type != "meta":
                layer.values.copy_(_filter_values(layer.conv, weight))
            if conv.bias is not None:
                layer.bias.copy_(conv.bias)
                layer.bias.requires_grad_(conv.bias.requires_grad)
        layer.values.requires_grad_(conv.weight.requires_grad)
        layer.train(conv.training)
        return layer

    @property
    def conv(self) -> BlockConv:
        """The convolution, without values."""
        cell = self._cell
        assert isinstance(cell, ConvCell)
        return cell.conv

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def reset_parameters(self) -> None:
        """Initialise values and bias again."""
        if self.values.device.type == "meta":
            return
        layout, taps = self.layout, int(np.prod(self._geometry["kernel"]))
        widths = stored_widths(layout) * taps
        bounds = 1 / np.sqrt(np.maximum(widths, 1))
        _, rows, _ = self._cell.stored.coordinates()
        self.values.uniform_(-1, 1).mul_(torch.from_numpy(bounds[rows]).to(self.values).view(-1, 1, 1))
        self._clear_padding()
        if self.bias is not None:
            each = np.repeat(np.where(widths > 0, bounds, 0), layout.block_shape[0])[: self.out_channels]
            self.bias.uniform_(-1, 1).mul_(torch.from_numpy(each).to(self.bias))

    @property
    def _geometry(self) -> dict[str, Any]:
        cell = self._cell
        assert isinstance(cell, ConvCell)
        return cell.geometry

    def _clear_padding(self) -> None:
        if self._cell.ragged:
            shape = (self.out_channels, self.in_channels, *self._geometry["kernel"])
            self.values.mul_(_filter_values(self.conv, torch.ones(shape, device="cpu")).to(self.values))

    def forward(self, x: Any) -> Any:
        """y [n, out_channels, height, width] for x [n, in_channels, height, width]."""
        check_tensor(x)
        if x.ndim not in (3, 4) or x.shape[-3] != self.in_channels:
            raise ShapeError(f"x has shape {tuple(x.shape)}, expected [n, {self.in_channels}, height, width]")
        if x.ndim == 3:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        x, values, bias = in_autocast(x, self._gated(self.values), self.bias)
        compiles, recorded = torch.compiler.is_compiling(), torch.is_grad_enabled()
        # What a BlockConv records leaves the padding of a filter's gradient as it was.
        if not compiles and is_plain(x, values) and not (recorded and self._cell.ragged):
            wide = None if bias is None else bias.to(torch.promote_types(bias.dtype, torch.float32))
            return self.conv(x, values if recorded else values.detach(), bias=wide if recorded or wide is None else wide.detach())
        size = numbers((x.shape[0], self.out_channels, *_output_size(x.shape[2:], **self._geometry)))
        run = conv_forward if compiles or not transforms() else BILINEAR.run
        cell: Numbered = self._cell if is_in_graph(x, values) else HeldConv(self.conv, lasting=False)
        y = run(x, values, self._tag.shape[0] if compiles else cell.number, size)
        return y if bias is None else y + bias.view(-1, 1, 1)

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def to_dense(self) -> torch.Tensor:
        """The dense filter [out_channels, in_channels, kernel...], a copy without gradients."""
        matrix = BlockMatrix(self._cell.stored, self._in_use().detach().cpu().double().numpy())
        return torch.from_numpy(self.conv.to_dense(matrix)).to(self.values)

    def to_conv2d(self) -> torch.nn.Conv2d:
        """An nn.Conv2d that computes the same, with parameters of its own."""
        kernel, padding = self._geometry["kernel"], self._geometry["padding"]
        if any(begin != end for begin, end in padding):
            raise UnsupportedError(f"padding is {padding}, expected equal numbers on both sides, as nn.Conv2d has them")
        conv = torch.nn.Conv2d(
            self.in_channels, self.out_channels, kernel, self._geometry["stride"], tuple(p for p, _ in padding),
            self._geometry["dilation"], 1, self.bias is not None, device=self.values.device, dtype=self.values.dtype,
        )  # fmt: skip
        with torch.no_grad():
            conv.weight.copy_(self.to_dense())
            if conv.bias is not None:
                conv.bias.copy_(self.bias)
        return conv.train(self.training)

    def extra_repr(self) -> str:
        g = self._geometry
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={g['kernel']}, stride={g['stride']}, "
            f"padding={g['padding']}, dilation={g['dilation']}, bias={self.bias is not None}, {self._blocks_text()}"
        )


# ---- Geometry ----


def _pair(numbers: Any, name: str) -> tuple[int, int]:
    pair = (numbers, numbers) if isinstance(numbers, int) else tuple(numbers)
    if len(pair) != 2 or not all(isinstance(n, int) for n in pair):
        raise ArgumentTypeError(f"{name} is {numbers!r}, expected a whole number or a pair of them")
    return pair[0], pair[1]


def _geometry(kernel: Any, stride: Any, padding: Any, dilation: Any) -> dict[str, Any]:
    """As `BlockConv` takes it, with padding as pairs of numbers before and after."""
    kernel, stride, dilation = _pair(kernel, "kernel_size"), _pair(stride, "stride"), _pair(dilation, "dilation")
    if padding == "valid":
        padding = 0
    if padding == "same":
        if stride != (1, 1):
            raise ArgumentError(f"stride is {stride}, expected 1 where padding is 'same'")
        spans = [d * (k - 1) for k, d in zip(kernel, dilation)]
        pairs = tuple((span // 2, span - span // 2) for span in spans)
    else:
        pairs = tuple((p, p) for p in _pair(padding, "padding"))
    return {"kernel": kernel, "stride": stride, "dilation": dilation, "padding": pairs}


def _output_size(
    lengths: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, transposed: bool = False
) -> list[Any]:
    spans = zip(lengths, kernel, stride, dilation, padding)
    if transposed:
        return [(n - 1) * s - sum(p) + d * (k - 1) + 1 for n, k, s, d, p in spans]
    return [(n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, d, p in spans]


def _filter_values(conv: BlockConv, weight: Any) -> Any:
    """The values of a dense filter on the host, in float32 or float64."""
    host = weight.detach().cpu()
    return torch.from_numpy(conv.filter((host if host.dtype == torch.float64 else host.float()).numpy()).values)


# ---- Operators: tartan::conv(x, values, layout, size), of the size of the result, and its gradients ----


def _empty(like: Any, size: Any) -> Any:
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=suggest_memory_format(like))


class HeldConv(Numbered):
    """A convolution that no module has. `facts`, of numbers, are what a call needs to know of it."""

    __slots__ = ("conv", "facts")

    def __init__(self, conv: BlockConv, lasting: bool = True) -> None:
        super().__init__(lasting)
        self.conv = conv
        kernel, stride, dilation = (_whole(conv._option(name)) for name in ("kernel", "stride", "dilation"))
        padding = tuple(_whole(pair, ":") for pair in conv._option("padding").split("x"))
        geometry = (kernel, stride, dilation, padding)
        self.facts = (self.number, conv.dims, conv.channels_last, conv.out_channels, conv._option("transposed") == "1", geometry)


def _whole(text: str, by: str = "x") -> tuple[int, ...]:
    return tuple(map(int, text.split(by)))


_held: dict[int, HeldConv] = {}  # by the identity of convolutions


def held_conv(conv: BlockConv, lasting: bool = True) -> HeldConv:
    """A convolution with a number: if it lasts, for the rest of the process."""
    if not lasting:
        return HeldConv(conv, lasting=False)
    held = _held.get(id(conv))
    if held is None or held.conv is not conv:
        held = _held[id(conv)] = HeldConv(conv)
    return held


def convolved(
    facts: tuple[Any, ...], x: Any, values: Any, gain: Any, bias: Any, relu: bool, bias_first: bool, lengths: Any
) -> Any:
    """A call of a BlockConv as PyTorch traces, transforms or compiles it; `lengths` of the result are needed where there is a
    choice."""
    number, dims, last, channels, transposed, (kernel, stride, dilation, padding) = facts
    single = x.ndim == dims + 1
    x = x.unsqueeze(0) if single else x
    if lengths is None:
        lengths = _output_size(x.shape[1:-1] if last else x.shape[2:], kernel, stride, dilation, padding, transposed)
    size = (x.shape[0], *lengths, channels) if last else (x.shape[0], channels, *lengths)
    run = BILINEAR.run if not torch.compiler.is_compiling() and transforms() else conv_forward
    y = run(x, values, number, numbers(size))
    y = y.squeeze(0) if single else y
    shape = (-1,) if last else (-1, *[1] * dims)
    gain, bias = (None if v is None else torch.as_tensor(v, device=x.device).to(y.dtype).view(shape) for v in (gain, bias))
    if bias is not None and bias_first:
        y = y + bias
    if gain is not None:
        y = y * gain
    if bias is not None and not bias_first:
        y = y + bias
    return y.relu() if relu else y


def _conv_at(number: int) -> BlockConv:
    conv: BlockConv = cell_at(number).conv
    return conv


def _forward(x: Any, values: Any, layout: int, size: Any) -> Any:
    conv, out = _conv_at(layout), _empty(x, size)
    spatial = slice(1, -1) if conv.channels_last else slice(2, None)
    if conv._option("transposed") != "1":
        check_size(list(size[spatial]), list(conv.output_size(tuple(x.shape[spatial]))))
    if out.numel():
        conv(x.detach(), matrix_of(conv.layout, values), out=out)
    return out


def _input_gradient(grad: Any, values: Any, layout: int, size: Any) -> Any:
    conv, out = _conv_at(layout), _empty(grad, size)
    if grad.numel() == 0:
        return out.zero_()
    conv.input_gradient(grad.detach(), matrix_of(conv.layout, values), out=out)
    return out


def _values_gradient(x: Any, grad: Any, layout: int, size: Any) -> Any:
    conv = _conv_at(layout)
    check_size(list(size), list(shape_of(conv.layout)))
    sums = x.new_zeros(size)
    if grad.numel() and sums.numel():
        conv.filter_gradient(x.detach(), grad.detach(), out=matrix_of(conv.layout, sums))
    return sums


def _fake_product(x: Any, values: Any, layout: Any, size: Any) -> Any:
    return _empty(x, size)


def _fake_values_gradient(x: Any, grad: Any, layout: Any, size: Any) -> Any:
    return x.new_empty(size)


BILINEAR = Bilinear(
    "conv", "Tensor x, Tensor values, SymInt layout, SymInt[] size", "Tensor grad, Tensor values, SymInt layout, SymInt[] size",
    "Tensor x, Tensor grad, SymInt layout, SymInt[] size", (_forward, _input_gradient, _values_gradient),
    fakes=(_fake_product, _fake_product, _fake_values_gradient), size_of=lambda x: x.shape, rows=False,
)  # fmt: skip
conv_forward = BILINEAR.operators[0]
