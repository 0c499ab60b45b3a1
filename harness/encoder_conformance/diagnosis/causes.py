"""Finds causes that are seen without a catalogue: what was not refused, an invariant broken, NaN and its origin.

One cause is said once, whatever number of cases and formats show it, with what the author of the layer would do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.diagnosis.advice import ADVICE, SENTENCES
from encoder_conformance.diagnosis.explanation import named_deviations
from encoder_conformance.diagnosis.in_sigma import sigma_of
from encoder_conformance.diagnosis.moved_items import moved_items
from encoder_conformance.diagnosis.reach import out_of_reach
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.invariants.asking import breaks
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.oracle.forms.needs import has_empty_row, rows_without_key
from encoder_conformance.protocol.answers import Answers, values_at
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind

_HUGE = 1000.0
"""An output this many times as large as the largest that is right holds what padding held, and no noise."""
FORWARD = ("output", "stages", "weights")
"""Checks of the forward pass."""
ForwardIsRight = Callable[[str, Layer], bool]


@dataclass(frozen=True)
class FailedCheck:
    """A check that failed. `message` is that of refusals and invariants; "" for others.

    `lost`: its first tensor with a value that is not finite where the golden is. `spread`: such a value is at a query
    that has keys (M-4). `huge`: a value is far larger than any that is right. `moved`: which items have the
    outputs of others, which are right; `lacking`: which keys no query attends to, where that is all.
    """

    task: Task
    message: str
    reason: Kind | None = None
    lost: str | None = None
    spread: bool = False
    huge: bool = False
    moved: str | None = None
    lacking: str | None = None

    @property
    def kind(self) -> str | None:
        """Return the key in `ADVICE` of what is seen by itself; None if numbers have to say."""
        situation, check = self.task.case.situation, self.task.check
        if self.reason == "after-refusal":
            return "after-refusal"
        if check in ("refusal", "invariant"):
            return f"{check} {situation.flaw or situation.invariant}"
        if self.moved or self.lacking:
            return "items" if self.moved else "reach"
        special = _special(self)
        if check == "gradients":
            return f"gradient {special or 'alone'}" if self.lost else None
        if special == "no-key" and self.lost:
            return "no-key spread" if self.spread else special
        return special if special == "padding" and (self.lost or situation.input.padding == "huge") else None


def failed_numbers(task: Task, record: Record, expected: Expected, answers: Answers) -> FailedCheck | None:
    """Return the failure of a check of numbers, with what its answers show beside errors; None if it did not fail."""
    if record.outcome != Outcome.FAIL or task.check in ("refusal", "invariant"):
        return None
    lost, huge, spread = None, False, False
    # In a stack such a row is a key of the next layer, and its NaN goes on to the item's other queries.
    without = rows_without_key(task.case) if task.case.layer.stack.layers == 1 else None
    for name in task.tensors:
        answer, tensor = answers.get(name), expected.tensors.get(key(task.check, name))
        if answer is None or tensor is None or answer.shape != tensor.shape or not tensor.positions.size:
            continue
        seen, finite = values_at(answer, tensor.positions).astype(np.float64), np.isfinite(tensor.golden)
        if not np.isfinite(seen[finite]).all():
            lost = lost or name
            if without is not None and answer.shape[:-1] == without.shape:
                rows = tensor.positions // answer.shape[-1]
                spread = spread or not np.isfinite(seen[finite & ~without.reshape(-1)[rows]]).all()
        with np.errstate(invalid="ignore"):
            largest = np.abs(tensor.golden[finite]).max(initial=0.0)
            huge = huge or bool(np.any(np.abs(seen[finite]) > _HUGE * max(largest, 1.0)))
    output = answers.get("output") if task.check in FORWARD else None
    tensor, moved, lacking = expected.tensors.get("output"), None, None
    if lost is None and isinstance(output, np.ndarray) and tensor is not None:  # and no sample of a large one
        seen_output = task.case, output, sigma_of(tensor, task.format), task.format
        moved = moved_items(*seen_output)
        lacking = None if moved or task.check != "output" else out_of_reach(*seen_output)
    return FailedCheck(task, "", record.kind, lost, spread, huge, moved, lacking)


def refused_or_broken(task: Task, record: Record) -> FailedCheck | None:
    """Return a refusal or an invariant that failed; None for one that got no answer, which says nothing of either.

    Nor where what is wrong is refused, and numbers are wrong without it; nor where an answer has another shape or dtype
    than it should, so that two answers were not compared.
    """
    if task.check not in ("refusal", "invariant") or record.outcome is not Outcome.FAIL:
        return None
    says_nothing = record.kind in ("beside-refusal", "shape", "dtype")
    return None if says_nothing else FailedCheck(task, record.message, record.kind)


def causes(
    name: str, failures: Sequence[FailedCheck], diagnoses: Sequence[Diagnosis], forward_is_right: ForwardIsRight
) -> Iterator[Diagnosis]:
    """Yield a diagnosis for each cause that is seen, unless an explained one of the same format accounts for it.

    `forward_is_right`: (format, layer) → whether every output and stage of it is in line."""
    explained = {each.dtype: named_deviations(each) for each in diagnoses if each.confidence == "explained"}
    found: dict[str, list[FailedCheck]] = {}
    for each in failures:
        kind = each.kind
        if kind and not _other_cause(kind, each, failures) and not _accounted(each, explained.get(each.task.dtype, ())):
            found.setdefault(kind, []).append(each)
    for kind, seen in found.items():
        right = all(forward_is_right(each.task.dtype, each.task.case.layer) for each in seen)
        yield _diagnosis(name, kind, seen, "The forward pass is right, and a" if right else "A")


def _special(each: FailedCheck) -> str | None:
    """Return what is special about the case, that NaN may come of."""
    case = each.task.case
    if case.situation.input.padding != "as_drawn":
        return "padding"
    return "no-key" if has_empty_row(case) and case.layer.attention.fully_masked_row != "nan" else None


def _other_cause(kind: str, each: FailedCheck, failures: Iterable[FailedCheck]) -> bool:
    """Whether NaN is there in cases with nothing special too; or, for a gradient, its forward pass is wrong too."""
    task = each.task
    others = [o for o in failures if o.task.dtype == task.dtype and o.task.check in FORWARD and o.lost]
    if kind == "after-refusal":  # only if the layer is right else: two answers of a layer with dropout differ too
        return any(_same_layer(o.task, task) for o in failures if o.task.check in FORWARD)
    if kind.startswith("gradient"):
        of_dtype = [o for o in failures if o.task.dtype == task.dtype]
        is_wrong = any(o.task.case.id == task.case.id and o.task.check in FORWARD for o in of_dtype)
        gradients = [o for o in of_dtype if o.task.check == "gradients" and o.lost]
        return is_wrong or (_special(each) is not None and any(_special(o) is None for o in gradients))
    if kind == "padding" and not (each.lost or each.huge):  # only numbers: it is the padding if the layer is right else
        others = [o for o in failures if o.task.check in FORWARD and _same_layer(o.task, task)]
    return kind in ("padding", "no-key", "no-key spread") and any(_special(o) is None for o in others)


def _same_layer(one: Task, other: Task) -> bool:
    return (one.dtype, one.case.layer.layer) == (other.dtype, other.case.layer.layer)


def _accounted(each: FailedCheck, deviations: Sequence[Deviation]) -> bool:
    """Whether the deviations that explain the numbers give this too."""
    task = each.task
    if not deviations or task.check == "refusal" or task.check == "gradients":
        return False
    if task.check == "invariant":
        return breaks(task, deviations)
    output = simulate(task.case, deviations)["output"]
    return not bool(np.isfinite(output[task.case.specified()]).all())


def _diagnosis(name: str, kind: str, seen: Sequence[FailedCheck], a: str) -> Diagnosis:
    """`a`: how a sentence on gradients begins."""
    first = seen[0]
    sentence = SENTENCES.get(kind) or SENTENCES[kind.split()[0]]
    message = first.message or first.moved or first.lacking or first.lost or f"{first.task.check}"
    return Diagnosis(
        implementation=name,
        dtype=", ".join(sorted({each.task.dtype for each in seen})),
        confidence="seen",
        cause="-".join(kind.replace("_", "-").split()),
        sentences=(sentence.format(seen=message, a=a),),
        advice=f"{ADVICE[kind]} ({', '.join(_clauses(first))})",
        first_stage=first.lost,
        cases=tuple(dict.fromkeys(each.task.case.id for each in seen)),
    )


def _clauses(each: FailedCheck) -> tuple[str, ...]:
    special = {"no-key": ("M-4",), "padding": ("M-8",)}.get(_special(each) or "")
    return special if special and each.task.check not in ("refusal", "invariant") else each.task.case.situation.clauses
