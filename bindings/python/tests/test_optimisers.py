# SPDX-License-Identifier: Apache-2.0
"""Optimisers: against NumPy, and on lists of arrays and block-sparse matrices."""

import numpy as np
import pytest

import tartan

SHAPES = [(5,), (), (3, 4), (2, 3, 4), (0,), (1200,)]


def lists(rng, *names, dtype="float32"):
    return {name: [rng.uniform(0.5, 2, shape).astype(dtype) for shape in SHAPES] for name in names}


def test_adam_is_its_formula(rng):
    given = lists(rng, "parameters", "gradients", "means", "squares", dtype="float64")
    before = {name: [x.copy() for x in all] for name, all in given.items()}
    tartan.adam(**given, rate=0.1, beta1=0.8, beta2=0.9, epsilon=1e-3, weight_decay=0.2, step=3)
    for p, g, m, v, new_p, new_m, new_v in zip(*before.values(), given["parameters"], given["means"], given["squares"]):
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        step = m / (1 - 0.8**3) / (np.sqrt(v / (1 - 0.9**3)) + 1e-3)
        np.testing.assert_allclose(new_m, m, rtol=1e-14)
        np.testing.assert_allclose(new_v, v, rtol=1e-14)
        np.testing.assert_allclose(new_p, p - 0.1 * (0.2 * p + step), rtol=1e-12)


def test_one_array_is_a_list_of_it(rng):
    p, g = rng.standard_normal((2, 3, 4))
    twin = [p.copy()]
    tartan.sgd(p, g, rate=0.5)
    tartan.sgd(twin, [g], rate=0.5)
    np.testing.assert_array_equal(p, twin[0])


def test_any_iterable_will_do(rng):
    p, g = [np.ones(3)], [np.ones(3)]
    tartan.sgd((x for x in p), dict(enumerate(g)).values(), rate=1)
    assert (p[0] == 0).all()


def matrix(rng, layout, dtype="float32"):
    return tartan.BlockMatrix(layout, rng.uniform(0.5, 1, (layout.blocks, *layout.block_shape)).astype(dtype))


def test_matrices_stand_for_their_values(rng):
    layout = tartan.Layout.pattern("random", (32, 48), 8, density=0.5, seed=1)
    m = {name: [matrix(rng, layout), np.ones(3, np.float32)] for name in ("parameters", "gradients", "means", "squares")}
    values = {name: [all[0].values.copy(), all[1].copy()] for name, all in m.items()}
    gates = [np.arange(layout.blocks, dtype=np.float32) % 2, None]
    before = values["parameters"][0].copy()
    tartan.adam(**m, gates=gates, step=2)
    tartan.adam(**values, gates=gates, step=2)
    for name in m:
        np.testing.assert_array_equal(m[name][0].values, values[name][0])
        np.testing.assert_array_equal(m[name][1], values[name][1])
    changed = (m["parameters"][0].values != before).any((1, 2))
    np.testing.assert_array_equal(changed, gates[0] != 0)


def test_matrices_of_other_layouts_are_refused(rng):
    layouts = [tartan.Layout.pattern("random", (32, 32), 8, density=0.5, seed=seed) for seed in (1, 2)]
    assert layouts[0].blocks == layouts[1].blocks
    p, g = matrix(rng, layouts[0]), matrix(rng, layouts[1])
    before = p.values.copy()
    with pytest.raises(tartan.LayoutError, match="array 2 of gradients is on another layout, expected that of array 2 of parameters"):
        tartan.sgd([np.ones(3, np.float32), p], [np.ones(3, np.float32), g])
    np.testing.assert_array_equal(p.values, before)


