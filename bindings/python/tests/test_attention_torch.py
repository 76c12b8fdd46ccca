# SPDX-License-Identifier: Apache-2.0
"""Attention of PyTorch's tensors in host memory, with the gradients that PyTorch records."""

import numpy as np
import pytest
from attention_support import biased, visible
from conftest import EPS, random_layout

import tartan
from tartan import BlockMask, Layout, attention, attention_bias_gradient, attention_gradient

torch = pytest.importorskip("torch")
dense = torch.nn.functional.scaled_dot_product_attention


def tensors(queries=40, keys=52, heads=4, kv_heads=4, d=8, dtype="float64", records=True):
    torch.manual_seed(heads + d)
    shapes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    wide = [torch.randn(2, h, t, d, dtype=torch.float64) for h, t in shapes]
    return [x.to(getattr(torch, dtype)).requires_grad_(records) for x in wide]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [None, "slopes", "distance_bias", "block_bias"])
def test_equals_dense_attention(rng, dtype, kv_heads, causal, bias):
    layout = random_layout(rng, (40, 52), (8, 16), 0.6)
    mask = BlockMask.from_rule(layout, lambda q, k, h: (q + k) % 5 != 0)
    seen = torch.from_numpy(visible(layout, mask, causal, 12 if causal else 0))
    q, k, v = tensors(kv_heads=kv_heads, dtype=dtype)
    options = {"causal": causal, "mask": mask}
    if causal or bias in ("slopes", "distance_bias"):
        options["query_offset"] = 12 if causal else 0
    added = torch.zeros(())
    if bias is not None:
        shape = {"slopes": 4, "distance_bias": (4, 9), "block_bias": (4, layout.blocks)}[bias]
        numbers = rng.standard_normal(shape) * (0.05 if bias == "slopes" else 1)
        added = torch.from_numpy(biased(layout, 4, **{bias: numbers}, query_offset=options.get("query_offset", 0)))
        options[bias] = torch.from_numpy(numbers).to(torch.float64 if dtype == "float64" else torch.float32)
    out = attention(q, k, v, layout, **options)
    assert isinstance(out, torch.Tensor) and out.dtype == q.dtype and out.grad_fn is not None

    twins = [x.detach().double().requires_grad_() for x in (q, k, v)]
    rows = seen.any(-1).any(0)  # PyTorch gives NaN where nothing is seen
    scores = torch.where(seen, added, -torch.inf).expand(4, 40, 52)
    wanted = dense(*twins, attn_mask=scores, enable_gqa=True)
    weight = torch.randn_like(wanted)
    ours = torch.autograd.grad((out.double() * weight)[:, :, rows].sum(), (q, k, v))
    theirs = torch.autograd.grad((wanted * weight)[:, :, rows].sum(), twins)
    bound = 60 * EPS[dtype]
    assert (out.double() - wanted)[:, :, rows].abs().max() < bound
    assert not out[:, :, ~rows].any()
    for x, ours_, theirs_ in zip((q, k, v), ours, theirs):
        assert ours_.dtype == x.dtype and ours_.shape == x.shape
        assert (ours_.double() - theirs_).abs().max() < bound * max(1, theirs_.abs().max())


