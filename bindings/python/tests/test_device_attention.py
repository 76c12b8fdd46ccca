# SPDX-License-Identifier: Apache-2.0
"""Attention on a device equals that of the CPU."""

import numpy as np
import pytest
from conftest import EPS, random_layout
from device_support import HAS_DEVICE, HOST_DTYPES, Exporter, Interface, dummy_only, exchanging, random_array

import tartan
from tartan import (
    BlockMask,
    DeviceArray,
    attention,
    attention_bias_gradient,
    attention_gradient,
    to_device,
)

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


def close(x, y, dtype):
    assert isinstance(x, DeviceArray) and x.device == "cuda:0"
    x = x.to_host()
    assert x.shape == y.shape and x.dtype == y.dtype
    np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=8 * EPS[dtype], atol=40 * EPS[dtype])


@pytest.mark.parametrize("dtype", HOST_DTYPES)
@pytest.mark.parametrize("form", ["plain", "causal", "mask", "slopes", "sinks", "grouped", "2-d"])
def test_equals_the_cpu(rng, dtype, form):
    layout = random_layout(rng, (64, 96), 16, 0.6)
    shapes = (4, 64, 32), (2 if form == "grouped" else 4, 96, 32)
    q, k, v = (random_array(rng, (2, *shapes[i > 0]), dtype) for i in range(3))
    if form == "2-d":
        q, k, v = q[0, 0], k[0, 0], v[0, 0]
    options = {
        "causal": {"causal": True, "query_offset": 32}, "mask": {"mask": BlockMask.from_rule(layout, lambda q, k, h: k > 3)},
    }.get(form, {})  # fmt: skip
    there = dict(options)
    if form == "slopes":
        options["slopes"] = (rng.random(4) / 64).astype("f8" if dtype == "float64" else "f4")
        there["slopes"] = to_device(options["slopes"])
    sinks = {"sinks": rng.standard_normal(4).astype("f8" if dtype == "float64" else "f4")} if form == "sinks" else {}
    far = [to_device(x) for x in (q, k, v)]
    out, lse = attention(q, k, v, layout, **options, **sinks, return_lse=True)
    far_sinks = {name: to_device(x) for name, x in sinks.items()}
    far_out, far_lse = attention(*far, layout, **there, **far_sinks, return_lse=True)
    close(far_out, out, dtype)
    close(far_lse, lse, "float64" if dtype == "float64" else "float32")
    grad = random_array(rng, out.shape, dtype)
    wanted = attention_gradient(q, k, v, layout, out, lse, grad, **options)
    for x, y in zip(attention_gradient(*far, layout, far_out, far_lse, to_device(grad), **there), wanted):
        close(x, y, dtype)
    if form in ("slopes", "sinks"):
        wanted = attention_bias_gradient(q, k, v, layout, out, lse, grad, **options, **sinks)
        found = attention_bias_gradient(*far, layout, far_out, far_lse, to_device(grad), **there, **far_sinks)
        for x, y in zip(found, wanted):
            assert (x is None) == (y is None)
            if y is not None:  # sums over all pairs
                np.testing.assert_allclose(x.to_host(), y, rtol=8 * EPS[dtype], atol=300 * EPS[dtype] * np.abs(y).max())


def test_given_memory_and_refusals(rng):
    layout = random_layout(rng, (64, 64), 16, 0.6)
    q = random_array(rng, (4, 64, 32), "float32")
    far, out = to_device(q), DeviceArray.zeros((4, 64, 32), "float32")
    assert attention(far, far, far, layout, out=out) is out
    close(out, attention(q, q, q, layout), "float32")
    with pytest.raises(tartan.UnsupportedError, match="k is "):
        attention(far, q, far, layout)
    with pytest.raises(tartan.ShapeError, match=r"k has shape .* expected \[1, kv_heads, 64, 32\]"):
        attention(far, to_device(q[:, :60]), far, layout)
    (plan,) = tartan.explain(attention, far, far, far, layout)
    assert plan["device"].startswith("cuda")


@dummy_only
@pytest.mark.parametrize("form", ["exporter", "interface", "exchange"])
def test_arrays_of_other_libraries(rng, form):
    layout = random_layout(rng, (64, 64), 16, 0.6)
    x = random_array(rng, (2, 64, 32), "float32")
    make = {"exporter": Exporter, "interface": Interface, "exchange": exchanging()}[form]
    far, out = make(to_device(x)), make(DeviceArray.zeros(x.shape, "float32"))
    wanted, sums = attention(x, x, x, layout, return_lse=True)
    assert attention(far, far, far, layout, out=out) is out
    close(out.array, wanted, "float32")
    result, lse = attention(far, far, far, layout, return_lse=True)
    close(result, wanted, "float32")
    close(lse, sums, "float32")
    grads = attention_gradient(far, far, far, layout, result, lse, out)
    for x, y in zip(grads, attention_gradient(x, x, x, layout, wanted, sums, wanted)):
        close(x, y, "float32")
