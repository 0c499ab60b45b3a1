"""Files of integers: how they are quantised, what scales lose, how far they are off, and what to leave in float."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

WRONG_SCALES = {0.0: "is 0", -1.0: "is negative", float("nan"): "is no number"}
SCRIPT = """
import numpy as np

def data():
    rng = np.random.default_rng(5)
    for _ in range(3):
        yield {"x": rng.standard_normal((2, 12, 24)).astype(np.float32), "mask": np.ones((2, 12), np.int64)}

class Reader:
    items = list(data())
    def get_next(self):
        return self.items.pop() if self.items else None

reader = Reader()
nothing = []
wrong = [{"x": np.ones((2, 3, 7), np.float32), "mask": np.ones((2, 3), np.int64)}]
"""


@pytest.fixture(scope="module")
def made() -> ModuleType:
    from frameworks import quantised

    return quantised


@pytest.fixture(scope="module")
def files(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the layer in float, and in integers: `static` calibrated without padding, `uniform` with."""
    folder = tmp_path_factory.mktemp("quantised")
    plain = made.written(folder / "float.onnx")
    made.static(plain, folder / "uniform.onnx", padded=True)
    made.static(plain, folder / "products.onnx", padded=True, products=True)
    made.dynamic(plain, folder / "dynamic.onnx")
    made.cast_and_multiplied(plain, folder / "cast.onnx")
    (folder / "script.py").write_text(SCRIPT)
    return folder


