# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.BlockSparseLinear and the operators under it."""

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tartan
from conftest import random_layout
from ranks_support import run_two_ranks

torch = pytest.importorskip("torch")
import torch._dynamo.testing  # noqa: E402
from tartan.torch import BlockSparseLinear  # noqa: E402
from tartan.torch import _operators as operators  # noqa: E402
from tartan.torch._cells import Cell  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)
    torch._dynamo.reset()


def ragged(dtype=torch.float32, bias=True, **options):
    return BlockSparseLinear(50, 37, density=0.4, block=(8, 16), bias=bias, dtype=dtype, **options)


def beside_dense(layer, x, **options):
    """Output and gradients of the layer and of nn.Linear with its weights, as pairs."""
    dense = layer.to_linear()
    pairs = []
    for module in (layer, dense):
        given = x.detach().clone().requires_grad_()
        y = module(given)
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum().backward()
        weight = module.values.grad if module is layer else None
        pairs.append((y, given.grad, None if module.bias is None else module.bias.grad, weight, module))
    ours, theirs = pairs
    from tartan.torch._linear import blocks_of

    found = [ours[0], ours[1], ours[3]] + ([ours[2]] if ours[2] is not None else [])
    wanted = [theirs[0], theirs[1], blocks_of(dense.weight.grad, layer.layout)] + ([theirs[2]] if ours[2] is not None else [])
    return list(zip(found, wanted))


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("lead", [(), (1,), (9,), (2, 5), (2, 1, 3), (0,), (3, 0)])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_dense_layer(dtype, lead, bias):
    for found, wanted in beside_dense(ragged(dtype, bias), torch.randn(*lead, 50, dtype=dtype)):
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("form", ["columns", "strided", "expanded", "turned"])
def test_operands_with_strides(form):
    layer = ragged(torch.float64)
    x = {
        "columns": lambda: torch.randn(50, 6, dtype=torch.float64).T,
        "strided": lambda: torch.randn(12, 100, dtype=torch.float64)[::2, ::2],
        "expanded": lambda: torch.randn(1, 50, dtype=torch.float64).expand(6, 50),
        "turned": lambda: torch.randn(3, 50, 2, dtype=torch.float64).mT,
    }[form]()
    y = layer(x)
    assert y.is_contiguous()
    torch.testing.assert_close(y, layer.to_linear()(x))
    y.sum().backward()  # whose gradient is one number, expanded
    torch.testing.assert_close(layer.bias.grad, torch.full((37,), float(y.numel() // 37), dtype=torch.float64))


def test_gradients_to_any_order():
    layer = ragged(torch.float64)
    x = torch.randn(4, 50, dtype=torch.float64, requires_grad=True)
    values = layer.values.detach().requires_grad_()
    with torch.no_grad():
        layer._clear_padding()
        values.copy_(layer.values)
    bias = layer.bias.detach().requires_grad_()
    inside = (layer.values != 0).double()

    def run(x, values, bias):
        return operators.block_linear(x, values * inside, bias, layer._cell)

    assert torch.autograd.gradcheck(run, (x, values, bias))
    assert torch.autograd.gradgradcheck(run, (x, values, bias))
    by_operator = lambda x, v: operators.linear(x, v * inside, layer._cell.number, 37)  # noqa: E731
    assert torch.autograd.gradcheck(by_operator, (x, values)) and torch.autograd.gradgradcheck(by_operator, (x, values))


def test_opcheck():
    cell = Cell(random_layout(np.random.default_rng(3), (24, 40), 8))
    x, grad = torch.randn(2, 5, 40, requires_grad=True), torch.randn(2, 5, 24, requires_grad=True)
    values = torch.randn(cell.layout.blocks, 8, 8, requires_grad=True)
    for operator, given, size in (
        (operators.linear, (x, values), 24), (operators.input_gradient, (grad, values), 40),
        (operators.values_gradient_op, (x, grad), values.shape),
    ):  # fmt: skip
        found = torch.library.opcheck(operator, (*given, cell.number, size))
        assert set(found.values()) == {"SUCCESS"}, found
        torch.library.opcheck(operator, (*(t.detach() for t in given), cell.number, size))


def steps(layer, x, run=None):
    """Losses and gradients of two steps."""
    run, result = layer if run is None else run, []
    for _ in range(2):
        layer.zero_grad()
        loss = torch.nn.functional.gelu(run(x)).square().sum()
        loss.backward()
        result += [loss.detach(), layer.values.grad.clone(), layer.bias.grad.clone()]
    return result


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiles_as_one_graph(backend):
    layer, x = ragged(), torch.randn(4, 50, requires_grad=True)
    wanted = steps(layer, x)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for found, right in zip(steps(layer, x, compiled), wanted):
        torch.testing.assert_close(found, right)
    counted = torch._dynamo.testing.CompileCounterWithBackend(backend)
    run = torch.compile(layer, fullgraph=True, backend=counted)
    run(x)
    moved, _ = layer.layout.move([0], *[[int(n)] for n in np.argwhere(~layer.layout.mask())[0]])
    layer.set_layout(moved)
    torch.testing.assert_close(run(x), layer(x))
    assert counted.frame_count == 1  # blocks that move cost no compilation


def test_one_compilation_serves_equal_layers():
    counted = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    layers, x = [BlockSparseLinear(128, 128, density=0.5, block=16) for _ in range(12)], torch.randn(4, 128)
    for layer in layers:
        wanted = steps(layer, x)
        layer.compile(fullgraph=True, backend=counted)
        for found, right in zip(steps(layer, x), wanted):
            torch.testing.assert_close(found, right)
    assert len({layer.layout for layer in layers}) == 12 and counted.frame_count == 2  # with that number, and with any


def test_compiles_under_autocast():
    layer, x = ragged(), torch.randn(4, 50)
    with torch.autocast("cpu", torch.bfloat16):
        y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
        assert y.dtype == torch.bfloat16 and torch.equal(y, layer(x))


def test_other_ways_to_trace(tmp_path):
    layer, x = ragged().eval(), torch.randn(4, 50)
    wanted = layer(x)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), wanted)
    from torch.fx.experimental.proxy_tensor import make_fx

    parameters = dict(layer.named_parameters())
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(lambda p, x: torch.func.functional_call(layer, p, (x,)), tracing_mode=mode)(parameters, x)
        assert "tartan.linear" in graph.code
        torch.testing.assert_close(graph(parameters, x), wanted)
    torch.testing.assert_close(torch.jit.trace(layer, x, check_trace=False)(x + 1), layer(x + 1))
    with torch.no_grad():
        traced = torch.jit.trace(layer, x)
    torch.testing.assert_close(traced(x + 1), layer(x + 1))
    graph = torch.fx.symbolic_trace(torch.nn.Sequential(layer, torch.nn.ReLU()))
    torch.testing.assert_close(graph(x), wanted.relu())
    assert layer.to("meta")(x.to("meta")).shape == (4, 37)
    # What was traced outlives the module.
    del layer
    torch.testing.assert_close(program.module()(x), wanted)


def test_layouts_of_another_process_are_refused():
    with pytest.raises(tartan.HandleError, match="layout is 123456789, expected the number of a layout of this process"):
        operators.linear(torch.ones(2, 4), torch.ones(1, 4, 4), 123456789, 4)


def test_functional_transforms():
    layer = ragged(torch.float64)
    x, parameters = torch.randn(6, 50, dtype=torch.float64), dict(layer.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    grads = torch.func.grad(loss)(parameters, x)
    layer(x).square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(grads[name], parameter.grad)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)  # per-sample gradients
    for name, parameter in parameters.items():
        torch.testing.assert_close(each[name].sum(0), parameter.grad)
    torch.testing.assert_close(torch.func.vmap(layer)(x), layer(x))
    torch.testing.assert_close(torch.func.vmap(layer, in_dims=1)(x.T.reshape(50, 6)), layer(x))
    torch.testing.assert_close(torch.func.vmap(lambda x: operators.linear(x, layer.values, layer._cell.number, 37))(x) + layer.bias, layer(x))
    stacked = {name: torch.stack([p, 2 * p]) for name, p in parameters.items()}  # an ensemble
    both = torch.func.vmap(lambda p: torch.func.functional_call(layer, p, (x,)))(stacked)
    torch.testing.assert_close(both, torch.stack([layer(x), 2 * layer(x)]))
    vector, tangent = torch.randn(50, dtype=torch.float64), torch.randn(50, dtype=torch.float64)
    _, pulled = torch.func.vjp(layer, vector)
    torch.testing.assert_close(pulled(torch.ones(37, dtype=torch.float64))[0], layer.to_dense().sum(0))
    torch.testing.assert_close(torch.func.jacrev(layer)(tangent), layer.to_dense())
    torch.testing.assert_close(torch.func.jacfwd(layer)(tangent), layer.to_dense())
    torch.testing.assert_close(torch.func.jvp(layer, (vector,), (tangent,))[1], layer.to_dense() @ tangent)
    dense = layer.to_linear()
    cubes = [torch.func.hessian(lambda x, m=m: m(x).pow(3).sum())(vector) for m in (layer, dense)]  # forward over reverse
    torch.testing.assert_close(*cubes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16])
