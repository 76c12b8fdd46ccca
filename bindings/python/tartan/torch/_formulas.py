# SPDX-License-Identifier: Apache-2.0
"""Gradients of operations of the schema in PyTorch's own operations, by the names of the operations that compute them, so that they
can be differentiated again. They take the operands and options of the operation, and return its results in their order; those
whose operand is not there are not looked at. Element-wise functions are those of tartan._torch_points."""

from __future__ import annotations

from typing import Any

import torch

from tartan import _torch_points
from tartan._torch_schema import OPERATORS

_vjp: Any = torch.func.vjp  # whose declared results leave one out


def _wide(*tensors: Any) -> Any:
    found = tuple(None if x is None else x.double() for x in tensors)
    return found if len(found) > 1 else found[0]


def _pulled(function: Any, operands: tuple[Any, ...], *grads: Any) -> tuple[Any, ...]:
    """The gradients of operands of a function, 0 for those that are None."""
    there = [i for i, x in enumerate(operands) if x is not None]

    def called(*given: Any) -> Any:
        full = list(operands)
        for i, x in zip(there, given):
            full[i] = x
        return function(*full)

    results, pull = _vjp(called, *(operands[i] for i in there))
    if isinstance(results, tuple):
        tangents: Any = tuple(torch.zeros_like(y) if g is None else g for y, g in zip(results, grads))
    else:
        tangents = grads[0]
    found: list[Any] = [torch.zeros(())] * len(operands)
    for i, x in zip(there, pull(tangents)):
        found[i] = x
    return tuple(found)


def _call(name: str, *given: Any) -> Any:
    from tartan.torch._schema import PLANS

    return PLANS[name](*given)


def _one(x: Any) -> Any:
    """A factor that is 1 where there is none."""
    return 1.0 if x is None else x


# ---- Softmax and its kin ----


def softmax_gradient(y: Any, y_grad: Any, scale: float) -> Any:
    y, g = _wide(y, y_grad)
    return scale * y * (g - (y * g).sum(-1, keepdim=True))


def log_softmax_gradient(y: Any, y_grad: Any, scale: float) -> Any:
    y, g = _wide(y, y_grad)
    return scale * (g - y.exp() * g.sum(-1, keepdim=True))


def cross_entropy_gradient(
    logits: Any, labels: Any, lse: Any, loss_grad: Any, label_smoothing: float, ignore_index: int
) -> Any:
    x, g = _wide(logits, loss_grad)
    ignored = labels == ignore_index
    target = torch.nn.functional.one_hot(labels.masked_fill(ignored, 0).long(), x.shape[-1])
    slope = x.softmax(-1) - (1 - label_smoothing) * target - label_smoothing / x.shape[-1]
    return torch.where(ignored, 0.0, g).unsqueeze(-1) * slope


# ---- Rows and places ----


def embedding_gradient(table: Any, indices: Any, y_grad: Any, padding_index: int) -> Any:
    at = indices.reshape(-1).long()
    rows = torch.where((at == padding_index).unsqueeze(-1), 0.0, y_grad.reshape(-1, y_grad.shape[-1]))
    return torch.zeros_like(table).index_add(0, at.clamp(0), rows)


def _placed(x: Any, indices: Any, grad: Any) -> Any:
    return torch.zeros_like(x).scatter_add(-1, indices.long(), grad)


def take_along_gradient(x: Any, indices: Any, y_grad: Any) -> Any:
    return _placed(x, indices, y_grad)


def top_k_gradient(x: Any, indices: Any, values_grad: Any) -> Any:
    return _placed(x, indices, values_grad)


def reduce_max_gradient(x: Any, indices: Any, y_grad: Any) -> Any:
    return _placed(x, indices.unsqueeze(-1), y_grad.unsqueeze(-1))


def rectified_top_k_gradient(y: Any, y_grad: Any, last: Any = None) -> Any:
    g = torch.where(y > 0, y_grad, 0.0)
    if last is None:
        return g
    taken = torch.where(last < 0, 0.0, g.sum(-1))
    return g - _placed(g, last.clamp(0).unsqueeze(-1), taken.unsqueeze(-1))


