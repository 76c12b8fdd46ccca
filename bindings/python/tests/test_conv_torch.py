# SPDX-License-Identifier: Apache-2.0
"""Convolutions of PyTorch's tensors in host memory, with the gradients that PyTorch records."""

import numpy as np
import pytest
from conftest import EPS, random_layout

import tartan
from tartan import BlockConv, BlockMatrix, Layout

torch = pytest.importorskip("torch")
functional = torch.nn.functional
SIZES = {1: (11,), 2: (8, 9), 3: (4, 6, 5)}


def leaves(rng, conv, size, dtype="float64", batch=2):
    """x, and the values of a filter."""
    shape = (batch, conv.in_channels, *size)
    values = rng.standard_normal((conv.layout.blocks, *conv.layout.block_shape))
    return [torch.from_numpy(a).to(getattr(torch, dtype)).requires_grad_() for a in (rng.standard_normal(shape), values)]


def dense_of(conv, values):
    """The dense filter as a function of the values that PyTorch differentiates."""
    places = BlockMatrix(conv.layout, np.arange(1.0, values.numel() + 1).reshape(values.shape))
    at = torch.from_numpy(conv.to_dense(places)).long()
    return torch.cat((values.new_zeros(1), values.reshape(-1)))[at]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("stride", "dilation", "padding"), [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 1, 0)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_equals_pytorch(rng, dims, transposed, stride, dilation, padding, dtype):
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    layout, kernel = random_layout(rng, (32, 24), (16, 8), 0.6), (3,) * dims
    conv = BlockConv(layout, kernel, stride=stride, dilation=dilation, padding=(padding,) * dims, transposed=transposed)
    x, values = leaves(rng, conv, SIZES[dims], dtype)
    y = conv(x, values)
    twins = [t.detach().double().requires_grad_() for t in (x, values)]
    wanted = getattr(functional, name)(twins[0], dense_of(conv, twins[1]), stride=stride, dilation=dilation, padding=padding)
    assert y.dtype == x.dtype and y.shape == wanted.shape and y.grad_fn is not None
    weight = torch.randn_like(wanted).to(y.dtype).double()
    ours = torch.autograd.grad((y.double() * weight).sum(), (x, values))
    theirs = torch.autograd.grad((wanted * weight).sum(), twins)
    for our, their in zip((y, *ours), (wanted, *theirs)):
        assert (our.double() - their).abs().max() < 40 * EPS[dtype] * their.abs().max()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias_first": True}, {"relu": True}, {"active": 0.5}])
