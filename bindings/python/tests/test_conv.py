# SPDX-License-Identifier: Apache-2.0
"""Convolutions of arrays of NumPy, held against a plain one over taps."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from conftest import EPS, random_layout

import tartan
from tartan import BlockConv, BlockMatrix, Layout


def plain(x, dense, stride, dilation, pads):
    """[n, C, spatial...] and [K, C, kernel...] in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    kernel = dense.shape[2:]
    size = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation)]
    y = np.zeros((x.shape[0], dense.shape[0], *size))
    for tap in itertools.product(*map(range, kernel)):
        cut = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, size, stride))
        y += np.einsum("kc,nc...->nk...", dense[(slice(None), slice(None), *tap)], x[(slice(None), slice(None), *cut)])
    return y


CASES = [  # kernel, stride, dilation, padding, the pads of an image of `size`, size
    ((3,), 1, 1, "valid", ((0, 0),), (11,)),
    ((3, 3), 1, 1, "same", ((1, 1), (1, 1)), (7, 9)),
    ((2,), 1, 1, "same", ((0, 1),), (5,)),
    ((4, 2), 1, (1, 3), "same", ((1, 2), (1, 2)), (7, 6)),
    ((3, 3), 2, 1, "same", ((0, 1), (1, 1)), (8, 9)),
    ((4,), 1, 1, "half", ((2, 2),), (7,)),
    ((3, 3), 2, 1, "tf", ((0, 1), (1, 1)), (8, 9)),
    ((3, 2), (2, 1), (1, 3), ((1, 0), (2, 1)), ((1, 0), (2, 1)), (9, 10)),
    ((1, 3, 3), 1, (1, 2, 1), (0, 2, 1), ((0, 0), (2, 2), (1, 1)), (4, 6, 5)),
]


def case_of(rng, case, shape=(48, 40), block=(16, 8)):
    kernel, stride, dilation, padding, pads, size = case
    conv = BlockConv(random_layout(rng, shape, block, 0.6), kernel, stride=stride, dilation=dilation, padding=padding)
    dims = len(kernel)
    numbers = [(n,) * dims if isinstance(n, int) else n for n in (stride, dilation)]
    filter = conv.filter(rng.standard_normal((*shape, *kernel)))
    x = rng.standard_normal((2, shape[1], *size))
    return conv, filter, x, plain(x, conv.to_dense(filter), *numbers, pads)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "x".join(map(str, case[0])))
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_equals_a_plain_convolution(rng, case, dtype):
    conv, filter, x, wanted = case_of(rng, case)
    y = conv(x.astype(dtype), filter.astype(dtype))
    assert y.shape == wanted.shape == (2, 48, *conv.output_size(case[5])) and y.dtype == dtype
    assert abs(y - wanted).max() < 40 * EPS[dtype] * abs(wanted).max()


@pytest.mark.parametrize("case", CASES, ids=lambda case: "x".join(map(str, case[0])))
def test_gradients_are_the_adjoints(rng, case):
    conv, filter, x, y = case_of(rng, case)
    y_grad = rng.standard_normal(y.shape)
    x_grad = conv.input_gradient(y_grad, filter, case[5])
    filter_grad = conv.filter_gradient(x, y_grad)
    total = (y * y_grad).sum()
    assert x_grad.shape == x.shape and filter_grad.layout == conv.layout
    assert np.isclose((x_grad * x).sum(), total) and np.isclose((filter_grad.values * filter.values).sum(), total)
    again = conv.filter_gradient(x, y_grad, beta=2, out=filter_grad)
    assert again is filter_grad and np.isclose((filter_grad.values * filter.values).sum(), 3 * total)
    out = np.empty_like(x)
    assert conv.input_gradient(y_grad, filter, out=out) is out and np.array_equal(out, x_grad)
    if case[1] == 1:
        assert np.array_equal(conv.input_gradient(y_grad, filter), x_grad)