def sparse_relu_gradient(x: Any, stats: Any, y_grad: Any, alpha: float) -> Any:
    x, g = _wide(x, y_grad)
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    none = variance == 0
    deviation = torch.where(none, 0.0, torch.where(none, 1.0, variance).sqrt())
    g = torch.where(x > mean + alpha * deviation, g, 0.0)
    slope = torch.where(none, 0.0, alpha * (x - mean) / torch.where(none, 1.0, deviation))
    return g - g.sum(-1, keepdim=True) * (1 + slope) / x.shape[-1]


def scatter_rows_gradient(z_grad: Any, indices: Any, combine: str, y: Any = None, x: Any = None) -> Any:
    at = indices.long()
    taken = z_grad[at]
    if combine == "set":
        return taken, z_grad.index_fill(0, at, 0)
    if combine == "add":
        return taken, z_grad
    of_y = taken * x[at] if x is not None else taken
    return of_y, z_grad.index_copy(0, at, taken * y) if y is not None else z_grad


# ---- Norms ----


def _normed(x: Any, gain: Any, g: Any, mean: Any, scale: Any, inner: Any) -> tuple[Any, Any, Any]:
    """Gradients of x, gain and bias, for z = (x - mean) scale; `inner` is what g loses along z, by z and g."""
    z = (x - mean) * scale
    h = g * _one(gain)
    lines = tuple(range(x.ndim - 1))
    return scale * inner(z, h), (g * z).sum(lines), g.sum(lines)


def layer_norm_gradient(x: Any, stats: Any, y_grad: Any, gain: Any = None) -> Any:
    x, gain, stats, g = _wide(x, gain, stats, y_grad)
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    epsilon = (stats[..., 1:] ** -2 - variance).detach()
    scale = (variance + epsilon).rsqrt()
    return _normed(
        x, gain, g, mean, scale, lambda z, h: h - h.mean(-1, keepdim=True) - z * (z * h).mean(-1, keepdim=True)
    )


def rms_norm_gradient(x: Any, stats: Any, y_grad: Any, gain: Any = None) -> Any:
    x, gain, stats, g = _wide(x, gain, stats, y_grad)
    squares = x.square().mean(-1, keepdim=True)
    epsilon = (stats.unsqueeze(-1) ** -2 - squares).detach()
    return _normed(x, gain, g, 0, (squares + epsilon).rsqrt(), lambda z, h: h - z * (z * h).mean(-1, keepdim=True))[:2]


def l2_norm_gradient(x: Any, stats: Any, y_grad: Any, epsilon: float, gain: Any = None) -> Any:
    x, gain, stats, g = _wide(x, gain, stats, y_grad)
    squares = x.square().sum(-1, keepdim=True)
    small = squares <= epsilon
    scale = torch.where(small, epsilon, squares).rsqrt()
    return _normed(
        x, gain, g, 0, scale, lambda z, h: torch.where(small, h, h - z * (z * h).sum(-1, keepdim=True))
    )[:2]


def _by_channel(x: Any, like: Any) -> Any:
    return 1.0 if x is None else x.reshape(-1, *[1] * (like.ndim - 2))


def batch_norm_gradient(
    x: Any, stats: Any, y_grad: Any, gain: Any = None, dims: int = 0, channels_last: bool = False
) -> Any:
    x, gain, stats, g = _wide(x, gain, stats, y_grad)
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axes, keepdim=True)
    variance = (x - mean).square().mean(axes, keepdim=True)
    epsilon = (_by_channel(stats[:, 1] ** -2, x) - variance).detach()
    scale = (variance + epsilon).rsqrt()
    z, h = (x - mean) * scale, g * _by_channel(gain, x)
    of_x = scale * (h - h.mean(axes, keepdim=True) - z * (z * h).mean(axes, keepdim=True))
    return of_x, (g * z).sum(axes), g.sum(axes)


def batch_norm_inference_gradient(
    x: Any, mean: Any, variance: Any, y_grad: Any, epsilon: float, gain: Any = None, dims: int = 0,
    channels_last: bool = False,
) -> Any:  # fmt: skip
    x, mean, variance, gain, g = _wide(x, mean, variance, gain, y_grad)
    axes = (0, *range(2, x.ndim))
    scale, factor = (variance + epsilon).rsqrt(), _one(gain)
    z = (x - _by_channel(mean, x)) * _by_channel(scale, x)
    sums, along = g.sum(axes), (g * z).sum(axes)
    return g * _by_channel(scale * factor, x), -sums * scale * factor, along * factor * -0.5 * scale**2, along, sums


