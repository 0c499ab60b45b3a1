"""Choices that a layer has no key for: the number that hides a position, and the formula of a norm's deviation.

Where a module that nobody stated is right but for these, it does what its owner wrote. That is verified, and said in a
warning.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from encoder_conformance.commands.check.declared import declared_from
from encoder_conformance.judging.loop import Unseen, judge
from encoder_conformance.judging.records import Diagnosis, Record
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.forms.norm import ANOTHER_DEVIATION
from encoder_conformance.protocol.description import NORM_FORM, Fact
from encoder_conformance.protocol.findings import Finding, said_at, source_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.reason import Reason
from encoder_conformance.subjects.plan import plan
from encoder_conformance.subjects.subject import Subject

_OUTBID = "with scores of ten million it is outbid"
_CANCELLED = "where features are far from zero little of the variance is left"
_UNBIASED = "each normed feature is one part in 2 D smaller"
_OUTSIDE = "where features hardly vary they come out otherwise"
CHOICES = {
    **dict.fromkeys(("mask-filled-minus-1e9", "mask-added-minus-1e9", "mask-filled-lowest"), _OUTBID),
    **dict.fromkeys(("mask-filled-minus-1e20", "mask-added-minus-1e12", "mask-filled-minus-1e4"), _OUTBID),
    **dict.fromkeys(("mask-added-minus-1e10", "mask-added-minus-1e4", "mask-filled-and-zeroed"), _OUTBID),
    "norm-fast-variance": _CANCELLED,
    "norm-unbiased-eps-outside-root": _UNBIASED,
    "norm-unbiased-variance": _UNBIASED,
    "norm-eps-outside-root": _OUTSIDE,
}
"""What hides, of the scores that occur, and the formula of a norm's deviation → where it shows. −10 is none: it leaves
a part of what it hides."""
_OF_CAUSAL = {"buckets-one-way": "a decoder has no later keys whose distance it would tell"}
"""What is a choice where no position sees a later one, as T5's decoder makes it, and a mistake where some do."""
_EVERY = {**CHOICES, **_OF_CAUSAL}
_ORDER = [*_EVERY]
_OR_ANOTHER = {name: ", or another number that hides as much" for name, shown in CHOICES.items() if shown == _OUTBID}
"""What is said of a number that was not read, and that others give the same outputs as."""
_OF_ROUNDING = ("norm-fast-variance",)
"""Whose error is one of rounding, and so in every format about as many of its σ. The catalogue foretells float32's."""
_NUMBERS = tuple(name for name, shown in CHOICES.items() if shown == _OUTBID)
_OUTBID_IN = 2
"""The most situations whose scores outbid such a number."""
_FEW = 4
"""The most answers that a number which hides explains where a formula explains all others."""
_ALIKE = 4.0
"""Times the σ of float32 that the error of such a choice comes to in float64, at most; one of value comes to 2^29."""


@dataclass(frozen=True)
class Chosen:
    """The deviations that are chosen, the records with those that they explain, and what is said of it."""

    names: tuple[str, ...]
    records: tuple[Record, ...]
    finding: Finding


def number_that_hides(
    subject: Subject, cases: Sequence[Case], records: Sequence[Record], expected: Callable[[Case], Expected]
) -> Chosen | None:
    """The number alone that hides a position, of a module whose outputs are wrong in no more situations than outbid
    it. It is tried before anything else is looked for, which takes a search of the whole catalogue. One that chooses
    by its format, −1e9 in float32 and −1e4 in others, has a number in each."""
    failed = [record for record in records if record.outcome not in EXPECTED]
    of_gradients = any(record.check == "gradients" for record in failed)
    if not failed or of_gradients or len({record.case for record in failed}) > _OUTBID_IN:
        return None

    def first(of: Sequence[Record]) -> Chosen | None:
        tried = (judged_with((name,), subject, cases, of, expected) for name in _NUMBERS)
        return next(filter(None, tried), None)

    return first(records) or _number_of_each_format(subject, records, first)


