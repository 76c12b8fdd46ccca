# SPDX-License-Identifier: Apache-2.0
"""Sparsifiers: equal to programs that call evolve and project themselves, and to themselves after a stop."""

import itertools
import pathlib
import re

import numpy as np
import pytest

import tartan
from tartan import BlockMatrix, Layout, Sparsifier


def zeros(x):
    return x * 0


def gradients(parameters, step):
    """What a loss would give: of each parameter by its place and the step."""
    found = []
    for k, x in enumerate(parameters):
        random = np.random.default_rng([step, k])
        if isinstance(x, BlockMatrix):
            dense = random.standard_normal(x.shape)
            found.append(BlockMatrix.from_dense(dense, layout=x.layout, dtype=x.dtype_name))
        else:
            found.append(random.standard_normal(x.shape))
    return found


def growth(layout, step):
    shape = layout.grid if layout.heads == 1 else (layout.heads, *layout.grid)
    return np.random.default_rng([step, 77]).random(shape)


def model(dtype="float64"):
    a = BlockMatrix.zeros(Layout.pattern("dense", (60, 75), (8, 16)), dtype).fill_normal(seed=1)
    b = BlockMatrix.zeros(Layout.pattern("random", (64, 32), 8, density=0.8, seed=2), dtype).fill_normal(seed=2)
    return [a, np.linspace(-1, 1, 60), b]


def same(x, y):
    if isinstance(x, BlockMatrix):
        return x.layout == y.layout and np.array_equal(x.toarray(), y.toarray())
    return np.array_equal(x, y)


SCHEDULES = [
    {"density": 0.3, "begin": 4, "end": 16, "every": 4},
    {"density": 0.4, "initial": 1.0, "curve": "linear", "end": 18, "every": 3, "score": "l2"},
    {"threshold": 0.7, "score": "max", "begin": 3},
    {"swap": 0.3, "every": 2, "end": 19},
    {"density": 0.5, "swap": 0.3, "growth": "random", "seed": 3, "decay": "linear", "end": 20},
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: "-".join(s))
def test_equals_the_program_written_by_hand(schedule):
    ours, theirs = model(), model()
    our_state = [[zeros(x) for x in ours] for _ in range(2)]
    state = [[zeros(x) for x in theirs] for _ in range(2)]
    sparsifier = Sparsifier(ours, **schedule)
    hand = {k: v for k, v in schedule.items() if k not in ("score", "growth", "seed", "initial")}
    initial = [schedule.get("initial", x.density) for x in theirs if isinstance(x, BlockMatrix)]
    for step in range(1, 23):
        tartan.adam(ours, gradients(ours, step), *our_state, step=step, rate=0.05)
        if sparsifier.needs_growth:
            sparsifier.add_growth(*(growth(layout, step) for layout in sparsifier.layouts))
        ours, *our_state = sparsifier.step(ours, *our_state)

        tartan.adam(theirs, gradients(theirs, step), *state, step=step, rate=0.05)
        for i, k in enumerate((0, 2)):
            w = theirs[k]
            norms = w.block_norms({"max": "max"}.get(schedule.get("score"), "l2"))
            if "score" not in schedule:
                norms /= np.sqrt(np.prod(w.block_shape))
            places = None if schedule.get("growth") == "random" else growth(w.layout, step)
            layout = w.layout.evolve(norms, step, places, initial=initial[i], seed=schedule.get("seed", 0) + i, **hand)
            theirs[k] = w.project(layout)
            for moments in state:
                moments[k] = moments[k].project(layout)
        for x, y in zip(itertools.chain(ours, *our_state), itertools.chain(theirs, *state)):
            assert same(x, y), step
    assert sparsifier.steps == 22
    assert any(layout != x.layout for layout, x in zip(sparsifier.layouts, (model()[0], model()[2])))