def test_lists_that_do_not_fit_are_refused():
    one, two = [np.ones(3)], [np.ones(3), np.ones(3)]
    with pytest.raises(tartan.ArgumentError, match=r"gradients has 2 arrays, expected 1 \(as parameters\)"):
        tartan.sgd(one, two)
    with pytest.raises(tartan.ArgumentError, match="parameters has no arrays"):
        tartan.sgd([], [])
    with pytest.raises(tartan.ShapeError, match=r"array 2 of gradients has shape \[4\], expected \[3\]"):
        tartan.sgd(two, [np.ones(3), np.ones(4)])
    frozen = np.ones(3)
    frozen.flags.writeable = False
    with pytest.raises(tartan.TartanError, match="parameters is read-only"):
        tartan.sgd([np.ones(3), frozen], two)
    assert all((x == 1).all() for x in (*one, *two))


def test_a_norm_that_is_not_finite_skips_the_step(rng):
    given = lists(rng, "parameters", "gradients", "means", "squares")
    given["gradients"][2][1, 1] = np.nan
    before = {name: [x.copy() for x in all] for name, all in given.items()}
    norm, scale = tartan.global_norm(given["gradients"], return_scale=True)
    assert np.isnan(norm[0]) and scale[0] == 0
    tartan.adam(**given, scale=scale)
    for name, all in given.items():
        for x, y in zip(all, before[name]):
            np.testing.assert_array_equal(x, y)


def test_global_norm_and_group_lasso(rng):
    given = lists(rng, "g")["g"]
    norm, scale = tartan.global_norm(given, clip=2, return_scale=True)
    wanted = np.sqrt(sum((x.astype(np.float64) ** 2).sum() for x in given))
    assert norm.dtype == np.float32 and norm[0] == pytest.approx(wanted) and scale[0] == pytest.approx(2 / wanted)
    blocks = rng.standard_normal((4, 8, 8))
    blocks[1] *= 0.001
    lengths = np.sqrt((blocks**2).sum((1, 2), keepdims=True))
    found = blocks.copy()
    tartan.group_lasso(found, rate=0.5)
    np.testing.assert_allclose(found, blocks * np.maximum(1 - 0.5 / lengths, 0), atol=1e-12)
    assert (found[1] == 0).all()


def test_lists_are_given_back(rng):
    import sys

    p, g = np.ones(3), np.ones(3)
    counts = sys.getrefcount(p), sys.getrefcount(g)
    for _ in range(50):
        tartan.sgd([p], [g])
        with pytest.raises(tartan.ShapeError):
            tartan.sgd([p, p.copy()], [g, np.ones(4)])
    assert (sys.getrefcount(p), sys.getrefcount(g)) == counts


def test_adafactor_is_its_formula_for_each_block(rng):
    p, g = rng.standard_normal((2, 5, 4, 6))
    rows, cols = rng.uniform(0.5, 2, (5, 4)), rng.uniform(0.5, 2, (5, 6))
    d = 0.9 * (1 - 0.9**3) / (1 - 0.9**4)
    want_rows, want_cols = d * rows + (1 - d) * (g**2).mean(2), d * cols + (1 - d) * (g**2).mean(1)
    x = g / np.sqrt(want_rows[:, :, None] * want_cols[:, None, :] / want_rows.mean(1)[:, None, None])
    want = p - 0.1 * (0.2 * p + x / max(1, np.sqrt((x**2).mean()) / 0.5))
    assert tartan.adafactor([p], [g], [rows], [cols], rate=0.1, beta2=0.9, clip_threshold=0.5, weight_decay=0.2, step=3) is None
    np.testing.assert_allclose(rows, want_rows, rtol=1e-13)
    np.testing.assert_allclose(cols, want_cols, rtol=1e-13)
    np.testing.assert_allclose(p, want, rtol=1e-12)


