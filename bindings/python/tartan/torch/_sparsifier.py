# SPDX-License-Identifier: Apache-2.0
"""Which blocks are stored, changed while a model trains: pruning, regrowth and recycling, beside any optimiser of PyTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

import numpy as np
import torch

from tartan import Layout, growth_score
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan.torch._cells import check_density, count_of
from tartan.torch._conv import BlockSparseConv2d
from tartan.torch._linear import BlockSparseLinear
from tartan.torch._stored import Stored, rearranged, sources_of

_SCHEDULES = {"cubic": 3, "linear": 1}


class StructureChange(NamedTuple):
    """What a step did to a layer: blocks removed for good, blocks moved, and blocks stored now."""

    name: str
    pruned: int
    moved: int
    blocks: int


class Sparsifier:
    """Changes the layouts of the block-sparse layers of a model, their values and the state of their optimisers together.

    Call `step()` after each step of the optimiser. Every `every` steps from `begin` to `end` it does two things in each layer:

    1. *Pruning.* Blocks of the smallest norm are removed until the layer has the density of the schedule, which goes from that
       at `begin` to `density` at `end`: for "cubic" as ``density + (first - density) * (1 - t)**3``, t being the share of the
       time that has passed (Zhu and Gupta 2017), for "linear" with the first power. With `scope` "model" the density is that
       of all layers together, and blocks of all layers compete by their root mean square. `threshold` removes blocks whose
       root mean square is below it, too.
    2. *Moving.* A share `move` of the blocks of a layer, those of the smallest norm, go to positions where nothing was stored,
       which `growth` chooses: "gradient", where the gradient of the block has the largest norm (RigL, Evci et al. 2020);
       "score", the same estimated by `tartan.growth_score` from norms, which is cheaper and coarser; "random". The share
       decays to 0 as a cosine, unless `decay` is False. A block that moved starts as `fill` says: "zero"; "normal" with mean
       and standard deviation `scale` times those of the layer; "uniform" in +- `scale` standard deviations.
       ``move=0.1, growth="random", fill="normal", scale=0.1, decay=False`` is the SparseOptimizer of pytorch_block_sparse.

    Each part is left out where `density` and `threshold` are None, and `move` is 0. In `optimizers`, one or a list of
    torch.optim.Optimizer, the parameter stays the same object in its group; state with an entry for each block (moments)
    follows the blocks and is 0 for new ones, other state (step counts) stays. Gradients are dropped.

    Growth by gradients looks at the step before a change by hooks, which torch.compile does not run: call that step under
    ``torch.compiler.set_stance("force_eager")``; `collects` says when. With torch.distributed, scores are summed over all ranks,
    and all ranks choose the same. DistributedDataParallel must be made again after blocks were pruned, as for any parameter
    that changes its shape; moves need nothing.

    Random choices come from a generator of its own with `seed`. `state_dict` has the step count and the generator; with the
    state dicts of model and optimisers a run that was stopped goes on with the same bits. `layers` is a regular expression for
    names of layers, or None for all.

    >>> import torch
    >>> from tartan.torch import BlockSparseLinear, Sparsifier
    >>> model = BlockSparseLinear(64, 64, density=0.5, block=16)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> sparsifier = Sparsifier(model, optimizer, density=0.25, end=10, every=5)
    >>> for _ in range(10):
    ...     optimizer.zero_grad()
    ...     model(torch.randn(8, 64)).square().sum().backward()
    ...     optimizer.step()
    ...     changes = sparsifier.step()
    >>> changes[0].blocks, len(optimizer.state[model.values]["exp_avg"])
    (4, 4)
    """

    def __init__(
        self, model: Any, optimizers: Any = (), *, density: Optional[float] = None, threshold: Optional[float] = None,
        schedule: str = "cubic", scope: str = "layer", begin: int = 0, end: int, every: int = 100, move: float = 0.0,
        growth: str = "gradient", fill: str = "zero", scale: float = 0.1, decay: bool = True, layers: Optional[str] = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        if density is not None:
            check_density(density)
        for name, x, known in (("schedule", schedule, tuple(_SCHEDULES)), ("scope", scope, ("layer", "model")),
                               ("growth", growth, ("gradient", "score", "random")), ("fill", fill, ("zero", "normal", "uniform"))):  # fmt: skip
            if x not in known:
                raise ArgumentError(f"{name} is {x!r}, expected one of {', '.join(map(repr, known))}")
        if not 0 <= move <= 1:
            raise ArgumentError(f"move is {move}, expected 0 .. 1")
        if not 0 <= begin <= end or every < 1:
            raise ArgumentError(f"begin, end and every are {begin}, {end} and {every}, expected 0 <= begin <= end and 1 <= every")
        self.density, self.threshold, self.schedule, self.scope = density, threshold, schedule, scope
        self.begin, self.end, self.every = begin, end, every
        self.move, self.growth, self.fill, self.scale, self.decay = move, growth, fill, scale, decay
        self.layers: dict[str, Stored] = {
            name: layer
            for name, layer in model.named_modules()
            if isinstance(layer, Stored) and (layers is None or re.fullmatch(layers, name))
        }
        if not self.layers:
            raise ArgumentError(f"model has no block-sparse layer that {layers!r} matches" if layers else "model has no block-sparse layer")
        self.optimizers = _optimizers(optimizers, self.layers)
        self.steps = 0
        self._first = self._densities()
        self._generator = torch.Generator().manual_seed(seed)
        self._scores: dict[str, Any] = {}
        self._hooks: list[Any] = []
        self._watch()

    def __repr__(self) -> str:
        densities = self._densities()
        mean = densities["model"]
        return f"<Sparsifier of {len(self.layers)} layers, density {mean:.3g}, after {self.steps} steps>"

    # ---- Steps ----

    @property
    def collects(self) -> bool:
        """Whether gradients of the next step are looked at for growth."""
        return self.growth != "random" and self._share(self.steps + 1) > 0 and self._is_due(self.steps + 1)

    def density_at(self, step: int, first: float) -> float:
        """The density of the schedule after so many steps, for that at the beginning."""
        if self.density is None or step < self.begin:
            return first
        passed = 1.0 if self.end == self.begin else min((step - self.begin) / (self.end - self.begin), 1.0)
        return min(first, self.density + (first - self.density) * (1 - passed) ** _SCHEDULES[self.schedule])

    @torch.no_grad()  # type: ignore[misc, unused-ignore]
    def step(self) -> list[StructureChange]:
        """Counts a step of training, and changes layouts if it is due. Returns what changed."""
        self.steps += 1
        if self.steps <= self.begin:
            self._first = self._densities()
        changes = self._change() if self._is_due(self.steps) else []
        self._scores.clear()
        self._watch()
        return changes

    def _is_due(self, step: int) -> bool:
        return self.begin < step <= self.end and ((step - self.begin) % self.every == 0 or step == self.end)

    def _share(self, step: int) -> float:
        if not self.decay:
            return self.move
        return self.move / 2 * (1 + math.cos(math.pi * min(step / max(self.end, 1), 1)))

    def _densities(self) -> dict[str, float]:
        sizes = {name: (layer.layout.blocks, math.prod(layer.layout.grid)) for name, layer in self.layers.items()}
        result = {name: blocks / max(total, 1) for name, (blocks, total) in sizes.items()}
        result["model"] = sum(blocks for blocks, _ in sizes.values()) / max(sum(total for _, total in sizes.values()), 1)
        return result

    def _change(self) -> list[StructureChange]:
        norms = {name: layer._block_norms() for name, layer in self.layers.items()}
        kept = self._kept(norms)
        changes = []
        for name, layer in self.layers.items():
            old = layer.layout
            ids = np.flatnonzero(kept[name])
            layout = old if len(ids) == old.blocks else old.prune(kept[name].astype(np.float64))
            sources = torch.from_numpy(ids)
            layout, sources, moved = self._moved(name, layer, layout, sources, norms[name][ids])
            if layout != old:
                self._put(layer, layout, sources)
                changes.append(StructureChange(name, old.blocks - layout.blocks, moved, layout.blocks))
        return changes

    # ---- Pruning ----

    def _kept(self, norms: dict[str, Any]) -> dict[str, Any]:
        """Which blocks of each layer stay."""
        kept = {name: np.ones(len(x), np.bool_) for name, x in norms.items()}
        sizes = {name: self.layers[name].values[0].numel() if len(x) else 1 for name, x in norms.items()}
        spread = {name: x / math.sqrt(sizes[name]) for name, x in norms.items()}  # root mean squares
        if self.threshold is not None:
            kept = {name: x >= self.threshold for name, x in spread.items()}
        if self.density is None:
            return kept
        if self.scope == "layer":
            for name, x in norms.items():
                total = math.prod(self.layers[name].layout.grid)
                _keep_largest(kept[name], x, count_of(self.density_at(self.steps, self._first[name]), total))
            return kept
        total = sum(math.prod(layer.layout.grid) for layer in self.layers.values())
        joined = np.concatenate(list(kept.values()))
        _keep_largest(joined, np.concatenate(list(spread.values())), count_of(self.density_at(self.steps, self._first["model"]), total))
        ends = np.cumsum([len(x) for x in kept.values()])[:-1]
        return dict(zip(kept, np.split(joined, ends)))

    # ---- Moving ----

    def _moved(self, name: str, layer: Stored, layout: Layout, sources: Any, norms: Any) -> tuple[Layout, Any, int]:
        """The layout after moves, the old id of each block or -1, and how many moved."""
        share = self._share(self.steps)
        free = np.flatnonzero(~(layer.layout.mask() | layout.mask()))
        count = min(int(share * layout.blocks), len(free))
        if count == 0:
            return layout, sources, 0
        ids = np.argsort(norms, kind="stable")[:count]
        places = free[self._best(name, layer, free, count)]
        layout, order = layout.move(ids, *np.divmod(places, layout.grid[1]))
        went = np.isin(np.asarray(order), ids)
        sources = sources[torch.from_numpy(np.asarray(order))].clone()
        sources[torch.from_numpy(went)] = -1
        return layout, sources, count

    def _best(self, name: str, layer: Stored, free: Any, count: int) -> Any:
        if self.growth == "random":
            return torch.randperm(len(free), generator=self._generator)[:count].numpy()
        scores = self._scores.get(name)
        if scores is None:
            raise ArgumentError(
                f"{name or 'the layer'}: no gradients were seen in this step, expected some for growth {self.growth!r}: run the "
                "step under torch.compiler.set_stance('force_eager') if the model is compiled"
            )
        if self.growth == "gradient":
            scores = _norms_of_blocks(scores, layer.layout)
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(scores)
        found = scores.double().cpu().numpy().reshape(-1)[free]
        return np.argsort(-found, kind="stable")[:count]

    def _watch(self) -> None:
        """Hooks for the next step, if it needs them."""
        if self.collects == bool(self._hooks):
            return
        if self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
            return
        for name, layer in self.layers.items():
            self._hooks.append(layer.register_forward_hook(self._hook(name)))

    def _hook(self, name: str) -> Any:
        def forward(layer: Any, given: Any, y: Any) -> None:
            if y.requires_grad and torch.is_grad_enabled():
                x = given[0].detach()
                y.register_hook(lambda grad: self._add(name, layer, x, grad.detach()))

        return forward

    def _add(self, name: str, layer: Any, x: Any, grad: Any) -> None:
        """Adds a pass to the scores of a layer: its dense gradient, or estimates of the norms of blocks."""
        with torch.no_grad():
            x = x.to(grad.dtype)
            if isinstance(layer, BlockSparseConv2d):
                found = _filter_gradient(layer, x, grad)
            else:
                rows, cols = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
                if self.growth == "score":
                    found = torch.as_tensor(growth_score(rows.mT, cols, layer.layout.block_shape, norm="l2"))
                else:
                    found = (rows.mT @ cols).float()
            known = self._scores.get(name)
            self._scores[name] = found if known is None else known.add_(found)

    # ---- Changing ----

    def _put(self, layer: Stored, layout: Layout, sources: Any) -> None:
        """Gives a layer another layout, and values and state their places. `sources` are those of blocks of `layout`."""
        values, stored = layer.values, layer._cell.stored
        entries = self._entries(values)
        before = values.detach().clone()
        layer.set_layout(layout)
        if not isinstance(layer, BlockSparseLinear):  # blocks of a layout are several blocks of values
            fresh = np.zeros(layout.grid, np.bool_)
            _, rows, cols = layout.coordinates()
            fresh[rows[sources.numpy() < 0], cols[sources.numpy() < 0]] = True
            _, rows, cols = layer._cell.stored.coordinates()
            new = torch.from_numpy(fresh[rows, cols % layout.grid[1]])
            sources = sources_of(stored, layer._cell.stored).clone()
            sources[new] = -1
        values.copy_(rearranged(before, sources))
        self._fill(layer, before, sources)
        for state, key in entries:
            state[key] = rearranged(state[key], sources)

    def _entries(self, values: Any) -> list[tuple[Any, str]]:
        """The state of optimisers that has an entry for each block."""
        blocks, inside, found = len(values), tuple(values.shape[1:]), []
        for optimizer in self.optimizers:
            state = optimizer.state.get(values) or {}
            for key, x in state.items():
                if not isinstance(x, torch.Tensor) or x.ndim == 0 or x.numel() == 1 and blocks != 1:
                    continue
                fits = [all(n in (1, m) for n, m in zip(x.shape[1:], sizes)) for sizes in (inside, inside[1:])]
                if len(x) != blocks or x.ndim > 3 or not any(fits):
                    raise ArgumentError(
                        f"the optimiser has {key} of shape {tuple(x.shape)} for values of {tuple(values.shape)}, expected an entry "
                        "for each block, or a number"
                    )
                found.append((state, key))
        return found

    def _fill(self, layer: Stored, before: Any, sources: Any) -> None:
        fresh = sources < 0
        count = int(fresh.sum())
        if self.fill == "zero" or count == 0 or len(before) == 0:
            return
        values = layer.values
        mean, deviation = float(before.float().mean()), float(before.float().std())
        drawn = torch.empty((count, *values.shape[1:]))
        if self.fill == "normal":
            drawn.normal_(mean * self.scale, deviation * self.scale, generator=self._generator)
        else:
            drawn.uniform_(-deviation * self.scale, deviation * self.scale, generator=self._generator)
        values[fresh.to(values.device)] = drawn.to(values)
        layer._clear_padding()

    # ---- Keeping ----

    def state_dict(self) -> dict[str, Any]:
        """Numbers and tensors alone, so that torch.load with weights_only reads them."""
        return {"steps": self.steps, "first": dict(self._first), "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if set(state) != {"steps", "first", "generator"} or set(state["first"]) != set(self._first):
            raise ArgumentError("state is not that of a Sparsifier of these layers")
        self.steps, self._first = int(state["steps"]), dict(state["first"])
        self._generator.set_state(state["generator"])
        self._scores.clear()
        self._watch()


def _optimizers(given: Any, layers: dict[str, Stored]) -> list[Any]:
    optimizers = [given] if isinstance(given, torch.optim.Optimizer) else list(given) if isinstance(given, Iterable) else None
    if optimizers is None or not all(isinstance(x, torch.optim.Optimizer) for x in optimizers):
        raise ArgumentTypeError(f"optimizers is of type {type(given).__name__}, expected a torch.optim.Optimizer or a list of them")
    owned = {id(p) for x in optimizers for group in x.param_groups for p in group["params"]}
    for name, layer in layers.items():
        if optimizers and id(layer.values) not in owned and layer.values.requires_grad:
            raise ArgumentError(f"optimizers do not have the values of {name or 'the layer'}: make them after the layers")
    return optimizers


def _keep_largest(kept: Any, scores: Any, count: int) -> None:
    """Of the blocks that are kept, the `count` of largest score stay; of equal ones the first."""
    order = np.argsort(-np.where(kept, scores, -np.inf), kind="stable")
    kept[order[count:]] = False


def _norms_of_blocks(dense: Any, layout: Layout) -> Any:
    """The norms of all blocks of a dense array [rows, cols]: [grid rows, grid cols]."""
    (height, width), (grid_rows, grid_cols) = layout.block_shape, layout.grid
    padded = torch.nn.functional.pad(dense, (0, grid_cols * width - layout.cols, 0, grid_rows * height - layout.rows))
    return padded.view(grid_rows, height, grid_cols, width).square().sum((1, 3)).sqrt()


def _filter_gradient(layer: BlockSparseConv2d, x: Any, grad: Any) -> Any:
    """For each pair of channels the norm over all taps of the gradient of a dense filter."""
    geometry = layer._geometry
    if x.ndim == 3:
        x, grad = x.unsqueeze(0), grad.unsqueeze(0)
    (top, bottom), (left, right) = geometry["padding"]
    x = torch.nn.functional.pad(x, (left, right, top, bottom))
    shape = (layer.out_channels, layer.in_channels, *geometry["kernel"])
    found = torch.nn.grad.conv2d_weight(x, shape, grad, geometry["stride"], 0, geometry["dilation"])
    return found.float().square().sum((2, 3)).sqrt()
