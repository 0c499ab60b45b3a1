"""The phases of runtimes and levels: which load the file, agree, and depend on what was asked before; and the cost."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from encoder_conformance.commands.validate.evidence import Answers, Assessment, ValidationEvidence, distinct
from encoder_conformance.commands.validate.history import LARGE, SMALL
from encoder_conformance.commands.validate.phases.described import size_text
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.unasked import fixed_sizes
from encoder_conformance.implementation.interpreter import Missing
from encoder_conformance.judging.difference import difference
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Phase, PhaseFinding, Severity
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED

Difference = tuple[str, TensorVerdict]
"""A case, and the verdict on the difference there."""


def loads(evidence: ValidationEvidence) -> Assessment:
    """The runtimes and levels that load the file."""
    answers = evidence.answers
    if answers is None:
        failures = evidence.whole.failures if evidence.whole is not None and evidence.whole.verdicts else ()
        return Assessment("", (_failed(*each, evidence.description) for each in failures))
    asked = [run for run in answers.of_the_file if run.answers]
    working = [run for run in asked if run.is_working]
    if not asked:
        return Assessment("", _load_findings(answers, evidence.description), "no runtime was asked anything")
    said = f"{len(working)} of {len(asked)} runtimes and levels"
    return Assessment(said, _load_findings(answers, evidence.description))


def _load_findings(answers: Answers, description: FileDescription) -> Iterator[PhaseFinding]:
    for run in answers.runs:  # also of the numbers that integers stand for: where they do not run, nothing is judged
        if isinstance(run.found, Missing):
            message = f"{run.name} was not asked: {run.found.reason}"
            about = {"runtime": run.runtime, "level": run.level}
            yield PhaseFinding(
                phase="loads",
                severity="note",
                kind="runtime-not-asked",
                message=message,
                hint=run.found.hint,
                about=about,
            )
        elif run.failure:
            yield _failed(run, run.failure, description)


def _failed(run: RuntimeRun, failure: str, description: FileDescription) -> PhaseFinding:
    """That a run answers nothing at all: for it has not all operators, or else as something of its own."""
    if run.lacks_operators_of(description, failure):
        message, hint = _without_operators(run, failure, description)
        return _of_run("loads", "note", "runtime-lacks-operators", message, hint, run.name)
    return _of_run("loads", "error", "runtime-does-not-run", f"{run.name}: {failure}", "", run.name)


def _of_run(
    phase: Phase, severity: Severity, kind: FindingKind, message: str, hint: str, name: str, **about: object
) -> PhaseFinding:
    """What one run alone shows."""
    return PhaseFinding(
        phase=phase, severity=severity, kind=kind, message=message, hint=hint, runtimes=(name,), about=about
    )


def _without_operators(run: RuntimeRun, failure: str, description: FileDescription) -> tuple[str, str]:
    """What is said of a runtime that has not all operators of the file, which is that runtime's row alone."""
    if any("::" in operator for operator in description.operators):
        message = f"{run.name} has not all of its operators, which are ONNX Runtime's own"
        return message, f"{failure}; the file runs in ONNX Runtime alone"
    return f"{run.name} has not all of its operators in the opset of the file", failure


def levels(evidence: ValidationEvidence) -> Assessment:
    """Runtimes and levels against each other. Optimisation may change numbers within the noise, √2 σ.

    Where two are both out of line with the oracle, what is lost there is lost otherwise in each: that is a finding of
    its own, which a source that is off alike excuses."""
    answers = evidence.answers
    if answers is None:
        return Assessment()
    if evidence.subject.integers:
        return Assessment(not_asked="it computes with integers, whose rounding σ does not judge: see reduction")
    if len(answers.working) < 2:
        return Assessment(not_asked="one runtime and level alone; nothing to compare")
    first = answers.working[0].name
    differences = list(_differences(answers, evidence))
    if not differences:
        return Assessment(not_asked="no two of them gave numbers that can be compared")
    verdicts = [verdict for _, verdict in _largest(differences).values()]
    rms = max((verdict.rms or 0.0 for verdict in verdicts), default=0.0)
    summary = f"{len(answers.working)} runtimes and levels, largest difference rms {rms:.2g} √2 σ"
    if equal := sum(1 for verdict in verdicts if not verdict.max):
        summary += f", {equal} with the same bits as {first}"
    lost = {(run.name, each.case) for run in answers.working for each in run.records if each.outcome not in EXPECTED}
    apart: dict[bool, list[tuple[str, Difference]]] = {False: [], True: []}
    for name, each in differences:
        apart[{(first, each[0]), (name, each[0])} <= lost].append((name, each))
    levels = {run.name for run in answers.working if run.level}
    return Assessment(
        summary, [each for some in apart.values() for each in _level_findings(_largest(some), first, levels)]
    )