def test_results_have_the_memory_order_of_images(rng):
    conv, filter, x, wanted = case_of(rng, CASES[1])
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    y = conv(last.transpose(0, 3, 1, 2), filter)
    assert y.transpose(0, 2, 3, 1).flags.c_contiguous and np.allclose(y, wanted)
    assert conv(x, filter).flags.c_contiguous
    assert np.allclose(conv(x[:, :, ::-1, ::-1], filter), conv(x[:, :, ::-1, ::-1].copy(), filter))
    grad = conv.input_gradient(wanted.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), filter)
    assert grad.transpose(0, 2, 3, 1).flags.c_contiguous


def test_channels_last_shapes_and_single_images(rng):
    conv, filter, x, wanted = case_of(rng, CASES[1])
    last = BlockConv(random_layout(rng, (48, 40), (16, 8), 1.0), (3, 3), padding="same", channels_last=True)
    assert last.channels_last and not conv.channels_last
    dense = last.filter(conv.to_dense(filter))
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    y = last(turned, dense)
    assert y.shape == (2, 7, 9, 48) and np.allclose(y.transpose(0, 3, 1, 2), wanted)
    assert np.allclose(last(turned[0], dense).transpose(2, 0, 1), wanted[0])
    assert np.allclose(conv(x[1], filter), wanted[1])
    grad = last.input_gradient(y, dense)
    assert grad.shape == turned.shape and np.allclose(grad.transpose(0, 3, 1, 2), conv.input_gradient(wanted, filter))
    assert np.allclose(last.filter_gradient(turned[0], y[0]).values, last.filter_gradient(turned[:1], y[:1]).values)


def test_epilogue(rng):
    conv, filter, x, y = case_of(rng, CASES[1])
    gain, bias = rng.standard_normal((2, 48))
    wide = [v[:, None, None] for v in (gain, bias)]
    assert np.allclose(conv(x, filter, gain=gain, bias=bias), wide[0] * y + wide[1])
    assert np.allclose(conv(x, filter, gain=gain, bias=bias, bias_first=True), wide[0] * (y + wide[1]))
    assert np.allclose(conv(x, filter, bias=list(bias), relu=True), np.maximum(y + wide[1], 0))
    out = np.ones_like(y)
    assert conv(x, filter, relu=True, add=True, out=out) is out and np.allclose(out, 1 + np.maximum(y, 0))
    classes = conv.edge_classes((7, 9))
    assert classes.shape == (7, 9) and classes.max() == 8 and classes[3, 3] == 0
    table = rng.standard_normal((9, 48))
    assert np.allclose(conv(x, filter, bias=table), y + table[classes].transpose(2, 0, 1))


@pytest.mark.parametrize("options", [{}, {"relu": True}, {"bias_first": True}, {"relu": True, "bias_first": True}])
@pytest.mark.parametrize("rows", [0, 9])
def test_the_last_step_alone(rng, options, rows):
    conv, filter, x, y = case_of(rng, CASES[1])
    gain, bias = rng.standard_normal((2, rows, 48) if rows else (2, 48))
    where = {"conv": conv, "size": (7, 9)} if rows else {}
    z = tartan.channel_linear(y, gain=gain, bias=bias, **options, **where)
    assert np.allclose(z, conv(x, filter, gain=gain, bias=bias, **options))
    grad, step = rng.standard_normal(y.shape), 1e-6
    grads = tartan.channel_linear_gradient(y, grad, gain=gain, bias=bias, **options, **where)
    for name, value, found in (("x", y, grads[0]), ("gain", gain, grads[1]), ("bias", bias, grads[2])):
        toward = rng.standard_normal(value.shape)
        ends = [
            (tartan.channel_linear(**({"x": y, "gain": gain, "bias": bias} | {name: value + s * toward}), **options, **where)
             * grad).sum() for s in (step, -step)
        ]  # fmt: skip
        assert found.shape == value.shape
        assert np.isclose((found * toward).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-4, atol=1e-4)
    assert tartan.channel_linear_gradient(y, grad)[1:] == (None, None)


