"""`conform validate` on real files: right ones pass, and every planted fault is found and named by its phase."""

import json
import resource
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from encoder_conformance.golden.build import compute
from encoder_conformance.judge.expected import Expected
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.request import Progress, ValidationRequest
from encoder_conformance.validate.results import Validation
from encoder_conformance.validate.validation import validate

PLANTS = runpy.run_path(str(Path(__file__).with_name("faults.py")))
FAULTS, model_of, parameters_of = PLANTS["FAULTS"], PLANTS["model_of"], PLANTS["parameters_of"]
ROWS = (("onnxruntime", "all"), ("reference", ""))
Judge = Callable[..., Validation]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Fewer and smaller cases, and what a file should give computed here, once for all files that hold the same."""
    known: dict[tuple[Any, ...], Expected] = {}

    def compute_here(cases: list[Case], constants: Constants, jobs: int) -> Iterator[tuple[Case, Expected]]:
        for case in cases:
            held = b"".join(value.tobytes() for value in case.parameters().values())
            key = case.id, case.layer.model_dump_json(), case.situation.model_dump_json(), held
            if key not in known:
                known[key] = compute(case, constants)
            yield case, known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("encoder_conformance.validate.validation.compute_all", compute_here)
        patch.setattr("encoder_conformance.validate.phases.shapes.SIZES", ((1, 1), (2, 7)))
        patch.setattr("encoder_conformance.validate.phases.masks.PADDING", ("padding-right", "padded-item"))
        patch.setattr("encoder_conformance.validate.phases.numbers.NUMBERS", ("no-mask", "low-variance"))
        patch.setattr("encoder_conformance.validate.phases.properties.PROPERTIES", ("invariant-padding-content",))
        yield


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Validate a file in the first of ROWS, or in more of them."""

    def judge(path: Path, layer: Any = None, parameters: Any = None, mask: Any = None, limit: Any = None,
              runtimes: int = 1) -> Validation:  # fmt: skip
        monkeypatch.setattr("encoder_conformance.validate.runtimes.RUNTIMES", ROWS[:runtimes])
        quiet = Progress(begin=lambda what, total: None, step=lambda what: None)
        return validate(ValidationRequest(path, layer, parameters, mask, (), {}, limit), tmp_path / "out", 1, quiet)

    return judge


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("right") / "model.onnx"
    path.write_bytes(model_of(PLANTS["PRE"]).SerializeToString())
    return path


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the right file was made from: what a user says with --layer and --parameters."""
    layer = {
        "layer": "right", "title": "A right layer", "clauses": ["L-1"], "family": "small", "d_model": 24,
        "norm": {"placement": "pre", "kind": "layer_norm", "epsilon": float(np.float32(1e-5))},
        "attention": {
            "num_heads": 3, "projections": "full", "qkv_bias": True, "output_bias": True, "scale": "head_dim",
            "masked_score": "minus_infinity", "fully_masked_row": "uniform",
        },
        "feed_forward": {"d_ff": 40, "activation": "gelu", "bias": True},
        "dropout": dict.fromkeys(("attention_weights", "attention_output", "ffn_activation", "ffn_output"), 0.0),
        "stack": {"layers": 1, "final_norm": False}, "embedding": None, "padded_rows": "unspecified",
        "padding_content": "finite",
    }  # fmt: skip
    return {
        "layer": Layer.model_validate_json(json.dumps(layer)),
        "parameters": parameters_of(model_of(PLANTS["PRE"])),
    }


def test_a_right_file_is_right(judged: Judge, right: Path, told: dict[str, Any]) -> None:
    found = judged(right, **told, mask="attend", runtimes=2)
    assert found.findings == ()
    assert found.status == 0
    assert all(row.passed == row.applicable > 8 for row in found.runtimes)
    said = found.summaries
    assert said["file"] == "19.1 KiB"
    assert said["checker"] == "valid, and its shapes follow from its inputs"
    assert said["operators"].startswith("opset 18; 35 nodes of 11 types, ")
    mask = "mask 'mask' [batch, sequence] (true = attend)"
    assert said["interface"] == f"x 'x' float32, {mask}, output 'output' float32"
    assert said["dimensions"] == "batch and sequence declared free; x [batch, sequence, 24]"
    assert said["layer"].startswith("16 parameters and 19 stages found in the graph, proved by a run (batch 3")
    assert said["cost"].startswith("19.1 KiB, 35 nodes, onnxruntime ")


@pytest.mark.parametrize(
    ("body", "opset", "edit"),
    [
        pytest.param("PRE", 18, "float16", id="float16"),
        pytest.param("PRE", 18, "float16_inside", id="float16-inside"),
        pytest.param("ATTENTION", 23, None, id="attention-of-opset-23"),
    ],
)
def test_right_files_of_other_kinds_are_right(
    judged: Judge, tmp_path: Path, body: str, opset: int, edit: str | None
) -> None:
    signature = PLANTS["SIGNATURE"].replace("bool[batch, seq", "bool[batch, 1, sequence, seq") if opset > 18 else None
    model = model_of(PLANTS[body], signature or PLANTS["SIGNATURE"], opset, low=np.float32(-6e4))
    if edit:
        PLANTS[edit](model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    found = judged(path)
    assert [f for f in found.findings if f.severity != "note"] == []
    assert found.status == 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_and_named_by_its_phase(
    judged: Judge, told: dict[str, Any], tmp_path: Path, fault: Any
) -> None:
    path = fault.planted(tmp_path)
    before = everything_in(tmp_path)
    found = judged(path, **{key: told[key] for key in fault.told}, mask=fault.mask, limit=fault.limit,
                   runtimes=fault.runtimes)  # fmt: skip
    said = [finding for finding in found.findings if finding.phase == fault.phase and fault.says in finding.message]
    assert [finding.severity for finding in said] == [fault.severity], found.findings
    assert found.status == fault.status
    assert everything_in(tmp_path) == before
    if fault.severity == "error" and fault.phase in ("file", "operators", "interface", "dimensions", "layer", "masks"):
        assert found.errors[0].phase == fault.phase, "what comes before it is right"
    assert not any("Traceback" in finding.message for finding in found.findings)


def test_weights_of_float16_in_a_file_that_computes_in_float32(
    judged: Judge, told: dict[str, Any], tmp_path: Path
) -> None:
    """Said as a reduction, and held to the rounding of what it was made from; what it computes is float32's."""
    path = saved(tmp_path, "stored_in_float16")
    found = judged(path, **told)
    assert found.findings == ()
    assert (found.status, found.dtype, found.rounded_as) == (0, "float32", None)
    said = found.summaries["reduction"]
    assert said.startswith("stores 16 of 16 parameters as float16; computes in float32, and is judged by its roundoff")
    assert float(said.partition("the relative error is ")[2].split()[0]) == pytest.approx(2**-12, rel=0.9)
    assert "relative error" not in judged(path).summaries["reduction"], "nothing is known of what it was made from"
    told["parameters"] = {name: value * np.float32(1 + 2**-9) for name, value in told["parameters"].items()}
    others = [f.message for f in judged(path, **told).errors if f.phase == "layer"]
    assert any("attention.query.weight holds other values" in message for message in others)


