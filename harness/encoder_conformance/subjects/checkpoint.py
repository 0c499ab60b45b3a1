"""A checkpoint: which of its tensors is which parameter, by the values first, then by the words of its name.

A tensor may hold a parameter as it is, transposed, or as one of three that are stacked.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import require_regular
from encoder_conformance.spec.parameters import without_prefix
from encoder_conformance.subjects.subject import Array, Subject

WORDS: Mapping[str, tuple[str, ...]] = {
    "attention.query": ("query", "q", "wq"),
    "attention.key": ("key", "k", "wk"),
    "attention.value": ("value", "v", "wv"),
    "attention.output": ("out", "o", "wo", "output", "dense", "proj"),
    "feed_forward.hidden": ("linear1", "fc1", "lin1", "intermediate", "up", "w1", "fc", "wi", "hidden"),
    "feed_forward.output": ("linear2", "fc2", "lin2", "output", "down", "w2", "proj", "wo", "dense"),
    "norm1": ("norm1", "ln1", "before", "sa", "attention", "attn", "self", "1"),
    "norm2": ("norm2", "ln2", "after", "final", "output", "ffn", "mlp", "2"),
    "final_norm": ("final", "norm", "ln", "f", "layernorm"),
}
"""Part of a layer → the words that name it, the surest first."""
_ATTENTION = frozenset(("attn", "attention", "self", "sa", "mha"))
_FEED_FORWARD = frozenset(("ffn", "mlp", "ff", "feed", "intermediate", "fc1", "fc2", "linear1", "linear2"))
_NORM = frozenset(("norm", "ln", "layernorm", "norm1", "norm2", "ln1", "ln2"))

_HINT = "a file of safetensors"


@dataclass(frozen=True)
class CheckpointTensor:
    """A tensor of the checkpoint in the orientation of the specification; `form` says how it is held."""

    name: str
    form: str
    value: Array


def open_checkpoint(path: Path, name: str, where: str, due: Mapping[str, Array]) -> Subject:
    """The checkpoint, with those of its tensors that are parameters of `due`. Raises InputError if it is unreadable."""
    require_regular(path, where, _HINT)
    try:
        tensors: dict[str, Array] = dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=where, hint=_HINT) from None
    found = map_checkpoint(tensors, due)
    return Subject(
        name=name,
        parameters={parameter: each.value for parameter, each in found.items()},
        own_names={parameter: f"{each.name} ({each.form})" for parameter, each in found.items()},
    )


def map_checkpoint(tensors: Mapping[str, Array], due: Mapping[str, Array]) -> dict[str, CheckpointTensor]:
    """Parameter → its tensor, for those of `due` that have one: the file's own, by the specification's names.

    Values decide where they are equal, or nearly: one tensor is nearer than a tenth of the parameter's size, and its
    name does not say another part of the layer. Names decide where a value was lost.
    """
    found, usual = {}, _usual_form(tensors, due)
    for name, value in due.items():
        candidates = list(_candidates(tensors, value.shape))
        by_name = max(candidates, key=lambda each: score(each, name), default=None)
        if by_name is not None and score(by_name, name) >= 2 and _layer_of(by_name.name) in (None, _number(name)):
            found[name] = _best_of_name(candidates, by_name, name, value, usual)
            continue
        nearest = min(candidates, key=lambda each: _distance(each.value, value), default=None)
        if nearest is not None and _distance(nearest.value, value) < 0.1:
            found[name] = nearest
    return found


def _usual_form(tensors: Mapping[str, Array], due: Mapping[str, Array]) -> str:
    """How most matrices are held, of those whose values are equal: square ones fit either way round."""
    matrices = [value for value in due.values() if value.ndim == 2]
    forms = Counter(
        each.form
        for value in matrices
        for each in _candidates(tensors, value.shape)
        if np.array_equal(each.value, value)
    )
    return max(forms, key=lambda form: forms[form], default="")


def _best_of_name(
    candidates: list[CheckpointTensor], best: CheckpointTensor, name: str, value: Array, usual: str
) -> CheckpointTensor:
    """The tensor with the nearest values, of the forms and layers whose names say as much."""
    alike = [each for each in candidates if score(each, name) == score(best, name)]
    same_layer = [each for each in alike if _layer_of(each.name) == _number(name)] or alike
    if value.ndim == 2 and not any(_distance(each.value, value) < 0.1 for each in same_layer):
        same_layer = [each for each in same_layer if each.form == usual] or same_layer
    return min(same_layer, key=lambda each: _distance(each.value, value))


def _candidates(tensors: Mapping[str, Array], shape: tuple[int, ...]) -> Iterator[CheckpointTensor]:
    n = shape[-1]
    for name, value in tensors.items():
        if value.shape == shape:
            yield CheckpointTensor(name, "as it is", value)
        if value.ndim == len(shape) == 2 and value.T.shape == shape:
            yield CheckpointTensor(name, "transposed", value.T)
        if len(shape) == 2 and value.shape == (3 * n, shape[0]):
            stacked, turned = value.T, ", transposed"
        elif value.shape == (*shape[:-1], 3 * n):
            stacked, turned = value, ""
        else:
            continue
        for third in range(3):
            yield CheckpointTensor(name, f"third {third + 1} of 3{turned}", stacked[..., third * n : (third + 1) * n])


def score(candidate: CheckpointTensor, name: str) -> float:
    """How much a tensor's name, or the third of a stack that it is, says that it is this parameter."""
    prefix, bare = without_prefix(name)
    part, _, kind = bare.rpartition(".")
    words = words_of(candidate.name)
    if candidate.form.startswith("third"):
        own = ("query", "key", "value")[int(candidate.form.split()[1]) - 1]
        stacked = 3.0 if part == f"attention.{own}" else 0.0
        return stacked if _is_bias(words) == (kind == "bias") else 0.0
    if _is_bias(words) != (kind in ("bias", "shift")):
        return 0.0
    is_norm = any(word in _NORM for word in words)
    if is_norm != ("norm" in part):
        return 0.0
    heard = max((1 - WORDS[part].index(word) / 10 for word in words if word in WORDS[part]), default=0.0) * 2
    place = "attention" if any(word in _ATTENTION for word in words) else ""
    place = "feed_forward" if any(word in _FEED_FORWARD for word in words) else place
    if heard and place and part.startswith(("attention", "feed_forward")):
        heard += 1 if part.startswith(place) else -1
    return heard + (0.25 if bool(prefix) == (_layer_of(candidate.name) is not None) else 0.0)


def words_of(name: str) -> list[str]:
    """`encoder.layer.0.self_attn.q_proj.weight` → encoder, layer, 0, self, attn, q, proj, weight."""
    split = re.split(r"[._/]|(?<=[a-z])(?=[A-Z])", name)
    joined = [f"{one}{two}" for one, two in pairwise(split) if two.isdigit() and len(one) < 5]
    return [word.lower() for word in (*split, *joined) if word]


def _is_bias(words: list[str]) -> bool:
    return any(word in ("bias", "beta", "shift", "b") for word in words)


def _layer_of(name: str) -> int | None:
    """The first number in a name that stands for itself: the layer's."""
    return next((int(word) for word in re.split(r"[._/]", name) if word.isdigit()), None)


def _number(name: str) -> int | None:
    prefix, _ = without_prefix(name)
    return int(prefix.split(".")[1]) if prefix else None


def _distance(one: Array, two: Array) -> float:
    """The largest difference of values, relative to the size of the second."""
    size = float(np.abs(two.astype(np.float64)).max(initial=0.0)) or 1.0
    return float(np.abs(one.astype(np.float64) - two.astype(np.float64)).max(initial=0.0)) / size