def test_gradients_of_all_inputs(rng, transposed, classes, options):
    conv = BlockConv(random_layout(rng, (6, 4), (3, 2), 0.8), (3, 2), stride=(2, 1), padding=(1, 0), transposed=transposed)
    x, values = leaves(rng, conv, (5, 4))
    options, size = dict(options), conv.output_size((5, 4))
    rows = (int(conv.edge_classes((5, 4)).max()) + 1,) if classes else ()
    gain, bias = (torch.from_numpy(rng.standard_normal((*rows, conv.out_channels))).requires_grad_() for _ in range(2))
    if options.pop("active", None):
        mask = rng.random((2, *(-(-n // 2) for n in size))) < 0.5
        options |= {"active": Layout.from_mask(mask, 1), "windows": (2, 2)}

    def run(x, values, gain, bias):
        return conv(x, values, gain=gain, bias=bias, **options)

    assert torch.autograd.gradcheck(run, (x, values, gain, bias))
    assert torch.autograd.gradcheck(lambda x, values, bias: run(x, values, None, bias), (x, values, bias))
    assert torch.autograd.gradcheck(lambda gain: run(x.detach(), values.detach(), gain, None), (gain,))


def test_channels_last_and_single_images(rng):
    layout = random_layout(rng, (8, 6), 2, 0.8)
    conv = BlockConv(layout, (3, 3), padding=1)
    x, values = leaves(rng, conv, (5, 7))
    y = conv(x.detach().contiguous(memory_format=torch.channels_last).requires_grad_(), values)
    assert y.is_contiguous(memory_format=torch.channels_last) and torch.allclose(y, conv(x, values))
    turned = BlockConv(layout, (3, 3), padding=1, channels_last=True)
    bias = torch.randn(9, 8, dtype=torch.float64, requires_grad=True)

    def run(x, values, bias):
        return turned(x, values, bias=bias)

    last = x.detach()[0].movedim(0, -1).clone().requires_grad_()
    assert torch.allclose(run(last, values, None).movedim(-1, 0), y[0])
    assert torch.autograd.gradcheck(run, (last, values, bias))


def test_a_filter_that_is_a_matrix_has_no_gradient(rng):
    conv = BlockConv(random_layout(rng, (8, 6), 2, 0.8), (3, 3))
    x, values = leaves(rng, conv, (5, 7))
    matrix = BlockMatrix(conv.layout, values.detach())
    (grad,) = torch.autograd.grad(conv(x, matrix).sum(), x)
    assert torch.equal(grad, torch.autograd.grad(conv(x, values).sum(), x)[0])


def test_padding_has_no_gradient(rng):
    """Blocks of 4 x 4 for 6 and 5 channels: what lies outside of the filter is 0 in the gradient, whatever memory held before."""
    conv = BlockConv(Layout.pattern("dense", (6, 5), 4), (3, 3), padding=1)
    x, values = leaves(rng, conv, (6, 6))
    conv(x, values).sum().backward()
    inside = BlockMatrix(conv.layout, np.ones(tuple(values.shape)))
    kept = conv.filter(conv.to_dense(inside)).values != 0
    assert not kept.all() and (values.grad.numpy()[~kept] == 0).all() and (values.grad.numpy()[kept] != 0).all()


def test_training(rng):
    """A few steps of gradient descent bring the loss down, with the sparse filter as a parameter."""
    conv = BlockConv(random_layout(rng, (16, 8), 4, 0.5), (3, 3), padding=1)
    x, values = leaves(rng, conv, (6, 6), "float32")
    target, losses = conv(x, values).detach(), []
    weights = torch.nn.Parameter(torch.zeros_like(values))
    optimizer = torch.optim.Adam([weights], lr=0.3)
    for _ in range(40):
        optimizer.zero_grad()
        loss = functional.mse_loss(conv(x.detach(), weights), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_refusals(rng):
    conv = BlockConv(random_layout(rng, (8, 6), 2, 0.8), (3, 3))
    x, values = leaves(rng, conv, (5, 7))
    with pytest.raises(tartan.ArgumentError, match="out is given, expected none where PyTorch records"):
        conv(x, values, out=torch.zeros(2, 8, 3, 5, dtype=torch.float64))
    with pytest.raises(tartan.ArgumentTypeError, match="x is of type ndarray, expected a tensor"):
        conv(x.detach().numpy(), values)
    with pytest.raises(tartan.ArgumentTypeError, match="filter is of type ndarray"):
        conv(x, values.detach().numpy())
    with pytest.raises(tartan.ArgumentError, match="requires gradients"):
        conv.input_gradient(torch.zeros(2, 8, 3, 5, dtype=torch.float64, requires_grad=True), values.detach())
    for options in ({"active": Layout.from_windows(np.ones((3, 5)), "size=2x3 count=2x2"), "windows": (2, 3)}, {"bias": torch.zeros(1, 8, dtype=torch.float64)}):
        y = conv(x[:1], values, **options)
        with pytest.raises(tartan.UnsupportedError, match="conv: its gradient is to be differentiated again.*with (active|bias of classes)"):
            torch.autograd.grad(y.square().sum(), x, create_graph=True)
    dynamic = Layout.from_device_mask(np.ones((2, 2)), 1)
    y = conv(x[:1], values, active=dynamic, windows=(2, 3))
    dynamic.update(np.eye(2))
    with pytest.raises(tartan.ArgumentError, match="active has been updated since the forward pass"):
        y.sum().backward()


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_parameters_are_taken_where_nothing_is_recorded(rng, without):
    conv = BlockConv(random_layout(rng, (8, 6), 2, 0.8), (3, 3), padding=1)
    x, values = leaves(rng, conv, (5, 7))
    values = torch.nn.Parameter(values.detach())
    wanted = conv(x, values).detach()
    with without():
        assert torch.equal(conv(x, values), wanted)
        assert conv.normalize(values).blocks == conv.layout.blocks
        np.testing.assert_array_equal(conv.to_dense(values), conv.to_dense(BlockMatrix(conv.layout, values.detach())))
