"""Which argument of a source each input of a file is, where no name says so: as which its outputs are the nearest."""

from collections.abc import Iterable
from itertools import islice, permutations

import numpy as np

from encoder_conformance.blackbox.comparing import Outputs, paired
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.protocol.messages import Precision
from encoder_conformance.worker.failure import Failure

_MOST = 24
"""Orders that are tried: all of four inputs."""


def settle_order(source: Source, own: Source, cases: Iterable[WholeCase], precision: Precision) -> None:
    """Have the source be given what names leave open in the order in which it answers as the file does, `own`.

    A right file is right in one; a wrong one is held against what it is nearest to. `source` was called before.
    """
    if len(source.in_order) < 2:
        return
    case = _telling(cases)
    due = own.outputs(case.inputs, "own")
    if isinstance(due, Failure):
        return
    names = source.in_order
    arguments = [source.given.get(name, name) for name in names]
    first, best = dict(source.order), (np.inf, dict(source.order))
    for order in islice(permutations(arguments), _MOST):
        source.order = {**first, **dict(zip(names, order, strict=True))}
        answer = source.outputs(case.inputs, precision)
        far = np.inf if isinstance(answer, Failure) else _distance(due, answer)
        if far < best[0]:
            best = far, source.order
    source.order = best[1]


def _telling(cases: Iterable[WholeCase]) -> WholeCase:
    """One in which every input says something: some positions are hidden, and none of the numbers is out of range."""
    every = list(cases)
    several = [each for each in every if each.sequence > 1 and each.kind != "out of range"]
    return next((each for each in several if each.is_padded), next(iter(several or every)))


def _distance(due: Outputs, found: Outputs) -> float:
    """How far outputs [*shape] are apart, beside how large they are; infinite where nothing is compared."""
    pairs, _ = paired(due, found)
    far = [_relative(due[name], found[other]) for name, other in pairs.items()]
    return max(far, default=np.inf)


def _relative(due: np.ndarray, found: np.ndarray) -> float:
    """The root of the mean square by which [*shape] differ, of that of `due`; infinite for another shape."""
    if due.shape != found.shape:
        return np.inf
    one, two = due.astype(np.float64), found.astype(np.float64)
    both = np.isfinite(one) & np.isfinite(two)
    if not both.any():
        return np.inf
    size = float(np.sqrt(np.mean(np.square(one[both])))) or 1.0
    return float(np.sqrt(np.mean(np.square(one[both] - two[both])))) / size
