"""`conform validate`, the harness's side: what a file is asked and what its answers come to, by a fake worker.

The fake's files are JSON: a description, and lies to tell. Real files are in tests/frameworks/test_validate.py.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import as_its_schema_says, kinds_in
from products import of_a_release
from rich.console import Console
from safetensors.numpy import save_file

from encoder_conformance.commands.validate.evidence import ValidationRequest
from encoder_conformance.commands.validate.phases.layer import unlike_rounding
from encoder_conformance.commands.validate.results import Validation
from encoder_conformance.commands.validate.show import show_validation
from encoder_conformance.commands.validate.validation import validate
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute_all
from encoder_conformance.oracle.golden.store import case_digest
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.findings import PHASES
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import Constants, load
from encoder_conformance.worker.limits import WorkerLimits

LAYER = load().layers["post-relu"]
MASK = {"name": "mask", "dtype": "bool", "shape": ["batch", LAYER.attention.num_heads, "sequence", "sequence"]}
CHOICES = """
choices:
  - {name: model, values: any}
  - {name: runtime, values: [onnxruntime, reference, openvino], requires: {openvino: [a_module_that_nobody_has]}}
  - {name: level, values: [all, extended, basic, disable]}
  - {name: integers, values: [as_they_are, as_numbers]}
  - {name: looked_into_by, values: [onnxruntime, reference]}
capabilities:"""

WORKER = """
    def start(self, device, threads):
        import json
        self.file = json.loads(open(self.choices["model"]).read())
        return super().start(device, threads)

    def other(self, message, tensors):
        if self.file.get("ends"):
            os._exit(1)
        if self.file.get("ends_if_there") and os.path.exists(self.file["ends_if_there"]):
            os._exit(1)
        if self.file.get("hoards"):
            self.hoard = bytes(1 << 20) * 1000
            time.sleep(60)
        if "held" in self.file:
            from encoder_conformance.spec.load import constants
            constants()
            from safetensors.numpy import load_file
            return {"description": self.file["description"]}, load_file(self.file["held"])
        from encoder_conformance.spec.case import layer_parameters
        from encoder_conformance.spec.load import load
        layer = load().layers[self.file["parameters_of"]]
        held = {name: value.astype(self.file["stored_in"]) for name, value in layer_parameters(layer, {}).items()}
        for one, other in self.file.get("swapped", []):
            held[one], held[other] = held[other], held[one]
        return {"description": self.file["description"]}, held

    def lies(self, x, y):
        lie = self.file.get("lie", "")
        if self.file.get("honest_as", "nobody") == self.choices.get("integers"):
            return y
        if self.file.get("only_at") in (None, self.choices["level"]) and lie:
            y = y.copy()
            self.asked.append(x.shape[1])
            exec(lie, {"x": x, "y": y, "np": np, "asked": self.asked})
        return y

    def build(self, layer, parameters, dtype):
        if self.file.get("does_not_load") == self.choices["level"]:
            raise RuntimeError("no kernel for Gelu")
        self.asked = []
        told = {**layer, "norm": {**layer["norm"], **self.file.get("norm", {})}}
        super().build(told, parameters, dtype)
        return parameters

    def output(self, x, masks, run):
        return self.lies(x, super().output(x, masks, run))

    def stages(self, x, masks, run):
        seen = super().stages(x, masks, run)
        shown = {name: seen[name] for name in self.file["description"]["stages"]}
        return {**shown, "output": self.lies(x, seen["output"])}
