# SPDX-License-Identifier: Apache-2.0
"""Dynamic sparsity: pruning, regrowth and recycling of blocks while a model trains, with any optimiser of PyTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

import numpy as np
import torch

from tartan import Layout, growth_score
from tartan._errors import ArgumentError, ArgumentTypeError
from tartan.torch._conv import BlockSparseConv2d
from tartan.torch._stored import Stored, sources_of

_dense_filter_gradient: Any = torch.nn.grad.conv2d_weight  # type: ignore[attr-defined, unused-ignore]

class StructureChange(NamedTuple):
    """What a step did to a layer: the numbers of blocks removed, moved, and stored now."""

    name: str
    pruned: int
    moved: int
    blocks: int


class Sparsifier:
    """Changes the layouts of the block-sparse layers of a model, together with their values and the state of their optimisers.

    Call `step()` after each step of the optimiser. At the steps begin, begin + every, ..., end each layer gets the layout that
    `Layout.evolve` makes from its own. `Layout.evolve` explains `density`, `curve`, `threshold`, `swap`, `decay`, `begin`, `every`, `end`
    and `seed`; the initial density is the density of the layer at `begin`. The score of a block is the root mean square of its values. A
    `density` thus prunes blocks of small values along a curve, and `swap` moves a fraction of the blocks to better positions, which
    `growth` chooses:

    * "gradient": by the norm of the gradient of the block (RigL, Evci et al. 2020);
    * "score": by the estimate of `tartan.growth_score`, which is cheaper and coarser;
    * "random": at random.

    With `scope` "model" the density applies to all layers together, and their blocks compete. `fill` initialises a moved block: "zero";
    "normal" with mean and standard deviation `scale` times those of the layer; "uniform" in +- `scale` standard deviations. ``swap=0.1,
    decay="constant", growth="random", fill="normal"`` is the SparseOptimizer of pytorch_block_sparse.

    `optimizers` is one torch.optim.Optimizer or a list. Parameters stay the same objects in their groups. State with an entry for each
    block (moments) moves with the blocks and is 0 for new ones; other state (step counts) stays. Gradients are dropped.

    Growth by gradients observes the step before a change through hooks, which torch.compile does not run: call that step under
    ``torch.compiler.set_stance("force_eager")``; `collects` says when. With torch.distributed, growth is summed over all ranks, and all
    ranks make the same choice. Create DistributedDataParallel again after pruning, as after any change of a parameter's shape; moving
    blocks does not require it.

    All choices depend only on the seed, the step and the model, so a run restored from the state dicts of model, optimisers and Sparsifier
    continues with the same bits. `layers` is a regular expression for names of layers, or None for all.

    >>> import torch
    >>> from tartan.torch import BlockSparseLinear, Sparsifier
    >>> model = BlockSparseLinear(64, 64, density=0.5, block=16)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> sparsifier = Sparsifier(model, optimizer, density=0.25, end=10, every=5)
    >>> for _ in range(10):
    ...     optimizer.zero_grad()
    ...     model(torch.randn(8, 64)).square().sum().backward()
    ...     optimizer.step()
    ...     changes = sparsifier.step()   # what it did, if anything
    >>> model.layout.blocks, len(optimizer.state[model.values]["exp_avg"])
    (4, 4)
    """

    def __init__(
        self, model: Any, optimizers: Any = (), *, density: Optional[float] = None, curve: str = "cubic",
        threshold: Optional[float] = None, scope: str = "layer", swap: float = 0.0, decay: str = "cosine",
        growth: str = "gradient", fill: str = "zero", scale: float = 0.1, begin: int = 0, end: int, every: int = 100,
        layers: Optional[str] = None, seed: int = 0,
    ) -> None:  # fmt: skip
        for name, x, known in (("scope", scope, ("layer", "model")), ("growth", growth, ("gradient", "score", "random")),
                               ("fill", fill, ("zero", "normal", "uniform"))):  # fmt: skip
            if x not in known:
                raise ArgumentError(f"{name} is {x!r}, expected one of {', '.join(map(repr, known))}")
        if not 0 <= begin <= end or every < 1 or (end - begin) % every:
            raise ArgumentError(
                f"begin, end and every are {begin}, {end} and {every}, expected 0 <= begin <= end and steps of `every` that lead "
                "from begin to end"
            )
        self.scope, self.growth, self.fill, self.scale, self.seed = scope, growth, fill, scale, seed
        self.begin, self.end, self.every, self.swap, self.decay = begin, end, every, swap, decay
        self._times: dict[str, Any] = {"begin": begin, "end": end, "every": every}
        self._pruning: dict[str, Any] = {"density": density, "curve": curve, "threshold": threshold, **self._times}
        self.layers: dict[str, Stored] = {
            name: layer
            for name, layer in model.named_modules()
            if isinstance(layer, Stored) and (layers is None or re.fullmatch(layers, name))
        }
        if not self.layers:
            raise ArgumentError(f"model has no block-sparse layer that {layers!r} matches" if layers else "model has no block-sparse layer")
        self.optimizers = _optimizers(optimizers, self.layers)
        _EXAMPLE.evolve(np.zeros(1), 0, **self._pruning, swap=swap, decay=decay)  # refuses what is no schedule
        self.steps = 0
        self._first = self._densities()
        self._growth: dict[str, Any] = {}
        self._hooks: list[Any] = []
        self._watch()

    def __repr__(self) -> str:
        return f"<Sparsifier of {len(self.layers)} layers, density {self._densities()[_ALL]:.3g}, after {self.steps} steps>"

    # ---- Steps ----

    @property
    def collects(self) -> bool:
        """Whether growth observes the gradients of the next step."""
        step = self.steps + 1
        swaps = self.swap > 0 and not (step == self.end and self.decay != "constant")
        return self.growth != "random" and swaps and self._is_due(step)

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def step(self) -> list[StructureChange]:
        """Count a training step, and change the layouts if this step is due. Return what changed."""
        self.steps += 1
        if self.steps <= self.begin:
            self._first = self._densities()
        changes = self._change() if self._is_due(self.steps) else []
        self._growth.clear()
        self._watch()
        return changes

    def _is_due(self, step: int) -> bool:
        return self.begin <= step <= self.end and (step - self.begin) % self.every == 0

    def _densities(self) -> dict[str, float]:
        sizes = {name: (layer.layout.blocks, math.prod(layer.layout.grid)) for name, layer in self.layers.items()}
        result = {name: blocks / max(total, 1) for name, (blocks, total) in sizes.items()}
        result[_ALL] = sum(blocks for blocks, _ in sizes.values()) / max(sum(total for _, total in sizes.values()), 1)
        return result

    def _change(self) -> list[StructureChange]:
        # All are asked for before the first is waited for.
        norms = {name: layer._norms_of_values() for name, layer in self.layers.items()}
        worth = {name: layer._block_norms(norms[name]) / math.sqrt(layer.values[0].numel() if len(layer.values) else 1)
                 for name, layer in self.layers.items()}  # fmt: skip
        kept = self._kept_of_all(worth) if self.scope == "model" else None
        swaps: dict[str, Any] = {"swap": self.swap, "decay": self.decay}
        changes = []
        for i, (name, layer) in enumerate(self.layers.items()):
            old, growth, seed = layer.layout, self._growth_of(name, layer), self.seed + i
            if kept is None:
                options = {**self._pruning, "initial": self._first[name]}
                layout = old.evolve(worth[name], self.steps, growth, seed=seed, **options, **swaps)
            else:
                left = old.prune(kept[name].astype(np.float64))
                layout = left.evolve(worth[name][kept[name]], self.steps, growth, seed=seed, **self._times, **swaps)
            if layout != old:
                moved = self._put(i, layer, layout)
                changes.append(StructureChange(name, old.blocks - layout.blocks, moved, layout.blocks))
        return changes

    def _kept_of_all(self, worth: dict[str, Any]) -> dict[str, Any]:
        """Which blocks of each layer stay where all compete: a row of all blocks of the model evolves."""
        counts = np.cumsum([0, *(len(x) for x in worth.values())])
        positions = sum(math.prod(layer.layout.grid) for layer in self.layers.values())
        everything = Layout.from_coordinates((1, positions), 1, np.zeros(counts[-1], np.int64), np.arange(counts[-1]))
        options = {**self._pruning, "initial": self._first[_ALL]}
        left = everything.evolve(np.concatenate(list(worth.values())), self.steps, **options)
        kept = np.zeros(counts[-1], np.bool_)
        kept[left.coordinates()[2]] = True
        return {name: kept[counts[i] : counts[i + 1]] for i, name in enumerate(worth)}

    # ---- Growth ----

    def _growth_of(self, name: str, layer: Stored) -> Any:
        """The scores of all positions of a layer, on the host; None if positions are random or nothing moves."""
        if self.growth == "random" or self.swap == 0 or (self.steps == self.end and self.decay != "constant"):
            return None
        found = self._growth.get(name)
        if found is None:
            raise ArgumentError(
                f"{name or 'the layer'}: no gradients were seen in this step, expected some for growth {self.growth!r}: run the "
                "step under torch.compiler.set_stance('force_eager') if the model is compiled"
            )
        if self.growth == "gradient" or isinstance(layer, BlockSparseConv2d):
            found = _norms_of_blocks(found, layer.layout)
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(found)
        return found.double().cpu().numpy()

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
        """Add a pass to the scores of a layer: its dense gradient, or estimates of the norms of blocks."""
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
            known = self._growth.get(name)
            self._growth[name] = found if known is None else known.add_(found)

    # ---- Changing ----

    def _put(self, i: int, layer: Stored, layout: Layout) -> int:
        """Give a layer another layout, and values and state their places. Return how many blocks are new."""
        values, old = layer.values, layer.layout
        entries = self._entries(values)
        mean, deviation = (float(x) for x in (values.float().mean(), values.float().std())) if self.fill != "zero" else (0.0, 0.0)
        move = layer._move_to(layout)
        for state, key in entries:
            state[key] = move(state[key])
        if self.fill != "zero" and len(move.fresh):
            generator = torch.Generator("cpu").manual_seed((self.seed + 1) * 1_000_003 + self.steps * 1009 + i)
            drawn = torch.empty((len(move.fresh), *values.shape[1:]), device="cpu")
            if self.fill == "normal":
                drawn.normal_(mean * self.scale, deviation * self.scale, generator=generator)
            else:
                drawn.uniform_(-deviation * self.scale, deviation * self.scale, generator=generator)
            values[move.fresh] = drawn.to(values)
            layer._clear_padding()
        return len(move.fresh) if layer._cell.stored is layout else int((sources_of(old, layout) < 0).sum())

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

    # ---- Keeping ----

    def state_dict(self) -> dict[str, Any]:
        """The state, as numbers only, so that torch.load reads it with weights_only."""
        return {"steps": self.steps, "first": dict(self._first)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state. Load the states of the model and of the optimisers, too."""
        if set(state) != {"steps", "first"} or set(state["first"]) != set(self._first):
            raise ArgumentError("state is not that of a Sparsifier of these layers")
        self.steps, self._first = int(state["steps"]), dict(state["first"])
        self._growth.clear()
        self._watch()


# The key of the density of all layers together, which no layer can have as its name.
_ALL = "*"
_EXAMPLE = Layout.pattern("dense", (1, 1), 1)


def _optimizers(given: Any, layers: dict[str, Stored]) -> list[Any]:
    optimizers = [given] if isinstance(given, torch.optim.Optimizer) else list(given) if isinstance(given, Iterable) else None
    if optimizers is None or not all(isinstance(x, torch.optim.Optimizer) for x in optimizers):
        raise ArgumentTypeError(f"optimizers is of type {type(given).__name__}, expected a torch.optim.Optimizer or a list of them")
    owned = {id(p) for x in optimizers for group in x.param_groups for p in group["params"]}
    for name, layer in layers.items():
        if optimizers and id(layer.values) not in owned and layer.values.requires_grad:
            raise ArgumentError(f"optimizers do not have the values of {name or 'the layer'}: make them after the layers")
    return optimizers


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
    found = _dense_filter_gradient(x, shape, grad, geometry["stride"], 0, geometry["dilation"])
    return found.float().square().sum((2, 3)).sqrt()