def _number_of_each_format(
    subject: Subject, records: Sequence[Record], first: Callable[[Sequence[Record]], Chosen | None]
) -> Chosen | None:
    """`first`: of records, the first number that explains what failed."""
    formats = dict.fromkeys(record.dtype for record in records if record.outcome not in EXPECTED)
    found = {dtype: first([record for record in records if record.dtype == dtype]) for dtype in formats}
    each = {dtype: one for dtype, one in found.items() if one is not None}
    if len(each) < max(2, len(formats)):
        return None
    replaced = {record.key: record for one in each.values() for record in one.records}
    names = {name: dtype for dtype, one in each.items() for name in one.names}
    wrong = {record.case for record in records if record.outcome not in EXPECTED}
    finding = _finding([*names], subject.as_module, len(wrong), 0, names)
    return Chosen((*names,), tuple(replaced.get(record.key, record) for record in records), finding)


def chosen(
    subject: Subject,
    cases: Sequence[Case],
    records: Sequence[Record],
    diagnoses: Sequence[Diagnosis],
    expected: Callable[[Case], Expected],
    *,
    own_gradients: bool = False,
) -> Chosen | None:
    """None where another cause is left, or nothing failed. What failed is asked again, as the choices predict it.

    Those that its graph shows it to make are tried, too: numbers alone do not tell them of a wide layer.
    `own_gradients`: whether the module's gradients are known to be the changes of its output. Only then one that fails,
    and has nothing to be judged by, is left out; or where a choice is of rounding, and gradients are right where
    outputs are."""
    failed = [record for record in records if record.outcome not in EXPECTED]
    described = subject.description
    known = _EVERY if isinstance(described, ModuleDescription) and described.causal else CHOICES
    fitting = [_choices_of(each, known) for each in diagnoses]
    if not failed or not fitting:
        return None
    right_else = _gradients_hold(records)
    read = norms_read(described.facts if described is not None else ())
    for names in (*(_tried(fitting) if all(fitting) else ()), *_with_read(read, diagnoses)):
        # The gradients of a norm by another deviation are others everywhere.
        own = own_gradients or (right_else and not any(map(_is_deviation_of_norm, names)))
        again = partial(_asked_again, subject=subject, cases=cases, expected=expected, own_gradients=own)
        replaced = again(names, records)
        if found := _as_chosen(names, subject, records, replaced):
            return found
        if number := _number_beside(names, records, replaced, again):
            names = sorted({*names, number}, key=_ORDER.index)
            return _as_chosen(names, subject, records, again(names, records))
    wide = _rounded_alike(records)
    left = [_choices_of(each) for each in diagnoses if each.dtype != "float64"]
    if not wide or not left or not all(_OF_ROUNDING in each for each in left):
        return None
    return judged_with(_OF_ROUNDING, subject, cases, [wide.get(each.key, each) for each in records], expected)


def with_usual_number_first(found: Diagnosis) -> Diagnosis:
    """The same, with the first of the numbers that hide named, of those that these cases cannot tell apart: where a
    module chooses it, that is the one which is said."""
    alike = (found.deviations, *found.indistinguishable)
    if len(alike) == 1 or any(len(names) != 1 or names[0] not in _NUMBERS for names in alike):
        return found
    first, *others = sorted(alike, key=lambda names: _ORDER.index(names[0]))
    named = {"deviations": first, "sentences": (catalogue()[first[0]].sentence,)}
    return found.model_copy(update={**named, "indistinguishable": tuple(others)})


def norms_read(facts: Sequence[Fact]) -> list[str]:
    """The choices of a norm that the graph shows."""
    return [name for each in facts if each.key == NORM_FORM for name in CHOICES if {each.value} == _forms_of(name)]


def _forms_of(name: str) -> set[str]:
    """The forms that a deviation makes of the steps that it changes."""
    return {*catalogue()[name].patch.steps.values()}


def _is_deviation_of_norm(name: str) -> bool:
    return _forms_of(name) <= {*ANOTHER_DEVIATION}


def _gradients_hold(records: Sequence[Record]) -> bool:
    """Whether gradients were asked, and are right wherever what the module gives is right in the same format."""
    off = {(each.dtype, each.case) for each in records if each.check != "gradients" and each.outcome not in EXPECTED}
    asked = [each for each in records if each.check == "gradients" and (each.dtype, each.case) not in off]
    passed = any(each.outcome is Outcome.PASS for each in asked)
    return passed and all(each.outcome in EXPECTED for each in asked)