RUNS = [
    {"density": 0.3, "begin": 4, "end": 16, "every": 4, "fresh_rate": 3, "fresh_steps": 4},
    {"density": 0.4, "swap": 0.3, "end": 18, "every": 3, "fresh_rate": 3, "fresh_steps": 4},
    {"density": 0.4, "swap": 0.2, "end": 18, "scope": "model", "growth": "random", "seed": 5},
    {"density": 0.3, "swap": 0.2, "end": 18, "every": 2, "score": "movement", "growth": "random", "fill": "normal"},
    {"score": "gate", "l0": 0.5, "gate_rate": 0.5, "every": 3, "swap": 0.1, "growth": "random"},
]


def observes(sparsifier):
    return any(f"score={score}" in sparsifier.options for score in ("movement", "gate"))


def train(sparsifier, parameters, means, squares, last):
    for step in range(sparsifier.steps + 1, last + 1):
        found = gradients(parameters, step)
        if observes(sparsifier):
            sparsifier.observe(parameters, found)
        rates = sparsifier.rates(parameters)
        tartan.adam(parameters, found, means, squares, step=step, rate=0.02, rates=rates)
        if sparsifier.needs_growth:
            sparsifier.add_growth(*(growth(layout, step) for layout in sparsifier.layouts))
        parameters, means, squares = sparsifier.step(parameters, means, squares)
    return parameters, means, squares


@pytest.mark.parametrize("killed", [1, 4, 9, 17])
@pytest.mark.parametrize("run", RUNS, ids=lambda s: "-".join(s))
def test_killed_training_goes_on_with_the_same_bits(tmp_path, run, killed):
    dtype = "float32" if "fresh_rate" in run else "float64"
    start = model(dtype)
    path = tmp_path / "run.h5"
    sparsifier = Sparsifier(start, **run)
    state = train(sparsifier, start, *([zeros(x) for x in start] for _ in range(2)), killed)
    names = [f"{group} {k}" for group in ("p", "m", "v") for k in range(3)]
    tartan.save(path, {"run": sparsifier, **dict(zip(names, itertools.chain(*state)))})
    wanted = train(sparsifier, *state, 22)
    again = Sparsifier.load(path, "run")
    assert (again.steps, again.options) == (killed, sparsifier.options)
    with tartan.File(path) as file:
        loaded = [[file[f"{group} {k}"] for k in range(3)] for group in ("p", "m", "v")]
    found = train(again, *loaded, 22)
    for x, y in zip(itertools.chain(*found), itertools.chain(*wanted)):
        assert same(x, y)
    assert found[0][0].blocks < start[0].blocks


def test_new_blocks_are_filled():
    w = BlockMatrix.zeros(Layout.pattern("random", (128, 128), 8, density=0.5, seed=1)).fill_normal(seed=1)
    mean = BlockMatrix.zeros(w.layout).fill_normal(seed=2)
    size = np.sqrt((w.values**2).mean())
    for fill, least, most in (("normal", 0.08, 0.12), ("uniform", 0.05, 0.065)):
        sparsifier = Sparsifier(w, swap=0.2, growth="random", decay="constant", fill=fill, fill_scale=0.1)
        new, moved = sparsifier.step(w, mean)
        fresh = moved.block_norms() == 0
        assert fresh.sum() == int(0.2 * w.blocks)
        assert least < np.sqrt((new.values[fresh] ** 2).mean()) / size < most


def test_filters_of_convolutions():
    channels = Layout.pattern("random", (64, 48), 16, density=0.9, seed=1)
    conv = tartan.BlockConv(channels, kernel=(3, 3))
    w, mean = (BlockMatrix.zeros(conv.layout).fill_normal(seed=seed) for seed in (1, 2))
    sparsifier = Sparsifier([channels], density=0.5)
    (new,), (moved,) = sparsifier.step([w], [mean])
    (left,) = sparsifier.layouts
    assert left.blocks == 6 and new.blocks == 54
    assert new.layout == moved.layout == tartan.BlockConv(left, kernel=(3, 3)).layout
    assert same(new, w.project(new.layout)) and same(moved, mean.project(new.layout))


