# SPDX-License-Identifier: Apache-2.0
"""Block-sparse attention as a module and as operators of PyTorch."""

from __future__ import annotations

from typing import Any, Optional

import torch

from tartan import BlockMask, Layout, attention, attention_gradient
from tartan._errors import ArgumentError, ArgumentTypeError, ShapeError, UnsupportedError
from tartan._torch import in_autocast
from tartan.torch._bilinear import in_kernel, library, numbers, plainly, recorded, transformed, transforms
from tartan.torch._cells import Numbered, cell_at, held_cell, is_in_graph
from tartan.torch._operators import is_plain
from tartan.torch._stored import EXTRA, check_same_frame, decoded, encoded
from tartan.torch._tangents import refusal


class AttentionCell(Numbered):
    """A layout and a mask on it, or None."""

    __slots__ = ("layout", "mask")

    def __init__(self, layout: Layout, mask: Optional[BlockMask], lasting: bool = True) -> None:
        super().__init__(lasting)
        if not isinstance(layout, Layout):
            raise ArgumentTypeError(f"layout is of type {type(layout).__name__}, expected a Layout")
        if mask is not None and not isinstance(mask, BlockMask):
            raise ArgumentTypeError(f"mask is of type {type(mask).__name__}, expected a BlockMask or None")
        if mask is not None and mask.layout != layout:
            raise ArgumentError(f"mask is on {mask.layout!r}, expected one on the layout, {layout!r}")
        self.layout, self.mask = layout, mask

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.layout, None if self.mask is None else self.mask.bits())


def _restored(layout: Layout, bits: Any) -> AttentionCell:
    return AttentionCell(layout, None if bits is None else BlockMask.from_bits(layout, bits))


