"""Whose fault wrong results are: the file's, or that of a runtime which does something else than the file says.

Two runs follow a file to the letter: ONNX's reference implementation, and ONNX Runtime without optimisation.
"""

from encoder_conformance.judge.outcome import EXPECTED
from encoder_conformance.validate.evidence import Evidence
from encoder_conformance.validate.runtimes import RuntimeRun
from encoder_conformance.wire.description import FileDescription

LITERAL = frozenset({("onnxruntime", "disable"), ("reference", "")})
"""Runtimes and levels that follow a file to the letter."""


def wrong_runtimes(evidence: Evidence) -> tuple[str, ...]:
    """The runs that are wrong with a right file: some literal run conforms in every check, and none is out of line.

    A literal run that does not load the file says nothing of the file.
    """
    if evidence.answers is None or evidence.subject.integers:  # σ says nothing of a file with integers as it is
        return ()
    asked = [
        run for run in evidence.answers.of_the_file if run.answers and not lacks_operators(run, evidence.description)
    ]
    speaking = [run for run in asked if (run.runtime, run.level) in LITERAL and run.is_working]
    if not speaking or not all(map(_conforms, speaking)):
        return ()
    return tuple(run.name for run in asked if run not in speaking and not (run.is_working and _conforms(run)))


def lacks_operators(run: RuntimeRun, description: FileDescription) -> bool:
    """Whether a file that this run does not load has operators which are ONNX Runtime's own."""
    foreign = any("::" in operator for operator in description.operators)
    return run.failure is not None and run.runtime != "onnxruntime" and foreign


def _conforms(run: RuntimeRun) -> bool:
    return run.dependence is None and all(record.outcome in EXPECTED for record in run.records)
