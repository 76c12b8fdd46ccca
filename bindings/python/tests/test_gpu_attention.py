# SPDX-License-Identifier: Apache-2.0
"""Attention of CUDA tensors, on PyTorch's streams and with its gradients."""

import pytest
from attention_support import visible
from conftest import EPS, random_layout
from device_support import HAS_GPU

import tartan
from tartan import BlockMask, attention

pytestmark = pytest.mark.skipif(not HAS_GPU, reason="no GPU here")


def tensors(torch, dtype, d=64, heads=4, kv_heads=4):
    torch.manual_seed(d + heads)
    shapes = ((heads, 512), (kv_heads, 640), (kv_heads, 640))
    make = {"device": "cuda", "dtype": getattr(torch, dtype), "requires_grad": True}
    return [torch.randn(2, h, t, d, **make) for h, t in shapes]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("form", ["plain", "causal", "mask", "grouped", "heads"])
@pytest.mark.parametrize("block", [16, 64, 128])
def test_equals_dense_attention(torch, rng, dtype, form, block):
    layout = random_layout(rng, (512, 640), block, 0.5, heads=4 if form == "heads" else 1)
    mask = BlockMask.from_rule(layout, lambda q, k, h: (q + k) % 5 != 0) if form == "mask" else None
    hidden = {"causal": True, "query_offset": 128} if form == "causal" else {}
    seen = torch.from_numpy(visible(layout, mask, **hidden)).cuda()
    x = tensors(torch, dtype, kv_heads=2 if form == "grouped" else 4)
    out, lse = attention(*x, layout, mask=mask, **hidden, return_lse=True)
    assert out.is_cuda and out.dtype == x[0].dtype and lse.shape == (2, 4, 512)
    twins = [y.detach().double().requires_grad_() for y in x]
    wanted = torch.nn.functional.scaled_dot_product_attention(*twins, attn_mask=seen, enable_gqa=True)
    rows = seen.any(-1).all(0)
    weight = torch.randn_like(wanted) * rows[:, None]
    ours = torch.autograd.grad(out, x, weight.to(out.dtype))
    theirs = torch.autograd.grad((wanted * weight)[:, :, rows].sum(), twins)
    assert (out.double() - wanted)[:, :, rows].abs().max() < 60 * EPS[dtype]
    for a, b in zip(ours, theirs):
        assert (a.double() - b).abs().max() < 60 * EPS[dtype] * max(1, b.abs().max())


def test_streams_and_memory_order(torch, rng):
    layout = random_layout(rng, (512, 640), 64, 0.5)
    q, k, v = (x.detach() for x in tensors(torch, "bfloat16"))
    wanted = attention(q, k, v, layout)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        out = torch.empty_like(q)
        torch.cuda._sleep(20_000_000)
        late = q * 1  # not there yet when the host comes to the next line
        assert attention(late, k, v, layout, out=out) is out
        assert torch.equal(out, wanted)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    result = attention(turned, k, v, layout)
    assert result.stride() == turned.stride() and torch.equal(result, wanted)


def test_operands_elsewhere_are_refused(torch, rng):
    layout = random_layout(rng, (512, 640), 64, 0.5)
    q, k, v = (x.detach() for x in tensors(torch, "float32"))
    with pytest.raises(tartan.UnsupportedError, match="k is "):
        attention(q, k.cpu(), v, layout)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("block", [16, 64, 128])
@pytest.mark.parametrize("heads", [1, 4, 8])
def test_blocks_chosen_by_scores(torch, dtype, block, heads):
    x = tensors(torch, dtype)
    q, k = (y.unflatten(2, (-1, block)).mean(3) for y in x[:2])
    scores = (q @ k.mT).flatten(0, 1)[:heads].contiguous()
    layout = tartan.Layout.from_device_scores(scores, 3, block)
    wanted = scores.detach().float().topk(3).values[..., -1:]
    assert (scores.detach()[torch.from_numpy(layout.to_host().mask().reshape(scores.shape)).cuda()].float() >=
            wanted.expand(*scores.shape[:2], 3).flatten()).all()
    results = []
    for on in (layout, layout.to_host()):
        out = attention(*x, on)
        results.append([out, *torch.autograd.grad(out, x, torch.ones_like(out))])
    for a, b in zip(*results):
        assert (a.double() - b.double()).abs().max() < 60 * EPS[dtype] * max(1, b.abs().max())


