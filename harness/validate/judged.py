"""What the answers of all runtimes come to: findings, stage by stage, each said once for all who share it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from harness.golden.expected import Expected
from harness.impl.interpreter import Missing
from harness.judge.outcome import EXPECTED, Outcome
from harness.report.model import Record
from harness.spec.case import Case
from harness.spec.constants import Constants
from harness.spec.dtypes import Format
from harness.validate.findings import Description, Finding, Stage
from harness.validate.levels import differences
from harness.validate.rows import Row


def loading(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        if isinstance(row.found, Missing):
            said = f"{row.name} was not asked: {row.found.reason}"
            yield Finding(stage="loads", severity="note", message=said, hint=row.found.hint)
        elif row.lost:
            yield Finding(stage="loads", severity="error", message=f"{row.name}: {row.lost}")


def answers(stages: Mapping[Stage, Sequence[Case]], rows: Sequence[Row], description: Description) -> Iterator[Finding]:
    """What does not conform, and in which runtimes; those that do not load at all are spoken of elsewhere."""
    working = [row for row in rows if row.records and not row.lost]
    for stage, cases in stages.items():
        for case in cases:
            shared: dict[tuple[Outcome, str | None], list[tuple[Row, Record]]] = defaultdict(list)
            for row in working:
                if found := _worst([record for record in row.records if record.case == case.id]):
                    shared[found.outcome, found.stage].append((row, found))
            for (_, first), those in shared.items():
                yield _finding(stage, case, first, those, working, description)


def _worst(records: Sequence[Record]) -> Record | None:
    """Of a case's checks the one that says most: its stages, which name the first out of line, and then its output."""
    out = [record for record in records if record.outcome not in EXPECTED]
    return next((record for record in out if record.check == "stages"), out[0] if out else None)


def _finding(
    stage: Stage,
    case: Case,
    first: str | None,
    those: Sequence[tuple[Row, Record]],
    working: Sequence[Row],
    description: Description,
) -> Finding:
    situation, record = case.situation, those[0][1]
    everywhere = len(those) == len(working)
    where = "every runtime" if everywhere and len(working) > 1 else ", ".join(row.name for row, _ in those)
    size = f"B = {situation.batch}, S = {situation.sequence}"
    message = f"{situation.situation} ({size}), {where}: {record.outcome.value}: {record.message}"
    anchor = description.stages.get(first or "")
    node = f"the first node out of line makes {first}: {anchor.node} ({anchor.tensor})" if anchor else ""
    return Finding(stage=stage, severity="error", message=message, hint=node)


def levels(
    rows: Sequence[Row],
    cases: Sequence[Case],
    expected: Mapping[str, Expected],
    dtype: Format,
    constants: Constants,
) -> tuple[list[Finding], str]:
    """Findings, and what to say where there are none."""
    working = [row for row in rows if row.records and not row.lost]
    if len(working) < 2:
        return [], "one runtime and level alone; nothing to compare"
    apart = differences(working, cases, expected, dtype, constants)
    findings = [
        Finding(
            stage="levels",
            severity="error",
            message=f"{name} and {working[0].name} differ in {case}: {found.problem or _far(found.rms, found.max)}",
        )
        for name, (case, found) in apart.items()
        if not found.conforms
    ]
    largest = max((found.rms or 0.0 for _, found in apart.values()), default=0.0)
    equal = sum(1 for _, found in apart.values() if not found.max)
    said = f"{len(working)} runtimes and levels, at most rms {largest:.2g} of the noise of a difference apart"
    return findings, said + (f", {equal} with the same bits as {working[0].name}" if equal else "")


def _far(rms: float | None, largest: float | None) -> str:
    return f"rms {rms or 0:.3g}, max {largest or 0:.3g} of the noise of a difference"