"""


def description(**changes: Any) -> dict[str, Any]:
    shape = ["batch", "sequence", LAYER.d_model]
    anchors = {
        name: {"tensor": f"t_{name}", "node": f"node_{name}"} for name in ("norm1", "attention_weights", "output")
    }
    return {
        "findings": [],
        "file": {
            "bytes": 1 << 20, "external": [], "ir_version": 9, "opsets": {"": 18}, "producer": "a fake", "metadata": {},
        },
        "nodes": 40,
        "operators": {"MatMul": 8},
        "inputs": [{"name": "x", "dtype": "float32", "shape": shape}, MASK],
        "outputs": [{"name": "y", "dtype": "float32", "shape": shape}],
        "roles": {"x": "x", "output": "y", "masks": [{"name": "mask", "axes": "BHSS", "meaning": "attend"}]},
        "layer": LAYER.model_dump(mode="json"),
        "facts": [{"key": "norm.epsilon", "value": LAYER.norm.epsilon, "evidence": "LayerNormalization 'ln', epsilon"}],
        "stages": anchors,
        "parameters": {},
        **changes,
    }  # fmt: skip


GOLDENS: dict[bytes, Expected] = {}


def computed_once(
    cases: list[Case], constants: Constants, jobs: int, *, whole: bool
) -> Iterator[tuple[Case, Expected]]:
    """Most files here are of the same layer, and asked the same: their goldens are computed for the first of them."""
    keys = {case.id: _made_from(case, constants) for case in cases}
    for case, expected in compute_all(
        [case for case in cases if keys[case.id] not in GOLDENS], constants, jobs, whole=whole
    ):
        GOLDENS[keys[case.id]] = expected
    yield from ((case, GOLDENS[keys[case.id]]) for case in cases)


def _made_from(case: Case, constants: Constants) -> bytes:
    """What a golden depends on; a file's parameters are its own."""
    tensors = {"x": case.x(), **case.parameters()}
    made = sha256(case_digest(case, constants).encode())
    for name, value in sorted(tensors.items()):
        made.update(name.encode() + value.tobytes())
    return made.digest()


@pytest.fixture
def validated(fake: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Validation]:
    """Validate a file that a fake worker looks into.

    `diagnosed=False` leaves out the diagnosis, for a test that does not read what it says.
    """
    monkeypatch.setattr("encoder_conformance.oracle.golden.build.compute_all", computed_once)
    monkeypatch.setattr(
        "encoder_conformance.commands.validate.runtimes.RUNTIMES",
        (("onnxruntime", "disable"), ("onnxruntime", "extended")),
    )
    folder: Path = fake("onnx_file", WORKER)
    manifest = folder / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("\ncapabilities:", CHOICES))

    def of(
        *, layer: Layer | None = None, parameters: Any = None, limit: float | None = None, says: Any = None,
        strict: bool = False, runtimes: tuple[str, ...] = ("onnxruntime",),
        limits: WorkerLimits | None = None, diagnosed: bool = True, **file: Any
    ) -> Validation:  # fmt: skip
        if not diagnosed:
            monkeypatch.setattr(Observations, "diagnoses", lambda *_, **__: [])
        model = tmp_path / "model.json"
        defaults = {"parameters_of": "post-relu", "stored_in": "float32", "description": description(**(says or {}))}
        model.write_text(json.dumps({**defaults, **file}))
        asked = ValidationRequest(
            model, layer, parameters, None, runtimes, {}, limit, strict, limits=limits or WorkerLimits()
        )
        quiet = Progress(begin=lambda what, total: None, step=lambda what: None)
        found = validate(asked, tmp_path / "out", 2, quiet, folder)
        as_its_schema_says(found.model_dump_json())
        return found

    return of


def errors(found: Validation) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for finding in found.errors:
        said.setdefault(finding.phase, []).append(finding.message)
    return said


def verdict_of(found: Validation) -> str:
    """The last line but that which explains σ."""
    *_, verdict, sigma = printed(found)
    assert sigma == "1 σ: the rounding noise of a correct layer."
    return verdict


def printed(found: Validation) -> list[str]:
    """The lines that a terminal shows."""
    screen = Console(file=StringIO(), width=160)
    show_validation(screen, found)
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue().splitlines()


CHOICES_SAID = "post-norm layer_norm ε 1e-05, relu, scores over √head_dim, all biases, D = 20, H = 4, F = 48"


