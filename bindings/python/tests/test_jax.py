# SPDX-License-Identifier: Apache-2.0
"""tartan.jax beside the same computations with dense arrays of JAX."""

import numpy as np
import pytest

import tartan

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402

from tartan.jax import attention, sddmm, spmm  # noqa: E402

LAYOUT = tartan.Layout.pattern("banded", (10, 15), 4, lower=1, upper=1)
MASK = np.kron(LAYOUT.mask(), np.ones((4, 4)))[:10, :15]


def normal(*shape, seed=1):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def values_of(dense):
    return jnp.asarray(tartan.BlockMatrix.from_dense(np.asarray(dense), layout=LAYOUT).values)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


DENSE = normal(10, 15) * MASK


@pytest.mark.parametrize("transpose", [False, True])
def test_spmm_has_values_and_derivatives_of_a_dense_product(transpose):
    x = normal(10 if transpose else 15, 3, seed=2)
    loss = jax.jit(lambda v, x: (spmm(LAYOUT, v, x, transpose=transpose) ** 3).sum())
    same = lambda a, x: (((a.T if transpose else a) @ x) ** 3).sum()  # noqa: E731
    close(loss(values_of(DENSE), x), same(DENSE, x))
    for found, wanted in zip(jax.grad(loss, (0, 1))(values_of(DENSE), x), jax.grad(same, (0, 1))(DENSE, x)):
        close(found, values_of(wanted * MASK) if found.ndim == 3 else wanted)


def test_sddmm_has_values_and_derivatives_of_a_dense_product():
    x, y, weights = normal(10, 6), normal(6, 15), normal(10, 15, seed=3) * MASK
    loss = jax.jit(lambda x, y: (sddmm(LAYOUT, x, y) * values_of(weights)).sum())
    same = lambda x, y: ((x @ y) * weights).sum()  # noqa: E731
    close(loss(x, y), same(x, y))
    for found, wanted in zip(jax.grad(loss, (0, 1))(x, y), jax.grad(same, (0, 1))(x, y)):
        close(found, wanted)


def test_products_have_second_derivatives_and_batches():
    x, direction = normal(15, 3), normal(15, 3, seed=4)
    loss = lambda x: (spmm(LAYOUT, values_of(DENSE), x) ** 3).sum()  # noqa: E731
    same = lambda x: ((DENSE @ x) ** 3).sum()  # noqa: E731
    curvature = lambda f: jax.grad(lambda x: (jax.grad(f)(x) * direction).sum())(x)  # noqa: E731
    close(curvature(loss), curvature(same))
    batch = normal(4, 15, 3)
    close(jax.vmap(lambda x: spmm(LAYOUT, values_of(DENSE), x))(batch), DENSE @ batch)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_has_values_and_derivatives_of_a_dense_one(causal):
    layout = tartan.Layout.pattern("local", (12, 12), 4, window=2)
    seen = np.kron(layout.mask(), np.ones((4, 4))) * (np.tri(12) if causal else 1) > 0
    q, k, v = (normal(2, 2, 12, 8, seed=s) for s in range(3))

    def dense(q, k, v):
        scores = jnp.where(seen, 0.3 * q @ k.swapaxes(-1, -2), -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ v

    ours = lambda *a: attention(*a, layout, scale=0.3, causal=causal)  # noqa: E731
    close(jax.jit(ours)(q, k, v), dense(q, k, v))
    found, wanted = (jax.grad(lambda *a: (f(*a) ** 3).sum(), (0, 1, 2))(q, k, v) for f in (ours, dense))
    for a, b in zip(found, wanted):
        close(a, b)


@pytest.mark.parametrize("numbers", [False, True])
def test_attention_with_masks_lengths_softcap_and_other_values(numbers):
    layout = tartan.Layout.pattern("local", (12, 12), 4, window=2)
    stored = np.kron(layout.mask(), np.ones((4, 4))) > 0
    q, k, v = (normal(2, 2, 12, d, seed=s) for s, d in enumerate((8, 8, 5)))
    lengths = jnp.asarray([12, 9])
    mask = normal(2, 1, 12, 12, seed=9)
    mask = mask if numbers else mask > -0.5

    def dense(q, k, v):
        scores = 0.7 * jnp.tanh(0.3 * q @ k.swapaxes(-1, -2) / 0.7)
        seen = stored & (jnp.arange(12) < lengths[:, None])[:, None, None]
        scores, seen = (scores + mask, seen) if numbers else (scores, seen & mask)
        return jnp.where(seen.any(-1, keepdims=True), jax.nn.softmax(jnp.where(seen, scores, -1e300), axis=-1), 0) @ v

    ours = lambda *a: attention(*a, layout, scale=0.3, softcap=0.7, mask=mask, key_lengths=lengths)  # noqa: E731
    close(jax.jit(ours)(q, k, v), dense(q, k, v))
    found, wanted = (jax.jit(jax.grad(lambda *a: (f(*a) ** 3).sum(), (0, 1, 2)))(q, k, v) for f in (ours, dense))
    for a, b in zip(found, wanted):
        close(a, b)
    if numbers:
        with pytest.raises(tartan.UnsupportedError, match="no derivative by mask"):
            jax.grad(lambda m: attention(q, k, v, layout, mask=m).sum())(mask)
    else:
        kept = tartan.BlockMask.from_dense(layout, np.asarray(mask[0, 0]) & stored)
        close(attention(q, k, v, layout, mask=kept), attention(q, k, v, layout, mask=mask[0, 0]))


def test_bad_operands_are_refused_when_a_function_is_traced():
    x = normal(15, 3)
    with pytest.raises(tartan.ShapeError, match=r"values has shape \[1, 4, 4\], expected \[\d+, 4, 4\]"):
        jax.jit(lambda v: spmm(LAYOUT, v, x))(normal(1, 4, 4))
    with pytest.raises(tartan.ShapeError, match=r"x has shape \[15, 3\], expected \[10, any\]"):
        spmm(LAYOUT, values_of(DENSE), x, transpose=True)
    with pytest.raises(tartan.ShapeError, match=r"y has shape \[3, 3\], expected \[3, 15\]"):
        sddmm(LAYOUT, normal(10, 3), normal(3, 3))
    with pytest.raises(tartan.ShapeError, match="layout has 2 heads, expected 1"):
        sddmm(tartan.Layout.pattern("dense", (4, 4), 4, heads=2), normal(4, 3), normal(3, 4))
    with pytest.raises(tartan.ArgumentTypeError, match="layout is of type int, expected a Layout"):
        spmm(3, normal(1, 4, 4), x)
