"""Tells deviations apart that explain the same observations: by other cases of their format, and by other formats."""

from collections.abc import Sequence

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.explanation import in_time
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.spec.deviation import Deviation


def told_apart(
    explained: Diagnosis, shown: Sequence[Observation], others: Sequence[Observation], until: float | None
) -> Diagnosis:
    """The diagnosis with those of its explanations alone that `others` bear out, too; as it is where these tell none
    apart. `shown`: what all of them explain. A case that none of them gives has another cause, and decides nothing."""
    alike = left = (explained.deviations, *explained.indistinguishable)
    if explained.confidence != "explained" or not all(name in catalogue() for ids in alike for name in ids):
        return explained
    for observation in in_time(others, until):
        if len(left) > 1:
            left = _that_give(left, Evidence(observation)) or left
    if left == alike:
        return explained
    named = Match.of(_deviations(left[0]), [Evidence(each) for each in shown])
    return explained.model_copy(
        update={
            "deviations": named.ids,
            "sentences": tuple(deviation.sentence for deviation in named.deviations),
            "indistinguishable": left[1:],
            "rms": named.rms,
            "amplitude": named.amplitude,
            "significance": named.significance,
            "predicted_stage": named.first_stage,
        }
    )


def _that_give(alike: tuple[tuple[str, ...], ...], piece: Evidence) -> tuple[tuple[str, ...], ...]:
    """Those that give what was observed: in the noise of the right layer, else in that of the wrong one, which is slow,
    and in which a sum with 1e9 hides what a sum with 1e4 shows."""
    for measured in (False, True):
        found = tuple(ids for ids in alike if Match.of(_deviations(ids), [piece], measured=measured).explains)
        if found:
            return found
    return ()


def _deviations(ids: Sequence[str]) -> tuple[Deviation, ...]:
    return tuple(catalogue()[name] for name in ids)