@pytest.mark.release
def test_nothing_said_what_it_should_be_and_so_it_is_consistent_alone(validated: Callable) -> None:
    found = validated()
    assert (found.status, found.conclusion, found.compared_with) == (0, "consistent", ())
    last = verdict_of(found)
    assert last.startswith("Internally consistent; not compared with the original: pass --against.")
    assert CHOICES_SAID in last
    assert "The file is correct" not in "".join(printed(found))


@pytest.mark.release
def test_what_it_should_be_was_said_and_it_is_that(validated: Callable) -> None:
    found = validated(layer=LAYER)
    assert (found.status, found.conclusion, found.compared_with) == (0, "as_stated", ("layer",))
    last = verdict_of(found)
    assert last.startswith(f"The file is correct, as post-relu: {CHOICES_SAID}")
    assert "the values of its parameters were not compared with the original" in last
    found = validated(layer=LAYER, parameters=layer_parameters(LAYER, {}))
    assert found.compared_with == ("layer", "parameters")
    assert "the values of its parameters were compared: 0 errors" in verdict_of(found)


@pytest.mark.release
def test_the_layout_and_each_choice_are_said(validated: Callable) -> None:
    own = LAYER.model_dump(mode="json")
    own["attention"] |= {"scale": "d_model", "output_bias": False}
    roles = {"x": "x", "output": "y", "masks": [], "layout": "SBD"}
    said = printed(validated(says={"layer": own, "roles": roles}))[1]
    assert "scores over √d_model" in said
    assert "biases in query, key and value and feed-forward alone" in said
    assert "x [sequence, batch, features]" in said


@pytest.mark.parametrize(("strict", "status"), [(False, 0), (True, 1)])
def test_a_warning_fails_where_it_is_told_to(validated: Callable, strict: bool, status: int) -> None:
    warning = {"phase": "layer", "severity": "warning", "kind": "unusual-choice", "message": "unusual", "hint": ""}
    found = validated(says={"findings": [warning]}, strict=strict)
    assert found.status == status
    assert json.loads(found.model_dump_json())["status"] == status
    assert json.loads(found.model_dump_json())["strict"] == strict
    assert ("(--strict: a warning fails)" in verdict_of(found)) == strict
    assert verdict_of(found).startswith("The file is wrong" if strict else "Internally consistent")


@pytest.mark.release
def test_a_file_forges_no_line(validated: Callable) -> None:
    forged = "me\n\x1b[2K[/][bold green]The file is correct: 0 errors, 0 warnings[/]"
    names = {"name": "mask\r[bold]", "dtype": "bool", "shape": [None]}
    file = {**description()["file"], "producer": forged}
    lines = printed(validated(norm={"epsilon": 1e-3}, says={"file": file, "inputs": [*description()["inputs"], names]}))
    assert lines[0].endswith("[2K[/][bold green]The file is correct: 0 errors, 0 warnings[/]")
    assert not any("\x1b" in line or "\r" in line for line in lines)
    assert [line for line in lines if line.startswith("The file ")] == [lines[-2]]
    assert lines[-2].startswith("The file is wrong")


def test_a_right_file_is_asked_at_every_level_and_passes(validated: Callable) -> None:
    found = validated()
    assert errors(found) == {}
    assert found.status == 0
    assert [(row.runtime, row.level) for row in found.runtimes] == [
        ("onnxruntime", "disable"),
        ("onnxruntime", "extended"),
    ]
    asked = {record.case.partition("/")[2] for record in found.runtimes[0].records}
    assert {"size-1x1", "size-5x33", "padding-right", "padded-item", "mask-per-head", "no-mask"} <= asked
    assert "invariant-padding-content" in asked
    assert all(row.passed == row.applicable > 30 for row in found.runtimes)
    assert all(0 < row.rms < 2 for row in found.runtimes)
    assert set(found.summaries) == set(PHASES) - {"reduction", "source", "whole"}
    assert set(found.not_asked) == {"reduction", "source", "whole"}
    assert [(each.question, each.answer) for each in found.covered] == [
        ("other batch sizes", "yes"), ("other lengths", "yes"), ("padding", "yes"),
        ("other runtimes", "not asked"), ("other levels", "yes"),
    ]  # fmt: skip
    assert found.summaries["interface"] == (
        f"x 'x' float32, mask 'mask' [batch, {LAYER.attention.num_heads}, sequence, sequence] (true = attend), "
        "output 'y' float32"
    )
    assert found.summaries["cost"].startswith("1.00 MiB, 40 nodes, onnxruntime ")
    stages = {
        tensor.tensor for row in found.runtimes for r in row.records if r.check == "stages" for tensor in r.tensors
    }
    assert stages == {"norm1", "attention_weights", "output"}  # those that the file has a value for