def test_means_of_adafactor_move_with_their_blocks(rng):
    """Means of rows are a matrix with blocks of one column, and means of columns one with blocks of one row."""
    layout = tartan.Layout.pattern("random", (32, 48), 8, density=0.5, seed=1)
    w, g = matrix(rng, layout), matrix(rng, layout)
    rows, cols = np.zeros((layout.blocks, 8), np.float32), np.zeros((layout.blocks, 8), np.float32)
    tartan.adafactor([w], [g], [rows], [cols])
    next_layout = layout.evolve(w.block_norms(), 1, density=0.25, begin=0, end=1, every=1)
    assert 0 < next_layout.blocks < layout.blocks
    moved = []
    for means, block in ((rows, (8, 1)), (cols, (1, 8))):
        thin = [tartan.Layout.from_mask(l.mask(), block) for l in (layout, next_layout)]
        moved.append(tartan.BlockMatrix(thin[0], means.reshape(-1, *block)).project(thin[1]).values.reshape(-1, 8))
    places = {place: i for i, place in enumerate(zip(*np.nonzero(layout.mask())))}
    kept = [places[place] for place in zip(*np.nonzero(next_layout.mask()))]
    np.testing.assert_array_equal(moved[0], rows[kept])
    np.testing.assert_array_equal(moved[1], cols[kept])
    tartan.adafactor([w.project(next_layout)], [g.project(next_layout)], [moved[0]], [moved[1]], step=2)


def test_muon_steps_are_about_orthogonal(rng):
    g = np.eye(16) * 3 + rng.uniform(-0.5, 0.5, (20, 16, 16))
    p, means = np.zeros_like(g), np.zeros_like(g)
    tartan.muon([p], [g], [means], rate=1, momentum=0)
    values = np.linalg.svd(p, compute_uv=False)
    assert values.min() > 0.65 and values.max() < 1.25
    np.testing.assert_array_equal(means, g)
    with pytest.raises(tartan.ShapeError, match=r"array 1 of parameters has shape \[3\], expected two dimensions or more"):
        tartan.muon([np.ones(3)], [np.ones(3)], [np.ones(3)])


def test_quantize_knows_formats():
    x = np.array([0.3, 1.03, 1.0625, -500, 1e-9, 464, np.nan, np.inf], np.float32)
    found = tartan.quantize(x, emax=8, largest=448, rounding="even")
    np.testing.assert_array_equal(found, np.array([0.3125, 1, 1, -448, 0, 448, np.nan, 448], np.float32))
    np.testing.assert_array_equal(tartan.quantize_gradient(x), x)
    stats = tartan.quantize_stats(x[:4], emax=7)
    np.testing.assert_allclose(stats[0], 500)
    assert stats.shape == (5,) and stats[3] == 0.25 and stats[4] == 0
    with pytest.raises(tartan.ArgumentError, match="emax"):
        tartan.quantize(x, ebits=11)


def test_stochastic_rounding_keeps_small_steps(rng):
    torch = pytest.importorskip("torch")
    p, g = torch.ones(100000, dtype=torch.bfloat16), torch.ones(100000)
    tartan.sgd([p], [g], rate=-(2.0**-10), stochastic=True, seed=3)
    assert (p.float() - 1).mean().item() == pytest.approx(2.0**-10, rel=0.05)


def eight_bits(layout):
    return tartan.BlockMatrix.zeros(layout, dtype="float8_e4m3fn"), np.zeros(layout.blocks, np.float32)


def train(rng, small, steps=150):
    """The loss of a block-sparse layer after some steps of Adam."""
    layout = tartan.Layout.pattern("random", (64, 48), 8, density=0.6, seed=1)
    w = tartan.BlockMatrix(layout, 0.1 * rng.standard_normal((layout.blocks, 8, 8)).astype(np.float32))
    x = rng.standard_normal((48, 256)).astype(np.float32)
    y = (tartan.BlockMatrix(layout, rng.standard_normal((layout.blocks, 8, 8)).astype(np.float32)) @ x).astype(np.float32)
    if small:
        (means, mean_scales), (squares, square_scales) = eight_bits(layout), eight_bits(layout)
        state = {"means": means, "squares": squares, "mean_scales": mean_scales, "square_scales": square_scales}
    else:
        state = {"means": w * 0, "squares": w * 0}
    for step in range(1, steps + 1):
        error = w @ x - y
        g = tartan.sddmm(layout, error * np.float32(2 / 256), x.T)
        tartan.adam(w, g, **state, rate=0.03, step=step)
    return float((error**2).mean())


