"""What a JAX layer does that no layer of the specification does, seen by the primitives of its program."""

from collections.abc import Mapping
from functools import reduce
from traceback import FrameSummary
from typing import Any

from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.jax_lines import LIBRARIES, frames_of
from encoder_conformance.readers.module_target.frameworks.jax_programs import steps_inside
from encoder_conformance.readers.onnx_file.tracing.features import Feature

_PRIMITIVES: dict[str, Feature] = {
    "fft": "fourier", "conv_general_dilated": "convolution", "top_k": "largest", "approx_top_k": "largest",
}  # fmt: skip
"""A primitive → what it shows."""


def beyond(program: Any) -> Mapping[Feature, str]:
    """What a program does that the specification has not, and the line where it is first; "" where it is of none."""
    found = dict[Feature, str]()
    for step, around in steps_inside(program):
        shown = _PRIMITIVES.get(step.primitive.name)
        if shown and not _maps_each_position(step):
            frames = reduce(lambda outer, each: frames_of(each, outer), (*around, step), list[FrameSummary]())
            found.setdefault(shown, code_in(frames, LIBRARIES))
    return found


def _maps_each_position(step: Any) -> bool:
    """Whether it is a convolution of one position alone, which is a linear map."""
    if step.primitive.name != "conv_general_dilated":
        return False
    _, kernel = step.invars
    return all(kernel.aval.shape[axis] == 1 for axis in step.params["dimension_numbers"].rhs_spec[2:])
