# SPDX-License-Identifier: Apache-2.0
"""Which blocks are stored, changed while a model trains: the schedule, the layouts, and what moves with the blocks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

import numpy as np

from tartan import _raw
from tartan._arrays import Array, doubles, doubles_of, new_indices
from tartan._call import Call
from tartan._errors import ArgumentError, ArgumentTypeError, LayoutError, ShapeError, TartanError
from tartan._file import File
from tartan._io import _opened
from tartan._layout import Layout
from tartan._matrix import BlockMatrix
from tartan._operations import gate_gradient


class Sparsifier:
    """Owns the schedule by which blocks are pruned and grown, and the layouts of a model's block-sparse weights.

    `parameters` are those of the model as the optimisers take them, a list (or a dict, or one matrix): the matrices among them
    are its weights. For the filter of a `BlockConv` give its layout of channels here: blocks of all taps stay or go together.
    `step(parameters, means, squares)`, called after each step of the optimiser, counts it and, when the layout of a weight changes, takes
    the weight and all that moves with it to the new one.

    The schedule is that of `Layout.evolve`: `density` or `threshold`, `curve`, `swap`, `decay`, `begin`, `every`, `end` and `seed` are
    explained there. `initial`, the density at step `begin`, is that which each weight has now unless it is given, and weight i
    has the seed ``seed + i``. Besides:

    * `score`: what a block is worth: the root mean square of its values, "rms"; its norm, "max", "l1" or "l2"; "movement",
      the sum of what `observe` saw in each step (Sanh et al. 2020); or "gate", the logarithm of alpha of its gate (see `gates`)
    * `scope`: "layer" if each weight has the density, "model" if all have it together and their blocks compete
    * `growth`: "score" if blocks are grown where `add_growth` says (RigL), "random" if anywhere
    * `fill`, `fill_scale`: what new blocks of a weight hold: zeros; "normal" numbers with `fill_scale` times the root mean square of the values
      that stay as their standard deviation; or "uniform" ones up to that, of both signs. ``swap=0.1, decay="constant", growth="random",
      fill="normal"`` recycles blocks as pytorch_block_sparse does
    * `fresh_rate`, `fresh_steps`: a factor of the learning rate of new blocks in so many steps; see `rates`
    * `l0`, `gate_rate`, `gate_initial`: for gates, the factor of the penalty, the learning rate, and log alpha of a new block

    All choices follow from these, the step and the numbers of the model. So a run that was stopped goes on with the same bits from
    a file that has the sparsifier and the model, in any language: ``tartan.save(path, {"sparsifier": sparsifier, "w": w, ...})``,
    `Sparsifier.load`. For layers of PyTorch: `tartan.torch.Sparsifier`. One thread at a time may use it.

    >>> import numpy as np, tartan
    >>> w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 8)).fill_normal(seed=1)
    >>> means, squares = w * 0, w * 0
    >>> sparsifier = tartan.Sparsifier(w, density=0.25, end=100, every=10)
    >>> for step in range(1, 101):
    ...     tartan.adam([w], [w * 2], [means], [squares], step=step)
    ...     w, means, squares = sparsifier.step(w, means, squares)
    >>> sparsifier, w.blocks, means.blocks
    (<Sparsifier of 1 weight, density 0.25, after 100 steps>, 16, 16)
    """

    __slots__ = ("_handle", "__weakref__")

    def __init__(
        self, parameters: Any, *, density: Optional[float] = None, initial: Optional[float] = None, curve: str = "cubic",
        threshold: Optional[float] = None, score: str = "rms", scope: str = "layer", swap: float = 0.0, decay: str = "cosine",
        growth: str = "score", fill: str = "zero", fill_scale: float = 0.1, begin: int = 0, end: Optional[int] = None, every: int = 1,
        fresh_rate: float = 1.0, fresh_steps: int = 0, l0: float = 0.0, gate_rate: float = 0.01, gate_initial: float = 2.0, seed: int = 0,
    ) -> None:  # fmt: skip
        layouts = [x.layout if isinstance(x, BlockMatrix) else x for x in _items(parameters) if isinstance(x, (BlockMatrix, Layout))]
        if not layouts:
            raise ArgumentError("parameters has no BlockMatrix, expected one or more")
        self._open(
            layouts, density=density, initial=initial, curve=curve, threshold=threshold, score=score,
            scope=scope, swap=swap, decay=decay, growth=growth, fill=fill, fill_scale=fill_scale, begin=begin, end=end, every=every,
            fresh_rate=fresh_rate, fresh_steps=fresh_steps, l0=l0, gate_rate=gate_rate, gate_initial=gate_initial, seed=seed,
        )  # fmt: skip

    def _open(self, layouts: Iterable[Layout], **words: Any) -> Sparsifier:
        """Of weights on these layouts. The library knows the words."""
        given = [
            f"{name}={word if isinstance(word, (str, int)) else repr(float(word))}" for name, word in words.items() if word is not None
        ]
        self._handle = _raw.tartan_sparsifier_create(" ".join(given))
        for layout in layouts:
            _raw.tartan_sparsifier_add(self._handle, layout._handle)
        return self

    # ---- Asking ----

    @property
    def steps(self) -> int:
        """The steps so far: training that goes on begins with ``step = sparsifier.steps + 1``."""
        return _raw.tartan_sparsifier_steps(self._handle)

    @property
    def options(self) -> str:
        """All options, as text."""
        return _raw.tartan_sparsifier_options(self._handle) or ""

    @property
    def layouts(self) -> list[Layout]:
        """The layout of each weight."""
        handle = self._handle
        return [Layout._own(_raw.tartan_sparsifier_get_layout(handle, i)) for i in range(self._weights)]

    @property
    def needs_growth(self) -> bool:
        """Whether the next step grows blocks by what `add_growth` says."""
        return _raw.tartan_sparsifier_needs_growth(self._handle) == 1

    @property
    def _weights(self) -> int:
        return _raw.tartan_sparsifier_weights(self._handle)

    def __repr__(self) -> str:
        layouts = self.layouts
        blocks, grid = sum(l.blocks for l in layouts), sum(l.heads * math.prod(l.grid) for l in layouts)
        plural = "" if len(layouts) == 1 else "s"
        return f"<Sparsifier of {len(layouts)} weight{plural}, density {blocks / max(grid, 1):.3g}, after {self.steps} steps>"

    def rates(self, parameters: Any) -> list[Optional[Array]]:
        """For the `rates` of the optimisers: a factor of the learning rate for each block of a weight, `fresh_rate` where it is new,
        and None for other parameters."""
        return self._for_blocks(parameters, lambda i, out: _raw.tartan_sparsifier_get_rates(self._handle, i, out))

    def gates(self, parameters: Any, *, training: bool = True) -> list[Optional[Array]]:
        """The gates of the blocks of each weight, and None for other parameters, with ``score="gate"``: for `spmm`.

        Each block has a hard-concrete gate whose log alpha learns with the model (Louizos, Welling, Kingma 2018). `training`: the gates of
        the next step, drawn by `seed` and the step; else those of a model in use, without random numbers. In each step `observe` takes
        their gradients, and `step` a step of Adam, with the rate `gate_rate`, on log alpha; a step without `observe` leaves it. If there
        is neither a density nor a threshold, a step that is due removes the blocks whose gates are closed.

        >>> import numpy as np, tartan
        >>> w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 8)).fill_normal(seed=1)
        >>> x, y = np.random.default_rng(1).standard_normal((64, 256)), np.zeros((64, 256))
        >>> y[:8] = x[8:16]  # what one block can do
        >>> means, squares = w * 0, w * 0
        >>> sparsifier = tartan.Sparsifier(w, score="gate", l0=1.0, gate_rate=0.05, begin=200, every=50)
        >>> for step in range(1, 301):
        ...     (g,) = sparsifier.gates(w)
        ...     found = tartan.spmm_gradient(w, x, (tartan.spmm(w, x, gates=g) - y) / y.size, gates=g, wrt=("a", "gates"))
        ...     sparsifier.observe(w, found.gates)
        ...     tartan.adam([w], [found.a], [means], [squares], step=step, rate=0.01)
        ...     w, means, squares = sparsifier.step(w, means, squares)
        >>> w.layout.coordinates()
        (array([0]), array([0]), array([1]))
        """
        drawn = int(training)
        return self._for_blocks(parameters, lambda i, out: _raw.tartan_sparsifier_get_gates(self._handle, i, drawn, out))

    @property
    def penalty(self) -> float:
        """What gates add to the loss: `l0` times the density that is expected of all weights. `step` knows its gradient."""
        return _raw.tartan_sparsifier_get_penalty(self._handle)

    def _for_blocks(self, parameters: Any, fill: Any) -> list[Optional[Array]]:
        """A number for each block of a weight, and None for other parameters."""
        items = _items(parameters)
        result: list[Optional[Array]] = [None] * len(items)
        for k, i in self._places(items):
            numbers = np.empty(items[k].blocks)
            fill(i, numbers)
            result[k] = numbers if items[k].dtype == np.float64 else numbers.astype(np.float32)
        return result

    # ---- What blocks and places are worth ----

    def observe(self, parameters: Any, gradients: Any) -> None:
        """Adds what a step shows about blocks, before the optimiser changes the weights: the negative of `gate_gradient`. For
        ``score="movement"``, where blocks that move away from 0 are worth more, and ``score="gate"``, where gates learn by it.
        Of a weight, `gradients` has its gradient, without gates, or that of its gates: a number for each block."""
        items, grads = _items(parameters), _items_as(parameters, gradients, "gradients")
        for k, i in self._places(items):
            with _about(_name("gradients", parameters, k)):
                found = gate_gradient(items[k], grads[k]) if isinstance(grads[k], BlockMatrix) else grads[k]
                _raw.tartan_sparsifier_add_scores(self._handle, i, -doubles(found, "the gradient of gates"))

    def add_growth(self, *growth: Any) -> None:
        """Adds to what the places of each weight are worth in the next step: for each weight an array [grid rows, grid cols]
        ([heads, grid rows, grid cols]), for instance the `growth_score` of a batch."""
        if len(growth) != self._weights:
            raise ShapeError(f"growth has {len(growth)} arrays, expected one for each of the {self._weights} weights")
        for i, x in enumerate(growth):
            _raw.tartan_sparsifier_add_growth(self._handle, i, doubles(np.ravel(doubles_of(x, "growth")), "growth"))

    # ---- Steps ----

    def step(self, parameters: Any, *state: Any) -> Any:
        """Counts a step of training, and changes layouts if it is due. Returns the parameters and each `state` as they are then, in
        lists (dicts, single objects) like the given ones.

        `state` is what moves with the parameters, such as lists of moments, averages and scales: of a weight a matrix on its
        layout, or on the same blocks of another size; a NumPy array with an entry for each block along its first axis; or None. What
        belongs to other parameters stays as it is. New blocks are zeros. If anything does not fit, nothing changes.
        """
        named = [("parameters", parameters), *((f"state {g}", x) for g, x in enumerate(state))]
        groups = [(name, _items_as(parameters, x, name)) for name, x in named]
        weights, places = groups[0][1], self._places(groups[0][1])
        for name, items in groups:
            for k, i in places:
                with _about(_name(name, parameters, k)):
                    self._check(i, items[k])
        for k, i in places:
            with _about(_name("parameters", parameters, k)):
                self._measure(i, weights[k])
        _raw.tartan_sparsifier_prepare(self._handle)
        for k, i in places:
            if self._changes(i):
                for g, (name, items) in enumerate(groups):
                    with _about(_name(name, parameters, k)):
                        items[k] = self._moved(i, items[k])
                        if g == 0:
                            self._fill(i, items[k])
        _raw.tartan_sparsifier_commit(self._handle)
        results = [_like(given, parameters, items) for (_, given), (_, items) in zip(named, groups)]
        return tuple(results) if state else results[0]

    def _places(self, items: list[Any]) -> list[tuple[int, int]]:
        """Where the weights stand among the parameters, and their numbers."""
        places = [k for k, x in enumerate(items) if isinstance(x, BlockMatrix)]
        if len(places) != self._weights:
            raise ShapeError(f"parameters has {len(places)} matrices, expected the {self._weights} weights of the sparsifier")
        return [(k, i) for i, k in enumerate(places)]

    def _check(self, i: int, x: Any) -> None:
        if isinstance(x, BlockMatrix):
            _raw.tartan_sparsifier_check(self._handle, i, x._handle)
        elif isinstance(x, np.ndarray):
            blocks = Layout._own(_raw.tartan_sparsifier_get_layout(self._handle, i)).blocks
            if x.shape[:1] != (blocks,):
                raise LayoutError(f"has the shape {x.shape}, expected {blocks} entries along the first axis, one for each block")
        elif x is not None:
            raise ArgumentTypeError(f"is of type {type(x).__name__}, expected a BlockMatrix, a NumPy array or None")

    def _measure(self, i: int, weight: BlockMatrix) -> None:
        """What the blocks of a weight are worth, if the next step asks for their norms."""
        if _raw.tartan_sparsifier_needs_norms(self._handle) == 1:
            with Call(None, weight) as call:
                _raw.tartan_sparsifier_measure(call.handle, self._handle, i, weight._handle)

    def _changes(self, i: int) -> bool:
        """Whether the prepared step changes the layout of a weight; and that layout, and the old ids of its blocks, -1 of new ones."""
        return _raw.tartan_sparsifier_changes(self._handle, i) == 1

    def _next(self, i: int) -> tuple[Layout, Array]:
        layout = Layout._own(_raw.tartan_sparsifier_get_next(self._handle, i))
        sources = new_indices(layout.blocks)
        _raw.tartan_sparsifier_get_sources(self._handle, i, sources)
        return layout, sources

    def _moved(self, i: int, x: Any) -> Any:
        if x is None:
            return None
        if isinstance(x, BlockMatrix):
            return x._made(_move, self._handle, i)
        sources = self._next(i)[1]
        result = np.zeros((len(sources), *x.shape[1:]), x.dtype)
        result[sources >= 0] = x[sources[sources >= 0]]
        return result

    def _fill(self, i: int, moved: BlockMatrix) -> None:
        """Gives new blocks of a moved weight what `fill` says."""
        with Call(None, moved) as call:
            _raw.tartan_sparsifier_fill(call.handle, self._handle, i, moved._handle)

    # ---- Keeping ----

    def _put_into(self, file: _raw.Handle, name: str) -> None:
        """For `File.put`."""
        _raw.tartan_sparsifier_save(self._handle, file, name)

    @classmethod
    def load(cls, file: Any, name: str = "sparsifier") -> Sparsifier:
        """Reads the sparsifier that was saved under a name; `file` is a `File`, or the path of one.

        >>> import os, tartan, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "model.h5")
        >>> w = tartan.BlockMatrix.zeros(tartan.Layout.pattern("dense", (64, 64), 8))
        >>> tartan.save(path, {"sparsifier": tartan.Sparsifier(w, density=0.25), "w": w})
        >>> tartan.Sparsifier.load(path)
        <Sparsifier of 1 weight, density 1, after 0 steps>
        """
        if not isinstance(file, File):
            with _opened(file) as opened:
                return cls.load(opened, name)
        self = object.__new__(cls)
        self._handle = _raw.tartan_sparsifier_load(file._handle, name)
        return self


def _move(context: _raw.Handle, matrix: _raw.Handle, sparsifier: _raw.Handle, i: int) -> _raw.Handle:
    return _raw.tartan_sparsifier_move(context, sparsifier, i, matrix)


def _items(x: Any) -> list[Any]:
    """A single object is a list of its own."""
    return list(x.values()) if isinstance(x, Mapping) else list(x) if isinstance(x, (list, tuple)) else [x]


def _items_as(parameters: Any, x: Any, name: str) -> list[Any]:
    """The items of `x` that belong to the parameters, in their order: by the keys of a dict, else by place."""
    if isinstance(parameters, Mapping) and isinstance(x, Mapping):
        if set(x) != set(parameters):
            raise ArgumentError(f"{name} has the keys {sorted(map(str, x))}, expected those of the parameters, {sorted(map(str, parameters))}")
        return [x[key] for key in parameters]
    items, expected = _items(x), len(_items(parameters))
    if len(items) != expected:
        raise ShapeError(f"{name} has {len(items)} entries, expected {expected}, one for each parameter")
    return items


def _like(given: Any, parameters: Any, items: list[Any]) -> Any:
    if isinstance(given, Mapping):
        return dict(zip(parameters if isinstance(parameters, Mapping) else given, items))
    return type(given)(items) if isinstance(given, (list, tuple)) else items[0]


def _name(group: str, parameters: Any, k: int) -> str:
    if isinstance(parameters, Mapping):
        return f"{group}[{list(parameters)[k]!r}]"
    return f"{group}[{k}]" if isinstance(parameters, (list, tuple)) else group


@contextlib.contextmanager
def _about(name: str) -> Iterator[None]:
    """Errors say which object they are about."""
    try:
        yield
    except TartanError as error:
        error.args = (f"{name}: {error}",)
        raise
