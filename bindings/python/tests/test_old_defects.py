# SPDX-License-Identifier: Apache-2.0
"""What openai/blocksparse gets wrong at its last commit, each shown to be right here. Collectives, which do not exist here, and examples that
cannot run, which are notebooks here that the tests run, have no test of their own."""

import inspect

import numpy as np
import pytest

import tartan


def difference(f, x, g, step=1e-6):
    """The gradient of sum(g f(x)) with respect to x, by differences."""
    grad = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        grad[i] = ((f(up) - f(down)) * g).sum() / (2 * step)
    return grad


def test_help_says_the_defaults_that_are_used(rng):
    """README and code disagreed about epsilon: 1e-6 and 1e-12."""
    w = tartan.BlockMatrix(tartan.Layout.pattern("dense", (8, 8), 8), np.full((1, 8, 8), 1e-8))
    assert inspect.signature(tartan.weight_normalize).parameters["epsilon"].default == 1e-12
    np.testing.assert_array_equal(tartan.weight_normalize(w).values, tartan.weight_normalize(w, epsilon=1e-12).values)


@pytest.mark.parametrize("density", [1.0, 0.4])
def test_orthogonal_weights_can_be_made(density):
    layout = tartan.Layout.pattern("random", (64, 64), 16, density=density, seed=1)
    w = tartan.BlockMatrix.zeros(layout).fill_orthogonal(seed=1).to_dense()
    gram = w.T @ w
    for column in range(0, 64, 16):
        part = gram[column : column + 16, column : column + 16]
        assert np.abs(part - np.eye(16)).max() < 1e-12 or np.abs(part).max() == 0


@pytest.mark.parametrize("name, options", [("rectified_top_k", {"k": 3}), ("sparse_relu", {})])
def test_selections_have_gradients(rng, name, options):
    x, g = rng.standard_normal((2, 4, 9))
    f, kept = getattr(tartan, name), [a for a in inspect.signature(getattr(tartan, name)).parameters if a.startswith("return_")]
    found = f(x, **options, **{a: True for a in kept})
    kept = dict(zip([a.removeprefix("return_") for a in kept], found[1:] if kept else ()))
    parameters = inspect.signature(getattr(tartan, name + "_gradient")).parameters
    values = {"x": x, "y_grad": g, "y": found[0] if kept else found, **kept, **options}
    grad = getattr(tartan, name + "_gradient")(**{k: v for k, v in values.items() if k in parameters})
    np.testing.assert_allclose(grad, difference(lambda x: f(x, **options), x, g), atol=1e-6)


def test_top_k_runs_and_has_a_gradient(rng):
    x = rng.standard_normal((4, 9))
    values, places = tartan.top_k(x, k=2)
    np.testing.assert_array_equal(values, -np.sort(-x)[:, :2])
    grad = tartan.top_k_gradient(x, places, np.ones((4, 2)))
    np.testing.assert_array_equal(grad, (x >= values[:, 1:]).astype(float))


def test_gated_adam_updates_once(rng):
    p, g = (rng.uniform(0.5, 1, (3, 4, 4)).astype(np.float32) for _ in range(2))
    state = [np.zeros_like(p) for _ in range(4)]
    gated, plain = p.copy(), p.copy()
    tartan.adam(gated, g, *state[:2], gates=np.array([1, 0, 1], np.float32), rate=0.1)
    tartan.adam(plain, g, *state[2:], rate=0.1)
    np.testing.assert_array_equal(gated[[0, 2]], plain[[0, 2]])
    np.testing.assert_array_equal(gated[1], p[1])


def test_batch_norm_in_inference_has_the_gradients_of_an_affine_map(rng):
    x, g = rng.standard_normal((2, 3, 4, 5))
    mean, variance, gain, bias = rng.uniform(0.5, 2, (4, 4))
    grads = tartan.batch_norm_inference_gradient(x, mean, variance, g, gain=gain)
    factor = (gain / np.sqrt(variance + 1e-5))[:, None]
    np.testing.assert_allclose(grads.x, g * factor, rtol=1e-12)
    assert not np.allclose(grads.x, g)
    np.testing.assert_allclose(grads.bias, g.sum((0, 2)), rtol=1e-12)


def test_a_convolution_without_edges_has_no_edge_classes(rng):
    conv = tartan.BlockConv(tartan.Layout.pattern("dense", (8, 8), 8), (3, 3), padding="valid")
    assert (conv.edge_classes((6, 6)) == 0).all()
    x, w = rng.standard_normal((1, 8, 6, 6)), conv.filter(rng.standard_normal((8, 8, 3, 3)))
    np.testing.assert_allclose(conv(x, w, gain=np.full((1, 8), 2.0), bias=np.ones((1, 8))), 2 * conv(x, w) + 1, rtol=1e-12)