def test_moments_of_eight_bits_learn_as_well(rng):
    first, small, wide = train(rng, True, 1), train(rng, True), train(rng, False)
    assert small < 0.02 * first and small < 1.5 * wide + 0.01 * first


def test_moments_of_eight_bits_follow_their_blocks_and_are_saved(rng, tmp_path):
    layout = tartan.Layout.pattern("random", (32, 48), 8, density=0.5, seed=1)
    w, g = matrix(rng, layout), matrix(rng, layout)
    (m, m_scales), (v, v_scales) = eight_bits(layout), eight_bits(layout)
    options = {"rate": 0.1, "seed": 3}
    tartan.adam(w, g, m, v, mean_scales=m_scales, square_scales=v_scales, **options)
    assert m_scales.min() > 0 and (np.log2(m_scales) % 1 == 0).all()
    np.testing.assert_allclose(m.values.astype(np.float64) * m_scales[:, None, None], 0.1 * g.values, rtol=2**-3)
    np.testing.assert_allclose((v.values.astype(np.float64) * v_scales[:, None, None]) ** 2, 0.001 * g.values**2, rtol=0.3)
    next_layout = layout.evolve(w.block_norms(), 1, density=0.25, begin=0, end=1, every=1)
    ids = {place: i for i, place in enumerate(zip(*np.nonzero(layout.mask())))}
    kept = [ids[place] for place in zip(*np.nonzero(next_layout.mask()))]
    moved = m.project(next_layout)
    assert moved.dtype_name == "float8_e4m3fn"
    np.testing.assert_array_equal(moved.bits, m.bits[kept])
    # A scale for each block is the value of a matrix with blocks of one element.
    one = [tartan.Layout.from_mask(l.mask(), (1, 1)) for l in (layout, next_layout)]
    scales = tartan.BlockMatrix(one[0], m_scales[:, None, None]).project(one[1]).values[:, 0, 0]
    np.testing.assert_array_equal(scales, m_scales[kept])
    # Training that goes on from a file has the same bits.
    path = tmp_path / "state.h5"
    tartan.save(path, {"w": w, "m": m, "v": v, "m_scales": m_scales, "v_scales": v_scales})
    tartan.adam(w, g, m, v, mean_scales=m_scales, square_scales=v_scales, step=2, **options)
    again = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in tartan.load_all(path).items()}
    tartan.adam(again["w"], g, again["m"], again["v"], mean_scales=again["m_scales"], square_scales=again["v_scales"], step=2, **options)
    for a, b in ((w, again["w"]), (m, again["m"]), (v, again["v"])):
        np.testing.assert_array_equal(a.bits if a is not w else a.values, b.bits if a is not w else b.values)
    np.testing.assert_array_equal(m_scales, again["m_scales"])


def test_moments_of_eight_bits_need_scales(rng):
    layout = tartan.Layout.pattern("random", (32, 48), 8, density=0.5, seed=1)
    w, g = matrix(rng, layout), matrix(rng, layout)
    m, scales = eight_bits(layout)
    before = w.values.copy()
    with pytest.raises(tartan.ArgumentError, match="array 1 of means is of float8_e4m3fn, expected its scales as array 1 of mean_scales"):
        tartan.lion(w, g, m)
    with pytest.raises(tartan.ShapeError, match=r"mean_scales has shape \[3\], expected"):
        tartan.lion(w, g, m, mean_scales=scales[:3])
    np.testing.assert_array_equal(w.values, before)
    tartan.lion([w, np.ones(4, np.float32)], [g, np.ones(4, np.float32)], [m, np.zeros(4, np.float32)], mean_scales=[scales, None])
    assert (w.values != before).all()
