# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.BlockSparseAttention."""

import copy
import pickle

import numpy as np
import pytest

import tartan

torch = pytest.importorskip("torch")
from tartan.torch import BlockSparseAttention, BlockSparseLinear, patch_model  # noqa: E402
from tartan.torch import _attention as module  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
TOKENS = 40


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)
    torch._dynamo.reset()


def local(heads=1):
    return tartan.Layout.pattern("local", (TOKENS, TOKENS), 8, window=1, heads=heads)


def operands(dtype=torch.float64, kv_heads=4):
    return [torch.randn(2, h, TOKENS, 16, dtype=dtype, requires_grad=True) for h in (4, kv_heads, kv_heads)]


def visible(layer):
    """Which keys each query sees, as SDPA takes it."""
    blocks = torch.from_numpy(layer.layout.mask()).repeat_interleave(8, -2).repeat_interleave(8, -1)[..., :TOKENS, :TOKENS]
    return blocks & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril() if layer.causal else blocks


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_equals_dense_attention(causal, heads, kv_heads):
    layer = BlockSparseAttention(local(heads), causal=causal)
    given = operands(kv_heads=kv_heads)
    y = layer(*given)
    wanted = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=visible(layer), enable_gqa=True)
    torch.testing.assert_close(y, wanted)
    grad = torch.randn_like(y)
    for found, right in zip(torch.autograd.grad(y, given, grad), torch.autograd.grad(wanted, given, grad)):
        torch.testing.assert_close(found, right)


def test_projections():
    layer = BlockSparseAttention(local(), embed_dim=64, heads=4, kv_heads=2, causal=True).double()
    x = torch.randn(2, TOKENS, 64, dtype=torch.float64)
    q, k, v = (p(x).view(2, TOKENS, -1, 16).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    inner = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible(layer), enable_gqa=True)
    torch.testing.assert_close(layer(x), layer.out_proj(inner.transpose(1, 2).reshape(2, TOKENS, 64)))
    assert not torch.allclose(layer(x, x.flip(1)), layer(x))
    report = patch_model(layer, density=0.5, block=16)
    assert len(report.layers) == 4 and isinstance(layer.q_proj, BlockSparseLinear)
    layer(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_opcheck():
    layer = BlockSparseAttention(local(), causal=True)
    for view in (lambda x: x, lambda x: x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()):
        q, k, v = map(view, operands(torch.float32))
        options = (layer._cell.number, 0.25, True, 0.0, False, 0.0, None)
        assert set(torch.library.opcheck(module._operator, (q, k, v, *options)).values()) == {"SUCCESS"}
        out, lse = (x.detach() for x in module._operator(q, k, v, *options))
        given = (*(x.detach() for x in (q, k, v)), out, lse, torch.randn_like(out), *options)
        assert set(torch.library.opcheck(module._gradient_operator, given).values()) == {"SUCCESS"}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_compiles(dropout):
    layer = BlockSparseAttention(local(), embed_dim=64, heads=4, causal=True, dropout=dropout)
    x = torch.randn(2, TOKENS, 64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for run in (layer, compiled):
        torch.manual_seed(3)
        layer.zero_grad()
        y = run(x)
        y.square().sum().backward()
        results.append([y, *(p.grad.clone() for p in layer.parameters())])
    for found, wanted in zip(*results):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    layer.eval()
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x))
    torch.testing.assert_close(torch.func.vmap(layer)(x.unsqueeze(1)).squeeze(1), layer(x))
    grads = torch.func.grad(lambda x: layer(x).square().sum())(x)
    given = x.clone().requires_grad_()
    layer(given).square().sum().backward()
    torch.testing.assert_close(grads, given.grad, rtol=1e-4, atol=1e-4)
    assert layer.to("meta")(x.to("meta")).shape == x.shape


def test_dropout_takes_seeds_from_torch():
    layer = BlockSparseAttention(local(), dropout=0.5)
    given = operands(torch.float32)
    a, b = layer(*given), layer(*given)
    assert not torch.equal(a, b)
    torch.manual_seed(5)
    c = layer(*given)
    torch.manual_seed(5)
    assert torch.equal(layer(*given), c)
    layer.eval()
    assert torch.equal(layer(*given), layer(*given))
    layer.train()
    grads = []
    for run in (lambda: layer(*given), lambda: torch.utils.checkpoint.checkpoint(layer, *given, use_reentrant=False)):
        torch.manual_seed(5)
        grads.append(torch.autograd.grad(run().square().sum(), given))
    assert all(torch.equal(a, b) for a, b in zip(*grads))


def test_autocast_is_that_of_sdpa():
    layer = BlockSparseAttention(local(), embed_dim=64, heads=4)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.nn.functional.layer_norm(torch.randn(2, TOKENS, 64), (64,)))
        assert y.dtype == torch.bfloat16
        q, k, v = operands(torch.float32)
        assert BlockSparseAttention(local())(q, k.bfloat16(), v).dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.q_proj.weight.grad.dtype == torch.float32


def test_masks_and_copies():
    layout = local()
    mask = tartan.BlockMask.from_rule(layout, lambda q, k, head: abs(q - k) < 5)
    layer, given = BlockSparseAttention(layout, mask=mask), operands()
    near = torch.from_numpy(np.abs(np.subtract.outer(range(TOKENS), range(TOKENS))) < 5)
    torch.testing.assert_close(layer(*given), torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=near & visible(layer)))
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(again(*given), layer(*given)) and again._cell is not layer._cell
    other = BlockSparseAttention(tartan.Layout.pattern("causal", (TOKENS, TOKENS), 8))
    plain = BlockSparseAttention(layout)
    plain.load_state_dict(other.state_dict())
    assert plain.layout == other.layout and torch.equal(plain(*given), other(*given))
    with pytest.raises(RuntimeError, match="another one than that of the mask"):
        layer.load_state_dict(other.state_dict())
    heads = BlockSparseAttention(local(4))
    again = BlockSparseAttention(tartan.Layout.pattern("causal", (TOKENS, TOKENS), 8, heads=4))
    again.load_state_dict(heads.state_dict())
    assert again.layout == heads.layout


@pytest.mark.parametrize("options, words", [
    ({"embed_dim": 64}, "heads is None"), ({"embed_dim": 64, "heads": 5}, "heads is 5, expected a divisor of embed_dim 64"),
    ({"embed_dim": 64, "heads": 4, "kv_heads": 3}, "kv_heads is 3, expected a divisor of heads, 4"),
    ({"dropout": 1.0}, "dropout is 1.0, expected at least 0 and less than 1"), ({"mask": 3}, "mask is of type int"),
])  # fmt: skip
def test_refusals(options, words):
    with pytest.raises(tartan.ArgumentError, match=words):
        BlockSparseAttention(local(), **options)


def test_refused_operands():
    layer = BlockSparseAttention(local(), embed_dim=64, heads=4)
    with pytest.raises(tartan.ShapeError, match=r"expected \[batch, tokens, 64\]"):
        layer(torch.ones(2, TOKENS, 63))
    with pytest.raises(tartan.ArgumentError, match="3 tensors are given"):
        layer(1, 2, 3)
    with pytest.raises(tartan.TartanError):
        layer(torch.ones(2, TOKENS + 1, 64))
