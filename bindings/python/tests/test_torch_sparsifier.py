# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.Sparsifier: layouts that change while a model trains."""

import io

import numpy as np
import pytest

import tartan

torch = pytest.importorskip("torch")
from ranks_support import run_two_ranks  # noqa: E402
from sparsifier_support import model_of, train  # noqa: E402

from tartan.torch import BlockSparseConv2d, BlockSparseLinear, Sparsifier  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


@pytest.mark.parametrize("schedule, power", [("cubic", 3), ("linear", 1)])
def test_schedules(schedule, power):
    model = model_of(1.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sparsifier = Sparsifier(model, optimizer, density=0.25, curve=schedule, begin=2, end=10, every=2)
    seen = []
    for _ in range(12):
        train(model, optimizer, sparsifier, 1)
        seen.append(model[0].layout.blocks)
    wanted = [32] * 12
    for step in range(1, 13):
        t = min(max(step - 2, 0) // 2 * 2 / 8, 1)
        wanted[step - 1] = round(32 * (0.25 + 0.75 * (1 - t) ** power))
    assert seen == wanted and model[2].layout.density == 0.25


@pytest.mark.parametrize("kind", ["AdamW", "Adam amsgrad", "SGD", "RMSprop", "Adagrad", "Adafactor"])
def test_state_follows_the_blocks(kind):
    model = model_of()
    name, _, more = kind.partition(" ")
    if not hasattr(torch.optim, name):
        pytest.skip(f"this PyTorch has no {name}")
    options = {"amsgrad": True} if more else {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3, **options)
    layer = model[0]
    sparsifier = Sparsifier(model, optimizer, density=0.25, end=6, every=3, swap=0.4, decay="constant")
    train(model, optimizer, sparsifier, 2)
    optimizer.zero_grad()
    (model(torch.randn(16, 64))).square().mean().backward()
    optimizer.step()
    old, parameter, before = layer.layout, layer.values, layer.values.detach().clone()
    state = {k: x.clone() for k, x in optimizer.state[parameter].items() if isinstance(x, torch.Tensor)}
    changes = sparsifier.step()
    assert [c.name for c in changes] == ["0", "2"] and changes[0].pruned > 0 and changes[0].moved > 0
    assert layer.values is parameter and optimizer.param_groups[0]["params"][0] is parameter and parameter.grad is None
    _, rows, cols = layer.layout.coordinates()
    ids = torch.from_numpy(np.asarray(old.find(rows, cols)))
    stayed = ids >= 0
    assert int((~stayed).sum()) == changes[0].moved
    assert torch.equal(parameter[stayed], before[ids[stayed]]) and not parameter[~stayed].any()
    followed = 0
    for key, x in optimizer.state[parameter].items():
        if isinstance(x, torch.Tensor) and x.ndim and x.numel() > 1:
            assert torch.equal(x[stayed], state[key][ids[stayed]]) and not x[~stayed].any(), key
            followed += 1
        elif isinstance(x, torch.Tensor):
            assert torch.equal(x, state[key])
    assert followed >= 1
    train(model, optimizer, sparsifier, 4)
    assert layer.layout.density == 0.25


def test_the_smallest_go_where_the_gradient_is_largest():
    layer = BlockSparseLinear(64, 64, density=0.5, block=16)
    optimizer = torch.optim.SGD(layer.parameters(), 0.0)
    sparsifier = Sparsifier(layer, optimizer, end=100, every=1, swap=0.25, decay="constant")
    x = torch.randn(32, 64)
    dense = layer.to_linear()
    for module in (layer, dense):
        for part in x.split(8):  # which add up
            module(part).pow(3).sum().backward()
    norms = dense.weight.grad.view(4, 16, 4, 16).square().sum((1, 3)).flatten()
    old = layer.layout.mask().reshape(-1)
    sizes = layer.values.detach().flatten(1).norm(dim=1)
    smallest = np.flatnonzero(old)[sizes.argsort()[:2].numpy()]
    stays = old.copy()
    stays[smallest] = False
    norms[torch.from_numpy(stays)] = -1  # a block that was just dropped may come back
    wanted = set(norms.topk(2).indices.tolist())
    optimizer.step()
    (change,) = sparsifier.step()
    new = layer.layout.mask().reshape(-1)
    assert change == ("", 0, len(wanted - set(smallest)), 8) and change.moved > 0
    assert set(np.flatnonzero(new)) == set(np.flatnonzero(stays)) | wanted


def test_one_block_that_matters_is_found():
    """Noise in all blocks, and one that is correlated with the loss."""
    layout = tartan.Layout.pattern("banded", (256, 256), 16)
    layer = BlockSparseLinear(256, 256, layout=layout, bias=False)
    sparsifier = Sparsifier(layer, end=10, every=1, swap=0.03, decay="constant")
    target, x = torch.randn(512, 256), torch.randn(512, 256)
    target[:, 32:48] += 0.4 * x[:, 192:208]
    ((layer(x) - target).square().sum()).backward()
    sparsifier.step()
    assert layer.layout.mask()[2, 12]


def test_recycling_of_pytorch_block_sparse():
    layer = BlockSparseLinear(256, 256, density=0.5, block=32)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.randn(4, 256)).sum().backward()
    optimizer.step()
    sparsifier = Sparsifier(layer, optimizer, end=10, every=1, swap=0.1, growth="random", fill="normal", fill_scale=0.1, decay="constant")
    before, old = layer.to_dense().detach(), layer.layout
    (change,) = sparsifier.step()
    changed = (before != layer.to_dense()).view(8, 32, 8, 32).any(3).any(1)
    assert change.moved == int(32 * 0.1) == 3 and int(changed.sum()) == 6
    fresh = torch.from_numpy(np.asarray(old.find(*layer.layout.coordinates()[1:])) < 0)
    values = layer.values.detach()
    assert 0.05 < float(values[fresh].std() / values[~fresh].std()) < 0.2
    assert not optimizer.state[layer.values]["exp_avg"][fresh].any() and float(optimizer.state[layer.values]["step"]) == 1


def test_thresholds_and_the_whole_model():
    model = model_of()
    with torch.no_grad():
        model[0].values[3:7] = 1e-6
    Sparsifier(model, threshold=1e-3, end=1, every=1).step()
    assert model[0].layout.blocks == 16 - 4 and model[2].layout.blocks == 8
    with torch.no_grad():
        model[2].values.mul_(100)
    Sparsifier(model, density=0.25, scope="model", end=1, every=1).step()
    assert model[2].layout.blocks == 8 and model[0].layout.blocks == round(0.25 * 48) - 8


@pytest.mark.parametrize("growth, norm", [("score", "gradient"), ("score", "l2"), ("random", "gradient")])
def test_convolutions(growth, norm):
    model = torch.nn.Sequential(BlockSparseConv2d(32, 48, 3, padding=1, density=0.5, block=16), torch.nn.Flatten(), torch.nn.Linear(48 * 16, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, optimizer, density=0.34, end=4, every=2, swap=0.5, growth=growth, growth_norm=norm, decay="constant")
    layer = model[0]
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(2, 32, 4, 4)).square().sum().backward()
        optimizer.step()
        old, before, moments = layer.layout, layer.to_dense(), optimizer.state[layer.values]["exp_avg"].clone()
        stored = layer.conv.layout
        changes = sparsifier.step()
        if not changes:
            continue
        assert changes[0].moved == 1
        both = torch.from_numpy(old.mask() & layer.layout.mask()).repeat_interleave(16, 0).repeat_interleave(16, 1)[:, :, None, None]
        assert torch.equal(layer.to_dense(), before * both)
        _, rows, cols = layer.conv.layout.coordinates()
        ids = torch.from_numpy(np.asarray(stored.find(rows, cols)))
        now = optimizer.state[layer.values]["exp_avg"]
        assert torch.equal(now[ids >= 0], moments[ids[ids >= 0]]) and not now[ids < 0].any()
    assert layer.layout.blocks == 2 and len(layer.values) == 18


RUNS = {
    "random": dict(density=0.3, end=20, every=4, swap=0.3, growth="random", fill="uniform"),
    "rigl": dict(density=0.3, end=20, every=4, swap=0.3, fresh_rate=3, fresh_steps=3),
    "movement": dict(density=0.3, end=20, every=4, score="movement", scope="model"),
    "gates": dict(score="gate", l0=50, gate_rate=0.5, begin=6, every=3),
}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("kept", ["torch", "hdf5"])
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(kind, kept, tmp_path):
    def begun():
        torch.manual_seed(1)
        model = model_of()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        return model, optimizer, Sparsifier(model, optimizer, seed=3, **RUNS[kind])

    model, optimizer, sparsifier = begun()
    train(model, optimizer, sparsifier, 10)
    file = io.BytesIO()
    torch.save([x.state_dict() for x in (model, optimizer, sparsifier)] + [torch.get_rng_state()], file)
    tartan.save(tmp_path / "s.h5", {"s": sparsifier})
    train(model, optimizer, sparsifier, 12)
    again = begun()
    file.seek(0)
    *states, random = torch.load(file, weights_only=True)
    if kept == "hdf5":
        states[2] = tartan.Sparsifier.load(tmp_path / "s.h5", "s")
    for x, state in zip(again, states):
        x.load_state_dict(state)
    torch.set_rng_state(random)
    train(*again, 12)
    assert model[0].layout.density < 0.5 and again[2].steps == 22
    for a, b in zip((model[0], model[2]), (again[0][0], again[0][2])):
        assert a.layout == b.layout and torch.equal(a.values, b.values) and torch.equal(a.bias, b.bias)
        assert (a.gates is None) == (kind != "gates") and (a.gates is None or torch.equal(a.gates, b.gates))


def test_states_that_do_not_fit_are_refused_by_name():
    model, other = model_of(), model_of(0.25)
    state = Sparsifier(model, density=0.25).state_dict()
    torch.save(state, io.BytesIO())
    with pytest.raises(tartan.ArgumentError, match=r"state is of the layers \['0', '2'\], expected \[''\]"):
        Sparsifier(model[0]).load_state_dict(state)
    with pytest.raises(tartan.LayoutError, match=r"0: the layer has <Layout 128x64, 8 of 32 .*the sparsifier <Layout 128x64, 16 of 32.*load the state of the model before"):
        Sparsifier(other).load_state_dict(state)
    with pytest.raises(tartan.ArgumentError, match="state has list, expected"):
        Sparsifier(model).load_state_dict([])
    with pytest.raises(tartan.ArgumentError, match="state has 1 layers, expected 2: 0, 2"):
        Sparsifier(model).load_state_dict(tartan.Sparsifier(model[0].matrix()))
    with pytest.raises(tartan.FormatError, match="has 19 numbers, expected 35"):
        Sparsifier(model).load_state_dict({**state, "numbers": [state["numbers"][0], state["numbers"][1][:19], state["numbers"][2]]})
    sparsifier = Sparsifier(model, density=0.25)
    model[2].set_layout(other[2].layout)
    with pytest.raises(tartan.LayoutError, match="2: the layer has <Layout 32x128, 4 of 16"):
        sparsifier.step()


def test_a_refused_step_changes_nothing():
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, optimizer, density=0.25, fill="normal", swap=0.2, growth="random")
    train(model, optimizer, sparsifier, 0)
    layouts = [layer.layout for layer in (model[0], model[2])]
    with torch.no_grad():
        model[2].values[0] = np.nan
    with pytest.raises(tartan.ArgumentError, match="2: .*norms of blocks.* is NaN|2: .*NaN"):
        sparsifier.step()
    with torch.no_grad():
        model[2].values[0] = np.inf  # is worth much, so it stays, but new blocks have no size
    with pytest.raises(tartan.ArgumentError, match="values of weight 1 have the root mean square inf, expected finite values"):
        sparsifier.step()
    assert sparsifier.steps == 0 and [layer.layout for layer in (model[0], model[2])] == layouts
    assert model[0].values.shape[0] == 16 and model[0](torch.randn(3, 64)).isfinite().all()


