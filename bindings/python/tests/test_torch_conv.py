# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.BlockSparseConv2d."""

import copy
import pickle

import numpy as np
import pytest

import tartan

torch = pytest.importorskip("torch")
from tartan.torch import BlockSparseConv2d  # noqa: E402
from tartan.torch import _conv as conv_module  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
GEOMETRIES = [
    dict(kernel_size=3, padding=1), dict(kernel_size=(3, 1), stride=2), dict(kernel_size=2, padding=(1, 0), dilation=2),
    dict(kernel_size=1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)
    torch._dynamo.reset()


def made(dtype=torch.float32, **options):
    options = {"kernel_size": 3, "padding": 1, **options}
    return BlockSparseConv2d(20, 12, density=0.6, block=8, dtype=dtype, **options)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_dense_layer(geometry, last, bias):
    layer = made(torch.float64, bias=bias, **geometry)
    dense = layer.to_conv2d()
    results = []
    x = torch.randn(2, 20, 9, 7, dtype=torch.float64)
    for module in (layer, dense):
        given = x.clone(memory_format=torch.channels_last if last else torch.contiguous_format).requires_grad_()
        y = module(given)
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
        results.append((y, given.grad, module.bias.grad if bias else None))
    for found, wanted in zip(*results):
        torch.testing.assert_close(found, wanted)
    wanted = conv_module._filter_values(layer.conv, dense.weight.grad)
    torch.testing.assert_close(layer.values.grad, wanted)
    torch.testing.assert_close(layer(x[0]), dense(x[0]))
    with torch.no_grad():
        torch.testing.assert_close(layer(x), dense(x))


def test_padding_same():
    for kernel in (2, 3, (4, 1)):
        layer = made(torch.float64, kernel_size=kernel, padding="same")
        dense = torch.nn.Conv2d(20, 12, kernel, padding="same", dtype=torch.float64)
        with torch.no_grad():
            dense.weight.copy_(layer.to_dense())
            dense.bias.copy_(layer.bias)
        x = torch.randn(1, 20, 6, 5, dtype=torch.float64)
        torch.testing.assert_close(layer(x), dense(x))


def test_from_conv2d():
    dense = torch.nn.Conv2d(20, 12, 3, stride=2, padding=1)
    x = torch.randn(2, 20, 9, 7)
    torch.testing.assert_close(BlockSparseConv2d.from_conv2d(dense, 1, 4)(x), dense(x))
    layer = BlockSparseConv2d.from_conv2d(dense, 0.4, 4)
    norms = dense.weight.detach().pow(2).sum((2, 3)).view(3, 4, 5, 4).sum((1, 3)).flatten()
    assert set(np.flatnonzero(layer.layout.mask())) == set(norms.topk(6).indices.tolist())
    torch.testing.assert_close(layer.to_conv2d()(x), layer(x))
    for wrong, words in ((torch.nn.Conv2d(4, 4, 1, groups=2), "groups 2"), (torch.nn.Linear(4, 4), "expected torch.nn.Conv2d")):
        with pytest.raises(tartan.ArgumentError if words[0] == "e" else tartan.UnsupportedError, match=words):
            BlockSparseConv2d.from_conv2d(wrong, 1, 4)


def test_refusals():
    layer = made()
    for x in (torch.ones(2, 19, 5, 5), torch.ones(20, 5)):
        with pytest.raises(tartan.ShapeError, match=r"x has shape .*, expected \[n, 20, height, width\]"):
            layer(x)
    with pytest.raises(tartan.ArgumentError, match="stride is"):
        made(padding="same", stride=2)
    with pytest.raises(tartan.ArgumentError, match="kernel_size is"):
        made(kernel_size=(1, 2, 3))


@pytest.mark.parametrize("last", [False, True])
def test_operators(last):
    layer = made(torch.float64, kernel_size=(3, 2), stride=(2, 1))
    cell = layer._cell
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, 20, 5, 4, dtype=torch.float64).to(memory_format=form).requires_grad_()
    size = tuple(layer(x).shape)
    grad = torch.randn(size, dtype=torch.float64).to(memory_format=form).requires_grad_()
    values = layer.values.detach().requires_grad_()
    forward, input_gradient, values_gradient = conv_module.BILINEAR.operators
    for operator, given, size in ((forward, (x, values), size), (input_gradient, (grad, values), x.shape),
                                  (values_gradient, (x, grad), values.shape)):  # fmt: skip
        found = torch.library.opcheck(operator, (*given, cell.number, list(size)))
        assert set(found.values()) == {"SUCCESS"}
    inside = conv_module._filter_values(layer.conv, torch.ones(12, 20, 3, 2, dtype=torch.float64))
    run = lambda x, v: forward(x, v * inside, cell.number, list(layer(x).shape))  # noqa: E731
    small = x[:1].detach().contiguous().requires_grad_()
    assert torch.autograd.gradcheck(run, (small, values), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (small, values), fast_mode=True)


def test_compiles_and_transforms():
    model = torch.nn.Sequential(made(), torch.nn.ReLU(), BlockSparseConv2d(12, 8, 1, density=1, block=4))
    x = torch.randn(2, 20, 6, 5)
    wanted = model(x)
    wanted.square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    found = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    found.square().sum().backward()
    torch.testing.assert_close(found, wanted)
    for parameter, grad in zip(model.parameters(), grads):
        torch.testing.assert_close(parameter.grad, grad)
    torch.testing.assert_close(torch.export.export(model.eval(), (x,)).module()(x), wanted)
    torch.testing.assert_close(torch.func.vmap(model)(x.unsqueeze(1)).squeeze(1), wanted)
    assert model.to("meta")(x.to("meta")).shape == wanted.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    layer, x = made(), torch.randn(2, 20, 6, 5)
    with torch.autocast("cpu", dtype):
        y = layer(x)
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), layer.to_conv2d()(x).float(), rtol=2e-2, atol=2e-2)
    y.float().sum().backward()
    assert layer.values.grad.dtype == torch.float32 and layer.bias.grad.dtype == torch.float32
    half = made(dtype)
    assert half(x.to(dtype)).dtype == dtype


def test_lives_as_other_modules():
    a, b, x = made(), made(), torch.randn(2, 20, 6, 5)
    values = b.values
    b.load_state_dict(a.state_dict())
    assert torch.equal(b(x), a(x)) and b.values is values and b.layout == a.layout
    for again in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert torch.equal(again(x), a(x)) and again._cell is not a._cell
    dense = a.to_dense()
    union = a.layout | tartan.Layout.from_coordinates((12, 20), 8, [0], [0])
    a.set_layout(union)
    torch.testing.assert_close(a.to_dense(), dense)
    assert "kernel_size=(3, 3)" in repr(a) and len(a.values) == 9 * union.blocks


def test_initial_values_have_the_variance_of_a_dense_layer():
    layer = BlockSparseConv2d(64, 64, 3, bias=False, layout=tartan.Layout.from_mask(np.tril(np.ones((4, 4))), 16))
    y = layer(torch.randn(8, 64, 12, 12)).detach()
    spread = y.transpose(0, 1).reshape(4, -1).std(1)
    torch.testing.assert_close(spread, torch.full((4,), 3**-0.5), rtol=0.08, atol=0)