def _with_read(read: Sequence[str], diagnoses: Sequence[Diagnosis]) -> Iterator[list[str]]:
    """What was read, with what explains the formats that something explains, where no other cause does."""
    explained = [each for each in diagnoses if each.confidence == "explained"]
    if read and all(map(_choices_of, explained)):
        named = {name for each in explained for name in _choices_of(each)[0]}
        yield sorted({*read, *named}, key=_ORDER.index)


def _rounded_alike(records: Sequence[Record]) -> dict[tuple[str, ...], Record]:
    """Each wrong answer in float64, as one that deviates so, where all are as far off, in σ, as those in float32 to the
    same questions, and begin alike: an error that shrinks as the roundoff does is one of rounding."""
    failed = {(each.dtype, each.case, each.check): each for each in records if each.outcome not in EXPECTED}
    found = {}
    for (dtype, case, check), record in failed.items():
        if dtype == "float64":
            narrow = failed.get(("float32", case, check))
            if narrow is None or not (_begins_alike(record, narrow) and _no_larger(record.rms, narrow.rms)):
                return {}
            changed = {"outcome": Outcome.DEVIATES, "deviations": _OF_ROUNDING, "message": "", "rms": None, "max": None}
            found[record.key] = record.model_copy(update=changed)
    return found


def explained_in_both(records: Sequence[Record], diagnoses: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """The same, where what float64 has no cause for is the rounding that explains float32: as many of its own σ."""
    narrow = next((each for each in diagnoses if each.dtype == "float32" and _OF_ROUNDING in _choices_of(each)), None)
    if narrow is None or not _rounded_alike(records):
        return tuple(diagnoses)
    wide = narrow.model_copy(update={"dtype": "float64"})
    return tuple(wide if (each.dtype, each.confidence) == ("float64", "unknown") else each for each in diagnoses)


def _begins_alike(one: Record, other: Record) -> bool:
    """Whether both are right up to the same stage, or to one of those that the choice changes."""
    changed = catalogue()[_OF_ROUNDING[0]].patch.steps
    first = [(each.stage or "").rpartition(".")[2] for each in (one, other)]
    return first[0] == first[1] or set(first) <= changed.keys()


def _no_larger(rms: float | None, narrow: float | None) -> bool:
    return rms is not None and narrow is not None and rms <= _ALIKE * narrow


Again = Callable[[Sequence[str], Sequence[Record]], tuple[Record, ...]]
"""(deviations, records) → the records, with what failed asked again and judged as these deviations predict it."""


def judged_with(
    names: Sequence[str],
    subject: Subject,
    cases: Sequence[Case],
    records: Sequence[Record],
    expected: Callable[[Case], Expected],
) -> Chosen | None:
    """What failed, asked again and judged as these deviations predict it; None where that does not explain all."""
    replaced = _asked_again(names, records, subject=subject, cases=cases, expected=expected)
    return _as_chosen(names, subject, records, replaced)


def _as_chosen(
    names: Sequence[str], subject: Subject, records: Sequence[Record], replaced: Sequence[Record]
) -> Chosen | None:
    if not all(record.outcome in EXPECTED for record in replaced):
        return None
    changed = [(one, other) for one, other in zip(records, replaced, strict=True) if one.outcome not in EXPECTED]
    wrong = {one.case for one, _ in changed}
    unjudged = sum(other.outcome is Outcome.UNSUPPORTED for _, other in changed)
    return Chosen(tuple(names), tuple(replaced), _finding(names, subject.as_module, len(wrong), unjudged))


def _number_beside(
    names: Sequence[str], records: Sequence[Record], replaced: Sequence[Record], again: Again
) -> str | None:
    """The number that hides which explains, with these, what they leave; None where they leave more than any does."""
    left = [record for record in replaced if record.outcome not in EXPECTED]
    hides = any(_EVERY[each] == _OUTBID for each in names)
    if hides or len(left) > _FEW or not any(map(_is_deviation_of_norm, names)):
        return None
    cases = {record.case for record in left}
    of_left = [record for record in records if record.case in cases]
    for number in _NUMBERS:
        if all(record.outcome in EXPECTED for record in again([*names, number], of_left)):
            return number
    return None


def _asked_again(
    names: Sequence[str],
    records: Sequence[Record],
    *,
    subject: Subject,
    cases: Sequence[Case],
    expected: Callable[[Case], Expected],
    own_gradients: bool = False,
) -> tuple[Record, ...]:
    assert subject.implementation is not None
    failed = {record.key: record for record in records if record.outcome not in EXPECTED}
    wrong = {record.case for record in failed.values()}
    asked = {(record.dtype, record.check) for record in records}
    known = subject.implementation.model_copy(update={"deviations": declared_from(names)})
    again = Subject(**{**vars(subject), "implementation": known})
    of_wrong = [case for case in cases if case.id in wrong]
    tasks = [task for task in again.tasks(of_wrong) if (task.dtype, task.check) in asked]
    found = {answer.record.key: answer.record for answer in judge(again, tasks, expected, Unseen())}
    unjudged = dict(_not_judged(again, of_wrong, failed)) if own_gradients else {}
    return tuple({**unjudged, **found}.get(record.key, record) for record in records)


def _not_judged(
    subject: Subject, cases: Sequence[Case], failed: Mapping[tuple[str, ...], Record]
) -> Iterator[tuple[tuple[str, ...], Record]]:
    """What failed and has nothing to be judged by now: no gradient is specified for a deviation."""
    assert subject.implementation is not None
    why: dict[tuple[str, ...], Reason] = {
        (task.case.id, task.dtype, task.check): task.opt_out
        for task in plan(subject.implementation, list(cases))
        if task.opt_out
    }
    for key, record in failed.items():
        if reason := why.get((record.case, record.dtype, record.check)):
            changed = {"outcome": Outcome.UNSUPPORTED, "message": reason.text, "kind": reason.kind}
            yield key, record.model_copy(update={**changed, "rms": None, "max": None, "stage": None, "tensors": ()})


def _tried(fitting: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[list[str]]:
    """What every diagnosis names; then all that any of them does, for one format may not show what another does."""
    shared = set.intersection(*map(set, fitting))
    yield from (list(names) for names in sorted(shared, key=lambda names: (len(names), *map(_ORDER.index, names))))
    every = sorted({name for several in fitting for name in several[0]}, key=_ORDER.index)
    if tuple(every) not in shared:
        yield every


def _choices_of(diagnosis: Diagnosis, known: Mapping[str, str] = CHOICES) -> tuple[tuple[str, ...], ...]:
    """The choices that explain it, one or several together, of those `known`; () where something else is needed,
    too."""
    found = (diagnosis.deviations, *diagnosis.indistinguishable) if diagnosis.confidence == "explained" else ()
    return tuple(several for several in found if several and set(several) <= known.keys())


def _line(name: str, described: ModuleDescription) -> str:
    """The line of source that makes this choice so; "" where it is not known."""
    masks = (described.line_of_fill(mask.argument) for mask in described.masks)
    norms = (described.lines.get(key, "") for key in ("norm.epsilon", "norm.kind"))
    return "" if name in _OF_CAUSAL else next(filter(None, masks if name.startswith("mask-") else norms), "")


def _finding(
    names: Sequence[str],
    described: ModuleDescription,
    cases: int,
    unjudged: int,
    formats: Mapping[str, str] = MappingProxyType({}),
) -> Finding:
    """`formats`: those in which alone a choice is made."""
    lines = {name: _line(name, described) for name in names}
    called = {name: f"{name} in {formats[name]}" if name in formats else name for name in names}
    said = "; ".join(f"{called[name]}: {_sentence(name)}{said_at(line)}" for name, line in lines.items())
    shown = "; ".join(dict.fromkeys(_EVERY[name] for name in names))
    hint = f"{shown}, and so in {cases} of the situations: it is judged as that there"
    about: dict[str, object] = {"deviations": [*names], "cases": cases, "gradients_not_judged": unjudged}
    count = f"{unjudged} gradient{'s are' if unjudged > 1 else ' is'}"
    left = f"; {count} not judged: none is specified for that" if unjudged else ""
    message = f"a choice of its own, {said}{left}"
    about |= source_of(next(filter(None, lines.values()), ""))
    return Finding(severity="warning", kind="choice-of-its-own", message=message, hint=hint, about=about)


def _sentence(name: str) -> str:
    return f"{catalogue()[name].sentence.rstrip('.')}{_OR_ANOTHER.get(name, '')}"
