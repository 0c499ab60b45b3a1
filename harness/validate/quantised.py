"""Files with integers for weights: σ is of floating-point arithmetic; their error is reported, and held to a limit."""

from collections.abc import Mapping, Sequence

import numpy as np

from encoder_conformance.judge.expected import Expected
from encoder_conformance.spec.case import Case
from encoder_conformance.validate.findings import Finding
from encoder_conformance.validate.rows import Row


def relative_errors(
    rows: Sequence[Row], cases: Sequence[Case], expected: Mapping[str, Expected], limit: float | None
) -> tuple[list[Finding], str]:
    """The largest error of any row and case, rms over the rms of what is right: a finding, if there is a limit."""
    worst, where = 0.0, ""
    for row in rows:
        for case in cases:
            asked = row.asked.get((case.id, "output"))
            if asked is None or asked.answers is None:
                continue
            due, answer = expected[case.id].tensors["output"], asked.answers["output"]
            if answer.shape != due.shape:
                continue
            values = answer.reshape(-1)[due.positions].astype(np.float64)
            error = float(np.sqrt(np.mean((values - due.golden) ** 2) / np.mean(due.golden**2)))
            if not error <= worst:  # NaN is the worst
                worst, where = error, f"{case.situation.situation}, {row.name}"
    said = f"integer weights: relative error {worst:.2g} (rms, {where})"
    if limit is None:
        note = Finding(stage="reduction", severity="note", message=said, hint="--limit makes a larger one an error")
        return [note], said
    if worst <= limit:
        return [], f"{said}, within {limit:g}"
    return [Finding(stage="reduction", severity="error", message=f"{said}, over the limit of {limit:g}")], said
