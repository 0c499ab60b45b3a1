"""What the file itself gives for what is the same: asked again, without the rest of its batch, with other padding."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.commands.validate.rounding.results import ChangedAnswer, Rounding, far
from encoder_conformance.judging.relative import relative_error
from encoder_conformance.protocol.messages import Call
from encoder_conformance.spec.axes import Array
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_TIMES = 3.0
"""How much further than its rounding takes it the file may be off from itself: two roundings differ by √2 of one."""
_LEAST = 1e-5
"""What float32 does to a sum in another order."""


def changed(
    session: Session, model: Path, inputs: WholeInputs, cases: Sequence[WholeCase], found: Rounding
) -> tuple[tuple[str, ...], tuple[ChangedAnswer, ...]]:
    """The relations that were asked, and those by which it is further off than its rounding explains."""
    rounding = max(far(each.errors.values()) for each in found.judged)
    asked, off = list[str](), list[ChangedAnswer]()
    for by, apart in _relations(session, model, inputs, cases):
        asked.append(by)
        if apart > (0.0 if by == "asked again" else _TIMES * rounding + _LEAST):
            off.append(ChangedAnswer(by=by, apart=apart, rounding=rounding))
    return tuple(asked), tuple(off)


def _relations(
    session: Session, model: Path, inputs: WholeInputs, cases: Sequence[WholeCase]
) -> Iterator[tuple[str, float]]:
    def outputs(given: Mapping[str, Array]) -> Outputs | None:
        answer = session.call(Call(target=str(model.absolute()), inputs=tuple(given)), dict(given))
        return None if isinstance(answer, Failure) else answer[1]

    plain = next((case for case in cases if case.kind == "ordinary" and case.batch > 1 and case.sequence > 1), None)
    if plain is not None and (whole := outputs(plain.inputs)):
        if again := outputs(plain.inputs):
            yield "asked again", max(relative_error(again[name], value) for name, value in whole.items())
        if alone := outputs(inputs.alone(plain)):
            firsts = {name: value[:1] for name, value in whole.items() if value.shape[:1] == (plain.batch,)}
            yield from _farthest("an item by itself", alone, firsts)
    padded = next((case for case in cases if case.kind == "padded" and case.hidden is not None), None)
    if padded is not None and padded.hidden is not None:
        whole, other = outputs(padded.inputs), outputs(inputs.refilled(padded))
        if whole and other:
            shown = {
                name: value[~padded.hidden] for name, value in whole.items() if value.shape[:2] == padded.hidden.shape
            }
            yield from _farthest("other padding", {name: other[name][~padded.hidden] for name in shown}, shown)


def _farthest(by: str, found: Outputs, due: Outputs) -> Iterator[tuple[str, float]]:
    errors = [relative_error(found[name], value) for name, value in due.items() if name in found]
    if errors:
        yield by, far(errors)
