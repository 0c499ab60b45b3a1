"""Makes one report of several runs: the parts of a plan, or other implementations, machines or times."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from encoder_conformance.judging.core.order import Exclusion
from encoder_conformance.judging.records import Diagnosis, Judged, MergedRun, Record, Report, Shown
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.counts import larger
from encoder_conformance.spec.load import load
from encoder_conformance.spec.outcome import Outcome

T = TypeVar("T")
_HINT = "runs that are merged must agree on what was asked, and of what"


def merge(reports: Sequence[Report], names: Sequence[str]) -> Report:
    """Unite reports into one of all records. `names`: of the reports, for messages. Raises InputError if two contradict
    each other.

    The report is complete if every run is, and if no part of a plan that was divided is missing.
    """
    _agree(reports, names, "the seed", lambda report: {"--seed": report.environment.seed})
    _agree(reports, names, "what a case specifies", lambda report: report.cases)
    _agree(reports, names, "the version of conform", lambda report: {"conform": report.environment.conform})
    _agree(reports, names, "the versions", lambda report: {each.name: each.versions for each in report.implementations})
    _agree(reports, names, "the settings", lambda report: {each.name: each.settings for each in report.implementations})
    sources = _sources(reports)
    records = _records(reports, names)
    implementations = _implementations(reports)
    complete = (
        all(run.complete for run in sources)
        and not missing_parts(reports)
        and all(record.outcome is not Outcome.NOT_RUN for record in records)
    )
    order = {each.name: number for number, each in enumerate(implementations)}
    absent = {each.name: each for report in reports for each in report.absent if each.name not in order}
    finished = [report.finished for report in reports if report.finished]
    # It is known what checks exclude of the specification's own cases.
    frozen = all(report.environment.seed == 0 and report.cases.keys() <= load().cases.keys() for report in reports)
    merged = tuple(sorted(records, key=lambda record: order[record.implementation]))
    return Report(
        complete=complete,
        started=min(report.started for report in reports),
        finished=max(finished) if complete and finished else None,
        arguments=reports[0].arguments,
        environment=reports[0].environment,
        implementations=implementations,
        absent=tuple(absent.values()),
        records=merged,
        diagnoses=_diagnoses(reports),
        shown=_shown_by(implementations, merged) if frozen else (),
        suspicious=tuple(dict.fromkeys(each for report in reports for each in report.suspicious)),
        cases={name: digest for report in reports for name, digest in report.cases.items()},
        merged=sources,
    )


def missing_parts(reports: Iterable[Report]) -> tuple[str, ...]:
    """The parts of divided plans that no run is, such as ("2/3",)."""
    present = {(run.shard.number, run.shard.of) for run in _sources(reports) if run.shard}
    every = {(number, of) for _, of in present for number in range(1, of + 1)}
    return tuple(f"{number}/{of}" for number, of in sorted(every - present))


def _sources(reports: Iterable[Report]) -> tuple[MergedRun, ...]:
    """The runs that these reports are, or were merged from."""
    runs: list[MergedRun] = []
    for report in reports:
        runs += report.merged or [MergedRun(**{name: getattr(report, name) for name in MergedRun.model_fields})]
    return tuple(runs)


def _agree(
    reports: Sequence[Report], names: Sequence[str], what: str, values: Callable[[Report], dict[str, T]]
) -> None:
    """Raise InputError if two reports have another value for the same key. An implementation that never started has
    no versions, and contradicts nobody."""
    seen: dict[str, tuple[T, str]] = {}
    for report, name in zip(reports, names, strict=True):
        for key, value in values(report).items():
            if value in ({}, None):
                continue
            other, where = seen.setdefault(key, (value, name))
            if other != value:
                problem = f"contradicts {where} in {what}: {key} {_shown(value)}, and there {_shown(other)}"
                raise InputError(problem, where=name, hint=_HINT)


def _shown(value: object) -> str:
    text = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


def _records(reports: Sequence[Report], names: Sequence[str]) -> list[Record]:
    """The records, each check once. Another run may have judged what one did not reach; two that judged a check must
    have one outcome."""
    merged: dict[tuple[str, ...], tuple[Record, str]] = {}
    for report, name in zip(reports, names, strict=True):
        for record in report.records:
            other, where = merged.setdefault(record.key, (record, name))
            if record.outcome in (Outcome.NOT_RUN, other.outcome):
                continue
            if other.outcome is not Outcome.NOT_RUN:
                key = " ".join(record.key)
                problem = f"contradicts {where}: {key}: {record.outcome.value}, and there {other.outcome.value}"
                raise InputError(problem, where=name, hint="conform compare shows all that changed")
            merged[record.key] = record, name
    return [record for record, _ in merged.values()]


def _implementations(reports: Iterable[Report]) -> tuple[Judged, ...]:
    """The implementations, each once: as the run has it in which it started."""
    found: dict[str, Judged] = {}
    for report in reports:
        for each in report.implementations:
            known = found.setdefault(each.name, each)
            started = known if known.versions else each
            of_both = {
                "peak_memory": larger(known.peak_memory, each.peak_memory),
                "isolated": known.isolated or each.isolated,
            }
            found[each.name] = started.model_copy(update=of_both)
    return tuple(found.values())


def _diagnoses(reports: Iterable[Report]) -> tuple[Diagnosis, ...]:
    """The diagnoses. Two that say the same of one implementation in one format are one, over the cases of both."""
    found: dict[tuple[object, ...], Diagnosis] = {}
    for report in reports:
        for each in report.diagnoses:
            says = (each.implementation, each.dtype, each.of, each.confidence, each.deviations, each.sentences)
            key = (*says, each.fault, tuple((equation.stage, equation.found) for equation in each.equations))
            if other := found.get(key):
                cases = tuple(dict.fromkeys((*other.cases, *each.cases)))
                each = other.model_copy(update={"cases": cases, "rms": larger(other.rms, each.rms)})
            found[key] = each
    return tuple(found.values())


def _shown_by(implementations: Iterable[Judged], records: Sequence[Record]) -> tuple[Shown, ...]:
    """The evidence of all runs together about each implementation. Cases that this specification lacks show nothing."""
    cases = load().cases
    found = []
    for each in implementations:
        of_it = [record for record in records if record.implementation == each.name]
        dtypes = {record.dtype for record in of_it}
        exclusion = Exclusion(each.name, dtypes, shows_all_stages=each.shows_all_stages)
        for record in of_it:
            if record.case in cases:
                exclusion.add(cases[record.case], record)
        found.append(exclusion.shown())
    return tuple(found)
