"""`conform validate` on real files: right ones pass, and every planted fault is found and named by its phase."""

import json
import os
import resource
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from documents import as_its_schema_says
from onnx import helper, numpy_helper, parser
from rich.console import Console

from encoder_conformance.commands.validate.evidence import ValidationRequest
from encoder_conformance.commands.validate.results import Validation
from encoder_conformance.commands.validate.show import show_validation
from encoder_conformance.commands.validate.validation import validate
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.platform.progress import Progress
from encoder_conformance.readers.onnx_file.inspection import inspect
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import Constants
from encoder_conformance.subjects.subject import SubjectRequest

PLANTS = runpy.run_path(str(Path(__file__).with_name("faults.py")))
FAULTS, model_of, parameters_of = PLANTS["FAULTS"], PLANTS["model_of"], PLANTS["parameters_of"]
ROWS = (("onnxruntime", "all"), ("reference", ""))
FEWER_MASKS = (
    "padding-right", "padded-item", "causal", "causal-padding-left", "mask-per-item", "mask-per-head",
)  # fmt: skip
Judge = Callable[..., Validation]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Fewer and smaller cases, and what a file should give computed here, once for all files that hold the same."""
    known: dict[tuple[Any, ...], Expected] = {}

    def compute_here(
        cases: list[Case], constants: Constants, jobs: int, *, whole: bool
    ) -> Iterator[tuple[Case, Expected]]:
        for case in cases:
            held = b"".join(value.tobytes() for value in case.parameters().values())
            asked = case.id, case.layer.model_dump_json(), case.situation.model_dump_json()
            key = *asked, held, constants.condition_runs
            if key not in known:
                known[key] = compute(case, constants, whole=whole)
            yield case, known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("encoder_conformance.oracle.golden.build.compute_all", compute_here)
        patch.setattr("encoder_conformance.commands.validate.phases.table.SIZES", ((1, 1), (2, 7)))
        patch.setattr("encoder_conformance.commands.validate.phases.table.MASKS", FEWER_MASKS)
        patch.setattr("encoder_conformance.commands.validate.phases.table.NUMBERS", ("no-mask", "low-variance"))
        patch.setattr("encoder_conformance.commands.validate.phases.table.PROPERTIES", ("invariant-padding-content",))
        yield


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Validate a file in the first of ROWS, or in more of them.

    `diagnosed=False` leaves out the diagnosis, for a test that does not read what it says.
    """

    def judge(path: Path, layer: Any = None, parameters: Any = None, mask: Any = None, limit: Any = None,
              runtimes: int = 1, against: Any = None, seconds: Any = None,
              deviations: tuple[str, ...] = (), diagnosed: bool = True) -> Validation:  # fmt: skip
        if not diagnosed:
            monkeypatch.setattr(Observations, "diagnoses", lambda *_, **__: [])
        monkeypatch.setattr("encoder_conformance.commands.validate.runtimes.RUNTIMES", ROWS[:runtimes])
        quiet = Progress(begin=lambda what, total: None, step=lambda what: None)
        source = SubjectRequest(str(against), folder=tmp_path) if against else None
        asked = ValidationRequest(
            path, layer, parameters, mask, (), {}, limit, against=source, seconds=seconds, deviations=deviations
        )
        return validate(asked, tmp_path / "out", 1, quiet)

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


def test_a_size_that_is_fixed_is_that_of_its_layout(judged: Judge, tmp_path: Path) -> None:
    """x [sequence, batch, features], for two items alone: lengths are asked, and no other batch."""
    [fault] = [fault for fault in FAULTS if fault.name == "attention-along-an-axis-without-a-name"]
    changed = (fault.signature[0], "[a, 2, 24] x")
    found = judged(replace(fault, signature=changed).planted(tmp_path))
    assert (found.status, found.summaries["dimensions"]) == (
        0, "batch fixed to 2, sequence declared free; x [a, 2, 24]",
    )  # fmt: skip
    covered = {each.question: (each.answer, each.said) for each in found.covered}
    assert covered["other batch sizes"] == ("not asked", "the file fixes the batch at 2")
    assert covered["other lengths"] == ("yes", "1, 7 and 10")
    assert covered["padding"] == ("not asked", "it takes no mask that hides a position")