def test_movement_pruning_keeps_what_moves_away_from_zero():
    layout = Layout.pattern("dense", (32, 32), 8)
    w = BlockMatrix.zeros(layout).fill_normal(seed=1)
    sparsifier = Sparsifier(w, density=0.25, score="movement", begin=3)
    wanted = np.zeros(16)
    for step in range(1, 4):
        (dw,) = gradients([w], step)
        sparsifier.observe(w, dw)
        wanted -= tartan.gate_gradient(w, dw)
        w = sparsifier.step(w)
    assert set(np.flatnonzero(w.layout.mask())) == set(np.argsort(wanted)[-4:])


def test_what_moves_with_the_blocks():
    """Adafactor's means, scales of eight bits, matrices on the same blocks of another size, nothing."""
    layout = Layout.pattern("dense", (32, 48), (8, 16))
    w = BlockMatrix.zeros(layout, "float32").fill_normal(seed=1)
    rows, cols = np.random.default_rng(1).random((12, 8)), np.random.default_rng(2).random((12, 16)).astype(np.float32)
    counts = np.arange(12)
    thin = BlockMatrix(Layout.pattern("dense", (4, 3), 1), counts.reshape(12, 1, 1).astype(float))
    bias = np.ones(3)
    moved = Sparsifier([w, bias], density=0.5).step(
        [w, bias], [rows, None], [cols, bias], (counts, None), [None, None], [thin, None], [w.astype("float8_e4m3fn"), None])
    (v, same_bias), (rows_moved, _), (cols_moved, _), counts_moved, nothing, (thin_moved, _), (narrow, _) = moved
    kept = np.flatnonzero(v.layout.mask())
    assert v.blocks == 6 and same_bias is bias and nothing == [None, None] and isinstance(counts_moved, tuple)
    np.testing.assert_array_equal(rows_moved, rows[kept])
    np.testing.assert_array_equal(cols_moved, cols[kept])
    np.testing.assert_array_equal(counts_moved[0], kept)
    np.testing.assert_array_equal(thin_moved.values.ravel(), kept)
    assert (cols_moved.dtype, counts_moved[0].dtype, narrow.dtype_name) == (np.float32, counts.dtype, "float8_e4m3fn")
    assert thin_moved.layout.block_shape == (1, 1) and narrow.layout == v.layout


def test_collections_keep_their_kinds():
    w = BlockMatrix.zeros(Layout.pattern("dense", (32, 32), 8)).fill_normal(seed=1)
    b = np.ones(32)
    sparsifier = Sparsifier({"w": w, "b": b}, density=0.5)
    p, m = sparsifier.step({"w": w, "b": b}, {"b": 2 * b, "w": 2 * w})
    assert list(p) == ["w", "b"] and m["w"].layout == p["w"].layout and m["b"][0] == 2
    assert [r if r is None else r.shape for r in sparsifier.rates(p)] == [(8,), None]
    one = Sparsifier(w, density=0.5)
    assert one.step(w).blocks == 8 and repr(one) == "<Sparsifier of 1 weight, density 0.5, after 1 steps>"
    assert repr(sparsifier.layouts[0]) == repr(p["w"].layout)


def test_fresh_blocks_learn_at_another_rate():
    w = BlockMatrix.zeros(Layout.pattern("random", (64, 64), 8, density=0.4, seed=1), "float32").fill_normal(seed=1)
    sparsifier = Sparsifier(w, swap=0.5, growth="random", every=3, fresh_rate=2.5, fresh_steps=2)
    seen = []
    for _ in range(6):
        rates = sparsifier.rates(w)[0]
        assert rates.dtype == np.float32
        fresh = rates == 2.5
        assert not fresh.any() or len(seen) % 3 != 0 or (w.block_norms()[fresh] == 0).all()
        seen.append(int(fresh.sum()))
        w = sparsifier.step(w)
    swapped = w.blocks // 2
    assert seen == [0, 0, 0, swapped, swapped, 0]


