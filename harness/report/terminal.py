"""The matrix on the terminal: cases by implementations, each cell an outcome and its σ."""

import os
import sys
from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from encoder_conformance.judge.outcome import EXPECTED, SEVERITY, Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.report.closing import Remainder, closing_lines
from encoder_conformance.results import Diagnosis, Record, Report

_SHOWN_FAILURES = 12
_LONGEST_MESSAGE = 400
_SHOWN_INDISTINGUISHABLE = 3
_DTYPE = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_STYLE = {Outcome.PASS: "green", Outcome.DEVIATES: "cyan", Outcome.UNSUPPORTED: "dim", Outcome.NOT_RUN: "dim"}
_MARK = {Outcome.PASS: "✓", Outcome.DEVIATES: "≈", Outcome.UNSUPPORTED: "–", Outcome.FAIL: "✗"}
_CONFORMS = frozenset({Outcome.PASS, Outcome.DEVIATES})
_NOT_ASKED = frozenset({Outcome.UNSUPPORTED, Outcome.NOT_RUN})


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """The reader has closed the pipe (`conform run | head`): write no more, and keep the exit status."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """Standard output, as wide as the terminal, or 160 columns if it is no terminal."""
    return _Screen() if sys.stdout.isatty() else _Screen(width=160)


def show_report(screen: Console, report: Report, out: Path, remaining: Remainder) -> None:
    """Print the matrix, the implementations, failures, diagnoses and closing lines of a report."""
    screen.print(_matrix(report))
    screen.print(_summary_table(report))
    for implementation in report.implementations:
        versions = ", ".join(f"{name} {version}" for name, version in implementation.versions.items())
        line = f"{implementation.name}: {versions or 'never started'}"
        screen.print(line, style="dim", soft_wrap=True, highlight=False, markup=False)
    _show_gaps(screen, report)
    _show_failures(screen, report, out)
    for diagnosis in report.diagnoses:
        screen.print(diagnosis_text(diagnosis), style="bold", soft_wrap=True, highlight=False, markup=False)
    for line in closing_lines(report, remaining):
        screen.print(line, soft_wrap=True, highlight=False, markup=False)
    screen.print(_last_line(report), soft_wrap=True)
    screen.print(f"Report: {out / 'report.json'}", soft_wrap=True, highlight=False)


def _matrix(report: Report) -> Table:
    """The matrix. Each cell has the worst outcome of the checks in that dtype, and the largest rms σ of any tensor."""
    names = [implementation.name for implementation in report.implementations]
    dtypes_by_case: dict[str, list[str]] = {}
    reached_cases = {record.case for record in report.records if record.outcome != Outcome.NOT_RUN}
    for record in report.records:
        if reached_cases and record.case not in reached_cases:
            continue
        if record.dtype not in dtypes_by_case.setdefault(record.case, []):
            dtypes_by_case[record.case].append(record.dtype)
    usual_dtypes = max(
        (sorted(dtypes) for dtypes in dtypes_by_case.values()),
        key=[sorted(dtypes) for dtypes in dtypes_by_case.values()].count,
    )
    cells: dict[tuple[str, str, str], list[Record]] = {}
    for record in report.records:
        cells.setdefault((record.case, record.implementation, record.dtype), []).append(record)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("case, rms σ", no_wrap=True)
    heading = " ".join(f"{_DTYPE[dtype]:<6}" for dtype in usual_dtypes)
    for name in names:
        table.add_column(f"{name}\n{heading}", no_wrap=True)
    layer = ""
    layers = list(dict.fromkeys(case.partition("/")[0] for case in dtypes_by_case))
    for case in sorted(dtypes_by_case, key=lambda case: layers.index(case.partition("/")[0])):
        case_layer, _, situation = case.partition("/")
        if case_layer != layer:
            layer = case_layer
            table.add_row(Text(layer, style="bold"))
        dtypes = sorted(dtypes_by_case[case])
        others = "" if dtypes == usual_dtypes else f" ({', '.join(_DTYPE[dtype] for dtype in dtypes)})"
        row = [Text(" ").join(_cell(cells.get((case, name, dtype), [])) for dtype in dtypes) for name in names]
        table.add_row(f"  {situation}{others}", *row)
    return table


def _cell(records: list[Record]) -> Text:
    judged = [record for record in records if record.outcome not in _NOT_ASKED]
    if not judged:
        planned = any(record.outcome == Outcome.NOT_RUN for record in records)
        return Text(f"{'·' if planned else '–':<6}", style="dim")
    worst = max((record.outcome for record in judged), key=SEVERITY.__getitem__)
    rms = max((record.rms for record in judged if record.rms is not None), default=None)
    numeric = worst in _MARK and rms is not None
    text = (
        f"{_MARK[worst]}{_format_sigma(rms)}"
        if numeric and rms is not None
        else f"{_MARK.get(worst, '!')}{worst.value}"
    )
    return Text(f"{text[:7]:<6}", style=_STYLE.get(worst, "bold red"))


def _format_sigma(sigma: float) -> str:
    if sigma < 9.995:
        return f"{sigma:.2f}"
    if sigma < 9999.5:
        return f"{sigma:.0f}"
    mantissa, _, exponent = f"{sigma:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


_COLUMNS = (
    "implementation",
    "conforms",
    "deviates as declared",
    "does not conform",
    "deviations excluded",
    "clauses cited",
    "largest rms σ",
    "max σ",
    "unsupported",
)


def _summary_table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in _COLUMNS:
        table.add_column(heading, no_wrap=True)
    coverage_by_name = {coverage.implementation: coverage for coverage in report.shown}
    for implementation in report.implementations:
        records = [record for record in report.records if record.implementation == implementation.name]
        coverage = coverage_by_name.get(implementation.name)
        tally = Tally.of(record.outcome for record in records)
        rms = [record.rms for record in records if record.rms is not None]
        largest = [record.max for record in records if record.max is not None]
        table.add_row(
            implementation.name,
            Text(str(tally.conforming), style="green"),
            Text(str(tally.deviating or "–"), style="cyan"),
            Text(str(tally.unexpected or "–"), style="bold red"),
            f"{coverage.excluded} / {coverage.deviations}" if coverage else "–",
            f"{coverage.cited} / {coverage.clauses}" if coverage else "–",
            _format_sigma(max(rms)) if rms else "",
            _format_sigma(max(largest)) if largest else "",
            str(len(records) - tally.applicable),
        )
    return table


def _show_gaps(screen: Console, report: Report) -> None:
    reasons = Counter((r.implementation, r.message) for r in report.records if r.outcome == Outcome.UNSUPPORTED)
    for (name, reason), count in reasons.items():
        screen.print(f"– {name}, {count} unsupported: {reason}", style="dim", soft_wrap=True, highlight=False)
    for absent in report.absent:
        line = f"Not judged: {absent.name} ({absent.reason}). To judge it: {absent.hint}"
        screen.print(line, style="yellow", soft_wrap=True, highlight=False, markup=False)


def _show_failures(screen: Console, report: Report, out: Path) -> None:
    failures = [record for record in report.records if record.outcome not in EXPECTED | {Outcome.NOT_RUN}]
    for record in failures[:_SHOWN_FAILURES]:
        text = f"✗ {record.implementation} {record.case} {record.dtype} {record.check}: {record.outcome.value}: "
        screen.print(text + _on_one_line(record.message), style="red", soft_wrap=True, highlight=False, markup=False)
    if len(failures) > _SHOWN_FAILURES:
        screen.print(f"… and {len(failures) - _SHOWN_FAILURES} more", style="red")
    if failures:
        first = failures[0]
        out_option = "" if str(out) == "conform-report" else f" --out {out}"
        command = f"conform explain --impl {first.implementation} --case {first.case} --dtype {first.dtype}{out_option}"
        screen.print(f"In full: {command}", soft_wrap=True, highlight=False, markup=False)


def _on_one_line(message: str) -> str:
    """As much of a message as helps; `conform explain` and the report have all of it."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} …"


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """A diagnosis in one line: the deviations, the confidence, the first stage out of line, and the runner-up."""
    prefix = f"⇒ {diagnosis.implementation} {diagnosis.dtype}: {diagnosis.confidence}"
    stage = f" First stage out of line: {diagnosis.first_stage}." if diagnosis.first_stage else ""
    if diagnosis.cut_short:
        return f"{prefix}: the time ended before the catalogue was tried; run it without --budget.{stage}"
    if diagnosis.confidence == "seen":
        more = len(diagnosis.cases) - 1
        where = diagnosis.cases[0] + (f" and {more} more case{'s' * (more > 1)}" if more else "")
        return f"{prefix}: {' '.join(diagnosis.sentences)} {diagnosis.advice}. In {where}."
    if diagnosis.confidence == "explained" and diagnosis.equations:
        return f"{prefix}: {_equations_text(diagnosis)}{stage}{''.join(f' {each}' for each in diagnosis.observed)}"
    if diagnosis.confidence == "unknown":
        text = f"{prefix}: no deviation of the catalogue, nor any two, account for most of it.{stage}"
        return text + _found_out(diagnosis)
    names = " and ".join(diagnosis.deviations)
    unit = "of the scatter that it predicts" if diagnosis.by_size else "σ"
    size = f"{_format_sigma(diagnosis.rms or 0)} {unit}"
    text = f"{prefix}: your layer is the spec with {names} ({size}). {' '.join(diagnosis.sentences)}"
    if diagnosis.came_true:
        text += f" Predicted and seen: {'; '.join(diagnosis.came_true)}."
    elif diagnosis.by_size:
        text += " Its size fits, and no more is known of it."
    if diagnosis.indistinguishable:
        indistinguishable = [
            " and ".join(deviations) for deviations in diagnosis.indistinguishable[:_SHOWN_INDISTINGUISHABLE]
        ]
        more = len(diagnosis.indistinguishable) - len(indistinguishable)
        text += f" Or, not to be told apart here: {', '.join(indistinguishable)}{f', and {more} more' if more else ''}."
    text += stage
    if diagnosis.predicted_stage and diagnosis.predicted_stage != diagnosis.first_stage:
        text += f" (It would itself show first at {diagnosis.predicted_stage}.)"
    text += _found_out(diagnosis)
    if diagnosis.runner_up:
        rms = f" ({_format_sigma(diagnosis.runner_up_rms)} σ)" if diagnosis.runner_up_rms is not None else ""
        text += f" Next best: {' and '.join(diagnosis.runner_up)}{rms}."
    return text


