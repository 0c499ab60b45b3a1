"""What a source answers in float64, and σ of each of its outputs, as measured on a computation in several precisions.

σ is what a lower precision makes of the same inputs, and what float64 makes of parameters and inputs that are another
by up to half a unit in the last place of the file's format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.first_apart import FirstApart, first_apart
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.traced_call import TracedCall
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.protocol.messages import Call, Precision, Trace
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.words import listed
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_DISTURBED = 8
"""Runs of the source with other last places."""


class Source:
    """The source that is called: a module, or another file."""

    def __init__(self, request: SubjectRequest, session: Session, held: DtypeName) -> None:
        self.request, self.session, self.held = request, session, held
        path = str((request.folder / request.target).absolute())
        named = {"arguments": dict(request.arguments), "folder": str(request.folder), "at": request.at}
        is_file = request.target.endswith(".onnx")
        self._named = {"target": path} if is_file else {"target": request.target, **named}
        self.given: dict[str, str] = {}
        self.in_order: tuple[str, ...] = ()
        """The inputs of which nothing but their order says which arguments they are."""
        self.order: dict[str, str] = {}
        """Input → the argument that it is given as, where that was found out."""
        self.left: tuple[str, ...] = ()
        """The arguments that the last call that was answered left at their defaults."""

    def outputs(
        self, inputs: Outputs, precision: Precision, seed: int | None = None, *, kept: bool = True
    ) -> Outputs | Failure:
        """`kept`: whether the copy that answers is kept in the worker for the next call."""
        roundoff = FORMATS[self.held].roundoff
        named = {self.order.get(name, name): value for name, value in inputs.items()}
        asked = Call(**self._named, inputs=tuple(named), precision=precision, seed=seed, roundoff=roundoff, kept=kept)
        answer = self.session.call(asked, named)
        if isinstance(answer, Failure):
            return answer
        called, tensors = answer
        given = {name: called.given.get(self.order.get(name, name), name) for name in inputs}
        self.given = {name: argument for name, argument in given.items() if name != argument}
        self.in_order = self.in_order or called.in_order
        self.left = called.left
        return {name: tensors[name] for name in called.outputs}

    def traced(self, inputs: Outputs, precision: Precision) -> TracedCall | Failure:
        """What it computes inside."""
        named = {self.order.get(name, name): value for name, value in inputs.items()}
        answer = self.session.trace(Trace(**self._named, inputs=tuple(named), precision=precision), named)
        return answer if isinstance(answer, Failure) else TracedCall.of(answer[0].steps, answer[1])

    @property
    def how_given(self) -> str:
        """What was assumed of the inputs whose names are not its own; "" for none."""
        if not self.given:
            return ""
        said = ", ".join(f"{name!r} as {argument}" for name, argument in self.given.items())
        if self.order:
            return f"{said}: no name says which they are, and so its outputs are the nearest to the file's"
        by_order = listed([repr(name) for name in self.in_order]) if self.in_order else ""
        return f"{said}: by what their names say" + (f", and {by_order} in order" if by_order else "")


@dataclass(frozen=True)
class ExpectedOutputs:
    """What the source answers in float64, and σ of each of its outputs."""

    case: WholeCase
    outputs: Outputs
    sigma: Mapping[str, float]


@dataclass(frozen=True)
class RaisedCase:
    """A case in which the source raises, and what."""

    case: str
    raised: str

    def __str__(self) -> str:
        return f"{self.case}: the source raises {self.raised}"


class Measure:
    """What the source does, asked in float64, in the file's format, and disturbed.

    `widest`: float64; float32 where the source computes in no wider format, as a layer of Keras with its policy, or has
    numbers in float32 alone, as a mask of PyTorch made by bool · finfo(float64).min, which is float32's −∞ · 0.
    """

    widest: Precision = "float64"

    def __init__(self, source: Source, *, few: bool) -> None:
        self._source, self._seeds = source, range(2 if few else _DISTURBED)
        self.failed: list[RaisedCase] = []
        self._first: Outputs | None = None
        self.changed: Finding | None = None
        """Why its answers are no measure after all: it gave another once it had answered the others."""

    def unfit(self, case: WholeCase) -> Finding | None:
        """Why its answers are no measure: it cannot be called so, or answers another thing each time."""
        name = self._source.request.target
        one = self._source.outputs(case.inputs, "float64")
        if isinstance(one, Failure):
            refused = one.message.splitlines()[0]
            one, self.widest = self._source.outputs(case.inputs, "float32"), "float32"
            if isinstance(one, Failure):
                return noted("source-not-callable", f"{name} could not be called with the file's inputs: {refused}")
        elif not _is_finite(one):
            narrow = self._source.outputs(case.inputs, "float32")
            if not isinstance(narrow, Failure) and _is_finite(narrow):
                one, self.widest = narrow, "float32"
        two = self._source.outputs(case.inputs, self.widest)
        if isinstance(two, Failure):
            again = two.message.splitlines()[0]
            return noted("source-not-repeatable", f"{name} answers once, and not again: {again}")
        if not one:
            return noted("source-not-callable", f"{name} returns no tensor")
        if not _are_the_same(one, two):
            return noted("source-not-repeatable", f"{name} answers the same inputs otherwise the second time")
        self._first = one
        return None

    def first_taken(self, cases: Sequence[WholeCase]) -> list[WholeCase]:
        """The first of some cases that the source has numbers for, if there is one: after `unfit`."""
        answers = ((each, self._source.outputs(each.inputs, self.widest)) for each in cases)
        taken = (each for each, answer in answers if not isinstance(answer, Failure) and _is_finite(answer))
        return list(islice(taken, 1))

    def expected(self, cases: Sequence[WholeCase], progress: Progress) -> list[ExpectedOutputs]:
        """Of each case that it answers; the first is that of `unfit`. Seeds go outside, for the worker keeps
        the last copy of a module alone, and none in the end."""
        right = {case.name: self._asked(case, self.widest) for case in cases}
        again = self._source.outputs(cases[0].inputs, self.widest)
        before = right[cases[0].name] if self._first is None else self._first
        if before is not None and (isinstance(again, Failure) or not _are_the_same(before, again)):
            message = f"{self._source.request.target} answers the same inputs otherwise after others"
            self.changed = noted("source-not-repeatable", message)
            return []
        errors: dict[str, list[Outputs]] = {name: [] for name, answer in right.items() if answer is not None}
        kept = [case for case in cases if case.name in errors]
        for case in kept:
            narrow = self._source.outputs(case.inputs, self._source.held)
            if not isinstance(narrow, Failure):  # some operators have no kernel in a narrow format
                errors[case.name].append(narrow)
        for seed in self._seeds:
            for case in kept:
                is_last = seed == self._seeds[-1] and case is kept[-1]
                disturbed = self._source.outputs(self._noisy(case, seed), self.widest, seed, kept=not is_last)
                if not isinstance(disturbed, Failure):
                    errors[case.name].append(disturbed)
                if seed == self._seeds[-1]:
                    progress.step(case.name)
        return [self._measured(case, right[case.name] or {}, errors[case.name]) for case in kept]

    def _noisy(self, case: WholeCase, seed: int) -> Outputs:
        """The inputs, the values among them another by up to half a unit in the last place of the file's format."""
        rng, roundoff = np.random.default_rng(seed), FORMATS[self._source.held].roundoff
        wide = {name: case.inputs[name].astype(np.float64) for name in case.values}
        noisy = {name: value * (1.0 + roundoff * rng.uniform(-1.0, 1.0, value.shape)) for name, value in wide.items()}
        return {**case.inputs, **noisy}

    def _asked(self, case: WholeCase, precision: Precision) -> Outputs | None:
        answer = self._source.outputs(case.inputs, precision)
        if isinstance(answer, Failure):
            self.failed.append(RaisedCase(case.name, answer.message.splitlines()[0]))
            return None
        return answer

    def _measured(self, case: WholeCase, right: Outputs, others: Sequence[Outputs]) -> ExpectedOutputs:
        roundoff = FORMATS[self._source.held].roundoff
        sigma = {
            name: _sigma(value, [each[name] for each in others if name in each], roundoff * _roundings(value, case))
            for name, value in right.items()
        }
        return ExpectedOutputs(case, right, sigma)