# ---- Others ----


def lstm_gates_gradient(
    c: Any, gates: Any, forget_bias: float, bias: Any = None, c_next_grad: Any = None, h_grad: Any = None
) -> Any:
    c, gates, bias, c_next_grad, h_grad = _wide(c, gates, bias, c_next_grad, h_grad)

    def cell(c: Any, gates: Any, bias: Any) -> Any:
        i, u, f, o = (gates if bias is None else gates + bias).unbind(-2)
        c_next = (f + forget_bias).sigmoid() * c + i.sigmoid() * u.tanh()
        return c_next, o.sigmoid() * c_next.tanh()

    return _pulled(cell, (c, gates, bias), c_next_grad, h_grad)


def channel_linear_gradient(
    x: Any, y_grad: Any, in_size: Any, relu: bool, bias_first: bool, gain: Any = None, bias: Any = None, conv: Any = None,
    dims: int = 0, channels_last: bool = False,
) -> Any:  # fmt: skip
    if conv is not None:
        from tartan._errors import UnsupportedError

        raise UnsupportedError("channel_linear: its gradient with classes of edges is to be differentiated again, which it does not record")
    x, gain, bias, g = _wide(x, gain, bias, y_grad)
    axis = x.ndim - 1 if channels_last else x.ndim - 1 - dims

    def step(x: Any, gain: Any, bias: Any) -> Any:
        gain, bias = (None if v is None else v.reshape(-1, *[1] * (x.ndim - 1 - axis)) for v in (gain, bias))
        if bias_first and bias is not None:
            x = x + bias
        x = x if gain is None else x * gain
        if not bias_first and bias is not None:
            x = x + bias
        return x.relu() if relu else x

    return _pulled(step, (x, gain, bias), g)


def dropout_gradient(y_grad: Any, dropout: float, seed: int, offset: int, mask_shape: Any) -> Any:
    return _call("dropout", y_grad, dropout, seed, offset, mask_shape, 0)


def window_gather_gradient(active: int, x: Any, blocks_grad: Any, windows: Any, dims: int, channels_last: bool) -> Any:
    nothing = torch.zeros_like(x)
    return _call("window_scatter", active, blocks_grad, None, nothing, windows, True, dims, channels_last, 0)


def window_scatter_gradient(active: int, y_grad: Any, windows: Any, add: bool, dims: int, channels_last: bool) -> Any:
    blocks = _call("window_gather", active, y_grad, windows, dims, channels_last, 0)
    if add:
        return blocks, y_grad
    nothing = torch.zeros_like(blocks)
    return blocks, _call("window_scatter", active, nothing, y_grad, y_grad.detach(), windows, False, dims, channels_last, 0)


# ---- Element-wise functions ----


def _of_points(name: str, inputs: tuple[str, ...]) -> Any:
    rows = getattr(_torch_points, name)
    binary = {"a", "b"} & set(rows.__annotations__)

    def formula(**given: Any) -> Any:
        options = [torch.tensor(float(given[o]), dtype=torch.float64) for o in given if o not in _OPERANDS]
        tensors = {k: given[k].double() for k in given if k in _OPERANDS}
        g = tensors["y_grad"]
        first = (tensors.get("a"), tensors.get("b")) if binary else (tensors.get("x"),)
        slopes = rows(*first, tensors.get("y"), g, *options)
        found = []
        for x, slope in zip(first, slopes):
            slope = torch.as_tensor(slope).expand(g.shape)
            found.append(slope if x is None else slope.sum_to_size(x.shape))
        return tuple(found)

    return formula


_OPERANDS = ("x", "a", "b", "y", "y_grad")
for _op in OPERATORS:
    if _op.gradient is not None and hasattr(_torch_points, _op.name):
        globals()[_op.gradient] = _of_points(_op.name, tuple(a.name for a in _op.inputs))
