"""Inputs that a black box does not read: its outputs are the same, to the last bit, whatever they are."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.spec.axes import Array
from encoder_conformance.worker.failure import Failure


def unread(called: Source, inputs: Outputs, others: Mapping[str, Array]) -> list[str]:
    """Those of `others`, each another value of one input, that change no output; none where it does not answer. What
    was made for the calls is not kept."""
    right, same = called.outputs(inputs, "own"), []
    for name, value in others.items():
        answer = called.outputs({**inputs, name: value}, "own", kept=name != [*others][-1])
        if not isinstance(right, Failure) and not isinstance(answer, Failure) and _are_the_same(right, answer):
            same.append(name)
    return same


def _are_the_same(one: Outputs, other: Outputs) -> bool:
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