def test_autocast_is_that_of_the_dense_layer(dtype, given, own):
    layer, x = ragged(own), torch.randn(4, 50).to(given)
    dense = layer.to_linear()
    with torch.autocast("cpu", dtype):
        if given == torch.float64:
            for module in (layer, dense):
                with pytest.raises((RuntimeError, tartan.TartanError)):
                    module(x)
            return
        y, wanted = layer(x), dense(x)
        assert y.dtype == wanted.dtype == dtype
        torch.testing.assert_close(y, wanted, rtol=2e-2, atol=2e-2)
        assert torch.equal(operators.linear(x, layer.values, layer._cell.number, 37) + layer.bias.to(dtype), y)
    y.float().sum().backward()
    assert layer.values.grad.dtype == own and layer.bias.grad.dtype == own


def test_autocast_after_a_norm():
    model = torch.nn.Sequential(torch.nn.LayerNorm(50), ragged(), torch.nn.GELU(), BlockSparseLinear(37, 8, density=1, block=8))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(3, 50)).float().square().mean()
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.parameters())


# ---- Making ----


def test_ways_to_choose_blocks():
    layout = tartan.Layout.pattern("banded", (37, 50), (8, 16))
    assert BlockSparseLinear(50, 37, layout=layout).layout == layout
    assert BlockSparseLinear(50, 37, pattern="banded", block=(8, 16)).layout == layout
    assert BlockSparseLinear(50, 37, pattern=("banded", {"lower": 0}), block=(8, 16)).layout.blocks < layout.blocks
    torch.manual_seed(1)
    a = BlockSparseLinear(256, 512, density=0.3, block=16)
    torch.manual_seed(1)
    b = BlockSparseLinear(256, 512, density=0.3, block=16)
    assert a.layout == b.layout and torch.equal(a.values, b.values) and a.layout.blocks == round(0.3 * 512)
    counts = a.layout.mask().sum(1), a.layout.mask().sum(0)
    assert np.ptp(counts[0]) <= 1 and np.ptp(counts[1]) <= 2
    assert BlockSparseLinear(32, 32, density=0, block=16).values.shape == (0, 16, 16)
    assert BlockSparseLinear(320, 320, density=0.0001, block=16).layout.blocks == 1
    for density in (0.0, 1.0):
        layer = BlockSparseLinear(32, 32, density=density, block=16)
        layer(torch.ones(2, 32)).sum().backward()
        assert layer.values.grad.shape == layer.values.shape


