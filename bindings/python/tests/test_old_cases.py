# SPDX-License-Identifier: Apache-2.0
"""The cases that openai/blocksparse's tests run, mostly without a comparison, each beside NumPy in float64. Its products, convolutions, reduced
gradients and attention are in tests/ops (peers_test.cc, conv_sets_test.cc, growth_score_test.cc, unfused_attention_test.cc), its quantiser's formats in
tests/backend/quantize_test.cc."""

import inspect
import math

import numpy as np
import pytest

import tartan
from tartan import BlockConv, BlockMatrix, Layout

HALF, SINGLE, DOUBLE = np.float16, np.float32, np.float64


def near(found, wanted, dtype, size=None):
    """Within a few units of rounding of the dtype, of `size` where sums cancel."""
    wanted = np.asarray(wanted, DOUBLE)
    unit = float(np.finfo(dtype).eps)
    size = np.abs(wanted) if size is None else np.maximum(size, np.abs(wanted))
    assert found.shape == wanted.shape
    assert (np.abs(np.asarray(found, DOUBLE) - wanted) <= 16 * unit * (size + 1e-3)).all()


# ---- Softmax, cross entropy, selections ----


@pytest.mark.parametrize("classes", [10, 256, 512, 8192, 16384, 32768, 65536])
def test_cross_entropy(rng, classes):
    logits = rng.standard_normal((3, classes)).astype(HALF)
    kind = np.uint8 if classes <= 256 else np.uint16
    labels = np.array([0, classes - 1, classes // 2]).astype(kind)
    wide = logits.astype(DOUBLE)
    lse = np.log(np.exp(wide).sum(1))
    loss, found_lse, slope = tartan.cross_entropy(logits, labels, return_lse=True, return_slope=True)
    near(loss, lse - wide[np.arange(3), labels], SINGLE)
    near(found_lse, lse, SINGLE)
    wanted = np.exp(wide - lse[:, None])
    wanted[np.arange(3), labels] -= 1
    near(slope, wanted, SINGLE if slope.dtype == SINGLE else HALF)
    near(tartan.cross_entropy_gradient(logits, labels, found_lse, np.full(3, 2, SINGLE)), 2 * wanted, HALF)


@pytest.mark.parametrize("columns", [1, 31, 256, 1000, 1024])
@pytest.mark.parametrize("k", [1, 7, 64])
def test_top_k(rng, columns, k):
    k = min(k, columns)
    x = rng.standard_normal((64, columns)).astype(SINGLE)
    order = np.argsort(-x, 1, kind="stable")[:, :k]
    values, places = tartan.top_k(x, k=k)
    assert np.array_equal(places, order) and np.array_equal(values, np.take_along_axis(x, order, 1))
    kept = np.full(x.shape, -np.inf)
    np.put_along_axis(kept, order, np.take_along_axis(x, order, 1).astype(DOUBLE), 1)
    exps = np.exp(kept - kept.max(1, keepdims=True))
    near(tartan.top_k_softmax(x, k=k), exps / exps.sum(1, keepdims=True), SINGLE)
    least = np.take_along_axis(x, order[:, -1:], 1).astype(DOUBLE)
    near(tartan.rectified_top_k(x, k=k), np.maximum(np.where(np.isfinite(kept), kept, 0) - np.maximum(least, 0), 0), SINGLE)
    mask = rng.random(x.shape) < 0.7
    mask[0] = False
    masked = np.where(mask, np.exp(x.astype(DOUBLE)), 0)
    sums = masked.sum(1, keepdims=True)
    near(tartan.softmax(x, mask=mask), np.divide(masked, sums, out=np.zeros_like(masked), where=sums > 0), SINGLE)


@pytest.mark.parametrize("shape", [(32, 16), (8, 9, 10), (4, 5, 6, 7)])
@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
def test_reduce_max_and_gather(rng, shape, kind):
    x = rng.standard_normal(shape).astype(SINGLE)
    for axis in range(len(shape)):
        view = np.moveaxis(x, axis, -1)
        largest, places = tartan.reduce_max(view, indices=np.empty(view.shape[:-1], kind))
        assert np.array_equal(largest, x.max(axis)) and np.array_equal(places, x.argmax(axis))
        grad = rng.standard_normal(largest.shape).astype(SINGLE)
        wanted = np.zeros_like(x)
        np.put_along_axis(wanted, np.expand_dims(x.argmax(axis), axis), np.expand_dims(grad, axis), axis)
        assert np.array_equal(np.moveaxis(tartan.reduce_max_gradient(view, places, grad), -1, axis), wanted)
    rows = rng.integers(0, shape[1], shape[0]).astype(kind)
    view = np.moveaxis(x, 1, -1)
    index = np.broadcast_to(rows.reshape(-1, *[1] * (len(shape) - 1)), (*view.shape[:-1], 1))
    found = tartan.take_along(view, index)[..., 0]
    assert np.array_equal(found, x[np.arange(shape[0]), rows])


# ---- Optimisers ----


@pytest.mark.parametrize("shape", [(1,), (3,), (127,), (1, 1024), (1023, 1024), (1024, 1024)])
@pytest.mark.parametrize("grads, moments", [(SINGLE, SINGLE), (HALF, SINGLE), (HALF, HALF)])
@pytest.mark.parametrize("sigmas, gated", [(0.0, False), (2.0, False), (0.0, True)])
def test_adam(rng, shape, grads, moments, sigmas, gated):
    p = rng.standard_normal(shape).astype(SINGLE)
    g = rng.standard_normal(shape).astype(grads)
    m, v = (0.1 * rng.standard_normal(shape)).astype(moments), (0.1 * rng.random(shape)).astype(moments)
    gates = (rng.random(shape[0]) < 0.5).astype(SINGLE)
    P, G, M, V = (x.astype(DOUBLE) for x in (p, g, m, v))
    means, squares = 0.9 * M + 0.1 * G, 0.999 * V + 0.001 * G**2
    if sigmas:
        limit = sigmas * np.sqrt(squares)
        G = np.clip(G, -limit, limit)
        means = 0.9 * M + 0.1 * G
    step = 1e-3 * (means / (1 - 0.9**7)) / (np.sqrt(squares / (1 - 0.999**7)) + 1e-8)
    tartan.adam([p], [g], [m], [v], gates=[gates] if gated else None, sigmas=sigmas, step=7)
    on = (gates.reshape(-1, *[1] * (len(shape) - 1)) if gated else np.ones(shape)) * np.ones(shape) > 0
    near(p, np.where(on, P - step, P), SINGLE, np.abs(P))
    if not sigmas:
        near(m, np.where(on, means, M), moments, np.abs(M) + 0.1 * np.abs(G))
        near(v, np.where(on, squares, V), moments)


@pytest.mark.parametrize("shape", [(1,), (1, 2048), (1024, 2048), (1024, 1023), (1, 1023)])
def test_adafactor(rng, shape):
    p, g = rng.standard_normal(shape).astype(SINGLE), rng.standard_normal(shape).astype(SINGLE)
    r, c = np.zeros(shape[:1] if len(shape) > 1 else shape, SINGLE), np.zeros(shape[1:], SINGLE) if len(shape) > 1 else np.zeros(0, SINGLE)
    P, G = p.astype(DOUBLE), g.astype(DOUBLE)
    d = 0.999 * (1 - 0.999) / (1 - 0.999**2)
    squares = (1 - d) * (G**2 + 1e-30)
    if len(shape) == 1:
        x = G / np.sqrt(squares)
    else:
        rows, cols = squares.mean(1), squares.mean(0)
        x = G / np.sqrt(rows[:, None] * cols / rows.mean())
    tartan.adafactor([p], [g], [r], [c])
    near(p, P - 5e-4 * x / max(1, np.sqrt((x**2).mean())), SINGLE, np.abs(P) + np.abs(x) * 5e-4)
    near(r, squares if len(shape) == 1 else rows, SINGLE)


# ---- Element-wise operations ----

BIASED = [(1, 1), (1, 32), (32, 1), (63, 64), (64, 33), (128, 1024), (256, 1025)]


@pytest.mark.parametrize("shape", BIASED)
@pytest.mark.parametrize("axis", [0, -1])
def test_bias_and_activation(rng, shape, axis):
    x, grad = rng.standard_normal(shape).astype(SINGLE), rng.standard_normal(shape).astype(SINGLE)
    b = rng.standard_normal(shape[axis]).astype(SINGLE).reshape((-1, 1) if axis == 0 else (1, -1))
    z = x.astype(DOUBLE) + b
    y = tartan.add_relu(x, b)
    near(y, np.maximum(z, 0), SINGLE, np.abs(x) + np.abs(b))
    found = tartan.add_relu_gradient(x, b, y, grad)
    wanted = grad * (z > 0)
    near(found.a, wanted, SINGLE)
    other = 1 if axis == 0 else 0
    near(found.b, wanted.astype(DOUBLE).sum(other, keepdims=True), SINGLE, np.abs(wanted).sum(other, keepdims=True))
    z = tartan.add(x, b)
    fast = tartan.swish(z, alpha=1.702)
    wide = z.astype(DOUBLE)
    near(fast, wide / (1 + np.exp(-1.702 * wide)), SINGLE)


@pytest.mark.parametrize("shape", [(1, 32, 32), (1, 32, 8, 8), (8, 64, 8, 8), (8, 64, 8, 8, 8)])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("given", ["gain", "bias", "both"])
def test_channel_linear(rng, shape, relu, first, given):
    x, grad = rng.standard_normal(shape).astype(SINGLE), rng.standard_normal(shape).astype(SINGLE)
    gain = rng.standard_normal(shape[1]).astype(SINGLE) if given != "bias" else None
    bias = rng.standard_normal(shape[1]).astype(SINGLE) if given != "gain" else None
    wide = (1, -1, *[1] * (len(shape) - 2))
    ones = np.ones([1] * len(shape))
    G = ones if gain is None else gain.astype(DOUBLE).reshape(wide)
    B = 0 * ones if bias is None else bias.astype(DOUBLE).reshape(wide)
    X = x.astype(DOUBLE)
    z = G * (X + B) if first else G * X + B
    options = {"gain": gain, "bias": bias, "relu": relu, "bias_first": first}
    near(tartan.channel_linear(x, **options), np.maximum(z, 0) if relu else z, SINGLE, np.abs(G) * (np.abs(X) + np.abs(B)) + np.abs(B))
    found = tartan.channel_linear_gradient(x, grad, **options)
    g = np.where((z > 0) | (not relu), grad, 0).astype(DOUBLE)
    rest = tuple(i for i in range(len(shape)) if i != 1)
    near(found.x, g * G, SINGLE)
    if gain is not None:
        near(found.gain, (g * (X + B if first else X)).sum(rest), SINGLE, np.abs(g * (np.abs(X) + np.abs(B))).sum(rest))
    if bias is not None:
        near(found.bias, (g * G if first else g).sum(rest), SINGLE, np.abs(g * np.maximum(np.abs(G), 1)).sum(rest))


@pytest.mark.parametrize("shape, mask", [((1024,), None), ((63, 63, 63), None), ((63, 63, 63), (63, 1, 63)), ((63, 63, 63), (63, 1, 1)), ((128, 1024), (1, 1024))])
@pytest.mark.parametrize("keep", [0.5, 0.8])
def test_dropout(rng, shape, mask, keep):
    x = rng.standard_normal(shape).astype(SINGLE)
    options = {"dropout": 1 - keep, "seed": 3, "mask_shape": mask}
    kept = tartan.dropout(np.ones(shape, SINGLE), **options) != 0
    scale = SINGLE(1 / (1 - (1 - keep)))
    assert np.array_equal(tartan.dropout(x, **options), np.where(kept, x * scale, 0))
    assert np.array_equal(tartan.dropout_gradient(x, **options), np.where(kept, x * scale, 0))
    own = kept if mask is None else kept[tuple(slice(0, n) for n in mask)]
    assert np.array_equal(np.broadcast_to(own, shape), kept)
    assert abs(own.mean() - keep) < 5 * np.sqrt(keep * (1 - keep) / own.size)


@pytest.mark.parametrize("channels, size", [(6, 4), (6, 128), (64, 16), (512, 8)])
@pytest.mark.parametrize("last", [False, True])
def test_edge_bias(rng, channels, size, last):
    conv = BlockConv(Layout.pattern("dense", (channels, channels), 1 if channels < 32 else 32), kernel=(3, 3), padding="same", channels_last=last)
    classes = conv.edge_classes((size, size))
    shape = (2, size, size, channels) if last else (2, channels, size, size)
    count = int(np.max(classes)) + 1
    x, grad = rng.standard_normal(shape).astype(SINGLE), rng.standard_normal(shape).astype(SINGLE)
    gain, bias = (rng.standard_normal((count, channels)).astype(SINGLE) for _ in range(2))
    own = np.asarray(classes).reshape(size, size)
    G, B = (v.astype(DOUBLE)[own] if last else np.moveaxis(v.astype(DOUBLE)[own], -1, 0) for v in (gain, bias))
    options = {"conv": conv, "size": (size, size), "gain": gain, "bias": bias}
    near(tartan.channel_linear(x, **options), G * x + B, SINGLE, np.abs(G * x) + np.abs(B))
    found = tartan.channel_linear_gradient(x, grad, **options)
    near(found.x, grad * G, SINGLE)
    terms = np.moveaxis(grad.astype(DOUBLE), -1, 1) if not last else grad.astype(DOUBLE)
    flat = (grad.astype(DOUBLE) if last else np.moveaxis(grad.astype(DOUBLE), 1, -1)).sum(0)
    size_of = np.abs(terms).sum()
    for row in range(count):
        near(found.bias[row], flat[own == row].sum(0), SINGLE, np.full(channels, size_of / channels))


UNARY = ["negative", "reciprocal", "square", "sqrt", "exp", "log", "sigmoid", "tanh", "relu", "elu", "gelu", "swish"]
FORMULAS = {
    "negative": lambda x: -x, "reciprocal": lambda x: 1 / x, "square": np.square, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)), "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))),
    "add": np.add, "multiply": np.multiply, "subtract": np.subtract, "divide": np.divide, "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(rng, name):
    x = rng.random((32, 1024)) * 1.5 + 0.3 if name in ("sqrt", "log", "reciprocal") else rng.standard_normal((32, 1024))
    formula, function = FORMULAS[name], getattr(tartan, name)
    for dtype in (SINGLE, HALF):
        given = x.astype(dtype)
        near(function(given), formula(given.astype(DOUBLE)), dtype, np.ones(x.shape))
    x = x.astype(DOUBLE)
    grad = rng.standard_normal(x.shape)
    x[np.abs(x) < 1e-3] = 0.5  # no kinks
    slope = (formula(x + 1e-6) - formula(x - 1e-6)) / 2e-6
    gradient = getattr(tartan, name + "_gradient")
    known = {"x": x, "y": function(x), "y_grad": grad}
    found = gradient(*(known[argument] for argument in inspect.signature(gradient).parameters if argument in known))
    assert np.allclose(found, slope * grad, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "divide", "maximum", "minimum"])