UNUSUAL_NORM = (
    "norm is post-norm rms_norm, which no published encoder known here has; usual: post-norm layer_norm (bert), "
    "pre-norm layer_norm (megatron_bert), pre-norm rms_norm (t5), res-post-norm layer_norm (swinv2), "
    "res-post-norm rms_norm (olmo2), sandwich-norm rms_norm (t5gemma)"
)


@pytest.mark.parametrize(
    ("body", "opset", "edit"),
    [
        pytest.param("PRE", 18, "float16", id="float16", marks=pytest.mark.release),
        pytest.param("PRE", 18, "float16_inside", id="float16-inside", marks=pytest.mark.release),
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
    found = judged(path, runtimes=2 if edit == "float16_inside" else 1)
    said = [f.message for f in found.findings if f.severity != "note"]
    assert said == ([UNUSUAL_NORM] if body == "ATTENTION" else [])
    assert found.status == 0


INVALID = ("a-value-made-twice", "output-of-another-rank", "absurd-dims", "wrong-opset-import")
"""Wrong by themselves, whatever the file is of."""
UNJUDGED = [f for f in FAULTS if (f.status == 2 and not f.told) or f.name in INVALID[1:]]
"""Looking into the file finds these, and no runtime is asked."""
ASKED_ELSEWHERE = {
    "scale-missing", "sigmoid-gelu", "mask-polarity", "baked-reshape", "an-epsilon-of-keras", "transposed-initializer",
    "values-of-the-key", "mask-after-the-softmax", "padding-content-shows", "integers-over-the-limit",
    "a-wrong-attention-scale-in-int8", "a-wrong-gelu-in-int8", "weights-of-a-wrong-scale-in-int8",
    "one-norm-of-another-epsilon", "tanh-gelu", "quick-gelu",
}  # fmt: skip
"""Those that another test of this file asks, or the like of them."""


@pytest.mark.parametrize("fault", UNJUDGED, ids=lambda fault: fault.name)
def test_a_fault_that_keeps_a_file_from_being_judged_is_found_by_looking_into_it(tmp_path: Path, fault: Any) -> None:
    path = fault.planted(tmp_path)
    before = everything_in(tmp_path)
    seen = inspect(path, fault.mask)
    found = seen.findings.found
    said = [finding for finding in found if finding.phase == fault.phase and fault.says in finding.message]
    assert [finding.severity for finding in said] == [fault.severity], found
    assert seen.inferred is None or seen.inferred.layer is None
    assert everything_in(tmp_path) == before


def by_command(faults: list[Any]) -> Iterator[Any]:
    """All of them before a release; every day the first of each phase, and of those that are judged every eighth."""
    phases, judged = set(), 0
    for fault in faults:
        often = fault.phase not in phases
        phases.add(fault.phase)
        if fault not in UNJUDGED and fault.name not in ASKED_ELSEWHERE:
            often |= judged % 8 == 0
            judged += 1
        yield pytest.param(fault, id=fault.name, marks=() if often else pytest.mark.release)


@pytest.mark.parametrize("fault", list(by_command(FAULTS)))
def test_a_planted_fault_is_found_and_named_by_its_phase(
    judged: Judge, told: dict[str, Any], tmp_path: Path, fault: Any
) -> None:
    path = fault.planted(tmp_path)
    before = everything_in(tmp_path)
    found = judged(path, **{key: told[key] for key in fault.told}, mask=fault.mask, limit=fault.limit,
                   runtimes=fault.runtimes, diagnosed=fault.phase == "numbers")  # fmt: skip
    said = [finding for finding in found.findings if finding.phase == fault.phase and fault.says in finding.message]
    assert [finding.severity for finding in said] == [fault.severity], found.findings
    assert found.status == fault.status
    assert everything_in(tmp_path) == before
    if fault.severity == "error" and fault.phase in ("file", "operators", "interface", "dimensions", "layer", "masks"):
        assert found.errors[0].phase == fault.phase, "what comes before it is right"
    assert not any("Traceback" in finding.message for finding in found.findings)


@pytest.mark.parametrize(
    ("make", "format"),
    [
        pytest.param("quantised", "int8", id="dynamically"),
        pytest.param("quantised_by_column", "int8", id="dynamically-by-column", marks=pytest.mark.release),
        pytest.param(("statically", "MatMul"), "int8", id="statically", marks=pytest.mark.release),
        pytest.param(("statically",), "int8", id="statically-all-of-it", marks=pytest.mark.release),
        pytest.param("in_4_bits", "int4", id="weights-of-4-bits", marks=pytest.mark.release),
    ],
)
def test_a_right_file_of_integers_is_right_and_is_the_rounding_of_its_source(
    judged: Judge, told: dict[str, Any], tmp_path: Path, make: Any, format: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(PLANTS["PRE"]).SerializeToString())
    (PLANTS[make] if isinstance(make, str) else PLANTS[make[0]](*make[1:]))(path)
    found = judged(path, **told, limit=0.5)
    assert [finding for finding in found.findings if finding.severity != "note"] == []
    assert (found.status, found.conclusion, found.rounded_as) == (0, "as_stated", format)
    assert (
        f"6 of 16 parameters as {format}" in found.summaries["reduction"] or "14 of 16" in found.summaries["reduction"]
    )
    assert "against what it was made from" in found.summaries["reduction"], found.summaries["reduction"].split(";")
    as_numbers = [row for row in found.runtimes if row.level.endswith("integers as numbers")]
    assert [row.passed == row.applicable > 8 for row in as_numbers] == [True]


@pytest.mark.release
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
    [others] = [f.message for f in judged(path, **told, diagnosed=False).errors if f.phase == "layer"]
    assert " of 16 parameters hold other values, up to " in others, "another checkpoint is one cause"


@pytest.mark.release
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


def test_a_mask_that_is_one_for_all_items_is_no_error(judged: Judge, tmp_path: Path) -> None:
    body = PLANTS["PRE"].replace(PLANTS["MASKING"], "masked = Where(mask, scores, low)")
    path = tmp_path / "model.onnx"
    signature = PLANTS["SIGNATURE"].replace("bool[batch, sequence]", "bool[sequence, sequence]")
    path.write_bytes(model_of(body, signature).SerializeToString())
    found = judged(path)
    assert found.status == 0
    [note] = found.findings
    assert (note.phase, note.severity) == ("masks", "note")
    assert "'mask' is one for all items" in note.message
    asked = {record.case.partition("/")[2] for row in found.runtimes for record in row.records}
    assert "causal" in asked
    assert not {name for name in asked if "padd" in name}


@pytest.mark.release
def test_an_epsilon_that_float16_rounds_is_the_one_that_was_stated(
    judged: Judge, told: dict[str, Any], tmp_path: Path
) -> None:
    body = PLANTS["PRE"]
    for plain in PLANTS["BOTH_PLAIN"]:
        body = body.replace(*plain)
    constants = {"last": np.array([-1]), "size": np.float32(24), "eps": np.float32(1e-5), "low": np.float32(-6e4)}
    path = saved(tmp_path, "float16_inside", body, **constants)
    for layer in (None, told["layer"]):
        found = judged(path, layer=layer)
        assert [finding.message for finding in found.findings] == []
        assert found.status == 0


@pytest.mark.release
def test_a_scale_that_is_off_by_one_percent_is_said_to_be_that(judged: Judge, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(PLANTS["PRE"], root=np.float32(8**0.5 * 1.01)).SerializeToString())
    found = judged(path)
    assert found.status == 1
    [diagnosis] = found.diagnoses
    [equation] = diagnosis.equations
    assert (equation.stage, diagnosis.deviations) == ("attention_scores", ())
    assert float(equation.found.partition(" * ")[0]) == pytest.approx(1 / 1.01, rel=1e-5)


@pytest.mark.release
@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("bool[batch, 1, 1, sequence] mask", ""),
        ("bool[batch, sequence] padding", "seen = Not(padding)  mask = Unsqueeze(seen, middle)"),
    ],
    ids=("given", "made-in-the-file"),
)
def test_a_mask_that_one_runtime_refuses_is_that_runtimes_fault_by_name(
    judged: Judge, tmp_path: Path, given: str, made: str
) -> None:
    """One row of a mask for all queries, as torch.onnx.export writes it at opset 23: Attention takes whatever can be
    broadcast, and ONNX Runtime's takes none of that shape."""
    signature = PLANTS["SIGNATURE"].replace("bool[batch, sequence] mask", given)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(made + PLANTS["ATTENTION"], signature, 23).SerializeToString())
    found = judged(path, runtimes=2, diagnosed=False)
    assert (found.status, found.conclusion, found.wrong_runtimes) == (1, "runtime_wrong", ("onnxruntime all",))
    rows = {row.runtime: row for row in found.runtimes}
    assert rows["reference"].passed == rows["reference"].applicable > 8
    screen = Console(record=True, width=1000)
    show_validation(screen, found)
    assert "The file is correct; a runtime is not (onnxruntime all)" in screen.export_text()