def _are_the_same(one: Outputs, two: Outputs) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)


def _is_finite(outputs: Outputs) -> bool:
    return all(bool(np.isfinite(value.astype(np.float64)).all()) for value in outputs.values())


def _roundings(output: Array, case: WholeCase) -> float:
    """How many roundings of an output [*shape] every file makes: one. Of one that has no positions a runtime may sum up
    all S one after the other: each sum is rounded on the way to the whole, which grows to the power of 3/2 of S."""
    return max(1.0, np.sqrt(case.sequence / 3)) if output.ndim < 3 else 1.0


def _sigma(right: Array, others: Sequence[Array], least: float) -> float:
    """The root of the mean square by which others differ, where all are finite; no less than the roundings of the
    output that every file makes, `least` at most. `right` and others [*shape]; what has another shape is left out."""
    wide = right.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = [np.square(other.astype(np.float64) - wide) for other in others if other.shape == right.shape]
    finite = np.isfinite(wide)
    squares = [each[np.isfinite(each) & finite] for each in apart]
    pooled = float(np.mean(np.concatenate(squares))) if squares and any(each.size for each in squares) else 0.0
    rounded = np.mean(np.square(wide[finite])) * least**2 / 3 if finite.any() else 0.0
    return float(np.sqrt(max(pooled, float(rounded))))


def where_apart(mine: Source, right: Source, inputs: Outputs) -> FirstApart | str | None:
    """The first step of `mine`, called as it is, that is none of `right`'s; why that is not known; None: none is."""
    own, wide, narrow = (
        mine.traced(inputs, "own"),
        right.traced(inputs, "float64"),
        right.traced(inputs, right.held),
    )
    if isinstance(narrow, Failure):  # some operators have no kernel in it
        narrow = TracedCall((), {})
    failed = next((each for each in (own, wide) if isinstance(each, Failure)), None)
    if failed is not None:
        return failed.message.splitlines()[0]
    assert not isinstance(own, Failure)
    assert not isinstance(wide, Failure)
    return first_apart(own, wide, narrow, right.held)
