# SPDX-License-Identifier: Apache-2.0
"""Gradients of products that PyTorch records, against its dense products."""

import numpy as np
import pytest
from conftest import EPS, random_layout

import tartan
from tartan import BlockMatrix, Layout, spmm

torch = pytest.importorskip("torch")
SHAPES = {"vector": (), "matrix": (5,), "batch": (2, 3, 5)}


def dense_of(layout, values):
    """The dense matrix as a function of the values that PyTorch differentiates."""
    places = BlockMatrix(layout, np.arange(1.0, values.numel() + 1).reshape(values.shape))
    return torch.cat((values.new_zeros(1), values.reshape(-1)))[torch.from_numpy(places.toarray()).long()]


def leaf(rng, shape, dtype="float64"):
    return torch.from_numpy(rng.standard_normal(shape)).to(getattr(torch, dtype)).requires_grad_()


def factor(rng, layout, side, transpose, kind, dtype="float64", heads=()):
    length = layout.shape[-2:][(side == "left") != transpose]
    if kind == "vector":
        return leaf(rng, (*heads, length), dtype)
    batch, other = SHAPES[kind][:-1], SHAPES[kind][-1]
    return leaf(rng, (*batch, *heads, length, other) if side == "left" else (*batch, *heads, other, length), dtype)


def product(dense, x, side, transpose):
    dense = dense.mT if transpose else dense
    return dense @ x if side == "left" else x @ dense


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_equals_dense_products(rng, side, transpose, kind, dtype):
    layout = random_layout(rng, (22, 30), (8, 4), 0.5)  # ragged at both edges
    values, x = leaf(rng, (layout.blocks, 8, 4), dtype), factor(rng, layout, side, transpose, kind, dtype)
    y = spmm(layout, x, values=values, side=side, transpose=transpose, alpha=0.5)
    twins = [t.detach().double().requires_grad_() for t in (x, values)]
    wanted = 0.5 * product(dense_of(layout, twins[1]), twins[0], side, transpose)
    assert y.dtype == x.dtype and y.shape == wanted.shape and y.grad_fn is not None
    weight = torch.randn_like(wanted).to(y.dtype)
    ours = torch.autograd.grad((y * weight).sum(), (x, values))
    theirs = torch.autograd.grad((wanted * weight.double()).sum(), twins)
    for our, their in zip((y, *ours), (wanted, *theirs)):
        assert our.shape == their.shape and (our.double() - their).abs().max() < 40 * EPS[dtype] * their.abs().max()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("gated", [False, True])
def test_second_derivatives(rng, side, transpose, kind, gated):
    layout = random_layout(rng, (6, 9), (2, 4), 0.6, heads=2)
    values, x = leaf(rng, (layout.blocks, 2, 4)), factor(rng, layout, side, transpose, kind, heads=(2,) if kind == "batch" else ())
    gates = (leaf(rng, layout.blocks),) if gated else ()

    def product(x, values, *gates):
        return spmm(layout, x, values=values, side=side, transpose=transpose, alpha=0.5, gates=gates[0] if gates else None)

    assert torch.autograd.gradgradcheck(product, (x, values, *gates))


def test_second_derivatives_of_gates_want_values(rng):
    layout = random_layout(rng, (6, 9), (2, 4), 0.6)
    gates, x = leaf(rng, layout.blocks), leaf(rng, (9, 3))
    y = spmm(BlockMatrix.zeros(layout, "float64").fill_normal(seed=1), x, gates=gates)
    with pytest.raises(tartan.UnsupportedError, match="expected a layout and values"):
        torch.autograd.grad(y.sum(), (x, gates), create_graph=True)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_gradients_of_all_inputs(rng, side, transpose, gated):
    layout = random_layout(rng, (6, 9), (2, 4), 0.6)
    x, values = factor(rng, layout, side, transpose, "batch"), leaf(rng, (layout.blocks, 2, 4))

    def run(x, values, gates):
        return spmm(layout, x, values=values, gates=gates, side=side, transpose=transpose, alpha=1.5)

    gates = leaf(rng, layout.blocks) if gated else None
    assert torch.autograd.gradcheck(run, (x, values, gates))
    fixed = torch.rand(layout.blocks, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, values: run(x, values, fixed.numpy()), (x, values))
    assert torch.autograd.gradcheck(lambda gates: run(x.detach(), values.detach(), gates), (fixed.requires_grad_(),))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("kind", "heads"), [("vector", ()), ("matrix", ()), ("matrix", (3,)), ("batch", (3,))])
def test_heads(rng, side, kind, heads):
    """A vector and a matrix without heads are those of all heads."""
    layout = Layout.from_mask(rng.random((3, 2, 3)) < 0.6, 4)
    values, x = leaf(rng, (layout.blocks, 4, 4)), factor(rng, layout, side, False, kind, heads=heads)
    y = spmm(layout, x, values=values, side=side)
    wanted = product(dense_of(layout, values), x, side, False)
    assert torch.allclose(y, wanted)
    weight = torch.randn_like(y)
    for our, their in zip(torch.autograd.grad((y * weight).sum(), (x, values)),
                          torch.autograd.grad((wanted * weight).sum(), (x, values))):  # fmt: skip
        assert torch.allclose(our, their)


