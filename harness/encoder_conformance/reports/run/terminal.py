"""Prints a run: the matrix, what is not asked, and last what is wrong."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from encoder_conformance.diagnosis.claims import sentence
from encoder_conformance.judging.records import Confidence, Diagnosis, Fault, Record, Report
from encoder_conformance.judging.tally import Tally
from encoder_conformance.platform.clean import broken
from encoder_conformance.protocol.findings import Finding, Severity
from encoder_conformance.reports.run.counts import RunCounts
from encoder_conformance.reports.run.last_lines import WholePlan, covering, last_lines
from encoder_conformance.reports.run.matrix import format_sigma, matrix, summary

SEVERITIES: dict[Severity, tuple[str, str]] = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}
"""Severity of a finding → its mark and style."""
SIGMA = "1 σ: the rounding noise of a correct layer"
_LONGEST_MESSAGE = 400
_SHOWN_INDISTINGUISHABLE = 3


class _Screen(Console):
    """Text is printed as it is: `x[batch]` is no markup, `:key:` no emoji, and a number has no colour of its own."""

    def __init__(self, width: int | None = None) -> None:
        super().__init__(width=width, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """The reader has closed the pipe (`conform run | head`): write no more, and keep the exit status."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """Standard output, as wide as the terminal, or 160 columns if it is no terminal."""
    return _Screen() if sys.stdout.isatty() else _Screen(width=160)


def show_line(screen: Console, text: str, style: str = "") -> None:
    """The text as it is: it may hold what Rich takes for markup. On a terminal it is broken between words."""
    if screen.is_terminal:
        text = "\n".join(broken(line, screen.width) for line in text.splitlines())
    screen.print(text, style=style or None, highlight=False, soft_wrap=True, markup=False)


def show_finding(screen: Console, finding: Finding, indent: str = "") -> None:
    """A mark and the message, and below it what to do."""
    mark, style = SEVERITIES[finding.severity]
    show_line(screen, f"{indent}{mark} {finding.message}", style)
    if finding.hint:
        show_line(screen, f"{indent}  {finding.hint}", "dim")


def show_report(
    report: Report, counts: RunCounts, everything: Mapping[str, WholePlan], out: Path | None, *, quiet: bool
) -> None:
    """Print a run. What is wrong comes last: the diagnoses, then the failures. `out`: its --out.

    `everything`: implementation → what there is to ask of it. `quiet`: nothing but what is wrong, and the last line.
    """
    screen = console()
    if not quiet:
        screen.print(matrix(counts, screen.width))
        screen.print(summary(report, counts, screen.width))
        for implementation in report.implementations:
            screen.print(f"{implementation.name}: {implementation.made_with}", style="dim", soft_wrap=True)
        _show_gaps(screen, report, counts)
        for line in last_lines(report, counts, everything):
            screen.print(line, soft_wrap=True)
    for diagnosis in report.diagnoses:
        screen.print(diagnosis_text(diagnosis), style="bold", soft_wrap=True)
    _show_failures(screen, counts, out)
    screen.print(_last_line(report, counts), soft_wrap=True)
    if not quiet and any(standing.rms is not None for standing in counts.standings.values()):
        screen.print(f"{SIGMA}.", style="dim")


def _show_gaps(screen: Console, report: Report, counts: RunCounts) -> None:
    for (name, reason), count in counts.reasons.items():
        screen.print(f"– {name}, {count} unsupported: {reason}", style="dim", soft_wrap=True)
    for (name, reason), count in counts.given_up.items():
        screen.print(f"✗ {name}, {count} not run: {_on_one_line(reason)}", style="bold red", soft_wrap=True)
    for absent in report.absent:
        line = f"Not judged: {absent.name} ({absent.reason}). To judge it: {absent.hint}"
        screen.print(line, style="yellow", soft_wrap=True)


def _show_failures(screen: Console, counts: RunCounts, out: Path | None) -> None:
    failures = counts.failures
    for record in failures:
        text = f"✗ {record.implementation} {record.case} {record.dtype} {record.check}: {record.outcome.value}: "
        screen.print(text + _on_one_line(record.message), style="red", soft_wrap=True)
    more = sum(n for outcome, n in counts.outcomes.items() if outcome.category == "bad") - len(failures)
    if more:
        screen.print(f"… and {more} more", style="red")
    if failures:
        first = failures[0]
        out_option = f" --out {out}" if out else ""
        command = f"conform explain --impl {first.implementation} --case {first.case} --dtype {first.dtype}{out_option}"
        screen.print(f"In full: {command}", soft_wrap=True)


def record_line(record: Record) -> Text:
    """The line of one check, as --verbose prints it."""
    what = f"{record.implementation} {record.case} {record.dtype} {record.check}: {record.outcome.value}"
    size = f", rms {format_sigma(record.rms)} σ" if record.rms is not None else ""
    message = f": {_on_one_line(record.message)}" if record.message else ""
    style = "red" if record.outcome.category == "bad" else "dim"
    return Text(f"{record.outcome.sign} {what}{size}{message}", style=style)


def _on_one_line(message: str) -> str:
    """The beginning of a message; `conform explain` and the report have all of it."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} …"


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """A diagnosis in one line: the deviations, the confidence, the first stage out of line, and the runner-up."""
    whose = f"⇒ {diagnosis.implementation} {diagnosis.dtype}"
    return f"{whose}: {HEADINGS[diagnosis.confidence]}: {diagnosis_rest(diagnosis)}"


