# SPDX-License-Identifier: Apache-2.0
"""Linear layers with a block-sparse weight."""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np
import torch

from tartan import Layout
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError
from tartan._torch import in_autocast, is_any_autocast_enabled
from tartan.torch._cells import Cell, check_density, random_layout
from tartan.torch._operators import block_linear, check_tensor, linear
from tartan.torch._stored import Stored

Block = Union[int, tuple[int, int]]


class BlockSparseLinear(Stored):
    """``y = x @ W.T + bias`` as `torch.nn.Linear`, with a block-sparse weight W [out_features, in_features].

    The stored blocks are those of a `layout`; those of a `pattern`, a name from `tartan.patterns()` or a pair of a name and a dict of
    parameters; or random blocks of the given `density`, drawn by PyTorch's generator and spread evenly over block rows and block columns.
    `block` is the side of a block, or (rows, columns).

    The parameters are `values` [blocks, block rows, block columns], in the order of block ids of `layout`, and `bias` [out_features]. Both
    are initialised as in nn.Linear, from U(-b, b) with b = 1 / sqrt(fan_in). The fan-in of a row is the number of elements that it stores,
    not in_features, so outputs have the variance of a dense layer at any density and for any distribution of blocks. The bias of a row
    without blocks is 0.

    x is [..., in_features] and y [..., out_features], in the dtype of the parameters; torch.autocast casts as for nn.Linear. Layers move
    between devices and dtypes, and are copied and pickled, like any module. A state dict includes the layout; loading one gives the layer
    that layout.

    >>> import torch
    >>> from tartan.torch import BlockSparseLinear
    >>> layer = BlockSparseLinear(256, 128, density=0.25, block=32)
    >>> layer
    BlockSparseLinear(in_features=256, out_features=128, bias=True, block=32x32, blocks=8 of 32, density=0.25)
    >>> layer(torch.ones(3, 7, 256)).shape
    torch.Size([3, 7, 128])
    """

    in_features: int
    out_features: int
    bias: Any  # a parameter or None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None, *,
        layout: Optional[Layout] = None, pattern: Any = None, density: Optional[float] = None, block: Optional[Block] = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._open(chosen_layout((out_features, in_features), layout, pattern, density, block), bias, device, dtype)
        self.reset_parameters()

    def _open(self, layout: Layout, bias: bool, device: Any, dtype: Any) -> None:
        self.out_features, self.in_features = layout.shape[-2:]
        self._store(Cell(layout), device, dtype)
        own = torch.nn.Parameter(torch.empty(self.out_features, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own)

    @classmethod
    def from_linear(
        cls, linear: Any, density: Optional[float] = None, block: Optional[Block] = None, *, keep: Any = "largest"
    ) -> BlockSparseLinear:
        """A layer that keeps some blocks of the weight of `linear`, an nn.Linear, and its bias, on the same device and in the same dtype.
        `keep` says which: the fraction `density` of the blocks with the largest norms ("largest") or at random ("random"), or the blocks of
        a Layout. Values are not rescaled. The parameters are copies, so later changes of `linear` have no effect; they require gradients if
        those of `linear` do.

        >>> import torch
        >>> from tartan.torch import BlockSparseLinear
        >>> linear = torch.nn.Linear(64, 64)
        >>> layer = BlockSparseLinear.from_linear(linear, density=1, block=16)
        >>> x = torch.randn(5, 64)
        >>> torch.allclose(layer(x), linear(x), atol=1e-5)
        True
        """
        if not isinstance(linear, torch.nn.Linear):
            raise ArgumentTypeError(f"linear is of type {type(linear).__name__}, expected torch.nn.Linear")
        return cls.from_weight(linear.weight, linear.bias, density, block, keep=keep, training=linear.training)

    @classmethod
    def from_weight(
        cls, weight: Any, bias: Any = None, density: Optional[float] = None, block: Optional[Block] = None, *,
        keep: Any = "largest", training: bool = True,
    ) -> BlockSparseLinear:  # fmt: skip
        """As `from_linear`, from a weight [out_features, in_features] and a bias or None."""
        layout = kept_layout(weight, density, block, keep)
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer._open(layout, bias is not None, weight.device, weight.dtype)
        with torch.no_grad():
            layer.values.copy_(blocks_of(weight, layout))
            if bias is not None:
                layer.bias.copy_(bias)
        layer.values.requires_grad_(weight.requires_grad)
        if bias is not None:
            layer.bias.requires_grad_(bias.requires_grad)
        layer.train(training)
        return layer

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def reset_parameters(self) -> None:
        """Initialise values and bias again; see the class."""
        if self.values.device.type == "meta":
            return
        layout = self.layout
        widths = stored_widths(layout)
        _, rows, _ = layout.coordinates()
        bounds = 1 / np.sqrt(np.maximum(widths, 1))
        scale = torch.from_numpy(bounds[rows]).to(self.values)
        self.values.uniform_(-1, 1).mul_(scale.view(-1, 1, 1))
        self._clear_padding()
        if self.bias is not None:
            each = np.repeat(np.where(widths > 0, bounds, 0), layout.block_shape[0])[: self.out_features]
            self.bias.uniform_(-1, 1).mul_(torch.from_numpy(each).to(self.bias))

    def forward(self, x: Any) -> Any:
        """y [..., out_features] for x [..., in_features]."""
        if isinstance(x, torch.fx.Proxy):  # of torch.fx.symbolic_trace, which knows no dtypes
            y = linear(x, self._gated(self.values), self._cell.number, self.out_features)
            return y if self.bias is None else y + self.bias
        if torch.compiler.is_compiling():
            x, values, bias = in_autocast(x, self._gated(self.values), self.bias)
            y = linear(x, values, self._tag.shape[0], self.out_features)
            return y if bias is None else y + bias
        check_tensor(x)
        own = self._parameters  # nn.Module looks there last
        values, bias = own.get("values"), own.get("bias")
        if values is None or (bias is None and "bias" not in own):
            values, bias = self.values, self.bias
        if self._buffers["gates"] is not None:
            values = self._gated(values)
        if is_any_autocast_enabled():
            x, values, bias = in_autocast(x, values, bias)
        return block_linear(x, values, bias, self._cell)

    def to_dense(self) -> torch.Tensor:
        """The weight as a dense tensor [out_features, in_features], 0 where no block is stored, times the gates of a model in use. A
        differentiable copy."""
        dense: torch.Tensor = dense_of(self._in_use(), self.layout)
        return dense

    @property
    def weight(self) -> torch.Tensor:
        """`to_dense()`, for code that reads the weight of a linear layer. Every access makes the dense weight again."""
        return self.to_dense()

    def to_linear(self) -> torch.nn.Linear:
        """An nn.Linear that computes the same, with parameters of its own."""
        device, dtype = self.values.device, self.values.dtype
        linear = torch.nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta", dtype=dtype)
        with torch.no_grad():
            linear.weight = torch.nn.Parameter(self.to_dense(), self.values.requires_grad)
            if self.bias is not None:
                linear.bias = torch.nn.Parameter(self.bias.clone(), self.bias.requires_grad)
        return linear.to(device).train(self.training)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, {self._blocks_text()}"


# ---- Which blocks ----


def chosen_layout(
    shape: tuple[int, int], layout: Optional[Layout], pattern: Any, density: Optional[float], block: Optional[Block]
) -> Layout:
    """The layout that the arguments of a constructor choose."""
    given = [name for name, x in (("layout", layout), ("pattern", pattern), ("density", density)) if x is not None]
    if len(given) != 1:
        raise ArgumentError(f"{' and '.join(given) or 'nothing'} is given, expected one of layout, pattern and density")
    if layout is not None:
        return fitting(layout, shape, block)
    if block is None:
        raise ArgumentError(f"block is None, expected the size of a block beside the {given[0]}")
    if pattern is not None:
        return of_pattern(pattern, shape, block)
    assert density is not None
    return random_layout(shape[0], shape[1], block, density)


def of_pattern(pattern: Any, shape: tuple[int, int], block: Block) -> Layout:
    name, parameters = (pattern, {}) if isinstance(pattern, str) else pattern
    return Layout.pattern(name, shape, block, **parameters)


def fitting(layout: Any, shape: tuple[int, ...], block: Optional[Block]) -> Layout:
    if not isinstance(layout, Layout):
        raise ArgumentTypeError(f"layout is of type {type(layout).__name__}, expected a Layout")
    if layout.shape != tuple(shape):
        raise ShapeError(f"layout has shape {layout.shape}, expected {tuple(shape)}: (out_features, in_features)")
    if block is not None and layout.block_shape != (block if isinstance(block, tuple) else (block, block)):
        raise ArgumentError(f"block is {block}, expected {layout.block_shape}, that of the layout, or None")
    return layout


def kept_layout(weight: Any, density: Optional[float], block: Optional[Block], keep: Any) -> Layout:
    """The blocks of a dense weight that are kept."""
    shape = tuple(weight.shape)
    if isinstance(keep, Layout):
        if density is not None:
            raise ArgumentError("density is given beside a layout to keep, expected one of them")
        return fitting(keep, shape, block)
    if keep not in ("largest", "random"):
        raise ArgumentError(f"keep is {keep!r}, expected 'largest', 'random' or a Layout")
    if density is None or block is None:
        raise ArgumentError(f"density is {density} and block is {block}, expected both, or a Layout to keep")
    if keep == "random" or weight.device.type == "meta":
        return random_layout(shape[0], shape[1], block, density)
    check_density(density)
    host = weight.detach().cpu()
    host = host.float() if host.dtype in (torch.float16, torch.bfloat16) else host
    return Layout.from_dense(host.numpy(), block, density=density)


# ---- Blocks and dense weights ----


def stored_widths(layout: Layout) -> Any:
    """How many elements each row of each block row stores."""
    pointers, cols = layout.row_lists()
    width, total = layout.block_shape[1], layout.cols
    widths = np.minimum(width, total - cols * width)
    return np.diff(np.concatenate([[0], np.cumsum(widths)])[pointers])


def _places(layout: Layout, device: Any) -> tuple[Any, Any]:
    """Block rows and block columns of the blocks."""
    _, rows, cols = layout.coordinates()
    return torch.from_numpy(rows).to(device), torch.from_numpy(cols).to(device)


def blocks_of(weight: Any, layout: Layout) -> Any:
    """The blocks [blocks, block rows, block columns] of a dense weight, padded by zeros."""
    (height, width), (grid_rows, grid_cols) = layout.block_shape, layout.grid
    padding = (0, grid_cols * width - layout.cols, 0, grid_rows * height - layout.rows)
    if any(padding):
        weight = torch.nn.functional.pad(weight, padding)
    rows, cols = _places(layout, weight.device)
    return weight.view(grid_rows, height, grid_cols, width).transpose(1, 2)[rows, cols]


def dense_of(values: Any, layout: Layout) -> Any:
    """The dense weight, differentiable."""
    (height, width), (grid_rows, grid_cols) = layout.block_shape, layout.grid
    rows, cols = _places(layout, values.device)
    all_blocks = values.new_zeros((grid_rows, grid_cols, height, width)).index_put((rows, cols), values)
    dense = all_blocks.transpose(1, 2).reshape(grid_rows * height, grid_cols * width)
    return dense[: layout.rows, : layout.cols].contiguous()