@pytest.mark.release
def test_a_file_that_is_wrong_at_one_level_is_said_to_be(validated: Callable) -> None:
    found = validated(lie="y += 1e-3", only_at="extended", diagnosed=False)
    assert found.status == 1
    assert all("onnxruntime extended: fail" in message for message in errors(found)["numbers"])
    assert "onnxruntime extended and onnxruntime disable differ in" in errors(found)["levels"][0]
    assert len(errors(found)["levels"]) == 1
    assert (found.conclusion, found.wrong_runtimes) == ("runtime_wrong", ("onnxruntime extended",))
    last = verdict_of(found)
    assert last.startswith("The file is correct; a runtime is not (onnxruntime extended)")


def test_a_file_that_is_wrong_to_the_letter_is_no_runtimes_fault(validated: Callable) -> None:
    found = validated(lie="y += 1e-3", only_at="disable", diagnosed=False)
    assert (found.status, found.conclusion, found.wrong_runtimes) == (1, "wrong", ())


def test_an_answer_that_depends_on_what_was_asked_before(validated: Callable, tmp_path: Path) -> None:
    """As a runtime that keeps its plan for one position: the sentence, the least length, a script, and whose fault."""
    found = validated(lie="y += (asked[0] == 1) * (x.shape[1] >= 6)", only_at="extended", diagnosed=False)
    [message] = errors(found)["history"]
    assert message.startswith(
        "onnxruntime extended: after a run at batch 1, sequence 1, lengths from 6 on are wrong: rms "
    )
    assert found.summaries["history"] == "1 of 2 runtimes and levels answer the same, whatever was asked before"
    assert (found.conclusion, found.wrong_runtimes) == ("runtime_wrong", ("onnxruntime extended",))
    [script] = (tmp_path / "out" / "logs").glob("history-*.py")
    assert str(script) in next(finding.hint for finding in found.errors if finding.phase == "history")
    program = script.read_text()
    compile(program, script.name, "exec")
    assert "ORT_ENABLE_EXTENDED" in program
    assert "given(*(1, 1))" in program


def test_what_was_asked_before_is_the_cause_of_what_is_right_in_a_fresh_session(validated: Callable) -> None:
    """No other is looked for, and no level of optimisation is to blame in a runtime that was asked something before."""
    found = validated(lie="y += (1 in asked[:-1]) * (x.shape[1] >= 16)", only_at="extended")
    [message] = errors(found)["history"]
    assert message.endswith("from the answer of a fresh session; its 2 wrong answers are right in one")
    assert found.diagnoses == ()


@pytest.mark.release
def test_the_node_out_of_line_is_named_and_the_deviation(validated: Callable) -> None:
    found = validated(norm={"epsilon": 1e-3})
    assert found.status == 1
    low = next(f for f in found.errors if "low-variance" in f.message)
    assert "every runtime" in low.message
    assert low.hint == "the first wrong node makes norm1: node_norm1 (t_norm1)"
    [diagnosis] = found.diagnoses
    assert diagnosis.deviations == ("norm-eps-1e-3",)


DROPS = "y[np.random.default_rng(1).random(y.shape) < 0.1] = 0.0; y /= 0.9"
"""Each time the same."""


