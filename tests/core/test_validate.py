"""`conform validate`, the harness's side: what a file is asked and what its answers come to, by a fake worker.

The fake's files are JSON: a description, and lies to tell. Real files are in tests/impls/test_validate.py.
"""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.golden.build import compute_all
from encoder_conformance.golden.store import case_digest
from encoder_conformance.judge.expected import Expected
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.validate.findings import PHASES
from encoder_conformance.validate.request import Progress, ValidationRequest
from encoder_conformance.validate.results import Validation
from encoder_conformance.validate.validation import validate

LAYER = load().layers["post-relu"]
MASK = {"name": "mask", "dtype": "bool", "shape": ["batch", LAYER.attention.num_heads, "sequence", "sequence"]}
CHOICES = """
choices:
  - {name: model, values: any}
  - {name: runtime, values: [onnxruntime, reference, openvino], requires: {openvino: [a_module_that_nobody_has]}}
  - {name: level, values: [all, extended, basic, disable]}
capabilities:"""

WORKER = """
    def start(self, device, threads):
        import json
        self.file = json.loads(open(self.choices["model"]).read())
        return super().start(device, threads)

    def other(self, message):
        if self.file.get("ends"):
            os._exit(1)
        from encoder_conformance.spec.case import layer_parameters
        from encoder_conformance.spec.load import load
        layer = load().layers[self.file["parameters_of"]]
        held = {name: value.astype(self.file["held_in"]) for name, value in layer_parameters(layer, {}).items()}
        for one, other in self.file.get("swapped", []):
            held[one], held[other] = held[other], held[one]
        return {"description": self.file["description"]}, held

    def lies(self, x, y):
        lie = self.file.get("lie", "")
        if self.file.get("only_at") in (None, self.choices["level"]) and lie:
            y = y.copy()
            exec(lie, {"x": x, "y": y, "np": np})
        return y

    def build(self, layer, parameters, dtype):
        if self.file.get("does_not_load") == self.choices["level"]:
            raise RuntimeError("no kernel for Gelu")
        told = {**layer, "norm": {**layer["norm"], **self.file.get("norm", {})}}
        super().build(told, parameters, dtype)
        return parameters

    def output(self, x, masks):
        return self.lies(x, super().output(x, masks))

    def stages(self, x, masks):
        seen = super().stages(x, masks)
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


def computed_once(cases: list[Case], constants: Constants, jobs: int) -> Iterator[tuple[Case, Expected]]:
    """Most files here are of the same layer, and asked the same: their goldens are computed for the first of them."""
    keys = {case.id: _made_from(case, constants) for case in cases}
    for case, expected in compute_all([case for case in cases if keys[case.id] not in GOLDENS], constants, jobs):
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
    """Validate a file that a fake worker looks into."""
    monkeypatch.setattr("encoder_conformance.validate.validation.compute_all", computed_once)
    monkeypatch.setattr(
        "encoder_conformance.validate.runtimes.RUNTIMES", (("onnxruntime", "disable"), ("onnxruntime", "extended"))
    )
    folder: Path = fake("onnx_file", WORKER)
    manifest = folder / "impl.yaml"
    manifest.write_text(manifest.read_text().replace("\ncapabilities:", CHOICES))

    def of(
        *, layer: Layer | None = None, parameters: Any = None, limit: float | None = None, says: Any = None, **file: Any
    ) -> Validation:
        model = tmp_path / "model.json"
        defaults = {"parameters_of": "post-relu", "held_in": "float32", "description": description(**(says or {}))}
        model.write_text(json.dumps({**defaults, **file}))
        asked = ValidationRequest(model, layer, parameters, None, ("onnxruntime",), {}, limit)
        quiet = Progress(begin=lambda what, total: None, step=lambda what: None)
        return validate(asked, tmp_path / "out", 2, quiet, folder)

    return of


def errors(found: Validation) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for finding in found.errors:
        said.setdefault(finding.phase, []).append(finding.message)
    return said


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
    assert set(found.summaries) == set(PHASES) - {"reduction"}
    assert found.summaries["interface"] == (
        f"x 'x' float32, mask 'mask' [batch, {LAYER.attention.num_heads}, sequence, sequence] (true = attend), "
        "output 'y' float32"
    )
    assert found.summaries["cost"].startswith("1.00 MiB, 40 nodes, onnxruntime ")
    stages = {
        tensor.tensor for row in found.runtimes for r in row.records if r.check == "stages" for tensor in r.tensors
    }
    assert stages == {"norm1", "attention_weights", "output"}  # those that the file has a value for


def test_a_file_that_is_wrong_at_one_level_is_said_to_be(validated: Callable) -> None:
    found = validated(lie="y += 1e-3", only_at="extended")
    assert found.status == 1
    assert all("onnxruntime extended: fail" in message for message in errors(found)["numbers"])
    assert "onnxruntime extended and onnxruntime disable differ in" in errors(found)["levels"][0]
    assert len(errors(found)["levels"]) == 1


def test_the_node_out_of_line_is_named_and_the_deviation(validated: Callable) -> None:
    found = validated(norm={"epsilon": 1e-3})
    assert found.status == 1
    low = next(f for f in found.errors if "low-variance" in f.message)
    assert "every runtime" in low.message
    assert low.hint == "the first node out of line makes norm1: node_norm1 (t_norm1)"
    [diagnosis] = found.diagnoses
    assert diagnosis.deviations == ("norm-eps-1e-3",)


def test_a_level_that_does_not_load_is_one_finding(validated: Callable) -> None:
    found = validated(does_not_load="extended")
    assert errors(found) == {"loads": ["onnxruntime extended: build: RuntimeError: no kernel for Gelu"]}
    assert found.status == 1


def test_a_file_that_loads_nowhere_is_not_judged(validated: Callable, fake: Callable) -> None:
    says = {"layer": None, "findings": [{"phase": "layer", "severity": "error", "message": "no softmax", "hint": ""}]}
    found = validated(says=says)
    assert found.status == 2
    assert not found.judged
    assert errors(found) == {"layer": ["no softmax"]}
    assert found.runtimes == ()


def test_a_file_that_ends_the_worker_is_said_to(validated: Callable) -> None:
    found = validated(ends=True)
    assert found.status == 2
    [message] = errors(found)["file"]
    assert "looking into it did not end well: the worker exited with status 1" in message


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


def test_parameters_that_are_swapped_are_named(validated: Callable) -> None:
    due = layer_parameters(LAYER, {})
    pair = ["attention.query.weight", "attention.key.weight"]
    found = validated(layer=LAYER, parameters=due, swapped=[pair])
    assert f"{pair[0]} holds {pair[1]}" in errors(found)["layer"]
    assert f"{pair[1]} holds {pair[0]}" in errors(found)["layer"]
    assert "numbers" not in errors(found)  # it computes what its own parameters say


def test_a_file_of_one_size_is_asked_at_that_size(validated: Callable) -> None:
    fixed = [2, 12, LAYER.d_model]
    found = validated(says={"inputs": [{"name": "x", "dtype": "float32", "shape": fixed}, MASK]})
    shapes = {record.case.partition("/")[2] for record in found.runtimes[0].records}
    assert not {name for name in shapes if name.startswith("size-")}
    assert {"padding-right", "padding-left", "no-mask"} <= shapes
    assert errors(found) == {}


def test_a_file_without_masks_is_asked_for_none(validated: Callable) -> None:
    found = validated(says={"roles": {"x": "x", "output": "y", "masks": []}})
    asked = {record.case.partition("/")[2] for record in found.runtimes[0].records}
    assert not {name for name in asked if "padd" in name or "mask-" in name or "causal" in name}
    assert "masks" not in found.summaries
    assert found.status == 0


def test_a_file_of_float16_is_asked_in_it(validated: Callable) -> None:
    shape = ["batch", "sequence", LAYER.d_model]
    x, y = ({"name": name, "dtype": "float16", "shape": shape} for name in ("x", "y"))
    says = {"inputs": [x, MASK], "outputs": [y]}
    found = validated(says=says, held_in="float16")
    assert (found.dtype, found.rounded_as) == ("float16", None)
    assert {record.dtype for record in found.runtimes[0].records} == {"float16"}
    assert errors(found) == {}


def test_float16_weights_are_judged_by_their_own_roundoff(validated: Callable) -> None:
    rounded = "y += (np.random.default_rng(0).random(y.shape) - 0.5) * 2**-11 * 4"
    assert validated(lie=rounded).status == 1
    found = validated(lie=rounded, held_in="float16")
    assert found.rounded_as == "float16"
    assert errors(found) == {}


@pytest.mark.parametrize(("limit", "status"), [(None, 0), (0.1, 0), (0.001, 1)])
def test_integer_weights_are_reported_and_held_to_a_limit(
    validated: Callable, limit: float | None, status: int
) -> None:
    says = {"operators": {"MatMulInteger": 6, "DynamicQuantizeLinear": 4}}
    found = validated(lie="y *= 1.02", limit=limit, says=says)
    assert found.rounded_as == "int8"
    assert found.status == status
    assert "relative error 0.02" in found.summaries["reduction"]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_done(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    ended = conform("validate", "model.onnx", "--out", "taken/out")
    assert ended.status == 2
    assert ended.stderr.startswith("conform: --out taken/out: cannot be written: Not a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_properties_are_judged_without_a_golden(validated: Callable) -> None:
    found = validated(lie="y += 1e-3 * x.mean(axis=0, keepdims=True)")
    assert any(message.startswith("invariant-batch") for message in errors(found)["properties"])
