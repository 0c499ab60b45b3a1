"""Learned positions: a row of a table for each (E-37), and their wrong forms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.embedding import typed
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only
from encoder_conformance.oracle.forms.needs import Inapplicable, Need
from encoder_conformance.oracle.tape import Pullback
from encoder_conformance.spec.axes import BS, BSA, BSD, LD
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import PositionTable


def learned(
    a: Arithmetic,
    x: BSD,
    weight: LD,
    *,
    first: int,
    counted: str,
    positions: BSA | None = None,
    valid: BS | None = None,
) -> tuple[BSD, Pullback]:
    """The row of its position added to each row of x: the one at `first` for position 0 (E-37).

    `positions`: [B or 1, S, 1], where they lie. Where that is None they are counted, all, or the `valid` alone; what is
    no position then has the row before the first.
    """
    if positions is not None:
        at = positions[..., 0].astype(np.int64)
    elif counted == "valid" and valid is not None:
        at = np.where(valid, np.cumsum(valid, axis=1) - 1, -1)
    else:
        at = np.arange(x.shape[1])[None]
    if at.max(initial=0) + first >= len(weight):
        raise ValueError(f"position {at.max()} has no row of the {len(weight)}, where position 0 has row {first}")
    return typed(a, x, weight, np.broadcast_to(np.maximum(first + at, 0), x.shape[:2]))


def _value(a: Arithmetic, x: BSD, weight: LD, **choices: Any) -> BSD:
    """A wrong form, which may count beyond the table: the last row is then repeated."""
    rows = np.concatenate([weight, np.repeat(weight[-1:], x.shape[1] + 2, axis=0)])
    return learned(a, x, rows, **choices)[0]


def _with(**other: Any) -> Callable[..., BSD]:
    """The rows that other choices give."""
    return lambda *operands, **choices: _value(*operands, **{**choices, **other})


def _left_out(a: Arithmetic, x: BSD, weight: LD, **choices: object) -> BSD:
    return x


def _shifted(by: int) -> Callable[..., BSD]:
    """Each position takes the row `by` further on."""
    return lambda *operands, first, **choices: _value(*operands, first=first + by, **choices)


def _table(case: Case) -> PositionTable | None:
    return None if case.layer.embedding is None else case.layer.embedding.position_table


def _counts(which: str) -> Need:
    def met(case: Case, step: object) -> bool:
        table = _table(case)
        return table is not None and table.counted == which

    return Need(met, Inapplicable.OWN_CHOICE)


def _begins_later(case: Case, step: object) -> bool:
    table = _table(case)
    return table is not None and table.first > 0


_PADDED = Need(lambda case, step: case.situation.mask.padding is not None, Inapplicable.NO_MASK)
_FIRST = Need(_begins_later, Inapplicable.OWN_CHOICE)

LEARNED_POSITIONS = Form(
    {
        "standard": learned,
        "missing": forward_only(_left_out),
        "from-row-0": forward_only(_with(first=0)),
        "one-row-on": forward_only(_shifted(1)),
        "one-row-back": forward_only(_shifted(-1)),
        "padding-counted": forward_only(_with(counted="all")),
        "padding-skipped": forward_only(_with(counted="valid")),
        "of-position-0": forward_only(lambda a, x, weight, *, first, **choices: a.add(x, weight[first])),
    },
    {"standard": ""},
    ("weight",),
    needs={
        "from-row-0": (_FIRST,),
        "one-row-back": (_FIRST,),
        "padding-counted": (_counts("valid"), _PADDED),
        "padding-skipped": (_counts("all"), _PADDED),
    },
)