HEADINGS: dict[Confidence, str] = {
    "explained": "Cause",
    "closest": "Closest known cause, which does not account for all",
    "seen": "Seen",
    "unknown": "Cause unknown",
}
"""How sure a diagnosis is, in words."""


def diagnosis_rest(diagnosis: Diagnosis) -> str:
    """The same without whose it is, and how sure."""
    back = "the forward pass is right, and the backward pass is not: " if diagnosis.of == "backward" else ""
    return f"{back}{_found(diagnosis)}"


def _found(diagnosis: Diagnosis) -> str:
    stage = _stage_text(diagnosis)
    if diagnosis.fault:
        return f"{fault_text(diagnosis.fault)}."
    if diagnosis.cut_short:
        return f"the time ended before the catalogue was tried; run it without --budget.{stage}"
    if diagnosis.confidence == "seen":
        more = len(diagnosis.cases) - 1
        others = f" and {more} more case{'s' * (more > 1)}" if more else ""
        return f"{' '.join(diagnosis.sentences)} {diagnosis.advice}. In {diagnosis.cases[0]}{others}."
    if diagnosis.confidence == "explained" and diagnosis.cause:
        return f"{' '.join(diagnosis.sentences)}{stage}"
    if diagnosis.confidence == "unknown":
        graph = f"; but its graph has what no layer has: {'; '.join(diagnosis.sentences)}" if diagnosis.cause else ""
        text = f"no known bug, nor any two, explain most of it{graph}.{stage}"
        if diagnosis.of == "backward":
            text = "no term of the backward pass, left out or multiplied, explains it."
        return f"{text}{_identified(diagnosis)}"
    if diagnosis.equations and not diagnosis.deviations:
        return f"{_equations_text(diagnosis)}{stage}{_observed(diagnosis)}"
    return f"{_deviations_text(diagnosis)}{stage}{_doubts(diagnosis)}"


def fault_text(fault: Fault) -> str:
    """A fault of ours in a few words, without a full stop."""
    return f"conform itself failed in this diagnosis, which changes no verdict: {fault.error}"


def _stage_text(diagnosis: Diagnosis) -> str:
    text = f" First wrong stage: {diagnosis.first_stage}." if diagnosis.first_stage else ""
    return text + (f" Last right stages: {', '.join(diagnosis.right_before)}." if diagnosis.right_before else "")


