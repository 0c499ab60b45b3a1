"""Phase `numbers`: ordinary input, low variance, a large mean; and the known deviation behind wrong numbers."""

from collections.abc import Iterator

from encoder_conformance.results import Diagnosis
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits
from encoder_conformance.validate.evidence import Assessment, Evidence
from encoder_conformance.validate.phases.conformance import assess_answers

NUMBERS = ("no-mask", "low-variance", "large-mean")


def situations(limits: InputLimits) -> Iterator[Situation]:
    yield from (load().situations[name] for name in NUMBERS)


def assess(evidence: Evidence) -> Assessment:
    return assess_answers("numbers", evidence)


def diagnoses(evidence: Evidence) -> tuple[Diagnosis, ...]:
    """Those of the first run that has any: a file has the same causes, whatever runs it."""
    if evidence.answers is not None:
        for run in evidence.answers.in_sigma:
            if found := run.seen.diagnoses(run.name):
                return tuple(found)
    return ()
