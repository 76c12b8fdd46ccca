# SPDX-License-Identifier: Apache-2.0
"""The largest numbers of lines, and elements and rows by their indices: values by NumPy, and beside PyTorch where it is there."""

import numpy as np
import pytest

import tartan


def test_top_k(rng):
    x = np.round(rng.standard_normal((3, 4, 70)), 1)  # some are equal
    order = np.argsort(-x, -1, kind="stable")
    for k in (1, 5, 70):
        values, indices = tartan.top_k(x, k=k)
        assert indices.dtype == np.int64
        np.testing.assert_array_equal(indices, order[..., :k])
        np.testing.assert_array_equal(values, np.take_along_axis(x, order[..., :k], -1))
    np.testing.assert_array_equal(tartan.take_along(x, tartan.top_k(x, k=5)[1]), tartan.top_k(x, k=5)[0])
    values, indices = tartan.top_k(x.astype(np.float32), k=2, indices=np.empty((3, 4, 2), np.int32))
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(indices, order[..., :2])
    with pytest.raises(tartan.ArgumentError, match=r"k is 71, expected at most 70, for x of shape \[3, 4, 70\]"):
        tartan.top_k(x, k=71)


def test_fancy_gather_of_blocksparse(rng):
    """y[i, r] = x[i, idx[i], r]: strides say which axis and that the index is the same for all r."""
    x, idx = rng.standard_normal((6, 5, 4)), rng.integers(0, 5, 6)
    repeated = np.broadcast_to(idx[:, None, None], (6, 4, 1))
    found = tartan.take_along(np.moveaxis(x, 1, 2), repeated)[..., 0]
    np.testing.assert_array_equal(found, x[np.arange(6), idx])
    grad, wanted = rng.standard_normal((6, 4)), np.zeros_like(x)
    wanted[np.arange(6), idx] = grad
    np.testing.assert_array_equal(tartan.take_along_gradient(np.moveaxis(x, 1, 2), repeated, grad[..., None]), np.moveaxis(wanted, 1, 2))
    with pytest.raises(tartan.ArgumentError, match=r"indices\[1, 0\] is -1, expected 0 .. 4"):
        tartan.take_along(x[:, :, 0], [[0], [-1], [0], [0], [0], [0]])


def test_sparse_proj_of_blocksparse(rng):
    """Its map, methods and gradients, with features on either axis. Inputs stay as they are."""
    n, k, width = 64, 16, 5
    for rows in (np.sort(rng.choice(n, k, replace=False)), np.arange(0, n, n // k)):
        x, y, z_grad = rng.standard_normal((n, width)), rng.standard_normal((k, width)), rng.standard_normal((n, width))
        kept = x.copy(), y.copy(), z_grad.copy()
        np.testing.assert_array_equal(tartan.embedding(x, rows), x[rows])
        wanted = {word: x.copy() for word in ("set", "add", "multiply")}
        wanted["set"][rows] = y
        wanted["add"][rows] += y
        wanted["multiply"][rows] *= y
        for word, want in wanted.items():
            np.testing.assert_array_equal(tartan.scatter_rows(x, rows, y, combine=word), want)
            np.testing.assert_array_equal(tartan.scatter_rows(x.T.copy().T, rows, y.T.copy().T, combine=word), want)
        alone = np.zeros((n, width))
        alone[rows] = y
        np.testing.assert_array_equal(tartan.scatter_rows(np.broadcast_to(0.0, (n, width)), rows, y), alone)
        grads = tartan.scatter_rows_gradient(z_grad, rows, y=y, x=x, combine="multiply")
        slope = z_grad.copy()
        slope[rows] *= y
        np.testing.assert_array_equal(grads.x, slope)
        np.testing.assert_array_equal(grads.y, (z_grad * x)[rows])
        for now, before in zip((x, y, z_grad), kept):
            np.testing.assert_array_equal(now, before)
        inside = x.copy()
        assert tartan.scatter_rows(inside, rows, y, combine="add", out=inside) is inside
        np.testing.assert_array_equal(inside, wanted["add"])
    with pytest.raises(tartan.ArgumentError, match=r"indices\[2\] is 1, as indices\[0\], expected different indices"):
        tartan.scatter_rows(np.zeros((3, 2)), [1, 0, 1], np.ones((3, 2)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_as_pytorch_does(rng, dtype):
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    near = {"rtol": 8 * torch.finfo(kind).eps, "atol": 8 * torch.finfo(kind).eps}
    x = torch.from_numpy(rng.permutation(8 * 33).reshape(8, 33) / 100 - 1).to(kind)
    wide = x.double()

    def both(ours, theirs, given, factor):
        a, b = given.clone().requires_grad_(), given.clone().double().requires_grad_()
        y, z = ours(a), theirs(b)
        torch.testing.assert_close(y, z.to(y.dtype), **near)
        (y * factor.to(y.dtype)).sum().backward()
        (z * factor).sum().backward()
        torch.testing.assert_close(a.grad, b.grad.to(kind), **near)

    def largest(t, k):
        return torch.zeros_like(t).scatter(-1, torch.topk(t, k).indices, 1)

    weights = torch.from_numpy(rng.standard_normal((8, 33))).to(kind).double()
    for k in (1, 4, 33):
        both(lambda t, k=k: tartan.top_k(t, k=k)[0], lambda t, k=k: torch.topk(t, k).values, x, weights[:, :k])
        both(lambda t, k=k: tartan.top_k_softmax(t, k=k, scale=0.5),
             lambda t, k=k: torch.softmax(torch.where(largest(t, k) > 0, t / 2, -torch.inf), -1), x, weights)  # fmt: skip
        both(lambda t, k=k: tartan.rectified_top_k(t, k=k),
             lambda t, k=k: torch.relu(t - torch.relu(torch.topk(t, k).values[..., -1:])), x, weights)  # fmt: skip
        both(lambda t, k=k: tartan.rectified_top_k(t, k=k, rebase=False), lambda t, k=k: torch.relu(t) * largest(t, k), x, weights)
    both(lambda t: tartan.reduce_max(t), lambda t: t.max(-1).values, x, weights[:, 0])
    both(lambda t: tartan.reduce_max(t.T), lambda t: t.max(0).values, x, weights[0])
    indices = torch.from_numpy(rng.integers(0, 33, (8, 40)))
    both(lambda t: tartan.take_along(t, indices), lambda t: torch.gather(t, -1, indices), x, torch.ones(8, 40).double())
    if dtype in ("float64", "float32"):  # elsewhere numbers are rounded across the cut
        both(lambda t: tartan.sparse_relu(t, alpha=0.5), lambda t: torch.relu(t - t.mean(-1, keepdim=True) - t.std(-1, correction=0, keepdim=True) / 2),
             x, weights)  # fmt: skip
    rows, y = torch.tensor([5, 0, 2]), x[:3, :].flip(-1)
    for word, peer in (("set", lambda t: wide.index_copy(0, rows, t)), ("add", lambda t: wide.index_add(0, rows, t)),
                       ("multiply", lambda t: wide.index_copy(0, rows, wide[rows] * t))):  # fmt: skip
        both(lambda t, w=word: tartan.scatter_rows(x, rows, t, combine=w), peer, y, weights)
    for word, peer in (("set", lambda t: t.index_copy(0, rows, y.double())), ("add", lambda t: t.index_add(0, rows, y.double())),
                       ("multiply", lambda t: t.index_copy(0, rows, t[rows] * y.double()))):  # fmt: skip
        both(lambda t, w=word: tartan.scatter_rows(t, rows, y, combine=w), peer, x, weights)
