"""Runtimes and levels against each other: the same file may not give other numbers because it was optimised (√2 σ)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.verdict import TensorVerdict, judge_tensor
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.validate.rows import Row


def differences(
    rows: Sequence[Row],
    cases: Sequence[Case],
    expected: Mapping[str, Expected],
    dtype: Format,
    constants: Constants,
) -> dict[str, tuple[str, TensorVerdict]]:
    """Row → the case where its output is furthest from the first row's, and how far, in √2 σ.

    Only finite outputs of the right shape are compared: what is wrong with any other is said where it is judged.
    """
    first, *others = rows
    worst: dict[str, tuple[str, TensorVerdict]] = {}
    for row in others:
        for case in cases:
            one, other = (r.asked.get((case.id, "output")) for r in (first, row))
            if one is None or other is None or one.answers is None or other.answers is None:
                continue
            due, mine, theirs = expected[case.id].tensors["output"], one.answers, other.answers
            if mine["output"].shape != due.shape or theirs["output"].shape != due.shape:
                continue
            values = mine["output"].reshape(-1)[due.positions].astype(np.float64)
            if not np.isfinite(values).all() or not np.isfinite(theirs["output"].reshape(-1)[due.positions]).all():
                continue
            between = replace(due, golden=values, condition=due.condition * np.sqrt(2.0))
            found = judge_tensor(row.name, theirs["output"], between, dtype, constants)
            if row.name not in worst or (found.rms or 0.0) > (worst[row.name][1].rms or 0.0):
                worst[row.name] = case.id, found
    return worst