def test_functions_of_two_arrays(rng, name):
    a, b = rng.standard_normal((32, 1024)), rng.standard_normal((32, 1024))
    b[np.abs(b) < 0.1] = 0.5
    formula, function = FORMULAS[name], getattr(tartan, name)
    for dtype in (SINGLE, HALF):
        x, y = a.astype(dtype), b.astype(dtype)
        near(function(x, y), formula(x.astype(DOUBLE), y.astype(DOUBLE)), dtype, np.abs(x.astype(DOUBLE)) + np.abs(y.astype(DOUBLE)))
    h = 1e-6
    for i, (up, down) in enumerate((((a + h, b), (a - h, b)), ((a, b + h), (a, b - h)))):
        slope = (formula(*up) - formula(*down)) / (2 * h)
        found = getattr(tartan, name + "_gradient")(a, b, np.ones_like(a))
        assert np.allclose((found.a, found.b)[i], slope, rtol=1e-5, atol=1e-5)


# ---- Tables, norms, LSTMs ----

TABLES = [(vocabulary, width, batch) for vocabulary in (32, 256, 1024, 50257) for width, batch in ((8, 1), (32, 64), (768, 128), (1024, 33))]


@pytest.mark.parametrize("vocabulary, width, batch", TABLES)
@pytest.mark.parametrize("sort", [False, True])
def test_embedding(rng, vocabulary, width, batch, sort):
    kind = np.uint8 if vocabulary <= 256 else np.uint16 if batch == 33 else np.int32
    ids = rng.integers(0, min(vocabulary, 300), batch).astype(kind)
    ids = np.sort(ids) if sort else ids
    table, grad = rng.standard_normal((vocabulary, width)).astype(SINGLE), rng.standard_normal((batch, width)).astype(SINGLE)
    assert np.array_equal(tartan.embedding(table, ids), table[ids])
    wanted = np.zeros((vocabulary, width))
    np.add.at(wanted, ids, grad.astype(DOUBLE))
    near(tartan.embedding_gradient(table, ids, grad), wanted, SINGLE, np.full(wanted.shape, 1.0))


