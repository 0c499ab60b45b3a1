"""What a file is asked: which case speaks for which stage of validation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from encoder_conformance.spec.case import Case, CaseParameters
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.validate.findings import Stage

SIZES = ((1, 1), (1, 7), (3, 1), (2, 20), (5, 33))
"""B and S that no exporter's example is likely to have had together: one item, one position, neither alone."""

PADDING = ("padding-right", "padding-left", "padding-holes", "padded-item")
ATTENTION = ("causal", "causal-padding-left", "mask-per-item")
HEADS = ("mask-per-head",)
NUMBERS = ("no-mask", "low-variance", "large-mean")
PROPERTIES = (
    "invariant-determinism",
    "invariant-batch",
    "invariant-permutation",
    "invariant-padding-content",
    "invariant-padding-length",
)
NEEDS_MASK = ("invariant-padding-content", "invariant-padding-length")


@dataclass(frozen=True)
class Takes:
    """What a file can be given: the sizes that it is fixed to, and the masks that it has inputs for."""

    batch: int | None
    sequence: int | None
    padding: bool
    attention: bool
    by_head: bool


def asked(layer: Layer, takes: Takes, dtype: DtypeName, held: CaseParameters) -> dict[Stage, list[Case]]:
    """The cases of each stage, with the file's own parameters, in its dtype and at sizes that it takes."""
    known = load().situations
    masks = (
        *(PADDING if takes.padding else ()),
        *(ATTENTION if takes.attention and takes.padding else ATTENTION[:1] if takes.attention else ()),
        *(HEADS if takes.by_head else ()),
    )
    situations: dict[Stage, list[Situation]] = {
        "shapes": [_of_size(known["no-mask"], B, S) for B, S in SIZES if _fits(takes, B, S)],
        "masks": [known[name] for name in masks],
        "numbers": [known[name] for name in NUMBERS],
        "properties": [] if takes.batch or takes.sequence else list(_properties(known, takes)),
    }
    return {stage: list(_cases(layer, takes, dtype, held, found)) for stage, found in situations.items()}


def _cases(
    layer: Layer, takes: Takes, dtype: DtypeName, held: CaseParameters, situations: list[Situation]
) -> Iterator[Case]:
    for situation in situations:
        fixed = _fixed(situation, takes)
        if fixed is not None:
            yield Case(layer, fixed.model_copy(update={"dtypes": (dtype,)}), held=held)


def _properties(known: Mapping[str, Situation], takes: Takes) -> Iterator[Situation]:
    """Those that a file without a mask can be asked are asked without one."""
    for name in PROPERTIES:
        if takes.padding:
            yield known[name]
        elif name not in NEEDS_MASK:
            yield known[name].model_copy(update={"mask": known["no-mask"].mask})


def _fits(takes: Takes, batch: int, sequence: int) -> bool:
    return takes.batch in (None, batch) and takes.sequence in (None, sequence)


def _of_size(situation: Situation, batch: int, sequence: int) -> Situation:
    """`no-mask` at another size, under a name that says so."""
    sizes = {"batch": batch, "sequence": sequence, "checks": ("output",)}
    return situation.model_copy(update={"situation": f"size-{batch}x{sequence}", **sizes})


def _fixed(situation: Situation, takes: Takes) -> Situation | None:
    """The situation at the size that the file is fixed to, its padding cut or repeated; None if nothing is left of it.

    Gradients are no file's to give.
    """
    checks = tuple(check for check in situation.checks if check in ("output", "stages", "invariant"))
    B, S = takes.batch or situation.batch, takes.sequence or situation.sequence
    if (situation.batch, situation.sequence) == (B, S):
        return situation.model_copy(update={"checks": checks})
    changed: dict[str, Any] = {**situation.model_dump(), "checks": checks, "batch": B, "sequence": S, "equals": None}
    if situation.mask.padding is not None:
        valid = situation.mask.valid(situation.batch, situation.sequence)
        rows = [[valid[b % situation.batch][s * situation.sequence // S] for s in range(S)] for b in range(B)]
        if not any(map(any, rows)):
            return None
        holes = tuple(tuple(s for s in range(S) if not row[s]) for row in rows)
        changed["mask"] = {**situation.mask.model_dump(), "padding": {"kind": "holes", "positions": holes}}
    return Situation.model_validate(changed)
