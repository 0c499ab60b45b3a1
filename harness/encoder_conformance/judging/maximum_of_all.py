"""Gradients that reach hidden positions by rounding alone: the maximum of all scores was taken off before the mask."""

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.verdict import Verdict, judge
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.oracle.maximum_of_all import with_maximum_of_all
from encoder_conformance.protocol.answers import Answers, values_at
from encoder_conformance.spec.outcome import Outcome


def judge_by_specification(task: Task, observed: Answers, expected: Expected) -> Verdict:
    """The verdict on one check; on gradients with the noise of that maximum where they show it and hold by it (C-6).

    Only a position whose key has the largest score of a row that hides it has any such noise: every other stays exact.
    """
    verdict = judge(task.check, task.tensors, observed, expected, task.format)
    if verdict.outcome is not Outcome.FAIL or not _shows_it(task, observed, expected, verdict):
        return verdict
    again = judge(task.check, task.tensors, observed, with_maximum_of_all(task.case, expected), task.format)
    return again if again.outcome is Outcome.PASS else verdict


def _shows_it(task: Task, observed: Answers, expected: Expected, verdict: Verdict) -> bool:
    """Whether x has a gradient, finite, where a mask lets none through and no noise either."""
    numbers = all(each.conforms or each.rms is not None for each in verdict.tensors)
    if task.check != "gradients" or task.case.mask() is None or not numbers or "x" not in observed:
        return False
    x = expected.tensors[key("gradients", "x")]
    exact = (x.golden == 0.0) & (x.condition == 0.0)
    return bool(np.any(values_at(observed["x"], x.positions)[exact] != 0.0))
