# SPDX-License-Identifier: Apache-2.0
"""Attention under PyTorch's autograd, and masks of FlexAttention. Imported only if PyTorch is in use."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from tartan import _raw
from tartan._arrays import Array, has_tangent  # noqa: F401  the extension module looks for it here
from tartan._block_mask import BlockMask, of_rule
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan._layout import Layout
from tartan._matrix import BlockMatrix

_gradients: Any = _raw.attention_recorded_gradients


class _Attention(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """Attention as an autograd function of q, k, v, bias, sinks, and constants: the handles of the layout and the
    mask, the arguments of both passes that follow the bias, and whether to return the log-sum-exp."""

    forward = staticmethod(_raw.attention_recorded)
    backward = staticmethod(_gradients)


# PyTorch's engine calls this method, by default a function of Python that looks for `backward`.
_Attention._backward_cls.apply = _raw.attention_recorded_apply  # type: ignore[attr-defined, unused-ignore]

# What the glue calls. The public `apply` first looks for transforms of torch.func, and unwraps tensors that outlived one:
# half of its time.
plain_apply: Any = super(torch.autograd.Function, _Attention).apply
are_transforms_active: Any = torch._C._are_functorch_transforms_active  # type: ignore[attr-defined, unused-ignore]


def matrix_of(layout: Layout, values: Any) -> BlockMatrix:
    """A matrix around the memory of a tensor."""
    return around(layout, values.detach().contiguous())


def around(layout: Layout, values: Any) -> BlockMatrix:
    """The same for a contiguous tensor without gradients. NumPy reaches host memory faster than DLPack."""
    if values.device.type != "cpu" or layout._home is not None:
        return BlockMatrix(layout, values)
    if values.dtype is torch.bfloat16:
        return BlockMatrix.from_bits(layout, values.view(torch.uint16).numpy())
    return BlockMatrix._own(_raw.tartan_matrix_wrap(layout._handle, values.numpy()))


def with_memory(matrix: BlockMatrix, address: int) -> BlockMatrix:
    """A matrix like this one around other memory on its device, which it does not keep alive."""
    values = _raw.tartan_matrix_values(matrix._handle)
    rows, cols = values.shape[1:]
    lease = _raw.lease(None, address, values.dtype, values.device, values.shape, (rows * cols, cols, 1), False)
    return BlockMatrix._own(_raw.tartan_matrix_wrap(matrix.layout._handle, lease), matrix._home, matrix._layout_home)


is_any_autocast_enabled: Any = torch._C._is_any_autocast_enabled  # type: ignore[attr-defined, unused-ignore]


def in_autocast(x: Any, *others: Any) -> Any:
    """The operands, cast to the dtype of torch.autocast as for torch.nn.functional.linear."""
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return (x, *others)
    dtype = torch.get_autocast_dtype(device)
    return tuple(y if y is None or y.dtype == torch.float64 else y.to(dtype) for y in (x, *others))


def is_intercepted(tensor: Any) -> bool:
    """Whether a tensor has no memory because PyTorch traces or transforms it. A tensor that outlived its transform
    does not count, unless PyTorch records the use of its content; tensors of forward mode do not tell."""
    functions: Any = torch._C._functorch  # type: ignore[attr-defined, unused-ignore]
    if functions.is_functorch_wrapped_tensor(tensor):
        inner = functions.unwrap_if_dead(tensor)
        return bool(inner is tensor or (torch.is_grad_enabled() and inner.requires_grad and not tensor.requires_grad))
    return bool(tensor.device.type == "meta" or torch._is_functional_tensor(tensor))


def is_meta(x: Any) -> bool:
    """Whether a tensor itself has a shape but no memory."""
    return isinstance(x, torch.Tensor) and x.is_meta


def intercepted_attention(*given: Any) -> Any:
    """Call attention through its operator."""
    from tartan.torch._attention import intercepted

    return intercepted(*given)


def guarded(result: Any, layout: Layout) -> Any:
    """The same results, with a backward pass that refuses the dynamic layout if its blocks have changed since."""
    node, changes = (result[0] if isinstance(result, tuple) else result).grad_fn, layout._changes

    def check(_: Any) -> None:
        if layout._changes != changes:
            raise ArgumentError(
                "attention: layout has been updated since the forward pass, expected its blocks unchanged: "
                "update it after the backward pass, or make a layout for each forward pass"
            )

    node.register_prehook(check)
    return result


# ---- FlexAttention ----


def from_flex_attention(block_mask: Any, heads: Optional[int]) -> tuple[Layout, Optional[BlockMask]]:
    """See `tartan.from_flex_attention`."""
    try:
        partial = _blocks(block_mask.kv_num_blocks, block_mask.kv_indices)
        full = np.zeros_like(partial)
        if block_mask.full_kv_num_blocks is not None:
            full = _blocks(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
        block, lengths, keeps = block_mask.BLOCK_SIZE, block_mask.seq_lengths, block_mask.mask_mod
    except AttributeError as error:
        raise ArgumentTypeError(
            f"block_mask is of type {type(block_mask).__name__}, expected a BlockMask of FlexAttention ({error})"
        ) from None
    (rows, cols), (queries, keys) = tuple(block), tuple(lengths)
    grid = -(-queries // rows), -(-keys // cols)
    partial, full = partial[..., : grid[0], : grid[1]], full[..., : grid[0], : grid[1]]
    batch, own_heads = partial.shape[:2]
    device = block_mask.kv_indices.device

    def kept(entry: Array, head: Array, q: Array, k: Array) -> Any:
        given = (torch.from_numpy(np.ascontiguousarray(x)).to(device) for x in (entry, head, q, k))
        result = keeps(*given)
        return result.cpu().numpy() if isinstance(result, torch.Tensor) else result

    def made(partial: Array, full: Array, rule: Any) -> tuple[Layout, Optional[BlockMask]]:
        layout = Layout.from_mask(partial | full, (rows, cols), shape=(len(partial), queries, keys))
        here = np.nonzero((partial & ~full)[layout.coordinates()])[0]
        if here.size == 0:
            return layout, None
        mask = of_rule(layout, rule, here)
        return layout, None if mask.kept == layout.nnz else mask  # blocks at ragged edges may be full after all

    same = bool((partial == partial[:1]).all() and (full == full[:1]).all())

    def shared(q: Array, k: Array, head: Array) -> Any:
        nonlocal same
        first = kept(np.zeros_like(head), head, q, k)
        for entry in range(1, batch):
            same = same and np.array_equal(first, kept(np.full_like(head, entry), head, q, k))
        return first

    if same:
        result = made(partial[0], full[0], shared)
        if same:
            return result
    each = own_heads if own_heads > 1 else heads
    if each is None:
        raise ArgumentError(
            f"block_mask has a mask of its own for each of {batch} batch entries and one head for all of q, "
            "expected the number of those: from_flex_attention(block_mask, heads=...)"
        )
    partial, full = (np.repeat(x, each // own_heads, axis=1).reshape(-1, *grid) for x in (partial, full))
    return made(
        partial, full, lambda q, k, head: kept(head // each, head % each if own_heads > 1 else head * 0, q, k)
    )


def _blocks(counts: Any, indices: Any) -> Array:
    """The blocks of each head of each batch entry, [batch, heads, block rows, block columns], as booleans."""
    counts, indices = counts.cpu().numpy(), indices.cpu().numpy()
    if counts.ndim != 3:
        raise ArgumentError(
            f"block_mask has kv_num_blocks of shape {counts.shape}, expected [batch, heads, block rows]"
        )
    stored = np.zeros(indices.shape, np.bool_)
    entry, head, row, place = np.nonzero(np.arange(indices.shape[-1]) < counts[..., None])
    stored[entry, head, row, indices[entry, head, row, place]] = True
    return stored