@pytest.mark.parametrize("options, words", [
    ({}, "nothing is given, expected one of layout, pattern and density"),
    ({"density": 0.5}, "block is None, expected the size of a block beside the density"),
    ({"density": 1.5, "block": 8}, r"density is 1.5, expected 0 \.\. 1"),
    ({"density": 0.5, "pattern": "dense", "block": 8}, "pattern and density is given"),
    ({"layout": tartan.Layout.pattern("dense", (32, 64), 8)}, r"layout has shape \(32, 64\), expected \(64, 32\)"),
    ({"layout": tartan.Layout.pattern("dense", (64, 32), 8), "block": 16}, r"block is 16, expected \(8, 8\)"),
    ({"layout": 7}, "layout is of type int, expected a Layout"),
    ({"layout": tartan.Layout.pattern("dense", (64, 32), 8, heads=2)}, "shape"),
])  # fmt: skip
def test_refused_choices(options, words):
    with pytest.raises(tartan.TartanError, match=words):
        BlockSparseLinear(32, 64, **options)


def test_refused_operands():
    layer = ragged()
    for x in (torch.ones(4, 49), torch.ones(()), torch.ones(50, 3)):
        with pytest.raises(tartan.ShapeError, match=r"x has shape .*, expected \[\.\.\., 50\]"):
            layer(x)
    with pytest.raises(tartan.DTypeError, match="x is of torch.float64, expected torch.float32, as the values are"):
        layer(torch.ones(4, 50, dtype=torch.float64))
    with pytest.raises(TypeError, match="x is of type ndarray, expected a tensor of PyTorch"):
        layer(np.ones((4, 50)))
    with pytest.raises(tartan.ArgumentError, match="expected torch.nn.Linear"):
        BlockSparseLinear.from_linear(torch.nn.Identity())
    with pytest.raises(tartan.ArgumentError, match="keep is 'best', expected 'largest', 'random' or a Layout"):
        BlockSparseLinear.from_linear(torch.nn.Linear(8, 8), 0.5, 4, keep="best")


