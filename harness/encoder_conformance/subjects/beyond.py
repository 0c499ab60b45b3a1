"""Cases beyond the core's, which need no golden: sizes at which code takes another path, and numbers that it loses."""

from collections.abc import Collection, Iterator
from typing import Any

from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.masking import EndPadding
from encoder_conformance.spec.situation import Situation

_BLOCKS = 256
"""A multiple of every usual block of keys, and beyond every length at which a kernel is chosen."""
_LONG = 300
"""As many positions as the longest case without a mask has: where masks are kept for so many, fewer do not show it."""
_UNSORTED = 4, 6, 1, 5, 2, 6, 3, 6, 1, 4, 6, 2, 5, 3, 6, 1, 5
"""Lengths of an odd number of items, more than one chunk of 8 or of 16."""
MOST_FEATURES = 128
"""As many positions as features are asked up to so many: σ of more takes longer than all else."""
_LARGE_MEAN: dict[str, Any] = {
    "input": {"pattern": "raised", "exponent": -14, "padding": "as_drawn"},
    "parameter_exponents": {"attention.output.weight": -9, "attention.output.bias": -9},
}
"""x of 18 bits: of fewer the squares are exact, and a variance from E[x²] − E[x]² loses nothing where the number of
features is a power of two. Attention adds so little that the norm after a residual sum has that mean, too."""
_LARGE: dict[str, Any] = {"parameter_exponents": {"attention.value.weight": 6, "feed_forward.hidden.weight": 6}}
"""Values and hidden features of hundreds: beyond every usual bound at which numbers are cut off."""


_NUMBERS = "large-logits", "low-variance", "large-mean"
"""Situations of other numbers, which have no causal twin."""


def causal_cases_beyond(layer: Layer, dtypes: Collection[str]) -> Iterator[Case]:
    """The same for a layer that is always causal, each with a causal mask; and situations of other numbers so."""
    situations = load().situations
    beyond = [case.situation for case in cases_beyond(layer, dtypes, padded=False)]
    for situation in (*beyond, *(situations[name] for name in _NUMBERS)):
        mask = situations["causal"].mask.model_dump()
        made = {**situation.model_dump(), "situation": f"{situation.situation}-causal", "mask": mask, "equals": None}
        yield Case(layer, Situation.model_validate(made))


def cases_beyond(layer: Layer, dtypes: Collection[str], *, padded: bool) -> Iterator[Case]:
    """The same equations, where code takes another path: one position, whole blocks, more items than a chunk, and sizes
    that are the same number; and with a large mean and large values. `padded`: whether padding can be said.

    In these formats alone: σ of a narrow one takes four times the runs.
    """
    yield Case(layer, load().situations["single-position"])
    for name, lengths, sequence in _sizes(layer, padded=padded):
        yield Case(layer, _sized(name, lengths, sequence, dtypes, padded=padded))
    wide = [name for name in ("float64", "float32") if name in dtypes]
    for name, base, changed in (("large-mean-raised", "large-mean", _LARGE_MEAN), ("large-values", "no-mask", _LARGE)):
        if wide:
            yield Case(layer, _changed(base, {**changed, "situation": name, "dtypes": tuple(wide)}))


def _sizes(layer: Layer, *, padded: bool) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """The first word of a name, the number of positions of each item that are there, and all positions."""
    yield "blocks", (_BLOCKS - 6,), _BLOCKS
    if padded:
        yield "long", (_LONG - 10,), _LONG
    yield "items-many", _UNSORTED, max(_UNSORTED)
    alike = min(max(layer.attention.num_heads, 3), len(_UNSORTED))
    yield "items-as-positions", tuple(alike - 2 * item % alike for item in range(alike)), alike
    if layer.d_model <= MOST_FEATURES:
        yield "positions-as-features", (layer.d_model, layer.d_model - 3), layer.d_model


def _sized(name: str, lengths: tuple[int, ...], sequence: int, dtypes: Collection[str], *, padded: bool) -> Situation:
    """Items of these lengths, padded on the right where that can be said."""
    changed: dict[str, Any] = {
        "situation": f"{name}-{'padded' if padded else 'unmasked'}", "batch": len(lengths), "sequence": sequence,
        "dtypes": tuple(name for name in FORMATS if name in dtypes),
        "checks": ("output",) if max(sequence, len(lengths)) > MOST_FEATURES else ("output", "stages"),
    }  # fmt: skip
    if not padded:
        return _changed("no-mask", changed)
    mask = load().situations["padding-right"].mask.model_dump()
    padding = EndPadding(kind="right", lengths=lengths).model_dump()
    return _changed("padding-right", {**changed, "mask": {**mask, "padding": padding}})


def _changed(base: str, changed: dict[str, Any]) -> Situation:
    """The situation with these keys of its own, of which there is no golden."""
    kept = load().situations[base].model_dump()
    return Situation.model_validate({**kept, "equals": None, "checks": ("output", "stages"), **changed})
