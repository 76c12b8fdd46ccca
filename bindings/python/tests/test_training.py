# SPDX-License-Identifier: Apache-2.0
"""Operations of training beside PyTorch's, and the random numbers that every language has."""

import numpy as np
import pytest

import tartan

torch = pytest.importorskip("torch")
F = torch.nn.functional


def equal(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def with_gradients(f, *inputs):
    """The results of f, and the gradients of a fixed linear function of them."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    results = f(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    sum(((y * torch.arange(1, y.numel() + 1, dtype=y.dtype).reshape(y.shape).sin()).sum() for y in results)).backward()
    return [y.detach() for y in results] + [x.grad for x in inputs]


def same(ours, theirs, *inputs):
    for found, wanted in zip(with_gradients(ours, *inputs), with_gradients(theirs, *inputs)):
        equal(found, wanted)


@pytest.fixture
def normal():
    torch.manual_seed(3)
    return lambda *shape: torch.randn(*shape, dtype=torch.float64)


def test_activations_and_gated_products(normal):
    x, a, b, bias = normal(7, 10), normal(7, 10), normal(7, 10), normal(10)
    same(tartan.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), x)
    same(lambda x: tartan.swish(x, alpha=1.702), lambda x: x * torch.sigmoid(1.702 * x), x)
    same(lambda x: tartan.scale(x, factor=-2.5), lambda x: -2.5 * x, x)
    same(tartan.glu, lambda a, b: F.glu(torch.cat([a, b], -1)), a, b)
    same(tartan.reglu, lambda a, b: a * F.relu(b), a, b)
    same(tartan.swiglu, lambda a, b: a * F.silu(b), a, b)
    same(tartan.geglu, lambda a, b: a * F.gelu(b), a, b)
    same(tartan.add_relu, lambda a, b: F.relu(a + b), a, bias)
    same(tartan.add_silu, lambda a, b: F.silu(a + b), a, bias)
    same(tartan.add_gelu, lambda a, b: F.gelu(a + b), a, bias)


def test_a_filter_has_the_same_settings_for_its_gradient():
    x = torch.tensor([1.0, float("inf"), float("nan"), -9.0, 3.0], requires_grad=True)
    y = tartan.filter_tensor(x, scale=2, saturate=8, zero_infs=True, zero_nans=True)
    assert y.tolist() == [2, 0, 0, -8, 6]
    y.backward(torch.tensor([float("nan"), 1.0, float("-inf"), 5.0, -3.0]))
    assert x.grad.tolist() == [0, 2, 0, 8, -6]


def test_lstm_gates_are_the_cell_of_pytorch(normal):
    n, m, batch = 5, 3, 4
    cell = torch.nn.LSTMCell(m, n, dtype=torch.float64)  # gates in the order i, f, g, o
    order = [0, 2, 1, 3]
    w = torch.cat([cell.weight_ih, cell.weight_hh], 1).detach().reshape(4, n, m + n)[order]
    bias = (cell.bias_ih + cell.bias_hh).detach().reshape(4, n)[order].clone()
    x, h, c = normal(batch, m), normal(batch, n), normal(batch, n)

    def ours(x, h, c):
        gates = torch.einsum("bk,gnk->bgn", torch.cat([x, h], 1), w)
        return tartan.lstm_gates(c, gates, bias=bias, forget_bias=0)

    def theirs(x, h, c):
        h, c = cell(x, (h, c))
        return c, h

    same(ours, theirs, x, h, c)
    # The gradient of the bias, and gates that are views of another order of dimensions.
    gates = normal(4, batch, n)
    [grad] = with_gradients(lambda b: tartan.lstm_gates(c, gates.permute(1, 0, 2), bias=b)[1], bias)[1:]
    [wanted] = with_gradients(lambda b: tartan.lstm_gates(c, gates.permute(1, 0, 2) + b)[1], bias)[1:]
    equal(grad, wanted)


def test_batch_norm(normal):
    x, gain, bias = 3 + 2 * normal(4, 5, 6, 2), normal(5), normal(5)
    same(lambda x, g, b: tartan.batch_norm(x, gain=g, bias=b), lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True), x, gain, bias)
    same(tartan.batch_norm, lambda x: F.batch_norm(x, None, None, training=True), x)
    last = x.permute(0, 2, 3, 1).contiguous()  # channels last in memory
    equal(tartan.batch_norm(last.permute(0, 3, 1, 2)), tartan.batch_norm(x))
    _, stats = tartan.batch_norm(x, return_stats=True)
    mean, variance = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    F.batch_norm(x, mean, variance, training=True, momentum=0.1)
    m = x.numel() / 5
    equal(0.1 * stats[:, 0], mean)
    equal(0.9 + 0.1 * stats[:, 2] * m / (m - 1), variance)
    same(lambda x, g, b: tartan.batch_norm_inference(x, mean, variance, gain=g, bias=b),
         lambda x, g, b: F.batch_norm(x, mean, variance, g, b), x, gain, bias)  # fmt: skip


def test_random_numbers_are_those_of_other_languages():
    kept = tartan.dropout(np.ones(16), dropout=0.5, seed=7)
    assert "".join("01"[int(y != 0)] for y in kept) == "1111011101000101"
    y = np.empty(3)
    tartan.random_uniform(y, seed=7)
    assert y.tolist() == [0.13418846748340363, 0.44570915609319905, 0.6398692349670435]


def test_dropout_draws_the_same_again_for_its_gradient():
    x = torch.ones(63, 63, 63, requires_grad=True)
    y = tartan.dropout(x, dropout=0.25, seed=5)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert abs((y != 0).double().mean() - 0.75) < 0.004
    shared = tartan.dropout(torch.ones(8, 1000), dropout=0.5, seed=5, mask_shape=(8, 1))
    assert (shared == shared[:, :1]).all()