@pytest.mark.parametrize("shape", [(4, 31), (4, 32), (4, 33), (4, 1024), (64, 2049), (128, 4096), (128, 32768)])
@pytest.mark.parametrize("axis, segments, activation", [(1, 1, "none"), (0, 1, "none"), (1, 2, "relu"), (1, 4, "none")])
def test_layer_norm(rng, shape, axis, segments, activation):
    if shape[1] % segments:
        pytest.skip("lines that cannot be cut")
    x = rng.standard_normal(shape).astype(SINGLE)
    x = x.T if axis == 0 else x
    lines, n = x.shape
    gain, bias = (rng.standard_normal(n).astype(SINGLE) for _ in range(2))
    grad = rng.standard_normal(x.shape).astype(SINGLE)
    parts = x.astype(DOUBLE).reshape(lines, segments, -1)
    mean, rstd = parts.mean(2, keepdims=True), 1 / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    z = ((parts - mean) * rstd).reshape(lines, n)
    y = z * gain + bias
    options = {"segments": segments, "activation": activation, "gain": gain, "bias": bias}
    found, _, stats = tartan.add_layer_norm(x, return_stats=True, return_total=True, **options)
    near(found, np.maximum(y, 0) if activation == "relu" else y, SINGLE, np.abs(z * gain) + np.abs(bias) + np.abs(mean * rstd).max())
    g = np.where(y > 0, grad, 0).astype(DOUBLE) if activation == "relu" else grad.astype(DOUBLE)
    pulled, zs = (g * gain).reshape(parts.shape), z.reshape(parts.shape)
    wanted = (rstd * (pulled - pulled.mean(2, keepdims=True) - zs * (pulled * zs).mean(2, keepdims=True))).reshape(x.shape)
    grads = tartan.add_layer_norm_gradient(x, stats, grad, wrt=("x", "gain", "bias"), **options)
    # Where y is 0 up to rounding, the activation may go either way.
    sure = np.abs(y) > 1e-4 if activation == "relu" else np.full(y.shape, True)
    if sure.all():
        size = np.full(x.shape, rstd.max() * (np.abs(pulled).max() + 4))
        near(grads.x, wanted, SINGLE, size)
        near(grads.gain, (g * z).sum(0), SINGLE, np.abs(g * z).sum(0) + 4)
        near(grads.bias, g.sum(0), SINGLE, np.abs(g).sum(0) + 4)