def test_weights_of_float16_excuse_no_arithmetic_of_float16(judged: Judge, tmp_path: Path) -> None:
    [soft] = [fault for fault in FAULTS if fault.name == "softmax-in-float16"]
    path = saved(tmp_path, "stored_in_float16", PLANTS["PRE"].replace(*soft.text[0]), **soft.constants)
    assert "numbers" in {finding.phase for finding in judged(path, runtimes=2).errors}


def saved(folder: Path, edit: str, body: str = PLANTS["PRE"], **constants: Any) -> Path:
    model = model_of(body, **constants)
    PLANTS[edit](model)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_two_masks_that_both_hide_are_both_given_the_padding(judged: Judge, tmp_path: Path) -> None:
    two = PLANTS["SIGNATURE"].replace("sequence] mask", "sequence] mask, bool[batch, sequence] other")
    shown = PLANTS["PRE"].replace(
        "keys = Unsqueeze(mask", "out = Not(other)  seen = And(mask, out)  keys = Unsqueeze(seen"
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(shown, two).SerializeToString())
    found = judged(path)
    assert (found.status, found.findings) == (0, ())
    assert found.description.roles is not None
    meanings = {mask.name: mask.meaning for mask in found.description.roles.masks}
    assert meanings == {"mask": "attend", "other": "ignore"}


