"""Sources that are no measure, or that answer otherwise than a file: each is said in its own words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.measured import ExpectedOutputs, Measure, RaisedCase, Source
from encoder_conformance.commands.validate.against_whole import compared
from encoder_conformance.commands.validate.evidence import ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.phases.running import loads
from encoder_conformance.commands.validate.phases.whole import assess
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure

X = np.arange(24.0).reshape(2, 3, 4)
RUN = RuntimeRun("onnxruntime", "all", None)  # type: ignore[arg-type]


def case(name: str, x: np.ndarray = X) -> WholeCase:
    return WholeCase(name, 2, 3, is_padded=False, inputs={"x": x}, values=("x",))


CASES = [case("2 x 3"), case("2 x 3, values 8 times as large", 8 * X)]


NAMES = [each.name for each in CASES]


class Answering(Source):
    """A source that computes `answer` of its input and of how many times it was asked."""

    def __init__(self, answer: Callable[[np.ndarray, int], np.ndarray]) -> None:
        self.request, self.held, self.times, self.answer = SubjectRequest("source.py:made"), "float32", 0, answer

    def outputs(self, inputs: Outputs, precision: str, seed: int | None = None, *, kept: bool = True) -> Any:
        self.times += 1
        return {"y": self.answer(inputs["x"], self.times)}


def test_a_source_that_answers_otherwise_after_others_is_no_measure() -> None:
    measure = Measure(Answering(lambda x, times: x + (times > 3)), few=True)
    assert measure.unfit(CASES[0]) is None
    assert measure.expected(CASES, SILENT) == []
    assert measure.changed is not None
    assert measure.changed.message == "source.py:made answers the same inputs otherwise after others"


def test_nor_is_one_that_answered_otherwise_before_any_case() -> None:
    """As of a length that is asked whether it takes it."""
    measure = Measure(Answering(lambda x, times: x + (times > 2)), few=True)
    assert measure.unfit(CASES[0]) is None
    assert [each.name for each in measure.first_taken(CASES[1:])] == [CASES[1].name]
    assert measure.expected(CASES, SILENT) == []
    assert measure.changed is not None
    assert measure.changed.message == "source.py:made answers the same inputs otherwise after others"


def test_one_that_answers_the_same_is() -> None:
    measure = Measure(Answering(lambda x, times: np.sqrt(x)), few=True)
    assert [each.case.name for each in measure.expected(CASES, SILENT)] == [each.name for each in CASES]
    assert measure.changed is None


def held(right: Outputs, file: Outputs, failed: list[RaisedCase] | None = None) -> WholeComparison:
    """A file that gives `file` in each case beside a source that gives `right`."""
    expected = [ExpectedOutputs(each, right, dict.fromkeys(right, 1e-6)) for each in CASES]
    return compared("source.py:made", expected, [(RUN, {each.name: file for each in CASES})], failed or [])


def test_nothing_to_compare_is_no_error_of_the_file() -> None:
    found = held({"y": X * np.nan}, {"y": X})
    assert not found.verdicts
    assert not found.agrees
    assert found.why_not == [
        f"'y': nothing to compare: the source has no finite number in {'; '.join(c.name for c in CASES)}"
    ]


def test_what_rounding_alone_makes_of_a_source_passes_no_file() -> None:
    """As the cosine of large numbers: σ is as large as the output, and zeros would be within its limit."""
    expected = [ExpectedOutputs(each, {"y": X}, {"y": X.max()}) for each in CASES]
    found = compared("source.py:made", expected, [(RUN, {each.name: {"y": 0 * X} for each in CASES})], [])
    assert not found.verdicts
    assert "the source's own rounding is as large as its numbers" in found.why_not[0]


def test_what_cancels_out_in_one_case_is_compared() -> None:
    sized = zip(CASES, (1e-9, 1), strict=True)
    expected = [ExpectedOutputs(each, {"y": X * size}, {"y": 1e-6}) for each, size in sized]
    found = compared("source.py:made", expected, [(RUN, {CASES[0].name: {"y": 0 * X}, CASES[1].name: {"y": X}})], [])
    assert found.agrees
    assert (len(found.verdicts), found.why_not) == (2, [])


def test_an_output_of_one_name_and_another_shape_is_wrong() -> None:
    found = held({"y": X[:, :2]}, {"y": X})
    assert [each.problem for each in found.apart] == ["its shape is [2, 3, 4], and the source's [2, 2, 4]"] * 2


def test_an_output_without_a_counterpart_is_told_with_what_there_is() -> None:
    found = held({"output": X.sum(-1)}, {"y": X, "z": X})
    due = "the output {!r} [2, 3, 4] has no counterpart in the source, which gives 'output' [2, 3]"
    assert found.why_not == [due.format(name) for name in "yz"]


def test_what_a_file_leaves_out_is_told_and_is_no_error() -> None:
    found = held({"0": X, "1": X[:, 0]}, {"y": X})
    assert found.agrees
    assert [each.message for each in found.notes] == ["the source gives '1' [2, 4] too, which is no output of the file"]


@pytest.mark.parametrize(
    ("file", "exchanged"),
    [
        ({"y": X[..., ::-1], "z": X}, {"y": "1", "z": "0"}),
        ({"y": X, "z": X[..., ::-1]}, {}),
        ({"y": X + 1, "z": X[..., ::-1]}, {}),
        ({"y": X[..., ::-1], "z": X + 1}, {"y": "1"}),
    ],
)
def test_outputs_that_are_exchanged_are_told_in_the_hint(file: Outputs, exchanged: dict[str, str]) -> None:
    found = held({"0": X, "1": X[..., ::-1]}, file)
    assert dict(found.exchanged) == exchanged
    hints = {each.about["output"]: each.hint for each in assess(_beside(found)).findings if each.severity == "error"}
    for name, other in exchanged.items():
        assert hints[name] == f"it is the source's {other!r}: outputs are compared by name, else in order"


@pytest.mark.parametrize(
    ("says", "severity", "wrong"),
    [("the mask's shape is refused", "error", ("onnxruntime all",)), ("NOT_IMPLEMENTED: Mish", "note", ())],
)
def test_a_runtime_that_does_not_run_a_file_of_no_known_layer_is_told(
    says: str, severity: str, wrong: tuple[str, ...]
) -> None:
    right = RuntimeRun("reference", "", None)  # type: ignore[arg-type]
    expected = [ExpectedOutputs(each, {"y": X}, {"y": 1e-6}) for each in CASES]
    files = [
        (RUN, {each.name: Failure(Outcome.ERROR, says) for each in CASES}),
        (right, {name: {"y": X} for name in NAMES}),
    ]
    whole = compared("source.py:made", expected, files, [])
    examined = ExaminedFile(None, FileDescription(findings=()), {})  # type: ignore[arg-type]
    evidence = ValidationEvidence(examined, None, whole=whole)
    [told] = loads(evidence).findings
    assert (told.severity, told.runtimes) == (severity, ("onnxruntime all",))
    assert says in told.message + told.hint
    assert evidence.wrong_runtimes == wrong


@pytest.mark.parametrize(("others", "wrong"), [(X, ("onnxruntime disable",)), (X + 1, ())])
def test_a_runtime_that_alone_is_apart_is_what_is_wrong(others: np.ndarray, wrong: tuple[str, ...]) -> None:
    """Though it follows files to the letter: a wrong file has no right output in another."""
    alone = RuntimeRun("onnxruntime", "disable", None)  # type: ignore[arg-type]
    right = RuntimeRun("reference", "", None)  # type: ignore[arg-type]
    expected = [ExpectedOutputs(each, {"y": X}, {"y": 1e-6}) for each in CASES]
    files = [(alone, {name: {"y": X + 1} for name in NAMES}), (right, {name: {"y": others} for name in NAMES})]
    whole = compared("source.py:made", expected, files, [])
    examined = ExaminedFile(None, FileDescription(findings=()), {})  # type: ignore[arg-type]
    assert alone.is_literal
    assert right.is_literal
    assert ValidationEvidence(examined, None, whole=whole).wrong_runtimes == wrong


def _beside(whole: WholeComparison) -> Any:
    class Evidence:
        pass

    evidence = Evidence()
    evidence.whole = whole  # type: ignore[attr-defined]
    evidence.source = None  # type: ignore[attr-defined]
    return evidence


def test_what_a_source_raises_is_said_once() -> None:
    failed = [RaisedCase("5 x 33", "too long"), RaisedCase("2 x 20", "too long"), RaisedCase("1 x 1", "too short")]
    found = held({"y": X}, {"y": X}, failed)
    assert found.why_not == ["5 x 33; 2 x 20: the source raises too long", "1 x 1: the source raises too short"]
