# SPDX-License-Identifier: Apache-2.0
"""Replaces linear layers of a model by block-sparse ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from tartan import Layout
from tartan._errors import ArgumentError, ArgumentTypeError, TartanError
from tartan.torch._linear import BlockSparseLinear, of_pattern

_SETTINGS = frozenset({"density", "block", "pattern", "keep", "layout"})


@dataclass
class PatchedLayer:
    """One replaced layer: its name, its new form, and numbers of parameters and bytes before and after."""

    name: str
    kind: str
    block: tuple[int, int]
    density: float
    parameters_before: int
    parameters_after: int
    bytes_before: int
    bytes_after: int


@dataclass
class PatchReport:
    """What `patch_model` did: the `layers` that it replaced, the `skipped` layers with the reason, `tied` groups of names of the same
    layer, and the parameters and bytes of the whole model (shared parameters count once). Prints as a table."""

    layers: list[PatchedLayer] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    tied: list[list[str]] = field(default_factory=list)
    parameters_before: int = 0
    parameters_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __str__(self) -> str:
        rows = [("layer", "block", "density", "parameters", "now")]
        rows += [
            (x.name, "x".join(map(str, x.block)), f"{x.density:.3g}", f"{x.parameters_before:,}", f"{x.parameters_after:,}")
            for x in self.layers
        ]
        rows.append(("model", "", "", f"{self.parameters_before:,}", f"{self.parameters_after:,}"))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(row[1:], widths[1:]))]) for row in rows]
        lines.append(f"{self.bytes_before / 2**20:.1f} MiB of parameters, now {self.bytes_after / 2**20:.1f} MiB")
        lines += [f"tied: {' = '.join(names)}" for names in self.tied]
        lines += [f"skipped {name}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def patch_model(
    model: Any, patterns: Optional[Mapping[str, Mapping[str, Any]]] = None, *, skip: Iterable[str] = (), **settings: Any
) -> PatchReport:
    """Replace linear layers of a model by `BlockSparseLinear` in place.

    `patterns` maps regular expressions to settings. The first expression that matches the whole name of a layer, as in
    ``model.named_modules()``, counts. None stands for all layers. The settings of a layer are `density`, `block` and `keep` ("largest", the
    default, "random", or a Layout), as for `BlockSparseLinear.from_linear`; or `pattern` and `block`; or a `layout`. Settings that a
    mapping leaves out come from the arguments of `patch_model`; None instead of a mapping leaves the layers unchanged. `skip` lists
    expressions for layers to leave unchanged.

    Layers are torch.nn.Linear and the Conv1D of Transformers' GPT-2. A layer that occurs several times is replaced everywhere. The
    following layers are skipped, with a reason in the report: layers whose weight another module shares, such as the tied head of a
    language model; subclasses of nn.Linear that compute something else; and the output projection of nn.MultiheadAttention, which reads the
    weight itself. If no layer matches an expression, or settings do not suit a layer, nothing is replaced and an ArgumentError names it.

    Create the optimiser afterwards, since an existing one holds the old parameters. `unpatch_model` restores dense layers.

    >>> import torch
    >>> from tartan.torch import patch_model
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    >>> print(patch_model(model, {"0": dict(density=0.25)}, block=16))
    layer  block  density  parameters    now
    0      16x16     0.25       8,320  2,176
    model                       9,610  3,466
    0.0 MiB of parameters, now 0.0 MiB
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentTypeError(f"model is of type {type(model).__name__}, expected torch.nn.Module")
    _check_settings("settings", settings)
    for pattern, own in (patterns or {}).items():
        if own is not None:
            _check_settings(repr(pattern), own)
    report = PatchReport()
    report.parameters_before, report.bytes_before = _size(model)
    places = _places_of(model)
    owners = _owners(model)
    chosen = _choose(places, patterns, skip, settings)
    made: list[tuple[Any, list[str], Any]] = []
    for layer, names, own in chosen:
        why = _reason_to_skip(model, layer, names, owners)
        if why is not None:
            report.skipped[names[0]] = why
            continue
        try:
            made.append((layer, names, _block_sparse(layer, own)))
        except TartanError as error:
            raise ArgumentError(f"{names[0]}: {error}") from error
    for layer, names, new in made:
        for name in names:
            _put(model, name, new)
        if len(names) > 1:
            report.tied.append(names)
        before, after = _size(layer), _size(new)
        report.layers.append(PatchedLayer(
            names[0], type(layer).__name__, new.layout.block_shape, new.density, before[0], after[0], before[1], after[1],
        ))  # fmt: skip
    report.parameters_after, report.bytes_after = _size(model)
    return report


