# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.Sparsifier: gates with a penalty on how many are open, movement, and the rate at which new blocks learn."""

import io
import weakref

import numpy as np
import pytest

import tartan

torch = pytest.importorskip("torch")
from sparsifier_support import model_of, train  # noqa: E402

from tartan.torch import BlockSparseConv2d, BlockSparseLinear, Sparsifier  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


def test_gates_close_what_does_nothing():
    """Of all blocks one can do something, and the penalty closes the others."""
    torch.manual_seed(0)
    layer = BlockSparseLinear(64, 64, density=1, block=8, bias=False)
    optimizer = torch.optim.Adam(layer.parameters(), 1e-2)
    sparsifier = Sparsifier(layer, optimizer, score="gate", l0=1.0, gate_rate=0.05, begin=200, every=50)
    penalty = sparsifier.penalty
    for _ in range(300):
        x = torch.randn(256, 64)
        y = torch.zeros(256, 64)
        y[:, :8] = x[:, 8:16]
        optimizer.zero_grad()
        (layer(x) - y).square().mean().backward()
        optimizer.step()
        sparsifier.step()
    assert [c.tolist() for c in layer.layout.coordinates()] == [[0], [0], [1]]
    assert 0.5 < penalty < 1 and sparsifier.penalty < 1 / 32
    assert layer.gates.tolist() == [1] and layer.values.shape == (1, 8, 8)


def test_gates_learn_as_the_library_says():
    """The same steps by tartan.Sparsifier, with the gradients of gates that autograd finds."""
    torch.manual_seed(2)
    layer = BlockSparseLinear(24, 40, density=0.8, block=8, dtype=torch.float64)
    values = layer.values.detach().clone()
    bias, layout = layer.bias.detach().clone(), layer.layout
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    options = dict(score="gate", l0=0.3, gate_rate=0.3, gate_initial=0.5, seed=5)
    sparsifier, own = Sparsifier(layer, optimizer, begin=100, **options), tartan.Sparsifier(layer.matrix(), begin=100, **options)
    for step in range(5):
        x = torch.randn(16, 24, dtype=torch.float64)
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        optimizer.step()
        sparsifier.step()

        w = tartan.BlockMatrix(layout, values.numpy())
        (drawn,) = own.gates(w)
        gates, v, b = torch.from_numpy(drawn).requires_grad_(), values.clone().requires_grad_(), bias.clone().requires_grad_()
        (tartan.spmm(layout, x, values=v, side="right", transpose=True, gates=gates) + b).square().sum().backward()
        own.observe(w, gates.grad.numpy())
        values, bias = values - 0.1 * v.grad, bias - 0.1 * b.grad
        own.step(w)
        torch.testing.assert_close(layer.values.detach(), values, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(layer.gates, own.gates(w, training=False)[0], rtol=1e-9)
        assert np.isclose(sparsifier.penalty, own.penalty, rtol=1e-9)
    assert len(set(layer.gates.tolist())) > 5


def test_gradients_move_between_steps():
    """What is kept of a step fits the next one, whether gradients have new memory, or the old one with other numbers; and it keeps no
    gradients alive."""
    layers = [BlockSparseLinear(24, 40, density=0.8, block=8, bias=False) for _ in range(3)]
    model = torch.nn.ModuleList(layers)
    options = dict(score="gate", l0=0.3, gate_rate=0.3, gate_initial=0.5, begin=100)
    sparsifier, own = Sparsifier(model, **options), tartan.Sparsifier([x.matrix() for x in layers], **options)
    for step in range(6):
        for i, layer in enumerate(layers):
            grad = torch.randn_like(layer.values)
            if layer.values.grad is None or step == 3:
                layer.values.grad = grad.mT.contiguous().mT if step == 5 else grad
            else:
                layer.values.grad.copy_(grad)
        gates = own.gates([x.matrix() for x in layers])
        slopes = [(x.values * x.values.grad).sum((1, 2)).detach().double().numpy() for x in layers]
        own.observe([x.matrix() for x in layers], [np.where((g > 0) & (g < 1), s / np.where(g, g, 1), 0) for g, s in zip(gates, slopes)])
        sparsifier.observe()
        sparsifier.step()
        own.step([x.matrix() for x in layers])
        for layer, used in zip(layers, own.gates([x.matrix() for x in layers], training=False)):
            np.testing.assert_allclose(layer.gates, used, rtol=1e-4, atol=1e-6)
        if step == 4:
            kept = weakref.ref(layers[0].values.grad)
            layers[0].values.grad = None
            assert kept() is None
    layers[1].values.grad[0, 0, 0] = torch.inf
    with pytest.raises(tartan.ArgumentError, match="^1: .*inf"):
        sparsifier.observe()


def test_gates_of_a_model_in_use():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sparsifier = Sparsifier(model, optimizer, score="gate", l0=2.0, gate_rate=0.3, begin=1000)
    train(model, optimizer, sparsifier, 6)
    x, layer = torch.randn(5, 64), model[0]
    in_training = model(x)
    model.eval()
    y = model(x)
    assert not torch.equal(y, in_training) and 0 < float(layer.gates.min()) < 1
    dense = torch.nn.Sequential(layer.to_linear(), torch.nn.ReLU(), model[2].to_linear())
    torch.testing.assert_close(dense(x), y)
    torch.testing.assert_close(layer.weight @ x.T, (layer(x) - layer.bias).T)
    # A model that has never heard of gates takes them from a state dict; weights alone are refused.
    other = model_of(0.25)
    state = io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    other.load_state_dict(torch.load(state, weights_only=True))
    torch.testing.assert_close(other.eval()(x), y)
    torch.testing.assert_close(other.train()(x), y)
    with pytest.raises(RuntimeError, match='Missing key.*"0.gates", "2.gates"'):
        other.load_state_dict(model_of().state_dict())
    other.load_state_dict(model.state_dict())
    other[0].set_layout(tartan.Layout.pattern("dense", (128, 64), 16))
    torch.testing.assert_close(other(x), y)
    for layer in (other[0], other[2]):
        layer.fold_gates()
    torch.testing.assert_close(other(x), y)
    assert "0.gates" not in other.state_dict()


def test_gates_of_compiled_models_and_convolutions():
    torch._dynamo.reset()
    model = torch.nn.Sequential(BlockSparseConv2d(32, 48, 3, padding=1, density=1, block=16), torch.nn.Flatten(), BlockSparseLinear(48 * 16, 16, density=1, block=16))
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, optimizer, score="gate", l0=1, gate_rate=1, begin=4, every=2)
    compiled = torch.compile(model, backend="aot_eager")
    removed = 0
    for _ in range(8):
        optimizer.zero_grad()
        x = torch.randn(2, 32, 4, 4)
        y = compiled(x)
        torch.testing.assert_close(y, model(x))
        y.square().sum().backward()
        optimizer.step()
        removed += sum(change.pruned for change in sparsifier.step())
    conv = model[0]
    assert removed > 0 and len(conv.gates) == len(conv.values) == 9 * conv.layout.blocks
    model.eval()
    x = torch.randn(2, 32, 4, 4)
    torch.testing.assert_close(conv.to_conv2d()(x), conv(x))