def test_initial_values_have_the_variance_of_a_dense_layer():
    layout = tartan.Layout.from_mask(np.tril(np.ones((8, 8))), 32)  # rows of 32 to 256 stored elements
    layer = BlockSparseLinear(256, 256, layout=layout)
    y = (layer(torch.randn(4096, 256)) - layer.bias).detach()
    spread = y.view(4096, 8, 32).std((0, 2))
    torch.testing.assert_close(spread, torch.full((8,), 3**-0.5), rtol=0.06, atol=0)  # as nn.Linear's, 1 / sqrt(3)
    assert layer.bias.view(8, 32).abs().amax(1).le(1 / torch.arange(32, 257, 32).float().sqrt()).all()
    empty = BlockSparseLinear(32, 64, layout=tartan.Layout.from_mask([[1], [0]], 32))
    assert not empty.bias[32:].any() and empty.bias[:32].all()


def test_padding_is_zero():
    layer = BlockSparseLinear(50, 37, density=1, block=(8, 16))
    dense = layer.to_linear()
    again = BlockSparseLinear.from_linear(dense, keep=layer.layout)
    assert torch.equal(again.values, layer.values)
    layer(torch.randn(3, 50)).sum().backward()
    last = layer.layout.coordinates()[1] == layer.layout.grid[0] - 1
    assert not layer.values.grad[torch.from_numpy(last)][:, 37 % 8 :].any() and not layer.values[torch.from_numpy(last)][:, 5:].any()


def test_from_linear_keeps_the_largest():
    dense = torch.nn.Linear(64, 96)
    layer = BlockSparseLinear.from_linear(dense, 0.25, 16)
    norms = dense.weight.detach().view(6, 16, 4, 16).pow(2).sum((1, 3)).flatten()
    assert set(np.flatnonzero(layer.layout.mask())) == set(norms.topk(6).indices.tolist())
    mask = torch.from_numpy(layer.layout.mask()).repeat_interleave(16, 0).repeat_interleave(16, 1)
    assert torch.equal(layer.to_dense(), dense.weight * mask) and torch.equal(layer.bias, dense.bias)
    half = BlockSparseLinear.from_linear(torch.nn.Linear(64, 96, bias=False, dtype=torch.bfloat16), 0.5, 16, keep="random")
    assert half.values.dtype == torch.bfloat16 and half.bias is None and half.layout.blocks == 12
    frozen = torch.nn.Linear(64, 64).eval()
    frozen.weight.requires_grad_(False)
    layer = BlockSparseLinear.from_linear(frozen, 0.5, 16)
    assert not layer.values.requires_grad and layer.bias.requires_grad and not layer.training