def dense_reference(q, k, v, seen, bias, sinks):
    """Attention with a sink as one more key; PyTorch differentiates all of it."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.where(seen, q @ k.mT / q.shape[-1] ** 0.5 + bias, -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(*scores.shape[:3], 1)), -1)
    return scores.softmax(-1)[..., : k.shape[2]] @ v


def spread(layout, kind, bias, offset):
    """A bias at each pair, as a function that PyTorch differentiates."""
    i, j = torch.arange(layout.rows)[:, None], torch.arange(layout.cols)
    away = j - i - offset
    if kind == "slopes":
        return bias[:, None, None] * away
    if kind == "distance_bias":
        reach = bias.shape[1] // 2
        return bias[:, away.clamp(-reach, reach) + reach]
    ids = torch.zeros(max(1, layout.heads), *layout.grid, dtype=torch.int64)
    ids[tuple(torch.from_numpy(x) for x in layout.coordinates())] = torch.arange(layout.blocks)
    wide = ids.repeat_interleave(layout.block_shape[0], 1).repeat_interleave(layout.block_shape[1], 2)
    wide = wide[:, : layout.rows, : layout.cols]
    return bias[0][wide] if layout.heads > 1 else bias[:, wide[0]]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(
    "kind, shape", [("slopes", 4), ("distance_bias", (4, 9)), ("distance_bias", (1, 21)), ("block_bias", 4), ("block_bias", 1),
                    ("block_bias", "heads"), (None, None)],
)  # fmt: skip
def test_gradients_of_biases_and_sinks(rng, dtype, sinks, kind, shape):
    if kind is None and not sinks:
        pytest.skip("nothing to differentiate")
    layout = random_layout(rng, (40, 52), (8, 16), 0.6, heads=4 if shape == "heads" else 1) if sinks else Layout.pattern(
        "dense", (40, 52), (8, 16))  # fmt: skip
    real = torch.float64 if dtype == "float64" else torch.float32
    q, k, v = tensors(kv_heads=2, dtype=dtype, records=False)
    if kind == "block_bias":
        shape = (1 if shape in (1, "heads") else 4, layout.blocks)
    leaves = {}
    if kind is not None:
        leaves[kind] = torch.from_numpy(rng.standard_normal(shape) * (0.05 if kind == "slopes" else 1)).to(real)
    if sinks:
        leaves["sinks"] = torch.from_numpy(rng.standard_normal(4)).to(real)
    twins = {name: x.double().requires_grad_() for name, x in leaves.items()}
    leaves = {name: x.requires_grad_() for name, x in leaves.items()}
    options = {"causal": True, "query_offset": 12} if sinks else {}
    seen = torch.from_numpy(visible(layout, None, *options.values()))
    out = attention(q, k, v, layout, **options, **leaves)
    bias = spread(layout, kind, twins[kind], options.get("query_offset", 0)) if kind is not None else torch.zeros(())
    wanted = dense_reference(q.double(), k.double(), v.double(), seen, bias, twins.get("sinks"))
    assert (out.double() - wanted).abs().max() < 60 * EPS[dtype]
    weight = torch.randn_like(wanted).to(q.dtype).double()
    ours = torch.autograd.grad((out.double() * weight).sum(), leaves.values())
    theirs = torch.autograd.grad((wanted * weight).sum(), twins.values())
    for leaf, x, y in zip(leaves.values(), ours, theirs):
        assert x.dtype == leaf.dtype and x.shape == leaf.shape
        assert (x - y).abs().max() < 100 * EPS[dtype] * max(1, y.abs().max())


def test_all_gradients_at_once(rng):
    layout = random_layout(rng, (20, 24), 8, 0.7)
    x = tensors(20, 24, d=3)
    more = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 9), (4,))]

    def run(q, k, v, table, sinks):
        return attention(q, k, v, layout, distance_bias=table, sinks=sinks, dropout=0.3, seed=5)

    assert torch.autograd.gradcheck(run, (*x, *more))


@pytest.mark.parametrize("form", ["plain", "causal", "mask", "slopes", "heads", "grouped", "2-d", "dropout"])
def test_gradcheck(rng, form):
    heads = 4 if form == "heads" else 1
    layout = random_layout(rng, (20, 24), 8, 0.7, heads=heads)
    options = {
        "causal": {"causal": True, "query_offset": 4}, "mask": {"mask": BlockMask.from_rule(layout, lambda q, k, h: k != q)},
        "slopes": {"slopes": torch.rand(4, dtype=torch.float64)}, "dropout": {"dropout": 0.3, "seed": 5},
    }.get(form, {})  # fmt: skip
    x = tensors(20, 24, kv_heads=2 if form == "grouped" else 4, d=3)
    if form == "2-d":
        x = [y[0, 0].detach().requires_grad_() for y in x]
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v, layout, scale=0.8, **options), x)


def test_only_what_is_needed_is_recorded(rng):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    q, k, v = tensors()
    still = [x.detach() for x in (q, k, v)]
    assert attention(*still, layout).grad_fn is None
    with torch.no_grad():
        out = torch.zeros_like(q)
        assert attention(q, k, v, layout, out=out) is out and out.grad_fn is None
    recorded, lse = attention(still[0], k, still[2], layout, return_lse=True)
    assert not lse.requires_grad and torch.equal(recorded, out)
    recorded.sum().backward()
    assert q.grad is None and v.grad is None
    plain, sums = attention(*still, layout, return_lse=True)
    gradients = attention_gradient(*still, layout, plain, sums, torch.ones_like(plain))
    assert torch.equal(gradients[1], k.grad)  # with the expanded gradient of a sum
    assert all(isinstance(x, torch.Tensor) for x in gradients)


def test_biases_and_sinks_may_be_numpy_arrays(rng):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    q, k, v = tensors()
    arrays = {"slopes": rng.random(4), "sinks": rng.random(4)}
    ours = torch.autograd.grad(attention(q, k, v, layout, **arrays).square().sum(), (q, k, v))
    there = {name: torch.from_numpy(x) for name, x in arrays.items()}
    for x, y in zip(ours, torch.autograd.grad(attention(q, k, v, layout, **there).square().sum(), (q, k, v))):
        assert torch.equal(x, y)


def test_tokens_before_heads_need_no_copy(rng):
    layout = Layout.pattern("causal", (64, 64), 16)
    qkv = torch.randn(2, 64, 3, 4, 8, dtype=torch.float64, requires_grad=True)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    out = attention(q, k, v, layout, causal=True)
    assert out.transpose(1, 2).is_contiguous()
    wanted = dense(q, k, v, is_causal=True)
    assert (out - wanted).abs().max() < 1e-14
    ours, theirs = (torch.autograd.grad((y * y).sum(), qkv, retain_graph=True)[0] for y in (out, wanted))
    assert (ours - theirs).abs().max() < 1e-12


def test_a_small_model_learns(rng):
    torch.manual_seed(1)
    layout = Layout.pattern("local", (32, 32), 8, window=2)
    project = torch.nn.Linear(16, 48)
    x, wanted = torch.randn(2, 32, 16), torch.randn(2, 32, 16)
    optimizer = torch.optim.Adam(project.parameters(), 0.02)
    losses = []
    for _ in range(60):
        q, k, v = project(x).view(2, 32, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = attention(q, k, v, layout, causal=True, dropout=0.0).transpose(1, 2).reshape(2, 32, 16)
        loss = (y - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_what_is_refused(rng):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    q, k, v = tensors()
    still = [x.detach() for x in (q, k, v)]
    slopes = torch.ones(4, dtype=torch.float64, requires_grad=True)
    out, lse = attention(*still, layout, return_lse=True)
    for kind, words, call in (
        (tartan.ArgumentError, "out is given, expected none where PyTorch records",
         lambda: attention(q, k, v, layout, out=torch.zeros_like(q))),
        (tartan.ArgumentError, "lse is given, expected none",
         lambda: attention(q, k, v, layout, lse=torch.zeros(2, 4, 40, dtype=torch.float64))),
        (tartan.ArgumentTypeError, "k is of type numpy.ndarray, expected a tensor",
         lambda: attention(q, still[1].numpy(), v, layout)),
        (tartan.ArgumentTypeError, "q is of type numpy.ndarray, expected a tensor",
         lambda: attention(still[0].numpy(), *still[1:], layout, slopes=slopes)),
        (tartan.ArgumentError, "slopes requires gradients, which this call does not record",
         lambda: attention_gradient(*still, layout, out, lse, out, slopes=slopes)),
        (tartan.ArgumentError, "sinks requires gradients, which this call does not record",
         lambda: attention_bias_gradient(*still, layout, out, lse, out, sinks=slopes)),
        (tartan.ArgumentError, "attention_gradient: q requires gradients",
         lambda: attention_gradient(q, k, v, layout, still[0], still[0][..., 0], still[0])),
        (tartan.ArgumentError, "out requires gradients, which this call does not record",
         lambda: attention(*still, layout, out=torch.zeros_like(q, requires_grad=True))),
        (tartan.DTypeError, "k is of float32, expected float64", lambda: attention(q, k.float(), v, layout)),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()
    out = attention(q, k, v, layout)
    with pytest.raises(tartan.ArgumentError, match="out_grad has its negative bit set"):
        torch.autograd.grad(out, q, torch._neg_view(torch.ones_like(out)), retain_graph=True)
    with pytest.raises(tartan.UnsupportedError, match="attention: its gradient is to be differentiated again"):
        torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with torch.no_grad(), pytest.raises(tartan.UnsupportedError, match="attention: a bias is given, expected none where PyTorch traces"):
        torch.func.vmap(lambda x: attention(x, k, v, layout, slopes=torch.ones(4)))(torch.stack([q, q]))


def test_passes_refuse_what_autograd_does_not_give(rng):
    raw, (q, k, v) = tartan._raw, tensors()

    class Context:
        saved_tensors, constants, needs_input_grad = (), (), ()

    with torch.no_grad():
        _passes_refuse(raw, Context, q, k, v)


def _passes_refuse(raw, Context, q, k, v):
    for words, call in (
        ("takes 7 arguments, 2 were given", lambda: raw.attention_recorded(Context(), q)),
        ("the constants are no tuple", lambda: raw.attention_recorded(Context(), q, k, v, None, None, (None,))),
        ("takes 2 arguments, 1 were given", lambda: raw.attention_recorded_gradients(Context())),
        ("context is not that of the forward pass", lambda: raw.attention_recorded_gradients(Context(), q)),
    ):
        with pytest.raises(TypeError, match=words):
            call()


def test_transforms_of_torch_func(rng):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    q, k, v = tensors()

    def loss(x):
        return attention(x, k, v, layout, causal=True).square().sum()

    (wanted,) = torch.autograd.grad(loss(q), q)
    assert torch.allclose(torch.func.grad(loss)(q.detach()), wanted)
    x = torch.stack([q, 2 * q]).detach()
    with torch.no_grad():
        each = torch.stack([attention(y, k, v, layout) for y in x])
        assert torch.allclose(torch.func.vmap(lambda y: attention(y, k, v, layout))(x), each)
    with pytest.raises(tartan.UnsupportedError, match="attention: its gradient is differentiated again"):
        torch.func.grad(lambda y: torch.func.grad(loss)(y).square().sum())(q.detach())


def outlived(x, transform):
    """The tensor that a function saw as `x` under a transform, which has ended."""
    seen = []
    if transform == "grad":
        torch.func.grad(lambda y: seen.append(y) or y.sum())(x)
    else:
        torch.func.jvp(lambda y: seen.append(y) or y * 2, (x,), (x,))
    return seen[0]


@pytest.mark.parametrize("transform", ["grad", "jvp"])
@pytest.mark.parametrize("which", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("records", [False, True])
def test_tensors_that_outlived_a_transform(rng, transform, which, records):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    x = tensors(records=records)
    dead = [outlived(y, transform) if i in which else y for i, y in enumerate(x)]
    wanted, out = attention(*x, layout), attention(*dead, layout)
    assert torch.equal(out, wanted) and out.requires_grad == records
    if records:
        for y, z in zip(*(torch.autograd.grad(y.square().sum(), x) for y in (out, wanted))):
            assert torch.equal(y, z)
        return
    lse = attention(*dead, layout, return_lse=True)[1]
    for y, z in zip(*(attention_gradient(*y, layout, wanted, lse, wanted) for y in (dead, x))):
        assert torch.equal(y, z)


def test_results_lie_in_memory_like_their_inputs(rng):
    class Tensor(torch.Tensor):
        pass

    layout = random_layout(rng, (40, 52), 8, 0.6)
    q, k, v = tensors(records=False)
    wide, long = torch.zeros(2, 4, 40, 12, dtype=q.dtype), torch.zeros(2, 40, 4, 8, dtype=q.dtype).transpose(1, 2)
    wanted = attention(q, k, v, layout)
    for x, strides in (
        (torch.nn.Parameter(q, requires_grad=False), q.stride()),
        (q.as_subclass(Tensor), q.stride()),
        (long.copy_(q), long.stride()),
        (wide[..., :8].copy_(q), q.stride()),
        (q.transpose(2, 3).contiguous().transpose(2, 3), q.stride()),
        (q[:1, :1].expand(2, 4, 40, 8), q.stride()),
    ):
        out = attention(x, k, v, layout)
        assert type(out) is torch.Tensor and out.stride() == strides and not out.requires_grad
        assert torch.equal(out, attention(x.clone().contiguous().as_subclass(torch.Tensor), k, v, layout))
    assert torch.equal(attention(long, k, v, layout), wanted)


def test_closing_before_the_backward_pass(rng):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    mask = BlockMask.from_rule(layout, lambda q, k, h: k != q)
    q, k, v = tensors()
    out = attention(q, k, v, layout, mask=mask)
    mask.close()
    with pytest.raises(tartan.HandleError, match="mask is closed"):
        out.sum().backward()
    out = attention(q, k, v, layout)
    layout.close()
    with pytest.raises(tartan.HandleError, match="layout is closed"):
        out.sum().backward()
    assert q.grad is None


def test_results_follow_the_library(rng):
    layout = random_layout(rng, (40, 52), 8, 0.6)
    q, k, v = tensors(records=False)
    out, lse = attention(q, k, v, layout, return_lse=True)
    same, sums = attention(q.numpy(), k.numpy(), v.numpy(), layout, return_lse=True)
    assert isinstance(same, np.ndarray) and isinstance(sums, np.ndarray)
    assert np.array_equal(out.numpy(), same) and np.array_equal(lse.numpy(), sums)


@pytest.mark.parametrize("heads", [1, 4, 8])
def test_blocks_chosen_by_scores(heads):
    q, k, v = tensors(40, 48)
    pooled = [x.unflatten(2, (-1, 8)).mean(3) for x in (q, k)]
    scores = (pooled[0] @ pooled[1].mT).flatten(0, 1)  # of every head of every batch entry; recorded
    layout = Layout.from_device_scores(scores[:heads].contiguous(), 2, 8)
    results = []
    for on in (layout, layout.to_host()):
        out, lse = attention(q, k, v, on, return_lse=True)
        results.append([out, lse, *torch.autograd.grad(out.sin().sum(), (q, k, v))])
    assert all(torch.equal(x, y) for x, y in zip(*results))
    if heads == 8:
        each = attention(*(x[1:] for x in (q, k, v)), Layout.from_mask(layout.to_host().mask()[4:], 8))
        assert torch.equal(each, results[0][0][1:])


@pytest.mark.parametrize("return_lse", [False, True])
def test_layouts_stay_until_the_backward_pass(return_lse):
    q, k, v = tensors(40, 48)
    layout = Layout.from_device_scores(torch.randn(5, 6), 2, 8)
    result = attention(q, k, v, layout, return_lse=return_lse)
    layout.update_scores(torch.randn(5, 6), 2)
    out = result[0] if return_lse else result
    with pytest.raises(tartan.ArgumentError, match="layout has been updated since the forward pass"):
        out.sum().backward()
    attention(q, k, v, layout).sum().backward()
    layout.update(torch.ones(5, 6) > 2)
    assert q.grad is not None and q.grad.any()


@pytest.mark.parametrize("queries", [1, 5, 16])
def test_decoding_with_room_for_more_keys(queries):
    """As in docs/attention.md: blocks chosen in every step, among those that have keys."""
    torch.manual_seed(queries)
    batch, heads, kv_heads, d, block, most = 2, 4, 2, 16, 8, 96
    q, k, v = torch.randn(batch, heads, queries, d), *torch.zeros(2, batch, kv_heads, most, d)
    scores = torch.full((batch * heads, 1, most // block), -torch.inf)
    layout = Layout.from_device_scores(scores, 4, (16, block), shape=(queries, most))
    for at in (0, 3, 40, most - queries):
        end = at + queries
        k[:, :, :end].normal_()
        v[:, :, :end].normal_()
        means = k.unflatten(2, (-1, block)).mean(3).repeat_interleave(2, 1)
        scores.copy_((q.mean(2, keepdim=True) @ means.mT).reshape(scores.shape))
        scores[..., at // block : (end - 1) // block + 1] = torch.inf
        scores[..., (end - 1) // block + 1 :] = -torch.inf
        fixed = layout.update_scores(scores, 4).to_host()
        assert fixed.blocks == batch * heads * min(4, -(-end // block))
        seen = torch.from_numpy(visible(fixed, causal=True, query_offset=at)).unflatten(0, (batch, heads))
        out = attention(q, k, v, layout, causal=True, query_offset=at)
        torch.testing.assert_close(out, dense(q, k, v, attn_mask=seen, enable_gqa=True), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(40, 52), (4, 40, 52), (2, 1, 1, 52), (2, 4, 40, 52)])
def test_masks_of_scaled_dot_product_attention(shape):
    layout = Layout.pattern("dense", (40, 52), (8, 16))
    q, k, v = tensors()
    keep = torch.rand(shape) < 0.7
    assert torch.allclose(attention(q, k, v, layout, mask=keep), dense(q, k, v, attn_mask=keep))
    mask = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 4, 40, 8, dtype=torch.float64)
    found = torch.autograd.grad((attention(q, k, v, layout, mask=mask) * weight).sum(), (q, k, v, mask))
    wanted = torch.autograd.grad((dense(q, k, v, attn_mask=mask) * weight).sum(), (q, k, v, mask))
    for ours, theirs in zip(found, wanted):
        assert ours.shape == theirs.shape and torch.allclose(ours, theirs)


def test_lengths_softcap_and_values_of_another_size():
    layout = Layout.pattern("dense", (40, 52), (8, 16))
    q, k, v = tensors()
    v = torch.randn(2, 4, 52, 3, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([52, 9])
    keep = torch.arange(52) < lengths[:, None, None, None]

    def ours(q, k, v):
        return attention(q, k, v, layout, softcap=0.5, key_lengths=lengths)

    def theirs(q, k, v):
        scores = (0.5 * torch.tanh(q @ k.mT * 8**-0.5 / 0.5)).masked_fill(~keep, -torch.inf)
        return scores.softmax(-1) @ v

    assert torch.allclose(ours(q, k, v), theirs(q, k, v))
    weight = torch.randn(2, 4, 40, 3, dtype=torch.float64)
    found, wanted = (torch.autograd.grad((f(q, k, v) * weight).sum(), (q, k, v)) for f in (ours, theirs))
    assert all(torch.allclose(a, b) for a, b in zip(found, wanted))
    one = tuple(x[:1] for x in (q, k, v))
    assert torch.allclose(torch.func.vmap(lambda q, k, v: attention(q, k, v, layout, softcap=0.5))(q, k, v),
                          attention(q, k, v, layout, softcap=0.5))
    assert torch.func.grad(lambda v: attention(*one[:2], v, layout, softcap=0.5).sum())(one[2].detach()).shape == one[2].shape