def test_a_projection_takes_any_map(rng):
    """SparseProj failed where its map was given without the number of its rows."""
    x, rows = rng.standard_normal((10, 3)), np.array([7, 2, 3])
    np.testing.assert_array_equal(tartan.embedding(x, rows), x[rows])


def test_a_query_that_sees_nothing_gets_zeros(rng):
    q, k, v = rng.standard_normal((3, 16, 8))
    layout = tartan.Layout.from_mask([[1, 0], [0, 0]], 8)
    out = tartan.attention(q, k, v, layout, causal=True, query_offset=-1)
    assert np.isfinite(out).all() and (out[8:] == 0).all() and (out[0] == 0).all() and (out[1:8] != 0).all()


def test_scattering_leaves_what_it_is_given(rng):
    x, y, rows = rng.standard_normal((6, 3)), rng.standard_normal((2, 3)), np.array([4, 1])
    before = x.copy(), y.copy()
    for combine in ("set", "add", "multiply"):
        tartan.scatter_rows(x, rows, y, combine=combine)
        tartan.scatter_rows_gradient(np.ones_like(x), rows, x=x, y=y, combine=combine)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])


def test_sums_have_one_order(rng):
    rows, g = rng.integers(0, 5, 4000), rng.standard_normal((4000, 8)).astype(np.float32)
    layout = tartan.Layout.pattern("random", (96, 640), 32, density=0.6, seed=1)
    w = tartan.BlockMatrix(layout, rng.standard_normal((layout.blocks, 32, 32)).astype(np.float32))
    x = rng.standard_normal((640, 50)).astype(np.float32)
    found = []
    for threads in (1, 2, 3, 2):
        with tartan.Context(threads=threads) as context:
            found.append((tartan.embedding_gradient(rng.standard_normal((5, 8)).astype(np.float32), rows, g, context=context), tartan.spmm(w, x, context=context)))
    for one in found[1:]:
        np.testing.assert_array_equal(one[0], found[0][0])
        np.testing.assert_array_equal(one[1], found[0][1])


def test_products_of_half_precision_are_not_rounded_further(rng):
    """Scores of f16 queries had 8 bits."""
    q, k = (rng.standard_normal((32, 16)).astype(np.float16) for _ in range(2))
    found = tartan.sddmm(tartan.Layout.pattern("dense", (32, 32), 16), q, k.T).to_dense().astype(np.float64)
    wanted = q.astype(np.float64) @ k.T.astype(np.float64)
    assert np.abs(found - wanted).max() <= 2.0**-10 * np.abs(wanted).max()


def test_what_is_not_supported_is_named(rng):
    w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (16, 16), 8), "float32")
    with pytest.raises(tartan.DTypeError, match="y_grad is of float64, expected float32, float16 or bfloat16"):
        tartan.layer_norm_gradient(np.ones((2, 4), np.float32), np.ones((2, 2), np.float32), np.ones((2, 4)))
    with pytest.raises(tartan.ShapeError, match=r"17"):
        tartan.spmm(w, np.ones((17, 3), np.float32))


def test_blocks_have_one_order_however_they_are_listed(rng):
    places = np.array([(0, 1), (2, 0), (1, 1), (0, 0)])
    order = rng.permutation(4)
    layouts = [tartan.Layout.from_coordinates((24, 16), 8, *p.T) for p in (places, places[order])]
    assert layouts[0] == layouts[1] and layouts[0].identity == layouts[1].identity


def test_an_lstm_cell_runs(rng):
    n, batch = 8, 5
    w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (4 * n, 2 * n), 8)).fill_normal(seed=1)
    c, h = np.zeros((batch, n)), np.zeros((batch, n))
    for _ in range(4):
        x = rng.standard_normal((batch, n))
        gates = tartan.add_layer_norm((w @ np.concatenate([x, h], 1).T).T.copy(), gain=np.ones(4 * n), bias=np.zeros(4 * n), segments=4)
        c, h = tartan.lstm_gates(c, gates.reshape(batch, 4, n), forget_bias=1)
    assert np.isfinite(h).all() and 0 < np.abs(h).max() < 1


def test_random_numbers_do_not_depend_on_the_processors(rng):
    found = []
    for threads in (1, 2, 7):
        with tartan.Context(threads=threads) as context:
            x = np.empty(100000, np.float32)
            tartan.random_uniform(x, seed=3, context=context)
            found.append(x)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