def test_an_optimizer_does_not_keep_a_sparsifier():
    import gc
    import weakref

    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sparsifier = Sparsifier(model, optimizer, score="movement", swap=0.1)
    gone = weakref.ref(sparsifier)
    del sparsifier
    gc.collect()
    assert gone() is None
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()


def test_graphs_of_earlier_steps_may_live():
    """A loss that is kept, as in most loops, holds what accumulates gradients."""
    model = model_of(1.0)
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, optimizer, density=0.25, end=6, every=2)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        losses.append(model(torch.randn(4, 64)).square().sum())
        losses[-1].backward()
        assert model[0].values.grad.shape == model[0].values.shape
        optimizer.step()
        sparsifier.step()
    layer = model[0]
    y = layer(torch.randn(4, 64)).sum()
    layer.load_state_dict(BlockSparseLinear(64, 128, density=0.6, block=16).state_dict())
    z = layer(torch.randn(4, 64)).sum()
    with pytest.raises(RuntimeError):
        y.backward()
    z.backward()
    assert layer.values.grad.shape == layer.values.shape


def test_compiled_models():
    torch._dynamo.reset()
    model = model_of()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, backend="aot_eager")
    sparsifier = Sparsifier(model, optimizer, end=12, every=3, swap=0.3, decay="constant")
    moved = 0
    for _ in range(6):
        optimizer.zero_grad()
        with torch.compiler.set_stance("force_eager" if sparsifier.needs_growth else "default"):
            compiled(torch.randn(4, 64)).square().sum().backward()
        optimizer.step()
        moved += len(sparsifier.step())
        x = torch.randn(2, 64)
        torch.testing.assert_close(compiled(x), model(x))
    assert moved == 4
    for _ in range(2):
        sparsifier.step()
    assert sparsifier.needs_growth
    compiled(torch.randn(4, 64)).square().sum().backward()
    with pytest.raises(tartan.ArgumentError, match="0: no gradients were seen in this step, expected some for growth='score'"):
        sparsifier.step()


