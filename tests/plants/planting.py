"""What a plant reads and edits before a framework is asked: the patches of specs/deviations, in NumPy.

Written without the oracle, so that a plant and the oracle's forecast of it have nothing in common but the YAML.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import yaml

from encoder_conformance import Masks
from encoder_conformance.platform.paths import SPECS

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
Json = dict[str, Any]

OF_BOTH: dict[str, Callable[[Array], Array | None]] = {
    "inverted": lambda mask: ~mask,
    "ignored": lambda mask: None,
    "shifted": lambda mask: np.roll(mask, 1, axis=-1),
    "first-item": lambda mask: np.repeat(mask[:1], len(mask), axis=0),
    "reversed": lambda mask: np.flip(mask, axis=-1),
}


class Planting:
    """Several deviations at once: patches are applied in the order in which they are named."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.patches = [_patch(name) for name in ids]
        self.ways: dict[str, str] = {}
        for patch in self.patches:
            self.ways |= patch.get("steps") or {}

    def layer(self, layer: Json) -> Json:
        for patch in self.patches:
            layer = _merged(layer, patch.get("layer") or {})
        return layer

    def parameters(self, parameters: Tensors) -> Tensors:
        for patch in self.patches:
            edits = patch.get("parameters") or {}
            if any(name.startswith("layers.") for name in parameters):
                edits = _of_every_layer(edits, parameters)
            applied = {name: edit for name, edit in edits.items() if _applies(name, edit, parameters)}
            parameters = {**parameters, **{name: _edited(name, edit, parameters) for name, edit in applied.items()}}
        return parameters

    def mask(self, masks: Masks, positions: int) -> Array | None:
        for edit in (patch.get("mask") for patch in self.patches):
            if edit in OF_BOTH:
                joined = masks.joined()
                masks = Masks(None, None if joined is None else OF_BOTH[edit](joined))
            elif edit:
                masks = _with_edited_part(masks, edit, positions)
        mask = masks.joined()
        return mask if mask is None else np.ascontiguousarray(mask)


def planted_by_environment() -> list[str]:
    """The ids in CONFORM_PLANT, separated by commas; none if it is empty or not set."""
    return [name for name in os.environ.get("CONFORM_PLANT", "").split(",") if name]


def _with_edited_part(masks: Masks, edit: str, positions: int) -> Masks:
    padding, attention = masks.padding, masks.attention
    everything = np.ones((1, 1, positions, positions), dtype=bool)
    triangle = np.tril(everything)
    causal = attention is not None and attention.shape == triangle.shape and np.array_equal(attention, triangle)
    match edit:
        case "causal":
            return Masks(padding, triangle if attention is None else attention & triangle)
        case "padding-only":
            return Masks(padding, None)
        case "attention-only":
            return Masks(None, attention)
        case "on-queries":
            if padding is None:
                return masks
            turned = padding.swapaxes(-1, -2)  # no mask of padding any more: it differs from query to query
            return Masks(None, turned if attention is None else turned & attention)
        case "transposed":
            return Masks(padding, None if attention is None else attention.swapaxes(-1, -2))
        case "without-diagonal" | "one-ahead":
            offset = 1 if edit == "one-ahead" else -1
            return Masks(padding, np.tril(everything, offset)) if causal else masks
    raise ValueError(f"no such edit of a mask: {edit}")


def check_ways(ways: Mapping[str, str], known: Mapping[str, Mapping[str, Any]]) -> None:
    """A step or a form that is not there must not pass for a plant."""
    for step, form in ways.items():
        if form not in known[step]:
            raise KeyError(f"step {step} has no form {form!r}, only {', '.join(known[step])}")


def _patch(name: str) -> Json:
    patch: Json = yaml.safe_load((SPECS / "deviations" / f"{name}.yaml").read_text(encoding="utf-8"))["patch"]
    return patch


def _merged(layer: Json, patch: Json) -> Json:
    """A merge patch, RFC 7396, without deletions. PyYAML reads 1e-3 as a string: YAML 1.1 wants a point in it."""
    merged = dict(layer)
    for key, value in patch.items():
        if isinstance(value, dict):
            merged[key] = _merged(layer[key], value)
        else:
            merged[key] = float(value) if key == "epsilon" else value
    return merged


def _of_every_layer(edits: Mapping[str, str], parameters: Tensors) -> dict[str, str]:
    """What an edit of a parameter is in a stack: the same in each of its layers."""
    prefixes = {".".join(name.split(".")[:2]) for name in parameters if name.startswith("layers.")}
    return {f"{p}.{name}": edit.replace("from ", f"from {p}.") for p in prefixes for name, edit in edits.items()}


def _applies(name: str, edit: str, parameters: Tensors) -> bool:
    """An edit says nothing of a parameter that the layer does not have, nor where another shape comes of it."""
    source = edit.removeprefix("from ")
    from_other = edit.startswith("from ")
    if name not in parameters or (from_other and source not in parameters):
        return False
    shape = parameters[source].shape if from_other else parameters[name].shape
    return parameters[name].shape == (shape[::-1] if edit == "transposed" else shape)


def _edited(name: str, edit: str, parameters: Tensors) -> Array:
    match edit.split():
        case ["zero"]:
            return np.zeros_like(parameters[name])
        case ["one"]:
            return np.ones_like(parameters[name])
        case ["transposed"]:
            return np.ascontiguousarray(parameters[name].T)
        case ["from", other]:
            return parameters[other].copy()
    raise ValueError(f"{name}: no such edit: {edit}")