def test_any_language_reads_the_file(tmp_path):
    w = BlockMatrix.zeros(Layout.pattern("dense", (32, 32), 8)).fill_normal(seed=1)
    sparsifier = Sparsifier(w, density=0.5, end=4)
    for _ in range(2):
        w = sparsifier.step(w)
    tartan.save(tmp_path / "a.h5", {"s": sparsifier, "w": w})
    with tartan.File(tmp_path / "a.h5") as file:
        assert file.layout("s/0") == file.matrix("w").layout
        np.testing.assert_array_equal(file.array("s"), [1, 2, 1])
        assert file.metadata("s") == {"sparsifier": sparsifier.options}
        np.testing.assert_array_equal(file.array("s/0")[:3], [1, 0, 0])
        assert Sparsifier.load(file, "s").steps == 2


# ---- Gates ----


def test_gates_are_those_of_the_operations():
    parameters = model("float32")
    sparsifier = Sparsifier(parameters, score="gate", seed=11, gate_initial=-1.0, l0=0.5)
    for step in range(1, 3):
        for i, k in enumerate((0, 2)):
            loga = np.full(parameters[k].blocks, -1.0)
            gates, none, _ = (sparsifier.gates(parameters)[j] for j in (k, 1, k))
            assert none is None and gates.dtype == np.float32
            assert np.array_equal(gates, tartan.concrete_gate(loga, seed=11 + 2 * step + i).astype(np.float32))
            settled = sparsifier.gates(parameters, training=False)[k]
            assert np.array_equal(settled, tartan.concrete_gate_infer(loga).astype(np.float32))
        parameters = sparsifier.step(parameters)
    opens = 1 / (1 + np.exp(1.0 - 2 / 3 * np.log(11)))
    grids = [np.prod(x.layout.grid) * np.prod(x.layout.block_shape) for x in (parameters[0], parameters[2])]
    assert sparsifier.penalty == pytest.approx(0.5 * opens * (parameters[0].values.size + parameters[2].values.size) / sum(grids))


def test_gradients_of_weights_and_of_gates_are_seen_alike():
    w = model()[0]
    one, other = (Sparsifier(w, score="gate", begin=100) for _ in range(2))
    (dw,) = gradients([w], 1)
    one.observe(w, dw)
    other.observe(w, tartan.gate_gradient(w, dw))
    for sparsifier in (one, other):
        sparsifier.step(w)
    assert np.array_equal(one.gates(w)[0], other.gates(w)[0])
    assert not np.array_equal(one.gates(w, training=False)[0], Sparsifier(w, score="gate").gates(w, training=False)[0])


def test_gates_find_the_blocks_that_a_task_needs():
    random = np.random.default_rng(3)
    grid = np.zeros((8, 8), bool)
    grid[random.permutation(8)[:6], random.permutation(8)[:6]] = True  # 6 of 64 blocks are needed
    wanted = random.standard_normal((64, 64)) * np.kron(grid, np.ones((8, 8)))
    w = BlockMatrix.zeros(Layout.pattern("dense", (64, 64), 8)).fill_normal(seed=1)
    means, squares = w * 0, w * 0
    sparsifier = Sparsifier(w, score="gate", l0=10.0, gate_rate=0.05, begin=200, every=50)
    for step in range(1, 401):
        x = random.standard_normal((64, 32))
        (g,) = sparsifier.gates(w)
        error = (tartan.spmm(w, x, gates=g) - wanted @ x) / 32
        found = tartan.spmm_gradient(w, x, error, gates=g, wrt=("a", "gates"))
        sparsifier.observe(w, found.gates)
        tartan.adam([w], [found.a], [means], [squares], step=step, rate=0.02)
        w, means, squares = sparsifier.step(w, means, squares)
    assert np.array_equal(w.layout.mask(), grid)
    assert np.all(sparsifier.gates(w, training=False)[0] == 1)
    assert np.abs(w.toarray() - wanted).max() < 0.1


