# SPDX-License-Identifier: Apache-2.0
"""Makes the case of training that C, Python, R and Julia go on with, to equal bits: training.h5 has sparsifiers in the middle of their
schedules, the weights and velocities of two layers, and the gradients and growth of the steps to come; training.csv says from which to
which step each runs, after which it is saved and loaded once more, and the checksums of weights and velocities of both layers at the end,
made dense. The optimiser is SGD with momentum, whose bits do not depend on a mathematical library.

    python make_training.py         (with the tartan package of a build)
"""
import csv
import itertools
import pathlib

import numpy as np
import tartan

here = pathlib.Path(__file__).parent
SHAPES = [((24, 40), 8, 0.9), ((32, 24), (8, 4), 1.0)]
RUNS = {
    "prune": {"density": 0.3, "begin": 2, "end": 12, "every": 2, "fresh_rate": 2, "fresh_steps": 3},
    "swap": {"density": 0.4, "swap": 0.4, "end": 12, "every": 3, "fresh_rate": 2, "fresh_steps": 2},
    "movement": {"density": 0.4, "swap": 0.3, "end": 12, "every": 2, "score": "movement", "growth": "random", "seed": 7},
    "model": {"density": 0.3, "swap": 0.3, "end": 12, "every": 2, "scope": "model", "growth": "random"},
    "gates": {"swap": 0.2, "end": 12, "every": 3, "score": "gate", "l0": 0.5, "gate_rate": 0.5, "growth": "random", "seed": 8},
}
FIRST, STOP, LAST = 6, 9, 13
random = np.random.default_rng(20261129)
gradient = {(step, i): np.round(random.standard_normal(SHAPES[i][0]), 1) for step in range(1, LAST + 1) for i in range(2)}
growth = {(step, i): np.round(random.random(layout), 2) for step in range(1, LAST + 1) for i, layout in enumerate([(3, 5), (4, 6)])}


def train(sparsifier, state, last):
    for step in range(sparsifier.steps + 1, last + 1):
        p, velocities = state
        grads = [tartan.BlockMatrix.from_dense(gradient[step, i], layout=p[i].layout) for i in range(2)]
        if any(f"score={score}" in sparsifier.options for score in ("movement", "gate")):
            sparsifier.observe(p, grads)
        tartan.sgd(p, grads, velocities=velocities, momentum=0.9, step=step, rate=0.1, rates=sparsifier.rates(p))
        if sparsifier.needs_growth:
            sparsifier.add_growth(growth[step, 0], growth[step, 1])
        state = sparsifier.step(p, velocities)
    return state


file, rows = tartan.File(), []
for (step, i), x in gradient.items():
    if step >= FIRST:
        file[f"gradient {step} {i}"] = x
        file[f"growth {step} {i}"] = growth[step, i]
for name, options in RUNS.items():
    layouts = [tartan.Layout.pattern("random", shape, block, seed=3, density=density) for shape, block, density in SHAPES]
    weights = [tartan.BlockMatrix.zeros(layout).fill_normal(seed=5) for layout in layouts]
    sparsifier = tartan.Sparsifier(weights, **options)
    state = train(sparsifier, [weights, [w * 0 for w in weights]], FIRST - 1)
    file[name] = sparsifier
    for what, group in zip(("w", "velocity"), state):
        for i, x in enumerate(group):
            file[f"{name} {what} {i}"] = x.copy()
    state = train(sparsifier, state, LAST)
    rows.append([name, FIRST, STOP, LAST, *(tartan.checksum(x.toarray()) for x in itertools.chain(*state))])
file.save(here / "training.h5", compress=True)
with open(here / "training.csv", "w", newline="") as out:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "first", "stop", "last", "w0", "w1", "velocity0", "velocity1"])
    writer.writerows(rows)