# ---- Living ----


def test_frozen_weights():
    layer, x = ragged(), torch.randn(3, 50, requires_grad=True)
    layer.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.values.grad is None and layer.bias.grad is None
    torch.testing.assert_close(x.grad, layer.to_dense().sum(0).expand(3, 50))


def test_state_dicts_carry_the_layout():
    a, b = ragged(), ragged()
    assert a.layout != b.layout and a.layout.blocks == b.layout.blocks
    x, values = torch.randn(3, 50), b.values
    file = io.BytesIO()
    torch.save(a.state_dict(), file)
    file.seek(0)
    assert not b.load_state_dict(torch.load(file, weights_only=True)).missing_keys
    assert b.layout == a.layout and torch.equal(b(x), a(x)) and b.values is values
    more = BlockSparseLinear(50, 37, density=0.9, block=(8, 16))
    optimiser = torch.optim.SGD(b.parameters(), 0.1)
    b.load_state_dict(more.state_dict())
    assert b.values is values and optimiser.param_groups[0]["params"][0] is values and torch.equal(b(x), more(x))
    b(x).sum().backward()
    optimiser.step()
    inside = torch.nn.Sequential(ragged(), torch.nn.ReLU())
    inside.load_state_dict({"0." + name: x for name, x in a.state_dict().items()}, assign=True)
    assert torch.equal(inside[0](x), a(x))


def test_state_dicts_that_are_refused():
    a, b = ragged(), ragged()
    before, layout = b.values.detach().clone(), b.layout
    state = a.state_dict()
    alone = {name: x for name, x in state.items() if name != "_extra_state"}
    for strict in (True, False):
        with pytest.raises(RuntimeError, match="values alone may belong to other blocks"):
            b.load_state_dict(alone, strict=strict)
    with pytest.raises(RuntimeError, match=r"layout is \(37, 50\) in blocks of \(8, 16\), expected \(37, 50\) in blocks of \(8, 8\)"):
        BlockSparseLinear(50, 37, density=0.5, block=8).load_state_dict(state)
    for wrong in (torch.zeros(3), torch.tensor([9, 1, 37, 50, 8, 16]), torch.tensor([1, 1, 37, 50, 8, 0]), "text",
                  state["_extra_state"][:-1]):  # fmt: skip
        with pytest.raises(RuntimeError, match="_extra_state"):
            b.load_state_dict({**state, "_extra_state": wrong})
    with pytest.raises(RuntimeError, match="size mismatch for values"):
        b.load_state_dict({**state, "values": state["values"][1:]})
    assert b.values.shape == before.shape
    b.set_layout(layout, before)
    with pytest.raises(tartan.ShapeError, match="values has shape"):
        b.set_layout(layout, before[1:])


def test_copies():
    layer, x = ragged(), torch.randn(3, 50)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
        assert torch.equal(again(x), layer(x)) and again.layout == layer.layout
        assert again._cell.number != layer._cell.number
        assert torch.equal(torch.compile(again, fullgraph=True, backend="eager")(x), layer(x))
        with torch.no_grad():
            again.values.zero_()
        assert not torch.equal(again(x), layer(x))


def test_pickles_travel():
    """To a process that has not imported tartan."""
    layer = ragged()
    code = "import pickle, sys, torch; m = pickle.load(sys.stdin.buffer); print(float(m(torch.ones(50)).sum()))"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(layer), capture_output=True, check=True)
    assert float(done.stdout) == pytest.approx(float(layer(torch.ones(50)).sum()), rel=1e-5)