@pytest.mark.parametrize("options, words", [
    ({"density": 2}, "density is 2, expected a number from 0 to 1"), ({"curve": "step"}, "curve is step, expected cubic"),
    ({"swap": -1}, "swap is -1"), ({"every": 0}, "every is 0, expected a whole number of 1 or more"),
    ({"every": 3, "density": 0.5}, "end is 10, expected begin=0 plus a multiple of every=3"),
    ({"layers": "none"}, "model has no block-sparse layer that 'none' matches"), ({"optimizers": 3}, "optimizers is of type int"),
    ({"growth": "x"}, "growth is x, expected score or random"), ({"growth_norm": "x"}, "growth_norm is 'x', expected 'gradient'"),
    ({"sparsity": 0.5}, "sparsity is 0.5, expected score, scope"),
])  # fmt: skip
def test_refusals(options, words):
    with pytest.raises(tartan.ArgumentError, match=words):
        Sparsifier(model_of(), **{"end": 10, "every": 5, **options})


def test_refused_optimizers():
    model = model_of()
    with pytest.raises(tartan.ArgumentError, match="optimizers do not have the values of 0: make them after the layers"):
        Sparsifier(model, torch.optim.SGD(model_of().parameters(), 0.1), end=10, every=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.state[model[0].values]["odd"] = torch.zeros(5, 5)
    sparsifier = Sparsifier(model, optimizer, density=0.1, end=1, every=1)
    with pytest.raises(tartan.ArgumentError, match=r"0: the optimiser has odd of shape \(5, 5\)"):
        sparsifier.step()


WORKER = """
import sys, torch, torch.distributed as dist
from tartan.torch import BlockSparseLinear, Sparsifier
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
for options in (dict(swap=0.3, end=6, every=2, decay="constant", fill="normal"), dict(score="gate", l0=50.0, gate_rate=1.0, begin=4, every=2)):
    torch.manual_seed(5)
    model = torch.nn.Sequential(BlockSparseLinear(64, 64, density=0.5, block=8), torch.nn.GELU(), BlockSparseLinear(64, 16, density=0.5, block=8))
    both = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    sparsifier = Sparsifier(model, optimizer, **options)
    torch.manual_seed(rank)
    changed = 0
    for _ in range(7):
        optimizer.zero_grad()
        both(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        changes = sparsifier.step()
        changed += sum(change.moved + change.pruned for change in changes)
        if any(change.pruned for change in changes):  # parameters have other shapes
            both = torch.nn.parallel.DistributedDataParallel(model)
    assert changed > 4
    for tensor in (*model.parameters(), *(torch.from_numpy(m.layout.mask()).int() for m in (model[0], model[2]))):
        others = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(others, tensor.detach())
        assert torch.equal(*others)
dist.destroy_process_group()
print("equal")
"""


def test_all_ranks_choose_the_same():
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    run_two_ranks(WORKER)


def test_better_than_a_fixed_random_layout():
    """A target that needs certain blocks is learned by moving to them."""
    torch.manual_seed(0)
    mask = torch.zeros(8, 8)
    mask.view(-1)[torch.randperm(64)[:12]] = 1
    target = torch.randn(128, 128) * mask.repeat_interleave(16, 0).repeat_interleave(16, 1) / 8
    losses = []
    for swap in (0.0, 0.4):
        torch.manual_seed(1)
        layer = BlockSparseLinear(128, 128, density=0.3, block=16, bias=False)
        optimizer = torch.optim.Adam(layer.parameters(), 1e-2)
        sparsifier = Sparsifier(layer, optimizer, end=150, every=10, swap=swap)
        for _ in range(200):
            x = torch.randn(64, 128)
            loss = (layer(x) - x @ target.T).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sparsifier.step()
        losses.append(loss.item())
    assert losses[1] < 0.1 * losses[0], losses
