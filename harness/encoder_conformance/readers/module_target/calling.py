"""Reads off a signature which argument is x, which may be masks, and what the others are given."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import Signature

_MASK_WORDS = ("mask", "padding", "bias")
_NO_MASK_WORDS = ("head_mask", "position", "rel", "encoder_attention", "memory", "cross")
_NO_MASKS = ("use_causal_mask", "use_bias")
_SECOND = ("memory", "context", "encoder_hidden_states", "key", "value", "kv", "tgt")
_EVALUATION: Mapping[str, bool] = {
    **dict.fromkeys(("deterministic", "inference"), True),
    **dict.fromkeys(("train", "training", "is_training", "enable_dropout"), False),
}
"""What an argument that turns dropout off is given."""
_RANDOM = ("key", "rng", "rngs", "prng_key")


def signature_of(forward: Callable[..., Any], name: str, *, skipped: int = 0, flags: bool = True) -> Signature:
    """`skipped`: arguments before x. `flags`: arguments that say whether it is in training are set to evaluation.

    Raises BadTarget for a forward pass without arguments, or with several inputs that it needs.
    """
    parameters = [
        p
        for p in inspect.signature(forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ][skipped:]
    if not parameters:
        raise BadTarget(f"{name} takes no argument", "an encoder layer takes x")
    first, *others = parameters
    masks = tuple(p.name for p in others if _may_be_mask(p.name))
    told = {p.name: _EVALUATION[p.name] for p in others if p.name in _EVALUATION} if flags else {}
    needed = [p.name for p in others if p.default is p.empty and p.name not in told]
    random = [each for each in needed if flags and each in _RANDOM]
    if second := next((each for each in needed if each in _SECOND and each not in random), None):
        problem = f"{name} needs {second} beside {first.name}: a second sequence"
        raise BadTarget(problem, "an encoder layer takes one; a decoder's layer is not judged")
    return Signature(first.name, masks, {**dict.fromkeys(needed), **told})


def in_training(forward: Callable[..., Any], key: object = None) -> dict[str, Any]:
    """The arguments that turn dropout on, and what it is drawn from: `key`, where there is one."""
    names = inspect.signature(forward).parameters
    told = {name: not value for name, value in _EVALUATION.items() if name in names}
    return told | ({} if key is None else {name: key for name in _RANDOM if name in names})


def _may_be_mask(name: str) -> bool:
    lower = name.lower()
    if lower in _NO_MASKS:
        return False
    return any(word in lower for word in _MASK_WORDS) and not any(word in lower for word in _NO_MASK_WORDS)
