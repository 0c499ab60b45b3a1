"""`conform diff`: two layers with the same parameters, in any frameworks; which is off, where, and by what."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import read_document
from safetensors.numpy import save_file

MODULES = Path(__file__).with_name("bare_modules.py")


def diff(conform: Callable, first: str, second: str, *arguments: str | Path):
    ended = conform("diff", first, second, "--jobs", "1", "--out", "report", *arguments)
    return ended, read_document(ended.out / "diff.json")


@pytest.fixture
def own_inputs(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).normal(size=(3, 7, 16)).astype(np.float32)
    save_file({"x": x, "lengths": np.array([7, 5, 2])}, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


def test_the_one_that_is_off_is_named_with_its_bug(conform: Callable, own_inputs: Path) -> None:
    """Two arrangements of the parameters: fused, and by heads with names of its own."""
    named = f"{MODULES}:Einsum", f"{MODULES}:TanhGelu"
    ended, found = diff(conform, *named, "--inputs", own_inputs)
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "They differ, first at output: B is off, by gelu-tanh" in ended.stdout
    gradients = [each for each in found["apart"] if each["check"] == "gradients"]
    assert max(each["rms"] for each in gradients) > 100
    assert all(each["sides"][0] < 2 for each in found["apart"]), "A is what was read off it"
    [finding] = found["findings"]
    assert finding["kind"] == "mask-forms-disjoint"
    assert finding["about"] == {"masks": ["mask", "mask"], "meanings": ["attend", "attend"]}


@pytest.mark.release
@pytest.mark.parametrize(
    "second", [f"{MODULES}:Fused", "pytorch", pytest.param("jax_pure", marks=pytest.mark.needs("jax"))]
)
def test_what_is_alike_agrees(conform: Callable, second: str) -> None:
    ended, found = diff(conform, f"{MODULES}:Einsum", second)
    assert ended.status == 0, ended.stdout + ended.stderr
    assert "They agree within" in ended.stdout
    assert {"output", "gradients"} <= {each["check"] for each in found["apart"]}


@pytest.mark.release
def test_parameters_that_one_lacks_are_the_difference_on_either_side(conform: Callable) -> None:
    whole, lacking = f"{MODULES}:torch_layer", f"{MODULES}:torch_layer_without_biases"
    for first, second in ((whole, lacking), (lacking, whole)):
        ended, found = diff(conform, first, second)
        assert ended.status == 1, ended.stdout + ended.stderr
        assert "KeyError" not in ended.stdout
        assert "have no bias" in ended.stdout
        assert found["apart"]


@pytest.mark.release
def test_a_module_and_the_file_that_it_was_exported_to(conform: Callable, tmp_path: Path) -> None:
    exported = conform("export", "onnx_pytorch", "--layer", "pre-gelu", "--to", tmp_path / "model.onnx")
    assert exported.status == 0, exported.stderr
    ended, _ = diff(conform, str(tmp_path / "model.onnx"), "pytorch")
    assert ended.status == 0, ended.stdout + ended.stderr
    ended, _ = diff(conform, str(tmp_path / "model.onnx"), f"{MODULES}:Fused")
    assert ended.status == 2
    assert "they are of other sizes: d_model" in ended.stderr


BAD = {
    "pytorch onnx_pytorch": "two implementations can be any layer",
    "pytorch pytorch": "is both A and B",
    "weights.safetensors pytorch": "holds parameters, and computes nothing",
    "missing.onnx pytorch": "there is no such file",
    "pytorch nowhere.py:Layer": "there is no file 'nowhere.py'",
}


@pytest.mark.parametrize("named", BAD)
def test_bad_input_is_said(conform: Callable, named: str) -> None:
    ended, _ = diff(conform, *named.split())
    assert ended.status == 2, ended.stdout + ended.stderr
    assert BAD[named] in ended.stderr


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"y": np.zeros((2, 3, 16), np.float32)}, "no tensor x"),
        ({"x": np.zeros((2, 3, 8), np.float32)}, "it needs x [batch, sequence, 16]"),
        ({"x": np.zeros((2, 3, 16), np.float32), "mask": np.zeros(2)}, "the tensor 'mask' is no input"),
    ],
)
@pytest.mark.release
def test_inputs_that_are_none(conform: Callable, tmp_path: Path, tensors: dict, problem: str) -> None:
    save_file(tensors, tmp_path / "x.safetensors")
    named = f"{MODULES}:Fused", "pytorch"
    ended, _ = diff(conform, *named, "--inputs", tmp_path / "x.safetensors")
    assert ended.status == 2, ended.stdout
    assert problem in ended.stderr
