"""What the terminal shows of a run: the matrix, what is not asked, and last what is wrong."""

import os
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.text import Text

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.report.closing import Remainder, closing_lines
from encoder_conformance.report.digest import Digest
from encoder_conformance.report.matrix import format_sigma, matrix, summary
from encoder_conformance.results import Diagnosis, Record, Report

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


def show_report(
    screen: Console, report: Report, digest: Digest, out: Path | None, remaining: Remainder, *, quiet: bool = False
) -> None:
    """Print a run. What is wrong comes last: the diagnoses, then the failures. `out`: its --out.

    `quiet`: nothing but what is wrong, and the last line.
    """
    if not quiet:
        screen.print(matrix(digest, screen.width))
        screen.print(summary(report, digest, screen.width))
        for implementation in report.implementations:
            versions = ", ".join(f"{name} {version}" for name, version in implementation.versions.items())
            line = f"{implementation.name}: {versions or 'never started'}"
            screen.print(line, style="dim", soft_wrap=True)
        _show_gaps(screen, report, digest)
        for line in closing_lines(report, digest, remaining):
            screen.print(line, soft_wrap=True)
    for diagnosis in report.diagnoses:
        screen.print(diagnosis_text(diagnosis), style="bold", soft_wrap=True)
    _show_failures(screen, digest, out)
    screen.print(_last_line(report, digest.outcomes), soft_wrap=True)


def _show_gaps(screen: Console, report: Report, digest: Digest) -> None:
    for (name, reason), count in digest.reasons.items():
        screen.print(f"– {name}, {count} unsupported: {reason}", style="dim", soft_wrap=True)
    for (name, reason), count in digest.given_up.items():
        screen.print(f"✗ {name}, {count} not run: {_on_one_line(reason)}", style="bold red", soft_wrap=True)
    for absent in report.absent:
        line = f"Not judged: {absent.name} ({absent.reason}). To judge it: {absent.hint}"
        screen.print(line, style="yellow", soft_wrap=True)


def _show_failures(screen: Console, digest: Digest, out: Path | None) -> None:
    failures = digest.failures
    for record in failures:
        text = f"✗ {record.implementation} {record.case} {record.dtype} {record.check}: {record.outcome.value}: "
        screen.print(text + _on_one_line(record.message), style="red", soft_wrap=True)
    more = sum(n for outcome, n in digest.outcomes.items() if outcome.category == "bad") - len(failures)
    if more:
        screen.print(f"… and {more} more", style="red")
    if failures:
        first = failures[0]
        out_option = f" --out {out}" if out else ""
        command = f"conform explain --impl {first.implementation} --case {first.case} --dtype {first.dtype}{out_option}"
        screen.print(f"In full: {command}", soft_wrap=True)


def record_line(record: Record) -> Text:
    """One check, as --verbose prints it."""
    what = f"{record.implementation} {record.case} {record.dtype} {record.check}: {record.outcome.value}"
    size = f", rms {format_sigma(record.rms)} σ" if record.rms is not None else ""
    message = f": {_on_one_line(record.message)}" if record.message else ""
    style = "red" if record.outcome.category == "bad" else "dim"
    return Text(f"{record.outcome.sign} {what}{size}{message}", style=style)


def _on_one_line(message: str) -> str:
    """As much of a message as helps; `conform explain` and the report have all of it."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]} …"


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """A diagnosis in one line: the deviations, the confidence, the first stage out of line, and the runner-up."""
    prefix = f"⇒ {diagnosis.implementation} {diagnosis.dtype}: {diagnosis.confidence}"
    if diagnosis.of == "backward":
        prefix += ": the forward pass is right, and the backward pass is not"
    stage = f" First stage out of line: {diagnosis.first_stage}." if diagnosis.first_stage else ""
    if diagnosis.right_before:
        stage += f" Right before it: {', '.join(diagnosis.right_before)}."
    if diagnosis.cut_short:
        return f"{prefix}: the time ended before the catalogue was tried; run it without --budget.{stage}"
    if diagnosis.confidence == "seen":
        more = len(diagnosis.cases) - 1
        where = diagnosis.cases[0] + (f" and {more} more case{'s' * (more > 1)}" if more else "")
        return f"{prefix}: {' '.join(diagnosis.sentences)} {diagnosis.advice}. In {where}."
    by_equations = diagnosis.equations and not diagnosis.deviations
    if by_equations and diagnosis.confidence in ("explained", "closest"):
        return f"{prefix}: {_equations_text(diagnosis)}{stage}{''.join(f' {each}' for each in diagnosis.observed)}"
    if diagnosis.confidence == "unknown" and diagnosis.of == "backward":
        return (
            f"{prefix}: no term of the backward pass, left out or multiplied, accounts for it.{_found_out(diagnosis)}"
        )
    if diagnosis.confidence == "unknown":
        text = f"{prefix}: no deviation of the catalogue, nor any two, account for most of it.{stage}"
        return text + _found_out(diagnosis)
    names = " and ".join(diagnosis.deviations)
    unit = "of the scatter that it predicts" if diagnosis.by_size else "σ"
    size = f"{format_sigma(diagnosis.rms or 0)} {unit}"
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
        rms = f" ({format_sigma(diagnosis.runner_up_rms)} σ)" if diagnosis.runner_up_rms is not None else ""
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
            f"{stage} = {first.found} ({format_sigma(first.rms)} σ over {count} case{'s' * (count > 1)}; "
            f"specified {first.specified}: {format_sigma(first.specified_rms)} σ){more}."
        )
    return " ".join(sentences)


def _found_out(diagnosis: Diagnosis) -> str:
    """What is known where no cause explains everything."""
    text = f" Found: {_equations_text(diagnosis)}" if diagnosis.equations else ""
    if diagnosis.left_open and diagnosis.equations:
        text += f" Left open: {', '.join(diagnosis.left_open)}."
    return text + "".join(f" {sentence}" for sentence in diagnosis.observed)


def _last_line(report: Report, count: Counter[Outcome]) -> Text:
    tally = Tally.of(count.elements())
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
    return Text(text, style=f"bold {tally.style}")