@pytest.mark.parametrize("width", [1024, 2048])
@pytest.mark.parametrize("normed", [False, True])
def test_lstm_gates(rng, width, normed):
    c, h4 = rng.standard_normal((128, width)).astype(SINGLE), rng.standard_normal((128, 4 * width)).astype(SINGLE)
    bias = rng.standard_normal((4, width)).astype(SINGLE)
    if normed:  # with layer_norm of 4 segments
        h4, bias = tartan.add_layer_norm(h4, segments=4, gain=np.ones(4 * width, SINGLE), bias=bias.ravel()), None
    gates = h4.reshape(128, 4, width)
    i, u, f, o = np.moveaxis(gates.astype(DOUBLE) + (0 if bias is None else bias), 1, 0)
    sigmoid = FORMULAS["sigmoid"]
    after = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(u)
    h = sigmoid(o) * np.tanh(after)
    found, found_h = tartan.lstm_gates(c, gates, bias=bias)
    near(found, after, SINGLE, np.abs(c) + 1)
    near(found_h, h, SINGLE, np.ones_like(h))
    c_grad, h_grad = (rng.standard_normal(c.shape).astype(SINGLE) for _ in range(2))
    grads = tartan.lstm_gates_gradient(c, gates, bias=bias, c_next_grad=c_grad, h_grad=h_grad)
    g = c_grad + h_grad * sigmoid(o) * (1 - np.tanh(after) ** 2)
    si, sf, so = sigmoid(i), sigmoid(f + 1), sigmoid(o)
    wanted = np.stack([g * np.tanh(u) * si * (1 - si), g * si * (1 - np.tanh(u) ** 2), g * c * sf * (1 - sf), h_grad * np.tanh(after) * so * (1 - so)], 1)
    near(grads.c, g * sf, SINGLE, np.abs(g) + 1)
    near(grads.gates, wanted, SINGLE, np.abs(wanted) + 4)
    if bias is not None:
        near(grads.bias, wanted.sum(0), SINGLE, np.abs(wanted).sum(0) + 4)