def test_the_last_step_of_other_shapes(rng):
    x, gain = rng.standard_normal((3, 4, 5, 2, 2, 6)), rng.standard_normal(6)
    y = tartan.channel_linear(x, gain=gain, channels_last=True)
    assert np.allclose(y, x * gain) and tartan.channel_linear(x, gain=gain, channels_last=True, out=x) is x
    assert np.array_equal(x, y)
    with pytest.raises(tartan.ArgumentError, match="one of conv and size is given"):
        tartan.channel_linear(x, gain=gain, size=3)
    with pytest.raises(tartan.HandleTypeError, match="conv is of type str"):
        tartan.channel_linear(x, gain=gain, conv="conv", size=3)
    with pytest.raises(tartan.ShapeError, match="channel_linear: gain"):
        tartan.channel_linear(x, gain=gain)


def test_transposed(rng):
    layout = random_layout(rng, (32, 24), (16, 8), 0.7)
    conv = BlockConv(layout, (3, 3), stride=2, padding=1)
    turned = BlockConv(layout, (3, 3), stride=2, padding=1, transposed=True)
    assert (turned.in_channels, turned.out_channels) == (32, 24)
    filter = turned.filter(rng.standard_normal((32, 24, 3, 3)))
    x = rng.standard_normal((2, 32, 5, 6))
    assert turned.output_size((5, 6)) == (9, 11)
    for size in ((9, 11), (10, 12)):
        assert np.allclose(turned(x, filter, size=size), conv.input_gradient(x, filter, size))
        assert turned.edge_classes((5, 6), size).shape == size
    assert np.array_equal(turned.to_dense(filter), conv.to_dense(filter))


def test_per_tap(rng):
    layout = random_layout(rng, (32, 9 * 24), 8, 0.3)
    conv = BlockConv(layout, (3, 3), padding="same", per_tap=True)
    filter = conv.filter(rng.standard_normal((32, 24, 3, 3)))
    x = rng.standard_normal((1, 24, 6, 5))
    assert conv.layout == layout and 0 < filter.blocks < layout.grid[0] * layout.grid[1]
    assert np.allclose(conv(x, filter), plain(x, conv.to_dense(filter), (1, 1), (1, 1), ((1, 1), (1, 1))))


SETS = [([0, 2, 5], [1, 3]), ([1, 3, 4], [0]), ([5, 0], [3, 4, 1])]  # the first and the last overlap in two channels


def test_sets_of_channels(rng):
    conv = BlockConv.from_sets(6, 6, SETS, (3, 3), padding="same")
    values = rng.standard_normal(9 * sum(len(ins) * len(outs) for ins, outs in SETS))
    filter = conv.filter_from_sets(values)
    dense, at = np.zeros((6, 6, 3, 3)), 0
    for ins, outs in SETS:
        block = values[at : at + 9 * len(ins) * len(outs)].reshape(len(outs), len(ins), 3, 3)
        dense[np.ix_(outs, ins)] += block
        at += block.size
    x = rng.standard_normal((2, 6, 5, 7))
    assert np.allclose(conv.to_dense(filter), dense) and np.array_equal(conv.to_sets(filter), values)
    assert np.allclose(conv(x, filter), plain(x, dense, (1, 1), (1, 1), ((1, 1), (1, 1))))
    with pytest.raises(tartan.UnsupportedError):
        conv.filter(dense)
    turned = BlockConv.from_sets(6, 6, [(outs, ins) for ins, outs in SETS], (3, 3), padding="same", transposed=True)
    y = turned(x, turned.filter_from_sets(values))
    assert np.allclose(y, conv.input_gradient(x, filter))


