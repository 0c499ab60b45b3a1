"""A layer is called as its model calls it: with the mask that leaves its window, and with the model's own constants."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from encoder_conformance.readers.module_target.examining import examine  # noqa: E402
from encoder_conformance.readers.module_target.frameworks.torch_layers_called import found_in  # noqa: E402

FILE = Path(__file__).with_name("in_model_modules.py")
modules = SimpleNamespace(**runpy.run_path(str(FILE)))


def test_a_mask_is_given_in_a_form_that_leaves_the_window() -> None:
    torch.manual_seed(0)
    found = examine(modules.windowed(), dtypes=("float32",))
    assert found.layer is not None, found.exported.problem
    assert found.layer.attention.window is not None
    assert [mask.axes for mask in found.semantics.masks] == ["BS"]
    assert found.offered is not None
    [replacing] = found.offered.unusable
    assert (replacing.argument, replacing.kind) == ("attention_mask", "replaces")
    assert "[batch, heads, sequence, sequence]" in replacing.form


def test_weights_too_small_to_be_seen_are_no_window() -> None:
    """A softmax of large scores gives most keys weights that no number shows, and all of a long sequence see each other
    with smaller matrices."""
    torch.manual_seed(0)
    layer = modules.Unwindowed()
    for map in (layer.q, layer.k):
        torch.nn.init.normal_(map.weight, std=4.0)
    found = examine(layer, dtypes=("float32",))
    assert found.layer is not None, found.exported.problem
    assert found.layer.attention.window is None


def test_norms_of_queries_and_keys_right_before_a_scaled_product_are_read() -> None:
    """The exporter puts the root of the scale behind each norm."""
    torch.manual_seed(0)
    found = examine(modules.QkNormed(), dtypes=("float32",))
    assert found.layer is not None, found.exported.problem
    norm = found.layer.attention.qk_norm
    assert norm is not None
    assert (norm.kind, norm.over, norm.shift) == ("layer_norm", "head", True)
    assert found.proof is not None
    assert found.proof.holds


@pytest.mark.release
def test_a_causal_layer_of_few_positions_is_asked_in_more_than_one_situation(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:OfABlock", "--jobs", "1", "--out", tmp_path / "out")
    assert ended.status == 0, ended.stdout + ended.stderr
    [part] = json.loads((tmp_path / "out" / "check.json").read_text())["parts"]
    assert part["described"]["lengths"] == list(range(1, 41))
    asked = {record["case"].partition("/")[2] for record in part["records"]}
    assert {"large-logits-causal", "low-variance-causal", "single-position-causal"} <= asked
    assert "more than 40 positions, which it does not take" in " ".join(each["said"] for each in part["not_asked"])


@pytest.mark.release
def test_a_formula_of_its_own_excuses_no_gradient_that_is_not_that_of_the_output(
    conform: Callable, tmp_path: Path
) -> None:
    module = FILE.with_name("cases_steps.py")
    ended = conform("check", f"{module}:HandNormDetached", "--jobs", "1", "--out", tmp_path / "out")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "This is a correct" not in ended.stdout


@pytest.mark.release
def test_a_window_that_every_mask_takes_away_is_an_error(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:loses_its_window", "--jobs", "1", "--out", tmp_path / "out")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "window-beside-no-mask" in ended.stdout


@pytest.mark.release
def test_the_window_stays_beside_a_mask_and_the_other_form_is_said(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:windowed", "--jobs", "1", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 0, printed + ended.stderr
    assert "attention_mask given as bool [batch, heads, sequence, sequence] replaces the window" in printed
    assert "asked without attention_mask" not in printed


@pytest.mark.release
def test_a_table_that_the_model_keeps_from_training_is_a_constant(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", f"{FILE}:Model", "--level", "core", "--jobs", "1", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 0, printed + ended.stderr
    assert "rope θ 10000 halves" in printed


def test_an_image_that_shows_no_layer_is_given_at_one_size() -> None:
    """Scores of each pair of pixels of a larger one filled the memory (the middle block of Janus' VQ-VAE)."""
    model = modules.OfPixels()
    assert found_in(model) == []
    assert model.seen == {64}
