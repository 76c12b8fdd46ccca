# SPDX-License-Identifier: Apache-2.0
"""Softmax, losses of classes and tables of rows: values by NumPy, and beside PyTorch where it is there."""

import numpy as np
import pytest

import tartan

INTEGERS = ["int64", "int32", "uint8", "int8", "uint16", "int16", "uint32", "uint64"]


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_softmax(rng):
    x = rng.standard_normal((3, 4, 7))
    np.testing.assert_allclose(tartan.softmax(x), softmax(x), rtol=1e-14)
    np.testing.assert_allclose(tartan.softmax(x, scale=-0.5), softmax(-0.5 * x), rtol=1e-14)
    np.testing.assert_allclose(tartan.log_softmax(x), np.log(softmax(x)), rtol=1e-13)
    mask = rng.random((3, 4, 7)) < 0.6
    mask[0, 0] = False
    with np.errstate(invalid="ignore"):
        wanted = np.nan_to_num(softmax(np.where(mask, x, -np.inf)))
    for given in (mask, mask.astype(np.uint8), mask * 2.5):  # numbers are masks, too
        np.testing.assert_allclose(tartan.softmax(x, mask=given), wanted, rtol=1e-14)
    np.testing.assert_allclose(tartan.softmax(x, mask=mask[1, 1]), tartan.softmax(x, mask=np.broadcast_to(mask[1, 1], x.shape)))
    assert not tartan.softmax(x, mask=mask)[0, 0].any()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_labels_of_any_integers(rng, dtype):
    x, labels = rng.standard_normal((6, 5)), np.array([0, 4, 1, 1, 3, 2], dtype)
    wanted = -np.log(softmax(x))[np.arange(6), labels.astype(int)]
    for given in (labels, labels[::-1].copy()[::-1], list(map(int, labels))):
        np.testing.assert_allclose(tartan.cross_entropy(x, given), wanted, rtol=1e-13)
    out, lse, slope = tartan.cross_entropy(x, labels, scale=0.5, return_lse=True, return_slope=True)
    np.testing.assert_allclose(lse, np.log(np.exp(x).sum(-1)), rtol=1e-13)
    np.testing.assert_allclose(slope, 0.5 * (softmax(x) - np.eye(5)[labels.astype(int)]), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(tartan.cross_entropy_gradient(x, labels, lse, np.full(6, 0.5)), slope, rtol=1e-12, atol=1e-14)


def test_the_slope_takes_the_place_of_the_logits(rng):
    x = rng.standard_normal((4, 9)).astype(np.float32)
    labels = np.array([1, 2, -100, 8])
    wanted = tartan.cross_entropy(x, labels, return_slope=True)[1]
    assert not wanted[2].any()
    found = tartan.cross_entropy(x, labels, slope=x)
    assert found[1] is x
    np.testing.assert_array_equal(x, wanted)


def test_labels_and_indices_out_of_range():
    x = np.zeros((2, 3, 4))
    with pytest.raises(tartan.ArgumentError, match=r"labels\[1, 2\] is 4, expected 0 .. 3, or -100 \(ignore_index\)"):
        tartan.cross_entropy(x, [[0, 1, 2], [3, 3, 4]])
    with pytest.raises(tartan.ArgumentError, match=r"indices\[1\] is -2, expected 0 .. 4, or -1 \(padding_index\)"):
        tartan.embedding(np.zeros((5, 2)), [-1, -2])
    with pytest.raises(tartan.DTypeError, match="labels is of float64, expected integers"):
        tartan.cross_entropy(x, np.zeros((2, 3)))
    with pytest.raises(tartan.ArgumentError, match="labels has the value 18446744073709551615"):
        tartan.cross_entropy(x, np.full((2, 3), 2**64 - 1, np.uint64))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_embedding(rng, dtype):
    table, ids = rng.standard_normal((5, 3)), np.array([[4, 0, 4], [2, 4, 1]], dtype)
    places = ids.astype(int)
    np.testing.assert_array_equal(tartan.embedding(table, ids), table[places])
    padded = table[places]
    padded[places == 4] = 0
    np.testing.assert_array_equal(tartan.embedding(table, ids, padding_index=4), padded)
    y_grad, wanted = rng.standard_normal((2, 3, 3)), np.zeros((5, 3))
    np.add.at(wanted, places, y_grad)
    np.testing.assert_allclose(tartan.embedding_gradient(table, ids, y_grad), wanted, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_as_pytorch_does(rng, dtype):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    kind = getattr(torch, dtype)
    near = {"rtol": 4 * torch.finfo(kind).eps, "atol": 4 * torch.finfo(kind).eps}
    x = torch.from_numpy(rng.standard_normal((8, 33))).to(kind)
    labels = torch.from_numpy(rng.integers(0, 33, 8))
    labels[3] = -100

    def both(ours, theirs, given, factor):
        a, b = given.clone().requires_grad_(), given.clone().requires_grad_()
        y, z = ours(a), theirs(b)
        torch.testing.assert_close(y, z.to(y.dtype), **near)
        (y * factor).sum().backward()
        (z * factor.to(z.dtype)).sum().backward()
        torch.testing.assert_close(a.grad, b.grad, **near)

    weights = torch.from_numpy(rng.standard_normal((8, 33))).to(kind)
    both(lambda t: tartan.softmax(t), lambda t: functional.softmax(t, -1), x, weights)
    both(lambda t: tartan.log_softmax(t), lambda t: functional.log_softmax(t, -1), x, weights)
    for smoothing in (0.0, 0.1):
        for given in (labels, labels.to(torch.int16)):
            both(
                lambda t, g=given, s=smoothing: tartan.cross_entropy(t, g, label_smoothing=s),
                lambda t, s=smoothing: functional.cross_entropy(t.double(), labels, reduction="none", label_smoothing=s),
                x,
                torch.ones(8),
            )
    ids = torch.from_numpy(rng.integers(0, 8, (5, 6)))
    both(lambda t: tartan.embedding(t, ids), lambda t: functional.embedding(ids, t), x, torch.ones(5, 6, 33))