def test_a_file_that_ends_one_runtime_is_judged_in_the_others(
    judged: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least integer by −1, which its format does not hold, is a signal to a process of ONNX Runtime."""
    made = (
        "items = Shape<start=0, end=1>(x)  back = Neg(items)  minus = Div(back, items)  big = Div(least, minus) "
        "width = Max(big, wide)  joined = Concat<axis=0>(zeros, width)  cm = Reshape(ct, joined)"
    )
    sizes = {"least": np.array([-(2**63)]), "wide": np.array([24]), "zeros": np.array([0, 0])}
    path = tmp_path / "model.onnx"
    text = PLANTS["PRE"].replace("cm = Reshape(ct, join)", made)
    path.write_bytes(model_of(text, **sizes).SerializeToString())
    monkeypatch.setattr(sys.modules[__name__], "ROWS", (("onnxruntime", "disable"), ("reference", "")))
    found = judged(path, runtimes=2, diagnosed=False)
    assert (found.status, found.conclusion, found.wrong_runtimes) == (1, "runtime_wrong", ("onnxruntime disable",))
    rows = {row.runtime: row for row in found.runtimes}
    assert rows["reference"].passed == rows["reference"].applicable > 8
    assert any("ended by SIG" in each.message for each in found.of_phase("loads"))


@pytest.mark.release
def test_one_failure_is_told_once(judged: Judge, tmp_path: Path) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == "sigmoid-gelu"]
    found = judged(fault.planted(tmp_path))
    assert [finding.phase for finding in found.errors] == ["numbers"]
    elsewhere = [finding for finding in found.warnings if not finding.message.endswith("see numbers")]
    assert [finding.message for finding in elsewhere] == [
        "the activation is x * sigmoid(1.6 * x), and no gelu exactly: off by up to 0.033"
    ]


@pytest.mark.release
@pytest.mark.parametrize(
    ("name", "deviation"),
    [
        ("causal", "mask-causal"),
        pytest.param("scale-missing", "scale-missing", marks=pytest.mark.release),
    ],
)
def test_what_is_otherwise_on_purpose_is_stated_and_passes(
    judged: Judge, tmp_path: Path, name: str, deviation: str
) -> None:
    """A causal mask, as in CLIP's text encoder, and no scale, as in T5."""
    [fault] = [fault for fault in FAULTS if fault.name == name]
    found = judged(fault.planted(tmp_path), deviations=(deviation,))
    assert [finding.message for finding in found.errors] == []
    assert (found.status, found.conclusion, found.deviations) == (0, "consistent", (deviation,))
    wrong = judged(tmp_path / "model" / "model.onnx", deviations=("scale-twice",))
    assert wrong.status == 1, "another one excuses nothing"


@pytest.mark.release
def test_a_causal_mask_that_the_source_has_too_is_no_fault_of_the_export(judged: Judge, tmp_path: Path) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == "causal"]
    path = fault.planted(tmp_path)
    found = judged(path, against=path)
    assert [finding.message for finding in found.errors] == []
    assert (found.status, found.deviations, found.warnings) == (0, ("mask-causal",), [])
    [told] = [finding for finding in found.findings if finding.kind == "causal-built-in"]
    assert told.hint.endswith("does the same")
    assert all(each.agrees for each in [found.whole])
    assert found.answers_compared > 4


