# SPDX-License-Identifier: Apache-2.0
"""tartan.torch.linear_cross_entropy beside PyTorch's product and loss."""

import pytest

torch = pytest.importorskip("torch")

import tartan.torch as modules
from tartan import ArgumentError, ArgumentTypeError, DTypeError, ShapeError

DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def problem(dtype, shape=(7,), features=12, classes=40):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, features, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(classes, features, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(0, classes, shape, generator=generator)
    labels.view(-1)[0] = -100
    return x, weight, labels


def theirs(x, weight, labels, **options):
    logits = x @ weight.mT
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).to(torch.float64), labels.reshape(-1), **options)


def close(ours, expected, dtype):
    bound = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 3e-2}[dtype]
    assert (ours.double() - expected.double()).abs().max() <= bound * expected.double().abs().max().clamp(min=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lines", (None, 1, 3))
@pytest.mark.parametrize("options", ({}, {"reduction": "sum", "label_smoothing": 0.1}))
def test_it_is_pytorchs_loss_of_the_product(dtype, lines, options):
    x, weight, labels = problem(dtype, (2, 5))
    loss = modules.linear_cross_entropy(x, weight, labels, lines=lines, **options)
    expected = theirs(x, weight, labels, **options)
    close(loss, expected, dtype)
    for got, want in zip(torch.autograd.grad(3 * loss, (x, weight)), torch.autograd.grad(3 * expected, (x, weight))):
        assert got.dtype == dtype
        close(got, want, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_sparse_layer(dtype):
    x, weight, labels = problem(dtype)
    layer = modules.BlockSparseLinear.from_weight(weight.detach(), density=0.5, block=(8, 4)).requires_grad_()
    loss = modules.linear_cross_entropy(x, layer, labels, lines=2)
    expected = theirs(x, layer.to_dense(), labels)
    close(loss, expected, dtype)
    for got, want in zip(torch.autograd.grad(loss, (x, layer.values)), torch.autograd.grad(expected, (x, layer.values))):
        close(got, want, dtype)


def test_only_what_is_wanted_is_computed():
    x, weight, labels = problem(torch.float32)
    loss = modules.linear_cross_entropy(x, weight.detach(), labels)
    close(torch.autograd.grad(loss, x)[0], torch.autograd.grad(theirs(x, weight, labels), x)[0], torch.float32)
    with torch.no_grad():
        assert not modules.linear_cross_entropy(x, weight, labels).requires_grad


def test_autocast_computes_in_its_dtype_and_keeps_that_of_parameters():
    x, weight, labels = problem(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = modules.linear_cross_entropy(x, weight, labels)
    assert loss.dtype == torch.float32
    grads = torch.autograd.grad(loss, (x, weight))
    for got, want in zip(grads, torch.autograd.grad(theirs(x, weight, labels), (x, weight))):
        assert got.dtype == torch.float32
        close(got, want, torch.bfloat16)


def test_the_operator_passes_pytorchs_own_checks_and_compiles():
    x, weight, labels = problem(torch.float32)
    factors = torch.full((7,), 0.5)
    arguments = (x, weight, labels, factors, 3, 0.1, -100, -1, True, True)
    torch.library.opcheck(torch.ops.tartan.sum_of_cross_entropy.default, arguments)
    compiled = torch.compile(lambda *given: modules.linear_cross_entropy(*given, lines=3), fullgraph=True, backend="aot_eager")
    close(compiled(x, weight, labels), theirs(x, weight, labels), torch.float32)


def test_no_lines_and_lines_that_all_are_left_out():
    x, weight, labels = problem(torch.float32)
    assert torch.isnan(modules.linear_cross_entropy(x, weight, torch.full_like(labels, -100)))
    total = modules.linear_cross_entropy(x[:0], weight, labels[:0], reduction="sum")
    assert total == 0
    assert (torch.autograd.grad(total, weight)[0] == 0).all()


def test_refusals():
    x, weight, labels = problem(torch.float32)
    layer = modules.BlockSparseLinear(12, 40, density=0.5, block=4)
    for error, text, arguments, options in (
        (ArgumentError, "bias", (x, layer, labels), {}),
        (ArgumentTypeError, "weight is list", (x, [1], labels), {}),
        (ArgumentError, "reduction is 'none'", (x, weight, labels), {"reduction": "none"}),
        (ShapeError, r"labels has shape \(6,\)", (x, weight, labels[:6]), {}),
        (ShapeError, "expected", (x[:, :4], weight, labels), {}),
        (DTypeError, "float64", (x.double(), weight, labels), {}),
        (ArgumentError, "lines is 0", (x, weight, labels), {"lines": 0}),
        (ArgumentError, "labels", (x, weight, labels + 100), {}),
    ):
        with pytest.raises(error, match=text):
            modules.linear_cross_entropy(*arguments, **options)
