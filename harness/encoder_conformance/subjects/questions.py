"""The questions of one layer at one level, to a program that answers with a file.

A case whose tensors are those of another, because it only gives them in another format, is asked once.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.tensors import ASKED, COTANGENT, PARAMETERS, digest_of, question_tensors
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.strict import Frozen
from encoder_conformance.subjects.plan import select

ANSWERABLE: frozenset[Check] = frozenset({"output", "stages", "gradients"})
"""The checks that one question and one answer make. The others ask several times, or want an error."""


class Asking(Frozen):
    """The metadata `asking` of a file of questions: what it takes to make the same questions again."""

    format: Literal["encoder-conformance questions"] = "encoder-conformance questions"
    version: Literal[1] = 1
    layer: Layer
    level: Level
    dtypes: tuple[DtypeName, ...]
    seed: int


@dataclass(frozen=True)
class TensorQuestion:
    """One case in one dtype. `id`: GROUP/NUMBER; the questions of a group share their parameters."""

    id: str
    case: Case
    dtype: DtypeName
    tensors: Tensors
    checks: tuple[Check, ...]

    @property
    def group(self) -> str:
        return self.id.partition("/")[0]


@dataclass(frozen=True)
class Questions:
    """All questions of an asking, and the parameters of each group."""

    asking: Asking
    questions: tuple[TensorQuestion, ...]
    parameters: Mapping[str, Tensors]

    def tensors(self) -> Tensors:
        """Every tensor of the file, by its name there."""
        named = {f"{q.id}/{name}": value for q in self.questions for name, value in q.tensors.items()}
        for group, parameters in self.parameters.items():
            named |= {f"{group}/{PARAMETERS}/{name}": value for name, value in parameters.items()}
        return named

    @cached_property
    def digest(self) -> np.ndarray[Any, Any]:
        """[32] uint8, of every tensor and of the asking."""
        return np.frombuffer(digest_of(self.tensors(), self.asking.model_dump_json()), np.uint8)

    def file(self) -> tuple[Tensors, dict[str, str]]:
        """Tensors and metadata of the file. `questions` in the metadata tells which case a question is of."""
        described = {q.id: {"case": q.case.id, "dtype": q.dtype, "checks": list(q.checks)} for q in self.questions}
        metadata = {"asking": self.asking.model_dump_json(), "questions": json.dumps(described)}
        return {**self.tensors(), ASKED: self.digest}, metadata


def cases_of(layer: Layer, level: Level, seed: int) -> list[Case]:
    """The layer in the situations of its family. In the core are those that the core asks of any layer."""
    specification = load()
    in_core = {name.partition("/")[2] for name in specification.core}
    fitting = [each for each in specification.situations.values() if each.fits(layer)]
    cases = [Case(layer, each, seed, in_core=each.situation in in_core) for each in fitting]
    return select({case.id: case for case in cases}, (), level)


def questions_of(asking: Asking, expected: Mapping[str, Expected]) -> Questions:
    """`expected` by case id: the rows whose cotangent is 0 are in it (B-2)."""
    questions: list[TensorQuestion] = []
    groups: dict[tuple[object, ...], str] = {}
    parameters: dict[str, Tensors] = {}
    seen: set[bytes] = set()
    for case, dtype in _asked(cases_of(asking.layer, asking.level, asking.seed), asking.dtypes):
        key = dtype, tuple(sorted(case.situation.parameter_exponents.items()))
        if key not in groups:
            groups[key] = f"{dtype}.{sum(name.startswith(f'{dtype}.') for name in parameters)}"
            drawn = case.parameters().items()
            parameters[groups[key]] = {name: value.astype(FORMATS[dtype].numpy) for name, value in drawn}
        group = groups[key]
        tensors = question_of(case, dtype)
        if (content := digest_of(tensors, group)) not in seen:
            seen.add(content)
            if "gradients" in case.situation.checks:
                cotangent = case.cotangent(expected[case.id].kinked_rows)
                tensors[COTANGENT] = cotangent.astype(FORMATS[dtype].numpy)
            checks = tuple(check for check in case.situation.checks if check in ANSWERABLE)
            number = sum(question.group == group for question in questions)
            questions.append(TensorQuestion(f"{group}/{number:03}", case, dtype, tensors, checks))
    return Questions(asking, tuple(questions), parameters)


def cases_asked(asking: Asking) -> list[Case]:
    """The cases whose expectations `questions_of` needs."""
    asked = _asked(cases_of(asking.layer, asking.level, asking.seed), asking.dtypes)
    return list({case.id: case for case, _ in asked}.values())


def _asked(cases: Sequence[Case], dtypes: Sequence[DtypeName]) -> Iterator[tuple[Case, DtypeName]]:
    """Cases in evaluation, batch first, that ask for the output; those with most checks first."""
    for case in sorted(cases, key=lambda case: -len(ANSWERABLE & {*case.situation.checks})):
        situation = case.situation
        if situation.mode == "eval" and situation.given.layout == "batch_first" and "output" in situation.checks:
            yield from ((case, dtype) for dtype in situation.dtypes if dtype in dtypes)


def question_of(case: Case, dtype: DtypeName) -> Tensors:
    """The tensors of the question that a case is: all but its cotangent."""
    numpy_dtype, heads = FORMATS[dtype].numpy, case.layer.attention.num_heads
    bias, memory = (None if t is None else t.astype(numpy_dtype) for t in (case.attention_bias(), case.memory()))
    return question_tensors(case.given_x(numpy_dtype), case.mask(), bias, heads, memory)