@pytest.mark.release
def test_what_repeats_to_the_bit_is_no_dropout(validated: Callable) -> None:
    found = validated(lie=DROPS, says={"stages": {}})
    assert all(record.outcome == "pass" for record in records_of(found, "invariant-determinism"))
    assert not [name for each in found.diagnoses for name in each.deviations if "dropout" in name]


@pytest.mark.release
def test_an_invariant_that_is_broken_is_a_cause(validated: Callable) -> None:
    """As in a run, and in a check."""
    found = validated(lie="y += 1e-3 * (x.tobytes() in asked); asked.append(x.tobytes())", says={"stages": {}})
    assert {record.outcome for record in records_of(found, "invariant-determinism")} == {"fail"}
    assert "seen" in [each.confidence for each in found.diagnoses]


def records_of(found: Validation, situation: str) -> list[Record]:
    records = [record for run in found.runtimes for record in run.records]
    return [record for record in records if record.case.endswith(f"/{situation}")]


@pytest.mark.release
def test_a_level_that_does_not_load_is_one_finding(validated: Callable) -> None:
    found = validated(does_not_load="extended")
    assert errors(found) == {"loads": ["onnxruntime extended: build: RuntimeError: no kernel for Gelu"]}
    assert (found.status, found.conclusion) == (1, "runtime_wrong")


def test_a_file_that_ends_the_worker_is_said_to(validated: Callable) -> None:
    found = validated(ends=True)
    assert found.status == 2
    [message] = errors(found)["file"]
    assert "looking into it did not end well: the worker exited with status 1" in message


@pytest.mark.release
def test_what_was_told_of_it_is_held_against_it(validated: Callable) -> None:
    own = LAYER.model_dump(mode="json")
    own["norm"]["epsilon"] = float(np.float32(1e-3))
    found = validated(layer=LAYER, norm={"epsilon": 1e-3}, says={"layer": own})
    [message] = errors(found)["layer"]
    assert message.startswith("norm.epsilon is 0.001")
    assert "in the file (LayerNormalization 'ln', epsilon), and 9.99" in message
    [diagnosis] = found.diagnoses  # judged as what it was told to be
    assert diagnosis.deviations == ("norm-eps-1e-3",)


def test_parameters_of_another_layer_are_not_judged(validated: Callable) -> None:
    found = validated(layer=load().layers["pre-gelu"])
    assert found.status == 2
    [message] = errors(found)["layer"]
    assert message.startswith("the file's parameters are not those of pre-gelu: norm1.gain is [20]")


@pytest.mark.release
def test_parameters_that_are_swapped_are_named(validated: Callable) -> None:
    due = layer_parameters(LAYER, {})
    pair = ["attention.query.weight", "attention.key.weight"]
    found = validated(layer=LAYER, parameters=due, swapped=[pair])
    assert f"{pair[0]} holds {pair[1]}" in errors(found)["layer"]
    assert f"{pair[1]} holds {pair[0]}" in errors(found)["layer"]
    assert "numbers" not in errors(found)  # it computes what its own parameters say


def asked_of(found: Validation) -> set[str]:
    return {record.case.partition("/")[2] for record in found.runtimes[0].records}


def covered(found: Validation) -> dict[str, tuple[str, str]]:
    return {each.question: (each.answer, each.said) for each in found.covered}


def of_shape(*sizes: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "dtype": "float32", "shape": [*sizes, LAYER.d_model]}, MASK]}


@pytest.mark.release
def test_a_file_of_one_size_is_asked_at_that_size_and_is_said_to_be(validated: Callable) -> None:
    """A phase that asks nothing is ticked by nothing; what needs no other size is asked all the same."""
    found = validated(says=of_shape(1, 12))
    asked = asked_of(found)
    assert not {name for name in asked if name.startswith("size-")}
    assert {"padding-right", "padding-left", "no-mask", "invariant-determinism", "invariant-padding-content"} <= asked
    assert not asked & {"invariant-batch", "invariant-padding-length"}
    assert errors(found) == {}
    fixes = "the file fixes the batch at 1 and the sequence at 12"
    assert (found.not_asked["shapes"], found.not_asked["history"]) == (fixes, fixes)
    assert f"– shapes     {fixes}" in printed(found)
    said = covered(found)
    assert said["other batch sizes"] == ("not asked", "the file fixes the batch at 1")
    assert said["other lengths"] == ("not asked", "the file fixes the sequence at 12")
    assert said["padding"][0] == "yes"
    of_one_item = [record for record in found.runtimes[0].records if record.case.endswith("/invariant-padding-content")]
    assert [record.outcome for record in of_one_item] == ["pass"]