def test_blocks_in_a_list(rng):
    conv, filter, _, _ = case_of(rng, CASES[1], (20, 22), 8)  # ragged
    values = conv.to_sets(filter)
    assert np.count_nonzero(conv.to_dense(filter)) == values.size
    assert np.array_equal(conv.to_dense(conv.filter_from_sets(values)), conv.to_dense(filter))


def test_windows_alone(rng):
    conv, filter, x, wanted = case_of(rng, CASES[1])
    mask = rng.random((2, 4, 5)) < 0.5
    active = Layout.from_mask(mask, 1)
    inside = np.repeat(np.repeat(mask, 2, 1), 2, 2)[:, None, :7, :9]
    y = conv(x, filter, active=active, windows=(2, 2))
    assert np.allclose(y, np.where(inside, wanted, 0))
    out = np.full_like(wanted, 7)
    conv(x, filter, active=active, windows="size=2x2 stride=2x2", out=out)
    assert np.allclose(out, np.where(inside, wanted, 7))
    kept = np.where(inside, wanted, 0)
    assert np.allclose(conv.input_gradient(wanted, filter, active=active, windows=2), conv.input_gradient(kept, filter))
    ours = conv.filter_gradient(x, wanted, active=active, windows=2)
    assert np.allclose(ours.values, conv.filter_gradient(x, kept).values)


def test_facts_and_copies(rng):
    conv = BlockConv(random_layout(rng, (32, 16), 8, 0.5), (3, 3), stride=(2, 1), padding=((1, 0), (1, 1)), channels_last=True)
    assert conv.dims == 2 and conv.options.startswith("kernel=3x3 stride=2x1 dilation=1x1 padding=1:0x1:1")
    assert repr(conv).startswith("<BlockConv 16 to 32 channels, kernel=3x3")
    assert BlockConv(random_layout(rng, (32, 16), 8), 5).dims == 1
    for made in (conv, BlockConv.from_sets(6, 6, SETS, (3,), transposed=True)):
        again = pickle.loads(pickle.dumps(made))
        assert again.layout == made.layout and again.options == made.options and again.channels_last == made.channels_last
        assert (again.in_channels, again.out_channels) == (made.in_channels, made.out_channels)
        assert copy.deepcopy(made) is made
    with conv:
        pass
    assert conv.closed and repr(conv) == "<BlockConv, closed>"
    with pytest.raises(tartan.HandleError):
        conv(np.zeros((1, 4, 4, 16)), np.zeros((conv.layout.blocks, 8, 8)))


def test_weight_normalisation(rng):
    conv = BlockConv(random_layout(rng, (16, 12), 4, 0.6), (3, 3))
    filter, gain = conv.filter(rng.standard_normal((16, 12, 3, 3))), rng.standard_normal(16)
    dense = conv.to_dense(filter).reshape(4, 4, 3, 4, 9)  # block row, row, block column, column, tap
    norm = np.sqrt(np.maximum((dense**2).sum((3, 4), keepdims=True), 1e-12))
    out = conv.normalize(filter, gain)
    wanted = (gain.reshape(4, 4, 1, 1, 1) * dense / norm).reshape(16, 12, 3, 3)
    assert np.allclose(conv.to_dense(out), wanted)
    assert np.allclose(conv.to_dense(conv.normalize(filter)), (dense / norm).reshape(16, 12, 3, 3))
    out_grad = BlockMatrix(conv.layout, rng.standard_normal(filter.values.shape))
    filter_grad, gain_grad = conv.normalize_gradient(filter, out_grad, gain)
    toward, step = rng.standard_normal(filter.values.shape), 1e-6
    ends = [(conv.normalize(BlockMatrix(conv.layout, filter.values + s * toward), gain).values * out_grad.values).sum()
            for s in (step, -step)]  # fmt: skip
    assert np.isclose((filter_grad.values * toward).sum(), (ends[0] - ends[1]) / (2 * step), rtol=1e-4)
    assert np.isclose(gain_grad @ gain, (out.values * out_grad.values).sum())
    assert conv.normalize_gradient(filter, out_grad)[1] is None
    copied = filter.copy()
    assert conv.normalize(copied, gain, out=copied) is copied and np.array_equal(copied.values, out.values)
    with pytest.raises(tartan.ArgumentError, match="normalize: epsilon"):
        conv.normalize(filter, epsilon=0)
    with pytest.raises(tartan.ShapeError, match="normalize: gain"):
        conv.normalize(filter, gain[:3])


