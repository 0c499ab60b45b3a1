"""The evidence of a validation: the file as it is described, and the answers of every runtime."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from encoder_conformance.commands.validate.rounding.results import Rounding
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.arguments import MaskMeaning
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import Phase, PhaseFinding
from encoder_conformance.protocol.messages import MOST_NODES
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, Format, dtype_named, narrower
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import unlike
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.subject import Subject, SubjectRequest
from encoder_conformance.worker.limits import WorkerLimits


@dataclass(frozen=True)
class ValidationRequest:
    """The file, and what the user states of it: None and empty where that is to be inferred.

    `strict`: a warning fails the validation, as an error does. `against`: what the file was made from.
    `limits`: of each worker; `seconds`: for looking into the file, and for each answer; None: the manifest's.
    `fix`: where to write the file with what is mechanical mended. `deviations`: ids of the catalogue, what the file
    does otherwise than the specification on purpose. `most_nodes`: the most that are read, functions inlined.
    `data`: the user's own inputs, FILE.npz or SCRIPT.py.
    """

    model: Path
    layer: Layer | None
    parameters: Mapping[str, Array] | None
    mask: MaskMeaning | None
    runtimes: tuple[str, ...]
    pythons: Mapping[str, str]
    limit: float | None
    strict: bool = False
    against: SubjectRequest | None = None
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    seconds: float | None = None
    fix: Path | None = None
    deviations: tuple[str, ...] = ()
    most_nodes: int = MOST_NODES
    data: str | None = None


@dataclass(frozen=True)
class ExaminedFile:
    """The file: its description, its parameters, and the layer that it should be."""

    request: ValidationRequest
    description: FileDescription
    parameters: Mapping[str, Array]

    @property
    def layer(self) -> Layer | None:
        """The stated layer, else the inferred one."""
        return self.request.layer or self.description.layer

    @cached_property
    def is_understood(self) -> bool:
        """Whether its layer, its inputs and a known dtype were found."""
        roles = self.description.roles
        return self.description.layer is not None and roles is not None and self._output_dtype in FORMATS

    @cached_property
    def misfit(self) -> str | None:
        """Why the file's parameters are not those of the stated layer."""
        if self.request.layer is None:
            return None
        return unlike(self.request.layer, {name: value.shape for name, value in self.parameters.items()})

    @property
    def can_be_judged(self) -> bool:
        if not self.is_understood or self.misfit or self._output_dtype != self._x_dtype:
            return False
        inferred, layer = self.description.layer, self.layer
        return bool(inferred and layer and inferred.attention.num_heads == layer.attention.num_heads)

    @property
    def _x_dtype(self) -> str:
        assert self.description.roles is not None
        return self.description.port(self.description.roles.x).dtype

    @property
    def _output_dtype(self) -> str:
        """The output's; x's, where an encoder was cut out of a file which widens what it gives (`keep_io_types`)."""
        roles = self.description.roles
        assert roles is not None
        x, output = (self.description.port(name).dtype for name in (roles.x, roles.output))
        narrow = x in FORMATS and output in FORMATS and FORMATS[x].roundoff > FORMATS[output].roundoff
        return x if narrow and self.description.cut is not None else output

    @cached_property
    def dtype(self) -> DtypeName:
        return dtype_named(self._output_dtype)

    @cached_property
    def integers(self) -> str | None:
        """The commonest format of its integer weights; None where it has none and rounds no activation.

        σ, which is of floating-point arithmetic, says nothing of such a file as it is. Even where only weights are
        integers, ONNX Runtime's optimiser may round activations, too.
        """
        stored = [name for name in self.description.stored().values() if name not in FORMATS]
        if stored:
            return max(stored, key=stored.count)
        held = self.description.quantisation
        if held is not None and held.weights:
            return max(held.weights, key=lambda each: each.count).stored
        return "int8" if self.description.quantised or held is not None else None

    @cached_property
    def rounded_as(self) -> DtypeName | None:
        """The format that the file computes in, where it is narrower than `dtype`."""
        return narrower(self.parameters, self.dtype)

    @property
    def format(self) -> Format:
        """The dtype of its output, with the roundoff of the format that it computes in."""
        return FORMATS[self.dtype].computed_in(FORMATS[self.rounded_as or self.dtype])

    def rounded(self, value: float) -> float:
        """A constant as the format that the file computes in holds it."""
        return float(np.asarray(value).astype(FORMATS[self.rounded_as or self.dtype].numpy))


