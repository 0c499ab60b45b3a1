"""Cases for one file: its own parameters, in its dtype, at sizes and with masks that it takes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from encoder_conformance.portable import RAISED
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Situation
from encoder_conformance.validate.formats import dtype_named
from encoder_conformance.wire.description import FileDescription


@dataclass(frozen=True)
class InputLimits:
    """The sizes that a file is fixed to, and the masks that it takes. `padding`: one of the masks tells items apart,
    as padding does."""

    batch: int | None
    sequence: int | None
    padding: bool
    attention: bool
    by_head: bool
    counted: bool = False
    """Padding stands on the right alone."""

    @classmethod
    def of(cls, description: FileDescription) -> "InputLimits":
        assert description.roles is not None
        axes = {mask.axes for mask in description.roles.masks if mask.meaning}  # others hide nothing
        attention = any(name.endswith("SS") for name in axes)
        batch, sequence = description.sizes()
        by_item = bool(axes) if batch == 1 else any({"B", "X"} & set(name) for name in axes)
        by_head = by_item and any({"H", "X"} & set(name) for name in axes)
        return cls(batch, sequence, by_item, attention, by_head, any(mask.counted for mask in description.roles.masks))

    def allow(self, batch: int, sequence: int) -> bool:
        return self.batch in (None, batch) and self.sequence in (None, sequence)


_AT_ANY_SIZE = (None, "determinism", "padding_content")
"""Invariants, and none, that a smaller batch and sequence show as well; others are made for their sizes."""


def cases_of(
    situations: Iterable[Situation],
    limits: InputLimits,
    layer: Layer,
    format: Format,
    held: CaseParameters,
    at_most: tuple[int, int] | None = None,
) -> Iterator[Case]:
    """Those of the situations that fit the limits, with `at_most` so many items and positions.

    `format`: the dtype of the file's output, with the roundoff of what it computes in.
    """
    for situation in situations:
        own = limits
        if at_most is not None and situation.invariant in _AT_ANY_SIZE:
            batch, sequence = (
                min(most, size) for most, size in zip(at_most, (situation.batch, situation.sequence), strict=True)
            )
            own = replace(limits, batch=limits.batch or batch, sequence=limits.sequence or sequence)
        resized = _resized(situation, own)
        if resized is not None:
            asked = _varied(resized, format).model_copy(update={"dtypes": (dtype_named(format.name),)})
            yield Case(layer, asked, held=held)


def _varied(situation: Situation, format: Format) -> Situation:
    """The situation with as large a mean and more than two values of x, where the format holds them (P-4)."""
    given = situation.input
    if given.pattern != "offset" or format.roundoff * RAISED > 0.25:
        return situation
    raised = given.model_copy(update={"pattern": "raised", "exponent": given.exponent - 9})
    return situation.model_copy(update={"input": raised})


def _resized(situation: Situation, limits: InputLimits) -> Situation | None:
    """The situation at the size that the file is fixed to, its padding cut or repeated; None if all of it is padding.

    A file gives no gradients.
    """
    checks = tuple(check for check in situation.checks if check in ("output", "stages", "invariant"))
    B, S = limits.batch or situation.batch, limits.sequence or situation.sequence
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