def test_dtypes_and_devices():
    layer, x = ragged(), torch.randn(3, 50)
    before = layer(x)
    layer(x)
    assert layer.double()(x.double()).dtype == torch.float64
    torch.testing.assert_close(layer(x.double()).float(), before)
    assert layer.half()(x.half()).dtype == torch.float16 and layer.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    meta = BlockSparseLinear(50, 37, density=0.4, block=8, device="meta")
    assert meta(torch.ones(2, 50, device="meta")).shape == (2, 37)
    with torch.device("meta"):
        inside = BlockSparseLinear(50, 37, density=0.3, block=8)
    assert inside.values.device.type == inside._tag.device.type == "meta"
    there = meta.to_empty(device="cpu")
    there.reset_parameters()
    assert torch.isfinite(there(x)).all()


def test_values_that_change():
    layer, x = ragged(), torch.randn(3, 50)
    with torch.no_grad():
        for change in (lambda: layer.values.mul_(2), lambda: setattr(layer.values, "data", layer.values * 3),
                       lambda: setattr(layer, "values", torch.nn.Parameter(layer.values + 1)),
                       lambda: setattr(layer.values, "data", layer.values.mT.contiguous().mT),
                       lambda: layer.values.add_(1)):  # fmt: skip
            layer(x)
            change()
            layer._clear_padding()
            torch.testing.assert_close(layer(x), layer.to_linear()(x))


def test_checkpointing_and_accumulation():
    layer, x = ragged(torch.float64), torch.randn(8, 50, dtype=torch.float64)
    layer(x).square().sum().backward()
    wanted = [p.grad.clone() for p in layer.parameters()]
    for reentrant in (True, False):
        layer.zero_grad()
        given = x.clone().requires_grad_()
        torch.utils.checkpoint.checkpoint(layer, given, use_reentrant=reentrant).square().sum().backward()
        for parameter, grad in zip(layer.parameters(), wanted):
            torch.testing.assert_close(parameter.grad, grad)
    layer.zero_grad()
    for part in x.split(2):
        layer(part).square().sum().backward()
    for parameter, grad in zip(layer.parameters(), wanted):
        torch.testing.assert_close(parameter.grad, grad)


def test_changes_between_forward_and_backward_are_refused():
    layer, x = ragged(), torch.randn(3, 50, requires_grad=True)
    y = layer(x)
    moved, _ = layer.layout.move([0], *[[int(n)] for n in np.argwhere(~layer.layout.mask())[0]])
    layer.set_layout(moved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_training_equals_the_dense_layer_with_a_mask():
    layer = ragged(torch.float64)
    dense, mask = layer.to_linear(), (layer.to_dense() != 0).double()
    pair = [(m, torch.optim.AdamW(m.parameters(), 0.01)) for m in (layer, dense)]
    for _ in range(40):
        x = torch.randn(16, 50, dtype=torch.float64)
        for module, optimiser in pair:
            optimiser.zero_grad()
            module(x).square().sum().backward()
            if module is dense:
                dense.weight.grad *= mask
            optimiser.step()
    torch.testing.assert_close(layer.to_dense(), dense.weight.detach())
    torch.testing.assert_close(layer.bias, dense.bias)


def test_import_without_torch():
    code = "import sys; sys.modules['torch'] = None\nimport tartan\ntry: tartan.torch\nexcept ImportError: print('refused')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "refused\n"
    lazily = "import tartan; print(tartan.torch.BlockSparseLinear.__name__)"
    assert "BlockSparseLinear" in subprocess.run([sys.executable, "-c", lazily], capture_output=True, text=True, check=True).stdout
    with pytest.raises(AttributeError):
        tartan.nothing


WORKER = """
import sys, torch, torch.distributed as dist
from tartan.torch import BlockSparseLinear
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
torch.manual_seed(5)
model = torch.nn.Sequential(BlockSparseLinear(32, 64, density=0.5, block=8), torch.nn.GELU(), BlockSparseLinear(64, 16, density=0.5, block=8))
x = torch.randn(8, 32)
model(x).square().mean().backward()
wanted = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
both = torch.nn.parallel.DistributedDataParallel(model)
both(x[4 * rank : 4 * rank + 4]).square().mean().backward()
for p, grad in zip(model.parameters(), wanted):
    torch.testing.assert_close(p.grad, grad)
dist.destroy_process_group()
print("equal")
"""


def test_distributed_data_parallel():
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    run_two_ranks(WORKER)