def test_one_runtime_error_is_told_once(judged: Judge, tmp_path: Path) -> None:
    """Beside the phase that says why."""
    [fault] = [fault for fault in FAULTS if fault.name == "baked-reshape"]
    found = judged(fault.planted(tmp_path), diagnosed=False)
    assert [finding.phase for finding in found.errors] == ["dimensions"]
    answers = {each.question: each.answer for each in found.covered}
    assert (answers["other batch sizes"], answers["other lengths"]) == ("yes", "no")


def test_a_consistent_other_layer_is_never_said_to_do_what_it_should(judged: Judge, tmp_path: Path) -> None:
    """Exchanged query and key show in no file by itself; the conclusion does not claim otherwise."""
    [fault] = [fault for fault in FAULTS if fault.name == "swapped-initializers"]
    found = judged(fault.planted(tmp_path))
    assert (found.status, found.conclusion, found.compared_with) == (0, "consistent", ())


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


def everything_in(folder: Path) -> dict[str, int]:
    """Path → size of what lies there, what validation writes itself apart."""
    return {
        str(path.relative_to(folder)): path.lstat().st_size
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] != "out"
    }


@pytest.mark.release
def test_an_epsilon_that_is_not_the_usual_is_inferred_and_said(judged: Judge, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(PLANTS["PRE"].replace("0.00001", "0.001")).SerializeToString())
    found = judged(path)
    assert found.status == 0
    [warning] = found.findings
    assert "1e-05 (xlm_roberta_xl, modernbert, esm …)" in warning.message
    assert found.layer is not None
    assert found.layer.norm.epsilon == float(np.float32(1e-3))
    [said] = [fact.evidence for fact in found.description.facts if fact.key == "norm.epsilon"]
    assert said == "LayerNormalization 'n1', attribute epsilon"