def unpatch_model(model: Any) -> list[str]:
    """Replace each `BlockSparseLinear` of a model by an nn.Linear that computes the same, in place (also where GPT-2 had a Conv1D).
    Return their names.

    >>> import torch
    >>> from tartan.torch import patch_model, unpatch_model
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    >>> _ = patch_model(model, density=0.5, block=16)
    >>> unpatch_model(model)
    ['0']
    """
    names = []
    for layer, places in _places_of(model).items():
        if isinstance(layer, BlockSparseLinear):
            dense = layer.to_linear()
            for name in places:
                _put(model, name, dense)
            names.append(places[0])
    return names


# ---- Choosing ----


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    unknown = sorted(set(settings) - _SETTINGS)
    if unknown:
        raise ArgumentError(f"{name} has {', '.join(unknown)}, expected some of {', '.join(sorted(_SETTINGS))}")


def _places_of(model: Any) -> dict[Any, list[str]]:
    """All names of each layer."""
    places: dict[Any, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if name and (isinstance(module, (torch.nn.Linear, BlockSparseLinear)) or _is_conv1d(module)):
            places.setdefault(module, []).append(name)
    return places


def _is_conv1d(module: Any) -> bool:
    """The layer of Transformers, whose weight is [in_features, out_features]."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__.partition(".")[0] == "transformers"


def _choose(
    places: dict[Any, list[str]], patterns: Optional[Mapping[str, Any]], skip: Iterable[str], settings: Mapping[str, Any]
) -> list[tuple[Any, list[str], dict[str, Any]]]:
    skips = [re.compile(x) for x in skip]
    rules = [(re.compile(x), own) for x, own in ({".*": {}} if patterns is None else patterns).items()]
    used = [False] * len(rules)
    chosen = []
    for layer, names in places.items():
        if isinstance(layer, BlockSparseLinear) or any(x.fullmatch(name) for x in skips for name in names):
            continue
        for i, (rule, own) in enumerate(rules):
            if any(rule.fullmatch(name) for name in names):
                used[i] = True
                if own is not None:
                    chosen.append((layer, names, _joined(settings, own)))
                break
    for i, (rule, _) in enumerate(rules):
        if not used[i] and not any(rule.fullmatch(name) for names in places.values() for name in names):
            known = ", ".join(names[0] for names in places.values()) or "none"
            raise ArgumentError(f"patterns has {rule.pattern!r}, which matches no linear layer; there are: {known}")
    return chosen


def _joined(settings: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A layer's own settings and, as far as they leave it open, those of the call."""
    chooses = {"density", "pattern", "layout"} & own.keys() or isinstance(own.get("keep"), Layout)
    has_block = "layout" in own or isinstance(own.get("keep"), Layout)
    taken = {
        name: x
        for name, x in settings.items()
        if not (chooses and name in ("density", "pattern", "layout")) and not (has_block and name == "block")
    }
    return {**taken, **own}


def _owners(model: Any) -> dict[int, list[str]]:
    """All names of each parameter, by its identity."""
    owners: dict[int, list[str]] = {}
    for prefix, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(f"{prefix}.{name}" if prefix else name)
    return owners


def _reason_to_skip(model: Any, layer: Any, names: list[str], owners: dict[int, list[str]]) -> Optional[str]:
    if getattr(layer, "parametrizations", None) is not None:
        return "its weight is parametrised"
    if not _is_conv1d(layer) and type(layer).forward is not torch.nn.Linear.forward:
        return f"it is a {type(layer).__name__}, whose forward pass is not that of nn.Linear"
    for name in names:
        if isinstance(_parent(model, name)[0], torch.nn.MultiheadAttention):
            return "nn.MultiheadAttention reads its weight itself"
    others = [x for x in owners[id(layer.weight)] if x.rpartition(".")[0] not in names]
    if others:
        return f"its weight is also {', '.join(others)}"
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        return "it has hooks"
    return None


def _block_sparse(layer: Any, settings: Mapping[str, Any]) -> BlockSparseLinear:
    weight = layer.weight.detach().T if _is_conv1d(layer) else layer.weight.detach()
    keep = settings.get("layout") or settings.get("keep", "largest")
    density, block = settings.get("density"), settings.get("block")
    if settings.get("pattern") is not None:
        if block is None:
            raise ArgumentError("block is None, expected the size of a block beside the pattern")
        keep, density = of_pattern(settings["pattern"], tuple(weight.shape), block), None
    elif isinstance(keep, Layout):
        density = None
    new = BlockSparseLinear.from_weight(weight, layer.bias, density, block, keep=keep, training=layer.training)
    new.values.requires_grad_(layer.weight.requires_grad)
    return new


# ---- Replacing ----


def _parent(model: Any, name: str) -> tuple[Any, str]:
    path, _, last = name.rpartition(".")
    return model.get_submodule(path), last


def _put(model: Any, name: str, module: Any) -> None:
    parent, last = _parent(model, name)
    parent._modules[last] = module


def _size(model: Any) -> tuple[int, int]:
    """Parameters and their bytes."""
    parameters = list(model.parameters())
    return sum(p.numel() for p in parameters), sum(p.numel() * p.element_size() for p in parameters)
