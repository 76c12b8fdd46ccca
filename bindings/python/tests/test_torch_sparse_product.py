# SPDX-License-Identifier: Apache-2.0
"""Products of two block-sparse matrices that PyTorch records."""

import numpy as np
import pytest

import tartan
from tartan import BlockMatrix, Layout

torch = pytest.importorskip("torch")
from tartan.torch import sparse_product  # noqa: E402


def operands(rng, shapes, blocks, heads=1, dtype=torch.float64):
    """Layouts and values, with numbers in the padding, which nobody must read."""
    for (rows, cols), (height, width) in zip(shapes, blocks):
        grid = -(-rows // height), -(-cols // width)
        layout = Layout.from_mask(rng.random((heads, *grid)) < 0.6, (height, width), shape=(heads, rows, cols))
        values = torch.from_numpy(rng.standard_normal((layout.blocks, height, width))).to(dtype)
        yield from (layout, values.requires_grad_())


def dense(layout, values):
    """The dense matrices of all heads, recorded by PyTorch's own operations."""
    height, width = layout.block_shape
    head, rows, cols = (torch.from_numpy(np.asarray(x)).long() for x in layout.coordinates())
    whole = values.new_zeros(layout.heads, layout.grid[0], layout.grid[1], height, width)
    whole = whole.index_put((head, rows, cols), values)
    whole = whole.transpose(2, 3).reshape(layout.heads, layout.grid[0] * height, layout.grid[1] * width)
    return whole[:, : layout.rows, : layout.cols]


CASES = [
    (((16, 24), (24, 8)), ((4, 8), (8, 4)), 1), (((13, 10), (10, 11)), ((4, 3), (3, 5)), 1), (((12, 12), (12, 12)), ((4, 4), (4, 4)), 3),
    (((7, 9), (9, 5)), ((2, 4), (4, 8)), 2),
]  # fmt: skip


@pytest.mark.parametrize("shapes, blocks, heads", CASES)
def test_equals_dense_products(rng, shapes, blocks, heads):
    a, x, b, y = operands(rng, shapes, blocks, heads)
    layout, values = sparse_product(a, x, b, y)
    wanted = dense(a, x) @ dense(b, y)
    found = dense(layout, values)
    assert torch.allclose(found, wanted)
    weights = torch.from_numpy(rng.standard_normal(wanted.shape))
    for ours, theirs in zip(torch.autograd.grad((found * weights).sum(), (x, y)), torch.autograd.grad((wanted * weights).sum(), (x, y))):
        assert torch.allclose(ours, theirs)


@pytest.mark.parametrize("shapes, blocks, heads", CASES[1:3])
def test_gradients_to_any_order(rng, shapes, blocks, heads):
    a, x, b, y = operands(rng, shapes, blocks, heads)
    function = lambda x, y: sparse_product(a, x, b, y)[1]  # noqa: E731
    assert torch.autograd.gradcheck(function, (x, y))
    assert torch.autograd.gradgradcheck(function, (x, y))


def test_padding_has_no_gradient(rng):
    a, x, b, y = operands(rng, ((5, 6), (6, 7)), ((4, 4), (4, 4)))
    _, values = sparse_product(a, x, b, y)
    values.sum().backward()  # of the padding, too
    for layout, leaf in ((a, x), (b, y)):
        clean = BlockMatrix.from_dense(dense(layout, leaf.grad)[0].numpy(), layout=layout)
        np.testing.assert_array_equal(leaf.grad.numpy(), clean.values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(rng, dtype):
    a, x, b, y = operands(rng, ((16, 16), (16, 16)), ((8, 8), (8, 8)), dtype=dtype)
    layout, values = sparse_product(a, x, b, y)
    values.float().sum().backward()
    assert values.dtype == x.grad.dtype == dtype
    assert torch.allclose(dense(layout, values).float(), dense(a, x).float() @ dense(b, y).float(), rtol=0.02, atol=0.05)


def test_a_power_is_trained(rng):
    """One matrix on both sides, and one without blocks."""
    a, x, *_ = operands(rng, ((12, 12), (12, 12)), ((4, 4), (4, 4)))
    target = dense(a, x.detach()) @ dense(a, x.detach())
    leaf = torch.nn.Parameter(x.detach() + 0.1 * torch.from_numpy(rng.standard_normal(x.shape)))
    optimizer, losses = torch.optim.Adam([leaf], lr=0.02), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (dense(*sparse_product(a, leaf, a, leaf)) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 4
    none = Layout.from_coordinates((12, 12), 4, [], [])
    empty = torch.zeros(0, 4, 4, dtype=torch.float64, requires_grad=True)
    layout, values = sparse_product(a, leaf, none, empty)
    assert layout.blocks == 0 and values.shape == (0, 4, 4)
    assert not torch.autograd.grad(values.sum(), leaf)[0].any()


def test_refusals(rng):
    a, x, b, y = operands(rng, ((8, 8), (8, 8)), ((4, 4), (4, 4)))
    other = Layout.pattern("dense", (8, 8), 2)
    sizes = Layout.from_mask([[1, 1]], rows=[0, 4], cols=[0, 3, 8])
    for kind, words, given in (
        (tartan.ArgumentTypeError, "b_values is of type ndarray", (a, x, b, y.detach().numpy())),
        (tartan.ShapeError, "a_values has shape", (a, x[1:], b, y)),
        (tartan.DTypeError, "b_values is of torch.float32, expected torch.float64", (a, x, b, y.float())),
        (tartan.UnsupportedError, "blocks of different sizes", (a, x, sizes, torch.zeros(2, 4, 5, dtype=torch.float64))),
        (tartan.ShapeError, "b has blocks of 2 rows, expected 4", (a, x, other, torch.zeros(16, 2, 2, dtype=torch.float64))),
        (tartan.ShapeError, "expected 8", (a, x, Layout.pattern("dense", (12, 8), 4), torch.zeros(6, 4, 4, dtype=torch.float64))),
    ):  # fmt: skip
        with pytest.raises(kind, match=words):
            sparse_product(*given)