@pytest.mark.release
@pytest.mark.parametrize(("sizes", "lie", "batch", "length"), [
    of_a_release((1, "sequence"), "", "not asked: the file fixes the batch at 1", "yes: 1, 7, 10, 20 and 33"),
    of_a_release(("batch", 12), "", "yes: 1, 2, 3 and 5", "not asked: the file fixes the sequence at 12"),
    (("batch", 12), "y += x.shape[0] == 3", "no: wrong at 3; asked: 1, 2, 3 and 5",
     "not asked: the file fixes the sequence at 12"),
])  # fmt: skip
def test_where_one_size_is_fixed_the_other_is_asked(
    validated: Callable, sizes: Any, lie: str, batch: str, length: str
) -> None:
    found = validated(says=of_shape(*sizes), lie=lie, diagnosed=False)
    said = covered(found)
    assert [": ".join(said[name]) for name in ("other batch sizes", "other lengths")] == [batch, length]
    assert (found.status == 0) == (not lie)
    batches = next(each for each in found.covered if each.question == "other batch sizes")
    assert batches.wrong == ((3,) if lie else ())
    assert set(batches.wrong) <= set(batches.asked)


def test_a_file_without_masks_is_asked_for_none_and_is_said_to_be(validated: Callable) -> None:
    found = validated(says={"roles": {"x": "x", "output": "y", "masks": []}})
    assert not {name for name in asked_of(found) if "padd" in name or "mask-" in name or "causal" in name}
    assert "masks" not in found.summaries
    assert found.status == 0
    assert "– masks      it takes no mask that hides a position" in printed(found)
    assert "Padding?            not asked: it takes no mask that hides a position" in printed(found)


