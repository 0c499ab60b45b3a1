"""What the answers of all runtimes come to: findings, stage by stage, each said once for all who share it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from encoder_conformance.impl.interpreter import Missing
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.validate.findings import Anchor, Description, Finding, Stage
from encoder_conformance.validate.levels import differences
from encoder_conformance.validate.rows import Row


def loading(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        if isinstance(row.found, Missing):
            said = f"{row.name} was not asked: {row.found.reason}"
            yield Finding(stage="loads", severity="note", message=said, hint=row.found.hint)
        elif row.lost:
            yield Finding(stage="loads", severity="error", message=f"{row.name}: {row.lost}")


def answers(stages: Mapping[Stage, Sequence[Case]], rows: Sequence[Row], description: Description) -> Iterator[Finding]:
    """What does not conform, and in which runtimes; those that do not load at all are spoken of elsewhere.

    What is wrong without any mask, at an ordinary size, is wrong everywhere: it is told once, as of the numbers.
    """
    working = [row for row in rows if row.records and not row.lost]
    plain = {row.name: _worst(row, case) for row in working for case in stages["numbers"] if _is_plain(case)}
    for stage, cases in stages.items():
        shared: dict[tuple[Outcome, str | None, tuple[str, ...]], list[tuple[Case, Record]]] = defaultdict(list)
        echoing = set()
        for case in cases:
            rows_of: dict[tuple[Outcome, str | None], list[tuple[Row, Record]]] = defaultdict(list)
            for row in working:
                found = _worst(row, case)
                if found and stage != "numbers" and _echoes(found, plain.get(row.name)):
                    echoing.add(case.id)
                elif found:
                    rows_of[found.outcome, found.stage].append((row, found))
            for (outcome, first), those in rows_of.items():
                shared[outcome, first, tuple(row.name for row, _ in those)].append((case, those[0][1]))
        for (_, first, names), told in shared.items():
            where = "every runtime" if 1 < len(working) == len(names) else ", ".join(names)
            yield _finding(stage, told, where, description.stages.get(first or ""))
        if echoing:
            said = f"{len(echoing)} of {len(cases)} situations are out of line as no-mask is: see numbers"
            yield Finding(stage=stage, severity="warning", message=said)


def _worst(row: Row, case: Case) -> Record | None:
    """Of a case's checks the one that says most: its stages, which name the first out of line, and then its output."""
    out = [record for record in row.records if record.case == case.id and record.outcome not in EXPECTED]
    return next((record for record in out if record.check == "stages"), out[0] if out else None)


def _is_plain(case: Case) -> bool:
    return case.situation.situation == "no-mask"


def _echoes(found: Record, plain: Record | None) -> bool:
    """Whether the numbers are wrong as they are without a mask, as far as can be told: from the same stage on."""
    if plain is None or not found.outcome == plain.outcome == Outcome.FAIL or found.check == "invariant":
        return False
    return found.check == "output" or found.stage == plain.stage


def _finding(stage: Stage, told: Sequence[tuple[Case, Record]], where: str, anchor: Anchor | None) -> Finding:
    """One finding for all the cases that come to the same; the first speaks for them."""
    situations, record = [case.situation for case, _ in told], told[0][1]
    sizes = {f"B = {situation.batch}, S = {situation.sequence}" for situation in situations}
    size = f" ({sizes.pop()})" if len(sizes) == 1 else ""
    names = ", ".join(situation.situation for situation in situations)
    message = f"{names}{size}, {where}: {record.outcome.value}: {record.message}"
    node = f"the first node out of line makes {record.stage}: {anchor.node} ({anchor.tensor})" if anchor else ""
    return Finding(stage=stage, severity="error", message=message, hint=node if record.check == "stages" else "")


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
