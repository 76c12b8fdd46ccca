# SPDX-License-Identifier: Apache-2.0
import copy
import pickle
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import random_layout

import tartan
from tartan import Layout


@pytest.mark.parametrize("heads", [1, 3])
def test_all_ways_of_making_give_the_same_layout(rng, heads):
    mask = rng.random((heads, 5, 4)) < 0.5
    shape = (heads, 5 * 3 - 1, 4 * 2 - 1) if heads > 1 else (14, 7)
    layout = Layout.from_mask(mask, (3, 2), shape=shape)
    assert layout.shape == shape and layout.grid == (5, 4) and layout.blocks == mask.sum()
    head, rows, cols = layout.coordinates()
    np.testing.assert_array_equal(np.argwhere(mask), np.stack([head, rows, cols], 1))
    shuffled = rng.permutation(layout.blocks)
    again = Layout.from_coordinates(
        shape[-2:], (3, 2), rows[shuffled], cols[shuffled], heads=head[shuffled], n_heads=heads
    )
    assert again == layout and hash(again) == hash(layout) and again.identity == layout.identity
    assert Layout.from_csr(shape[-2:], (3, 2), *layout.row_lists(), n_heads=heads) == layout
    np.testing.assert_array_equal(layout.mask(), mask if heads > 1 else mask[0])
    dense = np.kron(mask, np.ones((3, 2)))[..., : shape[-2], : shape[-1]]
    assert Layout.from_dense(dense, (3, 2)) == layout


def test_masks_of_every_kind():
    mask = np.array([[1, 0, 1], [0, 1, 0]])
    wanted = Layout.from_mask(mask, 4)
    for dtype in (bool, "u1", "i8", ">f8", "f4", "f2", "bfloat16", "float8_e5m2"):
        dtype = tartan.BlockMatrix.zeros(wanted, dtype).dtype if str(dtype).startswith(("bfloat", "float8")) else dtype
        assert Layout.from_mask(mask.astype(dtype), 4) == wanted
    for wrong, kind, words in (
        (mask * 1j, tartan.DTypeError, "mask is of type ndarray, of complex128"),
        ([["a", "b"]], tartan.DTypeError, "mask is of type list, of <U1"),
        (object(), tartan.DTypeError, "mask is of type object"),
        (np.ma.masked_array(mask, mask == 0), tartan.ArgumentTypeError, "mask is a masked array"),
        (mask[0], tartan.ShapeError, "mask has 1 dimensions"),
    ):
        with pytest.raises(kind, match=words):
            Layout.from_mask(wrong, 4)


def test_index_sets(rng):
    layout = random_layout(rng, (40, 24), (4, 8), heads=2)
    indptr, rows, ids = layout.col_lists()
    head, row, col = layout.coordinates()
    order = np.lexsort((row, col, head))
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_array_equal(rows, row[order])
    assert indptr[-1] == layout.blocks
    np.testing.assert_array_equal(layout.find(row, col, head), np.arange(layout.blocks))
    np.testing.assert_array_equal(layout.number("row"), np.arange(layout.blocks))
    np.testing.assert_array_equal(layout.number("column"), order)
    lengths = layout.row_lengths()
    np.testing.assert_array_equal(lengths, layout.mask().sum(2).ravel())
    spread = layout.row_spread()
    assert (spread.smallest, spread.largest) == (lengths.min(), lengths.max())
    assert np.isclose(spread.mean, lengths.mean()) and np.isclose(spread.deviation, lengths.std())
    bounds = layout.partition(3)
    assert bounds[0] == 0 and bounds[-1] == lengths.size and (np.diff(bounds) >= 0).all()


def test_set_algebra(rng):
    for _ in range(200):
        shape, block = tuple(rng.integers(0, 30, 2)), tuple(rng.integers(1, 6, 2))
        a, b, c = (random_layout(rng, shape, block) for _ in range(3))
        assert (a | b).mask().tolist() == (a.mask() | b.mask()).tolist()
        assert (a & b) == (b & a) and (a | b) == (b | a)
        assert (a & (b | c)) == ((a & b) | (a & c))
        assert ((a - b) | (a & b)) == a and ((a - b) & b).blocks == 0
        assert a.T.T == a and (a | b).T == (a.T | b.T)


def test_edits(rng):
    layout = random_layout(rng, (24, 24), 4, 0.5)
    rows, cols = rng.permutation(6), rng.permutation(6)
    np.testing.assert_array_equal(layout.permute(rows, cols).mask(), layout.mask()[rows][:, cols])
    np.testing.assert_array_equal(layout.permute(rows).mask(), layout.mask()[rows])
    np.testing.assert_array_equal(layout[1:4, 2:].mask(), layout.mask()[1:4, 2:])
    np.testing.assert_array_equal(layout[-2:].mask(), layout.mask()[-2:])
    gates = (np.arange(layout.blocks) % 2).astype(float)
    assert layout.prune(gates).blocks == np.count_nonzero(gates)
    scores = rng.standard_normal(layout.blocks)
    kept = layout.keep_largest(scores, 3)
    _, r, c = kept.coordinates()
    assert set(layout.find(r, c)) == set(np.argsort(scores)[-3:])
    assert layout.grow([0, 1], [0, 1]).mask()[[0, 1], [0, 1]].all()
    free = np.argwhere(~layout.mask())[0]
    moved, sources = layout.move([0], [free[0]], [free[1]])
    assert moved.blocks == layout.blocks and sorted(sources) == list(range(layout.blocks))
    assert sources[moved.find([free[0]], [free[1]])[0]] == 0
    assert layout.reblock(8).grid == (3, 3)


