"""Gathers what a script shows: a failing check, what is expected of it, and what the run said."""

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.records import Record, Report
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.reports.reproduce.script import FailingCheck
from encoder_conformance.reports.reproduce.selection import smallest_failure, task_of
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.situation import WITH_GOLDEN, Check


def failure_of(report: Report, pattern: str, dtype: str | None, ready: Ready) -> FailingCheck:
    """The smallest failing check that matches, with all that its script needs. Raises InputError if there is none."""
    deployed = ready.implementation.capabilities.export  # a model that shows its output alone
    checks: frozenset[Check] = frozenset({"output"}) if deployed else WITH_GOLDEN
    record, case = smallest_failure(report, ready.implementation.name, pattern, dtype, checks)
    judged = next(each for each in report.implementations if each.name == record.implementation)
    return FailingCheck(
        record=record,
        task=task_of(record, case, ready),
        ready=ready,
        expected=_expected(case),
        versions=judged.versions,
        settings=judged.settings,
        threads=report.environment.threads_per_worker,
        diagnosis=_diagnosis(report, record),
    )


def _expected(case: Case) -> Expected:
    goldens = Goldens([case])
    goldens.compute()
    return goldens(case)


def _diagnosis(report: Report, record: Record) -> str:
    for each in report.diagnoses:
        if each.implementation == record.implementation and record.dtype in each.dtype.split(", "):
            return diagnosis_text(each).removeprefix("⇒ ")
    return ""
