"""Masks of a module that keeps one from an earlier call: it is asked as before its first."""

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import Feeds
from encoder_conformance.readers.module_target.offering import OfferedArguments, offered
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics


def offered_from_the_first(
    examination: Examination, semantics: InputSemantics, num_heads: int, far: int
) -> OfferedArguments:
    """What its arguments are, each tried in calls that begin with what it held before any mask was given, where it
    keeps something of them; and that it does is noted. `semantics`: of x alone. Raises ExecutionError."""
    read = examination.read
    held = read.held() if examination.kept is None else None
    try:
        found = offered(read, semantics, num_heads, far=far)
    except ExecutionError:
        if held is None or not held.changed():
            raise
        found = None
    if held is None or not held.changed():
        assert found is not None
        return found
    held.restore()
    read.start_from(held)
    found = offered(read, semantics, num_heads, far=far)
    plain = {"x": drawn(semantics.x_shape(semantics.B, semantics.S))}
    masked = _masked(examination, found.semantics, plain, num_heads)
    examination.kept = None if masked is None else read.kept_with_masks(plain, masked)
    if examination.kept is not None and examination.kept.apart:
        examination.module.start_from(held)
    return found


def _masked(examination: Examination, semantics: InputSemantics, plain: Feeds, num_heads: int) -> Feeds | None:
    """The feeds with masks that hide the last position of each item; None where none can say that."""
    padding = np.ones((semantics.B, 1, 1, semantics.S), np.bool_)
    padding[..., -1] = False
    try:
        masks = Masks(padding, None, sequence=semantics.S)
        x = semantics.batch_first(plain["x"])
        return module_feeds(semantics, x, masks, num_heads, always_causal=examination.always_causal)
    except NotImplementedError:
        return None
