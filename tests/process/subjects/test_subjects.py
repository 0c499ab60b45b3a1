"""One door for whatever is judged, and one loop that judges it."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.judging.loop import judge
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.opening import open_source, open_subject
from encoder_conformance.subjects.subject import SubjectRequest

LAYER = load().layers["post-relu"]


def calls(name: str) -> Iterator[str]:
    """The modules that call something of this name, but for readers: their findings are noted, too."""
    for path in sorted(PACKAGE.rglob("*.py")):
        found = path.relative_to(PACKAGE)
        if found.parts[0] not in ("impls", "readers", "_specs"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                    yield found.as_posix()


@pytest.mark.release
def test_a_worker_is_made_by_the_door_and_by_the_run() -> None:
    assert set(calls("Session")) == {"engine/runner.py", "subjects/starting.py"}


@pytest.mark.release
def test_what_a_diagnosis_needs_is_kept_in_one_place() -> None:
    assert {place for name in ("note", "see") for place in calls(name)} == {"judging/loop.py"}


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("weights.safetensors", "holds parameters, and computes nothing"),
        ("missing.onnx", "there is no such file"),
    ],
)
def test_what_is_no_subject_is_refused(tmp_path: Path, target: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        open_subject(SubjectRequest(target, folder=tmp_path), tmp_path / "logs" / "worker.log")


def test_a_checkpoint_is_a_subject_that_computes_nothing(tmp_path: Path) -> None:
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(LAYER, {}).items()}
    save_file({f"encoder.{name}": value for name, value in parameters.items()}, tmp_path / "weights.safetensors")
    found = open_source(SubjectRequest("weights.safetensors", folder=tmp_path), parameters, None)
    assert found.parameters.keys() == parameters.keys()
    assert found.own_names["norm1.gain"] == "encoder.norm1.gain (as it is)"
    assert (found.session, found.layer, found.limits, found.absent) == (None, None, None, ())


LIE = """
    def output(self, x, masks, run):
        self.asked = getattr(self, "asked", 0) + 1
        return super().output(x, masks, run) + np.float32(1e-3 * self.asked)
"""


def test_an_implementation_is_asked_judged_and_noted(fake: Callable[..., Path], tmp_path: Path) -> None:
    """Two answers to one question differ: the loop notes that, and keeps the answers themselves."""
    request = SubjectRequest(str(fake("restless", LIE)))
    subject = open_subject(request, tmp_path / "logs" / "worker.log")
    cases = [load().cases[f"post-relu/{name}"] for name in ("single-position", "invariant-determinism")]
    try:
        expected = expectations(cases, 1, SILENT)
        tasks = [task for task in subject.tasks(cases, ("float32",)) if task.check in ("output", "invariant")]
        seen = Observations()
        answers = list(judge(subject, tasks, lambda case: expected[case.id], seen))
    finally:
        subject.close()
    assert {answer.task.check: answer.record.outcome for answer in answers} == {"output": "fail", "invariant": "fail"}
    [output] = [answer for answer in answers if answer.task.check == "output"]
    assert output.tensors is not None
    assert output.tensors["output"].shape == output.answer.expected.tensors["output"].shape
    assert seen.repeats("float32") == "differ"
    assert [each.case.id for each in seen.of("float32")] == ["post-relu/single-position"]