def test_filters_are_matrices_or_their_values(rng):
    conv, filter, x, wanted = case_of(rng, CASES[0])
    assert np.allclose(conv(x, filter.values), wanted) and np.array_equal(conv(x.tolist(), filter), conv(x, filter))
    plain_filter = BlockMatrix.from_dense(rng.standard_normal((48, 3 * 40)), layout=conv.layout)
    assert conv(x, plain_filter).shape == wanted.shape


def refused(rng):
    conv, filter, x, y = case_of(rng, CASES[1])
    layout, other = Layout.pattern("dense", (16, 16), 8), Layout.pattern("dense", (3, 4), 1)
    wrong = BlockMatrix.zeros(layout)
    transposed = BlockConv(layout, (3, 3), stride=2, padding=1, transposed=True)
    strided = BlockConv(layout, (3, 3), stride=2)
    return {
        "dims": (tartan.ShapeError, "x has 2 dimensions, expected 4, or 3 without a batch", lambda: conv(x[0, 0], filter)),
        "channels": (tartan.ShapeError, "conv: ", lambda: conv(x[:, :5], filter)),
        "filter": (tartan.LayoutError, "filter", lambda: conv(x, wrong)),
        "type": (tartan.HandleTypeError, "filter is of type str, expected a BlockMatrix", lambda: conv(x, "w")),
        "dtype": (tartan.DTypeError, "conv: ", lambda: conv(x.astype(np.float32), filter)),
        "bias": (tartan.ShapeError, "bias", lambda: conv(x, filter, bias=np.zeros(5))),
        "out": (tartan.ShapeError, "out", lambda: conv(x, filter, out=np.zeros((2, 48, 3, 3)))),
        "read-only": (tartan.ArgumentError, "out", lambda: conv(x, filter, out=np.broadcast_to(0.0, y.shape))),
        "add": (tartan.ArgumentError, "add is True without out", lambda: conv(x, filter, add=True)),
        "windows": (tartan.ArgumentError, "windows is given without active", lambda: conv(x, filter, windows=2)),
        "overlap": (tartan.ArgumentError, "stride", lambda: conv(x[:1], filter, active=other, windows="size=3 stride=2")),
        "beta": (tartan.ArgumentError, "beta is 1", lambda: conv.filter_gradient(x, y, beta=1)),
        "kernel": (tartan.ShapeError, "kernel", lambda: BlockConv(layout, (9, 9)).output_size((4, 4))),
        "stride": (tartan.ArgumentError, "stride", lambda: BlockConv(layout, (3, 3), stride=0)),
        "padding": (tartan.ArgumentError, "padding", lambda: BlockConv(layout, (3, 3), padding="full")),
        "pairs": (tartan.ArgumentTypeError, "expected pairs", lambda: BlockConv(layout, (3, 3), padding=((1, 1, 1), 2))),
        "number": (tartan.ArgumentTypeError, "kernel is 3.5", lambda: BlockConv(layout, 3.5)),
        "layout": (tartan.HandleTypeError, "channels", lambda: BlockConv(3, (3, 3))),
        "set": (tartan.ArgumentError, r"input channels of blocks\[1\] have 2, expected 0 .. 1",
                lambda: BlockConv.from_sets(2, 2, [([0], [1]), ([0, 2], [1])], (3, 3))),
        "set below": (tartan.ArgumentError, r"output channels of blocks\[0\] have -1",
                      lambda: BlockConv.from_sets(2, 2, [([0], [-1])], (3, 3))),
        "set twice": (tartan.ArgumentError, r"input channels of blocks\[0\] have a channel twice",
                      lambda: BlockConv.from_sets(2, 2, [([1, 1], [0])], (3, 3))),
        "fraction": (tartan.ArgumentTypeError, r"blocks\[0\] is \(\[0.5\], \[1\]\), expected a pair",
                     lambda: BlockConv.from_sets(2, 2, [([0.5], [1])], (3, 3))),
        "no lists": (tartan.ArgumentTypeError, r"blocks\[0\] is \(0, 1\), expected a pair of lists",
                     lambda: BlockConv.from_sets(2, 2, [(0, 1)], (3, 3))),
        "no sets": (tartan.ArgumentTypeError, "blocks is of type int", lambda: BlockConv.from_sets(2, 2, 3, (3, 3))),
        "one list": (tartan.ArgumentTypeError, r"blocks\[0\] is", lambda: BlockConv.from_sets(2, 2, [([0],)], (3, 3))),
        "size, too few": (tartan.ShapeError, "size is 9, expected 2 lengths", lambda: conv(x, filter, size=9)),
        "size, negative": (tartan.ShapeError, r"size is \(-1, 3\), expected 2 lengths from 0 on",
                           lambda: conv.input_gradient(y, filter, (-1, 3))),
        "size, fraction": (tartan.ArgumentTypeError, r"size is \(7.5, 9\), expected whole", lambda: conv(x, filter, size=(7.5, 9))),
        "size of edges": (tartan.ShapeError, "out_size is 3", lambda: conv.edge_classes((7, 9), 3)),
        "size, other": (tartan.ShapeError, r"size is \[8, 8\], expected 2 lengths that belong to x of shape \[2, 16, 3, 3\]",
                        lambda: transposed(np.zeros((2, 16, 3, 3)), np.zeros((36, 8, 8)), size=(8, 8))),
        "size": (tartan.ArgumentError, "size is not given",
                 lambda: strided.input_gradient(np.zeros((1, 16, 3, 3)), BlockMatrix.zeros(strided.layout))),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(refused(np.random.default_rng(0))))
