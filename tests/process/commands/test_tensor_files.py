"""`conform ask` and `conform judge`: a program that reads a file and writes one, right and wrong in one way each."""

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from encoder_conformance import Masks, RunRequest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tensors"
HONEST = Path(__file__).resolve().parents[2] / "fakes" / "honest" / "adapter.py"
Tensors = dict[str, Any]


@pytest.fixture
def asked(conform: Callable, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The questions, which are written once, and of which each test has a copy."""
    kept = tmp_path_factory.getbasetemp() / "asked.safetensors"
    if not kept.exists():
        ended = conform("ask", "--layer", "post-relu", "--dtype", "float32")
        assert ended.status == 0, ended.stderr
        (tmp_path / kept.name).rename(kept)
    return Path(shutil.copy(kept, tmp_path))


def answered(asked: Path, *, stages: bool = False, epsilon: float | None = None) -> Tensors:
    """The answers of the honest fake, which may show its stages and gradients, or have another epsilon."""
    return dict(_answers(asked.parents[1] / "asked.safetensors", stages, epsilon))


@cache
def _answers(asked: Path, stages: bool, epsilon: float | None) -> Tensors:
    honest = runpy.run_path(str(HONEST))["Honest"]()
    questions = load_file(asked)
    with safe_open(asked, framework="numpy") as file:
        layer = json.loads(file.metadata()["asking"])["layer"]
    if epsilon is not None:
        layer["norm"]["epsilon"] = epsilon
    answers = {"asked": questions["asked"]}
    for question in [name.removesuffix("/x") for name in questions if name.endswith("/x")]:
        prefix = question.split("/")[0] + "/parameters/"
        held = {name.removeprefix(prefix): value for name, value in questions.items() if name.startswith(prefix)}
        honest.build(layer, held, "float32")
        x, mask = questions[f"{question}/x"], questions[f"{question}/mask"].astype(bool)
        masks = Masks(None, mask, questions.get(f"{question}/bias"), sequence=x.shape[1])
        honest._check_fit = lambda *_: None
        with np.errstate(all="ignore"):  # rows without a key, and huge padding
            shown = honest.stages(x, masks, RunRequest())
        answers |= {
            f"{question}/{name}": np.ascontiguousarray(shown[name]) for name in (shown if stages else ["output"])
        }
        if stages and f"{question}/cotangent" in questions:
            with np.errstate(all="ignore"):
                found = honest.gradients(x, masks, RunRequest(), questions[f"{question}/cotangent"])
            answers |= {f"{question}/gradient.{name}": np.ascontiguousarray(value) for name, value in found.items()}
    return answers


def test_numpy_s_example_conforms(conform: Callable, asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asked.parent)
    with np.errstate(all="ignore"):
        runpy.run_path(str(PAGE / "answer.py"))
    ended = conform("judge", "answers.safetensors")
    assert ended.status == 0, ended.stdout
    report = json.loads((asked.parent / "conform-report" / "latest" / "report.json").read_text())
    assert report["complete"]
    assert {record["outcome"] for record in report["records"]} == {"pass"}
    assert len(report["records"]) >= 15


def test_questions_replace_questions_and_no_other_file(conform: Callable, asked: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    words = ("ask", "--layer", "post-relu", "--dtype", "float32", "--to")
    refused = conform(*words, mine)
    assert (refused.status, "is there already, and holds no questions" in refused.stderr) == (2, True), refused.stderr
    assert mine.read_text() == "mine"
    assert conform(*words, asked).status == 0


@pytest.mark.release
@pytest.mark.cpp
def test_the_example_in_cpp_conforms(conform: Callable, asked: Path) -> None:
    program = asked.parent / "answer"
    build = ["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-o", str(program), str(PAGE / "answer.cpp")]
    subprocess.run(build, check=True, timeout=120)
    subprocess.run([str(program)], check=True, cwd=asked.parent, timeout=60)
    assert conform("judge", "answers.safetensors").status == 0


def test_the_page_shows_both_examples() -> None:
    page = (PAGE.parent / "tensors.md").read_text()
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL))
    assert blocks["python"] == (PAGE / "answer.py").read_text()
    assert blocks["cpp"] == (PAGE / "answer.cpp").read_text()


def test_stages_and_gradients_are_judged_where_the_file_has_them(conform: Callable, asked: Path) -> None:
    save_file(answered(asked, stages=True), asked.with_name("answers.safetensors"))
    ended = conform("judge", "answers.safetensors", "--json")
    assert ended.status == 0, ended.stdout
    report = json.loads((asked.parent / "conform-report" / "latest" / "report.json").read_text())
    assert json.loads(ended.stdout) == report
    assert {record["check"] for record in report["records"]} == {"output", "stages", "gradients"}


@pytest.mark.release
def test_a_bug_is_named(conform: Callable, asked: Path) -> None:
    save_file(answered(asked, stages=True, epsilon=1e-3), asked.with_name("answers.safetensors"))
    ended = conform("judge", "answers.safetensors")
    assert ended.status == 1
    assert "Cause: Both norms' epsilon is 1e-3, the default of Keras (norm-eps-1e-3), " in ended.stdout
    assert "First wrong stage: norm1" in ended.stdout


def without_last(answers: Tensors) -> Tensors:
    return {name: value for name, value in answers.items() if name != max(answers)}


def narrow(answers: Tensors) -> Tensors:
    return {name: value if name == "asked" else value.astype(np.float16) for name, value in answers.items()}


def transposed(answers: Tensors) -> Tensors:
    turned = {name: np.ascontiguousarray(value.swapaxes(0, 1)) for name, value in answers.items() if name != "asked"}
    return {**turned, "asked": answers["asked"]}


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (without_last, "the answers have no tensor"),
        (without_last, "questions have no answer"),
        (narrow, "dtype float16 instead of float32"),
        (transposed, "instead of ["),
    ],
)
def test_an_answer_that_is_missing_or_of_another_kind_does_not_conform(
    conform: Callable, asked: Path, lie: Callable[[Tensors], Tensors], said: str
) -> None:
    save_file(lie(answered(asked)), asked.with_name("answers.safetensors"))
    ended = conform("judge", "answers.safetensors", diagnosed=False)
    assert ended.status == 1
    assert said in ended.stdout


def unknown_question(answers: Tensors) -> Tensors:
    return {**answers, "float32.0/999/output": answers["float32.0/000/output"]}


def unknown_tensor(answers: Tensors) -> Tensors:
    return {**answers, "float32.0/000/outptu": answers["float32.0/000/output"]}


def of_another_asking(answers: Tensors) -> Tensors:
    return {**answers, "asked": answers["asked"][::-1].copy()}


def of_no_asking(answers: Tensors) -> Tensors:
    return {name: value for name, value in answers.items() if name != "asked"}


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (unknown_question, "'float32.0/999/output' answers no question"),
        (unknown_tensor, "did you mean output"),
        (of_another_asking, "answers another asking than"),
        (of_no_asking, "copy the tensor 'asked'"),
    ],
)
def test_a_file_that_answers_something_else_is_bad_input(
    conform: Callable, asked: Path, lie: Callable[[Tensors], Tensors], said: str
) -> None:
    save_file(lie(answered(asked)), asked.with_name("answers.safetensors"))
    ended = conform("judge", "answers.safetensors")
    assert ended.status == 2
    assert said in ended.stderr
    assert not (asked.parent / "conform-report").exists()


@pytest.mark.parametrize("damaged", ["answers.safetensors", "asked.safetensors"])
def test_a_file_that_is_cut_off_is_bad_input(conform: Callable, asked: Path, damaged: str) -> None:
    save_file(answered(asked), asked.with_name("answers.safetensors"))
    file = asked.with_name(damaged)
    file.write_bytes(file.read_bytes()[:-100])
    ended = conform("judge", "answers.safetensors")
    assert ended.status == 2
    assert f"{damaged}: cannot be read" in ended.stderr


@pytest.mark.release
def test_questions_that_were_edited_are_bad_input(conform: Callable, asked: Path) -> None:
    save_file(answered(asked), asked.with_name("answers.safetensors"))
    with safe_open(asked, framework="numpy") as file:
        metadata = file.metadata()
    metadata["asking"] = metadata["asking"].replace('"seed":0', '"seed":1')
    save_file(load_file(asked), asked, metadata=metadata)
    ended = conform("judge", "answers.safetensors")
    assert ended.status == 2
    assert "are not those of this version's specification" in ended.stderr
