"""What hides positions from others in a source: arguments that a file does not take, and a causal mask inside."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.masks import is_name_of_mask
from encoder_conformance.blackbox.measured import Source
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.protocol.messages import Precision
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.worker.failure import Failure

_SAME, _OTHER = 1e-5, 1e-3
"""Of an output: what a hidden position leaves of its influence at most, and what it has at least where it is seen."""


def hiding(source: Source, inputs: WholeInputs, precision: Precision) -> list[str]:
    """The arguments left at their defaults that are named as masks are, and given as [B, S] hide positions: what stands
    there changes nothing where others are."""
    named = [name for name in source.left if is_name_of_mask(name)]
    case = inputs.padded_case() if named else None
    if case is None:
        return []
    others = inputs.refilled(case)
    return [name for name in named if _hides(source, name, case, others, precision)]


def as_causal(source: Source, inputs: WholeInputs, cases: Sequence[WholeCase], precision: Precision) -> list[WholeCase]:
    """The cases, in which hidden positions that see hidden ones alone are known where the source lets none see a later
    one: asked where some item begins with a hidden position."""
    plain = next((each for each in cases if each.hidden is None and each.sequence > 1), None)
    left = any(each.hidden is not None and each.hidden[:, 0].any() for each in cases)
    if plain is None or not left or not _sees_no_later(source, inputs, plain, precision):
        return [*cases]
    return [replace(each, is_causal=True) for each in cases]


def _sees_no_later(source: Source, inputs: WholeInputs, case: WholeCase, precision: Precision) -> bool:
    """Whether other inputs in the second half change nothing in the first, of an output that they do change."""
    later = np.broadcast_to(np.arange(case.sequence) >= case.sequence // 2, (case.batch, case.sequence))
    others = inputs.refilled(replace(case, hidden=later))
    one, two = (source.outputs(given, precision) for given in (case.inputs, others))
    if isinstance(one, Failure) or isinstance(two, Failure):
        return False
    of_positions = {name: value for name, value in one.items() if value.ndim > 2 and value.shape[:2] == later.shape}
    before, after = (dict(_by_output(of_positions, two, places)) for places in (later, ~later))
    return any(far <= _SAME and after.get(name, 0.0) >= _OTHER for name, far in before.items())


def _hides(source: Source, name: str, case: WholeCase, others: Mapping[str, Array], precision: Precision) -> bool:
    """`others`: the inputs with other values where positions are hidden."""
    assert case.hidden is not None
    seen = _apart(source, case, others, {}, precision)
    for mask in _forms(case.hidden):
        kept = _apart(source, case, others, {name: mask}, precision)
        if any(kept[output] <= _SAME and seen.get(output, 0.0) >= _OTHER for output in kept):
            return True
    return False


def _forms(hidden: Bools) -> Iterator[Array]:
    """[B, S] as masks of either meaning."""
    for kind in (np.bool_, np.int64):
        yield from ((~hidden).astype(kind), hidden.astype(kind))


def _apart(
    source: Source, case: WholeCase, others: Mapping[str, Array], mask: Mapping[str, Array], precision: Precision
) -> dict[str, float]:
    """Output → how far it is another with the other inputs where nothing is hidden, by its size; of none without both
    answers in numbers."""
    one, two = (source.outputs({**given, **mask}, precision) for given in (case.inputs, others))
    if isinstance(one, Failure) or isinstance(two, Failure):
        return {}
    assert case.hidden is not None
    return dict(_by_output(one, two, case.hidden))


def _by_output(one: Outputs, two: Outputs, hidden: Bools) -> Iterator[tuple[str, float]]:
    for name, value in one.items():
        first, second = (_where_seen(each.astype(np.float64), hidden) for each in (value, two[name]))
        size = rms(first)
        if first.shape == second.shape and np.isfinite(first).all() and np.isfinite(second).all() and size:
            yield name, rms(first - second) / size


def _where_seen(value: Array, hidden: Bools) -> Array:
    """An output [B, S, ...] where nothing is hidden; any other, as one pooled, as it is."""
    return value[~hidden] if value.shape[:2] == hidden.shape else value
