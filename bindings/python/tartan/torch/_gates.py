# SPDX-License-Identifier: Apache-2.0
"""What a Sparsifier and its layers tell each other in each step: gradients of gates, and gates. The layers of a device share one copy each
way, and the memory for it is kept between steps."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from tartan import _raw, gate_gradient
from tartan.torch._stored import Stored


def dtype_of(values: Any) -> Any:
    """The dtype of the gates of values."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32


class Slopes:
    """The gradients of the gates of some layers, on their way to the host. `layers` have their numbers, one device, and one dtype."""

    def __init__(self, layers: dict[int, Stored]) -> None:
        self._layers = layers
        values = next(iter(layers.values())).values
        sizes = [layer.values.shape[0] for layer in layers.values()]
        self._sums = values.new_empty(sum(sizes), dtype=dtype_of(values))
        self._parts = self._sums.split(sizes)
        self._event: Any = None if values.device.type == "cpu" else torch.cuda.Event()
        self._host = self._sums if self._event is None else torch.empty_like(self._sums, device="cpu", pin_memory=True)
        self._scale: Optional[float] = None  # of the gradients that are on their way
        self._blocks: Any = None  # for each number the block of the layouts, one after another, that it belongs to
        ids = [layer._blocks_of_values() for layer in layers.values()]
        ends = np.cumsum([0, *(layer.layout.blocks for layer in layers.values())])
        if any(x is not None for x in ids):
            self._blocks = np.concatenate([(np.arange(n) if x is None else x) + begin for x, n, begin in zip(ids, sizes, ends)])
        self.places = [(i, slice(begin, end)) for i, begin, end in zip(layers, ends, ends[1:])]

    @property
    def are_asked_for(self) -> bool:
        """Whether gradients are on their way."""
        return self._scale is not None

    def ask(self, scale: float) -> None:
        """Have the device compute and send gradients that are `scale` times too large, without waiting for it."""
        for layer, part in zip(self._layers.values(), self._parts):
            cell, values = layer._cell, layer.values
            gate_gradient(cell.matrix(values), cell.gradient(values), out=part)
        if self._event is not None:
            self._host.copy_(self._sums, non_blocking=True)
            self._event.record(torch.cuda.current_stream(self._sums.device))
        self._scale = scale

    def take(self) -> Any:
        """What was asked for, once it is there: of each layer, in the slice that `places` has, an entry for each block of its layout."""
        assert self._scale is not None
        scale, self._scale = self._scale, None
        if self._event is not None:
            self._event.synchronize()
        found = np.divide(self._host.numpy(), scale, dtype=np.float64)
        return found if self._blocks is None else np.bincount(self._blocks, found, self.places[-1][1].stop)


class Gates:
    """The gates of all layers on the host and in the layers, where they stay the same tensors: those of the next step, `drawn`, and
    those of a model in use. Without layers that have lost or replaced a tensor, a step writes to memory that is there."""

    def __init__(self, handle: Any, layers: list[Stored]) -> None:
        self._handle, self._layers = handle, layers
        self.drawn: list[Any] = []  # of each layer, on the host
        self._make()

    def put(self) -> None:
        """Give layers their gates."""
        if any(layer._drawn is not drawn or layer.gates is not used for layer, (drawn, used) in zip(self._layers, self._tensors)):
            self._make()
        for i, (drawn, used) in enumerate(self._lists):
            _raw.tartan_sparsifier_get_gates(self._handle, i, 1, drawn)
            _raw.tartan_sparsifier_get_gates(self._handle, i, 0, used)
        for gates, ids, numbers in self._spread:
            np.take(gates, ids, out=numbers)
        for numbers, there, parts, tensors in self._groups:
            if there is not None:  # from pinned memory, so that nobody waits for the device
                there.copy_(torch.empty_like(there, device="cpu", pin_memory=True).copy_(numbers), non_blocking=True)
            torch._foreach_copy_(tensors, parts)

    def _make(self) -> None:
        """Tensors for layers that have none that fit, and the memory on the way to them."""
        self._tensors = [self._fitting(layer) for layer in self._layers]
        self._lists: list[Any] = [None] * len(self._layers)  # on the host: of the next step, of a model in use
        self._spread: list[Any] = []  # gates of blocks that stand several times in a layer: gates, places, numbers for the layer
        self._groups: list[Any] = []  # by device and dtype: numbers on the host and, unless that is the device, there; parts; tensors
        kinds = [(layer.values.device, dtype_of(layer.values)) for layer in self._layers]
        for device, dtype in dict.fromkeys(kinds):
            places = [i for i, kind in enumerate(kinds) if kind == (device, dtype)]
            sizes = [len(tensor) for i in places for tensor in self._tensors[i]]
            numbers = np.empty(sum(sizes))
            pieces = np.split(numbers, np.cumsum(sizes)[:-1])
            for k, i in enumerate(places):
                self._lists[i] = self._on_host(self._layers[i], pieces[2 * k : 2 * k + 2])
            host = torch.from_numpy(numbers)
            there = None if device.type == "cpu" else torch.empty(len(host), dtype=dtype, device=device)
            parts = list((host if there is None else there).split(sizes))
            self._groups.append((host, there, parts, [tensor for i in places for tensor in self._tensors[i]]))
        self.drawn = [drawn for drawn, _ in self._lists]

    @staticmethod
    def _fitting(layer: Stored) -> tuple[Any, Any]:
        for name in ("_drawn", "gates"):
            old, values = getattr(layer, name), layer.values
            if old is None or old.shape != values.shape[:1] or old.dtype != dtype_of(values) or old.device != values.device:
                setattr(layer, name, values.new_empty(len(values), dtype=dtype_of(values)))
        return layer._drawn, layer.gates

    def _on_host(self, layer: Stored, pieces: Any) -> Any:
        """Where the library writes the gates of a layer: into what goes to the layer, or before."""
        ids = layer._blocks_of_values()
        if ids is None:
            return pieces
        lists = [np.empty(layer.layout.blocks) for _ in pieces]
        self._spread += [(gates, ids, numbers) for gates, numbers in zip(lists, pieces)]
        return lists
