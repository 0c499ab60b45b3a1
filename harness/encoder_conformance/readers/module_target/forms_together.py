"""In which forms a module's masks are given together, so that each hides what it flags beside the others."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn, features_turned
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics
from encoder_conformance.spec.axes import Array


def forms_together(
    runner: LiveModule,
    found: InputSemantics,
    forms: Sequence[Sequence[MaskSemantics]],
    as_numbers: Callable[[MaskSemantics], Sequence[MaskSemantics]],
) -> InputSemantics | None:
    """`found`, with a form of each mask: the first that are taken together, and in which each hides what it flags.
    Where there are none, those of numbers are tried, too: a bool to which another mask of numbers is added is a 1 or a
    0, and hides nothing. Then the first that are taken at all; None where none are."""
    if (first := next(_taken(runner, found, product(*forms)), None)) is None or len(forms) < 2:
        return first
    of_numbers = ((mask, *as_numbers(mask)) for mask in first.masks)
    hiding, others = (
        (each for each in _taken(runner, found, masks) if _hide_beside(runner, each))
        for masks in (product(*forms), product(*of_numbers))
    )
    return next(hiding, None) or next(others, first)


def _taken(
    runner: LiveModule, found: InputSemantics, combinations: Iterable[tuple[MaskSemantics, ...]]
) -> Iterator[InputSemantics]:
    """Those that the module takes together, and gives numbers for."""
    for masks in combinations:
        together = replace(found, masks=masks)
        output = _output(runner, together, drawn(found.x_shape(found.B, found.S)), together.open_masks())
        if output is not None and np.isfinite(output).all():
            yield together


def _hide_beside(runner: LiveModule, together: InputSemantics) -> bool:
    """Whether no other position depends on the last but one, which a mask flags, where the others hide nothing; of each
    of the masks."""
    x = drawn(together.x_shape(together.B, together.S))
    other = features_turned(x, (slice(None), -2) if together.layout == "BSD" else (-2,))
    for mask in together.masks:
        assert mask.polarity is not None
        flagged = mask.filled(mask.polarity.open)
        flagged.swapaxes(mask.key_axis, -1)[..., -2] = mask.polarity.shut
        feeds = {**together.open_masks(), mask.name: flagged}
        before, after = (_output(runner, together, each, feeds) for each in (x, other))
        if before is None or after is None or differ(np.delete(before, -2, 1), np.delete(after, -2, 1)):
            return False
    return True


def _output(runner: LiveModule, found: InputSemantics, x: Array, masks: dict[str, Array]) -> Array | None:
    """The output [B, S, D] for x with these masks; None where it raises."""
    try:
        return found.batch_first(runner.run({"x": x, **masks})["output"])
    except ExecutionError:
        return None