def test_operators(rng):
    layout = random_layout(rng, (12, 8), 4, 0.6)
    w, x, y = BlockMatrix(layout, rng.standard_normal((layout.blocks, 4, 4))), leaf(rng, (8, 3)), leaf(rng, (3, 12))
    dense = torch.from_numpy(w.toarray())
    for ours, theirs in ((w @ x, dense @ x), (y @ w, y @ dense), (w.T @ y.T, dense.T @ y.T), (x.T @ w.T, x.T @ dense.T),
                         (w @ (w.T @ y.T), dense @ (dense.T @ y.T)), (spmm(w, x, gates=np.zeros(w.blocks)), dense @ (0 * x))):  # fmt: skip
        assert ours.grad_fn is not None and torch.allclose(ours, theirs)
        leaves = [t for t in (x, y) if torch.autograd.grad(theirs.sum(), t, retain_graph=True, allow_unused=True)[0] is not None]
        for our, their in zip(torch.autograd.grad(ours.sum(), leaves), torch.autograd.grad(theirs.sum(), leaves)):
            assert torch.allclose(our, their)
    assert (w @ x.detach()).grad_fn is None
    with torch.no_grad():
        assert (w @ x).grad_fn is None


def test_a_layer_is_trained(rng):
    """Values as a Parameter: the steps are those of the dense layer whose other elements stay zero."""
    layout = random_layout(rng, (16, 16), 4, 0.5)
    values = torch.nn.Parameter(torch.from_numpy(rng.standard_normal((layout.blocks, 4, 4))))
    dense, mask = dense_of(layout, values).detach().requires_grad_(), dense_of(layout, torch.ones_like(values))
    x, wanted = torch.randn(16, 8, dtype=torch.float64), torch.randn(16, 8, dtype=torch.float64)
    for _ in range(3):
        loss = (spmm(layout, x, values=values) - wanted).square().mean()
        (grad,) = torch.autograd.grad(loss, values)
        theirs = (dense @ x - wanted).square().mean()
        (dense_grad,) = torch.autograd.grad(theirs, dense)
        assert torch.allclose(loss, theirs)
        with torch.no_grad():
            values -= 0.1 * grad
            dense -= 0.1 * dense_grad * mask
    assert torch.allclose(dense_of(layout, values), dense)


def test_refusals(rng):
    layout = random_layout(rng, (8, 8), 4, 1.0)
    w, x, values = BlockMatrix.zeros(layout), leaf(rng, (8, 3)), leaf(rng, (layout.blocks, 4, 4))
    for error, text, call in (
        (tartan.ArgumentTypeError, "a is of type BlockMatrix, expected a Layout", lambda: spmm(w, x, values=values)),
        (tartan.ArgumentTypeError, "b is of type ndarray, expected a tensor", lambda: spmm(layout, np.ones(8), values=values)),
        (tartan.ArgumentTypeError, "values is of type ndarray, expected a tensor", lambda: spmm(layout, x, values=np.zeros((4, 4, 4)))),
        (tartan.ArgumentError, "beta is", lambda: spmm(layout, x, values=values, beta=1.0)),
        (tartan.ArgumentError, "out is given", lambda: spmm(layout, x, values=values, out=torch.zeros(8, 3))),
        (tartan.ShapeError, "values", lambda: spmm(layout, x, values=values[1:])),
        (tartan.ShapeError, "b has shape", lambda: w @ leaf(rng, (7, 3))),
        (tartan.DTypeError, "b is of float32, expected float64", lambda: w @ leaf(rng, (8, 3), "float32")),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            call()
    y = spmm(layout, x, values=values)
    with torch.no_grad():
        values += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    context = tartan.Context("cpu")
    changing = Layout.from_device_mask(np.ones((2, 2)), 4, context=context)
    y = spmm(changing, x, values=torch.ones(4, 4, 4, dtype=torch.float64).requires_grad_(), context=context)
    changing.update(np.eye(2))
    with pytest.raises(tartan.ArgumentError, match="layout has been updated since the forward pass"):
        y.sum().backward()


def test_explained(rng):
    w, x = BlockMatrix.zeros(random_layout(rng, (8, 8), 4, 0.5)), leaf(rng, (8, 3))
    (plan,) = tartan.explain(lambda: w @ x)
    assert plan["operation"] == "spmm"


@pytest.mark.parametrize("records", [False, True])
def test_tensors_that_outlived_a_transform(rng, records):
    w, x, seen = BlockMatrix.zeros(random_layout(rng, (8, 8), 4, 0.5)).fill_normal(), leaf(rng, (8, 3)).requires_grad_(records), []
    torch.func.grad(lambda y: seen.append(y) or y.sum())(x)
    out = w @ seen[0]
    assert torch.equal(out, w @ x) and out.requires_grad == records
    if records:
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.autograd.grad((w @ x).sum(), x)[0])