def test_numbers_that_are_wrong_are_diagnosed_and_told_once(judged: Judge, tmp_path: Path) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == "scale-missing"]
    found = judged(fault.planted(tmp_path))
    assert [finding.phase for finding in found.errors] == ["numbers"]
    [error] = found.errors
    assert error.hint == "the first wrong node makes attention_scores: MatMul 'raw' (raw)"
    echoes = [finding.message for finding in found.findings if finding.phase in ("shapes", "masks")]
    assert "2 of 2 situations go wrong as no-mask does: see numbers" in echoes
    assert found.diagnoses[0].deviations == ("scale-missing",)


@pytest.mark.linux
def test_an_absurd_size_takes_no_memory(judged: Judge, tmp_path: Path) -> None:
    for fault in FAULTS:
        if fault.name in ("huge-intermediate", "absurd-dims", "over-2-GiB"):
            folder = tmp_path / fault.name
            folder.mkdir()
            assert judged(fault.planted(folder)).status == fault.status
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20, "KiB, of the largest worker"


def faulty(name: str, folder: Path) -> Path:
    folder.mkdir()
    [fault] = [fault for fault in FAULTS if fault.name == name]
    path: Path = fault.planted(folder)
    return path


@pytest.mark.release
def test_quick_gelu_is_read_and_is_right(judged: Judge, told: dict[str, Any], tmp_path: Path) -> None:
    """As CLIP has it; where a GELU is stated it is the wrong activation, unless its deviation is stated too."""
    path = faulty("quick-gelu", tmp_path / "file")
    found = judged(path)
    assert (found.status, found.conclusion, found.deviations) == (0, "consistent", ())
    assert found.layer is not None
    assert found.layer.feed_forward.activation == "quick_gelu"
    wrong = judged(path, told["layer"])
    assert {(each.phase, each.deviation) for each in wrong.errors} == {("layer", "gelu-quick"), ("numbers", None)}
    assert {name for each in wrong.diagnoses for name in each.deviations} == {"gelu-quick"}
    stated = judged(path, told["layer"], deviations=("gelu-quick",))
    assert (stated.status, [each.message for each in stated.errors]) == (0, [])