def _deviations_text(diagnosis: Diagnosis) -> str:
    """The deviations, how well they fit, and those that fit as well."""
    unit = "of the scatter that it predicts" if diagnosis.by_size else "σ"
    size = "" if diagnosis.rms is None else f", {format_sigma(diagnosis.rms)} {unit}"
    names = " and ".join(diagnosis.deviations)
    text = f"{' '.join(diagnosis.sentences).rstrip('.')} ({names}){size}."
    if diagnosis.came_true:
        text += f" Predicted and seen: {'; '.join(diagnosis.came_true)}."
    elif diagnosis.by_size:
        text += " Its size fits, and no more is known of it."
    if others := diagnosis.indistinguishable:
        shown = ", ".join(" and ".join(deviations) for deviations in others[:_SHOWN_INDISTINGUISHABLE])
        more = len(others) - _SHOWN_INDISTINGUISHABLE
        text += f" These cases cannot distinguish it from {shown}{f', and {more} more' if more > 0 else ''}."
    return text


def _doubts(diagnosis: Diagnosis) -> str:
    """A stage at which it would show first and did not, what was identified beside it, and the runner-up."""
    text = ""
    if diagnosis.predicted_stage and diagnosis.predicted_stage != diagnosis.first_stage:
        text += f" (It would itself show first at {diagnosis.predicted_stage}.)"
    text += _identified(diagnosis)
    if diagnosis.runner_up:
        rms = f" ({format_sigma(diagnosis.runner_up_rms)} σ)" if diagnosis.runner_up_rms is not None else ""
        text += f" Next most likely: {' and '.join(diagnosis.runner_up)}{rms}."
    return text


def _equations_text(diagnosis: Diagnosis) -> str:
    """A sentence for each stage; that its layers specify it in several ways is said once."""
    sentences = []
    for stage in dict.fromkeys(each.stage for each in diagnosis.equations):
        first, *others = [each for each in diagnosis.equations if each.stage == stage]
        more = f", and likewise in {len(others)} other form{'s' * (len(others) > 1)} of it" if others else ""
        count = len(first.cases)
        sentences.append(
            f"{stage} = {first.found} ({format_sigma(first.rms)} σ over {count} case{'s' * (count > 1)}; "
            f"specified {first.specified}: {format_sigma(first.specified_rms)} σ){more}."
        )
    return " ".join(sentences)


def _identified(diagnosis: Diagnosis) -> str:
    """The equations that were identified, the stages that were not, and what was observed of the first."""
    text = f" Found: {_equations_text(diagnosis)}" if diagnosis.equations else ""
    if diagnosis.left_open and diagnosis.equations:
        text += f" Not identified: {', '.join(diagnosis.left_open)}."
    return text + _observed(diagnosis)


def _observed(diagnosis: Diagnosis) -> str:
    return "".join(f" {sentence(each)}" for each in diagnosis.observed)


def _last_line(report: Report, counts: RunCounts) -> Text:
    """The verdict; where it is that all conforms, up to which sizes that was asked."""
    count = counts.outcomes
    tally = Tally.of(count)
    others = [f"{n} {outcome.value}" for outcome, n in count.items() if not outcome.is_in_line]
    text = str(tally) + (f" ({', '.join(others)})" if others else "")
    if report.environment.seed:
        text += f", seed {report.environment.seed}"
    if not tally.applicable:
        return Text("INCOMPLETE: nothing was judged; every check is unsupported", style="bold red")
    if report.ended_by in ("budget", "first failure"):
        return Text(f"ENDED BY THE {report.ended_by.upper()}: {text}", style="bold red")
    if not report.complete:
        return Text(f"INCOMPLETE: {text}", style="bold red")
    covered = "" if tally.unexpected else f", {covering(counts)}"
    return Text(text + covered, style=f"bold {tally.style}")
