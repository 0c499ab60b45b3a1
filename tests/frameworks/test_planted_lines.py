"""A bug is named with its line, in every framework: the last bold line of a check is of the line that ends in
`# here`, and so is the finding in check.json."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def due_line(file: str, name: str) -> str:
    lines = (HERE / file).read_text(encoding="utf-8").splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if line.endswith(f"# here: {name}")]
    return f"{file}:{number}"


class Checked:
    def __init__(self, conform: Callable[..., Any], out: Path, file: str, name: str) -> None:
        told = ("--dtype", "float32", "--jobs", "1", "--out", out)
        ended = conform("check", HERE / f"{file}:{name}", *told)
        self.status, self.printed = ended.status, " ".join((ended.stdout + ended.stderr).split())
        [part] = json.loads((out / "check.json").read_text(encoding="utf-8"))["parts"]
        self.errors = [each for each in part["findings"] if each["severity"] == "error"]

    @property
    def places(self) -> list[str]:
        sources = [each["about"].get("source") for each in self.errors]
        return [f"{each['file']}:{each['line']}" for each in sources if each]


ON = {
    "tensorflow": pytest.mark.needs("keras", "tensorflow", "tf2onnx"),
    "jax": pytest.mark.needs("keras", "jax", "jax2onnx"),
}
"""A backend of Keras → what its tests need."""


def at_release(*case: str, marks: Any = ()) -> Any:
    return pytest.param(*case, marks=(pytest.mark.release, *([marks] if marks else [])))


def planted(conform: Callable[..., Any], out: Path, file: str, name: str, said: str) -> Checked:
    checked = Checked(conform, out, file, name)
    assert checked.status in (1, 2), checked.printed
    assert said in checked.printed, checked.printed
    due = due_line(file, name)
    assert checked.places[:1] == [due], (due, checked.errors)
    assert f"At: {due} " in checked.printed, checked.printed
    return checked


@pytest.mark.parametrize(
    ("name", "said"),
    [
        at_release("ScaleBehind", "are multiplied by 0.0625"),
        ("ScaleBefore", "are multiplied by 0.0625"),
        at_release("Activation", "and no silu exactly"),
        at_release("NormOfAnotherKind", "neither LayerNorm nor RMSNorm"),
        ("DropsAlways", "it answers at random"),
        at_release("DrawsByItself", "it answers at random"),
        at_release("NoSkip", "residual1 is missing"),
        at_release("HalfSoftmax", "it casts to float16 inside"),
        at_release("TurnedInPairs", "otherwise than rotary positions (E-22) are"),
        at_release("DistanceSubtracted", "numbers by distance are added to the scores"),
    ],
)
@pytest.mark.needs("torch", "onnxscript")
def test_a_bug_in_pytorch_is_named_with_its_line_once(
    conform: Callable[..., Any], tmp_path: Path, name: str, said: str
) -> None:
    checked = planted(conform, tmp_path / "out", "lines_torch.py", name, said)
    assert checked.printed.count(said) == 1, checked.printed


@pytest.mark.release
@pytest.mark.needs("torch", "onnxscript")
def test_a_scale_that_is_applied_nowhere_is_an_error_though_all_checks_pass(
    conform: Callable[..., Any], tmp_path: Path
) -> None:
    said = "gamma_2 is read nowhere, and gamma_1 is"
    checked = planted(conform, tmp_path / "out", "lines_torch.py", "ScaleOfOneBranch", said)
    assert (checked.status, checked.printed.count(f", but {said}")) == (1, 1)


@pytest.mark.release
@pytest.mark.needs("torch", "onnxscript")
def test_what_multiplies_the_branches_is_named_with_its_line(conform: Callable[..., Any], tmp_path: Path) -> None:
    file, name = "lines_torch.py", "BranchesDoubled"
    ended = conform("check", HERE / f"{file}:{name}", "--layer", "pre-gelu", "--jobs", "1", "--out", tmp_path / "out")
    assert f"residual_scale is 2 in the module ({due_line(file, name)}), and 1 in pre-gelu" in " ".join(
        ended.stdout.split()
    ), ended.stdout


@pytest.mark.release
@pytest.mark.needs("torch", "onnxscript")
def test_a_norm_that_serves_twice_is_named_with_the_line_of_its_second_call(
    conform: Callable[..., Any], tmp_path: Path
) -> None:
    file, name = "lines_torch.py", "OwnNormTwice"
    checked, due = Checked(conform, tmp_path / "out", file, name), due_line(file, name)
    assert f"norm1.gain is read for norm2.gain too ({due})" in checked.printed, checked.printed
    assert f"At: {due} " in checked.printed, checked.printed


@pytest.mark.parametrize(
    ("name", "said"),
    [
        at_release("Linen", "residual1 is missing"),
        at_release("LinenOfTheInput", "residual1 is missing"),
        at_release("of_nnx", "over the queries"),
        at_release("of_equinox", "residual2 is missing"),
        at_release("OneNormTwice", "the part norm2 is called nowhere, and norm1.scale is read in two places"),
        at_release("NarrowScores", "it casts to bfloat16 inside"),
        ("function", "are multiplied by 0.0625"),
    ],
)
@pytest.mark.needs("flax", "equinox", "jax2onnx")
def test_a_bug_on_jax_is_named_with_its_line(conform: Callable[..., Any], tmp_path: Path, name: str, said: str) -> None:
    planted(conform, tmp_path / "out", "lines_jax.py", name, said)


@pytest.mark.parametrize(
    ("name", "said", "backend"),
    [
        pytest.param("NoSkip", "residual1 is missing", "tensorflow", marks=ON["tensorflow"]),
        at_release("NoSkip", "residual1 is missing", "jax", marks=ON["jax"]),
        at_release("DropsAlways", "it answers at random", "tensorflow", marks=ON["tensorflow"]),
        at_release("OneNormTwice", "the part norm2 is called nowhere", "tensorflow", marks=ON["tensorflow"]),
        at_release("OverQueries", "over the queries", "tensorflow", marks=ON["tensorflow"]),
        at_release("Exchanged", "does the work of attention.query.weight", "tensorflow", marks=ON["tensorflow"]),
        at_release("NormedByDeviation", "norm1 is no layer_norm exactly", "tensorflow", marks=ON["tensorflow"]),
        at_release("OverQueries", "over the queries", "jax", marks=ON["jax"]),
    ],
)
def test_a_bug_in_keras_is_named_with_its_line(
    conform: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str, backend: str
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    planted(conform, tmp_path / "out", "lines_keras.py", name, said)


@pytest.mark.release
@pytest.mark.needs("keras", "tensorflow", "tf2onnx")
def test_a_map_that_nothing_proves_goes_by_the_names_of_attributes_and_accuses_none(
    conform: Callable[..., Any], tmp_path: Path
) -> None:
    target = Path(__file__).with_name("lines_keras.py")
    told = ("--layer", "post-gelu", "--jobs", "1", "--out", tmp_path / "out")
    ended = conform("check", f"{target}:NormedByDeviation", *told)
    printed = " ".join((ended.stdout + ended.stderr).split())
    assert ended.status == 1, printed
    assert "the map is by names and shapes alone" in printed, printed
    assert "attention_output, residual1" in printed, printed  # Last right stages
    assert "does the work of" not in printed, printed