@pytest.mark.release
def test_a_file_is_held_against_another(judged: Judge, right: Path, tmp_path: Path) -> None:
    """The same in another opset; then a step that its source does otherwise, which is named with whose fault it is."""
    same = tmp_path / "same.onnx"
    same.write_bytes(model_of(PLANTS["PRE"], opset=17).SerializeToString())
    found = judged(same, against=right)
    assert (found.status, found.conclusion) == (0, "as_stated")
    assert found.compared_with == ("layer", "parameters", "source")
    assert f"16 of 16 parameters have theirs in {right}; " in found.summaries["source"]
    [note] = found.findings
    assert note.message == f"opsets: ai.onnx 18 in {right}, ai.onnx 17 in the file"
    other = judged(faulty("quick-gelu", tmp_path / "other"), against=right, diagnosed=False)
    said = [finding.message for finding in other.errors if finding.phase == "source"]
    assert any(f"differs from {right} from ffn_activation on: rms " in message for message in said)
    assert all(message.endswith(f"the file is off from the oracle, and {right} is not") for message in said)


@pytest.mark.release
def test_an_export_that_does_what_its_source_does_is_faithful(judged: Judge, tmp_path: Path) -> None:
    """Both compute x · sigmoid(1.6 x), which the layer that was read off them has not."""
    file, source = [faulty("sigmoid-gelu", tmp_path / name) for name in ("file", "source")]
    found = judged(file, against=source)
    assert (found.status, found.conclusion, found.excused) == (0, "as_source", True)
    said = [finding for finding in found.warnings if finding.phase == "numbers"]
    assert said
    assert all(finding.hint.endswith("does the same: it is not the export that made it so") for finding in said)


@pytest.mark.release
def test_a_file_is_held_against_its_module_and_its_checkpoint(judged: Judge, tmp_path: Path) -> None:
    page = runpy.run_path(str(Path(__file__).with_name("validating_page.py")))
    page["make_files"](tmp_path)
    found = judged(tmp_path / "encoder.onnx", against="module.py:encoder")
    assert (found.status, found.conclusion) == (0, "as_stated"), found.findings
    assert found.source_names["norm1.gain"] == "layer.norm1.weight"
    found = judged(tmp_path / "encoder.onnx", against="weights.safetensors")
    assert (found.status, found.conclusion, found.compared_with) == (0, "consistent", ("parameters", "source"))


@pytest.mark.release
def test_what_is_mechanical_is_mended_in_a_new_file(conform: Callable[..., Any], tmp_path: Path) -> None:
    model = model_of(PLANTS["PRE"], low=np.float32(-6e4))
    PLANTS["out_of_order"](model)
    PLANTS["stale_value_info"](model)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    words = ("validate", "model.onnx", "--fix", "new.onnx", "--runtime", "onnxruntime", "--json")
    ended = conform(*words)
    assert (
        "Written to new.onnx: its nodes are in order; shapes that contradicted its operators are gone" in ended.stderr
    )
    before, after = onnx.load(tmp_path / "model.onnx"), onnx.load(tmp_path / "new.onnx")
    assert sorted(node.SerializeToString() for node in before.graph.node) == sorted(
        node.SerializeToString() for node in after.graph.node
    )
    onnx.checker.check_model(after, full_check=True)
    ended = conform(*words)
    assert ended.status == 2
    assert "is there already" in ended.stderr