@pytest.fixture
def validated(files: Path, conform: Callable, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Validate a file in ONNX Runtime: the exit status, the JSON, and what was printed."""

    def of(file: str | Path, *more: object) -> tuple[int, dict[str, Any], str]:
        out = tmp_path / "out"
        told = ("--against", files / "float.onnx", "--runtime", "onnxruntime", "--out", out)
        ended = conform("validate", files / file, *told, *more)
        results = [*out.rglob("validation.json")]
        found = json.loads(results[0].read_text()) if results else {}
        return ended.status, found, ended.stdout + ended.stderr

    return of


def reader(path: Path, source: Path | None = None) -> Any:
    """The file as the reader's worker has it."""
    from encoder_conformance.impls.bases.onnx_model.runtimes import open as opened
    from encoder_conformance.readers.onnx_file.quantised.variants import QuantisedFile, source_tensors

    tensors = source_tensors({"source": str(source) if source else None}, {})
    return QuantisedFile(path, lambda model: opened(model, without=()), tensors)


def ordinary() -> dict[str, np.ndarray[Any, Any]]:
    x = np.random.default_rng(2).standard_normal((2, 20, 24)).astype(np.float32)
    return {"x": x, "mask": np.ones((2, 20), np.int64)}


def inspected(path: Path) -> Any:
    from encoder_conformance.readers.onnx_file.inspection import inspect

    return inspect(path, None)


def test_how_it_is_quantised_is_said(files: Path, made: ModuleType, tmp_path: Path) -> None:
    from encoder_conformance.readers.onnx_file.quantised.recognition import quantisation

    def said(path: Path) -> str:
        from encoder_conformance.readers.onnx_file.graph.graph import Graph
        from encoder_conformance.readers.onnx_file.reading.loading import load

        return str(quantisation(Graph(load(path)[0]).original))

    plain = files / "float.onnx"
    assert said(plain) == "None"
    expected = "weights 6 int8 by tensor (MatMulInteger); activations rounded 4 by scales of each input"
    assert said(files / "dynamic.onnx") == expected
    by_channel = made.dynamic(plain, tmp_path / "columns.onnx", by_channel=True)
    assert said(by_channel).startswith("weights 6 int8 by channel (MatMulInteger); activations rounded 4 by scales of")
    assert said(files / "products.onnx").startswith("weights 6 int8 by tensor (QDQ); activations rounded 16 by fixed")
    cast = made.cast_and_multiplied(plain, tmp_path / "cast.onnx")
    assert said(cast) == "weights 6 int8 by tensor (Cast · Mul); activations not rounded"


@pytest.mark.release
@pytest.mark.parametrize("opset", [17, 19, 21])
@pytest.mark.parametrize("by_channel", [False, True])
def test_pairs_of_every_opset_are_read(made: ModuleType, tmp_path: Path, opset: int, *, by_channel: bool) -> None:
    plain = made.written(tmp_path / "float.onnx", opset=opset)
    path = made.static(plain, tmp_path / "static.onnx", products=True, by_channel=by_channel)
    found = reader(path, plain)
    assert [place.weight for place in found.places()].count("source") == 6
    from encoder_conformance.readers.onnx_file.quantised.recognition import quantisation

    [weights] = quantisation(found._graph.original).weights
    assert (weights.form, weights.scales, weights.count) == ("QDQ", "by channel" if by_channel else "by tensor", 6)


def test_a_scale_that_rounds_all_scores_to_one_value_is_found(files: Path) -> None:
    [lost] = reader(files / "uniform.onnx").lost(ordinary())
    assert lost.scale == "scores_scale"
    assert "rounds to one value 100% of the rows of scores of attention" in lost.problem
    assert reader(files / "products.onnx").lost(ordinary()) == []
    assert reader(files / "dynamic.onnx").lost(ordinary()) == []


@pytest.mark.release
@pytest.mark.parametrize(("of", "factor", "problem"), [
    ("a", 0.2, "saturates"), ("n", 0.3, "saturates"), ("c0", 1000.0, "rounds to one value"), ("scores", 1.0, ""),
])  # fmt: skip
def test_a_scale_that_is_far_too_small_or_too_large_is_found(
    made: ModuleType, tmp_path: Path, of: str, factor: float, problem: str
) -> None:
    plain = made.written(tmp_path / "float.onnx")
    path = made.with_scale(made.static(plain, tmp_path / "static.onnx"), tmp_path / "wrong.onnx", of, factor)
    lost = reader(path).lost(ordinary())
    assert [each.problem.split(" 1")[0].split(":")[0] for each in lost if each.scale == f"{of}_scale"] == (
        [problem] if problem else []
    )
    assert problem or lost == []


@pytest.mark.parametrize("wrong", [0.0, *(pytest.param(each, marks=pytest.mark.release) for each in (-1.0, np.nan))])
def test_a_scale_that_is_none_is_an_error_with_its_name(
    files: Path, made: ModuleType, tmp_path: Path, wrong: float
) -> None:
    path = made.with_scale(files / "products.onnx", tmp_path / "wrong.onnx", "q2", wrong)
    [error] = inspected(path).findings.errors("reduction")
    said = next(text for value, text in WRONG_SCALES.items() if str(value) == str(wrong))
    assert error.message.startswith("the scale 'q2_scale' of QuantizeLinear 'q2_QuantizeLinear'")
    assert error.message.endswith(said)


@pytest.mark.parametrize("wrong", [0.0, np.nan])
@pytest.mark.parametrize("form", ["dynamic", "by column", "fused", "cast", "operators"])
def test_a_scale_that_is_none_is_found_in_every_form(
    files: Path, made: ModuleType, tmp_path: Path, form: str, wrong: float
) -> None:
    """A weight of zeros makes a layer that is consistent, and passed."""
    plain, path = files / "float.onnx", tmp_path / "right.onnx"
    of = "wo"
    if form == "dynamic":
        path = files / "dynamic.onnx"
    elif form == "by column":
        made.dynamic(plain, path, by_channel=True)
    elif form == "cast":
        path = files / "cast.onnx"
    elif form == "fused":
        made.optimised(files / "dynamic.onnx", path)
    else:
        of = "o0"
        made.static(plain, path, operators=True)
    assert inspected(path).findings.errors("reduction") == []
    [error] = inspected(made.with_scale(path, tmp_path / "wrong.onnx", of, wrong)).findings.errors("reduction")
    assert error.message.startswith(f"the scale {error.about['scale']!r} of ")
    assert (" is 0" if wrong == 0 else " is no number") in error.message
    assert error.about["scale"].startswith(of)


def test_a_factor_of_zero_behind_a_product_of_integers_is_no_scale(
    files: Path, made: ModuleType, tmp_path: Path
) -> None:
    """A layer's own scale of each feature may have zeros."""
    path = made.with_factor(files / "dynamic.onnx", tmp_path / "layer_scale.onnx")
    assert inspected(path).findings.errors("reduction") == []


def test_a_file_with_a_scale_of_zero_fails_without_its_source(
    files: Path, made: ModuleType, conform: Callable, tmp_path: Path
) -> None:
    path = made.with_scale(files / "dynamic.onnx", tmp_path / "wrong.onnx", "wo", 0.0)
    ended = conform("validate", path, "--runtime", "onnxruntime", "--out", tmp_path / "out")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "is 0" in ended.stdout + ended.stderr


@pytest.mark.parametrize("file", ["products.onnx", "dynamic.onnx", "cast.onnx"])
def test_left_in_float_with_the_sources_weights_it_is_the_source(files: Path, file: str) -> None:
    found, plain = reader(files / file, files / "float.onnx"), reader(files / "float.onnx")
    right = plain.outputs((), ordinary())["y"]

    def error(places: tuple[int, ...]) -> float:
        return float(np.sqrt(np.mean((found.outputs(places, ordinary())["y"] - right) ** 2)))

    places = found.places()
    alone = [error((number,)) for number in range(len(places))]
    assert 1e-3 < error(()) < 0.1
    assert min(alone) < error(()), "one at least makes some of it"
    assert error(tuple(range(len(places)))) < 1e-5
    assert {place.weight for place in places} == ({"source", ""} if file == "products.onnx" else {"source"})
    assert {place.weight for place in reader(files / file).places()} <= {"rounded", ""}


def test_a_weight_with_a_wrong_scale_is_the_one_to_leave_in_float(
    files: Path, made: ModuleType, tmp_path: Path
) -> None:
    """Its numbers are no rounding of the source's any more, and their directions are."""
    path = made.with_scale(files / "dynamic.onnx", tmp_path / "wrong.onnx", "wo", 3.0)
    found, plain = reader(path, files / "float.onnx"), reader(files / "float.onnx")
    right = plain.outputs((), ordinary())["y"]
    errors = {
        place.node: float(np.abs(found.outputs((number,), ordinary())["y"] - right).max())
        for number, place in enumerate(found.places())
    }
    assert {place.weight for place in found.places()} == {"source"}
    assert "'o0" in min(errors, key=lambda node: errors[node])


def test_uniform_attention_is_an_error_and_what_to_leave_in_float_is_named(validated: Callable) -> None:
    status, found, said = validated("uniform.onnx")
    assert (status, found["conclusion"]) == (1, "wrong"), said
    assert "scores of attention, so that every key has the same weight" in said
    rounding = found["rounding"]
    assert {case["kind"] for case in rounding["cases"]} == {"ordinary", "padded", "out of range"}
    best = rounding["ranking"]["places"][0]
    assert best["node"].startswith("Softmax")
    assert best["error"] < 0.2 * rounding["ranking"]["as_it_is"]
    assert any(case["weights"] < 0.03 < case["activations"] for case in rounding["cases"])


@pytest.mark.release
def test_pairs_below_opset_19_are_that_runtimes_row_where_it_has_none(validated: Callable) -> None:
    """ONNX's reference implementation has no DequantizeLinear of opset 17: the file is right all the same."""
    status, found, said = validated("products.onnx", "--runtime", "reference", "--limit", "0.1")
    assert (status, found["conclusion"], found["wrong_runtimes"]) == (0, "as_stated", []), said
    [note] = [each for each in found["findings"] if each["phase"] == "loads"]
    assert (note["severity"], note["runtimes"]) == ("note", ["reference"])
    assert note["message"] == "reference has not all of its operators in the opset of the file"
    assert "No implementation for operator 'DequantizeLinear'" in note["hint"]
    working = {row["runtime"] for row in found["runtimes"] if row["relative_error"] is not None}
    assert working == {"onnxruntime"}


@pytest.mark.release
def test_a_good_file_is_not_failed_for_inputs_out_of_range(validated: Callable) -> None:
    status, found, said = validated("products.onnx", "--limit", "0.1")
    assert (status, found["conclusion"]) == (0, "as_stated"), said
    far = [case for case in found["rounding"]["cases"] if case["kind"] == "out of range"]
    assert max(error for case in far for error in case["errors"].values()) > 0.1
    assert "does not hold inputs out of range" in said
    assert "within a relative error of 0.0" in said


@pytest.mark.release
def test_fix_leaves_as_little_in_float_as_a_limit_asks_for(validated: Callable, tmp_path: Path) -> None:
    new = tmp_path / "better.onnx"
    assert validated("uniform.onnx", "--limit", "0.1")[0] == 1
    status, found, said = validated("uniform.onnx", "--limit", "0.1", "--fix", new)
    assert status == 0, said
    assert "left in float are Softmax" in said
    assert found["model"] == str(new)
    assert validated("uniform.onnx", "--limit", "0.1", "--fix", new)[0] == 2, "nothing is replaced"
    status, _, said = validated("dynamic.onnx", "--limit", "1e-9", "--fix", tmp_path / "none.onnx")
    assert status == 2
    assert "nothing brings it within the limit" in said
    assert not (tmp_path / "none.onnx").exists()


@pytest.mark.release
@pytest.mark.parametrize("given", ["script.py", "script.py:reader", "inputs.npz"])
def test_a_limit_holds_the_users_own_data(validated: Callable, files: Path, given: str) -> None:
    if given.endswith(".npz"):
        np.savez(files / given, **ordinary())
    status, found, said = validated("products.onnx", "--limit", "0.1", "--data", files / given)
    assert status == 0, said
    own = [case for case in found["rounding"]["cases"] if case["kind"] == "own"]
    assert len(own) == (1 if given.endswith(".npz") else 3)
    assert "your data 0.0" in said


@pytest.mark.release
@pytest.mark.parametrize(
    ("told", "said"),
    [
        (("--data", "absent.py"), "absent.py"),
        (("--data", "script.py:nobody"), "defines no 'nobody'"),
        (("--data", "script.py:nothing"), "gives no inputs"),
        (("--data", "script.py:wrong"), "'x' has the shape [2, 3, 7], and the file takes [batch, sequence, 24]"),
        (("--data", "other.npz"), "'z' is no input of the file"),
        (("--limit", "nan"), "'nan' is no limit"),
        (("--limit", "inf"), "'inf' is no limit"),
    ],
)
def test_data_and_limits_that_are_none_are_refused(
    validated: Callable, files: Path, told: tuple[str, ...], said: str
) -> None:
    np.savez(files / "other.npz", **ordinary(), z=np.ones(2))
    option, value = told
    status, _, printed = validated("products.onnx", option, files / value if option == "--data" else value)
    assert status == 2, printed
    assert said in printed