def test_a_runtime_alone_is_compared_with_nothing(validated: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("encoder_conformance.commands.validate.runtimes.RUNTIMES", (("onnxruntime", "disable"),))
    found = validated()
    assert (found.status, found.not_asked["levels"]) == (0, "one runtime and level alone; nothing to compare")
    assert covered(found)["other runtimes"] == ("not asked", "reference was left out; openvino was left out")
    [runtimes] = [each for each in found.covered if each.question == "other runtimes"]
    assert (runtimes.asked, runtimes.wrong) == (("onnxruntime",), ())
    assert covered(found)["other levels"][0] == "not asked"


def test_a_file_that_is_not_understood_has_no_phase_ticked_that_asks_it(validated: Callable) -> None:
    finding = {"phase": "layer", "severity": "error", "kind": "layer-not-read", "message": "no softmax", "hint": ""}
    says = {"layer": None, "findings": [finding]}
    found = validated(says=says)
    assert (found.status, found.judged, found.runtimes, found.covered) == (2, False, (), ())
    assert errors(found) == {"layer": ["no softmax"]}
    assert kinds_in(as_its_schema_says(found.model_dump_json())) == {"layer-not-read"}
    assert [line[0] for line in printed(found) if line[2:].startswith(("loads", "shapes", "cost"))] == ["–", "–"]
    assert [line for line in printed(found) if line.startswith("✓")][-1].startswith("✓ dimensions")


@pytest.mark.release
def test_a_file_of_float16_is_asked_in_it(validated: Callable) -> None:
    shape = ["batch", "sequence", LAYER.d_model]
    x, y = ({"name": name, "dtype": "float16", "shape": shape} for name in ("x", "y"))
    says = {"inputs": [x, MASK], "outputs": [y]}
    found = validated(says=says, stored_in="float16")
    assert (found.dtype, found.rounded_as) == ("float16", None)
    assert {record.dtype for record in found.runtimes[0].records} == {"float16"}
    assert errors(found) == {}


@pytest.mark.release
def test_float16_weights_are_judged_by_their_own_roundoff(validated: Callable) -> None:
    rounded = "y += (np.random.default_rng(0).random(y.shape) - 0.5) * 2**-11 * 4"
    assert validated(lie=rounded, diagnosed=False).status == 1
    found = validated(lie=rounded, stored_in="float16")
    assert found.rounded_as == "float16"
    assert errors(found) == {}


@pytest.mark.parametrize(("limit", "status"), [of_a_release(None, 0), of_a_release(0.1, 0), (0.001, 1)])
def test_integer_weights_are_reported_and_held_to_a_limit(
    validated: Callable, limit: float | None, status: int
) -> None:
    lie = {"lie": "y *= 1.02", "honest_as": "as_numbers"}
    found = validated(limit=limit, says={"quantised": True}, diagnosed=False, **lie)
    assert found.rounded_as == "int8"
    assert found.status == status
    of_the_file, as_numbers = found.runtimes[:2], found.runtimes[2]
    assert [row.relative_error for row in of_the_file] == [pytest.approx(0.02, rel=1e-3)] * 2
    assert as_numbers.relative_error is None
    assert as_numbers.passed == as_numbers.applicable
    assert any(re.search(r"extended +relative error 0\.02", line) for line in printed(found))
    assert "ordinary inputs 0.02 (" in found.summaries["reduction"]


@pytest.mark.release
def test_numbers_that_integers_stand_for_are_judged_in_full(validated: Callable) -> None:
    found = validated(norm={"epsilon": 1e-3}, says={"quantised": True})
    assert found.status == 1
    [(_, messages)] = [(phase, said) for phase, said in errors(found).items() if phase == "numbers"]
    assert "onnxruntime disable, integers as numbers: fail: norm1" in messages[0]
    [diagnosis] = found.diagnoses
    assert diagnosis.deviations == ("norm-eps-1e-3",)


@pytest.mark.release
def test_integers_whose_numbers_do_not_run_are_not_right(validated: Callable) -> None:
    found = validated(says={"quantised": True}, does_not_load="disable")
    assert found.status == 1
    assert any(message.startswith("onnxruntime disable, integers as numbers: ") for message in errors(found)["loads"])


@pytest.mark.release
def test_a_limit_for_a_file_without_integers_is_said_to_hold_nothing(validated: Callable) -> None:
    found = validated(limit=0.1)
    [note] = found.of_phase("reduction")
    assert note.message.startswith("--limit holds the error of a file with integer weights")


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda weight, step: np.round(weight / step) * step, ""),
        (lambda weight, step: np.round(weight / step) * step * 1.01, "is 1.01 times what it was made from: a wrong"),
        (lambda weight, step: -np.round(weight / step) * step, "times what it was made from: a wrong sign"),
        (lambda weight, step: (np.round(weight / step) + 3) * step, "a wrong zero point"),
        (lambda weight, step: np.round(weight[::-1] / step) * step, "is not the int8 of what it was made from"),
    ],
)  # fmt: skip
def test_integer_weights_are_the_rounding_of_what_they_were_made_from(edit: Any, said: str) -> None:
    weight = np.random.default_rng(0).normal(size=(24, 40)).astype(np.float32)
    step = float(np.abs(weight).max() / 127)
    found = unlike_rounding(edit(weight, step).astype(np.float32), weight, step, "int8")
    assert (said in found) if said else not found