def test_a_name_that_is_no_utf_8_is_read(judged: Judge, right: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / os.fsdecode(b"m\xff.onnx")
    path.write_bytes(right.read_bytes()[:500])
    found = judged(path)
    assert (found.status, found.model.endswith("m\\udcff.onnx")) == (2, True)
    assert "does not parse" in found.errors[0].message


def test_the_most_nodes_that_are_read_are_said_and_can_be_others(
    conform: Callable[..., Any], right: Path, tmp_path: Path
) -> None:
    ended = conform("validate", right, "--nodes", "20", "--out", tmp_path / "out")
    assert ended.status == 2
    assert "it has 35 nodes, and 20 are the most that are read" in ended.stdout
    assert "--nodes" in ended.stdout


@pytest.mark.release
def test_a_loop_without_an_end_is_ended(judged: Judge, tmp_path: Path) -> None:
    """Its condition stays true: what it takes is bounded by the time that it is given."""
    body = parser.parse_graph("body (int64 i, bool c) => (bool on) { on = Identity(c) }")
    model = model_of(PLANTS["PRE"])
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "true"))
    model.graph.node.insert(0, helper.make_node("Loop", ["", "true"], [], "endless", body=body))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    found = judged(path, seconds=5)
    assert found.status == 2
    assert "looking into it did not end well" in found.errors[0].message


@pytest.mark.linux
def test_a_signal_leaves_no_worker(right: Path, tmp_path: Path) -> None:
    """What the command has started is gone with it, guards and workers."""
    program = Path(sys.executable).with_name("conform")
    process = subprocess.Popen([program, "validate", right, "--out", tmp_path / "out"], stderr=subprocess.PIPE)

    def started() -> list[int]:
        return [pid for each in children_of(process.pid) for pid in [each, *children_of(each)]]

    try:
        wait_until(lambda: len(started()) > 1)
        pids = started()
        process.terminate()
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 3
    assert b"interrupted" in said
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def wait_until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_the_command(conform: Callable[..., Any], tmp_path: Path) -> None:
    """From end to end, with every case and level: 1 and 2, and no traceback."""
    arguments = ("--runtime", "onnxruntime", "--out", tmp_path / "out")
    [polarity] = [fault for fault in FAULTS if fault.name == "mask-polarity"]
    path = polarity.planted(tmp_path)
    ended = conform("validate", path.relative_to(tmp_path), "--mask", "attend", "--json", *arguments)
    assert ended.status == 1, ended.stdout + ended.stderr
    [finding] = as_its_schema_says(ended.stdout)["findings"]
    assert (finding["phase"], finding["kind"]) == ("masks", "mask-meaning-unexpected")
    assert finding["about"] == {"name": "mask", "meaning": "ignore", "expected": "attend"}
    path.write_bytes(path.read_bytes()[:500])
    ended = conform("validate", path, *arguments)
    assert ended.status == 2
    assert "✗ file" in ended.stdout
    assert "The file could not be judged: 1 error, 0 warnings" in ended.stdout
    assert "Traceback" not in ended.stdout + ended.stderr


ADDITIONS = (
    "pre-rope-gated", "post-rope-interleaved", "pre-buckets", "sandwich-window", "pre-layer-scale",
    "pre-window-shiftless", "pre-qk-norm-capped", "res-post", "pre-parallel", "pre-parallel-one-norm",
)  # fmt: skip