@dataclass(frozen=True)
class Answers:
    """The cases of each phase, the expected results by case, and the runs that answered them."""

    cases: Mapping[Phase, Sequence[Case]]
    expected: Mapping[str, Expected]
    runs: Sequence[RuntimeRun]

    @property
    def working(self) -> list[RuntimeRun]:
        return [run for run in self.runs if run.is_working]

    @property
    def in_sigma(self) -> Sequence[RuntimeRun]:
        """The runs whose numbers σ judges: of integers, that of the numbers that they stand for."""
        return [run for run in self.runs if run.as_numbers] or self.runs

    @property
    def first_working(self) -> RuntimeRun | None:
        """The first run that works, of those whose numbers σ judges."""
        return next((run for run in self.in_sigma if run.is_working), None)

    @property
    def of_the_file(self) -> list[RuntimeRun]:
        """The runs of the file as it is."""
        return [run for run in self.runs if not run.as_numbers]


def distinct(cases: Mapping[Phase, Sequence[Case]]) -> list[Case]:
    """The cases of all phases, each once."""
    return list({case.id: case for of_phase in cases.values() for case in of_phase}.values())


@dataclass(frozen=True)
class Compared:
    """One check of one case that file and source both answered; neither is taken to be right.

    `verdicts` are on the difference, in √2 σ, its noise, in the order of stages. `off`: whether the file and the source
    are out of line with the oracle.
    """

    case: Case
    check: Check
    verdicts: tuple[TensorVerdict, ...]
    off: tuple[bool, bool]

    @property
    def first_apart(self) -> TensorVerdict | None:
        """The first tensor in which they differ; None if they agree."""
        return next((verdict for verdict in self.verdicts if not verdict.conforms), None)

    @property
    def agrees(self) -> bool:
        return self.first_apart is None


@dataclass(frozen=True)
class ValidationEvidence:
    """`answers` is None where the file cannot be judged as a layer. `compared`: what the file and its `source` both
    answered. `whole`: both from the first input to the last output; None: no source was named. `unopened`: why the
    source was not compared stage by stage. `rounding`: of a file of integers, `not_rounded` why it was not measured.
    `as_source`: its numbers are those of a source that is not opened, also where its values are far from zero.
    `choice`: that both are right but for a choice that a layer has no key for, and were judged as that."""

    subject: ExaminedFile
    answers: Answers | None
    source: Subject | None = None
    compared: Sequence[Compared] = ()
    whole: WholeComparison | None = None
    unopened: str = ""
    rounding: Rounding | None = None
    not_rounded: str = ""
    choice: PhaseFinding | None = None
    as_source: bool = False

    @property
    def description(self) -> FileDescription:
        return self.subject.description

    @property
    def wrong_runtimes(self) -> tuple[str, ...]:
        """The runs that are wrong with a right file: some that follows it to the letter conforms in every check, and
        none of these is out of line; or one of these has the outputs of its source too, whatever another has. Such a
        run that does not load the file, or raises where another answers, says nothing of it."""
        if self.answers is None and self.whole is not None:
            failed = [run.name for run, why in self.whole.failures if not run.lacks_operators_of(self.description, why)]
            return (*self.whole.wrong_runs, *failed) if self.whole.is_right else ()
        if self.answers is None or self.subject.integers:  # σ says nothing of a file with integers as it is
            return ()
        asked = [
            run for run in self.answers.of_the_file if run.answers and not run.lacks_operators_of(self.description)
        ]
        literal = [run for run in asked if run.is_literal and run.is_working and not run.raises_alone]
        if self.whole is not None and self.whole.is_right:
            apart = {each.run.name for each in self.whole.apart}
            if not any(run.conforms and run.name not in apart for run in literal):
                return self.whole.wrong_runs
            return tuple(run.name for run in asked if run.name in apart or not (run.is_working and run.conforms))
        if not literal or not all(run.conforms for run in literal):
            return ()
        return tuple(run.name for run in asked if run not in literal and not (run.is_working and run.conforms))


class Assessment:
    """A phase's findings, its summary in a few words, and why it asked nothing; "" for both where the file did not get
    so far."""

    def __init__(self, summary: str = "", findings: Iterable[PhaseFinding] = (), not_asked: str = "") -> None:
        self.summary, self.findings, self.not_asked = summary, tuple(findings), not_asked