def test_what_is_said_of_an_embedding_can_be_done(judged: Judge, tmp_path: Path) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == "no-float-input"]
    path = fault.planted(tmp_path)
    [error] = judged(path).errors
    assert "onnx.utils.extract_model(path, 'layers.onnx', ['x', 'mask'], ['output'])" in error.hint
    onnx.utils.extract_model(path, tmp_path / "layers.onnx", ["x", "mask"], ["output"])
    assert judged(tmp_path / "layers.onnx").status == 0


def everything_in(folder: Path) -> dict[str, int]:
    """Path → size of what lies there, what validation writes itself apart."""
    return {
        str(path.relative_to(folder)): path.lstat().st_size
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] != "out"
    }


def test_an_epsilon_that_is_not_the_usual_is_inferred_and_said(judged: Judge, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(PLANTS["PRE"].replace("0.00001", "0.001")).SerializeToString())
    found = judged(path)
    assert found.status == 0
    assert found.layer is not None
    assert found.layer.norm.epsilon == float(np.float32(1e-3))
    [said] = [fact.evidence for fact in found.description.facts if fact.key == "norm.epsilon"]
    assert said == "LayerNormalization 'n1', attribute epsilon"


def test_numbers_that_are_wrong_are_diagnosed_and_told_once(judged: Judge, tmp_path: Path) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == "scale-missing"]
    found = judged(fault.planted(tmp_path))
    assert [finding.phase for finding in found.errors] == ["numbers"]
    [error] = found.errors
    assert error.hint == "the first node out of line makes attention_scores: MatMul 'raw' (raw)"
    echoes = [finding.message for finding in found.findings if finding.phase in ("shapes", "masks")]
    assert "2 of 2 situations are out of line as no-mask is: see numbers" in echoes
    assert found.diagnoses[0].deviations == ("scale-missing",)


@pytest.mark.linux
def test_an_absurd_size_takes_no_memory(judged: Judge, tmp_path: Path) -> None:
    for fault in FAULTS:
        if fault.name in ("huge-intermediate", "absurd-dims", "over-2-GiB"):
            folder = tmp_path / fault.name
            folder.mkdir()
            assert judged(fault.planted(folder)).status == 2
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20, "KiB, of the largest worker"


def test_the_command(conform: Callable[..., Any], tmp_path: Path) -> None:
    """From end to end, with every case and level: 1 and 2, and no traceback."""
    arguments = ("--runtime", "onnxruntime", "--out", tmp_path / "out")
    [polarity] = [fault for fault in FAULTS if fault.name == "mask-polarity"]
    path = polarity.planted(tmp_path)
    ended = conform("validate", path.relative_to(tmp_path), "--mask", "attend", "--json", *arguments)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert [finding["phase"] for finding in json.loads(ended.stdout)["findings"]] == ["masks"]
    path.write_bytes(path.read_bytes()[:500])
    ended = conform("validate", path, *arguments)
    assert ended.status == 2
    assert "✗ file" in ended.stdout
    assert "It could not be judged: 1 error, 0 warnings" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr
