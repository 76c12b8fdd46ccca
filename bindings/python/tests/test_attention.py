# SPDX-License-Identifier: Apache-2.0
"""Attention and in-block masks in host memory."""

import copy
import pickle
import threading

import numpy as np
import pytest
from attention_support import biased, dense_attention, visible
from conftest import EPS, random_layout

import tartan
from tartan import BlockMask, Layout, attention, attention_bias_gradient, attention_gradient


def tensors(rng, batch=2, heads=4, kv_heads=4, queries=40, keys=52, d=8, dtype="float64"):
    shapes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    return tuple(rng.standard_normal((batch, h, t, d)).astype(dtype) for h, t in shapes)


def bias_of(rng, kind, layout, heads, dtype):
    shape = {"slopes": heads, "distance_bias": (heads, 9), "block_bias": (1 if layout.heads > 1 else heads, layout.blocks)}
    return {} if kind is None else {kind: rng.standard_normal(shape[kind]).astype(dtype)}


CASES = [
    {}, {"causal": True}, {"causal": True, "query_offset": 12, "causal_from": 3}, {"scale": 0.7}, {"kv_heads": 2},
    {"kv_heads": 1, "layout_heads": 4}, {"masked": True}, {"masked": True, "layout_heads": 4, "causal": True},
    {"bias": "slopes"}, {"bias": "distance_bias", "query_offset": -2}, {"bias": "block_bias"},
    {"bias": "block_bias", "layout_heads": 4}, {"sinks": True}, {"sinks": True, "kv_heads": 2, "causal": True},
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_a_dense_computation(rng, dtype, case):
    case = dict(case)
    q, k, v = tensors(rng, kv_heads=case.pop("kv_heads", 4), dtype=dtype)
    layout = random_layout(rng, (40, 52), (8, 16), 0.5, heads=case.pop("layout_heads", 1))
    mask = BlockMask.from_rule(layout, lambda q, k, h: (q + 2 * k + h) % 3 != 0) if case.pop("masked", False) else None
    bias = bias_of(rng, case.pop("bias", None), layout, 4, "float64" if dtype == "float64" else "float32")
    if "sinks" in case:
        case["sinks"] = rng.standard_normal(4).astype("float64" if dtype == "float64" else "float32")
    hidden = {key: value for key, value in case.items() if key in ("causal", "query_offset", "causal_from")}
    seen = visible(layout, mask, **hidden)
    added = biased(layout, 4, **bias, query_offset=case.get("query_offset", 0))
    wanted, wanted_lse = dense_attention(q, k, v, seen, added, case.get("scale"), case.get("sinks"))
    out, lse = attention(q, k, v, layout, mask=mask, **bias, **case, return_lse=True)
    assert out.dtype == q.dtype and out.shape == q.shape and lse.shape == q.shape[:3]
    assert lse.dtype == (np.float64 if dtype == "float64" else np.float32)
    bound = 40 * EPS[dtype]
    np.testing.assert_allclose(out.astype(float), wanted, rtol=0, atol=bound * np.abs(v.astype(float)).max())
    np.testing.assert_allclose(lse, wanted_lse, rtol=1e-13 if dtype == "float64" else 1e-5, atol=40 * EPS["float64" if dtype == "float64" else "float32"])
    assert np.array_equal(out, attention(q, k, v, layout, mask=mask, **bias, **case))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("block, d", [((64, 64), 64), ((64, 8), 20), ((64, 24), 7)], ids=str)
def test_one_query_has_the_bits_of_many(rng, dtype, block, d):
    """Keys that few queries see are read where they are, others are packed."""
    keys, mask = 520, rng.random((1, -(-520 // block[1]))) < 0.7
    mask[0, -1] = True  # ragged
    k, v = (rng.standard_normal((1, keys, 2, d)).astype(dtype).transpose(0, 2, 1, 3) for _ in range(2))
    q = rng.standard_normal((1, 2, 64, d)).astype(dtype)
    many = attention(q, k, v, Layout.from_mask(mask, block=block, shape=(64, keys)), return_lse=True)
    few = attention(q[:, :, :1], k, v, Layout.from_mask(mask, block=block, shape=(1, keys)), return_lse=True)
    assert np.array_equal(few[0][:, :, 0], many[0][:, :, 0]) and np.array_equal(few[1][:, :, 0], many[1][:, :, 0])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_against_differences(rng, case):
    case = dict(case)
    q, k, v = tensors(rng, kv_heads=case.pop("kv_heads", 4), queries=20, keys=24, d=4)
    layout = random_layout(rng, (20, 24), (8, 8), 0.6, heads=case.pop("layout_heads", 1))
    if case.pop("masked", False):
        case["mask"] = BlockMask.from_rule(layout, lambda q, k, h: (q + 2 * k + h) % 3 != 0)
    case.update(bias_of(rng, case.pop("bias", None), layout, 4, "float64"))
    if "sinks" in case:
        case["sinks"] = rng.standard_normal(4)
    weight = rng.standard_normal(q.shape)

    def loss(*x):
        return float((attention(*x, layout, **case) * weight).sum())

    out, lse = attention(q, k, v, layout, **case, return_lse=True)
    grads = attention_gradient(q, k, v, layout, out, lse, weight, **case)
    given = [name for name in ("slopes", "distance_bias", "block_bias", "sinks") if name in case]
    for name in given:
        bias_grad, sinks_grad = attention_bias_gradient(q, k, v, layout, out, lse, weight, **case)
        assert (bias_grad is None) == (given == ["sinks"]) and (sinks_grad is None) == ("sinks" not in case)
        check_differences(rng, case[name], sinks_grad if name == "sinks" else bias_grad,
                          lambda x: float((attention(q, k, v, layout, **{**case, name: x}) * weight).sum()))
    for i, (x, grad) in enumerate(zip((q, k, v), grads)):
        assert grad.shape == x.shape and grad.dtype == x.dtype
        for _ in range(6):
            at = tuple(rng.integers(0, n) for n in x.shape)
            step = np.zeros_like(x)
            step[at] = 1e-5
            up, down = ([*(q, k, v)[:i], y, *(q, k, v)[i + 1 :]] for y in (x + step, x - step))
            assert abs((loss(*up) - loss(*down)) / 2e-5 - grad[at]) < 1e-7


def check_differences(rng, x, grad, loss):
    assert grad.shape == x.shape and grad.dtype == x.dtype
    for _ in range(6):
        step = np.zeros_like(x)
        step[tuple(rng.integers(0, n) for n in x.shape)] = 1e-5
        assert abs((loss(x + step) - loss(x - step)) / 2e-5 - (grad * step).sum() / 1e-5) < 1e-6


def test_without_batch_and_heads(rng):
    q, k, v = tensors(rng)
    layout = random_layout(rng, (40, 52), 8, 0.5)
    out, lse = attention(q, k, v, layout, return_lse=True)
    grads = attention_gradient(q, k, v, layout, out, lse, out)
    for at in ((1,), (1, 2)):
        part, sums = attention(q[at], k[at], v[at], layout, return_lse=True)
        assert np.array_equal(part, out[at]) and np.array_equal(sums, lse[at])
        some = attention_gradient(q[at], k[at], v[at], layout, part, sums, out[at])
        for a, b in zip(some, grads):
            assert np.array_equal(a, b[at])


def test_results_have_the_order_of_memory(rng):
    q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in tensors(rng, keys=40))
    layout = random_layout(rng, (40, 40), 8, 0.5)
    out, lse = attention(q, k, v, layout, return_lse=True)
    assert out.strides == q.strides and lse.flags.c_contiguous
    assert np.array_equal(out, attention(q.copy("C"), k.copy("C"), v.copy("C"), layout))
    for x, grad in zip((q, k, v), attention_gradient(q, k, v, layout, out, lse, out)):
        assert grad.strides == x.strides
    wide = np.broadcast_to(q[:1], q.shape)  # a stride of 0 says nothing
    assert attention(wide, k, v, layout).strides == q.strides
    backwards = attention(q[..., ::-1], k[..., ::-1], v, layout)
    assert backwards.strides == q.strides
    np.testing.assert_allclose(backwards, out, rtol=1e-12, atol=1e-14)


def test_given_memory(rng):
    q, k, v = tensors(rng)
    layout = random_layout(rng, (40, 52), 8, 0.5)
    out, lse = np.full(q.shape, 7.0), np.full(q.shape[:3], 7.0)
    assert attention(q, k, v, layout, out=out) is out
    result = attention(q, k, v, layout, out=out, lse=lse)
    assert result[0] is out and result[1] is lse
    wanted = attention(q, k, v, layout, return_lse=True)
    assert np.array_equal(out, wanted[0]) and np.array_equal(lse, wanted[1])
    into = np.zeros((2, 40, 4, 8)).swapaxes(1, 2)
    attention(q, k, v, layout, out=into)
    assert np.array_equal(into, out)


def test_dropout_and_empty_rows(rng):
    q, k, v = tensors(rng)
    layout = Layout.from_mask(np.eye(5, 7), 8, shape=(40, 52))
    a, b, c = (attention(q, k, v, layout, dropout=0.4, seed=s) for s in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    empty = Layout.from_mask(np.zeros((5, 7)), 8, shape=(40, 52))
    out, lse = attention(q, k, v, empty, return_lse=True)
    assert not out.any() and np.isneginf(lse).all()
    assert not any(x.any() for x in attention_gradient(q, k, v, empty, out, lse, np.ones_like(out)))
    none = Layout.from_mask(np.zeros((5, 0)), 8, shape=(40, 0))
    assert not attention(q, k[:, :, :0], v[:, :, :0], none).any()


# ---- Masks ----


def test_the_order_of_sums_is_an_option(rng):
    q, k, v = tensors(rng)
    layout = Layout.from_mask(np.eye(5, 7), 8, shape=(40, 52))
    out, lse = attention(q, k, v, layout, deterministic=False, return_lse=True)
    assert np.array_equal(out, attention(q, k, v, layout))
    usual = attention_gradient(q, k, v, layout, out, lse, out)
    for a, b in zip(usual, attention_gradient(q, k, v, layout, out, lse, out, deterministic=False)):
        assert np.array_equal(a, b)  # the CPU's order is always the same


def rule(q, k, head):
    return (3 * q + k + head) % 4 == 1


@pytest.mark.parametrize("block", [8, (4, 6), (33, 40), 1])
@pytest.mark.parametrize("heads", [1, 3])
def test_masks(rng, block, heads):
    layout = random_layout(rng, (50, 70), block, 0.5, heads=heads)
    h, q, k = np.meshgrid(np.arange(heads), np.arange(50), np.arange(70), indexing="ij")
    dense = rule(q, k, h)
    wanted = visible(layout) & dense
    one = wanted if heads > 1 else wanted[0]
    mask, every = BlockMask.from_rule(layout, rule), BlockMask.from_rule(layout, lambda q, k, head: True)
    assert every.stored == 0
    assert mask.kept == wanted.sum() and np.array_equal(mask.toarray(), one)
    for given in (dense, dense.astype(float) * 3, dense.view(np.uint8), np.asfortranarray(dense)):
        same = BlockMask.from_dense(layout, given if heads > 1 else given[0])
        assert np.array_equal(same.toarray(), one)
    shared = BlockMask.from_dense(layout, dense[0])
    assert np.array_equal(shared.toarray().reshape(wanted.shape), visible(layout) & dense[0])
    assert np.array_equal(pickle.loads(pickle.dumps(mask)).toarray(), one)
    assert mask.stored == len({x.tobytes() for x in mask.bits()} - {x.tobytes() for x in every.bits()})
    assert copy.deepcopy(mask) is mask and np.array_equal(BlockMask.from_bits(layout, mask.bits()).bits(), mask.bits())
    assert repr(mask).startswith(f"<BlockMask of {mask.kept} elements in {layout.blocks} blocks of ")


def test_rules_are_asked_about_stored_elements_in_parts(monkeypatch):
    monkeypatch.setattr("tartan._rules._ELEMENTS", 200)
    layout = Layout.pattern("causal", (50, 50), 8)
    documents, seen = np.arange(50) // 13, []

    def same_document(q, k, head):
        seen.append((q.size, k.size, head.size))
        return documents[q] == documents[k]  # fails beyond the edges

    mask = BlockMask.from_rule(layout, same_document)
    assert len(seen) == -(-layout.blocks // 3) and seen[0] == (24, 24, 3)
    assert np.array_equal(mask.toarray(), visible(layout)[0] & (documents[:, None] == documents))
    assert BlockMask.from_rule(layout, lambda q, k, head: True).kept == layout.nnz


def test_long_sequences_need_memory_for_stored_blocks_alone():
    layout = Layout.pattern("local", (65536, 65536), 64, window=1)
    mask = BlockMask.from_rule(layout, lambda q, k, head: k <= q)
    assert mask.kept == layout.nnz - 1024 * 64 * 63 // 2
    assert mask.stored == 1 and len(pickle.dumps(mask)) < 200_000  # the diagonal block, and a number for each
    x = np.ones((65536, 8), np.float32)
    assert attention(x, x, x, layout, mask=mask).shape == (65536, 8)


# ---- Refusals ----


def test_refusals(rng):
    q, k, v = tensors(rng)
    layout = random_layout(rng, (40, 52), 8, 0.5)
    other = BlockMask.from_rule(random_layout(rng, (40, 52), 8, 0.4), rule)
    out, lse = attention(q, k, v, layout, return_lse=True)
    slopes, layout_of_four = np.ones(4), random_layout(rng, (4, 52), 4, 0.5)
    for kind, words, call in (
        (tartan.ShapeError, r"attention: q has 1 dimensions, expected 2 to 4", lambda: attention(q[0, 0, 0], k, v, layout)),
        (tartan.ShapeError, r"attention: k has 3 dimensions, expected 4", lambda: attention(q, k[0], v, layout)),
        (tartan.ShapeError, r"k has shape .* expected \[2, kv_heads, 52, 8\]", lambda: attention(q, q, q, layout)),
        (tartan.ShapeError, r"k has 3 heads, expected a divisor", lambda: attention(q, k[:, :3], v[:, :3], layout)),
        (tartan.ShapeError, r"out has 3 dimensions", lambda: attention(q, k, v, layout, out=out[0])),
        (tartan.ShapeError, r"lse has 4 dimensions, expected 3", lambda: attention(q, k, v, layout, lse=out)),
        (tartan.DTypeError, r"k is of float32, expected float64", lambda: attention(q, k.astype("f4"), v, layout)),
        (tartan.DTypeError, r"slopes is of float32, expected float64",
         lambda: attention(q, k, v, layout, slopes=slopes.astype("f4"))),
        (tartan.ShapeError, r"distance_bias has shape \[4, 8\], .* odd",
         lambda: attention(q, k, v, layout, distance_bias=np.ones((4, 8)))),
        (tartan.ShapeError, r"block_bias has shape", lambda: attention(q, k, v, layout, block_bias=np.ones((4, 3)))),
        (tartan.DTypeError, r"sinks is of float32, expected float64",
         lambda: attention(q, k, v, layout, sinks=slopes.astype("f4"))),
        (tartan.ShapeError, r"sinks has shape \[3\], expected \[4\]", lambda: attention(q, k, v, layout, sinks=np.ones(3))),
        (tartan.ArgumentError, r"lse overlaps sinks",
         lambda: attention(q[:1, :1, :4], k[:1, :1], v[:1, :1], layout_of_four, lse=slopes[None, None], sinks=slopes[:1])),
        (tartan.ArgumentError, r"slopes and block_bias are given, expected at most one",
         lambda: attention(q, k, v, layout, slopes=slopes, block_bias=slopes)),
        (tartan.ArgumentError, r"out overlaps q", lambda: attention(q, k, v, layout, out=q)),
        (tartan.ArgumentError, r"out is read-only|out .*read-only", lambda: attention(q, k, v, layout, out=frozen(out))),
        (tartan.ArgumentError, r"dropout is 1, expected a finite number of 0 or more and below 1", lambda: attention(q, k, v, layout, dropout=1.0)),
        (tartan.ArgumentError, r"scale is nan, expected a finite number", lambda: attention(q, k, v, layout, scale=float("nan"))),
        (tartan.ArgumentError, r"query_offset is given, which needs causal=True or a bias$",
         lambda: attention(q, k, v, layout, query_offset=3)),
        (tartan.ArgumentError, r"causal_from is given, which needs causal=True", lambda: attention(q, k, v, layout, causal_from=3)),
        (tartan.ArgumentError, r"seed", lambda: attention(q, k, v, layout, seed=-1)),
        (tartan.ArgumentTypeError, r"scale is of type str", lambda: attention(q, k, v, layout, scale="1")),
        (tartan.ArgumentTypeError, r"seed is of type float", lambda: attention(q, k, v, layout, seed=1.5)),
        (tartan.LayoutError, r"mask has another layout than layout", lambda: attention(q, k, v, layout, mask=other)),
        (tartan.HandleTypeError, r"mask is of type Layout, expected a BlockMask, or an array",
         lambda: attention(q, k, v, layout, mask=layout)),
        (tartan.HandleTypeError, r"layout is of type ndarray", lambda: attention(q, k, v, np.ones((5, 7)))),
        (tartan.ShapeError, r"attention_gradient: lse has shape",
         lambda: attention_gradient(q, k, v, layout, out, lse[:, :, :9], out)),
        (tartan.ArgumentError, r"attention_bias_gradient: no bias and no sinks are given",
         lambda: attention_bias_gradient(q, k, v, layout, out, lse, out)),
        (tartan.ShapeError, r"attention_bias_gradient: sinks has shape \[3\], expected \[4\]",
         lambda: attention_bias_gradient(q, k, v, layout, out, lse, out, sinks=np.ones(3))),
        (tartan.ShapeError, r"attention_bias_gradient: lse has shape",
         lambda: attention_bias_gradient(q, k, v, layout, out, lse[:, :, :9], out, slopes=slopes)),
        (tartan.ShapeError, r"out_grad has shape", lambda: attention_gradient(q, k, v, layout, out, lse, out[:1])),
        (tartan.DTypeError, r"mask has elements of complex128", lambda: BlockMask.from_dense(layout, q[0, 0] * 1j)),
        (tartan.ShapeError, r"mask has shape \[40, 8\], expected \[40, 52\]", lambda: BlockMask.from_dense(layout, q[0, 0])),
        (tartan.ArgumentTypeError, r"rule is of type int", lambda: BlockMask.from_rule(layout, 3)),
        (tartan.ShapeError, r"rule returned shape \(3,\)", lambda: BlockMask.from_rule(layout, lambda *x: np.ones(3, bool))),
        (tartan.DTypeError, r"rule returned elements of float64", lambda: BlockMask.from_rule(layout, lambda *x: 1.0)),
        (tartan.ShapeError, r"bits has 8 entries", lambda: BlockMask.from_bits(layout, np.zeros(8, np.uint8))),
        (TypeError, r"from_dense, from_rule or from_sequences", BlockMask),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            call()


def frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


# ---- Closing ----


def test_closed_objects(rng):
    q, k, v = tensors(rng)
    layout = random_layout(rng, (40, 52), 8, 0.5)
    with BlockMask.from_rule(layout, rule) as mask:
        wanted = attention(q, k, v, layout, mask=mask)
    assert mask.closed and repr(mask) == "<BlockMask, closed>"
    mask.close()
    with pytest.raises(tartan.HandleError, match="mask is closed"):
        attention(q, k, v, layout, mask=mask)
    twin = Layout.from_mask(layout.mask(), 8, shape=(40, 52))
    kept = BlockMask.from_rule(layout, rule)
    layout.close()  # the mask keeps it
    assert np.array_equal(attention(q, k, v, twin, mask=kept), wanted)
    with pytest.raises(tartan.HandleError, match="layout is closed"):
        attention(q, k, v, layout)


def test_closing_while_another_thread_computes(rng):
    q, k, v = tensors(rng, queries=512, keys=512, d=32)
    layout = Layout.pattern("causal", (512, 512), 32)
    wanted = attention(q, k, v, layout, mask=BlockMask.from_rule(layout, rule)).tobytes()
    results = []

    def work(layout, mask, started):
        started.set()
        try:
            results.append(attention(q, k, v, layout, mask=mask).tobytes() == wanted)
        except tartan.HandleError as error:
            results.append("closed" in str(error))

    for _ in range(20):
        twin, started = Layout.pattern("causal", (512, 512), 32), threading.Event()
        mask = BlockMask.from_rule(twin, rule)
        thread = threading.Thread(target=work, args=(twin, mask, started))
        thread.start()
        started.wait()
        mask.close()
        twin.close()
        thread.join()
    assert results == [True] * 20


def test_explained(rng):
    q, k, v = tensors(rng)
    layout = random_layout(rng, (40, 52), 8, 0.5)
    (plan,) = tartan.explain(attention, q, k, v, layout)
    assert plan["operation"] == "attention_forward" and plan["device"] == "cpu" and plan["flops"] > 0
