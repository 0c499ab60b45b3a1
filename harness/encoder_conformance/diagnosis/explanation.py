"""Holds an explanation to cases that it was not found in: other small ones, and large layers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.epsilon import compared, measured_epsilon
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.identify import deviations_of, patches_of
from encoder_conformance.diagnosis.less_exact import BY_LOG_SUM
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.spec.deviation import Deviation


def named_deviations(diagnosis: Diagnosis) -> tuple[Deviation, ...]:
    """Return the deviations of a diagnosis, ready to be simulated: those of the catalogue, those with a measured
    epsilon, and one with the equations that it states."""
    known = catalogue() | {BY_LOG_SUM.deviation: BY_LOG_SUM}
    found = [known[name] for name in diagnosis.deviations if name in known]
    found += [measured_epsilon(each.deviation.removesuffix("-epsilon"), each.value) for each in diagnosis.measured]
    return (*found, *deviations_of(patches_of(diagnosis.equations)))


class Unaccounted(NamedTuple):
    """An observation that an explanation does not give, and the `rms`, in σ, that it leaves of it."""

    observation: Observation
    rms: float


def unaccounted(explained: Diagnosis, others: Sequence[Observation], until: float | None) -> list[Unaccounted]:
    """Return the observations, of cases that a diagnosis was not shown, that its explanation does not give."""
    deviations, left = named_deviations(explained), list[Unaccounted]()
    for observation in in_time(others, until):
        piece = Evidence(observation)
        match = Match.of(deviations, [piece])
        if not match.explains:  # the noise of the wrong layer itself is slow, and matters to few
            match = Match.of(deviations, [piece], measured=True)
        if not match.explains:
            left.append(Unaccounted(observation, match.rms))
    return left


def in_time(observations: Sequence[Observation], until: float | None) -> Iterator[Observation]:
    """Yield them up to the time `until`, by time.monotonic()."""
    return takewhile(lambda _: until is None or time.monotonic() <= until, observations)


def on_large_layers(
    explained: Diagnosis, shown: Sequence[Observation], large: Sequence[Observation], until: float | None
) -> Diagnosis:
    """Try an explanation on large layers that it was not `shown`; it is the closest if it does not give these too.

    A measured epsilon is then compared with what the specifications of these layers have, too.
    """
    deviations, given, left = named_deviations(explained), list[Observation](), dict[str, float | None]()
    rms = explained.rms or 0.0
    for observation in in_time(large, until):
        match = Match.of(deviations, [Evidence(observation)])
        if match.explains:
            given.append(observation)
            rms = max(rms, match.rms)
        else:
            left[observation.case.id] = match.rms
    known = [observation for observation in shown if observation.case.id in explained.cases]
    cases = [observation.case for observation in (*known, *given)]
    sentences = dict(zip(explained.deviations, explained.sentences, strict=True))
    for each in explained.measured:
        if epsilon := compared(each.deviation.removesuffix("-epsilon"), each.value, each.uncertainty, cases):
            sentences[each.deviation] = epsilon.sentence
    ids = (*explained.cases, *(observation.case.id for observation in given))
    extended = explained.model_copy(update={"sentences": tuple(sentences.values()), "rms": rms, "cases": ids})
    return as_closest(extended, left) if left else extended


def as_closest(explained: Diagnosis, left: Mapping[str, float | None], of: str = "") -> Diagnosis:
    """Return the diagnosis as no more than the closest, since it does not give these cases, or something `of` them:
    each with the rms, in σ, that it leaves, and None where a case was not seen."""
    sigma = max((each for each in left.values() if each is not None), default=None)
    observed = (*explained.observed, claim("left-out", sigma, left=f"{of}{', '.join(left)}"))
    return explained.model_copy(update={"confidence": "closest", "observed": observed})
