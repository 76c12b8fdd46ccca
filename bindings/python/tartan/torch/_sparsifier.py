# SPDX-License-Identifier: Apache-2.0
"""`tartan.Sparsifier` for the layers of a PyTorch model and any of its optimisers."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import torch

import tartan
from tartan import File, Layout, _raw, growth_score
from tartan._arrays import doubles
from tartan._errors import ArgumentError, ArgumentTypeError, LayoutError
from tartan._sparsifier import _about
from tartan._torch import matrix_of
from tartan.torch._conv import BlockSparseConv2d
from tartan.torch._gates import Gates, Slopes
from tartan.torch._stored import Move, Stored, decoded, encoded, replace, sources_of

_dense_filter_gradient: Any = torch.nn.grad.conv2d_weight  # type: ignore[attr-defined, unused-ignore]


class StructureChange(NamedTuple):
    """What a step did to a layer: the numbers of blocks removed, moved, and stored now."""

    name: str
    pruned: int
    moved: int
    blocks: int


class Sparsifier:
    """A `tartan.Sparsifier` of the block-sparse layers of a model: it changes their layouts while the model trains, and with them values,
    gates, and the state of their optimisers.

    Call `step()` after each step of the optimiser. `options` are those of `tartan.Sparsifier`: `density`, `threshold`, `curve`, `swap`,
    `begin`, `end`, `every`, `score`, `scope`, `growth`, `fill`, `l0`, `seed` and so on. What a `tartan.Sparsifier` is told in each step, this
    one sees for itself:

    * ``growth="score"`` (RigL): the gradients of all places, in steps before a change that want them (`needs_growth`). `growth_norm` is
      the norm that `tartan.growth_score` has: "gradient", exact; or "l2" or "max", estimates that cost less
    * ``score="movement"`` and ``score="gate"``: the gradients that the optimiser takes its step with, averaged, unscaled and clipped as they
      are then. Without `optimizers`, call `observe()` before the weights change
    * `fresh_rate`: the changes that the optimiser makes to new blocks are multiplied by it
    * ``score="gate"``: layers multiply their blocks by the gates of the step in training mode, else by those of a model in use, which
      are also in their state dicts; `fold_gates()` of a layer makes them a part of its values

    `optimizers` is one torch.optim.Optimizer or a list. Parameters stay the same objects in their groups. State with an entry for each
    block (moments) moves with the blocks and is 0 for new ones; other state (step counts) stays. Gradients are dropped.

    Growth by gradients observes the step before a change through hooks, which torch.compile does not run: call that step under
    ``torch.compiler.set_stance("force_eager")`` where `needs_growth` says so. With torch.distributed, growth is summed over all ranks, and all
    ranks make the same choice. Create DistributedDataParallel again after pruning, as after any change of a parameter's shape; moving
    blocks does not require it.

    A run restored from the state dicts of model, optimisers and Sparsifier, in this order, continues with the same bits. ``tartan.save(path,
    {"sparsifier": sparsifier})`` writes the state to a file, and ``sparsifier.load_state_dict(tartan.Sparsifier.load(path))`` reads it. `layers`
    is a regular expression for names of layers, or None for all.

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
        self, model: Any, optimizers: Any = (), *, layers: Optional[str] = None, growth_norm: str = "gradient", **options: Any
    ) -> None:
        if growth_norm not in ("gradient", "l2", "max"):
            raise ArgumentError(f"growth_norm is {growth_norm!r}, expected 'gradient', 'l2' or 'max'")
        self.growth_norm = growth_norm
        self.layers: dict[str, Stored] = {
            name: layer
            for name, layer in model.named_modules()
            if isinstance(layer, Stored) and (layers is None or re.fullmatch(layers, name))
        }
        if not self.layers:
            raise ArgumentError(f"model has no block-sparse layer that {layers!r} matches" if layers else "model has no block-sparse layer")
        self.optimizers = _optimizers(optimizers, self.layers)
        layouts = [layer.layout for layer in self.layers.values()]
        self._growth: dict[str, Any] = {}
        self._hooks: list[Any] = []
        self._take(tartan.Sparsifier.__new__(tartan.Sparsifier)._open(layouts, **options))
        this = weakref.ref(self)  # an optimiser does not keep what nobody else has
        for optimizer in self.optimizers:
            optimizer.register_step_pre_hook(lambda opt, *_: _call(this, "_before", opt))
            optimizer.register_step_post_hook(lambda opt, *_: _call(this, "_after", opt))

    def _take(self, own: tartan.Sparsifier) -> None:
        """Begin with the state of the library's sparsifier."""
        self._own = own
        self._layouts = own.layouts
        self._words = dict(word.split("=", 1) for word in own.options.split())
        self._has_gates = self._words.get("score") == "gate"
        self._growth.clear()
        self._fresh: dict[str, Any] = {}  # what new blocks were before the step of an optimiser: ids, values, rates
        self._slopes: dict[Any, Slopes] = {}  # by device, dtype and the numbers of layers
        self._gates: Optional[Gates] = None
        self._put_gates()
        self._watch()

    def __repr__(self) -> str:
        return repr(self._own).replace("weight", "layer")

    # ---- Asking ----

    @property
    def steps(self) -> int:
        """The steps so far."""
        return self._own.steps

    @property
    def options(self) -> str:
        """All options, as text."""
        return self._own.options

    @property
    def needs_growth(self) -> bool:
        """Whether growth observes the gradients of the next step."""
        return self._own.needs_growth

    @property
    def penalty(self) -> float:
        """What gates add to the loss: `l0` times the density that is expected of all layers. `step` knows its gradient."""
        return self._own.penalty

    # ---- Steps ----

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def step(self) -> list[StructureChange]:
        """Count a training step, and change the layouts if this step is due. Return what changed. If anything does not fit, nothing
        changes."""
        own = self._own
        self._check_layouts()
        self._take_slopes()
        if _raw.tartan_sparsifier_needs_norms(own._handle) == 1:
            for i, (name, layer) in enumerate(self.layers.items()):
                with _about(name or "the layer"):
                    own._measure(i, layer.matrix())
        if self.needs_growth:
            self._add_growth()
        _raw.tartan_sparsifier_prepare(own._handle)
        due = [i for i in range(len(self.layers)) if own._changes(i)]
        changes = self._change(due) if due else []
        _raw.tartan_sparsifier_commit(own._handle)
        self._growth.clear()
        self._put_gates()
        self._watch()
        return changes

    def _check_layouts(self) -> None:
        for i, (name, layer) in enumerate(self.layers.items()):
            layout, known = layer.layout, self._layouts[i]
            if layout is not known:
                if layout != known:
                    raise LayoutError(f"{name or 'the layer'}: {_unequal(layout, known)}")
                self._layouts[i] = layout  # the same one next time

    def _change(self, due: list[int]) -> list[StructureChange]:
        """Give layers their next layouts, and values and state their places."""
        layers, changes, moved = list(self.layers.items()), [], []
        entries = {i: self._entries(layers[i][0], layers[i][1].values) for i in due}
        olds = {i: layers[i][1].layout for i in due}
        try:
            for i in due:
                name, layer = layers[i]
                old, stored, (layout, sources) = olds[i], layer._cell.stored, self._own._next(i)
                layer._cell.set(layout)
                now = layer._cell.stored
                move = Move(sources if now is layout else sources_of(stored, now), layer.values.device)
                values = move(layer.values)
                if self._words.get("fill", "zero") != "zero":
                    self._own._fill(i, matrix_of(now, values))
                moved.append((i, values, [move(state[key]) for state, key in entries[i]]))
                fresh = int((sources < 0).sum())
                changes.append(StructureChange(name, old.blocks - layout.blocks, fresh, layout.blocks))
        except BaseException:
            for i, old in olds.items():
                layers[i][1]._cell.set(old)
            raise
        for i, values, states in moved:
            layer = layers[i][1]
            replace(layer.values, values)
            for (state, key), x in zip(entries[i], states):
                state[key] = x
            self._layouts[i] = layer.layout
        self._slopes.clear()
        self._gates = None
        return changes

    def _entries(self, name: str, values: Any) -> list[tuple[Any, str]]:
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
                        f"{name or 'the layer'}: the optimiser has {key} of shape {tuple(x.shape)} for values of {tuple(values.shape)}, "
                        "expected an entry for each block, or a number"
                    )
                found.append((state, key))
        return found

    # ---- What an optimiser's step shows ----

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def observe(self) -> None:
        """Take what the gradients of values show for ``score="movement"`` and ``score="gate"``. With `optimizers` each of their steps begins
        with this. It does not wait for a GPU; `step` then waits for the backward pass, but not for the optimiser."""
        self._observe(list(self.layers.values()), 1.0)

    def _observe(self, layers: list[Stored], scale: float) -> None:
        if self._words.get("score") not in ("movement", "gate"):
            return
        self._check_layouts()
        chosen, found = {id(layer) for layer in layers}, dict[Any, dict[int, Stored]]()
        for i, layer in enumerate(self.layers.values()):
            values = layer.values
            if values.grad is not None and id(layer) in chosen:
                found.setdefault((values.device, values.dtype), {})[i] = layer
        for kind, seen in found.items():
            key = (*kind, *seen)
            if key not in self._slopes:
                self._slopes[key] = Slopes(seen)
            elif self._slopes[key].are_asked_for:
                self._take_slopes()
            self._slopes[key].ask(scale)
        if all(device.type == "cpu" for device, _ in found):
            self._take_slopes()

    def _take_slopes(self) -> None:
        """Tell the library what gradients showed."""
        for slopes in self._slopes.values():
            if not slopes.are_asked_for:
                continue
            found = slopes.take()
            if self._gates is not None:
                # Gradients are those of weights times gates. A gate that was clipped to 0 or 1 learns nothing from its own.
                gates = np.concatenate([self._gates.drawn[i] for i, _ in slopes.places])
                found = np.divide(found, gates, out=np.zeros_like(found), where=(gates > 0) & (gates < 1))
            scores, i = -found, 0
            try:
                for i, blocks in slopes.places:
                    _raw.tartan_sparsifier_add_scores(self._own._handle, i, scores[blocks])
            except tartan.TartanError:
                with _about(list(self.layers)[i] or "the layer"):
                    raise

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def _before(self, optimizer: Any) -> None:
        """A step of an optimiser begins."""
        # A fused optimiser that torch.amp.GradScaler calls unscales gradients, and skips steps, itself.
        inf, scale = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
        layers = self._layers_of(optimizer)
        if inf is None or not inf.item():
            self._observe(layers, 1.0 if scale is None else float(scale))
        if "fresh_steps" in self._words:
            for i, (name, layer) in enumerate(self.layers.items()):
                rates = np.empty(layer.layout.blocks)
                _raw.tartan_sparsifier_get_rates(self._own._handle, i, rates)
                ids = layer._blocks_of_values()
                rates = rates if ids is None else rates[ids]
                new = np.flatnonzero(rates != 1)
                if len(new) and any(layer is x for x in layers):
                    places = torch.from_numpy(new).to(layer.values.device)
                    self._fresh[name] = places, layer.values[places], float(rates[new[0]])

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def _after(self, optimizer: Any) -> None:
        """A step of an optimiser ends."""
        for name, (places, before, rate) in self._fresh.items():
            values = self.layers[name].values
            values[places] = torch.lerp(before, values[places], rate)
        self._fresh.clear()

    def _layers_of(self, optimizer: Any) -> list[Stored]:
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [layer for layer in self.layers.values() if id(layer.values) in owned]

    # ---- Gates ----

    @torch.no_grad()  # type: ignore[misc, untyped-decorator, unused-ignore]
    def _put_gates(self) -> None:
        """Give layers the gates of the next step, and those of a model in use."""
        if not self._has_gates:
            return
        if self._gates is None:
            self._gates = Gates(self._own._handle, list(self.layers.values()))
        self._gates.put()

    # ---- Growth ----

    def _add_growth(self) -> None:
        """Tell the library how much the places of all layers are worth."""
        found, distributed = [], torch.distributed
        for name, layer in self.layers.items():
            seen = self._growth.get(name)
            if seen is None:
                raise ArgumentError(
                    f"{name or 'the layer'}: no gradients were seen in this step, expected some for growth='score': run the step under "
                    "torch.compiler.set_stance('force_eager') if the model is compiled"
                )
            if self.growth_norm == "gradient" or isinstance(layer, BlockSparseConv2d):
                seen = _norms_of_blocks(seen, layer.layout)
            if distributed.is_available() and distributed.is_initialized():
                distributed.all_reduce(seen)
            found.append(seen.flatten())
        for i, growth in enumerate(_on_host(found)):
            _raw.tartan_sparsifier_add_growth(self._own._handle, i, doubles(growth, "growth"))

    def _watch(self) -> None:
        """Hooks for the next step, if it needs them."""
        if self.needs_growth == bool(self._hooks):
            return
        if self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
            return
        for name, layer in self.layers.items():
            self._hooks.append(layer.register_forward_hook(_growth_hook(weakref.ref(self), name)))

    def _add(self, name: str, layer: Any, x: Any, grad: Any) -> None:
        """Add a pass to the scores of a layer: its dense gradient, or estimates of the norms of blocks."""
        with torch.no_grad():
            x = x.to(grad.dtype)
            if isinstance(layer, BlockSparseConv2d):
                found = _filter_gradient(layer, x, grad)
            else:
                rows, cols = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
                if self.growth_norm == "gradient":
                    found = (rows.mT @ cols).float()
                else:
                    found = torch.as_tensor(growth_score(rows.mT, cols, layer.layout.block_shape, norm=self.growth_norm))
            known = self._growth.get(name)
            self._growth[name] = found if known is None else known.add_(found)

    # ---- Keeping ----

    def _put_into(self, file: _raw.Handle, name: str) -> None:
        """For `File.put`."""
        self._take_slopes()
        self._own._put_into(file, name)

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as texts and tensors, so that torch.load reads it with weights_only."""
        self._take_slopes()
        with File() as file:
            file.put("s", self._own)
            parts = [f"s/{i}" for i in range(len(self.layers))]
            return {
                "layers": list(self.layers), "options": self.options, "layouts": [encoded(file.layout(part)) for part in parts],
                "numbers": [torch.from_numpy(file.array(part)) for part in ("s", *parts)],
            }  # fmt: skip

    def load_state_dict(self, state: Union[dict[str, Any], tartan.Sparsifier]) -> None:
        """Continue from the state, options included: that of `state_dict`, or a `tartan.Sparsifier` from a file. Load the states of the model
        and of the optimisers before."""
        own = state if isinstance(state, tartan.Sparsifier) else _restored(state, list(self.layers))
        layouts = own.layouts
        if len(layouts) != len(self.layers):
            raise ArgumentError(f"state has {len(layouts)} layers, expected {len(self.layers)}: {', '.join(self.layers)}")
        for (name, layer), layout in zip(self.layers.items(), layouts):
            if layer.layout != layout:
                raise LayoutError(f"{name or 'the layer'}: {_unequal(layer.layout, layout)}: load the state of the model before")
        self._take(own)


def _restored(state: Any, layers: list[str]) -> tartan.Sparsifier:
    """The sparsifier of a state dict. The library checks what it has."""
    names = {"layers", "options", "layouts", "numbers"}
    if not isinstance(state, dict) or set(state) != names:
        has = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ArgumentError(f"state has {has}, expected {sorted(names)}, as state_dict made it")
    if state["layers"] != layers:
        raise ArgumentError(f"state is of the layers {state['layers']}, expected {layers}")
    head, *numbers = (x.detach().cpu().numpy() for x in state["numbers"])
    with File() as file:
        file.put("s", head, metadata={"sparsifier": state["options"]})
        for i, (layout, x) in enumerate(zip(state["layouts"], numbers)):
            file.put(f"s/{i}", decoded(layout))
            file.put(f"s/{i}", x)
        return tartan.Sparsifier.load(file, "s")


def _unequal(layout: Layout, known: Layout) -> str:
    return f"the layer has {layout!r} ({layout.identity[:8]}), the sparsifier {known!r} ({known.identity[:8]})"


def _call(this: Any, method: str, *arguments: Any) -> None:
    found = this()
    if found is not None:
        getattr(found, method)(*arguments)


def _growth_hook(this: Any, name: str) -> Any:
    def forward(layer: Any, given: Any, y: Any) -> None:
        if y.requires_grad and torch.is_grad_enabled():
            x = given[0].detach()
            y.register_hook(lambda grad: _call(this, "_add", name, layer, x, grad.detach()))

    return forward


def _optimizers(given: Any, layers: dict[str, Stored]) -> list[Any]:
    optimizers = [given] if isinstance(given, torch.optim.Optimizer) else list(given) if isinstance(given, Iterable) else None
    if optimizers is None or not all(isinstance(x, torch.optim.Optimizer) for x in optimizers):
        raise ArgumentTypeError(f"optimizers is of type {type(given).__name__}, expected a torch.optim.Optimizer or a list of them")
    owned = {id(p) for x in optimizers for group in x.param_groups for p in group["params"]}
    for name, layer in layers.items():
        if optimizers and id(layer.values) not in owned and layer.values.requires_grad:
            raise ArgumentError(f"optimizers do not have the values of {name or 'the layer'}: make them after the layers")
    return optimizers


def _on_host(lists: list[Any]) -> list[Any]:
    """Lists of numbers as arrays of float64 on the host, with one copy for each device that they are on."""
    result: list[Any] = [None] * len(lists)
    for device in dict.fromkeys(x.device for x in lists):
        places = [i for i, x in enumerate(lists) if x.device == device]
        numbers = torch.cat([lists[i].double() for i in places]).cpu().numpy()
        for i, part in zip(places, np.split(numbers, np.cumsum([len(lists[i]) for i in places])[:-1])):
            result[i] = part
    return result


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