def test_evolve(rng):
    layout = tartan.Layout.pattern("dense", (40, 40), 4)
    scores = rng.standard_normal(layout.blocks)
    kept = layout.evolve(scores, 0, density=0.25)
    assert set(np.flatnonzero(kept.mask())) == set(np.argsort(scores)[-25:])
    assert layout.evolve(scores, 3, density=0.25, every=2) is layout
    assert layout.evolve(scores, 50, density=0.1, begin=0, end=100, curve="linear").blocks == 55
    assert layout.evolve(scores, 0, threshold=0.0).blocks == np.count_nonzero(scores >= 0)
    growth = rng.standard_normal((10, 10))
    swapped = kept.evolve(rng.standard_normal(25), 0, growth, swap=0.4)
    added = swapped.mask() & ~kept.mask()
    assert swapped.blocks == 25 and 0 < added.sum() <= 10
    assert growth[added].min() >= growth[~swapped.mask()].max()
    assert kept.evolve(np.ones(25), 7, swap=0.4, seed=3) == kept.evolve(np.ones(25), 7, swap=0.4, seed=3)
    with pytest.raises(tartan.ArgumentError, match="density"):
        layout.evolve(scores, 0, density=2)
    with pytest.raises(tartan.ArgumentError, match="curve is x, expected cubic"):
        layout.evolve(scores, 0, curve="x")
    with pytest.raises(tartan.ShapeError, match="growth has 9"):
        layout.evolve(scores, 0, np.ones((3, 3)), swap=0.5)
    with pytest.raises(tartan.DTypeError, match="growth"):
        layout.evolve(scores, 0, "x")


def test_patterns_are_seeded_and_described():
    known = tartan.patterns()
    assert len(known) >= 14 and all(known.values())
    for name in known:
        a, b = (Layout.pattern(name, (64, 64), 8, seed=5) for _ in range(2))
        assert a == b and a.shape == (64, 64), name
        assert a.recipe is not None
    assert Layout.pattern("banded", (64, 64), 8).density <= 1
    many = {Layout.pattern("random", (256, 256), 8, seed=s, density=0.3) for s in range(8)}
    assert len(many) == 8


def test_reach_and_bandwidth():
    chain = Layout.from_coordinates((12, 12), 2, range(5), range(1, 6))
    assert chain.bandwidth() == (0, 1)
    assert chain.bandwidth().upper == 1
    np.testing.assert_allclose(chain.reach(2)[0], 5 / 36)


def test_pickle_copy_and_recipe(rng):
    layout = random_layout(rng, (30, 50), (4, 8), heads=2)
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout and again.shape == layout.shape
    made = Layout.pattern("barabasi_albert", (128, 128), 8, seed=3, m=2)
    again = pickle.loads(pickle.dumps(made))
    assert again == made and again.recipe == made.recipe
    assert copy.deepcopy(made) is made and copy.copy(made) is made


def test_pictures(rng):
    layout = random_layout(rng, (64, 64), 8)
    assert ElementTree.fromstring(layout.svg(100)).tag.endswith("svg")
    assert layout._repr_svg_() == layout.svg()


def test_reordering_matches_its_promise(rng):
    scipy_sparse = pytest.importorskip("scipy.sparse")
    n = 60
    shuffle = rng.permutation(n)
    band = scipy_sparse.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1])
    mixed = band.tocsr()[shuffle][:, shuffle].tocsr()
    order = tartan.reverse_cuthill_mckee(mixed.indptr, mixed.indices)
    assert sorted(order) == list(range(n))
    back = mixed[order][:, order].tocoo()
    assert np.abs(back.coords[0] - back.coords[1]).max() == 1


def test_empty_sizes():
    layout = Layout.from_coordinates((0, 7), 3, [], [])
    assert layout.shape == (0, 7) and layout.blocks == 0 and layout.density == 0
    assert layout.mask().shape == (0, 3) and layout.T.shape == (7, 0)


def test_equality_with_other_things():
    layout = Layout.from_mask([[1]], 2)
    assert layout != "layout" and not layout == None  # noqa: E711
    with pytest.raises(TypeError):
        layout | 1
    with pytest.raises(TypeError):
        Layout()


def test_orders_of_rows_and_columns_find_a_hidden_structure():
    rng = np.random.default_rng(4)
    blocks = rng.random((6, 4)) < 0.3
    dense = np.kron(blocks, np.ones((8, 8))) * rng.standard_normal((48, 32))
    hidden = dense[rng.permutation(48)][:, rng.permutation(32)]
    rows, cols = tartan.reorder_blocks(hidden, 8, density=blocks.mean())
    assert sorted(rows) == list(range(48)) and sorted(cols) == list(range(32))
    assert tartan.Layout.from_dense(hidden[rows][:, cols], 8).blocks == blocks.sum() < tartan.Layout.from_dense(hidden, 8).blocks
    again = tartan.reorder_blocks(hidden.astype(np.float32), 8, density=blocks.mean())
    np.testing.assert_array_equal(again[0], rows)
    with pytest.raises(tartan.ArgumentError, match=r"density is 2, expected 0 .. 1"):
        tartan.reorder_blocks(hidden, 8, density=2)
    with pytest.raises(tartan.ShapeError, match="dense has 1 dimensions, expected 2"):
        tartan.reorder_blocks(hidden[0], 8, density=0.5)
