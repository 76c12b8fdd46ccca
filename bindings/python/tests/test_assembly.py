# SPDX-License-Identifier: Apache-2.0
"""Blocks and elements from triplets, and added into matrices."""

import warnings

import numpy as np
import pytest
from conftest import random_layout

import tartan
from tartan import Assembly, BlockMatrix, Layout


def dense_of(shape, block, rows, cols, values):
    dense = np.zeros(tuple(-(-n // b) * b for n, b in zip(shape, block)))
    for i, j, x in zip(rows, cols, values):
        dense[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]] += x
    return dense[: shape[0], : shape[1]]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape, block", [((12, 20), (3, 5)), ((13, 7), (4, 4)), ((6, 6), (1, 1))])
def test_from_blocks(rng, shape, block, order):
    grid = [-(-n // b) for n, b in zip(shape, block)]
    rows, cols = (rng.integers(0, n, 30) for n in grid)
    values = rng.standard_normal((30, *block))
    w = BlockMatrix.from_blocks(shape, rows, cols, values, order=order)
    np.testing.assert_allclose(w.toarray(), dense_of(shape, block, rows, cols, values), rtol=1e-13, atol=1e-13)
    assert w.order == order and w.blocks == len(set(zip(rows, cols)))
    half = BlockMatrix.from_blocks(shape, rows, cols, values, dtype="float32")
    assert half.dtype == np.float32


def test_from_blocks_of_heads_and_none():
    w = BlockMatrix.from_blocks((2, 4, 4), [1, 0], [0, 1], np.ones((2, 2, 2)), heads=[1, 0])
    assert w.toarray()[0, :2, 2:].sum() == 4 and w.toarray()[1, 2:, :2].sum() == 4 and w.toarray().sum() == 8
    assert BlockMatrix.from_blocks((4, 4), [], [], np.zeros((0, 2, 2))).blocks == 0
    with pytest.raises(tartan.LayoutError, match=r"rows\[0\] is 2, expected 0 .. 1"):
        BlockMatrix.from_blocks((4, 4), [2], [0], np.ones((1, 2, 2)))
    with pytest.raises(tartan.ShapeError, match="values has 2 dimensions"):
        BlockMatrix.from_blocks((4, 4), [1], [0], np.ones((2, 2)))
    with pytest.raises(tartan.ShapeError, match=r"cols has 2 entries|expected"):
        BlockMatrix.from_blocks((4, 4), [1], [0, 1], np.ones((1, 2, 2)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_plans_add_again_and_again(rng, dtype, order):
    layout = random_layout(rng, (20, 28), (4, 7), 0.6)
    ids = rng.integers(0, layout.blocks, 50)
    rows, cols = (np.array(x)[ids] for x in np.nonzero(layout.mask()))
    plan = Assembly(layout, rows, cols)
    w = BlockMatrix.zeros(layout, dtype, order=order)
    want = np.zeros((20, 28))
    for _ in range(3):
        values = rng.integers(-4, 5, (50, 4, 7)).astype(dtype)
        assert plan.add(w, values) is w
        want += dense_of((20, 28), (4, 7), rows, cols, values)
        np.testing.assert_array_equal(w.toarray(), want)
    np.testing.assert_array_equal(plan.set(w, values).toarray(), dense_of((20, 28), (4, 7), rows, cols, values))
    assert plan.matrix(values).dtype == np.dtype(dtype)
    np.testing.assert_array_equal(plan.matrix(values).toarray(), w.toarray())
    np.testing.assert_array_equal(w.copy().add_blocks(rows, cols, values).toarray(), 2 * w.toarray())


@pytest.mark.parametrize("order", ["C", "F"])
def test_elements(rng, order):
    dense = rng.standard_normal((9, 11))
    w = BlockMatrix.from_dense(dense, block=(2, 3), order=order)
    rows, cols, values = rng.integers(0, 9, 200), rng.integers(0, 11, 200), rng.integers(-3, 4, 200).astype(float)
    np.add.at(dense, (rows, cols), values)
    np.testing.assert_allclose(w.add_elements(rows, cols, values).toarray(), dense, rtol=1e-14, atol=1e-14)
    plan = Assembly.of_elements(w.layout, rows, cols, order=order)
    assert "200 elements" in repr(plan)
    with pytest.raises(tartan.ArgumentError, match="for which the plan was made"):
        plan.add(w.astype(order="F" if order == "C" else "C"), values)


def test_plans_refuse():
    layout = Layout.from_mask([[1, 0], [1, 1]], block=2)
    with pytest.raises(tartan.LayoutError, match=r"block 1 of the list is at \(0, 1\)"):
        Assembly(layout, [0, 0], [0, 1])
    with pytest.raises(tartan.LayoutError, match=r"element 0 of the list is at \(1, 3\)"):
        Assembly.of_elements(layout, [1], [3])
    plan = Assembly(layout, [0, 1], [0, 1])
    other = BlockMatrix.from_dense(np.ones((4, 4)), block=2)
    with pytest.raises(tartan.LayoutError, match="another layout than the plan"):
        plan.add(other, np.ones((2, 2, 2)))
    with pytest.raises(tartan.TartanError, match="values"):
        plan.add(BlockMatrix.zeros(layout), np.ones((2, 3, 2)))
    with pytest.raises(tartan.ArgumentError, match="the layout has 2 heads"):
        Assembly(Layout.from_mask(np.ones((2, 1, 1)), block=2), [0], [0])


def test_values_in_the_order_of_the_coordinates_are_warned_about():
    layout = Layout.from_coordinates((2, 2), 1, [1, 0], [0, 0])
    with pytest.warns(UserWarning, match="BlockMatrix.from_blocks"):
        BlockMatrix(layout, [[[10.0]], [[20.0]]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BlockMatrix(Layout.from_coordinates((2, 2), 1, [0, 1], [0, 0]), [[[10.0]], [[20.0]]])
        heads = Layout.from_coordinates((2, 2), 1, [1, 0], [0, 0], heads=[0, 1], n_heads=2)
        BlockMatrix(heads, [[[10.0]], [[20.0]]])
    assert BlockMatrix.from_blocks((2, 2), [1, 0], [0, 0], [[[10.0]], [[20.0]]])[1, 0] == 10
