"""Puts an invariant's base and variants to an implementation, each as a check of its output."""

from collections import deque
from dataclasses import replace

import numpy as np

from harness.invariants.ability import asked_variants
from harness.invariants.variants import base_of
from harness.plan import Task
from harness.worker.lifecycle import Failure
from harness.worker.session import Observation, Session

_NO_ROWS = np.zeros((0, 2), dtype=np.int64)
"""No gradient is asked, so no row has a kink."""


def observe(session: Session, task: Task) -> list[Observation] | Failure:
    """The base's answer, then each variant's, in the order of `asked_variants`; or what went wrong first."""
    variants = asked_variants(task.implementation, task.case, task.dtype)
    ways = ["", *(variant.says for variant in variants)]
    cases = [base_of(task.case), *(variant.case for variant in variants)]
    coming = deque(replace(task, case=case, check="output") for case in cases)
    observed = []
    for says in ways:
        session.send_ahead(coming, lambda task: _NO_ROWS)
        answer = session.observe(coming.popleft(), _NO_ROWS)
        if isinstance(answer, Failure):
            said = f"{task.case.situation.invariant}: {says}: {answer.message}" if says else answer.message
            return replace(answer, message=said)
        observed.append(answer)
    return observed