class BlockSparseAttention(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Attention over the blocks of a layout that has a row for each query and a column for each key: see `tartan.attention`.

    Without `embed_dim` the module has no parameters and takes q [batch, heads, queries, d] and k, v [batch, kv_heads, keys, d]. With
    `embed_dim`, `q_proj`, `k_proj` and `v_proj` (nn.Linear, which `patch_model` can replace) project x [batch, tokens, embed_dim] to
    `heads` heads of size `head_dim` (embed_dim / heads), of which groups of heads / kv_heads share keys and values, and `out_proj` projects
    the result. ``forward(x, context)`` takes keys and values from `context` [batch, keys, embed_dim].

    `layout` has one head, which all heads share, or the heads of q. `mask` is a BlockMask on it, `causal` hides later keys, and `scale`
    defaults to 1 / sqrt(d). In training, `dropout` is the probability of dropping a weight. The seed comes from PyTorch's generator, so
    calls differ, torch.manual_seed repeats them and torch.utils.checkpoint drops the same weights again. torch.autocast casts as for
    scaled_dot_product_attention. A state dict holds the layout, but not the mask.

    >>> import torch, tartan
    >>> from tartan.torch import BlockSparseAttention
    >>> layout = tartan.Layout.pattern("local", (128, 128), 16, window=2)
    >>> layer = BlockSparseAttention(layout, embed_dim=64, heads=4, causal=True)
    >>> layer(torch.randn(2, 128, 64)).shape
    torch.Size([2, 128, 64])
    """

    # As `Stored._tag`: its length is the number of the cell.
    _tag: Any

    def __init__(
        self, layout: Layout, *, embed_dim: Optional[int] = None, heads: Optional[int] = None, kv_heads: Optional[int] = None,
        head_dim: Optional[int] = None, mask: Optional[BlockMask] = None, causal: bool = False, scale: Optional[float] = None,
        dropout: float = 0.0, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 <= dropout < 1:
            raise ArgumentError(f"dropout is {dropout}, expected at least 0 and less than 1")
        self._cell = AttentionCell(layout, mask)
        self._mark(device)
        self.causal, self.scale, self.dropout = causal, scale, dropout
        self.embed_dim, self.heads, self.kv_heads = embed_dim, heads, heads if kv_heads is None else kv_heads
        if embed_dim is None:
            return
        if heads is None:
            raise ArgumentError(f"heads is None, expected the number of heads beside embed_dim {embed_dim}")
        assert self.kv_heads is not None
        if heads < 1 or self.kv_heads < 1 or heads % self.kv_heads:
            raise ArgumentError(f"kv_heads is {self.kv_heads}, expected a divisor of heads, {heads}")
        if head_dim is None and embed_dim % heads:
            raise ArgumentError(f"heads is {heads}, expected a divisor of embed_dim {embed_dim}, or a head_dim")
        self.head_dim = embed_dim // heads if head_dim is None else head_dim
        options = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = torch.nn.Linear(embed_dim, heads * self.head_dim, **options)
        self.k_proj = torch.nn.Linear(embed_dim, self.kv_heads * self.head_dim, **options)
        self.v_proj = torch.nn.Linear(embed_dim, self.kv_heads * self.head_dim, **options)
        self.out_proj = torch.nn.Linear(heads * self.head_dim, embed_dim, **options)

    def _mark(self, device: Any) -> None:
        self._tag = torch.empty((self._cell.number, 0), dtype=torch.uint8, device=device)

    @property
    def layout(self) -> Layout:
        """Which blocks of scores are computed."""
        return self._cell.layout

    @property
    def mask(self) -> Optional[BlockMask]:
        """Which elements of these blocks count; None for all."""
        return self._cell.mask

    def forward(self, *given: Any) -> Any:
        """Take q, k and v; or, with projections, x and a context or None."""
        if self.embed_dim is None:
            if len(given) != 3:
                raise ArgumentError(f"{len(given)} tensors are given, expected q, k and v")
            return self._attend(*given)
        if not 1 <= len(given) <= 2:
            raise ArgumentError(f"{len(given)} tensors are given, expected x, or x and a context")
        x = given[0]
        source = given[1] if len(given) == 2 and given[1] is not None else x
        if x.ndim != 3 or x.shape[-1] != self.embed_dim:
            raise ShapeError(f"x has shape {tuple(x.shape)}, expected [batch, tokens, {self.embed_dim}]")
        q, k, v = (
            project(t).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project, t in ((self.q_proj, x), (self.k_proj, source), (self.v_proj, source))
        )
        return self.out_proj(self._attend(q, k, v).transpose(1, 2).flatten(2))

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        q, k, v = in_autocast(q, k, v)
        scale = numbers(q.shape)[-1] ** -0.5 if self.scale is None else float(self.scale)
        dropout = self.dropout if self.training else 0.0
        compiles = torch.compiler.is_compiling()
        if not compiles and is_plain(q, k) and is_plain(v, v):
            cell = self._cell
            seed = int(torch.randint(_SEEDS, (), device="cpu")) if dropout else 0
            return attention(q, k, v, cell.layout, scale=scale, causal=self.causal, mask=cell.mask, dropout=dropout, seed=seed)
        seed_tensor = torch.randint(_SEEDS, (), device="cpu") if dropout else None
        cell = self._cell if is_in_graph(q, k, v) else AttentionCell(self.layout, self.mask, lasting=False)
        number = self._tag.shape[0] if compiles else cell.number
        run = _operator if compiles or not transforms() else _Attention.apply
        return run(q, k, v, number, scale, self.causal, 0.0, False, dropout, seed_tensor)[0]

    # ---- Copies, devices, state dicts ----

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call, unused-ignore]
        self._mark(self._tag.device)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._tag = fn(self._tag)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, unused-ignore]

    def get_extra_state(self) -> Any:
        return encoded(self.layout)

    def set_extra_state(self, state: Any) -> None:
        """The layout is taken by `load_state_dict`."""

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        found = state_dict.get(prefix + EXTRA)
        if found is not None:
            try:
                layout = decoded(found)
                check_same_frame(layout, self.layout)
                if layout != self.layout:
                    if self.mask is not None:
                        raise ArgumentError("the layout is another one than that of the mask")
                    self._cell.layout = layout
            except ValueError as error:
                errors.append(f"{prefix}{EXTRA}: {error}")
                return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def extra_repr(self) -> str:
        sizes = "" if self.embed_dim is None else f"embed_dim={self.embed_dim}, heads={self.heads}, kv_heads={self.kv_heads}, "
        return f"{sizes}causal={self.causal}, dropout={self.dropout}, layout={self.layout!r}, mask={self.mask!r}"


# ---- Operators ----

_SEEDS = 2**62
_OPTIONS = "SymInt layout, float scale, bool causal, float softcap, bool by_batch, float dropout, Tensor? seed"
library.define(f"attention(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor)")
library.define(
    f"attention_gradient(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor grad, {_OPTIONS}) -> (Tensor, Tensor, Tensor)"
)
_operator = torch.ops.tartan.attention.default
_gradient_operator = torch.ops.tartan.attention_gradient.default


def _options(
    layout: int, scale: float, causal: bool, softcap: float, by_batch: bool, dropout: float, seed: Any
) -> tuple[Layout, dict[str, Any]]:
    cell: AttentionCell = cell_at(layout)
    return cell.layout, {
        "scale": scale, "causal": causal, "softcap": softcap, "by_batch": by_batch, "mask": cell.mask, "dropout": dropout,
        "seed": 0 if seed is None else int(seed),
    }  # fmt: skip


_cells: dict[tuple[int, int], tuple[AttentionCell, Any, Any]] = {}  # by the identity of handles, which stay


def cell_of(layout: Any, mask: Any, lasting: bool = True) -> AttentionCell:
    """A cell that holds a layout and a mask, by their handles: if it lasts, for the rest of the process."""
    found = _cells.get((id(layout), id(mask))) if lasting else None
    if found is None:
        own = Layout._own(layout)
        if own.dynamic:
            raise UnsupportedError(
                "attention: layout is dynamic, expected one whose blocks do not change by themselves where PyTorch traces or transforms"
            )
        cell = AttentionCell(own, None if mask is None else BlockMask._own(mask, own), lasting)
        if not lasting:
            return cell
        found = _cells[id(layout), id(mask)] = (cell, layout, mask)
    return found[0]


def intercepted(
    layout: Any, mask: Any, q: Any, k: Any, v: Any, bias: Any, kind: Any, scale: Any, causal: Any, query_offset: int,
    causal_from: int, dropout: float, seed: int, deterministic: Any, softcap: float, by_batch: Any, context: Any, out: Any, lse: Any,
    return_lse: Any, sinks: Any,
) -> Any:  # fmt: skip
    """`tartan.attention`, with handles, by the operator."""
    given = {
        "a bias": bias, "query_offset": query_offset or None, "causal_from": causal_from or None, "context": context, "out": out,
        "lse": lse, "sinks": sinks,
    }  # fmt: skip
    for name, x in given.items():
        if x is not None:
            raise UnsupportedError(f"attention: {name} is given, expected none where PyTorch traces or transforms")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, (torch.Tensor, torch.fx.Proxy)):
            raise ArgumentTypeError(f"attention: {name} is of type {type(x).__name__}, expected a tensor where PyTorch traces or transforms")
    if not isinstance(q, torch.fx.Proxy):
        q, k, v = in_autocast(q, k, v)
    seed_tensor = torch.tensor(seed) if dropout else None
    scale = numbers(q.shape)[-1] ** -0.5 if scale is None else float(scale)
    run = _Attention.apply if transforms() else _operator
    cell = cell_of(layout, mask, is_in_graph(q, k, v))
    out, lse = run(q, k, v, cell.number, scale, bool(causal), float(softcap), bool(by_batch), float(dropout), seed_tensor)[:2]
    return (out, lse) if return_lse else out


def _lse_dtype(q: Any) -> Any:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _forward(q: Any, k: Any, v: Any, *given: Any) -> Any:
    layout, options = _options(*given)
    out, lse = _fake_forward(q, k, v)
    attention(q.detach(), k.detach(), v.detach(), layout, out=out, lse=lse, **options)
    return out, lse


def _gradient(q: Any, k: Any, v: Any, out: Any, lse: Any, grad: Any, *given: Any) -> Any:
    layout, options = _options(*given)
    found = attention_gradient(q.detach(), k.detach(), v.detach(), layout, out, lse, grad, **options)
    return tuple(_in_order(x, like) for x, like in zip(found, (q, k, v)))


def _in_order(x: Any, like: Any) -> Any:
    """x with the strides that torch.empty_like would give it."""
    wanted = torch.empty_like(like)
    return x if x.stride() == wanted.stride() else wanted.copy_(x)


def _fake_forward(q: Any, k: Any, v: Any, *given: Any) -> Any:
    out = torch.empty_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty(q.shape[:-1], dtype=_lse_dtype(q))


def _fake_gradient(q: Any, k: Any, v: Any, *given: Any) -> Any:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


class _Attention(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(q: Any, k: Any, v: Any, *given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # type: ignore[attr-defined, unused-ignore]
            return _operator(q, k, v, *given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        q, k, v, *ctx.options, seed = inputs
        ctx.cell = held_cell(ctx.options[0])
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, k, v, *output, *([] if seed is None else [seed]))

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> Any:
        q, k, v, out, lse, *seed = ctx.saved_tensors
        run = _AttentionGradient.apply if transforms() else _gradient_operator
        found = run(q, k, v, out, lse, grad, *ctx.options, seed[0] if seed else None)
        return (*found, None, None, None, None, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise refusal("attention")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        return _over_batch(_Attention.apply, 3, info, in_dims, *given)


class _AttentionGradient(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """The gradients as a function that cannot be differentiated: torch.func.grad always records, so only that may be refused."""

    @staticmethod
    def forward(*given: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():  # type: ignore[attr-defined, unused-ignore]
            return _gradient_operator(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise UnsupportedError("attention: its gradient is differentiated again, which it does not record")

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise refusal("attention_gradient")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        return _over_batch(_AttentionGradient.apply, 6, info, in_dims, *given)


def _run_gradient(*given: Any) -> Any:
    if transformed():
        return _AttentionGradient.apply(*given)
    if recorded(*given[:6]):
        raise UnsupportedError("attention: its gradient is to be differentiated again (create_graph), which it does not record")
    return _AttentionGradient.forward(*given)


def _over_batch(run: Any, tensors: int, info: Any, in_dims: Any, *given: Any) -> Any:
    """The rule of vmap: the batch becomes a part of the batch that q, k and v have."""
    if in_dims[-1] is not None:
        raise RuntimeError("attention: vmap with randomness='different' is not supported with dropout, expected 'same'")
    flat, size = [], info.batch_size
    for x, dim in zip(given[:tensors], in_dims):
        x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        flat.append(x.flatten(0, 1))
    found = run(*flat, *given[tensors:])
    return tuple(x.unflatten(0, (size, -1)) for x in found), (0,) * len(found)


def _rule(operator: Any, tensors: int) -> Any:
    return lambda info, in_dims, *given: _over_batch(operator, tensors, info, in_dims, *given)


for _name, _kernel, _fake, _one, _count in (
    ("attention", _forward, _fake_forward, _operator, 3), ("attention_gradient", _gradient, _fake_gradient, _gradient_operator, 6),
):  # fmt: skip
    for _key in ("CPU", "CUDA"):
        library.impl(_name, in_kernel(_kernel), _key)
    torch.library.register_fake(f"tartan::{_name}", _fake, lib=library)
    torch.library.register_vmap(f"tartan::{_name}", _rule(_one, _count), lib=library)


def _record(ctx: Any, *given: Any) -> Any:
    found = _Attention.forward(*given)
    _Attention.setup_context(ctx, given, found)
    return found


_recorded = plainly(_record, _Attention.backward)


def _run(q: Any, k: Any, v: Any, *given: Any) -> Any:
    if transformed():
        return _Attention.apply(q, k, v, *given)
    return (_recorded if recorded(q, k, v) else _Attention.forward)(q, k, v, *given)


library.impl("attention", _run, "Autograd")
library.impl("attention_gradient", _run_gradient, "Autograd")
