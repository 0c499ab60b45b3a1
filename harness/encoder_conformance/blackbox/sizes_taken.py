"""The sizes that a source takes: of a waveform, of frames and of an image no fewer than its first convolution spans."""

from dataclasses import replace

from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.worker.failure import Failure

_LEAST = (2, 4, 8, 14, 16, 28, 32, 64, 112, 128, 224, 256, 512)
"""Samples, frames or pixels that are tried: windows of convolutions, and sides of patches."""


def at_sizes_taken(source: Source, inputs: WholeInputs) -> WholeInputs:
    """The inputs at sizes of which the source takes the first; as they are where it takes none."""
    if not inputs.roles.lengths_are_free or _answers(source, inputs.cases()[0]):
        return inputs
    for least in _LEAST:
        tried = replace(inputs, least=least)
        if _answers(source, tried.cases()[0]):
            uneven = replace(tried, rest=True)
            return uneven if _answers(source, uneven.cases()[1]) else tried
    return inputs


def _answers(source: Source, case: WholeCase) -> bool:
    """Whether it answers in some precision, and not with nothing, as a convolution of fewer than it spans may."""
    for precision in ("float64", "float32"):
        answer = source.outputs(case.inputs, precision)
        if not isinstance(answer, Failure):
            return all(value.size for value in answer.values())
    return False