def _largest(differences: Iterable[tuple[str, Difference]]) -> dict[str, Difference]:
    """Run → the case where its output is furthest from the first run's."""
    found: dict[str, Difference] = {}
    for name, each in differences:
        if name not in found or (each[1].rms or 0.0) > (found[name][1].rms or 0.0):
            found[name] = each
    return found


def _level_findings(largest: dict[str, Difference], first: str, levels: Collection[str]) -> Iterator[PhaseFinding]:
    """`levels`: the runs of a runtime that has levels to choose among."""
    for name, (case, verdict) in largest.items():
        if not verdict.conforms:
            problem = verdict.problem or f"rms {verdict.rms or 0:.3g} √2 σ, max {verdict.max or 0:.3g} √2 σ"
            message = f"{name} and {first} differ in {case}: {problem}"
            hint = "deploy with a level that is right (SessionOptions.graph_optimization_level), or name what it fuses "
            hint = f"{hint}in disabled_optimizers" if name in levels else ""
            about = {"beside": first, "case": case, "rms": verdict.rms, "max": verdict.max}
            yield _of_run("levels", "error", "levels-differ", message, hint, name, **about)


def _differences(answers: Answers, evidence: ValidationEvidence) -> Iterator[tuple[str, Difference]]:
    """Run, case, and how far its output is from the first run's there, in √2 σ."""
    first, *others = answers.working
    format = evidence.subject.format
    for run in others:
        for case in distinct(answers.cases):
            if "output" not in answers.expected[case.id].tensors:  # properties have no expected result
                continue
            expected = in_format(case, answers.expected[case.id], format).tensors["output"]
            mine, theirs = (_output(each, case, expected) for each in (first, run))
            if mine is not None and theirs is not None:
                yield run.name, (case.id, difference(run.name, theirs, mine, expected, format))


def _output(run: RuntimeRun, case: Case, expected: ExpectedTensor) -> Array | None:
    """The output, if it is finite and of the right shape; any other is a finding elsewhere."""
    answer = run.answers.get((case.id, "output"))
    if answer is None or answer.tensors is None:
        return None
    output = answer.tensors["output"]
    if output.shape != expected.shape or not np.isfinite(output.reshape(-1)[expected.positions]).all():
        return None
    return output


def history(evidence: ValidationEvidence) -> Assessment:
    """No answer depends on what was asked before; a script shows one that does in the runtime alone."""
    answers = evidence.answers
    if answers is None:
        return Assessment()
    asked = [run for run in answers.runs if run.asked_history]
    if not asked:
        return Assessment(not_asked=_no_history(evidence, answers))
    wrong = [run for run in asked if run.dependence is not None]
    said = f"{len(asked) - len(wrong)} of {len(asked)} runtimes and levels answer the same, whatever was asked before"
    return Assessment(said, _history_findings(wrong))


def _no_history(evidence: ValidationEvidence, answers: Answers) -> str:
    """Why no runtime was asked a size after another."""
    if not {SMALL, LARGE} <= {case.situation.situation for case in answers.cases["shapes"]}:
        return fixed_sizes(evidence) or "of a large file one size alone is asked"
    return "no runtime that keeps anything between two questions answered"


def _history_findings(wrong: list[RuntimeRun]) -> Iterator[PhaseFinding]:
    for run in wrong:
        hint = "a runtime that keeps something of an earlier size is to be loaded anew for each, or not to be used"
        if run.history_script:
            hint = f"{run.history_script} shows it in the runtime alone; {hint}"
        message = f"{run.name}: {run.dependence}"
        about = vars(run.dependence) if run.dependence else {}
        yield _of_run("history", "error", "depends-on-history", message, hint, run.name, **about)


def cost(evidence: ValidationEvidence) -> Assessment:
    """Bytes, nodes and the median time of an answer. Nothing is judged."""
    description, answers = evidence.description, evidence.answers
    if description.file is None or answers is None:
        return Assessment()
    milliseconds: dict[str, list[float]] = {}
    for result in (run.result() for run in answers.of_the_file):
        if result.seconds is not None:
            milliseconds.setdefault(result.runtime, []).append(result.seconds * 1e3)
    times = [f"{runtime} {_range(taken)} ms" for runtime, taken in milliseconds.items()]
    return Assessment(", ".join([size_text(description.file), f"{description.nodes} nodes", *times]))


def _range(values: Sequence[float]) -> str:
    least, most = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"
