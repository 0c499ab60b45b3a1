"""`conform check --also`: other forms of a module are judged as the module is, each in σ of its own format."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import encoder_conformance
from encoder_conformance.commands.check.verdict import of_variant
from encoder_conformance.readers.module_target.frameworks.pytorch import FRAMEWORK

FOLDER = Path(__file__).parent
MODULES: dict[str, Any] = runpy.run_path(str(FOLDER / "also_modules.py"), run_name="also_modules_by_value")
X = np.random.default_rng(0).normal(size=(2, 5, MODULES["D"])).astype(np.float32)
SEEN = frozenset({"norm1", "up"})


def variants(target: object, *words: str) -> dict[str, Any]:
    """The variants of a check in float32, by word, and its status."""
    report = encoder_conformance.check(target, dtypes=["float32"], also=words)
    [part] = report.result.parts
    assert part.alone == 0, report
    return {"status": report.status, **{each.word: each for each in part.variants}}


@pytest.mark.parametrize(("word", "close"), [("export", 1e-6), ("autocast-bf16", 0.05), ("half", 0.01)])
def test_a_form_shows_what_the_module_itself_shows(word: str, close: float) -> None:
    torch.manual_seed(0)
    own = FRAMEWORK.live(MODULES["Block"]())
    other = FRAMEWORK.in_form(own.in_dtype("float16") if word == "half" else own, word)
    x = X.astype(np.float16) if word == "half" else X
    (right, output), (found, answer) = own.watched({"x": X}, SEEN), other.watched({"x": x}, SEEN)
    assert found.keys() == right.keys()
    assert answer.dtype == other.call({"x": x}).dtype == x.dtype
    assert {value.dtype for value in found.values()} == {x.dtype}
    for one, two in ((right[key], found[key]) for key in right):
        assert np.allclose(one, two, atol=close, rtol=close)
    assert np.allclose(output, answer, atol=close, rtol=close)
    assert np.array_equal(answer, other.call({"x": x}))


def test_a_graph_of_another_layer_shows_where_it_is_another() -> None:
    torch.manual_seed(0)
    own = FRAMEWORK.live(MODULES["Lowered"]())
    (right, _), (found, _) = (each.watched({"x": X}, SEEN) for each in (own, FRAMEWORK.in_form(own, "export")))
    assert np.allclose(right["norm1", "output", 0], 2 * found["norm1", "output", 0], atol=1e-6)
    assert np.allclose(right["norm1", "input", 0], found["norm1", "input", 0], atol=1e-6)


@pytest.mark.release
def test_right_forms_are_right_and_one_that_is_none_of_the_framework_is_not_green() -> None:
    torch.manual_seed(0)
    found = variants(MODULES["Block"](), "autocast-bf16", "export", "half")
    assert found.pop("status") == 0
    assert all(0 < each.rms < 1.2 for each in found.values()), found
    assert {word: each.format for word, each in found.items()} == {
        "autocast-bf16": "bfloat16",
        "export": "float32",
        "half": "float16",
    }
    found = variants(MODULES["NoHalf"](), "half", "jit")
    assert found["status"] == 2
    assert of_variant(found["half"]) == "half was not judged: RuntimeError: no kernel for Half."
    assert "a module of PyTorch has none; it has compile," in of_variant(found["jit"])


@pytest.mark.release
def test_a_form_that_is_another_layer_is_wrong_and_its_first_stage_is_named() -> None:
    found = variants(f"{FOLDER / 'also_modules.py'}:WrongInHalf", "half", "export")
    assert found["status"] == 1
    assert found["export"].status == 0
    assert found["half"].tally.as_expected == 0
    assert found["half"].rms > 20
    assert found["half"].first_stage == "norm1"
    assert of_variant(found["half"]).startswith("half is wrong: ")
    assert of_variant(found["half"]).endswith("first stage apart: norm1.")


@pytest.mark.release
def test_a_form_that_raises_says_so_in_its_own_words() -> None:
    """float16 has no −1e9."""
    report = encoder_conformance.check(f"{FOLDER / 'also_modules.py'}:Filled", dtypes=["float32"], also=["half"])
    [part] = report.result.parts
    [half] = part.variants
    assert (part.alone, half.status, half.first_stage) == (0, 1, None)
    assert 0 < half.tally.as_expected < half.tally.applicable
    assert "calls give no output" in of_variant(half)
    assert "differ" not in of_variant(half)
    shown = str(report)
    assert "value cannot be converted to type c10::Half" in shown
    assert "also_modules.py" in shown
    assert "masked_fill" in shown


@pytest.mark.release
def test_what_is_compiled_is_really_compiled() -> None:
    """The module asks whether it is: that is an error of its own, too."""
    report = encoder_conformance.check(
        f"{FOLDER / 'also_modules.py'}:Compiled", dtypes=["float32"], also=["compile", "export"]
    )
    [part] = report.result.parts
    compiled, exported = part.variants
    assert (compiled.status, exported.status) == (1, 0)
    assert compiled.tally.as_expected == 0


@pytest.mark.release
@pytest.mark.needs("flax")
def test_jax_as_xla_optimises_it_exported_and_in_float16() -> None:
    found = variants(f"{FOLDER / 'bare_jax.py'}:Nnx", "jit", "export", "half")
    assert {word: each.status for word, each in found.items() if word != "status"} == dict.fromkeys(
        ("jit", "export", "half"), 0
    )


@pytest.mark.release
@pytest.mark.needs("keras", "tensorflow")
def test_keras_with_another_backend() -> None:
    found = variants(f"{FOLDER / 'bare_keras.py'}:Block", "jax", "torch", "compile")
    assert {word: each.status for word, each in found.items() if word != "status"} == {
        "jax": 0,
        "torch": 0,
        "compile": 2,
    }, found
