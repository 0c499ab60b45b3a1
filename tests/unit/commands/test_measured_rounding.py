"""What a file of integers costs is not said of inputs that nobody gives it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.commands.validate.evidence import ExaminedFile, ValidationRequest
from encoder_conformance.commands.validate.rounding.measured import MadeFrom, RoundingComparison, measure_rounding
from encoder_conformance.commands.validate.rounding.results import Rounding
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.protocol.description import FileDescription, WholeFile, WholeInput
from encoder_conformance.protocol.messages import Call, Called, LookAtRounding
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure

MODEL = "model.onnx"
ASKED_FIRST = 2
"""Calls by which a source is asked whether it answers the same twice."""


class Computer:
    """A worker whose file gives its input, rounded; and whose source gives it, unless it `raises`."""

    def __init__(self, raises: Callable[[Array], bool] = lambda x: False) -> None:
        self.raises, self.calls = raises, 0

    def call(self, asked: Call, inputs: dict[str, Array]) -> Failure | tuple[Called, dict[str, Array]]:
        is_file = asked.target.endswith(MODEL)
        self.calls += not is_file
        if not is_file and self.calls > ASKED_FIRST and self.raises(inputs["x"]):
            return Failure(Outcome.ERROR, "RuntimeError: no such values")
        y = np.round(inputs["x"], 2) if is_file else inputs["x"].astype(np.float64)
        return Called(id=0, ok=True, outputs=("y",)), {"y": y}

    def describe(self, asked: LookAtRounding, tensors: Any) -> Failure:
        return Failure(Outcome.ERROR, "nothing is looked into here")


def measured(source: Computer, folder: Path) -> Rounding | str:
    x = WholeInput(name="x", dtype="float32", shape=("batch", "sequence", 4))
    whole = WholeFile(inputs=(x,), outputs=(), held="int8")
    request = ValidationRequest(folder / MODEL, None, None, None, (), {}, None)
    file = ExaminedFile(request, FileDescription(findings=(), whole=whole), {})
    ready: Any = Ready(None, folder, ())  # type: ignore[arg-type]
    run = RuntimeRun("onnxruntime", "all", ready, session=Computer())  # type: ignore[arg-type]
    made_from = MadeFrom(SubjectRequest("source.py:made", folder=folder), source)  # type: ignore[arg-type]
    return measure_rounding(RoundingComparison(file, [run], made_from, SILENT), [], folder, None)


def test_a_source_that_answers_what_is_out_of_range_alone_measures_nothing(tmp_path: Path) -> None:
    found = measured(Computer(lambda x: 0.1 < np.abs(x).max() < 6), tmp_path)
    assert isinstance(found, str), found
    assert found.startswith(
        "no inputs of an ordinary size were answered: 1 x 1: source.py:made raises RuntimeError: no"
    )


@pytest.mark.parametrize("raises", [lambda x: False, lambda x: np.abs(x).max() > 6], ids=["nowhere", "out of range"])
def test_a_source_that_answers_what_is_ordinary_does(raises: Callable[[Array], bool], tmp_path: Path) -> None:
    found = measured(Computer(raises), tmp_path)
    assert isinstance(found, Rounding), found
    assert found.judged
    assert all(0 < error < 0.1 for each in found.judged for error in each.errors.values() if error is not None)