def test_gates_are_refused():
    w = model()[0]
    with pytest.raises(tartan.ArgumentError, match="has no gates, expected the option score=gate"):
        Sparsifier(w).gates(w)
    with pytest.raises(tartan.ArgumentError, match="has no gates, expected the option score=gate"):
        Sparsifier(w).penalty  # noqa: B018
    sparsifier = Sparsifier({"w": w}, score="gate")
    with pytest.raises(tartan.ShapeError, match=r"gradients\['w'\]: gradients has 3 entries, expected 40"):
        sparsifier.observe({"w": w}, {"w": np.ones(3)})
    with pytest.raises(tartan.ArgumentError, match=r"gradients\['w'\]: gradients\[0\] is .*inf, expected finite numbers"):
        sparsifier.observe({"w": w}, {"w": np.full(40, np.inf)})


# ---- Refusals ----


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"score": "l3"}, tartan.ArgumentError, "score is l3, expected rms, max, l1, l2, movement or gate"),
        ({"l0": -1}, tartan.ArgumentError, "l0 is -1, expected a number of 0 or more"),
        ({"scope": "all"}, tartan.ArgumentError, "scope is all, expected layer or model"),
        ({"growth": "gradient"}, tartan.ArgumentError, "growth is gradient, expected score or random"),
        ({"density": 2}, tartan.ArgumentError, "density is 2, expected a number from 0 to 1"),
        ({"every": 0}, tartan.ArgumentError, "every is 0, expected a whole number of 1 or more"),
        ({"fresh_steps": -1}, tartan.ArgumentError, "fresh_steps is -1, expected a whole number of 0 or more"),
        ({"density": 0.5, "threshold": 1.0}, tartan.ArgumentError, "density and threshold are given, expected one of them"),
        ({"begin": 5, "end": 4}, tartan.ArgumentError, "end is 4, expected begin=5 or more"),
    ],
)
def test_options_are_refused(options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        Sparsifier(model(), **options)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="sparsity"):
        Sparsifier(model(), sparsity=0.5)
    with pytest.raises(tartan.ArgumentError, match="parameters has no BlockMatrix, expected one or more"):
        Sparsifier([np.ones(3)], density=0.5)


def test_what_does_not_fit_is_refused_and_nothing_changes():
    w, b, v = model()
    half = v.project(v.layout.keep_largest(v.block_norms(), 5))
    sparsifier = Sparsifier([w, b, v], density=0.3)
    cases = [
        (([w, b, v], [w, b, half]), tartan.LayoutError, r"state 0\[2\]: matrix has 5 blocks in a grid of 8 x 4 on layout \w+, expected those of weight 1: "),
        (([w, b, v], [w, b]), tartan.ShapeError, "state 0 has 2 entries, expected 3, one for each parameter"),
        (([w, b, v], [w, b, v], [np.ones(3), b, v]), tartan.LayoutError, r"state 1\[0\]: has the shape \(3,\), expected 40 entries along the first axis"),
        (([w, b, v], ["x", b, v]), tartan.ArgumentTypeError, r"state 0\[0\]: is of type str, expected a BlockMatrix, a NumPy array or None"),
        (([w, b],), tartan.ShapeError, "parameters has 1 matrices, expected the 2 weights of the sparsifier"),
        (([w, b, half],), tartan.LayoutError, r"parameters\[2\]: matrix has 5 blocks"),
        (({"w": w, "b": b, "v": half},), tartan.LayoutError, r"parameters\['v'\]: matrix has 5 blocks"),
        (({"w": w, "b": b, "v": v}, {"w": w, "b": b, "u": v}), tartan.ArgumentError, "state 0 has the keys .*, expected those of the parameters"),
    ]  # fmt: skip
    for arguments, error, text in cases:
        with pytest.raises(error, match=text):
            sparsifier.step(*arguments)
    assert sparsifier.steps == 0 and [x.blocks for x in sparsifier.layouts] == [w.blocks, v.blocks]
    w.values[0] = np.nan
    with pytest.raises(tartan.ArgumentError, match=r"parameters\[0\]: norms of blocks\[0\] is NaN"):
        sparsifier.step([w, b, v])
    assert sparsifier.steps == 0