@pytest.mark.parametrize("block", [16, 64, 128])
def test_choice_and_attention_in_a_graph(torch, block):
    """A captured step of decoding: scores of blocks, a layout of the largest, attention."""
    torch.manual_seed(block)
    k, v = (torch.randn(2, 4, 2048, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    q = torch.randn(2, 4, 4, 64, device="cuda", dtype=torch.bfloat16)
    pooled = k.unflatten(2, (-1, block)).mean(3).mT.contiguous()
    scores = torch.empty(2, 4, 1, 2048 // block, device="cuda", dtype=torch.bfloat16)
    torch.matmul(q.mean(2, keepdim=True), pooled, out=scores)
    layout = tartan.Layout.from_device_scores(scores.flatten(0, 1), 4, (16, block), shape=(4, 2048))
    out = torch.empty_like(q)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())

    def step():
        torch.matmul(q.mean(2, keepdim=True), pooled, out=scores)
        layout.update_scores(scores.flatten(0, 1), 4)
        attention(q, k, v, layout, out=out)

    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    for _ in range(3):
        q.normal_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        replayed, fixed = out.clone(), layout.to_host()
        assert fixed.blocks == 8 * 4
        wanted = attention(q, k, v, fixed)
        assert (replayed.double() - wanted.double()).abs().max() < 60 * EPS["bfloat16"]


def sizes_of_slopes(torch, out, x, layout, leaves, weight):
    """The sum of |ds| |key - query - 128| for each head."""
    q, k, v = (y.cpu().double() for y in x)
    k, v = (y.repeat_interleave(q.shape[1] // k.shape[1], 1) for y in (k, v))
    distance = torch.arange(k.shape[2])[None] - torch.arange(q.shape[2])[:, None] - 128
    seen = torch.from_numpy(visible(layout, causal=True, query_offset=128))
    slopes, sinks = (leaves[name].detach().cpu().double() for name in ("slopes", "sinks"))
    s = (q @ k.mT / q.shape[3] ** 0.5 + slopes[:, None, None] * distance).masked_fill(~seen, -torch.inf)
    total = torch.logaddexp(s.logsumexp(-1), sinks[:, None])
    change = weight.cpu().double() @ v.mT - (out * weight.cpu().double()).sum(-1, keepdim=True)
    return ((s - total[..., None]).exp() * change * distance).abs().sum((0, 2, 3)).detach()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("form", ["slopes", "distance_bias", "shared", "block_bias"])
@pytest.mark.parametrize("block", [16, 64, 128])
def test_gradients_of_biases_and_sinks(torch, rng, dtype, form, block):
    layout = random_layout(rng, (512, 640), block, 0.5)
    x = [y.detach() for y in tensors(torch, dtype, kv_heads=2)]
    real = torch.float64 if dtype == "float64" else torch.float32
    shape = {"slopes": (4,), "distance_bias": (4, 201), "shared": (1, 9), "block_bias": (4, layout.blocks)}[form]
    name = "distance_bias" if form == "shared" else form
    leaves = {name: torch.randn(shape, device="cuda", dtype=real) / 16, "sinks": torch.randn(4, device="cuda", dtype=real)}
    for y in leaves.values():
        y.requires_grad_()
    out = attention(*x, layout, causal=True, query_offset=128, **leaves)
    weight = torch.randn_like(out)
    ours = torch.autograd.grad(out, leaves.values(), weight)
    again = torch.autograd.grad(attention(*x, layout, causal=True, query_offset=128, **leaves), leaves.values(), weight)
    here = {key: y.detach().cpu().double().requires_grad_() for key, y in leaves.items()}
    on_cpu = attention(*(y.cpu().double() for y in x), layout, causal=True, query_offset=128, **here)
    theirs = torch.autograd.grad(on_cpu, here.values(), weight.cpu().double())
    # Terms of a slope are multiplied by distances and cancel: the error goes with the sum of their sizes.
    sizes = [sizes_of_slopes(torch, on_cpu, x, layout, leaves, weight) if form == "slopes" else 0, 0]
    for a, b, c, size in zip(ours, theirs, again, sizes):
        assert torch.equal(a, c)
        limit = 60 * EPS[dtype] * b.abs().max().clamp(min=1) + (4 * EPS[dtype] * size if dtype != "bfloat16" else 0)
        assert ((a.cpu() - b).abs() < limit).all()
