"""Phase `cost`: bytes, nodes and the median time of an answer. Nothing is judged."""

from collections.abc import Sequence

from encoder_conformance.validate.evidence import Assessment, Evidence
from encoder_conformance.validate.phases.file import size


def assess(evidence: Evidence) -> Assessment:
    description, answers = evidence.description, evidence.answers
    if answers is None or description.file is None:
        return Assessment()
    milliseconds: dict[str, list[float]] = {}
    for result in (run.result() for run in answers.of_the_file):
        if result.seconds is not None:
            milliseconds.setdefault(result.runtime, []).append(result.seconds * 1e3)
    times = [f"{runtime} {_range(taken)} ms" for runtime, taken in milliseconds.items()]
    return Assessment(", ".join([size(description.file), f"{description.nodes} nodes", *times]))


def _range(values: Sequence[float]) -> str:
    least, most = (f"{value:.0f}" if value >= 10 else f"{value:.2g}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"