def test_forgotten_calls_are_named():
    w = BlockMatrix.zeros(Layout.pattern("dense", (32, 32), 8)).fill_normal(seed=1)
    with pytest.raises(tartan.ArgumentError, match="step 1 is to grow blocks of weight 0, expected Sparsifier.add_growth before it"):
        Sparsifier(w, swap=0.5).step(w)
    with pytest.raises(tartan.ArgumentError, match="what blocks of weight 0 are worth, expected Sparsifier.observe before it"):
        Sparsifier(w, density=0.5, score="movement").step(w)
    with pytest.raises(tartan.ShapeError, match="growth has 2 arrays, expected one for each of the 1 weights"):
        Sparsifier(w, swap=0.5).add_growth(np.ones((4, 4)), np.ones((4, 4)))
    with pytest.raises(tartan.ShapeError, match="growth has 9 entries, expected 16"):
        Sparsifier(w, swap=0.5).add_growth(np.ones((3, 3)))
    with pytest.raises(tartan.ArgumentError, match="option growth=random, expected growth=score"):
        Sparsifier(w, swap=0.5, growth="random").add_growth(np.ones((4, 4)))
    with pytest.raises(tartan.ArgumentError, match="option score=rms, expected score=movement or score=gate"):
        Sparsifier(w, density=0.5).observe(w, w * 2)
    with pytest.raises(tartan.LayoutError, match="gradients"):
        Sparsifier(w, density=0.5, score="movement").observe(w, w.project(w.layout.keep_largest(w.block_norms(), 3)))


def test_files_without_one_are_refused(tmp_path):
    w = BlockMatrix.zeros(Layout.pattern("dense", (32, 32), 8))
    path = tmp_path / "a.h5"
    tartan.save(path, {"w": w, "x": np.ones(3)})
    with pytest.raises(tartan.NotFoundError, match='no array "s", expected that of a sparsifier'):
        Sparsifier.load(path, "s")
    with pytest.raises(tartan.FormatError, match='array "x" is not that of a sparsifier'):
        Sparsifier.load(path, "x")
    with pytest.raises(FileNotFoundError):
        Sparsifier.load(tmp_path / "b.h5")
    with pytest.raises(tartan.ArgumentError, match="gates or metadata are given with a Sparsifier"):
        tartan.File().put("s", Sparsifier(w), metadata={"a": 1})


def test_the_shared_case_has_the_bits_of_the_other_languages(tmp_path):
    """data/cases/training.h5: runs that stopped in another language go on, stop again here, and end as they do everywhere."""
    cases = pathlib.Path(__file__).parents[3] / "data" / "cases"
    if not cases.is_dir():
        pytest.skip("data/cases is not here")
    with tartan.File(cases / "training.h5") as file:
        for line in (cases / "training.csv").read_text().splitlines()[1:]:
            name, first, stop, last, *checksums = line.split(",")
            sparsifier = Sparsifier.load(file, name)
            assert sparsifier.steps + 1 == int(first)
            state = [[file.matrix(f"{name} {what} {i}") for i in range(2)] for what in ("w", "velocity")]
            for step in range(int(first), int(last) + 1):
                p, velocities = state
                grads = [BlockMatrix.from_dense(file.array(f"gradient {step} {i}"), layout=p[i].layout) for i in range(2)]
                if observes(sparsifier):
                    sparsifier.observe(p, grads)
                tartan.sgd(p, grads, velocities=velocities, momentum=0.9, step=step, rate=0.1, rates=sparsifier.rates(p))
                if sparsifier.needs_growth:
                    sparsifier.add_growth(*(file.array(f"growth {step} {i}") for i in range(2)))
                state = sparsifier.step(p, velocities)
                if step == int(stop):
                    tartan.save(tmp_path / "stopped.h5", {"s": sparsifier, **{f"{g} {i}": state[g][i] for g in range(2) for i in range(2)}})
                    sparsifier = Sparsifier.load(tmp_path / "stopped.h5", "s")
                    state = [[tartan.load(tmp_path / "stopped.h5", f"{g} {i}") for i in range(2)] for g in range(2)]
            assert [tartan.checksum(x.toarray()) for x in itertools.chain(*state)] == checksums