@pytest.mark.release
@pytest.mark.parametrize("layer", ADDITIONS)
def test_an_export_is_read_with_what_the_language_was_extended_by(
    conform: Callable, tmp_path: Path, layer: str
) -> None:
    """Without being told, it is right; as its own layer, no key of it differs."""
    file = tmp_path / "layer.onnx"
    assert conform("export", "onnx_pytorch", "--layer", layer, "--to", file).status == 0
    read, told = conform("validate", file), conform("validate", file, "--layer", layer)
    assert (read.status, told.status) == (0, 0), read.stdout + told.stdout
    assert "0 errors" in told.stdout


TURNED = """{0}1, {0}2 = Split<axis=-1, num_outputs=2>({0}p)  {0}a = Mul({0}1, cos)  {0}b_ = Mul({0}2, sin)
 {0}c_ = Sub({0}a, {0}b_)  {0}e = Mul({0}1, sin)  {0}f = Mul({0}2, cos)  {0}g = Add({0}e, {0}f)
 {0}t = Concat<axis=-1>({0}c_, {0}g)"""


@pytest.mark.release
def test_a_theta_that_the_file_leaves_to_its_caller_is_no_difference(judged: Judge, tmp_path: Path) -> None:
    body = PLANTS["PRE"]
    for side, perm in (("q", "0,2,1,3"), ("k", "0,2,3,1")):
        turned = f"{side}p = Transpose<perm=[0,2,1,3]>({side}r)  {TURNED.format(side)}"
        last = "Identity" if side == "q" else "Transpose<perm=[0,1,3,2]>"
        old = f"{side}h = Transpose<perm=[{perm}]>({side}r)"
        assert old in body
        body = body.replace(old, f"{turned}  {side}h = {last}({side}t)")
    signature = (
        "(float[batch, sequence, 24] x, bool[batch, sequence] mask, float[sequence, 4] cos, float[sequence, 4] sin) "
        "=> (float[batch, sequence, 24] output)"
    )
    path = tmp_path / "model.onnx"
    onnx.save(model_of(body, signature), path)
    seen = inspect(path, None)
    assert seen.inferred is not None
    layer = seen.inferred.layer
    assert layer is not None
    assert layer.attention.rope is not None
    rope = layer.attention.rope.model_copy(update={"theta": 500.0})
    stated = layer.model_copy(update={"attention": layer.attention.model_copy(update={"rope": rope})})
    found = judged(path, stated)
    assert [each.message for each in found.errors] == []
    other = rope.model_copy(update={"pairing": "interleaved"})
    wrong = layer.model_copy(update={"attention": layer.attention.model_copy(update={"rope": other})})
    assert "attention.rope.pairing is halves in the file" in judged(path, wrong).errors[0].message


FRAMES = """
 waves = Conv<pads=[1,1]>(frames, Wc)  bent = Relu(waves)  x = Transpose<perm=[0,2,1]>(bent)"""


def test_what_stands_before_the_layers_and_was_not_judged_is_said_last(judged: Judge, tmp_path: Path) -> None:
    """A convolution over frames, as in encoders of speech: the layers behind it are judged with what it gives."""
    signature = "(float[batch, 4, 7] frames, bool[batch, 7] mask) => (float[batch, 7, 24] output)"
    kernel = np.random.default_rng(2).normal(size=(24, 4, 3), scale=0.4).astype(np.float32)
    model = model_of(f"{FRAMES} {PLANTS['PRE']}", signature, Wc=kernel)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    found = judged(path)
    assert (found.status, found.description.cut) == (0, "x")
    assert found.description.unjudged.startswith("the convolution Conv")
    screen = Console(record=True, width=1000)
    show_validation(screen, found)
    last = screen.export_text().splitlines()[-2]
    assert f"; what stands before 'x', {found.description.unjudged}, was not judged: 0 errors" in last
    whole = tmp_path / "whole.onnx"
    onnx.save(model_of(PLANTS["PRE"]), whole)
    assert judged(whole).description.unjudged == ""
