# SPDX-License-Identifier: Apache-2.0
"""What users of PyTorch expect of calls on tensors: autocast, modules in bfloat16, random numbers, the current device."""

import subprocess
import sys
import types

import numpy as np
import pytest

import tartan
from tartan import BlockConv, BlockMatrix, Layout, attention, spmm

torch = pytest.importorskip("torch")
import tartan.torch  # noqa: E402
LAYOUT = Layout.pattern("dense", (8, 8), 4)


def test_autocast_of_products():
    values, x = torch.randn(4, 4, 4, requires_grad=True), torch.randn(8, 3, requires_grad=True)
    w = BlockMatrix(LAYOUT, values.detach())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.nn.functional.linear(x.mT, torch.ones(8, 8)).dtype == torch.bfloat16
        for v in (values, values.bfloat16()):
            for b in (x, x.bfloat16()):
                y = spmm(LAYOUT, b, values=v)
                assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
        assert values.grad.dtype == x.grad.dtype == torch.float32
        assert spmm(LAYOUT, x.double(), values=values.double()).dtype == torch.float64
        assert (w @ x.bfloat16()).dtype == (w @ x.detach().bfloat16()).dtype == torch.float32  # a matrix keeps its dtype
        assert (w.astype("float16") @ x.detach()).dtype == torch.float16
    with pytest.raises(tartan.DTypeError, match="b is of bfloat16, expected float32"):
        w @ x.detach().bfloat16()


def test_autocast_of_attention_and_convolutions():
    layout = Layout.pattern("local", (32, 32), 8, window=1)
    q = torch.randn(1, 2, 32, 8, requires_grad=True)
    conv = BlockConv(LAYOUT, (3, 3), padding=1)
    x = torch.randn(1, 8, 5, 5, requires_grad=True)
    values = torch.randn(conv.layout.blocks, 4, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        for out in (attention(q, q.bfloat16(), q, layout), attention(q.detach(), q.detach(), q.detach(), layout)):
            assert out.dtype == torch.bfloat16
        y = conv(x, values, bias=torch.zeros(8))
        assert y.dtype == torch.bfloat16 == torch.nn.functional.conv2d(x, torch.ones(8, 8, 3, 3)).dtype
        (y.float().sum() + attention(q, q, q, layout).float().sum()).backward()
    assert x.grad.dtype == values.grad.dtype == q.grad.dtype == torch.float32


@pytest.mark.parametrize("records", [False, True])
def test_modules_in_16_bits(records):
    """Gains and biases of sums are converted, as module.bfloat16() makes them."""
    conv = BlockConv(LAYOUT, (3, 3), padding=1)
    module = torch.nn.ParameterDict({
        "filter": torch.randn(conv.layout.blocks, 4, 4), "bias": torch.randn(8), "gain": torch.randn(8)
    }).bfloat16().requires_grad_(records)  # fmt: skip
    x = torch.randn(1, 8, 5, 5).bfloat16()
    y = conv(x, module["filter"], gain=module["gain"], bias=module["bias"])
    wide = conv(x.float(), module["filter"].detach().float(), gain=module["gain"].detach().float(), bias=module["bias"].detach().float())
    assert y.dtype == torch.bfloat16 and torch.allclose(y.float(), wide, rtol=0.02, atol=0.02)
    z = tartan.layer_norm(x, gain=torch.ones(5).bfloat16().requires_grad_(records), bias=module["bias"][:5])
    assert z.dtype == torch.bfloat16
    if records:
        (y.float().sum() + z.float().square().sum()).backward()
        assert all(p.grad.dtype == torch.bfloat16 for p in module.values())


def test_random_numbers_of_pytorchs_generator():
    layout = Layout.pattern("dense", (16, 16), 8)
    q, x = torch.randn(1, 1, 16, 8), torch.ones(64)
    calls = (lambda: attention(q, q, q, layout, dropout=0.5), lambda: tartan.dropout(x), lambda: tartan.concrete_gate(x))
    for call in calls:
        torch.manual_seed(1)
        first, second = call(), call()
        assert not torch.equal(first, second)
        torch.manual_seed(1)
        assert torch.equal(first, call())
    for function in (tartan.dropout, tartan.concrete_gate):  # of NumPy, and with a seed, as ever
        assert np.array_equal(function(x.numpy()), function(x.numpy(), seed=0))
        assert torch.equal(function(x, seed=3), function(x, seed=3))
    y, z = torch.empty(2, 8)
    tartan.random_normal(y)
    tartan.random_normal(z)
    assert not torch.equal(y, z)
    leaf = x.clone().requires_grad_()
    drawing = (lambda x: tartan.dropout(x), lambda x: tartan.concrete_gate(x))
    compiled = [torch.compile(f, fullgraph=True, backend="aot_eager") for f in drawing]
    for call in (tartan.dropout, *compiled):
        torch.manual_seed(1)
        first, second = call(leaf), call(leaf)
        assert not torch.equal(first, second)
        torch.manual_seed(1)
        assert torch.equal(first, call(leaf))
    for call in (tartan.dropout, compiled[0]):
        out = call(leaf)
        assert torch.equal(torch.autograd.grad(out.sum(), leaf)[0], out.detach())  # the same numbers backward
    fixed = torch.compile(lambda x: tartan.dropout(x, seed=3), fullgraph=True, backend="aot_eager")
    assert torch.equal(fixed(x), tartan.dropout(x, seed=3))


def test_functions_that_are_compiled_themselves():
    """torch.compile(tartan.gelu), where no function of the user's calls it."""
    layout = Layout.pattern("dense", (16, 16), 8)
    conv = tartan.BlockConv(layout, (3,), padding="same")
    x, q, values = torch.randn(16, 4, requires_grad=True), torch.randn(1, 2, 16, 8), torch.randn(4, 8, 8)
    cases = (
        (tartan.gelu, (x,), {}), (tartan.layer_norm, (x,), {"gain": torch.rand(4)}), (tartan.add, (x, x), {}), (tartan.dropout, (x,), {}),
        (tartan.dropout, (x,), {"dropout": 0.25}), (tartan.spmm, (layout, x), {"values": values}), (attention, (q, q, q, layout), {"causal": True}),
        (conv, (torch.randn(1, 16, 5), torch.randn(conv.layout.blocks, 8, 8)), {}),
    )  # fmt: skip
    for function, given, options in cases:
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        results = []
        for call in (function, compiled, function):
            torch.manual_seed(1)
            results.append(call(*given, **options))
        assert torch.equal(results[0], results[2])  # what is compiled is a copy
        assert torch.allclose(results[0], results[1], rtol=1e-5, atol=1e-6), function
        if results[0].requires_grad:
            ours, theirs = (torch.autograd.grad(y.square().sum(), x)[0] for y in results[:2])
            assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5), function


def test_the_current_gpu(monkeypatch):
    """Arrays go to the device of a process of torchrun, which torch.cuda.set_device names."""
    from tartan import _call

    asked = []

    def default_context(device):
        asked.append(device)
        raise tartan.UnsupportedError("no GPU")

    monkeypatch.setattr(_call, "default_context", default_context)
    for initialized in (True, False):
        cuda = types.SimpleNamespace(is_initialized=lambda: initialized, current_device=lambda: 3)  # noqa: B023
        monkeypatch.setitem(__import__("sys").modules, "torch", types.SimpleNamespace(cuda=cuda))
        with pytest.raises(tartan.UnsupportedError, match="no GPU"):
            tartan.to_device(np.ones(3))
    assert asked == ["cuda:3", "cuda"]


def test_second_derivatives_of_the_last_layer_are_refused():
    from tartan.torch import linear_cross_entropy

    x, weight, labels = torch.randn(6, 8, requires_grad=True), torch.randn(5, 8, requires_grad=True), torch.arange(6) % 5
    with pytest.raises(tartan.UnsupportedError, match="linear_cross_entropy: its gradient is to be differentiated again"):
        torch.autograd.grad(linear_cross_entropy(x, weight, labels), x, create_graph=True)


def test_checkpoints_with_objects(tmp_path):
    """torch.load reads them as it reads tensors, without running code of the file."""
    layout = Layout.from_mask([[1, 0], [1, 1]], 4)
    ragged = Layout.from_coordinates((5, 9), (4, 3), [0, 1], [2, 1])
    objects = {
        "layout": layout, "ragged": ragged, "pattern": Layout.pattern("banded", (64, 64), 8, lower=1, upper=0),
        "mask": tartan.BlockMask.from_rule(layout, lambda q, k, head: q >= k), "conv": BlockConv(LAYOUT, (3, 3), padding=1),
        **{kind: BlockMatrix.zeros(layout, kind, order="F").fill_normal(seed=1) for kind in ("float64", "float16", "bfloat16")},
    }  # fmt: skip
    objects["turned"] = objects["float64"].T
    torch.save({**objects, "weight": torch.ones(2)}, tmp_path / "objects.pt")
    found = torch.load(tmp_path / "objects.pt", weights_only=True)
    assert all(found[name] == objects[name] for name in ("layout", "ragged", "pattern"))
    assert found["pattern"].recipe == objects["pattern"].recipe and found["conv"].options == objects["conv"].options
    assert np.array_equal(found["mask"].bits(), objects["mask"].bits())
    for name in ("float64", "float16", "bfloat16", "turned"):
        assert found[name].order == objects[name].order and found[name].dtype_name == objects[name].dtype_name
        assert np.array_equal(found[name].toarray().astype(float), objects[name].toarray().astype(float))
    found["float64"].fill_zero()  # what is read can be written


@pytest.mark.parametrize("records", [False, True])
def test_meta_tensors(records):
    """Shapes of results and of gradients, without memory."""
    conv, square = BlockConv(LAYOUT, (3, 3), padding=1), Layout.pattern("dense", (8, 8), 4)
    w = BlockMatrix.zeros(LAYOUT, "float32")
    calls = {
        "values": (lambda x, v: spmm(LAYOUT, x, values=v), (8, 3), (4, 4, 4)),
        "matrix": (lambda x: w @ x, (8, 3)),
        "conv": (lambda x, v, b: conv(x, v, bias=b), (2, 8, 5, 5), (conv.layout.blocks, 4, 4), (8,)),
        "attention": (lambda q: attention(q, q, q, square), (1, 1, 8, 4)),
    }
    for function, *shapes in calls.values():
        given = [torch.empty(shape, requires_grad=records) for shape in shapes]
        meta = [x.to("meta").detach().requires_grad_(records) for x in given]
        out = function(*meta)
        assert out.is_meta and out.shape == function(*given).shape
        if records:
            assert all(x.is_meta and x.shape == y.shape for x, y in zip(torch.autograd.grad(out.sum(), meta), meta))


PROGRAM = '''
import torch
import tartan
from tartan.torch import BlockSparseConv2d, BlockSparseLinear, Sparsifier, linear_cross_entropy, patch_model

class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = BlockSparseLinear(64, 128, density=0.5, block=16)
        self.conv = BlockSparseConv2d(16, 16, 3, density=0.5, block=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = tartan.gelu(self.first(x))
        return y

model = Model()
print(patch_model(model, density=0.5, block=16))
sparsifier = Sparsifier(model, torch.optim.AdamW(model.parameters()), density=0.25, end=40)
linear_cross_entropy(torch.randn(4, 32), torch.randn(10, 32), torch.arange(4)).backward()
sparsifier.step()
layer = model.first
layer.set_layout(tartan.Layout.pattern("random", (128, 64), 16, density=0.5))
rows: int = layer.to_linear().out_features + model.conv.to_conv2d().out_channels + layer.layout.rows
product: torch.Tensor = tartan.spmm(layer.layout, torch.randn(64, 3), values=layer.values)
reveal_type(layer.values)
reveal_type(layer.weight)
reveal_type(layer.to_linear())
reveal_type(model.conv.to_dense())
'''


def test_types_of_a_program(tmp_path):
    """What mypy knows of modules, beside PyTorch's own types."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir=/dev/null", "program.py"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout
    found = [line.split('"')[1] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert [name.rpartition(".")[2] for name in found] == ["Parameter", "Tensor", "Linear", "Tensor"]