def test_movement():
    """Blocks whose values shrink go, though they are the largest."""
    layer = BlockSparseLinear(64, 64, density=1, block=16, bias=False)
    with torch.no_grad():
        layer.values.fill_(0.5)
        layer.values[:4] = 1.0
    optimizer = torch.optim.SGD(layer.parameters(), 1e-3)
    sparsifier = Sparsifier(layer, optimizer, score="movement", density=0.75, begin=5, end=5)
    factors = torch.ones(16, 1, 1)
    factors[4:] = -1
    for _ in range(5):
        optimizer.zero_grad()
        (layer.values * factors).sum().backward()
        optimizer.step()
        sparsifier.step()
    assert layer.layout.blocks == 12 and not layer.layout.mask()[0].any()
    assert sparsifier.state_dict()["numbers"][1][3:15].min() > 0
    alone = Sparsifier(layer, score="movement", density=0.5, begin=1, end=1)
    with pytest.raises(tartan.ArgumentError, match="nothing says what blocks of weight 0 are worth"):
        alone.step()
    alone.observe()  # nothing, as there is no gradient
    layer(torch.randn(2, 64)).sum().backward()
    alone.observe()
    alone.step()
    assert layer.layout.blocks == 8


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_gradients(fused):
    """torch.amp.GradScaler: gates learn from gradients without the scale, and not at all in a step that is skipped."""
    runs = []
    for scaled in (False, True):
        torch.manual_seed(3)
        layer = BlockSparseLinear(64, 64, density=0.5, block=16)
        optimizer = torch.optim.AdamW(layer.parameters(), 1e-2, fused=fused)
        sparsifier = Sparsifier(layer, optimizer, score="gate", l0=0.1, gate_initial=0.0, begin=100)
        scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=2.0**10)
        for step in range(4):
            optimizer.zero_grad()
            loss = layer(torch.randn(8, 64)).square().mean()
            if step == 2:
                loss = loss * torch.inf
            if step != 2 or scaled:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            sparsifier.step()
        runs.append((layer.values.detach().clone(), sparsifier.state_dict()["numbers"][1]))
    for a, b in zip(*runs):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_new_blocks_learn_at_their_rate():
    layer = BlockSparseLinear(64, 64, density=0.5, block=16, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    sparsifier = Sparsifier(layer, optimizer, swap=0.25, growth="random", decay="constant", begin=1, end=1, fresh_rate=3, fresh_steps=2)
    old = layer.layout
    sparsifier.step()
    _, rows, cols = layer.layout.coordinates()
    fresh = torch.from_numpy(np.asarray(old.find(rows, cols)) < 0)
    assert int(fresh.sum()) == 2
    for step in range(4):
        before = layer.values.detach().clone()
        layer.values.grad = torch.ones_like(before)
        optimizer.step()
        sparsifier.step()
        change = before - layer.values.detach()
        torch.testing.assert_close(change[~fresh], torch.full_like(change[~fresh], 0.5))
        torch.testing.assert_close(change[fresh], torch.full_like(change[fresh], 1.5 if step < 2 else 0.5))