# ---- Products with many columns, pruning, transposes ----


@pytest.mark.parametrize("n", [1000, 1 << 20])
def test_gradients_of_many_columns(rng, n):
    x, e = rng.standard_normal((n, 32)).astype(SINGLE), rng.standard_normal((n, 32)).astype(SINGLE)
    layout = Layout.pattern("dense", (32, 32), 32)
    found = tartan.sddmm(layout, x.T, e)
    wanted = x.T.astype(DOUBLE) @ e.astype(DOUBLE)
    bound = (8 + 2 * np.sqrt(n)) * np.finfo(SINGLE).eps * (np.abs(x).T.astype(DOUBLE) @ np.abs(e).astype(DOUBLE))
    assert (np.abs(found.toarray() - wanted) <= bound).all()


@pytest.mark.parametrize("block", [8, 16, 32])
@pytest.mark.parametrize("norm", ["max", "l2"])
def test_pruning(rng, block, norm):
    layout = Layout.pattern("random", (40 * block, 50 * block), block, density=0.5, seed=1)
    assert layout.blocks == 1000
    w = BlockMatrix.zeros(layout, "float32").fill_normal(seed=2)
    norms = w.block_norms(norm)
    wide = w.values.astype(DOUBLE)
    wanted = np.abs(wide).max((1, 2)) if norm == "max" else np.sqrt((wide**2).sum((1, 2)))
    assert np.allclose(norms, wanted, rtol=1e-12)
    kept = w.layout.keep_largest(norms, 100)  # a tenth
    assert kept.blocks == 100
    found = w.project(kept)
    assert np.array_equal(np.sort(found.block_norms(norm)), np.sort(norms)[-100:])


def test_transposes_of_4096_by_32768(rng):
    x = rng.integers(-1000, 1000, (4096, 32768)).astype(HALF)
    y = np.empty((32768, 4096), HALF)
    tartan.scale(x.T, factor=1.0, out=y)
    assert np.array_equal(y, x.T)