def test_refusals(rng, name):
    error, text, call = refused(rng)[name]
    with pytest.raises(error, match=text):
        call()


def test_filters_are_saved_with_what_makes_them_again(rng, tmp_path):
    """The convention: the filter's metadata has `options` of the convolution, and says which layouts belong to it."""
    conv, filter, x, wanted = case_of(rng, CASES[1])
    mask = rng.random((2, 7, 9)) < 0.1
    _, windows = tartan.windows_for_conv((7, 9), (3, 3), output=2)
    active = Layout.from_windows(mask, windows)
    things = tartan.Collection()
    things.put("conv1", filter, metadata={"conv": conv.options, "channels": "conv1.channels"})
    things.put("conv1.channels", conv.channels)
    things.put("windows", active, metadata={"windows": windows})
    things.put("mask", BlockMatrix.from_dense(mask.astype(np.float32), block=(7, 9)))
    things.save(tmp_path / "conv.h5")
    with tartan.File(tmp_path / "conv.h5") as file:
        facts = file.metadata("conv1")
        again = BlockConv.from_options(file.layout(facts["channels"]), facts["conv"])
        read, places = file.matrix("conv1"), file.layout("windows")
        assert again.layout == conv.layout == read.layout and again.options == conv.options and places == active
        text = file.metadata("windows")["windows"]
        assert np.array_equal(again(x, read, active=places, windows=text), conv(x, filter, active=active, windows=windows))
        assert np.array_equal(file.matrix("mask").toarray() != 0, mask)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "conv.h5") as file:
        found = []
        file.visititems(lambda name, item: found.append(item[()]) if isinstance(item, h5py.Dataset) else None)
        assert any(np.array_equal(item, filter.values) for item in found)