def _equations_text(diagnosis: Diagnosis) -> str:
    """A sentence for each stage; that its layers specify it in several ways is said once."""
    sentences = []
    for stage in dict.fromkeys(each.stage for each in diagnosis.equations):
        first, *others = [each for each in diagnosis.equations if each.stage == stage]
        more = f", and likewise in {len(others)} other form{'s' * (len(others) > 1)} of it" if others else ""
        count = len(first.cases)
        sentences.append(
            f"{stage} = {first.found} ({_format_sigma(first.rms)} σ over {count} case{'s' * (count > 1)}; "
            f"specified {first.specified}: {_format_sigma(first.specified_rms)} σ){more}."
        )
    return " ".join(sentences)


def _found_out(diagnosis: Diagnosis) -> str:
    """What is known where no cause explains everything."""
    text = f" Found: {_equations_text(diagnosis)}" if diagnosis.equations else ""
    if diagnosis.left_open and diagnosis.equations:
        text += f" Left open: {', '.join(diagnosis.left_open)}."
    return text + "".join(f" {sentence}" for sentence in diagnosis.observed)


def _last_line(report: Report) -> Text:
    tally = Tally.of(record.outcome for record in report.records)
    count = Counter(record.outcome for record in report.records)
    others = [f"{n} {outcome.value}" for outcome, n in count.items() if outcome not in _CONFORMS]
    text = str(tally) + (f" ({', '.join(others)})" if others else "")
    if report.environment.seed:
        text += f", seed {report.environment.seed}"
    if not tally.applicable:
        return Text("INCOMPLETE: nothing was judged; every check is unsupported", style="bold red")
    if report.ended_by in ("budget", "first failure"):
        return Text(f"ENDED BY THE {report.ended_by.upper()}: {text}", style="bold red")
    if not report.complete:
        return Text(f"INCOMPLETE: {text}", style="bold red")
    return Text(text, style=f"bold {tally.style}")