def test_gains_that_are_nearly_one_are_no_shifted_rounding() -> None:
    """A factor is hardly seen in them, and what it is off by is no zero point."""
    for seed in range(40):
        gain = (1 + 0.05 * np.random.default_rng(seed).normal(size=24)).astype(np.float32)
        step = float(np.abs(gain).max() / 127)
        assert not unlike_rounding((np.round(gain / step) * step).astype(np.float32), gain, step, "int8")


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_done(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ended = conform("validate", "model.onnx", "--out", "taken/out")
    assert ended.status == 2
    assert ended.stderr.startswith("conform: --out taken/out: cannot be written: Not a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_what_an_earlier_validation_found_is_gone_whatever_becomes_of_this_one(
    conform: Callable, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    result = tmp_path / "out" / "validation.json"
    result.write_text("of an earlier file")
    conform("validate", "nobody-has-this.onnx", "--out", "out")
    assert not result.exists() or result.read_text() != "of an earlier file"


def test_two_validations_do_not_write_to_one_folder(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = os.open(tmp_path / "out", os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        ended = conform("validate", "model.onnx", "--out", "out")
    finally:
        os.close(other)
    assert ended.status == 2
    assert ended.stderr.startswith("conform: --out out: another run is writing there")


@pytest.mark.linux
def test_a_file_that_takes_more_memory_than_it_may_is_a_finding(validated: Callable) -> None:
    found = validated(hoards=True, limits=WorkerLimits(memory=400 << 20))
    [said] = errors(found)["file"]
    assert "more than its limit (--memory), and was ended" in said
    assert found.status == 2


@pytest.mark.sandbox
def test_an_isolated_validation_sees_the_file_and_no_other(validated: Callable, honest: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    elsewhere.mkdir()
    # The sandbox has what lies beside the file, and not the tests.
    shutil.copy(honest / "adapter.py", tmp_path / "honest.py")
    adapter = tmp_path / "onnx_file" / "adapter.py"
    adapter.write_text(adapter.read_text().replace(str(honest / "adapter.py"), str(tmp_path / "honest.py")))
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(LAYER, {}).items()}
    save_file(parameters, tmp_path / "parameters")
    file = {"ends_if_there": str(elsewhere), "held": str(tmp_path / "parameters")}
    assert validated(**file).status == 2
    assert validated(**file, limits=WorkerLimits(isolate=True)).status == 0


def test_a_deviation_that_is_not_known_is_refused(conform: Callable) -> None:
    ended = conform("validate", "model.onnx", "--deviation", "gelu-quik")
    assert ended.status == 2
    assert "gelu-quik is no known deviation" in ended.stderr
    assert "gelu-quick" in ended.stderr


def test_the_limits_are_options(conform: Callable) -> None:
    assert "'1kB' is no size" in conform("validate", "model.onnx", "--memory", "1kB").stderr
    assert "--isolate" in conform("validate", "--help").stdout


@pytest.mark.release
def test_properties_are_judged_without_a_golden(validated: Callable) -> None:
    found = validated(lie="y += 1e-3 * x.mean(axis=0, keepdims=True)", diagnosed=False)
    assert any(message.startswith("invariant-batch") for message in errors(found)["properties"])


@pytest.mark.release
def test_a_large_file_is_sampled_and_that_is_said(validated: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer situations, smaller ones, one level; what is wrong shows all the same."""
    monkeypatch.setattr("encoder_conformance.commands.validate.weights.LARGE", 100)
    monkeypatch.setattr("encoder_conformance.commands.validate.weights.DEPLOYED", ("onnxruntime", "extended"))
    found = validated(runtimes=())
    assert (found.status, errors(found)) == (0, {})
    assert [row.level for row in found.runtimes if row.records] == ["extended"]
    asked = {record.case.partition("/")[2] for row in found.runtimes for record in row.records}
    assert asked == {"size-1x1", "padding-right", "no-mask", "invariant-determinism", "invariant-padding-content"}
    [note] = [finding for finding in found.findings if "are sampled" in finding.message]
    assert "at up to 2 × 6 positions, in onnxruntime extended" in note.message
    assert errors(validated(runtimes=(), lie="y += 1e-3", diagnosed=False)).keys() >= {"numbers"}
